/* The library's optimizers, one row each: where their numbers come from, and what the pass over the tensors gets of them. Numbers are computed as Python
 * computes them, in double, and rounded where eager's operators round them. */
#include <float.h>
#include <math.h>

#include "py/optim/optim_priv.h"

static bool
read_common(optim_group *g)
{
    bool differentiable, capturable;
    return optim_number(g->dict, "lr", &g->lr) && optim_number(g->dict, "weight_decay", &g->decay) && optim_flag(g->dict, "maximize", &g->maximize) &&
           optim_flag(g->dict, "foreach", &g->foreach) && optim_flag(g->dict, "fused", &g->fused) &&
           optim_flag(g->dict, "differentiable", &differentiable) && optim_flag(g->dict, "capturable", &capturable) && !differentiable && !capturable;
}

static void
set_common(const optim_group *g, kin_optim_tensor *to)
{
    to->by.sign = g->maximize ? -1.0f : 1.0f;
    to->by.eps = (float)g->eps;
    to->by.decay = (float)g->decay;
    to->flags = g->decay != 0 ? KIN_OPTIM_DECAY : 0;
}

static unsigned
writes_once(const optim_group *g)
{
    return 1;
}

/* -- SGD -------------------------------------------------------------------------------------------------------------- */

static bool
read_sgd(optim_group *g)
{
    return read_common(g) && optim_number(g->dict, "momentum", &g->momentum) && optim_number(g->dict, "dampening", &g->dampening) &&
           optim_flag(g->dict, "nesterov", &g->nesterov);
}

static bool
has_sgd(const optim_group *g, int state)
{
    return state == 0 && g->momentum != 0;
}

static void
set_sgd(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    to->by.rate = (float)-g->lr;
    to->by.momentum = (float)g->momentum;
    to->by.fresh = (float)(1 - g->dampening);
    to->flags |= g->nesterov && g->momentum != 0 ? KIN_OPTIM_NESTEROV : 0;
    if (to->flags & KIN_OPTIM_NESTEROV && g->foreach && g->decay == 0 && !g->maximize)
        to->flags |= KIN_OPTIM_KEEPS_GRAD;
}

/* -- Adam, AdamW --------------------------------------------------------------------------------------------------------- */

static bool
read_adam(optim_group *g)
{
    PyObject *betas = PyDict_GetItemString(g->dict, "betas"); /* borrowed */
    if (betas == NULL || (!PyTuple_CheckExact(betas) && !PyList_CheckExact(betas)) || PySequence_Fast_GET_SIZE(betas) != 2)
        return false;
    PyObject *one = PySequence_Fast_GET_ITEM(betas, 0), *two = PySequence_Fast_GET_ITEM(betas, 1);
    if (!PyFloat_CheckExact(one) || !PyFloat_CheckExact(two))
        return false;
    g->beta1 = PyFloat_AS_DOUBLE(one);
    g->beta2 = PyFloat_AS_DOUBLE(two);
    return read_common(g) && optim_number(g->dict, "eps", &g->eps) && optim_flag(g->dict, "amsgrad", &g->amsgrad) &&
           optim_flag(g->dict, "decoupled_weight_decay", &g->decoupled);
}

static bool
has_adam(const optim_group *g, int state)
{
    return state < 2 || g->amsgrad;
}

static void
set_adam(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    if (g->decoupled || g->decay == 0) {
        to->flags = 0;
        to->by.decay = g->decay == 0 ? 1.0f : (float)(1 - g->lr * g->decay);
    }
    to->by.rate = (float)-(g->lr / (1 - pow(g->beta1, step)));
    to->by.weight = (float)(1 - g->beta1);
    to->by.square = (float)g->beta2;
    to->by.square_fresh = (float)(1 - g->beta2);
    to->by.correction = (float)sqrt(1 - pow(g->beta2, step));
}

static unsigned
adam_writes(const optim_group *g)
{
    return g->decoupled && g->decay != 0 ? 2 : 1;
}

/* -- RMSprop ------------------------------------------------------------------------------------------------------------- */

