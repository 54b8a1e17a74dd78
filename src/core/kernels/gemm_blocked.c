/* The loops around tiles (gemm_blocked.h). b is cut into panels of 32 columns and blocks of rows: [block][panel][row][32]. A block of a stays
 * in the second cache while the panels of b go by.
 */
#include "core/kernels/gemm_blocked.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/kernels/tile.h"

enum {
    DEEP = 768,           /* rows of a block of b, at most */
    TALL = 140,           /* rows of a block of a: DEEP * TALL floats are 430 kB */
    TALL_COPY = 56,       /* ... that is copied first */
    NEAR = 8,             /* panels of a result whose blocks are still near when the last of them is done */
    THREAD_WORK = 1 << 21 /* multiplications that are worth a thread */
};

bool
kin_gemm_blocked_reads(int64_t rows, const kin_matrix *b)
{
    enum { LEAST = 1 << 16, LEAST_DOTS = 256 };
    if (rows < 2 || rows > KIN_TILE_FEW || b->form != KIN_MATRIX_FLOAT || b->rows * b->columns < LEAST || !kin_tile_here())
        return false;
    return (b->column_stride == 1 && b->row_stride >= b->columns) || (b->row_stride == 1 && b->column_stride >= b->rows && b->rows >= LEAST_DOTS);
}

static int64_t
padded(int64_t n)
{
    return kin_tile_divide_up(n, KIN_TILE_COLUMNS) * KIN_TILE_COLUMNS;
}

bool
kin_gemm_blocked_pairs(const kin_matrix *b)
{
    return b->form == KIN_MATRIX_BFLOAT && kin_tile_has_pairs();
}

/* Floats or words along k. */
static int64_t
depth_of(const kin_matrix *b)
{
    return kin_gemm_blocked_pairs(b) ? kin_tile_divide_up(b->rows, 2) : b->rows;
}

size_t
kin_gemm_blocked_panels_len(const kin_matrix *b)
{
    return (size_t)(depth_of(b) * padded(b->columns));
}

static const void *
element(const kin_matrix *x, int64_t i, int64_t j)
{
    return (const char *)x->data + (i * x->row_stride + j * x->column_stride) * kin_matrix_element(x);
}

static unsigned
columns_at(int64_t n, int64_t panel)
{
    int64_t left = n - panel * KIN_TILE_COLUMNS;
    return (unsigned)(left < KIN_TILE_COLUMNS ? left : KIN_TILE_COLUMNS);
}

/* Rows [from, from + deep) of one panel; of words if b is done by pairs. */
static void
make_panel(const kin_matrix *b, int64_t from, int64_t deep, int64_t panel, float *to)
{
    unsigned columns = columns_at(b->columns, panel);
    bool pairs = kin_gemm_blocked_pairs(b);
    const void *data = element(b, pairs ? from * 2 : from, panel * KIN_TILE_COLUMNS);
    if (pairs)
        kin_tile_pack_pairs(b->rows - from * 2 < deep * 2 ? b->rows - from * 2 : deep * 2, columns, data, b->row_stride, b->column_stride, to);
    else if (b->form == KIN_MATRIX_FLOAT)
        kin_tile_pack(deep, columns, data, b->row_stride, b->column_stride, to);
    else
        kin_tile_pack_half(deep, columns, data, b->form == KIN_MATRIX_BFLOAT, b->row_stride, b->column_stride, to);
}

void
kin_gemm_blocked_make_panels(const kin_matrix *b, float *panels)
{
    int64_t depth = depth_of(b), block = kin_tile_part_of(depth, DEEP), npanels = kin_tile_divide_up(b->columns, KIN_TILE_COLUMNS);
    for (int64_t from = 0; from < depth; from += block) {
        int64_t deep = depth - from < block ? depth - from : block;
        for (int64_t j = 0; j < npanels; j++)
            make_panel(b, from, deep, j, panels + from * padded(b->columns) + j * deep * KIN_TILE_COLUMNS);
    }
}

/* -- one thread --------------------------------------------------------------------------------------------------- */

/* A part of one product: all of k, rows and panels in ranges. Panels are counted in one of the `parts` side by side that b has for what
 * follows: one of each of them is done in turn. */
