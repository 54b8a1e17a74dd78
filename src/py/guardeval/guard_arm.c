/* Builds a fast array: 8-byte words of the heap whose present contents imply that an epoch's facts hold.
 *
 * A value is *pinned* if the words before it prove that it is the object seen while building:
 *   SAME  the very same object: it is reached through a dict or class whose version word matches (so it has been
 *         held there all the time), or it is a constant. Immutable contents need no further test.
 *   ADDR  the word that holds the pointer is unchanged. Another object may have taken that address, so
 *         everything assumed about it must again be words of the object (or explicit operations).
 * Roots are the arguments, and in later epochs what older slots hold: owned, so alive, and compared by address.
 * A pinned value's words come after the words that pin it, so no word is read before its memory is known to exist.
 * Before a field of a type is read, the type word is compared, unless only that layout can be in this place.
 * What is not worth a word, or changes all the time, stays an explicit operation on the live value.
 */
#include "py/guardeval/guard_arm.h"

#include <stddef.h>

#include "core/base/hash.h"

enum { LISTED = 128 }; /* in traits: is among the known values */

static void
find_traits(kin_arm *a)
{
    const kin_trace *t = &a->v->trace;
    const kin_guard_epoch *s = &a->p->epochs[a->epoch];
    for (uint32_t i = 0; i < s->ops.len; i++) {
        const kin_guard_op *op = &s->ops.at[i];
        if (op->kind != KIN_GOP_FACT) {
            a->traits[t->vals.at[op->vid].parent] |= KIN_TRAIT_PARENT;
            continue;
        }
        kin_fact_kind kind = (kin_fact_kind)t->facts.at[op->fact].kind;
        if (kind == KIN_FACT_TYPE || kind == KIN_FACT_TYPE_VERSION)
            a->traits[op->vid] |= KIN_TRAIT_TYPED;
        if (kind != KIN_FACT_T_META && kind != KIN_FACT_T_DATA && kind != KIN_FACT_SAME && kind != KIN_FACT_NOT_SAME)
            a->traits[op->vid] |= KIN_TRAIT_FIRM;
    }
}

bool
kin_arm_init(kin_arm *a, kin_entry *v, uint32_t epoch, PyObject *const *slots, kin_guard_fast *f)
{
    *a = (kin_arm){.v = v, .p = v->guards, .f = f, .epoch = epoch, .slots = slots, .ok = true};
    a->pin = calloc(a->p->nvals + 1, 1);
    a->traits = calloc(a->p->nvals + 1, 1);
    if (a->traits != NULL)
        find_traits(a);
    return a->pin != NULL && a->traits != NULL;
}

void
kin_arm_deinit(kin_arm *a)
{
    free(a->pin);
    free(a->traits);
    kin_table_deinit(&a->seen);
}

/* ---- words ---------------------------------------------------------------------------------------------------- */

const kin_word *
kin_arm_find(const kin_arm *a, const void *addr)
{
    uint32_t n, at = 0;
    while ((n = kin_table_next(&a->seen, kin_hash_pointer(addr), &at)) != KIN_TABLE_NONE)
        if (a->f->words.at[n].addr == addr)
            return &a->f->words.at[n];
    return NULL;
}

void
kin_arm_word(kin_arm *a, const void *addr, kin_vid vid, uint32_t site)
{
    kin_guard_fast *f = a->f;
    if (!a->ok || kin_arm_find(a, addr) != NULL) /* compared already, earlier in the array */
        return;
    kin_word word = {addr, *(const uint64_t *)addr};
    a->ok = kin_table_add(&a->seen, kin_hash_pointer(addr), f->words.len) == KIN_OK && kin_vec_push(&f->words, word) == KIN_OK &&
            kin_vec_push(&f->sites, (uint32_t)(vid * KIN_SITE__COUNT + site)) == KIN_OK;
}

void
kin_arm_words(kin_arm *a, const kin_word *words, int n, kin_vid vid, uint32_t site)
{
    for (int i = 0; i < n; i++)
        kin_arm_word(a, words[i].addr, vid, site);
}

bool
kin_arm_dropped(const kin_arm *a, kin_vid vid, uint32_t site)
{
    return (a->p->drops[vid] >> site & 1) != 0;
}

/* ---- types ---------------------------------------------------------------------------------------------------- */

static bool
is_dict_place(kin_access access)
{
    return access == KIN_ACCESS_GLOBALS || access == KIN_ACCESS_INSTDICT;
}

/* `__class__` can be assigned where both classes are heap types, and on modules. */
bool
kin_arm_type_is_fixed(const kin_arm *a, kin_vid vid, PyObject *obj)
{
    return a->pin[vid] == KIN_PIN_SAME && kin_heap_type_is_static(Py_TYPE(obj)) && !PyModule_Check(obj);
}

