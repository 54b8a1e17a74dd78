/* Roles of the steps between a subgraph's calls (spread.h).
 *
 * A value is *late* when its maker waits for the launch because it depends on a call, *soft* when it is a container that
 * may be built at the launch or at its place, whichever is wanted; all others are there when they are asked for.
 */
#include "py/replay/spread.h"

#include "core/trace/effects.h"

#include "py/aten/tensor.h"
#include "py/guardeval/guard.h"

#include <stdlib.h>
#include <string.h>

typedef enum { MADE_ELSEWHERE, MADE_SOFT, MADE_LATE } kin_made;

kin_status
kin_spread_init(kin_spread *s, const kin_entry *v, uint8_t *role)
{
    const kin_trace *t = &v->trace;
    *s = (kin_spread){.v = v, .role = role, .vals = calloc(t->vals.len, sizeof *s->vals), .starts = calloc(t->nsegments + 1, sizeof *s->starts)};
    for (uint32_t i = 0; s->starts != NULL && i < t->steps.len; i++)
        if (t->steps.at[i].kind == KIN_STEP_SEGMENT && t->steps.at[i].num <= t->nsegments)
            s->starts[t->steps.at[i].num] = i;
    return s->vals == NULL || s->starts == NULL ? KIN_NOMEM : KIN_OK;
}

void
kin_spread_deinit(kin_spread *s)
{
    free(s->vals);
    free(s->starts);
    s->vals = NULL;
    s->starts = NULL;
}

void
kin_spread_begin(kin_spread *s, uint32_t subgraph, uint32_t first)
{
    s->subgraph = subgraph;
    s->first = s->last_call = first;
    s->reads = s->store = s->newest = s->into_own = 0;
    s->into_dict = false;
}

/* -- values ----------------------------------------------------------------------------------------------------- */

static kin_spread_val *
val_of(kin_spread *s, kin_vid vid)
{
    kin_spread_val *val = &s->vals[vid];
    if (val->subgraph != s->subgraph)
        *val = (kin_spread_val){.subgraph = s->subgraph};
    return val;
}

static bool
is_late(kin_spread *s, kin_vid vid)
{
    return vid != 0 && val_of(s, vid)->made == MADE_LATE;
}

static const kin_step *
maker_of(const kin_spread *s, kin_vid vid)
{
    const kin_val *val = &s->v->trace.vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP ? &s->v->trace.steps.at[val->step] : NULL;
}

/* The value is wanted at its place: what it is built of is as well. False: it cannot be. */
static bool
want_here(kin_spread *s, kin_vid vid)
{
    if (vid == 0 || val_of(s, vid)->made == MADE_ELSEWHERE)
        return true;
    if (val_of(s, vid)->made == MADE_LATE)
        return false;
    const kin_step *maker = maker_of(s, vid);
    val_of(s, vid)->made = MADE_ELSEWHERE;
    s->role[s->v->trace.vals.at[vid].step] = KIN_ROLE_PLACE;
    for (uint32_t a = 0; a < maker->nargs; a++)
        if (!want_here(s, s->v->trace.vids.at[maker->args + a]))
            return false;
    return true;
}

/* The containers that the object was built of, if it holds them. */
static const kin_step *
holder_of(const kin_spread *s, kin_vid vid)
{
    const kin_step *maker = maker_of(s, vid);
    return maker != NULL && kin_subgraph_builds(maker) && maker->kind != KIN_STEP_LIST_TO_TUPLE ? maker : NULL;
}

/* A call gets the value, and with it what it was built of. */
static void
reach(kin_spread *s, kin_vid vid, int depth)
{
    if (vid == 0 || val_of(s, vid)->reached || depth > 40)
        return;
    val_of(s, vid)->reached = true;
    const kin_step *maker = holder_of(s, vid);
    for (uint32_t a = 0; maker != NULL && a < maker->nargs; a++)
        reach(s, s->v->trace.vids.at[maker->args + a], depth + 1);
}

static bool
holds_changed(kin_spread *s, kin_vid vid, int depth)
{
    if (vid == 0)
        return false;
    if (val_of(s, vid)->changed || depth > 40)
        return true;
    const kin_step *maker = holder_of(s, vid);
    for (uint32_t a = 0; maker != NULL && a < maker->nargs; a++)
        if (holds_changed(s, s->v->trace.vids.at[maker->args + a], depth + 1))
            return true;
    return false;
}

/* -- roles ------------------------------------------------------------------------------------------------------ */

static void
put_off(kin_spread *s, uint32_t step, kin_role role, kin_made made)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    s->role[step] = (uint8_t)role;
    if (st->out != 0)
        val_of(s, st->out)->made = (uint8_t)made;
}

bool
kin_spread_call(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    const kin_vid *args = s->v->trace.vids.at + st->args;
    for (uint32_t a = 0; a < st->nargs; a++)
        if (holds_changed(s, args[a], 0))
            return false;
    for (uint32_t a = 0; a < st->nargs; a++)
        reach(s, args[a], 0);
    put_off(s, step, KIN_ROLE_CALL, MADE_LATE);
    s->last_call = step;
    return true;
}

/* Runs at its place. `risky`: that it ran can be told when an earlier call raises. */
static bool
place(kin_spread *s, uint32_t step, bool risky)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    if (risky && s->wall)
        return false;
    for (uint32_t a = 0; a < st->nargs; a++)
        if (!want_here(s, s->v->trace.vids.at[st->args + a]))
            return false;
    s->role[step] = risky ? KIN_ROLE_RISKY : KIN_ROLE_PLACE;
    return true;
}

/* Is it a size of a tensor, or a number computed of sizes and other numbers? */
static bool
is_number(const kin_spread *s, kin_vid vid)
{
    const kin_step *maker = maker_of(s, vid);
    if (maker == NULL)
        return false;
    bool computes = maker->kind == KIN_STEP_BINARY || maker->kind == KIN_STEP_UNARY || maker->kind == KIN_STEP_COMPARE;
    return maker->kind == KIN_STEP_SIZE || (computes && maker->flags & KIN_STEP_PURE);
}

/* The value is a constant, a number, a tensor, or made by the subgraph: nothing that runs at its place changes it. */
static bool
stays(kin_spread *s, kin_vid vid)
{
    const kin_val *val = &s->v->trace.vals.at[vid];
    return vid == 0 || is_number(s, vid) || val->kind == KIN_VAL_CONST || val->note != 0 || val_of(s, vid)->made == MADE_LATE;
}

