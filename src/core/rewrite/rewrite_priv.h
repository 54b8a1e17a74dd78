/* The rewriting of one program; shared by the files of this folder. */
#ifndef KIN_REWRITE_REWRITE_PRIV_H
#define KIN_REWRITE_REWRITE_PRIV_H

#include "core/rewrite/rewrite.h"

typedef struct {
    const kin_ir *p;
    const kin_aten *g;
    kin_rewritten *out;
    kin_rewrite_options may;
    bool *frozen;      /* by node of p */
    uint32_t *users;   /* by node of p: uses as argument or output */
    kin_irn *user;     /* by node of p: the newest node that uses it */
    kin_irn *map;      /* by node of p: its node in out->ir; 0: not copied, or not yet */
    uint32_t *fused;   /* by node of p: number of the conv plan that ends here, from 1 */
    bool *inside;      /* by node of p: it became part of a conv plan */
    bool *fixed;       /* by node of p: a captured call that stays depends on how it lies */
} rewriting;

/* The captured call behind an EXTERN node, NULL for one that is none, and its name. */
const kin_aten_call *rewrite_captured(const rewriting *r, kin_irn call);
bool rewrite_is(const rewriting *r, kin_irn call, kin_aten_op op);
/* Copies what the node needs, and itself; its number in the new program. */
kin_irn rewrite_copy(rewriting *r, kin_irn n);
/* Is it float, or of half precision while calls are our own? Those are float inside, rounded where an operator ends. */
bool rewrite_is_float(const rewriting *r, kin_irn n);
/* A node of the new program with another dtype, if it has another. */
kin_irn rewrite_cast(rewriting *r, kin_irn n, kin_dtype dtype);
/* Adds an EXTERN for `call` and its only result. */
kin_irn rewrite_emit(rewriting *r, const kin_library_call *call, const char *name, const kin_irn *args, unsigned nargs,
                     kin_dtype dtype, unsigned ndim, const int64_t *sizes, const int64_t *strides);

/* match_product.c: the new node for RESULT `n` of an addmm, mm or bmm; 0: stays as it is. */
kin_irn rewrite_product(rewriting *r, kin_irn n);

/* match_attention.c: the new node for RESULT `n` of an attention operator; 0: stays as it is. */
kin_irn rewrite_attention(rewriting *r, kin_irn n);

/* match_recurrent.c: the new node for RESULT `n` of an operator that does recurrent layers; 0: stays as it is. */
kin_irn rewrite_recurrent(rewriting *r, kin_irn n);
/* ... of one layer in training (kintsugi/_recurrent.py), forward or back. */
kin_irn rewrite_trained_layer(rewriting *r, kin_irn n);

/* match_random.c: the EXTERN `n` draws random numbers: the new node for its result, which follows it; 0: stays as it is. */
kin_irn rewrite_random(rewriting *r, kin_irn n);

/* match_convolution.c: plans what each convolution takes in, and emits the plan whose last node is `n`. */
typedef struct {
    kin_irn call, result, end;
    kin_library_call conv;
    KIN_VEC(kin_irn) affine;   /* MUL, ADD, SUB, DIV nodes of p with a value per channel, in order */
    kin_irn added;             /* node of p; 0 = none */
    bool product;              /* done as a product of matrices: only what is affine goes into it, the rest is fused behind it */
} conv_plan;
typedef KIN_VEC(conv_plan) conv_plans;

kin_status rewrite_plan_convolutions(rewriting *r, conv_plans *plans) KIN_MUST_CHECK;
void rewrite_free_plans(conv_plans *plans);
kin_irn rewrite_convolution(rewriting *r, const conv_plan *plan);
/* Is the call a convolution whose numbers are known? */
bool rewrite_reads_convolution(const rewriting *r, kin_irn call, kin_library_call *out);
/* Strides of channels-last memory. */
void rewrite_channels_last(const int64_t *sizes, unsigned ndim, int64_t *strides);

bool rewrite_read_ints(const rewriting *r, const kin_aten_arg *arg, unsigned n, int64_t *out);
/* The image that a convolution of ours takes, in the new program; pairs: as bfloat16. */
kin_irn rewrite_image(rewriting *r, kin_irn n, bool pairs);
/* What was made for `end`, as `result` lay in what was captured, where a call that stays depends on that. */
kin_irn rewrite_lay_out_as_before(rewriting *r, kin_irn end, kin_irn result, kin_irn made);

/* match_filter.c: the new node for RESULT `n` of a convolution with few filters of one channel; 0: stays as it is. */
kin_irn rewrite_filter(rewriting *r, kin_irn n);
/* Is the convolution that was read one of these? */
bool rewrite_is_filter(const rewriting *r, kin_irn call, const kin_library_call *conv);

/* match_convolution_backward.c: the new node for RESULT `n` of a convolution's gradients; 0: stays as it is. */
kin_irn rewrite_convolution_backward(rewriting *r, kin_irn n);
/* Is the call one of these? */
bool rewrite_reads_convolution_backward(const rewriting *r, kin_irn call, kin_library_call *out);

/* channels_last.c: fills r->fixed, after the plans were made. */
void rewrite_find_fixed(rewriting *r, const conv_plans *plans);

/* rewrite.c: what has to be known before nodes are copied; frozen: NULL: no input is. rewrite_free_room follows in any case. */
kin_status rewrite_look(rewriting *r, const bool *frozen, conv_plans *plans) KIN_MUST_CHECK;
void rewrite_free_room(rewriting *r);

/* Up to how many rows a product is bound by reading its right side, so that panels of that do not pay. Where sizes vary, programs for two rows should be those for
 * more: only one row is another case. */
static inline int64_t
rewrite_few_rows(const rewriting *r)
{
    return r->may.varying ? 1 : 4;
}

#endif
