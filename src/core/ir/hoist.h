/* Splits a program into what is computed once and what is computed in each call, for inputs (weights) that
 * stay the same between calls: `once` computes from frozen inputs what `rest` needs of them; `rest` takes its results as inputs.
 */
#ifndef KIN_IR_HOIST_H
#define KIN_IR_HOIST_H

#include "core/ir/ir.h"

typedef struct {
    kin_ir *once;    /* outputs: the values handed over; NULL when there are none */
    kin_ir *rest;    /* the same outputs as before; input numbers kept, value i is input first + i */
    uint32_t first;  /* the program's number of inputs */
    uint32_t count;
} kin_ir_hoisted;

/* Per node (result[n], nodes.len of them): it depends on frozen inputs and constants alone, and on one input at least. */
void kin_ir_find_frozen(const kin_ir *p, const bool *frozen, bool *result);

/* What programs of one graph for different sizes had in common of what depends on frozen inputs: the rest follows from sizes, and to keep it would
 * take a copy for each of them. Only programs of the same operations are compared: for a batch of one, say, products become sums, and then weights are
 * not put side by side. A zeroed one is valid: nothing was met yet. */
typedef struct {
    uint64_t operations;  /* a hash of them, without sizes */
    uint32_t programs;    /* met so far */
    KIN_VEC(uint64_t) at; /* sorted: values, by a hash of all they are made of */
} kin_ir_common_kind;

typedef struct {
    KIN_VEC(kin_ir_common_kind) kinds; /* few: all others meet in the last one */
} kin_ir_common;
void kin_ir_common_deinit(kin_ir_common *c);

/* frozen[i]: input i. common (NULL: there is only one program): nothing else is handed over; is told of this program. Both programs keep the numbers of inputs and of extern calls. Not handed over: what is an output
 * (a call gives a tensor of its own), plain views of inputs, and what is much larger than what it is made from. */
kin_status kin_ir_hoist(const kin_ir *p, const bool *frozen, kin_ir_common *common, kin_ir_hoisted *out) KIN_MUST_CHECK;
void kin_ir_hoisted_deinit(kin_ir_hoisted *h);

#endif
