/* Compares whole calls (tierdown.h). Calls differ in the work they do, and other processes use the machine too. So the order is
 * randomised (inputs may alternate), times are adjusted to the mean amount of work (a line through the samples of both sides, with one slope), the slowest
 * quarter on either side is left out, and more calls are timed, up to a limit, while the difference is within the error of measurement. Meanwhile most calls go to
 * the side that is clearly faster so far.
 */
#include "core/tier/tierdown.h"

#include <math.h>
#include <stdlib.h>

typedef struct {
    uint32_t n, left_out;
    double ns[KIN_TIER_MOST_SAMPLES], work[KIN_TIER_MOST_SAMPLES];
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
mean(const double *values, uint32_t n)
{
    double sum = 0;
    for (uint32_t i = 0; i < n; i++)
        sum += values[i];
    return sum / n;
}

/* Adds how times rise with work within the side. */
static void
add_rise(const samples *s, double *rise, double *spread)
{
    double work = mean(s->work, s->n), ns = mean(s->ns, s->n);
    for (uint32_t i = 0; i < s->n; i++) {
        *rise += (s->work[i] - work) * (s->ns[i] - ns);
        *spread += (s->work[i] - work) * (s->work[i] - work);
    }
}

/* The times of one side, had all calls of both done the same work. */
static void
adjust(const struct kin_tierdown_trial *trial, const samples *s, double out[KIN_TIER_MOST_SAMPLES])
{
    double rise = 0, spread = 0;
    add_rise(&trial->ours, &rise, &spread);
    add_rise(&trial->eager, &rise, &spread);
    double slope = spread > 0 && rise > 0 ? rise / spread : 0, middle = (mean(trial->ours.work, trial->ours.n) + mean(trial->eager.work, trial->eager.n)) / 2;
    for (uint32_t i = 0; i < s->n; i++)
        out[i] = s->ns[i] - slope * (s->work[i] - middle);
}

/* Is one side so much faster so far that the other one is timed in few calls only? 1: ours, -1: eager. */
static int
favoured(const struct kin_tierdown_trial *trial)
{
    double times[KIN_TIER_MOST_SAMPLES];
    if (trial->ours.n < KIN_TIER_FAVOUR_SAMPLES || trial->eager.n < KIN_TIER_FAVOUR_SAMPLES)
        return 0;
    adjust(trial, &trial->ours, times);
    double ours = mean(times, trial->ours.n);
    adjust(trial, &trial->eager, times);
    double eager = mean(times, trial->eager.n);
    return ours < KIN_TIER_FAVOUR * eager ? 1 : eager < KIN_TIER_FAVOUR * ours ? -1 : 0;
}

/* Calls on our side may say nothing (something was compiled in them): eager ones do not run ahead of them. */
static bool
is_ahead(const samples *s, const samples *other)
{
    return s->n + s->left_out > other->n + other->left_out + KIN_TIER_AHEAD_SAMPLES;
}

static kin_tierdown_turn
draw(struct kin_tierdown_trial *trial)
{
    bool eager;
    int favour = favoured(trial);
    if (favour != 0) {
        eager = (favour > 0) == (next_lot(trial) % KIN_TIER_FAVOUR_CALLS == 0);
        trial->second = false;
    } else if (is_ahead(&trial->eager, &trial->ours)) {
        eager = false;
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
summarise(const struct kin_tierdown_trial *trial, const samples *s, double *error)
{
    double times[KIN_TIER_MOST_SAMPLES], squares = 0;
    adjust(trial, s, times);
    qsort(times, s->n, sizeof *times, compare);
    uint32_t n = s->n - s->n / 4;
    double middle = mean(times, n);
    for (uint32_t i = 0; i < n; i++)
        squares += (times[i] - middle) * (times[i] - middle);
    *error = squares / (n - 1) / n;
    return middle;
}

/* True: the comparison has ended. */
static bool
is_decided(kin_tierdown *p, bool *slower)
{
    struct kin_tierdown_trial *trial = p->trial;
    uint32_t n = trial->ours.n < trial->eager.n ? trial->ours.n : trial->eager.n;
    if (n < KIN_TIER_CLEAR_SAMPLES)
        return false;
    double ours_error, eager_error;
    double ours = summarise(trial, &trial->ours, &ours_error), eager = summarise(trial, &trial->eager, &eager_error);
    double doubt = KIN_TIER_SURE * sqrt(ours_error + eager_error);
    bool clear = ours + doubt < KIN_TIER_FAVOUR * eager;
    if (n < KIN_TIER_SAMPLES && !clear)
        return false;
    p->ratio = eager > 0 ? ours / eager : 0;
    p->gain = eager - ours;
    *slower = ours > KIN_TIER_SLOWER * eager;
    return fabs(ours - KIN_TIER_SLOWER * eager) > doubt || n >= KIN_TIER_MOST_SAMPLES;
}

static void
add(samples *s, double ns, double work)
{
    if (s->left_out < KIN_TIER_COLD_SAMPLES) {
        s->left_out++;
    } else if (s->n < KIN_TIER_MOST_SAMPLES) {
        s->work[s->n] = work;
        s->ns[s->n++] = ns;
    }
}

bool
kin_tierdown_note(kin_tierdown *p, bool eager, double ns, double work)
{
    bool slower = false;
    if (p->trial == NULL) /* a nested call has ended the comparison */
        return false;
    add(eager ? &p->trial->eager : &p->trial->ours, ns, work);
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
