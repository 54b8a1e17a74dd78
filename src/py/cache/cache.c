/* The entries of one compiled function (cache.h). */
#include "py/cache/cache.h"

#include "core/tier/tier.h"

/* -- call shapes ------------------------------------------------------------------------------------------- */

/* Same keywords in the same order. Names are nearly always interned, so pointers decide; else exact strs compare. */
static bool
same_names(PyObject *a, PyObject *b)
{
    if (a == b)
        return true;
    if (a == NULL || b == NULL || PyTuple_GET_SIZE(a) != PyTuple_GET_SIZE(b))
        return false;
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(a); i++) {
        PyObject *x = PyTuple_GET_ITEM(a, i), *y = PyTuple_GET_ITEM(b, i);
        if (x == y)
            continue;
        if (!PyUnicode_CheckExact(x) || !PyUnicode_CheckExact(y))
            return false;
        int order = PyUnicode_Compare(x, y);
        if (order == -1 && PyErr_Occurred())
            PyErr_Clear();
        if (order != 0)
            return false;
    }
    return true;
}

static kin_code_entry *
find_code(const kin_cache *cache, PyCodeObject *code)
{
    for (uint32_t i = 0; i < cache->codes.len; i++)
        if (cache->codes.at[i]->code == code)
            return cache->codes.at[i];
    return NULL;
}

static kin_call_shape *
find_shape(const kin_code_entry *entry, Py_ssize_t nargs, PyObject *kwnames)
{
    for (uint32_t i = 0; i < entry->shapes.len; i++) {
        kin_call_shape *shape = entry->shapes.at[i];
        if (shape->nargs == nargs && same_names(shape->kwnames, kwnames))
            return shape;
    }
    return NULL;
}

kin_call_shape *
kin_cache_find_slow(kin_cache *cache, PyCodeObject *code, Py_ssize_t nargs, PyObject *kwnames)
{
    kin_code_entry *entry = find_code(cache, code);
    kin_call_shape *shape = entry == NULL ? NULL : find_shape(entry, nargs, kwnames);
    if (shape != NULL)
        cache->last = shape;
    return shape;
}

static void
free_shape(kin_call_shape *shape)
{
    for (uint32_t i = 0; i < shape->entries.len; i++)
        Py_DECREF(shape->entries.at[i]);
    kin_vec_deinit(&shape->entries);
    kin_bind_plan_free(shape->plan);
    Py_XDECREF(shape->kwnames);
    free(shape);
}

static void
free_entry(kin_code_entry *entry)
{
    for (uint32_t i = 0; i < entry->shapes.len; i++)
        free_shape(entry->shapes.at[i]);
    kin_vec_deinit(&entry->shapes);
    Py_XDECREF(entry->dynamic_sources);
    Py_DECREF(entry->code);
    free(entry);
}

void
kin_cache_free_retired(kin_cache *cache)
{
    while (cache->pins == 0 && cache->retired.len > 0)
        free_entry(cache->retired.at[--cache->retired.len]);
}

/* Without memory for the list a pinned entry is leaked rather than freed under somebody's feet. */
static void
retire(kin_cache *cache, kin_code_entry *entry)
{
    if (kin_vec_push(&cache->retired, entry) != KIN_OK && cache->pins == 0)
        free_entry(entry);
}

/* -- growing ----------------------------------------------------------------------------------------------- */

/* A new entry; replaces the oldest one when a function keeps changing its code. */
static kin_code_entry *
add_code(kin_cache *cache, PyCodeObject *code)
{
    kin_code_entry *entry = calloc(1, sizeof *entry);
    if (entry == NULL)
        return NULL;
    entry->code = (PyCodeObject *)Py_NewRef((PyObject *)code);
    if (cache->codes.len == KIN_TIER_CODES) {
        retire(cache, cache->codes.at[0]);
        memmove(cache->codes.at, cache->codes.at + 1, (KIN_TIER_CODES - 1) * sizeof *cache->codes.at);
        cache->codes.len--;
        cache->last = NULL;
    }
    if (kin_vec_push(&cache->codes, entry) != KIN_OK) {
        free_entry(entry);
        entry = NULL;
    }
    return entry;
}

