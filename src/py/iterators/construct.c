/* Calls of classes: what type.__call__ does, as separate calls of __new__ and __init__.
 *
 * If a C function allocates (object.__new__ and the like), the new object is a virtual one and __init__ is inlined like
 * any other function. A __new__ in Python runs below C code that continues afterwards, and no exit could restore the state of that C
 * code: what __new__ does is a region (region.c), repeated as a whole. If that is not possible, the call is
 * an opaque step. __init__ comes after the region and is inlined as usual.
 *
 * We create an object silently only if nobody notices its creation or deallocation: classes with a finaliser stay opaque.
 */
#include "py/compat/heap.h"
#include "py/iterators/consume.h"
#include "py/recorder/callables.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* -- what allocates --------------------------------------------------------------------------------------------- */

/* The nearest base that is not made by a class statement. */
static PyTypeObject *
static_base(PyTypeObject *tp)
{
    while (tp != NULL && !kin_heap_type_is_static(tp))
        tp = tp->tp_base;
    return tp;
}

static bool
only_allocates(PyTypeObject *base)
{
    return base == &PyBaseObject_Type || base == &PyDict_Type || base == &PyList_Type || base == &PySet_Type ||
           base == &PyODict_Type || base == &PyTuple_Type || PyExceptionClass_Check(base);
}

/* The C function behind `__new__` of a class made by C. */
static PyObject *
c_new(PyTypeObject *base)
{
    PyObject *fn = NULL;
    for (; base != NULL && fn == NULL; base = base->tp_base)
        fn = PyDict_GetItemString(kin_type_dict(base), "__new__");
    return fn != NULL && PyCFunction_Check(fn) ? fn : NULL;
}

/* Can instances be made at any time and dropped again without anybody noticing? */
static bool
is_unobserved_class(PyTypeObject *tp)
{
    return !kin_heap_type_is_static(tp) && !(tp->tp_flags & Py_TPFLAGS_IS_ABSTRACT) && tp->tp_finalize == NULL &&
           tp->tp_del == NULL;
}

/* Its constructors are facts: by the version of the class, or, where that changes between calls, name by name. */
static void
need_constructors(rec *r, PyTypeObject *tp)
{
    PyTypeObject *meta = Py_TYPE(tp);
    /* What __abstractmethods__ says also depends on a flag, which only the version covers. */
    if (!rec_class_is_dynamic(r, tp) || _PyType_Lookup(tp, REC_STR("__abstractmethods__")) != NULL) {
        rec_class_version(r, tp);
        rec_attrs_of(r, meta);
        rec_lookup(r, meta, REC_STR("__call__"));
        return;
    }
    rec_attrs_of(r, tp);
    rec_attrs_of(r, meta);
    rec_lookup(r, meta, REC_STR("__call__"));
    rec_lookup(r, tp, REC_STR("__new__"));
    rec_lookup(r, tp, REC_STR("__init__"));
    rec_lookup(r, tp, REC_STR("__del__"));
    rec_lookup(r, tp, REC_STR("__abstractmethods__"));
    rec_bases_of(r, tp);
}

/* A new instance by a C function that only allocates; `args` are given to it behind the class. */
static kin_vid
new_instance(rec *r, kin_vid cls, PyObject *alloc, const kin_vid *args, uint32_t npos)
{
    kin_vid all[256];
    PyTypeObject *tp = (PyTypeObject *)O(r, cls);
    kin_vid obj;
    if (PyCFunction_GET_SELF(alloc) == (PyObject *)&PyBaseObject_Type) {
        obj = rec_step_out(r, KIN_STEP_BUILD_OBJECT, KIN_STEP_PURE, &cls, 1);
    } else {
        all[0] = rec_const(r, alloc);
        all[1] = cls;
        memcpy(all + 2, args, npos * sizeof *args);
        obj = rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, npos + 2);
    }
    rec_virtual *f = rec_make_virtual(r, obj, VIRTUAL_OBJECT, NULL, 0, true);
    if (f != NULL && PyType_IsSubtype(tp, &PyDict_Type)) {
        kin_vid mapping = rec_value(r, (kin_val){.kind = KIN_VAL_NONE}, NULL);
        rec_make_virtual(r, mapping, VIRTUAL_DICT, NULL, 0, true);
        VIRTUAL(r, obj)->of = mapping;
    }
    r->info.at[obj].type = tp;
    r->info.at[obj].type_epoch = rec_epoch(r) + 1;
    return obj;
}

