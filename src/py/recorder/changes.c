/* Are older objects, after all that the recording has stored to them, as they were before it?
 *
 * Only stores that change one word of the heap are followed (overlay.c). Where each of those words held a builtin immutable before the first store and
 * holds it again after the last one, no older object can have died meanwhile, so the same address is the same object. Nothing but immutables is held; for a custom backend also the objects that
 * are stored to and the tensors that are replaced.
 *
 * A custom backend's graphs are used from the call on that is recorded: the call is made once more, with them (lower in py/module/call_miss.c). Where it
 * has written to older objects, what was there before is put back first. The data of tensors is copied before each torch call that may write to it, and
 * what a list, dict, set or deque holds before a method changes it in another way (python/kintsugi/_written.py). What tells somebody something is not done again.
 * Recordings for our own kernels save nothing.
 */
#include <stdlib.h>

#include "py/aten/tensor.h"
#include "py/compat/imports.h"
#include "py/recorder/callables.h"
#include "py/recorder/rec.h"

static rec_change *
find(rec *r, const rec_place *p)
{
    for (uint32_t i = 0; i < r->changes.len; i++) {
        rec_change *c = &r->changes.at[i];
        if (!c->whole && c->base == O(r, p->base) && c->kind == p->kind && c->index == p->index && (c->key == p->key || (c->key != NULL && p->key != NULL && kin_exact_same_key(c->key, p->key))))
            return c;
    }
    return NULL;
}

static void
drop(rec_change *c)
{
    if (c->held != NULL)
        Py_DECREF(c->base);
    Py_CLEAR(c->held);
}

void
rec_changes_free(rec *r)
{
    for (uint32_t i = 0; i < r->changes.len; i++)
        drop(&r->changes.at[i]);
    kin_vec_deinit(&r->changes);
}

static bool
is_saved_whole(const rec *r, const PyObject *container)
{
    for (uint32_t i = 0; i < r->changes.len; i++)
        if (r->changes.at[i].whole && r->changes.at[i].base == container)
            return true;
    return false;
}

/* What is held dies later than in eager. */
static bool
dies_quietly(rec *r, PyObject *obj)
{
    return kin_says_yes(PyObject_CallMethod(r->written->tensors, "dies_quietly", "O", obj));
}

void
rec_note_change(rec *r, const rec_place *p, kin_vid value)
{
    rec_change *c = find(r, p);
    if (r->region == NULL && (p->kind == KIN_PLACE_INDEX_OF_LIST || p->kind == KIN_PLACE_END_OF_LIST)) /* the effects of such a store do not say that it fits */
        rec_written_note(r, r->t->steps.len - 1, r->written != NULL);
    if (c == NULL) {
        PyObject *base = O(r, p->base), *before = kin_place_content(base, p->key, (uint32_t)p->kind << KIN_PLACE_SHIFT | p->index);
        if (before != NULL && value != 0 && O(r, value) == before)
            return; /* nothing changes: s.table |= {...} */
        bool held = before != NULL && kin_is_exact_immutable(before) && r->t->vals.at[p->base].kind != KIN_VAL_STEP;
        rec_change first = {.base = base, .kind = p->kind, .key = p->key, .index = p->index, .before = held ? before : NULL, .covered = is_saved_whole(r, base)};
        if (held)
            rec_ref(r, before); /* as long as the recording */
        if (r->written != NULL && !first.covered && r->t->vals.at[p->base].kind != KIN_VAL_STEP && (before == NULL || held || kin_is_plain_tensor(before) || dies_quietly(r, before))) {
            Py_INCREF(base);
            first.absent = before == NULL; /* what is to be stored to has been looked at: there is a place for it */
            first.held = Py_NewRef(before == NULL ? Py_None : before);
        }
        if (kin_vec_push(&r->changes, first) != KIN_OK) {
            drop(&first);
            r->status = KIN_NOMEM;
            return;
        }
        c = &r->changes.at[r->changes.len - 1];
    }
    c->deleted = c->deleted || (value == 0 && !is_saved_whole(r, c->base));
    c->undone = c->before != NULL && value != 0 && O(r, value) == c->before;
}

bool
rec_changes_undone(const rec *r)
{
    for (uint32_t i = 0; i < r->changes.len; i++)
        if (!r->changes.at[i].undone)
            return false;
    return true;
}

