/* Operands of calls of torch: what is asked of them, so that the call runs no code of the program and its graph has its tensors. */
#include "core/diag/breaks.h"
#include "py/torchcalls/torchcalls.h"

/* Does torch hand calls with such an operand to Python code? */
static bool
overrides_calls(PyTypeObject *type)
{
    return type != NULL && type->tp_flags & Py_TPFLAGS_HEAPTYPE && _PyType_Lookup(type, REC_STR("__torch_function__")) != NULL;
}

/* Fixes an operand of a torch call: tensors by type, numbers and the like by value. When it may run user code: the row
 * that says so; else -1. */
static int
fix_operand(rec *r, kin_vid *vid, int depth)
{
    PyObject *obj = O(r, *vid);
    rec_virtual *f = VIRTUAL(r, *vid);
    if (f != NULL && f->kind == VIRTUAL_OBJECT && overrides_calls(r->info.at[*vid].type))
        return KIN_ROW_UNKNOWN_OPERAND;
    if (f != NULL) {
        for (uint32_t i = 0; depth < 4 && f->known && i < f->n; i++) {
            kin_vid item = f->items[i];
            int row = item && O(r, item) ? fix_operand(r, &item, depth + 1) : -1;
            if (row >= 0)
                return row;
        }
        return -1;
    }
    if (obj == NULL)
        return -1;
    if (kin_is_tensor(obj)) {
        rec_need_type(r, *vid);
        return kin_is_plain_tensor(obj) ? -1 : KIN_ROW_TENSOR_SUBCLASS;
    }
    bool made_here = r->t->vals.at[*vid].kind == KIN_VAL_STEP && !rec_is_const(r, *vid);
    if (made_here && (PyLong_CheckExact(obj) || PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj) || rec_data_of(r, *vid) != REC_NO_DATA)) {
        rec_need_type(r, *vid); /* a number from data or from outside: it flows into the graph as it comes */
        return -1;
    }
    if (rec_can_const(r, *vid)) {
        kin_vid c = rec_need_const(r, *vid);
        if (c != 0 && depth == 0)
            *vid = c;
        return -1;
    }
    return overrides_calls(rec_need_type(r, *vid)) ? KIN_ROW_UNKNOWN_OPERAND : -1;
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
    if (size == 0 || size > MOST || rec_is_unstable(r, *vid) || !rec_items_of(r, *vid, &items, &n)) {
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
    int found = -1;
    for (uint32_t i = 0; i < n; i++) {
        take_apart(r, &args[i]);
        int row = fix_operand(r, &args[i], 0);
        found = found < 0 ? row : found;
    }
    return found;
}
