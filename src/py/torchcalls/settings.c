/* Torch calls that read or switch torch's settings (gradients, autocast, inference mode). */
#include "core/trace/effects.h"
#include "py/aten/tensor.h"
#include "py/compat/imports.h"
#include "py/recorder/callables.h"
#include "py/torchcalls/torchcalls.h"

#include <string.h>

/* A setting's name, as its getter and its setter have it: is_grad_enabled(), _set_grad_enabled(on). */
static const char *
setting_of(PyObject *callable, const char *prefix)
{
    const char *name = kin_callable_name(callable);
    name += name[0] == '_';
    size_t n = strlen(prefix);
    return strncmp(name, prefix, n) == 0 ? name + n : NULL;
}

/* The same name, or as of _get_flash_sdp_enabled() and _set_sdp_use_flash(on). */
static bool
is_same_setting(const char *asked, const char *set)
{
    const char *kernel = strncmp(set, "sdp_use_", 8) == 0 ? set + 8 : NULL;
    size_t n = kernel != NULL ? strlen(kernel) : 0;
    return kernel != NULL ? strncmp(asked, kernel, n) == 0 && strcmp(asked + n, "_sdp_enabled") == 0 : strcmp(asked, set) == 0;
}

static bool
sets_what_is_asked(rec *r, const kin_step *s, PyObject *asker, const kin_vid *args, uint32_t npos)
{
    const kin_vid *given = r->t->vids.at + s->args;
    const char *asked = setting_of(asker, "is_"), *set = setting_of(O(r, given[0]), "set_");
    asked = asked != NULL ? asked : setting_of(asker, "get_");
    if (asked == NULL || set == NULL || !is_same_setting(asked, set) || s->nargs != npos + 2)
        return false;
    for (uint32_t i = 0; i < npos; i++)
        if (!rec_is_const(r, given[i + 1]) || !rec_is_const(r, args[i]) || PyObject_RichCompareBool(O(r, given[i + 1]), O(r, args[i]), Py_EQ) != 1)
            return false;
    return true;
}

/* Who has settled what the getter answers: ELSEWHERE: it is not known who. */
typedef enum { SETTLED_ELSEWHERE, SETTLED_BEFORE, SETTLED_HERE } settled;

/* HERE: the recording itself, with a value that is known; BEFORE: whoever ran before the call that is recorded. */
static settled
who_settled(rec *r, PyObject *asker, const kin_vid *args, uint32_t npos)
{
    for (uint32_t i = r->t->steps.len; i > 0; i--) {
        const kin_step *s = &r->t->steps.at[i - 1];
        bool acts = s->kind == KIN_STEP_CALL && s->flags & KIN_STEP_EFFECT && !(s->flags & KIN_STEP_TORCH);
        if (kin_step_switches(s) && (kin_step_does(s, KIN_OF_FIRST) || kin_step_does(s, KIN_GIVES_NEW)))
            return SETTLED_ELSEWHERE; /* an object that switches (inference mode, and gradients with it): its name does not tell what */
        if (kin_step_switches(s) && s->kind == KIN_STEP_CALL) {
            if (!sets_what_is_asked(r, s, asker, args, npos))
                continue;
            return rec_is_const(r, r->t->vids.at[s->args + s->nargs - 1]) ? SETTLED_HERE : SETTLED_ELSEWHERE;
        }
        if (s->flags & KIN_STEP_OPAQUE || kin_step_is_end(s) || (acts && !kin_step_does(s, KIN_SETTINGS) && !kin_step_does(s, KIN_OF_FIRST)))
            return SETTLED_ELSEWHERE;
    }
    return SETTLED_BEFORE;
}

bool
rec_switches_setting(rec *r, const rec_args *a, kin_vid *args)
{
    uint32_t does = rec_callable_effects(O(r, a->callee));
    bool known = !r->opt->kernels && (does & KIN_GRAD_MODE || (does & KIN_SETTINGS && does & KIN_STORES)) && a->nkw == 0 && a->npos <= 2;
    for (uint32_t i = 0; known && i < a->npos; i++) {
        kin_vid c = rec_need_const(r, a->args[i]);
        known = c != 0;
        args[i] = c != 0 ? c : a->args[i];
    }
    return known && (!(does & KIN_GRAD_MODE) || (a->npos == 1 && PyBool_Check(O(r, a->args[0]))));
}

