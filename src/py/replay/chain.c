/* The real frames of a snapshot: created from it, linked outermost first, freed innermost first. */
#include "py/compat/recursion.h"
#include "py/compat/codes.h"
#include "py/compat/failure.h"
#include "py/replay/replay_priv.h"

/* An offset may name the first prefix of an instruction, or one that prepares a call; while the call is in progress the frame
 * stands at the call. */
static void
find_instruction(kin_link *l, uint32_t offset)
{
    l->start = l->at = offset;
    l->next = offset + 2;
    const kin_code *code = rec_code_of(l->code);
    const kin_instr *in = code ? kin_code_acting(code, offset) : NULL;
    if (in != NULL) {
        l->at = in->op_offset;
        l->next = in->next;
    }
}

static void
fill_values(kin_run *r, kin_link *l, bool locals, bool stack)
{
    const kin_snap *s = &r->t->snaps.at[l->snap];
    const kin_vid *vids = r->t->vids.at + s->vals;
    if (locals && s->names != 0 && kin_frame_namespace(l->frame) == NULL)
        kin_frame_set_namespace(l->frame, kin_run_value(r, s->names));
    for (int i = 0; locals && i < s->nlocals; i++)
        if (vids[i] != 0)
            kin_frame_set_local(l->frame, i, Py_XNewRef(kin_run_value(r, vids[i])));
    for (int i = 0; stack && i < s->nstack; i++)
        kin_frame_push(l->frame, Py_XNewRef(kin_run_value(r, vids[s->nlocals + i])));
}

/* -- what f_locals filled ------------------------------------------------------------------------------------------ */

/* A frame of the program is one from its first chain to its last: all its snapshots have one parent. */
typedef struct {
    uint32_t parent;
    PyObject *dict; /* owned */
} namespace;

struct kin_namespaces {
    KIN_VEC(namespace) at;
};

static namespace *
find_namespace(kin_run *r, uint32_t snap)
{
    uint32_t parent = r->t->snaps.at[snap].parent;
    for (uint32_t i = 0; r->namespaces != NULL && i < r->namespaces->at.len; i++)
        if (r->namespaces->at.at[i].parent == parent)
            return &r->namespaces->at.at[i];
    return NULL;
}

/* Frames that are not in the chain have ended, and their dicts with them. */
static void
drop_ended(kin_run *r, const kin_chain *c)
{
    struct kin_namespaces *all = r->namespaces;
    for (uint32_t i = all != NULL ? all->at.len : 0; i-- > 0;) {
        bool running = false;
        for (uint32_t d = 0; d < c->n; d++)
            running = running || r->t->snaps.at[c->at[d].snap].parent == all->at.at[i].parent;
        if (running)
            continue;
        PyObject *dict = all->at.at[i].dict;
        all->at.at[i] = all->at.at[--all->at.len];
        Py_DECREF(dict);
    }
}

void
kin_chain_keep_namespaces(kin_run *r, const kin_chain *c)
{
    if (r->namespaces != NULL)
        drop_ended(r, c);
    for (uint32_t d = 0; d < c->n; d++) {
        PyObject *dict = kin_frame_namespace(c->at[d].frame);
        if (dict == NULL || find_namespace(r, c->at[d].snap) != NULL)
            continue;
        if (r->namespaces == NULL && (r->namespaces = calloc(1, sizeof *r->namespaces)) == NULL)
            return;
        namespace kept = {r->t->snaps.at[c->at[d].snap].parent, Py_NewRef(dict)};
        if (kin_vec_push(&r->namespaces->at, kept) != KIN_OK)
            Py_DECREF(dict);
    }
}

void
kin_namespaces_free(struct kin_namespaces *all)
{
    for (uint32_t i = 0; all != NULL && i < all->at.len; i++)
        Py_DECREF(all->at.at[i].dict);
    if (all != NULL)
        kin_vec_deinit(&all->at);
    free(all);
}

