/* The entries of one compiled function, by code object and call shape.
 *
 * Entries belong to a live code object: a function whose __code__ was replaced finds none. A *shape* is a
 * number of positional arguments and a tuple of keyword names; it has its own bind plan and its own list of entries,
 * most recently hit first. Everything is looked up by pointer on a hit; the last shape used is tried first.
 *
 * A call pins the cache while it holds a kin_call_shape pointer: any allocation can run a finaliser that empties the
 * cache. What is dropped meanwhile is retired and freed with the last pin.
 */
#ifndef KIN_PY_CACHE_H
#define KIN_PY_CACHE_H

#include "core/tier/lookup.h"
#include "py/cache/bind.h"
#include "py/cache/entry_object.h"

struct kin_code_entry;

typedef struct {
    struct kin_code_entry *owner;
    PyCodeObject *code; /* borrowed from owner */
    Py_ssize_t nargs;
    PyObject *kwnames;  /* strong; NULL: no keywords */
    kin_bind_plan *plan; /* NULL: CPython refuses such calls */
    KIN_VEC(kin_entry_object *) entries;
    uint32_t failures;  /* recordings that left nothing usable */
    kin_lookup lookup;  /* when no more are recorded: is looking for one worth it? */
    bool refuses;       /* the last of them because a break was to be an error */
} kin_call_shape;

typedef struct kin_code_entry {
    PyCodeObject *code;  /* strong */
    PyObject *dynamic_sources;  /* set of str: sources whose values changed between calls (dynamic_sources.h); NULL: none yet */
    KIN_VEC(kin_call_shape *) shapes;
    kin_trace_budget budget;   /* for recordings */
    uint32_t nentries;
    bool was_late;          /* a recording was made again because a cached function had no answer yet (kin_entry.late) */
    bool told_limit;
    bool waits;          /* nothing more is recorded for now: it would cost too much */
} kin_code_entry;

typedef struct {
    KIN_VEC(kin_code_entry *) codes;
    kin_call_shape *last;
    KIN_VEC(kin_code_entry *) retired;
    uint32_t pins;
} kin_cache;

void kin_cache_free_retired(kin_cache *cache);

static inline void
kin_cache_pin(kin_cache *cache)
{
    cache->pins++;
}

static inline void
kin_cache_unpin(kin_cache *cache)
{
    if (--cache->pins == 0 && cache->retired.len > 0)
        kin_cache_free_retired(cache);
}

/* The shape of such a call, or NULL when there is none yet. Runs no Python code. */
kin_call_shape *kin_cache_find_slow(kin_cache *cache, PyCodeObject *code, Py_ssize_t nargs, PyObject *kwnames);

static inline kin_call_shape *
kin_cache_find(kin_cache *cache, PyCodeObject *code, Py_ssize_t nargs, PyObject *kwnames)
{
    kin_call_shape *last = cache->last;
    if (last != NULL && last->code == code && last->nargs == nargs && last->kwnames == kwnames)
        return last;
    return kin_cache_find_slow(cache, code, nargs, kwnames);
}

/* As above, or a new shape; NULL without memory or when there are too many shapes. */
kin_call_shape *kin_cache_add(kin_cache *cache, PyCodeObject *code, Py_ssize_t nargs, PyObject *kwnames);
/* Puts a new entry first; steals the reference on success. */
kin_status kin_call_shape_push(kin_call_shape *shape, kin_entry_object *entry) KIN_MUST_CHECK;
/* Forgets the entry, which a call may still be running; it no longer counts towards the limit. */
void kin_cache_drop(kin_cache *cache, kin_entry_object *entry);
/* Makes entry i the first one to be tried. */
void kin_call_shape_promote(kin_call_shape *shape, uint32_t i);

/* Drops everything; the cache stays usable. */
void kin_cache_clear(kin_cache *cache);
void kin_cache_deinit(kin_cache *cache);
int kin_cache_traverse(kin_cache *cache, visitproc visit, void *arg);
/* All entries, those of one shape most recently hit first: new list. */
PyObject *kin_cache_list(const kin_cache *cache);

#endif
