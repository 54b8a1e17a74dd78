/* Models of builtins about lengths and items: len, iter and next, enumerate, zip, all, sum ... */
#include "core/diag/breaks.h"
#include "py/aten/modes.h"
#include "py/compat/imports.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* False: it is like other objects. */
static bool
len_of_tensor(rec *r, const rec_args *a, kin_vid v, bool *known)
{
    PyObject *obj = O(r, v);
    *known = true;
    if (kin_foreign_modes()) { /* the mode may answer */
        rec_call_step(r, a, KIN_STEP_OPAQUE, -1);
        return true;
    }
    if (!kin_is_plain_strided(obj))
        return false;
    rec_need_type(r, v);
    r->skip_expected = true;
    if (kin_tensor_dim(obj) > 0 && rec_dynamic_dims(r, v) & 1) {
        *known = rec_model_value(r, a, rec_size(r, v, 0));
        return true;
    }
    *known = rec_meta(r, v, KIN_META_SIZES);
    if (*known) {
        rec_drop(r, a->ndrop);
        rec_await_const(r);
    }
    return true;
}

static bool
model_len(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw)
        return false;
    kin_vid v = a->args[0];
    PyObject *obj = O(r, v);
    rec_virtual *f = VIRTUAL(r, v);
    if ((f != NULL && f->known && (f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_DICT)) ||
        rec_named_items(r, v) != NULL ||
        (rec_mapping(r, v) != NULL && (rec_proxied(r, v) != v || Py_TYPE(obj)->tp_as_mapping->mp_length == PyDict_Type.tp_as_mapping->mp_length))) {
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    bool known;
    if (kin_is_tensor(obj) && len_of_tensor(r, a, v, &known))
        return known;
    if (rec_can_const(r, v) && rec_is_plain_value(obj)) {
        rec_need_const(r, v);
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    PyTypeObject *tp = Py_TYPE(obj);
    bool named = PyTuple_Check(obj) && rec_reads_as_tuple(tp);
    bool path = tp == &PyList_Type || named || tp == &PyDict_Type || tp == &PySet_Type ||
                tp == &PyFrozenSet_Type;
    /* Nothing in a region may ask an older container: how many tensors a generator goes over is a guard there, also where it has changed. */
    bool guarded = f == NULL && path && r->region != NULL && rec_leads_to_tensor(obj, NULL);
    if (f == NULL && path && (guarded || !rec_is_dynamic(r, v))) {
        rec_root(r, v);
        if (named && tp != &PyTuple_Type)
            rec_need_version(r, v);
        else
            rec_need_type(r, v);
        rec_need_len(r, v, PyObject_Size(obj));
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    PyObject *own = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(tp, REC_STR("__len__")) : NULL;
    if (own != NULL && PyFunction_Check(own) && rec_can_inline(r, own)) {
        rec_need_attrs(r, v);
        rec_lookup(r, tp, REC_STR("__len__"));
        return rec_inline(r, &(rec_args){.callee = rec_found(r, tp, REC_STR("__len__"), own), .args = &v, .npos = 1, .ndrop = a->ndrop}, NULL, 0, KIN_RESUME_PUSH, 0);
    }
    if (own != NULL && PyFunction_Check(own))
        return false;
    if (f == NULL)
        rec_need_type(r, v);
    rec_model_step(r, a, 0);
    return true;
}

/* Frame objects follow their frame as it runs: the rest of such a call is CPython's. */
bool
rec_model_frame(rec *r, const rec_args *a)
{
    rec_stop_row(r, KIN_ROW_FRAME_INSPECTION, "the program inspects its own frames");
    return true;
}

static bool
model_iter(rec *r, const rec_args *a)
{
    return a->npos == 1 && rec_iter_of(r, a->args[0], a->ndrop);
}

static bool
model_next(rec *r, const rec_args *a)
{
    kin_vid item;
    if (a->npos == 0 || !rec_is_known_iter(r, a->args[0]) || !rec_next_item(r, a->args[0], &item))
        return false;
    if (item == 0 && a->npos == 1) {
        r->raised_by_c = PyExc_StopIteration;
        return rec_model_value(r, a, rec_const(r, Py_None));
    }
    if (item == 0)
        return a->npos == 2 && rec_model_value(r, a, a->args[1]);
    return rec_model_value(r, a, item);
}

static bool
virtual_iterator(rec *r, const rec_args *a, const kin_vid *items, uint32_t n)
{
    unsigned over = rec_kinds_gone_over(r, a->args, a->npos);
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_ITER, items, n, true);
    if (f != NULL)
        f->over = (uint8_t)over;
    if (kin_vec_push(&r->iters, out) != KIN_OK) /* over one or several containers: a change of one of that kind ends its use */
        r->status = KIN_NOMEM;
    return true;
}

/* The value of the one keyword `name`, constant and of this type; NULL: the call has others. */
static PyObject *
only_keyword(rec *r, const rec_args *a, const char *name, PyTypeObject *tp)
{
    if (a->nkw != 1 || !rec_is_keyword(a, 0, name))
        return NULL;
    kin_vid value = a->args[a->npos];
    return Py_TYPE(O(r, value)) == tp && rec_need_const(r, value) != 0 ? O(r, value) : NULL;
}

static bool
model_enumerate(rec *r, const rec_args *a)
{
    kin_vid *items = NULL;
    uint32_t n;
    long start = 0;
    if (a->nkw != 0 || a->npos == 2) {
        PyObject *first = a->nkw ? only_keyword(r, a, "start", &PyLong_Type) : O(r, a->args[1]);
        if (first == NULL || !PyLong_CheckExact(first) || (a->npos == 2 && rec_need_const(r, a->args[1]) == 0))
            return false;
        start = PyLong_AsLong(first);
        PyErr_Clear();
        if (start < -1000000 || start > 1000000) /* errors included */
            return false;
    }
    kin_vid args[2];
    if (a->npos + a->nkw > 2 || a->npos < 1)
        return false;
    memcpy(args, a->args, (a->npos + a->nkw) * sizeof *args);
    if (rec_has_open_rows(r, args[0]) || !rec_iterated(r, &args[0], &items, &n))
        return false;
    for (uint32_t i = 0; i < n; i++) {
        PyObject *number = PyLong_FromLong(start + (long)i);
        kin_vid pair[2] = {rec_const(r, number), items[i]};
        Py_XDECREF(number);
        items[i] = rec_build_tuple(r, pair, 2, NULL);
    }
    rec_args changed = *a;
    changed.args = args;
    virtual_iterator(r, &changed, items, n);
    free(items);
    return true;
}

/* The lists that a zip goes through; tensors last, since nodes of the graph are written for their rows. */
static bool
zipped_lists(rec *r, kin_vid *args, uint32_t n, kin_vid **lists, uint32_t *counts)
{
    bool ok = true;
    for (int tensors = 0; tensors < 2; tensors++)
        for (uint32_t k = 0; ok && k < n; k++)
            if (rec_has_open_rows(r, args[k]))
                ok = false;
            else if (lists[k] == NULL && (O(r, args[k]) != NULL && kin_is_tensor(O(r, args[k]))) == tensors)
                ok = rec_iterated(r, &args[k], &lists[k], &counts[k]);
    return ok;
}

static bool
model_zip(rec *r, const rec_args *a)
{
    kin_vid *lists[8] = {0}, args[9];
    uint32_t n = UINT32_MAX, counts[8] = {0};
    PyObject *strict = a->nkw ? only_keyword(r, a, "strict", &PyBool_Type) : Py_False;
    bool ok = a->npos > 0 && a->npos <= 8 && strict != NULL;
    if (ok)
        memcpy(args, a->args, (a->npos + a->nkw) * sizeof *args);
    ok = ok && zipped_lists(r, args, a->npos, lists, counts);
    for (uint32_t k = 0; ok && k < a->npos; k++) {
        ok = strict == Py_False || k == 0 || counts[k] == n;
        n = counts[k] < n ? counts[k] : n;
    }
    for (uint32_t i = 0; ok && i < n; i++) {
        kin_vid row[8];
        for (uint32_t j = 0; j < a->npos; j++)
            row[j] = lists[j][i];
        lists[0][i] = rec_build_tuple(r, row, a->npos, NULL);
    }
    rec_args changed = *a;
    changed.args = args;
    if (ok)
        virtual_iterator(r, &changed, lists[0], n);
    for (uint32_t j = 0; j < 8; j++)
        free(lists[j]);
    return ok;
}

static bool
model_reversed(rec *r, const rec_args *a)
{
    kin_vid *items = NULL;
    uint32_t n;
    PyObject *obj = a->npos == 1 ? O(r, a->args[0]) : NULL;
    if (obj == NULL || (!PyList_CheckExact(obj) && !PyTuple_CheckExact(obj) && !PyDict_CheckExact(obj) && !PyUnicode_CheckExact(obj) &&
         Py_TYPE(obj) != &PyRange_Type) ||
        (VIRTUAL(r, a->args[0]) == NULL && PyDict_CheckExact(obj) && rec_is_dynamic(r, a->args[0])))
        return false;
    kin_vid from = a->args[0];
    if (rec_has_open_rows(r, from) || !rec_iterated(r, &from, &items, &n))
        return false;
    for (uint32_t i = 0; i < n / 2; i++) {
        kin_vid t = items[i];
        items[i] = items[n - 1 - i];
        items[n - 1 - i] = t;
    }
    virtual_iterator(r, a, items, n);
    free(items);
    return true;
}

static bool
model_all_any(rec *r, const rec_args *a, bool all)
{
    kin_vid *items = NULL;
    uint32_t n;
    bool one = a->npos == 1 && a->nkw == 0, constant = one && VIRTUAL(r, a->args[0]) == NULL && PyTuple_Check(O(r, a->args[0])) && rec_can_fold(r, a->args[0]);
    if (constant)
        rec_need_const(r, a->args[0]);
    if (!one || (!constant && VIRTUAL(r, a->args[0]) == NULL) || !rec_items_of(r, a->args[0], &items, &n))
        return false;
    bool answer = all, known = true;
    for (uint32_t i = 0; known && i < n && answer == all; i++) {
        int truth = O(r, items[i]) ? rec_truth(r, items[i]) : -1;
        known = truth >= 0;
        answer = truth > 0;
    }
    free(items);
    return known && rec_model_bool(r, a, answer);
}

static bool
model_all(rec *r, const rec_args *a)
{
    return model_all_any(r, a, true);
}

static bool
model_any(rec *r, const rec_args *a)
{
    return model_all_any(r, a, false);
}

/* What sum() begins with; 0: it is not a number or tensor. */
static kin_vid
start_of_sum(rec *r, const rec_args *a)
{
    PyObject *zero = PyLong_FromLong(0);
    kin_vid start = a->npos + a->nkw == 2 ? a->args[1] : rec_const(r, zero);
    Py_XDECREF(zero);
    PyObject *obj = O(r, start);
    if (obj == NULL || kin_is_plain_tensor(obj))
        return obj != NULL ? start : 0;
    return rec_can_const(r, start) ? rec_need_const(r, start) : 0;
}

bool
rec_is_number(PyObject *obj)
{
    return obj != NULL && (PyLong_CheckExact(obj) || PyFloat_CheckExact(obj) || PyComplex_CheckExact(obj) || PyBool_Check(obj));
}

uint32_t
rec_sum_of_numbers(rec *r, kin_vid *acc, const kin_vid *items, uint32_t n)
{
    uint32_t count = 0;
    while (rec_is_const(r, *acc) && count < n && rec_is_number(O(r, items[count])) && rec_can_const(r, items[count]))
        count++;
    PyObject *numbers = PyList_New(count), *sum = NULL;
    for (uint32_t i = 0; numbers != NULL && i < count; i++)
        PyList_SET_ITEM(numbers, i, Py_NewRef(O(r, items[i])));
    if (numbers != NULL && count > 0)
        sum = PyObject_CallFunctionObjArgs(PyDict_GetItemString(PyEval_GetBuiltins(), "sum"), numbers, O(r, *acc), NULL);
    if (sum != NULL)
        *acc = rec_const(r, sum);
    PyErr_Clear();
    Py_XDECREF(numbers);
    count = sum != NULL ? count : 0;
    Py_XDECREF(sum);
    return count;
}

/* May sum() add it to tensors? */
static bool
is_summand(rec *r, kin_vid item, bool *tensors)
{
    PyObject *obj = O(r, item);
    bool tensor = obj != NULL && kin_is_plain_tensor(obj);
    *tensors = *tensors || tensor;
    return tensor || (rec_is_number(obj) && rec_can_const(r, item) && rec_need_const(r, item) != 0);
}

enum { MOST_SUMMED = 250 };

/* The items of a known list or tuple behind those that are there. *only: the one part that has any, 0 behind a second one. */
static bool
add_part(rec *r, PyTypeObject *tp, kin_vid part, kin_vid *all, uint32_t *n, kin_vid *only)
{
    kin_vid *items = NULL;
    uint32_t count = 0;
    bool known = O(r, part) != NULL && Py_TYPE(O(r, part)) == tp && rec_items_of(r, part, &items, &count) && *n + count <= MOST_SUMMED;
    if (known && count > 0) {
        *only = *n == 0 ? part : 0;
        memcpy(all + *n, items, count * sizeof *all);
        *n += count;
    }
    free(items);
    return known;
}

/* sum(parts, ()) and sum(parts, []) of known parts: what is added to nothing is no new tuple. */
static bool
sum_of_sequences(rec *r, const rec_args *a)
{
    PyObject *start = a->npos == 2 && a->nkw == 0 ? O(r, a->args[1]) : NULL;
    bool tuple = start != NULL && PyTuple_CheckExact(start);
    kin_vid *parts = NULL, all[MOST_SUMMED], only = 0;
    uint32_t nparts = 0, n = 0;
    if (start == NULL || !(tuple || PyList_CheckExact(start)) || VIRTUAL(r, a->args[0]) == NULL || !rec_items_of(r, a->args[0], &parts, &nparts))
        return false;
    bool known = nparts > 0 && add_part(r, Py_TYPE(start), a->args[1], all, &n, &only);
    for (uint32_t i = 0; known && i < nparts; i++)
        known = add_part(r, Py_TYPE(start), parts[i], all, &n, &only);
    free(parts);
    if (!known)
        return false;
    if (tuple && (n == 0 || only != 0))
        return rec_model_value(r, a, n == 0 ? a->args[1] : only);
    return rec_model_value(r, a, tuple ? rec_build_tuple(r, all, n, NULL) : rec_build_list(r, all, n));
}

/* sum() of tensors, and of numbers among them: the additions it makes are nodes of the graph. */
static bool
model_sum(rec *r, const rec_args *a)
{
    kin_vid *items = NULL, from = a->npos ? a->args[0] : 0, acc;
    uint32_t n;
    bool named = a->nkw == 1 && a->npos == 1 && rec_is_keyword(a, 0, "start");
    if (sum_of_sequences(r, a) || rec_model_pure(r, a))
        return true;
    if (a->npos < 1 || a->npos > 2 || (a->nkw && !named) || (acc = start_of_sum(r, a)) == 0)
        return false;
    if (!(rec_iterated(r, &from, &items, &n) || rec_copied_items(r, from, 500, &items, &n)) || n == 0 || n > 500) {
        free(items);
        return false;
    }
    bool ok = true, tensors = from != a->args[0];
    for (uint32_t i = 0; ok && from == a->args[0] && i < n; i++)
        ok = is_summand(r, items[i], &tensors);
    ok = ok && tensors;
    for (uint32_t i = ok ? rec_sum_of_numbers(r, &acc, items, n) : n; i < n; i++) {
        if (O(r, items[i]) != NULL)
            rec_need_type(r, items[i]);
        kin_vid pair[2] = {acc, items[i]};
        acc = rec_step_out(r, KIN_STEP_BINARY, KIN_STEP_TORCH, pair, 2);
    }
    free(items);
    if (!ok)
        return false;
    r->skip_expected = true;
    rec_drop(r, a->ndrop);
    rec_await_result(r, acc, r->t->vals.at[acc].step);
    return true;
}

const rec_method_row rec_item_rows[] = {
    {"len", model_len}, {"iter", model_iter}, {"next", model_next}, {"enumerate", model_enumerate},
    {"zip", model_zip}, {"reversed", model_reversed}, {"all", model_all}, {"any", model_any}, {"sum", model_sum}, {NULL, NULL}};

/* -- where no instruction calls them: map(zip, rows, others) ---------------------------------------------------------------- */

/* The model of a function that makes an iterator over containers; NULL: it is none. */
static bool (*
model_of(PyObject *callee))(rec *r, const rec_args *a)
{
    static PyObject *iter;
    if (callee == kin_import_once(&iter, "builtins", "iter"))
        return model_iter;
    return callee == (PyObject *)&PyZip_Type        ? model_zip
           : callee == (PyObject *)&PyEnum_Type     ? model_enumerate
           : callee == (PyObject *)&PyReversed_Type ? model_reversed
                                                    : NULL;
}

bool
rec_makes_iterator(PyObject *callee)
{
    return model_of(callee) != NULL;
}

/* Is it a list, tuple or dict that is there? */
static bool
is_container(rec *r, kin_vid vid)
{
    PyObject *obj = vid != 0 ? O(r, vid) : NULL;
    return obj != NULL && (PyList_CheckExact(obj) || PyTuple_CheckExact(obj) || PyDict_CheckExact(obj));
}

kin_vid
rec_apply_iterator(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    rec_frame *f = r->top, before = *f;
    const rec_args a = {.callee = callee, .args = args, .npos = n};
    for (uint32_t i = 0; i < n; i++)
        if (!is_container(r, args[i]))
            return 0;
    if (f->nlocals + f->sp >= f->nslots || !model_of(O(r, callee))(r, &a))
        return 0;
    kin_vid made = rec_peek(r, 0);
    rec_drop(r, f->sp - before.sp);
    f->await = before.await; /* the object comes when the program is handed it */
    f->await_slot = before.await_slot;
    f->await_vid = before.await_vid;
    f->await_step = before.await_step;
    return made;
}
