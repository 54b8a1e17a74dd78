/* Tensors whose content is known while recording.
 *
 * What a tensor holds is data, so a decision on it ends the graph. But some tensors are numbers in disguise: a stride that a module keeps in
 * a buffer, a length computed from it. Such a tensor follows from constants and from small tensors that were there before the call; what
 * those hold is tested by a guard (T_DATA), and then its content is that of the recorded call.
 *
 * This takes that nobody writes to those tensors between the guard and the decision. A call in place in this epoch refuses it, and so does a call that is
 * not known to write to nothing and gets one of the tensors, or something that may share memory with it. Arguments of the call are
 * never guarded by content: what they hold is expected to differ.
 */
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/torchcalls/torchcalls.h"
#include "py/aten/make.h"
#include "py/recorder/callables.h"

enum { MOST_DEPTH = 24, MOST_LEAVES = 16, MOST_STEPS = 4096 };

typedef struct {
    kin_vid leaves[MOST_LEAVES];
    uint32_t n;
} leaf_list;

/* The module's part of a path: an argument itself, or what lies in one that is no module, is data. */
static bool
is_kept_by_program(rec *r, kin_vid vid)
{
    const kin_val *val = &r->t->vals.at[vid];
    bool attribute = false;
    for (; val->kind == KIN_VAL_SRC && val->parent != 0; val = &r->t->vals.at[val->parent])
        attribute = attribute || val->access == KIN_ACCESS_IATTR || val->access == KIN_ACCESS_INSTDICT || val->access == KIN_ACCESS_GLOBALS || val->access == KIN_ACCESS_CLOSURE;
    return attribute;
}

/* A tensor that was there when the epoch began, and is small. */
static bool
add_leaf(rec *r, kin_vid vid, leaf_list *found)
{
    const kin_val *val = &r->t->vals.at[vid];
    if (r->info.at[vid].content == 0 || val->epoch != r->epoch || !is_kept_by_program(r, vid) || rec_is_dynamic(r, vid))
        return false;
    for (uint32_t i = 0; i < found->n; i++)
        if (found->leaves[i] == vid)
            return true;
    if (found->n == MOST_LEAVES)
        return false;
    found->leaves[found->n++] = vid;
    return true;
}

static bool
computes_content(rec *r, kin_vid callee)
{
    return callee != 0 && rec_is_const(r, callee) && rec_callable_knows(O(r, callee), KIN_KNOWS_CONTENT | KIN_KNOWS_NUMBERS);
}

/* Operators that give a tensor of its own memory. */
static bool
is_plain_operator(const kin_step *s)
{
    return (s->kind == KIN_STEP_BINARY && s->imm < KIN_BINARY_INPLACE) || s->kind == KIN_STEP_UNARY || s->kind == KIN_STEP_COMPARE;
}

/* Does the content follow from constants and leaves, which are added? */
static bool
find_leaves(rec *r, kin_vid vid, leaf_list *found, int depth)
{
    const kin_val *val = &r->t->vals.at[vid];
    if (vid == 0 || depth > MOST_DEPTH)
        return false;
    if (rec_is_const(r, vid))
        return !kin_is_tensor(O(r, vid));
    if (val->kind == KIN_VAL_SRC)
        return add_leaf(r, vid, found);
    if (val->kind != KIN_VAL_STEP || val->step < r->first_step || r->info.at[vid].born_epoch != r->epoch)
        return false;
    const kin_step *s = &r->t->steps.at[val->step];
    const unsigned refused = KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_EFFECT | KIN_STEP_MUTATES | KIN_STEP_RAISES;
    if (!(s->flags & KIN_STEP_TORCH) || s->flags & refused)
        return false;
    if (!is_plain_operator(s) && !(s->kind == KIN_STEP_CALL && computes_content(r, r->t->vids.at[s->args])))
        return false;
    bool known = true;
    for (uint32_t i = 0, at = s->args, n = s->nargs; known && i < n; i++)
        known = find_leaves(r, r->t->vids.at[at + i], found, depth + 1);
    return known;
}

/* May the step write to an operand? *shares: its result may share memory with one. */
static bool
may_write(rec *r, const kin_step *s, bool *shares)
{
    *shares = false;
    if (is_plain_operator(s) || s->kind == KIN_STEP_CHECK || s->kind == KIN_STEP_TRUTH || s->kind == KIN_STEP_SIZE || s->kind == KIN_STEP_IS)
        return false;
    *shares = true;
    return s->kind == KIN_STEP_CALL ? !computes_content(r, r->t->vids.at[s->args]) : s->kind != KIN_STEP_BUILD_TUPLE;
}

/* May the call write to tensors that others hold, arguments that share memory among them? Operators of libraries may. */
static bool
writes_unsaid(rec *r, const kin_step *s)
{
    PyObject *callee = s->kind == KIN_STEP_CALL && s->flags & KIN_STEP_TORCH && s->nargs > 0 ? O(r, r->t->vids.at[s->args]) : NULL;
    return callee != NULL && ((rec_callable_knows(callee, KIN_KNOWS_WRITES) && s->nargs > 3) || rec_is_torch_operator(callee)); /* embedding(x, weight) and its like write nothing */
}

