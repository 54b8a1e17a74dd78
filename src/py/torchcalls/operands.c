/* Operands of torch calls: what must hold for them, so that the call runs no user code and the graph gets its tensors. */
#include <string.h>

#include "core/diag/breaks.h"
#include "py/aten/modes.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/torchcalls/skip.h"
#include "py/torchcalls/torchcalls.h"

/* Does torch hand calls with such an operand to Python code? */
static bool
overrides_calls(PyTypeObject *type)
{
    return type != NULL && type->tp_flags & Py_TPFLAGS_HEAPTYPE && _PyType_Lookup(type, REC_STR("__torch_function__")) != NULL;
}

/* None, or torch's own: C functions say that there is none. */
static bool
is_of_torch(PyObject *func)
{
    PyObject *module = func != NULL && PyFunction_Check(func) ? ((PyFunctionObject *)func)->func_module : NULL;
    if (func == NULL || PyCFunction_Check(func))
        return true;
    return strncmp(kin_utf8(module), "torch.", 6) == 0;
}

/* What the class has under the name, without the class method around it; borrowed. */
static PyObject *
hook_of(PyTypeObject *type, PyObject *name)
{
    PyObject *hook = _PyType_Lookup(type, name), *inner = NULL;
    if (hook != NULL && (Py_IS_TYPE(hook, &PyClassMethod_Type) || Py_IS_TYPE(hook, &PyStaticMethod_Type)))
        inner = PyObject_GetAttrString(hook, "__func__");
    PyErr_Clear();
    Py_XDECREF(inner); /* the class method holds it */
    return inner != NULL ? inner : hook;
}

bool
rec_is_default_override(PyObject *func)
{
    return kin_is_from_module(func, "torch._tensor") &&
           PyUnicode_CompareWithASCIIString(((PyFunctionObject *)func)->func_name, "__torch_function__") == 0;
}

rec_tensor_kind
rec_kind_of_tensor(PyObject *tensor)
{
    if (kin_foreign_modes())
        return REC_TENSOR_DISPATCHES;
    if (kin_is_plain_tensor(tensor))
        return REC_TENSOR_PLAIN;
    PyObject *function = hook_of(Py_TYPE(tensor), REC_STR("__torch_function__")), *dispatch = hook_of(Py_TYPE(tensor), REC_STR("__torch_dispatch__"));
    if (!is_of_torch(function) && !kin_overrides_off())
        return REC_TENSOR_OVERRIDES;
    return is_of_torch(dispatch) ? REC_TENSOR_SUBCLASS : REC_TENSOR_DISPATCHES;
}

bool
rec_reads_as_tensor(PyObject *obj)
{
    rec_tensor_kind kind = kin_is_tensor(obj) ? rec_kind_of_tensor(obj) : REC_TENSOR_OVERRIDES;
    return kind == REC_TENSOR_PLAIN || kind == REC_TENSOR_SUBCLASS;
}

/* A call that the class's __torch_dispatch__ takes over is a node of the graph, which is called as it is. What was known of the program's objects is
 * asked again behind it; not in graphs for custom backends, where the code only computes: they go on behind such a node. */
static int
row_of_dispatch(const rec *r, PyObject *tensor)
{
    PyObject *hook = r->opt->custom && !kin_foreign_modes() ? hook_of(Py_TYPE(tensor), REC_STR("__torch_dispatch__")) : NULL;
    PyObject *no_code = hook != NULL ? kin_import_call("kintsugi._operators", "only_computes", hook) : NULL;
    bool computes = no_code == Py_True;
    PyErr_Clear();
    Py_XDECREF(no_code);
    return computes ? REC_RUNS_NO_CODE : REC_RUNS_CODE;
}

static int
row_of_tensor(rec *r, kin_vid vid)
{
    rec_tensor_kind kind = rec_kind_of_tensor(O(r, vid));
    if (kind == REC_TENSOR_PLAIN) {
        rec_need_type(r, vid);
        return REC_RUNS_NO_CODE;
    }
    rec_need_attrs(r, vid);
    r->skip_expected = true; /* torch's own code for such classes is Python */
    if (kind == REC_TENSOR_DISPATCHES)
        return row_of_dispatch(r, O(r, vid));
    PyObject *hook = hook_of(Py_TYPE(O(r, vid)), REC_STR("__torch_dispatch__"));
    r->dispatched = r->dispatched || (hook != NULL && PyFunction_Check(hook));
    return kind == REC_TENSOR_OVERRIDES && !r->overrides_off ? KIN_ROW_TENSOR_SUBCLASS : REC_RUNS_NO_CODE;
}

/* Of two operands' answers: a row of breaks.def before code that is part of the call. */
static int
worse_of(int a, int b)
{
    return a >= 0 ? a : b >= 0 || a == REC_RUNS_NO_CODE ? b : a;
}

/* How many items a container of the program has is a constant of a custom backend's graph, as for stock, until it is seen to change. */
static bool
is_fixed_length(rec *r, kin_vid vid)
{
    static PyObject *len; /* borrowed, of the builtins */
    const kin_step *maker = &r->t->steps.at[r->t->vals.at[vid].step];
    if (len == NULL)
        len = PyDict_GetItemString(PyEval_GetBuiltins(), "len");
    return r->opt->custom && maker->kind == KIN_STEP_CALL && maker->nargs == 2 && O(r, r->t->vids.at[maker->args]) == len &&
           !rec_varies(r, vid) && rec_can_const(r, vid);
}

