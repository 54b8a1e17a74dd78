/* What steps ask of numbers, other than sums and products (core/program/sizes.h). A remainder, a comparison, the greater of two numbers: a plan may be right only for sizes for which
 * the answer is the same, and says nothing of it (`n % 3` elements of padding are no padding at all if it is 0). Copies of plans are made where answers are the same. */
#include <string.h>

#include "core/bytecode/canon.h"
#include "py/capture/capture_priv.h"
#include "py/compat/kinds.h"

/* The number that a copy of a plan could see; false: it is none that fits. Bools and floats by their bits. */
static bool
number_of(PyObject *obj, int64_t *out)
{
    int over = 0;
    if (PyFloat_CheckExact(obj)) {
        double value = PyFloat_AS_DOUBLE(obj);
        memcpy(out, &value, sizeof value);
        return true;
    }
    *out = PyLong_AsLongLongAndOverflow(obj, &over);
    return over == 0;
}

static bool
is_number(PyObject *obj)
{
    return obj != NULL && (PyLong_Check(obj) || PyFloat_CheckExact(obj));
}

static bool
is_tensors(PyObject *obj)
{
    if (PyTuple_Check(obj) || PyList_Check(obj))
        return PySequence_Fast_GET_SIZE(obj) > 0 && kin_is_tensor(PySequence_Fast_GET_ITEM(obj, 0));
    return kin_is_tensor(obj);
}

/* Steps that only hand numbers on, whatever these are, or read sizes. */
static bool
hands_on(const kin_step *s)
{
    switch ((kin_step_kind)s->kind) {
    case KIN_STEP_SIZE: case KIN_STEP_LEN: case KIN_STEP_BUILD_TUPLE: case KIN_STEP_BUILD_LIST: case KIN_STEP_BUILD_SIZE: case KIN_STEP_BUILD_SLICE: case KIN_STEP_BUILD_MAP:
    case KIN_STEP_LIST_TO_TUPLE: case KIN_STEP_LIST_APPEND: case KIN_STEP_LIST_EXTEND: case KIN_STEP_CELL_SET: case KIN_STEP_BUILD_CELL: case KIN_STEP_SETATTR:
        return true;
    default:
        return false;
    }
}

/* What the operator on two ints asks; -1: nothing that a polynomial of them does not answer. */
static int
asked_by_operator(const kin_step *s)
{
    unsigned op = s->kind == KIN_STEP_BINARY && s->imm >= KIN_BINARY_INPLACE ? s->imm - (unsigned)KIN_BINARY_INPLACE : s->imm;
    if (s->kind == KIN_STEP_COMPARE)
        return KIN_SIZES_ORDER;
    switch (op) {
    case KIN_BINARY_ADD: case KIN_BINARY_SUBTRACT: case KIN_BINARY_MULTIPLY: return -1;
    case KIN_BINARY_REMAINDER: return KIN_SIZES_REMAINDER;
    case KIN_BINARY_FLOOR_DIVIDE: return KIN_SIZES_QUOTIENT;
    default: return KIN_SIZES_VALUE;
    }
}

static bool
push(kin_capture *c, kin_sizes_asks asks, PyObject *a, PyObject *b, PyObject *gives)
{
    kin_sizes_question q = {.asks = asks};
    bool fits = number_of(a, &q.a) && (b == NULL || number_of(b, &q.b)) && (gives == NULL || number_of(gives, &q.gives));
    c->asks_more = c->asks_more || !fits;
    return !fits || kin_vec_push(&c->questions, q) == KIN_OK;
}

static bool
is_open(const stepper *x, kin_vid vid)
{
    return x->open != NULL && x->open[vid];
}

/* Numbers that are open (a temperature, a step counter) are no numbers of a plan, and what is made of them is not asked about: py/launch/numbers.c sees to it. */
static bool
hand_on_open(const stepper *x, const kin_step *s)
{
    bool any = false;
    for (uint32_t a = 0; a < s->nargs; a++)
        any = any || is_open(x, x->t->vids.at[s->args + a]);
    if (any && s->out != 0)
        x->open[s->out] = true;
    return any;
}

/* The step's test of a number, or what it made of numbers. False: no memory. */
bool
kin_capture_ask(stepper *x, const kin_step *s)
{
    kin_capture *c = x->c.out;
    const kin_vid *args = x->t->vids.at + s->args;
    PyObject *made = s->out != 0 ? x->slots[s->out] : NULL, *first = s->nargs > 0 ? capture_operand(x, args[0]) : NULL, *second = s->nargs > 1 ? capture_operand(x, args[1]) : NULL;
    bool open = hand_on_open(x, s);
    if (hands_on(s) || (made != NULL && is_tensors(made)))
        return true;
    bool truth = s->kind == KIN_STEP_CHECK && (s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_FALSE) && first != NULL && PyLong_Check(first);
    if (truth && !open) /* is it 0? */
        return push(c, KIN_SIZES_ORDER, first, NULL, NULL);
    if (!open && made != NULL && s->nargs == 3 && first != NULL && kin_is_max_or_min(first) && PyLong_Check(made) && is_number(second) && is_number(capture_operand(x, args[2])))
        return push(c, KIN_SIZES_EXTREME, second, capture_operand(x, args[2]), made);
    bool two = !open && (s->kind == KIN_STEP_BINARY || s->kind == KIN_STEP_COMPARE) && s->nargs == 2 && first != NULL && second != NULL && PyLong_Check(first) && PyLong_Check(second);
    int asks = two ? asked_by_operator(s) : KIN_SIZES_VALUE;
    if (asks < 0 || (two && x->t->vals.at[args[0]].kind == KIN_VAL_CONST && x->t->vals.at[args[1]].kind == KIN_VAL_CONST))
        return true;
    if (two)
        return push(c, (kin_sizes_asks)asks, first, second, made != NULL && PyLong_Check(made) ? made : NULL);
    for (uint32_t a = 0; a < s->nargs; a++) {
        PyObject *obj = args[a] != 0 && !is_open(x, args[a]) && x->t->vals.at[args[a]].kind != KIN_VAL_CONST ? capture_operand(x, args[a]) : NULL;
        if (is_number(obj) && !push(c, KIN_SIZES_VALUE, obj, NULL, NULL))
            return false;
    }
    return true;
}
