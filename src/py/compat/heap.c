/* Raw views of CPython's heap (3.11 to 3.14, default builds). See heap.h.
 *
 * The table walk follows the layout documented in pycore_dict.h. The public lookups cannot be used: they may call a
 * user's __eq__ and set an exception, and the fast guard array needs the address of an entry.
 */
#define Py_BUILD_CORE 1
#include "py/compat/heap.h"

#include "py/compat/kinds.h"
#include "internal/pycore_dict.h"
#include "internal/pycore_object.h"
#if PY_VERSION_HEX >= 0x030D0000
#include "internal/pycore_setobject.h"
#endif
#include <stddef.h>
#include <string.h>

/* ---- keys ---------------------------------------------------------------------------------------------------- */

/* How keys are compared. Those of different kinds are never equal, and below none of them lies code of a user. */
typedef enum {
    KEY_UNKNOWN,
    KEY_IDENTITY, /* object's own comparison: classes, functions, members of enums, torch.dtypes; None and Ellipsis too */
    KEY_TEXT,
    KEY_BYTES,
    KEY_NUMBER, /* of different types perhaps: 1 == True == 1.0 */
    KEY_FUNCTION, /* in C: there may be several objects for the same code and object */
    KEY_DEVICE, /* torch's: there is a new one whenever one is asked for */
    KEY_TUPLE, /* torch.Size and named tuples too */
    KEY_SET
} key_kind;

/* Does equality of this type mean identity? */
static bool
is_identity_type(PyTypeObject *type)
{
    return type->tp_richcompare == PyBaseObject_Type.tp_richcompare && type->tp_hash == PyBaseObject_Type.tp_hash;
}

static key_kind
kind_of_key(PyTypeObject *type)
{
    if (type == &PyUnicode_Type)
        return KEY_TEXT;
    if (type == &PyLong_Type || type == &PyFloat_Type || type == &PyBool_Type || type == &PyComplex_Type)
        return KEY_NUMBER;
    if (type == &PyBytes_Type)
        return KEY_BYTES;
    if (is_identity_type(type) || type == Py_TYPE(Py_None) || type == Py_TYPE(Py_Ellipsis) || kin_is_enum_class(type))
        return KEY_IDENTITY;
    bool as_tuple = type->tp_hash == PyTuple_Type.tp_hash && type->tp_richcompare == PyTuple_Type.tp_richcompare;
    if (as_tuple || kin_heap_type_is(type, "torch.Size")) /* on CPython 3.14 torch.Size has a hash and comparisons of its own, which are those of tuples */
        return KEY_TUPLE;
    if (type == &PyFrozenSet_Type)
        return KEY_SET;
    if (type == &PyCFunction_Type)
        return KEY_FUNCTION;
    if (kin_is_mixed_enum_class(type))
        return type->tp_flags & Py_TPFLAGS_UNICODE_SUBCLASS ? KEY_TEXT : type->tp_flags & Py_TPFLAGS_LONG_SUBCLASS ? KEY_NUMBER : KEY_UNKNOWN;
    return kin_heap_type_is(type, "torch.device") ? KEY_DEVICE : KEY_UNKNOWN;
}

/* As tuple.__hash__ mixes the hashes of the items; it would run Enum.__hash__ for some of them. */
static bool
hash_tuple(PyObject *tuple, Py_hash_t *hash)
{
    const Py_uhash_t prime1 = 11400714785074694791ULL, prime2 = 14029467366897019727ULL, prime5 = 2870177450012600261ULL;
    Py_uhash_t all = prime5;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        Py_hash_t item;
        if (!kin_heap_key_hash(PyTuple_GET_ITEM(tuple, i), &item))
            return false;
        all += (Py_uhash_t)item * prime2;
        all = (all << 31 | all >> 33) * prime1;
    }
    all += (Py_uhash_t)PyTuple_GET_SIZE(tuple) ^ (prime5 ^ 3527539ULL);
    *hash = all == (Py_uhash_t)-1 ? 1546275796 : (Py_hash_t)all;
    return true;
}