kin_call_shape *
kin_cache_add(kin_cache *cache, PyCodeObject *code, Py_ssize_t nargs, PyObject *kwnames)
{
    kin_call_shape *shape = kin_cache_find(cache, code, nargs, kwnames);
    if (shape != NULL)
        return shape;
    kin_code_entry *entry = find_code(cache, code);
    if (entry == NULL)
        entry = add_code(cache, code);
    if (entry == NULL || entry->shapes.len >= KIN_TIER_SHAPES)
        return NULL;
    shape = calloc(1, sizeof *shape);
    if (shape == NULL)
        return NULL;
    *shape = (kin_call_shape){.owner = entry, .code = code, .nargs = nargs, .kwnames = Py_XNewRef(kwnames)};
    kin_status status = kin_bind_plan_make(code, nargs, kwnames, &shape->plan);
    if ((status != KIN_OK && status != KIN_BREAK) || kin_vec_push(&entry->shapes, shape) != KIN_OK) {
        free_shape(shape);
        return NULL;
    }
    cache->last = shape;
    return shape;
}

kin_status
kin_call_shape_push(kin_call_shape *shape, kin_entry_object *entry)
{
    KIN_TRY(kin_vec_push(&shape->entries, entry));
    kin_call_shape_promote(shape, shape->entries.len - 1);
    shape->owner->nentries++;
    return KIN_OK;
}

void
kin_call_shape_promote(kin_call_shape *shape, uint32_t i)
{
    kin_entry_object *entry = shape->entries.at[i];
    memmove(shape->entries.at + 1, shape->entries.at, i * sizeof *shape->entries.at);
    shape->entries.at[0] = entry;
}

static bool
drop_from_shape(kin_call_shape *shape, kin_entry_object *entry)
{
    for (uint32_t i = 0; i < shape->entries.len; i++)
        if (shape->entries.at[i] == entry) {
            shape->entries.len--;
            memmove(shape->entries.at + i, shape->entries.at + i + 1, (shape->entries.len - i) * sizeof *shape->entries.at);
            shape->owner->nentries--;
            Py_DECREF(entry);
            return true;
        }
    return false;
}

void
kin_cache_drop(kin_cache *cache, kin_entry_object *entry)
{
    bool found = false;
    entry->broken = true;
    kin_cache_pin(cache);
    for (uint32_t c = 0; !found && c < cache->codes.len; c++)
        for (uint32_t s = 0; !found && s < cache->codes.at[c]->shapes.len; s++)
            found = drop_from_shape(cache->codes.at[c]->shapes.at[s], entry);
    kin_cache_unpin(cache);
}

/* -- the whole --------------------------------------------------------------------------------------------- */

void
kin_cache_clear(kin_cache *cache)
{
    cache->last = NULL;
    while (cache->codes.len > 0)
        retire(cache, cache->codes.at[--cache->codes.len]);
    kin_cache_free_retired(cache);
}

static int
visit_entry(kin_code_entry *entry, visitproc visit, void *arg)
{
    Py_VISIT(entry->code);
    Py_VISIT(entry->dynamic_sources);
    for (uint32_t s = 0; s < entry->shapes.len; s++) {
        kin_call_shape *shape = entry->shapes.at[s];
        Py_VISIT(shape->kwnames);
        for (uint32_t i = 0; i < shape->entries.len; i++)
            Py_VISIT(shape->entries.at[i]);
    }
    return 0;
}

int
kin_cache_traverse(kin_cache *cache, visitproc visit, void *arg)
{
    int stop = 0;
    for (uint32_t i = 0; !stop && i < cache->codes.len; i++)
        stop = visit_entry(cache->codes.at[i], visit, arg);
    for (uint32_t i = 0; !stop && i < cache->retired.len; i++)
        stop = visit_entry(cache->retired.at[i], visit, arg);
    return stop;
}

void
kin_cache_deinit(kin_cache *cache)
{
    kin_cache_clear(cache);
    kin_vec_deinit(&cache->codes);
    kin_vec_deinit(&cache->retired);
}

PyObject *
kin_cache_list(const kin_cache *cache)
{
    PyObject *list = PyList_New(0);
    for (uint32_t c = 0; list != NULL && c < cache->codes.len; c++) {
        kin_code_entry *entry = cache->codes.at[c];
        for (uint32_t s = 0; s < entry->shapes.len; s++)
            for (uint32_t i = 0; i < entry->shapes.at[s]->entries.len; i++)
                if (PyList_Append(list, (PyObject *)entry->shapes.at[s]->entries.at[i]) < 0) {
                    Py_DECREF(list);
                    return NULL;
                }
    }
    return list;
}
