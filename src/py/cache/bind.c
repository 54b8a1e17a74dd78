/* Argument binding (bind.h). The order of the tests follows the language reference. Every doubtful case, such as a
 * keyword that is not an exact str, gets no plan and is left to CPython.
 */
#include "py/cache/bind.h"

#include <string.h>

typedef enum { FROM_NOTHING, FROM_ARG, FROM_DEFAULT, FROM_KWDEFAULT, FROM_STAR, FROM_KWDICT } origin;

typedef struct {
    origin from;
    uint32_t arg;   /* FROM_ARG: index among all arguments, self first, keywords last */
    PyObject *name; /* borrowed from the code object */
} rule;

struct kin_bind_plan {
    PyCodeObject *code; /* strong: names are borrowed from it */
    uint32_t nparams;
    bool has_defaults; /* a default is needed */
    uint32_t nextra;   /* keywords that go to **kwargs */
    uint32_t *extra;   /* their positions in kwnames; points behind `rules` */
    rule rules[];
};

/* Parameter that takes keyword `name`, -1 when there is none, -2 when CPython has to be asked. */
static int
find_parameter(PyCodeObject *code, PyObject *name)
{
    int last = code->co_argcount + code->co_kwonlyargcount;
    if (!PyUnicode_CheckExact(name))
        return -2;
    for (int i = code->co_posonlyargcount; i < last; i++)
        if (PyTuple_GET_ITEM(code->co_localsplusnames, i) == name)
            return i;
    for (int i = code->co_posonlyargcount; i < last; i++) {
        PyObject *parameter = PyTuple_GET_ITEM(code->co_localsplusnames, i);
        if (!PyUnicode_CheckExact(parameter))
            return -2;
        int order = PyUnicode_Compare(parameter, name);
        if (order == -1 && PyErr_Occurred()) {
            PyErr_Clear();
            return -2;
        }
        if (order == 0)
            return i;
    }
    return -1;
}

static kin_status
plan_keywords(kin_bind_plan *plan, Py_ssize_t nargs, PyObject *kwnames)
{
    PyCodeObject *code = plan->code;
    Py_ssize_t count = kwnames == NULL ? 0 : PyTuple_GET_SIZE(kwnames);
    for (Py_ssize_t k = 0; k < count; k++) {
        int i = find_parameter(code, PyTuple_GET_ITEM(kwnames, k));
        if (i == -2 || (i == -1 && !(code->co_flags & CO_VARKEYWORDS)))
            return KIN_BREAK;
        if (i == -1) {
            plan->extra[plan->nextra++] = (uint32_t)k;
            continue;
        }
        if (plan->rules[i].from != FROM_NOTHING)
            return KIN_BREAK;
        plan->rules[i].from = FROM_ARG;
        plan->rules[i].arg = (uint32_t)(nargs + k);
    }
    return KIN_OK;
}

static kin_status
plan_parameters(kin_bind_plan *plan, Py_ssize_t nargs, PyObject *kwnames)
{
    PyCodeObject *code = plan->code;
    uint32_t argcount = (uint32_t)code->co_argcount;
    uint32_t total = argcount + (uint32_t)code->co_kwonlyargcount, next = total;
    if (nargs > code->co_argcount && !(code->co_flags & CO_VARARGS))
        return KIN_BREAK;
    for (uint32_t i = 0; i < plan->nparams; i++)
        plan->rules[i].name = PyTuple_GET_ITEM(code->co_localsplusnames, i);
    for (uint32_t i = 0; i < argcount && i < nargs; i++) {
        plan->rules[i].from = FROM_ARG;
        plan->rules[i].arg = i;
    }
    if (code->co_flags & CO_VARARGS)
        plan->rules[next++].from = FROM_STAR;
    if (code->co_flags & CO_VARKEYWORDS)
        plan->rules[next++].from = FROM_KWDICT;
    KIN_TRY(plan_keywords(plan, nargs, kwnames));
    for (uint32_t i = 0; i < total; i++)
        if (plan->rules[i].from == FROM_NOTHING) {
            plan->rules[i].from = i < argcount ? FROM_DEFAULT : FROM_KWDEFAULT;
            plan->has_defaults = true;
        }
    return KIN_OK;
}

