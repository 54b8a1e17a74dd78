/* Decomposes operators (kintsugi/_compose.py), so that a graph can fuse the parts of what would be one large call. With gradients, the
 * original operator is kept beside its parts: if torch has to run the captured operators again, its own autograd formula is used.
 */
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"

#define T kin_capture_torch

static PyObject *
find_in(PyObject **table, const char *which, PyObject *name)
{
    if (*table == NULL) {
        *table = kin_import("kintsugi._compose", which);
        if (*table == NULL || !PyDict_Check(*table))
            Py_XSETREF(*table, PyDict_New());
        PyErr_Clear();
    }
    return *table == NULL ? NULL : PyDict_GetItem(*table, name);
}

/* The function that does the same with smaller operators, or what does the same where autograd goes back: borrowed, or NULL without an exception. */
static PyObject *
find_composition(const capturing *c, PyObject *name)
{
    static PyObject *always, *back;
    PyObject *function = c->step == UINT32_MAX ? find_in(&back, "BACK", name) : NULL;
    return function != NULL ? function : find_in(&always, "TABLE", name);
}

/* What it raises says why the operator cannot be captured. */
static void
note_reason(capturing *c, PyObject *error)
{
    PyObject *text = PyObject_Str(error);
    const char *chars = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    if (chars != NULL)
        kin_capture_refuse(c, "%s", chars);
    PyErr_Clear();
    Py_XDECREF(text);
}

/* Its operators come to the capture in place of the one. NULL without an exception: it does not do these arguments. */
static PyObject *
note_composition(capturing *c, PyObject *function, PyObject *args, PyObject *kwargs)
{
    PyObject *mode = kin_mode_new(c), *pushed = mode == NULL ? NULL : PyObject_CallOneArg(T.push, mode);
    if (pushed == NULL) {
        Py_XDECREF(mode);
        return NULL;
    }
    PyObject *made = PyObject_Call(function, args, kwargs), *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *popped = PyObject_CallOneArg(T.pop, Py_None);
    Py_XDECREF(popped);
    if (error != NULL)
        note_reason(c, error);
    PyErr_Restore(type, error, tb);
    kin_mode_end(mode);
    Py_DECREF(mode);
    Py_DECREF(pushed);
    if (made == Py_NotImplemented)
        Py_CLEAR(made);
    return made;
}

bool
kin_capture_note_whole(capturing *c, uint32_t first, PyObject *op, PyObject *args, PyObject *kwargs, PyObject *made)
{
    kin_capture_joint *joint = &c->out->joint;
    while (joint->wholes.len > 0 && joint->wholes.at[joint->wholes.len - 1].first >= first)
        kin_capture_call_deinit(&joint->wholes.at[--joint->wholes.len].call);
    kin_capture_call call = {op, args, kwargs != NULL && PyDict_GET_SIZE(kwargs) ? kwargs : NULL, made, c->step, c->untracked};
    if (kin_vec_push(&joint->wholes, ((kin_capture_whole){call, first, c->out->calls.len})) != KIN_OK)
        return false;
    Py_INCREF(op);
    Py_INCREF(args);
    Py_XINCREF(call.kwargs);
    Py_INCREF(made);
    return true;
}

PyObject *
kin_capture_compose(capturing *c, PyObject *row, PyObject *args, PyObject *kwargs)
{
    if (kin_text_is(PyTuple_GET_ITEM(row, 1), "aten._local_scalar_dense.default"))
        return kin_capture_known_number(c, args);
    PyObject *function = find_composition(c, PyTuple_GET_ITEM(row, 1));
    if (function == NULL)
        return NULL;
    uint32_t first = c->out->calls.len;
    bool uncounted = c->uncounted;
    c->uncounted = PyTuple_GET_SIZE(PyTuple_GET_ITEM(row, 2)) == 0; /* what it writes to then, torch does not count */
    PyObject *made = note_composition(c, function, args, kwargs);
    c->uncounted = uncounted;
    if (made != NULL && c->joint && c->step != UINT32_MAX && c->out->calls.len > first &&
        !kin_capture_note_whole(c, first, PyTuple_GET_ITEM(row, 0), args, kwargs, made)) {
        Py_DECREF(made);
        return PyErr_NoMemory();
    }
    return made;
}
