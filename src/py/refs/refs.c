/* The table of referenced objects: a number for each, found again by identity. Objects are only removed together with the whole table. */
#include "py/refs/refs.h"

#include "core/base/hash.h"

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
    kin_table_deinit(&r->index);
    memset(r, 0, sizeof *r);
    for (uint32_t i = 1; i < len; i++)
        Py_DECREF(objs[i]);
    free(objs);
}

kin_ref
kin_refs_find(const kin_refs *r, const PyObject *obj)
{
    uint32_t n, at = 0;
    while ((n = kin_table_next(&r->index, kin_hash_pointer(obj), &at)) != KIN_TABLE_NONE)
        if (r->objs.at[n] == obj)
            return n;
    return 0;
}

kin_status
kin_refs_reserve(kin_refs *r, uint32_t more)
{
    KIN_TRY(kin_vec_reserve(&r->objs, more));
    return kin_table_reserve(&r->index, more);
}

kin_status
kin_refs_add(kin_refs *r, PyObject *obj, kin_ref *out)
{
    *out = obj != NULL ? kin_refs_find(r, obj) : 0;
    if (obj == NULL || *out != 0)
        return KIN_OK;
    KIN_TRY(kin_vec_reserve(&r->objs, 1));
    KIN_TRY(kin_table_add(&r->index, kin_hash_pointer(obj), r->objs.len));
    *out = r->objs.len;
    return kin_vec_push(&r->objs, Py_NewRef(obj));
}

int
kin_refs_traverse(kin_refs *r, visitproc visit, void *arg)
{
    for (uint32_t i = 1; i < r->objs.len; i++)
        Py_VISIT(r->objs.at[i]);
    return 0;
}
