/* Steps of PyTorch's own optimizers as one pass over their tensors (core/optim), in place of the Python code of `step`.
 *
 * What a step works on is looked up anew each time, as the library's code does: groups, their numbers, gradients, states. So a rate that a scheduler
 * changes, a parameter without a gradient and a state that was loaded need no recompiling. Everything is looked at before anything is
 * written; whatever is out of the ordinary (a first step, which makes the state; sparse, complex or half-precision tensors; numbers in tensors;
 * memory that is shared; methods that somebody replaced) is left to the library's own code.
 */
#ifndef KIN_PY_OPTIM_OPTIM_H
#define KIN_PY_OPTIM_OPTIM_H

#include <Python.h>

/* A C function that does what `func` does when it is called with the optimizer alone; NULL (no exception): there is none. Borrowed,
 * lives as long as the process. */
PyObject *kin_optim_native(PyObject *func);
/* The same for Optimizer.zero_grad, which is called with what the method is. */
PyObject *kin_optim_native_zero(PyObject *func);
/* The same for the two halves of torch.nn.utils.clip_grad_norm_, called with what they are, by position. */
PyObject *kin_optim_native_clip(PyObject *func);
/* Who is told of each step that is left to the library where the one before was another optimizer's or had another reason: the class, and the reason. NULL: nobody. */
typedef void (*kin_optim_listener)(void *arg, const char *name, const char *why);
void kin_optim_listen(kin_optim_listener listener, void *arg);
/* How many steps were done so, and how many were left to the library, with the last reason (new dict). */
PyObject *kin_optim_totals(void);

#endif
