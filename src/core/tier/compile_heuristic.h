/* Compile heuristic: is it worth compiling code for a kind of inputs? Sizes that change from call to call keep bringing new kinds, and
 * compiling takes as long as many calls. The first kind gets code at once, because inputs usually stay as they are. Every further one must
 * have cost a good part of what its code will cost, and all time spent on such kinds stays a small share of the time that the
 * process spends in subgraphs, plus what code has saved. So calls with many sizes take little longer than without kernels.
 */
#ifndef KIN_CORE_COMPILE_HEURISTIC_H
#define KIN_CORE_COMPILE_HEURISTIC_H

#include <stdbool.h>
#include <stdint.h>

#include "core/tier/tier.h"

/* Totals of the process in nanoseconds: time in subgraphs, time spent on code for further kinds of inputs, time saved by code. */
typedef struct {
    double lived, spent, saved;
} kin_compile_account;

/* A kind of inputs without code. */
typedef struct {
    uint64_t hash;
    double lost;     /* nanoseconds that its calls would have saved with code */
    uint32_t n, met; /* how often it was seen; when it was last seen */
} kin_input_kind;

/* The most recent kinds of one subgraph. */
typedef struct {
    kin_input_kind at[32];
    uint32_t clock;
    uint32_t strange; /* how many different ones were seen */
} kin_input_kinds;

/* The expected cost of compiling code, including its first run. compile_ns, first_ns: what these took last time, 0: not known;
 * parameter_bytes: bytes packed in the first run. */
double kin_compile_guess_cost(uint32_t ncalls, double compile_ns, double first_ns, double parameter_bytes);
/* The expected time of the calls without code. */
double kin_compile_guess_calls(uint32_t ncalls, double input_bytes);
/* A call with this kind of inputs took `ns` without code; code would have saved `lost` of it (all of it, if that is not known) and costs `cost`.
 * Should it be compiled now? */
bool kin_compile_pays(kin_compile_account *account, kin_input_kinds *kinds, uint64_t hash, double ns, double lost, double cost);

/* Code of the kind ran in `ns`; the steps take `steps_ns`. */
static inline void
kin_compile_note_run(kin_compile_account *account, double ns, double steps_ns)
{
    account->lived += ns;
    if (steps_ns > ns)
        account->saved += steps_ns - ns;
}

/* Code was slower than its steps for the drops-th time (from 0), and took `made_ns` to compile: nanoseconds until it is compiled again; 0: never. */
double kin_compile_retry_after(double made_ns, uint32_t drops);

/* A launcher had no code `refused` times in a row: should this replay skip it? Counts the replay. */
static inline bool
kin_compile_is_backed_off(uint32_t *refused)
{
    return *refused >= KIN_TIER_REFUSALS && (*refused)++ % KIN_TIER_REFUSAL_PAUSE != 0;
}

#endif
