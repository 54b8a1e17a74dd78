/* What an entry holds, as plain Python objects: the one source of explain(), logs, custom backends and reports.
 *
 * The dict of kin_dump_entry:
 *   name, filename, firstlineno, epochs, reason-free counts (ngraphs, nbreaks, neffects)
 *   facts:   {text, source, kind, filename, line, function}
 *   graphs:  {inputs: [{vid, source, path, name, note}], nodes: [...], outputs: [vid], code: str, exact: bool}
 *   node:    {vid, op, target, callable, args, kwargs, name, note, filename, line, function, code_line}
 *            op is call_function, call_method (args[0] is the receiver) or operator (target is its symbol).
 *            args and kwargs are nested tuples, lists, slices; a value is {"vid": n}, a real dict {"dict": [(k, v)]}.
 *   breaks:  {id, why, row, stock, category, type, explanation, hints, fix, step, filename, line, function, user_stack}
 *   effects: {text, kind, filename, line, function}
 *   handed_out: {function, filename, line}: code that runs eagerly, when somebody asks a generator, map or filter object that the call gives away
 *   steps:   {kind, text, flags, line, out, alt}
 */
#ifndef KIN_PY_REPORT_DUMP_H
#define KIN_PY_REPORT_DUMP_H

#include <Python.h>

#include "py/entry/entry.h"
#include "py/state/state.h"

/* New dict, or NULL with an exception. Runs Python code (repr, linecache). */
PyObject *kin_dump_entry(kin_entry *v);
/* How many generators, map and filter objects a replay gives away, whose code runs eagerly when somebody asks them. */
uint32_t kin_dump_handed_out(const kin_entry *v);
/* The subgraphs of an entry (py/replay/subgraphs.h) as graphs: new list of dicts; `n` of them. */
PyObject *kin_dump_subgraphs(kin_entry *v, const uint32_t *subgraph_of, const uint32_t *needed, uint32_t n);

/* For the module's method table: dump(entry) and break_rows(). Ends with a zero entry. */
extern PyMethodDef kin_dump_methods[];
/* A recording has ended, and everything about it is there: the listener is called at once, from the frame that made the call. Keeps a
 * pending exception. */
void kin_dump_tell(kin_state *st);

#endif
