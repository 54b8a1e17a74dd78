/* A trace: everything that one recording of a call found out, as data. Written by the recorder (src/py/recorder), read by guard
 * evaluation (src/py/guardeval), replay (src/py/replay) and the reports. docs/design/trace.md explains the model.
 *
 * A trace is a tree stored flat. `steps` run in index order until RETURN or EXIT. A CHECK or EPOCH that fails
 * continues at its `alt` (first step of a side trace recorded later, always at a higher index), or leaves the trace at
 * its snapshot: the real frames are rebuilt and CPython runs the rest of the call. So does an EXIT, which may have an `alt` too.
 * LOOP_BACK, the end of a round of a loop, goes on behind the LOOP and its CARRY steps (docs/design/trace.md).
 *
 * Everything is referred to by index: values by kin_vid (0 = no value), Python objects by kin_ref (0 = none; the table
 * is src/py/refs), snapshots by number (0 = none). src/core never looks at the object behind a kin_ref.
 */
#ifndef KIN_TRACE_TRACE_H
#define KIN_TRACE_TRACE_H

#include <stdbool.h>
#include <stdint.h>

#include "core/base/status.h"
#include "core/base/vec.h"

typedef uint32_t kin_vid;
typedef uint32_t kin_ref;

typedef enum {
#define STEP(NAME, text, looks, late, changes, does, doc) KIN_STEP_##NAME,
#include "core/trace/steps.def"
#undef STEP
    KIN_STEP__COUNT
} kin_step_kind;

typedef enum {
#define ACCESS(NAME, text) KIN_ACCESS_##NAME,
#include "core/trace/access.def"
#undef ACCESS
    KIN_ACCESS__COUNT
} kin_access;

typedef enum {
#define FACT(NAME, text, guard, says) KIN_FACT_##NAME,
#include "core/trace/facts.def"
#undef FACT
    KIN_FACT__COUNT
} kin_fact_kind;

typedef enum {
#define UNARY(NAME, symbol, text) KIN_UNARY_##NAME,
#include "core/bytecode/operators.def"
    KIN_UNARY_NOT
} kin_unary;
enum { KIN_COMPARE_TO_BOOL = 8 }; /* a bit of COMPARE's imm */

/* Operands of BUILD_FUNCTION (0: absent); the last one is a function that computes annotations, and is optional. */
enum {
    KIN_FUNCTION_CODE, KIN_FUNCTION_GLOBALS, KIN_FUNCTION_DEFAULTS, KIN_FUNCTION_KWDEFAULTS, KIN_FUNCTION_ANNOTATIONS,
    KIN_FUNCTION_CLOSURE, KIN_FUNCTION_ANNOTATE, KIN_FUNCTION_PARTS
};

/* What a CHECK step tests about args[0]. */
typedef enum {
    KIN_CHECK_TRUE,    /* truth(args[0]); may run code, may raise */
    KIN_CHECK_FALSE,
    KIN_CHECK_TYPE,    /* exact Py_TYPE is ref */
    KIN_CHECK_VERSION, /* exact Py_TYPE is ref and its tp_version_tag is num */
    KIN_CHECK_IS,      /* object is ref */
    KIN_CHECK_IS_NOT,
    KIN_CHECK_EQ,      /* exact builtin immutable with the bits of ref */
    KIN_CHECK_LEN,     /* exact tuple/list/dict/set/str with num entries */
    KIN_CHECK_NULL,    /* the slot is empty (an exhausted iterator) */
    KIN_CHECK_NOTNULL,
    KIN_CHECK_META,    /* tensor metadata record ref */
    KIN_CHECK_SAME,    /* args[0] is args[1] */
    KIN_CHECK_NOT_SAME,
    KIN_CHECK_WAS_TRUE, /* after a TRUTH step that must not run twice: its result; snap is the state of the other outcome */
    KIN_CHECK_WAS_FALSE,
    KIN_CHECK_RUNS_NO_CODE,   /* comparing or hashing its contents runs no user code; num 1: nor does any other
                          use of them */
    KIN_CHECK_FITS,    /* storing into the attribute or item of args[0] that ref and num name changes nothing else (guardeval/guard.h) */
    KIN_CHECK_LACKS,   /* args[0] has no attribute of its own with the name ref */
    KIN_CHECK_ANSWERED /* the cache args[0] (functools.lru_cache) has an answer: ref is its dict and the key there */
} kin_check;

typedef enum { KIN_VAL_NONE, KIN_VAL_CONST, KIN_VAL_SRC, KIN_VAL_STEP } kin_val_kind;

