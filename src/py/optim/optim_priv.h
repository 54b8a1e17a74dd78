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
    bool nesterov, maximize, amsgrad, centered, decoupled, foreach, fused;
} optim_group;

/* What is known of an optimizer of the library. */
typedef struct {
    const char *module, *name, *function; /* torch.optim.adam, Adam, adam: what does its arithmetic there */
    kin_optim_rule rule;
    bool counts;                          /* states hold "step" */
    const char *states[KIN_OPTIM_STATES]; /* in the rule's order */
    uint8_t writes[KIN_OPTIM_STATES];     /* how often its for-loop and foreach forms write to each, as _version counts */
    bool (*read)(optim_group *g);         /* false: something is no plain number */
    bool (*has)(const optim_group *g, int state);
    void (*set)(const optim_group *g, double step, kin_optim_tensor *to); /* flags and numbers */
    unsigned (*param_writes)(const optim_group *g);
} optim_row;

extern const optim_row optim_rows[];
extern const int optim_nrows;

/* An entry of a dict that is a float, an int or a bool. */
bool optim_number(PyObject *dict, const char *name, double *out);
bool optim_flag(PyObject *dict, const char *name, bool *out); /* None is false, and so is no entry */

#endif