static bool
all_stay(kin_spread *s, const kin_step *st, uint32_t from)
{
    for (uint32_t a = from; a < st->nargs; a++)
        if (!stays(s, s->v->trace.vids.at[st->args + a]))
            return false;
    return true;
}

/* Keeps what it is given, without a look at its contents. */
static bool
only_stores(const kin_step *st)
{
    return kin_step_does(st, KIN_STORES);
}

/* A test of a value that the subgraph makes: its outcome follows from the kinds of the inputs. */
static bool
is_decided(kin_spread *s, const kin_step *st)
{
    kin_vid vid = st->nargs == 1 ? s->v->trace.vids.at[st->args] : 0;
    if (vid == 0 || (st->imm == KIN_CHECK_META && kin_meta_mask(kin_refs_get(&s->v->refs, st->ref)) & KIN_META_OFFSET))
        return false;
    if (is_number(s, vid) && (st->imm == KIN_CHECK_TRUE || st->imm == KIN_CHECK_FALSE || st->imm == KIN_CHECK_EQ))
        return true;
    return st->imm == KIN_CHECK_TYPE || st->imm == KIN_CHECK_LEN || st->imm == KIN_CHECK_META ||
           st->imm == KIN_CHECK_IS || st->imm == KIN_CHECK_IS_NOT;
}

/* Was the object made after the last step that waits for the launch to read a container? Others may be that container. */
static bool
is_not_read(const kin_spread *s, kin_vid owner)
{
    const kin_val *val = &s->v->trace.vals.at[owner];
    return s->reads == 0 || (val->kind == KIN_VAL_STEP && val->step > s->reads);
}

/* Is it a list or dict that was built before the subgraph, and that nothing but torch calls has been given since? Then it may as well
 * have been built here: what is put into it may wait. */
static bool
is_unused(const kin_spread *s, kin_vid vid, uint32_t upto)
{
    const kin_trace *t = &s->v->trace;
    const kin_step *maker = maker_of(s, vid);
    if (maker == NULL || (maker->kind != KIN_STEP_BUILD_LIST && maker->kind != KIN_STEP_BUILD_MAP))
        return false;
    for (uint32_t i = t->vals.at[vid].step + 1; i < upto; i++) {
        const kin_step *st = &t->steps.at[i];
        for (uint32_t a = 0; !(st->flags & (KIN_STEP_TORCH | KIN_STEP_SUNK)) && a < st->nargs; a++)
            if (t->vids.at[st->args + a] == vid)
                return false;
    }
    return true;
}

/* -- stores that wait -------------------------------------------------------------------------------------------- */

/* What the step calls, if that is a constant; borrowed. */
static PyObject *
called(const kin_entry *v, const kin_step *st)
{
    const kin_val *val = st->kind != KIN_STEP_CALL || st->nargs == 0 ? NULL : &v->trace.vals.at[v->trace.vids.at[st->args]];
    return val == NULL || val->kind != KIN_VAL_CONST ? NULL : kin_refs_get(&v->refs, val->key);
}

/* Name of the C function that the step calls, if that is a constant. */
static const char *
function_name(const kin_entry *v, const kin_step *st)
{
    PyObject *obj = called(v, st);
    return obj != NULL && PyCFunction_Check(obj) ? ((PyCFunctionObject *)obj)->m_ml->ml_name : NULL;
}

/* The step that made the object, if it is one of a class that the recording has made an instance of; 0: it is not. */
static uint32_t
birth_of(const kin_entry *v, kin_vid vid)
{
    const kin_val *val = &v->trace.vals.at[vid];
    const kin_step *maker = vid != 0 && val->kind == KIN_VAL_STEP ? &v->trace.steps.at[val->step] : NULL;
    if (maker == NULL || !(maker->flags & KIN_STEP_PURE))
        return 0;
    PyObject *obj = called(v, maker);
    bool made = maker->kind == KIN_STEP_BUILD_OBJECT ||
                (obj != NULL && PyCFunction_Check(obj) && strcmp(((PyCFunctionObject *)obj)->m_ml->ml_name, "__new__") == 0);
    return made ? val->step : 0;
}

bool
kin_subgraph_stores_own(const kin_entry *v, const kin_step *st)
{
    bool stores = st->kind == KIN_STEP_SETATTR || (st->kind == KIN_STEP_SET_SUBSCR && st->imm == 1);
    return stores && st->flags & KIN_STEP_MUTATES && birth_of(v, v->trace.vids.at[st->args]) != 0;
}

/* An attribute that the program stores. */
typedef struct {
    kin_vid owner;
    PyObject *name; /* borrowed */
} attribute;

static bool
read_store(const kin_entry *v, const kin_step *st, attribute *out)
{
    const kin_vid *args = v->trace.vids.at + st->args;
    PyObject *obj = called(v, st);
    if (st->kind == KIN_STEP_SETATTR && st->nargs == 2)
        *out = (attribute){args[0], kin_refs_get(&v->refs, st->ref)};
    else if (obj != NULL && Py_IS_TYPE(obj, &PyWrapperDescr_Type) && PyDescr_TYPE(obj) == &PyBaseObject_Type && st->nargs == 4 &&
             strcmp(((PyWrapperDescrObject *)obj)->d_base->name, "__setattr__") == 0 && v->trace.vals.at[args[2]].kind == KIN_VAL_CONST)
        *out = (attribute){args[1], kin_refs_get(&v->refs, v->trace.vals.at[args[2]].key)};
    else
        return false;
    return out->name != NULL && PyUnicode_CheckExact(out->name);
}

static bool
is_instance_dict(const kin_trace *t, kin_vid vid, kin_vid owner)
{
    const kin_val *val = &t->vals.at[vid];
    return val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_INSTDICT && val->parent == owner;
}

/* Is the dict of an instance handed to a step, which may look into it? */
static bool
has_dict_operand(const kin_trace *t)
{
    for (uint32_t i = 1; i < t->steps.len; i++)
        for (uint32_t a = 0; a < t->steps.at[i].nargs; a++) {
            const kin_val *val = &t->vals.at[t->vids.at[t->steps.at[i].args + a]];
            if (val->kind == KIN_VAL_SRC && val->access == KIN_ACCESS_INSTDICT)
                return true;
        }
    return false;
}

