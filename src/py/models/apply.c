/* Applies C functions to values where no instruction calls them: the calls that map, reduce,
 * starmap and sort keys make for known elements.
 *
 * rec_apply returns the resulting value, whose object may not exist yet: a torch call is a node of the graph, what
 * follows from constants is a constant, an item or attribute is the value found there. None of this runs user
 * code. Operators by name (operator.add) and getters (operator.itemgetter) are here too.
 */
#include "py/aten/modes.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

enum { MOST_ARGS = 32 };

/* -- operators by name ---------------------------------------------------------------------------------------------- */

enum { INPLACE = KIN_BINARY_INPLACE_ADD };

typedef struct {
    const char *name;
    kin_step_kind kind;
    int imm;
} operator_row;

static const operator_row operators[] = {
#define BINARY(NAME, symbol, text) {text, KIN_STEP_BINARY, KIN_BINARY_##NAME},
#define COMPARE(NAME, symbol, text) {text, KIN_STEP_COMPARE, Py_##NAME},
#define UNARY(NAME, symbol, text) {text, KIN_STEP_UNARY, KIN_UNARY_##NAME},
#include "core/bytecode/operators.def"
    {"iadd", KIN_STEP_BINARY, KIN_BINARY_INPLACE_ADD}, {"isub", KIN_STEP_BINARY, KIN_BINARY_INPLACE_SUBTRACT},
    {"imul", KIN_STEP_BINARY, KIN_BINARY_INPLACE_MULTIPLY}, {"itruediv", KIN_STEP_BINARY, KIN_BINARY_INPLACE_TRUE_DIVIDE},
    {"inv", KIN_STEP_UNARY, KIN_UNARY_INVERT}, {"not", KIN_STEP_UNARY, KIN_UNARY_NOT}, {"getitem", KIN_STEP_SUBSCR, 0},
    {"contains", KIN_STEP_CONTAINS, 0}, {"is", KIN_STEP_IS, 0}, {"is_not", KIN_STEP_IS, 1}, {NULL, KIN_STEP_CALL, 0}};

/* The operator that the function of module operator stands for; NULL: none. */
static const operator_row *
operator_of(PyObject *callee)
{
    PyObject *module = callee != NULL && PyCFunction_Check(callee) ? PyCFunction_GET_SELF(callee) : NULL;
    const char *owner = module != NULL && PyModule_Check(module) ? PyModule_GetName(module) : NULL;
    if (owner == NULL || strcmp(owner, "_operator") != 0) {
        PyErr_Clear();
        return NULL;
    }
    const char *name = kin_callable_name(callee);
    size_t length = strlen(name);
    length -= length > 0 && name[length - 1] == '_'; /* as and_ has it, which would be a keyword without */
    for (const operator_row *row = operators; row->name; row++)
        if (strlen(row->name) == length && strncmp(row->name, name, length) == 0)
            return row;
    return NULL;
}

static uint32_t
operands_of(const operator_row *row)
{
    return row->kind == KIN_STEP_UNARY ? 1 : 2;
}

/* The call as the instruction: its operands take the place of callee and arguments on the symbolic stack. */
static void
as_operands(rec *r, const kin_vid *args, uint32_t n, int ndrop)
{
    rec_drop(r, ndrop);
    for (uint32_t i = 0; i < n; i++)
        rec_push(r, args[i]);
}

bool
rec_model_operator(rec *r, const rec_args *a)
{
    const operator_row *row = operator_of(O(r, a->callee));
    if (row == NULL || a->nkw || a->npos != operands_of(row))
        return rec_model_pure(r, a);
    const kin_vid turned[2] = {a->args[1], a->args[0]};
    as_operands(r, row->kind == KIN_STEP_CONTAINS ? turned : a->args, a->npos, a->ndrop);
    if (row->kind == KIN_STEP_SUBSCR)
        rec_op_subscr(r);
    else if (row->kind == KIN_STEP_CONTAINS)
        rec_op_contains(r, 0);
    else if (row->kind == KIN_STEP_IS)
        rec_op_is(r, row->imm);
    else
        rec_op_binary(r, row->kind, row->imm, (int)a->npos);
    return true;
}

/* -- itemgetter, attrgetter, methodcaller ----------------------------------------------------------------------------- */

