/* Compares whole calls (tierdown.h). Calls differ in the work they do, and other processes use the machine too. So the order is
 * randomised (inputs may alternate), the slowest quarter on either side is left out, and more calls are timed, up to a limit, while the
 * difference is within the error of measurement. Meanwhile most calls go to the side that is clearly faster so far.
 */
#include "core/tier/tierdown.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    uint32_t n, left_out;
    double ns[KIN_TIER_MOST_SAMPLES];
} samples;

struct kin_tierdown_trial {
    samples ours, eager;
    uint32_t lots;
    bool second, eager_first; /* of the pair */
};

static uint32_t
next_lot(struct kin_tierdown_trial *trial)
{
    trial->lots ^= trial->lots << 13;
    trial->lots ^= trial->lots >> 17;
    trial->lots ^= trial->lots << 5;
    return trial->lots >> 16;
}

static double
mean(const samples *s)
{
    double sum = 0;
    for (uint32_t i = 0; i < s->n; i++)
        sum += s->ns[i];
    return sum / s->n;
}

/* Is one side so much faster so far that the other one is timed in few calls only? */
static bool
is_favoured(const samples *s, const samples *other)
{
    return s->n >= KIN_TIER_FAVOUR_SAMPLES && other->n >= KIN_TIER_FAVOUR_SAMPLES && mean(s) < KIN_TIER_FAVOUR * mean(other);
}

static kin_tierdown_turn
draw(struct kin_tierdown_trial *trial)
{
    bool eager, ours = is_favoured(&trial->ours, &trial->eager);
    if (ours || is_favoured(&trial->eager, &trial->ours)) {
        eager = ours == (next_lot(trial) % KIN_TIER_FAVOUR_CALLS == 0);
        trial->second = false;
    } else {
        if (!trial->second)
            trial->eager_first = next_lot(trial) & 1;
        eager = trial->eager_first != trial->second;
        trial->second = !trial->second;
    }
    return eager ? KIN_TIERDOWN_TIME_EAGER : KIN_TIERDOWN_TIME_REPLAY;
}

static void
wait_longer(kin_tierdown *p)
{
    uint32_t least = !p->backed_off                            ? KIN_TIER_FASTER_CALLS
                     : p->ratio > KIN_TIER_CLEARLY_SLOWER ? KIN_TIER_CLEARLY_SLOWER_CALLS
                                                          : KIN_TIER_SLOWER_CALLS;
    p->pause = p->pause < least ? least : p->pause < KIN_TIER_MOST_CALLS / 2 ? 2 * p->pause : KIN_TIER_MOST_CALLS;
    p->wait = p->pause;
}

kin_tierdown_turn
kin_tierdown_next(kin_tierdown *p)
{
    if (p->trial == NULL && p->wait > 1) {
        p->wait--;
        return p->backed_off ? KIN_TIERDOWN_EAGER : KIN_TIERDOWN_REPLAY;
    }
    if (p->trial == NULL && (p->trial = calloc(1, sizeof *p->trial)) == NULL) {
        wait_longer(p);
        return p->backed_off ? KIN_TIERDOWN_EAGER : KIN_TIERDOWN_REPLAY;
    }
    if (p->trial->lots == 0)
        p->trial->lots = 2463534242u;
    return draw(p->trial);
}

static int
compare(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Mean and squared standard error of the faster three quarters. */
static double
summarise(samples *s, double *error)
{
    qsort(s->ns, s->n, sizeof *s->ns, compare);
    uint32_t n = s->n - s->n / 4;
    double sum = 0, squares = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += s->ns[i];
    for (uint32_t i = 0; i < n; i++)
        squares += (s->ns[i] - sum / n) * (s->ns[i] - sum / n);
    *error = squares / (n - 1) / n;
    return sum / n;
}

/* True: the comparison has ended. */
static bool
is_decided(kin_tierdown *p, bool *slower)
{
    struct kin_tierdown_trial *trial = p->trial;
    uint32_t n = trial->ours.n < trial->eager.n ? trial->ours.n : trial->eager.n;
    if (n < KIN_TIER_SAMPLES)
        return false;
    double ours_error, eager_error;
    double ours = summarise(&trial->ours, &ours_error), eager = summarise(&trial->eager, &eager_error);
    double doubt = KIN_TIER_SURE * sqrt(ours_error + eager_error);
    p->ratio = eager > 0 ? ours / eager : 0;
    p->gain = eager - ours;
    *slower = ours > KIN_TIER_SLOWER * eager;
    return fabs(ours - KIN_TIER_SLOWER * eager) > doubt || n >= KIN_TIER_MOST_SAMPLES;
}

static void
add(samples *s, double ns)
{
    if (s->left_out < KIN_TIER_COLD_SAMPLES)
        s->left_out++;
    else if (s->n < KIN_TIER_MOST_SAMPLES)
        s->ns[s->n++] = ns;
}

bool
kin_tierdown_note(kin_tierdown *p, bool eager, double ns)
{
    bool slower = false;
    if (p->trial == NULL) /* a nested call has ended the comparison */
        return false;
    add(eager ? &p->trial->eager : &p->trial->ours, ns);
    if (!is_decided(p, &slower))
        return false;
    free(p->trial);
    p->trial = NULL;
    bool changed = slower != p->backed_off;
    if (changed)
        p->pause = 0;
    p->backed_off = slower;
    wait_longer(p);
    return changed;
}

void
kin_tierdown_init(kin_tierdown *p)
{
    *p = (kin_tierdown){.wait = KIN_TIER_WARM_UP};
}

void
kin_tierdown_deinit(kin_tierdown *p)
{
    free(p->trial);
    p->trial = NULL;
}
