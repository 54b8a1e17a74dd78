/* Adafactor (optim.h): squares of the gradient are known by their means over rows and columns. Four passes over a matrix, none of which makes a temporary
 * of its size: means of rows, means of columns, the size of the update, the update. */
#include "core/optim/optim.h"

#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC optimize("O3", "no-math-errno")
#endif

/* As in math.h, but that it sets no errno: else no loop with it becomes vectors. */
float sqrtf(float) __attribute__((const, nothrow));
double sqrt(double) __attribute__((const, nothrow));

enum { LANES = 16, STRIP = 64 };

typedef struct {
    const kin_optim_factored *t;
    double *sums;  /* by row: of squares of the parameter, then of the update */
    float scale;   /* of the update */
} job;

static float
lerp(float from, float to, float weight)
{
    return weight < 0.5f ? from + weight * (to - from) : to - (to - from) * (1 - weight);
}

static double
sum_squares(const float *x, int64_t n)
{
    double sum = 0;
    for (int64_t from = 0; from < n; from += 4096) {
        float lanes[LANES] = {0};
        int64_t i = from, to = n - from < 4096 ? n : from + 4096;
        for (; i + LANES <= to; i += LANES)
            for (int l = 0; l < LANES; l++)
                lanes[l] += x[i + l] * x[i + l];
        for (; i < to; i++)
            sum += (double)x[i] * x[i];
        for (int l = 0; l < LANES; l++)
            sum += lanes[l];
    }
    return sum;
}

/* -- passes: over rows [begin, end) of all matrices, or over strips of columns --------------------------------------------- */

static void
means_of_rows(int64_t begin, int64_t end, void *arg)
{
    job *j = arg;
    const kin_optim_factored *t = j->t;
    for (int64_t r = begin; r < end; r++) {
        j->sums[r] = sum_squares(t->param + r * t->columns, t->columns);
        if (t->row != NULL)
            t->row[r] = lerp(t->row[r], (float)(sum_squares(t->grad + r * t->columns, t->columns) / (double)t->columns), t->weight);
    }
}

static void
means_of_columns(int64_t begin, int64_t end, void *arg)
{
    const kin_optim_factored *t = ((job *)arg)->t;
    int64_t strips = (t->columns + STRIP - 1) / STRIP;
    for (int64_t s = begin; s < end; s++) {
        int64_t matrix = s / strips, from = s % strips * STRIP, n = t->columns - from < STRIP ? t->columns - from : STRIP;
        const float *grad = t->grad + matrix * t->rows * t->columns + from;
        double sums[STRIP] = {0};
        for (int64_t r = 0; r < t->rows; r++)
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

/* The update of one element, from the square that is estimated for it. */
static inline float
update_of(const kin_optim_factored *t, float grad, float square)
{
    float least = t->eps * t->eps;
    return t->sign * grad / sqrtf(square < least ? least : square);
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
size_of_row(job *j, int64_t r, float by)
{
    const kin_optim_factored *t = j->t;
    const float *grad = t->grad + r * t->columns, *square = t->row != NULL ? t->column + r / t->rows * t->columns : t->vector;
    float row = t->row != NULL ? t->row[r] : 1;
    double sum = 0;
    for (int64_t from = 0; from < t->columns; from += 4096) {
        float lanes[LANES] = {0};
        int64_t c = from, to = t->columns - from < 4096 ? t->columns : from + 4096;
        for (; c + LANES <= to; c += LANES)
            for (int l = 0; l < LANES; l++) {
                float u = update_of(t, grad[c + l], row * square[c + l] / by);
                lanes[l] += u * u;
            }
        for (; c < to; c++) {
            float u = update_of(t, grad[c], row * square[c] / by);
            lanes[0] += u * u;
        }
        for (int l = 0; l < LANES; l++)
            sum += lanes[l];
    }
    j->sums[r] = sum;
}

static void
write_row(job *j, int64_t r, float by)
{
    const kin_optim_factored *t = j->t;
    const float *restrict grad = t->grad + r * t->columns, *restrict square = t->row != NULL ? t->column + r / t->rows * t->columns : t->vector;
    float *restrict param = t->param + r * t->columns, row = t->row != NULL ? t->row[r] : 1;
    for (int64_t c = 0; c < t->columns; c++)
        param[c] = param[c] * t->decay + j->scale * update_of(t, grad[c], row * square[c] / by);
}

static void
by_rows(job *j, int64_t begin, int64_t end, void (*fn)(job *, int64_t, float))
{
    int64_t matrix = -1;
    float by = 1;
    for (int64_t r = begin; r < end; r++) {
        if (j->t->row != NULL && r / j->t->rows != matrix) {
            matrix = r / j->t->rows;
            by = mean_row(j->t, matrix);
        }
        fn(j, r, by);
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
    enum { ENOUGH = 1 << 14 }; /* elements that are worth another thread */
    int64_t grain = each > 0 ? ENOUGH / each + 1 : n;
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
    job j = {.t = t, .sums = sums};
    in_shares(rows, t->columns, means_of_rows, &j, parallel);
    double size = root_mean(sums, rows, n), alpha = (size > t->least ? size : t->least) * t->rate;
    if (t->row != NULL)
        in_shares(t->matrices * ((t->columns + STRIP - 1) / STRIP), t->rows * STRIP, means_of_columns, &j, parallel);
    else
        in_shares(n, 1, vector_of_squares, &j, parallel);
    in_shares(rows, t->columns, sizes_of_updates, &j, parallel);
    double update = root_mean(sums, rows, n) / t->most;
    j.scale = (float)(-alpha / (update > 1 ? update : 1));
    in_shares(rows, t->columns, write_updates, &j, parallel);
}