typedef enum { GETS_ITEM, GETS_ATTRIBUTE, CALLS_METHOD } getter_kind;

static getter_kind
kind_of(const PyTypeObject *tp)
{
    return strcmp(tp->tp_name, "operator.itemgetter") == 0 ? GETS_ITEM : strcmp(tp->tp_name, "operator.attrgetter") == 0 ? GETS_ATTRIBUTE : CALLS_METHOD;
}

static rec_virtual *
getter_of(rec *r, kin_vid vid, getter_kind *kind)
{
    rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    if (f == NULL || f->kind != VIRTUAL_GETTER)
        return NULL;
    *kind = kind_of(r->info.at[vid].type);
    return f;
}

bool
rec_new_getter(rec *r, const rec_args *a)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, a->callee);
    getter_kind kind = kind_of(tp);
    if (a->npos < 1 || a->npos + a->nkw > 16 || (a->nkw && kind != CALLS_METHOD))
        return false;
    for (uint32_t i = 0; i < a->npos; i++)
        if (O(r, a->args[i]) == NULL || (kind != GETS_ITEM && (i == 0 || kind == GETS_ATTRIBUTE) &&
                                         (!PyUnicode_CheckExact(O(r, a->args[i])) || rec_need_const(r, a->args[i]) == 0)))
            return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_GETTER, a->args, a->npos + a->nkw, true);
    if (f != NULL && a->nkw) {
        f->aux = a->kwnames;
        rec_ref(r, a->kwnames); /* as long as the recording */
    }
    r->info.at[out].type = tp;
    return true;
}

/* tensor.T, device.type: a step that runs no Python code. *real: what it gives now, for the attributes behind it; the caller lets go of it. */
static kin_vid
asked_attribute(rec *r, kin_vid obj, PyObject *name, PyObject **real)
{
    attr_result at;
    rec_attr_find(r, obj, name, &at);
    if (at.kind != ATTR_STEP || at.flags & ~(unsigned)(KIN_STEP_TORCH | KIN_STEP_PURE) || at.makes_dict || at.fallback || kin_foreign_modes() || (*real = PyObject_GetAttr(O(r, obj), name)) == NULL) {
        PyErr_Clear();
        return 0;
    }
    kin_vid out = rec_step_out(r, KIN_STEP_GETATTR, at.flags, &obj, 1);
    kin_ref ref = rec_ref(r, name);
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    r->info.at[out].obj = *real;
    return out;
}

/* One attribute, if it is known or follows by such a step; 0: not so. *real: an object that is there as long as the caller holds it. */
static kin_vid
attribute_of(rec *r, kin_vid obj, PyObject *name, PyObject **real)
{
    kin_vid known = O(r, obj) != NULL ? rec_attribute(r, obj, name) : 0;
    return known != 0 || O(r, obj) == NULL ? known : asked_attribute(r, obj, name, real);
}

/* a.b.c, where no Python code runs; 0: not so. */
static kin_vid
dotted(rec *r, kin_vid obj, PyObject *names)
{
    Py_ssize_t start = 0, n = PyUnicode_GET_LENGTH(names);
    kin_vid last = 0; /* its object is there as long as `kept_real` */
    PyObject *kept_real = NULL;
    for (Py_ssize_t i = 0; obj != 0 && i <= n; i++) {
        if (i < n && PyUnicode_READ_CHAR(names, i) != '.')
            continue;
        PyObject *name = PyUnicode_Substring(names, start, i);
        if (name != NULL)
            PyUnicode_InternInPlace(&name);
        kin_vid kept = name != NULL ? rec_const(r, name) : 0;
        Py_XDECREF(name);
        PyObject *real = NULL;
        obj = kept ? attribute_of(r, obj, O(r, kept), &real) : 0;
        if (last != 0)
            r->info.at[last].obj = NULL;
        Py_XSETREF(kept_real, real);
        last = real != NULL ? obj : 0;
        start = i + 1;
    }
    if (last != 0)
        r->info.at[last].obj = NULL;
    Py_XDECREF(kept_real);
    return obj;
}

