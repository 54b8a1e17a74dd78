/* Failure injection (fault.h). */
#include "core/base/fault.h"

#ifdef KIN_FAULTS

#include <stdatomic.h>

static struct {
    atomic_uint_fast64_t left; /* until it fails; 0: never */
    atomic_bool all, failed;
} armed[KIN_FAIL__COUNT];

/* What the environment asks for. */
__attribute__((constructor)) static void
read_environment(void)
{
    static const char *const names[] = {"KIN_FAIL_ALLOC", "KIN_FAIL_LLVM", "KIN_FAIL_WRITE", "KIN_FAIL_CLASS"};
    for (int i = 0; i < KIN_FAIL__COUNT; i++) {
        const char *text = getenv(names[i]);
        if (text != NULL && text[0] != 0)
            kin_fail_arm((kin_fail)i, strtoull(text, NULL, 10), strchr(text, '+') != NULL);
    }
}

void
kin_fail_arm(kin_fail what, uint64_t n, bool all)
{
    atomic_store(&armed[what].failed, false);
    atomic_store(&armed[what].all, all);
    atomic_store(&armed[what].left, n);
}

bool
kin_fail_disarm(kin_fail what)
{
    atomic_store(&armed[what].left, 0);
    return atomic_exchange(&armed[what].failed, false);
}

bool
kin_fail_now(kin_fail what)
{
    uint_fast64_t left = atomic_load(&armed[what].left);
    while (left > 1)
        if (atomic_compare_exchange_weak(&armed[what].left, &left, left - 1))
            return false;
    if (left == 0)
        return false;
    if (!atomic_load(&armed[what].all))
        atomic_store(&armed[what].left, 0);
    atomic_store(&armed[what].failed, true);
    return true;
}

void *
kin_fail_malloc(size_t size)
{
    return kin_fail_now(KIN_FAIL_ALLOC) ? NULL : (malloc)(size);
}

void *
kin_fail_calloc(size_t n, size_t size)
{
    return kin_fail_now(KIN_FAIL_ALLOC) ? NULL : (calloc)(n, size);
}

void *
kin_fail_realloc(void *at, size_t size)
{
    return kin_fail_now(KIN_FAIL_ALLOC) ? NULL : (realloc)(at, size);
}

void *
kin_fail_aligned_alloc(size_t alignment, size_t size)
{
    return kin_fail_now(KIN_FAIL_ALLOC) ? NULL : (aligned_alloc)(alignment, size);
}

char *
kin_fail_strdup(const char *text)
{
    return kin_fail_now(KIN_FAIL_ALLOC) ? NULL : (strdup)(text);
}

#endif