/* Fixes an operand of a torch call: tensors by type, numbers and the like by value. When it may run user code: the row
 * that says so, or RUNS_CODE; else RUNS_NO_CODE. */
static int
fix_operand(rec *r, kin_vid *vid, int depth)
{
    PyObject *obj = O(r, *vid);
    rec_virtual *f = VIRTUAL(r, *vid);
    if (f != NULL && f->kind == VIRTUAL_OBJECT && overrides_calls(r->info.at[*vid].type))
        return KIN_ROW_UNKNOWN_OPERAND;
    if (f != NULL) {
        int found = REC_RUNS_NO_CODE;
        for (uint32_t i = 0; depth < 4 && f->known && i < f->n; i++) {
            kin_vid item = f->items[i];
            found = worse_of(found, item && O(r, item) ? fix_operand(r, &item, depth + 1) : REC_RUNS_NO_CODE);
        }
        return found;
    }
    if (obj == NULL)
        return REC_RUNS_NO_CODE;
    if (kin_is_tensor(obj))
        return row_of_tensor(r, *vid);
    bool made_here = r->t->vals.at[*vid].kind == KIN_VAL_STEP && !rec_is_const(r, *vid) && !is_fixed_length(r, *vid);
    if (made_here && (PyLong_CheckExact(obj) || PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj) || rec_data_of(r, *vid) != REC_NO_DATA)) {
        rec_need_type(r, *vid); /* a number from data or from outside: it flows into the graph as it comes */
        return REC_RUNS_NO_CODE;
    }
    if (rec_can_const(r, *vid)) {
        kin_vid c = rec_need_const(r, *vid);
        if (c != 0 && depth == 0)
            *vid = c;
        return REC_RUNS_NO_CODE;
    }
    return overrides_calls(rec_need_type(r, *vid)) ? KIN_ROW_UNKNOWN_OPERAND : REC_RUNS_NO_CODE;
}

/* Is it a list that was filled after it was made, with numbers, or one of such lists? */
static bool
is_filled_with_numbers(rec *r, kin_vid vid, int depth)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    if (f == NULL || f->kind != VIRTUAL_LIST || !f->known || f->n == 0 || depth > 2)
        return false;
    for (uint32_t i = 0; i < f->n; i++) {
        PyObject *obj = f->items[i] == 0 ? NULL : O(r, f->items[i]);
        bool number = obj != NULL && (PyBool_Check(obj) || PyLong_CheckExact(obj) || PyFloat_CheckExact(obj));
        if (!number && !is_filled_with_numbers(r, f->items[i], depth + 1))
            return false;
    }
    return true;
}

/* A list that the recording has made and filled is handed over as one made of what is in it now: it may have been made before the graph, and be
 * filled between its calls. */
static void
make_again(rec *r, kin_vid *vid, int depth)
{
    enum { MOST = 250 };
    const rec_virtual *f = VIRTUAL(r, *vid);
    if (f == NULL || f->kind != VIRTUAL_LIST || !f->known || f->n > MOST || r->info.at[*vid].type != &PyList_Type ||
        !(r->opt->custom ? depth == 0 : is_filled_with_numbers(r, *vid, depth)))
        return;
    kin_vid items[MOST];
    uint32_t n = f->n;
    memcpy(items, f->items, n * sizeof *items);
    for (uint32_t i = 0; i < n && !r->opt->custom; i++)
        make_again(r, &items[i], depth + 1);
    *vid = rec_build_list(r, items, n);
}

/* A list or tuple of tensors that the program keeps (the weights of an nn.LSTM) is handed over as one made of what is in it, so that the
 * graph has its tensors. Torch calls look at such an operand and forget it. */
static void
take_apart(rec *r, kin_vid *vid)
{
    enum { MOST = 64 };
    PyObject *obj = O(r, *vid);
    kin_vid *items = NULL;
    uint32_t n;
    bool list = obj != NULL && PyList_CheckExact(obj);
    if ((!list && (obj == NULL || !PyTuple_CheckExact(obj))) || VIRTUAL(r, *vid) != NULL || r->t->vals.at[*vid].kind != KIN_VAL_SRC)
        return;
    Py_ssize_t size = PySequence_Fast_GET_SIZE(obj);
    for (Py_ssize_t i = 0; size <= MOST && i < size; i++)
        if (!kin_is_plain_tensor(PySequence_Fast_GET_ITEM(obj, i)))
            return;
    if (size == 0 || size > MOST || rec_is_dynamic(r, *vid) || !rec_items_of(r, *vid, &items, &n)) {
        free(items);
        return;
    }
    *vid = rec_step_out(r, list ? KIN_STEP_BUILD_LIST : KIN_STEP_BUILD_TUPLE, KIN_STEP_PURE, items, n);
    rec_make_virtual(r, *vid, list ? VIRTUAL_LIST : VIRTUAL_TUPLE, items, n, true);
    free(items);
}

int
rec_fix_operands(rec *r, kin_vid *args, uint32_t n)
{
    int found = REC_RUNS_NO_CODE;
    for (uint32_t i = 0; i < n; i++) {
        if (VIRTUAL(r, args[i]) != NULL)
            make_again(r, &args[i], 0);
        else
            take_apart(r, &args[i]);
        found = worse_of(found, fix_operand(r, &args[i], 0));
    }
    return worse_of(found, kin_foreign_modes() ? REC_RUNS_CODE : REC_RUNS_NO_CODE);
}
