/* The operations behind steps: one small function for each kind of step, all of the same type. */
#ifndef KIN_PY_OPS_PRIV_H
#define KIN_PY_OPS_PRIV_H

#include "core/trace/trace.h"
#include "py/refs/refs.h"
#include <Python.h>

/* A step with its operands at hand. All references are borrowed; arg[i] is NULL for vid 0. */
typedef struct {
    PyObject **arg;
    int nargs;
    int imm;
    PyObject *ref;
} kin_op_args;

/* New reference (None for operations without a result), or NULL with an exception. */
typedef PyObject *(*kin_op_func)(const kin_op_args *o);

/* ops.c. Is it a builtin function that wants its arguments in a tuple? */
bool kin_op_takes_tuple(PyObject *callee);
/* ... then this calls it without keywords. */
PyObject *kin_op_call_tuple(PyThreadState *ts, PyObject *callee, PyObject *tuple);
/* a op b, imm as of the step BINARY. */
PyObject *kin_op_binary(int imm, PyObject *a, PyObject *b);

/* ops_build.c */
PyObject *kin_op_build_tuple(const kin_op_args *o);
PyObject *kin_op_build_size(const kin_op_args *o);
PyObject *kin_op_build_list(const kin_op_args *o);
PyObject *kin_op_build_set(const kin_op_args *o);
PyObject *kin_op_build_map(const kin_op_args *o);
PyObject *kin_op_build_slice(const kin_op_args *o);
PyObject *kin_op_build_string(const kin_op_args *o);
PyObject *kin_op_build_method(const kin_op_args *o);
PyObject *kin_op_build_super(const kin_op_args *o);
PyObject *kin_op_build_cell(const kin_op_args *o);
PyObject *kin_op_build_function(const kin_op_args *o);
PyObject *kin_op_build_object(const kin_op_args *o);
PyObject *kin_op_list_to_tuple(const kin_op_args *o);
PyObject *kin_op_cell_set(const kin_op_args *o);
PyObject *kin_op_cell_get(const kin_op_args *o);
PyObject *kin_op_list_append(const kin_op_args *o);
PyObject *kin_op_list_extend(const kin_op_args *o);
PyObject *kin_op_set_add(const kin_op_args *o);
PyObject *kin_op_set_update(const kin_op_args *o);
PyObject *kin_op_dict_update(const kin_op_args *o);
PyObject *kin_op_dict_merge(const kin_op_args *o);

/* ops_generator.c */
PyObject *kin_op_build_generator(const kin_op_args *o);
PyObject *kin_op_generator_state(const kin_op_args *o);
PyObject *kin_op_iterator_at(const kin_op_args *o);
PyObject *kin_op_use_up(const kin_op_args *o);
PyObject *kin_op_update_wrapper(const kin_op_args *o);

/* ops_unpack.c */
PyObject *kin_op_unpack(const kin_op_args *o);

/* ops_state.c */
PyObject *kin_op_global_set(const kin_op_args *o);
PyObject *kin_op_import(const kin_op_args *o);
PyObject *kin_op_import_from(const kin_op_args *o);
PyObject *kin_op_raise(const kin_op_args *o);
PyObject *kin_op_handled(const kin_op_args *o);

/* "module.f()" as CPython names a callee in messages; new str or NULL. */
PyObject *kin_op_callee_text(PyObject *callee);

#endif
