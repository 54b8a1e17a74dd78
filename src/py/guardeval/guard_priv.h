/* Private to src/py/guardeval.
 *
 * An epoch's explicit program is a list of operations in the order of the values: each value is loaded, then its
 * facts are tested, so a parent's facts precede its children. It defines what the guard means. An epoch also has
 * up to KIN_FAST_SETS fast arrays (guard_fast.c), each built from one passing run of the explicit program.
 */
#ifndef KIN_PY_GUARD_PRIV_H
#define KIN_PY_GUARD_PRIV_H

#include "py/guardeval/guard.h"
#include "py/compat/heap.h"

enum { KIN_FAST_SETS = 16, KIN_FAST_LATER = 4 /* ... of epochs after the first */ };

typedef enum { KIN_GOP_ROOT, KIN_GOP_LOAD, KIN_GOP_FACT } kin_guard_op_kind;

typedef struct {
    uint8_t kind;  /* kin_guard_op_kind */
    kin_vid vid;   /* loaded, or tested */
    uint32_t fact; /* FACT: index in trace.facts */
} kin_guard_op;

/* Why a word is in the fast array: what is given up when it changes all the time. */
enum {
    KIN_SITE_LOC,   /* the place where the value lies: load it on each call */
    KIN_SITE_SHAPE, /* the value's own table (dict version, list array): look its items up */
    KIN_SITE_IDICT, /* the version of its instance dict: look its attributes up */
    KIN_SITE_FACT,  /* lengths and the like: test explicitly */
    KIN_SITE__COUNT
};

typedef struct {
    kin_vid vid;
    PyObject *obj; /* compared by address only */
} kin_guard_root;

typedef struct {
    bool armed;
    uint64_t last_used, armed_at; /* numbers of evaluations */
    KIN_VEC(kin_guard_root) roots;
    KIN_VEC(kin_word) words;
    KIN_VEC(uint32_t) sites;    /* by word: vid * KIN_SITE__COUNT + site */
    KIN_VEC(kin_guard_op) ops;  /* what has no words, in order */
    KIN_VEC(kin_guard_root) known; /* values the words prove, for ops; borrowed, valid while the words hold */
    KIN_VEC(kin_guard_root) kept;  /* values the words prove, for slots */
    KIN_VEC(kin_vid) loaded;       /* values that ops load, for slots */
} kin_guard_fast;

typedef struct {
    KIN_VEC(kin_guard_op) ops;
    KIN_VEC(uint32_t) calls; /* CALL_IS facts: first, since they run C code */
    KIN_VEC(kin_vid) keep;   /* loaded values that go to slots */
    uint64_t evals, last_change;
    uint32_t nsets;          /* how many arrays it may have */
    bool modes;              /* it begins under a mode of the program */
    kin_guard_fast *fast[KIN_FAST_SETS];
    kin_guard_fast *changed; /* the array in which this evaluation met a difference, and where */
} kin_guard_epoch;

struct kin_guard_prog {
    uint32_t nvals, nepochs;
    kin_guard_epoch *epochs;
    PyObject **cur;     /* by vid: borrowed values of the explicit run in progress */
    uint8_t *drops;     /* by vid: bits 1 << KIN_SITE_*, given up */
    uint8_t *strikes;   /* by site: changes in close succession */
    kin_guard_stats stats;
};

enum {
    KIN_TRAIT_PARENT = 1, /* other values of the epoch are read from it */
    KIN_TRAIT_TYPED = 2,  /* a fact of the epoch names its exact type, which refs keeps alive */
    KIN_TRAIT_FIRM = 4    /* has facts in the epoch that words can express */
};

/* guard_read.c */
/* Byte offset in `obj` of the pointer that the access reads, for accesses that are one fixed word of the object
 * (function fields, method and partial parts, cell contents, __slots__); 0 when the access is of another sort or
 * the object of another type. */
Py_ssize_t kin_guard_field(const kin_val *val, PyObject *obj);

/* guard_eval.c: runs operations, reading and writing values in at[] (and older ones in slots). */
bool kin_guard_run_ops(const kin_entry *v, uint32_t epoch, const kin_guard_op *ops, uint32_t nops, PyObject **at,
                       PyObject **slots, kin_guard_miss *miss);

/* guard_fast.c */
typedef enum { KIN_FAST_PASS, KIN_FAST_UNKNOWN } kin_fast_result;
/* Tries the fast arrays of the epoch. PASS: the values are in slots. UNKNOWN: run the explicit program. */
kin_fast_result kin_fast_eval(kin_entry *v, uint32_t epoch, PyObject **slots);
/* Makes a fast array from the values of the explicit run that just passed. Failing is not an error. */
void kin_fast_arm(kin_entry *v, uint32_t epoch, PyObject **slots);
/* Gives up in advance what the entry's own steps change: it would differ on each call. */
void kin_fast_expect_writes(kin_entry *v);
void kin_fast_free(kin_guard_fast *f);

#endif
