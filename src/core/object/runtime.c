/* Functions that generated code calls: mathematical functions too rare to be emitted, on arrays of a vector's lanes;
 * and functions that LLVM itself calls if the machine lacks an instruction. */
#include <math.h>
#include <string.h>

#include "core/object/object.h"

#define UNARY(NAME)                                                      \
    static void NAME##_f32(float *x, const float *y, int64_t n)          \
    {                                                                    \
        for (int64_t i = 0; i < n; i++)                                  \
            x[i] = NAME##f(x[i]);                                        \
    }                                                                    \
    static void NAME##_f64(double *x, const double *y, int64_t n)        \
    {                                                                    \
        for (int64_t i = 0; i < n; i++)                                  \
            x[i] = NAME(x[i]);                                           \
    }
#define BINARY(NAME)                                                     \
    static void NAME##_f32(float *x, const float *y, int64_t n)          \
    {                                                                    \
        for (int64_t i = 0; i < n; i++)                                  \
            x[i] = NAME##f(x[i], y[i]);                                  \
    }                                                                    \
    static void NAME##_f64(double *x, const double *y, int64_t n)        \
    {                                                                    \
        for (int64_t i = 0; i < n; i++)                                  \
            x[i] = NAME(x[i], y[i]);                                     \
    }
#define PLAIN(NAME)
#include "core/object/runtime.def"
#undef UNARY
#undef BINARY
#undef PLAIN

typedef struct {
    const char *name;
    void *address;
} row;

void *
kin_runtime_find(const char *name)
{
    static const row rows[] = {
#define UNARY(NAME) {"kin_" #NAME "_f32", (void *)NAME##_f32}, {"kin_" #NAME "_f64", (void *)NAME##_f64},
#define BINARY(NAME) UNARY(NAME)
#define PLAIN(NAME) {#NAME, (void *)NAME},
#include "core/object/runtime.def"
#undef UNARY
#undef BINARY
#undef PLAIN
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
        if (strcmp(rows[i].name, name) == 0)
            return rows[i].address;
    return NULL;
}
