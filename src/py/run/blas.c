/* Finds BLAS in the library that torch has loaded (blas.h). Each entry point found is tried on a small product first, because symbols
 * carry no types, and some builds use 64-bit integers under the same names. Whether BLAS or our own code is faster for larger products is
 * measured, because MKL takes its fastest code path on Intel processors only.
 */
#include "py/aten/threads.h"
#include "py/run/blas.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "core/base/clock.h"
#include "core/tier/tier.h"
#include "core/tiles/tile.h"
#include "py/aten/make.h"
#include "py/capture/capture.h"
#include "py/run/run.h"

static kin_blas found;
static bool own_is_better, large_is_worse; /* as measured */

static bool
find_symbol(const char *name, void *fn)
{
    void *at = kin_torch_symbol(name);
    memcpy(fn, &at, sizeof at);
    return at != NULL;
}

/* A product with both layouts of b, plain or packed, against its definition. Small whole numbers: exact. */
static bool
computes(bool packed, bool by_rows)
{
    enum { M = 9, K = 21, N = 19 };
    float a[M * K], b[K * N], c[M * N];
    for (int i = 0; i < M * K; i++)
        a[i] = (float)(i % 7 - 3);
    for (int i = 0; i < K * N; i++)
        b[i] = (float)(i % 5 - 2);
    kin_matrix left = {a, M, K, K, 1, KIN_MATRIX_FLOAT};
    kin_matrix right = {b, K, N, by_rows ? N : 1, by_rows ? 1 : K, KIN_MATRIX_FLOAT};
    kin_packed *form = packed ? kin_gemm_pack(&found, M, &right) : NULL;
    if (packed && form == NULL)
        return false;
    bool same = kin_gemm(&found, &left, &right, form, c, NULL);
    kin_gemm_free(form);
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += a[i * K + k] * b[k * right.row_stride + j * right.column_stride];
            same = same && c[i * N + j] == sum;
        }
    return same;
}

typedef struct {
    const kin_blas *blas;
    kin_packed *form;
    double best; /* ns */
} contender;

/* A product with b packed as it is done for frozen weights, by each of two in turns: the processor's clock may change meanwhile, and then does so for both. Short
 * ones, many times: what else runs on a core disturbs few of them. After few turns only the first may have won. False without memory. */
static bool
time_products(contender *both, clockid_t clock)
{
    enum { M = 42, K = 256, N = 256, TURNS = 30, FEW = 6 };
    float *room = calloc(M * K + K * N + M * N, sizeof *room);
    if (room == NULL)
        return false;
    kin_matrix a = {room, M, K, K, 1, KIN_MATRIX_FLOAT}, b = {room + M * K, K, N, N, 1, KIN_MATRIX_FLOAT};
    for (int i = 0; i < 2; i++)
        both[i].form = kin_gemm_wants_packed(both[i].blas, M, &b) ? kin_gemm_pack(both[i].blas, M, &b) : NULL;
    bool ok = true;
    for (int turn = 0; ok && turn < 2 * TURNS && (turn < 2 * FEW || turn % 2 == 1 || both[0].best >= KIN_TIER_OWN_PRODUCTS_CLEARLY * both[1].best); turn++) {
        contender *one = &both[turn % 2];
        double start = kin_clock_read(clock);
        ok = kin_gemm(one->blas, &a, &b, one->form, room + M * K + K * N, NULL);
        double ns = kin_clock_read(clock) - start;
        one->best = turn < 2 || ns < one->best ? ns : one->best;
    }
    for (int i = 0; i < 2; i++)
        kin_gemm_free(both[i].form);
    free(room);
    return ok;
}

/* Ours unless BLAS is clearly faster: ours do what follows as well, and one packed form serves all numbers of rows. Processor time of one thread, where BLAS can be
 * kept to one: other work does not count, but for what it takes of a core that both share. On an Intel processor ours took 0.97 times as long as MKL on an idle
 * machine, and 1.13 to 1.19 times where the core's other thread was busy; programs should not differ by what else ran when they started. */
static bool
is_own_better(void)
{
    int (*set_threads)(int) = NULL;
    kin_blas own = found;
    own.own = true;
    if (!kin_tile_here())
        return false;
    bool one = find_symbol("MKL_Set_Num_Threads_Local", &set_threads);
    int before = one ? set_threads(1) : 0;
    contender both[2] = {{.blas = &own}, {.blas = &found}};
    bool better = time_products(both, one ? CLOCK_THREAD_CPUTIME_ID : CLOCK_PROCESS_CPUTIME_ID) && both[0].best < KIN_TIER_OWN_PRODUCTS * both[1].best;
    large_is_worse = both[0].best > KIN_TIER_BLAS_LARGE * both[1].best;
    if (one)
        set_threads(before);
    return better;
}

const kin_blas *
launch_blas(void)
{
    static bool looked;
    if (looked)
        return found.gemm != NULL ? &found : NULL;
    looked = true;
    if (!find_symbol("sgemm_", &found.gemm) || !computes(false, false) || !computes(false, true))
        found.gemm = NULL;
    bool packs = found.gemm != NULL && find_symbol("cblas_sgemm_pack_get_size", &found.pack_size) &&
                 find_symbol("cblas_sgemm_pack", &found.pack) && find_symbol("cblas_sgemm_compute", &found.compute);
    if (!packs || !computes(true, false) || !computes(true, true))
        found.pack = NULL;
    found.own = own_is_better = found.gemm != NULL && is_own_better();
    found.large = found.own && large_is_worse;
    found.parallel = kin_parallel_for;
    return found.gemm != NULL ? &found : NULL;
}

bool
kin_launch_set_products(int own)
{
    if (kin_capture_init() != KIN_OK || launch_blas() == NULL) /* symbols are found after that */
        return false;
    found.own = own < 0 ? own_is_better : own > 0 && kin_tile_here();
    found.large = own < 0 && own_is_better && large_is_worse;
    return found.own;
}
