/* What contextlib.ExitStack asks for: sys.exc_info() or, since 3.14, sys.exception() where nothing is being handled, types.MethodType(function, object); and
 * function.__get__(object), which is the same. */
#include "py/models/models.h"

/* Nothing is being handled, which is checked. In a handler of the recording the traceback belongs to the answer: that is left to CPython. */
static bool
handles_nothing(rec *r, const rec_args *a)
{
    PyObject *type, *value, *traceback;
    if (a->npos || a->nkw || r->region != NULL || r->top->exc != 0)
        return false;
    PyErr_GetExcInfo(&type, &value, &traceback);
    bool none = value == NULL || value == Py_None;
    Py_XDECREF(type);
    Py_XDECREF(value);
    Py_XDECREF(traceback);
    if (!none)
        return false;
    if (r->handled == 0) {
        r->handled = rec_step_out(r, KIN_STEP_HANDLED, 0, NULL, 0);
        rec_set_obj(r, r->handled, Py_None);
    } else if (O(r, r->handled) != Py_None) {
        return false;
    }
    rec_check(r, KIN_CHECK_IS, r->handled, Py_None, 0); /* a handler of the recording has read it without asking what it is */
    return true;
}

static bool
model_exc_info(rec *r, const rec_args *a)
{
    PyObject *answer = PyTuple_Pack(3, Py_None, Py_None, Py_None);
    bool done = answer != NULL && handles_nothing(r, a) && rec_model_value(r, a, rec_const(r, answer));
    Py_XDECREF(answer);
    return done;
}

static bool
model_exception(rec *r, const rec_args *a)
{
    return handles_nothing(r, a) && rec_model_value(r, a, rec_const(r, Py_None));
}

bool
rec_new_method(rec *r, const rec_args *a)
{
    if (a->npos != 2 || a->nkw || O(r, a->args[0]) == NULL || O(r, a->args[1]) == NULL || !PyFunction_Check(O(r, a->args[0])) || O(r, a->args[1]) == Py_None)
        return false;
    for (int i = 0; i < 2; i++)
        if (VIRTUAL(r, a->args[i]) == NULL)
            rec_need_type(r, a->args[i]);
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_METHOD, KIN_STEP_PURE, a->args, 2);
    rec_make_virtual(r, out, VIRTUAL_METHOD, a->args, 2, true);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* function.__get__(obj), function.__get__(obj, cls) */
static bool
model_bind(rec *r, const rec_args *a)
{
    const rec_args call = {.callee = a->callee, .args = a->args, .npos = 2, .ndrop = a->ndrop};
    if (a->npos < 2 || a->npos > 3 || a->nkw || O(r, a->args[1]) == NULL)
        return false;
    if (O(r, a->args[1]) != Py_None)
        return rec_new_method(r, &call);
    bool of_class = a->npos == 3 && O(r, a->args[0]) != NULL && PyFunction_Check(O(r, a->args[0])) && O(r, a->args[2]) != NULL && PyType_Check(O(r, a->args[2]));
    if (!of_class || rec_need_const(r, a->args[1]) == 0)
        return false;
    for (int i = 0; i < 3; i += 2)
        if (VIRTUAL(r, a->args[i]) == NULL)
            rec_need_type(r, a->args[i]);
    return rec_model_value(r, a, a->args[0]);
}

const rec_method_row rec_function_rows[] = {{"FunctionType.__get__", model_bind}, {NULL, NULL}};
const rec_method_row rec_sys_rows[] = {{"exc_info", model_exc_info}, {"exception", model_exception}, {"_getframe", rec_model_frame}, {NULL, NULL}};
