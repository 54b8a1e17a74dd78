/* Runs subgraphs whose inputs require gradients (training_priv.h).
 *
 * Forward is a launch that returns some values more than the program asked for. They are saved by an ordinary autograd node, a
 * torch.autograd.Function whose methods are written in C. So versions of tensors are checked, memory is freed, hooks run and
 * gradients accumulate as with eager's nodes. Backward is a launch of the second program. What that program cannot do (gradients that
 * are differentiated again, tangents of another kind) is done by torch, by running the operators again (again.c).
 */
#include "py/compat/imports.h"
#include "py/compat/signals.h"
#include "py/training/training_priv.h"

#include <stdlib.h>

#include "py/aten/make.h"
#include "py/aten/modes.h"
#include "py/aten/profiler.h"
#include "py/aten/tensor.h"
#include "py/compat/heap.h"

/* -- what is made once -------------------------------------------------------------------------------------------- */

static void
dealloc_training(PyObject *self)
{
    launch_training *t = (launch_training *)self;
    PyTypeObject *type = Py_TYPE(self);
    launch_code_free(t->backward);
    Py_XDECREF(t->row);
    if (t->has_capture)
        launch_training_release(t);
    free(t->tangents);
#define FREE(array, n) free(t->array);
    LAUNCH_TRAINING_ARRAYS(FREE)
#undef FREE
    type->tp_free(self);
    Py_DECREF(type);
}

static PyType_Slot training_slots[] = {{Py_tp_dealloc, dealloc_training}, {0, NULL}};
static PyType_Spec training_spec = {.name = "kintsugi._kintsugi.Training", .basicsize = sizeof(launch_training),
                                    .flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, .slots = training_slots};

/* Found in torch, or made of it, once. */
static struct {
    PyTypeObject *training;
    PyObject *apply;     /* of the class of nodes */
    PyObject *hooks, *anomaly, *keeps_graph;
    PyObject *s_detach, *s_saved, *s_to_save, *s_not_differentiable, *s_materialize, *s_note;
    bool ready, failed;
} known;

