/* Steps of PyTorch's own optimizers as one pass over their tensors (core/optim), in place of the Python code of `step`.
 *
 * What a step works on is looked up in each call, as the library's code does: groups, their numbers, gradients, states. So a learning rate that a scheduler
 * changes, a parameter without a gradient or a loaded state needs no recompile. Everything is checked before anything is
 * written. Unusual cases (a first step, which creates the state; sparse, complex or half-precision tensors; numbers that are tensors;
 * shared memory; methods that somebody replaced) are left to the library's own code.
 */
#ifndef KIN_PY_OPTIM_OPTIM_H
#define KIN_PY_OPTIM_OPTIM_H

#include <Python.h>
#include <stdint.h>

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
/* Steps that this thread has come to so far: one pass each, and left to the library, the last of them for this reason. */
typedef struct {
    uint64_t done, left;
    const char *why;
} kin_optim_count;
kin_optim_count kin_optim_counted(void);
/* How many steps were done so, and how many were left to the library, with the last reason (new dict). */
PyObject *kin_optim_totals(void);

#endif
