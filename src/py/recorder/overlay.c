/* What the recording itself wrote to older objects in the current epoch.
 *
 * A plain store into one word of the heap (an attribute, an item, a cell, an item appended to a list) is an effect. The facts of the epoch
 * stay valid, because they describe the time before the store. Only later reads of that word must not go by path: they get the value that
 * was stored. Whether another object's word is the same one depends on the identity of the two objects, which becomes a fact.
 * Where identity is not enough (order and length of a dict that may have grown), the epoch ends, and the next one reads the heap again.
 *
 * Which facts survive a store depends on the kind of guard, not on the current layout: an attribute is the same location whether it lies inline or
 * in a dict, and whether or not it is new; a dict counts as grown unless the epoch knows that it has the key.
 */
#include "py/compat/heap.h"
#include "py/guardeval/guard_source.h"
#include "py/recorder/rec.h"

enum { MOST_WRITES = 300 };

/* -- writing ------------------------------------------------------------------------------------------------------------ */

/* Equal as keys of a dict are: 1, True and 1.0 are one. Both are exact builtin immutables. */
static bool
same_key(PyObject *a, PyObject *b)
{
    if (a == b)
        return true;
    if (a == NULL || b == NULL || !kin_is_exact_immutable(a))
        return false;
    int same = PyObject_RichCompareBool(a, b, Py_EQ);
    if (same < 0)
        PyErr_Clear();
    return same != 0;
}

/* The place as the number of a FITS check; false: it is none that can be followed. */
static bool
number_of(const rec_place *p, PyObject *base, uint32_t *num)
{
    uint32_t index = p->kind == KIN_PLACE_END_OF_LIST ? 0 : p->index;
    *num = (uint32_t)p->kind << KIN_PLACE_SHIFT | index;
    return kin_place_takes(base, p->key, *num, 0);
}

static bool
is_instance_dict(rec *r, kin_vid vid)
{
    const kin_val *v = &r->t->vals.at[vid];
    return v->kind == KIN_VAL_SRC && v->access == KIN_ACCESS_INSTDICT;
}

static kin_vid
read_of(rec *r, kin_vid base, kin_access access, uint32_t key)
{
    const uint32_t *slot = rec_map_at(r->value_numbers, rec_epoch(r), base, (uint32_t)access, key);
    return slot == NULL ? 0 : *slot;
}

/* What this epoch read from the place before; 0: nothing. */
static kin_vid
read_before(rec *r, const rec_place *p)
{
    if (p->kind == KIN_PLACE_END_OF_LIST)
        return 0;
    static const kin_access access[] = {[KIN_PLACE_ITEM] = KIN_ACCESS_DICT_ITEM, [KIN_PLACE_ATTR] = KIN_ACCESS_IATTR,
        [KIN_PLACE_INDEX_OF_LIST] = KIN_ACCESS_LIST_ITEM, [KIN_PLACE_SLOT] = KIN_ACCESS_MEMBER, [KIN_PLACE_CELL] = KIN_ACCESS_CELL};
    uint32_t key = p->key != NULL ? rec_ref(r, p->key) : p->index;
    kin_vid dict = p->kind == KIN_PLACE_ATTR ? read_of(r, p->base, KIN_ACCESS_INSTDICT, 0) : 0;
    return dict != 0 ? read_of(r, dict, KIN_ACCESS_DICT_ITEM, key) : read_of(r, p->base, access[p->kind], key);
}

static bool
has_key(PyObject *keys, PyObject *key)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(keys); i++)
        if (kin_is_exact_immutable(PyTuple_GET_ITEM(keys, i)) && same_key(PyTuple_GET_ITEM(keys, i), key))
            return true;
    return false;
}

/* Does a fact of this epoch say that the dict has the key? */
static bool
is_key_by_fact(rec *r, kin_vid dict, PyObject *key)
{
    for (uint32_t i = r->t->facts.len; i-- > 0 && r->t->facts.at[i].epoch == r->epoch;) {
        const kin_fact *f = &r->t->facts.at[i];
        PyObject *ref = f->vid == dict && (f->kind == KIN_FACT_HAS_KEY || f->kind == KIN_FACT_DICT_KEYS) ? kin_refs_get(r->refs, f->ref) : NULL;
        if (ref != NULL && (f->kind == KIN_FACT_HAS_KEY ? same_key(ref, key) : has_key(ref, key)))
            return true;
    }
    return false;
}

