/* Several results of one node (training_priv.h).
 *
 * A tensor's hooks belong to its node, and torch's engine runs the hooks of every result of a node, with None where no gradient arrives. So each of
 * several results gets a node of its own, which the engine does not visit if no gradient arrives. The graph's node returns and saves aliases that share
 * the version counter.
 *
 * If one result was computed from another (a loss from scores), eager's backward passes through the other one, and the program may observe that after
 * the call: by a hook, retain_grad, or torch.autograd.grad for it. So these nodes have that edge too. Usually nobody looks and nothing passes along the
 * edge: the graph's node does the whole backward at once. If somebody does, torch runs backward as far as there (again.c); gradients that bypass it go
 * to the graph's node, which adds them to what its program returns for the rest.
 */
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/training/training_priv.h"

#include <stdlib.h>

#include "py/aten/make.h"
#include "py/aten/tensor.h"

static PyObject *pass_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
static PyObject *pass_backward(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

static PyMethodDef pass_forward_method = {"forward", (PyCFunction)(void (*)(void))pass_forward, METH_FASTCALL, NULL};
static PyMethodDef pass_backward_method = {"backward", (PyCFunction)(void (*)(void))pass_backward, METH_FASTCALL, NULL};

static struct {
    PyObject *apply;     /* of the class of such nodes */
    PyObject *probe;     /* a leaf, and its node: torch's engine goes there unless it was asked for single tensors */
    PyObject *probe_node;
    PyObject *goes_to, *task, *dict, *s_direct, *s_materialize, *s_note;
} known;

bool
launch_results_prepare(PyObject *materialize, PyObject *note)
{
    known.apply = launch_training_apply(&pass_forward_method, &pass_backward_method);
    PyObject *zeros = kin_import("torch", "zeros"), *zero = zeros == NULL ? NULL : PyObject_CallFunction(zeros, "i", 1), *view = NULL, *node = NULL, *next = NULL;
    known.probe = zero == NULL ? NULL : PyObject_CallMethod(zero, "requires_grad_", NULL);
    if (known.probe != NULL && (view = PyObject_CallMethod(known.probe, "view_as", "O", known.probe)) != NULL)
        node = PyObject_GetAttrString(view, "grad_fn");
    if (node != NULL && (next = PyObject_GetAttrString(node, "next_functions")) != NULL && PyTuple_Check(next) && PyTuple_GET_SIZE(next) > 0)
        known.probe_node = PySequence_GetItem(PyTuple_GET_ITEM(next, 0), 0);
    known.goes_to = kin_import("torch._C", "_will_engine_execute_node");
    known.task = kin_import("torch._C", "_current_graph_task_id");
    known.dict = kin_import("collections", "OrderedDict");
    known.s_direct = PyUnicode_InternFromString("_kintsugi_direct");
    known.s_materialize = materialize;
    known.s_note = note;
    Py_XDECREF(next);
    Py_XDECREF(node);
    Py_XDECREF(view);
    Py_XDECREF(zero);
    Py_XDECREF(zeros);
    return known.apply && known.probe_node && known.goes_to && known.task && known.dict && known.s_direct &&
           launch_groups_prepare(known.probe, known.probe_node, materialize, note);
}

/* -- views -------------------------------------------------------------------------------------------------------- */

/* Does what a view is made of want gradients? */
static bool
base_wants(const launch_training *t, const kin_capture *capture, const launch_code *code, uint32_t out)
{
    if (code->outs[out].kind != KIN_OUT_INPUT)
        return launch_has(t->out_of, t->nresults, t->base_of[out] - 1);
    for (uint32_t i = 0; i < t->nwanting; i++)
        if (code->input_of[t->wanting[i]] == code->outs[out].index)
            return true;
    return false;
}

void
launch_results_detach(const launch_training *t, const kin_capture *capture, launch_code *code)
{
    for (uint32_t number = 0; number < code->nfakes; number++) {
        const launch_give *g = &code->by_fake[number];
        launch_out *o = g->shape == NULL && g->kind == LAUNCH_GIVE_OUT && g->index < code->nouts ? &code->outs[g->index] : NULL;
        if (o != NULL && (o->kind == KIN_OUT_INPUT || t->base_of[g->index] != 0)) {
            bool wants = kin_tensor_requires_grad(PyList_GET_ITEM(capture->fakes, number));
            o->of_detached = o->of_detached && !wants;
            o->detached = !wants && !o->of_detached && (o->detached || base_wants(t, capture, code, g->index));
        }
    }
}

/* -- forward ------------------------------------------------------------------------------------------------------ */

static void
replace_saved(PyObject *saved, PyObject *from, PyObject *to)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(saved); i++)
        if (PyTuple_GET_ITEM(saved, i) == from) {
            PyTuple_SET_ITEM(saved, i, Py_NewRef(to));
            Py_DECREF(from);
        }
}