/* Is it a store that changes one word of the heap, as the test in front of it says? The recording reads it no more in this
 * segment (recorder/overlay.c), so nobody minds if it is done behind the launch, but for steps that sees_stores tells apart. */
static bool
is_followed_store(const kin_spread *s, uint32_t step, attribute *out, bool *in_dict)
{
    const kin_trace *t = &s->v->trace;
    uint32_t i = step - 1;
    if (!read_store(s->v, &t->steps.at[step], out))
        return false;
    while (i > s->first && t->steps.at[i].flags & KIN_STEP_SUNK)
        i--;
    const kin_step *test = &t->steps.at[i];
    if (i <= s->first || test->kind != KIN_STEP_CHECK || test->imm != KIN_CHECK_FITS || s->role[i] != KIN_ROLE_PLACE)
        return false;
    kin_vid base = t->vids.at[test->args];
    kin_place place = (kin_place)(test->num >> KIN_PLACE_SHIFT & 7);
    *in_dict = place == KIN_PLACE_ITEM || has_dict_operand(t);
    return place == KIN_PLACE_ATTR ? base == out->owner : place == KIN_PLACE_ITEM && is_instance_dict(t, base, out->owner);
}

/* May calls of the subgraph, or settings that they hang on, be what is stored to? */
static bool
is_of_others(kin_spread *s, kin_vid owner)
{
    const kin_val *val = &s->v->trace.vals.at[owner];
    return val->kind == KIN_VAL_CONST || val->note != 0 || val_of(s, owner)->reached;
}

/* Does an attribute of the name wait to be stored, in this object or another? */
static bool
is_awaited(const kin_spread *s, PyObject *name, uint32_t upto)
{
    attribute other;
    for (uint32_t i = s->store; i < upto; i++)
        if (s->role[i] == KIN_ROLE_LATER && s->v->trace.steps.at[i].flags & (KIN_STEP_EFFECT | KIN_STEP_MUTATES) &&
            read_store(s->v, &s->v->trace.steps.at[i], &other) && PyUnicode_Compare(name, other.name) == 0)
            return true;
    return false;
}

/* All later stores wait as well, so that they stay in their order. What one of them replaces that another one stored does not die there: it
 * has a slot. */
static bool
put_off_store(kin_spread *s, uint32_t step)
{
    attribute to;
    bool in_dict;
    if (!read_store(s->v, &s->v->trace.steps.at[step], &to) || is_of_others(s, to.owner) || is_late(s, to.owner))
        return false;
    if (kin_subgraph_stores_own(s->v, &s->v->trace.steps.at[step]))
        in_dict = false;
    else if (!is_followed_store(s, step, &to, &in_dict))
        return false;
    val_of(s, to.owner)->changed = true;
    put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
    s->store = s->store == 0 ? step : s->store;
    s->newest = step;
    s->into_dict = s->into_dict || in_dict;
    return true;
}

/* A store to an item of such a dict. */
static bool
put_off_item(kin_spread *s, uint32_t step, kin_vid owner)
{
    if (is_of_others(s, owner) || is_late(s, owner))
        return false;
    uint32_t birth = birth_of(s->v, owner);
    val_of(s, owner)->changed = true;
    put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
    s->store = s->store == 0 ? step : s->store;
    s->newest = step;
    s->into_own = s->into_own == 0 || birth < s->into_own ? birth : s->into_own;
    return true;
}

/* A store to an object that the recording has made; its launcher sees that nothing else holds the dict. */
static bool
put_off_own(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    return st->kind == KIN_STEP_SET_SUBSCR ? put_off_item(s, step, s->v->trace.vids.at[st->args]) : put_off_store(s, step);
}

/* Does it call a function that looks into objects of Python's own types, and at no attributes? */
static bool
looks_inside(const kin_spread *s, const kin_step *st)
{
    static const char names[] = " abs all any bool callable chr divmod hash id isinstance issubclass len max min ord round sorted sum ";
    static PyTypeObject *const types[] = {&PyList_Type, &PyTuple_Type, &PyDict_Type, &PyODict_Type, &PyUnicode_Type, &PySet_Type, &PyFrozenSet_Type,
                                          &PyLong_Type, &PyFloat_Type, &PyBytes_Type, &PyBool_Type, &PyRange_Type};
    PyObject *obj = called(s->v, st);
    PyTypeObject *of = obj == NULL ? NULL : Py_TYPE(obj) == &PyMethodDescr_Type ? PyDescr_TYPE(obj) : (PyTypeObject *)obj;
    for (unsigned i = 0; i < sizeof types / sizeof *types; i++)
        if (of == types[i])
            return true;
    if (obj == NULL || !PyCFunction_Check(obj) || PyCFunction_GET_SELF(obj) == NULL || !PyModule_Check(PyCFunction_GET_SELF(obj)))
        return false;
    char word[24] = " ";
    const char *module = PyModule_GetName(PyCFunction_GET_SELF(obj)), *name = ((PyCFunctionObject *)obj)->m_ml->ml_name;
    if (module == NULL)
        PyErr_Clear();
    if (module != NULL && (strcmp(module, "math") == 0 || strcmp(module, "cmath") == 0))
        return true;
    if (module != NULL && strcmp(module, "sys") == 0)
        return strcmp(name, "getrecursionlimit") == 0;
    if (module == NULL || strcmp(module, "builtins") != 0 || strlen(name) + 3 > sizeof word)
        return false;
    strcat(strcat(word, name), " ");
    return strstr(names, word) != NULL;
}

/* Is the value surely neither a dict that was there before nor something that looks into one? */
static bool
is_no_dict(const kin_spread *s, kin_vid vid)
{
    const kin_trace *t = &s->v->trace;
    const kin_val *val = &t->vals.at[vid];
    PyObject *type;
    if (vid == 0 || val->note != 0)
        return true;
    if (val->kind == KIN_VAL_CONST)
        return kin_is_exact_immutable(kin_refs_get(&s->v->refs, val->key)) || PyType_Check(kin_refs_get(&s->v->refs, val->key)) ||
               PyCFunction_Check(kin_refs_get(&s->v->refs, val->key)) || PyFunction_Check(kin_refs_get(&s->v->refs, val->key));
    if (val->kind == KIN_VAL_STEP) {
        const kin_step *maker = &t->steps.at[val->step];
        return kin_subgraph_builds(maker) || maker->kind == KIN_STEP_LEN || maker->kind == KIN_STEP_CONTAINS || maker->kind == KIN_STEP_IS ||
               maker->kind == KIN_STEP_BUILD_STRING || maker->kind == KIN_STEP_BUILD_SET || maker->kind == KIN_STEP_BUILD_OBJECT;
    }
    for (uint32_t i = 0; i < t->facts.len; i++)
        if (t->facts.at[i].vid == vid && (t->facts.at[i].kind == KIN_FACT_TYPE || t->facts.at[i].kind == KIN_FACT_TYPE_VERSION) &&
            (type = kin_refs_get(&s->v->refs, t->facts.at[i].ref)) != NULL && PyType_Check(type))
            return !PyType_IsSubtype((PyTypeObject *)type, &PyDict_Type) && type != (PyObject *)&PyDictProxy_Type;
    return false;
}

