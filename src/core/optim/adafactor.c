/* Adafactor (optim.h): squares of the gradient are represented by their means over rows and columns. Four passes over a matrix, none of which needs a temporary
 * of its size: means of rows, means of columns, the size of the update, the update. */
#include "core/optim/optim.h"
#include "core/tier/threads.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-math-errno")
#endif

/* As in math.h, but that it sets no errno: else no loop with it becomes vectors. */
float sqrtf(float) __attribute__((const, nothrow));
double sqrt(double) __attribute__((const, nothrow));

enum { LANES = 16, STRIP = 64, SHORT = 4096 };

#define INLINE static inline __attribute__((always_inline))

/* -- inner loops, once for AVX-512, for AVX2 and for any processor --------------------------------------------------------- */

INLINE double
add_lanes(const float *lanes)
{
    double sum = 0;
    for (int l = 0; l < LANES; l++)
        sum += lanes[l];
    return sum;
}

/* Stretches are so short that lanes of float lose nothing that matters. */
INLINE double
squares(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += SHORT) {
        float lanes[LANES] = {0};
        int64_t i = from, to = n - from < SHORT ? n : from + SHORT;
        for (; i + LANES <= to; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += x[i + l] * x[i + l];
        for (; i < to; i++)
            lanes[0] += x[i] * x[i];
        sum += add_lanes(lanes);
    }
    return sum;
}

/* Sums of squares of STRIP columns. */
INLINE void
squares_below(const float *x, int64_t rows, int64_t stride, double *sums)
{
    for (int c = 0; c < STRIP; c++)
        sums[c] = 0;
    for (int64_t from = 0; from < rows; from += SHORT / LANES) {
        float lanes[STRIP] = {0};
        for (int64_t r = from; r < rows && r < from + SHORT / LANES; r++)
            for (int c = 0; c < STRIP; c++)
                lanes[c] += x[r * stride + c] * x[r * stride + c];
        for (int c = 0; c < STRIP; c++)
            sums[c] += lanes[c];
    }
}

/* The update of one element, but for its sign, from the square that is estimated for it. */
INLINE float
update_of(float grad, float square, float least)
{
    return grad / sqrtf(square < least ? least : square);
}

INLINE double
sizes(const float *grad, const float *square, float factor, float least, int64_t n)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += SHORT) {
        float lanes[LANES] = {0};
        int64_t c = from, to = n - from < SHORT ? n : from + SHORT;
        for (; c + LANES <= to; c += LANES)
            for (int l = 0; l < LANES; l++) {
                float u = update_of(grad[c + l], factor * square[c + l], least);
                lanes[l] += u * u;
            }
        for (; c < to; c++) {
            float u = update_of(grad[c], factor * square[c], least);
            lanes[0] += u * u;
        }
        sum += add_lanes(lanes);
    }
    return sum;
}

INLINE void
write(float *restrict param, const float *restrict grad, const float *restrict square, float factor, float least, float decay, float scale, int64_t n)
{
    for (int64_t c = 0; c < n; c++)
        param[c] = param[c] * decay + scale * update_of(grad[c], factor * square[c], least);
}

typedef struct {
    double (*squares)(const float *x, int64_t n);
    void (*squares_below)(const float *x, int64_t rows, int64_t stride, double *sums);
    double (*sizes)(const float *grad, const float *square, float factor, float least, int64_t n);
    void (*write)(float *param, const float *grad, const float *square, float factor, float least, float decay, float scale, int64_t n);
} loops;

