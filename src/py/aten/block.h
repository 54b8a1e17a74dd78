/* Tensors over large blocks that are kept for reuse (core/blocks): outputs of compiled graphs. They behave like any tensor of torch's:
 * their storage can be resized, shared and moved. When the storage releases its memory, at any time and in any thread, the
 * block is returned.
 */
#ifndef KIN_PY_ATEN_BLOCK_H
#define KIN_PY_ATEN_BLOCK_H

#include "core/blocks/blocks.h"
#include "core/ir/ir.h"
#include <Python.h>

/* Those of this process; NULL: there are none. */
kin_blocks *kin_process_blocks(void);

/* A new tensor with undefined contents, `bytes` from its first to its last element. NULL without an exception: there is no such
 * block, or this build of torch keeps its storages otherwise than expected. */
PyObject *kin_tensor_in_block(kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides, size_t bytes);

#endif
