/* Operators that the program's classes overload in Python: their methods are inlined (`a + b`, `a += b`, `-a`, `a < b`).
 *
 * CPython asks one operand and, after NotImplemented, the other one. Which method comes first follows from the two
 * classes, and so does what happens after NotImplemented, which is recorded too. A frame that was left inside a method continues
 * as in CPython (KIN_RESUME_INPLACE, KIN_RESUME_OPERATOR: replay/leave.c, reflect.c). The recording ends if the operator raises.
 */
#include "core/diag/breaks.h"
#include "py/compat/codes.h"
#include "py/compat/heap.h"
#include "py/objects/objects.h"
#include "py/compat/kinds.h"
#include "py/replay/reflect.h"
#include "py/torchcalls/skip.h"

enum { MOST_NAMES = 64 };

/* `prefix`: "", "r" or "i". Kept for the life of the process. */
static PyObject *
special(const char *prefix, const char *text)
{
    static PyObject *names[MOST_NAMES];
    char full[32];
    snprintf(full, sizeof full, "__%s%s__", prefix, text);
    for (int i = 0; i < MOST_NAMES; i++) {
        if (names[i] == NULL)
            return names[i] = PyUnicode_InternFromString(full);
        if (PyUnicode_CompareWithASCIIString(names[i], full) == 0)
            return names[i];
    }
    return NULL;
}

static PyObject *
lookup(PyTypeObject *tp, PyObject *name)
{
    return tp->tp_flags & Py_TPFLAGS_HEAPTYPE && name != NULL ? _PyType_Lookup(tp, name) : NULL;
}

static bool
can_inline(rec *r, PyObject *method)
{
    return method != NULL && PyFunction_Check(method) && rec_can_inline(r, method);
}

/* The method becomes a fact of the class. */
static kin_vid
found_method(rec *r, kin_vid obj, PyObject *name, PyObject *method)
{
    PyTypeObject *tp = rec_need_attrs(r, obj);
    rec_lookup(r, tp, name);
    return rec_found(r, tp, name, method);
}

/* -- a += b --------------------------------------------------------------------------------------------------------- */

bool
rec_inplace_python(rec *r, int imm, const kin_vid *args)
{
    PyTypeObject *tp = Py_TYPE(O(r, args[0]));
    PyObject *name = imm >= KIN_BINARY_INPLACE ? special("i", kin_binary_operator((unsigned)imm - KIN_BINARY_INPLACE)->text) : NULL, *method = lookup(tp, name);
    PySequenceMethods *sequence = tp->tp_as_sequence; /* a list would be asked once more */
    if (r->top->op != KIN_DO_BINARY || !can_inline(r, method) ||
        (sequence != NULL && (sequence->sq_inplace_concat != NULL || sequence->sq_inplace_repeat != NULL)))
        return false;
    kin_vid func = found_method(r, args[0], name, method), operands = rec_build_tuple(r, args, 2, NULL);
    return rec_inline(r, &(rec_args){.callee = func, .args = args, .npos = 2, .ndrop = 2}, NULL, 0, KIN_RESUME_INPLACE, operands);
}

/* -- -a --------------------------------------------------------------------------------------------------------------- */

bool
rec_unary_python(rec *r, int imm, kin_vid arg)
{
    PyObject *name = special("", kin_unary_operator((unsigned)imm)->text), *method = lookup(Py_TYPE(O(r, arg)), name);
    if (!can_inline(r, method))
        return false;
    kin_vid func = found_method(r, arg, name, method);
    return rec_inline(r, &(rec_args){.callee = func, .args = &arg, .npos = 1, .ndrop = 1}, NULL, 0, KIN_RESUME_PUSH, 0);
}

/* -- a + b, a < b ------------------------------------------------------------------------------------------------------- */

