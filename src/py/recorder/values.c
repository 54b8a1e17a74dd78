/* Values of a recording: where they come from, and the facts and checks about what the recording assumes of them. */
#include "core/base/fault.h"
#include "py/compat/heap.h"
#include "py/compat/kinds.h"
#include "py/compat/imports.h"
#include "py/guardeval/class_same.h"
#include "py/recorder/rec.h"

static uint32_t lost_slot;

static uint32_t *
map_slot(rec *r, struct rec_map *m, uint32_t a, uint32_t b, uint32_t c, uint32_t d)
{
    uint32_t *slot = rec_map_at(m, a, b, c, d);
    if (slot == NULL) {
        r->status = KIN_NOMEM;
        lost_slot = 0;
        return &lost_slot;
    }
    return slot;
}

/* -- making values ------------------------------------------------------------------------------------------ */

/* Only atoms are held: holding anything else could delay a death that the program sees. Other objects are
 * looked at only while the program itself keeps them: they lie on a watched stack or in what a watched value holds. */
static bool
may_hold(PyObject *obj)
{
    return kin_is_exact_immutable(obj);
}

/* The description of the tensor for dumps and backends. */
static void
note_tensor(rec *r, kin_vid vid, PyObject *tensor)
{
    PyObject *note = kin_tensor_note(tensor);
    if (note == NULL)
        PyErr_Clear();
    else
        r->t->vals.at[vid].note = rec_ref(r, note);
    Py_XDECREF(note);
}

/* What a small tensor of the program's holds; later it may be gone (torchcalls/content.c). */
static void
note_content(rec *r, kin_vid vid, PyObject *tensor)
{
    PyObject *content = kin_content_make(tensor);
    r->info.at[vid].content = content != NULL ? rec_ref(r, content) : 0;
    PyErr_Clear();
    Py_XDECREF(content);
}

/* A value that Python code computes between the calls of a graph is an operand of them, and code that examines the graph, or compiles it
 * before it has run, needs an example. */
static void
note_example(rec *r, kin_vid vid, PyObject *obj)
{
    kin_val *val = &r->t->vals.at[vid];
    bool atom = kin_is_exact_immutable(obj) && rec_is_value(obj) && !PyUnicode_CheckExact(obj); /* a str among examples is a note */
    if (r->opt->kernels || (val->kind != KIN_VAL_STEP && val->kind != KIN_VAL_SRC))
        return;
    PyObject *seen = NULL;
    if (atom)
        seen = Py_NewRef(obj);
    else if (kin_is_tensor(obj) && !kin_is_tensor_type((PyObject *)Py_TYPE(obj)) && (val->kind == KIN_VAL_SRC || (r->info.at[vid].graph && !kin_is_plain_tensor(obj))))
        seen = Py_NewRef(Py_TYPE(obj));
    else if (kin_is_plain_strided(obj) && val->note == 0)
        seen = kin_tensor_note(obj);
    kin_ref ref = seen == NULL ? 0 : rec_ref(r, seen);
    PyErr_Clear();
    Py_XDECREF(seen);
    r->t->vals.at[vid].seen = ref;
}

void
rec_set_obj(rec *r, kin_vid vid, PyObject *obj)
{
    rec_info *i = &r->info.at[vid];
    i->obj = obj;
    if (obj == NULL)
        return;
    if (!i->held && (may_hold(obj) || (i->as_const == vid && vid != 0))) { /* a made class, which is found by its address */
        Py_INCREF(obj);
        i->held = true;
    }
    if (i->data == REC_DATA_IN_GRAPH && r->t->vals.at[vid].kind == KIN_VAL_STEP && (rec_is_value(obj) || rec_is_list_of_numbers(obj)))
        rec_note_example(r, vid, obj);
    if (i->graph && kin_is_tensor(obj))
        note_tensor(r, vid, obj);
    note_example(r, vid, obj);
    const kin_val *val = &r->t->vals.at[vid];
    if (val->kind == KIN_VAL_STEP && !i->graph && (val->step < r->first_step || !(r->t->steps.at[val->step].flags & KIN_STEP_PURE)))
        i->mortal = i->mortal || rec_death_runs_code(obj);
}

