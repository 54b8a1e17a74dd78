/* Loops whose number of rounds is not known: over as many items as a tensor has rows, over a range that data ends, until something has converged. Written out, such a
 * loop would serve one number of rounds, or leave at another place for each. So its second round is recorded as the body of a loop, which replay goes through as often as
 * the program does.
 *
 * The head is a step LOOP, which is opaque: as far as anything behind it is concerned, arbitrary code has run there, with everything at hand, namely the rounds before.
 * What the program knows of objects that may change ends there, and objects that were not built so far are built. Local variables that the rounds assign are values of
 * CARRY steps behind it, about which nothing is known. If the next jump back then finds everything else as it was at the head, a step LOOP_BACK ends the recording: it
 * gives the CARRY steps their next values and goes on behind them. Any other way through the body leaves at a check and becomes a side trace, as everywhere; so does
 * the end of the loop.
 *
 * The first round is part of what comes before: it often finds other things than later ones (None, an empty list).
 */
#include "py/compat/heap.h"
#include "py/recorder/rec.h"

enum { MOST_CARRIED = 200, MOST_HELD = 4000, MOST_MADE = 30000 };

/* Can the program be left in any frame, and is nothing in progress that a loop would have to repeat? */
static bool
may_have_loop(rec *r)
{
    for (const rec_frame *f = r->top; f != NULL; f = f->back)
        if (f->consumer != NULL || f->gen != NULL || f->from_c)
            return false;
    return r->opt->kernels && r->region == NULL && !r->refused && !r->stopped && r->raises.len == 0 && r->gens == NULL && r->handled == 0;
}

/* -- the head --------------------------------------------------------------------------------------------------- */

static void
hold(kin_vid *held, uint32_t *n, kin_vid vid)
{
    for (uint32_t i = 0; i < *n; i++)
        if (held[i] == vid)
            return;
    if (vid != 0 && *n < MOST_HELD)
        held[(*n)++] = vid;
}

/* Everything that the frames have at hand. */
static uint32_t
find_held(rec *r, uint32_t snap, kin_vid *held)
{
    uint32_t n = 0;
    for (; snap != 0; snap = r->t->snaps.at[snap].parent) {
        const kin_snap *s = &r->t->snaps.at[snap];
        const kin_vid more[] = {s->func, s->extra, s->exc, s->names};
        for (int i = 0; i < 4; i++)
            hold(held, &n, more[i]);
        for (uint32_t i = 0; i < (uint32_t)s->nlocals + s->nstack; i++)
            hold(held, &n, r->t->vids.at[s->vals + i]);
    }
    return n;
}

/* Does some instruction from the head to where it jumps back assign the local variable? */
static bool
is_assigned(const rec_frame *f, int slot, uint32_t end)
{
    for (uint32_t i = 0; i < f->kc->ninstr; i++) {
        const kin_instr *in = &f->kc->instrs[i];
        for (uint32_t k = 0; in->offset >= f->offset && in->offset < end && k < in->ndoes; k++) {
            kin_action a = in->does[k];
            if ((a.op == KIN_DO_STORE_LOCAL || a.op == KIN_DO_DELETE_LOCAL || a.op == KIN_DO_TAKE_LOCAL) && (int)a.arg == slot)
                return true;
        }
    }
    return false;
}

/* What the rounds assign becomes a value that nothing is known of. */
static void
carry_locals(rec *r, rec_frame *f)
{
    PyObject *const *real = kin_watch_localsplus(f->f);
    for (int i = 0; i < f->nlocals; i++) {
        kin_vid before = f->slots[i];
        if (before == 0 || !is_assigned(f, i, f->jumped_from))
            continue;
        f->slots[i] = rec_step_out(r, KIN_STEP_CARRY, 0, &before, 1);
        rec_set_obj(r, f->slots[i], real[i]);
        r->info.at[f->slots[i]].varies = true;
    }
}

static void
open_loop(rec *r, rec_frame *f)
{
    kin_vid *held = malloc(MOST_HELD * sizeof *held);
    uint32_t n = held != NULL ? find_held(r, rec_snapshot(r), held) : 0;
    if (n > 0 && n < MOST_HELD) {
        f->loop.head = rec_step(r, KIN_STEP_LOOP, KIN_STEP_OPAQUE, held, n);
        rec_forget_contents(r);
        carry_locals(r, f);
        f->snap = 0; /* the state has other values now */
        uint32_t state = rec_snapshot(r);
        r->t->steps.at[f->loop.head].num = state;
        f->steps0 = r->t->steps.len; /* the instruction may be taken back, the loop stays */
    }
    free(held);
}

