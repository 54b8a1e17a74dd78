/* Keeps what was computed from frozen weights (frozen.h). There is one set of such values for each group of tensors that the graph is called
 * with (the layers of a model that share their code). A set is dropped when the memory of a weight was released. This
 * is checked from time to time through weak references to storages, because weak references to tensors are visible to programs and break
 * torch.utils.swap_tensors.
 */
#include "py/run/frozen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/base/clock.h"
#include "core/blocks/room.h"
#include "core/tier/tier.h"
#include "py/aten/make.h"
#include "py/aten/tensor.h"
#include "py/aten/track.h"
#include "py/compat/imports.h"

enum {
    COMPARE_LIMIT = 1 << 16, /* bytes of one tensor that are compared where the kernel does not watch memory */
    SET_LIMIT = 64,
    OFTEN = 16,              /* calls after which other sets are looked at */
    UNASKED = 64 << 20       /* bytes for which nobody looks whether there is room */
};

static uint32_t room_percent = 50; /* of the memory that is free, for what is kept */

typedef struct {
    launch_frozen *owner;
    const void **objects;    /* by watched input: address of the tensor object, to tell sets apart */
    PyObject **refs;         /* weak reference to the storage, as torch gives them out: a number */
    const void **data;       /* where its elements were */
    kin_write_watch **watches;
    kin_watch_group *group;
    launch_prepared *prepared;
    bool busy;               /* being made: another thread has to do without */
    uint64_t moment;         /* they were up to date (kin_launcher); 0: that says nothing */
} weights;

struct launch_frozen {
    uint32_t nwatched;
    uint32_t *watched;       /* tensor inputs of the graph */
    uint32_t *subgraph_input;    /* the same as inputs of the subgraph */
    size_t *bytes;           /* of each, from the first to the last element */
    uint32_t *changes;       /* of each */
    bool *lost;
    bool any_lost;
    char why[120];           /* why one was lost */
    KIN_VEC(weights *) sets;
    kin_text key;            /* how values are made */
    uint32_t refs;           /* of code: that for other sizes, and of other recordings of the function, shares them */
    launch_frozen *next;     /* of all of this process; guarded by the GIL */
    uint64_t runs, renewals;
    double renewal_ns;       /* all of these */
};

/* -- prepared values -------------------------------------------------------------------------------------------- */

void
launch_prepared_release(launch_prepared *p)
{
    if (p == NULL || --p->refs > 0)
        return;
    for (uint32_t i = 0; i < p->nvalues; i++)
        Py_XDECREF(p->values[i]);
    for (uint32_t i = 0; i < p->npacked; i++)
        launch_packed_free(&p->packed[i]);
    free(p->values);
    free(p->packed);
    free(p);
}

static launch_prepared *
new_prepared(const launch_code *code)
{
    launch_prepared *p = calloc(1, sizeof *p);
    if (p == NULL)
        return NULL;
    p->refs = 1;
    p->nvalues = code->once.program == NULL ? 0 : code->once.program->noutputs;
    p->npacked = code->main.program->externs.len;
    p->values = calloc(p->nvalues + 1, sizeof *p->values);
    p->packed = calloc(p->npacked + 1, sizeof *p->packed);
    if (p->values != NULL && p->packed != NULL)
        return p;
    launch_prepared_release(p);
    return NULL;
}

/* Values whose packed form is all that is needed go. */
static void
drop_packed_values(const launch_code *code, launch_prepared *p)
{
    const kin_program *program = code->main.program;
    for (uint32_t b = 0; b < program->buffers.len; b++) {
        const kin_buf *buf = &program->buffers.at[b];
        if (buf->kind == KIN_BUF_INPUT && buf->index >= code->ninputs && code->only_packed[b])
            Py_CLEAR(p->values[buf->index - code->ninputs]);
    }
    for (uint32_t i = 0; i < p->nvalues; i++) {
        const kin_buf *buf = &code->once.program->buffers.at[code->once.program->outputs[i]];
        p->bytes += p->values[i] != NULL ? buf->bytes : 0;
    }
}

