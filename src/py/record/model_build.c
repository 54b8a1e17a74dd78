/* Models of builtin classes that are called: tuple, list, dict, set, bool, exceptions, functools.partial. */
#include "py/record/models.h"

static bool
model_sequence(rec *r, const rec_args *a, fresh_kind kind, PyTypeObject *tp)
{
    kin_vid *items = NULL;
    uint32_t n = 0;
    if (a->npos > 1 || a->nkw)
        return false;
    if (a->npos == 1 && Py_TYPE(O(r, a->args[0])) == &PyTuple_Type && kind == FRESH_TUPLE) {
        rec_need_type(r, a->args[0]);
        return rec_model_value(r, a, a->args[0]);
    }
    if (a->npos == 1 && !rec_use_up(r, a->args[0], &items, &n)) {
        if (!rec_is_plain_value(O(r, a->args[0])))
            return false;
        if (FRESH(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
        kin_vid out = rec_model_step(r, a, 0);
        rec_make_fresh(r, out, kind, NULL, 0, false);
        r->info.at[out].type = tp;
        return true;
    }
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, kind, items, n, true);
    r->info.at[out].type = tp;
    free(items);
    return true;
}

static bool
model_tuple(rec *r, const rec_args *a)
{
    return model_sequence(r, a, FRESH_TUPLE, &PyTuple_Type);
}

static bool
model_list(rec *r, const rec_args *a)
{
    return model_sequence(r, a, FRESH_LIST, &PyList_Type);
}

/* dict(mapping) and dict(mapping.items()) of known pairs. */
static bool
copy_mapping(rec *r, const rec_args *a)
{
    rec_fresh *f = FRESH(r, a->args[0]);
    kin_vid from = f != NULL && f->kind == FRESH_VIEW && f->pos == 'i' ? f->items[0] : a->args[0], *pairs;
    rec_fresh *map = rec_mapping(r, from);
    uint32_t n = map ? map->n : 0;
    if (map == NULL && !rec_pairs_of(r, from, &pairs, &n))
        return false;
    if (map != NULL) {
        pairs = malloc((n + 1) * sizeof *pairs);
        if (pairs == NULL)
            return false;
        memcpy(pairs, map->items, n * sizeof *pairs);
    }
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, FRESH_DICT, pairs, n, true);
    r->info.at[out].type = &PyDict_Type;
    free(pairs);
    return true;
}

/* OrderedDict() */
bool
rec_model_ordered_dict(rec *r, const rec_args *a)
{
    if (a->npos || a->nkw)
        return false;
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_make_fresh(r, out, FRESH_OTHER, NULL, 0, false);
    r->info.at[out].type = &PyODict_Type;
    return true;
}

static bool
model_dict(rec *r, const rec_args *a)
{
    if (a->npos == 1 && a->nkw == 0)
        return copy_mapping(r, a);
    if (a->npos != 0 || a->nkw > 100)
        return false;
    kin_vid pairs[200];
    for (uint32_t i = 0; i < a->nkw; i++) {
        pairs[2 * i] = rec_const(r, PyTuple_GET_ITEM(a->kwnames, i));
        pairs[2 * i + 1] = a->args[i];
    }
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, 2 * a->nkw);
    rec_make_fresh(r, out, FRESH_DICT, pairs, 2 * a->nkw, true);
    r->info.at[out].type = &PyDict_Type;
    rec_drop(r, a->ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

static bool
model_set(rec *r, const rec_args *a)
{
    if (a->npos > 1 || a->nkw)
        return false;
    if (a->npos == 1) {
        if (!rec_is_plain_value(O(r, a->args[0])) || !rec_need_quiet(r, a->args[0], false))
            return false;
        if (FRESH(r, a->args[0]) == NULL)
            rec_need_type(r, a->args[0]);
    }
    kin_vid out = rec_model_step(r, a, a->npos == 0 ? KIN_STEP_PURE : 0);
    rec_make_fresh(r, out, FRESH_SET, NULL, 0, false);
    r->info.at[out].type = &PySet_Type;
    return true;
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

/* functools.partial(f, ...). One of a partial object joins the two, and the class of f may change between calls. */
bool
rec_model_partial(rec *r, const rec_args *a)
{
    PyObject *func = a->npos ? O(r, a->args[0]) : NULL;
    if (func == NULL || Py_TYPE(func) == (PyTypeObject *)O(r, a->callee) || a->npos + a->nkw > 32 ||
        (!PyFunction_Check(func) && Py_TYPE(func) != &PyMethod_Type && !PyCFunction_Check(func) && !PyType_Check(func)))
        return false;
    if (FRESH(r, a->args[0]) == NULL)
        rec_need_type(r, a->args[0]); /* that it can be called */
    kin_vid out = rec_model_step(r, a, KIN_STEP_PURE);
    rec_fresh *f = rec_make_fresh(r, out, FRESH_PARTIAL, a->args, a->npos + a->nkw, true);
    if (f != NULL && a->nkw)
        f->aux = a->kwnames;
    if (a->nkw)
        rec_ref(r, a->kwnames); /* as long as the recording */
    return true;
}

const rec_method_row rec_build_rows[] = {
    {"tuple", model_tuple}, {"list", model_list}, {"dict", model_dict}, {"set", model_set}, {"bool", model_bool}, {NULL, NULL}};
