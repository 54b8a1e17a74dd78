/* Runs the callables that custom backends returned (launcher.h). */
#include "py/backend/launcher.h"

#include <stdlib.h>
#include <string.h>

#include "core/tier/tier.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/compat/failure.h"
#include "py/compat/imports.h"
#include "py/compat/signals.h"
#include "py/capture/capture.h"
#include "py/launch/launch.h"
#include "py/launch/signature.h"

typedef struct {
    launch_signature signature;
    bool holds;
} proof;

typedef struct {
    kin_launcher base;
    PyObject *callable;
    uint32_t npick, *pick; /* NULL: all inputs, as they come */
    KIN_VEC(proof *) proofs; /* a subgraph that waits may hold on to one */
    bool missed;             /* inputs made late in the last run were of a kind without a proof: the next one keeps all inputs, to learn */
    bool sized;              /* it has tests that other sizes may answer in another way: a proof is for its sizes only */
} backend_launcher;

/* -- proofs ------------------------------------------------------------------------------------------------------ */

/* Takes the signature. */
static kin_status
remember(backend_launcher *self, const launch_signature *signature, bool holds)
{
    proof *p = malloc(sizeof *p);
    if (p != NULL)
        *p = (proof){*signature, holds};
    if (p != NULL && kin_vec_push(&self->proofs, p) == KIN_OK)
        return KIN_OK;
    free(p);
    return KIN_NOMEM;
}

/* Does the input fit, whatever its sizes? A call that other sizes make raise is done again step by step. */
static bool
fits_kind(const launch_signature *s, uint32_t i, PyObject *obj)
{
    const launch_input *want = &s->inputs[i];
    if (want->value != NULL && PyLong_CheckExact(want->value))
        return PyLong_CheckExact(obj);
    kin_dtype dtype;
    if (want->value != NULL || !kin_is_tensor(obj))
        return launch_signature_fits_one(s, i, obj);
    return Py_IS_TYPE(obj, want->type) && kin_tensor_keys(obj) == want->keys && kin_tensor_dim(obj) == want->ndim &&
           kin_tensor_dtype(obj, &dtype) && (int32_t)dtype == want->dtype && kin_tensor_requires_grad(obj) == want->requires_grad;
}

static bool
fits_proof(const backend_launcher *self, const proof *p, uint32_t i, PyObject *obj)
{
    return self->sized || !p->holds ? launch_signature_fits_one(&p->signature, i, obj) : fits_kind(&p->signature, i, obj);
}

/* Is there a test of what the calls give but of its being a tensor? */
static bool
has_sized_tests(const kin_entry *v, const kin_subgraph *subgraph)
{
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++) {
        const kin_step *s = &v->trace.steps.at[i];
        if (subgraph->role != NULL && subgraph->role[i - subgraph->first] == KIN_ROLE_TEST &&
            !(s->kind == KIN_STEP_CHECK && s->imm == KIN_CHECK_TYPE))
            return true;
    }
    return false;
}

/* Is it known for inputs like those that are there (NULL: not yet)? */
static const proof *
find_proof(const backend_launcher *self, PyObject *const *in, const proof *other_than)
{
    for (uint32_t i = 0; i < self->proofs.len; i++) {
        const proof *p = self->proofs.at[i];
        bool fits = p != other_than && p->signature.ambient == kin_ambient_state();
        for (uint32_t k = 0; fits && k < p->signature.n; k++)
            fits = in[k] == NULL || fits_proof(self, p, k, in[k]);
        if (fits)
            return p;
    }
    return NULL;
}

/* These calls of the subgraph; all of them when none is named. */
static kin_status
exclude(kin_entry *v, const kin_subgraph *subgraph, const uint32_t *steps, uint32_t n)
{
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++)
        if ((n == 0 || kin_step_is_in(steps, n, i)) && kin_subgraph_calls(&v->trace.steps.at[i]) &&
            !kin_step_is_in(v->excluded.at, v->excluded.len, i))
            KIN_TRY(kin_vec_push(&v->excluded, i));
    return KIN_BREAK;
}

