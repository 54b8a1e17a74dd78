/* str(), repr() and formatting of an exception: its class leaves them to BaseException, so they are made of its arguments, and of nothing that a region keeps
 * from the program (its traceback, its context). */
#include "py/compat/heap.h"
#include "py/objects/objects.h"

/* KeyError's own str() is the repr of its argument. */
static bool
has_plain_words(const PyTypeObject *tp, bool repr)
{
    const PyTypeObject *base = (PyTypeObject *)PyExc_BaseException;
    bool text = tp->tp_str == base->tp_str || tp->tp_str == ((PyTypeObject *)PyExc_KeyError)->tp_str;
    return repr ? tp->tp_repr == base->tp_repr && kin_heap_type_is_static(tp) : text;
}

bool
rec_words_run_no_code(rec *r, kin_vid exc, bool repr)
{
    PyObject *obj = O(r, exc);
    if (obj == NULL || !PyExceptionInstance_Check(obj) || !has_plain_words(Py_TYPE(obj), repr))
        return false;
    PyObject *args = ((PyBaseExceptionObject *)obj)->args;
    if (args == NULL || !kin_exact_runs_no_code(args, true))
        return false;
    rec_need_version(r, exc);
    r->reads_words = true;
    kin_vid own = rec_step_out(r, KIN_STEP_GETATTR, 0, &exc, 1);
    r->reads_words = false;
    kin_ref name = rec_ref(r, REC_STR("args"));
    r->t->steps.at[r->t->vals.at[own].step].ref = name;
    rec_set_obj(r, own, args);
    return rec_need_no_code(r, own, true);
}