bool
launch_results_put_stand_ins(const launch_training *t, uint32_t nouts, PyObject **made, PyObject *saved, PyObject **results)
{
    bool ok = true;
    for (uint32_t i = 0; ok && t->nresults > 1 && i < t->nresults; i++) {
        uint32_t out = t->out_of[i];
        if (out >= nouts || made[out] == NULL || results[out] != NULL)
            continue;
        results[out] = made[out];
        made[out] = PyObject_CallMethod(results[out], "detach", NULL);
        if ((ok = made[out] != NULL))
            replace_saved(saved, results[out], made[out]);
    }
    return ok;
}

/* (which result, its hooks, weakly itself, its node): what the node of a result that is made from it looks at. Its hooks are a dict from the beginning on: it
 * may be gone by then. */
static PyObject *
seen_of(uint32_t number, PyObject *result)
{
    PyObject *hooks = PyObject_CallNoArgs(known.dict), *node = PyObject_GetAttrString(result, "grad_fn"), *weak = PyWeakref_NewRef(result, NULL), *seen = NULL;
    PyObject *done = NULL;
    if (hooks != NULL && node != NULL && weak != NULL && PyObject_SetAttrString(result, "_backward_hooks", hooks) == 0)
        done = PyObject_CallMethod(node, "_register_hook_dict", "O", result);
    if (done != NULL)
        seen = Py_BuildValue("IOOO", number, hooks, weak, node);
    Py_XDECREF(done);
    Py_XDECREF(weak);
    Py_XDECREF(node);
    Py_XDECREF(hooks);
    return seen;
}

static bool
is_from(const launch_training *t, uint32_t i, uint32_t k)
{
    return k < KIN_CAPTURE_MOST_RESULTS && t->capture.joint.from.at[i] >> k & 1;
}

static bool
others_are_from(const launch_training *t, uint32_t i)
{
    for (uint32_t k = 0; k < t->nresults; k++)
        if (is_from(t, k, i))
            return true;
    return false;
}

/* The argument of forward: (result, (training, the graph's node, which result, seen_of each that it is made from, how many arguments)). */
static PyObject *
held_of(const launch_training *t, uint32_t i, PyObject *result, PyObject *stand_in, PyObject *const *seen, uint32_t nargs)
{
    PyObject *node = PyObject_GetAttrString(stand_in, "grad_fn"), *list = PyList_New(0), *held = NULL;
    bool ok = node != NULL && list != NULL;
    for (uint32_t k = 0; ok && k < t->nresults; k++)
        ok = !is_from(t, i, k) || seen[k] == NULL || PyList_Append(list, seen[k]) == 0;
    PyObject *all = ok ? PyList_AsTuple(list) : NULL;
    if (all != NULL)
        held = Py_BuildValue("O(OOIOI)", result, t, node, i, all, nargs);
    Py_XDECREF(all);
    Py_XDECREF(list);
    Py_XDECREF(node);
    return held;
}