bool
kin_arm_type(kin_arm *a, kin_vid vid, PyObject *obj)
{
    bool fixed = kin_heap_type_is_static(Py_TYPE(obj));
    if (!fixed && !(a->traits[vid] & KIN_TRAIT_TYPED))
        return false; /* a class nobody keeps alive: another one may take its address */
    if (kin_arm_type_is_fixed(a, vid, obj))
        return true;
    if (fixed && PyDict_Check(obj) && is_dict_place((kin_access)a->v->trace.vals.at[vid].access))
        return true;
    kin_arm_word(a, &obj->ob_type, vid, KIN_SITE_FACT);
    return true;
}

bool
kin_arm_class(kin_arm *a, kin_vid vid, PyObject *cls)
{
    /* All classes have the same head, but only a class has it: the metaclass must be one that stays. */
    if (!PyType_Check(cls) || kin_arm_dropped(a, vid, KIN_SITE_FACT) || (a->pin[vid] != KIN_PIN_SAME && Py_TYPE(cls) != &PyType_Type))
        return false;
    if (kin_heap_type_tag((PyTypeObject *)cls) == 0)
        return false;
    if (a->pin[vid] != KIN_PIN_SAME)
        kin_arm_word(a, &cls->ob_type, vid, KIN_SITE_FACT);
    kin_arm_word(a, kin_heap_type_version((PyTypeObject *)cls), vid, KIN_SITE_FACT);
    return true;
}

bool
kin_arm_dict(kin_arm *a, PyObject *dict, kin_vid vid, uint32_t site)
{
    const uint64_t *version = kin_heap_dict_version(dict);
    if (version == NULL || kin_arm_dropped(a, vid, site))
        return false;
    kin_arm_word(a, version, vid, site);
    return true;
}

/* The instance dict pointer. A materialised dict does not turn into inline values again: its own word is enough. */
bool
kin_arm_instance_dict(kin_arm *a, kin_vid vid, PyObject *obj)
{
    kin_word words[2];
    int n = kin_heap_instance_dict_words(obj, words);
    if (n < 0 || kin_arm_dropped(a, vid, KIN_SITE_FACT) || !kin_arm_type(a, vid, obj))
        return false;
    uint64_t dict = (uint64_t)(uintptr_t)kin_heap_instance_dict(obj);
    for (int i = 0; i < n; i++)
        if (dict == 0 || words[i].word == dict)
            kin_arm_word(a, words[i].addr, vid, KIN_SITE_FACT);
    return true;
}

/* ---- values --------------------------------------------------------------------------------------------------- */

/* Is a word of its own for the value's place better than loading the value on each call? */
static bool
should_pin(const kin_arm *a, kin_vid vid)
{
    return (a->traits[vid] & (KIN_TRAIT_PARENT | KIN_TRAIT_FIRM)) != 0 && !kin_arm_dropped(a, vid, KIN_SITE_LOC);
}

static uint8_t
pin_field(kin_arm *a, kin_vid vid, PyObject *parent, Py_ssize_t offset)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    if (offset == 0 || !should_pin(a, vid) || !kin_arm_type(a, val->parent, parent))
        return KIN_PIN_NO;
    kin_arm_word(a, (char *)parent + offset, vid, KIN_SITE_LOC);
    /* The class of a typed value is kept alive by refs, so its address is its identity. */
    if (val->access == KIN_ACCESS_TYPE && (a->traits[val->parent] & KIN_TRAIT_TYPED))
        return KIN_PIN_SAME;
    return KIN_PIN_ADDR;
}

static uint8_t
pin_tuple_item(kin_arm *a, kin_vid vid, PyObject *const *holder, PyObject *tuple)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    if (!should_pin(a, vid))
        return KIN_PIN_NO;
    if (holder)
        kin_arm_word(a, holder, vid, KIN_SITE_LOC);
    kin_arm_word(a, &((PyVarObject *)tuple)->ob_size, vid, KIN_SITE_LOC);
    kin_arm_word(a, &((PyTupleObject *)tuple)->ob_item[val->key], vid, KIN_SITE_LOC);
    return KIN_PIN_ADDR;
}