static launch_prepared *
prepare(launch_code *code, PyObject *const *in)
{
    launch_prepared *p = new_prepared(code);
    launch_inputs inputs = {.in = in, .input_of = code->input_of, .n = code->ninputs};
    bool ok = p != NULL && (p->nvalues == 0 || launch_program_run(&code->once, &inputs, p->values));
    if (ok) {
        inputs.values = p->values;
        ok = launch_program_pack(&code->main, &inputs, p->packed, &p->bytes);
    }
    if (!ok) {
        launch_prepared_release(p);
        return NULL;
    }
    drop_packed_values(code, p);
    return p;
}

/* -- weak references to storages ---------------------------------------------------------------------------------- */

/* torch.UntypedStorage.<name>(ref), which knows what it handed out; false on failure too. */
static bool
ask_storage(const char *name, PyObject *ref)
{
    static PyObject *class;
    PyObject *answer = kin_import_once(&class, "torch", "UntypedStorage") == NULL ? NULL : PyObject_CallMethod(class, name, "O", ref);
    bool yes = answer == Py_True;
    Py_XDECREF(answer);
    PyErr_Clear();
    return yes;
}

static PyObject *
storage_ref(PyObject *tensor)
{
    PyObject *storage = PyObject_CallMethod(tensor, "untyped_storage", NULL);
    PyObject *ref = storage == NULL ? NULL : PyObject_CallMethod(storage, "_weak_ref", NULL);
    Py_XDECREF(storage);
    PyErr_Clear();
    return ref;
}

static void
free_ref(PyObject **ref)
{
    if (*ref != NULL)
        (void)ask_storage("_free_weak_ref", *ref);
    Py_CLEAR(*ref);
}

/* -- sets of weights -------------------------------------------------------------------------------------------- */

static void
drop_contents(weights *w)
{
    kin_watch_group_free(w->group);
    w->group = NULL;
    for (uint32_t k = 0; k < w->owner->nwatched; k++) {
        kin_watch_free(w->watches[k]);
        free_ref(&w->refs[k]);
        w->watches[k] = NULL;
        w->data[k] = NULL;
    }
    launch_prepared_release(w->prepared);
    w->prepared = NULL;
}

static void
free_weights(weights *w)
{
    if (w == NULL)
        return;
    if (w->data != NULL && w->refs != NULL && w->watches != NULL)
        drop_contents(w);
    free(w->objects);
    free(w->refs);
    free(w->data);
    free(w->watches);
    free(w);
}

static weights *
new_weights(launch_frozen *f, const launch_code *code, PyObject *const *in)
{
    weights *w = calloc(1, sizeof *w);
    if (w == NULL)
        return NULL;
    w->owner = f;
    w->objects = calloc(f->nwatched + 1, sizeof *w->objects);
    w->refs = calloc(f->nwatched + 1, sizeof *w->refs);
    w->data = calloc(f->nwatched + 1, sizeof *w->data);
    w->watches = calloc(f->nwatched + 1, sizeof *w->watches);
    bool ok = w->objects != NULL && w->refs != NULL && w->data != NULL && w->watches != NULL;
    for (uint32_t k = 0; ok && k < f->nwatched; k++)
        w->objects[k] = in[code->input_of[f->watched[k]]];
    if (ok && kin_vec_push(&f->sets, w) == KIN_OK)
        return w;
    free_weights(w);
    return NULL;
}

static bool
is_outlived(const weights *w)
{
    for (uint32_t k = 0; k < w->owner->nwatched; k++)
        if (w->refs[k] == NULL || ask_storage("_expired", w->refs[k]))
            return true;
    return false;
}

static void
remove_set(launch_frozen *f, uint32_t i)
{
    weights *w = f->sets.at[i];
    memmove(&f->sets.at[i], &f->sets.at[i + 1], (f->sets.len - i - 1) * sizeof *f->sets.at);
    f->sets.len--;
    free_weights(w);
}

/* Removes sets whose weights are gone. */
static void
sweep(launch_frozen *f, const weights *current)
{
    for (uint32_t i = f->sets.len; i-- > 0;)
        if (f->sets.at[i] != current && !f->sets.at[i]->busy && is_outlived(f->sets.at[i]))
            remove_set(f, i);
}

static bool
is_set_of(const weights *w, const launch_code *code, PyObject *const *in)
{
    for (uint32_t k = 0; k < w->owner->nwatched; k++)
        if (w->objects[k] != in[code->input_of[w->owner->watched[k]]])
            return false;
    return true;
}