/* All results that are the same out of the code. */
static uint64_t
results_at(const launch_training *t, uint32_t out)
{
    uint64_t bits = 0;
    for (uint32_t i = 0; i < t->nresults && i < KIN_CAPTURE_MOST_RESULTS; i++)
        bits |= (uint64_t)(t->out_of[i] == out) << i;
    return bits;
}

typedef struct {
    const launch_training *t;
    PyObject *groups;
    PyObject **results, **made, **seen, **args; /* by out; by out; by result; room for arguments */
} passing;

static bool pass_result(const passing *p, uint32_t i);

/* What it is made from has its node first: bits of these. */
static bool
pass_others(const passing *p, uint32_t i, uint64_t *others)
{
    bool ok = true;
    for (uint32_t k = 0; ok && k < p->t->nresults; k++) {
        ok = !is_from(p->t, i, k) || pass_result(p, k);
        *others |= is_from(p->t, i, k) && p->seen[k] != NULL ? (uint64_t)1 << k : 0;
    }
    return ok;
}

/* Result i behind a node of its own, and before that those that it is made from. What is done leaves `results`. */
static bool
pass_result(const passing *p, uint32_t i)
{
    const launch_training *t = p->t;
    uint32_t out = t->out_of[i], n = 2;
    PyObject **args = p->args, *result = p->results[out];
    uint64_t others = 0;
    if (result == NULL)
        return true;
    p->results[out] = NULL;
    bool ok = pass_others(p, i, &others);
    for (uint32_t k = 0; ok && k < t->nresults; k++)
        if (k < KIN_CAPTURE_MOST_RESULTS && others >> k & 1)
            args[n++] = p->made[t->out_of[k]];
    if (n > 2)
        args[n++] = known.probe;
    n += ok ? launch_groups_behind(t, results_at(t, out), others, p->groups, args + n) : 0;
    args[0] = ok ? held_of(t, i, result, p->made[out], p->seen, n) : NULL;
    args[1] = p->made[out];
    PyObject *given = args[0] == NULL ? NULL : PyObject_Vectorcall(known.apply, args, n, NULL);
    Py_XDECREF(args[0]);
    if (given != NULL)
        Py_SETREF(p->made[out], given);
    Py_DECREF(result);
    return given != NULL && (!others_are_from(t, i) || (p->seen[i] = seen_of(i, given)) != NULL);
}

bool
launch_results_pass(const launch_training *t, PyObject *groups, PyObject **results, PyObject **made)
{
    if (t->nresults <= 1)
        return true;
    PyObject **room = calloc(2 * t->nresults + t->ngroups + 3, sizeof *room);
    passing p = {t, groups, results, made, room, room == NULL ? NULL : room + t->nresults};
    bool ok = room != NULL;
    for (uint32_t i = 0; ok && i < t->nresults; i++)
        ok = pass_result(&p, i);
    for (uint32_t i = 0; room != NULL && i < t->nresults; i++)
        Py_XDECREF(p.seen[i]);
    free(room);
    return ok;
}

/* forward(ctx, held_of, stand-in, results that it is made from, probe, groups that it leads to) */
static PyObject *
pass_forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    if (nargs < 3 || !PyTuple_CheckExact(args[1]) || PyTuple_GET_SIZE(args[1]) != 2) {
        PyErr_SetString(PyExc_TypeError, "kintsugi: this node is made by launches only");
        return NULL;
    }
    bool ok = PyObject_SetAttr(args[0], known.s_materialize, Py_False) == 0 && PyObject_SetAttr(args[0], known.s_note, PyTuple_GET_ITEM(args[1], 1)) == 0;
    return ok ? Py_NewRef(PyTuple_GET_ITEM(args[1], 0)) : NULL;
}

/* -- back --------------------------------------------------------------------------------------------------------- */

static bool
is_true(PyObject *given)
{
    bool is = given == Py_True;
    PyErr_Clear();
    Py_XDECREF(given);
    return is;
}

