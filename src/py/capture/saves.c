/* Which results of a joint graph may be gone back from one after the other. Eager's nodes are many: going back frees what the nodes on the way have
 * saved, and only a result that needs one of these cannot be gone back from any more. The compiled graph is one node; it has to know. */
#include "py/capture/capture_priv.h"

#include <string.h>

typedef struct {
    PyObject *seen;  /* dict: node -> the results that it is behind, as a number */
    PyObject *types; /* dict: type of a node -> does it save tensors? */
    uint64_t *saving;
    uint32_t n;
} walk;

/* Attributes of a node of torch's own that hold what it saves are called so. */
static int
has_saved_names(PyObject *type)
{
    PyObject *names = PyObject_Dir(type);
    int found = names == NULL ? -1 : 0;
    for (Py_ssize_t i = 0; found == 0 && i < PyList_GET_SIZE(names); i++) {
        const char *name = PyUnicode_AsUTF8(PyList_GET_ITEM(names, i));
        found = name == NULL ? -1 : strncmp(name, "_raw_saved_", 11) == 0 || strcmp(name, "saved_tensors") == 0;
    }
    Py_XDECREF(names);
    return found;
}

static int
saves(walk *w, PyObject *node)
{
    PyObject *type = (PyObject *)Py_TYPE(node), *known = PyDict_GetItemWithError(w->types, type);
    if (known != NULL)
        return known == Py_True;
    int found = PyErr_Occurred() ? -1 : has_saved_names(type);
    return found < 0 || PyDict_SetItem(w->types, type, found ? Py_True : Py_False) < 0 ? -1 : found;
}

/* The results that have come by here before; this one is noted. */
static bool
note(walk *w, PyObject *node, uint32_t result, uint64_t *before)
{
    PyObject *mask = PyDict_GetItemWithError(w->seen, node);
    *before = mask == NULL ? 0 : PyLong_AsUnsignedLongLong(mask);
    PyObject *now = PyErr_Occurred() ? NULL : PyLong_FromUnsignedLongLong(*before | (uint64_t)1 << result);
    bool ok = now != NULL && PyDict_SetItem(w->seen, node, now) == 0;
    Py_XDECREF(now);
    return ok;
}

static void
join(walk *w, uint32_t result, uint64_t others)
{
    w->saving[result] |= others;
    for (uint32_t i = 0; i < w->n; i++)
        if (others >> i & 1)
            w->saving[i] |= (uint64_t)1 << result;
}

static bool
push_next(PyObject *node, PyObject *todo)
{
    PyObject *edges = PyObject_GetAttrString(node, "next_functions");
    bool ok = edges != NULL && PyTuple_Check(edges);
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(edges); i++) {
        PyObject *next = PyTuple_GET_ITEM(PyTuple_GET_ITEM(edges, i), 0);
        ok = next == Py_None || PyList_Append(todo, next) == 0;
    }
    Py_XDECREF(edges);
    return ok;
}

static bool
visit(walk *w, PyObject *node, uint32_t result, PyObject *todo)
{
    uint64_t before;
    if (!note(w, node, result, &before))
        return false;
    if (before >> result & 1)
        return true;
    int some = saves(w, node);
    if (some > 0)
        join(w, result, before | (uint64_t)1 << result);
    return some >= 0 && push_next(node, todo);
}

static bool
walk_from(walk *w, PyObject *result, uint32_t number)
{
    PyObject *first = PyObject_GetAttrString(result, "grad_fn"), *todo = PyList_New(0);
    bool ok = first != NULL && todo != NULL && (first == Py_None || PyList_Append(todo, first) == 0);
    while (ok && PyList_GET_SIZE(todo) > 0) {
        Py_ssize_t last = PyList_GET_SIZE(todo) - 1;
        PyObject *node = Py_NewRef(PyList_GET_ITEM(todo, last));
        ok = PyList_SetSlice(todo, last, last + 1, NULL) == 0 && visit(w, node, number, todo);
        Py_DECREF(node);
    }
    Py_XDECREF(todo);
    Py_XDECREF(first);
    return ok;
}

bool
kin_joint_saves(capturing *c)
{
    kin_capture_joint *j = &c->out->joint;
    uint64_t all = UINT64_MAX;
    walk w = {.seen = PyDict_New(), .types = PyDict_New(), .n = j->results.len};
    bool ok = w.seen != NULL && w.types != NULL;
    for (uint32_t i = 0; ok && i < w.n; i++)
        ok = kin_vec_push(&j->saving, w.n > 1 && w.n <= 63 ? 0 : all) == KIN_OK;
    w.saving = j->saving.at;
    for (uint32_t i = 0; ok && w.n > 1 && w.n <= 63 && i < w.n; i++)
        ok = walk_from(&w, PyList_GET_ITEM(c->out->fakes, j->results.at[i]), i);
    Py_XDECREF(w.seen);
    Py_XDECREF(w.types);
    return ok;
}