static uint8_t
pin_function_part(kin_arm *a, kin_vid vid, PyObject *parent)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    PyFunctionObject *fn = (PyFunctionObject *)parent;
    if (!PyFunction_Check(parent) || !kin_arm_type(a, val->parent, parent))
        return KIN_PIN_NO;
    if (val->access == KIN_ACCESS_DEFAULT)
        return pin_tuple_item(a, vid, &fn->func_defaults, fn->func_defaults);
    if (val->access == KIN_ACCESS_CLOSURE)
        return pin_tuple_item(a, vid, &fn->func_closure, fn->func_closure);
    if (kin_arm_dropped(a, val->parent, KIN_SITE_SHAPE))
        return KIN_PIN_NO;
    kin_arm_word(a, &fn->func_kwdefaults, val->parent, KIN_SITE_SHAPE);
    return kin_arm_dict(a, fn->func_kwdefaults, val->parent, KIN_SITE_SHAPE) ? KIN_PIN_SAME : KIN_PIN_NO;
}

/* An entry of a dict that changes too often for its version: the words of the entry itself. */
static uint8_t
pin_entry(kin_arm *a, kin_vid vid, PyObject *dict)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    PyObject *key = kin_refs_get(&a->v->refs, val->key);
    Py_hash_t hash;
    kin_dict_entry entry;
    kin_word words[4];
    if (!should_pin(a, vid) || !kin_heap_key_hash(key, &hash) ||
        kin_heap_dict_find(dict, key, hash, &entry) != KIN_FIND_HIT || *entry.key_slot != key)
        return KIN_PIN_NO; /* the key's address proves the key only if refs keeps that very key alive */
    int n = kin_heap_dict_entry_words(dict, &entry, words);
    kin_arm_words(a, words, n, vid, KIN_SITE_LOC);
    kin_arm_word(a, entry.value_slot, vid, KIN_SITE_LOC);
    return KIN_PIN_ADDR;
}

static uint8_t
pin_attr(kin_arm *a, kin_vid vid, PyObject *parent)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    PyObject *dict = kin_heap_instance_dict(parent);
    kin_word words[5];
    if (!kin_arm_type(a, val->parent, parent))
        return KIN_PIN_NO;
    if (dict == NULL) {
        int n = should_pin(a, vid)
                    ? kin_heap_inline_words(parent, kin_refs_get(&a->v->refs, val->key), words)
                    : -1;
        kin_arm_words(a, words, n, vid, KIN_SITE_LOC);
        return n < 0 ? KIN_PIN_NO : KIN_PIN_ADDR;
    }
    if (!kin_arm_instance_dict(a, val->parent, parent))
        return KIN_PIN_NO;
    return kin_arm_dict(a, dict, val->parent, KIN_SITE_IDICT) ? KIN_PIN_SAME : pin_entry(a, vid, dict);
}

static uint8_t
pin_dict_item(kin_arm *a, kin_vid vid, PyObject *dict)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    if (!PyDict_Check(dict) || !kin_arm_type(a, val->parent, dict))
        return KIN_PIN_NO;
    if (kin_arm_dict(a, dict, val->parent, KIN_SITE_SHAPE))
        return KIN_PIN_SAME;
    return val->access == KIN_ACCESS_DICT_ITEM ? pin_entry(a, vid, dict) : KIN_PIN_NO;
}

static uint8_t
pin_list_item(kin_arm *a, kin_vid vid, PyObject *list)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    if (!PyList_Check(list) || !should_pin(a, vid) || kin_arm_dropped(a, val->parent, KIN_SITE_SHAPE) ||
        !kin_arm_type(a, val->parent, list))
        return KIN_PIN_NO;
    kin_arm_word(a, &((PyListObject *)list)->ob_item, val->parent, KIN_SITE_SHAPE);
    kin_arm_word(a, &((PyVarObject *)list)->ob_size, val->parent, KIN_SITE_SHAPE);
    kin_arm_word(a, &((PyListObject *)list)->ob_item[val->key], vid, KIN_SITE_LOC);
    return KIN_PIN_ADDR;
}

static uint8_t
pin_value(kin_arm *a, kin_vid vid, PyObject *parent)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    switch ((kin_access)val->access) {
    case KIN_ACCESS_DEFAULT: case KIN_ACCESS_CLOSURE: case KIN_ACCESS_KWDEFAULT:
        return pin_function_part(a, vid, parent);
    case KIN_ACCESS_INSTDICT:
        return should_pin(a, vid) && kin_arm_instance_dict(a, val->parent, parent) ? KIN_PIN_ADDR : KIN_PIN_NO;
    case KIN_ACCESS_IATTR:
        return pin_attr(a, vid, parent);
    case KIN_ACCESS_TYPEATTR:
        return kin_arm_class(a, val->parent, parent) ? KIN_PIN_SAME : KIN_PIN_NO;
    case KIN_ACCESS_DICT_ITEM: case KIN_ACCESS_DICT_KEY:
        return pin_dict_item(a, vid, parent);
    case KIN_ACCESS_LIST_ITEM:
        return pin_list_item(a, vid, parent);
    case KIN_ACCESS_TUPLE_ITEM:
        if (!PyTuple_Check(parent) || !kin_arm_type(a, val->parent, parent))
            return KIN_PIN_NO;
        return a->pin[val->parent] == KIN_PIN_SAME ? KIN_PIN_SAME : pin_tuple_item(a, vid, NULL, parent);
    case KIN_ACCESS_LOCAL: case KIN_ACCESS_FUNC: case KIN_ACCESS__COUNT:
        return KIN_PIN_NO;
    default:
        return pin_field(a, vid, parent, kin_guard_field(val, parent));
    }
}