/* -- tuples of the program's own classes ------------------------------------------------------------------------ */

static bool
finish_tuple(rec *r, const rec_args *a, kin_vid obj, kin_vid *items, uint32_t n)
{
    rec_make_virtual(r, obj, VIRTUAL_NAMED, items, n, true);
    free(items);
    r->info.at[obj].type = (PyTypeObject *)O(r, a->args[0]);
    r->info.at[obj].type_epoch = rec_epoch(r) + 1;
    return rec_model_value(r, a, obj);
}

/* tuple.__new__(cls, items): its items are known as those of a plain tuple are. */
static bool
new_tuple(rec *r, const rec_args *a, PyObject *alloc)
{
    kin_vid *items = NULL, all[3] = {rec_const(r, alloc), rec_as_const(r, a->args[0]), a->npos == 2 ? a->args[1] : 0};
    uint32_t n = 0;
    if (a->npos == 2 && !a->nkw && rec_lazy_for_real(r, a->args[1], &items, &n)) {
        kin_vid made = rec_step_out(r, KIN_STEP_CALL, 0, all, 3);
        return finish_tuple(r, a, made, items, n);
    }
    if (a->npos > 2 || a->nkw || (a->npos == 2 && !rec_items_of(r, a->args[1], &items, &n)))
        return false;
    /* An iterator would be used up. */
    rec_virtual *from = a->npos == 2 ? VIRTUAL(r, a->args[1]) : NULL;
    if (from != NULL && from->kind == VIRTUAL_ITER) {
        free(items);
        return false;
    }
    return finish_tuple(r, a, rec_step_out(r, KIN_STEP_CALL, KIN_STEP_PURE, all, 1 + a->npos), items, n);
}

/* Is this the `__new__` of a class made by C? */
static bool
is_c_new(PyObject *obj)
{
    PyObject *self = PyCFunction_Check(obj) ? PyCFunction_GET_SELF(obj) : NULL;
    return self != NULL && PyType_Check(self) && (rec_callable_effects(obj) & KIN_INSTANCE) != 0 &&
           c_new((PyTypeObject *)self) == obj;
}

/* object.__new__(cls) and its like, called by name: as a rule from a __new__ in Python. */
static bool
call_new(rec *r, const rec_args *a)
{
    PyObject *fn = O(r, a->callee);
    if (!is_c_new(fn) || a->npos < 1 || a->npos > 200 || !PyType_Check(O(r, a->args[0])))
        return false;
    PyTypeObject *tp = (PyTypeObject *)O(r, a->args[0]), *base = static_base(tp);
    if (base == NULL || !only_allocates(base) || !is_unobserved_class(tp) || c_new(base) != fn)
        return false;
    bool takes_args = PyExceptionClass_Check(base) || base == &PyTuple_Type;
    if (!takes_args && (a->npos + a->nkw) != 1 && base == &PyBaseObject_Type)
        return false; /* raises, or does not, by rules of its own */
    kin_vid cls = rec_need_const(r, a->args[0]);
    if (cls == 0 || (a->nkw && PyExceptionClass_Check(base)))
        return false;
    need_constructors(r, tp);
    if (base == &PyTuple_Type)
        return new_tuple(r, a, fn);
    return rec_model_value(r, a, new_instance(r, cls, fn, a->args + 1, takes_args ? a->npos - 1 : 0));
}

/* -- __new__ in Python ------------------------------------------------------------------------------------------- */

/* What comes behind __new__: nothing, an __init__ in Python, or something that is not understood. */
typedef enum { THEN_NOTHING, THEN_INIT, THEN_UNKNOWN } then_what;

static then_what
look_for_init(rec *r, kin_vid cls, kin_vid obj, PyObject **init)
{
    PyTypeObject *tp = rec_need_type(r, obj);
    rec_bases_of(r, tp);
    if (!PyType_IsSubtype(tp, (PyTypeObject *)O(r, cls)))
        return THEN_NOTHING;
    need_constructors(r, tp);
    *init = _PyType_Lookup(tp, REC_STR("__init__"));
    if (*init == NULL)
        return THEN_UNKNOWN;
    if (tp->tp_init == PyBaseObject_Type.tp_init && Py_TYPE(*init) == &PyWrapperDescr_Type)
        return tp->tp_new != PyBaseObject_Type.tp_new ? THEN_NOTHING : THEN_UNKNOWN;
    return PyFunction_Check(*init) && rec_can_inline(r, *init) ? THEN_INIT : THEN_UNKNOWN;
}

