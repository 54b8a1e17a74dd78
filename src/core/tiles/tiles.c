/* Chooses the width of vectors by what the processor has (tile.h). Asked anew at each call, which is one test of a word: src/core keeps no state. */
#include "core/tiles/tile.h"

#ifndef KIN_MOST_LANES
#define KIN_MOST_LANES 16 /* a test has 8, for the code that another processor would run */
#endif

#if defined(__x86_64__)

#define KIN_TILE(result, name, parameters, arguments) result kin_tile_##name##_16 parameters;
#include "core/tiles/tiles.def"
#define KIN_TILE(result, name, parameters, arguments) result kin_tile_##name##_8 parameters;
#include "core/tiles/tiles.def"

static inline bool
has_16(void)
{
    return KIN_MOST_LANES >= 16 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl");
}

unsigned
kin_tile_lanes(void)
{
    if (has_16())
        return 16;
    return __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma") && __builtin_cpu_supports("f16c") ? 8 : 0;
}

#define KIN_TILE(result, name, parameters, arguments) \
    result \
    kin_tile_##name parameters \
    { \
        return has_16() ? kin_tile_##name##_16 arguments : kin_tile_##name##_8 arguments; \
    }
#include "core/tiles/tiles.def"

#else

unsigned
kin_tile_lanes(void)
{
    return 0;
}

#define KIN_TILE(result, name, parameters, arguments) \
    result \
    kin_tile_##name parameters \
    { \
        return (result)0; \
    }
#include "core/tiles/tiles.def"

#endif
