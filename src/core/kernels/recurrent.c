/* Recurrent layers (recurrent.h). Rows of the batch know nothing of each other: threads share them, and each goes through all steps. */
#include "core/kernels/recurrent.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/kernels/gates.h"
#include "core/tiles/tile.h"

enum { THREAD_WORK = 1 << 19 /* multiplications that are worth a thread */ };

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

/* gates [+]= h times the matrix, panel by panel. */
static void
multiply(const walker *w, const float *h, bool add)
{
    int64_t width = w->x->width;
    if (w->rows == 1) {
        kin_gates_multiply_row(w->columns, width, h, w->panels, w->gates, add);
        return;
    }
    for (int64_t j = 0; j < w->columns; j += KIN_TILE_COLUMNS) {
        int64_t n = w->columns - j < KIN_TILE_COLUMNS ? w->columns - j : KIN_TILE_COLUMNS;
        const float *panel = w->panels + j * width;
        for (int64_t i = 0, some; i < w->rows; i += some) {
            some = w->rows - i < KIN_TILE_ROWS ? w->rows - i : KIN_TILE_ROWS;
            kin_tile_multiply((unsigned)some, (unsigned)n, width, h + i * width, width, panel, w->gates + i * w->columns + j, w->columns, add,
                              panel);
        }
    }
}

static void
finish_row(const walker *w, int64_t step, int64_t i, const float *before, float *to)
{
    const kin_recurrent *x = w->x;
    float *gates = w->gates + i * w->columns;
    switch (x->cell) {
    case KIN_CELL_LSTM: kin_gates_lstm(x->width, gates, w->c + i * x->width, to); break;
    case KIN_CELL_GRU: kin_gates_gru(x->width, row_from(w, step, i), gates, x->bias != NULL ? w->bias : NULL, before, to); break;
    case KIN_CELL_TANH: kin_gates_tanh(x->width, gates, to); break;
    case KIN_CELL_RELU: kin_gates_relu(x->width, gates, to); break;
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
    multiply(w, before, add);
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
    if (x->cell == KIN_CELL_LSTM)
        kin_tile_copy(w.c, w.rows * x->width, x->to + (x->steps * x->batch + begin) * x->width);
    free(w.gates);
}

/* Where they lie at multiples of 64 bytes; *copy is to be freed. NULL without memory. */
static const float *
aligned_panels(const kin_recurrent *x, float **copy)
{
    *copy = NULL;
    if ((uintptr_t)x->panels % 64 == 0)
        return x->panels;
    int64_t columns = kin_cell_gates(x->cell) * x->width, panels = (columns + KIN_TILE_COLUMNS - 1) / KIN_TILE_COLUMNS;
    int64_t n = panels * KIN_TILE_COLUMNS * x->width;
    *copy = aligned_alloc(64, (size_t)n * sizeof(float));
    if (*copy != NULL)
        kin_tile_copy(x->panels, n, *copy);
    return *copy;
}

bool
kin_recurrent_run(const kin_recurrent *x, kin_parallel parallel)
{
    float *copy;
    sharing s = {.x = x, .panels = aligned_panels(x, &copy)};
    if (s.panels == NULL)
        return false;
    double work = (double)x->steps * (double)x->width * (double)x->width * (double)kin_cell_gates(x->cell); /* of a row */
    int64_t grain = work * 4 >= THREAD_WORK ? 4 : (int64_t)(THREAD_WORK / work) + 1; /* fewer rows make poor tiles */
    if (parallel != NULL && x->batch > grain)
        parallel(x->batch, grain, run_share, &s);
    else
        run_share(0, x->batch, &s);
    free(copy);
    return atomic_load(&s.failed) == 0;
}
