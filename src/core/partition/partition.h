/* Cuts a program that computes results and gradients in two: forward, and backward with the values that forward saves for
 * it (partition.c).
 */
#ifndef KIN_PARTITION_PARTITION_H
#define KIN_PARTITION_PARTITION_H

#include "core/ir/ir.h"

typedef struct {
    uint32_t nforward;        /* outputs: so many results come first; what goes into inputs belongs to them; the others are gradients */
    uint32_t first_tangent;   /* inputs from this one on are what comes back */
    uint32_t first_backward;  /* extern calls from this number on belong to the gradients */
    const bool *keeps_input;  /* by input before the tangents: it may be kept as it is; else a copy is */
    const bool *keeps_output; /* by result: the same */
    const bool *last;         /* by node: as a value that is handed over it is laid channels last; NULL: none is */
} kin_ir_partition_options;

/* A value that is handed over. */
typedef struct {
    kin_irn node;      /* of the whole program */
    uint32_t output;   /* of `forward` */
    uint32_t input;    /* of `backward` */
} kin_ir_handed;

typedef struct {
    kin_ir *forward;   /* outputs: the results, then values handed over, then what goes into inputs */
    kin_ir *backward;  /* inputs as in the whole program, then the values handed over; outputs: the gradients */
    KIN_VEC(kin_ir_handed) handed;
    bool *inputs;      /* by input before the tangents: the second half reads it */
    uint32_t ninputs;  /* of the whole program */
} kin_ir_partition;

/* KIN_BREAK with `why`: it cannot be cut. */
kin_status kin_ir_part(const kin_ir *p, const kin_ir_partition_options *options, kin_ir_partition *out, kin_text *why) KIN_MUST_CHECK;
void kin_ir_partition_deinit(kin_ir_partition *parts);

#endif
