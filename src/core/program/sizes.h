/* Numbers of a plan as functions of the sizes that it is for (docs/design/sizes.md). The passes make a plan, which consists of a structure and
 * numbers. Plans with the same structure are compared here: each number is expressed as a polynomial in the sizes, or in sizes divided and rounded,
 * which must fit all plans seen so far exactly. For further sizes the polynomials are evaluated instead of running the passes, provided that every question that the passes may
 * ask about a number has the same answer as in all plans seen:
 *
 * - each number lies between the smallest and the largest one seen, so it is on the same side of every threshold;
 * - the same sizes are 0 or 1 as in one of those seen;
 * - of two sizes in a dim of something, the same one is larger where that was always so, and is not smaller where it never was;
 * - questions that the program itself asks about numbers have the same answers as in one of those seen;
 * - the sizes themselves obey their polynomials: what was always equal still is.
 *
 * Otherwise nothing is known, a plan is made by the passes, and added to those seen. */
#ifndef KIN_PROGRAM_SIZES_H
#define KIN_PROGRAM_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/diag/text.h"

typedef struct kin_sizes kin_sizes;

/* What a program may ask about numbers, besides sums and products: a plan is made for one answer. */
typedef enum {
    KIN_SIZES_REMAINDER, /* of a divided by b, as Python does it: `gives` */
    KIN_SIZES_QUOTIENT,  /* ... rounded down */
    KIN_SIZES_ORDER,     /* which of a and b is greater */
    KIN_SIZES_EXTREME,   /* ... and `gives` is one of them: max, min */
    KIN_SIZES_VALUE,     /* anything else about a */
    KIN_SIZES_WRAPPED,   /* a modulo b is `gives`, whatever it is */
    KIN_SIZES_PARTS,     /* a divided by b and rounded up is `gives`, whatever it is */
    KIN_SIZES_PLACE,     /* `gives` is where place a of a dim of b elements lies (kin_sizes_place), whatever it is */
    KIN_SIZES_BETWEEN,   /* `gives` elements lie from b up to a, none if b is greater */
    KIN_SIZES_EQUAL,     /* are a and b equal? */
    KIN_SIZES_DIVIDES    /* is a a multiple of b? */
} kin_sizes_asks;

typedef struct {
    kin_sizes_asks asks;
    int64_t a, b, gives;
} kin_sizes_question;

/* Is a at least b? As a question of order that never finds them equal, and of numbers that are never 0 or 1. */
static inline kin_sizes_question
kin_sizes_is_at_least(int64_t a, int64_t b)
{
    return (kin_sizes_question){.asks = KIN_SIZES_ORDER, .a = 4 * a + 3, .b = 4 * b + 2};
}

/* Negative places are counted from the end; those beyond the dim are its beginning and its end. */
static inline int64_t
kin_sizes_place(int64_t at, int64_t size)
{
    at += at < 0 ? size : 0;
    return at < 0 ? 0 : at > size ? size : at;
}

/* dims: which of them are the size of something in one dim, rather than a stride, an offset, ... NULL without memory. */
kin_sizes *kin_sizes_new(uint32_t ninputs, uint32_t nnumbers, const bool *input_dims, const bool *number_dims);
void kin_sizes_free(kin_sizes *s);
/* Before the first plan: three of its numbers, from this one on, are a, b and what is given, of which this is asked. False without memory. */
bool kin_sizes_ask(kin_sizes *s, kin_sizes_asks asks, uint32_t number);
/* A plan was made. False without memory. */
bool kin_sizes_add(kin_sizes *s, const int64_t *inputs, const int64_t *numbers);
/* The numbers of the plan for these inputs; false: one has to be made. */
bool kin_sizes_eval(kin_sizes *s, const int64_t *inputs, int64_t *numbers);
/* Is there an answer for some inputs? */
bool kin_sizes_known(const kin_sizes *s);
/* Are more plans needed before the first answer, and is there hope for one? */
bool kin_sizes_wants_more(const kin_sizes *s);
/* Would there be numbers for these inputs, if larger or smaller ones had been met? Then the inputs of a plan with which there are: for these and for more, up to the next
 * power of two. False: no such plan, or plans made for that were in vain. */
bool kin_sizes_widen(kin_sizes *s, const int64_t *inputs, int64_t *far);
/* Such a plan was made, and there still are no numbers: the passes decided differently so far away. */
void kin_sizes_in_vain(kin_sizes *s);
/* "input 1 = s0", "number 7 = 64*s0*s1 + 3", a line each; false without memory. */
bool kin_sizes_print(kin_sizes *s, kin_text *out);

#endif
