/* Runs a subgraph's steps on fake tensors (capture.h) and restores everything afterwards: dispatch modes, inference mode,
 * and the record of warnings that the program has already shown.
 */
#include <stdlib.h>

#include "core/base/clock.h"
#include "core/trace/effects.h"
#include "py/aten/modes.h"
#include "py/aten/sizes.h"
#include "py/aten/warn.h"
#include "py/capture/capture_priv.h"
#include "py/compat/failure.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/guardeval/guard.h"
#include "py/replay/replay.h"

#define T kin_capture_torch

/* -- start ------------------------------------------------------------------------------------------------------ */

kin_status
kin_capture_init(void)
{
    if (T.ready || T.failed || !kin_undisturbed())
        return T.ready ? KIN_OK : KIN_BREAK;
    PyObject *torch = PyImport_ImportModule("torch");
    bool ok = torch != NULL && kin_aten_init(torch) == KIN_OK && kin_make_init(torch) == KIN_OK && kin_warnings_init(torch) &&
              kin_fake_init(torch) == KIN_OK && kin_mode_init() == KIN_OK;
    Py_XDECREF(torch);
    PyErr_Clear();
    T.ready = ok;
    T.failed = !ok;
    return ok ? KIN_OK : KIN_BREAK;
}

/* -- inputs ----------------------------------------------------------------------------------------------------- */

/* A fake tensor for an input: on storage of its own, from its own first element. */
static PyObject *
stand_for_input(capturing *c, PyObject *tensor, bool data)
{
    kin_dtype dtype;
    if (!data && !kin_is_plain_tensor(tensor)) {
        kin_capture_refuse(c, "an input is of a class of the program's own");
        return NULL;
    }
    if (!kin_tensor_dtype(tensor, &dtype)) {
        kin_capture_refuse(c, "an input has an unsupported dtype");
        return NULL;
    }
    if (!capture_set_device(c, tensor))
        return NULL;
    unsigned dim = (unsigned)kin_tensor_dim(tensor);
    const int64_t *sizes = kin_tensor_sizes(tensor), *strides = kin_tensor_strides(tensor);
    uint32_t storage = kin_fake_new_storage(c);
    kin_aten_val val = storage == 0 ? 0 : kin_aten_input(c->out->graph, dtype, dim, sizes, strides, storage, 0);
    return kin_fake_for_input(c, kin_tensor_requires_grad(tensor), val);
}

static bool
fill_inputs(stepper *x, PyObject *const *in)
{
    for (uint32_t i = 0; i < x->subgraph->nin; i++) {
        PyObject *obj = kin_is_tensor(in[i]) ? stand_for_input(&x->c, in[i], x->data) : Py_NewRef(in[i]);
        if (obj == NULL)
            return false;
        if (x->numbers != NULL && x->numbers[i] != NULL) { /* the fake tensor stays in the list of all */
            if (kin_vec_push(&x->c.out->numbers, kin_capture_number(obj)) != KIN_OK)
                return PyErr_NoMemory() != NULL;
            Py_SETREF(obj, Py_NewRef(x->numbers[i]));
            if (x->open == NULL && (x->open = calloc(x->t->vals.len, sizeof *x->open)) == NULL)
                return PyErr_NoMemory() != NULL;
            x->open[x->subgraph->in[i]] = true;
        }
        Py_XSETREF(x->slots[x->subgraph->in[i]], obj);
    }
    x->c.out->ninputs = x->c.entries.len;
    return true;
}

/* -- steps ------------------------------------------------------------------------------------------------------ */

static bool
run_one(stepper *x, const kin_step *s)
{
    PyObject *result = kin_step_execute(x->t, &x->v->refs, s, x->slots);
    if (result == NULL)
        return false;
    if (s->out != 0)
        Py_XSETREF(x->slots[s->out], result);
    else
        Py_DECREF(result);
    return true;
}

PyObject *
capture_operand(const stepper *x, kin_vid vid)
{
    const kin_val *val = &x->t->vals.at[vid];
    return val->kind == KIN_VAL_CONST ? kin_refs_get(&x->v->refs, val->key) : x->slots[vid];
}

/* The step's operand with this number; NULL: there is none. */
static PyObject *
operand_at(const stepper *x, const kin_step *s, uint32_t number)
{
    kin_vid vid = number < s->nargs ? x->t->vids.at[s->args + number] : 0;
    return vid != 0 ? capture_operand(x, vid) : NULL;
}

