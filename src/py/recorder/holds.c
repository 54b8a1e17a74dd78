/* Which values are tensors, or are known to contain some: containers, closures, suspended generators. Which of them run Python code when they die. */
#include "py/compat/generator.h"
#include "py/compat/heap.h"
#include "py/recorder/rec.h"

/* An object that was put into a container may have been removed and deallocated, so only what the recording noted about it is used. */
static bool
held_a_tensor(rec *r, const rec_virtual *f, int depth)
{
    for (uint32_t i = 0; i < f->n && depth <= 4; i++) {
        const rec_info *info = rec_info_of(r, f->items[i]);
        if (info->graph || (info->virtual != NULL && held_a_tensor(r, info->virtual, depth + 1)))
            return true;
    }
    return false;
}

rec_gen *
rec_find_generator(rec *r, kin_vid vid)
{
    rec_gen *gen = r->gens;
    while (gen != NULL && gen->vid != vid)
        gen = gen->next;
    return gen;
}

/* What it once held may have been deallocated: its frame says what it holds now, if no one else can have resumed it. */
static bool
generator_holds_tensor(rec *r, kin_vid vid, int depth)
{
    const rec_gen *gen = rec_find_generator(r, vid);
    if (gen == NULL || gen->state == GEN_LOST || !VIRTUAL(r, vid)->known || VIRTUAL(r, vid)->escaped)
        return held_a_tensor(r, VIRTUAL(r, vid), depth + 1);
    const kin_vid *at = gen->frame != NULL ? gen->frame->slots : gen->locals;
    int n = gen->frame != NULL ? gen->frame->nlocals + gen->frame->sp : gen->code->co_argcount + gen->code->co_kwonlyargcount;
    for (int i = 0; gen->state != GEN_DONE && at != NULL && i < n; i++)
        if (rec_holds_tensor(r, at[i], depth + 1))
            return true;
    return false;
}

static bool
generator_is_done(rec *r, kin_vid vid)
{
    const rec_gen *gen = rec_find_generator(r, vid);
    return gen != NULL && gen->state == GEN_DONE;
}

/* Does an iterator have the item no longer? Then it may be gone. */
static bool
has_let_go(const rec_virtual *f, uint32_t i)
{
    if (f->kind == VIRTUAL_ITER)
        return i < f->pos && f->endless != CYCLES;
    if (f->kind != VIRTUAL_LAZY || i < LAZY_SOURCES)
        return false;
    uint32_t at = i - LAZY_SOURCES;
    if (i < f->made_of)
        return at < f->gone || (at < 32 && f->let_go >> at & 1);
    return i + 1 < f->n || f->pos == 0 || f->gone != 0;
}

bool
rec_values_hold_tensor(rec *r, kin_vid vid)
{
    PyObject *obj = vid ? O(r, vid) : NULL, *key, *value;
    Py_ssize_t pos = 0;
    while (obj != NULL && PyDict_Check(obj) && PyDict_Next(obj, &pos, &key, &value))
        if (kin_is_tensor(value))
            return true;
    return rec_any_tensor(r, &vid, 1);
}

bool
rec_holds_tensor(rec *r, kin_vid vid, int depth)
{
    if (vid == 0 || depth > 4)
        return false;
    rec_virtual *f = VIRTUAL(r, vid);
    if (f != NULL && f->kind == VIRTUAL_GENERATOR)
        return generator_holds_tensor(r, vid, depth);
    if (f != NULL && f->kind != VIRTUAL_FUNCTION) {
        if (!f->known && held_a_tensor(r, f, depth))
            return true;
        for (uint32_t i = 0; f->known && i < f->n; i++)
            if (!has_let_go(f, i) && rec_holds_tensor(r, f->items[i], depth + 1))
                return true;
        if (f->known)
            return false;
    }
    PyObject *obj = O(r, vid);
    if (obj == NULL)
        return rec_info_of(r, vid)->graph; /* a row of a tensor, which the program's own iterator creates each time */
    if (kin_is_tensor(obj))
        return true;
    if (PyList_CheckExact(obj))
        for (Py_ssize_t i = 0; i < PyList_GET_SIZE(obj); i++)
            if (kin_is_tensor(PyList_GET_ITEM(obj, i)))
                return true;
    if (PyTuple_Check(obj))
        for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(obj); i++)
            if (kin_is_tensor(PyTuple_GET_ITEM(obj, i)))
                return true;
    return false;
}

