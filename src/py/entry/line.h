/* Where in the program's source a step stands. */
#ifndef KIN_PY_ENTRY_LINE_H
#define KIN_PY_ENTRY_LINE_H

#include "py/entry/entry.h"

typedef struct {
    PyCodeObject *code; /* borrowed; NULL: not known */
    int line;
    int column, end_column; /* of the expression, in bytes; -1: not known, or on several lines */
} kin_line;

/* Of the instruction that a snapshot stands at. */
kin_line kin_snap_line(const kin_entry *v, uint32_t snap);

#endif
