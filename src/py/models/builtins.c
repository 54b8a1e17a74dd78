/* Models of C callables: their effect on the symbolic stack, so that a call needs no step, a step that runs no code, or a change of a virtual
 * object. Found by the identity of the callable, since names can be rebound. A callable without a model is opaque.
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/compat/kinds.h"
#include "py/recorder/callables.h"
#include "core/diag/breaks.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

typedef bool (*model_fn)(rec *r, const rec_args *a);

/* -- helpers ------------------------------------------------------------------------------------------------------------ */

bool
rec_model_value(rec *r, const rec_args *a, kin_vid value)
{
    rec_drop(r, a->ndrop);
    if (O(r, value) != NULL)
        rec_push(r, value);
    else
        rec_await_result(r, value, 0);
    return true;
}

bool
rec_model_bool(rec *r, const rec_args *a, bool value)
{
    return rec_model_value(r, a, rec_const(r, value ? Py_True : Py_False));
}

/* Leaves the call as a step that runs no Python code. */
kin_vid
rec_model_step(rec *r, const rec_args *a, unsigned flags)
{
    kin_vid all[256];
    all[0] = a->callee;
    memcpy(all + 1, a->args, (a->npos + a->nkw) * sizeof *all);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, flags, all, a->npos + a->nkw + 1);
    uint32_t s = r->t->vals.at[out].step;
    kin_ref ref = a->nkw ? rec_ref(r, a->kwnames) : 0;
    r->t->steps.at[s].ref = ref;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, s);
    return out;
}

/* object.__setattr__, dict.__setitem__ ... on an object that the recording has made and nobody else has seen: a change of it,
 * which goes with it if nobody wants it. False: the call is none of these. */
static bool
store_by_slot(rec *r, const rec_args *a)
{
    PyObject *callee = O(r, a->callee);
    if (callee == NULL || !Py_IS_TYPE(callee, &PyWrapperDescr_Type) || !rec_is_const(r, a->callee) || a->npos != 3 || a->nkw)
        return false;
    const char *name = ((PyWrapperDescrObject *)callee)->d_base->name;
    kin_vid args[3] = {a->args[0], a->args[1], a->args[2]};
    PyObject *ref = (PyObject *)PyDescr_TYPE(callee);
    bool attr = (rec_callable_effects(callee) & (KIN_BY_NAME | KIN_STORES)) == (KIN_BY_NAME | KIN_STORES);
    if (!attr && (strcmp(name, "__setitem__") != 0 || !PyType_IsSubtype((PyTypeObject *)ref, &PyDict_Type)))
        return false;
    if (attr) {
        ref = O(r, args[1]);
        args[1] = args[2];
    }
    uint32_t s = rec_step(r, attr ? KIN_STEP_SETATTR : KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, attr ? 2 : 3);
    kin_ref number = rec_ref(r, ref);
    r->t->steps.at[s].ref = number;
    r->t->steps.at[s].imm = 1;
    rec_drop(r, a->ndrop);
    rec_push(r, rec_const(r, Py_None));
    return true;
}

/* list.append, which gives None. */
static void
append_in_order(rec *r, const rec_args *a)
{
    kin_vid all[3] = {a->callee, a->args[0], a->args[1]};
    rec_step(r, KIN_STEP_CALL, KIN_STEP_EFFECT, all, 3);
    (void)rec_model_value(r, a, rec_const(r, Py_None));
}

/* A call that stores `value` into its first argument, at the place if one is given, and does nothing else. */
void
rec_model_store(rec *r, const rec_args *a, kin_vid value, rec_place *place)
{
    rec_virtual *f = VIRTUAL(r, a->args[0]);
    bool inside = f != NULL && !f->escaped, followed = f == NULL && place != NULL && rec_begin_write(r, place);
    if (followed && place->kind == KIN_PLACE_END_OF_LIST && rec_defer_append(r, a)) {
        rec_end_write(r, place, value);
        (void)rec_model_value(r, a, rec_const(r, Py_None));
        return;
    }
    if (followed && place->kind == KIN_PLACE_END_OF_LIST) {
        append_in_order(r, a);
        rec_end_write(r, place, value);
        return;
    }
    r->keep_inside = inside;
    if (!inside || f->kind != VIRTUAL_OBJECT || !store_by_slot(r, a))
        rec_model_step(r, a, KIN_STEP_EFFECT);
    r->keep_inside = false;
    if (inside) {
        if (f->kind != VIRTUAL_OBJECT || !f->known) { /* reachable through it from now on */
            if (!rec_virtual_push(f, value))
                r->status = KIN_NOMEM;
        }
    } else if (f != NULL) {
        rec_changed(r, a->args[0]);
    } else if (followed) {
        rec_end_write(r, place, value);
    } else {
        rec_forget_contents(r);
    }
}