/* Does somebody look at what comes back to a result (seen_of)? alive: the result, if it is there as it was made; new reference. Which tensors the engine was
 * asked for it does not say: any on the way to these may be one. */
static bool
is_looked_at(PyObject *seen, PyObject **alive)
{
    PyObject *tensor = kin_weakref_object(PyTuple_GET_ITEM(seen, 2)), *node = PyTuple_GET_ITEM(seen, 3);
    bool looks = PyObject_Length(PyTuple_GET_ITEM(seen, 1)) > 0;
    *alive = NULL;
    if (tensor == Py_None)
        return looks;
    Py_INCREF(tensor);
    PyObject *now = PyObject_GetAttrString(tensor, "grad_fn");
    if (now == node) {
        looks = looks || is_true(PyObject_GetAttrString(tensor, "retains_grad"));
        if (!looks && !is_true(PyObject_CallOneArg(known.goes_to, known.probe_node)))
            looks = is_true(PyObject_CallOneArg(known.goes_to, node));
        *alive = Py_NewRef(tensor);
    }
    PyErr_Clear();
    Py_XDECREF(now);
    Py_DECREF(tensor);
    return looks;
}

/* For the graph's node, if this way back comes there, and its groups: what has come back from result i past the others. */
static bool
hand_over(const launch_training *t, PyObject *node, uint32_t i, PyObject *direct)
{
    if (t->ngroups == 0 && !is_true(PyObject_CallOneArg(known.goes_to, node)))
        return true;
    PyObject *list = PyObject_GetAttr(node, known.s_direct), *one = NULL;
    PyErr_Clear();
    if (list == NULL || !PyList_Check(list))
        Py_XSETREF(list, PyList_New(0));
    PyObject *task = PyObject_CallNoArgs(known.task);
    if (list != NULL && task != NULL)
        one = Py_BuildValue("KOO", (unsigned long long)1 << i, direct, task);
    bool ok = one != NULL && PyList_Append(list, one) == 0 && PyObject_SetAttr(node, known.s_direct, list) == 0;
    Py_XDECREF(one);
    Py_XDECREF(task);
    Py_XDECREF(list);
    return ok;
}

/* What comes back to the results of the cut, in their order; the rest is handed over. */
static PyObject *
go_up_to(PyObject *note, const launch_cut *cut, PyObject *grad)
{
    launch_training *t = (launch_training *)PyTuple_GET_ITEM(note, 0);
    PyObject *node = PyTuple_GET_ITEM(note, 1), *own = PyObject_GetAttr(node, known.s_note), *grads = own == NULL ? NULL : PyTuple_New(t->nresults);
    uint32_t i = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(note, 2));
    PyObject *given = NULL, *direct = NULL, *found = NULL;
    for (uint32_t k = 0; grads != NULL && k < t->nresults; k++)
        PyTuple_SET_ITEM(grads, k, Py_NewRef(k == i ? grad : Py_None));
    if (grads != NULL)
        given = launch_again(t, PyTuple_GET_ITEM(own, 1), grads, kin_grad_enabled(), cut, NULL);
    if (given != NULL && (direct = PyTuple_GetSlice(given, 0, t->nwanting)) != NULL && hand_over(t, node, i, direct))
        found = PyTuple_GetSlice(given, t->nwanting, PyTuple_GET_SIZE(given));
    t->twice++;
    Py_XDECREF(direct);
    Py_XDECREF(given);
    Py_XDECREF(grads);
    Py_XDECREF(own);
    return found;
}

