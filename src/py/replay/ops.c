/* Executes one step: gathers the operands and calls the operation of its kind. Calls, operators and access are here;
 * ops_build.c creates and changes objects, ops_state.c does imports, globals and raise.
 */
#include "py/aten/sizes.h"
#include "py/compat/failure.h"
#include "py/compat/kinds.h"
#include "py/replay/ops_priv.h"
#include "py/replay/replay.h"


/* -- calls ------------------------------------------------------------------------------------------------------ */

bool
kin_op_takes_tuple(PyObject *callee)
{
    enum { ASKED = METH_VARARGS | METH_KEYWORDS | METH_FASTCALL | METH_NOARGS | METH_O | METH_METHOD };
    return Py_IS_TYPE(callee, &PyCFunction_Type) && (PyCFunction_GET_FLAGS(callee) & ASKED) == (METH_VARARGS | METH_KEYWORDS);
}

/* Straight to the function: what CPython's generic way does, without its detours. */
PyObject *
kin_op_call_tuple(PyThreadState *ts, PyObject *callee, PyObject *tuple)
{
    if (Py_EnterRecursiveCall(" while calling a Python object") != 0)
        return NULL;
    PyCFunctionWithKeywords function = (PyCFunctionWithKeywords)(void (*)(void))PyCFunction_GET_FUNCTION(callee);
    PyObject *result = function(PyCFunction_GET_SELF(callee), tuple, NULL);
    Py_LeaveRecursiveCall();
    return kin_checked_result(ts, callee, result);
}

static PyObject *
call_with_tuple(PyObject *callee, PyObject *const *args, size_t npos)
{
    PyObject *tuple = PyTuple_New((Py_ssize_t)npos);
    if (tuple == NULL)
        return NULL;
    for (size_t i = 0; i < npos; i++)
        PyTuple_SET_ITEM(tuple, (Py_ssize_t)i, Py_NewRef(args[i]));
    PyObject *result = kin_op_call_tuple(PyThreadState_GET(), callee, tuple);
    Py_DECREF(tuple);
    return result;
}

static PyObject *
do_call(const kin_op_args *o)
{
    if (o->ref == NULL && kin_op_takes_tuple(o->arg[0]))
        return call_with_tuple(o->arg[0], o->arg + 1, (size_t)o->nargs - 1);
    Py_ssize_t nkw = o->ref ? PyTuple_GET_SIZE(o->ref) : 0;
    size_t npos = (size_t)(o->nargs - 1 - nkw);
    return PyObject_Vectorcall(o->arg[0], o->arg + 1, npos | PY_VECTORCALL_ARGUMENTS_OFFSET, nkw ? o->ref : NULL);
}

static PyObject *
do_call_ex(const kin_op_args *o)
{
    PyObject *callee = o->arg[0], *args = o->arg[1], *kwargs = o->nargs > 2 ? o->arg[2] : NULL;
    if (PyTuple_CheckExact(args))
        return PyObject_Call(callee, args, kwargs);
    if (Py_TYPE(args)->tp_iter == NULL && !PySequence_Check(args)) {
        PyObject *text = kin_op_callee_text(callee);
        if (text != NULL)
            PyErr_Format(PyExc_TypeError, "%U argument after * must be an iterable, not %.200s", text,
                         Py_TYPE(args)->tp_name);
        Py_XDECREF(text);
        return NULL;
    }
    PyObject *tuple = PySequence_Tuple(args);
    PyObject *result = tuple ? PyObject_Call(callee, tuple, kwargs) : NULL;
    Py_XDECREF(tuple);
    return result;
}

/* -- operators -------------------------------------------------------------------------------------------------- */

static PyObject *
power(PyObject *a, PyObject *b)
{
    return PyNumber_Power(a, b, Py_None);
}

static PyObject *
power_in_place(PyObject *a, PyObject *b)
{
    return PyNumber_InPlacePower(a, b, Py_None);
}

