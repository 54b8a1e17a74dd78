/* Products: every way in which two matrices can lie in memory, against a BLAS written out here. */
#include "core/library/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"

/* -- a BLAS for the test -------------------------------------------------------------------------------------------- */

static void
test_gemm(const char *ta, const char *tb, const int *m, const int *n, const int *k, const float *alpha, const float *a,
          const int *lda, const float *b, const int *ldb, const float *beta, float *c, const int *ldc)
{
    CHECK(*lda >= (*ta == 'N' ? *m : *k) && *ldb >= (*tb == 'N' ? *k : *n) && *ldc >= *m && *alpha == 1 && *beta == 0);
    for (int j = 0; j < *n; j++)
        for (int i = 0; i < *m; i++) {
            float sum = 0;
            for (int l = 0; l < *k; l++)
                sum += (*ta == 'N' ? a[i + l * *lda] : a[l + i * *lda]) * (*tb == 'N' ? b[l + j * *ldb] : b[j + l * *ldb]);
            c[i + j * *ldc] = sum;
        }
}

static size_t
test_pack_size(int which, int m, int n, int k)
{
    CHECK(which == 162 && m > 0);
    return (size_t)n * (size_t)k * sizeof(float);
}

static void
test_pack(int layout, int which, int trans, int m, int n, int k, float alpha, const float *src, int ld, float *dest)
{
    CHECK(layout == 101 && which == 162 && m > 0 && alpha == 1 && ld >= (trans == 111 ? n : k));
    for (int i = 0; i < k; i++)
        for (int j = 0; j < n; j++)
            dest[i * n + j] = trans == 111 ? src[i * ld + j] : src[j * ld + i];
}

static void
test_compute(int layout, int ta, int tb, int m, int n, int k, const float *a, int lda, const float *b, int ldb, float beta,
             float *c, int ldc)
{
    CHECK(layout == 101 && tb == 151 && beta == 0 && lda >= (ta == 111 ? k : m) && ldb == n);
    for (int i = 0; i < m; i++)
        for (int j = 0; j < n; j++) {
            float sum = 0;
            for (int l = 0; l < k; l++)
                sum += (ta == 111 ? a[i * lda + l] : a[l * lda + i]) * b[l * n + j];
            c[i * ldc + j] = sum;
        }
}

static const kin_blas blas = {test_gemm, test_pack_size, test_pack, test_compute};

/* -- the tests ------------------------------------------------------------------------------------------------------ */

static kin_matrix
matrix(float *room, int64_t rows, int64_t columns, bool by_rows, int64_t gap)
{
    kin_matrix x = {.data = room, .rows = rows, .columns = columns};
    x.row_stride = by_rows ? columns + gap : 1;
    x.column_stride = by_rows ? 1 : rows + gap;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            room[i * x.row_stride + j * x.column_stride] = (float)((i * 7 + j * 3) % 11 - 5);
    return x;
}

static float
element(const kin_matrix *x, int64_t i, int64_t j)
{
    return x->data[i * x->row_stride + j * x->column_stride];
}

static void
check_product(const kin_matrix *a, const kin_matrix *b, const float *c)
{
    bool same = true;
    for (int64_t i = 0; i < a->rows; i++)
        for (int64_t j = 0; j < b->columns; j++) {
            float sum = 0;
            for (int64_t l = 0; l < a->columns; l++)
                sum += element(a, i, l) * element(b, l, j);
            same = same && c[i * b->columns + j] == sum;
        }
    CHECK(same);
}

static void
test_layouts(int64_t m, int64_t k, int64_t n)
{
    float room_a[400], room_b[400], c[400];
    for (int way = 0; way < 8; way++) {
        kin_matrix a = matrix(room_a, m, k, way & 1, way & 4 ? 2 : 0), b = matrix(room_b, k, n, way & 2, way & 4 ? 3 : 0);
        CHECK(kin_gemm_reads(&a) && kin_gemm_reads(&b));
        kin_gemm(&blas, &a, &b, NULL, c);
        check_product(&a, &b, c);
        kin_packed *packed = kin_gemm_pack(&blas, m, &b);
        memset(c, 0, sizeof c);
        kin_gemm(&blas, &a, &b, packed, c);
        check_product(&a, &b, c);
        room_b[0] += 3;
        kin_gemm_pack_again(&blas, packed, &b);
        kin_gemm(&blas, &a, &b, packed, c);
        check_product(&a, &b, c);
        CHECK(kin_gemm_packed_bytes(packed) >= (size_t)(k * n) * sizeof(float));
        kin_gemm_free(packed);
    }
}

static void
test_what_cannot_be_read(void)
{
    float room[64];
    kin_matrix x = {room, 3, 3, 6, 2}, overlapping = {room, 3, 3, 1, 1};
    CHECK(!kin_gemm_reads(&x) && !kin_gemm_reads(&overlapping));
    kin_matrix row = {room, 1, 5, 77, 1}, column = {room, 5, 1, 1, 99}, spread = {room, 1, 5, 1, 4};
    CHECK(kin_gemm_reads(&row) && kin_gemm_reads(&column) && kin_gemm_reads(&spread));
}

static void
test_when_to_pack(void)
{
    kin_blas without = {test_gemm, NULL, NULL, NULL};
    CHECK(kin_gemm_wants_packed(&blas, 128) && !kin_gemm_wants_packed(&blas, 1) && !kin_gemm_wants_packed(&without, 128));
}

int
main(void)
{
    int64_t sizes[][3] = {{1, 1, 1}, {1, 5, 7}, {4, 1, 3}, {5, 3, 1}, {8, 9, 10}, {13, 2, 6}};
    for (int i = 0; i < 6; i++)
        test_layouts(sizes[i][0], sizes[i][1], sizes[i][2]);
    test_what_cannot_be_read();
    test_when_to_pack();
    return check_report("gemm");
}