bool
kin_heap_key_hash(PyObject *key, Py_hash_t *hash)
{
    _Static_assert(sizeof(Py_uhash_t) == 8, "tuples are hashed with words of 64 bits");
    PyTypeObject *type = Py_TYPE(key);
    key_kind kind = kind_of_key(type);
    if (kind == KEY_UNKNOWN)
        return false;
    if (kind == KEY_TUPLE)
        return hash_tuple(key, hash);
    if (kin_is_enum_class(type))
        return kin_enum_hash(key, hash);
    *hash = type->tp_hash(key); /* a set's is made of those that it keeps of its items */
    return true;
}

static bool
str_equal(PyObject *a, PyObject *b)
{
    if (PyUnicode_GET_LENGTH(a) != PyUnicode_GET_LENGTH(b) || PyUnicode_KIND(a) != PyUnicode_KIND(b))
        return false;
    return memcmp(PyUnicode_DATA(a), PyUnicode_DATA(b), (size_t)PyUnicode_GET_LENGTH(a) * PyUnicode_KIND(a)) == 0;
}

static bool
bytes_equal(PyObject *a, PyObject *b)
{
    return PyBytes_GET_SIZE(a) == PyBytes_GET_SIZE(b) &&
           memcmp(PyBytes_AS_STRING(a), PyBytes_AS_STRING(b), (size_t)PyBytes_GET_SIZE(a)) == 0;
}

static bool
compare_in_c(PyObject *a, PyObject *b)
{
    PyObject *res = Py_TYPE(a)->tp_richcompare(a, b, Py_EQ); /* of builtin numbers, functions in C, devices: cannot fail */
    bool equal = res == Py_True;
    Py_XDECREF(res);
    return equal;
}

static kin_find compare_keys(PyObject *mine, PyObject *theirs);

/* As tuples do it: item by item up to the first difference. */
static kin_find
compare_tuples(PyObject *mine, PyObject *theirs)
{
    Py_ssize_t n = PyTuple_GET_SIZE(mine), m = PyTuple_GET_SIZE(theirs);
    for (Py_ssize_t i = 0; i < n && i < m; i++) {
        kin_find found = compare_keys(PyTuple_GET_ITEM(mine, i), PyTuple_GET_ITEM(theirs, i));
        if (found != KIN_FIND_HIT)
            return found;
    }
    return n == m ? KIN_FIND_HIT : KIN_FIND_ABSENT;
}

/* Looks for one item in the table order, from `*pos` on and around: equal sets mostly have their items in the same order. */
static kin_find
find_in_set(PyObject *set, PyObject *item, Py_hash_t hash, Py_ssize_t *pos)
{
    PyObject *other;
    Py_hash_t its;
    for (Py_ssize_t i = 0, n = PySet_GET_SIZE(set); i < n; i++) {
        if (!_PySet_NextEntry(set, pos, &other, &its)) {
            *pos = 0;
            _PySet_NextEntry(set, pos, &other, &its);
        }
        kin_find found = its == hash ? compare_keys(item, other) : KIN_FIND_ABSENT;
        if (found != KIN_FIND_ABSENT)
            return found;
    }
    return KIN_FIND_ABSENT;
}

static kin_find
compare_sets(PyObject *mine, PyObject *theirs)
{
    Py_ssize_t i = 0, pos = 0;
    PyObject *item;
    Py_hash_t hash;
    if (PySet_GET_SIZE(mine) != PySet_GET_SIZE(theirs))
        return KIN_FIND_ABSENT;
    while (_PySet_NextEntry(mine, &i, &item, &hash)) {
        kin_find found = find_in_set(theirs, item, hash, &pos);
        if (found != KIN_FIND_HIT)
            return found;
    }
    return KIN_FIND_HIT;
}