static PyObject *forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
static PyObject *backward(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

static PyMethodDef forward_method = {"forward", (PyCFunction)(void (*)(void))forward, METH_FASTCALL, NULL};
static PyMethodDef backward_method = {"backward", (PyCFunction)(void (*)(void))backward, METH_FASTCALL, NULL};

static PyObject *
static_method(PyMethodDef *def)
{
    PyObject *function = PyCFunction_New(def, NULL), *method = function == NULL ? NULL : PyStaticMethod_New(function);
    Py_XDECREF(function);
    return method;
}

/* class CompiledFunction(torch.autograd.Function). */
PyObject *
launch_training_apply(PyMethodDef *forward_def, PyMethodDef *backward_def)
{
    PyObject *base = kin_import("torch.autograd", "Function"), *root = kin_import("torch._C", "_FunctionBase");
    PyObject *go = static_method(forward_def), *back = static_method(backward_def), *type = NULL, *apply = NULL;
    if (base != NULL && go != NULL && back != NULL)
        type = PyObject_CallFunction((PyObject *)Py_TYPE(base), "s(O){s:O,s:O,s:s}", "CompiledFunction", base, "forward", go, "backward", back,
                                     "__module__", "kintsugi");
    PyObject *descr = type != NULL && root != NULL ? PyDict_GetItemString(kin_type_dict((PyTypeObject *)root), "apply") : NULL;
    if (descr != NULL)
        apply = PyObject_CallMethod(descr, "__get__", "OO", Py_None, type);
    Py_XDECREF(type);
    Py_XDECREF(back);
    Py_XDECREF(go);
    Py_XDECREF(root);
    Py_XDECREF(base);
    return apply;
}

static bool
prepare(void)
{
    if (known.ready || known.failed || !kin_undisturbed())
        return known.ready;
    known.training = (PyTypeObject *)PyType_FromSpec(&training_spec);
    known.apply = launch_training_apply(&forward_method, &backward_method);
    known.hooks = kin_import("torch._C._autograd", "_top_saved_tensors_default_hooks");
    known.anomaly = kin_import("torch._C", "is_anomaly_enabled");
    known.keeps_graph = kin_import("torch._C._autograd", "_get_current_graph_task_keep_graph");
    known.s_detach = PyUnicode_InternFromString("detach");
    known.s_saved = PyUnicode_InternFromString("saved_tensors");
    known.s_to_save = PyUnicode_InternFromString("to_save");
    known.s_not_differentiable = PyUnicode_InternFromString("non_differentiable");
    known.s_materialize = PyUnicode_InternFromString("materialize_grads");
    known.s_note = PyUnicode_InternFromString("_kintsugi");
    known.ready = known.training != NULL && known.apply != NULL && known.hooks != NULL && known.anomaly != NULL && known.keeps_graph != NULL &&
                  known.s_detach != NULL && known.s_materialize != NULL && known.s_note != NULL && launch_results_prepare(known.s_materialize, known.s_note);
    known.failed = !known.ready;
    PyErr_Clear();
    return known.ready;
}

bool
launch_training_watched(void)
{
    if (!prepare())
        return true;
    PyObject *hooks = PyObject_CallOneArg(known.hooks, Py_True), *anomaly = hooks == NULL ? NULL : PyObject_CallNoArgs(known.anomaly);
    bool watched = hooks != Py_None || anomaly != Py_False;
    Py_XDECREF(hooks);
    Py_XDECREF(anomaly);
    PyErr_Clear();
    return watched;
}

const char *
launch_training_awaits(void)
{
    return prepare() || !known.failed ? "saved-tensor hooks, anomaly mode or a transform of torch.func look at what eager keeps for gradients"
                                      : "this PyTorch does not say whether saved tensors have hooks (2.6 does not)";
}

/* Gradients, as far as there are any, are the outs of the backward code in order. */
static void
number_gradients(launch_training *t, const kin_capture_joint *j)
{
    uint32_t next = 0;
    for (uint32_t i = 0; i < t->nwanting; i++) {
        t->wanting[i] = j->wanting.at[i];
        t->gradient[i] = j->gradients.at[i] == UINT32_MAX ? UINT32_MAX : next++;
        t->depends[i] = t->gradient[i] == UINT32_MAX ? 0 : j->reaching.at[i];
    }
    t->ngradients = next;
    launch_groups_number(t);
}

/* The out whose memory a SHARED one looks at + 1; 0: no out is that. */
static uint32_t
find_base(const launch_code *code, uint32_t out)
{
    for (uint32_t i = 0; code->outs[out].kind == KIN_OUT_SHARED && i < code->nouts; i++)
        if ((code->outs[i].kind == KIN_OUT_FRESH || code->outs[i].kind == KIN_OUT_EXTERN) && code->outs[i].index == code->outs[out].index)
            return i + 1;
    return 0;
}

/* Is it a view that torch makes, of an input or of another out? */
static bool
is_outside(const launch_training *t, const launch_code *code, uint32_t out)
{
    return code->outs[out].kind == KIN_OUT_INPUT || t->base_of[out] != 0;
}

static bool
fill(launch_training *t, const kin_capture *capture, launch_code *forward, const kin_halves *h)
{
    const kin_capture_joint *j = &capture->joint;
    const kin_aten *g = capture->graph;
    t->nresults = j->results.len;
    t->nwanting = j->wanting.len;
    t->out_of = calloc(t->nresults + 1, sizeof *t->out_of);
    t->grad_at = calloc(t->nresults + 1, sizeof *t->grad_at);
    t->base_of = calloc(forward->nouts + 1, sizeof *t->base_of);
    t->tangents = calloc(t->nresults + 1, sizeof *t->tangents);
    t->wanting = calloc(t->nwanting + 1, sizeof *t->wanting);
    t->gradient = calloc(t->nwanting + 1, sizeof *t->gradient);
    t->depends = calloc(t->nwanting + 1, sizeof *t->depends);
    t->group = calloc(t->nwanting + 1, sizeof *t->group);
    t->written = calloc(g->ninputs + 1, sizeof *t->written);
    t->kept = calloc(g->ninputs + 1, sizeof *t->kept);
    t->aliased = calloc(g->ninputs + 1, sizeof *t->aliased);
    t->handed = calloc(h->parts.handed.len + 1, sizeof *t->handed);
    if (!t->out_of || !t->grad_at || !t->base_of || !t->tangents || !t->wanting || !t->gradient || !t->depends || !t->group || !t->written || !t->kept || !t->aliased || !t->handed)
        return false;
    for (uint32_t i = 0; i < t->nresults; i++) {
        kin_aten_val tangent = g->ninputs - t->nresults + i + 1;
        launch_tangent *one = &t->tangents[i];
        t->out_of[i] = forward->by_fake[j->results.at[i]].index;
        *one = (launch_tangent){.dtype = (kin_dtype)kin_aten_at(g, tangent)->dtype, .ndim = kin_aten_at(g, tangent)->ndim};
        memcpy(one->sizes, kin_aten_sizes(g, tangent), one->ndim * sizeof *one->sizes);
        memcpy(one->strides, kin_aten_strides(g, tangent), one->ndim * sizeof *one->strides);
    }
    for (uint32_t o = 0; o < forward->nouts; o++) {
        t->base_of[o] = find_base(forward, o);
        for (uint32_t i = 0; i < t->nresults; i++)
            t->grad_at[i] = t->out_of[i] == o ? t->ngiven : t->grad_at[i];
        t->ngiven += !is_outside(t, forward, o);
    }
    launch_again_find_written(g, t->written);
    number_gradients(t, j);
    launch_results_detach(t, capture, forward);
    for (uint32_t i = 0; i < g->ninputs - t->nresults; i++)
        if (h->parts.inputs[i]) {
            t->aliased[t->nkept] = launch_needed_as_view(capture, i);
            t->kept[t->nkept++] = i;
        }
    for (uint32_t i = 0; i < h->parts.handed.len; i++)
        t->handed[t->nhanded++] = h->parts.handed.at[i].output;
    return launch_writes_find(t, capture, forward);
}

kin_status
launch_training_new(const kin_capture *capture, launch_code *forward, launch_code *backward, const kin_halves *h)
{
    if (!prepare())
        return KIN_BREAK;
    launch_training *t = (launch_training *)known.training->tp_alloc(known.training, 0);
    if (t == NULL || !fill(t, capture, forward, h)) {
        PyErr_Clear();
        Py_XDECREF(t);
        return KIN_NOMEM;
    }
    t->backward = backward;
    launch_training_join(t, forward);
    return KIN_OK;
}

void
launch_training_join(launch_training *t, launch_code *forward)
{
    t->forward = forward;
    forward->known_at = &t->forward;
    forward->training = (PyObject *)t;
}

const kin_capture *
launch_training_keep(PyObject *training, kin_capture *capture, bool compiled)
{
    launch_training *t = (launch_training *)training;
    t->begun = compiled ? 0 : LAUNCH_SETTLED;
    t->capture = *capture;
    t->has_capture = true;
    *capture = (kin_capture){0};
    return &t->capture;
}

const launch_code *
launch_training_code_back(const launch_code *code)
{
    return code == NULL || code->training == NULL ? NULL : ((launch_training *)code->training)->backward;
}

/* -- forward ------------------------------------------------------------------------------------------------------ */

/* What a forward launch made, for the node. */
typedef struct {
    const launch_training *t;
    PyObject **made; /* by out of the code; those that are views of inputs come later */
    PyObject *saved; /* tuple */
} forward_made;

/* Views are made by torch with gradients on, so that they are views for autograd too. */
static bool
make_own(launch_running *r, const launch_training *t, const launch_code *code, PyObject **made)
{
    bool ok = true;
    for (uint32_t i = 0; ok && i < code->nouts; i++)
        ok = is_outside(t, code, i) || (made[i] = launch_make_out(r, &code->outs[i])) != NULL;
    return ok;
}

static bool
take_made(launch_running *r, const launch_code *code, void *arg)
{
    forward_made *f = arg;
    const launch_training *t = f->t;
    if (!make_own(r, t, code, f->made) || (f->saved = PyTuple_New(t->nkept + t->nhanded)) == NULL)
        return false;
    for (uint32_t i = 0; i < t->nkept; i++) {
        PyObject *input = r->inputs->in[code->input_of[t->kept[i]]], *kept = t->aliased[i] ? PyObject_CallMethodNoArgs(input, known.s_detach) : Py_NewRef(input);
        if (kept == NULL)
            return false;
        PyTuple_SET_ITEM(f->saved, i, kept);
    }
    for (uint32_t i = 0; i < t->nhanded; i++) {
        PyObject *tensor = r->tensors[r->p->outputs[t->handed[i]]];
        if (tensor == NULL)
            return false;
        PyTuple_SET_ITEM(f->saved, t->nkept + i, Py_NewRef(tensor));
    }
    return true;
}

/* (training, outs, saved, not differentiable, note) for the node, the inputs that want gradients behind it, and a place for launch_groups_enter. What gets no
 * gradient is no input of the node: torch's engine would go on there. */
static PyObject *
node_arguments(const launch_training *t, const launch_code *code, const forward_made *f, PyObject *note, PyObject *const *in)
{
    PyObject *outs = PyList_New(0), *plain = PyList_New(0), *all = NULL, *args = NULL;
    bool ok = outs != NULL && plain != NULL;
    for (uint32_t i = 0; ok && i < code->nouts; i++)
        if (f->made[i] != NULL)
            ok = PyList_Append(outs, f->made[i]) == 0 && (launch_has(t->out_of, t->nresults, i) || PyList_Append(plain, f->made[i]) == 0);
    PyObject *outs_tuple = ok ? PyList_AsTuple(outs) : NULL, *plain_tuple = outs_tuple == NULL ? NULL : PyList_AsTuple(plain);
    if (plain_tuple != NULL)
        all = PyTuple_Pack(5, t, outs_tuple, f->saved, plain_tuple, note);
    if (all != NULL && (args = PyTuple_New(t->nwanting + 2)) != NULL) {
        PyTuple_SET_ITEM(args, 0, Py_NewRef(all));
        PyTuple_SET_ITEM(args, t->nwanting + 1, Py_NewRef(Py_None));
        for (uint32_t i = 0; i < t->nwanting; i++)
            PyTuple_SET_ITEM(args, i + 1, Py_NewRef(t->ngradients > 0 && t->gradient[i] == UINT32_MAX ? Py_None : in[code->input_of[t->wanting[i]]]));
        if (!launch_order_inputs(t, args))
            Py_CLEAR(args);
    }
    Py_XDECREF(all);
    Py_XDECREF(plain_tuple);
    Py_XDECREF(outs_tuple);
    Py_XDECREF(plain);
    Py_XDECREF(outs);
    return args;
}

/* What the node keeps beside the tensors that are saved: (training, launch_again_note or None, the results whose going back has freed these, as bits, were
 * they freed although no gradient came?). */
static PyObject *
new_note(PyObject *training, PyObject *again, uint64_t gone, bool passed)
{
    PyObject *bits = PyLong_FromUnsignedLongLong(gone), *note = bits == NULL ? NULL : PyTuple_Pack(4, training, again, bits, passed ? Py_True : Py_False);
    Py_XDECREF(bits);
    return note;
}

/* forward(ctx, (training, outs, saved, not differentiable, note), *inputs): all has been computed. */
static PyObject *
forward(PyObject *self, PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *all = nargs > 1 ? args[1] : NULL;
    if (all == NULL || !PyTuple_CheckExact(all) || PyTuple_GET_SIZE(all) != 5) {
        PyErr_SetString(PyExc_TypeError, "kintsugi: this node is made by launches only");
        return NULL;
    }
    PyObject *note = new_note(PyTuple_GET_ITEM(all, 0), PyTuple_GET_ITEM(all, 4), 0, false);
    bool ok = note != NULL && PyObject_SetAttr(args[0], known.s_to_save, PyTuple_GET_ITEM(all, 2)) == 0 &&
              PyObject_SetAttr(args[0], known.s_not_differentiable, PyTuple_GET_ITEM(all, 3)) == 0 &&
              PyObject_SetAttr(args[0], known.s_materialize, Py_False) == 0 && PyObject_SetAttr(args[0], known.s_note, note) == 0;
    Py_XDECREF(note);
    return ok ? Py_NewRef(PyTuple_GET_ITEM(all, 1)) : NULL;
}

/* torch goes back over a reshape faster than over a view by strides. */
static PyObject *
view_of(PyObject *base, const launch_out *o)
{
    Py_ssize_t ndim = PyTuple_GET_SIZE(o->sizes);
    int64_t below = 1, all = 1, own = 1;
    bool rows = o->offset == 0 && !o->detached && !o->of_detached;
    for (Py_ssize_t d = ndim; rows && d-- > 0;) {
        int64_t size = PyLong_AsLongLong(PyTuple_GET_ITEM(o->sizes, d));
        rows = PyLong_AsLongLong(PyTuple_GET_ITEM(o->strides, d)) == below;
        below *= size;
        own *= size;
    }
    for (int64_t d = kin_tensor_dim(base); rows && d-- > 0;) {
        rows = kin_tensor_strides(base)[d] == all;
        all *= kin_tensor_sizes(base)[d];
    }
    return rows && all == own && all > 0 ? PyObject_CallMethod(base, "view", "(O)", o->sizes) : launch_view_of(base, o);
}

/* The outs as the node gives them, and views of these and of inputs. */
static bool
take_from_node(const launch_training *t, const launch_code *code, PyObject *given, PyObject *groups, PyObject *const *in, PyObject **results, PyObject **made)
{
    Py_ssize_t next = 0;
    bool ok = PyTuple_Check(given);
    for (uint32_t i = 0; ok && i < code->nouts; i++)
        if (!is_outside(t, code, i))
            Py_SETREF(made[i], Py_NewRef(PyTuple_GET_ITEM(given, next++)));
    ok = ok && launch_results_pass(t, groups, results, made);
    for (uint32_t i = 0; ok && i < code->nouts; i++) {
        const launch_out *o = &code->outs[i];
        if (o->kind == KIN_OUT_INPUT)
            made[i] = o->whole ? Py_NewRef(in[o->index]) : view_of(in[o->index], o);
        else if (t->base_of[i] != 0)
            made[i] = view_of(made[t->base_of[i] - 1], o);
        ok = made[i] != NULL;
    }
    return ok;
}

static bool
connect(const launch_code *code, const launch_inputs *inputs, forward_made *f, PyObject *random, PyObject **out)
{
    PyObject *region = launch_region_takes(code);
    PyObject *note = region == NULL ? NULL : launch_again_note(code, inputs->in, random, region), *args = NULL, *groups = NULL, *given = NULL;
    PyObject **results = calloc(code->nouts + 1, sizeof *results);
    if (note != NULL && !launch_region_collect(code, f->saved))
        Py_CLEAR(note);
    if (note != NULL && region != Py_None)
        Py_XSETREF(f->saved, launch_region_saves(code, inputs->in));
    if (note != NULL && f->saved != NULL && results != NULL && launch_results_put_stand_ins(f->t, code->nouts, f->made, f->saved, results))
        args = node_arguments(f->t, code, f, note, inputs->in);
    if (args != NULL && (groups = launch_groups_enter(f->t, args)) != NULL)
        given = PyObject_CallObject(known.apply, args);
    bool ok = given != NULL && launch_groups_join(f->t, groups, given) && take_from_node(f->t, code, given, groups, inputs->in, results, f->made) &&
              (region != Py_None || launch_writes_note(f->t, code, inputs->in, f->made, PyTuple_GET_ITEM(note, 4))) && launch_give_made(inputs, code, f->made, out);
    for (uint32_t i = 0; results != NULL && i < code->nouts; i++)
        Py_XDECREF(results[i]);
    free(results);
    Py_XDECREF(given);
    Py_XDECREF(groups);
    Py_XDECREF(args);
    Py_XDECREF(note);
    Py_XDECREF(region);
    return ok;
}

bool
launch_training_forward(launch_running *r, launch_code *code, const launch_inputs *inputs, uint32_t threads, launch_outcome *outcome,
                        PyObject **made, PyObject **saved)
{
    forward_made f = {.t = (launch_training *)code->training, .made = made};
    double begin = launch_profiling ? kin_clock_ns() : 0;
    double timed = launch_trial_begin(f.t);
    kin_grad_set(false);
    bool ok = launch_code_give(r, code, inputs, threads, outcome, take_made, &f);
    kin_grad_set(true);
    launch_trial_note(f.t, ok ? timed : 0, &((launch_training *)code->training)->there);
    if (ok && begin != 0)
        launch_profile_whole(&code->main, kin_clock_ns() - begin);
    *saved = f.saved;
    return ok;
}

static launch_result
run_forward(launch_code *code, uint32_t threads, PyObject *const *in, PyObject **out, launch_outcome *outcome)
{
    launch_training *t = (launch_training *)code->training;
    PyObject *small[16], **made = code->nouts <= 16 ? small : malloc(code->nouts * sizeof *made);
    if (made == NULL)
        return LAUNCH_SHARED;
    memset(made, 0, code->nouts * sizeof *made);
    forward_made f = {.t = t, .made = made};
    launch_inputs inputs = {.in = in, .input_of = code->input_of, .n = code->ninputs};
    launch_running r;
    launch_training_note_row(t);
    code->running++;
    Py_INCREF(t);
    bool ran = launch_training_forward(&r, code, &inputs, threads, outcome, made, &f.saved);
    bool ok = ran && connect(code, &inputs, &f, r.random, out);
    code->running--;
    for (uint32_t i = 0; i < code->nouts; i++)
        Py_XDECREF(made[i]);
    Py_XDECREF(f.saved);
    if (made != small)
        free(made);
    if (!ok) {
        launch_put_back_random(&r);
        PyErr_Clear();
    }
    Py_XDECREF(r.random);
    Py_DECREF(t);
    return ok ? LAUNCH_DONE : LAUNCH_FAILED;
}

launch_result
launch_training_run(launch_code *code, uint32_t threads, PyObject *const *in, PyObject **out, launch_outcome *outcome)
{
    *outcome = (launch_outcome){0};
    if (!launch_may_write(code, in))
        return LAUNCH_SHARED;
    launch_training *t = (launch_training *)code->training;
    if (t->begun < LAUNCH_SETTLED && ++t->begun == LAUNCH_SETTLED)
        launch_settle_memory();
    if (t->runs++ == KIN_TIER_TWICE_WINDOW)
        t->runs = t->twice = 0;
    return run_forward(code, threads, in, out, outcome);
}

bool
launch_training_is_twice(const launch_code *code)
{
    const launch_training *t = code == NULL ? NULL : (const launch_training *)code->training;
    return t != NULL && t->runs == KIN_TIER_TWICE_WINDOW && 2 * t->twice >= t->runs;
}

/* -- backward ----------------------------------------------------------------------------------------------------- */

/* A tangent as the program wants it: the same tensor if it lies so. New reference; NULL without an exception: torch has to go back. */
static PyObject *
take_tangent(const launch_training *t, uint32_t i, PyObject *grad)
{
    const launch_tangent *v = &t->tangents[i];
    kin_dtype dtype;
    if (grad == Py_None) {
        PyObject *zeros = kin_tensor_new(v->dtype, v->ndim, v->sizes, v->strides, false);
        PyObject *done = zeros == NULL ? NULL : PyObject_CallMethod(zeros, "zero_", NULL);
        Py_XDECREF(zeros);
        return done;
    }
    if (!kin_is_tensor(grad) || !kin_tensor_is_ordinary(grad) || !kin_tensor_dtype(grad, &dtype) || dtype != v->dtype || kin_tensor_dim(grad) != v->ndim)
        return NULL;
    kin_buf buf = {.dtype = v->dtype, .ndim = v->ndim, .sizes = v->sizes, .strides = v->strides};
    if (launch_is_as_foreseen(&buf, grad))
        return Py_NewRef(grad);
    for (unsigned d = 0; d < v->ndim; d++)
        if (kin_tensor_sizes(grad)[d] != buf.sizes[d])
            return NULL;
    return launch_lay_out_again(&buf, grad);
}

typedef struct {
    PyObject **in;      /* of the whole graph: inputs, then tangents; owned from `first` on */
    PyObject **values;  /* borrowed */
    uint32_t first, n;
    uint64_t there;     /* tangents that are not None */
} backward_inputs;

static bool
fill_backward(const launch_training *t, PyObject *saved, PyObject *const *grads, backward_inputs *b)
{
    b->first = t->capture.graph->ninputs - t->nresults;
    b->n = t->capture.graph->ninputs;
    if (!PyTuple_Check(saved) || PyTuple_GET_SIZE(saved) != (Py_ssize_t)(t->nkept + t->nhanded))
        return false;
    for (uint32_t i = 0; i < t->nkept; i++)
        b->in[t->kept[i]] = PyTuple_GET_ITEM(saved, i);
    for (uint32_t i = 0; i < t->nhanded; i++)
        b->values[i] = PyTuple_GET_ITEM(saved, t->nkept + i);
    for (uint32_t i = 0; i < t->nresults; i++) {
        b->there |= grads[i] == Py_None ? 0 : (uint64_t)1 << (i < 63 ? i : 63);
        if ((b->in[b->first + i] = take_tangent(t, i, grads[i])) == NULL)
            return false;
    }
    return true;
}

static bool
give_gradients(launch_running *r, const launch_code *code, void *arg)
{
    return launch_make_outs(r, code, arg);
}

/* One for each wanting input: new tuple. */
static PyObject *
share_gradients(const launch_training *t, PyObject *const *made, uint64_t there)
{
    PyObject *tuple = PyTuple_New(t->nwanting);
    for (uint32_t i = 0; tuple != NULL && i < t->nwanting; i++) {
        bool some = t->gradient[i] != UINT32_MAX && (t->depends[i] & there) != 0;
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(some ? made[t->gradient[i]] : Py_None));
    }
    return tuple;
}

