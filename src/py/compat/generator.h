/* The internals of generator objects: the frame inside, and putting a generator into a state that it has not run to. */
#ifndef KIN_PY_GENERATOR_H
#define KIN_PY_GENERATOR_H

#include "core/base/status.h"
#include <Python.h>
#include <stdbool.h>
#include <stdint.h>

struct _PyInterpreterFrame;

/* The frame inside the generator; NULL: it is none. */
struct _PyInterpreterFrame *kin_generator_frame(PyObject *gen);
/* Has it run to its end? Then what its frame held is gone, and nothing of the frame may be read. */
bool kin_generator_has_ended(PyObject *gen);

/* Has none of its code run yet? */
bool kin_generator_is_new(PyObject *gen);

/* Makes `gen`, which is new or suspended, a generator of `code` suspended at the yield at byte offset `offset`, with
 * `values` (borrowed, NULL allowed) as localsplus and stack, while it handles `exc` (borrowed; NULL: nothing). */
kin_status kin_generator_suspend(PyObject *gen, PyCodeObject *code, uint32_t offset, PyObject **values, int n, PyObject *exc)
    KIN_MUST_CHECK;
/* Makes it one that has ended; none of its code runs. */
kin_status kin_generator_end(PyObject *gen) KIN_MUST_CHECK;

#endif