static bool
read_rmsprop(optim_group *g)
{
    return read_common(g) && optim_number(g->dict, "alpha", &g->alpha) && optim_number(g->dict, "eps", &g->eps) &&
           optim_number(g->dict, "momentum", &g->momentum) && optim_flag(g->dict, "centered", &g->centered);
}

static bool
has_rmsprop(const optim_group *g, int state)
{
    return state == 0 || (state == 1 && g->momentum > 0) || (state == 2 && g->centered);
}

static void
set_rmsprop(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    to->by.rate = (float)-g->lr;
    to->by.momentum = (float)g->momentum;
    to->by.square = (float)g->alpha;
    to->by.square_fresh = to->by.weight = (float)(1 - g->alpha);
}

/* -- Adagrad ------------------------------------------------------------------------------------------------------------- */

static bool
read_adagrad(optim_group *g)
{
    return read_common(g) && optim_number(g->dict, "lr_decay", &g->lr_decay) && optim_number(g->dict, "eps", &g->eps);
}

static bool
has_adagrad(const optim_group *g, int state)
{
    return state == 0;
}

static void
set_adagrad(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    to->by.rate = (float)-(g->lr / (1 + (step - 1) * g->lr_decay));
}

/* -- Adafactor ----------------------------------------------------------------------------------------------------------- */

static bool
read_adafactor(optim_group *g)
{
    PyObject *eps = PyDict_GetItemString(g->dict, "eps"); /* borrowed */
    if (eps == NULL || (!PyTuple_CheckExact(eps) && !PyList_CheckExact(eps)) || PySequence_Fast_GET_SIZE(eps) != 2)
        return false;
    PyObject *one = PySequence_Fast_GET_ITEM(eps, 0), *two = PySequence_Fast_GET_ITEM(eps, 1);
    if ((one != Py_None && !PyFloat_CheckExact(one)) || !PyFloat_CheckExact(two))
        return false;
    g->eps = one == Py_None ? FLT_EPSILON : PyFloat_AS_DOUBLE(one);
    g->eps2 = PyFloat_AS_DOUBLE(two);
    return read_common(g) && optim_number(g->dict, "d", &g->most) && optim_number(g->dict, "beta2_decay", &g->beta2_decay);
}

void
optim_set_adafactor(const optim_group *g, double step, kin_optim_factored *to)
{
    double slow = 1 / sqrt(step);
    to->sign = g->maximize ? -1.0f : 1.0f;
    to->weight = (float)pow(step, g->beta2_decay);
    to->eps = (float)g->eps;
    to->decay = g->decay == 0 ? 1.0f : (float)(1 - g->lr * g->decay);
    to->rate = g->lr < slow ? g->lr : slow;
    to->least = g->eps2;
    to->most = g->most;
}

static unsigned
adafactor_writes(const optim_group *g)
{
    return g->decay != 0 ? 2 : 1;
}

/* -- rows ---------------------------------------------------------------------------------------------------------------- */

const optim_row optim_rows[] = {
    {"torch.optim.sgd", "SGD", "sgd", KIN_OPTIM_SGD, false, {"momentum_buffer"}, {2}, read_sgd, has_sgd, set_sgd, writes_once},
    {"torch.optim.adam", "Adam", "adam", KIN_OPTIM_ADAM, true, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {1, 2, 1}, read_adam, has_adam, set_adam, adam_writes},
    {"torch.optim.rmsprop", "RMSprop", "rmsprop", KIN_OPTIM_RMSPROP, true, {"square_avg", "momentum_buffer", "grad_avg"}, {2, 2, 1}, read_rmsprop,
     has_rmsprop, set_rmsprop, writes_once},
    {"torch.optim.adagrad", "Adagrad", "adagrad", KIN_OPTIM_ADAGRAD, true, {"sum"}, {1}, read_adagrad, has_adagrad, set_adagrad, writes_once},
    {"torch.optim._adafactor", "Adafactor", "adafactor", KIN_OPTIM_ADAFACTOR, true, {NULL}, {0}, read_adafactor, NULL, NULL, adafactor_writes},
};
const int optim_nrows = sizeof optim_rows / sizeof *optim_rows;