static bool
uses(const kin_trace *t, const kin_step *s, kin_vid value)
{
    for (uint32_t i = 0; i < s->nargs; i++)
        if (t->vids.at[s->args + i] == value)
            return true;
    return false;
}

kin_status
kin_backend_exclude(kin_entry *v, const kin_subgraph *subgraph, kin_vid value)
{
    uint32_t before = v->excluded.len;
    for (uint32_t i = subgraph->first; value != 0 && i <= subgraph->last; i++)
        if (uses(&v->trace, &v->trace.steps.at[i], value) && exclude(v, subgraph, &i, 1) == KIN_NOMEM)
            return KIN_NOMEM;
    return v->excluded.len > before ? KIN_BREAK : exclude(v, subgraph, NULL, 0);
}

/* The proof has failed: the graph ends before the test that did not pass, or it is made without the calls that cannot be part of it. */
static kin_status
divide(kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, const kin_capture *capture)
{
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] == NULL)
            return kin_backend_exclude(v, subgraph, subgraph->in[i]);
    uint32_t test = capture->failed_test - 1; /* if there is one */
    if (capture->failed_test != 0 && !kin_step_is_in(v->barriers.at, v->barriers.len, test)) {
        KIN_TRY(kin_vec_push(&v->barriers, test));
        return KIN_BREAK;
    }
    uint32_t write = capture->refused.len > 0 ? capture->refused.at[0] : 0; /* one that came too late may be the first of a graph of its own */
    if (write > subgraph->first && !kin_step_is_in(v->barriers.at, v->barriers.len, write)) {
        KIN_TRY(kin_vec_push(&v->barriers, write));
        return KIN_BREAK;
    }
    return exclude(v, subgraph, capture->refused.at, capture->refused.len);
}

/* Captures with the calls that need data done on data of ours; what those draw is given back. */
static kin_status
capture_with_data(kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, unsigned may, kin_capture *capture)
{
    kin_capture_hints hints = {0};
    PyObject *random = kin_import_call("kintsugi._random", "random_state", NULL);
    PyErr_Clear();
    kin_status status = kin_capture_run(v, subgraph, in, NULL, &hints, may, capture);
    if (status == KIN_OK && capture->by_data) {
        kin_capture_deinit(capture);
        status = kin_capture_run(v, subgraph, in, NULL, &hints, may | KIN_CAPTURE_OTHER_DATA, capture);
    }
    Py_XDECREF(random == NULL ? NULL : kin_import_call("kintsugi._random", "restore_random_state", random));
    Py_XDECREF(random);
    PyErr_Clear();
    return status;
}

/* The proof alone: nothing is changed. */
static kin_status
prove(backend_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, kin_capture *capture)
{
    launch_signature signature;
    uint32_t which;
    *capture = (kin_capture){0};
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] == NULL)
            return KIN_BREAK;
    if (self->proofs.len >= KIN_TIER_PROOF_KINDS)
        return KIN_BREAK;
    self->sized = has_sized_tests(v, subgraph);
    KIN_TRY(launch_signature_make(in, subgraph->nin, NULL, true, &signature, &which));
    bool held = kin_signals_hold();
    unsigned may = KIN_CAPTURE_GRADIENTS | KIN_CAPTURE_DATA | (subgraph->hides_writes ? KIN_CAPTURE_WRITES : 0);
    kin_status status = capture_with_data(v, subgraph, in, may, capture);
    if (held)
        kin_signals_release();
    kin_status kept = remember(self, &signature, status == KIN_OK);
    if (kept != KIN_OK)
        launch_signature_deinit(&signature);
    return kept != KIN_OK ? kept : status;
}

/* What must not be done again where the program is left is not left out. KIN_BREAK: the subgraphs are to be found anew. */
static kin_status
keep_once(kin_entry *v, const kin_capture *capture)
{
    uint32_t before = v->kept.len;
    for (uint32_t i = 0; i < capture->random.len; i++)
        if (!kin_step_is_in(v->random.at, v->random.len, capture->random.at[i]))
            KIN_TRY(kin_vec_push(&v->random, capture->random.at[i]));
    for (uint32_t i = 0; i < capture->once.len; i++)
        if (!kin_step_is_in(v->kept.at, v->kept.len, capture->once.at[i]))
            KIN_TRY(kin_vec_push(&v->kept, capture->once.at[i]));
    return v->kept.len == before ? KIN_OK : KIN_BREAK;
}