/* Are two objects equal keys? */
static kin_find
compare_keys(PyObject *mine, PyObject *theirs)
{
    if (mine == theirs)
        return KIN_FIND_HIT;
    key_kind a = kind_of_key(Py_TYPE(mine)), b = kind_of_key(Py_TYPE(theirs));
    bool equal = false;
    if (a == KEY_UNKNOWN || b == KEY_UNKNOWN)
        return KIN_FIND_UNSURE;
    if (a != b || a == KEY_IDENTITY)
        return KIN_FIND_ABSENT;
    if (a == KEY_TUPLE)
        return compare_tuples(mine, theirs);
    if (a == KEY_SET)
        return compare_sets(mine, theirs);
    if (a == KEY_TEXT)
        equal = str_equal(mine, theirs);
    else if (a == KEY_BYTES)
        equal = bytes_equal(mine, theirs);
    else if (a == KEY_NUMBER) /* each slot knows the types below its own (bool, int, float, complex), so one of the two directions answers */
        equal = compare_in_c(mine, theirs) || compare_in_c(theirs, mine);
    else
        equal = compare_in_c(mine, theirs);
    return equal ? KIN_FIND_HIT : KIN_FIND_ABSENT;
}

/* ---- dict tables ---------------------------------------------------------------------------------------------- */

static Py_ssize_t
table_index(const PyDictKeysObject *keys, size_t i)
{
    if (keys->dk_log2_size < 8)
        return ((const int8_t *)keys->dk_indices)[i];
    if (keys->dk_log2_size < 16)
        return ((const int16_t *)keys->dk_indices)[i];
    if (keys->dk_log2_size < 32)
        return ((const int32_t *)keys->dk_indices)[i];
    return (Py_ssize_t)((const int64_t *)keys->dk_indices)[i];
}

static kin_find
test_entry(PyDictKeysObject *keys, Py_ssize_t ix, PyObject *key, Py_hash_t hash)
{
    if (DK_IS_UNICODE(keys)) {
        PyObject *theirs = DK_UNICODE_ENTRIES(keys)[ix].me_key;
        if (theirs == key)
            return KIN_FIND_HIT;
        return ((PyASCIIObject *)theirs)->hash == hash && str_equal(theirs, key) ? KIN_FIND_HIT : KIN_FIND_ABSENT;
    }
    PyDictKeyEntry *entry = &DK_ENTRIES(keys)[ix];
    if (entry->me_key == key)
        return KIN_FIND_HIT;
    return entry->me_hash == hash ? compare_keys(key, entry->me_key) : KIN_FIND_ABSENT;
}

/* Position of the key in the entry array; UNSURE as soon as one comparison on the way is not ours to make. */
static kin_find
find_in_keys(PyDictKeysObject *keys, PyObject *key, Py_hash_t hash, Py_ssize_t *pos)
{
    if (DK_IS_UNICODE(keys) && !PyUnicode_Check(key))
        return KIN_FIND_ABSENT; /* such a table holds exact str keys only, and nothing but texts equals those */
    size_t mask = ((size_t)1 << keys->dk_log2_size) - 1;
    size_t perturb = (size_t)hash;
    for (size_t i = (size_t)hash & mask;;) {
        Py_ssize_t ix = table_index(keys, i);
        if (ix == DKIX_EMPTY)
            return KIN_FIND_ABSENT;
        if (ix >= 0) {
            kin_find found = test_entry(keys, ix, key, hash);
            if (found != KIN_FIND_ABSENT) {
                *pos = ix;
                return found;
            }
        }
        perturb >>= 5;
        i = (i * 5 + perturb + 1) & mask;
    }
}

