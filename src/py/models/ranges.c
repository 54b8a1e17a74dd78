/* Ranges that programs mark for torch.profiler: telling it ends no graph, and what it is told is all that happens. */
#include "py/models/models.h"

bool
rec_tell_profiler(rec *r, PyObject *function, const kin_vid *args, uint32_t n)
{
    static rec_library enter, leave;
    rec_virtual *f = n > 0 ? VIRTUAL(r, args[0]) : NULL;
    kin_vid all[8];
    if (f == NULL || f->kind != VIRTUAL_OBJECT || f->escaped || r->region != NULL || n > 6 ||
        (!rec_library_is_named(&enter, "torch.autograd.profiler", "record_function.__enter__", function) &&
         !rec_library_is_named(&leave, "torch.autograd.profiler", "record_function.__exit__", function)))
        return false;
    all[0] = rec_const(r, function);
    memcpy(all + 1, args, n * sizeof *all);
    r->keep_inside = true;
    rec_step_out(r, KIN_STEP_CALL, KIN_STEP_EFFECT, all, 1 + n);
    r->keep_inside = false;
    f->known = false; /* it keeps what the profiler gave it */
    r->skip_expected = true;
    return true;
}

/* The end of `with torch.profiler.record_function(name)`, and where a call enters it, its beginning; calls of the graph may run behind it. */
bool
rec_call_profiler_range(rec *r, const rec_args *a)
{
    return a->nkw == 0 && (a->npos == 1 || a->npos == 4) && rec_tell_profiler(r, O(r, a->callee), a->args, a->npos) &&
           rec_model_value(r, a, a->npos == 1 ? a->args[0] : rec_const(r, Py_None));
}
