/* Calls that give numbers which the data of tensors decides: int(x), float(x), bool(x), and math.sqrt(n), max(n, 0) ... of such numbers
 * (recorder/data.c). They are part of the graph.
 */
#include <string.h>

#include "py/aten/make.h"
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
    static const char *const names[] = {"abs", "round", "max", "min", "pow", "sum", NULL};
    if (is_number_class(callee))
        return true;
    if (!PyCFunction_Check(callee))
        return false;
    PyObject *self = PyCFunction_GET_SELF(callee);
    const char *module = self != NULL && PyModule_Check(self) ? PyModule_GetName(self) : "";
    PyErr_Clear();
    return module != NULL && (strcmp(module, "math") == 0 || (strcmp(module, "builtins") == 0 && rec_in_list(kin_callable_name(callee), names)));
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

/* max(a, b) and min(a, b) of two tensors that are numbers, of one dtype: one of the two, as the data decides. Graphs have where() in its place. */
static bool
chooses_tensor(rec *r, const rec_args *a)
{
    kin_dtype first, second;
    PyObject *callee = O(r, a->callee);
    bool chooses = a->npos == 2 && a->nkw == 0 && PyCFunction_Check(callee) && computes_numbers(callee) &&
                   (strcmp(kin_callable_name(callee), "max") == 0 || strcmp(kin_callable_name(callee), "min") == 0);
    for (uint32_t i = 0; chooses && i < 2; i++) {
        PyObject *obj = O(r, a->args[i]);
        chooses = obj != NULL && VIRTUAL(r, a->args[i]) == NULL && kin_is_plain_strided(obj) && kin_tensor_dim(obj) == 0;
    }
    return chooses && kin_tensor_dtype(O(r, a->args[0]), &first) && kin_tensor_dtype(O(r, a->args[1]), &second) && first == second;
}

static bool
call_choice(rec *r, const rec_args *a)
{
    kin_vid all[3] = {rec_is_const(r, a->callee) ? rec_as_const(r, a->callee) : a->callee, a->args[0], a->args[1]};
    for (uint32_t i = 1; i < 3; i++) {
        rec_need_type(r, all[i]);
        if (!rec_meta(r, all[i], KIN_META_DIM | KIN_META_DTYPE))
            return false;
    }
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_TORCH, all, 3);
    uint32_t step = r->t->vals.at[out].step;
    rec_make_node(r, step);
    r->skip_expected = true;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, step);
    return true;
}

bool
rec_call_number(rec *r, const rec_args *a)
{
    kin_vid all[MOST + 1];
    PyObject *callee = O(r, a->callee);
    if (chooses_tensor(r, a))
        return call_choice(r, a);
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
    PyObject *module = ((PyFunctionObject *)obj)->func_module;
    const char *name = PyUnicode_AsUTF8(((PyFunctionObject *)obj)->func_name);
    bool of_torch = module != NULL && PyUnicode_Check(module) && PyUnicode_CompareWithASCIIString(module, "torch") == 0;
    int at = of_torch && name != NULL ? condition_of_check(name) : -1;
    if (at < 0 || (uint32_t)at >= a->npos)
        return false;
    PyObject *condition = O(r, a->args[at]);
    return rec_data_of(r, a->args[at]) == REC_DATA_IN_GRAPH || (strstr(name, "tensor") != NULL && condition != NULL && kin_is_tensor(condition));
}