kin_find
kin_heap_dict_find(PyObject *dict, PyObject *key, Py_hash_t hash, kin_dict_entry *entry)
{
    PyDictObject *mp = (PyDictObject *)dict;
    PyDictKeysObject *keys = mp->ma_keys;
    Py_ssize_t ix = -1;
    kin_find found = find_in_keys(keys, key, hash, &ix);
    if (found != KIN_FIND_HIT)
        return found;
    if (DK_IS_UNICODE(keys)) {
        PyDictUnicodeEntry *at = &DK_UNICODE_ENTRIES(keys)[ix];
        entry->key_slot = &at->me_key;
        entry->value_slot = mp->ma_values ? &mp->ma_values->values[ix] : &at->me_value;
    }
    else {
        PyDictKeyEntry *at = &DK_ENTRIES(keys)[ix];
        entry->key_slot = &at->me_key;
        entry->value_slot = &at->me_value;
    }
    entry->value = *entry->value_slot;
    return entry->value ? KIN_FIND_HIT : KIN_FIND_ABSENT;
}

static kin_word
word_at(const void *addr)
{
    return (kin_word){(const uint64_t *)addr, *(const uint64_t *)addr};
}

/* ---- versions of dicts ---------------------------------------------------------------------------------------- */

#if PY_VERSION_HEX >= 0x030E0000

/* Dicts have no version any more, but a word for watchers, of which CPython uses the low 12 bits (and threads without the GIL the high
 * half). Above them stands a number that no other dict ever had, and our watcher puts the next one there before each change. A new dict
 * at an old address has a word of 0. */
enum { OWN_BITS = 12 };

static uint64_t *
version_word(PyDictObject *dict)
{
    return &dict->_ma_watcher_tag;
}

static void
renumber(PyDictObject *dict)
{
    static uint64_t last;
    uint64_t own = ((uint64_t)1 << OWN_BITS) - 1;
    *version_word(dict) = (*version_word(dict) & own) | ++last << OWN_BITS;
}

static int
note_change(PyDict_WatchEvent event, PyObject *dict, PyObject *key, PyObject *value)
{
    (void)event, (void)key, (void)value;
    renumber((PyDictObject *)dict);
    return 0;
}

static bool
is_numbered(PyDictObject *dict)
{
    static int watcher = -1; /* the interpreter has few of them: -2, none was left */
    if (watcher == -1) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        watcher = PyDict_AddWatcher(note_change);
        watcher = watcher < 0 ? -2 : watcher;
        PyErr_Restore(type, value, traceback);
    }
    if (watcher < 0 || PyDict_Watch(watcher, (PyObject *)dict) < 0)
        return false;
    if (*version_word(dict) >> OWN_BITS == 0)
        renumber(dict);
    return true;
}

#else

static uint64_t *
version_word(PyDictObject *dict)
{
    return &dict->ma_version_tag;
}

static bool
is_numbered(PyDictObject *dict)
{
    return true;
}

#endif

#if PY_VERSION_HEX >= 0x030D0000

/* A dict over the values inside its object: does it see stores that go to the object? Releases of one minor version differ, so it is tried. */
static bool
try_store_to_object(void)
{
    PyObject *cls = PyObject_CallFunction((PyObject *)&PyType_Type, "s(){}", "probe"), *obj = cls != NULL ? PyObject_CallNoArgs(cls) : NULL;
    PyObject *dict = obj != NULL && PyObject_SetAttrString(obj, "a", Py_None) == 0 ? PyObject_GenericGetDict(obj, NULL) : NULL;
    bool seen = false;
    if (dict != NULL && is_numbered((PyDictObject *)dict)) {
        uint64_t before = *version_word((PyDictObject *)dict);
        seen = PyObject_SetAttrString(obj, "a", Py_True) == 0 && *version_word((PyDictObject *)dict) != before;
    }
    Py_XDECREF(dict);
    Py_XDECREF(obj);
    Py_XDECREF(cls);
    return seen;
}

static bool
sees_object(const PyDictObject *dict)
{
    static int known = -1;
    if (dict->ma_values == NULL || !dict->ma_values->embedded)
        return true;
    if (known < 0) {
        PyObject *type, *value, *traceback;
        PyErr_Fetch(&type, &value, &traceback);
        known = try_store_to_object();
        PyErr_Restore(type, value, traceback);
    }
    return known;
}

#else

static bool
sees_object(const PyDictObject *dict)
{
    return true;
}

