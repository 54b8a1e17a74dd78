/* What an operator does after NotImplemented: the other operand's method, then identity or TypeError (reflect.h).
 *
 * The recorder only lets certain operands through (objects/overload.c): instances of classes made by class statements all the
 * way down to object, and numbers and None, which know nothing of such objects.
 */
#include "py/replay/reflect.h"

#include "core/bytecode/canon.h"

/* Calls a special method of the object's class; Py_NotImplemented when there is none. New reference. */
static PyObject *
ask(PyObject *obj, const char *text, PyObject *arg)
{
    PyTypeObject *tp = Py_TYPE(obj);
    PyObject *name = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? PyUnicode_InternFromString(text) : NULL;
    PyObject *method = name != NULL ? Py_XNewRef(_PyType_Lookup(tp, name)) : NULL;
    Py_XDECREF(name);
    if (method == NULL)
        return PyErr_Occurred() ? NULL : Py_NewRef(Py_NotImplemented);
    descrgetfunc get = Py_TYPE(method)->tp_descr_get;
    if (get != NULL)
        Py_SETREF(method, get(method, obj, (PyObject *)tp));
    PyObject *result = method != NULL ? PyObject_CallOneArg(method, arg) : NULL;
    Py_XDECREF(method);
    return result;
}

static PyObject *
reflect_compare(int op, PyObject *left, PyObject *right, bool done)
{
    static const int swapped[] = {Py_GT, Py_GE, Py_EQ, Py_NE, Py_LT, Py_LE};
    richcmpfunc other = done ? NULL : Py_TYPE(right)->tp_richcompare;
    PyObject *result = other != NULL ? other(right, left, swapped[op]) : Py_NewRef(Py_NotImplemented);
    if (result != Py_NotImplemented)
        return result;
    Py_DECREF(result);
    if (op == Py_EQ || op == Py_NE)
        return Py_NewRef((left == right) == (op == Py_EQ) ? Py_True : Py_False);
    PyErr_Format(PyExc_TypeError, "'%s' not supported between instances of '%.100s' and '%.100s'", kin_compare_operator((unsigned)op)->symbol,
                 Py_TYPE(left)->tp_name, Py_TYPE(right)->tp_name);
    return NULL;
}

const char *
kin_operator_in_message(int op, bool inplace)
{
    const kin_operator *o = kin_binary_operator((unsigned)op);
    return inplace ? o->in_place_symbol : op == KIN_BINARY_POWER ? "** or pow()" : o->symbol;
}

PyObject *
kin_reflect(int op, PyObject *left, PyObject *right, bool done)
{
    if (op >= KIN_REFLECT_COMPARE && op < KIN_REFLECT_INPLACE)
        return reflect_compare(op - KIN_REFLECT_COMPARE, left, right, done);
    bool inplace = op & KIN_REFLECT_INPLACE;
    op &= ~KIN_REFLECT_INPLACE;
    PyObject *result = done || Py_TYPE(left) == Py_TYPE(right) ? Py_NewRef(Py_NotImplemented) : ask(right, kin_binary_operator((unsigned)op)->reflected, left);
    if (result != Py_NotImplemented)
        return result;
    Py_DECREF(result);
    PyErr_Format(PyExc_TypeError, "unsupported operand type(s) for %s: '%.100s' and '%.100s'", kin_operator_in_message(op, inplace), Py_TYPE(left)->tp_name,
                 Py_TYPE(right)->tp_name);
    return NULL;
}
