/* Products: every way in which two matrices can lie in memory, through a BLAS written out here and by ourselves. */
#include "core/kernels/gemm.h"

#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "core/ir/half.h"
#include "core/kernels/gemm_blocked.h"
#include "core/tiles/tile.h"

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

static const kin_blas blas = {test_gemm, test_pack_size, test_pack, test_compute, false, NULL};

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
    const float *data = x->data;
    return data[i * x->row_stride + j * x->column_stride];
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
        CHECK(kin_gemm(&blas, &a, &b, NULL, c, NULL));
        check_product(&a, &b, c);
        kin_packed *packed = kin_gemm_pack(&blas, m, &b);
        memset(c, 0, sizeof c);
        CHECK(kin_gemm(&blas, &a, &b, packed, c, NULL));
        check_product(&a, &b, c);
        room_b[0] += 3;
        kin_gemm_pack_again(&blas, packed, &b);
        CHECK(kin_gemm(&blas, &a, &b, packed, c, NULL));
        check_product(&a, &b, c);
        CHECK(kin_gemm_packed_bytes(packed) >= (size_t)(k * n) * sizeof(float));
        kin_gemm_free(packed);
    }
}

static void
test_what_cannot_be_read(void)
{
    float room[64];
    kin_matrix x = {room, 3, 3, 6, 2, KIN_MATRIX_FLOAT}, overlapping = {room, 3, 3, 1, 1, KIN_MATRIX_FLOAT};
    CHECK(!kin_gemm_reads(&x) && !kin_gemm_reads(&overlapping));
    kin_matrix row = {room, 1, 5, 77, 1, KIN_MATRIX_FLOAT}, column = {room, 5, 1, 1, 99, KIN_MATRIX_FLOAT}, spread = {room, 1, 5, 1, 4, KIN_MATRIX_FLOAT};
    CHECK(kin_gemm_reads(&row) && kin_gemm_reads(&column) && kin_gemm_reads(&spread));
}

static void
test_when_to_pack(void)
{
    kin_blas without = {test_gemm, NULL, NULL, NULL, false, NULL}, own = {.gemm = test_gemm, .own = true};
    kin_matrix b = {.form = KIN_MATRIX_FLOAT}, half = {.form = KIN_MATRIX_HALF};
    CHECK(kin_gemm_wants_packed(&blas, 128, &b) && !kin_gemm_wants_packed(&blas, 1, &b) && !kin_gemm_wants_packed(&without, 128, &b));
    CHECK(kin_gemm_wants_packed(&own, 2, &b) && !kin_gemm_wants_packed(&own, 1, &b) && !kin_gemm_is_own(&blas, 128, &b, true));
    CHECK(!kin_gemm_is_own(&own, 2, &b, false) && kin_gemm_is_own(&own, 128, &b, false) && kin_gemm_is_own(&own, 2, &half, false));
}

/* -- our own products ----------------------------------------------------------------------------------------------- */

/* Parts of uneven sizes, the last one first. */
static void
run_in_parts(int64_t n, int64_t grain, void (*fn)(int64_t, int64_t, void *), void *arg)
{
    CHECK(n > 0 && grain > 0);
    int64_t cut = n / 3 + 1 < n ? n / 3 + 1 : n;
    if (cut < n)
        fn(cut, n, arg);
    fn(0, cut, arg);
}

enum { EXPANDED_ROWS = 5, EXPANDED_COLUMNS = 6 };

/* How a matrix lies: rows, columns, with a gap, neither way, or one row or column stands for all. */
static kin_matrix
lay_out(float *room, int64_t rows, int64_t columns, int way)
{
    if (way >= EXPANDED_ROWS) {
        bool by_rows = way == EXPANDED_ROWS;
        kin_matrix expanded = matrix(room, rows, columns, by_rows, 0);
        *(by_rows ? &expanded.row_stride : &expanded.column_stride) = 0;
        return expanded;
    }
    kin_matrix x = matrix(room, rows, columns, way % 2 == 0, way / 2 % 2 * 3);
    if (way < 4)
        return x;
    x.row_stride = 2 * columns + 1;
    x.column_stride = 2;
    for (int64_t i = 0; i < rows; i++)
        for (int64_t j = 0; j < columns; j++)
            room[i * x.row_stride + j * 2] = (float)((i * 7 + j * 3) % 11 - 5);
    return x;
}

