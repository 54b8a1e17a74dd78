/* Are older objects, after all that the recording has stored to them, as they were before it?
 *
 * Only stores that change one word of the heap are followed (overlay.c). Where each of those words held a builtin immutable before the first store and
 * holds it again after the last one, no older object can have died meanwhile, so the same address is the same object. Nothing but immutables is held.
 */
#include "py/recorder/rec.h"

static rec_change *
find(rec *r, const rec_place *p)
{
    for (uint32_t i = 0; i < r->changes.len; i++) {
        rec_change *c = &r->changes.at[i];
        if (c->base == O(r, p->base) && c->kind == p->kind && c->index == p->index && (c->key == p->key || (c->key != NULL && p->key != NULL && kin_exact_same_key(c->key, p->key))))
            return c;
    }
    return NULL;
}

void
rec_note_change(rec *r, const rec_place *p, kin_vid value)
{
    rec_change *c = find(r, p);
    if (c == NULL) {
        PyObject *base = O(r, p->base), *before = kin_place_content(base, p->key, (uint32_t)p->kind << KIN_PLACE_SHIFT | p->index);
        bool held = before != NULL && kin_is_exact_immutable(before) && r->t->vals.at[p->base].kind != KIN_VAL_STEP;
        rec_change first = {.base = base, .kind = p->kind, .key = p->key, .index = p->index, .before = held ? before : NULL};
        if (held)
            rec_ref(r, before); /* as long as the recording */
        if (kin_vec_push(&r->changes, first) != KIN_OK) {
            r->status = KIN_NOMEM;
            return;
        }
        c = &r->changes.at[r->changes.len - 1];
    }
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