kin_vid
rec_value(rec *r, kin_val val, PyObject *obj)
{
    rec_info info = {.born_epoch = r->epoch};
    if (kin_vec_reserve(&r->info, 1) != KIN_OK || kin_vec_push(&r->t->vals, val) != KIN_OK || kin_vec_push(&r->info, info) != KIN_OK) {
        r->status = KIN_NOMEM;
        return 0;
    }
    kin_vid vid = r->t->vals.len - 1;
    if (obj != NULL)
        rec_set_obj(r, vid, obj);
    return vid;
}

kin_ref
rec_ref(rec *r, PyObject *obj)
{
    kin_ref ref = 0;
    if (obj != NULL && kin_refs_add(r->refs, obj, &ref) != KIN_OK)
        r->status = KIN_NOMEM;
    return ref;
}

kin_vid
rec_const(rec *r, PyObject *obj)
{
    kin_vid made = rec_made_class(r, obj);
    if (made != 0)
        return made;
    kin_ref ref = rec_ref(r, obj);
    uint32_t *slot = map_slot(r, r->consts, ref, 0, 0, 0);
    if (*slot == 0) {
        kin_vid vid = rec_value(r, (kin_val){.kind = KIN_VAL_CONST, .key = ref}, obj);
        *slot = vid;
        r->info.at[vid].type = Py_TYPE(obj);
        return vid;
    }
    return *slot;
}

kin_vid
rec_src(rec *r, kin_vid parent, kin_access access, uint32_t key, PyObject *obj)
{
    uint32_t epoch = rec_epoch(r);
    if (rec_region_is_changing(r, parent))
        rec_refuse(r);
    if (r->refused)
        return rec_value(r, (kin_val){.kind = KIN_VAL_NONE}, obj);
    kin_vid written = rec_written(r, parent, access, key, obj);
    if (written != 0)
        return written;
    epoch = rec_epoch(r);
    uint32_t *slot = map_slot(r, r->value_numbers, epoch, parent, (uint32_t)access, key);
    if (*slot != 0)
        return *slot;
    kin_vid vid = rec_value(r, (kin_val){.kind = KIN_VAL_SRC, .access = (uint8_t)access, .epoch = (uint16_t)epoch,
                                         .parent = parent, .key = key}, obj);
    *slot = vid;
    if (obj != NULL && kin_is_tensor(obj)) {
        note_tensor(r, vid, obj);
        note_content(r, vid, obj);
    }
    kin_vid known = epoch != 0 ? rec_recognise(r, vid) : vid;
    if (known != vid)
        *map_slot(r, r->value_numbers, epoch, parent, (uint32_t)access, key) = known;
    return known;
}

kin_vid
rec_src_key(rec *r, kin_vid parent, kin_access access, PyObject *key, PyObject *obj)
{
    return rec_src(r, parent, access, rec_ref(r, key), obj);
}

/* -- facts and checks ----------------------------------------------------------------------------------------- */

void
rec_fact(rec *r, kin_fact_kind kind, kin_vid vid, PyObject *ref, uint32_t num)
{
    (void)rec_epoch(r);
    if (kind != KIN_FACT_TYPE && rec_region_is_changing(r, vid))
        rec_refuse(r);
    if (r->refused)
        return;
    rec_fact_after_writes(r, kind, vid, ref);
    uint32_t epoch = rec_epoch(r);
    if (r->refused) /* what was written in a region decides: it does not hold at the beginning */
        return;
    kin_ref number = rec_ref(r, ref);
    uint32_t *slot = map_slot(r, r->facts_seen, epoch, vid, (uint32_t)kind, number ^ (num << 20) ^ (num >> 12));
    if (*slot != 0) {
        kin_fact *old = &r->t->facts.at[*slot - 1];
        if (old->ref == number && old->num == num) {
            old->undone = false;
            return;
        }
    }
    kin_fact fact = {.kind = (uint8_t)kind, .epoch = (uint16_t)epoch, .vid = vid, .ref = number, .num = num};
    if (r->top != NULL) {
        fact.code = r->top->code_ref;
        fact.offset = r->top->offset;
    }
    if (kin_vec_push(&r->t->facts, fact) != KIN_OK)
        r->status = KIN_NOMEM;
    *slot = r->t->facts.len;
}

