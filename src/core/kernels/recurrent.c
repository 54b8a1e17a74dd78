/* Recurrent layers (recurrent.h). Rows of the batch are independent: threads share them, and each goes through all time steps. */
#include "core/kernels/recurrent.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/tier/threads.h"
#include "core/tiles/tile.h"

typedef struct {
    const kin_recurrent *x;
    const float *panels;
    atomic_int failed; /* there was no memory */
} sharing;

/* Some rows of the batch, on their way through the steps. */
typedef struct {
    const kin_recurrent *x;
    const float *panels;
    int64_t first, rows, columns;
    float *gates;      /* [rows, columns]: of the step at hand */
    float *h, *c;      /* [rows, width]: before the first step, and before the step at hand */
    float *bias;       /* [width] */
    float *row;        /* of `from`, where its elements do not lie together */
    float *kept;       /* what the first step keeps of the first row, or NULL */
} walker;

static void
gather(const float *from, int64_t stride, int64_t n, float *to)
{
    if (stride == 1)
        kin_tile_copy(from, n, to);
    else
        for (int64_t j = 0; j < n; j++)
            to[j] = from[j * stride];
}

static bool
open_walker(walker *w, const sharing *s, int64_t first, int64_t rows)
{
    const kin_recurrent *x = s->x;
    *w = (walker){.x = x, .panels = s->panels, .first = first, .rows = rows, .columns = kin_cell_gates(x->cell) * x->width};
    int64_t floats = rows * (w->columns + 2 * x->width) + w->columns + x->width;
    w->gates = aligned_alloc(64, (size_t)(floats * (int64_t)sizeof(float) + 63) / 64 * 64);
    if (w->gates == NULL)
        return false;
    w->h = w->gates + rows * w->columns;
    w->c = w->h + rows * x->width;
    w->row = w->c + rows * x->width;
    w->bias = w->row + w->columns;
    w->kept = x->keeps ? x->to + (x->steps * x->batch) * x->width : NULL;
    if (x->bias != NULL)
        gather(x->bias, x->bias_stride, x->width, w->bias);
    for (int64_t i = 0; i < rows; i++) {
        gather(x->h + (first + i) * x->h_strides[0], x->h_strides[1], x->width, w->h + i * x->width);
        if (x->cell == KIN_CELL_LSTM)
            gather(x->c + (first + i) * x->c_strides[0], x->c_strides[1], x->width, w->c + i * x->width);
    }
    return true;
}

static const float *
row_from(const walker *w, int64_t step, int64_t row)
{
    const kin_recurrent *x = w->x;
    const float *from = x->from + step * x->from_strides[0] + (w->first + row) * x->from_strides[1];
    if (x->from_strides[2] == 1)
        return from;
    gather(from, x->from_strides[2], w->columns, w->row);
    return w->row;
}

/* to [rows, columns] [+]= from [rows, k] times the matrix, panel by panel. */
static void
multiply(int64_t rows, int64_t k, int64_t columns, const float *from, const float *panels, float *to, bool add)
{
    if (rows == 1) {
        kin_tile_gates_multiply_row(columns, k, from, panels, to, add);
        return;
    }
    for (int64_t j = 0; j < columns; j += KIN_TILE_COLUMNS) {
        int64_t n = columns - j < KIN_TILE_COLUMNS ? columns - j : KIN_TILE_COLUMNS;
        const float *panel = panels + j * k;
        for (int64_t i = 0, tiles = kin_tile_count(rows), some; i < rows; i += some, tiles--) {
            some = kin_tile_divide_up(rows - i, tiles);
            kin_tile_multiply((unsigned)some, (unsigned)n, k, from + i * k, k, panel, to + i * columns + j, columns, add, panel);
        }
    }
}

static void
finish_row(const walker *w, int64_t step, int64_t i, const float *before, float *to)
{
    const kin_recurrent *x = w->x;
    float *gates = w->gates + i * w->columns;
    float *kept = w->kept == NULL ? NULL : w->kept + (step * x->batch + w->first + i) * kin_cell_keeps(x->cell) * x->width;
    switch (x->cell) {
    case KIN_CELL_LSTM: kin_tile_gates_lstm(x->width, gates, w->c + i * x->width, to, kept); break;
    case KIN_CELL_GRU: kin_tile_gates_gru(x->width, row_from(w, step, i), gates, x->bias != NULL ? w->bias : NULL, before, to, kept); break;
    case KIN_CELL_TANH: kin_tile_gates_tanh(x->width, gates, to); break;
    case KIN_CELL_RELU: kin_tile_gates_relu(x->width, gates, to); break;
    }
}

