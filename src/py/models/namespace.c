/* locals(), and vars() without an operand: a dict of the variables of the function that asks, made of what the symbolic frame holds.
 *
 * Before 3.13 a frame has one dict for this, which each later look at the frame fills again, be it by locals() or through f_locals. So snapshots
 * name it (kin_snap.names), and the real frames that are built from them have it.
 */
#include "py/compat/codes.h"
#include "py/compat/frame.h"
#include "py/models/models.h"

enum { MOST_NAMES = 200 };

/* The value of variable i; 0: it is unbound. False: it is not known. */
static bool
read_variable(rec *r, const rec_frame *f, int i, kin_vid *value)
{
    unsigned kind = ((unsigned char *)PyBytes_AS_STRING(f->code->co_localspluskinds))[i];
    PyObject *real = kin_watch_localsplus(f->f)[i];
    *value = kind & KIN_VARIABLE_HIDDEN ? 0 : f->slots[i];
    if (!(kind & (KIN_VARIABLE_CELL | KIN_VARIABLE_FREE)) || *value == 0 || real == NULL || !PyCell_Check(real))
        return true;
    const rec_virtual *cell = VIRTUAL(r, *value);
    if (cell != NULL && cell->known)
        *value = cell->items[0];
    else if (cell == NULL && PyCell_GET(real) != NULL)
        *value = rec_src(r, rec_root(r, *value), KIN_ACCESS_CELL, 0, PyCell_GET(real));
    else
        return false;
    return true;
}

/* Names and values of all variables, unbound ones with value 0. */
static bool
read_variables(rec *r, kin_vid *pairs, uint32_t *n)
{
    const rec_frame *f = r->top;
    *n = 0;
    for (int i = 0; i < f->nlocals; i++) {
        pairs[(*n)++] = rec_const(r, PyTuple_GET_ITEM(f->code->co_localsplusnames, i));
        if (!read_variable(r, f, i, &pairs[(*n)++]))
            return false;
    }
    return true;
}

static kin_vid
new_names(rec *r, kin_vid *pairs, uint32_t n)
{
    uint32_t bound = 0;
    for (uint32_t i = 0; i < n; i += 2)
        if (pairs[i + 1] != 0) {
            pairs[bound++] = pairs[i];
            pairs[bound++] = pairs[i + 1];
        }
    kin_vid dict = rec_step_out(r, KIN_STEP_BUILD_MAP, KIN_STEP_PURE, pairs, bound);
    rec_virtual *f = rec_make_virtual(r, dict, VIRTUAL_DICT, pairs, bound, true);
    r->info.at[dict].type = &PyDict_Type;
    if (f != NULL && kin_frames_have_namespaces()) { /* code that looks at the frame may change it */
        f->escaped = true;
        r->top->names = dict;
        if (kin_vec_push(&r->escapees, dict) != KIN_OK)
            r->status = KIN_NOMEM;
    }
    return dict;
}

static void
fill_names(rec *r, kin_vid dict, const kin_vid *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2) {
        const kin_vid args[3] = {dict, pairs[i], pairs[i + 1]};
        PyObject *name = O(r, pairs[i]);
        if (pairs[i + 1] != 0) {
            rec_step(r, KIN_STEP_SET_SUBSCR, KIN_STEP_MUTATES, args, 3);
            rec_pairs_put(r, VIRTUAL(r, dict), pairs[i], pairs[i + 1]);
        } else if (rec_pairs_find(r, VIRTUAL(r, dict), name) != NULL) {
            rec_step(r, KIN_STEP_DEL_SUBSCR, KIN_STEP_MUTATES, args, 2);
            rec_pairs_drop(r, VIRTUAL(r, dict), name);
        }
    }
    rec_changed(r, dict);
}

bool
rec_model_locals(rec *r, const rec_args *a)
{
    const rec_frame *f = r->top;
    kin_vid pairs[2 * MOST_NAMES], names = f->names;
    uint32_t n, start = r->t->steps.len;
    bool plain = (f->code->co_flags & (CO_OPTIMIZED | CO_NEWLOCALS)) == (CO_OPTIMIZED | CO_NEWLOCALS) && f->gen == NULL && f->f != NULL;
    if (a->npos || a->nkw || !plain || r->region != NULL || f->nlocals > MOST_NAMES || (names != 0 && rec_exact_dict(r, names) == NULL))
        return false;
    if (!read_variables(r, pairs, &n)) {
        rec_truncate(r, start);
        return false;
    }
    if (names != 0)
        fill_names(r, names, pairs, n);
    else
        names = new_names(r, pairs, n);
    return rec_model_value(r, a, names);
}

const rec_method_row rec_namespace_rows[] = {{"locals", rec_model_locals}, {NULL, NULL}};
