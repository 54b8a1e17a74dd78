/* Runs a graph through the callable that a custom backend returned for it (custom.c hands the graph over).
 *
 * A plain subgraph always runs that way. One with checks of its calls' results, or with other steps between its calls, does so only for
 * inputs for which a capture has shown, once per kind of inputs, that nothing in it depends on data.
 */
#ifndef KIN_PY_BACKEND_LAUNCHER_H
#define KIN_PY_BACKEND_LAUNCHER_H

#include "py/replay/subgraphs.h"

/* The launcher of a subgraph, without a callable yet; NULL without memory. */
kin_launcher *kin_backend_launcher(void);
/* callable: gets the subgraph's inputs pick[0..npick) and gives a tuple of its outputs, or None: it has nothing for these. KIN_NOMEM. */
kin_status kin_backend_set(kin_launcher *launcher, PyObject *callable, const uint32_t *pick, uint32_t npick) KIN_MUST_CHECK;
/* Is the launcher one of these? */
bool kin_backend_is(const kin_launcher *launcher);
bool kin_backend_has_callable(const kin_launcher *launcher);
/* Does running the subgraph twice do no more than running it once, as far as its callable knows? */
bool kin_backend_is_pure(const kin_launcher *launcher);
/* Its calls that use the value will be in plain subgraphs; all of its calls, if those are already, or the value is 0. KIN_BREAK. */
kin_status kin_backend_exclude(kin_entry *v, const kin_subgraph *subgraph, kin_vid value) KIN_MUST_CHECK;
/* Shows that the subgraph can be launched on inputs like these. KIN_BREAK: it cannot, as it is; then the entry's excluded calls,
 * or its barriers, have become more, and the subgraphs have to be found anew. */
kin_status kin_backend_prove(kin_launcher *launcher, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in) KIN_MUST_CHECK;

#endif