static void
test_own(int64_t m, int64_t k, int64_t n, int way_a, int way_b)
{
    enum { COUNT = 2 };
    size_t room_a_len = (size_t)(2 * m * k + 4 * (m + k) + 8), room_b_len = (size_t)(2 * k * n + 4 * (k + n) + 8);
    float *room_a = calloc(COUNT * room_a_len, sizeof(float)), *room_b = calloc(COUNT * room_b_len, sizeof(float));
    float *c = malloc((size_t)(m * n) * COUNT * sizeof(float)), *dense = malloc((size_t)(m * n) * sizeof(float));
    kin_matrix a = lay_out(room_a, m, k, way_a), b = lay_out(room_b, k, n, way_b);
    memcpy(room_a + room_a_len, room_a, room_a_len * sizeof(float));
    memcpy(room_b + room_b_len, room_b, room_b_len * sizeof(float));
    room_a[room_a_len] += 2;
    kin_gemm_blocked p = {.a = a, .b = b, .c = c, .ldc = n, .count = COUNT, .a_step = (int64_t)room_a_len, .b_step = (int64_t)room_b_len,
                     .c_step = m * n};
    for (int parts = 0; parts < 2; parts++) {
        memset(c, 0xff, (size_t)(m * n) * COUNT * sizeof(float));
        CHECK(kin_gemm_blocked_run(&p, parts ? run_in_parts : NULL));
        check_product(&a, &b, c);
        kin_matrix second = a;
        second.data = room_a + room_a_len;
        check_product(&second, &b, c + m * n);
    }
    kin_blas own = {.own = true, .parallel = run_in_parts};
    kin_packed *packed = kin_gemm_pack(&own, m, &b);
    CHECK(kin_gemm(&own, &a, &b, packed, dense, NULL));
    check_product(&a, &b, dense);
    kin_gemm_free(packed);
    free(room_a);
    free(room_b);
    free(c);
    free(dense);
}

/* b is read as it lies. */
static void
test_few_rows(void)
{
    float x = 0;
    bool narrow = kin_tile_lanes() == 8;
    int64_t deep = narrow ? 63 : 255, wide = narrow ? 1200 : 300, high = narrow ? 40 : 300, broad = narrow ? 100 : 200;
    kin_matrix large = {&x, 300, 219, 219, 1, KIN_MATRIX_FLOAT}, turned = {&x, 300, 219, 1, 300, KIN_MATRIX_FLOAT}, shallow = {&x, deep, wide, 1, deep, KIN_MATRIX_FLOAT};
    kin_matrix apart = {&x, 300, 219, 438, 2, KIN_MATRIX_FLOAT}, little = {&x, high, broad, broad, 1, KIN_MATRIX_FLOAT};
    kin_blas own = {.own = true};
    for (int64_t m = 2; m <= KIN_TILE_FEW; m++)
        CHECK(kin_gemm_blocked_reads(m, &large) && kin_gemm_blocked_reads(m, &turned) && kin_gemm_wants_packed(&own, m, &large) && kin_gemm_is_own(&own, m, &turned, false));
    CHECK(!kin_gemm_blocked_reads(1, &large) && !kin_gemm_blocked_reads(9, &large));
    CHECK(!kin_gemm_blocked_reads(4, &shallow) && !kin_gemm_blocked_reads(4, &apart) && !kin_gemm_blocked_reads(4, &little));
    for (int64_t m = 2; m <= KIN_TILE_FEW; m++)
        for (int way_b = 0; way_b < 4; way_b++) {
            test_own(m, 300 + m, 223, (int)m % 5, way_b);
            test_own(m, 66 + m, 61 + m, (int)m % 5, way_b);
        }
    test_own(3, 31, 2300, 0, 0);
    test_own(8, 259, 257, 4, 3);
}

/* The same numbers in half precision; they are small and whole. */
static uint16_t *
make_half(const float *x, size_t n, unsigned form)
{
    uint16_t *half = malloc(n * sizeof *half);
    for (size_t i = 0; i < n; i++)
        half[i] = form == KIN_MATRIX_BFLOAT ? kin_bf16_from_float(x[i]) : kin_f16_from_float(x[i]);
    return half;
}

