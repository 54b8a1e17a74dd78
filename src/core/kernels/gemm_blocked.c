/* The loops around tiles (gemm_blocked.h). b is divided into panels of 32 columns and blocks of rows: [block][panel][row][32]. A block of a stays
 * in the second-level cache while the panels of b stream by.
 */
#include "core/kernels/gemm_blocked.h"

#include <stdatomic.h>
#include <stdlib.h>

#include "core/tier/threads.h"
#include "core/tiles/tile.h"

enum {
    DEEP = KIN_TILE_LONG, /* rows of a block of b, at most */
    TALL = 140,           /* rows of a block of a: DEEP * TALL floats are 430 kB */
    TALL_COPY = 112,      /* ... that is copied first */
    TOGETHER = 1 << 17,   /* floats of panels that are made together, for all rows; twice as many where blocks of a are copied for each group */
    APART = 16,           /* floats between rows of a copied block: their lines must not fall into the same sets of the first cache */
    FEW_WIDE = 64,        /* panels of a b that is read as it lies */
    NEAR = 8              /* panels of a result whose blocks are still near when the last of them is done */
};

bool
kin_gemm_blocked_reads(int64_t rows, const kin_matrix *b)
{
    /* Measured with 8 lanes; with 16 reading has not been tried for less. */
    bool narrow = kin_tile_lanes() == 8;
    int64_t least = narrow ? 1 << 12 : 1 << 16, least_dots = narrow ? 64 : 256;
    if (rows < 2 || rows > KIN_TILE_FEW || b->form != KIN_MATRIX_FLOAT || b->rows * b->columns < least || !kin_tile_here())
        return false;
    return (b->column_stride == 1 && b->row_stride >= b->columns) || (b->row_stride == 1 && b->column_stride >= b->rows && b->rows >= least_dots);
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
    bool pairs, reads, packs;   /* reads: kin_gemm_blocked_reads; packs: whole panels are made by the tiles that read them first */
    int64_t row, rows, panel, panels, parts;
    int64_t first_row;          /* of this product, among all of them */
    float *panel_room, *a_room; /* for panels and for a block of a; NULL: not needed */
    int64_t group, group_from;  /* so many panels of each part are made at a time; the first of those that are there */
    atomic_int *failed;
} part;

/* Panels of one of these parts. */
static int64_t
panels_of_part(const kin_gemm_blocked *p)
{
    return kin_tile_divide_up(p->then == NULL ? p->b.columns : p->then->columns, KIN_TILE_COLUMNS);
}

/* How many of them. */
static int64_t
parts_of(const kin_gemm_blocked *p)
{
    return p->then == NULL ? 1 : p->b.columns / p->then->columns;
}

static void
copy_rows(const float *a, int64_t row_stride, int64_t column_stride, int64_t rows, int64_t deep, float *to)
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

/* Do more rows of a fall into the same sets of the first cache than it has places for, as with most sizes that are powers of two? */
static bool
collides(const kin_gemm_blocked *p)
{
    enum { SETS = 512 /* floats */, PLACES = 8, WIDE = 128 /* columns that a copy pays for */ };
    return p->a.row_stride % SETS == 0 && p->a.row_stride != 0 && p->a.rows > PLACES && p->b.columns >= WIDE;
}

/* Can a not be read as floats, or words, in rows, or not well? */
static bool
must_copy(const kin_gemm_blocked *p)
{
    bool apart = p->a.column_stride != 1 && p->a.columns > 1;
    if (!kin_gemm_blocked_pairs(&p->b))
        return apart || collides(p);
    return apart || p->b.rows % 2 != 0 || (p->a.row_stride % 2 != 0 && p->a.rows > 1) || (p->a_step % 2 != 0 && p->count > 1) || (uintptr_t)p->a.data % 4 != 0;
}

/* A block of a. lda may be 0 (all rows of an expanded a are the same); it says nothing of one that was copied by columns (tile.h). */
typedef struct {
    const float *a;
    int64_t lda, row, rows, from, deep;
    bool by_columns;
} block;