/* New tuple; NULL, perhaps with an exception: the program could not do it. */
PyObject *
launch_training_backward(launch_training *t, PyObject *saved, PyObject *const *grads)
{
    launch_code *code = t->backward;
    uint32_t n = t->capture.graph->ninputs;
    PyObject **room = calloc(n + t->nhanded + code->nouts + 1, sizeof *room), *given = NULL;
    backward_inputs b = {.in = room, .values = room == NULL ? NULL : room + n};
    if (room != NULL && fill_backward(t, saved, grads, &b)) {
        PyObject **made = room + n + t->nhanded;
        launch_inputs inputs = {.in = b.in, .input_of = code->input_of, .n = code->ninputs, .values = b.values};
        launch_running r;
        launch_outcome outcome;
        PyObject *row = launch_training_begin_row(t);
        double begin = launch_profiling ? kin_clock_ns() : 0;
        double timed = launch_trial_begin(t);
        code->running++;
        bool ok = launch_code_give(&r, code, &inputs, 0, &outcome, give_gradients, made);
        code->running--;
        launch_trial_note(t, ok ? timed : 0, &t->back);
        kin_profiler_end(row);
        if (ok && begin != 0)
            launch_profile_whole(&code->main, kin_clock_ns() - begin);
        Py_XDECREF(r.random);
        kin_vec_deinit(&outcome.hints);
        given = ok ? share_gradients(t, made, b.there) : NULL;
        for (uint32_t i = 0; ok && i < code->nouts; i++)
            Py_DECREF(made[i]);
    }
    for (uint32_t i = b.first; room != NULL && i < b.n; i++)
        Py_XDECREF(room[i]);
    free(room);
    return given;
}

