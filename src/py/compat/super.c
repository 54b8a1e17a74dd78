/* The layout of a super object is private to CPython; the type's own members say where its three words are. */
#include "py/compat/super.h"

#include <structmember.h>

#include "py/compat/failure.h"

/* Byte offset of a member, 0 when there is none of this name. */
static Py_ssize_t
find_member(const char *name)
{
    for (const PyMemberDef *m = PySuper_Type.tp_members; m != NULL && m->name != NULL; m++)
        if (strcmp(m->name, name) == 0 && (m->type == T_OBJECT || m->type == T_OBJECT_EX))
            return m->offset;
    return 0;
}

PyObject *
kin_super_new(PyTypeObject *after, PyObject *self, PyTypeObject *in)
{
    static Py_ssize_t at[3];
    if (at[0] == 0) {
        at[1] = find_member("__self__");
        at[2] = find_member("__self_class__");
        at[0] = find_member("__thisclass__");
    }
    if (at[0] == 0 || at[1] == 0 || at[2] == 0) {
        kin_failure_raise("kintsugi: super objects are laid out in another way");
        return NULL;
    }
    PyObject *made = PySuper_Type.tp_alloc(&PySuper_Type, 0), *part[3] = {(PyObject *)after, self, (PyObject *)in};
    for (int i = 0; made != NULL && i < 3; i++)
        *(PyObject **)((char *)made + at[i]) = Py_NewRef(part[i]);
    return made;
}