static bool
pin_root(kin_arm *a, kin_vid vid, PyObject *obj)
{
    if (obj == NULL || !(a->traits[vid] & KIN_TRAIT_PARENT) || kin_arm_dropped(a, vid, KIN_SITE_LOC))
        return false;
    kin_guard_root root = {vid, obj};
    a->pin[vid] = KIN_PIN_ADDR;
    a->ok = a->ok && kin_vec_push(&a->f->roots, root) == KIN_OK;
    return true;
}

/* The parent as pinned so far; constants are pinned from the beginning, older values when first asked for.
 * NULL = not pinned. */
static PyObject *
pinned_value(kin_arm *a, kin_vid vid)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    if (val->kind == KIN_VAL_CONST) {
        a->pin[vid] = KIN_PIN_SAME;
        return kin_refs_get(&a->v->refs, val->key);
    }
    if (val->kind == KIN_VAL_SRC && val->epoch == a->epoch)
        return a->pin[vid] == KIN_PIN_NO ? NULL : a->p->cur[vid];
    if (vid == 0 || (a->pin[vid] == KIN_PIN_NO && !pin_root(a, vid, a->slots[vid])))
        return NULL;
    return a->slots[vid];
}

/* ---- all operations ------------------------------------------------------------------------------------------- */

static bool
express_op(kin_arm *a, const kin_guard_op *op)
{
    const kin_val *val = &a->v->trace.vals.at[op->vid];
    PyObject *obj;
    switch ((kin_guard_op_kind)op->kind) {
    case KIN_GOP_ROOT:
        return pin_root(a, op->vid, a->p->cur[op->vid]);
    case KIN_GOP_LOAD:
        obj = pinned_value(a, val->parent);
        a->pin[op->vid] = obj ? pin_value(a, op->vid, obj) : (uint8_t)KIN_PIN_NO;
        return a->pin[op->vid] != KIN_PIN_NO;
    case KIN_GOP_FACT:
        obj = pinned_value(a, op->vid);
        return obj && kin_arm_fact(a, &a->v->trace.facts.at[op->fact], obj);
    }
    return false;
}

/* The epoch's own value is an operand of an operation that runs: has to be known there if words prove it. */
static void
list_operand(kin_arm *a, kin_vid vid)
{
    const kin_val *val = &a->v->trace.vals.at[vid];
    if (val->kind != KIN_VAL_SRC || val->epoch != a->epoch || a->pin[vid] == KIN_PIN_NO || (a->traits[vid] & LISTED))
        return;
    a->traits[vid] |= LISTED;
    kin_guard_root known = {vid, a->p->cur[vid]};
    a->ok = a->ok && kin_vec_push(&a->f->known, known) == KIN_OK;
}

static void
list_values(kin_arm *a)
{
    const kin_guard_epoch *s = &a->p->epochs[a->epoch];
    for (uint32_t i = 0; i < a->f->ops.len && a->ok; i++) {
        const kin_guard_op *op = &a->f->ops.at[i];
        if (op->kind == KIN_GOP_LOAD)
            list_operand(a, a->v->trace.vals.at[op->vid].parent);
        if (op->kind == KIN_GOP_FACT) {
            list_operand(a, a->v->trace.facts.at[op->fact].vid);
            list_operand(a, a->v->trace.facts.at[op->fact].vid2);
        }
    }
    for (uint32_t i = 0; i < s->keep.len && a->ok; i++) {
        kin_vid vid = s->keep.at[i];
        kin_guard_root kept = {vid, a->p->cur[vid]};
        a->ok = (a->pin[vid] == KIN_PIN_NO ? kin_vec_push(&a->f->loaded, vid) : kin_vec_push(&a->f->kept, kept)) == KIN_OK;
    }
}

bool
kin_arm_run(kin_arm *a)
{
    const kin_guard_epoch *s = &a->p->epochs[a->epoch];
    for (uint32_t i = 0; i < s->ops.len && a->ok; i++)
        if (!express_op(a, &s->ops.at[i]) && a->ok)
            a->ok = kin_vec_push(&a->f->ops, s->ops.at[i]) == KIN_OK;
    list_values(a);
    return a->ok;
}