/* -- the end of a round ------------------------------------------------------------------------------------------ */

static uint32_t
count_carried(const kin_trace *t, uint32_t head)
{
    uint32_t n = 0;
    while (head + n + 1 < t->steps.len && t->steps.at[head + n + 1].kind == KIN_STEP_CARRY)
        n++;
    return n;
}

/* The values for the next round, in the order of the CARRY steps. False: the instruction is another one, or something else is not as it was at the head. */
static bool
find_next(rec *r, const rec_frame *f, uint32_t head, uint32_t ncarried, kin_vid *next)
{
    const kin_snap *s = &r->t->snaps.at[r->t->steps.at[head].num];
    uint32_t n = 0;
    if (s->code != f->code_ref || s->offset != f->exit_offset || s->func != f->func || s->parent != f->parent_snap || s->exc != f->exc ||
        s->names != f->names || s->nstack != f->sp || s->nlocals != f->nlocals)
        return false;
    for (int i = 0; i < f->nlocals + f->sp; i++) {
        kin_vid at_head = r->t->vids.at[s->vals + (uint32_t)i];
        bool carried = i < f->nlocals && n < ncarried && at_head != 0 && at_head == r->t->steps.at[head + 1 + n].out;
        if (carried ? f->slots[i] == 0 : f->slots[i] != at_head)
            return false;
        if (carried)
            next[n++] = f->slots[i];
    }
    return n == ncarried;
}

/* Ends the recording here if that is the end of a round of the loop. */
static bool
close_loop(rec *r, rec_frame *f, uint32_t head)
{
    kin_vid next[MOST_CARRIED];
    uint32_t ncarried = count_carried(r->t, head);
    if (ncarried > MOST_CARRIED || r->t->vals.len > MOST_MADE || !find_next(r, f, head, ncarried, next))
        return false;
    uint32_t back = rec_step(r, KIN_STEP_LOOP_BACK, 0, next, ncarried);
    r->t->steps.at[back].num = head;
    rec_end_here(r);
    return true;
}

/* The loops that a side trace may begin in, innermost last. */
static void
find_heads(rec *r)
{
    kin_path path = {0};
    r->heads_found = true;
    kin_status status = r->join != 0 ? kin_trace_path(r->t, r->join, &path) : KIN_OK;
    for (uint32_t k = 0; k < path.len; k++)
        for (uint32_t i = path.at[k].first; status == KIN_OK && i <= path.at[k].last; i++)
            if (r->t->steps.at[i].kind == KIN_STEP_LOOP)
                status = kin_vec_push(&r->heads, i);
    kin_vec_deinit(&path);
    if (status != KIN_OK)
        r->status = status;
}

/* A side trace that begins in a round of a loop, as the other way of an `if`, ends where the round does. */
static bool
close_loop_before(rec *r, rec_frame *f)
{
    if (!r->heads_found)
        find_heads(r);
    for (uint32_t i = r->heads.len; i-- > 0;)
        if (close_loop(r, f, r->heads.at[i]))
            return true;
    return false;
}

bool
rec_is_in_loop(const rec *r)
{
    bool loop = false;
    for (const rec_frame *f = r->top; f != NULL && !loop; f = f->back)
        loop = f->loop.head != 0;
    return loop;
}

static bool
holds_only_tensors(PyObject *sequence)
{
    Py_ssize_t n = PySequence_Fast_GET_SIZE(sequence);
    for (Py_ssize_t i = 0; i < n; i++)
        if (!kin_is_tensor(PySequence_Fast_GET_ITEM(sequence, i)))
            return false;
    return n > 0;
}

/* Is the number of results an argument of the call that gave them, as of x.chunk(2)? Then no size decides it. */
static bool
was_asked_for(rec *r, kin_vid vid, Py_ssize_t n)
{
    const kin_val *val = &r->t->vals.at[vid];
    const kin_step *s = val->kind == KIN_VAL_STEP ? &r->t->steps.at[val->step] : NULL;
    for (uint32_t a = 1; s != NULL && a < s->nargs; a++) {
        kin_vid arg = r->t->vids.at[s->args + a];
        if (rec_is_const(r, arg) && PyLong_CheckExact(O(r, arg)) && PyLong_AsSsize_t(O(r, arg)) == n)
            return true;
    }
    PyErr_Clear();
    return false;
}

