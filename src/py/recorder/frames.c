/* Symbolic frames: the vids of a frame's locals and stack, kept beside the real frame. */
#include "py/compat/codes.h"
#include "py/recorder/rec.h"

rec_frame *
rec_push_frame(rec *r, struct _PyInterpreterFrame *f, PyCodeObject *code)
{
    const kin_code *kc = rec_code_of(code);
    if (kc == NULL)
        return NULL;
    /* Between two operations of one instruction the stack may be higher than co_stacksize: a constant that is returned at once is pushed first. */
    int nslots = code->co_nlocalsplus + code->co_stacksize + 2;
    rec_frame *rf = calloc(1, sizeof *rf + (size_t)nslots * sizeof(kin_vid));
    if (rf == NULL)
        return NULL;
    rf->slots = (kin_vid *)(rf + 1);
    rf->f = f;
    rf->code = code;
    rf->kc = kc;
    rf->code_ref = rec_ref(r, (PyObject *)code);
    rf->nlocals = code->co_nlocalsplus;
    rf->nslots = nslots;
    rf->jump = UINT32_MAX;
    rf->op = KIN_DO__COUNT;
    rf->back = r->top;
    if (r->top != NULL)
        rf->exc = r->top->exc;
    r->top = rf;
    if (++r->depth > r->t->deepest)
        r->t->deepest = r->depth;
    return rf;
}

void
rec_pop_frame(rec *r)
{
    rec_frame *rf = r->top;
    r->top = rf->back;
    r->depth--;
    free(rf);
}

rec_frame *
rec_pop_inlined(rec *r)
{
    rec_pop_frame(r);
    rec_frame *f = r->top;
    f->await = AWAIT_NONE;
    f->inlined = true;
    f->jump = UINT32_MAX;
    return f;
}

kin_vid
rec_frame_globals(rec *r)
{
    rec_frame *f = r->top;
    PyFunctionObject *fn = (PyFunctionObject *)O(r, f->func);
    rec_virtual *virtual = VIRTUAL(r, f->func);
    if (virtual != NULL && virtual->kind == VIRTUAL_FUNCTION)
        return virtual->items[FN_GLOBALS];
    if (rec_is_const(r, f->func))
        return rec_const(r, fn->func_globals);
    return rec_src(r, f->func, KIN_ACCESS_GLOBALS, 0, fn->func_globals);
}

kin_vid
rec_frame_builtins(rec *r)
{
    rec_frame *f = r->top;
    PyFunctionObject *fn = (PyFunctionObject *)O(r, f->func);
    rec_virtual *virtual = VIRTUAL(r, f->func);
    if (rec_is_const(r, f->func) || (virtual != NULL && virtual->kind == VIRTUAL_FUNCTION))
        return rec_const(r, fn->func_builtins);
    return rec_src(r, f->func, KIN_ACCESS_BUILTINS, 0, fn->func_builtins);
}

kin_vid
rec_find_global(rec *r, PyObject *name)
{
    kin_vid globals = rec_frame_globals(r);
    if (!PyDict_CheckExact(O(r, globals)))
        return 0;
    PyObject *value = PyDict_GetItemWithError(O(r, globals), name);
    if (value != NULL)
        return rec_dict_item(r, globals, name, value);
    kin_vid builtins = rec_frame_builtins(r);
    value = PyDict_CheckExact(O(r, builtins)) ? PyDict_GetItemWithError(O(r, builtins), name) : NULL;
    if (value == NULL) {
        PyErr_Clear();
        rec_fact(r, KIN_FACT_LACKS_KEY, globals, name, 0);
        rec_fact(r, KIN_FACT_LACKS_KEY, builtins, name, 0);
        return 0;
    }
    rec_need_type(r, globals);
    rec_fact(r, KIN_FACT_LACKS_KEY, globals, name, 0);
    return rec_dict_item(r, builtins, name, value);
}