static const binaryfunc binary_table[] = {
    [KIN_BINARY_ADD] = PyNumber_Add,
    [KIN_BINARY_AND] = PyNumber_And,
    [KIN_BINARY_FLOOR_DIVIDE] = PyNumber_FloorDivide,
    [KIN_BINARY_LSHIFT] = PyNumber_Lshift,
    [KIN_BINARY_MATRIX_MULTIPLY] = PyNumber_MatrixMultiply,
    [KIN_BINARY_MULTIPLY] = PyNumber_Multiply,
    [KIN_BINARY_REMAINDER] = PyNumber_Remainder,
    [KIN_BINARY_OR] = PyNumber_Or,
    [KIN_BINARY_POWER] = power,
    [KIN_BINARY_RSHIFT] = PyNumber_Rshift,
    [KIN_BINARY_SUBTRACT] = PyNumber_Subtract,
    [KIN_BINARY_TRUE_DIVIDE] = PyNumber_TrueDivide,
    [KIN_BINARY_XOR] = PyNumber_Xor,
    [KIN_BINARY_INPLACE_ADD] = PyNumber_InPlaceAdd,
    [KIN_BINARY_INPLACE_AND] = PyNumber_InPlaceAnd,
    [KIN_BINARY_INPLACE_FLOOR_DIVIDE] = PyNumber_InPlaceFloorDivide,
    [KIN_BINARY_INPLACE_LSHIFT] = PyNumber_InPlaceLshift,
    [KIN_BINARY_INPLACE_MATRIX_MULTIPLY] = PyNumber_InPlaceMatrixMultiply,
    [KIN_BINARY_INPLACE_MULTIPLY] = PyNumber_InPlaceMultiply,
    [KIN_BINARY_INPLACE_REMAINDER] = PyNumber_InPlaceRemainder,
    [KIN_BINARY_INPLACE_OR] = PyNumber_InPlaceOr,
    [KIN_BINARY_INPLACE_POWER] = power_in_place,
    [KIN_BINARY_INPLACE_RSHIFT] = PyNumber_InPlaceRshift,
    [KIN_BINARY_INPLACE_SUBTRACT] = PyNumber_InPlaceSubtract,
    [KIN_BINARY_INPLACE_TRUE_DIVIDE] = PyNumber_InPlaceTrueDivide,
    [KIN_BINARY_INPLACE_XOR] = PyNumber_InPlaceXor,
};

static PyObject *
new_bool(int truth)
{
    return truth < 0 ? NULL : Py_NewRef(truth ? Py_True : Py_False);
}

static PyObject *
none_unless(int failed)
{
    return failed < 0 ? NULL : Py_NewRef(Py_None);
}

static PyObject *
do_binary(const kin_op_args *o)
{
    if ((size_t)o->imm >= sizeof binary_table / sizeof *binary_table) {
        PyErr_BadInternalCall();
        return NULL;
    }
    return binary_table[o->imm](o->arg[0], o->arg[1]);
}

PyObject *
kin_op_binary(int imm, PyObject *a, PyObject *b)
{
    return do_binary(&(kin_op_args){(PyObject *[]){a, b}, 2, imm, NULL});
}

static PyObject *
do_unary(const kin_op_args *o)
{
    switch ((kin_unary)o->imm) {
    case KIN_UNARY_NEGATIVE:
        return PyNumber_Negative(o->arg[0]);
    case KIN_UNARY_POSITIVE:
        return PyNumber_Positive(o->arg[0]);
    case KIN_UNARY_INVERT:
        return PyNumber_Invert(o->arg[0]);
    case KIN_UNARY_NOT:
        break;
    }
    int truth = PyObject_IsTrue(o->arg[0]);
    return new_bool(truth < 0 ? -1 : !truth);
}

static PyObject *
do_compare(const kin_op_args *o)
{
    PyObject *result = PyObject_RichCompare(o->arg[0], o->arg[1], o->imm & ~KIN_COMPARE_TO_BOOL);
    if (result == NULL || !(o->imm & KIN_COMPARE_TO_BOOL) || PyBool_Check(result))
        return result;
    int truth = PyObject_IsTrue(result);
    Py_DECREF(result);
    return new_bool(truth);
}

static PyObject *
do_contains(const kin_op_args *o)
{
    int found = PySequence_Contains(o->arg[1], o->arg[0]);
    return new_bool(found < 0 ? -1 : found != o->imm);
}

static PyObject *
do_is(const kin_op_args *o)
{
    return new_bool((o->arg[0] == o->arg[1]) != (o->imm != 0));
}

/* -- access ----------------------------------------------------------------------------------------------------- */

static PyObject *
do_subscr(const kin_op_args *o)
{
    return PyObject_GetItem(o->arg[0], o->arg[1]);
}

static PyObject *
do_set_subscr(const kin_op_args *o)
{
    if (o->imm == 1)
        return none_unless(((PyTypeObject *)o->ref)->tp_as_mapping->mp_ass_subscript(o->arg[0], o->arg[1], o->arg[2]));
    return none_unless(PyObject_SetItem(o->arg[0], o->arg[1], o->arg[2]));
}

static PyObject *
do_del_subscr(const kin_op_args *o)
{
    return none_unless(PyObject_DelItem(o->arg[0], o->arg[1]));
}

static PyObject *
do_getattr(const kin_op_args *o)
{
    return PyObject_GetAttr(o->arg[0], o->ref);
}

