/* Trace budget: how much may recording cost? A recording takes as long as several eager calls, and if each call takes another path,
 * none is used again. So a few recordings are free. After that, as long as later calls do not use them, recording may take a small share of
 * the time that CPython spends on calls without a recording, which is all there is to gain, and of what recordings are known to have saved.
 */
#ifndef KIN_CORE_TRACE_BUDGET_H
#define KIN_CORE_TRACE_BUDGET_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    double spent, last; /* nanoseconds that the thread computed for recordings, in all and in the latest one: neither sleeping nor a busy machine costs anything */
    double lived;       /* nanoseconds that CPython spent on calls without a recording */
    double saved;       /* nanoseconds that recordings have saved, as far as that was measured */
    uint32_t made, used; /* recordings; those with which a later call ran to its end */
} kin_trace_budget;

/* Is one more entry worth recording? */
bool kin_trace_budget_affords_entry(const kin_trace_budget *b);

/* An exit at which a side trace may begin. */
typedef struct {
    uint32_t steps;   /* the length of the trace so far */
    bool decision;    /* a number or a truth value differed */
    bool left_before; /* an earlier call left here as well */
} kin_side_trace_place;

bool kin_trace_budget_affords_side_trace(const kin_trace_budget *b, const kin_side_trace_place *place);

static inline void
kin_trace_budget_spend(kin_trace_budget *b, double ns)
{
    b->spent += ns;
    b->last = ns;
}

#endif