/* One panel of b. source: its rows as they lie, from which it is made by the first tile; NULL: it is there. next: the one that comes next, if it is there. */
typedef struct {
    const float *source;
    float *made;
    const float *at, *next;
    unsigned columns;
} panel_of_b;

/* Rows of a block, the first from row i on, times a panel that they make. */
static void
multiply_packing(const block *k, int64_t n, const panel_of_b *b, int64_t ldb, float *c, int64_t ldc)
{
    kin_tile_multiply_packing((unsigned)n, k->deep, k->a, k->by_columns ? 1 : k->lda, k->by_columns ? KIN_TILE_ROWS : 1, b->source, ldb, b->made, c, ldc, k->from > 0);
}

/* A block of a times one panel. Meanwhile the first two tiles bring the panel that comes next near. */
static void
multiply_panel(const block *k, const panel_of_b *b, int64_t ldb, float *c, int64_t ldc, bool pairs)
{
    int64_t tiles = k->by_columns ? kin_tile_divide_up(k->rows, KIN_TILE_ROWS) : kin_tile_count(k->rows);
    const float *panel = b->at;
    unsigned columns = b->columns;
    for (int64_t t = 0, i = 0, n; t < tiles; t++, i += n) {
        const float *soon = t < 2 ? b->next + t * k->deep * (KIN_TILE_COLUMNS / 2) : panel;
        n = kin_tile_divide_up(k->rows - i, tiles - t);
        if (t == 0 && b->source != NULL)
            multiply_packing(k, n, b, ldb, c, ldc);
        else if (pairs)
            kin_tile_multiply_pairs((unsigned)n, columns, k->deep, k->a + i * k->lda, k->lda, panel, c + i * ldc, ldc, k->from > 0, soon);
        else if (k->by_columns)
            kin_tile_multiply_columns((unsigned)n, columns, k->deep, k->a + t * k->deep * KIN_TILE_ROWS, panel, c + i * ldc, ldc, k->from > 0, soon);
        else
            kin_tile_multiply((unsigned)n, columns, k->deep, k->a + i * k->lda, k->lda, panel, c + i * ldc, ldc, k->from > 0, soon);
    }
}

/* Panels [j, j + n) of each part, where b has none. Rows of b go by in groups where they lie in rows, so that few pages are read from at a
 * time. */
static void
make_group(const part *x, int64_t from, int64_t deep, int64_t j, int64_t n)
{
    enum { ROWS = 32 };
    const kin_gemm_blocked *p = x->p;
    kin_matrix b = p->b;
    b.data = x->b;
    int64_t step = b.column_stride == 1 && !x->pairs ? ROWS : deep, apart = panels_of_part(p);
    if (x->packs && columns_at(b.columns, j + n - 1 + (x->parts - 1) * apart) == KIN_TILE_COLUMNS)
        return;
    for (int64_t l = 0; l < deep; l += step)
        for (int64_t q = 0; q < x->parts; q++)
            for (int64_t i = 0; i < n; i++)
                if (!x->packs || columns_at(b.columns, j + i + q * apart) < KIN_TILE_COLUMNS)
                    make_panel(&b, from + l, deep - l < step ? deep - l : step, j + i + q * apart,
                               x->panel_room + ((q * x->group + i) * deep + l) * KIN_TILE_COLUMNS);
}

/* Where in the room for panels that of part q is made. */
static int64_t
room_of(const part *x, int64_t deep, int64_t j, int64_t q)
{
    return (q * x->group + j - x->group_from) * deep * KIN_TILE_COLUMNS;
}

/* The panel j of part q. */
static const float *
panel_at(const part *x, const block *k, int64_t j, int64_t q)
{
    const kin_gemm_blocked *p = x->p;
    if (p->panels != NULL)
        return p->panels + k->from * padded(p->b.columns) + (j + q * panels_of_part(p)) * k->deep * KIN_TILE_COLUMNS;
    return x->panel_room + room_of(x, k->deep, j, q);
}