uint32_t
rec_check(rec *r, kin_check check, kin_vid vid, PyObject *ref, uint32_t num)
{
    uint32_t s = rec_step(r, KIN_STEP_CHECK, 0, &vid, 1);
    kin_step *step = &r->t->steps.at[s];
    step->imm = (uint8_t)check;
    step->num = num;
    kin_ref number = rec_ref(r, ref);
    r->t->steps.at[s].ref = number;
    rec_note_decision(r, s, check, vid, ref);
    return s;
}

bool
rec_is_entry_value(rec *r, kin_vid vid)
{
    const kin_val *v = &r->t->vals.at[vid];
    return v->kind != KIN_VAL_STEP || r->info.at[vid].born_epoch < rec_epoch(r);
}

/* The result of a torch call is tested where it is used: a graph can extend over a check, but not over a guard on its own values. */
static bool
is_asked_by_fact(rec *r, kin_vid vid)
{
    const kin_val *v = &r->t->vals.at[vid];
    bool by_torch = v->kind == KIN_VAL_STEP && r->t->steps.at[v->step].flags & KIN_STEP_TORCH;
    return !by_torch && rec_is_entry_value(r, vid);
}

static bool
is_fixed_type(PyTypeObject *tp)
{
    return kin_heap_type_is_static(tp) && tp != &PyModule_Type;
}

PyTypeObject *
rec_need_type(rec *r, kin_vid vid)
{
    PyTypeObject *tp = Py_TYPE(O(r, vid));
    if (r->t->vals.at[vid].kind == KIN_VAL_CONST)
        return tp;
    if (r->info.at[vid].type == tp && VIRTUAL(r, vid) != NULL && !VIRTUAL(r, vid)->escaped)
        return tp; /* made here and out of everybody's reach; it may not even exist when facts are tested */
    if (r->info.at[vid].type == tp && (is_fixed_type(tp) || r->info.at[vid].type_epoch == rec_epoch(r) + 1))
        return tp;
    (void)rec_epoch(r);
    if (is_asked_by_fact(r, vid))
        rec_fact(r, KIN_FACT_TYPE, vid, (PyObject *)tp, 0);
    else
        rec_check(r, KIN_CHECK_TYPE, vid, (PyObject *)tp, 0);
    r->info.at[vid].type = tp;
    r->info.at[vid].type_epoch = rec_epoch(r) + 1;
    return tp;
}

void
rec_class_version(rec *r, PyTypeObject *type)
{
    if (type->tp_flags & Py_TPFLAGS_IMMUTABLETYPE || rec_made_class(r, (PyObject *)type) != 0)
        return;
    if (kin_heap_type_tag(type) == 0 || kin_fail_now(KIN_FAIL_CLASS)) {
        rec_stop_fmt(r, "class %.80s has no version tag", type->tp_name);
        return;
    }
    kin_class_note(type);
    rec_fact(r, KIN_FACT_TYPE_TAG, rec_const(r, (PyObject *)type), NULL, type->tp_version_tag);
}

PyTypeObject *
rec_need_version(rec *r, kin_vid vid)
{
    PyTypeObject *tp = rec_need_type(r, vid);
    rec_class_version(r, tp);
    return tp;
}

/* -- constants ------------------------------------------------------------------------------------------------ */

static bool
is_enum_member(PyObject *obj)
{
    static PyObject *enum_type;
    return kin_import_once(&enum_type, "enum", "EnumType") != NULL && PyType_IsSubtype(Py_TYPE(Py_TYPE(obj)), (PyTypeObject *)enum_type);
}