static PyObject *
back_past_others(PyObject *note, PyObject *grad)
{
    PyObject *all = PyTuple_GET_ITEM(note, 3), *found = NULL;
    Py_ssize_t n = PyTuple_GET_SIZE(all), next = 0, nargs = PyLong_AsSsize_t(PyTuple_GET_ITEM(note, 4));
    launch_cut cut = {0};
    for (Py_ssize_t k = 0; grad != Py_None && k < n; k++) {
        PyObject *seen = PyTuple_GET_ITEM(all, k);
        uint32_t i = (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(seen, 0));
        if (is_looked_at(seen, &cut.alive[i]))
            cut.results |= (uint64_t)1 << i;
    }
    PyObject *given = cut.results == 0 || (found = go_up_to(note, &cut, grad)) != NULL ? PyTuple_New(nargs) : NULL;
    for (Py_ssize_t k = 0; given != NULL && k < nargs; k++) {
        bool is_other = k >= 2 && k < n + 2;
        uint32_t i = is_other ? (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(PyTuple_GET_ITEM(all, k - 2), 0)) : 0;
        PyObject *one = k == 1 && found == NULL ? grad : is_other && cut.results >> i & 1 ? PyTuple_GET_ITEM(found, next++) : Py_None;
        PyTuple_SET_ITEM(given, k, Py_NewRef(one));
    }
    for (uint32_t i = 0; i < KIN_CAPTURE_MOST_RESULTS; i++)
        Py_XDECREF(cut.alive[i]);
    Py_XDECREF(found);
    return given;
}

/* backward(ctx, grad). What is handed to the graph's node by itself is no gradient of the result. */
static PyObject *
pass_backward(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *note = nargs == 2 ? PyObject_GetAttr(args[0], known.s_note) : NULL;
    PyObject *given = note == NULL ? NULL : back_past_others(note, args[1]);
    if (given != NULL && !launch_groups_note_come((launch_training *)PyTuple_GET_ITEM(note, 0), PyTuple_GET_ITEM(note, 1),
                                                  (uint32_t)PyLong_AsUnsignedLong(PyTuple_GET_ITEM(note, 2)), PyTuple_GET_ITEM(given, 1)))
        Py_CLEAR(given);
    Py_XDECREF(note);
    return given;
}

PyObject *
launch_results_take_direct(const launch_training *t, PyObject *node, bool last)
{
    bool some = false;
    for (uint32_t i = 0; t->nresults > 1 && i < t->nresults; i++)
        some = some || t->capture.joint.from.at[i] != 0;
    PyObject *direct = some ? PyObject_GetAttr(node, known.s_direct) : NULL;
    if (direct != NULL && last)
        PyObject_SetAttr(node, known.s_direct, Py_None);
    PyErr_Clear();
    if (direct == Py_None)
        Py_CLEAR(direct);
    return direct;
}

static PyObject *
sum(PyObject *a, PyObject *b)
{
    return a == Py_None || b == Py_None ? Py_NewRef(a == Py_None ? b : a) : PyNumber_Add(a, b);
}

bool
launch_results_add(PyObject *direct, PyObject **given, uint64_t *there)
{
    PyObject *task = PyObject_CallNoArgs(known.task);
    for (Py_ssize_t k = 0; *given != NULL && task != NULL && k < PyList_GET_SIZE(direct); k++) {
        PyObject *from = PyTuple_GET_ITEM(PyList_GET_ITEM(direct, k), 2), *one = PyTuple_GET_ITEM(PyList_GET_ITEM(direct, k), 1), *all;
        if (PyObject_RichCompareBool(from, task, Py_EQ) != 1) /* left behind by a way back that raised */
            continue;
        all = PyTuple_New(PyTuple_GET_SIZE(*given));
        *there |= PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(PyList_GET_ITEM(direct, k), 0));
        for (Py_ssize_t i = 0; all != NULL && i < PyTuple_GET_SIZE(all); i++) {
            PyObject *both = sum(PyTuple_GET_ITEM(*given, i), PyTuple_GET_ITEM(one, i));
            if (both == NULL) {
                Py_CLEAR(all);
                break;
            }
            PyTuple_SET_ITEM(all, i, both);
        }
        Py_XSETREF(*given, all);
    }
    Py_XDECREF(task);
    return *given != NULL;
}
