/* str.format: only the arguments that the text names matter, and if they are constants, so is the result. */
#include "py/compat/imports.h"
#include "py/models/models.h"

enum { MOST_FIELDS = 64, MOST_OPERANDS = 255 };

/* The operand that a field's name begins with; -1: none. `next`: the number that an empty name stands for. */
static int
operand_of(const rec_args *a, PyObject *first, uint32_t *next)
{
    Py_ssize_t number = -1;
    if (PyLong_Check(first))
        number = PyLong_AsSsize_t(first);
    else if (PyUnicode_GET_LENGTH(first) == 0)
        number = (Py_ssize_t)(*next)++;
    if (number >= 0)
        return number + 1 < (Py_ssize_t)a->npos ? (int)number + 1 : -1; /* behind the text itself */
    for (uint32_t i = 0; !PyLong_Check(first) && i < a->nkw; i++)
        if (PyUnicode_Compare(PyTuple_GET_ITEM(a->kwnames, i), first) == 0)
            return (int)(a->npos + i);
    return -1;
}

/* The field, as the parser gives it: (literal, name, spec, conversion). */
static bool
is_constant_field(rec *r, const rec_args *a, PyObject *field, uint32_t *next, kin_vid *used, uint32_t *n)
{
    PyObject *name = PyTuple_GET_ITEM(field, 1), *spec = PyTuple_GET_ITEM(field, 2);
    if (name == Py_None)
        return true;
    PyObject *parts = kin_import_call("_string", "formatter_field_name_split", name);
    bool ok = parts != NULL && *n < MOST_FIELDS && PyUnicode_FindChar(spec, '{', 0, PyUnicode_GET_LENGTH(spec), 1) == -1;
    int at = ok ? operand_of(a, PyTuple_GET_ITEM(parts, 0), next) : -1;
    ok = at >= 0 && O(r, a->args[at]) != NULL && rec_can_const(r, a->args[at]) && rec_is_value(O(r, a->args[at]));
    if (ok)
        used[(*n)++] = a->args[at];
    Py_XDECREF(parts);
    return ok;
}

static bool
model_format(rec *r, const rec_args *a)
{
    kin_vid used[MOST_FIELDS];
    uint32_t n = 0, next = 0;
    PyObject *text = a->npos > 0 ? O(r, a->args[0]) : NULL, *fields = NULL, *field;
    if (text == NULL || !PyUnicode_CheckExact(text) || a->npos + a->nkw > MOST_OPERANDS || !rec_can_const(r, a->args[0]))
        return false;
    fields = kin_import_call("_string", "formatter_parser", text);
    bool ok = fields != NULL;
    while (ok && (field = PyIter_Next(fields)) != NULL) {
        ok = is_constant_field(r, a, field, &next, used, &n);
        Py_DECREF(field);
    }
    ok = ok && !PyErr_Occurred();
    Py_XDECREF(fields);
    PyErr_Clear();
    if (!ok)
        return rec_model_pure(r, a);
    rec_need_const(r, a->args[0]);
    for (uint32_t i = 0; i < n; i++)
        rec_need_const(r, used[i]);
    rec_drop(r, a->ndrop);
    rec_await_const(r);
    return true;
}

const rec_method_row rec_text_rows[] = {{"str.format", model_format}, {NULL, NULL}};
