/* Writes the step of a call that is not inlined, and of tuples, cells and functions that the recording makes. */
#include "py/recorder/rec.h"

kin_vid
rec_build_tuple(rec *r, const kin_vid *items, uint32_t n, PyObject *obj)
{
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_TUPLE, KIN_STEP_PURE, items, n);
    rec_make_virtual(r, out, VIRTUAL_TUPLE, items, n, true);
    r->info.at[out].type = &PyTuple_Type;
    if (obj != NULL)
        rec_set_obj(r, out, obj);
    return out;
}

kin_vid
rec_build_list(rec *r, const kin_vid *items, uint32_t n)
{
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_LIST, KIN_STEP_PURE, items, n);
    rec_make_virtual(r, out, VIRTUAL_LIST, items, n, true);
    r->info.at[out].type = &PyList_Type;
    return out;
}

kin_vid
rec_build_cell(rec *r, kin_vid content, PyObject *obj)
{
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_CELL, KIN_STEP_PURE, &content, 1);
    rec_make_virtual(r, out, VIRTUAL_CELL, &content, 1, true);
    r->info.at[out].type = &PyCell_Type;
    if (obj != NULL)
        rec_set_obj(r, out, obj);
    return out;
}

kin_vid
rec_build_function(rec *r, const kin_vid *parts, uint32_t n, PyObject *qualname)
{
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_FUNCTION, KIN_STEP_PURE, parts, n);
    kin_ref ref = rec_ref(r, qualname);
    r->t->steps.at[r->t->vals.at[out].step].ref = ref;
    kin_vid items[FN_ITEMS] = {[FN_DEFAULTS] = parts[KIN_FUNCTION_DEFAULTS], [FN_KWDEFAULTS] = parts[KIN_FUNCTION_KWDEFAULTS],
                               [FN_CLOSURE] = parts[KIN_FUNCTION_CLOSURE], [FN_GLOBALS] = parts[KIN_FUNCTION_GLOBALS]};
    rec_make_virtual(r, out, VIRTUAL_FUNCTION, items, FN_ITEMS, true);
    r->info.at[out].type = &PyFunction_Type;
    return out;
}

kin_vid
rec_take_apart(rec *r, kin_vid vid, const kin_vid *items, uint32_t n)
{
    enum { MOST = 250, MOST_FOUND = 16 };
    const kin_val *val = &r->t->vals.at[vid];
    bool of_call = val->kind == KIN_VAL_STEP && r->t->steps.at[val->step].flags & KIN_STEP_TORCH;
    bool apart = of_call ? n <= MOST : val->kind == KIN_VAL_SRC && n <= MOST_FOUND;
    return apart ? rec_build_tuple(r, items, n, NULL) : vid;
}

void
rec_call_step(rec *r, const rec_args *a, unsigned flags, int break_row)
{
    kin_vid all[256];
    if (a->npos + a->nkw >= 255) {
        rec_stop(r, "a call with too many arguments");
        return;
    }
    all[0] = a->callee;
    memcpy(all + 1, a->args, (a->npos + a->nkw) * sizeof *a->args);
    bool judged = flags & KIN_STEP_TORCH && !(flags & KIN_STEP_OPAQUE) ? rec_written_judges_call(r, a) : flags & KIN_STEP_REPORTS && break_row < 0 && rec_written_judges_report(r, a);
    kin_vid out = rec_step_out(r, KIN_STEP_CALL, flags, all, a->npos + a->nkw + 1);
    uint32_t s = r->t->vals.at[out].step;
    rec_written_note(r, s, judged);
    kin_ref ref = a->nkw ? rec_ref(r, a->kwnames) : 0;
    r->t->steps.at[s].ref = ref;
    if (break_row >= 0)
        rec_break(r, s, break_row);
    if (flags & KIN_STEP_OPAQUE) {
        rec_forget_contents(r);
        r->skip_expected = true;
        rec_hide_compiling(r); /* code that is not traced is not compiled */
    }
    if (flags & KIN_STEP_TORCH)
        r->skip_expected = true;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, s);
}