static kin_vid
get_item(rec *r, kin_vid obj, kin_vid key)
{
    kin_vid args[2] = {obj, key};
    if (rec_is_tensor_value(r, obj))
        return rec_can_const(r, key) ? rec_step_out(r, KIN_STEP_SUBSCR, KIN_STEP_TORCH, args, 2) : 0;
    return O(r, obj) != NULL && O(r, key) != NULL ? rec_known_item(r, obj, key) : 0;
}

static kin_vid
apply_getter(rec *r, const rec_virtual *f, getter_kind kind, const kin_vid *args, uint32_t n)
{
    kin_vid all[MOST_ARGS];
    attr_result at;
    if (kind != CALLS_METHOD) {
        for (uint32_t i = 0; i < f->n; i++)
            if (n != 1 || (all[i] = kind == GETS_ITEM ? get_item(r, args[0], f->items[i]) : dotted(r, args[0], O(r, f->items[i]))) == 0)
                return 0;
        return f->n == 1 ? all[0] : rec_build_tuple(r, all, f->n, NULL);
    }
    if (n != 1 || O(r, args[0]) == NULL || f->aux != NULL)
        return 0;
    rec_attr_find(r, args[0], O(r, rec_as_const(r, f->items[0])), &at);
    if (at.kind != ATTR_METHOD)
        return 0;
    all[0] = at.self;
    memcpy(all + 1, f->items + 1, (f->n - 1) * sizeof *all);
    return rec_apply(r, at.value, all, f->n);
}

/* methodcaller(name, ...)(obj) is obj.name(...). */
static bool
call_method(rec *r, const rec_args *a, const rec_virtual *f)
{
    kin_vid all[MOST_ARGS];
    attr_result at;
    uint32_t nkw = f->aux != NULL ? (uint32_t)PyTuple_GET_SIZE(f->aux) : 0;
    rec_attr_find(r, a->args[0], O(r, rec_as_const(r, f->items[0])), &at);
    if (at.kind != ATTR_METHOD)
        return false;
    all[0] = at.self;
    memcpy(all + 1, f->items + 1, (f->n - 1) * sizeof *all);
    rec_do_call(r, &(rec_args){.callee = at.value, .args = all, .npos = f->n - nkw, .nkw = nkw, .kwnames = f->aux, .ndrop = a->ndrop});
    return true;
}

/* attrgetter("T")(tensor), attrgetter("a.b")(obj): the last attribute as the instruction finds it, which may run a property of the program. False: an
 * attribute before it is not known. */
static bool
load_attribute(rec *r, const rec_args *a, PyObject *names)
{
    Py_ssize_t n = PyUnicode_GET_LENGTH(names), dot = PyUnicode_FindChar(names, '.', 0, n, -1);
    PyObject *before = dot > 0 ? PyUnicode_Substring(names, 0, dot) : NULL, *name = PyUnicode_Substring(names, dot + 1, n);
    kin_vid obj = before != NULL ? dotted(r, a->args[0], before) : dot > 0 ? 0 : a->args[0];
    Py_XDECREF(before);
    if (name == NULL || obj == 0 || O(r, obj) == NULL) {
        Py_XDECREF(name);
        PyErr_Clear();
        return false;
    }
    PyUnicode_InternInPlace(&name);
    PyObject *kept = O(r, rec_const(r, name));
    Py_DECREF(name);
    as_operands(r, &obj, 1, a->ndrop);
    rec_op_load_attr(r, kept, false);
    return true;
}

/* A getter made here is called. */
bool
rec_call_getter(rec *r, const rec_args *a)
{
    getter_kind kind;
    rec_virtual *f = getter_of(r, a->callee, &kind);
    if (f == NULL || a->npos != 1 || a->nkw)
        return false;
    if (kind == CALLS_METHOD)
        return call_method(r, a, f);
    if (kind == GETS_ITEM && f->n == 1) {
        const kin_vid all[2] = {a->args[0], f->items[0]};
        as_operands(r, all, 2, a->ndrop);
        rec_op_subscr(r);
        return true;
    }
    if (kind == GETS_ATTRIBUTE && f->n == 1 && rec_is_tensor_value(r, a->args[0]) && load_attribute(r, a, O(r, rec_as_const(r, f->items[0]))))
        return true;
    uint32_t start = r->t->steps.len;
    kin_vid value = apply_getter(r, f, kind, a->args, a->npos);
    if (value == 0 && kind == GETS_ATTRIBUTE && f->n == 1 && r->t->steps.len == start)
        return load_attribute(r, a, O(r, rec_as_const(r, f->items[0])));
    if (value == 0)
        return false;
    if (f->n == 1 && O(r, value) == NULL && r->t->vals.at[value].kind == KIN_VAL_STEP) { /* what a step gives, which is there when the call has ended */
        rec_drop(r, a->ndrop);
        rec_await_result(r, value, r->t->vals.at[value].step);
        return true;
    }
    const rec_args call = {.callee = a->callee, .args = a->args, .npos = a->npos, .ndrop = a->ndrop};
    return rec_model_value(r, &call, value);
}

