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

/* What the operator on one or two ints asks; -1: nothing that a polynomial of them does not answer. */
static int
asked_by_operator(const kin_step *s)
{
    unsigned op = s->kind == KIN_STEP_BINARY && s->imm >= KIN_BINARY_INPLACE ? s->imm - (unsigned)KIN_BINARY_INPLACE : s->imm;
    if (s->kind == KIN_STEP_COMPARE)
        return KIN_SIZES_ORDER;
    if (s->kind == KIN_STEP_UNARY)
        return s->imm != KIN_UNARY_NOT ? -1 : KIN_SIZES_VALUE; /* linear */
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

bool
kin_capture_ask_value(kin_capture *c, PyObject *number)
{
    return push(c, KIN_SIZES_VALUE, number, NULL, NULL) && !c->asks_more;
}

static bool
is_open(const stepper *x, kin_vid vid)
{
    return x->open != NULL && x->open[vid];
}

bool
capture_uses_open(const capturing *c, uint32_t step)
{
    const stepper *x = (const stepper *)c; /* which begins with it */
    bool uses = false;
    for (uint32_t a = 0; step != UINT32_MAX && !uses && a < x->t->steps.at[step].nargs; a++)
        uses = is_open(x, x->t->vids.at[x->t->steps.at[step].args + a]);
    return uses;
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
    bool one = !open && s->kind == KIN_STEP_UNARY && first != NULL && PyLong_Check(first);
    int asks = one || two ? asked_by_operator(s) : KIN_SIZES_VALUE;
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

/* -- operators ------------------------------------------------------------------------------------------------------------------ */

static bool
ask(kin_sizes_questions *out, kin_sizes_asks asks, int64_t a, int64_t b)
{
    return kin_vec_push(out, ((kin_sizes_question){.asks = asks, .a = a, .b = b})) == KIN_OK;
}

static bool
ask_exactly(kin_sizes_questions *out, kin_sizes_asks asks, int64_t a, int64_t b, int64_t gives)
{
    return kin_vec_push(out, ((kin_sizes_question){.asks = asks, .a = a, .b = b, .gives = gives})) == KIN_OK;
}

/* Places in a dim are counted from its end where they are negative, and cut off or wrapped where they lie beyond it. One that goes around more than once is this one only. */
static bool
ask_place(kin_sizes_questions *out, int64_t at, int64_t size)
{
    const int64_t most = (int64_t)1 << 62;
    if (at > most || at < -most)
        at = at < 0 ? -most : most; /* "to the end" */
    bool far = at > size || at < -size;
    bool known = ask(out, KIN_SIZES_ORDER, at, 0) && ask(out, KIN_SIZES_ORDER, at, size) && ask(out, KIN_SIZES_ORDER, -at, size);
    return known && (!far || at == most || at == -most || (ask(out, KIN_SIZES_VALUE, at, 0) && ask(out, KIN_SIZES_VALUE, size, 0)));
}

/* The int that is argument `at`, or the other one. */
static int64_t
int_or(const kin_aten *g, const kin_aten_call *call, uint32_t at, int64_t otherwise)
{
    const kin_aten_arg *arg = at < call->nargs ? &g->args.at[call->args + at] : NULL;
    return arg != NULL && arg->kind == KIN_ATEN_INT ? arg->i : otherwise;
}

/* One end of a slice: where it lies. False: no memory. */
static bool
ask_end(kin_sizes_questions *out, int64_t at, int64_t size, int64_t *lies)
{
    *lies = kin_sizes_place(at, size);
    return at == 0 || at == INT64_MAX || (ask_place(out, at, size) && ask_exactly(out, KIN_SIZES_PLACE, at, size, *lies));
}

/* `start`, `end` and step behind the dim, which is argument number `at`, of a tensor of these sizes. */
static bool
ask_cut(const kin_aten *g, const kin_aten_call *call, kin_aten_val x, uint32_t at, kin_sizes_questions *out)
{
    int64_t ndim = kin_aten_at(g, x)->ndim, dim = int_or(g, call, at, 0), from, to;
    dim += dim < 0 ? ndim : 0;
    if (dim < 0 || dim >= ndim)
        return true;
    int64_t size = kin_aten_sizes(g, x)[dim], start = int_or(g, call, at + 1, 0), end = int_or(g, call, at + 2, INT64_MAX), step = int_or(g, call, at + 3, 1);
    if (!ask_end(out, start, size, &from) || !ask_end(out, end, size, &to))
        return false;
    int64_t length = to > from ? to - from : 0;
    bool all = start == 0 && end == INT64_MAX;
    return (all || ask_exactly(out, KIN_SIZES_BETWEEN, to, from, length)) && (step < 2 || ask_exactly(out, KIN_SIZES_PARTS, length, step, (length + step - 1) / step));
}

/* The index behind the dim. */
static bool
ask_index(const kin_aten *g, const kin_aten_call *call, kin_aten_val x, uint32_t at, kin_sizes_questions *out)
{
    int64_t ndim = kin_aten_at(g, x)->ndim, dim = int_or(g, call, at, 0), lies;
    dim += dim < 0 ? ndim : 0;
    return dim < 0 || dim >= ndim || ask_end(out, int_or(g, call, at + 1, 0), kin_aten_sizes(g, x)[dim], &lies);
}

/* Without dims all elements are one dim. */
static bool
ask_roll(const kin_aten *g, const kin_aten_call *call, kin_aten_val x, kin_sizes_questions *out)
{
    int64_t shifts[KIN_IR_MAX_DIMS], dims[KIN_IR_MAX_DIMS], ndim = kin_aten_at(g, x)->ndim, all = 1;
    int n = kin_aten_ints(g, kin_aten_find(g, call, 1, "shifts"), shifts), ndims = kin_aten_ints(g, kin_aten_find(g, call, 2, "dims"), dims);
    for (int64_t d = 0; d < ndim; d++)
        all *= kin_aten_sizes(g, x)[d];
    for (int k = 0; k < n; k++) {
        int64_t dim = k < ndims ? dims[k] + (dims[k] < 0 ? ndim : 0) : -1;
        int64_t size = dim >= 0 && dim < ndim ? kin_aten_sizes(g, x)[dim] : all;
        if (!ask_place(out, shifts[k], size) || (size > 0 && !ask_exactly(out, KIN_SIZES_WRAPPED, shifts[k], size, (shifts[k] % size + size) % size)))
            return false;
    }
    return true;
}

/* It ends at the last row or at the last column. */
static bool
ask_diagonal(const kin_aten *g, const kin_aten_call *call, kin_aten_val x, kin_sizes_questions *out)
{
    int64_t offset = 0, dims[2] = {0, 1}, ndim = kin_aten_at(g, x)->ndim;
    static const char *const names[] = {"dim1", "dim2"};
    (void)kin_aten_ints(g, kin_aten_find(g, call, 1, "offset"), &offset);
    for (unsigned k = 0; k < 2; k++) {
        (void)kin_aten_ints(g, kin_aten_find(g, call, 2 + k, names[k]), &dims[k]);
        dims[k] += dims[k] < 0 ? ndim : 0;
        if (dims[k] < 0 || dims[k] >= ndim)
            return true;
    }
    int64_t rows = kin_aten_sizes(g, x)[dims[0]], columns = kin_aten_sizes(g, x)[dims[1]];
    return ask_place(out, offset, columns) && ask(out, KIN_SIZES_ORDER, -offset, rows) && ask(out, KIN_SIZES_ORDER, rows + offset, columns);
}

/* Where the last element lies, in its memory. */
static int64_t
last_of(const kin_aten *g, kin_aten_val v)
{
    int64_t last = kin_aten_at(g, v)->offset;
    for (unsigned d = 0; d < kin_aten_at(g, v)->ndim; d++)
        last += (kin_aten_sizes(g, v)[d] - 1) * kin_aten_strides(g, v)[d];
    return last;
}

/* What a reshape asks: the dims that lie behind one another in memory are one run of elements, and the new dims end where runs end, or else the elements are copied. So a tensor that
 * is copied for most sizes is a view where two of them happen to be equal. Without new dims (`to` is 0): is it contiguous? */
static bool
ask_runs(const kin_aten *g, kin_aten_val from, kin_aten_val to, kin_sizes_questions *out)
{
    const int64_t *sizes = kin_aten_sizes(g, from), *strides = kin_aten_strides(g, from);
    unsigned ndim = kin_aten_at(g, from)->ndim;
    int64_t inner = 1, run = 1, step = ndim > 0 ? strides[ndim - 1] : 1;
    for (unsigned d = 0; d < ndim; d++)
        if (sizes[d] == 0)
            return true;
    for (unsigned d = ndim; d-- > 1;) {
        inner *= sizes[d];
        run *= sizes[d];
        if (sizes[d - 1] == 1)
            continue;
        if (!ask(out, KIN_SIZES_EQUAL, strides[d - 1], run * step))
            return false;
        if (strides[d - 1] == run * step)
            continue;
        int64_t outer = 1;
        for (unsigned e = to == 0 ? 0 : kin_aten_at(g, to)->ndim; e-- > 1;) {
            outer *= kin_aten_sizes(g, to)[e];
            if (!ask(out, KIN_SIZES_EQUAL, inner, outer))
                return false;
        }
        run = 1;
        step = strides[d - 1];
    }
    return true;
}

static bool
is_contiguous(const kin_aten *g, kin_aten_val v)
{
    int64_t step = 1;
    for (unsigned d = kin_aten_at(g, v)->ndim; d-- > 0; step *= kin_aten_sizes(g, v)[d])
        if (kin_aten_sizes(g, v)[d] != 1 && kin_aten_strides(g, v)[d] != step)
            return false;
    return true;
}

/* A view of a contiguous tensor is one for all sizes. One of a copy that was made for it was none for these. */
static bool
ask_view(const kin_aten *g, const kin_aten_call *call, kin_aten_val x, kin_sizes_questions *out)
{
    uint32_t made_by = kin_aten_at(g, x)->call;
    if (made_by < g->calls.len) {
        const kin_aten_call *maker = &g->calls.at[made_by];
        unsigned op = (unsigned)kin_aten_op_of(maker);
        bool copied = op == KIN_ATEN_OP_clone_default || op == KIN_ATEN_OP_contiguous_default || op == KIN_ATEN_OP__to_copy_default;
        if (copied && maker->nargs > 0 && g->args.at[maker->args].kind == KIN_ATEN_VALUE)
            x = g->args.at[maker->args].value;
    }
    return is_contiguous(g, x) || ask_runs(g, x, call->results, out);
}

/* Sizes that stay or double are cases of their own (KIN_ATEN_RESAMPLES). */
static bool
ask_resampled(const kin_aten *g, kin_aten_val from, kin_aten_val to, kin_sizes_questions *out)
{
    bool ok = true;
    for (unsigned d = 2; d < kin_aten_at(g, from)->ndim && d < kin_aten_at(g, to)->ndim && ok; d++) {
        int64_t size = kin_aten_sizes(g, from)[d], becomes = kin_aten_sizes(g, to)[d];
        ok = ask(out, KIN_SIZES_EQUAL, size, becomes) && ask(out, KIN_SIZES_EQUAL, 2 * size, becomes);
    }
    return ok;
}

bool
kin_capture_questions(const kin_capture *capture, kin_sizes_questions *out)
{
    const kin_aten *g = capture->graph;
    bool ok = true;
    for (uint32_t q = 0; q < capture->questions.len && ok; q++)
        ok = kin_vec_push(out, capture->questions.at[q]) == KIN_OK;
    for (uint32_t c = 0; c < g->calls.len && ok; c++) {
        const kin_aten_call *call = &g->calls.at[c];
        kin_aten_val x = call->nargs > 0 && g->args.at[call->args].kind == KIN_ATEN_VALUE ? g->args.at[call->args].value : 0;
        if (x == 0 || call->nresults == 0)
            continue;
        if (kin_aten_op_is(kin_aten_op_of(call), KIN_ATEN_RESAMPLES))
            ok = ask_resampled(g, x, call->results, out);
        switch ((unsigned)kin_aten_op_of(call)) {
        case KIN_ATEN_OP_slice_Tensor: case KIN_ATEN_OP_slice_copy_Tensor:
            ok = ask_cut(g, call, x, 1, out);
            break;
        case KIN_ATEN_OP_slice_scatter_default:
            ok = ask_cut(g, call, x, 2, out);
            break;
        case KIN_ATEN_OP_slice_backward_default:
            ok = ask_cut(g, call, call->results, 2, out);
            break;
        case KIN_ATEN_OP_select_int: case KIN_ATEN_OP_select_copy_int:
            ok = ask_index(g, call, x, 1, out);
            break;
        case KIN_ATEN_OP_select_scatter_default:
            ok = ask_index(g, call, x, 2, out);
            break;
        case KIN_ATEN_OP_select_backward_default:
            ok = ask_index(g, call, call->results, 2, out);
            break;
        case KIN_ATEN_OP_roll_default:
            ok = ask_roll(g, call, x, out);
            break;
        case KIN_ATEN_OP_diagonal_default: case KIN_ATEN_OP_diagonal_copy_default:
            ok = ask_diagonal(g, call, x, out);
            break;
        case KIN_ATEN_OP_view_default: case KIN_ATEN_OP__unsafe_view_default: case KIN_ATEN_OP__reshape_alias_default:
            ok = ask_view(g, call, x, out);
            break;
        case KIN_ATEN_OP_clone_default: case KIN_ATEN_OP_contiguous_default: case KIN_ATEN_OP__to_copy_default:
            ok = ask_runs(g, x, 0, out);
            break;
        case KIN_ATEN_OP_as_strided_default:
            ok = ask(out, KIN_SIZES_ORDER, last_of(g, call->results), last_of(g, x));
            break;
        default:
            break;
        }
    }
    return ok;
}
