/* `a += b` where a's class says in Python what that means: its method is inlined. When it answers NotImplemented, CPython goes on
 * to the plain operator: the recording ends before that answer, and frames that were left inside the method go on like
 * CPython (replay/leave.c).
 */
#include "py/record/rec.h"

#include <opcode.h>

static PyObject *
method_name(int imm)
{
    static const char *const texts[] = {
        [NB_ADD] = "__iadd__", [NB_AND] = "__iand__", [NB_FLOOR_DIVIDE] = "__ifloordiv__", [NB_LSHIFT] = "__ilshift__",
        [NB_MATRIX_MULTIPLY] = "__imatmul__", [NB_MULTIPLY] = "__imul__", [NB_REMAINDER] = "__imod__", [NB_OR] = "__ior__",
        [NB_POWER] = "__ipow__", [NB_RSHIFT] = "__irshift__", [NB_SUBTRACT] = "__isub__", [NB_TRUE_DIVIDE] = "__itruediv__",
        [NB_XOR] = "__ixor__"};
    static PyObject *names[sizeof texts / sizeof *texts];
    int op = imm - NB_INPLACE_ADD;
    if (op < 0 || (size_t)op >= sizeof texts / sizeof *texts)
        return NULL;
    if (names[op] == NULL)
        names[op] = PyUnicode_InternFromString(texts[op]);
    return names[op];
}

bool
rec_inplace_python(rec *r, int imm, const kin_vid *args)
{
    PyTypeObject *tp = Py_TYPE(O(r, args[0]));
    PyObject *name = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? method_name(imm) : NULL;
    PyObject *method = name != NULL ? _PyType_Lookup(tp, name) : NULL;
    PySequenceMethods *sequence = tp->tp_as_sequence; /* a list would be asked once more */
    if (method == NULL || !PyFunction_Check(method) || !rec_can_inline(r, method) ||
        (sequence != NULL && (sequence->sq_inplace_concat != NULL || sequence->sq_inplace_repeat != NULL)))
        return false;
    rec_need_attrs(r, args[0]);
    rec_lookup(r, tp, name);
    kin_vid operands = r->stopped ? 0 : rec_build_tuple(r, args, 2, NULL);
    return r->stopped || rec_inline(r, rec_found(r, tp, name, method), args, 2, 0, NULL, 2, NULL, 0, KIN_RESUME_INPLACE, operands);
}

void
rec_inplace_return(rec *r, kin_vid result)
{
    const rec_frame *caller = r->top->back;
    if (caller == NULL || r->top->from_c || caller->call_resume != KIN_RESUME_INPLACE)
        return;
    if (O(r, result) == Py_NotImplemented)
        rec_stop(r, "the method of an operator answered NotImplemented");
    else if (FRESH(r, result) == NULL && !rec_is_const(r, result))
        rec_need_type(r, result);
}