/* May the value be a dict of the program's own that a store waits for, or something that looks into it? What was there before the dict
 * is neither, nor is a view of such a thing; who looks deeper is told apart by all_are_no_dicts. */
static bool
may_be_own(const kin_spread *s, kin_vid vid, int depth)
{
    const kin_trace *t = &s->v->trace;
    const kin_val *val = &t->vals.at[vid];
    if (vid == 0 || val->note != 0 || val->kind == KIN_VAL_CONST)
        return false;
    if ((val->kind == KIN_VAL_SRC ? s->starts[val->seg] : val->step) < s->into_own)
        return false;
    const kin_step *maker = maker_of(s, vid);
    if (maker == NULL || depth > 8)
        return true;
    if (maker->kind == KIN_STEP_LEN || maker->kind == KIN_STEP_CONTAINS || maker->kind == KIN_STEP_IS || maker->kind == KIN_STEP_SIZE ||
        maker->kind == KIN_STEP_BUILD_STRING)
        return false;
    bool views = kin_subgraph_builds(maker) || maker->kind == KIN_STEP_BUILD_SET || maker->kind == KIN_STEP_ITER ||
                 (maker->kind == KIN_STEP_CALL && maker->flags & KIN_STEP_PURE && looks_inside(s, maker));
    for (uint32_t a = 0; views && a < maker->nargs; a++)
        views = !may_be_own(s, t->vids.at[maker->args + a], depth + 1);
    return !views;
}

/* Does the step look into none of the dicts that stores wait for? */
static bool
all_are_no_dicts(const kin_spread *s, const kin_step *st)
{
    uint32_t n = st->kind == KIN_STEP_DICT_MERGE ? 2 : st->nargs; /* the third is for its message */
    bool deep = st->kind == KIN_STEP_COMPARE || st->kind == KIN_STEP_FORMAT;
    for (uint32_t a = 0; a < n && s->into_dict; a++) /* if not, attributes are in places that nothing else leads to */
        if (!is_no_dict(s, s->v->trace.vids.at[st->args + a]))
            return false;
    for (uint32_t a = 0; a < n && s->into_own != 0; a++) {
        kin_vid vid = s->v->trace.vids.at[st->args + a];
        if (deep ? s->v->trace.vals.at[vid].kind != KIN_VAL_CONST && !is_number(s, vid) : may_be_own(s, vid, 0) && !is_no_dict(s, vid))
            return false;
    }
    return true;
}

static bool
tests_no_contents(const kin_step *st)
{
    return st->imm == KIN_CHECK_TYPE || st->imm == KIN_CHECK_IS || st->imm == KIN_CHECK_IS_NOT || st->imm == KIN_CHECK_FITS ||
           st->imm == KIN_CHECK_NULL || st->imm == KIN_CHECK_NOTNULL || st->imm == KIN_CHECK_META || st->imm == KIN_CHECK_EQ;
}

/* The attribute that a call of getattr, hasattr or object.__getattribute__ asks for, if it is known; borrowed. */
static PyObject *
asked_attribute(const kin_spread *s, const kin_step *st)
{
    const kin_vid *args = s->v->trace.vids.at + st->args;
    PyObject *obj = called(s->v, st);
    const kin_step *method = st->kind == KIN_STEP_CALL && obj == NULL ? maker_of(s, args[0]) : NULL;
    uint32_t at = 2;
    if (method != NULL && method->kind == KIN_STEP_BUILD_METHOD) {
        const kin_val *func = &s->v->trace.vals.at[s->v->trace.vids.at[method->args]];
        obj = func->kind == KIN_VAL_CONST ? kin_refs_get(&s->v->refs, func->key) : NULL;
        at = 1;
    }
    bool asks = false;
    if (obj != NULL && Py_IS_TYPE(obj, &PyWrapperDescr_Type))
        asks = PyDescr_TYPE(obj) == &PyBaseObject_Type && strcmp(((PyWrapperDescrObject *)obj)->d_base->name, "__getattribute__") == 0;
    else if (at == 2 && function_name(s->v, st) != NULL)
        asks = strcmp(function_name(s->v, st), "getattr") == 0 || strcmp(function_name(s->v, st), "hasattr") == 0;
    if (!asks || st->nargs <= at || s->v->trace.vals.at[args[at]].kind != KIN_VAL_CONST)
        return NULL;
    PyObject *name = kin_refs_get(&s->v->refs, s->v->trace.vals.at[args[at]].key);
    return name != NULL && PyUnicode_CheckExact(name) ? name : NULL;
}

/* Does a step that asks for the attribute see that a store has not been done? */
static bool
sees_attribute(const kin_spread *s, PyObject *name, uint32_t step)
{
    return name == NULL || !PyUnicode_Check(name) || PyUnicode_CompareWithASCIIString(name, "__dict__") == 0 || is_awaited(s, name, step);
}

/* Might a step that runs at its place see that a store has not been done? It would have to ask for the attribute, or look into
 * the dict that has it. */