/* The number that was recorded, if the tensor's dtype gives one of its class. */
static PyObject *
recorded_number(const stepper *x, const kin_step *s, PyObject *made)
{
    const kin_val *val = &x->t->vals.at[s->out];
    PyObject *recorded = kin_step_does(s, KIN_FROM_DATA) && val->key != 0 ? kin_refs_get(&x->v->refs, val->key) : NULL;
    bool same = recorded != NULL && Py_TYPE(recorded) == Py_TYPE(made);
    if (same && PyList_CheckExact(recorded)) /* as many as these sizes give */
        same = PyList_GET_SIZE(recorded) == PyList_GET_SIZE(made);
    return same ? recorded : made;
}

/* Operators that run functions of the program do so on examples, or no longer. The pending exception stays. */
static bool
tell_operators(bool on)
{
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *told = kin_import_call("kintsugi._operators", "set_examples", on ? Py_True : Py_False);
    Py_XDECREF(told);
    PyErr_Clear();
    PyErr_Restore(type, error, tb);
    return told != NULL;
}

/* A call that needs data, on tensors of ones. */
static bool
run_on_data(stepper *x, const kin_step *s)
{
    PyObject *saved[64] = {NULL}, *result = NULL;
    const kin_vid *args = x->t->vids.at + s->args;
    if (s->nargs > sizeof saved / sizeof *saved || s->out == 0)
        return false;
    PyErr_Clear();
    x->c.out->reason[0] = 0;
    PyObject *popped = PyObject_CallOneArg(T.pop, Py_None);
    bool ok = popped != NULL;
    for (uint32_t a = 0; ok && a < s->nargs; a++)
        if (x->slots[args[a]] != NULL && (ok = (saved[a] = kin_capture_data_of(&x->c, x->slots[args[a]])) != NULL)) {
            PyObject *data = saved[a];
            saved[a] = x->slots[args[a]];
            x->slots[args[a]] = data;
        }
    if (ok && tell_operators(true))
        result = kin_step_execute(x->t, &x->v->refs, s, x->slots);
    ok = tell_operators(false) && ok;
    for (uint32_t a = s->nargs; a-- > 0;)
        if (saved[a] != NULL) {
            Py_XDECREF(x->slots[args[a]]);
            x->slots[args[a]] = saved[a];
        }
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *pushed = PyObject_CallOneArg(T.push, x->mode);
    PyErr_Restore(type, error, tb);
    PyObject *made = result == NULL || pushed == NULL ? NULL : kin_capture_fake_for(&x->c, recorded_number(x, s, result));
    Py_XDECREF(popped);
    Py_XDECREF(pushed);
    Py_XDECREF(result);
    if (made == NULL)
        return false;
    Py_XSETREF(x->slots[s->out], made);
    if (x->by_data == 0 && !kin_step_does(s, KIN_FROM_DATA))
        x->by_data = x->c.step + 1;
    x->c.out->by_data = x->c.out->by_data || x->by_data != 0;
    return true;
}

/* Runs the step; what makes tensors of numbers meanwhile (new_tensor.c) can see which they are. */
static bool
run_handing_on(stepper *x, const kin_step *s, PyObject *const *operands)
{
    PyObject *first = operands[0];
    bool call = s->kind == KIN_STEP_CALL && first != NULL && (PyCFunction_Check(first) || Py_IS_TYPE(first, &PyMethodDescr_Type));
    if (call || (s->kind == KIN_STEP_SET_SUBSCR && first != NULL && kin_is_tensor(first))) {
        x->c.operands = operands + 1;
        x->c.noperands = s->nargs - 1u;
    }
    bool ok = run_one(x, s);
    x->c.operands = NULL;
    return ok;
}

/* As one before, where the step calls something on the same kinds of operands. */
static bool
run_or_repeat(stepper *x, const kin_step *s)
{
    enum { MOST = 16 };
    PyObject *operands[MOST];
    kin_repeat repeat;
    if (!kin_subgraph_calls(s) || s->nargs == 0 || s->nargs > MOST)
        return run_one(x, s);
    for (uint32_t a = 0; a < s->nargs; a++)
        operands[a] = operand_at(x, s, a);
    if (s->out == 0)
        return run_handing_on(x, s, operands);
    if (kin_repeat_begin(&x->c, s, operands, &repeat)) {
        if (repeat.result != NULL)
            Py_XSETREF(x->slots[s->out], repeat.result);
        kin_repeat_end(&x->c, &repeat, NULL);
        return repeat.result != NULL;
    }
    bool ok = run_handing_on(x, s, operands);
    kin_repeat_end(&x->c, &repeat, ok ? x->slots[s->out] : NULL);
    return ok;
}

