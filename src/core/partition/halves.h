/* Cuts a lowered graph of forward and backward into two programs (halves.c). */
#ifndef KIN_PARTITION_HALVES_H
#define KIN_PARTITION_HALVES_H

#include "core/lower/lower.h"
#include "core/partition/partition.h"

/* What is forward in it: the last inputs are tangents, the first outputs and calls belong to forward. */
typedef struct {
    uint32_t nouts, ncalls, ntangents;
    const bool *last; /* by node of the lowered graph: see kin_ir_partition_options; NULL: none */
    const uint32_t *numbers; /* inputs that hold numbers: nobody writes to them, so they are kept as they are, not what is made of them */
    uint32_t nnumbers;
    const bool *saved; /* by storage: eager saves memory of it, so that a write to it is an error; NULL: what operators of the backward part take */
} kin_joint_graph;

typedef struct {
    kin_lowered forward, backward;
    kin_ir_partition parts; /* its programs are those of the two */
} kin_halves;

/* KIN_BREAK with `why`: it cannot be cut. */
kin_status kin_halves_make(const kin_aten *g, const kin_joint_graph *joint, const kin_lowered *lowered, kin_halves *out, kin_text *why) KIN_MUST_CHECK;
void kin_halves_deinit(kin_halves *h);

#endif