static bool
is_instance_of(PyObject *obj, const char *module, const char *const *names)
{
    PyTypeObject *tp = Py_TYPE(obj);
    if (!(tp->tp_flags & Py_TPFLAGS_HEAPTYPE) || !rec_in_list(tp->tp_name, names))
        return false;
    PyObject *home = PyDict_GetItemWithError(kin_type_dict(tp), REC_STR("__module__"));
    return kin_text_is(home, module);
}

/* The logging module keeps every logger that it returns. */
static bool
is_logger(PyObject *obj)
{
    static const char *const names[] = {"Logger", "RootLogger", NULL};
    return is_instance_of(obj, "logging", names);
}

/* Operators of torch.ops, and those that graphs of compiled autograd call: PyTorch keeps one object for each. */
bool
rec_is_torch_operator(PyObject *obj)
{
    static const char *const names[] = {"OpOverload", "OpOverloadPacket", NULL}, *const of_autograd[] = {"Op", NULL};
    return is_instance_of(obj, "torch._ops", names) || is_instance_of(obj, "torch._dynamo.compiled_autograd", of_autograd);
}

bool
rec_is_cache(PyObject *obj)
{
    return kin_heap_type_is(Py_TYPE(obj), "functools._lru_cache_wrapper");
}

/* Objects that live as long as their module or class: safe to keep and to compare by identity. */
bool
rec_pinnable(PyObject *obj)
{
    if (PyFunction_Check(obj))
        return PyFunction_GET_CLOSURE(obj) == NULL;
    if (PyCFunction_Check(obj)) {
        PyObject *self = PyCFunction_GET_SELF(obj);
        bool record = self != NULL && (PyCapsule_CheckExact(self) || strncmp(Py_TYPE(self)->tp_name, "pybind11_", 9) == 0); /* pybind11's, in older and newer releases */
        return self == NULL || PyModule_Check(self) || PyType_Check(self) || kin_is_exact_immutable(self) || record;
    }
    PyTypeObject *tp = Py_TYPE(obj);
    if (PyType_Check(obj) || PyModule_Check(obj) || PyCode_Check(obj) || tp == &PyMethodDescr_Type ||
        tp == &PyWrapperDescr_Type || tp == &PyGetSetDescr_Type || tp == &PyMemberDescr_Type ||
        tp == &PyClassMethodDescr_Type)
        return true;
    return kin_heap_type_is(tp, "torch.dtype") || kin_heap_type_is(tp, "torch.layout") || kin_heap_type_is(tp, "torch.memory_format") ||
           is_enum_member(obj) || is_logger(obj) || rec_is_torch_operator(obj) || rec_is_cache(obj);
}

bool
rec_is_const(rec *r, kin_vid vid)
{
    return r->t->vals.at[vid].kind == KIN_VAL_CONST || r->info.at[vid].as_const != 0;
}

kin_vid
rec_as_const(rec *r, kin_vid vid)
{
    return r->info.at[vid].as_const ? r->info.at[vid].as_const : vid;
}

/* More digits than sys.set_int_max_str_digits() lets through at its strictest: whether text can be made of such a number,
 * or a number of such a text, depends on the limit of the moment.
 */
static bool
is_huge(PyObject *obj)
{
    enum { MIN_DIGITS = 640 };
    if (PyLong_CheckExact(obj))
        return _PyLong_NumBits(obj) > MIN_DIGITS * 3;
    if (PyUnicode_CheckExact(obj))
        return PyUnicode_GET_LENGTH(obj) > MIN_DIGITS;
    for (Py_ssize_t i = 0; PyTuple_CheckExact(obj) && i < PyTuple_GET_SIZE(obj); i++)
        if (is_huge(PyTuple_GET_ITEM(obj, i)))
            return true;
    return false;
}

/* Is what C code computes from the constant a constant too? Text of an enum member is made by code of its class, that of a
 * function or class by names that can be assigned.
 */