/* Classes are no part of a graph: what is made a tensor of another class is another tensor over its memory here, and the default of classes for calls
 * (torch.Tensor.__torch_function__) is the call itself. NULL without an exception: the step is something else. */
static PyObject *
run_without_classes(const stepper *x, const kin_step *s)
{
    const kin_vid *args = x->t->vids.at + s->args;
    PyObject *fn = x->data && s->kind == KIN_STEP_CALL && s->nargs > 2 ? capture_operand(x, args[0]) : NULL;
    bool method = fn != NULL && (Py_IS_TYPE(fn, &PyMethodDescr_Type) || PyFunction_Check(fn));
    if (method && Py_IS_TYPE(fn, &PyMethodDescr_Type) && strcmp(kin_callable_name(fn), "as_subclass") == 0)
        return PyObject_CallMethod(capture_operand(x, args[1]), "view_as", "O", capture_operand(x, args[1]));
    if (!method || !PyFunction_Check(fn) || s->nargs < 5 || s->ref != 0 || strcmp(kin_callable_name(fn), "__torch_function__") != 0)
        return NULL;
    PyObject *call = capture_operand(x, args[2]), *given = capture_operand(x, args[4]), *kwargs = s->nargs > 5 ? capture_operand(x, args[5]) : NULL;
    if (call == NULL || given == NULL || !PyTuple_Check(given))
        return NULL;
    return PyObject_Call(call, given, kwargs == Py_None ? NULL : kwargs);
}

static bool
capture_one(stepper *x, const kin_step *s)
{
    PyObject *made = run_without_classes(x, s);
    if (made != NULL) {
        Py_XSETREF(x->slots[s->out], made);
        return true;
    }
    if (PyErr_Occurred())
        return false;
    int whole = capture_picked(x, s);
    whole = whole != 0 ? whole : capture_whole_call(x, s);
    if (whole > 0 || (whole == 0 && run_or_repeat(x, s) && capture_lift_scripted(x, s)))
        return true;
    return x->data && kin_subgraph_calls(s) && run_on_data(x, s);
}

/* The name of the function or method that the step calls. */
static const char *
called_name(const stepper *x, const kin_step *s)
{
    PyObject *fn = kin_subgraph_calls(s) ? operand_at(x, s, 0) : NULL;
    return fn != NULL ? kin_callable_name(fn) : "";
}

/* max_pool1d's results lie row-major whatever its argument does; with gradients, and where a mode watches, it calls another operator. */
static bool
pools_otherwise(const stepper *x, const kin_step *s, const char *name)
{
    PyObject *image = strcmp(name, "max_pool1d") == 0 && s->nargs > 1 ? capture_operand(x, x->t->vids.at[s->args + 1]) : NULL;
    return image != NULL && kin_is_tensor(image) && !kin_tensor_requires_grad(image) &&
           !kin_lies_by_rows(kin_tensor_sizes(image), kin_tensor_strides(image), kin_tensor_dim(image));
}

/* The step's operands, the function first; NULL with an exception. */
static PyObject *
pack_operands(const stepper *x, const kin_step *s)
{
    PyObject *all = PyTuple_New(s->nargs);
    for (uint32_t i = 0; all != NULL && i < s->nargs; i++) {
        PyObject *obj = operand_at(x, s, i);
        PyTuple_SET_ITEM(all, i, Py_NewRef(obj != NULL ? obj : Py_None));
    }
    return all;
}

/* Does the step call a function of TorchScript where that makes kernels itself? They would look for a fake tensor's data. */
static bool
makes_own_kernels(const stepper *x, const kin_step *s)
{
    if (!capture_calls_scripted(x, s))
        return false;
    PyObject *call = pack_operands(x, s), *answer = call != NULL ? kin_import_call("kintsugi._launch", "makes_own_kernels", call) : NULL;
    bool makes = answer != Py_False;
    Py_XDECREF(answer);
    Py_XDECREF(call);
    PyErr_Clear();
    return makes;
}

/* What a fake tensor cannot show: composite functions that call other operators when a mode watches, with results of other strides; a tensor that
 * is to keep its gradient, which no operator tells of. */
static bool
stays_by_itself(stepper *x, const kin_step *s)
{
    const char *name = called_name(x, s);
    if (pools_otherwise(x, s, name))
        kin_capture_refuse(&x->c, "PyTorch computes it in another way while a graph is captured");
    else if (strcmp(name, "retain_grad") == 0)
        kin_capture_refuse(&x->c, "a tensor is to keep its gradient");
    else if (makes_own_kernels(x, s))
        kin_capture_refuse(&x->c, "TorchScript makes kernels of its own for the function");
    else
        return false;
    return true;
}

