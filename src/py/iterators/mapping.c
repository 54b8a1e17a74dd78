/* dict(mapping), d.update(mapping), {**mapping} and f(**mapping), where the mapping's methods are written in Python: UserDict, ChainMap, a Mapping of the program.
 *
 * C code calls keys(), goes over what that gave, and then asks for one item after the other. All of it is a region (region.c). What comes of
 * it is a dict made here, or stores into one, of the pairs that are then known.
 */
#include "core/diag/breaks.h"
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/guardeval/guard.h"
#include "py/iterators/consume.h"
#include "py/models/models.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

/* -- what C code asks ------------------------------------------------------------------------------------------------------- */

/* Where the class leaves __getitem__ to dict. */
static void
take_own_values(rec *r, rec_consumer *c)
{
    kin_vid *pairs = NULL;
    uint32_t n = 0;
    bool ok = rec_own_pairs(r, c->source, &pairs, &n);
    for (uint32_t i = 0; ok && i < c->ninputs; i++) {
        uint32_t k = 0;
        while (k < n && !kin_exact_equal(O(r, pairs[k]), O(r, c->inputs[i])))
            k += 2;
        ok = k < n; /* else it raises */
        if (ok)
            rec_take_item(r, c, pairs[k + 1]);
    }
    free(pairs);
    c->wants = false;
    c->ended = true;
    if (!ok)
        rec_refuse(r);
}

/* The keys are all there: their values come next. */
static void
ask_values(rec *r, rec_consumer *c, const kin_vid *keys, uint32_t n)
{
    c->inputs = malloc((n + 1) * sizeof *c->inputs);
    for (uint32_t i = 0; c->inputs != NULL && i < n; i++)
        if (!rec_is_known_key(r, keys[i]) || (c->inputs[i] = rec_need_const(r, keys[i])) == 0)
            rec_refuse(r);
    for (uint32_t i = 0; i < c->n; i++)
        Py_DECREF(c->held[i]);
    c->n = 0;
    if (c->inputs == NULL)
        rec_refuse(r);
    c->gen = NULL;
    c->ninputs = n;
    c->width = 1;
    c->self = c->source;
    c->wants = true;
    c->ended = false;
    if (c->callback != 0)
        rec_next_callback(r, c);
    else if (!r->refused)
        take_own_values(r, c);
}

/* keys() has returned, or the __iter__ in Python of what it returned. */
static void
take_keys(rec *r, rec_consumer *c, kin_vid answer)
{
    kin_vid gen = rec_hidden_generator(r, answer), *keys = NULL;
    uint32_t n = 0;
    if (gen != 0) {
        c->gen = rec_usable_generator(r, gen);
        Py_DECREF(c->held[--c->n]);
        return;
    }
    if (rec_use_up(r, answer, &keys, &n) || rec_known_elements(r, answer, &keys, &n))
        ask_values(r, c, keys, n);
    else
        rec_refuse(r);
    free(keys);
}

static void
take_answer(rec *r, rec_consumer *c)
{
    if (r->refused || c->n == 0)
        return;
    if (c->inputs != NULL)
        rec_next_callback(r, c);
    else
        take_keys(r, c, c->items[c->n - 1]);
}

/* The generator that the keys came from has ended. */
static void
have_keys(rec *r, rec_consumer *c)
{
    kin_vid *keys = malloc((c->n + 1) * sizeof *keys);
    uint32_t n = c->n;
    if (keys == NULL) {
        r->status = KIN_NOMEM;
        return;
    }
    if (n > 0)
        memcpy(keys, c->items, n * sizeof *keys);
    ask_values(r, c, keys, n);
    free(keys);
}

/* -- what comes of it --------------------------------------------------------------------------------------------------------- */

static bool
is_plain_dict(rec *r, kin_vid dict)
{
    const rec_virtual *f = VIRTUAL(r, dict);
    return f != NULL && f->kind == VIRTUAL_DICT && f->known && !f->escaped;
}

/* Keys and values in turns. */
static kin_vid *
make_pairs(const rec_consumer *c, uint32_t more)
{
    kin_vid *pairs = c->n == c->ninputs ? malloc((2 * c->n + more + 1) * sizeof *pairs) : NULL;
    for (uint32_t i = 0; pairs != NULL && i < c->n; i++) {
        pairs[2 * i] = c->inputs[i];
        pairs[2 * i + 1] = c->items[i];
    }
    return pairs;
}