/* Is the place occupied already, so that order and length of the dict stay? Its present state does not count: in another call
 * that passes the guard it may be different. */
static bool
is_known_filled(rec *r, const rec_place *p)
{
    bool keyed = p->kind == KIN_PLACE_ITEM || p->kind == KIN_PLACE_ATTR;
    for (uint32_t i = keyed ? r->writes.len : 0; i-- > 0;) {
        const rec_write *w = &r->writes.at[i];
        if (w->place.key == NULL || !same_key(w->place.key, p->key))
            continue;
        if (w->value == 0 || (w->place.base == p->base && w->place.kind == p->kind))
            return w->value != 0;
    }
    kin_vid dict = p->kind == KIN_PLACE_ATTR ? read_of(r, p->base, KIN_ACCESS_INSTDICT, 0) : p->base;
    return keyed && (read_before(r, p) != 0 || (dict != 0 && is_key_by_fact(r, dict, p->key)));
}

static bool
is_entry(rec *r, kin_vid vid)
{
    return r->t->vals.at[vid].kind != KIN_VAL_STEP || r->info.at[vid].born_epoch < rec_epoch(r);
}

static const kin_step *
step_of(const rec *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP && val->step < r->t->steps.len ? &r->t->steps.at[val->step] : NULL;
}

/* The dict that an iterator goes over, itself or through a view; 0: not known. It may be gone by now. */
static kin_vid
dict_gone_over(rec *r, kin_vid iter)
{
    const kin_step *s = step_of(r, iter);
    kin_vid over = s != NULL && s->kind == KIN_STEP_ITER ? r->t->vids.at[s->args] : 0;
    const kin_step *view = step_of(r, over);
    if (view != NULL && view->kind == KIN_STEP_CALL && view->nargs > 1 && kin_step_does(view, KIN_VIEW))
        over = r->t->vids.at[view->args + 1];
    else if (over != 0 && r->info.at[over].type != &PyDict_Type)
        over = 0;
    return over != 0 && r->t->vals.at[over].kind == KIN_VAL_SRC ? over : 0;
}

/* Does an iterator of the program's go over another dict than the one that is stored to? A fact says that it is another one. */
static bool
goes_over_another(rec *r, kin_vid iter, const rec_place *p)
{
    kin_vid dict = p->kind == KIN_PLACE_ITEM && rec_is_entry_value(r, p->base) ? dict_gone_over(r, iter) : 0;
    return dict != 0 && O(r, dict) != O(r, p->base);
}

static void
tell_apart(rec *r, const rec_place *p)
{
    for (uint32_t i = 0; p->kind == KIN_PLACE_ITEM && i < r->iters.len; i++)
        if (goes_over_another(r, r->iters.at[i], p))
            (void)rec_decide_is(r, p->base, dict_gone_over(r, r->iters.at[i]));
}

bool
rec_begin_write(rec *r, rec_place *p)
{
    uint32_t num;
    PyObject *base = O(r, p->base);
    if (r->epoch_ended || VIRTUAL(r, p->base) != NULL || p->index > KIN_PLACE_INDEX || r->writes.len >= MOST_WRITES ||
        !is_entry(r, p->base) || (p->key != NULL && (!kin_is_exact_immutable(p->key) || kin_exact_has_nan(p->key))) ||
        !number_of(p, base, &num))
        return false;
    p->filled = is_known_filled(r, p);
    tell_apart(r, p);
    rec_check(r, KIN_CHECK_FITS, p->base, p->key, num);
    static const uint32_t effects[] = {[KIN_PLACE_ATTR] = KIN_FITS, [KIN_PLACE_CELL] = KIN_FITS, [KIN_PLACE_ITEM] = KIN_FITS | KIN_INTO_DICT,
                                       [KIN_PLACE_INDEX_OF_LIST] = 0, [KIN_PLACE_SLOT] = 0, [KIN_PLACE_END_OF_LIST] = KIN_INTO_DICT};
    r->store_effects = effects[p->kind];
    if (p->key != NULL)
        rec_ref(r, p->key); /* as long as the recording */
    return true;
}

