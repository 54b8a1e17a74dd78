/* Products (gemm.h): chooses who computes them, and for BLAS which entry point, with strides in BLAS's terms. */
#include "core/kernels/gemm.h"

#include <limits.h>
#include <stdatomic.h>
#include <stdlib.h>

#include "core/kernels/gemm_blocked.h"
#include "core/tier/threads.h"
#include "core/tier/tier.h"

enum { ROW_MAJOR = 101, NO_TRANS = 111, TRANS = 112, PACKED = 151, B_MATRIX = 162 }; /* CBLAS's numbers */
enum { FEW_ROWS = 4 }; /* up to here a product is bound by reading b, and BLAS does that as well as we do */

struct kin_packed {
    bool own;    /* panels of gemm_blocked.h */
    int m;
    size_t bytes;
    float *data;
};

static bool
is_dense_rows(const kin_matrix *x)
{
    return (x->column_stride == 1 || x->columns == 1) && (x->row_stride >= x->columns || x->rows == 1);
}

static int64_t
leading(const kin_matrix *x)
{
    int64_t ld = is_dense_rows(x) ? x->row_stride : x->column_stride, least = is_dense_rows(x) ? x->columns : x->rows;
    return ld > least ? ld : least > 0 ? least : 1; /* one row has any stride: BLAS wants a valid one */
}

bool
kin_gemm_reads(const kin_matrix *x)
{
    bool columns = (x->row_stride == 1 || x->rows == 1) && (x->column_stride >= x->rows || x->columns == 1);
    return (is_dense_rows(x) || columns) && leading(x) <= INT_MAX && x->rows <= INT_MAX && x->columns <= INT_MAX;
}

bool
kin_gemm_is_own(const kin_blas *blas, int64_t m, const kin_matrix *b, bool packed)
{
    if (b->form != KIN_MATRIX_FLOAT)
        return true;
    if (!packed && blas->large && (double)m * (double)b->rows * (double)b->columns > KIN_TIER_LARGE_PRODUCT)
        return false;
    return blas->own && (m > (packed ? 1 : FEW_ROWS) || (!packed && kin_gemm_blocked_reads(m, b)));
}

bool
kin_gemm_wants_packed(const kin_blas *blas, int64_t m, const kin_matrix *b)
{
    return kin_gemm_is_own(blas, m, b, true) || (blas->pack != NULL && m > FEW_ROWS && m <= INT_MAX);
}

kin_packed *
kin_gemm_pack(const kin_blas *blas, int64_t m, const kin_matrix *b)
{
    kin_packed *packed = calloc(1, sizeof *packed);
    if (packed == NULL)
        return NULL;
    packed->own = m == KIN_GEMM_ANY_ROWS || kin_gemm_is_own(blas, m, b, true);
    packed->m = (int)m;
    packed->bytes = packed->own ? kin_gemm_blocked_panels_len(b) * sizeof(float)
                                : blas->pack_size(B_MATRIX, (int)m, (int)b->columns, (int)b->rows);
    packed->bytes = (packed->bytes + 63) / 64 * 64;
    packed->data = aligned_alloc(64, packed->bytes); /* no large pages: not faster to read, and slow to get in virtual machines */
    if (packed->data == NULL) {
        free(packed);
        return NULL;
    }
    kin_gemm_pack_again(blas, packed, b);
    return packed;
}

void
kin_gemm_pack_again(const kin_blas *blas, kin_packed *packed, const kin_matrix *b)
{
    if (packed->own) {
        kin_gemm_blocked_make_panels(b, packed->data);
        return;
    }
    blas->pack(ROW_MAJOR, B_MATRIX, is_dense_rows(b) ? NO_TRANS : TRANS, packed->m, (int)b->columns, (int)b->rows, 1.0f,
               b->data, (int)leading(b), packed->data);
}

bool
kin_gemm_runs_own(const kin_blas *blas, const kin_matrix *a, const kin_matrix *b, const kin_packed *packed)
{
    return packed != NULL ? packed->own : kin_gemm_is_own(blas, a->rows, b, false);
}

size_t
kin_gemm_packed_bytes(const kin_packed *packed)
{
    return packed->bytes;
}

void
kin_gemm_free(kin_packed *packed)
{
    if (packed == NULL)
        return;
    free(packed->data);
    free(packed);
}

/* Row-major c = a b is column-major c' = b' a'. */
static void
plain(const kin_blas *blas, const kin_matrix *a, const kin_matrix *b, float *c)
{
    int m = (int)b->columns, n = (int)a->rows, k = (int)a->columns, ldb = (int)leading(b), lda = (int)leading(a);
    float one = 1, zero = 0;
    blas->gemm(is_dense_rows(b) ? "N" : "T", is_dense_rows(a) ? "N" : "T", &m, &n, &k, &one, b->data, &ldb, a->data, &lda,
               &zero, c, &m);
}

/* -- what follows --------------------------------------------------------------------------------------------------- */

bool
kin_epilogue_run(const kin_epilogue *e, int64_t row, int64_t rows, int64_t column, int64_t columns)
{
    int64_t window[2] = {column, column + columns < e->columns ? column + columns : e->columns};
    void *buffers[KIN_EPILOGUE_BUFFERS + 1];
    for (uint32_t i = 0; i < e->nbuffers; i++)
        buffers[i] = e->buffers[i];
    buffers[e->nbuffers] = window;
    return e->fn(buffers, row, row + rows, e->numbers) == 0;
}

typedef struct {
    const kin_epilogue *then;
    atomic_int failed;
} following;

static void
follow(int64_t begin, int64_t end, void *arg)
{
    following *f = arg;
    if (!kin_epilogue_run(f->then, begin, end - begin, 0, f->then->columns))
        atomic_store(&f->failed, 1);
}

/* Where BLAS made the product, all of it comes after. */
static bool
run_after(const kin_blas *blas, const kin_epilogue *then, int64_t rows)
{
    following f = {.then = then};
    int64_t grain = kin_tier_grain((double)then->columns, KIN_TIER_THREAD_EPILOGUE);
    if (blas->parallel != NULL && rows > grain)
        blas->parallel(rows, grain, follow, &f);
    else
        follow(0, rows, &f);
    return atomic_load(&f.failed) == 0;
}

bool
kin_gemm(const kin_blas *blas, const kin_matrix *a, const kin_matrix *b, const kin_packed *packed, float *c,
         const kin_epilogue *then)
{
    if (kin_gemm_runs_own(blas, a, b, packed)) {
        return kin_gemm_blocked_run(&(kin_gemm_blocked){.a = *a, .b = *b, .panels = packed == NULL ? NULL : packed->data, .c = c,
                                       .ldc = b->columns, .count = 1, .then = then}, blas->parallel);
    }
    if (packed == NULL)
        plain(blas, a, b, c);
    else
        blas->compute(ROW_MAJOR, is_dense_rows(a) ? NO_TRANS : TRANS, PACKED, (int)a->rows, (int)b->columns, (int)a->columns,
                      a->data, (int)leading(a), packed->data, (int)b->columns, 0.0f, c, (int)b->columns);
    return then == NULL || run_after(blas, then, a->rows);
}