static bool
all_const(rec *r, const rec_args *a)
{
    for (uint32_t i = 0; i < a->npos + a->nkw; i++)
        if (!rec_can_const(r, a->args[i]) || !rec_is_value(O(r, a->args[i])))
            return false;
    for (uint32_t i = 0; i < a->npos + a->nkw; i++)
        rec_need_const(r, a->args[i]);
    return true;
}

/* Pure on constants; else asked again at replay when every operand is a builtin value. Tensors in a container are
 * computed with (sum, max): not asked. */
/* str(exception), repr(exception) */
static bool
model_words(rec *r, const rec_args *a)
{
    static PyObject *repr;
    PyObject *callee = O(r, a->callee);
    bool is_repr = callee == kin_import_once(&repr, "builtins", "repr");
    if (a->npos != 1 || a->nkw != 0 || (!is_repr && callee != (PyObject *)&PyUnicode_Type) || !rec_words_run_no_code(r, a->args[0], is_repr))
        return false;
    r->reads_words = true;
    kin_vid out = rec_model_step(r, a, 0);
    r->reads_words = false;
    r->info.at[out].type = &PyUnicode_Type;
    return true;
}

bool
rec_model_pure(rec *r, const rec_args *a)
{
    if (all_const(r, a)) {
        rec_drop(r, a->ndrop);
        rec_await_const(r);
        return true;
    }
    if (rec_any_tensor(r, a->args, a->npos + a->nkw))
        return false;
    for (uint32_t i = 0; i < a->npos + a->nkw; i++) {
        if (!rec_is_plain_value(O(r, a->args[i])) || !rec_need_no_code(r, a->args[i], true))
            return model_words(r, a);
        if (VIRTUAL(r, a->args[i]) == NULL)
            rec_need_type(r, a->args[i]);
    }
    rec_model_step(r, a, 0);
    return true;
}

/* abs() and pow() of plain tensors: an operator of theirs, part of the graph. */
static bool
model_number(rec *r, const rec_args *a)
{
    bool tensor = false, plain = a->nkw == 0;
    for (uint32_t i = 0; plain && i < a->npos; i++) {
        PyObject *obj = O(r, a->args[i]);
        tensor = tensor || kin_is_tensor(obj);
        plain = kin_is_tensor(obj) ? kin_is_plain_tensor(obj) : rec_can_const(r, a->args[i]) && rec_is_value(obj);
    }
    if (!tensor || !plain)
        return rec_model_pure(r, a);
    for (uint32_t i = 0; i < a->npos; i++)
        if (kin_is_tensor(O(r, a->args[i])))
            rec_need_type(r, a->args[i]);
        else
            rec_need_const(r, a->args[i]);
    rec_model_step(r, a, KIN_STEP_TORCH);
    r->skip_expected = true;
    return true;
}

/* slice(a, b) as a[b:c] makes one. */
static bool
model_slice(rec *r, const rec_args *a)
{
    kin_vid ends[3] = {rec_const(r, Py_None), a->npos > 0 ? a->args[0] : 0, 0};
    if (all_const(r, a) || a->nkw != 0 || a->npos < 1 || a->npos > 3)
        return rec_model_pure(r, a);
    for (uint32_t i = 0; a->npos > 1 && i < a->npos; i++)
        ends[i] = a->args[i];
    uint32_t n = a->npos == 1 ? 2 : a->npos;
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_SLICE, KIN_STEP_PURE, ends, n);
    rec_make_virtual(r, out, VIRTUAL_SLICE, ends, n, true);
    r->info.at[out].type = &PySlice_Type;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* divmod(n, k) of a size and a constant: its two answers are numbers of the graph, as n // k and n % k are. */