typedef struct {
    uint8_t kind;     /* kin_val_kind */
    uint8_t access;   /* SRC: kin_access */
    uint16_t epoch;     /* SRC: the epoch at whose start it is loaded */
    kin_vid parent;   /* SRC: what it is read from (0 for LOCAL, FUNC) */
    uint32_t key;     /* SRC: kin_ref or number; CONST: kin_ref of the object; STEP whose result is a number from tensor data: the recorded one, or 0 */
    uint32_t step;    /* STEP: index of the step that makes it */
    kin_ref seen;     /* SRC, STEP, as recorded, for custom backends only: an immutable builtin, the description of a tensor without `note`, the
                         class of a SRC tensor, or of one that a graph returns, if it is not torch.Tensor; 0 = none */
    kin_ref note;     /* tensors: str such as "f32[3, 4][4, 1]cpu" as recorded; 0 for other values */
    kin_ref name;     /* str: the local variable it was first stored to, for graph text; 0 = none */
} kin_val;

enum {
    KIN_STEP_TORCH = 1,   /* a node of the call graph */
    KIN_STEP_OPAQUE = 2,  /* may run any Python code: frames are linked while it runs; facts end with it */
    KIN_STEP_BREAK = 4,   /* a graph break: the graph before it ends here */
    KIN_STEP_EFFECT = 8,  /* visible effect: never dropped */
    KIN_STEP_PURE = 16,   /* makes a virtual object or a number and does nothing else: dropped or sunk if unused */
    KIN_STEP_MUTATES = 32,/* changes only args[0]; sunk with it if args[0] is a virtual object that nothing needs */
    KIN_STEP_SUNK = 64,   /* set by kin_trace_finish: not run in sequence, only when an exit needs its object */
    KIN_STEP_RAISES = 128,/* must raise: out is the exception; if it does not, the trace is left after the instruction */
    KIN_STEP_AGAIN = 256, /* everything since snap can be repeated: if it raises, the exception is dropped and the trace is left before snap */
    KIN_STEP_HANDLES = 512,/* set by kin_trace_finish: snap has an exception being handled */
    KIN_STEP_DEATHS = 1024,/* an epoch: objects have died before it, and their finalisers ran Python code: no snapshot of an earlier call may keep them */
    KIN_STEP_SIZED = 4096, /* what it makes depends on sizes that differ from call to call: side traces do not assume its sizes either */
    KIN_STEP_REPORTS = 8192, /* OPAQUE, but tells somebody something (print, logging): what the program goes on with is looked at again behind it */
    KIN_STEP_MORTAL = 2048 /* its object holds another whose death runs Python code: it exists, so that what it holds dies in its order */
};

typedef struct {
    uint8_t kind;      /* kin_step_kind */
    uint8_t imm;       /* as steps.def says */
    uint16_t flags;
    uint32_t num;      /* number argument of checks; epoch number of EPOCH; LOOP: snapshot of the state behind its CARRY steps; LOOP_BACK: step of its LOOP; RAISES: kin_ref of the exact type, 0 = any */
    uint32_t args;     /* first operand in trace.vids */
    uint16_t nargs;
    uint16_t why;      /* KIN_STEP_BREAK: row of breaks.def + 1 */
    uint32_t effects;  /* as stamped by the recorder (effects.h); 0: those of its kind */
    kin_ref ref;
    kin_vid out;
    uint32_t snap;     /* state before the instruction: exits and exceptions land there */
    uint32_t alt;      /* CHECK, EPOCH: the step to continue with if it fails; EXIT: the recording's continuation; 0 = none */
    uint32_t frees;    /* set by kin_trace_finish: vids whose slots are released after this step */
    uint16_t nfrees;
    uint16_t graph;    /* TORCH: number of the graph it belongs to, from 1 (set by kin_trace_finish) */
} kin_step;

/* What the calling frame does with the value that a callee frame returns. */
typedef enum {
    KIN_RESUME_PUSH,   /* push it, continue at the instruction after `offset` */
    KIN_RESUME_DROP,   /* ignore it (STORE_ATTR through __setattr__, ...) */
    KIN_RESUME_NONE,   /* ignore it, push None (setattr() through __setattr__) */
    KIN_RESUME_INIT,   /* __init__: ignore it, push the instance `extra` */
    KIN_RESUME_DEFAULT,/* push it; an AttributeError is dropped and `extra` pushed (getattr with a default) */
    KIN_RESUME_HASATTR,/* push True; an AttributeError is dropped and False pushed */
    KIN_RESUME_FALLBACK,/* push it; after an AttributeError call `extra` = (__getattr__, object, name) instead */
    KIN_RESUME_TRUTH,  /* push bool(result): `in` through __contains__ */
    KIN_RESUME_FALSITY,/* push not result: `not in` */
    KIN_RESUME_OPERATOR,/* push it; after NotImplemented ask the other operand, with `extra` = (left, right, operator, was it asked?) */
    KIN_RESUME_OVERRIDE,/* push it; NotImplemented is a TypeError: the class `extra` does not support the torch call */
    KIN_RESUME_INPLACE,/* push it; after NotImplemented do the plain operator with `extra` = (left, right) instead */
    KIN_RESUME_NEVER   /* a C function in between takes it: no exit may land below this frame */
} kin_resume;

