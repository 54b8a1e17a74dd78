/* The error of fullgraph=True (fullgraph.h). */
#include "py/module/fullgraph.h"

#include "core/diag/breaks.h"

const kin_step *
kin_fullgraph_find(const kin_trace *t, uint32_t refused)
{
    if (refused != 0 && refused < t->steps.len && t->steps.at[refused].flags & KIN_STEP_BREAK)
        return &t->steps.at[refused];
    for (uint32_t i = 0; i < t->steps.len; i++)
        if (t->steps.at[i].flags & KIN_STEP_BREAK)
            return &t->steps.at[i];
    return NULL;
}

/* The inlined frames at a snapshot, outermost first: new list of tuples. */
static PyObject *
make_stack(const kin_entry *v, uint32_t snap)
{
    PyObject *stack = PyList_New(0);
    for (uint32_t s = snap; stack != NULL && s != 0 && s < v->trace.snaps.len; s = v->trace.snaps.at[s].parent) {
        const kin_snap *at = &v->trace.snaps.at[s];
        PyObject *object = kin_refs_get(&v->refs, at->code);
        if (object == NULL || !PyCode_Check(object))
            break;
        PyCodeObject *code = (PyCodeObject *)object;
        PyObject *place = Py_BuildValue("(OiO)", code->co_filename, PyCode_Addr2Line(code, (int)at->offset),
                                        code->co_name);
        if (place == NULL || PyList_Insert(stack, 0, place) < 0)
            Py_CLEAR(stack);
        Py_XDECREF(place);
    }
    return stack;
}

static void
raise_error(PyObject *error_class, const char *name, PyObject *stack)
{
    PyObject *error = stack == NULL ? NULL : PyObject_CallFunction(error_class, "sOs", name, stack, "");
    if (error != NULL)
        PyErr_SetObject((PyObject *)Py_TYPE(error), error);
    Py_XDECREF(error);
}

PyObject *
kin_fullgraph_refuse_generator(PyCodeObject *code, PyObject *error_class)
{
    PyObject *stack = Py_BuildValue("[(OiO)]", code->co_filename, code->co_firstlineno, code->co_name);
    raise_error(error_class, "GENERATOR", stack);
    Py_XDECREF(stack);
    return NULL;
}

bool
kin_fullgraph_refuse(const kin_entry *v, uint32_t refused, PyObject *error_class)
{
    const kin_step *step = kin_fullgraph_find(&v->trace, refused);
    if (step == NULL)
        return false;
    const kin_break_row *row = kin_break_find(step->why);
    PyObject *stack = make_stack(v, step->snap);
    raise_error(error_class, row == NULL ? "" : row->name, stack);
    Py_XDECREF(stack);
    return true;
}
