/* The state of an atomic region (region.c), for the files that judge its steps and write it down. */
#ifndef KIN_PY_RECORDER_REGION_PRIV_H
#define KIN_PY_RECORDER_REGION_PRIV_H

#include "py/recorder/rec.h"

/* What a region may find out about an older value, and what is taken back where the region is undone. */
typedef struct {
    PyTypeObject *type;
    uint32_t type_epoch;
    kin_vid as_const;
    rec_virtual *virtual;
} saved_info;

typedef struct {
    kin_vid vid;
    rec_virtual *virtual;
    uint32_t pos, n, gone, let_go;
    bool known, escaped;
} saved_virtual;

typedef struct {
    PyObject *tensor;
    long version;
} saved_version;

/* An item for an older set or list that only the generators of the region can reach, the state of an older iterator, or a plain store. */
typedef struct {
    kin_step_kind kind;
    uint32_t n;
    kin_vid args[3], target;     /* target: what is changed */
    bool plain;                  /* a store into an object that others can reach ... */
    kin_ref ref;                 /* ... under this name, if it is not a key */
    uint32_t effects;
    uint32_t steps, offset;      /* when that was: how many steps there were, and the instruction */
    const rec_frame *frame;
} deferred_change;

/* What an older cell held before the region stored into it. */
typedef struct {
    rec_virtual *cell;
    kin_vid content;
} saved_cell;

typedef struct rec_region {
    const rec_region_user *user;
    rec_frame *base;
    uint32_t snap, steps, nvals, nfacts, nwrites, nraises;
    kin_trace_mark before;         /* the instruction */
    saved_info *infos;             /* of all older values */
    saved_virtual *virtual;        /* of those that have one */
    uint32_t nvirtual;
    kin_vid *slots;
    KIN_VEC(kin_vid) moved;        /* older iterators that were advanced */
    KIN_VEC(kin_vid) used_up;      /* older map and filter objects that are at their end */
    KIN_VEC(deferred_change) deferred;
    KIN_VEC(saved_cell) cells;
    KIN_VEC(rec_virtual *) filled; /* older objects and dicts of the recording that were stored to */
    kin_vid changing;              /* what the instruction itself will have changed; 0: nothing */
    bool asked_added;              /* the next step takes them into account */
    bool stores;                   /* one of `deferred`, or `changing`, concerns an object that others can reach */
    bool acted;                    /* it has an effect: what follows cannot leave */
    KIN_VEC(saved_version) versions;
    PyObject *random;              /* state before the first torch call */
    bool committing;
} rec_region;

/* -- region.c: changes that are written at its end ---------------------------------------------------------------- */

/* A change of what is older than the region; true: it is deferred. */
bool region_defers_change(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n);
bool region_defers_store(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n);

#endif
