/* The ATen graph: operator calls in the order in which they were captured, with what each returned. Built by py/capture
 * or by the parser; read by core/lower. docs/design/kernels.md shows its text. Values are numbered from 1. A failed
 * allocation makes it sticky (`failed`).
 */
#ifndef KIN_ATEN_ATEN_H
#define KIN_ATEN_ATEN_H

#include "core/aten/ops.h"
#include "core/ir/ir.h"

typedef uint32_t kin_aten_val;

typedef enum {
    KIN_ATEN_NONE,   /* None */
    KIN_ATEN_BOOL, KIN_ATEN_INT, KIN_ATEN_FLOAT,
    KIN_ATEN_STR,    /* text, in double quotes */
    KIN_ATEN_DTYPE,  /* i = kin_dtype; printed f32, i64, ... */
    KIN_ATEN_WORD,   /* anything else that does not matter to lowering (a device, layout, memory format): text */
    KIN_ATEN_VALUE,  /* a tensor */
    KIN_ATEN_LIST    /* count arguments follow, from `child` on, in aten.args */
} kin_aten_arg_kind;

typedef struct {
    uint8_t kind;
    bool written;       /* VALUE: the call writes to it (the schema's "!"); printed %3! */
    union {
        int64_t i;      /* BOOL, INT, DTYPE */
        double f;       /* FLOAT */
        uint32_t text;  /* STR, WORD: offset in aten.texts */
        kin_aten_val value;
        struct { uint32_t child, count; } list;
    };
    uint32_t name;      /* keyword: offset in aten.texts; 0 = by position */
    kin_aten_val open;  /* INT, FLOAT: the input without dims that holds the number, which may be another one in each run; 0: the number is always this one */
} kin_aten_arg;

typedef struct {
    uint32_t op;        /* offset of "aten.add.Tensor" in aten.texts */
    uint32_t args, nargs;         /* in aten.args */
    kin_aten_val results;         /* first of nresults, numbered in a row */
    uint32_t nresults;
    uint16_t row;       /* kin_aten_op: what is known of the operator */
    bool in_place;      /* the row is of the operator that does the same, but not in place */
    bool random;        /* it draws random numbers; printed in front of the operator */
} kin_aten_call;

typedef struct {
    uint8_t dtype, ndim;
    uint32_t sizes, strides; /* first of ndim in aten.ints; strides in elements */
    uint32_t storage;        /* values with the same number share memory */
    int64_t offset;          /* in elements */
    uint32_t call;           /* its call; UINT32_MAX: input number `input` */
    uint32_t input;
} kin_aten_value;

typedef struct { uint32_t next, left; } kin_aten_hole;

typedef struct {
    KIN_VEC(kin_aten_value) values;  /* [0] is unused */
    KIN_VEC(kin_aten_call) calls;
    KIN_VEC(kin_aten_arg) args;
    KIN_VEC(int64_t) ints;
    KIN_VEC(kin_aten_val) outputs;
    KIN_VEC(kin_aten_hole) holes;    /* while building: lists of the newest call that want elements, innermost last */
    kin_text texts;                  /* each with its NUL; offset 0 is "" */
    uint32_t ninputs, nstorages;
    bool *asked;                     /* by input: a number whose value was asked for; NULL: no number is open */
    bool failed;
} kin_aten;

kin_aten *kin_aten_new(void);
void kin_aten_free(kin_aten *g);

/* Inputs come first, in order. storage: number from 1, chosen by the caller (also below). */
kin_aten_val kin_aten_input(kin_aten *g, kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides,
                            uint32_t storage, int64_t offset);
/* A call; then its arguments in order, then its results. Returns its number. random: by its schema, which decides where it has no row. */
uint32_t kin_aten_add_call(kin_aten *g, const char *op, bool random);
/* Appends an argument to the newest call. For a LIST: only its `count` is read, its elements are appended next (elements
 * of lists may be lists). keyword: NULL by position. text: of STR and WORD. */
void kin_aten_add_arg(kin_aten *g, kin_aten_arg arg, const char *keyword, const char *text);
kin_aten_val kin_aten_add_result(kin_aten *g, kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides,
                                 uint32_t storage, int64_t offset);
void kin_aten_output(kin_aten *g, kin_aten_val value);

static inline const kin_aten_value *kin_aten_at(const kin_aten *g, kin_aten_val v) { return &g->values.at[v]; }
static inline const int64_t *kin_aten_sizes(const kin_aten *g, kin_aten_val v) { return g->ints.at + g->values.at[v].sizes; }
static inline const int64_t *kin_aten_strides(const kin_aten *g, kin_aten_val v) { return g->ints.at + g->values.at[v].strides; }
static inline kin_aten_op kin_aten_op_of(const kin_aten_call *call) { return (kin_aten_op)call->row; }
static inline const char *kin_aten_text(const kin_aten *g, uint32_t offset) { return g->texts.at ? g->texts.at + offset : ""; }

