/* Library functions that are modelled as a whole: functools.update_wrapper, copy.deepcopy of immutable objects, and what functools.lru_cache makes.
 *
 * Every decorator written with functools.wraps calls functools.update_wrapper, which gives a new function the name, docstring and
 * attributes of another one. On a function that the recording created, that is a change of this function alone, so it is one step,
 * which is dropped together with the function if nothing else gets hold of it.
 */
#include "py/compat/imports.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

/* The parameters, by position or by name; false: others than those, or other attributes than usual. */
static bool
read_arguments(rec *r, const kin_vid *args, uint32_t npos, uint32_t nkw, PyObject *kwnames, kin_vid *wrapper, kin_vid *wrapped)
{
    static const char *const names[] = {"wrapper", "wrapped", "assigned", "updated"};
    kin_vid found[4] = {0};
    if (npos > 4)
        return false;
    memcpy(found, args, npos * sizeof *args);
    for (uint32_t i = 0; i < nkw; i++) {
        int k = 0;
        while (k < 4 && PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(kwnames, i), names[k]) != 0)
            k++;
        if (k == 4 || found[k] != 0)
            return false;
        found[k] = args[npos + i];
    }
    static PyObject *assigned, *updated;
    kin_import_once(&assigned, "functools", "WRAPPER_ASSIGNMENTS");
    kin_import_once(&updated, "functools", "WRAPPER_UPDATES");
    *wrapper = found[0];
    *wrapped = found[1];
    return *wrapper != 0 && *wrapped != 0 && (found[2] == 0 || (O(r, found[2]) == assigned && rec_need_const(r, found[2]) != 0)) &&
           (found[3] == 0 || (O(r, found[3]) == updated && rec_need_const(r, found[3]) != 0));
}

/* A function whose attributes are names, or one in C without any of its own: reading and copying them runs no code. */
static bool
has_plain_attributes(rec *r, kin_vid function)
{
    if (O(r, function) != NULL && PyCFunction_CheckExact(O(r, function)) && rec_is_torch_callable(O(r, function)))
        return rec_can_const(r, function);
    PyObject *dict = O(r, function) != NULL && PyFunction_Check(O(r, function)) ? kin_instance_dict(O(r, function)) : NULL, *key;
    Py_ssize_t pos = 0;
    if (O(r, function) == NULL || !PyFunction_Check(O(r, function)) || (dict != NULL && !PyDict_CheckExact(dict)))
        return false;
    while (dict != NULL && PyDict_Next(dict, &pos, &key, NULL))
        if (!PyUnicode_CheckExact(key))
            return false;
    return true;
}

/* What torch.func's transforms decorate their functions with: a function that has the wrapped one in its only cell. Since torch 2.13; it wraps, and drops
 * attributes that torch.compile has given to the wrapped function. 0: it is none, or what is in its cell is not known. */
static kin_vid
wrapped_by_transform(rec *r, kin_vid callee)
{
    PyFunctionObject *fn = (PyFunctionObject *)O(r, callee);
    if (!kin_is_from_module((PyObject *)fn, "torch._functorch.apis") || VIRTUAL(r, callee) == NULL || fn->func_closure == NULL || PyTuple_GET_SIZE(fn->func_closure) != 1 ||
        PyUnicode_CompareWithASCIIString(fn->func_qualname, "_wraps_without_dynamo_attrs.<locals>.inner") != 0)
        return 0;
    kin_vid cell = rec_closure_cell(r, callee, 0, PyTuple_GET_ITEM(fn->func_closure, 0));
    const rec_virtual *f = VIRTUAL(r, cell);
    return f != NULL && f->known && f->n > 0 ? f->items[0] : 0;
}

/* What does the work at replay, and the functions: a call of functools.update_wrapper, or of a decorator that does the same and more. 0: neither. */
static kin_vid
find_wrapping(rec *r, const rec_args *a, kin_vid *wrapper, kin_vid *wrapped)
{
    static rec_library own;
    static PyObject *rewrap;
    if (rec_library_is_named(&own, "functools", "update_wrapper", O(r, a->callee)))
        return read_arguments(r, a->args, a->npos, a->nkw, a->kwnames, wrapper, wrapped) ? a->callee : 0;
    *wrapped = a->npos == 1 && a->nkw == 0 ? wrapped_by_transform(r, a->callee) : 0;
    *wrapper = a->npos == 1 ? a->args[0] : 0;
    PyObject *works = *wrapped != 0 ? kin_import_once(&rewrap, "kintsugi._operators", "wrap_transform") : NULL;
    return works != NULL ? rec_const(r, works) : 0;
}