#endif

const uint64_t *
kin_heap_dict_version(PyObject *dict)
{
    PyDictObject *mp = (PyDictObject *)dict;
    return sees_object(mp) && is_numbered(mp) ? version_word(mp) : NULL;
}

int
kin_heap_dict_entry_words(PyObject *dict, const kin_dict_entry *entry, kin_word *out)
{
    PyDictObject *mp = (PyDictObject *)dict;
    out[0] = word_at(&mp->ma_keys);
    out[1] = word_at(&mp->ma_values);
    /* A table freed and made again at the same address may be smaller: nothing behind its end may be read. */
    out[2] = word_at(&mp->ma_keys->dk_nentries);
    out[3] = word_at(entry->key_slot);
    return 4;
}

bool
kin_heap_set_next(PyObject *set, Py_ssize_t *pos, PyObject **item)
{
    Py_hash_t hash;
    return _PySet_NextEntry(set, pos, item, &hash) != 0;
}

/* ---- OrderedDict ---------------------------------------------------------------------------------------------- */

/* As odictobject.c declares it, which no header does (layout_check.c compares). */
typedef struct ordered_node {
    PyObject *key;
    Py_hash_t hash;
    struct ordered_node *next, *prev;
} ordered_node;

typedef struct {
    PyDictObject dict;
    ordered_node *first, *last, **fast;
    Py_ssize_t nfast;
    void *sentinel;
    size_t state;
} ordered_dict;

bool
kin_heap_ordered_next(PyObject *ordered, const void **node, PyObject **key)
{
    const ordered_node *next = *node == NULL ? ((ordered_dict *)ordered)->first : ((const ordered_node *)*node)->next;
    *node = next;
    *key = next != NULL ? next->key : NULL;
    return next != NULL;
}

const uint64_t *
kin_heap_ordered_state(PyObject *ordered)
{
    return (const uint64_t *)&((ordered_dict *)ordered)->state;
}

/* ---- instances ------------------------------------------------------------------------------------------------ */

static PyDictKeysObject *
shared_keys(PyObject *obj)
{
    return ((PyHeapTypeObject *)Py_TYPE(obj))->ht_cached_keys;
}

#if PY_VERSION_HEX < 0x030C0000

static PyObject **
inline_values(PyObject *obj)
{
    if (!(Py_TYPE(obj)->tp_flags & Py_TPFLAGS_MANAGED_DICT))
        return NULL;
    PyDictValues *values = *_PyObject_ValuesPointer(obj);
    return values ? values->values : NULL;
}

static PyObject *
managed_dict(PyObject *obj)
{
    return *_PyObject_ManagedDictPointer(obj);
}

static int
managed_words(PyObject *obj, kin_word *out)
{
    out[0] = word_at(_PyObject_ValuesPointer(obj));
    out[1] = word_at(_PyObject_ManagedDictPointer(obj));
    return 2;
}

#elif PY_VERSION_HEX < 0x030D0000

static PyObject **
inline_values(PyObject *obj)
{
    if (!(Py_TYPE(obj)->tp_flags & Py_TPFLAGS_MANAGED_DICT))
        return NULL;
    PyDictOrValues both = *_PyObject_DictOrValuesPointer(obj);
    return _PyDictOrValues_IsValues(both) ? _PyDictOrValues_GetValues(both)->values : NULL;
}

static PyObject *
managed_dict(PyObject *obj)
{
    PyDictOrValues both = *_PyObject_DictOrValuesPointer(obj);
    return _PyDictOrValues_IsValues(both) ? NULL : _PyDictOrValues_GetDict(both);
}

static int
managed_words(PyObject *obj, kin_word *out)
{
    out[0] = word_at(_PyObject_DictOrValuesPointer(obj));
    return 1;
}

#else

static PyObject *
managed_dict(PyObject *obj)
{
    return (PyObject *)_PyObject_GetManagedDict(obj);
}

