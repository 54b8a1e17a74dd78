/* Reads and writes the small texts of core/ir and core/aten: words, numbers, lists of integers. A reader stops at the
 * first mistake; `why` then describes it with its line.
 */
#ifndef KIN_IR_SCAN_H
#define KIN_IR_SCAN_H

#include "core/ir/ir.h"

typedef struct {
    const char *at;
    unsigned line;
    bool wrong;
    kin_text *why;
} kin_scan;

typedef KIN_VEC(int64_t) kin_scan_ints;

/* Notes `message` for the line where the reader is, unless one was noted already. */
void kin_scan_fail(kin_scan *s, const char *message);
/* Each skips blanks (not ends of lines) first. "take": true and past it when it is there; "need": a mistake if not. */
bool kin_scan_take(kin_scan *s, const char *mark);
void kin_scan_need(kin_scan *s, const char *mark);
/* Letters, digits, '_', '.', ':' and '/'; empty when none is there. */
const char *kin_scan_word(kin_scan *s, size_t *len);
int64_t kin_scan_int(kin_scan *s);
double kin_scan_float(kin_scan *s);
/* In double quotes as kin_text_add_json writes it. */
void kin_scan_string(kin_scan *s, kin_text *out);
/* Integers between two marks, "[1, 2]"; emptied first. */
void kin_scan_list(kin_scan *s, const char *open, const char *close, kin_scan_ints *out);
/* "f32[2, 3]" */
kin_dtype kin_scan_type(kin_scan *s, kin_scan_ints *sizes);
/* Past the end of a line, comments from '#' on and empty lines. False at the end of the text. */
bool kin_scan_next_line(kin_scan *s);
void kin_scan_end_line(kin_scan *s);

void kin_print_ints(kin_text *out, char open, unsigned count, const int64_t *ints, char close);
void kin_print_float(kin_text *out, double f);
void kin_print_type(kin_text *out, kin_dtype dtype, unsigned ndim, const int64_t *sizes);

#endif
