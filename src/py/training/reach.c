/* Where torch's engine goes on although no gradient came (training_priv.h).
 *
 * If only some results of a graph get a gradient, the engine visits what made its other inputs, too, where eager has no way. Leaves without hooks do not
 * notice, and nodes of launches can be gone back from later nevertheless (training.c, let_go). Everything else may: hooks are called with None, nodes of the
 * program's own with zeros, and each of torch's nodes frees what it has saved. So each node of a launch notes if behind it there is nothing else.
 */
#include "py/training/training_priv.h"

#include "py/compat/imports.h"

static struct {
    PyObject *launched, *passing; /* the classes of nodes of launches, and of those in front of them */
    PyTypeObject *views[2];       /* ... of views as launches make them */
    PyObject *s_quiet, *s_seen, *s_note;
} known;

static PyObject *
nodes_of(PyObject *apply)
{
    PyObject *type = PyObject_GetAttrString(apply, "__self__"), *nodes = type == NULL ? NULL : PyObject_GetAttrString(type, "_backward_cls");
    Py_XDECREF(type);
    return nodes;
}

/* The class of a view's node; the view is stolen. */
static PyTypeObject *
class_of(PyObject *view)
{
    PyObject *node = view == NULL ? NULL : PyObject_GetAttrString(view, "grad_fn");
    PyTypeObject *type = node == NULL ? NULL : (PyTypeObject *)Py_NewRef(Py_TYPE(node));
    Py_XDECREF(node);
    Py_XDECREF(view);
    return type;
}

bool
launch_reach_prepare(PyObject *launched, PyObject *passing, PyObject *leaf, PyObject *note)
{
    known.launched = nodes_of(launched);
    known.passing = nodes_of(passing);
    known.views[0] = class_of(PyObject_CallMethod(leaf, "view", "i", 1));
    known.views[1] = class_of(PyObject_CallMethod(leaf, "as_strided", "(i)(i)", 1, 1));
    known.s_quiet = PyUnicode_InternFromString("_kintsugi_quiet");
    known.s_seen = PyUnicode_InternFromString("_kintsugi_seen");
    known.s_note = note;
    return known.launched && known.passing && known.views[0] && known.views[1] && known.s_quiet && known.s_seen;
}

static bool
has_no_hooks(PyObject *tensor)
{
    PyObject *hooks = PyObject_GetAttrString(tensor, "_backward_hooks");
    bool none = hooks != NULL && (hooks == Py_None || PyObject_Length(hooks) == 0);
    Py_XDECREF(hooks);
    PyErr_Clear();
    return none;
}

/* Has the result no hooks, as far as its launch sees them (results.c, seen_of)? */
static bool
is_seen_without(PyObject *seen)
{
    return PyTuple_Check(seen) && PyObject_Length(PyTuple_GET_ITEM(seen, 1)) == 0;
}

/* The node that an edge leads to, new reference; NULL: none. */
static PyObject *
next_of(PyObject *node, Py_ssize_t i)
{
    PyObject *next = PyObject_GetAttrString(node, "next_functions"), *one = NULL;
    if (next != NULL && PyTuple_Check(next) && i < PyTuple_GET_SIZE(next))
        one = Py_XNewRef(PyTuple_GET_ITEM(PyTuple_GET_ITEM(next, i), 0));
    Py_XDECREF(next);
    PyErr_Clear();
    if (one == Py_None)
        Py_CLEAR(one);
    return one;
}

/* Do the results that this one is made from, on the way of the same launch, have no hooks? */
static bool
others_have_none(PyObject *node)
{
    PyObject *note = PyObject_GetAttr(node, known.s_note), *all = note == NULL ? NULL : PyTuple_GET_ITEM(note, 3);
    bool none = true;
    for (Py_ssize_t i = 0; none && all != NULL && i < PyTuple_GET_SIZE(all); i++) {
        PyObject *seen = PyTuple_GET_ITEM(all, i);
        none = is_seen_without(seen) && others_have_none(PyTuple_GET_ITEM(seen, 3));
    }
    PyErr_Clear();
    Py_XDECREF(note);
    return none;
}

static bool is_quiet(PyObject *node);

static bool
is_quiet_before(PyObject *node, Py_ssize_t edge)
{
    PyObject *next = next_of(node, edge);
    bool quiet = next != NULL && is_quiet(next);
    Py_XDECREF(next);
    return quiet;
}

/* A view of a result that is another tensor: hooks of that one were not asked for yet. */
static bool
is_quiet_view(PyObject *node)
{
    PyObject *base = next_of(node, 0), *seen = base == NULL || (PyObject *)Py_TYPE(base) != known.passing ? NULL : PyObject_GetAttr(base, known.s_seen);
    bool quiet = seen != NULL && is_seen_without(seen) && is_quiet(base);
    PyErr_Clear();
    Py_XDECREF(seen);
    Py_XDECREF(base);
    return quiet;
}

static bool
is_quiet(PyObject *node)
{
    PyObject *type = (PyObject *)Py_TYPE(node);
    if (type == known.passing)
        return others_have_none(node) && is_quiet_before(node, 0);
    if (type != known.launched)
        return (Py_TYPE(node) == known.views[0] || Py_TYPE(node) == known.views[1]) && is_quiet_view(node);
    PyObject *noted = PyObject_GetAttr(node, known.s_quiet);
    bool quiet = noted == Py_True;
    PyErr_Clear();
    Py_XDECREF(noted);
    return quiet;
}

bool
launch_reach_is_quiet(PyObject *tensor)
{
    PyObject *node = has_no_hooks(tensor) ? PyObject_GetAttrString(tensor, "grad_fn") : NULL;
    bool quiet = node != NULL && (node == Py_None || is_quiet(node));
    Py_XDECREF(node);
    PyErr_Clear();
    return quiet;
}

bool
launch_reach_note(PyObject *given, PyObject *args)
{
    PyObject *node = NULL; /* what gives no gradients has none */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given) && (node == NULL || node == Py_None); i++)
        Py_XSETREF(node, PyObject_GetAttrString(PyTuple_GET_ITEM(given, i), "grad_fn"));
    bool quiet = node != NULL && (PyObject *)Py_TYPE(node) == known.launched;
    for (Py_ssize_t i = 1; quiet && i < PyTuple_GET_SIZE(args); i++)
        quiet = PyTuple_GET_ITEM(args, i) == Py_None || launch_reach_is_quiet(PyTuple_GET_ITEM(args, i));
    bool ok = !quiet || PyObject_SetAttr(node, known.s_quiet, Py_True) == 0;
    Py_XDECREF(node);
    PyErr_Clear();
    return ok;
}

bool
launch_reach_see(PyObject *result, PyObject *seen)
{
    PyObject *node = PyObject_GetAttrString(result, "grad_fn");
    bool ok = node != NULL && PyObject_SetAttr(node, known.s_seen, seen) == 0;
    Py_XDECREF(node);
    return ok;
}