bool
rec_is_value(PyObject *obj)
{
    if (kin_is_exact_immutable(obj))
        return !is_huge(obj);
    return is_fixed_type(Py_TYPE(obj)) && !PyType_Check(obj) && !PyFunction_Check(obj) && !PyCFunction_Check(obj) &&
           !PyModule_Check(obj);
}

/* Result of a step that the next run will not give again: a float of a clock, a generator or data, a method of C code bound to an
 * object or class. */
static bool
is_new_each_time(PyObject *obj)
{
    PyObject *self = PyCFunction_Check(obj) ? PyCFunction_GET_SELF(obj) : NULL;
    return PyFloat_CheckExact(obj) || (self != NULL && !PyModule_Check(self));
}

/* A C method bound to an object may differ in each call; functions of modules and of classes such as torch's do not, although a
 * variable may hold several of them in turn. */
static bool
is_bound_to_object(PyObject *obj)
{
    PyObject *self = PyCFunction_Check(obj) ? PyCFunction_GET_SELF(obj) : NULL;
    return self != NULL && !PyModule_Check(self) && !PyType_Check(self);
}

/* A tuple or torch.Size that the recording has made of what is constant, but not of sizes that may change. */
static bool
holds_constants(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    if (f == NULL || !f->known || (f->kind != VIRTUAL_TUPLE && !kin_is_size(O(r, vid))) || !kin_is_exact_immutable(O(r, vid)))
        return false;
    for (uint32_t i = 0; i < f->n; i++)
        if (r->info.at[f->items[i]].sized || !rec_can_const(r, f->items[i]))
            return false;
    return true;
}

/* Does a step make it, so that each call has another object? Here it may be one that the recording has lost sight of, or that a side trace was handed.
 * alive: the object is known to be there still, so it can be looked at. */
static bool
is_made(rec *r, kin_vid vid, bool alive)
{
    const kin_val *val = &r->t->vals.at[vid];
    return val->kind == KIN_VAL_STEP &&
           (r->info.at[vid].made || (kin_step_does(&r->t->steps.at[val->step], KIN_GIVES_NEW) && !(alive && kin_is_exact_immutable(O(r, vid)))));
}

/* A function that is read from what a step makes: often one that was made in the same call, and was put there. */
static bool
is_function_of_made(rec *r, kin_vid vid)
{
    if (!PyFunction_Check(O(r, vid)))
        return false;
    while (r->t->vals.at[vid].kind == KIN_VAL_SRC && r->t->vals.at[vid].parent != 0)
        vid = r->t->vals.at[vid].parent;
    return O(r, vid) != NULL && is_made(r, vid, r->info.at[vid].held); /* the object that it was read from may be gone */
}

bool
rec_can_const(rec *r, kin_vid vid)
{
    if (vid == 0)
        return false;
    if (rec_is_const(r, vid))
        return true;
    PyObject *obj = O(r, vid);
    if (obj == NULL)
        return false; /* not there yet */
    if (holds_constants(r, vid))
        return true;
    if (is_made(r, vid, true) || is_function_of_made(r, vid) || (r->t->vals.at[vid].kind == KIN_VAL_STEP && (VIRTUAL(r, vid) != NULL || is_new_each_time(obj) || rec_varies(r, vid))))
        return false;
    if (!kin_is_exact_immutable(obj) && !rec_pinnable(obj))
        return false;
    return !(kin_is_exact_immutable(obj) || PyFunction_Check(obj) || is_bound_to_object(obj) || rec_is_cache(obj)) ||
           !rec_is_dynamic(r, vid);
}

bool
rec_need_no_code(rec *r, kin_vid vid, bool all)
{
    PyObject *obj = O(r, vid);
    if (obj == NULL || !kin_exact_runs_no_code(obj, all))
        return false;
    PyTypeObject *tp = Py_TYPE(obj);
    bool contains = tp == &PyTuple_Type || tp == &PySlice_Type || !kin_is_exact_immutable(obj);
    if (contains && tp != &PyByteArray_Type && !(rec_is_const(r, vid) && kin_is_exact_immutable(obj)))
        rec_check(r, KIN_CHECK_RUNS_NO_CODE, vid, NULL, all);
    return true;
}