/* The argument of a call at a position or by its keyword; NULL when it is not given, or None (read.c). */
const kin_aten_arg *kin_aten_find(const kin_aten *g, const kin_aten_call *call, unsigned at, const char *keyword);
/* The integers of a list (or one integer); -1 when it is something else or there are more than KIN_IR_MAX_DIMS. */
int kin_aten_ints(const kin_aten *g, const kin_aten_arg *a, int64_t *out);
/* Can two elements of a tensor lie at one place? */
bool kin_aten_may_overlap(unsigned ndim, const int64_t *sizes, const int64_t *strides);
/* PyTorch's promotion of two dtypes. */
kin_dtype kin_aten_promote(kin_dtype a, kin_dtype b);
/* Its promotion of several arguments together: zeroed, then one join for each, then the dtype of all (BOOL for none). */
typedef enum { KIN_ATEN_WITH_DIMS, KIN_ATEN_WITHOUT_DIMS, KIN_ATEN_NUMBER, KIN_ATEN_CATEGORIES } kin_aten_category;
typedef struct {
    kin_dtype dtypes[KIN_ATEN_CATEGORIES];
    bool some[KIN_ATEN_CATEGORIES];
} kin_aten_mixed;
void kin_aten_join(kin_aten_mixed *m, kin_aten_category category, kin_dtype dtype);
kin_dtype kin_aten_common(const kin_aten_mixed *m);

/* -- open numbers (numbers.c) -- */
/* A number among the inputs, as it is and as it was when `probe` was captured. */
typedef struct {
    kin_aten_val input;
    kin_aten_arg_kind kind; /* INT, FLOAT */
    union { int64_t i; double f; } now, probe;
} kin_aten_number;
/* Finds the arguments that are such numbers: those that differ between the graphs. False, with nothing marked: something else differs too, which was computed from
 * one of them, say. */
bool kin_aten_find_numbers(kin_aten *g, const kin_aten *probe, const kin_aten_number *numbers, uint32_t n);
/* Its value decides on what is made of the graph. */
void kin_aten_ask(const kin_aten *g, const kin_aten_arg *a);
/* ... which is so for an open one. */
bool kin_aten_is_asked(const kin_aten *g);

/* -- what calls do (effects.c) -- */
/* The first argument that the call writes to by its schema; NULL: none. */
const kin_aten_arg *kin_aten_written(const kin_aten *g, const kin_aten_call *call);
/* Does it do more than give its results, for all that is known? It is called even if nobody uses them. */
bool kin_aten_has_effect(const kin_aten *g, const kin_aten_call *call);
/* Does it write to arguments although its schema does not say so? */
bool kin_aten_writes_unsaid(const kin_aten *g, const kin_aten_call *call);
/* May it raise because of what its tensors hold? Those of which nothing is known may. */
bool kin_aten_raises(const kin_aten *g, const kin_aten_call *call);

/* By value: its elements are integers in [0, bound), by the operators that made them (bounds.c). 0: nothing is known. malloc'ed; NULL: no memory. */
int64_t *kin_aten_find_bounds(const kin_aten *g);
/* Of a call that may raise: does it not, by the bounds of what it looks up? */
bool kin_aten_places_fit(const kin_aten *g, const kin_aten_call *call, const int64_t *bounds);

/* The first call that may raise because of what its tensors hold, of whose results only parts, or nothing, are needed for the outputs
 * (needed.c): who computes only what is needed would not notice. UINT32_MAX: none. */
uint32_t kin_aten_raises_unseen(const kin_aten *g);

/* -- how much work its calls are (work.c) -- */
typedef struct {
    double elements; /* that the calls compute */
    double products; /* multiplications in calls of libraries, up to a factor for each call */
} kin_aten_work;
/* False: there is no memory, or nothing to compute. */
bool kin_aten_measure(const kin_aten *g, kin_aten_work *out);
/* How many times as much work is `to`, of the same calls for other sizes, as `from`: the least that any measure says; 0: it cannot be said. */
double kin_aten_work_ratio(const kin_aten_work *from, const kin_aten_work *to);

/* Text as docs/design/kernels.md shows it; a WORD is printed bare, so it should hold letters, digits and "_.:/" only. */
bool kin_aten_print(const kin_aten *g, kin_text *out);
kin_aten *kin_aten_parse(const char *text, kin_text *why);
bool kin_aten_verify(const kin_aten *g, kin_text *why);

#endif
