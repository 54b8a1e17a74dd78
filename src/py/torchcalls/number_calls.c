/* Calls that return numbers from tensor data: int(x), float(x), bool(x), and math.sqrt(n), max(n, 0) ... of such numbers
 * (recorder/data.c). They are part of the graph.
 */
#include <stdlib.h>
#include <string.h>

#include "py/aten/make.h"
#include "py/compat/kinds.h"
#include "py/recorder/callables.h"
#include "py/torchcalls/torchcalls.h"

enum { MOST = 16 };

static bool
is_number_class(PyObject *callee)
{
    return callee == (PyObject *)&PyLong_Type || callee == (PyObject *)&PyFloat_Type || callee == (PyObject *)&PyBool_Type ||
           callee == (PyObject *)&PyComplex_Type;
}

static bool
is_number(PyObject *obj)
{
    return obj != NULL && (PyLong_CheckExact(obj) || PyFloat_CheckExact(obj) || PyBool_Check(obj) || PyComplex_CheckExact(obj));
}

/* Of a list of numbers that a tensor gave: sum, max, min, len. */
static bool
is_list_of_data(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    bool plain = obj != NULL && PyList_CheckExact(obj) && rec_data_of(r, vid) == REC_DATA_IN_GRAPH && VIRTUAL(r, vid) == NULL;
    for (Py_ssize_t i = 0; plain && i < PyList_GET_SIZE(obj); i++)
        plain = is_number(PyList_GET_ITEM(obj, i));
    return plain;
}

static bool
computes_numbers(PyObject *callee)
{
    return is_number_class(callee) || (PyCFunction_Check(callee) && rec_callable_knows(callee, KIN_KNOWS_NUMBERS));
}

static bool
fix_numbers(rec *r, const rec_args *a, kin_vid *args)
{
    bool data = false, fits = true;
    for (uint32_t i = 0; fits && i < a->npos; i++) {
        PyObject *obj = O(r, a->args[i]);
        rec_data from = rec_data_of(r, a->args[i]);
        data = data || from == REC_DATA_IN_GRAPH;
        fits = from != REC_DATA_OUTSIDE && (is_number(obj) || is_list_of_data(r, a->args[i])) &&
               (from == REC_DATA_IN_GRAPH || r->t->vals.at[a->args[i]].kind == KIN_VAL_STEP || rec_can_const(r, a->args[i]));
    }
    for (uint32_t i = 0; data && fits && i < a->npos; i++) {
        bool open = rec_data_of(r, a->args[i]) == REC_DATA_IN_GRAPH || !rec_can_const(r, a->args[i]);
        args[i] = open ? a->args[i] : rec_need_const(r, a->args[i]);
        if (open)
            rec_need_type(r, a->args[i]);
    }
    return data && fits;
}

/* A tensor that is a number, or a number that stays. */
static bool
is_candidate(rec *r, kin_vid vid, bool *tensor)
{
    PyObject *obj = O(r, vid);
    *tensor = obj != NULL && VIRTUAL(r, vid) == NULL && kin_is_plain_strided(obj) && kin_tensor_dim(obj) == 0;
    return *tensor || (obj != NULL && is_number(obj) && rec_data_of(r, vid) == REC_NO_DATA && rec_can_const(r, vid));
}

static bool
is_extreme(PyObject *callee)
{
    return PyCFunction_Check(callee) && computes_numbers(callee) && kin_is_max_or_min(callee);
}

/* An int that sizes decide, or one that stays. */
static bool
is_size_or_constant(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    return obj != NULL && PyLong_CheckExact(obj) && rec_data_of(r, vid) == REC_NO_DATA && (rec_is_size(r, vid) || rec_can_const(r, vid));
}

kin_vid
rec_extreme_of_sizes(rec *r, kin_vid callee, const kin_vid *items, uint32_t n)
{
    kin_vid all[MOST + 1];
    bool any = false, fits = n >= 2 && n <= MOST && !r->opt->custom && r->opt->dynamic != 0 && is_extreme(O(r, callee));
    for (uint32_t i = 0; fits && i < n; i++) {
        fits = is_size_or_constant(r, items[i]);
        any = any || rec_is_size(r, items[i]);
    }
    if (!fits || !any)
        return 0;
    all[0] = rec_is_const(r, callee) ? rec_as_const(r, callee) : callee;
    for (uint32_t i = 0; i < n; i++)
        all[i + 1] = rec_is_size(r, items[i]) ? items[i] : rec_need_const(r, items[i]);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, n + 1);
    kin_step *s = &r->t->steps.at[r->t->vals.at[out].step];
    s->effects = kin_step_effects(s) | KIN_GIVES_NUMBER;
    r->info.at[out].type = &PyLong_Type;
    return out;
}