/* __new__ has returned; type.__call__ goes on to __init__. */
static void
go_on_to_init(rec *r, rec_consumer *c)
{
    PyObject *init = NULL;
    kin_vid all[CONSUMER_ARGS + 1], obj = c->n == 1 ? c->items[0] : 0;
    c->wants = false;
    c->ended = true;
    then_what then = r->refused || obj == 0 ? THEN_UNKNOWN : look_for_init(r, c->call.callee, obj, &init);
    if (then == THEN_UNKNOWN)
        rec_refuse(r);
    if (then != THEN_INIT || r->refused)
        return;
    rec_args call = rec_args_behind(&c->call, rec_found(r, Py_TYPE(O(r, obj)), REC_STR("__init__"), init), obj, all);
    if (!rec_bind(r, &call))
        rec_refuse(r);
    if (r->refused || !rec_end_consumer(r))
        return;
    if (!rec_inline(r, &call, NULL, 0, KIN_RESUME_INIT, obj)) {
        r->failed = true; /* bound a moment ago, and __new__ cannot be taken back any more */
        rec_stop(r, "unsupported arguments of __init__");
    }
}

/* The value is what __new__ returned: nothing came behind it. */
static bool
finish_new(rec *r, rec_consumer *c)
{
    if (c->n != 1 || !c->ended)
        return false;
    rec_drop(r, c->call.ndrop);
    rec_push(r, c->items[0]);
    return true;
}

/* The class is called by type.__call__, not by what its metaclass has: that may be what called. */
static void
call_opaquely(rec *r, const rec_consumer *c)
{
    unsigned flags = KIN_STEP_OPAQUE | KIN_STEP_EFFECT;
    kin_vid all[CONSUMER_ARGS + 1];
    if (Py_TYPE(O(r, c->call.callee))->tp_call == PyType_Type.tp_call) {
        rec_call_step(r, &c->call, flags, c->opaque_row);
        return;
    }
    PyObject *call = PyDict_GetItemString(kin_type_dict(&PyType_Type), "__call__"); /* borrowed, of a static type */
    rec_args by_type = rec_args_behind(&c->call, rec_const(r, call), c->call.callee, all);
    rec_call_step(r, &by_type, flags, c->opaque_row);
}

static const consumer_row new_row = {"__new__", TAKE_ALL, finish_new, go_on_to_init, NULL, call_opaquely};

static bool
construct(rec *r, const rec_args *a, kin_vid func)
{
    kin_vid all[CONSUMER_ARGS + 1];
    if (a->npos + a->nkw > CONSUMER_ARGS)
        return false;
    rec_consumer *c = rec_begin_consumer(r, NULL);
    if (c == NULL)
        return false;
    c->row = &new_row;
    rec_consume_as(r, c, a);
    rec_args call = rec_args_behind(a, func, a->callee, all);
    rec_call_or_refuse(r, &call);
    return true;
}

/* -- the call ------------------------------------------------------------------------------------------------------ */

/* No arguments, and an __init__ of object, dict or list, which then does nothing. */
static bool
needs_no_init(PyTypeObject *tp, const rec_args *a)
{
    PyTypeObject *base = static_base(tp);
    return a->npos + a->nkw == 0 && tp->tp_init == base->tp_init && (base == &PyBaseObject_Type || base == &PyDict_Type || base == &PyList_Type);
}

/* A class whose instances dict or OrderedDict fills by its __init__. The first stores without asking __setitem__, the second asks it. */
static bool
construct_dict(rec *r, const rec_args *a, PyObject *alloc)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, a->callee);
    kin_vid *pairs = NULL;
    uint32_t n = 0;
    const PyTypeObject *base = static_base(tp);
    bool filled = base == &PyDict_Type || (base == &PyODict_Type && tp->tp_as_mapping->mp_ass_subscript == base->tp_as_mapping->mp_ass_subscript);
    if (!filled || tp->tp_init != base->tp_init || !rec_dict_pairs(r, a, &pairs, &n))
        return false;
    need_constructors(r, tp);
    kin_vid obj = new_instance(r, a->callee, alloc, NULL, 0);
    rec_put_in_own_dict(r, obj, pairs, n);
    free(pairs);
    return rec_model_value(r, a, obj);
}