/* Has nothing since the epoch began written to one of the leaves? */
static bool
are_unwritten(rec *r, const leaf_list *found)
{
    uint32_t first = r->t->steps.len;
    while (first > r->first_step && r->t->steps.at[first - 1].kind != KIN_STEP_EPOCH)
        first--;
    KIN_VEC(kin_vid) shared = {0};
    bool unwritten = r->t->steps.len - first <= MOST_STEPS;
    for (uint32_t i = 0; i < found->n; i++)
        unwritten = unwritten && kin_vec_push(&shared, found->leaves[i]) == KIN_OK;
    for (uint32_t i = first; unwritten && i < r->t->steps.len; i++) {
        const kin_step *s = &r->t->steps.at[i];
        bool shares, takes = false;
        for (uint32_t k = 0; k < s->nargs && !takes; k++)
            for (uint32_t j = 0; j < shared.len && !takes; j++)
                takes = r->t->vids.at[s->args + k] == shared.at[j];
        unwritten = !writes_unsaid(r, s) && !(s->kind == KIN_STEP_BINARY && s->imm >= KIN_BINARY_INPLACE && s->flags & KIN_STEP_TORCH) && (!takes || !may_write(r, s, &shares));
        if (unwritten && takes && shares && s->out != 0)
            unwritten = kin_vec_push(&shared, s->out) == KIN_OK;
    }
    kin_vec_deinit(&shared);
    return unwritten;
}

/* Is nothing in the way of knowing what tensors hold? */
static bool
may_know(const rec *r)
{
    return r->region == NULL && !r->refused && !rec_is_of_optimizer(r->top->code) && !r->epoch_ended && !r->inplace && !kin_modes_active();
}

bool
rec_has_known_content(rec *r, kin_vid tensor)
{
    leaf_list found = {.n = 0};
    if (!may_know(r) || !find_leaves(r, tensor, &found, 0) || !are_unwritten(r, &found))
        return false;
    for (uint32_t i = 0; i < found.n; i++)
        rec_fact(r, KIN_FACT_T_DATA, found.leaves[i], kin_refs_get(r->refs, r->info.at[found.leaves[i]].content), 0);
    return true;
}

/* Is it what torch.rand gives, numbers in [0, 1)? */
static bool
is_share(rec *r, kin_vid vid)
{
    static PyObject *rand;
    const kin_val *val = &r->t->vals.at[vid];
    if (val->kind != KIN_VAL_STEP || val->step < r->first_step || r->info.at[vid].born_epoch != r->epoch)
        return false;
    const kin_step *s = &r->t->steps.at[val->step];
    if (s->kind != KIN_STEP_CALL || !(s->flags & KIN_STEP_TORCH) || kin_import_once(&rand, "torch", "rand") == NULL)
        return false;
    leaf_list drawn = {{vid}, 1};
    return O(r, r->t->vids.at[s->args]) == rand && are_unwritten(r, &drawn);
}

/* `torch.rand([]) < p` is not so with p = 0, and is so with p = 1: layers that are dropped with a probability that is 0. -1: it is nothing like that. */
static int
truth_of_share(rec *r, kin_vid tensor)
{
    const kin_val *val = &r->t->vals.at[tensor];
    const kin_step *s = val->kind == KIN_VAL_STEP && val->step >= r->first_step ? &r->t->steps.at[val->step] : NULL;
    if (s == NULL || s->kind != KIN_STEP_COMPARE || s->nargs != 2 || !may_know(r))
        return -1;
    kin_vid drawn = r->t->vids.at[s->args], number = r->t->vids.at[s->args + 1];
    unsigned op = s->imm & (KIN_COMPARE_TO_BOOL - 1u);
    PyObject *p = O(r, number);
    if (p == NULL || !(PyFloat_CheckExact(p) || PyLong_CheckExact(p)) || !is_share(r, drawn))
        return -1;
    double value = PyFloat_AsDouble(p);
    PyErr_Clear();
    bool below = op == Py_LT || op == Py_LE, strict = op == Py_LT || op == Py_GE; /* strict: what is asked is if it is below, not up to, the number */
    if ((op != Py_GT && !below && !strict) || !(value >= 1 || value < 0 || (value == 0 && strict)) || rec_need_const(r, number) == 0)
        return -1;
    return (value >= 1) == below;
}

int
rec_known_truth(rec *r, kin_vid tensor)
{
    PyObject *obj = O(r, tensor);
    if (!kin_has_plain_content(obj))
        return -1;
    int known = rec_has_known_content(r, tensor) ? 2 : truth_of_share(r, tensor), truth = known < 0 ? -1 : PyObject_IsTrue(obj);
    PyErr_Clear();
    return known == 2 || known == truth ? truth : -1;
}

bool
rec_call_known_number(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw != 0 || O(r, a->args[0]) == NULL || !kin_has_plain_content(O(r, a->args[0])) || !rec_has_known_content(r, a->args[0]))
        return false;
    rec_drop(r, a->ndrop);
    rec_await_const(r);
    return true;
}