/* A container that was built before the subgraph, to be an argument in it, is built again with fake tensors. */
static bool
provide(stepper *x, const kin_step *s, int depth)
{
    for (uint32_t i = 0; i < s->nargs; i++) {
        kin_vid vid = x->t->vids.at[s->args + i];
        const kin_val *val = &x->t->vals.at[vid];
        if (vid == 0 || x->slots[vid] != NULL || val->kind != KIN_VAL_STEP ||
            (val->step >= x->subgraph->first && kin_subgraph_defers(x->subgraph, x->t, val->step)))
            continue;
        const kin_step *maker = &x->t->steps.at[val->step];
        if (depth > 12 || !kin_subgraph_builds(maker) || !provide(x, maker, depth + 1) || !run_one(x, maker)) {
            kin_capture_refuse(&x->c, "one of its operands is not made in the graph");
            return false;
        }
    }
    return true;
}

/* Tensors of one dtype, both numbers or both not, by their notes: "f32[3, 4][4, 1]cpu". */
static bool
alike_tensors(const stepper *x, kin_ref a, kin_ref b)
{
    PyObject *one = kin_refs_get(&x->v->refs, a), *other = kin_refs_get(&x->v->refs, b);
    const char *p = one != NULL && PyUnicode_Check(one) ? PyUnicode_AsUTF8(one) : NULL;
    const char *q = other != NULL && PyUnicode_Check(other) ? PyUnicode_AsUTF8(other) : NULL;
    PyErr_Clear();
    size_t n = p == NULL ? 0 : strcspn(p, "[");
    return n > 0 && q != NULL && strncmp(p, q, n + 1) == 0 && (p[n] == 0 || (p[n + 1] == ']') == (q[n + 1] == ']'));
}

static bool
alike(const stepper *x, kin_vid a, kin_vid b, int depth)
{
    const kin_val *p = &x->t->vals.at[a], *q = &x->t->vals.at[b];
    if (a == b)
        return true;
    if (a == 0 || b == 0 || p->kind != q->kind || (p->note != 0) != (q->note != 0))
        return false;
    if (p->note != 0)
        return alike_tensors(x, p->note, q->note);
    if (p->kind == KIN_VAL_CONST)
        return p->key == q->key || kin_exact_equal(kin_refs_get(&x->v->refs, p->key), kin_refs_get(&x->v->refs, q->key));
    const kin_step *one = &x->t->steps.at[p->step], *other = &x->t->steps.at[q->step];
    bool same = p->kind == KIN_VAL_STEP && kin_subgraph_builds(one) && one->kind == other->kind && one->nargs == other->nargs && depth < 4;
    for (uint32_t i = 0; same && i < one->nargs; i++)
        same = alike(x, x->t->vids.at[one->args + i], x->t->vids.at[other->args + i], depth + 1);
    return same;
}

/* Does the step call the same thing on the same kinds of operands? */
static bool
is_such_a_call(const stepper *x, const kin_step *s, const kin_step *refused)
{
    bool same = kin_subgraph_calls(s) && s->kind == refused->kind && s->imm == refused->imm && s->ref == refused->ref && s->nargs == refused->nargs;
    for (uint32_t i = 0; same && i < s->nargs; i++)
        same = alike(x, x->t->vids.at[s->args + i], x->t->vids.at[refused->args + i], 0);
    return same;
}

/* What is in the way is this step, if it is a call; the same will be said of others like it, of this subgraph and of the rest. */
static void
note_refused(stepper *x, uint32_t step)
{
    const kin_step *s = &x->t->steps.at[step];
    kin_capture *out = x->c.out;
    if (!kin_subgraph_calls(s)) {
        out->refused.len = 0;
        return;
    }
    for (uint32_t i = 0; i < x->t->steps.len; i++)
        if ((i == step || is_such_a_call(x, &x->t->steps.at[i], s)) && kin_vec_push(&out->refused, i) != KIN_OK)
            return;
}

/* Is it a view of a parameter, made where no gradients are wanted? It requires a gradient as the parameter does, but no node has made it, and a view that is made of the
 * input in its place is like it. */