/* Does it put what it is given into an instance of the class without asking the program? */
static bool
is_filling_init(PyObject *callee, PyTypeObject *tp)
{
    static PyObject *init, *ordered_init; /* borrowed, of static types */
    if (init == NULL) {
        init = PyDict_GetItemString(kin_type_dict(&PyDict_Type), "__init__");
        ordered_init = PyDict_GetItemString(kin_type_dict(&PyODict_Type), "__init__");
    }
    if (tp == NULL || rec_dict_base(tp) == &PyDict_Type)
        return tp != NULL && callee == init;
    return callee == ordered_init && tp->tp_as_mapping->mp_ass_subscript == PyODict_Type.tp_as_mapping->mp_ass_subscript;
}

/* dict.__init__(self, ...) or that of OrderedDict, as an __init__ of the program calls it. */
static bool
call_dict_init(rec *r, const rec_args *a)
{
    kin_vid *pairs = NULL;
    uint32_t n = 0;
    if (a->npos < 1 || rec_own_mapping(r, a->args[0]) == NULL || !is_filling_init(O(r, a->callee), r->info.at[a->args[0]].type))
        return false;
    const rec_args from = {.args = a->args + 1, .npos = a->npos - 1, .nkw = a->nkw, .kwnames = a->kwnames};
    if (!rec_dict_pairs(r, &from, &pairs, &n))
        return false;
    rec_put_in_own_dict(r, a->args[0], pairs, n);
    free(pairs);
    return rec_model_value(r, a, rec_const(r, Py_None));
}

static bool
construct_by_init(rec *r, const rec_args *a, PyObject *alloc)
{
    kin_vid all[256];
    PyTypeObject *tp = (PyTypeObject *)O(r, a->callee);
    if (needs_no_init(tp, a)) {
        need_constructors(r, tp);
        return rec_model_value(r, a, new_instance(r, a->callee, alloc, NULL, 0));
    }
    if (static_base(tp) == &PyTuple_Type && tp->tp_init == PyBaseObject_Type.tp_init) { /* tuple.__new__ does it all */
        need_constructors(r, tp);
        const rec_args made = rec_args_behind(a, rec_const(r, alloc), a->callee, all);
        return new_tuple(r, &made, alloc);
    }
    if (construct_dict(r, a, alloc))
        return true;
    if (tp->tp_init == ((PyTypeObject *)PyExc_BaseException)->tp_init && a->nkw == 0) { /* it keeps the arguments, as __new__ has done */
        need_constructors(r, tp);
        return rec_model_value(r, a, new_instance(r, a->callee, alloc, a->args, a->npos));
    }
    PyObject *init = _PyType_Lookup(tp, REC_STR("__init__"));
    bool takes_args = PyExceptionClass_Check(static_base(tp));
    if (init == NULL || !PyFunction_Check(init) || !rec_can_inline(r, init) || static_base(tp) == &PyTuple_Type)
        return false;
    need_constructors(r, tp);
    kin_vid obj = new_instance(r, a->callee, alloc, a->args, takes_args ? a->npos : 0);
    rec_args call = rec_args_behind(a, rec_found(r, tp, REC_STR("__init__"), init), obj, all);
    return rec_inline(r, &call, NULL, 0, KIN_RESUME_INIT, obj);
}

/* type.__call__(cls, ...) of a class made by a class statement. */
static bool
type_call(rec *r, const rec_args *a)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, a->callee), *base = static_base(tp);
    if (base == NULL || !is_unobserved_class(tp) || a->npos + a->nkw > 200)
        return false;
    if (tp->tp_new == base->tp_new) {
        PyObject *alloc = only_allocates(base) ? c_new(base) : NULL;
        return alloc != NULL && construct_by_init(r, a, alloc);
    }
    attr_result at;
    rec_attr_find(r, a->callee, REC_STR("__new__"), &at);
    if (at.kind != ATTR_VALUE || !PyFunction_Check(O(r, at.value)) || !rec_can_inline(r, O(r, at.value)))
        return false;
    need_constructors(r, tp);
    return construct(r, a, at.value);
}