/* Is it max or min, of at least two candidates, tensors among them? */
static bool
chooses(rec *r, PyObject *callee, const kin_vid *items, uint32_t n)
{
    bool any = false, tensor = false;
    bool fits = n >= 2 && is_extreme(callee);
    for (uint32_t i = 0; fits && i < n; i++) {
        fits = is_candidate(r, items[i], &tensor);
        any = any || tensor;
    }
    return fits && any;
}

static bool
have_one_dtype(PyObject *a, PyObject *b)
{
    kin_dtype first, second;
    return kin_is_tensor(a) && kin_is_tensor(b) && kin_tensor_dtype(a, &first) && kin_tensor_dtype(b, &second) && first == second;
}

/* Of two tensors of one dtype: graphs have where() in the call's place. */
static kin_vid
choose_in_graph(rec *r, kin_vid callee, kin_vid best, kin_vid item, PyObject *chosen)
{
    const kin_vid all[3] = {rec_is_const(r, callee) ? rec_as_const(r, callee) : callee, best, item};
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_TORCH, all, 3);
    rec_make_node(r, r->t->vals.at[out].step);
    rec_set_obj(r, out, chosen);
    return out;
}

/* Of a tensor and something of another class or dtype: which of them it is has consequences, so the graph asserts that it is the same one again. */
static kin_vid
choose_by_test(rec *r, int op, kin_vid best, kin_vid item, bool other)
{
    const kin_vid pair[2] = {item, best};
    PyObject *example = PyObject_RichCompare(O(r, item), O(r, best), op);
    kin_vid test = rec_step_out(r, KIN_STEP_COMPARE, KIN_STEP_TORCH, pair, 2);
    r->t->steps.at[r->t->vals.at[test].step].imm = (uint8_t)op;
    if (example != NULL)
        rec_set_obj(r, test, example);
    PyErr_Clear();
    r->asserts = true;
    uint32_t check = rec_check(r, other ? KIN_CHECK_TRUE : KIN_CHECK_FALSE, test, NULL, 0);
    r->asserts = false;
    rec_make_node(r, check);
    Py_XDECREF(example);
    return other ? item : best;
}

static kin_vid
choose(rec *r, kin_vid callee, kin_vid best, kin_vid item)
{
    int op = strcmp(kin_callable_name(O(r, callee)), "max") == 0 ? Py_GT : Py_LT;
    PyObject *a = O(r, best), *b = O(r, item);
    int other = PyObject_RichCompareBool(b, a, op);
    PyErr_Clear();
    if (have_one_dtype(a, b))
        return choose_in_graph(r, callee, best, item, other > 0 ? b : a);
    return kin_is_tensor(a) || kin_is_tensor(b) ? choose_by_test(r, op, best, item, other > 0) : other > 0 ? item : best;
}

/* max(a, b ...) and min(a, b ...) of tensors that are numbers, and of numbers: one of them, as the data decides. 0: it is something else. */
kin_vid
rec_choose(rec *r, kin_vid callee, const kin_vid *items, uint32_t n)
{
    kin_vid fixed[MOST];
    if (n > MOST || !chooses(r, O(r, callee), items, n))
        return 0;
    for (uint32_t i = 0; i < n; i++) {
        bool tensor = kin_is_tensor(O(r, items[i]));
        fixed[i] = tensor ? items[i] : rec_need_const(r, items[i]);
        if (tensor)
            rec_need_type(r, items[i]);
        if (fixed[i] == 0 || (tensor && !rec_meta(r, items[i], KIN_META_DIM | KIN_META_DTYPE)))
            return 0;
    }
    kin_vid best = fixed[0];
    for (uint32_t i = 1; i < n; i++)
        best = choose(r, callee, best, fixed[i]);
    r->skip_expected = true;
    return best;
}