/* A call that may raise behind a step that reports, in a graph that writes and so is not done again step by step, begins a graph of its own. */
static kin_status
divide_before_raise(kin_entry *v, const kin_subgraph *subgraph, const kin_capture *capture)
{
    for (uint32_t i = 0; capture->writes && subgraph->reports != 0 && i < capture->raising.len; i++)
        if (capture->raising.at[i] > subgraph->reports && !kin_step_is_in(v->barriers.at, v->barriers.len, capture->raising.at[i])) {
            KIN_TRY(kin_vec_push(&v->barriers, capture->raising.at[i]));
            return KIN_BREAK;
        }
    return KIN_OK;
}

kin_status
kin_backend_prove(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in)
{
    kin_capture capture;
    kin_status status = prove((backend_launcher *)base, v, subgraph, in, &capture);
    if (status == KIN_OK && subgraph->at != 0 && (status = keep_once(v, &capture)) != KIN_OK)
        ; /* found anew, with them */
    else if (status == KIN_OK && (status = divide_before_raise(v, subgraph, &capture)) != KIN_OK)
        ; /* found anew, without that call */
    else if (status == KIN_OK && subgraph->deferred)
        status = launch_add_barriers(v, subgraph, capture.raising.at, capture.raising.len);
    else if (status == KIN_BREAK)
        status = divide(v, subgraph, in, &capture);
    kin_capture_deinit(&capture);
    return status;
}

/* -- launching ---------------------------------------------------------------------------------------------------- */

static kin_launch
give_outputs(const kin_subgraph *subgraph, PyObject *result, PyObject **out)
{
    if (result == Py_None)
        return KIN_LAUNCH_NOT;
    if (!PyTuple_CheckExact(result) || PyTuple_GET_SIZE(result) != (Py_ssize_t)subgraph->nout) {
        kin_failure_raise("kintsugi: a compiled graph did not return as many outputs as the graph has");
        return KIN_LAUNCH_RAISED;
    }
    for (uint32_t i = 0; i < subgraph->nout; i++)
        out[i] = Py_NewRef(PyTuple_GET_ITEM(result, i));
    return KIN_LAUNCH_DONE;
}

static kin_launch
call(backend_launcher *self, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    PyObject *small[32] = {NULL}, **args = self->npick <= 32 ? small : malloc(self->npick * sizeof *args);
    if (args == NULL)
        return KIN_LAUNCH_NOT;
    for (uint32_t i = 0; i < self->npick; i++)
        args[i] = in[self->pick[i]];
    PyObject *result = PyObject_Vectorcall(self->callable, args, self->npick, NULL);
    if (args != small)
        free(args);
    if (result == NULL)
        return KIN_LAUNCH_RAISED;
    kin_launch done = give_outputs(subgraph, result, out);
    Py_DECREF(result);
    return done;
}

/* A subgraph that does not wait has all its inputs here. */
static kin_launch
run_backend(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    backend_launcher *self = (backend_launcher *)base;
    if (subgraph->plain)
        return call(self, subgraph, in, out);
    if (kin_modes_active() || kin_ambient_special())
        return KIN_LAUNCH_NOT;
    const proof *p = find_proof(self, in, NULL);
    if (p != NULL)
        return p->holds ? call(self, subgraph, in, out) : KIN_LAUNCH_NOT;
    kin_capture capture;
    kin_status status = prove(self, v, subgraph, in, &capture);
    kin_capture_deinit(&capture);
    return status == KIN_OK ? call(self, subgraph, in, out) : KIN_LAUNCH_NOT;
}

static void learn_backend(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out);

/* Under settings that are switched before the graph and in it again, the proof is made where the graph begins. */
static bool
is_complete(const kin_subgraph *subgraph, PyObject *const *in)
{
    for (uint32_t i = 0; i < subgraph->nin; i++)
        if (in[i] == NULL)
            return false;
    return subgraph->switches;
}

