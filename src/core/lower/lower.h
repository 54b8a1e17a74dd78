/* From ATen calls to the tensor program: functionalisation, then one rule per operator (the column LOWER of core/aten/aten.def). An operator without
 * a rule, or whose rule does not cover these arguments, becomes an EXTERN node whose number is the call's and whose
 * arguments are the tensors among the call's arguments in order, those of lists included.
 */
#ifndef KIN_LOWER_LOWER_H
#define KIN_LOWER_LOWER_H

#include "core/aten/aten.h"

/* What an output of the graph is. */
typedef enum {
    KIN_OUT_FRESH,  /* output `index` of the tensor program, in the strides noted there (twice the same index: one tensor) */
    KIN_OUT_INPUT,  /* the input number `index` itself, or a view of its memory */
    KIN_OUT_SHARED, /* a view of the memory of output number `index` of the tensor program */
    KIN_OUT_EXTERN  /* the tensor that the extern call gave, as it is: output `index` of the tensor program */
} kin_out_kind;

typedef struct {
    uint8_t kind;
    bool whole;        /* INPUT: the very same tensor, not a view */
    bool detached;     /* INPUT, SHARED: eager's tensor shares memory without being a view (detach) */
    bool of_detached;  /* INPUT: eager's tensor is a view of such a tensor */
    bool late;         /* INPUT: a view that was made when all writes to the input were done */
    uint32_t writes;   /* FRESH, SHARED: how often its memory was written in place after it was made */
    uint32_t index;
    uint32_t sizes, strides; /* of the ATen graph's value, first of ndim in its ints */
    uint8_t ndim;
    int64_t offset;    /* elements from the start of the base's storage (INPUT), of the base (SHARED) */
} kin_lower_out;

/* An input that the graph writes to: an output of the program goes into it. */
typedef struct {
    uint32_t input, times; /* times: how many operators wrote to it */
} kin_lower_write;

typedef struct {
    kin_ir *ir;
    KIN_VEC(kin_lower_out) outs; /* one for each output of the ATen graph */
    KIN_VEC(kin_lower_write) writes; /* inputs written to must share no memory with other inputs */
    uint32_t nnative, nextern;   /* calls by what became of them; views count as native */
    uint32_t stuck;              /* not lowered: because of this call; UINT32_MAX: not because of one */
} kin_lowered;

typedef struct {
    bool fast_math;              /* do not round half precision between operators, see kin_ir */
    bool channels_last;          /* normalisations over channels keep these apart from places (kin_prefers_channels_last) */
    bool default_f64;            /* torch.get_default_dtype(): f64 instead of f32 */
    bool varying;                /* further programs of the graph have other sizes: what is computed how, and in how many kernels, should not hang on how large these are */
} kin_lower_options;

/* KIN_BREAK with `why` when the graph cannot be lowered as a whole (it writes to an input, an open number was asked for, ...). The program still holds what rules left
 * behind that did not cover their arguments: kin_ir_simplify follows. */
kin_status kin_lower(const kin_aten *g, const kin_lower_options *options, kin_lowered *out, kin_text *why) KIN_MUST_CHECK;
void kin_lowered_deinit(kin_lowered *l);

#endif