bool
rec_call_update_wrapper(rec *r, const rec_args *a)
{
    kin_vid wrapper, wrapped, function = find_wrapping(r, a, &wrapper, &wrapped);
    rec_virtual *f = function != 0 ? VIRTUAL(r, wrapper) : NULL;
    if (f == NULL || f->kind != VIRTUAL_FUNCTION || f->escaped || !has_plain_attributes(r, wrapped))
        return false;
    rec_fix_function(r, &function);
    if (PyCFunction_Check(O(r, wrapped)))
        wrapped = rec_need_const(r, wrapped);
    else if (VIRTUAL(r, wrapped) == NULL)
        rec_fix_function(r, &wrapped);
    const kin_vid parts[3] = {wrapper, wrapped, function};
    rec_step(r, KIN_STEP_UPDATE_WRAPPER, KIN_STEP_MUTATES, parts, 3);
    rec_virtual_push(VIRTUAL(r, wrapper), wrapped);
    VIRTUAL(r, wrapper)->of = wrapped;
    rec_drop(r, a->ndrop);
    rec_push(r, wrapper);
    r->skip_expected = true; /* the library's frame */
    return true;
}

/* copy.copy of a tensor: the library rebuilds it step by step from its storage, in code that only pickling needs. */
static bool
call_copy(rec *r, const rec_args *a)
{
    static rec_library own;
    if (!rec_library_is_named(&own, "copy", "copy", O(r, a->callee)) || a->npos != 1 || a->nkw != 0 || !kin_is_tensor(O(r, a->args[0])))
        return false;
    kin_vid function = a->callee;
    rec_fix_function(r, &function);
    rec_call_step(r, a, rec_opaque_flags(r, function, a->args, 1), rec_opaque_row(r, function, a->args, 1));
    return true;
}

/* copy.deepcopy of a number, a text and the like: the object itself, as the library's table for these classes says. */
bool
rec_call_deepcopy(rec *r, const rec_args *a)
{
    static rec_library own;
    static PyObject *table, *atomic;
    if (!rec_library_is_named(&own, "copy", "deepcopy", O(r, a->callee)))
        return call_copy(r, a);
    kin_import_once(&table, "copy", "_deepcopy_dispatch");
    kin_import_once(&atomic, "copy", "_deepcopy_atomic");
    PyObject *obj = a->npos >= 1 ? O(r, a->args[0]) : NULL;
    if (a->npos > 2 || a->nkw != 0 || obj == NULL || table == NULL || !PyDict_CheckExact(table) || PyDict_GetItemWithError(table, (PyObject *)Py_TYPE(obj)) != atomic)
        return false;
    bool number = PyLong_CheckExact(obj) || PyFloat_CheckExact(obj) || PyBool_Check(obj) || PyComplex_CheckExact(obj);
    if (!number && obj != Py_None && !PyUnicode_CheckExact(obj) && !PyBytes_CheckExact(obj))
        return false;
    kin_vid function = a->callee;
    rec_fix_function(r, &function);
    if (!rec_is_const(r, a->args[0]))
        rec_need_type(r, a->args[0]);
    rec_drop(r, a->ndrop);
    rec_push(r, a->args[0]);
    r->skip_expected = true; /* the library's frames */
    return true;
}

/* -- functools.lru_cache ------------------------------------------------------------------------------------------- */

typedef struct {
    PyObject *dict, *mark, *before[3];
    bool found;
} cache_parts;

/* What the cache's tp_traverse visits ends with its dict, the cached function, the mark between arguments and keywords, two classes and, where there
 * are some, its attributes. */