/* One for each input between None for the first and the last of the node's arguments. */
static PyObject *
put_between(PyObject *given)
{
    Py_ssize_t n = PyTuple_GET_SIZE(given);
    PyObject *all = PyTuple_New(n + 2);
    for (Py_ssize_t i = 0; all != NULL && i < n + 2; i++)
        PyTuple_SET_ITEM(all, i, Py_NewRef(i == 0 || i > n ? Py_None : PyTuple_GET_ITEM(given, i - 1)));
    return all;
}

static PyObject *
do_again(const launch_training *t, PyObject *note, PyObject *const *grads, bool create_graph)
{
    PyObject *tuple = PyTuple_New(t->nresults);
    for (uint32_t i = 0; tuple != NULL && i < t->nresults; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(grads[i]));
    PyObject *given = tuple == NULL ? NULL : launch_again(t, note, tuple, create_graph, NULL, NULL);
    Py_XDECREF(tuple);
    return given;
}

static PyObject *
no_gradients(const launch_training *t)
{
    PyObject *tuple = PyTuple_New(t->nwanting);
    for (uint32_t i = 0; tuple != NULL && i < t->nwanting; i++)
        PyTuple_SET_ITEM(tuple, i, Py_NewRef(Py_None));
    return tuple;
}

/* May these results be gone back from, after others were? Where nothing has been freed yet, any may. Where the engine is asked for some tensors only, what lies on
 * the way to these may be there still, unless the others were made from these results. */
