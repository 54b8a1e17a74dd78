/* Trials of whole calls (pace.h). Calls differ in what they have to do, and the machine does other things meanwhile. So the order
 * is drawn by lot (data may come in turns as well), the slowest quarter of either kind is left out, and as long as the spread of
 * the rest leaves a doubt more calls are timed, up to a limit.
 */
#include "core/pace/pace.h"

#include <math.h>
#include <stdlib.h>

enum {
    FIRST_WAIT = 24,         /* replays before the first trial: compiling, and trials of single graphs, are over */
    RESTING_WAIT = 256,      /* calls until an entry that was slower is tried again; twice as many each time */
    LONG_REST = 1024,        /* ... and one that was much slower */
    REPLAYING_WAIT = 2048,   /* ... and one that was not */
    LONGEST_WAIT = 1 << 14,
    FEW = 10, MANY = 120      /* samples of each kind */
};
static const double SLOWER = 1.03; /* less is not worth anybody's notice */
static const double CLEARLY_SLOWER = 1.1;
static const double SURE = 3;      /* standard errors */

typedef struct {
    uint32_t n, left_out;
    double ns[MANY];
} samples;

struct kin_pace_trial {
    samples ours, eager;
    uint32_t lots;
    bool second, eager_first; /* of the pair */
};

static kin_pace_turn
draw(struct kin_pace_trial *trial)
{
    if (!trial->second) {
        trial->lots ^= trial->lots << 13;
        trial->lots ^= trial->lots >> 17;
        trial->lots ^= trial->lots << 5;
        trial->eager_first = trial->lots >> 16 & 1;
    }
    bool eager = trial->eager_first != trial->second;
    trial->second = !trial->second;
    return eager ? KIN_PACE_TIME_EAGER : KIN_PACE_TIME_REPLAY;
}

static void
wait_longer(kin_pace *p)
{
    uint32_t least = !p->rests ? REPLAYING_WAIT : p->ratio > CLEARLY_SLOWER ? LONG_REST : RESTING_WAIT;
    p->pause = p->pause < least ? least : p->pause < LONGEST_WAIT / 2 ? 2 * p->pause : LONGEST_WAIT;
    p->wait = p->pause;
}

kin_pace_turn
kin_pace_next(kin_pace *p)
{
    if (p->trial == NULL && p->wait > 1) {
        p->wait--;
        return p->rests ? KIN_PACE_EAGER : KIN_PACE_REPLAY;
    }
    if (p->trial == NULL && (p->trial = calloc(1, sizeof *p->trial)) == NULL) {
        wait_longer(p);
        return p->rests ? KIN_PACE_EAGER : KIN_PACE_REPLAY;
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

/* True: there is an answer. */
static bool
is_decided(kin_pace *p, bool *slower)
{
    struct kin_pace_trial *trial = p->trial;
    uint32_t n = trial->ours.n < trial->eager.n ? trial->ours.n : trial->eager.n;
    if (n < FEW)
        return false;
    double ours_error, eager_error;
    double ours = summarise(&trial->ours, &ours_error), eager = summarise(&trial->eager, &eager_error);
    double doubt = SURE * sqrt(ours_error + eager_error);
    p->ratio = eager > 0 ? ours / eager : 0;
    *slower = ours > SLOWER * eager;
    return fabs(ours - SLOWER * eager) > doubt || n >= MANY;
}

static void
add(samples *s, double ns)
{
    enum { WARM_UP = 1 }; /* CPython's caches, the processor's */
    if (s->left_out < WARM_UP)
        s->left_out++;
    else if (s->n < MANY)
        s->ns[s->n++] = ns;
}

bool
kin_pace_note(kin_pace *p, bool eager, double ns)
{
    bool slower = false;
    if (p->trial == NULL) /* a call inside this one has ended it */
        return false;
    add(eager ? &p->trial->eager : &p->trial->ours, ns);
    if (!is_decided(p, &slower))
        return false;
    free(p->trial);
    p->trial = NULL;
    bool changed = slower != p->rests;
    if (changed)
        p->pause = 0;
    p->rests = slower;
    wait_longer(p);
    return changed;
}

void
kin_pace_init(kin_pace *p)
{
    *p = (kin_pace){.wait = FIRST_WAIT};
}

void
kin_pace_deinit(kin_pace *p)
{
    free(p->trial);
    p->trial = NULL;
}
