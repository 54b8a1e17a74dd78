/* What was seen to change between calls, or is to be open from the first on: less is assumed of it. */
#include "py/compat/heap.h"
#include "py/guardeval/guard_source.h"
#include "py/recorder/rec.h"

/* Steals `source`. */
static bool
is_noted(rec *r, PyObject *source)
{
    int found = source == NULL ? -1 : PySet_Contains(r->opt->dynamic_sources, source);
    Py_XDECREF(source);
    if (found < 0)
        PyErr_Clear();
    return found > 0;
}

/* A number that the function is called with, under dynamic=True: it is open as sizes are. */
static bool
is_open_argument(const rec *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    return r->opt->dynamic > 0 && val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_LOCAL && O(r, vid) != NULL &&
           (PyLong_CheckExact(O(r, vid)) || PyFloat_CheckExact(O(r, vid)));
}

/* Did the value change between earlier calls? Then the guard leaves it open from now on. */
bool
rec_is_dynamic(rec *r, kin_vid vid)
{
    if (is_open_argument(r, vid))
        return true;
    if (r->opt->dynamic_sources == NULL || PySet_GET_SIZE(r->opt->dynamic_sources) == 0)
        return false;
    bool number = O(r, vid) != NULL && PyLong_CheckExact(O(r, vid)) && r->t->vals.at[vid].kind == KIN_VAL_SRC;
    return is_noted(r, kin_value_source(r->v, vid)) || (number && (rec_is_number_in_sized(r, vid) || is_noted(r, kin_alike_source(r->v, vid))));
}

/* Is a class among what differed? Attributes are looked up more often than anything else, so this is found out once. */
static bool
some_class_varies(rec *r)
{
    PyObject *source;
    Py_ssize_t pos = 0;
    if (r->classes_vary == CLASSES_NOT_ASKED) {
        r->classes_vary = NO_CLASS_VARIES;
        while (kin_heap_set_next(r->opt->dynamic_sources, &pos, &source))
            if (kin_is_class_source(source))
                r->classes_vary = A_CLASS_VARIES;
    }
    return r->classes_vary == A_CLASS_VARIES;
}

/* Did anything of the class? Then each lookup in it is a fact of its own. */
bool
rec_class_is_dynamic(rec *r, PyTypeObject *tp)
{
    if (rec_made_class(r, (PyObject *)tp) != 0 || r->opt->dynamic_sources == NULL || PySet_GET_SIZE(r->opt->dynamic_sources) == 0 || (tp->tp_flags & Py_TPFLAGS_IMMUTABLETYPE))
        return false;
    return some_class_varies(r) && is_noted(r, kin_class_source(tp));
}
