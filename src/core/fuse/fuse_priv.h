/* Shared by fuse.c (what is stored, groups), walk.c (a group as loops), layout.c (buffers, extern calls). */
#ifndef KIN_FUSE_FUSE_PRIV_H
#define KIN_FUSE_FUSE_PRIV_H

#include "core/fuse/fuse.h"

enum { FUSE_NONE = UINT32_MAX, FUSE_MOST_INSTS = 600, FUSE_MOST_BUFFERS = 48, FUSE_MOST_VARS = 24 };

typedef enum {
    ST_VALUE,  /* elements of `value` go to node's memory */
    ST_PART,   /* the same, into the part of it that begins at `offset` along dim `dim` (CAT) */
    ST_BASE,   /* SCATTER's base into its memory, before ST_UPDATE */
    ST_REDUCE, ST_SCAN, ST_UPDATE
} statement_kind;

typedef struct {
    uint8_t kind;
    kin_irn node;      /* whose memory is written */
    kin_irn value;     /* whose elements are computed */
    kin_irn cat;       /* PART: node, or what node is a reshape of */
    unsigned dim;
    int64_t offset;
} statement;

typedef struct {
    KIN_VEC(statement) statements;
    KIN_VEC(kin_irn) reads;  /* stored values of others and inputs that it loads */
    bool is_extern, closed;  /* closed: takes no more statements */
    bool write_back;             /* writes into an input */
    uint32_t undo;           /* puts back what in-place update number undo - 1 was made over; 0: it does not */
    uint32_t op;             /* of the program, set when it has been made one */
    kin_irn call, result;    /* of an extern call; result: what its statements are run on, block by block */
} group;

typedef struct {
    bool live, stored, needed; /* stored: see fuse.h; needed: somebody outside its group reads it, or it is an output */
    bool inside, exits;        /* epilogue.c: computed between a product and what is stored; it is that */
    bool in_place;                /* made in the memory of `into`, at its place among the others */
    bool elsewhere;            /* used for more than what goes into inputs */
    uint32_t uses;
    uint32_t group;            /* the last one that writes it */
    uint32_t buffer;           /* of the program */
    uint32_t output;           /* output number whose memory it is */
    uint32_t into;             /* input + 1 whose memory it is written to */
    uint32_t strides;          /* of its memory: first in fuse.ints; 0 = none yet */
    uint32_t sources;          /* values in memory that it is computed from: at most so many */
    uint32_t parts;            /* stored.c: of CATs, among which each of its elements is looked for */
    double cost;               /* to compute one element where it is read */
} node_info;

typedef KIN_VEC(kin_irn) kin_irn_list;

/* A value of the kernel that is being built: where its elements are made. */
typedef struct {
    kin_irn node;
    uint32_t inst; /* 0: no element can be read here, only some of them are made in this group */
    kin_ix coords[KIN_IR_MAX_DIMS];
} fuse_known;

/* What walk.c works in: kept from one kernel to the next, as most are built several times, with one statement more each time. */
typedef struct {
    KIN_VEC(fuse_known) known; /* values of this group made so far */
    kin_intern inst_keys, memo_keys;
    KIN_VEC(uint32_t) memo;    /* instruction by memo key; 0 = being computed */
    KIN_VEC(uint32_t) phases;  /* by instruction */
    kin_loops trial;           /* of kernels that are built to see whether they can be */
    kin_irn_list trial_of;
} fuse_scratch;

typedef struct {
    const kin_ir *ir;
    bool varying;              /* sizes, from one program of the graph to the next */
    fuse_scratch scratch;
    node_info *nodes;
    KIN_VEC(int64_t) ints;     /* [0] unused */
    KIN_VEC(group) groups;
    kin_text *notes;
    bool failed;               /* memory */
    uint32_t *visited, visit;  /* by node: for searches */
} fuse;

static inline const kin_ir_node *fuse_node(const fuse *f, kin_irn n) { return &f->ir->nodes.at[n]; }
static inline const int64_t *fuse_sizes(const fuse *f, kin_irn n) { return kin_ir_sizes(f->ir, n); }
static inline const int64_t *fuse_strides(const fuse *f, kin_irn n) { return f->ints.at + f->nodes[n].strides; }

/* -- stored.c */
void fuse_choose_stored(fuse *f);
void fuse_store(fuse *f, kin_irn n);
/* Has memory of its own: stored, an input or an extern call's result. */
bool fuse_in_memory(const fuse *f, kin_irn n);
/* A CAT whose parts cost so much that not all of them should be computed for each element, or whose elements follow each other in memory without regard to them. */
bool fuse_is_better_by_parts(const fuse *f, kin_irn n);
/* Result of an extern call that writes into memory it is given. */
bool fuse_is_into(const fuse *f, kin_irn n);

/* -- walk.c: the statements as loops, in k (initialised, or the loops of another kernel). NULL = they are; else why not. final: values
 * that nobody outside needs are not stored, and loops are arranged. of_buffers: the node behind each buffer of the kernel. */
void fuse_scratch_init(fuse_scratch *s);
void fuse_scratch_deinit(fuse_scratch *s);
const char *fuse_build(fuse *f, const statement *s, uint32_t n, bool final, kin_loops *k, kin_irn_list *of_buffers);

/* -- epilogue.c: what is done on blocks of a product. */
typedef struct {
    int64_t columns; /* of the window; the product's rows are `parts` times as long */
    uint32_t parts;
    bool in_place;   /* what it makes may lie where the product lay */
} fuse_window;
/* Stores what is worth being one, before anything else is chosen. */
void fuse_find_epilogues(fuse *f);
/* NULL: s became a statement of the call in group g. */
const char *fuse_try_epilogue(fuse *f, uint32_t g, const statement *s, const kin_irn_list *reads);
/* The statements of an extern group as loops, arranged. NULL: they are; else why not. */
const char *fuse_build_epilogue(fuse *f, const group *g, kin_loops *k, kin_irn_list *of, fuse_window *out);

/* -- layout.c */
/* Decides where a stored value's elements lie; strides NULL = as the node prefers. */
void fuse_lay_out(fuse *f, kin_irn n, const int64_t *strides);
/* A value as strided view of one in memory, through index maps; false when it is none. sizes are the node's own. */
bool fuse_view(fuse *f, kin_irn n, kin_irn *base, int64_t *strides, int64_t *offset);
kin_status fuse_program(fuse *f, kin_fused *out) KIN_MUST_CHECK;

#endif