kin_vid
rec_need_const(rec *r, kin_vid vid)
{
    if (r->t->vals.at[vid].kind == KIN_VAL_CONST)
        return vid;
    if (r->info.at[vid].as_const)
        return r->info.at[vid].as_const;
    if (!rec_can_const(r, vid))
        return 0;
    PyObject *obj = O(r, vid);
    if (holds_constants(r, vid)) {
        for (uint32_t i = 0; i < VIRTUAL(r, vid)->n; i++)
            rec_need_const(r, VIRTUAL(r, vid)->items[i]);
        return r->info.at[vid].as_const = rec_const(r, obj);
    }
    bool by_id = !kin_is_exact_immutable(obj) || obj == Py_None || PyBool_Check(obj) || obj == Py_Ellipsis ||
                 kin_exact_has_nan(obj);
    if (is_asked_by_fact(r, vid))
        rec_fact(r, by_id ? KIN_FACT_ID : KIN_FACT_EQ, vid, obj, 0);
    else
        rec_check(r, by_id ? KIN_CHECK_IS : KIN_CHECK_EQ, vid, obj, 0);
    kin_vid c = rec_const(r, obj);
    r->info.at[vid].as_const = c;
    return c;
}

/* The items of a tuple or torch.Size made by the recording, each of them pinned. */
static bool
pin_items(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    if (f == NULL || !f->known || (f->kind != VIRTUAL_TUPLE && !kin_is_size(O(r, vid))))
        return false;
    for (uint32_t i = 0; i < VIRTUAL(r, vid)->n; i++)
        if (rec_pin_key(r, VIRTUAL(r, vid)->items[i]) == 0)
            return false;
    return true;
}

kin_vid
rec_pin_key(rec *r, kin_vid key)
{
    PyObject *obj = O(r, key);
    if (!rec_is_pair_key(obj))
        return 0;
    if (rec_can_const(r, key))
        return rec_need_const(r, key);
    if (!kin_is_exact_immutable(obj) || r->info.at[key].varies || r->info.at[key].changes_each_call)
        return 0;
    if (!pin_items(r, key)) {
        if (VIRTUAL(r, key) != NULL)
            return 0;
        rec_check(r, KIN_CHECK_EQ, key, obj, 0);
    }
    return r->info.at[key].as_const = rec_const(r, obj);
}

/* Length of an exact builtin container whose contents are read by path, or that an earlier step made. */
void
rec_need_len(rec *r, kin_vid vid, Py_ssize_t n)
{
    if (r->t->vals.at[vid].kind == KIN_VAL_CONST && !PyDict_Check(O(r, vid)) && !PyList_Check(O(r, vid)))
        return;
    if (is_asked_by_fact(r, vid))
        rec_fact(r, KIN_FACT_LEN, vid, NULL, (uint32_t)n);
    else
        rec_check(r, KIN_CHECK_LEN, vid, NULL, (uint32_t)n);
}

/* Contents of a value made in this epoch can be read by path only from a new epoch on. */
kin_vid
rec_root(rec *r, kin_vid vid)
{
    if (!rec_is_entry_value(r, vid))
        rec_end_epoch(r);
    (void)rec_epoch(r);
    return vid;
}

/* -- virtual objects ---------------------------------------------------------------------------------------------- */

bool
rec_virtual_push(rec_virtual *f, kin_vid vid)
{
    if (f->n == f->cap) {
        uint32_t cap = f->cap ? f->cap * 2 : 4;
        kin_vid *items = realloc(f->items, cap * sizeof *items);
        if (items == NULL)
            return false;
        f->items = items;
        f->cap = cap;
    }
    f->items[f->n++] = vid;
    return true;
}