static void *
choose_backend(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, void *had, bool *learn)
{
    backend_launcher *self = (backend_launcher *)base;
    *learn = false;
    if (kin_modes_active() || kin_ambient_special())
        return NULL;
    const proof *p = had == NULL && self->missed ? NULL : find_proof(self, in, had);
    if (p == NULL && had == NULL && is_complete(subgraph, in)) {
        learn_backend(base, v, subgraph, in, NULL);
        p = find_proof(self, in, had);
    }
    *learn = p == NULL && self->proofs.len < KIN_TIER_PROOF_KINDS;
    self->missed = *learn && had != NULL;
    return p != NULL && p->holds ? (void *)(uintptr_t)p : NULL;
}

static bool
fits_backend(kin_launcher *self, void *chosen, uint32_t i, PyObject *obj)
{
    return fits_proof((backend_launcher *)self, chosen, i, obj);
}

static void
learn_backend(kin_launcher *base, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out)
{
    kin_capture capture;
    if (find_proof((backend_launcher *)base, in, NULL) != NULL)
        return;
    if (prove((backend_launcher *)base, v, subgraph, in, &capture) == KIN_NOMEM)
        PyErr_Clear();
    kin_capture_deinit(&capture);
}

static kin_launch
run_chosen_backend(kin_launcher *base, void *chosen, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out)
{
    if (kin_modes_active() || kin_ambient_special())
        return KIN_LAUNCH_NOT;
    return call((backend_launcher *)base, subgraph, in, out);
}

/* -- memory -------------------------------------------------------------------------------------------------------- */

static int
traverse_backend(kin_launcher *base, visitproc visit, void *arg)
{
    backend_launcher *self = (backend_launcher *)base;
    Py_VISIT(self->callable);
    for (uint32_t i = 0; i < self->proofs.len; i++)
        for (uint32_t k = 0; k < self->proofs.at[i]->signature.n; k++)
            Py_VISIT(self->proofs.at[i]->signature.inputs[k].value);
    return 0;
}

static void
free_backend(kin_launcher *base)
{
    backend_launcher *self = (backend_launcher *)base;
    for (uint32_t i = 0; i < self->proofs.len; i++) {
        launch_signature_deinit(&self->proofs.at[i]->signature);
        free(self->proofs.at[i]);
    }
    kin_vec_deinit(&self->proofs);
    Py_XDECREF(self->callable);
    free(self->pick);
    free(self);
}

kin_launcher *
kin_backend_launcher(void)
{
    backend_launcher *self = calloc(1, sizeof *self);
    if (self == NULL)
        return NULL;
    self->base = (kin_launcher){.refs = 1, .framed = true, .run = run_backend, .choose = choose_backend, .learn = learn_backend,
                                .fits = fits_backend, .run_chosen = run_chosen_backend, .traverse = traverse_backend,
                                .free = free_backend};
    return &self->base;
}

kin_status
kin_backend_set(kin_launcher *base, PyObject *callable, const uint32_t *pick, uint32_t npick)
{
    backend_launcher *self = (backend_launcher *)base;
    self->pick = malloc((npick + 1) * sizeof *pick);
    if (self->pick == NULL)
        return KIN_NOMEM;
    memcpy(self->pick, pick, npick * sizeof *pick);
    self->npick = npick;
    self->callable = Py_NewRef(callable);
    return KIN_OK;
}

bool
kin_backend_is(const kin_launcher *launcher)
{
    return launcher != NULL && launcher->run == run_backend;
}

bool
kin_backend_is_pure(const kin_launcher *launcher)
{
    PyObject *callable = ((const backend_launcher *)launcher)->callable;
    PyObject *pure = callable == NULL ? NULL : PyObject_GetAttrString(callable, "pure");
    bool is_pure = pure == Py_True;
    Py_XDECREF(pure);
    PyErr_Clear();
    return is_pure;
}

bool
kin_backend_has_callable(const kin_launcher *launcher)
{
    return ((const backend_launcher *)launcher)->callable != NULL;
}