/* One frame's state between two instructions. The frames of an inlined chain are linked by `parent`. */
typedef struct {
    uint32_t parent;    /* the caller's snapshot at its call instruction; 0 for the compiled function itself */
    kin_vid func;       /* function object of the frame */
    kin_ref code;
    uint32_t offset;    /* byte offset of the instruction to execute (for a parent: of the call in progress) */
    uint32_t vals;      /* first of nlocals + nstack vids in trace.vids: localsplus, then the stack */
    uint16_t nlocals, nstack;
    uint8_t resume;     /* parent snapshots: kin_resume for the callee's result */
    uint8_t grad;       /* of a region that switches gradients on and off: 1 + whether they are on where it begins, as they are when a step with AGAIN leaves; 0 = it does not */
    kin_vid extra;      /* RESUME_INIT: the instance */
    kin_vid exc;        /* exception being handled in the inlined frames here; 0 = the one at entry */
    kin_vid names;      /* the dict that locals() has filled, and that whoever looks at the frame fills again (before 3.13); 0 = none */
    uint32_t line;
} kin_snap;

typedef struct {
    uint8_t kind;       /* kin_fact_kind */
    uint16_t epoch;
    kin_vid vid, vid2;
    kin_ref ref;
    uint32_t num;
    kin_ref code;       /* the place that needed it: code object and byte offset */
    uint32_t offset;
    bool undone;        /* needed by a region that was cut off; kept, because values may be read by paths that it makes safe */
} kin_fact;

/* What a replay reads instead of whole steps and values, because most steps of a long trace are sunk. */
typedef struct {
    uint32_t nsteps, nvals;
    uint64_t *runs;   /* by step, a bit: it runs, or slots are released after it */
    uint64_t *passes; /* ... or it is sunk and changes an object that may have been built */
    kin_ref *consts;  /* by vid: the object of a constant, 0 of other values */
} kin_stops;

typedef struct {
    KIN_VEC(kin_val) vals;      /* [0] is unused */
    KIN_VEC(kin_step) steps;    /* [0] is always the EPOCH 0 step */
    KIN_VEC(kin_vid) vids;      /* pool for operands, snapshots and free lists */
    KIN_VEC(kin_snap) snaps;    /* [0] is unused */
    KIN_VEC(kin_fact) facts;    /* in the order in which they were needed: parents before children */
    uint32_t nepochs;
    uint32_t ngraphs;
    uint32_t nbreaks;
    uint32_t neffects;          /* deferred effects */
    uint32_t deepest;           /* the most frames at a time while it was recorded */
    uint32_t depth;             /* ... or in one chain (set by kin_trace_finish) */
    bool handles;               /* some snapshot has an exception being handled (set by kin_trace_finish) */
    kin_stops stops;            /* set by kin_trace_finish */
} kin_trace;

/* Steps first..last (inclusive) that run one after the other. */
typedef struct {
    uint32_t first, last;
} kin_range;
typedef KIN_VEC(kin_range) kin_path;

/* The length of a trace, to which it can be cut back. */
typedef struct {
    uint32_t vals, steps, vids, snaps, facts, nepochs;
} kin_trace_mark;

/* An empty trace: vals[0], snaps[0], epoch 0 and its step. */
kin_status kin_trace_init(kin_trace *t) KIN_MUST_CHECK;
void kin_trace_deinit(kin_trace *t);

kin_trace_mark kin_trace_end(const kin_trace *t);
/* Drops everything after the mark. */
void kin_trace_cut(kin_trace *t, kin_trace_mark end);

/* Marks steps that need not run as SUNK, numbers the graphs, and computes where slots are released. Called again
 * after a side trace was added. */
kin_status kin_trace_finish(kin_trace *t) KIN_MUST_CHECK;

/* The ranges that lead from step 0 to `step` (inclusive), in order; a zeroed path is a valid empty one. */
kin_status kin_trace_path(const kin_trace *t, uint32_t step, kin_path *path) KIN_MUST_CHECK;

/* The first step from `step` on that has its bit; there is one. */
static inline uint32_t
kin_stops_next(const uint64_t *bits, uint32_t step)
{
    uint64_t word = bits[step / 64] >> (step % 64);
    if (word != 0)
        return step + (uint32_t)__builtin_ctzll(word);
    do
        step = (step | 63) + 1;
    while (bits[step / 64] == 0);
    return step + (uint32_t)__builtin_ctzll(bits[step / 64]);
}

/* Does the program not go on with the step behind it? */
static inline bool
kin_step_is_end(const kin_step *s)
{
    return s->kind == KIN_STEP_RETURN || s->kind == KIN_STEP_EXIT || s->kind == KIN_STEP_LOOP_BACK;
}

const char *kin_step_name(kin_step_kind kind);
const char *kin_access_name(kin_access access);
const char *kin_fact_name(kin_fact_kind kind);
const char *kin_fact_guard(kin_fact_kind kind); /* "TENSOR_MATCH" */
const char *kin_fact_says(kin_fact_kind kind);  /* "len($v) == $n" */

#endif