static void
do_step(const walker *w, int64_t step, const float *before)
{
    const kin_recurrent *x = w->x;
    bool add = x->cell != KIN_CELL_GRU;
    for (int64_t i = 0; add && i < w->rows; i++)
        gather(x->from + step * x->from_strides[0] + (w->first + i) * x->from_strides[1], x->from_strides[2], w->columns,
               w->gates + i * w->columns);
    multiply(w->rows, x->width, w->columns, before, w->panels, w->gates, add);
    float *to = x->to + (step * x->batch + w->first) * x->width;
    for (int64_t i = 0; i < w->rows; i++)
        finish_row(w, step, i, before + i * x->width, to + i * x->width);
}

static void
run_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    const kin_recurrent *x = s->x;
    walker w;
    if (!open_walker(&w, s, begin, end - begin)) {
        atomic_store(&s->failed, 1);
        return;
    }
    const float *before = w.h;
    for (int64_t k = 0; k < x->steps; k++) {
        int64_t step = x->reverse ? x->steps - 1 - k : k;
        do_step(&w, step, before);
        before = x->to + (step * x->batch + begin) * x->width;
    }
    if (x->cell == KIN_CELL_LSTM && !x->keeps)
        kin_tile_copy(w.c, w.rows * x->width, x->to + (x->steps * x->batch + begin) * x->width);
    free(w.gates);
}

/* Where they lie at multiples of 64 bytes, `columns` of k rows; *copy is to be freed. NULL without memory. */
static const float *
aligned_panels(const float *given, int64_t columns, int64_t k, float **copy)
{
    *copy = NULL;
    if ((uintptr_t)given % 64 == 0)
        return given;
    int64_t panels = (columns + KIN_TILE_COLUMNS - 1) / KIN_TILE_COLUMNS, n = panels * KIN_TILE_COLUMNS * k;
    *copy = aligned_alloc(64, (size_t)n * sizeof(float));
    if (*copy != NULL)
        kin_tile_copy(given, n, *copy);
    return *copy;
}

/* Fewest rows of the batch that are worth a thread; fewer than four make poor tiles. */
static int64_t
grain_of(kin_cell cell, int64_t steps, int64_t width)
{
    double work = (double)steps * (double)width * (double)width * (double)kin_cell_gates(cell); /* of a row */
    int64_t grain = kin_tier_grain(work, KIN_TIER_THREAD_RECURRENT);
    return grain < 4 ? 4 : grain;
}

bool
kin_recurrent_run(const kin_recurrent *x, kin_parallel parallel)
{
    float *copy;
    sharing s = {.x = x, .panels = aligned_panels(x->panels, kin_cell_gates(x->cell) * x->width, x->width, &copy)};
    if (s.panels == NULL)
        return false;
    int64_t grain = grain_of(x->cell, x->steps, x->width);
    if (parallel != NULL && x->batch > grain)
        parallel(x->batch, grain, run_share, &s);
    else
        run_share(0, x->batch, &s);
    free(copy);
    return atomic_load(&s.failed) == 0;
}

/* -- back ----------------------------------------------------------------------------------------------------------- */

typedef struct {
    const kin_recurrent_backward *x;
    const float *panels;
    atomic_int failed;
} sharing_back;

/* Some rows of the batch, on their way back. */
typedef struct {
    const kin_recurrent_backward *x;
    const float *panels;
    int64_t first, rows, columns;
    float *h, *c;     /* [rows, width]: gradients of what the step at hand gave */
    float *row;       /* [width], [kept * width]: where elements do not lie together */
} walker_back;

/* Row of three dims, or a copy. */
static const float *
row_at(const float *from, const int64_t *strides, int64_t step, int64_t row, int64_t n, float *copy)
{
    from += step * strides[0] + row * strides[1];
    if (strides[2] == 1)
        return from;
    gather(from, strides[2], n, copy);
    return copy;
}

/* Gradients by the input's product, or by the other one; LSTM's are the same. */
static float *
to_at(const walker_back *w, int64_t step, int64_t row, bool state)
{
    const kin_recurrent_backward *x = w->x;
    int64_t part = state && x->cell == KIN_CELL_GRU ? x->steps : 0;
    return x->to + ((part + step) * x->batch + w->first + row) * w->columns;
}

