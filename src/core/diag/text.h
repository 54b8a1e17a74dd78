/* A growable string for reports: append, then read `at`. A failed allocation makes it sticky (`failed`) and later
 * appends do nothing, so that writers check once at the end.
 *
 *     kin_text t = {0};
 *     kin_text_add(&t, "break at ");
 *     kin_text_addf(&t, "%s:%u", file, line);
 *     if (!t.failed) fputs(t.at, stderr);
 *     kin_text_deinit(&t);
 */
#ifndef KIN_DIAG_TEXT_H
#define KIN_DIAG_TEXT_H

#include <stdbool.h>
#include <stdint.h>

typedef struct {
    char *at; /* NUL-terminated once something was added; NULL before */
    uint32_t len, cap;
    bool failed;
} kin_text;

void kin_text_add(kin_text *t, const char *s);
void kin_text_add_len(kin_text *t, const char *s, uint32_t len);
void kin_text_addf(kin_text *t, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* As a JSON string with its quotes; bytes are taken as UTF-8. */
void kin_text_add_json(kin_text *t, const char *s);
void kin_text_clear(kin_text *t);
void kin_text_deinit(kin_text *t);

#endif