bool
rec_any_tensor(rec *r, const kin_vid *args, uint32_t n)
{
    for (uint32_t i = 0; i < n; i++)
        if (rec_holds_tensor(r, args[i], 0))
            return true;
    return false;
}

static bool
is_tensor_or_cell(PyObject *obj)
{
    if (obj != NULL && PyCell_Check(obj))
        obj = PyCell_GET(obj);
    return obj != NULL && kin_is_tensor(obj);
}

/* Does a suspended generator that the recording did not create hold a tensor? One that delegates to another generator counts as holding one. */
static bool
frame_has_tensor(PyObject *gen)
{
    if (kin_generator_has_ended(gen))
        return false;
    struct _PyInterpreterFrame *frame = kin_generator_frame(gen);
    PyObject *inner = PyObject_GetAttrString(gen, "gi_yieldfrom"), *code = PyObject_GetAttrString(gen, "gi_code");
    bool found = frame == NULL || inner != Py_None || code == NULL;
    for (int i = 0; !found && i < ((PyCodeObject *)code)->co_nlocalsplus; i++)
        found = is_tensor_or_cell(kin_watch_localsplus(frame)[i]);
    Py_XDECREF(inner);
    Py_XDECREF(code);
    PyErr_Clear();
    return found;
}

/* Is there a tensor in the cells of a closure that the recording created? Attributes of the objects in them do not count. */
static bool
virtual_closure_has_tensor(rec *r, const rec_virtual *fn)
{
    rec_virtual *cells = fn->n > FN_CLOSURE && fn->items[FN_CLOSURE] ? VIRTUAL(r, fn->items[FN_CLOSURE]) : NULL;
    if (cells == NULL)
        return fn->n <= FN_CLOSURE || fn->items[FN_CLOSURE] != 0;
    for (uint32_t i = 0; i < cells->n; i++) {
        rec_virtual *cell = VIRTUAL(r, cells->items[i]);
        kin_vid held = cell != NULL && cell->kind == VIRTUAL_CELL && cell->known && cell->n ? cell->items[0] : 0;
        if (cell == NULL ? is_tensor_or_cell(O(r, cells->items[i])) : !cell->known)
            return true;
        if (held != 0 && !(VIRTUAL(r, held) && VIRTUAL(r, held)->kind == VIRTUAL_OBJECT) && rec_any_tensor(r, &held, 1))
            return true;
    }
    return false;
}

bool
rec_function_has_tensor(rec *r, kin_vid func)
{
    rec_virtual *made = VIRTUAL(r, func);
    if (made != NULL)
        return made->kind != VIRTUAL_FUNCTION || virtual_closure_has_tensor(r, made);
    PyObject *fn = O(r, func), *closure = fn && PyFunction_Check(fn) ? ((PyFunctionObject *)fn)->func_closure : NULL;
    for (Py_ssize_t i = 0; closure != NULL && i < PyTuple_GET_SIZE(closure); i++)
        if (is_tensor_or_cell(PyTuple_GET_ITEM(closure, i)))
            return true;
    return fn == NULL || !PyFunction_Check(fn);
}

/* ... and one that the recording created: in its parameters or its closure. */
static bool
ours_has_tensor(rec *r, kin_vid gen)
{
    if (generator_is_done(r, gen))
        return false;
    kin_vid func = VIRTUAL(r, gen)->n ? VIRTUAL(r, gen)->items[0] : 0;
    return func == 0 || rec_any_tensor(r, &gen, 1) || rec_function_has_tensor(r, func);
}

bool
rec_generator_has_tensor(rec *r, kin_vid gen)
{
    return VIRTUAL(r, gen) != NULL ? ours_has_tensor(r, gen) : frame_has_tensor(O(r, gen));
}

