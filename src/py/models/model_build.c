/* Models of calls of builtin classes: tuple, list, dict, set, bool, exceptions, functools.partial. */
#include "py/aten/sizes.h"
#include "py/compat/heap.h"
#include "py/compat/imports.h"
#include "py/models/models.h"
#include "py/objects/objects.h"

/* A tensor or a text: what is iterated over is not in it, but made of it. What a torch call gave is taken apart by nodes of its graph. */
static bool
iterates_apart(rec *r, kin_vid vid)
{
    PyObject *obj = O(r, vid);
    return VIRTUAL(r, vid) == NULL && (kin_is_plain_strided(obj) || PyUnicode_CheckExact(obj) || rec_is_graph_tuple(r, vid));
}

/* A list or tuple of these items. */
static kin_vid
build_sequence(rec *r, const kin_vid *items, uint32_t n, virtual_kind kind, PyTypeObject *tp)
{
    kin_vid out = rec_step_out(r, kind == VIRTUAL_LIST ? KIN_STEP_BUILD_LIST : KIN_STEP_BUILD_TUPLE, KIN_STEP_PURE, items, n);
    rec_make_virtual(r, out, kind, items, n, true);
    r->info.at[out].type = tp;
    return out;
}

/* ... in place of the call. Frees the items. */
static bool
new_sequence(rec *r, const rec_args *a, kin_vid *items, uint32_t n, virtual_kind kind, PyTypeObject *tp)
{
    kin_vid out = build_sequence(r, items, n, kind, tp);
    free(items);
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

static bool
from_parts(rec *r, const rec_args *a, virtual_kind kind, PyTypeObject *tp)
{
    kin_vid from = a->args[0], *items = NULL;
    uint32_t n = 0;
    if (!rec_iterated(r, &from, &items, &n))
        return false;
    return new_sequence(r, a, items, n, kind, tp);
}

static bool
model_sequence(rec *r, const rec_args *a, virtual_kind kind, PyTypeObject *tp)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (a->npos > 1 || a->nkw)
        return false;
    if (a->npos == 1 && Py_TYPE(O(r, a->args[0])) == &PyTuple_Type && kind == VIRTUAL_TUPLE) {
        rec_need_type(r, a->args[0]);
        return rec_model_value(r, a, a->args[0]);
    }
    if (a->npos == 1 && iterates_apart(r, a->args[0]))
        return from_parts(r, a, kind, tp);
    const rec_virtual *f = a->npos == 1 ? VIRTUAL(r, a->args[0]) : NULL;
    bool copied = f != NULL && f->kind == VIRTUAL_OTHER && (!f->escaped || r->region != NULL); /* a deque made here: what it holds is asked for once */
    if (a->npos == 1 && (copied || rec_plays_builtin(O(r, a->args[0]))) && rec_copied_items(r, a->args[0], 250, &items, &n))
        return new_sequence(r, a, items, n, kind, tp);
    if (a->npos == 1 && !rec_use_up(r, a->args[0], &items, &n)) {
        if (!rec_is_plain_value(O(r, a->args[0])))
            return false;
        if (VIRTUAL(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
        kin_vid out = rec_model_step(r, a, 0);
        rec_make_virtual(r, out, kind, NULL, 0, false);
        r->info.at[out].type = tp;
        return true;
    }
    if (a->npos == 0)
        return new_sequence(r, a, NULL, 0, kind, tp);
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_virtual(r, out, kind, items, n, true);
    r->info.at[out].type = tp;
    free(items);
    return true;
}

bool
rec_model_size(rec *r, const rec_args *a)
{
    enum { MOST = 64 };
    kin_vid *items = NULL;
    uint32_t n = 0;
    bool known = O(r, a->callee) == (PyObject *)kin_size_type() && a->npos == 1 && !a->nkw && rec_items_of(r, a->args[0], &items, &n) && n <= MOST;
    for (uint32_t i = 0; known && i < n; i++)
        known = O(r, items[i]) != NULL && PyLong_CheckExact(O(r, items[i]));
    if (known) {
        kin_vid out = rec_build_size(r, items, n);
        rec_drop(r, a->ndrop);
        rec_await_result(r, out, r->t->vals.at[out].step);
    }
    free(items);
    return known;
}

static bool
model_tuple(rec *r, const rec_args *a)
{
    return model_sequence(r, a, VIRTUAL_TUPLE, &PyTuple_Type);
}

static bool
model_list(rec *r, const rec_args *a)
{
    return model_sequence(r, a, VIRTUAL_LIST, &PyList_Type);
}

/* Key, value pairs of a known mapping or of its items(); malloc'ed, with room for `more` others. */
static bool
pairs_of_mapping(rec *r, kin_vid vid, kin_vid **pairs, uint32_t *n, uint32_t more)
{
    rec_virtual *f = VIRTUAL(r, vid);
    kin_vid from = f != NULL && f->kind == VIRTUAL_VIEW && f->pos == 'i' ? f->items[0] : vid, *items = NULL;
    rec_virtual *map = from != vid || VIRTUAL(r, vid) == NULL || VIRTUAL(r, vid)->kind != VIRTUAL_OBJECT ? rec_mapping(r, from) : NULL;
    *n = map ? map->n : 0;
    if (map == NULL && !rec_pairs_of(r, from, &items, n))
        return false;
    *pairs = malloc((*n + more + 1) * sizeof **pairs);
    if (*pairs != NULL)
        memcpy(*pairs, map ? map->items : items, *n * sizeof **pairs);
    free(items);
    return *pairs != NULL;
}

/* The two items of a pair that dict() is handed. */
static bool
take_pair(rec *r, kin_vid pair, kin_vid *to)
{
    kin_vid *items = NULL;
    uint32_t n;
    PyObject *obj = O(r, pair);
    bool known = VIRTUAL(r, pair) != NULL || (obj != NULL && (PyTuple_CheckExact(obj) || PyList_CheckExact(obj)));
    bool ok = known && rec_items_of(r, pair, &items, &n) && n == 2;
    if (ok)
        memcpy(to, items, 2 * sizeof *to);
    free(items);
    return ok;
}

/* ... of a sequence or iterator of pairs. */
static bool
pairs_of_items(rec *r, kin_vid vid, kin_vid **pairs, uint32_t *n, uint32_t more)
{
    kin_vid *items = NULL;
    uint32_t count = 0;
    bool ok = (VIRTUAL(r, vid) != NULL || PyList_CheckExact(O(r, vid)) || PyTuple_CheckExact(O(r, vid))) && rec_items_of(r, vid, &items, &count);
    *pairs = ok ? malloc((2 * count + more + 1) * sizeof **pairs) : NULL;
    for (uint32_t i = 0; *pairs != NULL && ok && i < count; i++)
        ok = take_pair(r, items[i], *pairs + 2 * i);
    *n = 2 * count;
    free(items);
    return ok && *pairs != NULL;
}

static bool
are_keys(rec *r, const kin_vid *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2)
        if (!rec_is_known_key(r, pairs[i]))
            return false;
    return true;
}

/* One pair more; a key that is there keeps its place. */
static void
put_pair(rec *r, kin_vid *pairs, uint32_t *n, kin_vid key, kin_vid value)
{
    for (uint32_t i = 0; i < *n; i += 2)
        if (kin_exact_same_key(O(r, pairs[i]), O(r, key))) {
            pairs[i + 1] = value;
            return;
        }
    pairs[(*n)++] = key;
    pairs[(*n)++] = value;
}

/* Pairs without repetitions in their place, the call's keywords behind them. False: the keys are not known. */
static bool
join_pairs(rec *r, const rec_args *a, kin_vid *pairs, uint32_t *n)
{
    uint32_t count = 0;
    if (!are_keys(r, pairs, *n))
        return false;
    for (uint32_t i = 0; i < *n; i += 2)
        put_pair(r, pairs, &count, rec_need_const(r, pairs[i]), pairs[i + 1]);
    for (uint32_t i = 0; i < a->nkw; i++)
        put_pair(r, pairs, &count, rec_const(r, PyTuple_GET_ITEM(a->kwnames, i)), a->args[a->npos + i]);
    *n = count;
    return true;
}

/* The dict of the pairs and the call's keywords; 0: the keys are not known. */
static kin_vid
build_dict(rec *r, const rec_args *a, kin_vid *pairs, uint32_t n)
{
    if (!join_pairs(r, a, pairs, &n))
        return 0;
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, n);
    rec_make_virtual(r, out, VIRTUAL_DICT, pairs, n, true);
    r->info.at[out].type = &PyDict_Type;
    return out;
}