/* The method of the operand on the left, or of the one on the right (`other`); operators as reflect.h numbers them. */
static PyObject *
method_name(int op, bool other)
{
    static const int swapped[] = {[Py_LT] = Py_GT, [Py_LE] = Py_GE, [Py_EQ] = Py_EQ, [Py_NE] = Py_NE, [Py_GT] = Py_LT, [Py_GE] = Py_LE};
    op &= ~KIN_REFLECT_INPLACE;
    if (op >= KIN_REFLECT_COMPARE)
        return special("", kin_compare_operator((unsigned)(other ? swapped[op - KIN_REFLECT_COMPARE] : op - KIN_REFLECT_COMPARE))->text);
    return special(other ? "r" : "", kin_binary_operator((unsigned)op)->text);
}

/* Does the operand leave every operator with something that it does not know to the other one, without a look at it? */
static bool
knows_only_its_own(PyObject *obj)
{
    return PyLong_CheckExact(obj) || PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj) || PyBool_Check(obj) || obj == Py_None;
}

/* A class made by a class statement all the way down to object: it has no operators but those it defines. */
static bool
is_pure_python(PyTypeObject *tp)
{
    while (tp != NULL && !kin_heap_type_is_static(tp))
        tp = tp->tp_base;
    return tp == &PyBaseObject_Type;
}

/* Are the operands such that what is asked, and in which order, is known here? */
static bool
has_known_order(PyObject *left, PyObject *right)
{
    PyTypeObject *a = Py_TYPE(left), *b = Py_TYPE(right);
    bool pure_left = !kin_heap_type_is_static(a) && is_pure_python(a);
    bool pure_right = !kin_heap_type_is_static(b) && is_pure_python(b);
    if (a != b && PyType_IsSubtype(b, a))
        return false;
    return (pure_left && (pure_right || knows_only_its_own(right))) || (pure_right && knows_only_its_own(left));
}

static kin_vid
describe(rec *r, int op, const kin_vid *args, bool done)
{
    PyObject *number = PyLong_FromLong(op);
    kin_vid parts[4] = {args[0], args[1], rec_const(r, number), rec_const(r, done ? Py_True : Py_False)};
    Py_XDECREF(number);
    return rec_build_tuple(r, parts, 4, NULL);
}

static void
need_operand(rec *r, kin_vid arg)
{
    PyTypeObject *tp = rec_need_attrs(r, arg);
    if (tp->tp_flags & Py_TPFLAGS_HEAPTYPE)
        rec_bases_of(r, tp);
}

/* kind: BINARY, or COMPARE; the operands are the two topmost ones. */
bool
rec_operator_python(rec *r, kin_step_kind kind, int imm, const kin_vid *args)
{
    PyObject *left = O(r, args[0]), *right = O(r, args[1]);
    bool inplace = kind == KIN_STEP_BINARY && imm >= KIN_BINARY_INPLACE_ADD;
    int op = kind == KIN_STEP_COMPARE ? KIN_REFLECT_COMPARE + imm : inplace ? (imm - KIN_BINARY_INPLACE_ADD) | KIN_REFLECT_INPLACE : imm;
    if (!has_known_order(left, right) || (inplace && lookup(Py_TYPE(left), special("i", kin_binary_operator((unsigned)imm - KIN_BINARY_INPLACE)->text)) != NULL))
        return false;
    PyObject *name = method_name(op, false), *method = lookup(Py_TYPE(left), name);
    bool other = method == NULL;
    if (other)
        method = lookup(Py_TYPE(right), name = method_name(op, true));
    if (!can_inline(r, method) || (other && kind == KIN_STEP_BINARY && Py_TYPE(left) == Py_TYPE(right)))
        return false;
    need_operand(r, args[0]);
    need_operand(r, args[1]);
    if (inplace)
        rec_lookup(r, Py_TYPE(left), special("i", kin_binary_operator((unsigned)imm - KIN_BINARY_INPLACE)->text));
    if (other)
        rec_lookup(r, Py_TYPE(left), method_name(op, false));
    const kin_vid turned[2] = {args[1], args[0]};
    kin_vid func = found_method(r, args[other], name, method), operands = describe(r, op, args, other);
    return rec_inline(r, &(rec_args){.callee = func, .args = other ? turned : args, .npos = 2, .ndrop = 2}, NULL, 0, KIN_RESUME_OPERATOR, operands);
}