static int
visit_part(PyObject *obj, void *to)
{
    cache_parts *c = to;
    if (!c->found && c->before[0] != NULL && PyDict_CheckExact(c->before[0]) && PyCallable_Check(c->before[1]) && Py_IS_TYPE(c->before[2], &PyBaseObject_Type) && PyType_Check(obj)) {
        c->dict = c->before[0];
        c->mark = c->before[2];
        c->found = true;
    }
    c->before[0] = c->before[1];
    c->before[1] = c->before[2];
    c->before[2] = obj;
    return 0;
}

/* Does the cache tell 1 from 1.0? An exception counts as yes. */
static bool
is_typed(PyObject *cache)
{
    PyObject *parameters = PyObject_CallMethod(cache, "cache_parameters", NULL), *typed = parameters != NULL ? PyDict_GetItemString(parameters, "typed") : NULL;
    bool yes = typed != Py_False;
    Py_XDECREF(parameters);
    PyErr_Clear();
    return yes;
}

/* The key as functools makes it: a single int or str as it is, else all arguments, the mark and the keywords. New; NULL with or without an exception. */
static PyObject *
make_key(rec *r, const rec_args *a, PyObject *mark)
{
    uint32_t n = a->npos + a->nkw;
    for (uint32_t i = 0; i < n; i++)
        if (!rec_is_const(r, a->args[i]) || !kin_is_exact_immutable(O(r, a->args[i])) || !rec_is_value(O(r, a->args[i])))
            return NULL;
    PyObject *only = n == 1 && a->nkw == 0 ? O(r, a->args[0]) : NULL;
    if (only != NULL && (PyUnicode_CheckExact(only) || PyLong_CheckExact(only)))
        return Py_NewRef(only);
    PyObject *key = PyTuple_New(a->npos + (a->nkw > 0 ? 1 + 2 * (Py_ssize_t)a->nkw : 0));
    for (uint32_t i = 0; key != NULL && i < a->npos; i++)
        PyTuple_SET_ITEM(key, i, Py_NewRef(O(r, a->args[i])));
    if (key != NULL && a->nkw > 0)
        PyTuple_SET_ITEM(key, a->npos, Py_NewRef(mark));
    for (uint32_t i = 0; key != NULL && i < a->nkw; i++) {
        PyTuple_SET_ITEM(key, a->npos + 1 + 2 * i, Py_NewRef(PyTuple_GET_ITEM(a->kwnames, i)));
        PyTuple_SET_ITEM(key, a->npos + 2 + 2 * i, Py_NewRef(O(r, a->args[a->npos + i])));
    }
    return key;
}

/* Has the cache the answer to these constant arguments? Then a check says so in front of the call. */
static bool
is_answered(rec *r, const rec_args *a)
{
    cache_parts parts = {.found = false};
    PyObject *cache = O(r, a->callee), *key = NULL;
    if (!rec_is_const(r, a->callee) || is_typed(cache))
        return false;
    Py_TYPE(cache)->tp_traverse(cache, visit_part, &parts);
    if (parts.found)
        key = make_key(r, a, parts.mark);
    bool answered = key != NULL && PyDict_Contains(parts.dict, key) == 1;
    PyObject *ref = answered ? PyTuple_Pack(2, parts.dict, key) : NULL;
    if (ref != NULL)
        rec_check(r, KIN_CHECK_ANSWERED, a->callee, ref, 0);
    Py_XDECREF(ref);
    Py_XDECREF(key);
    PyErr_Clear();
    return ref != NULL;
}

/* The call is made again at replay; while the cache has its answer, that is one object, which is compared by identity and then known. Where the answer
 * is there before the call, a check of that lets the call be seen as what it is then: a look into a dict, which calls of tensors around it neither see nor change.
 * Otherwise the cached function runs as in eager (here: the step becomes opaque, as code ran; at replay: without frames of the callers), and the
 * comparison leaves behind the call, with its answer.
 */
bool
rec_call_cached(rec *r, const rec_args *a)
{
    bool answered = is_answered(r, a);
    uint32_t step = r->t->vals.at[rec_model_step(r, a, 0)].step;
    if (answered)
        r->t->steps.at[step].effects = KIN_ASKS | KIN_BLIND | KIN_LETS_GO;
    r->top->await = AWAIT_CACHED;
    return true;
}