static bool
model_divmod(rec *r, const rec_args *a)
{
    static const uint8_t ops[2] = {KIN_BINARY_FLOOR_DIVIDE, KIN_BINARY_REMAINDER};
    bool sized = a->npos == 2 && a->nkw == 0 && rec_is_size(r, a->args[0]) && rec_data_of(r, a->args[0]) == REC_NO_DATA;
    PyObject *divisor = sized ? O(r, a->args[1]) : NULL;
    if (divisor == NULL || !PyLong_CheckExact(divisor) || PyObject_IsTrue(divisor) != 1 || !rec_can_const(r, a->args[1]))
        return rec_model_pure(r, a);
    kin_vid pair[2] = {a->args[0], rec_need_const(r, a->args[1])}, answers[2];
    PyObject *both = PyNumber_Divmod(O(r, pair[0]), O(r, pair[1]));
    if (both == NULL) { /* no memory */
        PyErr_Clear();
        return false;
    }
    rec_need_type(r, pair[0]);
    for (int i = 0; i < 2; i++) {
        answers[i] = rec_step_out(r, KIN_STEP_BINARY, KIN_STEP_PURE, pair, 2);
        r->t->steps.at[r->t->vals.at[answers[i]].step].imm = ops[i];
        r->info.at[answers[i]].type = &PyLong_Type;
        rec_set_obj(r, answers[i], PyTuple_GET_ITEM(both, i));
    }
    Py_DECREF(both);
    kin_vid out = rec_build_tuple(r, answers, 2, NULL);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

/* Like rec_model_pure, but the result is a new mutable object each time. */
static bool
model_virtual(rec *r, const rec_args *a)
{
    if (!all_const(r, a))
        return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_virtual(r, out, VIRTUAL_OTHER, NULL, 0, false);
    return true;
}

/* sorted() of items that are all constants: they stand in the order in which they come out. */
static bool
model_sorted(rec *r, const rec_args *a)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (model_virtual(r, a))
        return true;
    bool ok = a->npos == 1 && a->nkw == 0 && rec_items_of(r, a->args[0], &items, &n) && n <= 500;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = O(r, items[i]) != NULL && kin_is_exact_immutable(O(r, items[i])) && rec_is_value(O(r, items[i])) && rec_can_const(r, items[i]);
    PyObject *list = ok ? PyList_New((Py_ssize_t)n) : NULL;
    for (uint32_t i = 0; list != NULL && i < n; i++) {
        kin_vid item = rec_need_const(r, items[i]); /* may move r->info */
        PyList_SET_ITEM(list, i, Py_NewRef(O(r, item)));
    }
    ok = list != NULL && PyList_Sort(list) == 0;
    for (uint32_t i = 0; ok && i < n; i++)
        items[i] = rec_const(r, PyList_GET_ITEM(list, i));
    PyErr_Clear();
    Py_XDECREF(list);
    if (ok) {
        kin_vid out = rec_build_list(r, items, n);
        rec_drop(r, a->ndrop);
        rec_await_result(r, out, r->t->vals.at[out].step);
    }
    free(items);
    return ok;
}

/* tuple.__iter__ and its like. */
static bool
model_own_iterator(rec *r, const rec_args *a)
{
    return a->npos == 1 && a->nkw == 0 && rec_iter_of(r, a->args[0], a->ndrop);
}

/* What looks like a method that computes a value, and gives a new object in each call. */
static bool
model_stays_a_call(rec *r, const rec_args *a)
{
    return false;
}

/* -- table ---------------------------------------------------------------------------------------------------------------------------- */

/* By row of callables.def. */
#define MODEL_none NULL
#define MODEL_pure rec_model_pure
#define MODEL_ask rec_model_ask
#define MODEL_number model_number
#define MODEL_divmod model_divmod
#define MODEL_slice model_slice
#define MODEL_sorted model_sorted
#define MODEL_new_list model_virtual
#define MODEL_own_iterator model_own_iterator
#define MODEL_stays_a_call model_stays_a_call
#define MODEL_id rec_model_id
#define MODEL_lock rec_model_lock
#define MODEL_hash rec_model_hash
#define MODEL_type_call NULL /* iterators/construct.c is asked before */
static const model_fn row_models[] = {
#define CALLABLE(module, name, looks, does, knows, model) MODEL_##model,
#include "core/trace/callables.def"
#undef CALLABLE
};

