/* Private to src/py/driver: what record.c and side.c share. */
#ifndef KIN_PY_DRIVER_DRIVER_PRIV_H
#define KIN_PY_DRIVER_DRIVER_PRIV_H

#include "py/driver/record.h"
#include "py/recorder/rec.h"

/* ---- record.c ---- */
rec *rec_new(const kin_record_options *opt, kin_entry *v, kin_record_result *result);
void rec_free(rec *r);
PyObject *rec_run_watched(rec *r, PyObject *(*body)(void *arg), void *arg);

#endif