/* The object may be one that was made here in an earlier epoch and has since got around. */
static void
forget_aliases(rec *r, const rec_place *p)
{
    PyTypeObject *tp = Py_TYPE(O(r, p->base));
    for (uint32_t i = 0; r->epoch > 0 && i < r->escapees.len; i++) {
        const rec_info *info = &r->info.at[r->escapees.at[i]];
        rec_virtual *f = info->virtual;
        bool may = f != NULL && f->known && f->escaped && info->born_epoch < r->epoch;
        if (may && (p->kind == KIN_PLACE_ITEM || info->type == NULL || info->type == tp) &&
            (f->kind == VIRTUAL_DICT || f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_OBJECT || f->kind == VIRTUAL_CELL ||
             f->kind == VIRTUAL_ATTRS || f->kind == VIRTUAL_OTHER))
            f->known = false;
    }
}

/* Which kinds of containers a change of may be noticed by this iterator. The container itself may be gone. */
static unsigned
kinds_gone_over(rec *r, const rec_virtual *f)
{
    PyTypeObject *of = f->of != 0 && f->endless == ENDS ? r->info.at[f->of].type : NULL;
    if (f->of == 0 && f->over != 0)
        return f->over & REC_OVER_OTHERS ? REC_OVER_LISTS | REC_OVER_DICTS : f->over;
    return of == &PyList_Type ? REC_OVER_LISTS : of == &PyDict_Type ? REC_OVER_DICTS : of == NULL ? REC_OVER_LISTS | REC_OVER_DICTS : 0;
}

/* Iterators over dicts must not continue after a dict has grown, and iterators over lists not after an item was replaced. What was stored to is older than
 * the recording: it is no container that only the recording has. */
static void
touch_iterators(rec *r, const rec_place *p)
{
    unsigned changed = p->kind == KIN_PLACE_INDEX_OF_LIST || p->kind == KIN_PLACE_END_OF_LIST ? REC_OVER_LISTS : p->kind == KIN_PLACE_ITEM ? REC_OVER_DICTS : 0;
    for (uint32_t i = 0; i < r->iters.len; i++) {
        rec_virtual *f = VIRTUAL(r, r->iters.at[i]);
        const rec_virtual *of = f != NULL && f->of != 0 ? VIRTUAL(r, f->of) : NULL;
        bool own = VIRTUAL(r, p->base) == NULL && of != NULL && !of->escaped;
        if (f != NULL && f->kind == VIRTUAL_ITER && !own && kinds_gone_over(r, f) & changed && !goes_over_another(r, r->iters.at[i], p))
            f->known = false;
    }
}

/* A number that the recording assumes, and changes itself: the next call cannot fit. The next recording takes it as it comes,
 * with all others of this kind. */
static void
note_counter(rec *r, const rec_place *p, kin_vid value)
{
    kin_vid old = read_before(r, p);
    PyObject *was = old ? O(r, old) : NULL, *now = value ? O(r, value) : NULL;
    if (was == NULL || now == NULL || r->info.at[old].as_const == 0 || Py_TYPE(was) != Py_TYPE(now) ||
        (!PyLong_CheckExact(was) && !PyFloat_CheckExact(was)) || kin_exact_equal(was, now) || r->opt->dynamic_sources == NULL)
        return;
    PyObject *source = kin_value_source(r->v, old);
    if (source == NULL || PySet_Add(r->opt->dynamic_sources, source) < 0)
        PyErr_Clear();
    Py_XDECREF(source);
}

void
rec_end_write(rec *r, const rec_place *p, kin_vid value)
{
    note_counter(r, p, value);
    rec_note_change(r, p, value);
    rec_write w = {*p, value};
    if (kin_vec_push(&r->writes, w) != KIN_OK)
        r->status = KIN_NOMEM;
    forget_aliases(r, p);
    touch_iterators(r, p);
}

/* A change of an object that the recording created. Values read by path in this epoch existed before it, so they are other objects. */
void
rec_changed(rec *r, kin_vid virtual)
{
    if (VIRTUAL(r, virtual)->escaped && r->info.at[virtual].born_epoch < r->epoch)
        rec_end_epoch(r);
}

/* -- reading ------------------------------------------------------------------------------------------------------------ */

