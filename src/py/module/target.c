/* Resolves a callable to the function that it runs (target.h). */
#include "py/module/target.h"

#include "py/report/guard_text.h"

/* `Py_TYPE(callable).__call__` when the type calls it by the ordinary slot; borrowed. */
static PyObject *
find_call_method(const kin_state *st, PyObject *callable)
{
    PyTypeObject *type = Py_TYPE(callable);
    if (!(type->tp_flags & Py_TPFLAGS_HEAPTYPE) || PyType_Check(callable))
        return NULL;
    return _PyType_Lookup(type, st->str_call);
}

kin_eager
kin_callee_find(const kin_state *st, PyObject *callable, kin_callee *out)
{
    PyObject *func = callable;
    out->self = NULL;
    if (PyMethod_Check(callable)) {
        func = PyMethod_GET_FUNCTION(callable);
        out->self = PyMethod_GET_SELF(callable);
    } else if (!PyFunction_Check(callable)) {
        func = find_call_method(st, callable);
        out->self = callable;
    }
    if (func == NULL || !PyFunction_Check(func))
        return KIN_EAGER_NOT_PYTHON;
    out->func = (PyFunctionObject *)func;
    /* A module whose forward is a generator function only hands out the generator: what it does runs outside of the call. */
    PyCodeObject *code = (PyCodeObject *)out->func->func_code, *forward = out->self == callable && code->co_flags & CO_VARARGS ? kin_forward_code((PyObject *)Py_TYPE(callable)) : NULL;
    int flags = code->co_flags | (forward != NULL ? forward->co_flags & (CO_GENERATOR | CO_COROUTINE | CO_ASYNC_GENERATOR) : 0);
    if (flags & (CO_COROUTINE | CO_ASYNC_GENERATOR | CO_ITERABLE_COROUTINE))
        return KIN_EAGER_COROUTINE;
    if (flags & CO_GENERATOR)
        return KIN_EAGER_GENERATOR;
    return KIN_EAGER_NO;
}
