/* inspect.signature(f), which models call in each layer to find out how many parameters a function of theirs takes. It is a lot of Python library
 * code, with dicts made from generators and exceptions that are caught. For a plain Python function none of that is the program's own,
 * changes anything, or depends on anything but the function. So it is a single step, like a call of a C function.
 */
#include "py/models/models.h"
#include "py/objects/objects.h"

/* With one of these attributes other objects are asked, of any class. */
static bool
is_plain(rec *r, kin_vid *function)
{
    static const char *const names[] = {"__signature__", "__wrapped__", "_partialmethod", "__partialmethod__", "__text_signature__"};
    if (O(r, *function) == NULL || !PyFunction_Check(O(r, *function)) || VIRTUAL(r, *function) != NULL)
        return false;
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);
        bool there = name == NULL || kin_instance_attr(O(r, *function), name) != NULL;
        Py_XDECREF(name);
        if (there)
            return false;
    }
    rec_fix_function(r, function);
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++) {
        PyObject *name = PyUnicode_InternFromString(names[i]);
        if (name != NULL)
            rec_instance_item(r, *function, name);
        Py_XDECREF(name);
    }
    return true;
}

bool
rec_call_signature(rec *r, const rec_args *a)
{
    static rec_library own;
    if (a->npos != 1 || a->nkw != 0 || !rec_library_is_named(&own, "inspect", "signature", O(r, a->callee)))
        return false;
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    kin_vid function = f != NULL && f->kind == VIRTUAL_METHOD ? f->items[0] : a->args[0];
    if (!is_plain(r, &function))
        return false;
    rec_args call = *a;
    rec_fix_function(r, &call.callee);
    r->keep_inside = true; /* it keeps nothing of it */
    rec_call_step(r, &call, 0, -1);
    r->keep_inside = false;
    r->skip_expected = true; /* the library's frames */
    return true;
}
