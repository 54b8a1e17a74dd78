/* Records and compares the contents of classes (class_same.h).
 *
 * Each class of an MRO has a record of its own dict: names, and the values under them. Values are compared by address, so a record must
 * not confuse a new object at an old address with the old one: it holds weak references where possible, keeps builtin immutables alive, and
 * looks inside descriptors that have no weak references. Contents get a number that no other contents ever get; a
 * class with its bases is the list of these numbers along its MRO. A class that holds a value of any other kind has no number.
 */
#include "py/guardeval/class_same.h"

#include "core/base/vec.h"
#include "py/aten/tensor.h"
#include "py/compat/heap.h"
#include "py/compat/kinds.h"
#include "py/guardeval/guard.h"

enum { PARTS = 3, KEPT_STAMPS = 64 };

typedef enum { HELD, WEAK, TAKEN_APART, C_DESCRIPTOR, BY_ADDRESS } how_known;

typedef struct {
    PyObject *key, *value; /* key: kept alive */
    PyObject *keeps[PARTS]; /* HELD: the value; WEAK: a reference to it; TAKEN_APART: references to its parts, or NULL */
    PyObject *parts[PARTS];
    uint8_t how;           /* how_known */
} note;

/* A tag that something relies upon, and the contents along the MRO at that time. */
typedef struct {
    uint32_t tag, n;
    uint64_t *contents;
    const PyTypeObject *meta; /* its metaclass, which may be assigned, and the tag of that */
    uint32_t meta_tag;
} stamp;

typedef struct {
    PyTypeObject *type;
    PyObject *alive; /* weak reference to it */
    KIN_VEC(note) notes;
    uint64_t contents; /* 0: not known */
    KIN_VEC(stamp) stamps;
} record;

static KIN_VEC(record *) records; /* sorted by address */
static uint64_t last_contents;

/* -- values ------------------------------------------------------------------------------------------------------ */

static bool
is_c_descriptor(PyObject *value)
{
    PyTypeObject *t = Py_TYPE(value);
    return t == &PyMethodDescr_Type || t == &PyGetSetDescr_Type || t == &PyMemberDescr_Type || t == &PyWrapperDescr_Type ||
           t == &PyClassMethodDescr_Type;
}

/* What such a descriptor wraps: the word after the common ones. */
static void *
wrapped_by(PyObject *descriptor)
{
    return (void *)((PyGetSetDescrObject *)descriptor)->d_getset;
}

/* New references to the parts of a property, a staticmethod or a classmethod; false: it is none. */
static bool
take_apart(PyObject *value, PyObject **parts)
{
    static PyObject *names[5];
    static const char *const texts[] = {"fget", "fset", "fdel", "__func__"};
    for (int i = 0; i < 4; i++)
        if (names[i] == NULL && (names[i] = PyUnicode_InternFromString(texts[i])) == NULL)
            PyErr_Clear();
    bool property = Py_IS_TYPE(value, &PyProperty_Type);
    if (!property && !Py_IS_TYPE(value, &PyStaticMethod_Type) && !Py_IS_TYPE(value, &PyClassMethod_Type))
        return false;
    for (int i = 0; i < (property ? 3 : 1); i++) {
        PyObject *name = names[property ? i : 3];
        parts[i] = name == NULL ? NULL : PyObject_GetAttr(value, name);
        if (parts[i] == NULL)
            PyErr_Clear();
    }
    return parts[0] != NULL;
}

static bool
is_weakly_known(PyObject *value)
{
    PyTypeObject *t = Py_TYPE(value);
    bool plain = t == &PyFunction_Type || PyType_Check(value) || PyCFunction_CheckExact(value) || PyModule_Check(value);
    /* weak references to tensors can be seen by the program */
    return plain || (PyType_SUPPORTS_WEAKREFS(t) && (t->tp_flags & Py_TPFLAGS_HEAPTYPE) && !kin_is_tensor(value));
}

static PyObject *
weak_reference(PyObject *value)
{
    PyObject *weak = is_weakly_known(value) ? PyWeakref_NewRef(value, NULL) : NULL;
    if (weak == NULL)
        PyErr_Clear();
    return weak;
}

/* A part, or an element of a tuple. */
static bool
note_part(note *n, int i, PyObject *part)
{
    n->parts[i] = part;
    n->keeps[i] = kin_is_exact_immutable(part) ? Py_NewRef(part) : weak_reference(part);
    return n->keeps[i] != NULL;
}

static bool
note_parts(note *n, PyObject *value)
{
    PyObject *parts[PARTS] = {NULL};
    bool ok = take_apart(value, parts);
    n->how = TAKEN_APART;
    for (int i = 0; i < PARTS; i++) {
        ok = ok && (parts[i] == NULL || note_part(n, i, parts[i]));
        Py_XDECREF(parts[i]); /* the descriptor has it */
    }
    return ok;
}

/* Lists and dicts are read when they are used, so only which one it is counts; the same for what an ABC keeps. */
static bool
is_known_by_address(PyObject *value)
{
    return PyList_CheckExact(value) || PyDict_CheckExact(value) || strcmp(Py_TYPE(value)->tp_name, "_abc._abc_data") == 0;
}