static bool
is_open(const launch_training *t, uint64_t there, uint64_t gone)
{
    uint64_t passed = gone;
    for (uint32_t i = 0; i < t->nresults && i < KIN_CAPTURE_MOST_RESULTS; i++)
        passed |= gone >> i & 1 ? t->capture.joint.from.at[i] : 0;
    if (!(there & passed) && launch_groups_is_asked_for_some())
        return true;
    for (uint32_t i = 0; i < t->nresults; i++)
        if (gone != 0 && there >> (i < 63 ? i : 63) & 1 && t->capture.joint.saving.at[i] & gone)
            return false;
    return true;
}

/* Was something that eager has saved written to since? Then its exception is set. */
static bool
was_written(PyObject *ctx, const launch_training *t, PyObject *again, uint64_t there)
{
    return PyTuple_Check(again) && !launch_writes_check(t, ctx, PyTuple_GET_ITEM(again, 4), there);
}

/* What is saved was freed, or written to; perhaps not what these results need. Else the exception stays. */
static PyObject *
go_back_apart(PyObject *ctx, launch_training *t, PyObject *note, PyObject *const *grads, uint64_t there)
{
    uint64_t gone = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(note, 2));
    if ((t->nresults == 1 && PyTuple_GET_ITEM(note, 3) == Py_False) || PyTuple_GET_ITEM(note, 1) == Py_None || !is_open(t, there, gone))
        return NULL;
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *again = PyTuple_GET_ITEM(note, 1);
    if (was_written(ctx, t, again, there)) {
        Py_XDECREF(type);
        Py_XDECREF(error);
        Py_XDECREF(tb);
        return NULL;
    }
    PyObject *given = do_again(t, again, grads, kin_grad_enabled());
    t->apart++;
    t->twice += t->whole; /* it cannot be cut */
    if (given == NULL) {
        PyErr_Clear();
        PyErr_Restore(type, error, tb);
        return NULL;
    }
    Py_XDECREF(type);
    Py_XDECREF(error);
    Py_XDECREF(tb);
    return given;
}

