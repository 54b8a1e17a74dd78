/* Which results of a joint graph can be differentiated one after another, and through which other results backward passes on its way. Eager has many
 * autograd nodes: backward frees what the nodes on its way have saved, so another result can no longer be differentiated only if it needs one of these;
 * and where backward passes through another result, that one's hooks run. The compiled graph is a single node, which has to know all this.
 */
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"
#include "py/refs/sequence.h"

#include <string.h>

typedef struct {
    PyObject *seen;  /* dict: node -> the results that it is behind, as a number */
    PyObject *types; /* dict: type of a node -> does it save tensors? */
    PyObject *ends;  /* dict: (node, number among its results) -> result */
    uint64_t *saving, *from, *reaching;
    uint32_t n;
    const capturing *c;
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
push_next(walk *w, PyObject *node, uint32_t result, PyObject *todo)
{
    PyObject *edges = PyObject_GetAttrString(node, "next_functions");
    bool ok = edges != NULL && PyTuple_Check(edges);
    for (Py_ssize_t i = 0; ok && i < PyTuple_GET_SIZE(edges); i++) {
        PyObject *edge = PyTuple_GET_ITEM(edges, i), *next = PyTuple_GET_ITEM(edge, 0), *end = PyDict_GetItemWithError(w->ends, edge);
        if (end != NULL)
            w->from[result] |= (uint64_t)1 << PyLong_AsUnsignedLong(end);
        ok = !PyErr_Occurred() && (next == Py_None || PyList_Append(todo, next) == 0);
    }
    Py_XDECREF(edges);
    return ok;
}

/* The node that accumulates an input's gradient: the result has a way to that input. */
static void
note_input(walk *w, PyObject *node, uint32_t result)
{
    const kin_capture_joint *j = &w->c->out->joint;
    PyObject *variable = PyObject_GetAttrString(node, "variable");
    for (uint32_t i = 0; variable != NULL && i < j->wanting.len; i++)
        if (PyList_GET_ITEM(w->c->out->fakes, j->wanting.at[i]) == variable)
            w->reaching[i] |= (uint64_t)1 << result;
    Py_XDECREF(variable);
    PyErr_Clear();
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
    note_input(w, node, result);
    if (some > 0)
        join(w, result, before | (uint64_t)1 << result);
    return some >= 0 && push_next(w, node, result, todo);
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

/* Is it memory that an operator writes to? What it is at the end was not made at once. */
static bool
is_written(const kin_aten *g, uint32_t storage)
{
    for (uint32_t i = 0; i < g->args.len; i++)
        if (g->args.at[i].kind == KIN_ATEN_VALUE && g->args.at[i].written && kin_aten_at(g, g->args.at[i].value)->storage == storage)
            return true;
    return false;
}

static bool
note_end(walk *w, const capturing *c, uint32_t result)
{
    uint32_t number = c->out->joint.results.at[result];
    PyObject *fake = PyList_GET_ITEM(c->out->fakes, number), *node = PyObject_GetAttrString(fake, "grad_fn");
    PyObject *nr = node == NULL ? NULL : PyObject_GetAttrString(fake, "output_nr"), *edge = nr == NULL ? NULL : PyTuple_Pack(2, node, nr);
    PyObject *end = edge == NULL ? NULL : PyLong_FromUnsignedLong(result);
    bool known = !is_written(c->out->graph, kin_aten_at(c->out->graph, c->entries.at[number].val)->storage);
    bool ok = end != NULL && (!known || PyDict_SetItem(w->ends, edge, end) == 0);
    Py_XDECREF(end);
    Py_XDECREF(edge);
    Py_XDECREF(nr);
    Py_XDECREF(node);
    return ok;
}

bool
kin_joint_saves(capturing *c)
{
    kin_capture_joint *j = &c->out->joint;
    uint64_t all = UINT64_MAX;
    walk w = {.seen = PyDict_New(), .types = PyDict_New(), .ends = PyDict_New(), .n = j->results.len, .c = c};
    bool ok = w.seen != NULL && w.types != NULL && w.ends != NULL, several = w.n > 1 && w.n <= KIN_CAPTURE_MOST_RESULTS;
    for (uint32_t i = 0; ok && i < w.n; i++)
        ok = kin_vec_push(&j->saving, several ? 0 : all) == KIN_OK && kin_vec_push(&j->from, 0) == KIN_OK;
    for (uint32_t i = 0; ok && i < j->wanting.len; i++)
        ok = kin_vec_push(&j->reaching, several ? 0 : all) == KIN_OK;
    w.saving = j->saving.at;
    w.from = j->from.at;
    w.reaching = j->reaching.at;
    for (uint32_t i = 0; ok && several && i < w.n; i++)
        ok = note_end(&w, c, i);
    for (uint32_t i = 0; ok && several && i < w.n; i++)
        ok = walk_from(&w, PyList_GET_ITEM(c->out->fakes, j->results.at[i]), i);
    Py_XDECREF(w.seen);
    Py_XDECREF(w.types);
    Py_XDECREF(w.ends);
    return ok;
}

/* -- inputs and results ------------------------------------------------------------------------------------------- */

static PyObject *
list_of_numbers(const kin_capture_numbers *numbers)
{
    PyObject *list = PyList_New(numbers->len);
    for (uint32_t i = 0; list != NULL && i < numbers->len; i++)
        kin_sequence_put(&list, i, PyLong_FromUnsignedLong(numbers->at[i]));
    return list;
}

static PyObject *
list_of_outs(const kin_capture *c)
{
    PyObject *list = PyList_New(c->nout);
    for (uint32_t i = 0; list != NULL && i < c->nout; i++)
        PyList_SET_ITEM(list, i, Py_NewRef(c->out[i] != NULL ? c->out[i] : Py_None));
    return list;
}

static bool
keep_saved(kin_capture_joint *j, PyObject *found)
{
    bool ok = PyList_CheckExact(found);
    for (Py_ssize_t i = 0; ok && i < PyList_GET_SIZE(found); i++) {
        unsigned long long results, wanting;
        unsigned number;
        ok = PyArg_ParseTuple(PyList_GET_ITEM(found, i), "IKK", &number, &results, &wanting) &&
             kin_vec_push(&j->saved, ((kin_capture_saved){number, results, wanting})) == KIN_OK;
    }
    return ok;
}

void
kin_joint_find_saved(capturing *c)
{
    static PyObject *find;
    kin_capture_joint *j = &c->out->joint;
    PyObject *results = list_of_numbers(&j->results), *wanting = list_of_numbers(&j->wanting), *outs = list_of_outs(c->out), *found = NULL;
    if (results != NULL && wanting != NULL && outs != NULL && kin_import_once(&find, "kintsugi._saved", "find") != NULL)
        found = PyObject_CallFunction(find, "OIOOO", c->out->fakes, c->out->ninputs, outs, results, wanting);
    j->knows_saved = found != NULL && keep_saved(j, found);
    if (!j->knows_saved)
        j->saved.len = 0;
    PyErr_Clear();
    Py_XDECREF(found);
    Py_XDECREF(outs);
    Py_XDECREF(wanting);
    Py_XDECREF(results);
}
