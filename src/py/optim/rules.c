/* PyTorch's optimizers, one row each: where their numbers come from, and what the pass over the tensors gets. Numbers are computed as Python
 * computes them, in double, and rounded where eager's operators round them. */
#include <float.h>
#include <math.h>

#include "py/optim/optim_priv.h"

static bool
read_form(optim_group *g)
{
    bool differentiable, capturable;
    return optim_number(g->dict, "lr", &g->lr) && optim_flag(g->dict, "maximize", &g->maximize) && optim_flag(g->dict, "foreach", &g->foreach) &&
           optim_flag(g->dict, "fused", &g->fused) && optim_flag(g->dict, "differentiable", &differentiable) &&
           optim_flag(g->dict, "capturable", &capturable) && !differentiable && !capturable;
}

static bool
read_common(optim_group *g)
{
    return read_form(g) && optim_number(g->dict, "weight_decay", &g->decay);
}

/* An entry of a group that holds two floats. */
static bool
read_pair(const optim_group *g, const char *name, double *first, double *second)
{
    PyObject *pair = PyDict_GetItemString(g->dict, name); /* borrowed */
    if (pair == NULL || (!PyTuple_CheckExact(pair) && !PyList_CheckExact(pair)) || PySequence_Fast_GET_SIZE(pair) != 2)
        return false;
    PyObject *one = PySequence_Fast_GET_ITEM(pair, 0), *two = PySequence_Fast_GET_ITEM(pair, 1);
    if ((!PyFloat_CheckExact(one) && !PyLong_CheckExact(one)) || (!PyFloat_CheckExact(two) && !PyLong_CheckExact(two)))
        return false;
    *first = PyFloat_AsDouble(one);
    *second = PyFloat_AsDouble(two);
    return !PyErr_Occurred();
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
    return read_common(g) && read_pair(g, "betas", &g->beta1, &g->beta2) && optim_number(g->dict, "eps", &g->eps) &&
           optim_flag(g->dict, "amsgrad", &g->amsgrad) && optim_flag(g->dict, "decoupled_weight_decay", &g->decoupled);
}

static bool
has_adam(const optim_group *g, int state)
{
    return state < 2 || g->amsgrad;
}

/* What all take that keep means of gradients and of their squares. */
static void
set_means(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    if (g->decoupled || g->decay == 0) {
        to->flags = 0;
        to->by.decay = g->decay == 0 ? 1.0f : (float)(1 - g->lr * g->decay);
    }
    to->by.weight = (float)(1 - g->beta1);
    to->by.square = (float)g->beta2;
    to->by.square_fresh = (float)(1 - g->beta2);
    to->by.correction = (float)sqrt(1 - pow(g->beta2, step));
}

static void
set_adam(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_means(g, step, to);
    to->by.rate = (float)-(g->lr / (1 - pow(g->beta1, step)));
}

static unsigned
adam_writes(const optim_group *g)
{
    return g->decoupled && g->decay != 0 ? 2 : 1;
}

/* -- AdamW before torch 2.7, which is no Adam ------------------------------------------------------------------------------ */

static bool
read_adamw(optim_group *g)
{
    return read_adam(g) && (g->decoupled = true);
}