/* Eager would have freed what these results need, but torch has not: it was gone back from groups only. True with the exception that eager raises. */
static bool
is_freed(PyObject *ctx, const launch_training *t, PyObject *note, uint64_t there)
{
    uint64_t gone = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(note, 2));
    if (gone == 0 || is_open(t, there, gone) || !launch_groups_were_alone(ctx))
        return false;
    PyErr_SetString(PyExc_RuntimeError, "Trying to backward through the graph a second time (or directly access saved tensors after they have already been freed). "
                    "Saved intermediate values of the graph are freed when you call .backward() or autograd.grad(). Specify retain_graph=True if you need to backward "
                    "through the graph a second time or if you need to access saved tensors after calling backward.");
    return true;
}

/* By one of the two programs or, where gradients are differentiated again or the program does not fit, by torch. */
static PyObject *
go_back(PyObject *ctx, launch_training *t, PyObject *note, PyObject *const *grads, uint64_t there)
{
    PyObject *saved = PyObject_GetAttr(ctx, known.s_saved), *given = NULL; /* tells who comes too late, or after a write */
    if (saved != NULL && is_freed(ctx, t, note, there))
        Py_CLEAR(saved);
    if (saved == NULL)
        return go_back_apart(ctx, t, note, grads, there);
    PyObject *again = PyTuple_GET_ITEM(note, 1);
    if (was_written(ctx, t, again, there)) {
        Py_DECREF(saved);
        return NULL;
    }
    if (!kin_grad_enabled() && kin_capture_is_bound_as_before(&t->capture)) {
        bool raised = false, region = PyTuple_Check(again) && PyTuple_GET_ITEM(again, 3) != Py_None;
        given = region ? launch_region_backward(t, again, grads, &raised) : launch_training_backward(t, saved, grads);
        if (raised) {
            Py_DECREF(saved);
            return NULL;
        }
        if (given == NULL)
            PyErr_Clear();
    }
    t->twice += kin_grad_enabled();
    Py_DECREF(saved);
    return given != NULL ? given : do_again(t, PyTuple_GET_ITEM(note, 1), grads, kin_grad_enabled());
}