/* -- what torch calls write to ----------------------------------------------------------------------------------------------- */

void
rec_written_begin(rec *r)
{
    PyObject *tensors = r->opt->custom ? kin_import_call("kintsugi._written", "Tensors", NULL) : NULL;
    r->written = tensors == NULL ? NULL : calloc(1, sizeof *r->written);
    if (r->written == NULL) {
        PyErr_Clear();
        Py_XDECREF(tensors);
        return;
    }
    r->written->tensors = tensors;
}

/* Operands as they are; of a list or tuple that the recording makes, a tuple of what is in it. One that is not known is `unknown`. */
static PyObject *
operands_of(rec *r, const kin_vid *args, uint32_t n, PyObject *unknown, int depth)
{
    PyObject *operands = PyTuple_New(n);
    for (uint32_t i = 0; operands != NULL && i < n; i++) {
        PyObject *obj = args[i] == 0 ? NULL : Py_XNewRef(O(r, args[i]));
        const rec_virtual *f = args[i] == 0 || obj != NULL ? NULL : VIRTUAL(r, args[i]);
        if (f != NULL && f->known && depth < 2 && (f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_TUPLE))
            obj = operands_of(r, f->items, f->n, unknown, depth + 1);
        PyErr_Clear();
        PyTuple_SET_ITEM(operands, i, obj != NULL ? obj : Py_NewRef(unknown));
    }
    return operands;
}

static bool
ask_of_call(rec *r, const rec_args *a, const char *question, PyObject *unknown)
{
    PyObject *callee = r->written == NULL ? NULL : O(r, a->callee), *operands = callee == NULL ? NULL : operands_of(r, a->args, a->npos + a->nkw, unknown, 0);
    PyObject *answer = operands == NULL ? NULL : PyObject_CallMethod(r->written->tensors, question, "OOO", callee, operands, a->nkw > 0 ? a->kwnames : Py_None);
    Py_XDECREF(operands);
    return kin_says_yes(answer);
}

bool
rec_written_judges_call(rec *r, const rec_args *a)
{
    return ask_of_call(r, a, "judge", Py_None);
}

bool
rec_written_judges_report(rec *r, const rec_args *a)
{
    return ask_of_call(r, a, "tells", Py_NotImplemented);
}

/* What the step changes, if that is one object. */
static PyObject *
changed_by(rec *r, kin_step_kind kind, const kin_vid *args, uint32_t n)
{
    bool call = kind == KIN_STEP_CALL;
    bool first = call ? n > 1 && O(r, args[0]) != NULL && (rec_callable_effects(O(r, args[0])) & KIN_OF_FIRST) != 0
                      : kind == KIN_STEP_SET_SUBSCR || kind == KIN_STEP_DEL_SUBSCR;
    return first ? O(r, args[call]) : NULL;
}

bool
rec_written_judges_change(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    bool plain = (flags & (KIN_STEP_EFFECT | KIN_STEP_OPAQUE | KIN_STEP_TORCH)) == KIN_STEP_EFFECT && (!(r->store_effects & KIN_FITS) || kind == KIN_STEP_DEL_SUBSCR);
    PyObject *container = r->written == NULL || r->region != NULL || !plain ? NULL : changed_by(r, kind, args, n);
    if (container == NULL || is_saved_whole(r, container))
        return container != NULL;
    PyObject *contents = PyObject_CallMethod(r->written->tensors, "contents_of", "O", container);
    rec_change change = {.base = container, .whole = true, .held = contents};
    bool saved = contents != NULL && contents != Py_None && kin_vec_push(&r->changes, change) == KIN_OK;
    if (saved)
        Py_INCREF(container);
    else
        Py_XDECREF(contents);
    PyErr_Clear();
    return saved;
}

bool
rec_written_judges_operator(rec *r, kin_step_kind kind, int imm, const kin_vid *args)
{
    bool writes = kind == KIN_STEP_SET_SUBSCR || (kind == KIN_STEP_BINARY && imm >= KIN_BINARY_INPLACE_ADD);
    if (r->written == NULL || kind == KIN_STEP_CALL)
        return false;
    PyObject *target = O(r, args[0]);
    return !writes || (target != NULL && kin_says_yes(PyObject_CallMethod(r->written->tensors, "save", "(O)", target)));
}