static bool
finish_dict(rec *r, rec_consumer *c)
{
    kin_vid *pairs = make_pairs(c, 2 * c->call.nkw);
    bool done = pairs != NULL && rec_dict_of_pairs(r, &c->call, pairs, 2 * c->n);
    free(pairs);
    return done;
}

/* The call, as if of a dict of the pairs. */
static bool
call_on_dict(rec *r, const rec_consumer *c, const kin_vid *pairs, uint32_t n)
{
    kin_vid args[CONSUMER_ARGS];
    memcpy(args, c->args, (c->call.npos + c->call.nkw) * sizeof *args);
    args[c->call.npos - 1] = rec_build_dict(r, pairs, n);
    rec_args call = c->call;
    call.args = args;
    return rec_call_constructor(r, &call) || rec_call_builtin(r, &call) || rec_call_class(r, &call);
}

/* defaultdict(factory, mapping), a class derived from dict. */
static bool
finish_derived(rec *r, rec_consumer *c)
{
    kin_vid *pairs = make_pairs(c, 0);
    bool done = pairs != NULL && call_on_dict(r, c, pairs, 2 * c->n);
    free(pairs);
    return done;
}

/* -- OrderedDict(mapping), which asks for each value behind its key ------------------------------------------------------------- */

/* A generator has given a key. */
static void
ask_value_of(rec *r, rec_consumer *c)
{
    kin_vid key = r->refused || c->n == 0 || c->n % 2 == 0 || c->callback == 0 || !rec_is_known_key(r, c->items[c->n - 1]) ? 0 : rec_need_const(r, c->items[c->n - 1]);
    if (key == 0) {
        rec_refuse(r);
        return;
    }
    const kin_vid args[2] = {c->source, key};
    c->items[c->n - 1] = key;
    c->from = c->gen;
    c->gen = NULL;
    rec_args call = {.callee = c->callback, .args = args, .npos = 2};
    c->folding = c->wants = rec_call_or_refuse(r, &call);
}

static void
take_value(rec *r, rec_consumer *c)
{
    if (!c->folding) {
        take_answer(r, c);
        return;
    }
    c->folding = false;
    rec_go_on_from(c);
}

/* The generator that the keys came from has ended: keys and values are apart then, as they are where all keys come first. */
static void
have_pairs(rec *r, rec_consumer *c)
{
    uint32_t n = c->n / 2;
    c->inputs = malloc((n + 1) * sizeof *c->inputs);
    if (c->inputs == NULL || c->n % 2 != 0) {
        rec_refuse(r);
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        c->inputs[i] = c->items[2 * i];
        c->items[i] = c->items[2 * i + 1];
        Py_DECREF(c->held[2 * i]);
        c->held[i] = c->held[2 * i + 1];
    }
    c->n = c->ninputs = n;
}

static void
put_pair(rec *r, kin_vid dict, kin_vid key, kin_vid value)
{
    const kin_vid args[3] = {dict, key, value};
    if (!is_plain_dict(r, dict)) {
        rec_put_in_own_dict(r, dict, args + 1, 2);
        return;
    }
    rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
    rec_pairs_put(r, VIRTUAL(r, dict), key, value);
}

/* The region is over: the pairs are stored into the older dict, and behind them what was given by keyword. */
static void
put_pairs(rec *r, rec_consumer *c)
{
    kin_vid dict = c->args[0];
    uint32_t first = r->t->steps.len;
    for (uint32_t i = 0; i < c->n; i++)
        put_pair(r, dict, c->inputs[i], c->items[i]);
    for (uint32_t i = 0; i < c->call.nkw; i++)
        put_pair(r, dict, rec_const(r, PyTuple_GET_ITEM(c->call.kwnames, i)), c->args[c->call.npos + i]);
    for (uint32_t s = first; s < r->t->steps.len; s++)
        r->t->steps.at[s].snap = 0; /* the instruction is over */
    rec_changed(r, dict);
}

/* An instance of a class derived from dict, made here: dict.update stores into it without asking the class. */
static bool
is_own_instance(rec *r, kin_vid dict)
{
    return rec_own_mapping(r, dict) != NULL && !PyODict_Check(O(r, dict));
}

