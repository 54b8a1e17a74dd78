/* Steps of optimizers against the same formulas in double, one tensor at a time, and shares of threads against the whole. */
#include "core/optim/optim.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"

enum { TENSORS = 9, MOST = 40000 };
static const int64_t lengths[TENSORS] = {1, 0, 17, 5, 300, 33, 16, 40000, 2};

typedef struct {
    float param[MOST], grad[MOST], state[3][MOST];
} memory;

static uint32_t seed;

static float
number(void)
{
    seed = seed * 1664525u + 1013904223u;
    return (float)(seed >> 8) / (1 << 24) - 0.5f;
}

static void
fill(memory *m, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        m->param[i] = number();
        m->grad[i] = number();
        m->state[0][i] = 1 + number(); /* so that no root is near 0 */
        m->state[1][i] = fabsf(number());
        m->state[2][i] = fabsf(number());
    }
}

static const kin_optim_numbers by = {.sign = -1, .decay = 0.1f, .rate = -0.01f, .momentum = 0.9f, .fresh = 0.7f, .weight = 0.1f,
                                     .square = 0.99f, .square_fresh = 0.01f, .correction = 0.5f, .eps = 1e-8f};

/* What the rules say, in double. */
static double
expect(kin_optim_rule rule, unsigned flags, unsigned states, const memory *m, int64_t i)
{
    double p = m->param[i], g = -(double)m->grad[i], a = m->state[0][i], b = m->state[1][i], c = m->state[2][i];
    bool decay = flags & KIN_OPTIM_DECAY;
    if (rule == KIN_OPTIM_ADAM && !decay)
        p *= by.decay;
    if (decay)
        g += p * by.decay;
    if (rule == KIN_OPTIM_SGD) {
        a = a * by.momentum + g * by.fresh;
        g = states == 0 ? g : flags & KIN_OPTIM_NESTEROV ? g + a * by.momentum : a;
        return p + g * by.rate;
    }
    if (rule == KIN_OPTIM_ADAM) {
        a += by.weight * (g - a);
        b = b * by.square + by.square_fresh * g * g;
        b = states & 4 && c > b ? c : b;
        return p + by.rate * a / (sqrt(b) / by.correction + by.eps);
    }
    if (rule == KIN_OPTIM_ADAGRAD)
        return p + by.rate * g / (sqrt(a + g * g) + by.eps);
    a = a * by.square + by.square_fresh * g * g;
    c += by.weight * (g - c);
    double step = sqrt(states & 4 ? a - c * c : a) + by.eps;
    return states & 2 ? p + by.rate * (b * by.momentum + g / step) : p + by.rate * g / step;
}

static kin_optim_tensor
tensor(memory *m, int64_t n, kin_optim_rule rule, unsigned flags, unsigned states)
{
    kin_optim_tensor t = {.param = m->param, .grad = m->grad, .n = n, .rule = rule, .flags = flags, .by = by};
    for (int s = 0; s < 3; s++)
        t.state[s] = states >> s & 1 ? m->state[s] : NULL;
    return t;
}

/* Shares that fit no tensor, the last one first. */
static void
in_shares(int64_t n, int64_t grain, void (*fn)(int64_t, int64_t, void *), void *arg)
{
    for (int64_t end = n; end > 0; end -= end > 7001 ? 7001 : end)
        fn(end > 7001 ? end - 7001 : 0, end, arg);
}

static void
check_rule(kin_optim_rule rule, unsigned flags, unsigned states)
{
    memory *before = calloc(TENSORS, sizeof *before), *after = calloc(TENSORS, sizeof *after);
    kin_optim_tensor table[TENSORS];
    if (before == NULL || after == NULL)
        abort();
    for (int t = 0; t < TENSORS; t++) {
        fill(&before[t], lengths[t]);
        after[t] = before[t];
        table[t] = tensor(&after[t], lengths[t], rule, flags, states);
    }
    kin_optim_run(table, TENSORS, in_shares);
    bool same = true, beyond = true;
    for (int t = 0; t < TENSORS; t++) {
        for (int64_t i = 0; i < lengths[t]; i++) {
            double want = expect(rule, flags, states, &before[t], i);
            same = same && fabs(after[t].param[i] - want) <= 1e-5 * (1 + fabs(want));
        }
        int64_t n = lengths[t];
        beyond = beyond && (n == MOST || (after[t].param[n] == 0 && after[t].state[0][n] == 0));
    }
    CHECK(same);
    CHECK(beyond);
    bool kept = memcmp(before[4].grad, after[4].grad, sizeof before[4].grad) == 0;
    CHECK(kept == !(flags & KIN_OPTIM_KEEPS_GRAD));
    free(before);
    free(after);
}

int
main(void)
{
    for (unsigned decay = 0; decay < 2; decay++) {
        check_rule(KIN_OPTIM_SGD, decay, 0);
        check_rule(KIN_OPTIM_SGD, decay, 1);
        check_rule(KIN_OPTIM_SGD, decay | KIN_OPTIM_NESTEROV, 1);
        check_rule(KIN_OPTIM_ADAM, decay, 3);
        check_rule(KIN_OPTIM_ADAM, decay, 7);
        for (unsigned more = 0; more < 4; more++)
            check_rule(KIN_OPTIM_RMSPROP, decay, 1 | more << 1);
        check_rule(KIN_OPTIM_ADAGRAD, decay, 1);
    }
    check_rule(KIN_OPTIM_SGD, KIN_OPTIM_NESTEROV | KIN_OPTIM_KEEPS_GRAD, 1);
    return check_report("optim");
}
