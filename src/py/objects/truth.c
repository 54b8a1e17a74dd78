/* Truth values and decisions on them: conditions of branches, and operands that are converted to bool for one (from 3.13 on).
 *
 * If the truth is known or can be made a fact, the decision is made while recording. Otherwise it is made at replay: by a check of the operand, which
 * leaves before the instruction, or by a step if user code computes the truth.
 */
#include "core/diag/breaks.h"
#include "py/compat/heap.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

static bool
has_own_truth(PyTypeObject *tp)
{
    return (tp->tp_as_number && tp->tp_as_number->nb_bool) || (tp->tp_as_mapping && tp->tp_as_mapping->mp_length) ||
           (tp->tp_as_sequence && tp->tp_as_sequence->sq_length);
}

/* The class decides, with what it has or lacks now. */
static void
need_truth_of_class(rec *r, kin_vid vid, PyTypeObject *tp)
{
    rec_need_attrs(r, vid);
    rec_lookup(r, tp, REC_STR("__bool__"));
    rec_lookup(r, tp, REC_STR("__len__"));
}

int
rec_truth(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    rec_virtual *f = VIRTUAL(r, vid);
    PyTypeObject *tp = Py_TYPE(obj);
    if (rec_is_const(r, vid) && (rec_is_plain_value(obj) || !has_own_truth(tp)))
        return PyObject_IsTrue(obj);
    if (kin_is_tensor(obj))
        return rec_known_truth(r, vid);
    if (f != NULL) {
        if (f->known && (f->kind == VIRTUAL_TUPLE || f->kind == VIRTUAL_LIST || f->kind == VIRTUAL_DICT))
            return f->n != 0;
        if (f->kind == VIRTUAL_NAMED && rec_named_items(r, vid) != NULL)
            return f->n != 0;
        if (f->kind == VIRTUAL_FUNCTION || f->kind == VIRTUAL_METHOD)
            return 1;
    }
    if (!has_own_truth(tp)) {
        need_truth_of_class(r, vid, tp);
        return 1;
    }
    if (f == NULL && PyTuple_Check(obj) && !PyTuple_CheckExact(obj) && rec_counts_as_tuple(tp)) { /* a named tuple */
        need_truth_of_class(r, vid, tp);
        rec_need_len(r, vid, PyTuple_GET_SIZE(obj));
        return PyTuple_GET_SIZE(obj) != 0;
    }
    if (f != NULL || !rec_is_plain_value(obj) || kin_exact_truth(obj) < 0) /* no fact could ask for it */
        return -1;
    if (rec_data_of(r, vid) != REC_NO_DATA && !PyBool_Check(obj) && obj != Py_None)
        return -1;
    if (obj == Py_None || PyBool_Check(obj)) {
        if (rec_is_dynamic(r, vid))
            return -1;
        rec_need_const(r, vid);
        return obj == Py_True;
    }
    if (r->region != NULL && r->t->vals.at[vid].kind == KIN_VAL_STEP) /* a new epoch would refuse the region: a check does not */
        return -1;
    int truth = PyObject_IsTrue(obj);
    if (rec_is_size(r, vid)) { /* a fact would begin an epoch, and divide the graph that gives the tensor */
        rec_check(r, truth ? KIN_CHECK_TRUE : KIN_CHECK_FALSE, vid, NULL, 0);
        return truth;
    }
    rec_root(r, vid);
    rec_need_type(r, vid);
    rec_fact(r, KIN_FACT_TRUE, vid, NULL, (uint32_t)truth);
    return truth;
}

/* Which outcome of the condition takes the jump, and is the operand kept when it does? */
static void
branch_kind(const rec_frame *f, bool *on_none, bool *jump_if, bool *keep)
{
    *on_none = f->flags & KIN_DO_BRANCH_ON_NONE;
    *jump_if = f->flags & KIN_DO_BRANCH_JUMPS_IF;
    *keep = f->flags & KIN_DO_BRANCH_KEEPS;
}

static void
take_branch(rec *r, bool outcome)
{
    bool on_none, jump_if, keep;
    rec_frame *f = r->top;
    branch_kind(f, &on_none, &jump_if, &keep);
    bool jumps = outcome == jump_if;
    if (!(keep && jumps))
        rec_drop(r, 1);
    if (jumps)
        f->next = f->jump;
    f->jump = UINT32_MAX;
}

/* The operand's own __bool__ or __len__ has answered and must not be asked again: who gets another answer goes on behind
 * the instruction, the other way. */