static bool
finish_update(rec *r, rec_consumer *c)
{
    return c->n == c->ninputs && (is_plain_dict(r, c->args[0]) || is_own_instance(r, c->args[0])) && rec_model_value(r, &c->call, rec_const(r, Py_None));
}

/* A keyword that is given twice raises. */
static bool
finish_display(rec *r, rec_consumer *c)
{
    const rec_virtual *f = VIRTUAL(r, c->args[0]);
    bool ok = c->n == c->ninputs && is_plain_dict(r, c->args[0]);
    for (uint32_t i = 0; ok && i < c->n && r->top->op == KIN_DO_DICT_MERGE; i++)
        ok = PyUnicode_CheckExact(O(r, c->inputs[i])) && rec_pairs_find(r, f, O(r, c->inputs[i])) == NULL;
    if (ok)
        rec_drop(r, 1);
    return ok;
}

void
rec_grow_opaquely(rec *r, kin_step_kind kind, kin_vid from, int row)
{
    kin_vid display = rec_peek(r, r->top->arg);
    const kin_vid args[3] = {display, from, kind == KIN_STEP_DICT_MERGE ? rec_peek(r, r->top->arg + 2) : 0};
    uint32_t s = rec_step(r, kind, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, kind == KIN_STEP_DICT_MERGE ? 3 : 2);
    if (row >= 0)
        rec_break(r, s, row);
    if (VIRTUAL(r, display) != NULL)
        VIRTUAL(r, display)->known = false;
    rec_forget_contents(r); /* which ends the epoch, also of a display that is read by path */
    r->skip_expected = true;
    rec_drop(r, 1);
}

static void
refuse_display(rec *r, const rec_consumer *c)
{
    rec_grow_opaquely(r, r->top->op == KIN_DO_DICT_MERGE ? KIN_STEP_DICT_MERGE : KIN_STEP_DICT_UPDATE, rec_peek(r, 0), c->opaque_row);
}

static const consumer_row dict_row = {.name = "mapping", .rule = TAKE_ALL, .finish = finish_dict, .then = take_answer, .over = have_keys},
                          derived_row = {.name = "mapping", .rule = TAKE_ALL, .finish = finish_derived, .then = take_answer, .over = have_keys},
                          ordered_row = {.name = "mapping", .rule = TAKE_ALL, .finish = finish_derived, .then = take_value, .came = ask_value_of, .over = have_pairs},
                          ordered_update_row = {.name = "mapping", .rule = TAKE_ALL, .finish = finish_update, .then = take_value, .came = ask_value_of, .over = have_pairs, .written = put_pairs},
                          update_row = {.name = "mapping", .rule = TAKE_ALL, .finish = finish_update, .then = take_answer, .over = have_keys, .written = put_pairs},
                          display_row = {.name = "mapping", .rule = TAKE_ALL, .finish = finish_display, .then = take_answer, .over = have_keys, .written = put_pairs, .refused = refuse_display};

/* A method of the object's class, in Python; 0: it is none. */
static kin_vid
method_of(rec *r, kin_vid vid, const char *name)
{
    attr_result at;
    PyObject *text = PyUnicode_InternFromString(name);
    if (text == NULL) {
        PyErr_Clear();
        return 0;
    }
    rec_attr_find(r, vid, text, &at);
    Py_DECREF(text); /* the class has it */
    bool ours = at.kind == ATTR_METHOD && at.self == vid && O(r, at.value) != NULL && PyFunction_Check(O(r, at.value)) && rec_can_inline(r, O(r, at.value));
    return ours ? at.value : 0;
}

/* Is it such a mapping? Before anything is written. */
static bool
is_mapping(rec *r, kin_vid vid)
{
    PyObject *obj = vid ? O(r, vid) : NULL;
    PyTypeObject *tp = obj != NULL ? Py_TYPE(obj) : NULL;
    bool dict = obj != NULL && PyDict_Check(obj);
    if (tp == NULL || !(tp->tp_flags & Py_TPFLAGS_HEAPTYPE) || kin_is_tensor(obj) || (dict && tp->tp_iter == PyDict_Type.tp_iter) || (VIRTUAL(r, vid) != NULL && VIRTUAL(r, vid)->kind != VIRTUAL_OBJECT))
        return false;
    PyObject *keys = _PyType_Lookup(tp, REC_STR("keys")), *item = _PyType_Lookup(tp, REC_STR("__getitem__"));
    bool ours = keys != NULL && PyFunction_Check(keys) && rec_can_inline(r, keys);
    bool computes = item != NULL && PyFunction_Check(item) && rec_can_inline(r, item);
    return dict ? (ours || rec_leaves_to_dict(r, vid, REC_STR("keys"))) && (computes || rec_leaves_to_dict(r, vid, REC_STR("__getitem__"))) : ours && computes;
}