static bool
sees_stores(const kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    PyObject *obj = called(s->v, st), *name = asked_attribute(s, st);
    switch ((kin_step_kind)st->kind) {
    case KIN_STEP_SEGMENT: return true; /* it reads the heap anew */
    case KIN_STEP_GETATTR: return sees_attribute(s, kin_refs_get(&s->v->refs, st->ref), step);
    case KIN_STEP_CHECK: return !tests_no_contents(st) && !all_are_no_dicts(s, st);
    case KIN_STEP_CALL: /* super(): looks at classes */
        if (name != NULL)
            return sees_attribute(s, name, step);
        return obj != (PyObject *)&PySuper_Type && !(((obj != NULL && PyType_Check(obj)) || looks_inside(s, st)) && all_are_no_dicts(s, st));
    case KIN_STEP_HANDLED:
    case KIN_STEP_CELL_GET:
    case KIN_STEP_SETATTR:
    case KIN_STEP_BUILD_SUPER: /* looks at classes */
    case KIN_STEP_IS: return false;
    case KIN_STEP_SET_SUBSCR:
        if (kin_subgraph_stores_own(s->v, st))
            return false; /* fallthrough */
    default: return !kin_subgraph_builds(st) && !all_are_no_dicts(s, st);
    }
}

/* A step that uses something late. */
static bool
pass_late(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    const kin_vid *args = s->v->trace.vids.at + st->args;
    if (st->flags & KIN_STEP_RAISES)
        return false;
    if (st->flags & KIN_STEP_EFFECT)
        return put_off_store(s, step);
    if (st->kind == KIN_STEP_CHECK) {
        if (!is_decided(s, st))
            return false;
        put_off(s, step, KIN_ROLE_TEST, MADE_LATE);
        return true;
    }
    if (st->flags & KIN_STEP_PURE || st->kind == KIN_STEP_SIZE) {
        if (!kin_subgraph_builds(st) && !all_stay(s, st, 0))
            return false;
        put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
        return true;
    }
    if (!(st->flags & KIN_STEP_MUTATES) || st->out != 0 || st->nargs == 0)
        return false;
    if (kin_subgraph_stores_own(s->v, st) && !is_late(s, args[0]))
        return put_off_own(s, step);
    bool ours = val_of(s, args[0])->made != MADE_ELSEWHERE || is_unused(s, args[0], step);
    bool merges = st->kind == KIN_STEP_DICT_MERGE || st->kind == KIN_STEP_DICT_UPDATE;
    bool advances = st->kind == KIN_STEP_NEXT;
    if (!ours || (!advances && !only_stores(st) && !merges && !all_stay(s, st, 1)))
        return false;
    if (merges && !all_stay(s, st, 1))
        s->reads = step;
    val_of(s, args[0])->made = MADE_LATE;
    put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
    return true;
}

bool
kin_subgraph_sets_grad(const kin_entry *v, const kin_step *st)
{
    const char *name = function_name(v, st);
    return name != NULL && st->nargs == 2 && strcmp(name, "_set_grad_enabled") == 0;
}

/* What the step switches gradients to; -1: not known. */
static int
grad_after(const kin_entry *v, const kin_step *st)
{
    const kin_val *val = &v->trace.vals.at[v->trace.vids.at[st->args + 1]];
    PyObject *on = val->kind == KIN_VAL_CONST ? kin_refs_get(&v->refs, val->key) : NULL;
    return on == Py_True ? 1 : on == Py_False ? 0 : -1;
}

/* Does it really switch, as far as can be said ahead? Calls that wait for the launch do not wait over that. */
static bool
switches_grad(const kin_spread *s, uint32_t step)
{
    int to = grad_after(s->v, &s->v->trace.steps.at[step]), from = s->v->grad;
    for (uint32_t i = step; i > 0; i--)
        if (kin_subgraph_sets_grad(s->v, &s->v->trace.steps.at[i - 1])) {
            from = grad_after(s->v, &s->v->trace.steps.at[i - 1]);
            break;
        }
    return to >= 0 && from >= 0 && to != from;
}

/* Does it ask torch for its settings? Random numbers are none. */
static bool
asks_settings(kin_spread *s, const kin_step *st)
{
    static const char *const starts[] = {"is_", "_is_", "get_", "_get_", "_len_", "_log_api_usage_once"};
    const char *name = function_name(s->v, st);
    bool asks = false;
    for (unsigned i = 0; name != NULL && i < sizeof starts / sizeof *starts; i++)
        asks = asks || strncmp(name, starts[i], strlen(starts[i])) == 0;
    if (!asks || strstr(name, "rng") != NULL || strstr(name, "seed") != NULL)
        return false;
    for (uint32_t a = 1; a < st->nargs; a++)
        asks = asks && s->v->trace.vals.at[s->v->trace.vids.at[st->args + a]].kind == KIN_VAL_CONST;
    return asks;
}

/* A store at its place. */
static bool
pass_store(kin_spread *s, uint32_t step, kin_vid owner)
{
    const kin_val *val = &s->v->trace.vals.at[owner];
    bool fresh = val->kind == KIN_VAL_STEP && val->step > s->last_call && s->v->trace.steps.at[val->step].kind == KIN_STEP_BUILD_OBJECT;
    if (s->wall || (s->store != 0 && !(fresh && val->step > s->newest)))
        return put_off_store(s, step);
    return !is_of_others(s, owner) && is_not_read(s, owner) && place(s, step, !fresh);
}

static bool
uses_tensors(const kin_spread *s, const kin_step *st)
{
    const kin_trace *t = &s->v->trace;
    bool tensors = false;
    for (uint32_t a = 0; a < st->nargs; a++)
        tensors = tensors || t->vals.at[t->vids.at[st->args + a]].note != 0;
    return tensors;
}

/* A method of a list, dict or set that changes it: list.append, dict.pop, ... */
static bool
pass_method(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    kin_vid owner = st->kind == KIN_STEP_CALL && st->nargs > 1 ? s->v->trace.vids.at[st->args + 1] : 0;
    PyObject *obj = called(s->v, st);
    if (owner == 0 || obj == NULL || !Py_IS_TYPE(obj, &PyMethodDescr_Type) || !looks_inside(s, st) || uses_tensors(s, st) ||
        is_of_others(s, owner) || !is_not_read(s, owner) || (s->store != 0 && !all_are_no_dicts(s, st)) || !place(s, step, true))
        return false;
    val_of(s, owner)->changed = true;
    return true;
}

/* Effects that no call of a subgraph can notice. */
static bool
pass_effect(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    attribute to;
    if (read_store(s->v, st, &to))
        return pass_store(s, step, to.owner);
    if (pass_method(s, step))
        return true;
    /* Switching gradients: while calls wait only to what they are already, so that nobody can tell. */
    return (kin_subgraph_sets_grad(s->v, st) && !switches_grad(s, step) && place(s, step, false)) || (asks_settings(s, st) && place(s, step, false));
}