/* `from`: numbers before the first one, so that words may lie across. */
static void
test_half(int64_t m, int64_t k, int64_t n, int way_a, int way_b, unsigned form, int from)
{
    size_t room_a_len = (size_t)(2 * m * k + 4 * (m + k) + 8), room_b_len = (size_t)(2 * k * n + 4 * (k + n) + 8);
    float *room_a = calloc(room_a_len, sizeof(float)), *room_b = calloc(room_b_len, sizeof(float)), *c = calloc((size_t)(m * n) * 2, sizeof(float));
    kin_matrix a = lay_out(room_a + from, m, k, way_a), b = lay_out(room_b + from, k, n, way_b), left = a, right = b;
    uint16_t *half_a = make_half(room_a, room_a_len, form), *half_b = make_half(room_b, room_b_len, form);
    right.form = (uint8_t)form;
    right.data = half_b + from;
    if (kin_gemm_blocked_pairs(&right)) {
        left.form = (uint8_t)form;
        left.data = half_a + from;
    }
    kin_blas own = {.own = true, .parallel = run_in_parts};
    CHECK(kin_gemm(&own, &left, &right, NULL, c, NULL));
    check_product(&a, &b, c);
    kin_packed *packed = kin_gemm_pack(&own, m, &right);
    memset(c, 0xff, (size_t)(m * n) * sizeof(float));
    CHECK(kin_gemm(&own, &left, &right, packed, c, NULL));
    check_product(&a, &b, c);
    kin_gemm_free(packed);
    kin_gemm_blocked p = {.a = left, .b = right, .c = c, .ldc = n, .count = 2, .c_step = m * n}; /* twice the same */
    CHECK(kin_gemm_blocked_run(&p, run_in_parts));
    check_product(&a, &b, c);
    check_product(&a, &b, c + m * n);
    free(room_a);
    free(room_b);
    free(half_a);
    free(half_b);
    free(c);
}

static void
test_halves(void)
{
    if (!kin_tile_here())
        return;
    for (unsigned form = KIN_MATRIX_BFLOAT; form <= KIN_MATRIX_HALF; form++) {
        for (int way = 0; way < 49; way++)
            test_half(20, 33, 47, way % 7, way / 7, form, 0);
        for (int way = 0; way < 50; way++) {
            test_half(1, 4, 3, way % 5, way / 5 % 5, form, way / 25);
            test_half(15, 17, 33, way % 5, way / 5 % 5, form, way / 25);
            test_half(31, 70, 47, way % 5, way / 5 % 5, form, way / 25);
        }
        for (int64_t m = 2; m < 30; m++)
            test_half(m, 16, 32 + m, 0, 1, form, 0);
        test_half(60, 1701, 65, 0, 1, form, 0); /* several blocks of b */
        test_half(160, 1601, 33, 1, 0, form, 0);
        test_half(33, 300, 700, 0, 1, form, 0);
    }
}

/* -- what follows a product ------------------------------------------------------------------------------------------ */

/* buffers: the result, a count for each of its elements, {rows, columns, columns of what follows}. Adds 1 to each element, of all parts. */
static int
add_one(void *const *buffers, int64_t begin, int64_t end, const int64_t *numbers)
{
    float *c = buffers[0];
    int *times = buffers[1];
    const int64_t *sizes = buffers[2], *window = buffers[3];
    CHECK(begin >= 0 && begin < end && end <= sizes[0] && window[0] % 32 == 0 && (window[1] % 32 == 0 || window[1] == sizes[2]));
    for (int64_t i = begin; i < end; i++)
        for (int64_t j = window[0]; j < window[1]; j++)
            for (int64_t q = 0; q < sizes[1] / sizes[2]; q++) {
                c[i * sizes[1] + q * sizes[2] + j] += 1;
                times[i * sizes[1] + q * sizes[2] + j]++;
            }
    return sizes[0] == 77; /* fails on that many rows */
}

