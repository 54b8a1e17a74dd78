/* Steps of the library's optimizers: one node of the graph, done in one pass over all tensors (py/optim). The Python code of the step is not
 * watched: which parameters have gradients, what their state is and what the numbers of groups are is looked up at each replay. */
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/optim/optim.h"

bool
rec_call_optimizer(rec *r, const rec_args *a)
{
    bool alone = a->nkw == 0 && (a->npos == 1 || (a->npos == 2 && O(r, a->args[1]) == Py_None));
    PyObject *native = r->opt->kernels && alone && PyFunction_Check(O(r, a->callee)) ? kin_optim_native(O(r, a->callee)) : NULL;
    if (native == NULL || (a->npos == 2 && rec_need_const(r, a->args[1]) == 0))
        return false;
    kin_vid func = a->callee;
    rec_fix_function(r, &func);
    if (r->stopped)
        return true;
    rec_args call = *a;
    call.callee = rec_const(r, native);
    call.npos = 1;
    rec_call_step(r, &call, KIN_STEP_OPAQUE | KIN_STEP_EFFECT | KIN_STEP_TORCH, -1);
    return true;
}