/* A block of a times one panel of each part; `last`: none is there behind it. */
static void
multiply_panels(const part *x, const block *k, int64_t j, bool last)
{
    const kin_gemm_blocked *p = x->p;
    int64_t apart = panels_of_part(p);
    for (int64_t q = 0; q < x->parts; q++) {
        int64_t column = j + q * apart;
        float *made = x->panel_room == NULL ? NULL : x->panel_room + room_of(x, k->deep, j, q);
        panel_of_b b = {.made = made, .at = made != NULL ? made : panel_at(x, k, j, q), .columns = columns_at(p->b.columns, column)};
        bool fresh = x->packs && k->row == x->row;
        b.next = fresh || (last && q + 1 == x->parts) ? b.at : q + 1 < x->parts ? panel_at(x, k, j, q + 1) : panel_at(x, k, j + 1, 0);
        if (fresh && b.columns == KIN_TILE_COLUMNS)
            b.source = (const float *)x->b + k->from * p->b.row_stride + column * KIN_TILE_COLUMNS;
        multiply_panel(k, &b, p->b.row_stride, x->c + k->row * p->ldc + column * KIN_TILE_COLUMNS, p->ldc, x->pairs);
    }
}

/* Where the block lies, copied if it has to be. */
static block
take_block(const part *x, int64_t row, int64_t rows, int64_t from, int64_t deep)
{
    const kin_gemm_blocked *p = x->p;
    kin_matrix all = p->a;
    all.data = x->a;
    block k = {.a = element(&all, row, x->pairs ? from * 2 : from), .lda = x->pairs ? p->a.row_stride / 2 : p->a.row_stride, .row = row,
               .rows = rows, .from = from, .deep = deep};
    if (x->a_room == NULL)
        return k;
    if (x->pairs)
        copy_words((const void *)k.a, p->a.row_stride, p->a.column_stride, rows, p->b.rows - from * 2 < deep * 2 ? p->b.rows - from * 2 : deep * 2, x->a_room);
    else if (p->a.column_stride == 1)
        for (int64_t i = 0; i < rows; i++)
            kin_tile_copy(k.a + i * p->a.row_stride, deep, x->a_room + i * (deep + APART));
    else
        kin_tile_pack_columns(deep, rows, k.a, p->a.row_stride, p->a.column_stride, x->a_room);
    k.a = x->a_room;
    k.lda = x->pairs ? deep : deep + APART;
    k.by_columns = !x->pairs && p->a.column_stride != 1;
    return k;
}

/* Panels [panel, panel + panels) of each part. */
static void
multiply_block(const part *x, const block *k, int64_t panel, int64_t panels)
{
    const kin_gemm_blocked *p = x->p;
    bool follows = p->then != NULL && k->from + k->deep == depth_of(&p->b);
    int64_t near = 0, end = panel + panels;
    for (int64_t j = panel; j < end; j++) {
        multiply_panels(x, k, j, j + 1 == end);
        if (!follows || (++near < NEAR && j + 1 < end))
            continue;
        if (!kin_epilogue_run(p->then, x->first_row + k->row, k->rows, (j + 1 - near) * KIN_TILE_COLUMNS, near * KIN_TILE_COLUMNS))
            atomic_store(x->failed, 1);
        near = 0;
    }
}

/* Some columns of rows [from, to) of b, which lie in rows. They go by in groups, so that few pages are read from at a time. */
static void
multiply_few_rows(const part *x, const float *a, int64_t lda, int64_t from, int64_t to, const float *b, int64_t columns, float *c, int64_t ldc)
{
    enum { GROUP = 32 };
    int64_t ldb = x->p->b.row_stride;
    for (int64_t l = from; l < to; l += GROUP)
        for (int64_t j = 0; j < columns; j += KIN_TILE_COLUMNS)
            kin_tile_few_by_rows((unsigned)x->rows, columns_at(columns, j / KIN_TILE_COLUMNS), to - l < GROUP ? to - l : GROUP, a + l, lda,
                                 b + l * ldb + j, ldb, c + j, ldc, l > from);
}

