/* Inputs that only some of a graph's results depend on (training_priv.h).
 *
 * Where torch's engine has run a node, it goes on to everything behind its inputs, also where no gradient came: hooks are called with None, nodes of the program's
 * own with zeros, and each of torch's nodes frees what it has saved, so that a result that does need it comes too late. Eager has no way there. So inputs with the
 * same results stand behind a node of their own, a group, to which only the nodes of these results lead (results.c):
 *
 *     result a -----> graph's node -----> inputs that all results depend on
 *       |  \            ^   :
 *       |   \-----------|---:--> group of a -----> inputs that only a depends on
 *     result b ---------/   :
 *          \----------------:--> group of b -----> ...
 *                           : gradients, handed over in a box
 *
 * Of the nodes that are ready the engine takes the one that was made last, so the graph's node runs before its groups, and once for all of them. A group that
 * finds its box empty goes back by itself, from what has come back to the results so far: the engine does not visit the graph's node if it was asked for inputs
 * of groups only (torch.autograd.grad).
 */
#include "py/compat/imports.h"
#include "py/compat/signals.h"
#include "py/training/training_priv.h"

#include <stdlib.h>

static PyObject *group_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
static PyObject *group_backward(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

static PyMethodDef group_forward_method = {"forward", (PyCFunction)(void (*)(void))group_forward, METH_FASTCALL, NULL};
static PyMethodDef group_backward_method = {"backward", (PyCFunction)(void (*)(void))group_backward, METH_FASTCALL, NULL};

static struct {
    PyObject *apply; /* of the class of groups' nodes */
    PyObject *probe, *probe_node; /* a leaf, and its node */
    PyObject *goes_to, *task, *keeps_graph;
    PyObject *s_materialize, *s_note;
    PyObject *s_boxes, *s_come, *s_alone; /* attributes of the graph's node: boxes by group; what has come back (note_come); the engine's run that freed it by groups alone */
} known;

bool
launch_groups_prepare(PyObject *probe, PyObject *probe_node, PyObject *materialize, PyObject *note)
{
    known.apply = launch_training_apply(&group_forward_method, &group_backward_method);
    known.probe = probe;
    known.probe_node = probe_node;
    known.goes_to = kin_import("torch._C", "_will_engine_execute_node");
    known.task = kin_import("torch._C", "_current_graph_task_id");
    known.keeps_graph = kin_import("torch._C._autograd", "_get_current_graph_task_keep_graph");
    known.s_materialize = materialize;
    known.s_note = note;
    known.s_boxes = PyUnicode_InternFromString("_kintsugi_boxes");
    known.s_come = PyUnicode_InternFromString("_kintsugi_come");
    known.s_alone = PyUnicode_InternFromString("_kintsugi_alone");
    return known.apply && known.goes_to && known.task && known.keeps_graph && known.s_boxes && known.s_come && known.s_alone;
}

/* -- forward ------------------------------------------------------------------------------------------------------ */

static uint64_t
results_of(const launch_training *t, uint32_t group)
{
    for (uint32_t i = 0; i < t->nwanting; i++)
        if (t->group[i] == group)
            return t->depends[i];
    return 0;
}

void
launch_groups_number(launch_training *t)
{
    uint64_t all = t->nresults < 64 ? ((uint64_t)1 << t->nresults) - 1 : UINT64_MAX;
    t->ngroups = 0;
    for (uint32_t i = 0; t->nresults > 1 && i < t->nwanting; i++) {
        if (t->gradient[i] == UINT32_MAX || t->depends[i] == all)
            continue;
        for (uint32_t k = 0; k < i && t->group[i] == 0; k++)
            t->group[i] = t->depends[k] == t->depends[i] ? t->group[k] : 0;
        if (t->group[i] == 0)
            t->group[i] = ++t->ngroups;
    }
}

/* forward(ctx, *inputs): a tensor that stands for the group, as an input of the nodes of its results. */
static PyObject *
group_forward(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    return nargs > 0 && PyObject_SetAttr(args[0], known.s_materialize, Py_False) == 0 ? PyObject_CallMethod(known.probe, "detach", NULL) : NULL;
}

/* The inputs of a group leave the node's arguments. */
static PyObject *
enter_group(const launch_training *t, uint32_t group, PyObject *args)
{
    PyObject *members = PyList_New(0);
    for (uint32_t i = 0; members != NULL && i < t->nwanting; i++) {
        PyObject *tensor = PyTuple_GET_ITEM(args, 1 + i);
        if (t->group[i] != group)
            continue;
        if (PyList_Append(members, tensor) < 0)
            Py_CLEAR(members);
        PyTuple_SET_ITEM(args, 1 + i, Py_NewRef(Py_None));
        Py_DECREF(tensor);
    }
    PyObject *all = members == NULL ? NULL : PyList_AsTuple(members), *stands = all == NULL ? NULL : PyObject_CallObject(known.apply, all);
    Py_XDECREF(all);
    Py_XDECREF(members);
    return stands;
}

PyObject *
launch_groups_enter(const launch_training *t, PyObject *args)
{
    PyObject *groups = PyTuple_New(t->ngroups);
    for (uint32_t g = 0; groups != NULL && g < t->ngroups; g++) {
        PyObject *stands = enter_group(t, g + 1, args);
        if (stands == NULL)
            Py_CLEAR(groups);
        else
            PyTuple_SET_ITEM(groups, g, stands);
    }
    if (groups != NULL && t->nresults > 1) { /* it gives gradients, even if all inputs have left; and launch_groups_is_asked_for_some */
        Py_DECREF(PyTuple_GET_ITEM(args, 1 + t->nwanting));
        PyTuple_SET_ITEM(args, 1 + t->nwanting, Py_NewRef(known.probe));
    }
    return groups;
}

/* The node that gave one of these; NULL: none did. */
static PyObject *
node_of(PyObject *given)
{
    PyObject *node = NULL; /* what gives no gradients has none */
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(given) && (node == NULL || node == Py_None); i++)
        Py_XSETREF(node, PyObject_GetAttrString(PyTuple_GET_ITEM(given, i), "grad_fn"));
    return node;
}