void
rec_written_note(rec *r, uint32_t step, bool judged)
{
    if (judged && kin_vec_push(&r->written->judged, step) != KIN_OK)
        r->status = KIN_NOMEM;
}

void
rec_written_truncate(rec *r, uint32_t len)
{
    while (r->written != NULL && r->written->judged.len > 0 && r->written->judged.at[r->written->judged.len - 1] >= len)
        r->written->judged.len--;
}

kin_written *
rec_written_end(rec *r)
{
    kin_written *written = r->written;
    for (uint32_t i = 0; written != NULL && i < r->changes.len; i++) {
        const rec_change *c = &r->changes.at[i];
        kin_written_word word = {c->base, c->key, c->kind, c->index, c->whole, c->absent ? NULL : c->held};
        if (c->covered)
            continue;
        if (c->held == NULL || c->deleted || kin_vec_push(&written->words, word) != KIN_OK)
            return NULL;
        Py_INCREF(word.base);
        Py_XINCREF(word.key);
        Py_XINCREF(word.other);
    }
    r->written = NULL;
    return written;
}

/* -- behind the recording ------------------------------------------------------------------------------------------ */

/* Stores what the word does not hold, and remembers what it held. Nothing of the program's runs: KIN_FITS was checked before the first store. */
static void
swap(const kin_written *written, kin_written_word *w)
{
    if (w->whole) {
        PyObject *held = PyObject_CallMethod(written->tensors, "exchange", "OO", w->base, w->other);
        if (held != NULL)
            Py_SETREF(w->other, held);
        PyErr_Clear();
        return;
    }
    kin_place kind = w->kind == KIN_PLACE_END_OF_LIST ? KIN_PLACE_INDEX_OF_LIST : w->kind; /* the item, if it is there */
    PyObject *now = Py_XNewRef(kin_place_content(w->base, w->key, (uint32_t)kind << KIN_PLACE_SHIFT | w->index));
    if ((now == NULL && w->other == NULL) || kin_place_set(w->base, w->key, w->kind, w->index, w->other) < 0) {
        PyErr_Clear();
        Py_XDECREF(now);
        return;
    }
    Py_XSETREF(w->other, now);
}

/* How many items the list has when its words are put back. */
static Py_ssize_t
length_before_words(const kin_written *written, PyObject *list)
{
    for (uint32_t i = 0; i < written->words.len; i++)
        if (written->words.at[i].whole && written->words.at[i].base == list)
            return PyList_GET_SIZE(written->words.at[i].other);
    return PyList_GET_SIZE(list);
}

static bool
is_added(const kin_written_word *w)
{
    return !w->whole && w->kind == KIN_PLACE_END_OF_LIST;
}

/* Are the items that the recording has added to lists the last ones of these? */
static bool
lists_end_with_added(const kin_written *written)
{
    for (uint32_t i = 0; i < written->words.len; i++) {
        const kin_written_word *w = &written->words.at[i];
        Py_ssize_t behind = 1;
        for (uint32_t k = i + 1; is_added(w) && k < written->words.len; k++)
            behind += is_added(&written->words.at[k]) && written->words.at[k].base == w->base;
        if (is_added(w) && length_before_words(written, w->base) != (Py_ssize_t)w->index + behind)
            return false;
    }
    return true;
}

static bool
move_tensors(kin_written *written, const char *how)
{
    return kin_says_yes(PyObject_CallMethod(written->tensors, how, NULL));
}

bool
kin_written_take_back(kin_written *written)
{
    if (!lists_end_with_added(written) || !move_tensors(written, "take_back"))
        return false;
    for (uint32_t i = written->words.len; i-- > 0;)
        swap(written, &written->words.at[i]);
    return true;
}

void
kin_written_redo(kin_written *written)
{
    for (uint32_t i = 0; i < written->words.len; i++)
        swap(written, &written->words.at[i]);
    move_tensors(written, "redo");
}

void
kin_written_free(kin_written *written)
{
    if (written == NULL)
        return;
    for (uint32_t i = 0; i < written->words.len; i++) {
        Py_DECREF(written->words.at[i].base);
        Py_XDECREF(written->words.at[i].key);
        Py_XDECREF(written->words.at[i].other);
    }
    kin_vec_deinit(&written->words);
    kin_vec_deinit(&written->judged);
    Py_XDECREF(written->tensors);
    free(written);
}
