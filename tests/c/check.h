/* Checks for the C unit tests. A failed check is printed and counted; the test goes on. main() ends with
 * `return check_report("name");`. */
#ifndef KIN_TESTS_CHECK_H
#define KIN_TESTS_CHECK_H

#include <stdio.h>
#include <string.h>

static int check_count, check_failed;

static inline int
check_note(int ok, const char *file, int line, const char *text)
{
    check_count++;
    if (!ok) {
        check_failed++;
        fprintf(stderr, "%s:%d: failed: %s\n", file, line, text);
    }
    return ok;
}

static inline void
check_eq_note(long long a, long long b, const char *file, int line, const char *text)
{
    if (!check_note(a == b, file, line, text))
        fprintf(stderr, "    %lld and %lld\n", a, b);
}

static inline void
check_str_note(const char *a, const char *b, const char *file, int line, const char *text)
{
    if (!check_note(a && b && strcmp(a, b) == 0, file, line, text))
        fprintf(stderr, "    \"%s\" and \"%s\"\n", a ? a : "(null)", b ? b : "(null)");
}

#define CHECK(cond) check_note((cond) != 0, __FILE__, __LINE__, #cond)
#define CHECK_EQ(a, b) check_eq_note((long long)(a), (long long)(b), __FILE__, __LINE__, #a " == " #b)
#define CHECK_STR(a, b) check_str_note((a), (b), __FILE__, __LINE__, #a " == " #b)

static inline int
check_report(const char *name)
{
    printf("%s: %d checks, %d failed\n", name, check_count, check_failed);
    return check_failed ? 1 : 0;
}

#endif