static bool
pass_change(kin_spread *s, uint32_t step)
{
    const kin_trace *t = &s->v->trace;
    const kin_step *st = &t->steps.at[step];
    kin_vid owner = st->nargs == 0 ? 0 : t->vids.at[st->args];
    if (owner == 0 || (val_of(s, owner)->reached && st->kind != KIN_STEP_NEXT))
        return false;
    if (st->kind == KIN_STEP_NEXT && st->out == 0) { /* a loop over known items goes on */
        put_off(s, step, KIN_ROLE_LATER, MADE_LATE);
        val_of(s, owner)->made = MADE_LATE;
        return true;
    }
    bool fresh = t->vals.at[owner].kind == KIN_VAL_STEP && t->vals.at[owner].step > s->last_call;
    attribute to;
    if ((s->wall || (s->store != 0 && !(fresh && t->vals.at[owner].step > s->newest))) && (read_store(s->v, st, &to) || kin_subgraph_stores_own(s->v, st)))
        return put_off_own(s, step);
    if (st->kind != KIN_STEP_NEXT && !is_not_read(s, owner))
        return false;
    if (!place(s, step, !fresh))
        return false;
    val_of(s, owner)->changed = true;
    return true;
}

/* Steps without flags that do nothing but look at their operands. */
static bool
only_looks(const kin_step *st)
{
    return kin_step_does(st, KIN_ASKS) && (st->kind != KIN_STEP_HANDLED || st->snap != 0 /* which says what is being handled */);
}

static bool
asks_for_data(const kin_spread *s, const kin_step *st)
{
    return uses_tensors(s, st) && (st->kind == KIN_STEP_CHECK ? st->imm == KIN_CHECK_TRUE || st->imm == KIN_CHECK_FALSE ||
                                                        st->imm == KIN_CHECK_EQ || st->imm == KIN_CHECK_QUIET
                                                  : st->kind != KIN_STEP_IS && st->kind != KIN_STEP_GETATTR &&
                                                        st->kind != KIN_STEP_SIZE);
}

/* Values that are, or hold, an exception that has just been raised. */
typedef struct {
    kin_vid at[8];
    unsigned n;
} exceptions;

static bool
is_one(const exceptions *all, kin_vid vid)
{
    for (unsigned i = 0; i < all->n; i++)
        if (all->at[i] == vid)
            return true;
    return false;
}

/* Follows exceptions over one step. False: it may look at one, or show it to somebody. */
static bool
follow_exceptions(const kin_trace *t, const kin_step *st, exceptions *all)
{
    bool handled = st->kind == KIN_STEP_HANDLED && (st->snap == 0 || is_one(all, t->snaps.at[st->snap].exc));
    bool gives = handled || st->flags & KIN_STEP_RAISES;
    bool tests = st->kind == KIN_STEP_CHECK && (st->imm == KIN_CHECK_TYPE || st->imm == KIN_CHECK_IS || st->imm == KIN_CHECK_IS_NOT);
    if (st->flags & (KIN_STEP_TORCH | KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_EFFECT) || st->kind == KIN_STEP_RETURN ||
        st->kind == KIN_STEP_EXIT || st->kind == KIN_STEP_SEGMENT)
        return false;
    for (uint32_t a = 0; a < st->nargs && st->kind != KIN_STEP_RAISE && !tests; a++)
        if (is_one(all, t->vids.at[st->args + a]))
            return false;
    if (gives && st->out != 0 && all->n < sizeof all->at / sizeof *all->at)
        all->at[all->n++] = st->out;
    else if (gives && st->out != 0)
        return false;
    for (uint32_t i = 0; i < st->nfrees; i++)
        for (unsigned k = 0; k < all->n; k++)
            if (all->at[k] == t->vids.at[st->frees + i])
                all->at[k--] = all->at[--all->n];
    return true;
}

/* Is the exception gone with the step that raised it, or soon, with nobody having looked at it? One that is looked at holds frames, and
 * what waits is not in them. */
static bool
dies_soon(const kin_spread *s, uint32_t step)
{
    enum { SOON = 40 };
    const kin_trace *t = &s->v->trace;
    exceptions all = {.n = 0};
    for (uint32_t i = step; i < t->steps.len && i < step + SOON; i++) {
        if (!follow_exceptions(t, &t->steps.at[i], &all))
            return false;
        if (all.n == 0)
            return true;
    }
    return false;
}

/* What the guards of the segment start from. */
static bool
pass_segment(kin_spread *s, uint32_t step)
{
    const kin_trace *t = &s->v->trace;
    uint32_t seg = t->steps.at[step].num;
    for (kin_vid vid = 1; vid < t->vals.len; vid++)
        if (t->vals.at[vid].kind == KIN_VAL_SRC && t->vals.at[vid].seg == seg && !want_here(s, t->vals.at[vid].parent))
            return false;
    for (uint32_t i = 0; i < t->facts.len; i++)
        if (t->facts.at[i].seg == seg && !(want_here(s, t->facts.at[i].vid) && want_here(s, t->facts.at[i].vid2)))
            return false;
    return place(s, step, false);
}

static bool
refuse(kin_spread *s, const char *why)
{
    s->why = s->wall ? "an earlier call may raise depending on data, and this step has an observable effect" : why;
    return false;
}

/* A function in Python that looks at other functions and nothing else (models/inspecting.c). */
static bool
asks_function(const kin_spread *s, const kin_step *st)
{
    PyObject *obj = called(s->v, st);
    return s->store == 0 && obj != NULL && PyFunction_Check(obj) && st->nargs == 2;
}

static bool
pass_unmarked(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    if (st->kind == KIN_STEP_NEXT && st->nargs == 1 && !val_of(s, s->v->trace.vids.at[st->args])->reached) {
        val_of(s, s->v->trace.vids.at[st->args])->changed = true;
        return place(s, step, true) || refuse(s, "the iterable depends on an earlier call");
    }
    bool looks = st->kind == KIN_STEP_CALL ? (looks_inside(s, st) || asks_function(s, st) || asked_attribute(s, st) != NULL) && !uses_tensors(s, st) : only_looks(st) && !asks_for_data(s, st);
    return (looks && place(s, step, false)) || refuse(s, "its result may depend on an earlier call");
}