/* The one used last stands last. */
static weights *
find_set(launch_frozen *f, const launch_code *code, PyObject *const *in)
{
    for (uint32_t i = f->sets.len; i-- > 0;) {
        weights *w = f->sets.at[i];
        if (!is_set_of(w, code, in))
            continue;
        memmove(&f->sets.at[i], &f->sets.at[i + 1], (f->sets.len - i - 1) * sizeof *f->sets.at);
        f->sets.at[f->sets.len - 1] = w;
        if (f->sets.len > 1 && f->runs % OFTEN == 0)
            sweep(f, w);
        return w;
    }
    sweep(f, NULL);
    if (f->sets.len >= SET_LIMIT && !f->sets.at[0]->busy)
        remove_set(f, 0); /* the one used longest ago */
    return new_weights(f, code, in);
}

/* -- changes ---------------------------------------------------------------------------------------------------- */

static void
lose(launch_frozen *f, uint32_t k, const char *why)
{
    f->lost[k] = f->any_lost = true;
    snprintf(f->why, sizeof f->why, "input %u: %.100s", f->subgraph_input[k], why);
}

static void
count_change(launch_frozen *f, uint32_t k)
{
    f->changes[k]++;
    if (f->changes[k] > KIN_TIER_WEIGHT_CHANGES && (uint64_t)f->changes[k] * KIN_TIER_WEIGHT_RUNS > f->runs)
        lose(f, k, "the weight changes too often");
}

/* Watches what lies elsewhere than before. *changed: there is such. False: writes to the weight cannot be detected. */
static bool
watch_moved(weights *w, const launch_code *code, PyObject *const *in, bool *changed)
{
    launch_frozen *f = w->owner;
    kin_track *track = kin_process_track();
    bool ok = true;
    for (uint32_t k = 0; k < f->nwatched; k++) {
        const void *data = kin_tensor_data(in[code->input_of[f->watched[k]]]);
        if (data == w->data[k] && w->watches[k] != NULL)
            continue;
        kin_watch_group_free(w->group);
        w->group = NULL;
        kin_watch_free(w->watches[k]);
        free_ref(&w->refs[k]);
        w->refs[k] = storage_ref(in[code->input_of[f->watched[k]]]);
        if (w->data[k] != NULL)
            count_change(f, k);
        kin_text why = {0};
        w->data[k] = data;
        w->watches[k] = data == NULL || track == NULL ? NULL : kin_watch_new(track, data, f->bytes[k], COMPARE_LIMIT, &why);
        if (w->watches[k] == NULL)
            lose(f, k, why.len > 0 ? why.at : "writes to the weight cannot be detected");
        ok = ok && w->watches[k] != NULL;
        kin_text_deinit(&why);
        *changed = true;
    }
    if (ok && w->group == NULL)
        w->group = kin_watch_group_new(track, w->watches, f->nwatched);
    return ok && w->group != NULL;
}

static bool
notice_writes(weights *w)
{
    launch_frozen *f = w->owner;
    bool small[64], *which = f->nwatched <= 64 ? small : malloc(f->nwatched * sizeof *which);
    if (which == NULL)
        return true;
    unsigned changes = kin_watch_group_changed(w->group, which);
    for (uint32_t k = 0; changes > 0 && k < f->nwatched; k++)
        if (which[k])
            count_change(f, k);
    if (which != small)
        free(which);
    return changes > 0;
}

static size_t
bytes_to_keep(const launch_frozen *f)
{
    size_t bytes = 0;
    for (uint32_t k = 0; k < f->nwatched; k++)
        bytes += f->lost[k] ? 0 : f->bytes[k];
    return bytes;
}

static uint32_t
find_largest(const launch_frozen *f)
{
    uint32_t largest = 0;
    for (uint32_t k = 1; k < f->nwatched; k++)
        if (f->lost[largest] || (!f->lost[k] && f->bytes[k] > f->bytes[largest]))
            largest = k;
    return largest;
}

/* What is kept takes about as much memory as the weights it is made of: where that much is not to be had, the largest do without.
 * A system that is out of memory does not say so, it ends processes. */