static bool
is_view_of_leaf(PyObject *fake)
{
    PyObject *node = PyObject_GetAttrString(fake, "grad_fn"), *base = node == Py_None ? PyObject_GetAttrString(fake, "_base") : NULL;
    bool is = base != NULL && kin_is_tensor(base) && kin_tensor_requires_grad(base); /* else it has been said of the view itself (requires_grad_) */
    PyErr_Clear();
    Py_XDECREF(node);
    Py_XDECREF(base);
    return is;
}

bool
capture_is_given(const stepper *x, kin_vid vid)
{
    for (uint32_t i = 0; i < x->subgraph->nout; i++)
        if (x->subgraph->out[i] == vid)
            return true;
    return false;
}

/* Does the fake tensor of an input require gradients otherwise than the input does? Then it is another tensor behind the subgraph than before. */
static bool
wants_otherwise(const stepper *x, uint32_t number)
{
    for (uint32_t i = 0, k = 0; i < x->subgraph->nin; i++)
        if (kin_is_tensor(x->in[i]) && k++ == number)
            return kin_tensor_requires_grad(PyList_GET_ITEM(x->c.out->fakes, number)) != kin_tensor_requires_grad(x->in[i]);
    return false;
}

/* Did the step make a tensor that gradients are accumulated in (requires_grad_)? What a node gives is none, so the step stays by itself. A view that is made while
 * gradients are off is one as well, but nobody sees what it accumulates if it stays in the graph. */
static bool
makes_leaf(stepper *x, const kin_step *s)
{
    PyObject *made = !x->data && s->out != 0 ? x->slots[s->out] : NULL;
    uint32_t number = made == NULL ? UINT32_MAX : kin_capture_number(made);
    if (number == UINT32_MAX || !kin_tensor_requires_grad(made) || (number < x->c.out->ninputs ? !wants_otherwise(x, number) : !x->c.joint))
        return false;
    if (x->c.untracked && !capture_is_given(x, s->out) && is_view_of_leaf(made))
        return false;
    PyObject *leaf = PyObject_GetAttrString(made, "is_leaf");
    bool is = leaf != Py_False;
    Py_XDECREF(leaf);
    PyErr_Clear();
    if (is)
        kin_capture_refuse(&x->c, "it makes a leaf tensor that requires gradients");
    return is;
}

/* Is the step x.data, which shares x's memory and nothing else? */
static bool
asks_data(const stepper *x, const kin_step *s)
{
    return s->kind == KIN_STEP_GETATTR && PyUnicode_CompareWithASCIIString(kin_refs_get(&x->v->refs, s->ref), "data") == 0;
}

/* Gradients are on or off as at the step's own place; whoever keeps the surroundings puts that back. */
static void
switch_gradients(stepper *x, uint32_t step)
{
    int grad = kin_subgraph_grad(x->subgraph, step);
    x->c.untracked = grad == 0;
    if (grad >= 0)
        kin_grad_set(grad == 1);
}

static bool
run_steps(stepper *x)
{
    for (uint32_t i = x->subgraph->first; i <= x->subgraph->last; i++) {
        const kin_step *s = &x->t->steps.at[i];
        if (!x->subgraph->runs[i - x->subgraph->first])
            continue;
        switch_gradients(x, i);
        x->c.step = i;
        kin_culprit_begin_step(&x->c);
        x->c.before = x->c.storages.len;
        x->c.data = asks_data(x, s) ? i + 1 : 0;
        x->c.data_storage = 0;
        if (s->kind == KIN_STEP_CHECK) {
            int picked = capture_test_picked(x, s, i);
            if (picked == 0 || (picked < 0 && (!capture_test(x, s, i) || !kin_capture_ask(x, s))))
                return false;
            continue;
        }
        if (stays_by_itself(x, s) || x->c.out->reason[0] != 0 || !provide(x, s, 0) || !capture_one(x, s) || makes_leaf(x, s) || !kin_capture_ask(x, s)) {
            note_refused(x, i);
            return false;
        }
    }
    return true;
}

/* -- outputs ---------------------------------------------------------------------------------------------------- */

static bool
is_plain_output(stepper *x, PyObject *obj, int depth)
{
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX)
        return number < x->c.out->ninputs || !kin_tensor_requires_grad(obj) || (x->c.joint ? !is_view_of_leaf(obj) : x->gradients || is_view_of_leaf(obj));
    if (obj == Py_None)
        return true;
    bool sequence = PyTuple_Check(obj) || PyList_CheckExact(obj);
    for (Py_ssize_t i = 0; sequence && depth < 12 && i < PySequence_Fast_GET_SIZE(obj); i++)
        if (!is_plain_output(x, PySequence_Fast_GET_ITEM(obj, i), depth + 1))
            return false;
    return sequence && depth < 12;
}