static void
check_answer(rec *r, rec_frame *f, bool jumped, bool outcome, bool keep)
{
    bool other_jumps = !jumped;
    uint32_t other = rec_snapshot_of(r, f, other_jumps ? f->jump : f->next, other_jumps && keep ? f->sp : f->sp - 1);
    kin_step check = {.kind = KIN_STEP_CHECK, .imm = outcome ? KIN_CHECK_WAS_TRUE : KIN_CHECK_WAS_FALSE, .nargs = 1,
                      .snap = other, .args = r->t->vids.len};
    kin_vid answer = r->t->steps.at[f->await_step].out;
    if (kin_vec_push(&r->t->vids, answer) != KIN_OK || kin_vec_push(&r->t->steps, check) != KIN_OK)
        r->status = KIN_NOMEM;
}

/* The branch that the truth is asked for: the instruction itself, or the one behind it that takes its bool. NULL: another use. */
static const kin_instr *
deciding_branch(const rec_frame *f)
{
    const kin_instr *in = kin_instr_main(f->in).op == KIN_DO_BRANCH ? f->in : kin_code_at(f->kc, f->in->next);
    return in != NULL && kin_instr_main(in).op == KIN_DO_BRANCH ? in : NULL;
}

/* The first instruction from there on that does something, or jumps. */
static const kin_instr *
first_acting(const rec_frame *f, uint32_t way)
{
    const kin_instr *in = kin_code_at(f->kc, way);
    while (in != NULL && in->ndoes == 0 && in->target == UINT32_MAX)
        in = kin_code_at(f->kc, in->next);
    return in;
}

/* Does the way lead straight to a `raise` that leaves the function? */
static bool
leads_to_raise(const rec_frame *f, uint32_t way)
{
    enum { MOST = 64 };
    const kin_instr *in = kin_code_at(f->kc, way);
    for (int i = 0; i < MOST && in != NULL && in->target == UINT32_MAX; i++) {
        if (in->ndoes != 0 && kin_instr_main(in).op == KIN_DO_RAISE)
            return !kin_code_is_guarded(f->kc, in->offset);
        in = in->ndoes != 0 && kin_instr_main(in).op == KIN_DO_RETURN ? NULL : kin_code_at(f->kc, in->next);
    }
    return false;
}

/* Does the way lead to the error of a check: the AssertionError of an assert statement, or that of `if ...: raise`? */
static bool
leads_to_error(const rec_frame *f, uint32_t way)
{
    const kin_instr *in = first_acting(f, way);
    return in != NULL && (kin_instr_main(in).op == KIN_DO_LOAD_ASSERTION_ERROR || leads_to_raise(f, way));
}

static bool
is_assert(const rec_frame *f)
{
    const kin_instr *branch = deciding_branch(f);
    return branch != NULL && (leads_to_error(f, branch->next) || leads_to_error(f, branch->target));
}

/* What torch's function was called that gave the value, with its first operand in *of; "" for other values. */
static const char *
made_by(rec *r, kin_vid vid, kin_vid *of)
{
    const kin_val *val = &r->t->vals.at[vid];
    const kin_step *s = val->kind == KIN_VAL_STEP ? &r->t->steps.at[val->step] : NULL;
    if (s == NULL || s->kind != KIN_STEP_CALL || !(s->flags & KIN_STEP_TORCH) || s->nargs < 2)
        return "";
    const kin_vid *args = r->t->vids.at + s->args;
    *of = args[1];
    return O(r, args[0]) != NULL ? kin_callable_name(O(r, args[0])) : "";
}

/* The outcome that a test for numbers which are not finite has in healthy programs (`isfinite(x).all()`: 1, `isnan(x).any()`: 0); -1: another test. */
static int
healthy_outcome(rec *r, kin_vid v)
{
    kin_vid of = 0;
    const char *name = made_by(r, v, &of);
    bool all = strcmp(name, "all") == 0;
    if ((all || strcmp(name, "any") == 0) && of != 0)
        name = made_by(r, of, &of);
    else
        all = strcmp(name, "isfinite") == 0;
    if (all)
        return strcmp(name, "isfinite") == 0 ? 1 : -1;
    return strcmp(name, "isnan") == 0 || strcmp(name, "isinf") == 0 ? 0 : -1;
}

/* Is the test one that nearly always comes out the same, so that the graph may assert it and go on? Where it does not hold, the graph's steps run
 * one by one and leave at the test. */
static bool
is_safety_check(rec *r, const rec_frame *f, kin_vid v)
{
    return is_assert(f) || healthy_outcome(r, v) >= 0;
}