/* Is it the __new__ that collections.namedtuple makes, which does nothing but make a tuple of the class? */
static bool
makes_named_tuple(PyObject *func)
{
    PyObject *globals = PyFunction_GET_GLOBALS(func), *names = ((PyCodeObject *)PyFunction_GET_CODE(func))->co_names;
    PyObject *alloc = PyDict_GetItemString(globals, "_tuple_new"); /* borrowed */
    return alloc != NULL && alloc == c_new(&PyTuple_Type) && PyTuple_GET_SIZE(names) == 1 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(names, 0), "_tuple_new") == 0;
}

kin_vid
rec_named_tuple_new(rec *r, kin_vid cls)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, cls);
    attr_result at;
    if (tp == NULL || !PyType_Check(tp) || Py_TYPE(tp) != &PyType_Type || static_base(tp) != &PyTuple_Type || !is_unobserved_class(tp) ||
        tp->tp_new == PyTuple_Type.tp_new || tp->tp_init != PyBaseObject_Type.tp_init || !rec_can_const(r, cls))
        return 0;
    rec_attr_find(r, rec_need_const(r, cls), REC_STR("__new__"), &at);
    if (at.kind != ATTR_VALUE || !PyFunction_Check(O(r, at.value)) || !makes_named_tuple(O(r, at.value)) || !rec_can_inline(r, O(r, at.value)))
        return 0;
    need_constructors(r, tp);
    return at.value;
}

kin_vid
rec_plain_instance(rec *r, kin_vid cls, kin_vid *init)
{
    PyTypeObject *tp = (PyTypeObject *)O(r, cls);
    if (tp == NULL || !PyType_Check(tp) || Py_TYPE(tp) != &PyType_Type || static_base(tp) != &PyBaseObject_Type || !is_unobserved_class(tp) ||
        tp->tp_new != PyBaseObject_Type.tp_new || !rec_can_const(r, cls))
        return 0;
    PyObject *found = _PyType_Lookup(tp, REC_STR("__init__"));
    if (found == NULL || !PyFunction_Check(found) || !rec_can_inline(r, found))
        return 0;
    kin_vid known = rec_need_const(r, cls);
    need_constructors(r, tp);
    *init = rec_found(r, tp, REC_STR("__init__"), found);
    return new_instance(r, known, c_new(&PyBaseObject_Type), NULL, 0);
}

/* A class is called: by its metaclass, where that has a __call__ in Python. */
bool
rec_call_class(rec *r, const rec_args *a)
{
    kin_vid all[256];
    PyTypeObject *meta = Py_TYPE(O(r, a->callee));
    if (meta->tp_call == PyType_Type.tp_call)
        return type_call(r, a);
    PyObject *call = meta->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(meta, REC_STR("__call__")) : NULL;
    if (call == NULL || !PyFunction_Check(call) || a->npos + a->nkw > 200 || !rec_can_inline(r, call))
        return false;
    rec_need_metaclass(r, (PyTypeObject *)O(r, a->callee));
    rec_attrs_of(r, meta);
    rec_lookup(r, meta, REC_STR("__call__"));
    rec_args by_metaclass = rec_args_behind(a, rec_found(r, meta, REC_STR("__call__"), call), a->callee, all);
    return rec_inline(r, &by_metaclass, NULL, 0, KIN_RESUME_PUSH, 0);
}

/* type.__call__ called by name, as a rule through super() from a metaclass. */
static bool
call_type_call(rec *r, const rec_args *a)
{
    if (a->npos < 1 || !PyType_Check(O(r, a->args[0])) || O(r, a->args[0]) == (PyObject *)&PyType_Type)
        return false;
    rec_args call = rec_args_to(a, rec_need_const(r, a->args[0]));
    call.args++;
    call.npos--;
    return call.callee != 0 && type_call(r, &call);
}

/* __new__ and type.__call__, called by name. */
bool
rec_call_constructor(rec *r, const rec_args *a)
{
    static PyObject *type_call; /* borrowed, of a static type */
    if (type_call == NULL)
        type_call = PyDict_GetItemString(kin_type_dict(&PyType_Type), "__call__");
    if (O(r, a->callee) == type_call)
        return call_type_call(r, a);
    return a->npos + a->nkw <= 250 && (call_new(r, a) || call_dict_init(r, a));
}
