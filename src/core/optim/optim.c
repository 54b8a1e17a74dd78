/* One pass over parameters, gradients and states (optim.h). The loops are plain C, vectorised by the compiler, once for AVX-512,
 * once for AVX2 and once for any processor. */
#include "core/optim/optim.h"
#include "core/tier/threads.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-math-errno")
#endif

/* As in math.h, but that it sets no errno: else no loop with it becomes vectors. */
float sqrtf(float) __attribute__((const, nothrow));

#define INLINE static inline __attribute__((always_inline))

/* A part of one tensor. */
typedef struct {
    float *restrict param, *restrict grad, *restrict a, *restrict b, *restrict c;
    int64_t n;
} stretch;

/* a * b + c, rounded once where eager's vectors round once. */
INLINE float
add_product(const bool wide, float a, float b, float c)
{
    return wide ? __builtin_fmaf(a, b, c) : a * b + c;
}

INLINE float
gradient(const bool wide, const bool decay, const kin_optim_numbers *by, float grad, float param)
{
    grad *= by->sign;
    return decay ? add_product(wide, param, by->decay, grad) : grad;
}

/* torch.maximum: NaN if either is. */
INLINE float
larger(float a, float b)
{
    return a > b || a != a ? a : b;
}

/* torch.lerp: the form that is exact at the nearer end. */
INLINE float
lerp(const bool wide, float from, float to, float weight)
{
    return weight < 0.5f ? add_product(wide, weight, to - from, from) : add_product(wide, weight - 1, to - from, to);
}

/* -- rules -------------------------------------------------------------------------------------------------------- */

INLINE void
sgd(const bool wide, const bool decay, const bool buffered, const bool nesterov, const bool keeps, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        float grad = gradient(wide, decay, &by, s.grad[i], s.param[i]);
        if (buffered) {
            float buffer = add_product(wide, grad, by.fresh, s.a[i] * by.momentum);
            s.a[i] = buffer;
            grad = nesterov ? add_product(wide, buffer, by.momentum, grad) : buffer;
        }
        if (keeps)
            s.grad[i] = grad;
        s.param[i] = add_product(wide, grad, by.rate, s.param[i]);
    }
}

/* What Adam and its kin begin with: the parameter, decayed, and both means, which are kept. */
typedef struct {
    float param, grad, mean, square;
} moments;

INLINE moments
take_moments(const bool wide, const bool decay, const stretch *s, const kin_optim_numbers *by, int64_t i)
{
    float param = decay ? s->param[i] : s->param[i] * by->decay, grad = gradient(wide, decay, by, s->grad[i], param);
    float mean = lerp(wide, s->a[i], grad, by->weight), square = s->b[i] * by->square + by->square_fresh * grad * grad;
    s->a[i] = mean;
    s->b[i] = square;
    return (moments){param, grad, mean, square};
}

INLINE void
adam(const bool wide, const bool decay, const bool most, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        moments m = take_moments(wide, decay, &s, &by, i);
        float square = m.square;
        if (most) {
            square = larger(s.c[i], square);
            s.c[i] = square;
        }
        s.param[i] = m.param + by.rate * m.mean / (sqrtf(square) / by.correction + by.eps);
    }
}

INLINE void
rmsprop(const bool wide, const bool decay, const bool buffered, const bool centered, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        float grad = gradient(wide, decay, &by, s.grad[i], s.param[i]), square = s.a[i] * by.square + by.square_fresh * grad * grad;
        s.a[i] = square;
        if (centered) {
            float mean = lerp(wide, s.c[i], grad, by.weight);
            s.c[i] = mean;
            square -= mean * mean;
        }
        float step = sqrtf(square) + by.eps;
        if (buffered) {
            s.b[i] = s.b[i] * by.momentum + grad / step;
            s.param[i] = add_product(wide, s.b[i], by.rate, s.param[i]);
        } else {
            s.param[i] += by.rate * grad / step;
        }
    }
}

INLINE void
adagrad(const bool wide, const bool decay, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        float grad = gradient(wide, decay, &by, s.grad[i], s.param[i]), sum = s.a[i] + grad * grad;
        s.a[i] = sum;
        s.param[i] += by.rate * grad / (sqrtf(sum) + by.eps);
    }
}

INLINE void
adadelta(const bool wide, const bool decay, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        float grad = gradient(wide, decay, &by, s.grad[i], s.param[i]), square = s.a[i] * by.square + by.square_fresh * grad * grad;
        float delta = sqrtf(s.b[i] + by.eps) / sqrtf(square + by.eps) * grad;
        s.a[i] = square;
        s.b[i] = s.b[i] * by.square + by.square_fresh * delta * delta;
        s.param[i] = add_product(wide, delta, by.rate, s.param[i]);
    }
}