static bool
passes(rec *r, const rec_frame *f, kin_vid v, bool outcome)
{
    if (!is_assert(f))
        return healthy_outcome(r, v) == outcome;
    const kin_instr *branch = deciding_branch(f);
    bool jumped = outcome == ((kin_instr_main(branch).flags & KIN_DO_BRANCH_JUMPS_IF) != 0);
    return !leads_to_error(f, jumped ? branch->target : branch->next);
}

/* Does the way lead back, as that of a loop which goes on? Not to the next item: that is a decision at the end of a for loop's body. */
static bool
leads_back(const rec_frame *f, uint32_t way)
{
    const kin_instr *in = first_acting(f, way);
    if (way < f->offset)
        return true;
    if (in == NULL || in->ndoes != 0 || in->target >= in->offset)
        return false;
    const kin_instr *to = first_acting(f, in->target);
    return to == NULL || to->ndoes == 0 || kin_instr_main(to).op != KIN_DO_NEXT;
}

static int
row_of_decision(const rec_frame *f)
{
    const kin_instr *branch = deciding_branch(f);
    bool loop = branch != NULL && (leads_back(f, branch->next) || leads_back(f, branch->target));
    return loop ? KIN_ROW_DATA_DEPENDENT_LOOP : KIN_ROW_DATA_DEPENDENT_BRANCH;
}

/* The outcome of a test is known. An assertion about data that passes can be made by the graph. */
static void
finish_check(rec *r, rec_frame *f, bool outcome)
{
    uint32_t step = f->await_step;
    r->t->steps.at[step].imm = outcome ? KIN_CHECK_TRUE : KIN_CHECK_FALSE;
    kin_vid vid = r->t->vids.at[r->t->steps.at[step].args];
    bool data = f->await_tensor || rec_data_of(r, vid) != REC_NO_DATA;
    if (!is_safety_check(r, f, vid) || !data || r->t->steps.at[step].flags & KIN_STEP_BREAK)
        return;
    if (passes(r, f, vid, outcome) && rec_data_of(r, vid) != REC_DATA_OUTSIDE)
        rec_make_node(r, step);
    else
        rec_break(r, step, is_assert(f) ? KIN_ROW_DATA_DEPENDENT_ASSERT : row_of_decision(f));
}

void
rec_finish_branch(rec *r, rec_frame *f, bool jumped)
{
    bool on_none, jump_if, keep;
    branch_kind(f, &on_none, &jump_if, &keep);
    bool outcome = jumped == jump_if;
    if (r->t->steps.at[f->await_step].kind == KIN_STEP_CHECK)
        finish_check(r, f, outcome);
    else
        check_answer(r, f, jumped, outcome, keep);
    if (!(keep && jumped))
        rec_drop(r, 1);
}

/* Does the class's own __bool__ or __len__ mention an attribute of the object that is a tensor? */
static bool
looks_at_tensor(rec *r, kin_vid v)
{
    PyObject *const names[] = {REC_STR("__bool__"), REC_STR("__len__")};
    for (int i = 0; i < 2; i++) {
        PyObject *method = _PyType_Lookup(Py_TYPE(O(r, v)), names[i]);
        if (method == NULL || !PyFunction_Check(method))
            continue;
        PyObject *used = ((PyCodeObject *)PyFunction_GET_CODE(method))->co_names;
        for (Py_ssize_t k = 0; k < PyTuple_GET_SIZE(used); k++) {
            PyObject *value = kin_heap_instance_attr(O(r, v), PyTuple_GET_ITEM(used, k));
            if (value != NULL && kin_is_tensor(value))
                return true;
        }
        return false;
    }
    return false;
}

/* Has the operand's truth decided at replay, by a check that leaves before the instruction or by a step that gives the answer; which of
 * the two, the step's kind says. */
static uint32_t
ask(rec *r, rec_frame *f, kin_vid v)
{
    PyObject *obj = O(r, v);
    bool tensor = kin_is_tensor(obj), no_code = tensor ? rec_reads_as_tensor(obj) : rec_is_plain_value(obj);
    if (no_code && VIRTUAL(r, v) == NULL && !r->info.at[v].graph)
        rec_need_type(r, v);
    kin_vid answer = no_code ? 0 : rec_step_out(r, KIN_STEP_TRUTH, KIN_STEP_OPAQUE, &v, 1);
    f->await_tensor = tensor;
    r->asserts = is_safety_check(r, f, v);
    uint32_t s = no_code ? rec_check(r, KIN_CHECK_TRUE, v, NULL, 0) : r->t->vals.at[answer].step;
    if (tensor && !r->asserts) /* that one may pass, which is known afterwards */
        rec_break(r, s, row_of_decision(f));
    r->asserts = false;
    if (!no_code) {
        if (looks_at_tensor(r, v))
            rec_break(r, s, KIN_ROW_DATA_DEPENDENT_BOOL_METHOD);
        rec_forget_contents(r);
    }
    r->skip_expected = true;
    return s;
}