/* Values inside the object count only while there is no dict: with one, the dict answers (it may sit over them). */
static PyObject **
inline_values(PyObject *obj)
{
    if (!(Py_TYPE(obj)->tp_flags & Py_TPFLAGS_INLINE_VALUES) || managed_dict(obj))
        return NULL;
    PyDictValues *values = _PyObject_InlineValues(obj);
    return values->valid ? values->values : NULL;
}

static int
managed_words(PyObject *obj, kin_word *out)
{
    out[0] = word_at(_PyObject_ManagedDictPointer(obj));
    if (!(Py_TYPE(obj)->tp_flags & Py_TPFLAGS_INLINE_VALUES))
        return 1;
    out[1] = word_at(_PyObject_InlineValues(obj)); /* holds the valid flag */
    return 2;
}

#endif

PyObject *
kin_type_dict(PyTypeObject *type)
{
#if PY_VERSION_HEX >= 0x030C0000
    if (type->tp_dict == NULL) {
        PyObject *dict = PyType_GetDict(type);
        Py_XDECREF(dict); /* the interpreter's reference stays */
        return dict;
    }
#endif
    return type->tp_dict;
}

PyObject *
kin_method_once(PyObject **kept, PyTypeObject *of, const char *name)
{
    if (*kept == NULL)
        *kept = Py_XNewRef(PyDict_GetItemString(kin_type_dict(of), name));
    return *kept;
}

/* Items of an object of variable size, as its allocation counts them. */
static Py_ssize_t
items_of(PyObject *obj)
{
#if PY_VERSION_HEX >= 0x030C0000
    if (PyLong_Check(obj))
        return (Py_ssize_t)(((PyLongObject *)obj)->long_value.lv_tag >> 3);
#endif
    return Py_ABS(Py_SIZE(obj));
}

/* Address of the dict pointer of an object whose dict is not managed; NULL when instances have no dict. */
static PyObject **
plain_dict_address(PyObject *obj)
{
    PyTypeObject *type = Py_TYPE(obj);
    Py_ssize_t offset = type->tp_dictoffset;
    if (offset == 0)
        return NULL;
    if (offset < 0)
        offset += (Py_ssize_t)_PyObject_VAR_SIZE(type, items_of(obj));
    return (PyObject **)((char *)obj + offset);
}

static bool
has_managed_dict(PyObject *obj)
{
    return (Py_TYPE(obj)->tp_flags & Py_TPFLAGS_MANAGED_DICT) != 0;
}

PyObject *
kin_heap_instance_dict(PyObject *obj)
{
    if (has_managed_dict(obj))
        return managed_dict(obj);
    PyObject **addr = plain_dict_address(obj);
    return addr && *addr && PyDict_Check(*addr) ? *addr : NULL;
}

static kin_find
find_instance_attr(PyObject *obj, PyObject *name, PyObject **value)
{
    Py_hash_t hash;
    *value = NULL;
    if (!PyUnicode_CheckExact(name) || !kin_heap_key_hash(name, &hash))
        return KIN_FIND_UNSURE;
    PyObject **values = inline_values(obj);
    if (values) {
        Py_ssize_t ix = -1;
        kin_find found = find_in_keys(shared_keys(obj), name, hash, &ix);
        if (found == KIN_FIND_HIT)
            *value = values[ix];
        return *value ? KIN_FIND_HIT : found == KIN_FIND_UNSURE ? found : KIN_FIND_ABSENT;
    }
    PyObject *dict = kin_heap_instance_dict(obj);
    if (dict == NULL)
        return KIN_FIND_ABSENT;
    kin_dict_entry entry;
    kin_find found = kin_heap_dict_find(dict, name, hash, &entry);
    if (found == KIN_FIND_HIT)
        *value = entry.value;
    return found;
}

PyObject *
kin_heap_instance_attr(PyObject *obj, PyObject *name)
{
    PyObject *value;
    find_instance_attr(obj, name, &value);
    return value;
}

bool
kin_heap_instance_lacks(PyObject *obj, PyObject *name)
{
    PyObject *value;
    return find_instance_attr(obj, name, &value) == KIN_FIND_ABSENT;
}