static bool
has_room(launch_frozen *f)
{
    size_t bytes = bytes_to_keep(f);
    if (room_percent > 0 && bytes <= UNASKED)
        return true;
    uint64_t room = kin_memory_room(""), limit = room / 100 * room_percent;
    if (bytes <= limit)
        return true;
    char why[100];
    snprintf(why, sizeof why, "packed weights would take %zu MB, more than %u%% of the %llu MB of free memory", bytes >> 20, room_percent,
             (unsigned long long)room >> 20);
    for (uint32_t left = f->nwatched; left > 0 && bytes > limit; left--) {
        uint32_t k = find_largest(f);
        bytes -= f->bytes[k];
        lose(f, k, why);
    }
    return false;
}

void
kin_launch_set_weights_room(uint32_t percent)
{
    room_percent = percent;
}

/* Watched first, then read: what is written from now on is noticed the next time. */
static bool
bring_up_to_date(weights *w, launch_code *code, PyObject *const *in)
{
    bool changed = w->prepared == NULL;
    if (!watch_moved(w, code, in, &changed)) {
        drop_contents(w);
        return false;
    }
    changed = notice_writes(w) || changed;
    if (!changed)
        return true;
    double start = kin_clock_ns();
    w->owner->renewals++;
    launch_prepared_release(w->prepared);
    w->prepared = NULL;
    if (!has_room(w->owner)) {
        drop_contents(w);
        return false;
    }
    w->prepared = prepare(code, in);
    w->owner->renewal_ns += kin_clock_ns() - start;
    for (uint32_t k = 0; w->prepared == NULL && k < w->owner->nwatched; k++)
        lose(w->owner, k, "its packed form could not be computed");
    return w->prepared != NULL;
}

launch_prepared *
launch_frozen_take(launch_frozen *f, launch_code *code, uint64_t moment, PyObject *const *in)
{
    weights *w = f->any_lost ? NULL : find_set(f, code, in);
    if (w == NULL || w->busy)
        return NULL;
    f->runs++;
    bool ok = moment != 0 && w->moment == moment;
    if (!ok) {
        w->busy = true;
        ok = bring_up_to_date(w, code, in);
        w->busy = false;
        w->moment = ok && code->nwrites == 0 ? moment : 0; /* operators that may write anywhere are in no code */
    }
    launch_prepared *p = ok ? w->prepared : NULL;
    if (p != NULL)
        p->refs++;
    return p;
}

/* -- the whole -------------------------------------------------------------------------------------------------- */

static size_t
bytes_of_input(const kin_program *p, uint32_t input)
{
    for (uint32_t b = 0; p != NULL && b < p->buffers.len; b++)
        if (p->buffers.at[b].kind == KIN_BUF_INPUT && p->buffers.at[b].index == input)
            return p->buffers.at[b].bytes;
    return 0;
}

/* Is it, or a part of it, packed for a call of the main program? */
static bool
is_packed(const launch_code *code, uint32_t input)
{
    const kin_program *p = code->main.program;
    for (uint32_t i = 0; i < p->externs.len; i++) {
        const launch_extern *e = &code->main.externs[i];
        if (e->packs && p->buffers.at[p->externs.at[i].args[1].buffer].kind == KIN_BUF_INPUT &&
            p->buffers.at[p->externs.at[i].args[1].buffer].index == input)
            return true;
    }
    return false;
}

static bool
packs_anything(const launch_code *code)
{
    for (uint32_t i = 0; i < code->main.program->externs.len; i++)
        if (code->main.externs[i].packs)
            return true;
    return false;
}

static launch_frozen *all; /* the newest first */

static launch_frozen *
new_frozen(const launch_code *code, kin_text *key)
{
    launch_frozen *f = calloc(1, sizeof *f);
    if (f == NULL)
        return NULL;
    f->refs = 1;
    f->key = *key;
    *key = (kin_text){0};
    f->watched = calloc(code->ninputs + 1, sizeof *f->watched);
    f->subgraph_input = calloc(code->ninputs + 1, sizeof *f->subgraph_input);
    f->bytes = calloc(code->ninputs + 1, sizeof *f->bytes);
    f->changes = calloc(code->ninputs + 1, sizeof *f->changes);
    f->lost = calloc(code->ninputs + 1, sizeof *f->lost);
    f->next = all;
    all = f;
    if (f->watched != NULL && f->subgraph_input != NULL && f->bytes != NULL && f->changes != NULL && f->lost != NULL)
        return f;
    launch_frozen_free(f);
    return NULL;
}