static bool
pass_early(kin_spread *s, uint32_t step)
{
    const kin_step *st = &s->v->trace.steps.at[step];
    if (s->store != 0 && !(st->flags & KIN_STEP_EFFECT) && sees_stores(s, step))
        return refuse(s, "it may read what a deferred store writes");
    if (st->kind == KIN_STEP_SEGMENT)
        return pass_segment(s, step) || refuse(s, "a guard there reads what an earlier call writes");
    if (st->flags & KIN_STEP_EFFECT)
        return (!(st->flags & KIN_STEP_RAISES) && pass_effect(s, step)) || refuse(s, "an earlier call could observe its side effect");
    if (st->flags & KIN_STEP_MUTATES)
        return (!(st->flags & KIN_STEP_RAISES) && pass_change(s, step)) || refuse(s, "it modifies an input of an earlier call");
    if (st->flags & KIN_STEP_RAISES)
        return (dies_soon(s, step) && place(s, step, false)) || refuse(s, "the exception it raises is inspected");
    if (st->flags & KIN_STEP_PURE && kin_subgraph_builds(st) && st->kind != KIN_STEP_LIST_TO_TUPLE) {
        put_off(s, step, KIN_ROLE_LATER, MADE_SOFT);
        return true;
    }
    if (st->flags & KIN_STEP_PURE)
        return place(s, step, false) || refuse(s, "it is built from a deferred call's result");
    return pass_unmarked(s, step);
}

bool
kin_spread_pass(kin_spread *s, uint32_t step, bool wall)
{
    const kin_trace *t = &s->v->trace;
    const kin_step *st = &t->steps.at[step];
    bool late = false;
    s->wall = wall;
    if (st->flags & KIN_STEP_SUNK) {
        s->role[step] = KIN_ROLE_LATER;
        return true;
    }
    if (st->kind == KIN_STEP_RETURN || st->kind == KIN_STEP_EXIT)
        return refuse(s, "the recording ends");
    if (st->flags & (KIN_STEP_OPAQUE | KIN_STEP_BREAK | KIN_STEP_TORCH))
        return refuse(s, "it may run arbitrary Python code");
    for (uint32_t a = 0; a < st->nargs; a++)
        late = late || is_late(s, t->vids.at[st->args + a]);
    if (late)
        return pass_late(s, step) || refuse(s, "it uses a deferred call's result");
    return pass_early(s, step);
}

/* -- subgraphs that write to their inputs ----------------------------------------------------------------------------- */

static PyTypeObject *known_type(const kin_entry *v, kin_vid vid);

/* What the step makes, if its kind says so: a set, list(x), x[1:]. */
static PyTypeObject *
made_type(const kin_entry *v, const kin_step *maker)
{
    static PyTypeObject *const types[] = {&PyList_Type, &PyTuple_Type, &PySet_Type, &PyDict_Type, &PyBool_Type, &PyFloat_Type, &PyUnicode_Type, &PyRange_Type};
    const kin_vid *args = v->trace.vids.at + maker->args;
    if (maker->kind == KIN_STEP_BUILD_SET || maker->kind == KIN_STEP_BUILD_MAP)
        return maker->kind == KIN_STEP_BUILD_SET ? &PySet_Type : &PyDict_Type;
    for (unsigned i = 0; maker->kind == KIN_STEP_CALL && i < sizeof types / sizeof *types; i++)
        if (called(v, maker) == (PyObject *)types[i])
            return types[i];
    if (maker->kind != KIN_STEP_SUBSCR || known_type(v, args[1]) != &PySlice_Type)
        return NULL;
    PyTypeObject *of = known_type(v, args[0]);
    return of == &PyList_Type || of == &PyTuple_Type ? of : NULL;
}

/* The exact type of a value, if a fact or a test says it; borrowed. */
static PyTypeObject *
known_type(const kin_entry *v, kin_vid vid)
{
    const kin_trace *t = &v->trace;
    const kin_val *val = &t->vals.at[vid];
    const kin_step *maker = val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
    PyObject *type = val->kind == KIN_VAL_CONST ? (PyObject *)Py_TYPE(kin_refs_get(&v->refs, val->key)) : NULL;
    if (maker != NULL && made_type(v, maker) != NULL)
        return made_type(v, maker);
    for (uint32_t i = 0; val->kind == KIN_VAL_SRC && i < t->facts.len && type == NULL; i++)
        if (t->facts.at[i].vid == vid && (t->facts.at[i].kind == KIN_FACT_TYPE || t->facts.at[i].kind == KIN_FACT_TYPE_VERSION))
            type = kin_refs_get(&v->refs, t->facts.at[i].ref);
    for (uint32_t i = val->step; maker != NULL && i < t->steps.len && type == NULL; i++)
        if (t->steps.at[i].kind == KIN_STEP_CHECK && t->steps.at[i].imm == KIN_CHECK_TYPE && t->vids.at[t->steps.at[i].args] == vid)
            type = kin_refs_get(&v->refs, t->steps.at[i].ref);
    return type != NULL && PyType_Check(type) ? (PyTypeObject *)type : NULL;
}

/* A view of a dict that a method of it gives? */
static bool
is_dict_view(const kin_spread *s, kin_vid vid)
{
    static const char *const views[] = {"keys", "values", "items"};
    const kin_step *maker = maker_of(s, vid);
    PyObject *obj = maker == NULL || maker->kind != KIN_STEP_CALL ? NULL : called(s->v, maker);
    for (unsigned i = 0; i < 3 && obj != NULL && Py_IS_TYPE(obj, &PyMethodDescr_Type) && (PyDescr_TYPE(obj) == &PyDict_Type || PyDescr_TYPE(obj) == &PyODict_Type); i++)
        if (PyUnicode_CompareWithASCIIString(PyDescr_NAME(obj), views[i]) == 0)
            return true;
    return false;
}

/* Does it make a list or an iterator of others? */
static bool
takes_in(const kin_entry *v, const kin_step *st)
{
    static PyTypeObject *const types[] = {&PyList_Type, &PyTuple_Type, &PyEnum_Type, &PyZip_Type, &PyReversed_Type};
    for (unsigned i = 0; st->kind == KIN_STEP_CALL && i < sizeof types / sizeof *types; i++)
        if (called(v, st) == (PyObject *)types[i])
            return true;
    return false;
}

static bool shows_no_memory(const kin_spread *s, kin_vid vid);

static bool
all_show_no_memory(const kin_spread *s, const kin_step *st, uint32_t from)
{
    for (uint32_t a = from; a < st->nargs; a++)
        if (!shows_no_memory(s, s->v->trace.vids.at[st->args + a]))
            return false;
    return true;
}