/* What torch does not free with the saved tensors; it stays while there are results that eager could still go back from. Where no gradient has come
 * (`there` is 0) eager has no way through here at all: torch has freed what is saved, and every result may still be gone back from. */
void
launch_training_let_go(PyObject *ctx, launch_training *t, PyObject *note, uint64_t there)
{
    PyObject *keep = PyObject_CallNoArgs(known.keeps_graph), *left = NULL;
    uint64_t gone = PyLong_AsUnsignedLongLong(PyTuple_GET_ITEM(note, 2)) | there;
    bool some = gone == 0, passed = PyTuple_GET_ITEM(note, 3) == Py_True || there == 0;
    for (uint32_t i = 0; t->nresults > 1 && i < t->nresults; i++)
        some = some || !(t->capture.joint.saving.at[i] & gone);
    if (keep == Py_False)
        left = new_note((PyObject *)t, some ? PyTuple_GET_ITEM(note, 1) : Py_None, gone, passed);
    if (left != NULL && PyObject_SetAttr(ctx, known.s_note, left) < 0)
        PyErr_Clear();
    PyErr_Clear();
    Py_XDECREF(left);
    Py_XDECREF(keep);
}

PyObject *
launch_training_go_back(PyObject *node, launch_training *t, PyObject *note, PyObject *const *grads, uint64_t *there, bool last)
{
    PyObject *direct = launch_results_take_direct(t, node, last);
    PyObject *given = *there == 0 ? no_gradients(t) : go_back(node, t, note, grads, *there);
    if (direct != NULL && given != NULL)
        launch_results_add(direct, &given, there);
    Py_XDECREF(direct);
    return given;
}