bool
rec_dict_of_pairs(rec *r, const rec_args *a, kin_vid *pairs, uint32_t n)
{
    kin_vid out = build_dict(r, a, pairs, n);
    if (out == 0)
        return false;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

bool
rec_dict_pairs(rec *r, const rec_args *a, kin_vid **pairs, uint32_t *n)
{
    bool ok = a->npos <= 1 && a->nkw <= 100;
    *pairs = NULL;
    *n = 0;
    if (ok && a->npos == 0)
        ok = (*pairs = malloc((2 * a->nkw + 1) * sizeof **pairs)) != NULL;
    else if (ok)
        ok = pairs_of_mapping(r, a->args[0], pairs, n, 2 * a->nkw) || pairs_of_items(r, a->args[0], pairs, n, 2 * a->nkw);
    if (ok && join_pairs(r, a, *pairs, n))
        return true;
    free(*pairs);
    *pairs = NULL;
    return false;
}

/* Keys and values in turns, of cls.fromkeys(keys, value); NULL: the keys are not known. */
static kin_vid *
pairs_of_keys(rec *r, const rec_args *a, uint32_t *count)
{
    kin_vid from = a->args[1], *items = NULL;
    uint32_t n = 0;
    if ((VIRTUAL(r, from) != NULL && VIRTUAL(r, from)->kind == VIRTUAL_ITER) || kin_is_tensor(O(r, from)) || !rec_iterated(r, &from, &items, &n))
        return NULL;
    kin_vid *pairs = malloc((2 * n + 1) * sizeof *pairs);
    for (uint32_t i = 0; pairs != NULL && i < n; i++) {
        pairs[2 * i] = items[i];
        pairs[2 * i + 1] = a->npos == 3 ? a->args[2] : rec_const(r, Py_None);
    }
    *count = 2 * n;
    free(items);
    return pairs;
}

/* cls.fromkeys(keys, value) */
bool
rec_model_fromkeys(rec *r, const rec_args *a)
{
    static PyObject *defaults;
    PyObject *cls = a->npos >= 2 ? O(r, a->args[0]) : NULL;
    uint32_t count = 0;
    bool plain = cls == (PyObject *)&PyDict_Type, known = plain || cls == (PyObject *)&PyODict_Type || cls == kin_import_once(&defaults, "collections", "defaultdict");
    if (!known || cls == NULL || a->npos > 3 || a->nkw)
        return false;
    kin_vid *pairs = pairs_of_keys(r, a, &count);
    bool ok = pairs != NULL && (plain ? rec_dict_of_pairs(r, a, pairs, count) : join_pairs(r, a, pairs, &count));
    if (ok && !plain)
        rec_make_dict_of(r, a, rec_need_const(r, a->args[0]), cls == (PyObject *)&PyODict_Type ? 0 : rec_const(r, Py_None), pairs, count);
    free(pairs);
    return ok;
}

/* dict(d) of contents that are not known: a step, without code of the program. */
static bool
copy_unknown(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw != 0 || !PyDict_CheckExact(O(r, a->args[0])) || !rec_need_no_code(r, a->args[0], false))
        return false;
    if (VIRTUAL(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]);
    kin_vid out = rec_model_step(r, a, 0);
    rec_make_virtual(r, out, VIRTUAL_DICT, NULL, 0, false);
    r->info.at[out].type = &PyDict_Type;
    return true;
}

