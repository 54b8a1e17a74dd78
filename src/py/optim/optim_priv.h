/* Private to src/py/optim. */
#ifndef KIN_PY_OPTIM_PRIV_H
#define KIN_PY_OPTIM_PRIV_H

#include <Python.h>
#include <stdbool.h>

#include "core/optim/optim.h"

/* A group of parameters, with its numbers as its rule has read them. */
typedef struct {
    PyObject *dict;
    double lr, decay, momentum, dampening, alpha, eps, beta1, beta2, lr_decay;
    double eps2, most, beta2_decay; /* Adafactor */
    double momentum_decay;          /* NAdam */
    double lambd, t0;               /* ASGD */
    double up, down, least;         /* Rprop */
    bool nesterov, maximize, amsgrad, centered, decoupled, foreach, fused;
} optim_group;

enum { OPTIM_SCALARS = 2 };

/* What is known of an optimizer of the library. */
typedef struct {
    const char *module, *name, *function; /* torch.optim.adam, Adam, adam: what does its arithmetic there */
    kin_optim_rule rule;
    bool counts;                          /* states hold "step" */
    const char *states[KIN_OPTIM_STATES]; /* in the rule's order */
    uint8_t writes[KIN_OPTIM_STATES];     /* how often its for-loop and foreach forms write to each, as _version counts; 0: state_writes tells */
    bool (*read)(optim_group *g);         /* false: something is no plain number */
    bool (*has)(const optim_group *g, int state);
    void (*set)(const optim_group *g, double step, kin_optim_tensor *to); /* flags and numbers */
    unsigned (*param_writes)(const optim_group *g);
    unsigned (*state_writes)(const optim_group *g);
    const char *scalars[OPTIM_SCALARS]; /* tensors of one float32 among the states; each is written once */
    void (*advance)(const optim_group *g, double step, float *const *scalars, kin_optim_tensor *to); /* after `set`: numbers from these, and what they are next */
} optim_row;

void optim_set_adafactor(const optim_group *g, double step, kin_optim_factored *to);

extern const optim_row optim_rows[];
extern const int optim_nrows;

/* Do the elements fill a stretch of memory without gaps, in some order of dims? */
bool optim_is_dense(const int64_t *sizes, const int64_t *strides, int64_t ndim, int64_t *numel);
PyObject *optim_name_grad(void);
/* A function of the library without its wrappers, and what this folder needs of torch is ready; NULL: it is not there. New reference. */
PyObject *optim_find(const char *module, const char *type, const char *name);
PyObject *optim_native(PyMethodDef *def, PyObject *self, const char *format, const char *owner); /* a C function that says where the one is that it stands for */

/* A part of memory; reads: only. */
typedef struct {
    const char *from, *to;
    bool reads;
} optim_stretch;

/* Does one overlap another, where at least one is written to? Puts them in order. */
bool optim_overlaps(optim_stretch *s, uint32_t n);
/* The optimizer's groups; NULL: it keeps them in another way. Borrowed. */
PyObject *optim_groups(PyObject *self);
/* Were the wrappers of its class made, as its first zero_grad does where nobody has yet? */
bool optim_was_patched(PyObject *self);

/* An entry of a dict that is a float, an int or a bool. */
bool optim_number(PyObject *dict, const char *name, double *out);
bool optim_flag(PyObject *dict, const char *name, bool *out); /* None is false, and so is no entry */

#endif
