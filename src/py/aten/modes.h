/* Torch-function and dispatch modes of this thread. They see every torch call and may run any Python code in its place,
 * so neither recording nor replay continues under one. The same holds for torch.jit.trace, which has to see each call.
 */
#ifndef KIN_PY_MODES_H
#define KIN_PY_MODES_H

#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>

/* Part of kin_aten_init, with the two loaded libraries; KIN_PYERR when a function of torch is missing. */
kin_status kin_modes_init(PyObject *torch_module, void *torch_cpu, void *c10) KIN_MUST_CHECK;

/* Is a mode of the program on, or torch.jit.trace? False before kin_aten_init. The one behind torch.set_default_device() and
 * `with torch.device(...)` does not count: it runs code of torch alone, and replay's calls meet it as eager's do. */
bool kin_foreign_modes(void);

/* No mode of the program is on, and no transform of torch.func (grad and jvp wrap what a call makes). What is found out about torch once, by
 * trying it, waits for that. Asks Python: for what happens once. */
bool kin_undisturbed(void);
/* Modes and transforms off, until kin_modes_on takes what this has given: NULL with an exception. kin_modes_on: false with an exception. */
PyObject *kin_modes_off(void);
bool kin_modes_on(PyObject *off);

/* Are calls not handed to the classes of their operands (torch._C.DisableTorchFunctionSubclass)? */
bool kin_overrides_off(void);

/* Is a program traced symbolically in this process? make_fx, which traces tensors, counts too. */
bool kin_symbolic_active(void);
/* Is one of the arguments a torch.fx.Proxy? */
bool kin_symbolic_given(PyObject *const *args, Py_ssize_t n);
/* 0: the function is traced as it is; -1 with an exception: refused. */
int kin_symbolic_refuse(void);

#endif