bool
rec_has_open_rows(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    if (!may_have_loop(r) || VIRTUAL(r, vid) != NULL || obj == NULL)
        return false;
    bool sequence = (PyList_CheckExact(obj) || PyTuple_CheckExact(obj)) && !rec_is_const(r, vid);
    if (sequence && rec_is_dynamic(r, vid) && holds_only_tensors(obj))
        return true;
    if (rec_is_graph_tuple(r, vid))
        return r->info.at[vid].sized && rec_length_has_differed(r, PyTuple_GET_SIZE(obj)) && !was_asked_for(r, vid, PyTuple_GET_SIZE(obj));
    return kin_is_plain_strided(obj) && kin_tensor_dim(obj) > 0 && rec_dynamic_dims(r, vid) & 1 && !r->info.at[vid].unbacked &&
           rec_length_has_differed(r, kin_tensor_sizes(obj)[0]);
}

/* May there be another number of items in other calls? Of a range only a number that has differed says so: where all sizes of a tensor are open because one differed,
 * most loops have the same number of rounds each time.
 */
static bool
has_open_end(rec *r, kin_vid vid, int depth)
{
    const kin_val *val = &r->t->vals.at[vid];
    if (val->note != 0) /* a tensor: known rows would have been taken apart, as other results of torch calls (rec_has_open_rows) */
        return true;
    if (val->kind != KIN_VAL_STEP || depth > 4)
        return val->kind == KIN_VAL_SRC && rec_is_dynamic(r, vid);
    const kin_step *s = &r->t->steps.at[val->step];
    if (s->flags & KIN_STEP_TORCH)
        return true;
    if (s->kind != KIN_STEP_ITER && s->kind != KIN_STEP_CALL)
        return rec_is_dynamic(r, vid);
    uint32_t args = s->args, n = s->nargs;
    bool call = s->kind == KIN_STEP_CALL, range = call && O(r, r->t->vids.at[args]) == (PyObject *)&PyRange_Type, open = false;
    for (uint32_t i = call; i < n && !open; i++) {
        kin_vid of = r->t->vids.at[args + i];
        open = of != 0 && (range ? rec_number_has_differed(r, of) : has_open_end(r, of, depth + 1));
    }
    return open;
}

/* Is there another item? Iterators of others, which might run code of the program, are not asked; some of the interpreter's own cannot tell. */
static bool
has_more(PyObject *it)
{
    bool more = !kin_heap_iterator_is_plain(it) || PyObject_LengthHint(it, 1) != 0;
    PyErr_Clear(); /* more items than a Py_ssize_t counts */
    return more;
}

/* Of a while loop: has tensor data, or a number that has differed, decided something in the round? That may be whether there is one more. */
static bool
was_open_decision(rec *r, const rec_frame *f)
{
    const kin_trace *t = r->t;
    for (uint32_t i = t->steps.len; i-- > r->first_step;) {
        const kin_step *s = &t->steps.at[i];
        const kin_snap *snap = &t->snaps.at[s->snap];
        if (s->kind == KIN_STEP_LOOP || (s->snap != 0 && snap->code == f->code_ref && snap->parent == f->parent_snap && snap->offset < f->offset))
            return false; /* before the loop */
        if (s->kind == KIN_STEP_CHECK && s->flags & KIN_STEP_BREAK)
            return true;
        const kin_val *val = s->kind == KIN_STEP_CHECK && (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE || s->imm == KIN_CHECK_IS) ? &t->vals.at[t->vids.at[s->args]] : NULL;
        const kin_step *asks = val != NULL && val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
        if (asks != NULL && asks->kind == KIN_STEP_COMPARE)
            for (uint32_t k = 0, args = asks->args; k < 2; k++)
                if (rec_number_has_differed(r, r->t->vids.at[args + k]))
                    return true;
    }
    return false;
}

static bool
may_turn(rec *r, const rec_frame *f, kin_vid it)
{
    if (it != 0 && VIRTUAL(r, it) != NULL)
        return false;
    if (f->loop.head != 0 && f->loop.offset == f->offset)
        return true;
    return it != 0 ? has_open_end(r, it, 0) && has_more(O(r, it)) : was_open_decision(r, f);
}

bool
rec_loop_turns(rec *r)
{
    rec_frame *f = r->top;
    kin_vid it = kin_instr_main(f->in).op == KIN_DO_NEXT ? rec_peek(r, 0) : 0;
    if (!may_have_loop(r) || close_loop_before(r, f))
        return r->stopped;
    if (!may_turn(r, f, it))
        return false;
    if (f->loop.offset != f->offset || f->loop.it != it)
        f->loop = (rec_loop){.offset = f->offset, .it = it};
    if (++f->loop.turns == 1)
        open_loop(r, f);
    bool round = f->loop.turns == 2 && f->loop.head != 0 && f->loop.head < r->t->steps.len && r->t->steps.at[f->loop.head].kind == KIN_STEP_LOOP;
    return round && close_loop(r, f, f->loop.head);
}
