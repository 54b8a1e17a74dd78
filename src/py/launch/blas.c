/* Finds BLAS in the library that torch has loaded (blas.h). What is found is tried on a small product first: entry points
 * carry no types, and some builds use 64-bit integers under the same names.
 */
#include "py/launch/blas.h"

#include <string.h>

#include "py/aten/make.h"

static kin_blas found;

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
    kin_matrix left = {a, M, K, K, 1};
    kin_matrix right = {b, K, N, by_rows ? N : 1, by_rows ? 1 : K};
    kin_packed *form = packed ? kin_gemm_pack(&found, M, &right) : NULL;
    if (packed && form == NULL)
        return false;
    kin_gemm(&found, &left, &right, form, c);
    kin_gemm_free(form);
    bool same = true;
    for (int i = 0; i < M; i++)
        for (int j = 0; j < N; j++) {
            float sum = 0;
            for (int k = 0; k < K; k++)
                sum += a[i * K + k] * b[k * right.row_stride + j * right.column_stride];
            same = same && c[i * N + j] == sum;
        }
    return same;
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
    return found.gemm != NULL ? &found : NULL;
}