/* What is given is x.data, or a view of it, and x is somebody else's, too: tensors that are made of x share its count of writes. The step that asks for it stays by itself. */
static bool
is_data_of_another(stepper *x, PyObject *obj)
{
    uint32_t number = obj == NULL ? UINT32_MAX : kin_capture_number(obj);
    if (number == UINT32_MAX || x->c.entries.at[number].data == 0)
        return false;
    uint32_t storage = kin_aten_at(x->c.out->graph, x->c.entries.at[number].val)->storage;
    bool other = storage <= x->c.out->ninputs;
    for (uint32_t i = 0; i < x->subgraph->nout && !other; i++) {
        uint32_t one = x->slots[x->subgraph->out[i]] == NULL ? UINT32_MAX : kin_capture_number(x->slots[x->subgraph->out[i]]);
        other = one != UINT32_MAX && one != number && kin_aten_at(x->c.out->graph, x->c.entries.at[one].val)->storage == storage;
    }
    if (other) {
        kin_capture_refuse(&x->c, "it gives the data of a tensor");
        note_refused(x, x->c.entries.at[number].data - 1);
    }
    return other;
}

/* Does the program hand the value, or a container that it is in, to code that may look at the gradient that arrives there: a hook, retain_grad, torch.autograd.grad? Only what
 * torch does in calls that end graphs. */
static bool
is_observed(const stepper *x, kin_vid vid, int depth)
{
    for (uint32_t i = x->t->vals.at[vid].step + 1; i < x->t->steps.len; i++) {
        const kin_step *s = &x->t->steps.at[i];
        bool takes = false;
        for (uint32_t a = 0; a < s->nargs && !takes; a++)
            takes = x->t->vids.at[s->args + a] == vid;
        if (takes && (s->flags & KIN_STEP_OPAQUE || strcmp(called_name(x, s), "retain_grad") == 0))
            return true;
        bool hands_on = takes && s->out != 0 && (kin_subgraph_builds(s) || s->kind == KIN_STEP_SUBSCR || s->kind == KIN_STEP_UNPACK);
        if (hands_on && depth < 4 && is_observed(x, s->out, depth + 1))
            return true;
    }
    return false;
}

static bool
note_observed(stepper *x, PyObject *obj)
{
    uint32_t number = kin_capture_number(obj);
    if (number != UINT32_MAX)
        return number < x->c.out->ninputs || kin_vec_push(&x->c.observed, number) == KIN_OK || PyErr_NoMemory() != NULL;
    bool ok = true;
    for (Py_ssize_t i = 0; ok && (PyTuple_Check(obj) || PyList_CheckExact(obj)) && i < PySequence_Fast_GET_SIZE(obj); i++)
        ok = note_observed(x, PySequence_Fast_GET_ITEM(obj, i));
    return ok;
}

static bool
keep_outputs(stepper *x)
{
    kin_capture *out = x->c.out;
    for (uint32_t i = 0; i < x->subgraph->nout; i++) {
        PyObject *obj = x->slots[x->subgraph->out[i]];
        bool size = obj != NULL && PyLong_CheckExact(obj) && x->t->steps.at[x->t->vals.at[x->subgraph->out[i]].step].kind == KIN_STEP_SIZE;
        if (obj == NULL || (!size && !x->data && !is_plain_output(x, obj, 0))) {
            bool ours = obj != NULL && kin_capture_number(obj) != UINT32_MAX; /* whose class the user knows nothing of */
            kin_capture_refuse(&x->c, "it gives a %s", ours ? "tensor that requires grad, and the graph has no gradients" :
                               obj == NULL ? "value that is not there" : Py_TYPE(obj)->tp_name);
            note_refused(x, x->t->vals.at[x->subgraph->out[i]].step);
            return false;
        }
        if (is_data_of_another(x, obj) || (x->c.joint && is_observed(x, x->subgraph->out[i], 0) && !note_observed(x, obj)))
            return false;
        out->out[out->nout++] = Py_NewRef(obj);
    }
    return true;
}

static bool
keep_values(stepper *x)
{
    kin_capture *out = x->c.out;
    if (x->c.joint)
        kin_joint_order(&x->c);
    out->values = calloc(x->c.entries.len + 1, sizeof *out->values);
    for (uint32_t i = 0; out->values != NULL && i < x->c.entries.len; i++)
        out->values[i] = x->c.entries.at[i].val;
    return out->values != NULL && !out->graph->failed;
}