/* Are values made in the same way, of the same inputs? */
static bool
is_alike(const launch_frozen *a, const launch_frozen *b)
{
    return a->key.len == b->key.len && a->key.len > 0 && memcmp(a->key.at, b->key.at, a->key.len) == 0 && a->nwatched == b->nwatched &&
           memcmp(a->watched, b->watched, a->nwatched * sizeof *a->watched) == 0 &&
           memcmp(a->subgraph_input, b->subgraph_input, a->nwatched * sizeof *a->subgraph_input) == 0 &&
           memcmp(a->bytes, b->bytes, a->nwatched * sizeof *a->bytes) == 0;
}

kin_status
launch_frozen_new(const launch_code *code, kin_text *key, bool shares, launch_frozen **out)
{
    *out = NULL;
    if (code->once.program == NULL && !packs_anything(code))
        return KIN_OK;
    launch_frozen *f = new_frozen(code, key);
    if (f == NULL)
        return KIN_NOMEM;
    for (uint32_t i = 0; i < code->ninputs; i++) {
        size_t bytes = bytes_of_input(code->once.program, i);
        if (bytes == 0 && !is_packed(code, i))
            continue;
        f->watched[f->nwatched] = i;
        f->subgraph_input[f->nwatched] = code->input_of[i];
        f->bytes[f->nwatched++] = bytes > 0 ? bytes : bytes_of_input(code->main.program, i);
    }
    *out = f;
    for (launch_frozen *other = f->next; shares && other != NULL; other = other->next)
        if (!other->any_lost && is_alike(f, other)) {
            other->refs++;
            launch_frozen_free(f);
            *out = other;
            break;
        }
    return KIN_OK;
}

launch_frozen *
launch_frozen_again(launch_frozen *f)
{
    if (f->any_lost)
        return NULL;
    f->refs++;
    return f;
}

void
launch_frozen_free(launch_frozen *f)
{
    if (f == NULL || --f->refs > 0)
        return;
    for (launch_frozen **at = &all; *at != NULL; at = &(*at)->next)
        if (*at == f) {
            *at = f->next;
            break;
        }
    kin_text_deinit(&f->key);
    for (uint32_t i = 0; i < f->sets.len; i++)
        free_weights(f->sets.at[i]);
    kin_vec_deinit(&f->sets);
    free(f->watched);
    free(f->subgraph_input);
    free(f->bytes);
    free(f->changes);
    free(f->lost);
    free(f);
}

bool
launch_frozen_lost(const launch_frozen *f, launch_numbers *lost)
{
    for (uint32_t k = 0; f->any_lost && k < f->nwatched; k++)
        if (f->lost[k] && kin_vec_push(lost, f->subgraph_input[k]) != KIN_OK)
            return false;
    return f->any_lost;
}

const char *
launch_frozen_why(const launch_frozen *f)
{
    return f->why;
}

uint64_t
launch_frozen_renewals(const launch_frozen *f)
{
    return f->renewals;
}

double
launch_frozen_renewal_ns(const launch_frozen *f)
{
    return f->renewal_ns;
}

size_t
launch_frozen_bytes(const launch_frozen *f)
{
    size_t bytes = 0;
    for (uint32_t i = 0; i < f->sets.len; i++)
        bytes += f->sets.at[i]->prepared == NULL ? 0 : f->sets.at[i]->prepared->bytes;
    return bytes / f->refs;
}

PyObject *
launch_frozen_describe(launch_frozen *f)
{
    sweep(f, NULL);
    unsigned long long bytes = 0;
    uint32_t sets = 0;
    for (uint32_t i = 0; i < f->sets.len; i++)
        if (f->sets.at[i]->prepared != NULL) {
            bytes += f->sets.at[i]->prepared->bytes;
            sets++;
        }
    kin_track *track = kin_process_track();
    bool kernel = track != NULL && kin_track_has_kernel(track);
    return Py_BuildValue("{s:I,s:K,s:I,s:I,s:K,s:O}", "watched", f->nwatched, "bytes", bytes, "sets", sets, "sharers", f->refs, "renewals",
                         (unsigned long long)f->renewals, "kernel", kernel ? Py_True : Py_False);
}