static bool
model_dict(rec *r, const rec_args *a)
{
    kin_vid *pairs = NULL;
    uint32_t n = 0;
    bool ok = a->npos <= 1 && a->nkw <= 100;
    if (ok && a->npos == 0)
        ok = (pairs = malloc((2 * a->nkw + 1) * sizeof *pairs)) != NULL;
    else if (ok)
        ok = pairs_of_mapping(r, a->args[0], &pairs, &n, 2 * a->nkw) || pairs_of_items(r, a->args[0], &pairs, &n, 2 * a->nkw);
    ok = (ok && rec_dict_of_pairs(r, a, pairs, n)) || copy_unknown(r, a);
    free(pairs);
    return ok;
}

static bool
model_set(rec *r, const rec_args *a)
{
    if (a->npos > 1 || a->nkw)
        return false;
    if (a->npos == 1) {
        kin_vid from = rec_proxied(r, a->args[0]);
        if (!rec_is_plain_value(O(r, from)) || !rec_need_no_code(r, from, false))
            return false;
        if (VIRTUAL(r, from) == NULL)
            rec_need_type(r, from);
    }
    r->only_asks = true;
    kin_vid out = rec_model_step(r, a, a->npos == 0 ? KIN_STEP_PURE : 0);
    r->only_asks = false;
    rec_make_virtual(r, out, VIRTUAL_SET, NULL, 0, false);
    r->info.at[out].type = &PySet_Type;
    return true;
}

