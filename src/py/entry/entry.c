/* Creates and frees entries, including what other folders attached to them. */
#include "py/entry/entry.h"

kin_entry *
kin_entry_new(void)
{
    kin_entry *v = calloc(1, sizeof *v);
    if (v == NULL)
        return NULL;
    if (kin_trace_init(&v->trace) != KIN_OK) {
        free(v);
        return NULL;
    }
    if (kin_refs_init(&v->refs) != KIN_OK) {
        PyErr_Clear();
        kin_trace_deinit(&v->trace);
        free(v);
        return NULL;
    }
    return v;
}

void
kin_entry_set_guards(kin_entry *v, struct kin_guard_prog *guards, void (*free_guards)(struct kin_guard_prog *))
{
    struct kin_guard_prog *old = v->guards;
    v->guards = guards;
    if (old != NULL)
        v->free_guards(old);
    v->free_guards = free_guards;
}

void
kin_entry_set_subgraphs(kin_entry *v, struct kin_subgraphs *subgraphs, void (*release_subgraphs)(struct kin_subgraphs *))
{
    struct kin_subgraphs *old = v->subgraphs;
    v->subgraphs = subgraphs;
    if (old != NULL)
        v->release_subgraphs(old);
    v->release_subgraphs = release_subgraphs;
}

void
kin_entry_set_rows(kin_entry *v, PyObject *rows)
{
    PyObject *old = v->rows;
    v->rows = rows;
    Py_XDECREF(old);
}

void
kin_entry_free(kin_entry *v)
{
    if (v == NULL)
        return;
    kin_entry_set_subgraphs(v, NULL, NULL);
    kin_entry_set_guards(v, NULL, NULL);
    kin_entry_set_rows(v, NULL);
    kin_vec_deinit(&v->seen_sizes);
    kin_trace_deinit(&v->trace);
    free(v->exit_counts);
    free(v->failure);
    free(v->sunk);
    kin_vec_deinit(&v->excluded);
    for (uint32_t i = 0; i < v->obstacles.len; i++)
        free(v->obstacles.at[i].text);
    kin_vec_deinit(&v->obstacles);
    kin_vec_deinit(&v->asked);
    kin_vec_deinit(&v->declared);
    kin_vec_deinit(&v->exact);
    kin_vec_deinit(&v->invariant);
    kin_vec_deinit(&v->kept);
    kin_vec_deinit(&v->random);
    kin_vec_deinit(&v->barriers);
    kin_refs_deinit(&v->refs);
    Py_XDECREF(v->func);
    free(v);
}