typedef struct {
    const kin_gemm_blocked *p;
    const void *a, *b;
    float *c;
    bool pairs, reads;          /* reads: kin_gemm_blocked_reads */
    int64_t row, rows, panel, panels, parts;
    int64_t first_row;          /* of this product, among all of them */
    float *panel_room, *a_room; /* for a panel and for a block of a; NULL: not needed */
    atomic_int *failed;
} part;

/* Panels of one of these parts. */
static int64_t
panels_of_part(const kin_gemm_blocked *p)
{
    return kin_tile_divide_up(p->then == NULL ? p->b.columns : p->then->columns, KIN_TILE_COLUMNS);
}

static void
copy_block(const float *a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t deep, float *to)
{
    for (int64_t l = 0; l < deep; l++)
        for (int64_t i = 0; i < rows; i++)
            to[i * deep + l] = a[i * row_stride + l * column_stride];
}

/* Words of which the last may be half a one: there are `elements` in a row. */
static void
copy_words(const uint16_t *a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t elements, float *to)
{
    uint16_t *at = (uint16_t *)(void *)to;
    int64_t padded = (elements + 1) / 2 * 2;
    for (int64_t l = 0; l < padded; l++)
        for (int64_t i = 0; i < rows; i++)
            at[i * padded + l] = l < elements ? a[i * row_stride + l * column_stride] : 0;
}

/* Can a not be read as floats, or words, in rows? */
static bool
must_copy(const kin_gemm_blocked *p)
{
    bool apart = p->a.column_stride != 1 && p->a.columns > 1;
    if (!kin_gemm_blocked_pairs(&p->b))
        return apart;
    return apart || p->b.rows % 2 != 0 || (p->a.row_stride % 2 != 0 && p->a.rows > 1) || (p->a_step % 2 != 0 && p->count > 1) || (uintptr_t)p->a.data % 4 != 0;
}

/* A block of a times one panel. Meanwhile the first two tiles bring the panel that comes next near. */
static void
multiply_panel(const float *a, int64_t lda, int64_t rows, int64_t deep, unsigned columns, const float *panel, const float *next, float *c,
               int64_t ldc, bool add, bool pairs)
{
    void (*multiply)(unsigned, unsigned, int64_t, const float *, int64_t, const float *, float *, int64_t, bool, const float *) =
        pairs ? kin_tile_multiply_pairs : kin_tile_multiply;
    int64_t tiles = kin_tile_divide_up(rows, KIN_TILE_ROWS);
    for (int64_t t = 0, i = 0; t < tiles; t++) {
        int64_t n = kin_tile_divide_up(rows - i, tiles - t);
        multiply((unsigned)n, columns, deep, a + i * lda, lda, panel, c + i * ldc, ldc, add,
                 t < 2 ? next + t * deep * (KIN_TILE_COLUMNS / 2) : panel);
        i += n;
    }
}

/* The panel j of b, made if need be. */
static const float *
panel_at(const part *x, int64_t from, int64_t deep, int64_t j)
{
    const kin_gemm_blocked *p = x->p;
    if (p->panels != NULL)
        return p->panels + from * padded(p->b.columns) + j * deep * KIN_TILE_COLUMNS;
    kin_matrix b = p->b;
    b.data = x->b;
    make_panel(&b, from, deep, j, x->panel_room);
    return x->panel_room;
}

/* A block of a times one panel of each part. */
static void
multiply_panels(const part *x, const float *a, int64_t lda, int64_t row, int64_t rows, int64_t from, int64_t deep, int64_t subgraph)
{
    const kin_gemm_blocked *p = x->p;
    int64_t apart = panels_of_part(p);
    for (int64_t q = 0; q < x->parts; q++) {
        int64_t j = subgraph + q * apart, next = q + 1 < x->parts ? apart : 1 - q * apart;
        const float *panel = panel_at(x, from, deep, j);
        multiply_panel(a, lda, rows, deep, columns_at(p->b.columns, j), panel, p->panels == NULL ? panel : panel + next * deep * KIN_TILE_COLUMNS,
                       x->c + row * p->ldc + j * KIN_TILE_COLUMNS, p->ldc, from > 0, x->pairs);
    }
}