/* What the getter answers is a fact, and a constant; 0: it does not answer. */
static kin_vid
note_answer(rec *r, PyObject *asker, PyObject *const *args, uint32_t npos)
{
    PyObject *answer = PyObject_Vectorcall(asker, args, npos, NULL);
    if (answer == NULL) {
        PyErr_Clear();
        return 0;
    }
    uint32_t key = rec_ref(r, asker) ^ (npos ? rec_ref(r, args[0]) << 12 : 0);
    uint32_t *seen = rec_map_at(r->facts_seen, rec_epoch(r), key, 0xA3B1, npos);
    if (seen != NULL && *seen == 0) {
        PyObject *fact = PyTuple_New(npos + 2);
        if (fact != NULL) {
            PyTuple_SET_ITEM(fact, 0, Py_NewRef(asker));
            for (uint32_t i = 0; i < npos; i++)
                PyTuple_SET_ITEM(fact, i + 1, Py_NewRef(args[i]));
            PyTuple_SET_ITEM(fact, npos + 1, Py_NewRef(answer));
            *seen = 1;
            rec_fact(r, KIN_FACT_CALL_IS, 0, fact, 0);
            Py_DECREF(fact);
        }
    }
    kin_vid value = rec_const(r, answer);
    Py_DECREF(answer);
    return value;
}

/* Ambient state not yet changed by the recording is an entry fact: the getter, its arguments and its answer. */
static bool
call_getter(rec *r, kin_vid callee, const kin_vid *args, uint32_t npos, int ndrop)
{
    if (npos > 4 || (r->ambient && who_settled(r, O(r, callee), args, npos) != SETTLED_BEFORE))
        return false;
    PyObject *objs[8];
    for (uint32_t i = 0; i < npos; i++) {
        kin_vid c = rec_need_const(r, args[i]);
        if (c == 0)
            return false;
        objs[i] = O(r, c);
    }
    kin_vid value = note_answer(r, O(r, callee), objs, npos);
    if (value == 0)
        return false;
    rec_drop(r, ndrop);
    rec_push(r, value);
    return true;
}

/* A region is about to switch gradients. It may if it is known what they are, so that they can be put back. */
void
rec_put_gradients_back(rec *r, PyObject *callee)
{
    static PyObject *asker;
    if (r->region == NULL || !(rec_callable_effects(callee) & KIN_GRAD_MODE) || kin_import_once(&asker, "torch._C", "is_grad_enabled") == NULL)
        return;
    settled who = r->ambient ? who_settled(r, asker, NULL, 0) : SETTLED_BEFORE;
    PyObject *on = who != SETTLED_ELSEWHERE ? PyObject_CallNoArgs(asker) : NULL;
    if (on != NULL && (who == SETTLED_HERE || note_answer(r, asker, NULL, 0) != 0))
        rec_region_puts_back(r, on == Py_True);
    Py_XDECREF(on);
    PyErr_Clear();
}

bool
rec_ask_setting(rec *r, const rec_args *a)
{
    PyObject *obj = O(r, a->callee);
    if (!rec_callable_knows(obj, KIN_KNOWS_ENTRY) || a->nkw != 0)
        return false;
    if (call_getter(r, a->callee, a->args, a->npos, a->ndrop))
        return true;
    if (!r->ambient || who_settled(r, obj, a->args, a->npos) != SETTLED_HERE)
        return false;
    rec_drop(r, a->ndrop);
    rec_await_const(r);
    return true;
}

bool
rec_call_inference_mode(rec *r, const rec_args *a)
{
    uint32_t does = rec_callable_effects(O(r, a->callee));
    if (!(does & KIN_SETTINGS) || !(does & KIN_STORES) || !(does & (KIN_OF_FIRST | KIN_GIVES_NEW)) || r->opt->kernels || !rec_is_const(r, a->callee) || a->npos == 0 || a->npos > 4 || a->nkw != 0)
        return false;
    kin_vid args[4];
    bool makes = PyType_Check(O(r, a->callee));
    for (uint32_t i = 0; i < a->npos; i++) {
        args[i] = makes || i > 0 ? rec_need_const(r, a->args[i]) : a->args[i];
        if (args[i] == 0)
            return false;
    }
    rec_args known = *a;
    known.args = args;
    r->ambient = true;
    rec_call_step(r, &known, KIN_STEP_EFFECT | KIN_STEP_TORCH, -1);
    return true;
}