/* Can no memory be looked at through the object itself, as through a memoryview? */
static bool
shows_no_memory(const kin_spread *s, kin_vid vid)
{
    const kin_val *val = &s->v->trace.vals.at[vid];
    PyTypeObject *type = vid == 0 ? NULL : known_type(s->v, vid);
    const kin_step *maker = maker_of(s, vid);
    if (vid == 0 || val->note != 0 || is_dict_view(s, vid) || (maker != NULL && kin_subgraph_builds(maker)))
        return true;
    if (maker != NULL && (maker->kind == KIN_STEP_ITER || takes_in(s->v, maker)))
        return all_show_no_memory(s, maker, maker->kind == KIN_STEP_CALL);
    return type != NULL && (type == &PyBytes_Type || type->tp_as_buffer == NULL || type->tp_as_buffer->bf_getbuffer == NULL);
}

/* ... nor through what it holds? */
static bool
is_plain(const kin_spread *s, kin_vid vid)
{
    const kin_val *val = &s->v->trace.vals.at[vid];
    const kin_trace *t = &s->v->trace;
    bool quiet = false; /* then it holds nothing but the interpreter's own simple objects */
    for (uint32_t i = 0; !quiet && i < t->steps.len; i++)
        quiet = t->steps.at[i].kind == KIN_STEP_CHECK && t->steps.at[i].imm == KIN_CHECK_QUIET && t->steps.at[i].num == 1 && t->vids.at[t->steps.at[i].args] == vid;
    return (quiet && shows_no_memory(s, vid)) || vid == 0 || is_number(s, vid) || (val->kind == KIN_VAL_CONST && kin_is_exact_immutable(kin_refs_get(&s->v->refs, val->key)));
}

/* Is it looked into by hashes? */
static bool
is_hashed(const kin_entry *v, kin_vid vid)
{
    PyTypeObject *type = known_type(v, vid);
    return type == &PySet_Type || type == &PyFrozenSet_Type || type == &PyDict_Type || type == &PyDictKeys_Type;
}

/* Does it call a method of a list or dict that compares no items, but for keys? */
static bool
compares_nothing(const kin_spread *s, const kin_step *st)
{
    static const char *const compare[] = {"index", "count", "remove", "sort"};
    PyObject *obj = called(s->v, st);
    if (obj == NULL || !Py_IS_TYPE(obj, &PyMethodDescr_Type) || (PyDescr_TYPE(obj) != &PyDict_Type && PyDescr_TYPE(obj) != &PyODict_Type && PyDescr_TYPE(obj) != &PyList_Type))
        return false;
    for (unsigned i = 0; i < sizeof compare / sizeof *compare; i++)
        if (PyUnicode_CompareWithASCIIString(PyDescr_NAME(obj), compare[i]) == 0)
            return false;
    return true;
}

/* May the step tell whether memory of tensors was written to? Those that ask tensors for data are in no subgraph. */
static bool
may_see_memory(const kin_spread *s, const kin_step *st)
{
    const kin_vid *args = s->v->trace.vids.at + st->args;
    uint32_t from = 0;
    switch ((kin_step_kind)st->kind) {
    case KIN_STEP_CHECK: return (st->imm == KIN_CHECK_TRUE || st->imm == KIN_CHECK_FALSE) && !shows_no_memory(s, args[0]);
    case KIN_STEP_GETATTR: return PyUnicode_CompareWithASCIIString(kin_refs_get(&s->v->refs, st->ref), "_version") == 0;
    case KIN_STEP_CALL: {
        PyObject *name = asked_attribute(s, st);
        if (name != NULL || asks_function(s, st) || kin_subgraph_sets_grad(s->v, st))
            return name != NULL && PyUnicode_CompareWithASCIIString(name, "_version") == 0;
        if (takes_in(s->v, st))
            return !all_show_no_memory(s, st, 1);
        from = st->nargs > 1 && compares_nothing(s, st) && shows_no_memory(s, args[1]) ? 2 : 1;
        break;
    }
    case KIN_STEP_SEGMENT:
    case KIN_STEP_SETATTR:
    case KIN_STEP_CELL_GET:
    case KIN_STEP_HANDLED:
    case KIN_STEP_IS:
    case KIN_STEP_LEN:
    case KIN_STEP_SIZE:
    case KIN_STEP_LIST_APPEND:
    case KIN_STEP_RAISE:
    case KIN_STEP_CELL_SET:
    case KIN_STEP_DELATTR:
    case KIN_STEP_IMPORT:
    case KIN_STEP_IMPORT_FROM:
    case KIN_STEP_GLOBAL_SET:
    case KIN_STEP_GENERATOR_STATE:
    case KIN_STEP_ENUMERATE_AT:
    case KIN_STEP_SET_ADD: /* what is hashed is not looked into */
    case KIN_STEP_BUILD_SUPER: return false;
    case KIN_STEP_CONTAINS:
        if (is_hashed(s->v, args[0]) || is_hashed(s->v, args[1]))
            return false;
        break;
    case KIN_STEP_SUBSCR:
    case KIN_STEP_SET_SUBSCR: return !shows_no_memory(s, args[0]) || !is_plain(s, args[1]);
    case KIN_STEP_ITER:
    case KIN_STEP_NEXT: return !shows_no_memory(s, args[0]);
    case KIN_STEP_LIST_EXTEND:
    case KIN_STEP_SET_UPDATE:
    case KIN_STEP_DICT_MERGE:
    case KIN_STEP_DICT_UPDATE: return !shows_no_memory(s, args[1]);
    default:
        if (kin_subgraph_builds(st))
            return false;
    }
    for (uint32_t a = from; a < st->nargs; a++)
        if (!is_plain(s, args[a]))
            return true;
    return false;
}

bool
kin_subgraph_hides_writes(const kin_entry *v, const kin_subgraph *subgraph)
{
    kin_spread s = {.v = v};
    for (uint32_t i = subgraph->first; i <= subgraph->last; i++) {
        uint8_t role = subgraph->role[i - subgraph->first];
        if ((role == KIN_ROLE_PLACE || role == KIN_ROLE_RISKY) && !(v->trace.steps.at[i].flags & KIN_STEP_SUNK) &&
            may_see_memory(&s, &v->trace.steps.at[i]))
            return false;
    }
    return true;
}