/* -- frames --------------------------------------------------------------------------------------------------------- */

static bool
build_link(kin_run *r, kin_link *l, uint32_t snap)
{
    const kin_snap *s = &r->t->snaps.at[snap];
    PyObject *func = kin_run_value(r, s->func), *code = kin_refs_get(r->refs, s->code);
    if (func == NULL || code == NULL || !PyFunction_Check(func)) {
        kin_failure_raise("kintsugi: snapshot %u has no function", (unsigned)snap);
        return false;
    }
    l->code = (PyCodeObject *)code;
    l->snap = snap;
    l->nlocals = s->nlocals;
    l->nstack = s->nstack;
    l->resume = s->resume;
    l->frame = kin_frame_new(func, l->code);
    if (l->frame == NULL)
        return false;
    find_instruction(l, s->offset);
    const namespace *kept = r->namespaces != NULL ? find_namespace(r, snap) : NULL;
    if (kept != NULL)
        kin_frame_set_namespace(l->frame, kept->dict);
    return true;
}

kin_status
kin_chain_build(kin_run *r, uint32_t step, kin_chain *c)
{
    uint32_t snap = r->t->steps.at[step].snap;
    KIN_TRY(kin_sunk_build(r, step, snap, KIN_FILL_NOTHING));
    c->n = c->linked = 0;
    c->filled = KIN_FILL_NOTHING;
    for (uint32_t s = snap; s != 0; s = r->t->snaps.at[s].parent)
        c->n++;
    c->at = c->small;
    if (c->n > sizeof c->small / sizeof *c->small)
        c->at = PyMem_Malloc(c->n * sizeof *c->at);
    if (c->at == NULL) {
        PyErr_NoMemory();
        return KIN_PYERR;
    }
    memset(c->at, 0, c->n * sizeof *c->at);
    for (uint32_t d = c->n; d-- > 0; snap = r->t->snaps.at[snap].parent)
        if (!build_link(r, &c->at[d], snap)) {
            kin_chain_drop(r->ts, c);
            return KIN_PYERR;
        }
    return KIN_OK;
}

kin_status
kin_chain_fill(kin_run *r, kin_chain *c, uint32_t upto, kin_fill fill)
{
    if (fill <= (kin_fill)c->filled)
        return KIN_OK;
    KIN_TRY(kin_sunk_build(r, upto, c->at[c->n - 1].snap, fill));
    for (uint32_t d = 0; d < c->n; d++) {
        kin_link *l = &c->at[d];
        fill_values(r, l, c->filled < KIN_FILL_LOCALS, fill == KIN_FILL_ALL);
        if (fill == KIN_FILL_ALL)
            l->extra = Py_XNewRef(kin_run_value(r, r->t->snaps.at[l->snap].extra));
    }
    c->filled = (uint8_t)fill;
    return KIN_OK;
}

void
kin_chain_link(kin_run *r, kin_chain *c, uint32_t n)
{
    for (; c->linked < n; c->linked++) {
        kin_frame_link(r->ts, c->at[c->linked].frame, c->at[c->linked].at);
        kin_recursion_take(r->ts, 1);
    }
}

void
kin_chain_unlink(PyThreadState *ts, kin_chain *c)
{
    kin_frame_unlink(ts, c->at[--c->linked].frame);
    kin_recursion_take(ts, -1);
}

void
kin_chain_drop(PyThreadState *ts, kin_chain *c)
{
    PyObject *type, *value, *tb;
    PyErr_Fetch(&type, &value, &tb);
    while (c->n > 0) {
        if (c->linked == c->n)
            kin_chain_unlink(ts, c);
        kin_link *l = &c->at[--c->n];
        kin_frame_free(ts, l->frame);
        Py_CLEAR(l->extra);
    }
    if (c->at != c->small)
        PyMem_Free(c->at);
    c->at = NULL;
    PyErr_Restore(type, value, tb);
}