/* -- where no instruction calls them: map(list, rows) ----------------------------------------------------------------------- */

/* dict.fromkeys, as the class has it. */
static bool
is_fromkeys(PyObject *callee)
{
    return callee == PyDict_GetItemString(kin_type_dict(&PyDict_Type), "fromkeys");
}

bool
rec_builds(PyObject *callee)
{
    return callee == (PyObject *)&PyList_Type || callee == (PyObject *)&PyTuple_Type || callee == (PyObject *)&PyDict_Type || is_fromkeys(callee);
}

static kin_vid
apply_to_items(rec *r, kin_vid from, virtual_kind kind, PyTypeObject *tp)
{
    const rec_virtual *f = VIRTUAL(r, from);
    kin_vid *items = NULL, out = 0;
    uint32_t n = 0;
    if (kind == VIRTUAL_TUPLE && f != NULL && f->kind == VIRTUAL_TUPLE && r->info.at[from].type == tp)
        return from;
    if (kind == VIRTUAL_TUPLE && f == NULL && O(r, from) != NULL && PyTuple_CheckExact(O(r, from)))
        return rec_need_type(r, from) != NULL ? from : 0;
    if (rec_iterated(r, &from, &items, &n))
        out = build_sequence(r, items, n, kind, tp);
    free(items);
    return out;
}

/* What list(x), tuple(x), dict(x) or dict.fromkeys(x) makes of known contents, which no iterator keeps; 0: not known. */
kin_vid
rec_apply_build(rec *r, kin_vid callee, const kin_vid *args, uint32_t n)
{
    PyObject *obj = O(r, callee);
    const rec_args call = {.callee = callee, .args = args, .npos = n};
    kin_vid from = n > 0 ? args[n - 1] : 0, *pairs = NULL, out = 0;
    const rec_virtual *f = from != 0 ? VIRTUAL(r, from) : NULL;
    uint32_t count = 0;
    if (from == 0 || (f == NULL && O(r, from) == NULL) || (f != NULL && (f->kind == VIRTUAL_ITER || !f->known)))
        return 0;
    if (obj == (PyObject *)&PyList_Type || obj == (PyObject *)&PyTuple_Type)
        return n == 1 ? apply_to_items(r, from, obj == (PyObject *)&PyList_Type ? VIRTUAL_LIST : VIRTUAL_TUPLE, (PyTypeObject *)obj) : 0;
    if (obj == (PyObject *)&PyDict_Type) {
        if (rec_dict_pairs(r, &call, &pairs, &count))
            out = build_dict(r, &call, pairs, count);
    } else if (n == 2 && O(r, args[0]) == (PyObject *)&PyDict_Type && (pairs = pairs_of_keys(r, &call, &count)) != NULL) {
        out = build_dict(r, &call, pairs, count);
    }
    free(pairs);
    return out;
}