static void
test_following(int64_t m, int64_t k, int64_t n, int64_t columns, bool own, bool packed, bool by_rows)
{
    enum { COUNT = 2 };
    kin_blas by = own ? (kin_blas){.own = true, .parallel = run_in_parts} : blas;
    int64_t sizes[3] = {m, n, columns};
    float *room_a = calloc((size_t)(m * k), sizeof(float)), *room_b = calloc((size_t)(k * n), sizeof(float));
    float *c = calloc((size_t)(m * n) * COUNT, sizeof(float));
    int *times = calloc((size_t)(m * n) * COUNT, sizeof(int));
    kin_matrix a = matrix(room_a, m, k, true, 0), b = matrix(room_b, k, n, by_rows, 0);
    kin_packed *form = packed ? kin_gemm_pack(&by, m, &b) : NULL;
    kin_epilogue then = {add_one, NULL, (void *[]){c, times, sizes}, 3, columns};
    CHECK_EQ(kin_gemm(&by, &a, &b, form, c, &then), m != 77);
    for (int64_t i = 0; i < m * n; i++) {
        CHECK_EQ(times[i], 1);
        c[i] -= 1;
    }
    check_product(&a, &b, c);
    memset(c, 0xff, (size_t)(m * n) * sizeof(float));
    CHECK(kin_gemm(&by, &a, &b, form, c, NULL));
    check_product(&a, &b, c);
    sizes[0] = COUNT * m;
    kin_gemm_blocked p = {.a = a, .b = b, .c = c, .ldc = n, .count = COUNT, .c_step = m * n, .then = &then};
    memset(times, 0, (size_t)(m * n) * COUNT * sizeof(int));
    if (own) {
        CHECK(kin_gemm_blocked_run(&p, run_in_parts));
        for (int64_t i = 0; i < COUNT * m * n; i++) {
            CHECK_EQ(times[i], 1);
            c[i] -= 1;
        }
        check_product(&a, &b, c + m * n);
    }
    kin_gemm_free(form);
    free(room_a);
    free(room_b);
    free(c);
    free(times);
}

static void
test_what_follows(void)
{
    test_following(9, 5, 40, 40, false, false, true);
    test_following(9, 5, 64, 32, false, true, true);
    test_following(77, 5, 8, 8, false, true, true);
    if (!kin_tile_here())
        return;
    test_following(150, 21, 333, 333, true, false, true); /* several groups of panels, the last one not whole */
    test_following(150, 800, 333, 333, true, true, true); /* two blocks of k: only after the last */
    test_following(29, 21, 640, 320, true, true, true);   /* parts side by side */
    test_following(29, 801, 192, 64, true, false, true);
    test_following(700, 9, 40, 40, true, true, true);     /* shared by rows */
    test_following(77, 9, 40, 40, true, true, true);
    test_following(5, 110, 640, 640, true, false, true);  /* b is read as it lies */
    test_following(8, 35, 4992, 2496, true, false, true);
    test_following(3, 120, 1280, 640, true, false, true);
    test_following(9, 256, 256, 256, true, false, false); /* few rows, b by columns: made turned */
    test_following(33, 770, 600, 600, true, false, false);
    test_following(96, 257, 333, 333, true, false, false);
    test_following(77, 256, 256, 256, true, false, false);
    test_following(33, 300, 640, 320, true, false, false); /* parts: as usual */
}

static void
test_own_products(void)
{
    if (!kin_tile_here())
        return;
    for (int way = 0; way < 25; way++) {
        test_own(5, 3, 1, way % 5, way / 5);
        test_own(15, 17, 33, way % 5, way / 5);
        test_own(31, 70, 47, way % 5, way / 5);
    }
    for (int64_t m = 5; m < 30; m++)
        test_own(m, 16, 32 + m, 0, 1);
    test_own(9, 1100, 65, 1, 1); /* several blocks of b, of a, panels, threads' worth of work */
    test_own(420, 520, 40, 0, 0);
    test_own(120, 520, 40, 1, 0);
    test_own(33, 300, 700, 0, 1);
    test_own(113, 800, 330, 1, 0); /* several groups of panels, for several blocks of a that lies by columns */
    test_own(15, 800, 330, 1, 1);
    test_own(29, 70, 47, 4, 4); /* both lie in neither way */
    test_own(120, 512, 130, 0, 0); /* rows of a that collide are copied */
    test_own(3, 40, 90, 0, 1); /* few rows: in panels only */
    test_own(20, 9, 16, 0, 0);
    test_own(20, 9, 17, 0, 0);
    for (int way = 0; way < 49; way++) {
        test_own(9, 8, 9, way % 7, way / 7);
        test_own(31, 70, 47, way % 7, way / 7);
    }
    test_own(120, 520, 130, EXPANDED_ROWS, 0);
    test_few_rows();
}

int
main(void)
{
    int64_t sizes[][3] = {{1, 1, 1}, {1, 5, 7}, {4, 1, 3}, {5, 3, 1}, {8, 9, 10}, {13, 2, 6}};
    for (int i = 0; i < 6; i++)
        test_layouts(sizes[i][0], sizes[i][1], sizes[i][2]);
    test_what_cannot_be_read();
    test_when_to_pack();
    test_own_products();
    test_halves();
    test_what_follows();
    return check_report("gemm");
}
