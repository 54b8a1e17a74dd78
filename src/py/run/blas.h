/* The BLAS that PyTorch ships with, called without PyTorch's dispatcher. */
#ifndef KIN_PY_RUN_BLAS_H
#define KIN_PY_RUN_BLAS_H

#include "core/kernels/gemm.h"

/* NULL: there is none, or it does not compute what it should. Found at the first call. */
const kin_blas *launch_blas(void);

#endif