/* A dict's own keys are known; their values are what its __getitem__ gives. */
static void
ask_own_keys(rec *r, rec_consumer *c, const kin_vid *pairs, uint32_t n)
{
    kin_vid *keys = malloc((n / 2 + 1) * sizeof *keys);
    for (uint32_t i = 0; keys != NULL && i < n / 2; i++)
        keys[i] = pairs[2 * i];
    if (keys != NULL)
        ask_values(r, c, keys, n / 2);
    else
        rec_refuse(r);
    free(keys);
}

static rec_consumer *
begin(rec *r, const consumer_row *row, kin_vid mapping)
{
    if (VIRTUAL(r, mapping) == NULL && r->region == NULL)
        rec_root(r, mapping);
    kin_vid keys = method_of(r, mapping, "keys"), item = method_of(r, mapping, "__getitem__"), *own = NULL;
    uint32_t n = 0;
    bool dict = PyDict_Check(O(r, mapping)), known = keys != 0 || (dict && rec_own_pairs(r, mapping, &own, &n));
    rec_consumer *c = known && (item != 0 || dict) ? rec_begin_consumer(r, NULL) : NULL;
    if (c != NULL) {
        c->row = row;
        c->source = mapping;
        c->callback = item;
        if (keys != 0)
            rec_call_or_refuse(r, &(rec_args){.callee = keys, .args = &mapping, .npos = 1});
        else
            ask_own_keys(r, c, own, n);
    }
    free(own);
    return c;
}

/* What becomes of the pairs; NULL: the call goes over no mapping. */
static const consumer_row *
find_row(rec *r, const rec_args *a)
{
    static PyObject *defaulted, *ordered, *updating, *updating_ordered, *initialising;
    PyObject *callee = O(r, a->callee), *update = kin_method_once(&updating, &PyDict_Type, "update");
    PyObject *cls = kin_import_once(&ordered, "collections", "OrderedDict");
    bool two = a->npos == 2, plain = two && is_plain_dict(r, a->args[0]);
    bool own = two && is_own_instance(r, a->args[0]), inits = callee == kin_method_once(&initialising, &PyDict_Type, "__init__");
    if ((callee == update && (plain || own)) || (inits && own))
        return &update_row;
    if (plain && cls != NULL && callee == kin_method_once(&updating_ordered, (PyTypeObject *)cls, "update"))
        return &ordered_update_row;
    if (a->npos == 2 && callee == kin_import_once(&defaulted, "collections", "defaultdict"))
        return &derived_row;
    if (callee == NULL || a->npos != 1 || !PyType_Check(callee) || !PyType_IsSubtype((PyTypeObject *)callee, &PyDict_Type))
        return NULL;
    const PyTypeObject *tp = (PyTypeObject *)callee;
    if (callee == cls)
        return &ordered_row;
    bool derived = Py_IS_TYPE(callee, &PyType_Type) && tp->tp_new == PyDict_Type.tp_new && tp->tp_init == PyDict_Type.tp_init;
    return tp == &PyDict_Type ? &dict_row : derived ? &derived_row : NULL;
}

bool
rec_consume_mapping(rec *r, const rec_args *a)
{
    const consumer_row *row = find_row(r, a);
    kin_vid mapping = row != NULL ? a->args[a->npos - 1] : 0;
    if (a->npos + a->nkw >= CONSUMER_ARGS || !is_mapping(r, mapping))
        return false;
    rec_consumer *c = begin(r, row, mapping);
    if (c == NULL)
        return false;
    rec_consume_as(r, c, a);
    return true;
}

bool
rec_consume_display(rec *r, kin_vid dict, kin_vid mapping, int row)
{
    if (!is_plain_dict(r, dict) || !is_mapping(r, mapping))
        return false;
    rec_consumer *c = begin(r, &display_row, mapping);
    if (c == NULL)
        return false;
    c->args[0] = dict;
    c->opaque_row = row;
    return true;
}