rec_virtual *
rec_make_virtual(rec *r, kin_vid vid, virtual_kind kind, const kin_vid *items, uint32_t n, bool known)
{
    rec_virtual *f = calloc(1, sizeof *f);
    if (f == NULL) {
        r->status = KIN_NOMEM;
        return NULL;
    }
    f->kind = kind;
    f->known = known;
    for (uint32_t i = 0; i < n; i++)
        if (!rec_virtual_push(f, items[i])) {
            free(f->items);
            free(f);
            r->status = KIN_NOMEM;
            return NULL;
        }
    free(VIRTUAL(r, vid) ? VIRTUAL(r, vid)->items : NULL);
    free(VIRTUAL(r, vid));
    VIRTUAL(r, vid) = f;
    return f;
}

/* Classes, functions, torch.dtypes: found by their address. */
static bool
is_key_by_address(PyObject *key)
{
    const PyTypeObject *tp = Py_TYPE(key);
    bool plain = tp->tp_hash == PyBaseObject_Type.tp_hash && tp->tp_richcompare == PyBaseObject_Type.tp_richcompare;
    return (plain || PyCFunction_CheckExact(key)) && rec_pinnable(key);
}

bool
rec_is_pair_key(PyObject *key)
{
    if (key == NULL)
        return false;
    if (PyTuple_CheckExact(key) || kin_is_size(key)) {
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(key); i++)
            if (kin_is_enum_class(Py_TYPE(PyTuple_GET_ITEM(key, i))) || !rec_is_pair_key(PyTuple_GET_ITEM(key, i)))
                return false;
        return true;
    }
    /* What a GradScaler has found on each device decides whether its optimizer runs: that ends no graph as long as dicts of devices are not followed. */
    if (kin_is_exact_immutable(key))
        return !PySlice_Check(key) && !kin_exact_has_nan(key) && !kin_heap_type_is(Py_TYPE(key), "torch.device");
    return kin_is_enum_class(Py_TYPE(key)) || is_key_by_address(key);
}

bool
rec_is_known_key(rec *r, kin_vid key)
{
    return rec_is_pair_key(O(r, key)) && rec_can_const(r, key);
}

kin_vid *
rec_pairs_find(rec *r, const rec_virtual *f, PyObject *key)
{
    for (uint32_t i = 0; i + 1 < f->n; i += 2)
        if (kin_exact_same_key(O(r, f->items[i]), key))
            return &f->items[i + 1];
    return NULL;
}

void
rec_pairs_put(rec *r, rec_virtual *f, kin_vid key, kin_vid value)
{
    kin_vid *found = rec_pairs_find(r, f, O(r, key));
    if (found != NULL)
        *found = value;
    else if (!rec_virtual_push(f, key) || !rec_virtual_push(f, value))
        r->status = KIN_NOMEM;
}

void
rec_pairs_drop(rec *r, rec_virtual *f, PyObject *key)
{
    kin_vid *found = rec_pairs_find(r, f, key);
    if (found == NULL)
        return;
    memmove(found - 1, found + 1, (size_t)(f->items + f->n - (found + 1)) * sizeof *found);
    f->n -= 2;
}

/* The contents of an object that the recording created, if all are in its __dict__ and none in slots. */
static rec_virtual *
attributes(rec *r, kin_vid obj)
{
    rec_virtual *f = VIRTUAL(r, obj);
    if (f == NULL || f->kind != VIRTUAL_OBJECT || !f->known)
        return NULL;
    for (uint32_t i = 0; i < f->n; i += 2) {
        PyObject *descr = _PyType_Lookup(r->info.at[obj].type, O(r, f->items[i]));
        if (descr != NULL && Py_TYPE(descr) == &PyMemberDescr_Type)
            return NULL;
    }
    return f;
}

rec_virtual *
rec_exact_dict(rec *r, kin_vid vid)
{
    rec_virtual *f = VIRTUAL(r, vid);
    if (f != NULL && f->kind == VIRTUAL_ATTRS)
        return f->known ? attributes(r, f->items[0]) : NULL;
    return f != NULL && f->kind == VIRTUAL_DICT && f->known ? f : NULL;
}

kin_vid
rec_proxied(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    return f != NULL && f->kind == VIRTUAL_VIEW && r->info.at[vid].type == &PyDictProxy_Type ? f->items[0] : vid;
}