#define LOOPS(NAME, TARGET)                                                                                                          \
    TARGET static double NAME##_squares(const float *x, int64_t n) { return squares(x, n); }                                        \
    TARGET static void NAME##_below(const float *x, int64_t rows, int64_t stride, double *sums) { squares_below(x, rows, stride, sums); } \
    TARGET static double NAME##_sizes(const float *grad, const float *square, float factor, float least, int64_t n)                  \
    {                                                                                                                                \
        return sizes(grad, square, factor, least, n);                                                                                \
    }                                                                                                                                \
    TARGET static void NAME##_write(float *param, const float *grad, const float *square, float factor, float least, float decay,    \
                                    float scale, int64_t n)                                                                          \
    {                                                                                                                                \
        write(param, grad, square, factor, least, decay, scale, n);                                                                  \
    }                                                                                                                                \
    static const loops NAME = {NAME##_squares, NAME##_below, NAME##_sizes, NAME##_write};

LOOPS(plain, )
#if defined(__x86_64__)
LOOPS(avx512, __attribute__((target("avx512f"))))
LOOPS(avx2, __attribute__((target("avx2"))))
#endif

static const loops *
find_loops(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f"))
        return &avx512;
    if (__builtin_cpu_supports("avx2"))
        return &avx2;
#endif
    return &plain;
}

/* -- passes: over rows [begin, end) of all matrices, or over strips of columns ------------------------------------------- */

typedef struct {
    const kin_optim_factored *t;
    const loops *loops;
    double *sums;  /* by row: of squares of the parameter, then of the update */
    float scale;   /* of the update, with its sign */
} job;

static float
lerp(float from, float to, float weight)
{
    return weight < 0.5f ? from + weight * (to - from) : to - (to - from) * (1 - weight);
}

static void
means_of_rows(int64_t begin, int64_t end, void *arg)
{
    job *j = arg;
    const kin_optim_factored *t = j->t;
    for (int64_t r = begin; r < end; r++) {
        j->sums[r] = j->loops->squares(t->param + r * t->columns, t->columns);
        if (t->row != NULL)
            t->row[r] = lerp(t->row[r], (float)(j->loops->squares(t->grad + r * t->columns, t->columns) / (double)t->columns), t->weight);
    }
}

static void
means_of_columns(int64_t begin, int64_t end, void *arg)
{
    const job *j = arg;
    const kin_optim_factored *t = j->t;
    int64_t strips = (t->columns + STRIP - 1) / STRIP;
    for (int64_t s = begin; s < end; s++) {
        int64_t matrix = s / strips, from = s % strips * STRIP, n = t->columns - from < STRIP ? t->columns - from : STRIP;
        const float *grad = t->grad + matrix * t->rows * t->columns + from;
        double sums[STRIP] = {0};
        if (n == STRIP)
            j->loops->squares_below(grad, t->rows, t->columns, sums);
        for (int64_t r = 0; n < STRIP && r < t->rows; r++)
            for (int64_t c = 0; c < n; c++)
                sums[c] += (double)grad[r * t->columns + c] * grad[r * t->columns + c];
        float *column = t->column + matrix * t->columns + from;
        for (int64_t c = 0; c < n; c++)
            column[c] = lerp(column[c], (float)(sums[c] / (double)t->rows), t->weight);
    }
}

static void
vector_of_squares(int64_t begin, int64_t end, void *arg)
{
    const kin_optim_factored *t = ((job *)arg)->t;
    for (int64_t i = begin; i < end; i++)
        t->vector[i] = lerp(t->vector[i], t->grad[i] * t->grad[i], t->weight);
}

static float
mean_row(const kin_optim_factored *t, int64_t matrix)
{
    double sum = 0;
    for (int64_t r = 0; r < t->rows; r++)
        sum += t->row[matrix * t->rows + r];
    float mean = (float)(sum / (double)t->rows);
    return mean < t->eps ? t->eps : mean;
}

static void
size_of_row(job *j, int64_t r, const float *square, float factor)
{
    const kin_optim_factored *t = j->t;
    j->sums[r] = j->loops->sizes(t->grad + r * t->columns, square, factor, t->eps * t->eps, t->columns);
}

static void
write_row(job *j, int64_t r, const float *square, float factor)
{
    const kin_optim_factored *t = j->t;
    j->loops->write(t->param + r * t->columns, t->grad + r * t->columns, square, factor, t->eps * t->eps, t->decay, j->scale, t->columns);
}

/* With what squares of the row are estimated from: those of its columns, times a factor. */
static void
by_rows(job *j, int64_t begin, int64_t end, void (*fn)(job *, int64_t, const float *, float))
{
    const kin_optim_factored *t = j->t;
    int64_t matrix = -1;
    float mean = 1;
    for (int64_t r = begin; r < end; r++) {
        if (t->row == NULL) {
            fn(j, r, t->vector, 1);
            continue;
        }
        if (r / t->rows != matrix) {
            matrix = r / t->rows;
            mean = mean_row(t, matrix);
        }
        fn(j, r, t->column + matrix * t->columns, t->row[r] / mean);
    }
}

static void
sizes_of_updates(int64_t begin, int64_t end, void *arg)
{
    by_rows(arg, begin, end, size_of_row);
}

static void
write_updates(int64_t begin, int64_t end, void *arg)
{
    by_rows(arg, begin, end, write_row);
}

/* -- all of it --------------------------------------------------------------------------------------------------------- */

static void
in_shares(int64_t n, int64_t each, void (*fn)(int64_t, int64_t, void *), job *j, kin_optim_parallel parallel)
{
    int64_t grain = kin_tier_grain((double)each, KIN_TIER_THREAD_OPTIMIZER);
    if (n > grain && parallel != NULL)
        parallel(n, grain, fn, j);
    else
        fn(0, n, j);
}

static double
root_mean(const double *sums, int64_t rows, int64_t n)
{
    double sum = 0;
    for (int64_t r = 0; r < rows; r++)
        sum += sums[r];
    return sqrt(sum) / sqrt((double)n);
}

void
kin_optim_adafactor(const kin_optim_factored *t, double *sums, kin_optim_parallel parallel)
{
    int64_t rows = t->matrices * t->rows, n = rows * t->columns;
    job j = {.t = t, .loops = find_loops(), .sums = sums};
    in_shares(rows, t->columns, means_of_rows, &j, parallel);
    double size = root_mean(sums, rows, n), alpha = (size > t->least ? size : t->least) * t->rate;
    if (t->row != NULL)
        in_shares(t->matrices * ((t->columns + STRIP - 1) / STRIP), t->rows * STRIP, means_of_columns, &j, parallel);
    else
        in_shares(n, 1, vector_of_squares, &j, parallel);
    in_shares(rows, t->columns, sizes_of_updates, &j, parallel);
    double update = root_mean(sums, rows, n) / t->most;
    j.scale = t->sign * (float)(-alpha / (update > 1 ? update : 1));
    in_shares(rows, t->columns, write_updates, &j, parallel);
}
