/* `step` and `zero_grad` of the library's optimizers: each is one node of the graph, done in one pass over all tensors (py/optim). The Python code of
 * the step is not watched: which parameters have gradients, what their state is and which numbers the groups hold is looked up at each replay.
 */
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/optim/optim.h"

static bool
call_native(rec *r, const rec_args *a, PyObject *native, uint32_t npos)
{
    rec_args call = *a;
    call.callee = rec_const(r, native);
    call.npos = npos;
    rec_call_step(r, &call, KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_TORCH, -1);
    return true;
}

static bool
call_step(rec *r, const rec_args *a)
{
    bool alone = a->nkw == 0 && (a->npos == 1 || (a->npos == 2 && O(r, a->args[1]) == Py_None));
    PyObject *native = alone ? kin_optim_native(O(r, a->callee)) : NULL;
    if (native == NULL || (a->npos == 2 && rec_need_const(r, a->args[1]) == 0))
        return false;
    kin_vid func = a->callee;
    rec_fix_function(r, &func);
    return call_native(r, a, native, 1);
}

static bool
call_zero(rec *r, const rec_args *a)
{
    PyObject *native = kin_optim_native_zero(O(r, a->callee));
    return native != NULL && rec_can_const(r, a->callee) && rec_need_const(r, a->callee) != 0 && call_native(r, a, native, a->npos);
}

static bool
call_clip(rec *r, const rec_args *a)
{
    PyObject *native = a->nkw == 0 ? kin_optim_native_clip(O(r, a->callee)) : NULL;
    if (native == NULL)
        return false;
    kin_vid func = a->callee;
    rec_fix_function(r, &func);
    return call_native(r, a, native, a->npos);
}

bool
rec_call_optimizer(rec *r, const rec_args *a)
{
    return r->opt->kernels && PyFunction_Check(O(r, a->callee)) && (call_step(r, a) || call_zero(r, a) || call_clip(r, a));
}
