/* The reference table: numbers for Python objects, found again by identity.
 *
 * The table from address to number is open-addressed and never holds a key of its own: a slot is a number, and the
 * object behind the number is the key. Nothing is ever removed before the whole table goes.
 */
#include "py/refs/refs.h"

kin_status
kin_refs_init(kin_refs *r)
{
    memset(r, 0, sizeof *r);
    return kin_vec_push(&r->objs, (PyObject *)NULL);
}

void
kin_refs_deinit(kin_refs *r)
{
    /* Dropping an object may run code that looks at this table: empty it first. */
    PyObject **objs = r->objs.at;
    uint32_t len = r->objs.len;
    free(r->index);
    memset(r, 0, sizeof *r);
    for (uint32_t i = 1; i < len; i++)
        Py_DECREF(objs[i]);
    free(objs);
}

static uint32_t
hash_address(const PyObject *obj)
{
    uint64_t bits = (uint64_t)(uintptr_t)obj >> 4;
    return (uint32_t)((bits * UINT64_C(0x9E3779B97F4A7C15)) >> 32);
}

/* The slot that holds obj's number, or the empty one where it belongs. */
static kin_ref *
find_slot(const kin_refs *r, const PyObject *obj)
{
    uint32_t mask = r->index_size - 1;
    for (uint32_t i = hash_address(obj) & mask;; i = (i + 1) & mask) {
        kin_ref *slot = &r->index[i];
        if (*slot == 0 || r->objs.at[*slot] == obj)
            return slot;
    }
}

static kin_status
grow_index(kin_refs *r)
{
    uint32_t size = r->index_size ? r->index_size * 2 : 64;
    kin_ref *grown = calloc(size, sizeof *grown);
    if (grown == NULL)
        return KIN_NOMEM;
    free(r->index);
    r->index = grown;
    r->index_size = size;
    for (uint32_t i = 1; i < r->objs.len; i++)
        *find_slot(r, r->objs.at[i]) = i;
    return KIN_OK;
}

kin_status
kin_refs_add(kin_refs *r, PyObject *obj, kin_ref *out)
{
    *out = 0;
    if (obj == NULL)
        return KIN_OK;
    if ((uint64_t)r->objs.len * 3 >= (uint64_t)r->index_size * 2)
        KIN_TRY(grow_index(r));
    kin_ref *slot = find_slot(r, obj);
    if (*slot == 0) {
        KIN_TRY(kin_vec_push(&r->objs, obj));
        Py_INCREF(obj);
        *slot = r->objs.len - 1;
    }
    *out = *slot;
    return KIN_OK;
}

kin_ref
kin_refs_find(const kin_refs *r, const PyObject *obj)
{
    return r->index_size == 0 ? 0 : *find_slot(r, obj);
}

int
kin_refs_traverse(kin_refs *r, visitproc visit, void *arg)
{
    for (uint32_t i = 1; i < r->objs.len; i++)
        Py_VISIT(r->objs.at[i]);
    return 0;
}