static kin_refs modelled;           /* callables with a model in another table: numbered from 1 in the order in which they were added */
static KIN_VEC(model_fn) models_of; /* by that number */

/* Of two models the later one holds. Without memory the callable has none. */
static void
add_model(PyObject *callable, model_fn fn)
{
    kin_ref ref = kin_refs_find(&modelled, callable);
    if (ref != 0)
        models_of.at[ref] = fn;
    else if (kin_vec_reserve(&models_of, 1) == KIN_OK && kin_refs_add(&modelled, callable, &ref) == KIN_OK)
        models_of.at[models_of.len++] = fn;
}

/* "name" in the module, or "class.name": what lies in the class, not bound to it. */
static void
add_path(PyObject *module, const char *path, model_fn fn)
{
    const char *dot = strchr(path, '.');
    char head[64];
    snprintf(head, sizeof head, "%.*s", (int)(dot ? dot - path : (long)strlen(path)), path);
    PyObject *obj = PyObject_GetAttrString(module, head);
    if (obj != NULL && dot != NULL)
        Py_SETREF(obj, PyType_Check(obj) ? Py_XNewRef(PyDict_GetItemString(kin_type_dict((PyTypeObject *)obj), dot + 1))
                                         : PyObject_GetAttrString(obj, dot + 1));
    if (obj != NULL)
        add_model(obj, fn);
    Py_XDECREF(obj);
    PyErr_Clear();
}

static void
add_rows(const char *name, const rec_method_row *rows)
{
    PyObject *module = PyImport_ImportModule(name);
    for (; module != NULL && rows->name != NULL; rows++)
        add_path(module, rows->name, rows->fn);
    Py_XDECREF(module);
    PyErr_Clear();
}

static void
add_module(const char *name, model_fn fn)
{
    PyObject *mod = PyImport_ImportModule(name), *key, *value;
    Py_ssize_t pos = 0;
    while (mod != NULL && PyDict_Next(PyModule_GetDict(mod), &pos, &key, &value))
        if (PyCFunction_Check(value))
            add_model(value, fn);
    Py_XDECREF(mod);
    PyErr_Clear();
}

static const struct {
    const char *module;
    const rec_method_row *rows;
} tables[] = {
    {"builtins", rec_type_rows}, {"builtins", rec_attr_rows}, {"builtins", rec_item_rows}, {"builtins", rec_build_rows}, {"builtins", rec_method_rows},
    {"builtins", rec_namespace_rows}, {"builtins", rec_text_rows}, {"_collections", rec_ordered_rows}, {"_collections", rec_ordered_views},
    {"_collections", rec_deque_rows}, {"_collections", rec_default_rows}, {"_functools", rec_partial_rows}, {"_random", rec_random_rows},
    {"itertools", rec_itertools_rows}, {"sys", rec_sys_rows}, {"types", rec_function_rows}, {"types", rec_proxy_rows}};

static void
make_models(void)
{
    if (kin_refs_init(&modelled) != KIN_OK || kin_vec_push(&models_of, NULL) != KIN_OK)
        return;
    for (size_t i = 0; i < sizeof tables / sizeof *tables; i++)
        add_rows(tables[i].module, tables[i].rows);
    add_module("_operator", rec_model_operator);
}

static model_fn
row_model(PyObject *callable)
{
    int known = rec_callable_row(callable);
    return known >= 0 ? row_models[known] : NULL;
}

static model_fn
find_model(PyObject *callable)
{
    model_fn fn = row_model(callable);
    if (fn != NULL)
        return fn;
    static bool made;
    if (!made)
        make_models();
    made = true;
    kin_ref ref = kin_refs_find(&modelled, callable);
    return ref != 0 ? models_of.at[ref] : NULL;
}

