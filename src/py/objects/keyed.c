/* table[key] where the key is told from others by its address: a tensor, a module, an object of a plain class.
 *
 * This is how optimizers find the state of a parameter (a defaultdict) and caches what belongs to a module. Which entry it
 * is shows when the step runs. No code of the program does: a tensor's __hash__ is torch's own and gives the address, and
 * what a defaultdict makes of a missing key is made by a builtin class.
 */
#include "py/recorder/rec.h"
#include <string.h>

static bool
is_defaultdict(PyTypeObject *tp)
{
    return strcmp(tp->tp_name, "collections.defaultdict") == 0 && tp->tp_base == &PyDict_Type;
}

static bool
is_quiet_factory(const PyObject *factory)
{
    const void *const known[] = {Py_None, &PyDict_Type, &PyList_Type, &PySet_Type, &PyLong_Type, &PyFloat_Type, &PyTuple_Type,
                                 &PyUnicode_Type, &PyBool_Type, &PyODict_Type};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++)
        if (factory == known[i])
            return true;
    return false;
}

/* A defaultdict's factory is a builtin class, now and in later calls. */
static bool
needs_factory(rec *r, kin_vid table)
{
    PyObject *factory = PyObject_GetAttrString(O(r, table), "default_factory"); /* a member of a C class */
    bool quiet = factory != NULL && is_quiet_factory(factory);
    Py_XDECREF(factory);
    PyErr_Clear();
    if (!quiet || FRESH(r, table) != NULL)
        return false;
    attr_result at = {0};
    rec_attr_generic(r, table, REC_STR("default_factory"), &at);
    return !r->stopped && at.kind == ATTR_VALUE && rec_need_const(r, at.value) != 0;
}

bool
rec_keyed_item(rec *r, const kin_vid *args)
{
    PyTypeObject *tp = Py_TYPE(O(r, args[0]));
    PyObject *key = O(r, args[1]);
    bool makes = is_defaultdict(tp);
    if ((tp != &PyDict_Type && tp != &PyODict_Type && !makes) || kin_is_exact_immutable(key) || PyTuple_Check(key) ||
        !kin_exact_is_quiet(key, false) || (makes && !needs_factory(r, args[0])))
        return false;
    if (FRESH(r, args[0]) == NULL)
        rec_need_type(r, args[0]);
    if (FRESH(r, args[1]) == NULL)
        rec_need_type(r, args[1]);
    (void)rec_need_quiet(r, args[1], false); /* the class may be given a __hash__ */
    r->keep_inside = true;
    kin_vid out = rec_step_out(r, KIN_STEP_SUBSCR, 0, args, 2);
    r->keep_inside = false;
    if (makes)
        rec_end_segment(r); /* the table may have one entry more */
    r->skip_expected = true; /* a tensor's hash is Python code */
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}
