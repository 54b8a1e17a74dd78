/* Numbers of a plan as functions of the sizes it is made for (docs/design/sizes.md). A plan is made by the passes; what it consists of is a structure and
 * numbers. Plans with one structure are compared here: each number is written as a polynomial of one or two of the sizes, which all plans met so far have
 * to obey exactly. For further sizes the polynomials are evaluated instead of running the passes, provided that whatever the passes might
 * ask about a number has the answer that it had in every plan met:
 *
 * - each number lies between the least and the greatest met, so it is on the same side of every limit;
 * - it leaves the same rest where all met ones do, whatever they are divided by;
 * - of two numbers the same one is greater, where it always was;
 * - the sizes themselves obey their polynomials: what was equal is.
 *
 * Otherwise the answer is that nothing is known, a plan is made, and added. */
#ifndef KIN_PROGRAM_SIZES_H
#define KIN_PROGRAM_SIZES_H

#include <stdbool.h>
#include <stdint.h>

#include "core/diag/text.h"

typedef struct kin_sizes kin_sizes;

/* NULL without memory. */
kin_sizes *kin_sizes_new(uint32_t ninputs, uint32_t nnumbers);
void kin_sizes_free(kin_sizes *s);
/* A plan was made. False without memory. */
bool kin_sizes_add(kin_sizes *s, const int64_t *inputs, const int64_t *numbers);
/* The numbers of the plan for these inputs; false: one has to be made. */
bool kin_sizes_eval(kin_sizes *s, const int64_t *inputs, int64_t *numbers);
/* Is there an answer for some inputs? */
bool kin_sizes_known(const kin_sizes *s);
/* Are more plans needed before the first answer, and is there hope for one? */
bool kin_sizes_wants_more(const kin_sizes *s);
/* Inputs like the last ones added, with the sizes that grow beyond all before doubled: a plan made for these serves what comes next. False: none grows. */
bool kin_sizes_ahead(kin_sizes *s, int64_t *inputs);
/* "input 1 = s0", "number 7 = 64*s0*s1 + 3", a line each; false without memory. */
bool kin_sizes_print(kin_sizes *s, kin_text *out);

#endif