/* Where tensors have a method in Python for the operator (torch.Tensor.__rsub__), that one hands the call on; else torch does. */
bool
rec_operator_override(rec *r, kin_step_kind kind, int imm, const kin_vid *args, uint32_t n)
{
    if (!rec_overrides(r, args, n))
        return false;
    bool inplace = kind == KIN_STEP_BINARY && imm >= KIN_BINARY_INPLACE_ADD, other = n == 2 && !kin_is_tensor(O(r, args[0]));
    const kin_vid turned[2] = {args[other], args[other ? 0 : n - 1]};
    PyTypeObject *tp = Py_TYPE(O(r, turned[0]));
    PyObject *name = n == 1 ? special("", kin_unary_operator((unsigned)imm)->text) : inplace ? special("i", kin_binary_operator((unsigned)imm - KIN_BINARY_INPLACE)->text)
                   : method_name(kind == KIN_STEP_COMPARE ? KIN_REFLECT_COMPARE + imm : imm, other);
    PyObject *method = lookup(tp, name);
    const rec_args call = {.args = turned, .npos = n, .ndrop = (int)n};
    if (!kin_is_from_module(method, "torch._tensor"))
        return rec_inline_override(r, &call, NULL, 0, KIN_RESUME_OVERRIDE);
    rec_args of = rec_args_to(&call, found_method(r, turned[0], name, method));
    return kin_function_is_plain(method) && rec_code_of((PyCodeObject *)PyFunction_GET_CODE(method)) != NULL && rec_inline(r, &of, NULL, 0, KIN_RESUME_PUSH, 0);
}

/* Which object it is decides `a == b` and `a != b` of objects whose classes say nothing about it. */
bool
rec_equal_by_identity(rec *r, int op, const kin_vid *args)
{
    richcmpfunc plain = PyBaseObject_Type.tp_richcompare;
    if ((op != Py_EQ && op != Py_NE) || Py_TYPE(O(r, args[0]))->tp_richcompare != plain ||
        Py_TYPE(O(r, args[1]))->tp_richcompare != plain)
        return false;
    for (int i = 0; i < 2; i++)
        if (!rec_is_const(r, args[i])) {
            PyTypeObject *tp = rec_need_attrs(r, args[i]);
            rec_lookup(r, tp, REC_STR("__eq__"));
            rec_lookup(r, tp, REC_STR("__ne__"));
        } else {
            rec_class_version(r, Py_TYPE(O(r, args[i])));
        }
    bool same = rec_decide_is(r, args[0], args[1]);
    rec_drop(r, 2);
    rec_push(r, rec_const(r, same == (op == Py_EQ) ? Py_True : Py_False));
    return true;
}

/* -- NotImplemented ------------------------------------------------------------------------------------------------------- */

/* The method answers NotImplemented: finds out what CPython does then, as long as exits and checks can be here. */
static bool
prepare(rec *r, rec_frame *caller)
{
    const kin_vid *parts = VIRTUAL(r, caller->call_extra)->items;
    int op = (int)PyLong_AsLong(O(r, parts[2]));
    bool done = O(r, parts[3]) == Py_True, compare = op >= KIN_REFLECT_COMPARE && op < KIN_REFLECT_INPLACE;
    PyTypeObject *a = Py_TYPE(O(r, parts[0])), *b = Py_TYPE(O(r, parts[1]));
    PyObject *name = method_name(op, true), *method = lookup(b, name);
    caller->then_func = caller->then_extra = 0;
    if (!done && (compare || a != b) && can_inline(r, method)) {
        caller->then_func = found_method(r, parts[1], name, method);
        rec_fix_function(r, &caller->then_func);
        caller->then_extra = describe(r, op, parts, true);
        return true;
    }
    op -= KIN_REFLECT_COMPARE;
    bool plain = knows_only_its_own(O(r, parts[1])) || b->tp_richcompare == PyBaseObject_Type.tp_richcompare;
    if ((!done && !plain) || !compare || (op != Py_EQ && op != Py_NE))
        return false;
    rec_lookup(r, b, REC_STR("__eq__"));
    rec_lookup(r, b, name);
    bool same = rec_decide_is(r, parts[0], parts[1]);
    caller->then_extra = rec_const(r, same == (op == Py_EQ) ? Py_True : Py_False);
    return true;
}

