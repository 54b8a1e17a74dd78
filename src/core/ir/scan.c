/* The readers of scan.h. */
#include "core/ir/scan.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>

void
kin_scan_fail(kin_scan *s, const char *message)
{
    if (!s->wrong && s->why != NULL)
        kin_text_addf(s->why, "line %u: %s", s->line, message);
    s->wrong = true;
}

static void
skip_blanks(kin_scan *s)
{
    while (*s->at == ' ' || *s->at == '\t')
        s->at++;
}

bool
kin_scan_take(kin_scan *s, const char *mark)
{
    skip_blanks(s);
    size_t len = strlen(mark);
    if (s->wrong || strncmp(s->at, mark, len) != 0)
        return false;
    s->at += len;
    return true;
}

void
kin_scan_need(kin_scan *s, const char *mark)
{
    if (kin_scan_take(s, mark) || s->wrong)
        return;
    kin_text message = {0};
    kin_text_addf(&message, "'%s' expected", mark);
    kin_scan_fail(s, message.failed ? "no memory" : message.at);
    kin_text_deinit(&message);
}

const char *
kin_scan_word(kin_scan *s, size_t *len)
{
    skip_blanks(s);
    const char *from = s->at;
    while (!s->wrong && (isalnum((unsigned char)*s->at) || (*s->at != '\0' && strchr("_.:/", *s->at) != NULL)))
        s->at++;
    *len = (size_t)(s->at - from);
    return from;
}

int64_t
kin_scan_int(kin_scan *s)
{
    skip_blanks(s);
    char *end;
    errno = 0;
    long long value = s->wrong ? 0 : strtoll(s->at, &end, 10);
    if (s->wrong)
        return 0;
    if (end == s->at || errno == ERANGE)
        kin_scan_fail(s, "integer expected");
    s->at = end;
    return value;
}

double
kin_scan_float(kin_scan *s)
{
    skip_blanks(s);
    char *end;
    double value = s->wrong ? 0 : strtod(s->at, &end);
    if (s->wrong)
        return 0;
    if (end == s->at)
        kin_scan_fail(s, "number expected");
    s->at = end;
    return value;
}

void
kin_scan_string(kin_scan *s, kin_text *out)
{
    kin_scan_need(s, "\"");
    while (!s->wrong && *s->at != '"') {
        char c = *s->at++;
        unsigned code;
        if (c == '\0' || c == '\n') {
            kin_scan_fail(s, "'\"' expected");
            return;
        }
        if (c == '\\') {
            c = *s->at++;
            if (c == 'u' && sscanf(s->at, "%4x", &code) == 1 && code > 0 && code < 0x80) {
                c = (char)code;
                s->at += 4;
            } else if (c == 'n' || c == 't')
                c = c == 'n' ? '\n' : '\t';
            else if (c != '"' && c != '\\') {
                kin_scan_fail(s, "unknown escape");
                return;
            }
        }
        kin_text_add_len(out, &c, 1);
    }
    if (!s->wrong)
        s->at++;
}

void
kin_scan_list(kin_scan *s, const char *open, const char *close, kin_scan_ints *out)
{
    out->len = 0;
    kin_scan_need(s, open);
    while (!s->wrong && !kin_scan_take(s, close)) {
        if (out->len > 0)
            kin_scan_need(s, ",");
        if (kin_vec_push(out, kin_scan_int(s)) != KIN_OK)
            kin_scan_fail(s, "no memory");
    }
}

kin_dtype
kin_scan_type(kin_scan *s, kin_scan_ints *sizes)
{
    size_t len;
    const char *word = kin_scan_word(s, &len);
    kin_dtype dtype = KIN_F32;
    if (!kin_dtype_from_name(word, len, &dtype))
        kin_scan_fail(s, "dtype expected");
    kin_scan_list(s, "[", "]", sizes);
    if (sizes->len > KIN_IR_MAX_DIMS)
        kin_scan_fail(s, "too many dimensions");
    return dtype;
}

static void
skip_comment(kin_scan *s)
{
    skip_blanks(s);
    if (*s->at == '#')
        s->at += strcspn(s->at, "\n");
}

bool
kin_scan_next_line(kin_scan *s)
{
    for (;; s->at++, s->line++) {
        skip_comment(s);
        if (*s->at == '\r')
            s->at++;
        if (*s->at != '\n')
            return !s->wrong && *s->at != '\0';
    }
}

void
kin_scan_end_line(kin_scan *s)
{
    skip_comment(s);
    if (!s->wrong && *s->at != '\n' && *s->at != '\0')
        kin_scan_fail(s, "end of line expected");
}