INLINE void
adamax(const bool wide, const bool decay, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        float grad = gradient(wide, decay, &by, s.grad[i], s.param[i]), mean = lerp(wide, s.a[i], grad, by.weight);
        float most = larger(s.b[i] * by.square, __builtin_fabsf(grad) + by.eps);
        s.a[i] = mean;
        s.b[i] = most;
        s.param[i] += by.rate * mean / most;
    }
}

INLINE void
nadam(const bool wide, const bool decay, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        moments m = take_moments(wide, decay, &s, &by, i);
        float by_root = sqrtf(m.square) / by.correction + by.eps;
        s.param[i] = m.param + by.rate * m.grad / by_root + by.momentum * m.mean / by_root;
    }
}

INLINE void
radam(const bool wide, const bool decay, const bool rectifies, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        moments m = take_moments(wide, decay, &s, &by, i);
        s.param[i] = rectifies ? m.param + by.rate * m.mean / (sqrtf(m.square) + by.eps) : add_product(wide, m.mean, by.rate, m.param);
    }
}

INLINE void
asgd(const bool wide, const bool decay, const bool averages, const bool joins, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        float grad = gradient(wide, decay, &by, s.grad[i], s.param[i]), param = s.param[i];
        grad = joins ? add_product(wide, param, by.shrink, grad) : grad;
        param = add_product(wide, grad, by.rate, joins ? param : param * by.shrink);
        s.a[i] = averages ? add_product(wide, param - s.a[i], by.weight, s.a[i]) : param;
        s.param[i] = param;
    }
}

/* Where the sign of the gradient has changed, the parameter stays, and the next step counts as the first. */
INLINE void
rprop(const bool wide, stretch s, const kin_optim_numbers by)
{
    for (int64_t i = 0; i < s.n; i++) {
        float grad = s.grad[i] * by.sign, product = grad * s.a[i];
        float size = s.b[i] * (product > 0 ? by.up : product < 0 ? by.down : 1.0f);
        size = size < by.least ? by.least : size;
        size = size > by.most ? by.most : size;
        grad = product < 0 ? 0.0f : grad;
        s.a[i] = grad;
        s.b[i] = size;
        s.param[i] = add_product(wide, grad > 0 ? -1.0f : grad < 0 ? 1.0f : 0.0f, size, s.param[i]);
    }
}

/* -- which of them, without a branch per element ----------------------------------------------------------------------- */

INLINE void
run_sgd(const bool wide, const kin_optim_tensor *t, stretch s)
{
    bool decay = t->flags & KIN_OPTIM_DECAY, keeps = t->flags & KIN_OPTIM_KEEPS_GRAD;
    if (s.a == NULL)
        decay ? sgd(wide, true, false, false, false, s, t->by) : sgd(wide, false, false, false, false, s, t->by);
    else if (!(t->flags & KIN_OPTIM_NESTEROV))
        decay ? sgd(wide, true, true, false, false, s, t->by) : sgd(wide, false, true, false, false, s, t->by);
    else if (keeps)
        sgd(wide, false, true, true, true, s, t->by); /* with decay the gradient is a new tensor */
    else
        decay ? sgd(wide, true, true, true, false, s, t->by) : sgd(wide, false, true, true, false, s, t->by);
}

INLINE void
run_adam(const bool wide, const kin_optim_tensor *t, stretch s)
{
    bool decay = t->flags & KIN_OPTIM_DECAY;
    if (s.c != NULL)
        decay ? adam(wide, true, true, s, t->by) : adam(wide, false, true, s, t->by);
    else
        decay ? adam(wide, true, false, s, t->by) : adam(wide, false, false, s, t->by);
}

INLINE void
run_rmsprop(const bool wide, const kin_optim_tensor *t, stretch s)
{
    bool decay = t->flags & KIN_OPTIM_DECAY;
    if (s.b == NULL && s.c == NULL)
        decay ? rmsprop(wide, true, false, false, s, t->by) : rmsprop(wide, false, false, false, s, t->by);
    else if (s.c == NULL)
        decay ? rmsprop(wide, true, true, false, s, t->by) : rmsprop(wide, false, true, false, s, t->by);
    else if (s.b == NULL)
        decay ? rmsprop(wide, true, false, true, s, t->by) : rmsprop(wide, false, false, true, s, t->by);
    else
        decay ? rmsprop(wide, true, true, true, s, t->by) : rmsprop(wide, false, true, true, s, t->by);
}

INLINE void
run_radam(const bool wide, const kin_optim_tensor *t, stretch s)
{
    if (t->flags & KIN_OPTIM_DECAY)
        t->flags & KIN_OPTIM_RECTIFIES ? radam(wide, true, true, s, t->by) : radam(wide, true, false, s, t->by);
    else
        t->flags & KIN_OPTIM_RECTIFIES ? radam(wide, false, true, s, t->by) : radam(wide, false, false, s, t->by);
}

