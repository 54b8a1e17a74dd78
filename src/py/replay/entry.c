/* Making and freeing an entry. */
#include "py/replay/entry.h"

#include "py/guardeval/guard.h"
#include "py/replay/subgraphs.h"

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
kin_entry_free(kin_entry *v)
{
    if (v == NULL)
        return;
    kin_subgraphs_release(v->subgraphs);
    kin_guard_free(v->guards);
    kin_trace_deinit(&v->trace);
    free(v->exit_counts);
    free(v->failure);
    free(v->sunk);
    kin_vec_deinit(&v->apart);
    kin_vec_deinit(&v->steady);
    kin_vec_deinit(&v->walls);
    kin_refs_deinit(&v->refs);
    Py_XDECREF(v->func);
    free(v);
}
