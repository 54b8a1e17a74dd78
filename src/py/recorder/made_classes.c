/* Classes that the recording itself has made (models/namedtuple.c). What they are like follows from how they were made, so no facts are needed about them, as long
 * as nobody changes them: where that may happen, the recording ends. Their value stands where a constant would, and each call has a class of its own.
 */
#include "py/recorder/callables.h"
#include "py/recorder/rec.h"

kin_vid
rec_made_class(rec *r, PyObject *obj)
{
    for (uint32_t i = 0; i < r->made_classes.len; i++)
        if (obj != NULL && O(r, r->made_classes.at[i]) == obj)
            return r->made_classes.at[i];
    return 0;
}

static bool
leads_to_made_class(rec *r, kin_vid vid, int depth)
{
    const rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    if (vid == 0 || depth > 4)
        return vid != 0;
    if (r->info.at[vid].as_const == vid || (f != NULL && f->kind == VIRTUAL_NAMED && rec_made_class(r, (PyObject *)r->info.at[vid].type) != 0))
        return true;
    for (uint32_t i = 0; f != NULL && i < f->n; i++)
        if (leads_to_made_class(r, f->items[i], depth + 1))
            return true;
    return false;
}

bool
rec_may_change_made_class(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n)
{
    bool sets = kind == KIN_STEP_SETATTR || kind == KIN_STEP_DELATTR, calls = kind == KIN_STEP_CALL || kind == KIN_STEP_CALL_EX;
    uint32_t does = calls && O(r, args[0]) != NULL ? rec_callable_effects(O(r, args[0])) : 0; /* repr(), tuple.count: they ask tuple's own code */
    bool opaque = calls && (does == 0 || does & KIN_STORES) && flags & KIN_STEP_OPAQUE;
    for (uint32_t i = 0; opaque && i < r->made_classes.len; i++) {
        const rec_virtual *f = VIRTUAL(r, r->made_classes.at[i]);
        if (f == NULL || f->escaped)
            return true;
    }
    for (uint32_t i = 0; opaque && i < n; i++)
        if (leads_to_made_class(r, args[i], 0))
            return true;
    return sets && r->info.at[args[0]].as_const == args[0];
}