/* What the step began with. */
static const float *
before_of(const walker_back *w, int64_t step, int64_t i)
{
    const kin_recurrent_backward *x = w->x;
    int64_t before = x->reverse ? step + 1 : step - 1, row = w->first + i;
    bool lstm = x->cell == KIN_CELL_LSTM;
    const int64_t *first = lstm ? x->first_c_strides : x->first_h_strides;
    if (before < 0 || before == x->steps) {
        gather((lstm ? x->first_c : x->first_h) + row * first[0], first[1], x->width, w->row);
        return w->row;
    }
    if (!lstm)
        return row_at(x->results, x->results_strides, before, row, x->width, w->row);
    const int64_t *strides = x->kept_strides;
    return row_at(x->kept + 4 * x->width * strides[2], strides, before, row, x->width, w->row);
}

static void
back_row(const walker_back *w, int64_t step, int64_t i)
{
    const kin_recurrent_backward *x = w->x;
    int64_t row = w->first + i;
    float *h = w->h + i * x->width, *to = to_at(w, step, i, false);
    const float *back = x->back + step * x->back_strides[0] + row * x->back_strides[1];
    for (int64_t j = 0; j < x->width; j++)
        h[j] += back[j * x->back_strides[2]];
    const float *kept = row_at(x->kept, x->kept_strides, step, row, kin_cell_keeps(x->cell) * x->width, w->row + x->width);
    const float *before = before_of(w, step, i);
    if (x->cell == KIN_CELL_LSTM)
        kin_tile_gates_lstm_backward(x->width, kept, before, h, w->c + i * x->width, to);
    else
        kin_tile_gates_gru_backward(x->width, kept, before, h, to, to_at(w, step, i, true));
}

static bool
open_walker_back(walker_back *w, const sharing_back *s, int64_t first, int64_t rows)
{
    const kin_recurrent_backward *x = s->x;
    *w = (walker_back){.x = x, .panels = s->panels, .first = first, .rows = rows, .columns = kin_cell_gates(x->cell) * x->width};
    int64_t floats = (2 * rows + 1 + kin_cell_keeps(x->cell)) * x->width;
    w->h = aligned_alloc(64, (size_t)(floats * (int64_t)sizeof(float) + 63) / 64 * 64);
    if (w->h == NULL)
        return false;
    w->c = w->h + rows * x->width;
    w->row = w->c + rows * x->width;
    for (int64_t i = 0; i < rows; i++) {
        gather(x->h + (first + i) * x->h_strides[0], x->h_strides[1], x->width, w->h + i * x->width);
        if (x->cell == KIN_CELL_LSTM)
            gather(x->c + (first + i) * x->c_strides[0], x->c_strides[1], x->width, w->c + i * x->width);
    }
    return true;
}

static void
back_share(int64_t begin, int64_t end, void *arg)
{
    sharing_back *s = arg;
    const kin_recurrent_backward *x = s->x;
    walker_back w;
    if (!open_walker_back(&w, s, begin, end - begin)) {
        atomic_store(&s->failed, 1);
        return;
    }
    bool gru = x->cell == KIN_CELL_GRU;
    for (int64_t k = x->steps; k-- > 0;) {
        int64_t step = x->reverse ? x->steps - 1 - k : k;
        for (int64_t i = 0; i < w.rows; i++)
            back_row(&w, step, i);
        multiply(w.rows, w.columns, x->width, to_at(&w, step, 0, true), w.panels, w.h, gru);
    }
    float *firsts = x->to + (gru ? 2 : 1) * x->steps * x->batch * w.columns;
    kin_tile_copy(w.h, w.rows * x->width, firsts + begin * x->width);
    if (!gru)
        kin_tile_copy(w.c, w.rows * x->width, firsts + (x->batch + begin) * x->width);
    free(w.h);
}

bool
kin_recurrent_run_backward(const kin_recurrent_backward *x, kin_parallel parallel)
{
    float *copy;
    sharing_back s = {.x = x, .panels = aligned_panels(x->panels, x->width, kin_cell_gates(x->cell) * x->width, &copy)};
    if (s.panels == NULL)
        return false;
    int64_t grain = grain_of(x->cell, x->steps, x->width);
    if (parallel != NULL && x->batch > grain)
        parallel(x->batch, grain, back_share, &s);
    else
        back_share(0, x->batch, &s);
    free(copy);
    return atomic_load(&s.failed) == 0;
}
