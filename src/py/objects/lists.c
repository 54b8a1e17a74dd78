/* Changes of lists that the recording created: their items stay known, and replay does not look at them. */
#include "py/compat/heap.h"
#include "py/objects/objects.h"

PyObject *
rec_list_extend(void)
{
    return PyDict_GetItemString(kin_type_dict(&PyList_Type), "extend");
}

/* A list or tuple as it is: what takes its items over moves references, and looks at none of them. */
bool
rec_holds_items(PyObject *obj)
{
    return PyList_CheckExact(obj) || PyTuple_CheckExact(obj);
}

/* list += items, of a list that is older than the recording. False: it is none, or taking the items runs code. */
bool
rec_extend_older(rec *r, const kin_vid *args)
{
    if (VIRTUAL(r, args[0]) != NULL || !PyList_CheckExact(O(r, args[0])) || !rec_holds_items(O(r, args[1])))
        return false;
    for (int i = 0; i < 2; i++)
        if (VIRTUAL(r, args[i]) == NULL)
            rec_need_type(r, args[i]);
    const kin_vid call[3] = {rec_const(r, rec_list_extend()), args[0], args[1]};
    rec_step(r, KIN_STEP_CALL, KIN_STEP_EFFECT, call, 3);
    rec_forget_contents(r);
    rec_drop(r, 2);
    rec_push(r, args[0]);
    return true;
}

/* The method that does what dict |= or set -= does; NULL: none. */
static const char *
method_in_place(PyTypeObject *type, int imm)
{
    switch (imm) {
    case KIN_BINARY_INPLACE_OR: return type == &PyDict_Type || type == &PySet_Type ? "update" : NULL;
    case KIN_BINARY_INPLACE_AND: return type == &PySet_Type ? "intersection_update" : NULL;
    case KIN_BINARY_INPLACE_SUBTRACT: return type == &PySet_Type ? "difference_update" : NULL;
    case KIN_BINARY_INPLACE_XOR: return type == &PySet_Type ? "symmetric_difference_update" : NULL;
    default: return NULL;
    }
}

/* dict |= dict, set -= set, of one that is older than the recording. False: it is none, or comparing keys may run code. */
bool
rec_update_older(rec *r, int imm, const kin_vid *args)
{
    PyTypeObject *type = Py_TYPE(O(r, args[0]));
    const char *method = VIRTUAL(r, args[0]) == NULL && O(r, args[1]) != NULL && Py_IS_TYPE(O(r, args[1]), type) ? method_in_place(type, imm) : NULL;
    if (method == NULL || !rec_need_no_code(r, args[0], false) || !rec_need_no_code(r, args[1], false))
        return false;
    for (int i = 0; i < 2; i++)
        if (VIRTUAL(r, args[i]) == NULL)
            rec_need_type(r, args[i]);
    const kin_vid call[3] = {rec_const(r, PyDict_GetItemString(kin_type_dict(type), method)), args[0], args[1]};
    rec_step(r, KIN_STEP_CALL, KIN_STEP_EFFECT, call, 3);
    rec_forget_contents(r);
    rec_drop(r, 2);
    rec_push(r, args[0]);
    return true;
}

rec_virtual *
rec_known_list(rec *r, kin_vid list)
{
    rec_virtual *f = VIRTUAL(r, list);
    return f != NULL && f->kind == VIRTUAL_LIST && f->known && Py_IS_TYPE(O(r, list), &PyList_Type) ? f : NULL;
}

/* slice(from, to) as a constant; 0: no memory. */
static kin_vid
bounds(rec *r, Py_ssize_t from, Py_ssize_t to)
{
    PyObject *start = PyLong_FromSsize_t(from), *stop = PyLong_FromSsize_t(to);
    PyObject *slice = start == NULL || stop == NULL ? NULL : PySlice_New(start, stop, NULL);
    kin_vid key = slice == NULL ? 0 : rec_const(r, slice);
    Py_XDECREF(start);
    Py_XDECREF(stop);
    Py_XDECREF(slice);
    PyErr_Clear();
    return key;
}

/* The list lets go of these items when it is changed, which a replay may do later than eager does: nobody may see it. */
static bool
deaths_run_no_code(rec *r, const kin_vid *items, Py_ssize_t from, Py_ssize_t to)
{
    for (Py_ssize_t i = from; i < to; i++)
        if (O(r, items[i]) == NULL || !kin_death_runs_no_code(O(r, items[i])))
            return false;
    return true;
}

bool
rec_list_splice(rec *r, kin_vid list, Py_ssize_t from, Py_ssize_t to, const kin_vid *items, uint32_t n)
{
    rec_virtual *f = rec_known_list(r, list);
    if (f != NULL && !deaths_run_no_code(r, f->items, from, to))
        return false;
    uint32_t rest = f == NULL ? 0 : f->n - (uint32_t)to;
    kin_vid *tail = f == NULL ? NULL : malloc((rest + (size_t)n + 1) * sizeof *tail), key = tail == NULL ? 0 : bounds(r, from, to);
    if (key == 0) {
        free(tail);
        return false;
    }
    if (n > 0)
        memcpy(tail, items, n * sizeof *tail);
    memcpy(tail + n, f->items + to, rest * sizeof *tail);
    kin_vid args[3] = {list, key, 0};
    if (n > 0)
        args[2] = rec_build_tuple(r, items, n, NULL);
    rec_step(r, n > 0 ? KIN_STEP_SET_SUBSCR : KIN_STEP_DEL_SUBSCR, KIN_STEP_MUTATES, args, n > 0 ? 3 : 2);
    f->n = (uint32_t)from;
    for (uint32_t i = 0; i < n + rest; i++)
        if (!rec_virtual_push(f, tail[i]))
            r->status = KIN_NOMEM;
    rec_changed(r, list);
    free(tail);
    return true;
}

/* list[key] = value, del list[key] (value: 0), with constant bounds, of a list and items that are known. False: nothing was written. */
bool
rec_list_store(rec *r, kin_vid list, kin_vid key, kin_vid value)
{
    rec_virtual *f = rec_known_list(r, list);
    PyObject *k = O(r, key);
    Py_ssize_t from, to, step = 1;
    if (f == NULL || !rec_is_const(r, key) || (!PySlice_Check(k) && (value != 0 || !PyLong_CheckExact(k))))
        return false;
    if (PySlice_Check(k)) {
        if (PySlice_Unpack(k, &from, &to, &step) < 0)
            step = 0;
        else
            PySlice_AdjustIndices(f->n, &from, &to, step);
        to = to < from ? from : to;
    } else {
        from = PyLong_AsSsize_t(k);
        from += from < 0 ? (Py_ssize_t)f->n : 0;
        to = from + 1;
    }
    PyErr_Clear();
    kin_vid *items = NULL;
    uint32_t n = 0;
    bool ok = step == 1 && from >= 0 && to <= (Py_ssize_t)f->n && (value == 0 || rec_use_up(r, value, &items, &n)) &&
              rec_list_splice(r, list, from, to, items, n);
    free(items);
    return ok;
}