void
rec_operator_return(rec *r, kin_vid result)
{
    rec_frame *caller = r->top->back;
    if (caller != NULL && !r->top->from_c && caller->call_resume == KIN_RESUME_OVERRIDE && O(r, result) == Py_NotImplemented)
        rec_stop(r, "__torch_function__ returned NotImplemented");
    if (caller != NULL && !r->top->from_c && (caller->call_resume == KIN_RESUME_TRUTH || caller->call_resume == KIN_RESUME_FALSITY)) {
        if (r->info.at[result].type != &PyBool_Type && rec_truth(r, result) < 0)
            rec_stop_row(r, kin_is_tensor(O(r, result)) ? KIN_ROW_DATA_DEPENDENT_BRANCH : KIN_ROW_UNSUPPORTED_INSTRUCTION,
                         "__contains__ or __instancecheck__ returned what has to be asked for its truth");
        return;
    }
    if (caller == NULL || r->top->from_c || (caller->call_resume != KIN_RESUME_INPLACE && caller->call_resume != KIN_RESUME_OPERATOR))
        return;
    if (O(r, result) != Py_NotImplemented && kin_instr_makes_bool(caller->in) && !PyBool_Check(O(r, result))) {
        if (rec_truth(r, result) < 0)
            rec_stop(r, "an operator method of a condition returned what has to be asked for its truth");
    } else if (O(r, result) != Py_NotImplemented) {
        if (VIRTUAL(r, result) == NULL && !rec_is_const(r, result))
            rec_need_type(r, result);
    } else if (caller->call_resume == KIN_RESUME_INPLACE || !rec_is_const(r, result) || !prepare(r, caller)) {
        rec_stop(r, "an operator method returned NotImplemented");
    }
}

/* What a condition makes of the answer of such a method, whose truth is known. */
kin_vid
rec_operator_truth(rec *r, kin_vid result)
{
    PyObject *obj = O(r, result);
    return PyBool_Check(obj) ? result : rec_const(r, PyObject_IsTrue(obj) > 0 ? Py_True : Py_False);
}

/* ... and the frame is gone: the other operand's method is called, or the answer is known. */
void
rec_operator_goes_on(rec *r, rec_frame *f)
{
    if (f->then_func == 0) {
        rec_push(r, f->then_extra);
        return;
    }
    const kin_vid *parts = VIRTUAL(r, f->then_extra)->items, args[2] = {parts[1], parts[0]};
    rec_args call = {.callee = f->then_func, .args = args, .npos = 2};
    if (!rec_bind(r, &call)) {
        r->failed = true; /* the first method cannot be taken back any more */
        rec_stop(r, "unsupported arguments of an operator method");
        return;
    }
    f->parent_for_call = rec_snapshot_of(r, f, f->offset, f->sp);
    r->t->snaps.at[f->parent_for_call].resume = KIN_RESUME_OPERATOR;
    r->t->snaps.at[f->parent_for_call].extra = f->then_extra;
    f->call_extra = f->then_extra;
    f->await = AWAIT_FRAME;
    r->call.active = true;
    r->call.func = O(r, call.callee);
    r->call.func_vid = call.callee;
}