/* All of k for some panels of b that lie side by side, FEW_WIDE at most. */
static void
multiply_few(const part *x, const float *a, int64_t lda, int64_t panel, int64_t panels)
{
    float more[KIN_TILE_FEW * FEW_WIDE * KIN_TILE_COLUMNS];
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
    int64_t deep = kin_tile_part_of(b->rows, DEEP);
    multiply_few_rows(x, a, lda, 0, deep, at, columns, c, p->ldc);
    for (int64_t l = deep; l < b->rows; l += deep) {
        multiply_few_rows(x, a, lda, l, b->rows - l < deep ? b->rows : l + deep, at, columns, more, columns);
        for (int64_t i = 0; i < x->rows; i++)
            kin_tile_add(more + i * columns, columns, c + i * p->ldc);
    }
}

/* b is read as it lies, by panels of which the results stay near. */
static void
read_part(const part *x)
{
    const kin_gemm_blocked *p = x->p;
    const float *a = x->a;
    int64_t lda = p->a.row_stride, k = p->b.rows, most = p->b.column_stride == 1 ? FEW_WIDE : NEAR;
    if (x->a_room != NULL) {
        copy_rows(a, lda, p->a.column_stride, x->rows, k, x->a_room);
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

/* Panels are there: all of k for some rows after the other, so that results stay near. */
static void
multiply_by_rows(const part *x, int64_t tall, int64_t deep)
{
    int64_t k = depth_of(&x->p->b);
    for (int64_t row = x->row; row < x->row + x->rows; row += tall)
        for (int64_t from = 0; from < k; from += deep) {
            int64_t left = x->row + x->rows - row;
            block b = take_block(x, row, left < tall ? left : tall, from, k - from < deep ? k - from : deep);
            multiply_block(x, &b, x->panel, x->panels);
        }
}

/* Panels have to be made: once, for all rows. */
static void
multiply_by_groups(part *x, int64_t tall, int64_t deep)
{
    int64_t k = depth_of(&x->p->b);
    for (int64_t from = 0; from < k; from += deep)
        for (int64_t j = x->panel, n; j < x->panel + x->panels; j += n) {
            int64_t here = k - from < deep ? k - from : deep;
            n = x->panel + x->panels - j < x->group ? x->panel + x->panels - j : x->group;
            x->group_from = j;
            make_group(x, from, here, j, n);
            for (int64_t row = x->row; row < x->row + x->rows; row += tall) {
                int64_t left = x->row + x->rows - row;
                block b = take_block(x, row, left < tall ? left : tall, from, here);
                multiply_block(x, &b, j, n);
            }
        }
}

static void
multiply_part(part *x)
{
    if (x->reads) {
        read_part(x);
        return;
    }
    const kin_gemm_blocked *p = x->p;
    int64_t k = depth_of(&p->b), deep = kin_tile_part_of(k, DEEP), tall = kin_tile_part_of(x->rows, x->a_room != NULL ? TALL_COPY : TALL);
    if (p->panels != NULL)
        multiply_by_rows(x, tall, deep);
    else
        multiply_by_groups(x, tall, deep);
}

/* -- threads -------------------------------------------------------------------------------------------------------- */

/* Each product is cut into `shares` along its columns or its rows. */
typedef struct {
    const kin_gemm_blocked *p;
    bool by_rows, reads;
    int64_t shares, share_rows;
    int64_t group;     /* panels of each part that are made at a time */
    atomic_int failed; /* there was no memory, or what follows failed */
} sharing;

/* Subgraphs [begin, end) of product i. */
static void
multiply_shares(sharing *s, int64_t i, int64_t begin, int64_t end, float *panel_room, float *a_room)
{
    const kin_gemm_blocked *p = s->p;
    part x = {.p = p, .pairs = kin_gemm_blocked_pairs(&p->b), .reads = s->reads,
              .packs = p->panels == NULL && p->b.form == KIN_MATRIX_FLOAT && p->b.column_stride == 1, .panel_room = panel_room, .a_room = a_room,
              .a = (const char *)p->a.data + i * p->a_step * kin_matrix_element(&p->a),
              .b = p->b.data == NULL ? NULL : (const char *)p->b.data + i * p->b_step * kin_matrix_element(&p->b),
              .c = p->c + i * p->c_step, .rows = p->a.rows, .panels = panels_of_part(p), .first_row = i * p->a.rows,
              .parts = parts_of(p), .group = s->group, .failed = &s->failed};
    if (s->by_rows) {
        x.row = begin * s->share_rows;
        x.rows = end * s->share_rows < p->a.rows ? end * s->share_rows - x.row : p->a.rows - x.row;
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
    int64_t deep = kin_tile_part_of(depth_of(&p->b), DEEP), tall = kin_tile_divide_up(p->a.rows < TALL_COPY ? p->a.rows : TALL_COPY, KIN_TILE_ROWS);
    size_t panel_len = p->panels == NULL && !s->reads ? (size_t)(s->group * parts_of(p) * deep * KIN_TILE_COLUMNS) : 0;
    size_t copy_len = s->reads ? (size_t)(p->a.rows * p->b.rows) : (size_t)((deep + APART) * tall * KIN_TILE_ROWS);
    size_t len = (panel_len + (copies ? copy_len : 0) + 15) / 16 * 16;
    float *room = len == 0 ? NULL : aligned_alloc(64, len * sizeof *room);
    if (len != 0 && room == NULL)
        atomic_store(&s->failed, 1);
    while (begin < end && (len == 0 || room != NULL)) {
        int64_t i = begin / s->shares, last = (i + 1) * s->shares < end ? (i + 1) * s->shares : end;
        multiply_shares(s, i, begin - i * s->shares, last - i * s->shares, panel_len > 0 ? room : NULL,
                       copies ? room + panel_len : NULL);
        begin = last;
    }
    free(room);
}

static int64_t
group_of(const kin_gemm_blocked *p)
{
    int64_t deep = kin_tile_part_of(depth_of(&p->b), DEEP), panels = panels_of_part(p);
    int64_t most = TOGETHER * (must_copy(p) ? 2 : 1) / (deep * KIN_TILE_COLUMNS * parts_of(p));
    return most < 1 ? 1 : most < panels ? kin_tile_part_of(panels, most) : panels;
}

bool
kin_gemm_blocked_run(const kin_gemm_blocked *p, kin_parallel parallel)
{
    int64_t m = p->a.rows, n = p->b.columns, k = p->b.rows;
    int64_t panels = panels_of_part(p), tiles = kin_tile_divide_up(m, KIN_TILE_ROWS);
    bool reads = p->panels == NULL && kin_gemm_blocked_reads(m, &p->b);
    if (!reads && kin_gemm_turned_suits(p))
        return kin_gemm_turned_run(p, parallel);
    sharing s = {.p = p, .reads = reads, .by_rows = !reads && panels < KIN_TIER_THREAD_SHARES && tiles > panels};
    s.group = group_of(p);
    s.share_rows = kin_tile_divide_up(m, tiles);
    s.shares = s.by_rows ? kin_tile_divide_up(m, s.share_rows) : panels;
    double work = (double)m * (double)n * (double)k / (double)s.shares;
    int64_t grain = kin_tier_grain(work, KIN_TIER_THREAD_PRODUCT);
    if (parallel != NULL && p->count * s.shares > grain)
        parallel(p->count * s.shares, grain, run_share, &s);
    else
        run_share(0, p->count * s.shares, &s);
    return atomic_load(&s.failed) == 0;
}
