/* Products of few rows with a right side that is stored by columns (gemm_blocked.h), as the weight of nn.Linear is: packing that side into panels would
 * cost nearly as much as the arithmetic. Read as rows, its columns need no packing, so the transposed product is computed, with few panels for the left
 * side, and its result is transposed.
 */
#include "core/kernels/gemm_blocked.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/tier/threads.h"
#include "core/tiles/tile.h"

enum {
    MOST_ROWS = 96,  /* from here on panels pay */
    LEAST = 256,     /* rows and columns of the right side: below, turning costs as much as panels */
    TOGETHER = 8     /* panels of the result that are turned, then given to what follows */
};

bool
kin_gemm_turned_suits(const kin_gemm_blocked *p)
{
    const kin_matrix *b = &p->b;
    return p->panels == NULL && p->count == 1 && b->form == KIN_MATRIX_FLOAT && p->a.form == KIN_MATRIX_FLOAT && p->a.rows <= MOST_ROWS &&
           b->row_stride == 1 && b->column_stride >= b->rows && b->rows >= LEAST && b->columns >= LEAST && p->a.column_stride == 1 &&
           (p->then == NULL || p->then->columns == b->columns);
}

typedef struct {
    const kin_gemm_blocked *p;
    const float *turned; /* [columns, rows] */
    atomic_int failed;
} sharing;

static void
turn_panel(const sharing *s, int64_t from, float *panel)
{
    const kin_gemm_blocked *p = s->p;
    int64_t rows = p->a.rows, left = p->b.columns - from, columns = left < KIN_TILE_COLUMNS ? left : KIN_TILE_COLUMNS;
    kin_tile_pack(rows, (unsigned)columns, s->turned + from * rows, 1, rows, panel);
    for (int64_t i = 0; i < rows; i++)
        kin_tile_copy(panel + i * KIN_TILE_COLUMNS, columns, p->c + i * p->ldc + from);
}

static void
turn_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    const kin_gemm_blocked *p = s->p;
    enum { WIDE = TOGETHER * KIN_TILE_COLUMNS };
    float *panel = aligned_alloc(64, (size_t)(p->a.rows * KIN_TILE_COLUMNS) * sizeof *panel);
    for (int64_t j = begin * WIDE; panel != NULL && j < end * WIDE && j < p->b.columns; j += WIDE) {
        int64_t to = j + WIDE < p->b.columns ? j + WIDE : p->b.columns;
        for (int64_t from = j; from < to; from += KIN_TILE_COLUMNS)
            turn_panel(s, from, panel);
        if (p->then != NULL && !kin_epilogue_run(p->then, 0, p->a.rows, j, to - j))
            atomic_store(&s->failed, 1);
    }
    if (panel == NULL)
        atomic_store(&s->failed, 1);
    free(panel);
}

bool
kin_gemm_turned_run(const kin_gemm_blocked *p, kin_parallel parallel)
{
    const kin_matrix *a = &p->a, *b = &p->b;
    float *turned = aligned_alloc(64, ((size_t)(a->rows * b->columns) * sizeof *turned + 63) / 64 * 64);
    kin_gemm_blocked other = {.a = {b->data, b->columns, b->rows, b->column_stride, 1, KIN_MATRIX_FLOAT}, .c = turned, .ldc = a->rows, .count = 1,
                              .b = {a->data, a->columns, a->rows, 1, a->row_stride, KIN_MATRIX_FLOAT}};
    sharing s = {.p = p, .turned = turned};
    bool ok = turned != NULL && kin_gemm_blocked_run(&other, parallel);
    int64_t shares = kin_tile_divide_up(b->columns, TOGETHER * KIN_TILE_COLUMNS);
    if (ok && parallel != NULL && shares > KIN_TIER_THREAD_TURNED)
        parallel(shares, KIN_TIER_THREAD_TURNED, turn_share, &s);
    else if (ok)
        turn_share(0, shares, &s);
    free(turned);
    return ok && atomic_load(&s.failed) == 0;
}