static PyObject *
do_setattr(const kin_op_args *o)
{
    if (o->imm == 1)
        return none_unless(PyObject_GenericSetAttr(o->arg[0], o->ref, o->arg[1]));
    return none_unless(PyObject_SetAttr(o->arg[0], o->ref, o->arg[1]));
}

static PyObject *
do_delattr(const kin_op_args *o)
{
    return none_unless(PyObject_SetAttr(o->arg[0], o->ref, NULL));
}

static PyObject *
do_iter(const kin_op_args *o)
{
    return PyObject_GetIter(o->arg[0]);
}

static PyObject *
do_next(const kin_op_args *o)
{
    return PyIter_Next(o->arg[0]);
}

static PyObject *
do_len(const kin_op_args *o)
{
    Py_ssize_t n = PyObject_Size(o->arg[0]);
    return n < 0 ? NULL : PyLong_FromSsize_t(n);
}

static PyObject *
do_size(const kin_op_args *o)
{
    return kin_size_at(o->arg[0], o->imm);
}

static PyObject *
do_truth(const kin_op_args *o)
{
    return new_bool(PyObject_IsTrue(o->arg[0]));
}

/* imm: low two bits 0 none, 1 str(), 2 repr(), 3 ascii(); bit 2: a format spec is given. */
static PyObject *
do_format(const kin_op_args *o)
{
    PyObject *spec = (o->imm & 4) && o->nargs > 1 ? o->arg[1] : NULL, *value = o->arg[0];
    switch (o->imm & 3) {
    case 1:
        value = PyObject_Str(value);
        break;
    case 2:
        value = PyObject_Repr(value);
        break;
    case 3:
        value = PyObject_ASCII(value);
        break;
    default:
        Py_INCREF(value);
    }
    if (value == NULL || (PyUnicode_CheckExact(value) && spec == NULL))
        return value;
    PyObject *text = PyObject_Format(value, spec);
    Py_DECREF(value);
    return text;
}

static PyObject *
do_same(const kin_op_args *o)
{
    return Py_NewRef(o->arg[0]);
}

/* -- dispatch --------------------------------------------------------------------------------------------------- */

typedef struct {
    kin_op_func run;
    uint8_t needs; /* the first operands, which must be there */
} op_row;

static const op_row op_table[KIN_STEP__COUNT] = {
    [KIN_STEP_CALL] = {do_call, 1},
    [KIN_STEP_CALL_EX] = {do_call_ex, 2},
    [KIN_STEP_BINARY] = {do_binary, 2},
    [KIN_STEP_UNARY] = {do_unary, 1},
    [KIN_STEP_COMPARE] = {do_compare, 2},
    [KIN_STEP_CONTAINS] = {do_contains, 2},
    [KIN_STEP_IS] = {do_is, 2},
    [KIN_STEP_SUBSCR] = {do_subscr, 2},
    [KIN_STEP_SET_SUBSCR] = {do_set_subscr, 3},
    [KIN_STEP_DEL_SUBSCR] = {do_del_subscr, 2},
    [KIN_STEP_GETATTR] = {do_getattr, 1},
    [KIN_STEP_SETATTR] = {do_setattr, 2},
    [KIN_STEP_DELATTR] = {do_delattr, 1},
    [KIN_STEP_ITER] = {do_iter, 1},
    [KIN_STEP_NEXT] = {do_next, 1},
    [KIN_STEP_LEN] = {do_len, 1},
    [KIN_STEP_SIZE] = {do_size, 1},
    [KIN_STEP_TRUTH] = {do_truth, 1},
    [KIN_STEP_FORMAT] = {do_format, 1},
    [KIN_STEP_BUILD_TUPLE] = {kin_op_build_tuple, 0},
    [KIN_STEP_BUILD_SIZE] = {kin_op_build_size, 0},
    [KIN_STEP_BUILD_LIST] = {kin_op_build_list, 0},
    [KIN_STEP_BUILD_SET] = {kin_op_build_set, 0},
    [KIN_STEP_BUILD_MAP] = {kin_op_build_map, 0},
    [KIN_STEP_BUILD_SLICE] = {kin_op_build_slice, 2},
    [KIN_STEP_BUILD_STRING] = {kin_op_build_string, 0},
    [KIN_STEP_BUILD_METHOD] = {kin_op_build_method, 2},
    [KIN_STEP_BUILD_SUPER] = {kin_op_build_super, 3},
    [KIN_STEP_BUILD_CELL] = {kin_op_build_cell, 0},
    [KIN_STEP_BUILD_FUNCTION] = {kin_op_build_function, 2},
    [KIN_STEP_BUILD_OBJECT] = {kin_op_build_object, 1},
    [KIN_STEP_LIST_TO_TUPLE] = {kin_op_list_to_tuple, 1},
    [KIN_STEP_BUILD_GENERATOR] = {kin_op_build_generator, 1},
    [KIN_STEP_GENERATOR_STATE] = {kin_op_generator_state, 1},
    [KIN_STEP_ITERATOR_AT] = {kin_op_iterator_at, 2},
    [KIN_STEP_UPDATE_WRAPPER] = {kin_op_update_wrapper, 3},
    [KIN_STEP_USE_UP] = {kin_op_use_up, 1},
    [KIN_STEP_UNPACK] = {kin_op_unpack, 3},
    [KIN_STEP_CELL_SET] = {kin_op_cell_set, 1},
    [KIN_STEP_CELL_GET] = {kin_op_cell_get, 1},
    [KIN_STEP_LIST_APPEND] = {kin_op_list_append, 2},
    [KIN_STEP_LIST_EXTEND] = {kin_op_list_extend, 2},
    [KIN_STEP_SET_ADD] = {kin_op_set_add, 2},
    [KIN_STEP_SET_UPDATE] = {kin_op_set_update, 2},
    [KIN_STEP_DICT_UPDATE] = {kin_op_dict_update, 2},
    [KIN_STEP_DICT_MERGE] = {kin_op_dict_merge, 2},
    [KIN_STEP_GLOBAL_SET] = {kin_op_global_set, 1},
    [KIN_STEP_IMPORT] = {kin_op_import, 3},
    [KIN_STEP_IMPORT_FROM] = {kin_op_import_from, 1},
    [KIN_STEP_RAISE] = {kin_op_raise, 0},
    [KIN_STEP_HANDLED] = {kin_op_handled, 0},
    [KIN_STEP_CARRY] = {do_same, 1},
    [KIN_STEP_RETURN] = {do_same, 1},
};