rec_virtual *
rec_mapping(rec *r, kin_vid vid)
{
    vid = rec_proxied(r, vid);
    rec_virtual *f = VIRTUAL(r, vid);
    return rec_exact_dict(r, f != NULL && f->kind == VIRTUAL_OBJECT && f->of != 0 ? f->of : vid);
}

rec_virtual *
rec_own_mapping(rec *r, kin_vid vid)
{
    const rec_virtual *f = VIRTUAL(r, vid);
    return f != NULL && f->kind == VIRTUAL_OBJECT && !f->escaped ? rec_mapping(r, vid) : NULL;
}

PyTypeObject *
rec_dict_base(PyTypeObject *tp)
{
    return PyType_IsSubtype(tp, &PyODict_Type) ? &PyODict_Type : &PyDict_Type;
}

void
rec_put_in_own_dict(rec *r, kin_vid dict, const kin_vid *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2) {
        const kin_vid args[3] = {dict, pairs[i], pairs[i + 1]};
        r->keep_inside = true;
        uint32_t s = rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
        r->keep_inside = false;
        kin_ref ref = rec_ref(r, (PyObject *)rec_dict_base(r->info.at[dict].type));
        r->t->steps.at[s].ref = ref;
        r->t->steps.at[s].imm = 1;
        rec_pairs_put(r, rec_mapping(r, dict), pairs[i], pairs[i + 1]);
        rec_changed(r, dict);
    }
}

void
rec_escape(rec *r, kin_vid vid)
{
    rec_virtual *f = vid ? VIRTUAL(r, vid) : NULL;
    if (vid && r->info.at[vid].raised)
        r->escaped = r->info.at[vid].raised;
    if (f == NULL || f->escaped)
        return;
    f->escaped = true;
    if (kin_vec_push(&r->escapees, vid) != KIN_OK)
        r->status = KIN_NOMEM;
    for (uint32_t i = 0; i < f->n; i++)
        rec_escape(r, f->items[i]);
    if (f->kind == VIRTUAL_OBJECT || f->kind == VIRTUAL_DICT)
        rec_escape(r, f->of);
    if (f->kind == VIRTUAL_NAMED)
        rec_escape(r, rec_made_class(r, (PyObject *)r->info.at[vid].type));
}

/* A container changed: iterators over it must not continue with the known contents (0: any container may have changed). */
void
rec_touch_iterators(rec *r, kin_vid container)
{
    for (uint32_t i = 0; i < r->iters.len; i++) {
        rec_virtual *f = VIRTUAL(r, r->iters.at[i]);
        if (f != NULL && f->kind == VIRTUAL_ITER && (container == 0 || f->of == container))
            f->known = false;
    }
}

/* -- tensor metadata -------------------------------------------------------------------------------------------- */

bool
rec_meta(rec *r, kin_vid tensor, unsigned mask)
{
    if (!kin_tensor_is_readable(O(r, tensor), mask))
        return false;
    r->meta_asked = true;
    (void)rec_epoch(r);
    rec_info *i = &r->info.at[tensor];
    if (i->meta_epoch == r->meta_epoch + 1) {
        mask &= ~i->meta_mask;
        if (mask == 0)
            return true;
    } else {
        i->meta_mask = 0;
    }
    uint64_t open = mask & (KIN_META_SIZES | KIN_META_STRIDES) ? rec_dynamic_dims(r, tensor) : 0;
    PyObject *record = rec_size_record(r, tensor, mask, open);
    if (record == NULL) {
        PyErr_Clear();
        return false;
    }
    if (is_asked_by_fact(r, tensor) && !r->inplace)
        rec_fact(r, KIN_FACT_T_META, tensor, record, 0);
    else
        rec_check(r, KIN_CHECK_META, tensor, record, 0);
    Py_DECREF(record);
    i = &r->info.at[tensor];
    i->meta_epoch = r->meta_epoch + 1;
    i->meta_mask |= mask;
    return true;
}