/* Did an operator make an input require gradients? */
static bool
inputs_want_as_before(stepper *x)
{
    for (uint32_t number = 0; !x->data && number < x->c.out->ninputs; number++)
        if (wants_otherwise(x, number)) {
            kin_derived_refuse_writes(&x->c, number);
            return false;
        }
    return true;
}

static bool
go_back(stepper *x)
{
    return inputs_want_as_before(x) && (!x->c.joint || kin_joint_run(&x->c));
}

/* -- all of it -------------------------------------------------------------------------------------------------- */

/* Puts the pending exception into the reason, unless something better is there. */
static void
explain(stepper *x)
{
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *text = error == NULL ? NULL : PyObject_Str(error);
    const char *chars = text == NULL ? NULL : PyUnicode_AsUTF8(text);
    bool writes = error == NULL && x->c.out->refused.len > 0;
    kin_capture_refuse(&x->c, "%s", chars != NULL ? chars : writes ? "it modifies an input in place" : "it cannot be captured");
    Py_XDECREF(text);
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(tb);
    PyErr_Clear();
}

static void
end(stepper *x)
{
    for (uint32_t i = 0; x->slots != NULL && i < x->t->vals.len; i++)
        Py_XDECREF(x->slots[i]);
    free(x->slots);
    free(x->open);
    for (uint32_t i = 0; i < x->c.entries.len; i++)
        Py_XDECREF(x->c.entries.at[i].meta);
    kin_vec_deinit(&x->c.entries);
    kin_repeats_deinit(&x->c.repeats);
    kin_vec_deinit(&x->c.shapes.results);
    kin_vec_deinit(&x->c.storages);
    kin_vec_deinit(&x->c.suspects);
    kin_vec_deinit(&x->c.begun);
    kin_vec_deinit(&x->c.passed);
    kin_vec_deinit(&x->c.observed);
    Py_XDECREF(x->c.device);
}

kin_status
kin_capture_run(const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *numbers, const kin_capture_hints *hints,
                unsigned may, kin_capture *out)
{
    stepper x = {.c.out = out, .c.hints = hints, .c.may_write = (may & KIN_CAPTURE_WRITES) != 0, .c.at = subgraph->at, .c.leaves = subgraph->leaves,
                 .c.joint = (may & KIN_CAPTURE_JOINT) != 0, .layers = (may & KIN_CAPTURE_LAYERS) != 0, .v = v, .t = &v->trace,
                 .subgraph = subgraph, .in = in, .numbers = numbers, .gradients = (may & KIN_CAPTURE_GRADIENTS) != 0, .data = (may & KIN_CAPTURE_DATA) != 0, .c.other_data = (may & KIN_CAPTURE_OTHER_DATA) != 0};
    capture_surroundings around = {.grad = kin_grad_enabled()};
    bool warned = false, ok = false;
    *out = (kin_capture){.graph = kin_aten_new(), .fakes = PyList_New(0)};
    out->out = calloc(subgraph->nout + 1, sizeof *out->out);
    x.c.no_rules = !kin_default_dtype(&x.c.options.default_dtype);
    x.slots = calloc(v->trace.vals.len, sizeof *x.slots);
    if (out->graph != NULL && out->fakes != NULL && out->out != NULL && x.slots != NULL &&
        capture_hide_warnings(&around, &warned) && capture_leave_inference(&around) && (subgraph->at == 0 || capture_keep_settings(&around)) && fill_inputs(&x, in) && capture_push_mode(&around, &x.c)) {
        x.mode = around.mode;
        ok = run_steps(&x);
        x.c.untracked = false;
        kin_grad_set(around.grad);
        ok = ok && keep_outputs(&x) && go_back(&x) && keep_values(&x);
        bool unexplained = !ok && out->refused.len == 0;
        for (uint32_t i = 0; unexplained && i < x.c.suspects.len; i++)
            note_refused(&x, x.c.suspects.at[i]);
    }
    capture_restore(&around);
    if (ok && warned) {
        ok = false;
        kin_capture_refuse(&x.c, "it warns");
    }
    ok = ok && out->refused.len == 0;
    if (!ok)
        explain(&x);
    end(&x);
    return ok ? KIN_OK : KIN_BREAK;
}