/* The for-loop form multiplies by 1 where nothing decays. */
static unsigned
adamw_writes(const optim_group *g)
{
    return g->decay != 0 || !g->foreach ? 2 : 1;
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
has_one(const optim_group *g, int state)
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

/* -- Adadelta ------------------------------------------------------------------------------------------------------------ */

static bool
read_adadelta(optim_group *g)
{
    return read_common(g) && optim_number(g->dict, "rho", &g->alpha) && optim_number(g->dict, "eps", &g->eps);
}

static bool
has_two(const optim_group *g, int state)
{
    return state < 2;
}

static void
set_adadelta(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    to->by.rate = (float)-g->lr;
    to->by.square = (float)g->alpha;
    to->by.square_fresh = (float)(1 - g->alpha);
}

/* -- Adamax, NAdam, RAdam ------------------------------------------------------------------------------------------------ */

static void
set_adamax(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    to->by.rate = (float)-(g->lr / (1 - pow(g->beta1, step)));
    to->by.weight = (float)(1 - g->beta1);
    to->by.square = (float)g->beta2;
}

static bool
read_nadam(optim_group *g)
{
    return read_adam(g) && optim_number(g->dict, "momentum_decay", &g->momentum_decay);
}

/* The momentum of a step, and what all so far make together. */
static void
advance_nadam(const optim_group *g, double step, float *const *scalars, kin_optim_tensor *to)
{
    double momentum = g->beta1 * (1 - 0.5 * pow(0.96, step * g->momentum_decay));
    double next = g->beta1 * (1 - 0.5 * pow(0.96, (step + 1) * g->momentum_decay));
    double product = *scalars[0] *= (float)momentum;
    to->by.rate = (float)(-g->lr * (1 - momentum) / (1 - product));
    to->by.momentum = (float)(-g->lr * next / (1 - product * next));
}

static unsigned
nadam_writes(const optim_group *g)
{
    return 1 + adam_writes(g);
}

static void
set_radam(const optim_group *g, double step, kin_optim_tensor *to)
{
    double left = 1 - pow(g->beta2, step), most = 2 / (1 - g->beta2) - 1, length = most - 2 * step * pow(g->beta2, step) / left;
    double rate = -(g->lr / (1 - pow(g->beta1, step)));
    set_means(g, step, to);
    if (length > 5) {
        rate *= sqrt((length - 4) * (length - 2) * most / ((most - 4) * (most - 2) * length)) * sqrt(left);
        to->flags |= KIN_OPTIM_RECTIFIES;
    }
    to->by.rate = (float)rate;
}

/* -- ASGD ---------------------------------------------------------------------------------------------------------------- */

static bool
read_asgd(optim_group *g)
{
    return read_common(g) && optim_number(g->dict, "lambd", &g->lambd) && optim_number(g->dict, "alpha", &g->alpha) && optim_number(g->dict, "t0", &g->t0);
}

/* The rate is what the step before has left. eager's foreach form computes the next one from a tensor, in float32, always moves the mean,
 * and adds the decay to the gradient. */
static void
advance_asgd(const optim_group *g, double step, float *const *scalars, kin_optim_tensor *to)
{
    float *mu = scalars[0], *eta = scalars[1];
    to->by.rate = -*eta;
    to->by.shrink = (float)(g->foreach ? g->lambd : 1 - g->lambd * *eta);
    to->by.weight = *mu;
    to->flags |= g->foreach ? KIN_OPTIM_JOINS : *mu != 1 ? KIN_OPTIM_AVERAGES : 0;
    if (g->foreach)
        *eta = 1 / powf((float)(g->lambd * g->lr) * (float)step + 1, (float)g->alpha) * (float)g->lr;
    else
        *eta = (float)(g->lr / pow(1 + g->lambd * g->lr * step, g->alpha));
    *mu = (float)(1 / (step - g->t0 > 1 ? step - g->t0 : 1));
}

static void
set_asgd(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
}

static unsigned
asgd_writes(const optim_group *g)
{
    return g->foreach ? 1 : 2;
}

/* -- Rprop --------------------------------------------------------------------------------------------------------------- */

static bool
read_rprop(optim_group *g)
{
    return read_form(g) && read_pair(g, "etas", &g->down, &g->up) && read_pair(g, "step_sizes", &g->least, &g->most);
}

static void
set_rprop(const optim_group *g, double step, kin_optim_tensor *to)
{
    set_common(g, to);
    to->by.up = (float)g->up;
    to->by.down = (float)g->down;
    to->by.least = (float)g->least;
    to->by.most = (float)g->most;
}

/* Of the last gradients: the foreach form makes the new ones there. */
static unsigned
rprop_state_writes(const optim_group *g)
{
    return !g->foreach ? 1 : g->maximize ? 3 : 2;
}

/* -- rows ---------------------------------------------------------------------------------------------------------------- */

const optim_row optim_rows[] = {
    {"torch.optim.sgd", "SGD", "sgd", KIN_OPTIM_SGD, false, {"momentum_buffer"}, {2}, read_sgd, has_sgd, set_sgd, writes_once},
    {"torch.optim.adam", "Adam", "adam", KIN_OPTIM_ADAM, true, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {1, 2, 1}, read_adam, has_adam, set_adam, adam_writes},
    {"torch.optim.adamw", "AdamW", "adamw", KIN_OPTIM_ADAM, true, {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"}, {1, 2, 1}, read_adamw, has_adam, set_adam,
     adamw_writes},
    {"torch.optim.rmsprop", "RMSprop", "rmsprop", KIN_OPTIM_RMSPROP, true, {"square_avg", "momentum_buffer", "grad_avg"}, {2, 2, 1}, read_rmsprop,
     has_rmsprop, set_rmsprop, writes_once},
    {"torch.optim.adagrad", "Adagrad", "adagrad", KIN_OPTIM_ADAGRAD, true, {"sum"}, {1}, read_adagrad, has_one, set_adagrad, writes_once},
    {"torch.optim._adafactor", "Adafactor", "adafactor", KIN_OPTIM_ADAFACTOR, true, {NULL}, {0}, read_adafactor, NULL, NULL, adafactor_writes},
    {"torch.optim.adadelta", "Adadelta", "adadelta", KIN_OPTIM_ADADELTA, true, {"square_avg", "acc_delta"}, {2, 2}, read_adadelta, has_two, set_adadelta,
     writes_once},
    {"torch.optim.adamax", "Adamax", "adamax", KIN_OPTIM_ADAMAX, true, {"exp_avg", "exp_inf"}, {1, 2}, read_adam, has_two, set_adamax, writes_once},
    {"torch.optim.nadam", "NAdam", "nadam", KIN_OPTIM_NADAM, true, {"exp_avg", "exp_avg_sq"}, {1, 2}, read_nadam, has_two, set_means, nadam_writes, NULL,
     {"mu_product"}, advance_nadam},
    {"torch.optim.radam", "RAdam", "radam", KIN_OPTIM_RADAM, true, {"exp_avg", "exp_avg_sq"}, {1, 2}, read_adam, has_two, set_radam, adam_writes},
    {"torch.optim.asgd", "ASGD", "asgd", KIN_OPTIM_ASGD, true, {"ax"}, {1}, read_asgd, has_one, set_asgd, asgd_writes, NULL, {"mu", "eta"},
     advance_asgd},
    {"torch.optim.rprop", "Rprop", "rprop", KIN_OPTIM_RPROP, true, {"prev", "step_size"}, {0, 2}, read_rprop, has_two, set_rprop, writes_once,
     rprop_state_writes},
};
const int optim_nrows = sizeof optim_rows / sizeof *optim_rows;
