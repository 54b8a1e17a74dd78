/* The program may replace what an autograd function's backward uses after the forward part was launched, whose guards say what it was: its code, a function that
 * it calls, a value in its cells. Torch would find the new one. So captured gradients come with a list of what was found where (kin_capture_binding), which is
 * looked through before they are launched; if anything is another one, torch goes back instead (py/training/again.c).
 */
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"

enum { DEPTH = 6, MOST = 512 };

/* What the holder has now, borrowed; NULL: nothing, or it is no longer of that kind. */
static PyObject *
find_now(const kin_capture_binding *b)
{
    switch (b->in) {
    case KIN_BOUND_CLASS:
        return _PyType_Lookup((PyTypeObject *)b->holder, b->name);
    case KIN_BOUND_GLOBAL:
        return PyDict_GetItem(b->holder, b->name);
    case KIN_BOUND_CELL:
        return PyCell_GET(b->holder);
    case KIN_BOUND_CODE:
        return PyFunction_GET_CODE(b->holder);
    }
    return NULL;
}

bool
kin_capture_is_bound_as_before(const kin_capture *c)
{
    for (uint32_t i = 0; i < c->joint.bindings.len; i++)
        if (find_now(&c->joint.bindings.at[i]) != c->joint.bindings.at[i].found)
            return false;
    return true;
}

/* *found: borrowed. False without memory, or where there are too many. */
static bool
note(kin_capture_joint *joint, kin_bound_in in, PyObject *holder, PyObject *name, PyObject **found)
{
    kin_capture_binding b = {in, holder, name, NULL};
    *found = b.found = find_now(&b);
    if (joint->bindings.len == MOST || kin_vec_push(&joint->bindings, b) != KIN_OK)
        return false;
    Py_INCREF(holder);
    Py_XINCREF(name);
    Py_XINCREF(b.found);
    return true;
}

static bool note_function(kin_capture_joint *joint, PyObject *obj, int depth);

static bool
note_globals(kin_capture_joint *joint, PyObject *function, PyObject *names, int depth)
{
    bool ok = names != NULL && PyTuple_Check(names);
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(names); i++) {
        PyObject *found;
        ok = note(joint, KIN_BOUND_GLOBAL, PyFunction_GET_GLOBALS(function), PyTuple_GET_ITEM(names, i), &found) && note_function(joint, found, depth + 1);
    }
    return ok;
}

static bool
note_cells(kin_capture_joint *joint, PyObject *function, int depth)
{
    PyObject *cells = PyFunction_GET_CLOSURE(function);
    bool ok = true;
    for (Py_ssize_t i = 0; ok && cells != NULL && i < PyTuple_GET_SIZE(cells); i++) {
        PyObject *found;
        ok = note(joint, KIN_BOUND_CELL, PyTuple_GET_ITEM(cells, i), NULL, &found) && note_function(joint, found, depth + 1);
    }
    return ok;
}

/* If it is a function of the program: its code, and what that uses. */
static bool
note_function(kin_capture_joint *joint, PyObject *obj, int depth)
{
    if (obj == NULL || !PyFunction_Check(obj))
        return true;
    PyObject *of_torch = kin_import_call("kintsugi._operators", "is_of_torch", obj), *code;
    bool ok = of_torch != NULL && depth < DEPTH, follow = of_torch == Py_False;
    Py_XDECREF(of_torch);
    if (!ok || !follow)
        return ok;
    if (!note(joint, KIN_BOUND_CODE, obj, NULL, &code))
        return false;
    PyObject *names = kin_import_call("kintsugi._operators", "names_with_writes", code);
    ok = note_globals(joint, obj, names, depth) && note_cells(joint, obj, depth);
    Py_XDECREF(names);
    return ok;
}

/* The same class is called once for each layer. */
static bool
is_noted(const kin_capture_joint *joint, PyObject *cls)
{
    for (uint32_t i = 0; i < joint->bindings.len; i++)
        if (joint->bindings.at[i].in == KIN_BOUND_CLASS && joint->bindings.at[i].holder == cls)
            return true;
    return false;
}

bool
kin_capture_note_bindings(capturing *c, PyObject *cls)
{
    kin_capture_joint *joint = &c->out->joint;
    if (is_noted(joint, cls))
        return true;
    PyObject *name = PyUnicode_InternFromString("backward"), *found = NULL;
    bool ok = name != NULL && note(joint, KIN_BOUND_CLASS, cls, name, &found);
    Py_XDECREF(name);
    bool is_static = found != NULL && Py_IS_TYPE(found, &PyStaticMethod_Type);
    PyObject *function = is_static ? PyObject_GetAttrString(found, "__func__") : Py_XNewRef(found);
    ok = ok && function != NULL && note_function(joint, function, 0);
    Py_XDECREF(function);
    return ok;
}

void
kin_capture_free_bindings(kin_capture_joint *joint)
{
    for (uint32_t i = 0; i < joint->bindings.len; i++) {
        Py_DECREF(joint->bindings.at[i].holder);
        Py_XDECREF(joint->bindings.at[i].name);
        Py_XDECREF(joint->bindings.at[i].found);
    }
    kin_vec_deinit(&joint->bindings);
}