/* One gradient for each of the node's outs. */
static PyObject *
answer_backward(PyObject *const *args, Py_ssize_t nargs)
{
    PyObject *note = nargs > 0 ? PyObject_GetAttr(args[0], known.s_note) : NULL, *all = NULL;
    if (note == NULL)
        return NULL;
    launch_training *t = (launch_training *)PyTuple_GET_ITEM(note, 0);
    PyObject **grads = malloc((t->nresults + 1) * sizeof *grads);
    if (grads == NULL) {
        PyErr_NoMemory();
    } else if (nargs - 1 != (Py_ssize_t)t->ngiven) {
        PyErr_SetString(PyExc_RuntimeError, "kintsugi: a node got gradients that are not its own");
    } else {
        uint64_t there = 0;
        for (uint32_t i = 0; i < t->nresults; i++) {
            grads[i] = args[1 + t->grad_at[i]];
            there |= grads[i] == Py_None ? 0 : (uint64_t)1 << (i < 63 ? i : 63);
        }
        PyObject *given = launch_training_go_back(args[0], t, note, grads, &there, true);
        if (given != NULL && launch_groups_give(t, args[0], &given, there))
            all = put_between(given);
        Py_XDECREF(given);
        if (all != NULL)
            launch_training_let_go(args[0], t, note, there);
    }
    free(grads);
    Py_DECREF(note);
    return all;
}

/* backward(ctx, *grads). Where our program fails torch goes back instead, so no handler of signals may run meanwhile. */
static PyObject *
backward(PyObject *Py_UNUSED(self), PyObject *const *args, Py_ssize_t nargs)
{
    bool held = kin_signals_hold();
    PyObject *all = answer_backward(args, nargs);
    if (held)
        kin_signals_release();
    return all;
}