static bool
model_bool(rec *r, const rec_args *a)
{
    if (a->npos != 1 || a->nkw)
        return false;
    int truth = rec_truth(r, a->args[0]);
    return truth >= 0 && rec_model_bool(r, a, truth);
}

bool
rec_model_exception(rec *r, const rec_args *a)
{
    rec_model_step(r, a, KIN_STEP_PURE);
    return true;
}

/* What the inner one holds comes first. */
static bool
partial_of_partial(rec *r, const rec_args *a, const rec_virtual *inner)
{
    kin_vid items[128], pairs[64];
    uint32_t nown = inner->aux != NULL ? (uint32_t)PyTuple_GET_SIZE(inner->aux) : 0, n = inner->n - nown;
    if (!inner->known || inner->n + a->npos + a->nkw > 128 || nown > 32)
        return false;
    for (uint32_t i = 0; i < nown; i++) {
        pairs[2 * i] = rec_const(r, PyTuple_GET_ITEM(inner->aux, i));
        pairs[2 * i + 1] = inner->items[n + i];
    }
    memcpy(items, inner->items, n * sizeof *items);
    memcpy(items + n, a->args + 1, (a->npos - 1) * sizeof *items);
    n += a->npos - 1;
    PyObject *names = rec_join_keywords(r, pairs, 2 * nown, a->args + a->npos, a->nkw, a->kwnames, items + n);
    if (names == NULL)
        return false;
    uint32_t nnames = (uint32_t)PyTuple_GET_SIZE(names);
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_PARTIAL, items, n + nnames, true);
    if (f != NULL && nnames > 0)
        f->aux = names;
    return true;
}

/* The same of one that is older than the recording. One with attributes of its own is kept as it is. */
static bool
partial_of_older(rec *r, const rec_args *a)
{
    struct { PyObject_HEAD PyObject *fn, *args, *kw, *dict; } *p = (void *)O(r, a->args[0]);
    rec_args more = *a, joined;
    kin_vid items[256];
    more.args++;
    more.npos--;
    if (p->dict != NULL || !rec_partial_parts(r, &more, a->args[0], &items[0], items + 1, &joined))
        return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_PARTIAL, items, 1 + joined.npos + joined.nkw, true);
    if (f != NULL)
        f->aux = joined.kwnames;
    return true;
}

/* functools.partial(f, ...). One of a partial object joins the two, and the class of f may change between calls. */
static bool
model_partial(rec *r, const rec_args *a)
{
    PyObject *func = a->npos ? O(r, a->args[0]) : NULL;
    if (a->npos && VIRTUAL(r, a->args[0]) != NULL && VIRTUAL(r, a->args[0])->kind == VIRTUAL_PARTIAL)
        return partial_of_partial(r, a, VIRTUAL(r, a->args[0]));
    if (func != NULL && VIRTUAL(r, a->args[0]) == NULL && Py_TYPE(func) == (PyTypeObject *)O(r, a->callee))
        return partial_of_older(r, a);
    PyObject *call = a->npos ? rec_call_in_python(r, a->args[0]) : NULL;
    if (func == NULL || Py_TYPE(func) == (PyTypeObject *)O(r, a->callee) || a->npos + a->nkw > 32 ||
        (!PyFunction_Check(func) && Py_TYPE(func) != &PyMethod_Type && !PyCFunction_Check(func) && !PyType_Check(func) && call == NULL))
        return false;
    if (call != NULL)
        rec_call_of_instance(r, a->args[0], call);
    else if (VIRTUAL(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]); /* that it can be called */
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_PARTIAL, a->args, a->npos + a->nkw, true);
    if (f != NULL && a->nkw)
        f->aux = a->kwnames;
    if (a->nkw)
        rec_ref(r, a->kwnames); /* as long as the recording */
    return true;
}

const rec_method_row rec_partial_rows[] = {{"partial", model_partial}, {NULL, NULL}};

const rec_method_row rec_build_rows[] = {
    {"tuple", model_tuple}, {"list", model_list}, {"dict", model_dict}, {"dict.fromkeys", rec_model_fromkeys}, {"set", model_set}, {"bool", model_bool}, {NULL, NULL}};