static void
multiply_block(const part *x, int64_t row, int64_t rows, int64_t from, int64_t deep)
{
    const kin_gemm_blocked *p = x->p;
    kin_matrix all = p->a;
    all.data = x->a;
    const void *a = element(&all, row, x->pairs ? from * 2 : from);
    int64_t lda = x->pairs ? p->a.row_stride / 2 : p->a.row_stride, near = 0;
    bool follows = p->then != NULL && from + deep == depth_of(&p->b);
    if (x->a_room != NULL) {
        if (x->pairs)
            copy_words(a, p->a.row_stride, p->a.column_stride, rows, p->b.rows - from * 2 < deep * 2 ? p->b.rows - from * 2 : deep * 2, x->a_room);
        else
            copy_block(a, lda, p->a.column_stride, rows, deep, x->a_room);
        a = x->a_room;
        lda = deep;
    }
    for (int64_t j = x->panel; j < x->panel + x->panels; j++) {
        multiply_panels(x, a, lda, row, rows, from, deep, j);
        if (!follows || (++near < NEAR && j + 1 < x->panel + x->panels))
            continue;
        if (!kin_epilogue_run(p->then, x->first_row + row, rows, (j + 1 - near) * KIN_TILE_COLUMNS, near * KIN_TILE_COLUMNS))
            atomic_store(x->failed, 1);
        near = 0;
    }
}

/* All of k for some panels of b that lie side by side. Rows of b go by in groups, so that few pages are read from at a time. */
static void
multiply_few(const part *x, const float *a, int64_t lda, int64_t panel, int64_t panels)
{
    enum { GROUP = 32 };
    const kin_gemm_blocked *p = x->p;
    const kin_matrix *b = &p->b;
    int64_t from = panel * KIN_TILE_COLUMNS, left = b->columns - from, columns = panels * KIN_TILE_COLUMNS;
    const float *at = (const float *)x->b + from * b->column_stride;
    float *c = x->c + from;
    columns = columns < left ? columns : left;
    if (b->column_stride != 1) {
        kin_tile_few_by_columns((unsigned)x->rows, columns, b->rows, a, lda, at, b->column_stride, c, p->ldc);
        return;
    }
    for (int64_t l = 0; l < b->rows; l += GROUP)
        for (int64_t j = 0; j < columns; j += KIN_TILE_COLUMNS)
            kin_tile_few_by_rows((unsigned)x->rows, columns_at(columns, j / KIN_TILE_COLUMNS), b->rows - l < GROUP ? b->rows - l : GROUP, a + l, lda,
                                 at + l * b->row_stride + j, b->row_stride, c + j, p->ldc, l > 0);
}

/* b is read as it lies, by panels of which the results stay near. */
static void
read_part(const part *x)
{
    enum { WIDE = 64 };
    const kin_gemm_blocked *p = x->p;
    const float *a = x->a;
    int64_t lda = p->a.row_stride, k = p->b.rows, most = p->b.column_stride == 1 ? WIDE : NEAR;
    if (x->a_room != NULL) {
        copy_block(a, lda, p->a.column_stride, x->rows, k, x->a_room);
        a = x->a_room;
        lda = k;
    }
    for (int64_t j = x->panel, n; j < x->panel + x->panels; j += n) {
        n = x->panel + x->panels - j < most ? x->panel + x->panels - j : most;
        for (int64_t q = 0; q < x->parts; q++)
            multiply_few(x, a, lda, j + q * panels_of_part(p), n);
        if (p->then != NULL && !kin_epilogue_run(p->then, x->first_row, x->rows, j * KIN_TILE_COLUMNS, n * KIN_TILE_COLUMNS))
            atomic_store(x->failed, 1);
    }
}

static void
multiply_part(const part *x)
{
    if (x->reads) {
        read_part(x);
        return;
    }
    const kin_gemm_blocked *p = x->p;
    int64_t k = depth_of(&p->b), deep = kin_tile_part_of(k, DEEP), tall = kin_tile_part_of(x->rows, x->a_room != NULL ? TALL_COPY : TALL);
    for (int64_t row = x->row; row < x->row + x->rows; row += tall) {
        int64_t left = x->row + x->rows - row;
        for (int64_t from = 0; from < k; from += deep)
            multiply_block(x, row, left < tall ? left : tall, from, k - from < deep ? k - from : deep);
    }
}

