/* Estimates what code costs and gains (compile_heuristic.h). */
#include "core/tier/compile_heuristic.h"

#include <stddef.h>

double
kin_compile_guess_cost(uint32_t ncalls, double compile_ns, double first_ns, double parameter_bytes)
{
    double first = first_ns > 0 ? first_ns : parameter_bytes * KIN_TIER_GUESS_PACK_NS;
    return (compile_ns > 0 ? compile_ns : KIN_TIER_GUESS_COMPILE_NS * ncalls) + first;
}

double
kin_compile_guess_calls(uint32_t ncalls, double input_bytes)
{
    return ncalls * (KIN_TIER_GUESS_CALL_NS + input_bytes * KIN_TIER_GUESS_BYTE_NS);
}

/* The entry of the kind; if there is none, the least recently used one is replaced. */
static kin_input_kind *
find_kind(kin_input_kinds *kinds, uint64_t hash)
{
    kin_input_kind *oldest = &kinds->at[0];
    for (size_t i = 0; i < sizeof kinds->at / sizeof *kinds->at; i++) {
        kin_input_kind *kind = &kinds->at[i];
        if (kind->n > 0 && kind->hash == hash)
            return kind;
        if (kind->met < oldest->met)
            oldest = kind;
    }
    *oldest = (kin_input_kind){.hash = hash};
    kinds->strange++;
    return oldest;
}

bool
kin_compile_pays(kin_compile_account *account, kin_input_kinds *kinds, uint64_t hash, double ns, double lost, double cost)
{
    kin_input_kind *kind = find_kind(kinds, hash);
    account->lived += ns;
    kind->lost += lost;
    kind->met = ++kinds->clock;
    bool often = ++kind->n >= KIN_TIER_COMPILE_MET && kind->lost >= KIN_TIER_COMPILE_LOST_SHARE * cost;
    if (!often || account->spent + cost > KIN_TIER_COMPILE_SHARE * account->lived + account->saved)
        return false;
    *kind = (kin_input_kind){0};
    return true;
}

double
kin_compile_retry_after(double made_ns, uint32_t drops)
{
    if (drops >= KIN_TIER_RETRIES)
        return 0;
    double ns = KIN_TIER_RETRY_TIMES * made_ns;
    ns = ns > KIN_TIER_RETRY_NS ? ns : KIN_TIER_RETRY_NS;
    for (uint32_t i = 0; i < drops; i++)
        ns *= KIN_TIER_RETRY_LONGER;
    return ns;
}
