/* Models of C callables whose results depend on something that no fact can express: addresses, clocks, random sources, the operating
 * system. They are called again at each replay. A result that differs between calls is a free value from the start,
 * and so is what is computed from it; guarding it would only cause an exit for each new address or time.
 */
#include "py/recorder/callables.h"
#include "core/diag/breaks.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

/* Leaves the call as a step whose result is expected to differ each time. */
static bool
vary(rec *r, const rec_args *a, unsigned flags)
{
    kin_vid out = rec_model_step(r, a, flags);
    r->info.at[out].varies = true;
    return true;
}

bool
rec_model_ask(rec *r, const rec_args *a)
{
    if (rec_any_tensor(r, a->args, a->npos + a->nkw))
        return false;
    PyObject *obj = O(r, a->callee);
    int row = rec_effect_row(obj);
    kin_vid out = rec_model_step(r, a, rec_callable_knows(obj, KIN_KNOWS_ACTS) ? KIN_STEP_EFFECT : 0);
    r->info.at[out].varies = rec_callable_knows(obj, KIN_KNOWS_VARIES);
    if (row >= 0 && r->opt->strict_breaks)
        rec_break(r, r->t->vals.at[out].step, row);
    return true;
}

/* id(): looks at nothing but the address. */
bool
rec_model_id(rec *r, const rec_args *a)
{
    return a->npos == 1 && a->nkw == 0 && vary(r, a, 0);
}

/* Does the class hash by address: as object does, or as torch.Tensor does in Python? */
static bool
hashes_by_address(rec *r, PyTypeObject *tp)
{
    PyObject *own = rec_lookup(r, tp, REC_STR("__hash__"));
    if (own == NULL)
        return false;
    if (tp->tp_hash == PyBaseObject_Type.tp_hash)
        return true;
    if (!kin_is_from_module(own, "torch._tensor"))
        return false;
    kin_vid func = rec_found(r, tp, REC_STR("__hash__"), own);
    rec_fact(r, KIN_FACT_CODE, func, PyFunction_GET_CODE(own), 0);
    return true;
}

/* hash(): constant for constants (strings are salted once for the process), an address for most objects. */
bool
rec_model_hash(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw)
        return false;
    kin_vid v = a->args[0];
    PyObject *obj = O(r, v);
    if (kin_is_exact_immutable(obj))
        return rec_model_pure(r, a);
    if (rec_is_plain_value(obj)) /* raises */
        return false;
    PyTypeObject *tp = rec_need_attrs(r, v);
    if (!hashes_by_address(r, tp))
        return false;
    r->skip_expected = true;
    return vary(r, a, 0);
}

/* random() and getrandbits() of a generator: they change nothing but its hidden state. */
static bool
model_random(rec *r, const rec_args *a)
{
    if (a->npos < 1 || a->npos > 2 || a->nkw || (a->npos == 2 && !PyLong_CheckExact(O(r, a->args[1]))))
        return false;
    for (uint32_t i = 0; i < a->npos; i++)
        if (!rec_is_const(r, a->args[i]))
            rec_need_type(r, a->args[i]);
    return vary(r, a, KIN_STEP_EFFECT);
}

const rec_method_row rec_random_rows[] = {{"Random.random", model_random}, {"Random.getrandbits", model_random}, {NULL, NULL}};