/* -- threads -------------------------------------------------------------------------------------------------------- */

/* Each product is cut into `subgraphs` along its columns or its rows. */
typedef struct {
    const kin_gemm_blocked *p;
    bool by_rows, reads;
    int64_t subgraphs, subgraph_rows;
    atomic_int failed; /* there was no memory, or what follows failed */
} sharing;

/* Subgraphs [begin, end) of product i. */
static void
multiply_subgraphs(sharing *s, int64_t i, int64_t begin, int64_t end, float *panel_room, float *a_room)
{
    const kin_gemm_blocked *p = s->p;
    part x = {.p = p, .pairs = kin_gemm_blocked_pairs(&p->b), .reads = s->reads, .panel_room = panel_room, .a_room = a_room,
              .a = (const char *)p->a.data + i * p->a_step * kin_matrix_element(&p->a),
              .b = p->b.data == NULL ? NULL : (const char *)p->b.data + i * p->b_step * kin_matrix_element(&p->b),
              .c = p->c + i * p->c_step, .rows = p->a.rows, .panels = panels_of_part(p), .first_row = i * p->a.rows,
              .parts = p->then == NULL ? 1 : p->b.columns / p->then->columns, .failed = &s->failed};
    if (s->by_rows) {
        x.row = begin * s->subgraph_rows;
        x.rows = end * s->subgraph_rows < p->a.rows ? end * s->subgraph_rows - x.row : p->a.rows - x.row;
    } else {
        x.panel = begin;
        x.panels = end - begin;
    }
    multiply_part(&x);
}

static void
run_share(int64_t begin, int64_t end, void *arg)
{
    sharing *s = arg;
    const kin_gemm_blocked *p = s->p;
    bool copies = must_copy(p);
    size_t panel_len = p->panels == NULL && !s->reads ? DEEP * KIN_TILE_COLUMNS : 0, copy_len = s->reads ? (size_t)(p->a.rows * p->b.rows) : DEEP * TALL_COPY;
    size_t len = (panel_len + (copies ? copy_len : 0) + 15) / 16 * 16;
    float *room = len == 0 ? NULL : aligned_alloc(64, len * sizeof *room);
    if (len != 0 && room == NULL)
        atomic_store(&s->failed, 1);
    while (begin < end && (len == 0 || room != NULL)) {
        int64_t i = begin / s->subgraphs, last = (i + 1) * s->subgraphs < end ? (i + 1) * s->subgraphs : end;
        multiply_subgraphs(s, i, begin - i * s->subgraphs, last - i * s->subgraphs, panel_len > 0 ? room : NULL,
                       copies ? room + panel_len : NULL);
        begin = last;
    }
    free(room);
}

bool
kin_gemm_blocked_run(const kin_gemm_blocked *p, kin_parallel parallel)
{
    int64_t m = p->a.rows, n = p->b.columns, k = p->b.rows;
    int64_t panels = panels_of_part(p), tiles = kin_tile_divide_up(m, KIN_TILE_ROWS);
    enum { ENOUGH = 16 /* panels: they come out even on most numbers of threads */ };
    bool reads = p->panels == NULL && kin_gemm_blocked_reads(m, &p->b);
    sharing s = {.p = p, .reads = reads, .by_rows = !reads && panels < ENOUGH && tiles > panels};
    s.subgraph_rows = kin_tile_divide_up(m, tiles);
    s.subgraphs = s.by_rows ? kin_tile_divide_up(m, s.subgraph_rows) : panels;
    double work = (double)m * (double)n * (double)k / (double)s.subgraphs;
    int64_t grain = work >= THREAD_WORK ? 1 : (int64_t)(THREAD_WORK / work) + 1;
    if (parallel != NULL && p->count * s.subgraphs > grain)
        parallel(p->count * s.subgraphs, grain, run_share, &s);
    else
        run_share(0, p->count * s.subgraphs, &s);
    return atomic_load(&s.failed) == 0;
}