INLINE void
run_asgd(const bool wide, const kin_optim_tensor *t, stretch s)
{
    bool decay = t->flags & KIN_OPTIM_DECAY;
    if (t->flags & KIN_OPTIM_JOINS)
        decay ? asgd(wide, true, true, true, s, t->by) : asgd(wide, false, true, true, s, t->by);
    else if (t->flags & KIN_OPTIM_AVERAGES)
        decay ? asgd(wide, true, true, false, s, t->by) : asgd(wide, false, true, false, s, t->by);
    else
        decay ? asgd(wide, true, false, false, s, t->by) : asgd(wide, false, false, false, s, t->by);
}

INLINE void
run_stretch(const bool wide, const kin_optim_tensor *t, int64_t begin, int64_t end)
{
    stretch s = {t->param + begin, t->grad + begin, t->state[0] ? t->state[0] + begin : NULL, t->state[1] ? t->state[1] + begin : NULL,
                 t->state[2] ? t->state[2] + begin : NULL, end - begin};
    bool decay = t->flags & KIN_OPTIM_DECAY;
    switch (t->rule) {
    case KIN_OPTIM_SGD:
        run_sgd(wide, t, s);
        break;
    case KIN_OPTIM_ADAM:
        run_adam(wide, t, s);
        break;
    case KIN_OPTIM_RMSPROP:
        run_rmsprop(wide, t, s);
        break;
    case KIN_OPTIM_ADAGRAD:
        decay ? adagrad(wide, true, s, t->by) : adagrad(wide, false, s, t->by);
        break;
    case KIN_OPTIM_ADADELTA:
        decay ? adadelta(wide, true, s, t->by) : adadelta(wide, false, s, t->by);
        break;
    case KIN_OPTIM_ADAMAX:
        decay ? adamax(wide, true, s, t->by) : adamax(wide, false, s, t->by);
        break;
    case KIN_OPTIM_NADAM:
        decay ? nadam(wide, true, s, t->by) : nadam(wide, false, s, t->by);
        break;
    case KIN_OPTIM_RADAM:
        run_radam(wide, t, s);
        break;
    case KIN_OPTIM_ASGD:
        run_asgd(wide, t, s);
        break;
    case KIN_OPTIM_RPROP:
        rprop(wide, s, t->by);
        break;
    case KIN_OPTIM_ADAFACTOR: /* adafactor.c */
        break;
    }
}

static void
run_anywhere(const kin_optim_tensor *t, int64_t begin, int64_t end)
{
    run_stretch(false, t, begin, end);
}

#if defined(__x86_64__)
__attribute__((target("avx512f,fma"))) static void
run_avx512(const kin_optim_tensor *t, int64_t begin, int64_t end)
{
    run_stretch(true, t, begin, end);
}

__attribute__((target("avx2,fma"))) static void
run_avx2(const kin_optim_tensor *t, int64_t begin, int64_t end)
{
    run_stretch(true, t, begin, end);
}
#endif

typedef void (*runner)(const kin_optim_tensor *t, int64_t begin, int64_t end);

static runner
find_runner(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx512f"))
        return run_avx512;
    if (__builtin_cpu_supports("fma") && __builtin_cpu_supports("avx2"))
        return run_avx2;
#endif
    return run_anywhere;
}

/* -- all tensors ---------------------------------------------------------------------------------------------------- */

typedef struct {
    const kin_optim_tensor *tensors;
    size_t n;
    runner run;
} table;

/* Elements [begin, end), counted over all tensors. */
static void
run_share(int64_t begin, int64_t end, void *arg)
{
    const table *all = arg;
    size_t low = 0, high = all->n;
    while (high - low > 1) {
        size_t middle = (low + high) / 2;
        if (all->tensors[middle].before <= begin)
            low = middle;
        else
            high = middle;
    }
    for (; low < all->n && all->tensors[low].before < end; low++) {
        const kin_optim_tensor *t = &all->tensors[low];
        int64_t from = begin > t->before ? begin - t->before : 0, to = end - t->before < t->n ? end - t->before : t->n;
        if (from < to)
            all->run(t, from, to);
    }
}

void
kin_optim_run(kin_optim_tensor *tensors, size_t n, kin_optim_parallel parallel)
{
    int64_t total = 0;
    for (size_t i = 0; i < n; i++) {
        tensors[i].before = total;
        total += tensors[i].n;
    }
    table all = {.tensors = tensors, .n = n, .run = find_runner()};
    if (total > KIN_TIER_THREAD_OPTIMIZER && parallel != NULL)
        parallel(total, KIN_TIER_THREAD_OPTIMIZER, run_share, &all);
    else if (total > 0)
        run_share(0, total, &all);
}