/* The class of the value, where this epoch knows it; NULL: it does not. */
static PyTypeObject *
known_type(rec *r, kin_vid vid)
{
    const rec_info *i = &r->info.at[vid];
    bool fixed = i->type != NULL && kin_heap_type_is_static(i->type) && i->type != &PyModule_Type;
    return fixed || i->type_epoch == r->epoch + 1 ? i->type : NULL;
}

/* Is it the object that was written to? What is found out becomes a fact. */
static bool
is_written(rec *r, const rec_write *w, kin_vid base)
{
    PyTypeObject *a = known_type(r, w->place.base), *b = known_type(r, base);
    if (a != NULL && b != NULL && a != b)
        return false;
    return rec_decide_is(r, base, w->place.base);
}

/* Is this dict, whose contents are read, the one that holds the attribute? FITS requires a dict that nothing else references, so the
 * only way to it is through its object. */
static bool
is_in_dict(rec *r, const rec_write *w, kin_vid dict)
{
    return is_instance_dict(r, dict) && is_written(r, w, r->t->vals.at[dict].parent);
}

typedef enum { READ_OTHER, READ_WRITTEN, READ_UNSURE } read_kind;

/* Under which names a read meets a write, and in which object. */
typedef enum { ANY_NAME, SAME_KEY, SAME_INDEX, THIS_OR_LATER_INDEX, KEYS_CHANGED } met_name;
typedef enum { IN_BASE, IN_DICT_OF_BASE, IN_ANYTHING } met_object;

/* The reads that a write into a kind of place may concern, and what such a read finds. All others find what was there before. */
static const struct {
    kin_place written;
    kin_access read;
    met_name name;
    met_object object;
    read_kind found;
} meetings[] = {
    {KIN_PLACE_ITEM, KIN_ACCESS_DICT_ITEM, SAME_KEY, IN_BASE, READ_WRITTEN},
    {KIN_PLACE_ITEM, KIN_ACCESS_DICT_KEY, KEYS_CHANGED, IN_BASE, READ_UNSURE},
    {KIN_PLACE_ITEM, KIN_ACCESS_IATTR, SAME_KEY, IN_ANYTHING, READ_UNSURE}, /* the dict may be that of an object */
    {KIN_PLACE_ATTR, KIN_ACCESS_IATTR, SAME_KEY, IN_BASE, READ_WRITTEN},
    {KIN_PLACE_ATTR, KIN_ACCESS_DICT_ITEM, SAME_KEY, IN_DICT_OF_BASE, READ_WRITTEN},
    {KIN_PLACE_ATTR, KIN_ACCESS_DICT_KEY, KEYS_CHANGED, IN_DICT_OF_BASE, READ_UNSURE},
    {KIN_PLACE_INDEX_OF_LIST, KIN_ACCESS_LIST_ITEM, SAME_INDEX, IN_BASE, READ_WRITTEN},
    {KIN_PLACE_END_OF_LIST, KIN_ACCESS_LIST_ITEM, THIS_OR_LATER_INDEX, IN_BASE, READ_UNSURE},
    {KIN_PLACE_SLOT, KIN_ACCESS_MEMBER, SAME_INDEX, IN_BASE, READ_WRITTEN},
    {KIN_PLACE_CELL, KIN_ACCESS_CELL, ANY_NAME, IN_BASE, READ_WRITTEN},
};

/* Has the write added a key, or removed one? */
static bool
changes_keys(const rec_write *w)
{
    return !(w->place.filled && w->value != 0);
}

static bool
meets_name(const rec_write *w, met_name name, PyObject *key, uint32_t num)
{
    switch (name) {
    case ANY_NAME:
        return true;
    case SAME_KEY:
        return same_key(w->place.key, key);
    case SAME_INDEX:
        return num == w->place.index;
    case THIS_OR_LATER_INDEX:
        return num >= w->place.index;
    case KEYS_CHANGED:
        return changes_keys(w);
    }
    return true;
}

static bool
meets_object(rec *r, const rec_write *w, met_object object, kin_vid base)
{
    return object == IN_ANYTHING || (object == IN_DICT_OF_BASE ? is_in_dict(r, w, base) : is_written(r, w, base));
}