/* Of an operand on the stack: 0, 1 when known or made a fact; -1 when it must be asked for. */
static int
known_truth(rec *r, const rec_frame *f, kin_vid v)
{
    bool asserted = is_assert(f) && rec_data_of(r, v) == REC_DATA_IN_GRAPH && rec_is_plain_value(O(r, v));
    return asserted ? -1 : rec_truth(r, v);
}

void
rec_op_branch(rec *r)
{
    bool on_none, jump_if, keep;
    kin_vid v = rec_peek(r, 0);
    rec_frame *f = r->top;
    branch_kind(f, &on_none, &jump_if, &keep);
    if (on_none) {
        take_branch(r, rec_decide_is(r, v, rec_const(r, Py_None)));
        return;
    }
    int truth = known_truth(r, f, v);
    if (truth >= 0) {
        take_branch(r, truth != 0);
        return;
    }
    f->await_step = ask(r, f, v);
    f->await = AWAIT_BRANCH;
}

/* -- operands that are made a bool -------------------------------------------------------------------------------------- */

void
rec_op_truth(rec *r)
{
    kin_vid v = rec_peek(r, 0);
    rec_frame *f = r->top;
    int truth = known_truth(r, f, v);
    if (truth >= 0) {
        rec_drop(r, 1);
        rec_push(r, rec_const(r, truth ? Py_True : Py_False));
        return;
    }
    uint32_t s = ask(r, f, v);
    rec_drop(r, 1);
    if (r->t->steps.at[s].kind == KIN_STEP_CHECK) {
        rec_await_const(r);
        f->await = AWAIT_TRUTH;
        f->await_step = s;
        return;
    }
    r->info.at[r->t->steps.at[s].out].type = &PyBool_Type;
    rec_await_result(r, r->t->steps.at[s].out, s);
}

void
rec_finish_truth(rec *r, rec_frame *f, PyObject *answer)
{
    f->slots[f->nlocals + f->await_slot] = rec_const(r, answer);
    finish_check(r, f, answer == Py_True);
}

/* -- comparisons ---------------------------------------------------------------------------------------------------------- */

/* Do comparisons with the object give a bool, whatever the other operand is? */
static bool
compares_to_bool(PyObject *obj)
{
    return kin_is_exact_immutable(obj) && rec_is_plain_value(obj);
}

/* The tensor that the comparison of a condition gives is on nobody's stack: here it is computed once more, so that it is known what it
 * looks like. A new reference, which keeps it while it is looked at. */
static PyObject *
give_example(rec *r, kin_vid out, int op)
{
    PyObject *example = PyObject_RichCompare(rec_stack_obj(r, 1), rec_stack_obj(r, 0), op);
    if (example == NULL)
        PyErr_Clear();
    else
        rec_set_obj(r, out, example);
    return example;
}

/* Code of the program compares (a mode, a class of tensors), which is to happen once, or no tensors are compared: the step does all that the instruction does. */
static void
gives_bool(rec *r, rec_frame *f)
{
    kin_step *s = &r->t->steps.at[f->await_step];
    s->imm |= KIN_COMPARE_TO_BOOL;
    r->info.at[f->await_vid].type = &PyBool_Type;
    if (s->flags & KIN_STEP_TORCH) {
        s->flags &= ~(unsigned)KIN_STEP_TORCH;
        r->info.at[f->await_vid].graph = false;
        rec_break(r, f->await_step, row_of_decision(f));
    }
}

/* a < b; from 3.13 on the instruction in front of a branch makes a bool of the result itself. */
void
rec_op_compare(rec *r)
{
    rec_frame *f = r->top;
    int op = f->arg;
    bool sure = !f->extra || (compares_to_bool(rec_stack_obj(r, 0)) && compares_to_bool(rec_stack_obj(r, 1)));
    rec_op_binary(r, KIN_STEP_COMPARE, op, 2);
    if (sure || f != r->top || f->await != AWAIT_RESULT)
        return;
    kin_step *s = &r->t->steps.at[f->await_step];
    if (s->kind != KIN_STEP_COMPARE)
        return;
    if (s->flags & KIN_STEP_OPAQUE || !(s->flags & KIN_STEP_TORCH)) {
        gives_bool(r, f);
        return;
    }
    f->await = AWAIT_NONE;
    PyObject *example = give_example(r, f->await_vid, op);
    if (example == NULL)
        rec_stop(r, "the comparison of a condition raises");
    else
        rec_op_truth(r);
    Py_XDECREF(example);
}