kin_status
kin_bind_plan_make(PyCodeObject *code, Py_ssize_t nargs, PyObject *kwnames, kin_bind_plan **out)
{
    size_t nkw = kwnames == NULL ? 0 : (size_t)PyTuple_GET_SIZE(kwnames);
    size_t nparams = (size_t)code->co_argcount + (size_t)code->co_kwonlyargcount +
                     ((code->co_flags & CO_VARARGS) != 0) + ((code->co_flags & CO_VARKEYWORDS) != 0);
    *out = NULL;
    kin_bind_plan *plan = calloc(1, sizeof *plan + nparams * sizeof(rule) + nkw * sizeof(uint32_t));
    if (plan == NULL)
        return KIN_NOMEM;
    plan->code = (PyCodeObject *)Py_NewRef((PyObject *)code);
    plan->nparams = (uint32_t)nparams;
    plan->extra = (uint32_t *)(void *)&plan->rules[nparams];
    kin_status status = plan_parameters(plan, nargs, kwnames);
    if (status == KIN_OK)
        *out = plan;
    else
        kin_bind_plan_free(plan);
    return status;
}

void
kin_bind_plan_free(kin_bind_plan *plan)
{
    if (plan == NULL)
        return;
    Py_DECREF(plan->code);
    free(plan);
}

uint32_t
kin_bind_count(const kin_bind_plan *plan)
{
    return plan->nparams;
}

/* Argument number k of all; borrowed. */
static inline PyObject *
argument(const kin_bind_call *call, uint32_t k)
{
    if (call->self == NULL)
        return call->args[k];
    return k == 0 ? call->self : call->args[k - 1];
}

/* The default of parameter i; borrowed, NULL when there is none. Sets no exception. */
static PyObject *
default_value(const kin_bind_plan *plan, const kin_bind_call *call, uint32_t i)
{
    if (plan->rules[i].from == FROM_DEFAULT) {
        PyObject *defaults = call->func->func_defaults;
        if (defaults == NULL)
            return NULL;
        Py_ssize_t at = (Py_ssize_t)i - plan->code->co_argcount + PyTuple_GET_SIZE(defaults);
        return at >= 0 && at < PyTuple_GET_SIZE(defaults) ? PyTuple_GET_ITEM(defaults, at) : NULL;
    }
    PyObject *defaults = call->func->func_kwdefaults;
    if (defaults == NULL || !PyDict_Check(defaults))
        return NULL;
    PyObject *value = PyDict_GetItemWithError(defaults, plan->rules[i].name);
    if (value == NULL)
        PyErr_Clear();
    return value;
}

bool
kin_bind_fits(const kin_bind_plan *plan, const kin_bind_call *call)
{
    if (!plan->has_defaults)
        return true;
    for (uint32_t i = 0; i < plan->nparams; i++) {
        origin from = plan->rules[i].from;
        if ((from == FROM_DEFAULT || from == FROM_KWDEFAULT) && default_value(plan, call, i) == NULL)
            return false;
    }
    return true;
}

static PyObject *
make_star(const kin_bind_plan *plan, const kin_bind_call *call)
{
    Py_ssize_t first = plan->code->co_argcount;
    Py_ssize_t count = call->nargs > first ? call->nargs - first : 0;
    PyObject *tuple = PyTuple_New(count);
    if (tuple == NULL)
        return NULL;
    for (Py_ssize_t k = 0; k < count; k++)
        PyTuple_SET_ITEM(tuple, k, Py_NewRef(argument(call, (uint32_t)(first + k))));
    return tuple;
}

static PyObject *
make_keywords(const kin_bind_plan *plan, const kin_bind_call *call)
{
    PyObject *dict = PyDict_New();
    if (dict == NULL)
        return NULL;
    for (uint32_t k = 0; k < plan->nextra; k++) {
        uint32_t at = plan->extra[k];
        PyObject *value = argument(call, (uint32_t)call->nargs + at);
        if (PyDict_SetItem(dict, PyTuple_GET_ITEM(call->kwnames, at), value) < 0) {
            Py_DECREF(dict);
            return NULL;
        }
    }
    return dict;
}

PyObject *
kin_bind_value(const kin_bind_plan *plan, const kin_bind_call *call, uint32_t i)
{
    PyObject *value;
    switch (plan->rules[i].from) {
    case FROM_ARG:
        return Py_NewRef(argument(call, plan->rules[i].arg));
    case FROM_STAR:
        return make_star(plan, call);
    case FROM_KWDICT:
        return make_keywords(plan, call);
    case FROM_DEFAULT:
    case FROM_KWDEFAULT:
        value = default_value(plan, call, i);
        if (value != NULL)
            return Py_NewRef(value);
        break;
    case FROM_NOTHING:
        break;
    }
    PyErr_SetString(PyExc_TypeError, "missing argument");
    return NULL;
}