/* Reading under `key` (or number `num`) of `base`, and one write. */
static read_kind
compare(rec *r, const rec_write *w, kin_access access, kin_vid base, PyObject *key, uint32_t num)
{
    for (size_t i = 0; i < sizeof meetings / sizeof *meetings; i++)
        if (meetings[i].written == w->place.kind && meetings[i].read == access)
            return meets_name(w, meetings[i].name, key, num) && meets_object(r, w, meetings[i].object, base) ? meetings[i].found : READ_OTHER;
    return READ_OTHER;
}

static bool
is_keyed(kin_access access)
{
    return access == KIN_ACCESS_DICT_ITEM || access == KIN_ACCESS_IATTR;
}

/* The write that the place was filled by last; NULL: none. An unsure answer ends the epoch. */
static const rec_write *
find_write(rec *r, kin_access access, kin_vid base, PyObject *key, uint32_t num)
{
    for (uint32_t i = r->writes.len; !r->epoch_ended && i-- > 0;) {
        read_kind kind = compare(r, &r->writes.at[i], access, base, key, num);
        if (kind == READ_WRITTEN)
            return &r->writes.at[i];
        if (kind == READ_UNSURE)
            rec_end_epoch(r);
    }
    return NULL;
}

kin_vid
rec_written(rec *r, kin_vid parent, kin_access access, uint32_t key, PyObject *obj)
{
    if (r->writes.len == 0 || r->epoch_ended || parent == 0)
        return 0;
    PyObject *name = is_keyed(access) ? kin_refs_get(r->refs, key) : NULL;
    const rec_write *w = find_write(r, access, parent, name, key);
    if (w == NULL)
        return 0;
    kin_vid value = w->value;
    PyObject *seen = value ? O(r, value) : NULL;
    if (seen != NULL && (seen == obj || (r->t->vals.at[value].kind == KIN_VAL_CONST && kin_exact_equal(seen, obj))))
        return value;
    rec_end_epoch(r); /* the present contents were stored unseen */
    return 0;
}

int
rec_written_key(rec *r, kin_vid dict, PyObject *key)
{
    if (r->writes.len == 0 || r->epoch_ended || !kin_is_exact_immutable(key))
        return -1;
    const rec_write *w = find_write(r, KIN_ACCESS_DICT_ITEM, dict, key, 0);
    return w == NULL ? -1 : w->value != 0;
}

/* Has the write changed the length, the order or the truth of the dict or list? */
static bool
changes_shape(rec *r, const rec_write *w, kin_vid container)
{
    switch (w->place.kind) {
    case KIN_PLACE_END_OF_LIST:
        return PyList_Check(O(r, container)) && is_written(r, w, container);
    case KIN_PLACE_ITEM:
        return PyDict_Check(O(r, container)) && changes_keys(w) && is_written(r, w, container);
    case KIN_PLACE_ATTR:
        return PyDict_Check(O(r, container)) && changes_keys(w) && is_in_dict(r, w, container);
    case KIN_PLACE_INDEX_OF_LIST: case KIN_PLACE_SLOT: case KIN_PLACE_CELL:
        break;
    }
    return false;
}

static void
check_shape(rec *r, kin_vid container)
{
    for (uint32_t i = 0; i < r->writes.len && !r->epoch_ended; i++)
        if (changes_shape(r, &r->writes.at[i], container))
            rec_end_epoch(r);
}

void
rec_fact_after_writes(rec *r, kin_fact_kind kind, kin_vid vid, PyObject *ref)
{
    const rec_write *w = NULL;
    if (r->writes.len == 0 || r->epoch_ended || vid == 0)
        return;
    switch (kind) {
    case KIN_FACT_HAS_KEY: case KIN_FACT_LACKS_KEY:
        w = find_write(r, KIN_ACCESS_DICT_ITEM, vid, ref, 0);
        break;
    case KIN_FACT_LACKS_ATTR:
        w = find_write(r, KIN_ACCESS_IATTR, vid, ref, 0);
        break;
    case KIN_FACT_CELL_EMPTY:
        w = find_write(r, KIN_ACCESS_CELL, vid, NULL, 0);
        break;
    case KIN_FACT_DICT_KEYS: case KIN_FACT_LEN: case KIN_FACT_TRUE:
        check_shape(r, vid);
        break;
    default: /* about the value itself, or what no plain store changes */
        break;
    }
    if (w != NULL)
        rec_end_epoch(r);
}