bool
launch_groups_join(const launch_training *t, PyObject *groups, PyObject *given)
{
    PyObject *node = t->ngroups == 0 ? NULL : node_of(given), *boxes = node == NULL ? NULL : PyTuple_New(t->ngroups);
    bool ok = t->ngroups == 0 || boxes != NULL;
    for (uint32_t g = 0; ok && g < t->ngroups; g++) {
        PyObject *own = PyObject_GetAttrString(PyTuple_GET_ITEM(groups, g), "grad_fn"), *box = PyList_New(0);
        PyObject *note = own == NULL || box == NULL ? NULL : Py_BuildValue("OOIO", t, node, g + 1, box);
        ok = note != NULL && PyObject_SetAttr(own, known.s_note, note) == 0;
        PyTuple_SET_ITEM(boxes, g, box);
        Py_XDECREF(note);
        Py_XDECREF(own);
    }
    ok = ok && (boxes == NULL || PyObject_SetAttr(node, known.s_boxes, boxes) == 0);
    Py_XDECREF(boxes);
    Py_XDECREF(node);
    return ok;
}

uint32_t
launch_groups_behind(const launch_training *t, uint64_t results, uint64_t others, PyObject *groups, PyObject **args)
{
    uint32_t n = 0;
    for (uint32_t g = 0; g < t->ngroups; g++) {
        uint64_t own = results_of(t, g + 1);
        if (own & results && !(own & others))
            args[n++] = PyTuple_GET_ITEM(groups, g);
    }
    return n;
}

/* -- back --------------------------------------------------------------------------------------------------------- */

static bool
is_now(PyObject *task)
{
    PyObject *now = task == NULL ? NULL : PyObject_CallNoArgs(known.task);
    bool is = now != NULL && PyObject_RichCompareBool(task, now, Py_EQ) == 1;
    Py_XDECREF(now);
    return is;
}

/* An attribute of the node; NULL without an exception: it has none. New reference. */
static PyObject *
attribute(PyObject *node, PyObject *name)
{
    PyObject *value = PyObject_GetAttr(node, name);
    if (value == NULL)
        PyErr_Clear();
    return value;
}

bool
launch_groups_note_come(const launch_training *t, PyObject *node, uint32_t result, PyObject *grad)
{
    if (t->ngroups == 0 || grad == Py_None)
        return true;
    PyObject *list = attribute(node, known.s_come), *task = PyObject_CallNoArgs(known.task), *one = NULL;
    if (list == NULL || !PyList_Check(list) || PyList_GET_SIZE(list) == 0 || !is_now(PyTuple_GET_ITEM(PyList_GET_ITEM(list, 0), 0)))
        Py_XSETREF(list, PyList_New(0));
    if (list != NULL && task != NULL)
        one = Py_BuildValue("OIO", task, result, grad);
    bool ok = one != NULL && PyList_Append(list, one) == 0 && PyObject_SetAttr(node, known.s_come, list) == 0;
    Py_XDECREF(one);
    Py_XDECREF(task);
    Py_XDECREF(list);
    return ok;
}

/* What of the gradients belongs to a group; None: nothing has come back to its results. */
static PyObject *
share_of(const launch_training *t, uint32_t group, PyObject *given, uint64_t there)
{
    PyObject *list = PyList_New(0);
    for (uint32_t i = 0; list != NULL && i < t->nwanting; i++)
        if (t->group[i] == group && PyList_Append(list, t->depends[i] & there ? PyTuple_GET_ITEM(given, i) : Py_None) < 0)
            Py_CLEAR(list);
    PyObject *share = list == NULL ? NULL : PyList_AsTuple(list);
    Py_XDECREF(list);
    return share;
}

static bool
fill_box(const launch_training *t, uint32_t group, PyObject *box, PyObject *given, uint64_t there)
{
    PyObject *share = share_of(t, group, given, there), *task = PyObject_CallNoArgs(known.task), *both = NULL;
    if (share != NULL && task != NULL)
        both = Py_BuildValue("[OO]", task, share);
    bool ok = both != NULL && PyList_SetSlice(box, 0, PyList_GET_SIZE(box), both) == 0;
    Py_XDECREF(both);
    Py_XDECREF(task);
    Py_XDECREF(share);
    return ok;
}