/* -- other functions -------------------------------------------------------------------------------------------------- */

static kin_vid
apply_operator(rec *r, const operator_row *row, const kin_vid *args)
{
    uint32_t n = operands_of(row);
    bool tensor = false, truth = row->kind == KIN_STEP_UNARY && row->imm == KIN_UNARY_NOT;
    bool plain = !truth && row->kind != KIN_STEP_CONTAINS && row->kind != KIN_STEP_IS && (row->kind != KIN_STEP_BINARY || row->imm < INPLACE);
    if (row->kind == KIN_STEP_SUBSCR)
        return get_item(r, args[0], args[1]);
    for (uint32_t i = 0; i < n; i++)
        tensor = tensor || rec_is_tensor_value(r, args[i]);
    if (!plain || !tensor || !rec_fix_for_torch(r, args, n))
        return 0;
    kin_vid out = rec_step_out(r, row->kind, KIN_STEP_TORCH, args, n);
    r->t->steps.at[r->t->vals.at[out].step].imm = (uint8_t)row->imm;
    return out;
}

/* What follows from constants alone is computed now. */
static kin_vid
apply_to_constants(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *objs[MOST_ARGS];
    for (uint32_t i = 0; i < n; i++)
        if (O(r, args[i]) == NULL || !rec_can_const(r, args[i]) || !rec_is_value(O(r, args[i])))
            return 0;
    for (uint32_t i = 0; i < n; i++)
        objs[i] = O(r, rec_need_const(r, args[i]));
    PyObject *answer = PyObject_Vectorcall(O(r, callee), objs, n, NULL);
    kin_vid value = answer != NULL && kin_is_exact_immutable(answer) ? rec_const(r, answer) : 0;
    Py_XDECREF(answer);
    PyErr_Clear();
    return value;
}

static kin_vid
apply_len(rec *r, kin_vid arg)
{
    rec_virtual *f = VIRTUAL(r, arg);
    PyObject *obj = O(r, arg);
    if (f == NULL && obj != NULL && kin_is_plain_strided(obj) && kin_tensor_dim(obj) > 0 && !kin_foreign_modes()) {
        rec_need_type(r, arg);
        r->skip_expected = true; /* Tensor.__len__ */
        if (rec_dynamic_dims(r, arg) & 1)
            return rec_size(r, arg, 0);
        PyObject *size = rec_meta(r, arg, KIN_META_SIZES) ? PyLong_FromLongLong(kin_tensor_sizes(obj)[0]) : NULL;
        kin_vid fixed = size != NULL ? rec_const(r, size) : 0;
        Py_XDECREF(size);
        return fixed;
    }
    if (f == NULL || !f->known || (f->kind != VIRTUAL_TUPLE && f->kind != VIRTUAL_LIST && f->kind != VIRTUAL_DICT))
        return 0;
    PyObject *number = PyLong_FromLong((long)(f->kind == VIRTUAL_DICT ? f->n / 2 : f->n));
    kin_vid value = number != NULL ? rec_const(r, number) : 0;
    Py_XDECREF(number);
    return value;
}

/* type(x). */
static kin_vid
apply_type(rec *r, kin_vid arg)
{
    PyTypeObject *type = VIRTUAL(r, arg) != NULL ? r->info.at[arg].type : O(r, arg) != NULL ? rec_need_type(r, arg) : NULL;
    return type != NULL ? rec_const(r, (PyObject *)type) : 0;
}