/* False: it cannot be distinguished from another one later. */
static bool
note_value(note *n, PyObject *value)
{
    n->value = value;
    if (kin_is_exact_immutable(value)) {
        n->how = HELD;
        n->keeps[0] = Py_NewRef(value);
        return true;
    }
    if (is_c_descriptor(value)) {
        n->how = C_DESCRIPTOR;
        n->parts[0] = (PyObject *)Py_TYPE(value);
        n->parts[1] = (PyObject *)((PyDescrObject *)value)->d_type;
        n->parts[2] = wrapped_by(value);
        return true;
    }
    if (Py_IS_TYPE(value, &PyProperty_Type) || Py_IS_TYPE(value, &PyStaticMethod_Type) || Py_IS_TYPE(value, &PyClassMethod_Type))
        return note_parts(n, value);
    n->how = is_known_by_address(value) ? BY_ADDRESS : WEAK;
    return n->how == BY_ADDRESS || (n->keeps[0] = weak_reference(value)) != NULL;
}

static bool
is_same_part(const note *n, int i, PyObject *part)
{
    if (part != n->parts[i])
        return false;
    return part == NULL || n->keeps[i] == part || (n->keeps[i] != NULL && kin_weakref_object(n->keeps[i]) == part);
}

static bool
has_same_parts(const note *n, PyObject *value)
{
    PyObject *parts[PARTS] = {NULL};
    bool same = take_apart(value, parts);
    for (int i = 0; i < PARTS; i++) {
        same = same && is_same_part(n, i, parts[i]);
        Py_XDECREF(parts[i]);
    }
    return same;
}

static bool
is_same_value(const note *n, PyObject *value)
{
    if (value != n->value)
        return false;
    switch ((how_known)n->how) {
    case HELD:
        return true;
    case WEAK:
        return kin_weakref_object(n->keeps[0]) == value;
    case TAKEN_APART:
        return has_same_parts(n, value);
    case C_DESCRIPTOR:
        return is_c_descriptor(value) && (PyObject *)Py_TYPE(value) == n->parts[0] &&
               (PyObject *)((PyDescrObject *)value)->d_type == n->parts[1] && wrapped_by(value) == (void *)n->parts[2];
    case BY_ADDRESS:
        return is_known_by_address(value);
    }
    return false;
}

/* -- the contents of one class ------------------------------------------------------------------------------------ */

static bool
is_same_dict(const record *r)
{
    Py_ssize_t pos = 0;
    uint32_t i = 0;
    PyObject *key, *value;
    if (r->contents == 0 || kin_type_dict(r->type) == NULL)
        return false;
    for (; PyDict_Next(kin_type_dict(r->type), &pos, &key, &value); i++)
        if (i >= r->notes.len || r->notes.at[i].key != key || !is_same_value(&r->notes.at[i], value))
            return false;
    return i == r->notes.len;
}

static void
drop_notes(record *r)
{
    for (uint32_t i = 0; i < r->notes.len; i++) {
        note *n = &r->notes.at[i];
        Py_DECREF(n->key);
        for (int k = 0; k < PARTS; k++)
            Py_CLEAR(n->keeps[k]);
    }
    kin_vec_deinit(&r->notes);
    r->contents = 0;
}

static bool
push_note(record *r, PyObject *key, PyObject *value)
{
    note n = {.key = Py_NewRef(key)};
    bool ok = note_value(&n, value);
    if (kin_vec_push(&r->notes, n) == KIN_OK)
        return ok;
    Py_DECREF(key);
    for (int k = 0; k < PARTS; k++)
        Py_XDECREF(n.keeps[k]);
    return false;
}

/* The dict is copied first: making references may start a collection, which may run code that changes the class. */
static void
note_dict(record *r)
{
    Py_ssize_t pos = 0;
    PyObject *key, *value, *copy = kin_type_dict(r->type) == NULL ? NULL : PyDict_Copy(kin_type_dict(r->type));
    bool ok = copy != NULL;
    drop_notes(r);
    while (ok && PyDict_Next(copy, &pos, &key, &value))
        ok = push_note(r, key, value);
    Py_XDECREF(copy);
    PyErr_Clear();
    if (!ok) {
        drop_notes(r);
        return;
    }
    r->contents = ++last_contents;
    if (!is_same_dict(r))
        r->contents = 0;
}

/* -- records ------------------------------------------------------------------------------------------------------ */