bool
kin_heap_instance_is_bare(PyObject *obj)
{
    PyObject **values = inline_values(obj);
    if (values == NULL)
        return kin_heap_instance_dict(obj) == NULL;
    for (Py_ssize_t i = 0, n = shared_keys(obj)->dk_nentries; i < n; i++)
        if (values[i] != NULL)
            return false;
    return true;
}

bool
kin_heap_inline_room(PyObject *obj, PyObject *name)
{
    Py_hash_t hash;
    Py_ssize_t ix;
    if (inline_values(obj) == NULL || !PyUnicode_CheckExact(name) || !kin_heap_key_hash(name, &hash))
        return false;
    PyDictKeysObject *keys = shared_keys(obj);
    return keys->dk_usable > 0 || find_in_keys(keys, name, hash, &ix) == KIN_FIND_HIT;
}

int
kin_heap_instance_dict_words(PyObject *obj, kin_word *out)
{
    if (has_managed_dict(obj))
        return managed_words(obj, out);
    PyObject **addr = plain_dict_address(obj);
    if (addr == NULL)
        return 0; /* the type says that there is none */
    if (Py_TYPE(obj)->tp_dictoffset < 0)
        return -1; /* the place depends on the object's size */
    out[0] = word_at(addr);
    return 1;
}

int
kin_heap_inline_words(PyObject *obj, PyObject *name, kin_word *out)
{
    Py_hash_t hash;
    PyObject **values = inline_values(obj);
    if (values == NULL || !PyUnicode_CheckExact(name) || !kin_heap_key_hash(name, &hash))
        return -1;
    int n = managed_words(obj, out);
    PyDictKeysObject *keys = shared_keys(obj);
    Py_ssize_t ix = -1;
    if (find_in_keys(keys, name, hash, &ix) == KIN_FIND_HIT) {
        /* A shared key keeps its index for as long as the class has this table. */
        out[n++] = word_at(&((PyHeapTypeObject *)Py_TYPE(obj))->ht_cached_keys);
        out[n++] = word_at(&values[ix]);
        return n;
    }
    out[n++] = word_at(&((PyHeapTypeObject *)Py_TYPE(obj))->ht_cached_keys);
    out[n++] = word_at(&keys->dk_nentries); /* the name would be a new entry */
    return n;
}

/* ---- classes -------------------------------------------------------------------------------------------------- */

const uint64_t *
kin_heap_type_version(PyTypeObject *type)
{
    _Static_assert(offsetof(PyTypeObject, tp_version_tag) % 8 == 0, "the tag begins a word");
    return (const uint64_t *)(const void *)&type->tp_version_tag;
}

unsigned int
kin_heap_type_tag(PyTypeObject *type)
{
    static PyObject *name; /* interned for the life of the process */
    if (type->tp_version_tag == 0) {
        if (name == NULL)
            name = PyUnicode_InternFromString("__doc__");
        if (name)
            _PyType_Lookup(type, name); /* a lookup assigns the tag */
    }
    return type->tp_version_tag;
}

bool
kin_heap_type_is(const PyTypeObject *type, const char *name)
{
    return kin_heap_type_is_static(type) && strcmp(type->tp_name, name) == 0;
}

bool
kin_heap_iterator_is_plain(PyObject *obj)
{
    static const char *const plain[] = {"list_iterator", "tuple_iterator", "range_iterator", "str_iterator", "str_ascii_iterator", "dict_keyiterator", "dict_valueiterator",
        "dict_itemiterator", "set_iterator", "bytes_iterator", "list_reverseiterator", "itertools.count", "itertools.repeat", "longrange_iterator", "odict_iterator",
        "_collections._deque_iterator", "collections._deque_iterator", NULL};
    for (int i = 0; plain[i] != NULL; i++)
        if (kin_heap_type_is(Py_TYPE(obj), plain[i]))
            return true;
    return false;
}