static kin_vid
apply_constant(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *obj = O(r, callee);
    const operator_row *row = operator_of(obj);
    kin_vid value = 0;
    if (obj == (PyObject *)&PyType_Type)
        return n == 1 ? apply_type(r, args[0]) : 0;
    if (rec_builds(obj))
        return rec_apply_build(r, callee, args, n);
    if (rec_makes_iterator(obj))
        return rec_apply_iterator(r, callee, args, n);
    if (row != NULL && n == operands_of(row))
        value = apply_operator(r, row, args);
    else if (n == 1 && PyCFunction_Check(obj) && PyCFunction_GET_SELF(obj) != NULL && PyModule_Check(PyCFunction_GET_SELF(obj)) &&
             strcmp(kin_callable_name(obj), "len") == 0)
        value = apply_len(r, args[0]);
    if (value == 0 && rec_is_pure_callable(obj))
        value = apply_to_constants(r, callee, args, n);
    return value ? value : rec_apply_torch(r, callee, args, n, NULL);
}

/* What a partial object calls with keywords; only calls of torch. */
static kin_vid
apply_with_keywords(rec *r, const rec_virtual *f, const kin_vid *args, uint32_t n)
{
    kin_vid all[MOST_ARGS];
    uint32_t nkw = (uint32_t)PyTuple_GET_SIZE(f->aux), own = f->n - 1 - nkw;
    if (own + n + nkw >= MOST_ARGS || O(r, f->items[0]) == NULL || !rec_can_const(r, f->items[0]))
        return 0;
    memcpy(all, f->items + 1, own * sizeof *all);
    memcpy(all + own, args, n * sizeof *args);
    memcpy(all + own + n, f->items + 1 + own, nkw * sizeof *all);
    return rec_apply_torch(r, rec_need_const(r, f->items[0]), all, own + n + nkw, f->aux);
}

kin_vid
rec_apply(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    kin_vid all[MOST_ARGS];
    getter_kind kind;
    rec_virtual *f = VIRTUAL(r, callee), *get = getter_of(r, callee, &kind);
    if (n + 1 >= MOST_ARGS)
        return 0;
    if (get != NULL)
        return apply_getter(r, get, kind, args, n);
    if (f != NULL && f->kind == VIRTUAL_PARTIAL && f->known && f->aux != NULL)
        return apply_with_keywords(r, f, args, n);
    bool method = f != NULL && f->kind == VIRTUAL_METHOD, partial = f != NULL && f->kind == VIRTUAL_PARTIAL && f->known && f->aux == NULL;
    if (method || partial) {
        uint32_t own = f->n - 1;
        if (own + n >= MOST_ARGS)
            return 0;
        memcpy(all, f->items + 1, own * sizeof *all);
        memcpy(all + own, args, n * sizeof *args);
        kin_vid value = rec_apply_method(r, f->items[0], all, own + n);
        return value ? value : rec_apply(r, f->items[0], all, own + n);
    }
    return O(r, callee) != NULL && rec_can_const(r, callee) ? apply_constant(r, rec_need_const(r, callee), args, n) : 0;
}

/* Could it be applied at all? Functions in Python are called, not applied. */
bool
rec_can_apply(rec *r, kin_vid callee)
{
    getter_kind kind;
    rec_virtual *f = callee ? VIRTUAL(r, callee) : NULL;
    PyObject *obj = callee ? O(r, callee) : NULL;
    if (obj == NULL)
        return false;
    if (getter_of(r, callee, &kind) != NULL)
        return true;
    if (f != NULL && (f->kind == VIRTUAL_METHOD || (f->kind == VIRTUAL_PARTIAL && f->known)))
        return rec_can_apply(r, f->items[0]);
    if (f != NULL || !rec_can_const(r, callee))
        return false;
    return PyCFunction_Check(obj) || Py_TYPE(obj) == &PyMethodDescr_Type || obj == (PyObject *)&PyType_Type || rec_builds(obj) || rec_makes_iterator(obj) || (PyType_Check(obj) && rec_is_pure_callable(obj));
}

bool
rec_apply_each(rec *r, kin_vid callee, const kin_vid *inputs, uint32_t n, uint32_t width, kin_vid *out)
{
    uint32_t start = r->t->steps.len;
    for (uint32_t i = 0; i < n; i++)
        if ((out[i] = rec_apply(r, callee, inputs + i * width, width)) == 0) {
            rec_truncate(r, start);
            return false;
        }
    r->skip_expected = true;
    return true;
}