/* Values that are made inside and that nobody wants behind the subgraph go as soon as they do in a replay: the peak is eager's. */
static void
free_dead(stepper *x, const kin_step *s, const uint8_t *keep)
{
    const kin_vid *vids = x->t->vids.at + s->frees;
    for (uint32_t i = 0; i < s->nfrees; i++) {
        const kin_val *val = &x->t->vals.at[vids[i]];
        if (!keep[vids[i]] && val->kind == KIN_VAL_STEP && val->step >= x->subgraph->first)
            Py_CLEAR(x->slots[vids[i]]);
    }
}

static bool
do_steps(stepper *x)
{
    uint8_t *keep = calloc(x->t->vals.len, 1);
    bool ok = keep != NULL;
    for (uint32_t i = 0; ok && i < x->subgraph->nout; i++)
        keep[x->subgraph->out[i]] = 1;
    for (uint32_t i = 0; ok && i < x->subgraph->nin; i++)
        Py_XSETREF(x->slots[x->subgraph->in[i]], Py_NewRef(x->in[i]));
    for (uint32_t i = x->subgraph->first; ok && i <= x->subgraph->last; i++) {
        const kin_step *s = &x->t->steps.at[i];
        switch_gradients(x, i);
        if (x->subgraph->runs[i - x->subgraph->first] && s->kind != KIN_STEP_CHECK)
            ok = provide(x, s, 0) && run_one(x, s);
        free_dead(x, s, keep);
    }
    free(keep);
    return ok;
}

static bool
give_outputs(stepper *x, PyObject **out)
{
    bool ok = true;
    for (uint32_t i = 0; i < x->subgraph->nout; i++)
        ok = ok && x->slots[x->subgraph->out[i]] != NULL;
    for (uint32_t i = 0; ok && i < x->subgraph->nout; i++)
        out[i] = Py_NewRef(x->slots[x->subgraph->out[i]]);
    return ok;
}

kin_launch
kin_capture_do(const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out, double *ns)
{
    stepper x = {.v = v, .t = &v->trace, .subgraph = subgraph, .in = in};
    capture_surroundings around = {.grad = kin_grad_enabled()};
    kin_warning_catch catch;
    bool warned = false;
    kin_warnings_begin(&catch);
    bool ok = (x.slots = calloc(v->trace.vals.len, sizeof *x.slots)) != NULL && capture_hide_warnings(&around, &warned);
    double start = kin_clock_ns();
    ok = ok && do_steps(&x);
    *ns = kin_clock_ns() - start;
    warned = kin_warnings_end(&catch) || warned; /* heard when the steps run at their place */
    kin_launch done = ok && !warned && give_outputs(&x, out) ? KIN_LAUNCH_DONE : KIN_LAUNCH_NOT;
    if (PyErr_Occurred() && !PyErr_ExceptionMatches(PyExc_Exception))
        done = KIN_LAUNCH_RAISED; /* the user interrupts */
    else
        PyErr_Clear();
    capture_restore(&around);
    end(&x);
    return done;
}

void
kin_capture_call_deinit(kin_capture_call *call)
{
    Py_DECREF(call->op);
    Py_DECREF(call->args);
    Py_XDECREF(call->kwargs);
    Py_XDECREF(call->made);
}

void
kin_capture_deinit(kin_capture *c)
{
    kin_aten_free(c->graph);
    for (uint32_t i = 0; i < c->calls.len; i++)
        kin_capture_call_deinit(&c->calls.at[i]);
    kin_vec_deinit(&c->calls);
    for (uint32_t i = 0; i < c->joint.wholes.len; i++)
        kin_capture_call_deinit(&c->joint.wholes.at[i].call);
    kin_vec_deinit(&c->joint.wholes);
    kin_capture_free_bindings(&c->joint);
    kin_vec_deinit(&c->raising);
    kin_vec_deinit(&c->once);
    kin_vec_deinit(&c->random);
    kin_vec_deinit(&c->refused);
    kin_vec_deinit(&c->uncounted);
    kin_vec_deinit(&c->numbers);
    kin_vec_deinit(&c->questions);
    for (uint32_t i = 0; i < c->nout; i++)
        Py_DECREF(c->out[i]);
    free(c->out);
    free(c->values);
    Py_XDECREF(c->fakes);
    kin_vec_deinit(&c->joint.results);
    kin_vec_deinit(&c->joint.wanting);
    kin_vec_deinit(&c->joint.gradients);
    kin_vec_deinit(&c->joint.arriving);
    kin_vec_deinit(&c->joint.saving);
    kin_vec_deinit(&c->joint.reaching);
    kin_vec_deinit(&c->joint.saved);
    kin_vec_deinit(&c->joint.from);
    *c = (kin_capture){0};
}
