/* Guards as text: paths and facts as Python expressions that users recognise, and what was found instead at a miss. For logs, out_guards
 * and recompile reasons; not used while calls run. All functions return a new str, or NULL with an exception.
 *
 *     L['x']   L['self']._modules['lin']   G['torch'].nn   type(L['self']) is MyModule   len(L['xs']) == 3
 */
#ifndef KIN_PY_REPORT_GUARD_TEXT_H
#define KIN_PY_REPORT_GUARD_TEXT_H

#include "py/guardeval/guard.h"

/* The path of a value: L[...] for parameters and free variables, G[...] for globals. */
PyObject *kin_source_text(const kin_entry *v, kin_vid vid);
PyObject *kin_fact_text(const kin_entry *v, uint32_t fact);
/* Why the entry did not fit: the fact with its old content, and the new content. Call it right after
 * kin_guard_eval has failed, with the same slots. `brief` writes x instead of L['x'], as recompile reasons do. */
PyObject *kin_miss_text(const kin_entry *v, const kin_guard_miss *miss, PyObject *const *slots, bool brief);

/* Why a replay leaves at the step: what did not hold, and what there is now, in the form of kin_miss_text. NULL (no exception): not known. */
PyObject *kin_exit_text(const kin_entry *v, uint32_t step, PyObject *const *slots);

/* The code of a class's forward, where that is a Python function; NULL otherwise. Borrowed. */
PyCodeObject *kin_forward_code(PyObject *cls);
/* An item of *args or **kwargs of a module's __call__: the parameter of its forward (borrowed str); NULL: something else. */
PyObject *kin_forward_parameter(const kin_entry *v, const kin_val *val);

#endif