static PyObject *
report_missing(const kin_step *s, uint32_t operand)
{
    kin_failure_raise("kintsugi: operand %u of step '%s' has no value", (unsigned)operand,
                      kin_step_name((kin_step_kind)s->kind));
    return NULL;
}

/* Borrowed; NULL when the value is none. */
static inline PyObject *
constant(const kin_trace *t, const kin_refs *refs, kin_vid vid)
{
    if (vid < t->stops.nvals)
        return kin_refs_get(refs, t->stops.consts[vid]);
    const kin_val *val = &t->vals.at[vid];
    return val->kind == KIN_VAL_CONST ? kin_refs_get(refs, val->key) : NULL;
}

static PyObject *
execute_with(const kin_trace *t, const kin_refs *refs, const kin_step *s, PyObject **slots, PyObject **arg)
{
    const op_row *row = &op_table[s->kind];
    const kin_vid *vids = t->vids.at + s->args;
    for (uint32_t i = 0; i < s->nargs; i++) {
        PyObject *obj = slots[vids[i]];
        if (obj == NULL)
            obj = constant(t, refs, vids[i]);
        if (obj == NULL && (vids[i] != 0 || i < row->needs))
            return report_missing(s, i);
        arg[i] = obj;
    }
    if (s->nargs < row->needs)
        return report_missing(s, s->nargs);
    kin_op_args o = {arg, s->nargs, s->imm, kin_refs_get(refs, s->ref)};
    return row->run(&o);
}

static PyObject *
execute_check(const kin_trace *t, const kin_refs *refs, const kin_step *s, PyObject **slots)
{
    PyObject *operand[2] = {NULL, NULL};
    for (int i = 0; i < 2 && i < s->nargs; i++) {
        kin_vid vid = t->vids.at[s->args + (uint32_t)i];
        operand[i] = slots[vid];
        if (operand[i] == NULL && t->vals.at[vid].kind == KIN_VAL_CONST)
            operand[i] = kin_refs_get(refs, t->vals.at[vid].key);
    }
    return new_bool(kin_check_holds(refs, s, operand[0], operand[1]));
}

PyObject *
kin_step_execute(const kin_trace *t, const kin_refs *refs, const kin_step *s, PyObject **slots)
{
    enum { SMALL = 24 };
    if (s->kind == KIN_STEP_CHECK)
        return execute_check(t, refs, s, slots);
    if (op_table[s->kind].run == NULL) {
        kin_failure_raise("kintsugi: '%s' is no operation", kin_step_name((kin_step_kind)s->kind));
        return NULL;
    }
    PyObject *small[SMALL];
    if (s->nargs <= SMALL)
        return execute_with(t, refs, s, slots, small);
    PyObject **large = PyMem_Malloc(s->nargs * sizeof *large);
    if (large == NULL)
        return PyErr_NoMemory();
    PyObject *result = execute_with(t, refs, s, slots, large);
    PyMem_Free(large);
    return result;
}
