/* Which step is to blame where torch cannot go back through a subgraph: that step stays by itself, and the others are captured without it. An autograd node says
 * how many nodes had been made before it, and so between which steps.
 */
#include "py/capture/capture_priv.h"
#include "py/compat/imports.h"

#include <string.h>

/* False, without an exception: torch does not tell. */
static bool
read_number(PyObject *given, uint64_t *out)
{
    *out = given == NULL ? 0 : PyLong_AsUnsignedLongLong(given);
    bool known = given != NULL && !PyErr_Occurred();
    PyErr_Clear();
    Py_XDECREF(given);
    return known;
}

void
kin_culprit_begin_step(capturing *c)
{
    static PyObject *kept;
    PyObject *ask = c->joint ? kin_import_once(&kept, "torch._C._autograd", "_get_sequence_nr") : NULL;
    uint64_t before;
    if (ask != NULL && read_number(PyObject_CallNoArgs(ask), &before) && kin_vec_push(&c->begun, ((capture_begun){c->step, before})) != KIN_OK)
        c->begun.len = 0;
    PyErr_Clear();
}

/* The number of the node that torch is in. The exception that is set stays. */
static bool
number_of_node(uint64_t *number)
{
    PyObject *type, *error, *tb;
    PyErr_Fetch(&type, &error, &tb);
    PyObject *node = kin_import_call("torch._C", "_current_autograd_node", NULL);
    bool known = read_number(node == NULL || node == Py_None ? NULL : PyObject_CallMethod(node, "_sequence_nr", NULL), number);
    Py_XDECREF(node);
    PyErr_Restore(type, error, tb);
    return known;
}

void
kin_culprit_refuse(capturing *c, const char *operator)
{
    if (strcmp(operator, "aten._local_scalar_dense.default") == 0)
        kin_capture_refuse(c, "%s", "it needs a number from a tensor's data");
    else
        kin_capture_refuse(c, "%s cannot be captured", operator);
}

void
kin_culprit_note(capturing *c)
{
    uint64_t number;
    uint32_t n = c->begun.len;
    if (c->step != UINT32_MAX || c->found || n == 0 || !number_of_node(&number))
        return;
    while (n > 0 && c->begun.at[n - 1].before > number)
        n--;
    if (n == 0)
        return;
    c->found = true;
    c->suspects.len = 0;
    if (kin_vec_push(&c->suspects, c->begun.at[n - 1].step) != KIN_OK)
        c->found = false;
}
