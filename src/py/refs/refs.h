/* Python objects by number. A kin_refs owns one strong reference for each object in it; a trace refers to objects by
 * kin_ref (index, 0 = none). Only objects whose lifetime nobody observes may be in it: code, functions, classes,
 * modules, builtin immutables, namespaces of modules. Holding anything else could delay a deallocation that the program notices.
 */
#ifndef KIN_PY_REFS_H
#define KIN_PY_REFS_H

#include "core/base/status.h"
#include "core/base/table.h"
#include "core/trace/trace.h"
#include <Python.h>

typedef struct {
    KIN_VEC(PyObject *) objs; /* [0] is NULL */
    kin_table index;          /* from address to number, so that one object gets one number */
} kin_refs;

kin_status kin_refs_init(kin_refs *r) KIN_MUST_CHECK;
void kin_refs_deinit(kin_refs *r);
/* Makes room for so many more objects. */
kin_status kin_refs_reserve(kin_refs *r, uint32_t more) KIN_MUST_CHECK;
/* Number of `obj` (found by identity, or added with a new reference). */
kin_status kin_refs_add(kin_refs *r, PyObject *obj, kin_ref *out) KIN_MUST_CHECK;
/* Number of `obj`, 0 when it is not there. */
kin_ref kin_refs_find(const kin_refs *r, const PyObject *obj);
int kin_refs_traverse(kin_refs *r, visitproc visit, void *arg);

/* Borrowed; NULL for ref 0. */
static inline PyObject *
kin_refs_get(const kin_refs *r, kin_ref ref)
{
    return r->objs.at[ref];
}

#endif
