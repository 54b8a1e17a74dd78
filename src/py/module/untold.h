/* A call that raised where a library was told of compiling. */
#ifndef KIN_PY_MODULE_UNTOLD_H
#define KIN_PY_MODULE_UNTOLD_H

#include "py/driver/record.h"
#include "py/module/compiled.h"

/* The states of PyTorch's generators, for a call that may be made again: new reference. NULL, without an exception: not known. */
PyObject *kin_random_state(void);
/* Puts them back. */
bool kin_random_restore(PyObject *before);
/* torch.is_grad_enabled(); -1: not known. */
int kin_grad_mode(void);

/* The recorded call has raised, and the exception is set. True: it is to be recorded once more, which tells libraries nothing; the exception and the
 * entry are gone. `grad_mode`, `random`: kin_grad_mode() and kin_random_state() before the call. */
bool kin_untold_wanted(kin_compiled *self, const kin_record_options *options, int grad_mode, PyObject *random, kin_record_result *result);
/* It has raised then as well. */
void kin_untold_failed(const kin_record_options *options);

#endif
