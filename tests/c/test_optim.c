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
                                     .square = 0.99f, .square_fresh = 0.01f, .correction = 0.5f, .eps = 1e-8f, .shrink = 0.8f, .up = 1.2f,
                                     .down = 0.5f, .least = 0.1f, .most = 0.6f};

/* The same for those that keep means of gradients and of their squares. */
static double
expect_mean(kin_optim_rule rule, unsigned flags, unsigned states, double p, double g, double a, double b, double c)
{
    a += by.weight * (g - a);
    if (rule == KIN_OPTIM_ADAMAX)
        return p + by.rate * a / fmax(b * by.square, fabs(g) + by.eps);
    b = b * by.square + by.square_fresh * g * g;
    if (rule == KIN_OPTIM_NADAM)
        return p + (by.rate * g + by.momentum * a) / (sqrt(b) / by.correction + by.eps);
    if (rule == KIN_OPTIM_RADAM)
        return p + by.rate * a / (flags & KIN_OPTIM_RECTIFIES ? sqrt(b) + by.eps : 1);
    b = states & 4 && c > b ? c : b;
    return p + by.rate * a / (sqrt(b) / by.correction + by.eps);
}

/* What the rules say, in double. */
static double
expect(kin_optim_rule rule, unsigned flags, unsigned states, const memory *m, int64_t i)
{
    double p = m->param[i], g = -(double)m->grad[i], a = m->state[0][i], b = m->state[1][i], c = m->state[2][i];
    bool decay = flags & KIN_OPTIM_DECAY;
    if ((rule == KIN_OPTIM_ADAM || rule == KIN_OPTIM_NADAM || rule == KIN_OPTIM_RADAM) && !decay)
        p *= by.decay;
    if (decay)
        g += p * by.decay;
    if (rule == KIN_OPTIM_SGD) {
        a = a * by.momentum + g * by.fresh;
        g = states == 0 ? g : flags & KIN_OPTIM_NESTEROV ? g + a * by.momentum : a;
        return p + g * by.rate;
    }
    if (rule == KIN_OPTIM_ADAM || rule == KIN_OPTIM_ADAMAX || rule == KIN_OPTIM_NADAM || rule == KIN_OPTIM_RADAM)
        return expect_mean(rule, flags, states, p, g, a, b, c);
    if (rule == KIN_OPTIM_ASGD)
        return flags & KIN_OPTIM_JOINS ? p + by.rate * (g + by.shrink * p) : p * by.shrink + by.rate * g;
    if (rule == KIN_OPTIM_RPROP)
        return g * a < 0 || g == 0 ? p : p - copysign(fmin(fmax(b * (g * a > 0 ? by.up : 1), by.least), by.most), g);
    if (rule == KIN_OPTIM_ADADELTA)
        return p + by.rate * g * sqrt(b + by.eps) / sqrt(a * by.square + by.square_fresh * g * g + by.eps);
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

/* Two blocks at a time. */
static void
in_twos(int64_t n, int64_t grain, void (*fn)(int64_t, int64_t, void *), void *arg)
{
    for (int64_t begin = 0; begin < n; begin += 2)
        fn(begin, begin + 2 < n ? begin + 2 : n, arg);
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

/* Norm and scaling of the gradients, in shares and as a whole. */
static void
check_norm(void)
{
    memory *m = calloc(TENSORS, sizeof *m);
    kin_optim_part parts[TENSORS];
    double sum = 0, one = 0, other = 0;
    if (m == NULL)
        abort();
    for (int t = 0; t < TENSORS; t++) {
        fill(&m[t], lengths[t]);
        parts[t] = (kin_optim_part){m[t].grad, lengths[t]};
        for (int64_t i = 0; i < lengths[t]; i++)
            sum += (double)m[t].grad[i] * m[t].grad[i];
    }
    CHECK(kin_optim_norm(parts, TENSORS, NULL, &one) == KIN_OK && kin_optim_norm(parts, TENSORS, in_twos, &other) == KIN_OK);
    CHECK(one == other && fabs(one - sqrt(sum)) < 1e-6 * one);
    float was = m[7].grad[39999], first = m[0].grad[0], beyond = m[2].grad[17];
    kin_optim_scale(parts, TENSORS, 0.5f, in_twos);
    CHECK(m[7].grad[39999] == was / 2 && m[0].grad[0] == first / 2 && m[2].grad[17] == beyond);
    free(m);
}

/* Matrices and vectors of Adafactor against the formulas in double. */
static void
check_factored(int64_t matrices, int64_t rows, int64_t columns, bool vector)
{
    memory *m = calloc(1, sizeof *m), *was = calloc(1, sizeof *m);
    int64_t n = matrices * rows * columns;
    double sums[400], size = 0, update = 0;
    if (m == NULL || was == NULL || n > MOST || matrices * rows > 400)
        abort();
    fill(m, n);
    *was = *m;
    kin_optim_factored f = {.param = m->param, .grad = m->grad, .matrices = matrices, .rows = rows, .columns = columns, .sign = -1, .weight = 0.3f, .eps = 1e-4f,
                            .decay = 0.9f, .rate = 0.01, .least = 1e-3, .most = 0.5};
    if (vector)
        f.vector = m->state[2];
    else
        f.row = m->state[0], f.column = m->state[1];
    kin_optim_adafactor(&f, sums, in_shares);
    double *u = calloc((size_t)n, sizeof *u);
    for (int64_t i = 0; i < n; i++) {
        int64_t matrix = i / columns / rows;
        double square = vector ? m->state[2][i] : 0, mean = 0;
        for (int64_t r = 0; r < rows; r++)
            mean += m->state[0][matrix * rows + r] / (double)rows;
        if (!vector)
            square = (double)m->state[0][i / columns] * m->state[1][matrix * columns + i % columns] / (mean > 1e-4 ? mean : 1e-4);
        u[i] = -was->grad[i] / sqrt(square > 1e-8 ? square : 1e-8);
        size += (double)was->param[i] * was->param[i];
        update += u[i] * u[i];
    }
    double alpha = sqrt(size / (double)n) * 0.01, limit = sqrt(update / (double)n) / 0.5;
    bool same = true;
    for (int64_t i = 0; i < n; i++)
        same = same && fabs(m->param[i] - (was->param[i] * 0.9 - alpha / (limit > 1 ? limit : 1) * u[i])) < 1e-5;
    CHECK(same);
    double row = 0, column = 0;
    for (int64_t c = 0; c < columns; c++)
        row += (double)was->grad[c] * was->grad[c] / (double)columns;
    for (int64_t r = 0; r < rows; r++)
        column += (double)was->grad[r * columns] * was->grad[r * columns] / (double)rows;
    CHECK(fabs(m->state[0][0] - (vector ? was->state[0][0] : was->state[0][0] * 0.7 + row * 0.3)) < 1e-5);
    CHECK(fabs(m->state[1][0] - (vector ? was->state[1][0] : was->state[1][0] * 0.7 + column * 0.3)) < 1e-5);
    CHECK(fabs(m->state[2][0] - (vector ? was->state[2][0] * 0.7 + was->grad[0] * was->grad[0] * 0.3 : was->state[2][0])) < 1e-5);
    free(u);
    free(m);
    free(was);
}

int
main(void)
{
    check_factored(1, 7, 130, false);
    check_factored(3, 5, 70, false);
    check_factored(1, 200, 200, false);
    check_factored(1, 1, 1, false);
    check_factored(1, 1, 5000, true);
    check_norm();
    for (unsigned decay = 0; decay < 2; decay++) {
        check_rule(KIN_OPTIM_SGD, decay, 0);
        check_rule(KIN_OPTIM_SGD, decay, 1);
        check_rule(KIN_OPTIM_SGD, decay | KIN_OPTIM_NESTEROV, 1);
        check_rule(KIN_OPTIM_ADAM, decay, 3);
        check_rule(KIN_OPTIM_ADAM, decay, 7);
        for (unsigned more = 0; more < 4; more++)
            check_rule(KIN_OPTIM_RMSPROP, decay, 1 | more << 1);
        check_rule(KIN_OPTIM_ADAGRAD, decay, 1);
        check_rule(KIN_OPTIM_ADADELTA, decay, 3);
        check_rule(KIN_OPTIM_ADAMAX, decay, 3);
        check_rule(KIN_OPTIM_NADAM, decay, 3);
        check_rule(KIN_OPTIM_RADAM, decay, 3);
        check_rule(KIN_OPTIM_RADAM, decay | KIN_OPTIM_RECTIFIES, 3);
        check_rule(KIN_OPTIM_ASGD, decay, 1);
        check_rule(KIN_OPTIM_ASGD, decay | KIN_OPTIM_AVERAGES, 1);
        check_rule(KIN_OPTIM_ASGD, decay | KIN_OPTIM_JOINS, 1);
    }
    check_rule(KIN_OPTIM_RPROP, 0, 3);
    check_rule(KIN_OPTIM_SGD, KIN_OPTIM_NESTEROV | KIN_OPTIM_KEEPS_GRAD, 1);
    return check_report("optim");
}