/* Methods of immutable builtins do not look at anything but their operands. */
static bool
is_immutable_method(PyObject *obj)
{
    PyObject *self = PyCFunction_Check(obj) ? PyCFunction_GET_SELF(obj) : NULL;
    if (self != NULL && kin_is_exact_immutable(self))
        return true;
    if (Py_TYPE(obj) != &PyMethodDescr_Type && Py_TYPE(obj) != &PyWrapperDescr_Type)
        return false;
    PyTypeObject *tp = PyDescr_TYPE(obj);
    return tp == &PyUnicode_Type || tp == &PyLong_Type || tp == &PyFloat_Type || tp == &PyBytes_Type ||
           tp == &PyTuple_Type || tp == &PyRange_Type || tp == &PyComplex_Type || tp == &PySlice_Type;
}

/* A bound method is not known by its identity: the row is that of the method in its class. */
static model_fn
method_model(PyObject *obj)
{
    PyObject *self = PyCFunction_Check(obj) ? PyCFunction_GET_SELF(obj) : NULL, *name = self ? PyUnicode_FromString(kin_callable_name(obj)) : NULL;
    PyObject *of_class = name != NULL ? _PyType_Lookup(Py_TYPE(self), name) : NULL;
    Py_XDECREF(name);
    PyErr_Clear();
    return row_model(of_class != NULL ? of_class : obj);
}

static bool
call_immutable_method(rec *r, PyObject *obj, const rec_args *a)
{
    model_fn fn = method_model(obj);
    return fn != NULL ? fn(r, a) : rec_model_pure(r, a);
}

/* Computes from its operands alone, and makes no new container. */
bool
rec_is_pure_callable(PyObject *obj)
{
    model_fn fn = find_model(obj);
    if (fn == rec_model_pure || fn == model_number || fn == model_divmod || fn == model_slice || (fn == rec_model_operator && strncmp(kin_callable_name(obj), "_", 1) != 0) || rec_callable_knows(obj, KIN_KNOWS_VALUE))
        return true;
    return fn == NULL && is_immutable_method(obj) && method_model(obj) == NULL;
}

static bool
call_type(rec *r, const rec_args *a)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, a->callee);
    static const char *const value_types[] = {"torch.device", "torch.finfo", "torch.iinfo", "torch.Size", NULL};
    for (int i = 0; value_types[i]; i++)
        if (kin_heap_type_is(tp, value_types[i]))
            return rec_model_size(r, a) || rec_model_pure(r, a);
    if (rec_model_new_object(r, a, tp))
        return true;
    if (PyExceptionClass_Check(tp) && !(tp->tp_flags & Py_TPFLAGS_HEAPTYPE))
        return rec_model_exception(r, a);
    return false;
}

/* range(n) of a size that data decides is a decision on it, which graphs can assert: the number of this call. One that has never differed is fixed by the guard. */
static void
assume_sizes(rec *r, rec_args *a, kin_vid *assumed)
{
    if (O(r, a->callee) != (PyObject *)&PyRange_Type || a->npos > 3 || a->nkw != 0)
        return;
    for (uint32_t i = 0; i < a->npos; i++) {
        PyObject *obj = O(r, a->args[i]);
        rec_fix_number(r, a->args[i]);
        bool size = r->info.at[a->args[i]].of_sizes && obj != NULL && PyLong_CheckExact(obj);
        if (size)
            rec_check(r, KIN_CHECK_EQ, a->args[i], obj, 0);
        assumed[i] = size ? rec_const(r, obj) : a->args[i];
    }
    a->args = assumed;
}

bool
rec_call_builtin(rec *r, const rec_args *call)
{
    kin_vid assumed[3];
    rec_args a = {.callee = call->callee, .args = call->args, .npos = call->npos, .nkw = call->nkw, .kwnames = call->kwnames, .ndrop = call->ndrop};
    PyObject *obj = O(r, call->callee);
    if (call->npos + call->nkw > 250)
        return false;
    assume_sizes(r, &a, assumed);
    model_fn fn = find_model(obj);
    if (fn != NULL)
        return fn(r, &a);
    if (PyType_Check(obj))
        return call_type(r, &a);
    if (rec_is_cache(obj))
        return rec_call_cached(r, &a);
    return is_immutable_method(obj) && call_immutable_method(r, obj, &a);
}