static bool
leads_to_tensor(PyObject *obj, PyObject *names, int depth, int *left)
{
    if (obj == NULL || --*left < 0 || kin_is_exact_immutable(obj) || PyType_Check(obj) || PyModule_Check(obj) || PyFunction_Check(obj))
        return false;
    if (kin_is_tensor(obj))
        return true;
    bool tuple = PyTuple_CheckExact(obj), list = PyList_CheckExact(obj);
    for (Py_ssize_t i = 0, n = tuple || list ? Py_SIZE(obj) : 0; depth > 0 && i < n; i++)
        if (leads_to_tensor(tuple ? PyTuple_GET_ITEM(obj, i) : PyList_GET_ITEM(obj, i), names, depth - 1, left))
            return true;
    PyObject *dict = PyDict_CheckExact(obj) ? obj : kin_heap_instance_dict(obj), *key, *value;
    for (Py_ssize_t pos = 0; depth > 0 && dict != NULL && PyDict_CheckExact(dict) && PyDict_Next(dict, &pos, &key, &value);)
        if (leads_to_tensor(value, names, depth - 1, left))
            return true;
    for (Py_ssize_t i = 0; depth > 0 && dict == NULL && names != NULL && i < PyTuple_GET_SIZE(names); i++)
        if (leads_to_tensor(kin_heap_instance_attr(obj, PyTuple_GET_ITEM(names, i)), names, depth - 1, left))
            return true;
    return false;
}

bool
rec_leads_to_tensor(PyObject *obj, PyObject *names)
{
    enum { DEPTH = 3, MOST = 200 };
    int left = MOST;
    return leads_to_tensor(obj, names, DEPTH, &left);
}

/* An object that dies may be the last to hold others, which may be the last to hold others. */
enum { MOST_DEATHS = 64 };

static bool
has_callback(PyObject *obj)
{
    PyObject **list = Py_TYPE(obj)->tp_weaklistoffset != 0 ? PyObject_GET_WEAKREFS_LISTPTR(obj) : NULL;
    for (PyWeakReference *w = list != NULL ? (PyWeakReference *)*list : NULL; w != NULL; w = w->wr_next)
        if (w->wr_callback != NULL)
            return true;
    return false;
}

static bool
runs_code(PyObject *obj, int *left)
{
    if (obj == NULL || --*left < 0 || kin_is_exact_immutable(obj) || PyType_Check(obj) || PyModule_Check(obj))
        return false;
    if (Py_TYPE(obj)->tp_finalize != NULL || Py_TYPE(obj)->tp_del != NULL || has_callback(obj))
        return true;
    bool tuple = PyTuple_CheckExact(obj), list = PyList_CheckExact(obj);
    for (Py_ssize_t i = 0, n = tuple || list ? Py_SIZE(obj) : 0; i < n; i++)
        if (runs_code(tuple ? PyTuple_GET_ITEM(obj, i) : PyList_GET_ITEM(obj, i), left))
            return true;
    PyObject *dict = PyDict_CheckExact(obj) ? obj : kin_heap_instance_dict(obj), *key, *value;
    for (Py_ssize_t pos = 0; dict != NULL && PyDict_CheckExact(dict) && PyDict_Next(dict, &pos, &key, &value);)
        if (runs_code(value, left))
            return true;
    return false;
}

bool
rec_death_runs_code(PyObject *obj)
{
    int left = MOST_DEATHS;
    return runs_code(obj, &left);
}

static bool
is_mortal(rec *r, kin_vid vid, int depth)
{
    const rec_virtual *f = vid != 0 ? VIRTUAL(r, vid) : NULL;
    bool plain = f != NULL && f->known && (f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_DICT);
    for (uint32_t i = 0; plain && depth < 4 && i < f->n; i++)
        if (is_mortal(r, f->items[i], depth + 1))
            return true;
    PyObject *obj = vid != 0 && f == NULL ? O(r, vid) : NULL;
    return obj != NULL && rec_death_runs_code(obj);
}

bool
rec_is_mortal(rec *r, kin_vid vid)
{
    return is_mortal(r, vid, 0);
}
