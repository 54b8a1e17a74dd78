/* Shared by guard_text.c (facts, misses) and guard_source.c (paths). */
#ifndef KIN_PY_REPORT_GUARD_TEXT_PRIV_H
#define KIN_PY_REPORT_GUARD_TEXT_PRIV_H

#include "py/guardeval/guard_place.h"
#include "py/report/guard_text.h"

PyObject *kin_path_text(const kin_entry *v, kin_vid vid, bool brief);

#endif
