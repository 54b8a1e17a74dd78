/* A cache entry of a compiled function: a trace, the objects it refers to, its guard program, its compiled subgraphs and
 * its counters. Owned by the function's cache; never freed while `running` > 0.
 *
 * This folder lies below the folders that work on entries: guard evaluation, replay and the backends attach their own data,
 * each with a function that frees it.
 */
#ifndef KIN_PY_ENTRY_ENTRY_H
#define KIN_PY_ENTRY_ENTRY_H

#include "core/tier/remake.h"
#include "core/trace/trace.h"
#include "py/refs/refs.h"

struct kin_subgraphs;      /* py/replay/subgraphs.h */
struct kin_sunk_index; /* py/replay/sunk.c: which sunk steps belong to which value; one block of memory */
struct kin_guard_prog; /* py/guardeval: built from trace.vals + trace.facts, one part per epoch */

#define KIN_EXIT_USED UINT32_MAX

/* Who asked whether code is being compiled (recorder/compiling.c), and what the answer was. */
typedef enum { KIN_ASKER_PROGRAM, KIN_ASKER_LIBRARY, KIN_ASKER_OPTIMIZER } kin_asker;

typedef struct {
    kin_ref code;
    int line;
    uint8_t who; /* kin_asker */
    bool answer;
} kin_asked;

/* A size as it was in the recorded call. */
typedef struct {
    kin_vid tensor;
    int32_t dim;
    int64_t size;
} kin_known_size;

/* One that the program has marked with torch._dynamo.mark_dynamic, and that is tested exactly nonetheless (report/exact_sizes.h): why, and where. */
typedef enum { KIN_EXACT_COMPARED, KIN_EXACT_NEEDED, KIN_EXACT_ROWS, KIN_EXACT_ROUNDS, KIN_EXACT_STATIC } kin_exact_reason;

typedef struct {
    kin_vid tensor;
    uint8_t dim;
    uint8_t why; /* kin_exact_reason */
    int64_t size;
    uint32_t snap; /* 0: a guard tests it */
    kin_ref code;
    int line;
} kin_exact_size;

/* What was in the way of a call that cannot be compiled together with others. */
typedef struct {
    uint32_t step;
    char *text; /* made with malloc */
} kin_obstacle;

/* In the set of dynamic sources: what libraries do when they are told that code is being compiled is slower than eager calls. */
#define KIN_ASKERS_SLOWER "is_compiling() of libraries"

typedef struct kin_entry {
    kin_trace trace;
    kin_refs refs;
    struct kin_guard_prog *guards;
    void (*free_guards)(struct kin_guard_prog *);
    struct kin_sunk_index *sunk; /* NULL until an exit or a frame needed it */
    PyObject *func;          /* the recorded function (strong) */
    uint64_t hits;           /* replays that ran to RETURN */
    uint64_t exits;          /* replays that left at a side exit or EXIT */
    uint64_t misses;         /* guard misses of epoch 0 */
    uint64_t launches;       /* subgraphs that ran compiled */
    uint64_t covered;        /* steps that those stood for */
    uint64_t waits;          /* subgraphs that ran step by step while their code was being compiled in the background */
    bool again;              /* the next replay is the recorded call, made once more: what it tells others has been told */
    bool stepwise;           /* the last replay ran most of its steps one by one */
    uint32_t running;        /* replays in progress (recursion, threads) */
    uint32_t missed;         /* the fact that failed in the epoch at which a replay last left; UINT32_MAX: a path */
    kin_vid missed_vid;      /* ... that of this value */
    uint32_t *exit_counts;   /* by step: how often this CHECK/EPOCH left the program, KIN_EXIT_USED: its side trace was taken; NULL until needed */
    uint32_t nused;          /* side traces that were taken */
    kin_remake remake;       /* do all replays leave at one place? */
    double record_ns;
    char *failure;           /* a replay met a failure of our own (failure.h): its text, made with malloc */
    struct kin_subgraphs *subgraphs; /* what a backend compiled; NULL: step by step */
    void (*release_subgraphs)(struct kin_subgraphs *);
    KIN_VEC(uint32_t) excluded; /* calls that cannot be compiled together with others */
    KIN_VEC(kin_obstacle) obstacles; /* ... of some of them: why */
    KIN_VEC(uint32_t) invariant; /* calls that were alike for inputs of two kinds, while others of their subgraph were not */
    KIN_VEC(uint32_t) kept; /* calls of subgraphs that run early that are not made again: they draw random numbers, or write */
    KIN_VEC(uint32_t) random; /* ... those that draw */
    KIN_VEC(uint32_t) barriers; /* steps before which a call may raise: that they ran must not be observable */
    bool replan;             /* one of these has grown since the subgraphs were planned: they are planned anew after the call */
    KIN_VEC(kin_asked) asked; /* who asked torch.compiler.is_compiling() */
    bool late;               /* a cached function (functools.lru_cache) had no answer yet when it was called: its code ran */
    kin_ref detour;          /* code of a library that took a way over an operator written elsewhere because it was told; 0: none did */
    KIN_VEC(kin_known_size) seen_sizes; /* of arguments, whether a guard tests them or not; not of entries from the cache */
    KIN_VEC(kin_known_size) declared; /* marked with torch._dynamo.mark_dynamic */
    KIN_VEC(kin_exact_size) exact;
    PyObject *rows;          /* list: by step the row of torch.profiler that it belongs to (py/replay/rows.c); NULL: no profiler was on */
    bool grad;               /* gradients were enabled when subgraphs were first looked for, between calls */
    bool repeats;            /* of a checkpointed region: a call that was prepared has shown that its graphs can be done again (py/training/recompute.c) */
} kin_entry;

/* Has somebody of that sort asked, and was told so? */
static inline bool
kin_entry_was_asked(const kin_entry *v, kin_asker who, bool answer)
{
    for (uint32_t i = 0; i < v->asked.len; i++)
        if (v->asked.at[i].who == (uint8_t)who && v->asked.at[i].answer == answer)
            return true;
    return false;
}

/* An empty entry (trace and refs initialised), made with calloc; NULL without memory. */
kin_entry *kin_entry_new(void);
/* Each takes what it is given and frees what was there before. */
void kin_entry_set_guards(kin_entry *v, struct kin_guard_prog *guards, void (*free_guards)(struct kin_guard_prog *));
void kin_entry_set_subgraphs(kin_entry *v, struct kin_subgraphs *subgraphs, void (*release_subgraphs)(struct kin_subgraphs *));
/* As the two above. */
void kin_entry_set_rows(kin_entry *v, PyObject *rows);
/* Frees it and everything it owns; NULL is allowed. Only when `running` is 0. */
void kin_entry_free(kin_entry *v);

#endif