static bool
call_choice(rec *r, const rec_args *a)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    PyObject *of = a->nkw == 0 && a->npos == 1 ? O(r, a->args[0]) : NULL;
    bool list = of != NULL && (PyList_CheckExact(of) || PyTuple_CheckExact(of) || kin_is_size(of)) && computes_numbers(O(r, a->callee)) && rec_items_of(r, a->args[0], &items, &n);
    kin_vid best = a->nkw == 0 ? rec_choose(r, a->callee, list ? items : a->args, list ? n : a->npos) : 0;
    kin_vid number = best == 0 && a->nkw == 0 ? rec_extreme_of_sizes(r, a->callee, list ? items : a->args, list ? n : a->npos) : 0;
    free(items);
    if (best == 0 && number == 0)
        return false;
    rec_drop(r, a->ndrop);
    if (best != 0)
        rec_push(r, best);
    else
        rec_await_result(r, number, r->t->vals.at[number].step);
    return true;
}

/* range(n) of a number that data decides: how often a loop runs is how it was recorded. The graph asserts that. */
static bool
call_range(rec *r, const rec_args *a)
{
    bool data = false, fits = O(r, a->callee) == (PyObject *)&PyRange_Type && a->nkw == 0 && a->npos <= 3;
    for (uint32_t i = 0; fits && i < a->npos; i++) {
        PyObject *obj = O(r, a->args[i]);
        rec_data from = rec_data_of(r, a->args[i]);
        data = data || from == REC_DATA_IN_GRAPH;
        fits = obj != NULL && PyLong_CheckExact(obj) && from != REC_DATA_OUTSIDE && (from == REC_DATA_IN_GRAPH || rec_can_const(r, a->args[i]));
    }
    if (!fits || !data)
        return false;
    r->asserts = true;
    for (uint32_t i = 0; i < a->npos; i++) {
        if (rec_data_of(r, a->args[i]) == REC_NO_DATA)
            rec_need_const(r, a->args[i]);
        else
            rec_make_node(r, rec_check(r, KIN_CHECK_EQ, a->args[i], O(r, a->args[i]), 0));
    }
    r->asserts = false;
    rec_drop(r, a->ndrop);
    rec_await_const(r);
    return true;
}

bool
rec_call_number(rec *r, const rec_args *a)
{
    kin_vid all[MOST + 1];
    PyObject *callee = O(r, a->callee);
    if (call_choice(r, a) || call_range(r, a))
        return true;
    if (a->nkw != 0 || a->npos == 0 || a->npos > MOST || !computes_numbers(callee) || !fix_numbers(r, a, all + 1))
        return false;
    all[0] = rec_is_const(r, a->callee) ? rec_as_const(r, a->callee) : a->callee;
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, 0, all, a->npos + 1);
    int row = -1;
    for (uint32_t i = 0; i < a->npos; i++)
        row = rec_data_of(r, a->args[i]) == REC_DATA_IN_GRAPH ? r->info.at[a->args[i]].data_row : row;
    rec_set_data(r, out, row);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

bool
rec_is_number_of_tensor(rec *r, const rec_args *a)
{
    return a->npos == 1 && a->nkw == 0 && is_number_class(O(r, a->callee)) && kin_is_plain_tensor(O(r, a->args[0]));
}

bool
rec_holds_integers(PyObject *tensor)
{
    kin_dtype dtype;
    return tensor != NULL && kin_is_plain_tensor(tensor) && kin_tensor_dtype(tensor, &dtype) && kin_dtype_is_integer(dtype);
}

void
rec_note_number(rec *r, uint32_t step, int row)
{
    for (uint32_t i = r->t->steps.len; i-- > step;)
        if (r->t->steps.at[i].kind == KIN_STEP_CALL && r->t->steps.at[i].out != 0) {
            rec_set_data(r, r->t->steps.at[i].out, row);
            return;
        }
}

/* Which argument of torch._check and its relatives is the condition: those of an error class of one's own have that first. -1: it is none of them. */
static int
condition_of_check(const char *name)
{
    static const char *const with[] = {"_check_with", "_check_tensor_all_with"};
    for (int i = 0; i < 2; i++)
        if (strcmp(name, with[i]) == 0)
            return 1;
    return strncmp(name, "_check", 6) == 0 ? 0 : -1;
}

bool
rec_checks_data(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    if (obj == NULL || VIRTUAL(r, a->callee) != NULL || !PyFunction_Check(obj) || a->npos == 0)
        return false;
    const char *name = kin_utf8(((PyFunctionObject *)obj)->func_name);
    int at = kin_is_from_module(obj, "torch") ? condition_of_check(name) : -1;
    if (at < 0 || (uint32_t)at >= a->npos)
        return false;
    PyObject *condition = O(r, a->args[at]);
    return rec_data_of(r, a->args[at]) == REC_DATA_IN_GRAPH || (strstr(name, "tensor") != NULL && condition != NULL && kin_is_tensor(condition));
}