bool
launch_groups_give(const launch_training *t, PyObject *node, PyObject **given, uint64_t there)
{
    if (t->ngroups == 0)
        return true;
    PyObject *boxes = PyObject_GetAttr(node, known.s_boxes), *rest = boxes == NULL ? NULL : PyTuple_New(t->nwanting);
    bool ok = rest != NULL && PyObject_SetAttr(node, known.s_come, Py_None) == 0;
    for (uint32_t g = 0; ok && g < t->ngroups; g++)
        ok = !(results_of(t, g + 1) & there) || fill_box(t, g + 1, PyTuple_GET_ITEM(boxes, g), *given, there);
    for (uint32_t i = 0; ok && i < t->nwanting; i++)
        PyTuple_SET_ITEM(rest, i, Py_NewRef(t->group[i] != 0 ? Py_None : PyTuple_GET_ITEM(*given, i)));
    Py_XDECREF(boxes);
    if (ok)
        Py_SETREF(*given, Py_NewRef(rest));
    Py_XDECREF(rest);
    return ok;
}

bool
launch_groups_were_alone(PyObject *node)
{
    PyObject *task = attribute(node, known.s_alone);
    bool before = task != NULL && !is_now(task);
    Py_XDECREF(task);
    return before;
}

bool
launch_groups_is_asked_for_some(void)
{
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb); /* that it comes too late */
    PyObject *comes = PyObject_CallOneArg(known.goes_to, known.probe_node);
    PyErr_Clear();
    Py_XDECREF(comes);
    PyErr_Restore(type, error, tb);
    return comes == Py_False;
}

/* What has come back to the results in this run of the engine: borrowed, by result. */
static uint64_t
find_come(const launch_training *t, PyObject *list, PyObject **grads)
{
    uint64_t there = 0;
    for (uint32_t i = 0; i < t->nresults; i++)
        grads[i] = Py_None;
    for (Py_ssize_t i = 0; list != NULL && PyList_Check(list) && i < PyList_GET_SIZE(list); i++) {
        PyObject *one = PyList_GET_ITEM(list, i);
        if (!is_now(PyTuple_GET_ITEM(one, 0)))
            continue;
        uint32_t result = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(one, 1));
        grads[result] = PyTuple_GET_ITEM(one, 2);
        there |= (uint64_t)1 << result;
    }
    return there;
}

/* The engine will not come to the graph's node any more: it has been gone back through nevertheless. */
static bool
note_alone(launch_training *t, PyObject *node, PyObject *note, uint64_t there)
{
    PyObject *comes = PyObject_CallOneArg(known.goes_to, node), *keeps = PyObject_CallNoArgs(known.keeps_graph), *task = NULL;
    bool ok = comes != NULL && keeps != NULL;
    if (ok && comes == Py_False && keeps == Py_False) {
        launch_training_let_go(node, t, note, there);
        task = PyObject_CallNoArgs(known.task);
        ok = task != NULL && PyObject_SetAttr(node, known.s_alone, task) == 0;
    }
    Py_XDECREF(task);
    Py_XDECREF(keeps);
    Py_XDECREF(comes);
    return ok;
}

static PyObject *
go_back_alone(launch_training *t, PyObject *node, uint32_t group)
{
    PyObject *note = PyObject_GetAttr(node, known.s_note), *come = attribute(node, known.s_come), *share = NULL, *given = NULL;
    PyObject **grads = malloc((t->nresults + 1) * sizeof *grads);
    if (note != NULL && grads != NULL) {
        uint64_t there = find_come(t, come, grads);
        given = launch_training_go_back(node, t, note, grads, &there, false);
        if (given != NULL && note_alone(t, node, note, there))
            share = share_of(t, group, given, there);
    }
    free(grads);
    Py_XDECREF(given);
    Py_XDECREF(come);
    Py_XDECREF(note);
    return share;
}

/* backward(ctx, None): nothing comes this way but the turn. */
static PyObject *
group_backward(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *note = nargs > 0 ? PyObject_GetAttr(args[0], known.s_note) : NULL;
    if (note == NULL)
        return NULL;
    PyObject *box = PyTuple_GET_ITEM(note, 3), *share = NULL;
    bool held = kin_signals_hold();
    if (PyList_GET_SIZE(box) == 2 && is_now(PyList_GET_ITEM(box, 0)))
        share = Py_NewRef(PyList_GET_ITEM(box, 1));
    else
        share = go_back_alone((launch_training *)PyTuple_GET_ITEM(note, 0), PyTuple_GET_ITEM(note, 1), (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(note, 2)));
    if (share != NULL && PyList_SetSlice(box, 0, PyList_GET_SIZE(box), NULL) < 0)
        Py_CLEAR(share);
    if (held)
        kin_signals_release();
    Py_DECREF(note);
    return share;
}