/* Where the record is, or would be. */
static uint32_t
find_place(const PyTypeObject *type)
{
    uint32_t lo = 0, hi = records.len;
    while (lo < hi) {
        uint32_t mid = lo + (hi - lo) / 2;
        if ((uintptr_t)records.at[mid]->type < (uintptr_t)type)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

/* NULL: none, or of a class that is gone. */
static record *
find_record(const PyTypeObject *type)
{
    uint32_t i = find_place(type);
    record *r = i < records.len ? records.at[i] : NULL;
    return r != NULL && r->type == type && kin_weakref_object(r->alive) == (PyObject *)type ? r : NULL;
}

static void
free_record(record *r)
{
    drop_notes(r);
    for (uint32_t i = 0; i < r->stamps.len; i++)
        free(r->stamps.at[i].contents);
    kin_vec_deinit(&r->stamps);
    Py_XDECREF(r->alive);
    free(r);
}

/* The record of a class that is gone goes when another class comes to its place, or when there are twice as many. */
static void
sweep(void)
{
    static uint32_t next = 64;
    uint32_t kept = 0;
    if (records.len < next)
        return;
    KIN_VEC(record *) gone = {0};
    for (uint32_t i = 0; i < records.len; i++) {
        record *r = records.at[i];
        if (kin_weakref_object(r->alive) != Py_None || kin_vec_push(&gone, r) != KIN_OK)
            records.at[kept++] = r;
    }
    records.len = kept;
    next = 2 * kept + 64;
    for (uint32_t i = 0; i < gone.len; i++)
        free_record(gone.at[i]);
    kin_vec_deinit(&gone);
}

static record *
add_record(PyTypeObject *type)
{
    sweep();
    record *r = calloc(1, sizeof *r);
    PyObject *alive = r == NULL ? NULL : PyWeakref_NewRef((PyObject *)type, NULL);
    if (alive == NULL || kin_vec_reserve(&records, 1) != KIN_OK) {
        PyErr_Clear();
        Py_XDECREF(alive);
        free(r);
        return NULL;
    }
    *r = (record){.type = type, .alive = alive};
    uint32_t i = find_place(type);
    if (i < records.len && records.at[i]->type == type) {
        record *old = records.at[i];
        records.at[i] = r;
        free_record(old);
        return r;
    }
    memmove(records.at + i + 1, records.at + i, (records.len - i) * sizeof *records.at);
    records.at[i] = r;
    records.len++;
    return r;
}

/* -- a class with its bases ----------------------------------------------------------------------------------------- */

/* Static classes stay as they are. 0: it is not known. */
static uint64_t
contents_of(const PyTypeObject *type)
{
    if (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE)
        return UINT64_MAX;
    const record *r = find_record(type);
    return r != NULL && is_same_dict(r) ? r->contents : 0;
}

static bool
fits_stamp(const PyTypeObject *type, const stamp *s)
{
    PyObject *mro = type->tp_mro;
    if (mro == NULL || !PyTuple_CheckExact(mro) || PyTuple_GET_SIZE(mro) != (Py_ssize_t)s->n || Py_TYPE(type) != s->meta ||
        s->meta->tp_version_tag != s->meta_tag)
        return false;
    for (uint32_t i = 0; i < s->n; i++) {
        const PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        uint64_t known = s->contents[i];
        if (known == 0 || contents_of(base) != known)
            return false;
    }
    return true;
}

bool
kin_class_is_same(PyTypeObject *type, uint32_t tag)
{
    const record *r = find_record(type);
    for (uint32_t i = r == NULL ? 0 : r->stamps.len; i-- > 0;)
        if (r->stamps.at[i].tag == tag)
            return fits_stamp(type, &r->stamps.at[i]);
    return false;
}

static void
push_stamp(record *r, uint32_t tag, uint64_t *contents, uint32_t n)
{
    stamp s = {tag, n, contents, Py_TYPE(r->type), kin_heap_type_tag(Py_TYPE(r->type))};
    if (r->stamps.len == KEPT_STAMPS) {
        free(r->stamps.at[0].contents);
        memmove(r->stamps.at, r->stamps.at + 1, (KEPT_STAMPS - 1) * sizeof s);
        r->stamps.len--;
    }
    if (kin_vec_push(&r->stamps, s) != KIN_OK)
        free(contents);
}

void
kin_class_note(PyTypeObject *type)
{
    uint32_t tag = kin_heap_type_tag(type);
    record *r = find_record(type);
    PyObject *mro = type->tp_mro;
    for (uint32_t i = 0; r != NULL && i < r->stamps.len; i++)
        if (r->stamps.at[i].tag == tag)
            return;
    if (tag == 0 || mro == NULL || !PyTuple_CheckExact(mro))
        return;
    uint32_t n = (uint32_t)PyTuple_GET_SIZE(mro);
    uint64_t *contents = calloc(n + 1, sizeof *contents);
    Py_INCREF(mro);
    for (uint32_t i = 0; contents != NULL && i < n; i++) {
        PyTypeObject *base = (PyTypeObject *)PyTuple_GET_ITEM(mro, i);
        if (!(base->tp_flags & Py_TPFLAGS_IMMUTABLETYPE) && contents_of(base) == 0 &&
            ((r = find_record(base)) != NULL || (r = add_record(base)) != NULL))
            note_dict(r);
        contents[i] = contents_of(base);
    }
    Py_DECREF(mro);
    r = find_record(type);
    if (contents == NULL || r == NULL || type->tp_version_tag != tag)
        free(contents);
    else
        push_stamp(r, tag, contents, n);
}
