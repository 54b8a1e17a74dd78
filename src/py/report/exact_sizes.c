/* Which sizes that are marked as dynamic are tested exactly (exact_sizes.h).
 *
 * A size is fixed by a guard that names it, by a test of the tensor's metadata, by an end of a loop that is written out over it, or by tests of numbers that are
 * computed from it: each of them leaves an interval, and the one that leaves a single value fixes the size (`i < n` four times, then not).
 */
#include "py/report/exact_sizes.h"

#include "core/bytecode/canon.h"
#include "py/aten/tensor.h"
#include "py/compat/kinds.h"
#include "py/entry/line.h"
#include "py/report/guard_text_priv.h"

#include <stdlib.h>
#include <string.h>

enum { MOST_DEPTH = 16 };

/* factor * (a marked size) + constant; without one, a constant. */
typedef struct {
    const kin_known_size *size;
    int64_t factor, constant;
} linear;

typedef struct {
    const kin_known_size *size;
    int64_t least, most;
} interval;

typedef struct {
    kin_entry *v;
    KIN_VEC(interval) known;
    bool side; /* a side trace: the sizes of its call are not those of the first call */
} finder;

static const kin_step *
maker_of(const kin_entry *v, kin_vid vid)
{
    const kin_val *val = vid != 0 && vid < v->trace.vals.len ? &v->trace.vals.at[vid] : NULL;
    return val != NULL && val->kind == KIN_VAL_STEP && val->step < v->trace.steps.len ? &v->trace.steps.at[val->step] : NULL;
}

static PyObject *
constant_of(const kin_entry *v, kin_vid vid)
{
    bool known = vid != 0 && vid < v->trace.vals.len && v->trace.vals.at[vid].kind == KIN_VAL_CONST;
    return known ? kin_refs_get(&v->refs, v->trace.vals.at[vid].key) : NULL;
}

static bool
read_int(PyObject *obj, int64_t *out)
{
    int overflow = 0;
    if (obj == NULL || !PyLong_CheckExact(obj))
        return false;
    *out = PyLong_AsLongLongAndOverflow(obj, &overflow);
    return overflow == 0;
}

/* -- whose size ----------------------------------------------------------------------------------------------------- */

/* A tensor's sizes as they were recorded ("f32[4, 3][3, 1]cpu"), as many as fit. -1: they are not known. */
static int
recorded_sizes(const kin_entry *v, kin_vid tensor, int64_t *sizes, int most)
{
    PyObject *note = tensor != 0 && tensor < v->trace.vals.len ? kin_refs_get(&v->refs, v->trace.vals.at[tensor].note) : NULL;
    const char *at = note != NULL && PyUnicode_Check(note) ? strchr(kin_utf8(note), '[') : NULL;
    int n = 0;
    if (at == NULL)
        return -1;
    for (char *end = NULL; n < most && *at != ']'; at = end) {
        sizes[n] = strtoll(at + 1, &end, 10);
        if (end == at + 1)
            return n;
        n++;
    }
    return n;
}

static const kin_known_size *
find_declared(const kin_entry *v, kin_vid tensor, int dim, int64_t size)
{
    for (uint32_t i = 0; i < v->declared.len; i++) {
        const kin_known_size *d = &v->declared.at[i];
        if (d->tensor == tensor && (dim < 0 || d->dim == dim) && d->size == size)
            return d;
    }
    return NULL;
}

/* The marked size of that length from which the tensor's sizes follow: its own, or that of a tensor it is computed from. */
static const kin_known_size *
trace_back(const kin_entry *v, kin_vid tensor, int dim, int64_t size, int depth)
{
    const kin_step *s = maker_of(v, tensor);
    if (s == NULL)
        return find_declared(v, tensor, dim, size);
    const kin_known_size *found = NULL;
    for (uint32_t i = 0; depth < MOST_DEPTH && found == NULL && i < s->nargs; i++)
        found = trace_back(v, v->trace.vids.at[s->args + i], -1, size, depth + 1);
    return found;
}

/* What a SIZE step asks for. */
static const kin_known_size *
asked_size(const kin_entry *v, const kin_step *s)
{
    kin_vid tensor = v->trace.vids.at[s->args];
    if (maker_of(v, tensor) == NULL) {
        for (uint32_t i = 0; i < v->declared.len; i++)
            if (v->declared.at[i].tensor == tensor && v->declared.at[i].dim == s->imm)
                return &v->declared.at[i];
        return NULL;
    }
    int64_t sizes[64];
    int n = recorded_sizes(v, tensor, sizes, 64);
    return s->imm < n ? trace_back(v, tensor, s->imm, sizes[s->imm], 0) : NULL;
}

/* -- numbers that are computed from sizes --------------------------------------------------------------------------- */

static bool
add(const linear *a, const linear *b, int64_t sign, linear *out)
{
    int64_t factor, constant;
    if (a->size != NULL && b->size != NULL && a->size != b->size)
        return false;
    out->size = a->size != NULL ? a->size : b->size;
    return !__builtin_mul_overflow(b->factor, sign, &factor) && !__builtin_mul_overflow(b->constant, sign, &constant) &&
           !__builtin_add_overflow(a->factor, factor, &out->factor) && !__builtin_add_overflow(a->constant, constant, &out->constant);
}

static bool
scale(const linear *a, int64_t by, linear *out)
{
    out->size = a->size;
    return !__builtin_mul_overflow(a->factor, by, &out->factor) && !__builtin_mul_overflow(a->constant, by, &out->constant);
}

static bool linear_of(const kin_entry *v, kin_vid vid, int depth, linear *out);

static bool
combine(const kin_entry *v, const kin_step *s, int depth, linear *out)
{
    const kin_vid *args = v->trace.vids.at + s->args;
    linear a, b;
    if (s->nargs != 2 || !linear_of(v, args[0], depth + 1, &a) || !linear_of(v, args[1], depth + 1, &b))
        return false;
    switch (s->imm % KIN_BINARY_INPLACE) {
    case KIN_BINARY_ADD:
        return add(&a, &b, 1, out);
    case KIN_BINARY_SUBTRACT:
        return add(&a, &b, -1, out);
    case KIN_BINARY_MULTIPLY:
        return b.factor == 0 ? scale(&a, b.constant, out) : a.factor == 0 && scale(&b, a.constant, out);
    default:
        return false;
    }
}

static bool
linear_of(const kin_entry *v, kin_vid vid, int depth, linear *out)
{
    const kin_step *s = maker_of(v, vid);
    *out = (linear){0};
    if (depth > MOST_DEPTH)
        return false;
    if (s == NULL)
        return read_int(constant_of(v, vid), &out->constant);
    if (s->kind == KIN_STEP_SIZE) {
        *out = (linear){asked_size(v, s), 1, 0};
        return out->size != NULL;
    }
    linear of;
    if (s->kind == KIN_STEP_UNARY && s->imm == KIN_UNARY_NEGATIVE)
        return linear_of(v, v->trace.vids.at[s->args], depth + 1, &of) && scale(&of, -1, out);
    return s->kind == KIN_STEP_BINARY && combine(v, s, depth, out);
}

static PyObject *
path_of(const kin_entry *v, kin_vid tensor)
{
    PyObject *path = kin_path_text(v, tensor, true);
    if (path == NULL)
        PyErr_Clear();
    return path;
}

static bool
is_same_size(const kin_entry *v, const kin_exact_size *known, const kin_known_size *size)
{
    if (known->dim != size->dim)
        return false;
    PyObject *a = path_of(v, known->tensor), *b = path_of(v, size->tensor); /* read again in a later epoch, it is another value */
    bool same = a != NULL && b != NULL && PyUnicode_Compare(a, b) == 0;
    Py_XDECREF(a);
    Py_XDECREF(b);
    return same;
}

static void
note(kin_entry *v, const kin_known_size *size, int64_t value, kin_exact_reason why, uint32_t snap, kin_ref code, int line)
{
    if (size == NULL)
        return;
    for (uint32_t i = 0; i < v->exact.len; i++)
        if (is_same_size(v, &v->exact.at[i], size))
            return;
    kin_exact_size exact = {.tensor = size->tensor, .dim = (uint8_t)size->dim, .size = value, .why = why, .snap = snap, .code = code, .line = line};
    (void)!kin_vec_push(&v->exact, exact); /* without memory nobody is told */
}

/* -- what fixes it -------------------------------------------------------------------------------------------------- */

static void
note_step(kin_entry *v, const kin_step *s, const kin_known_size *size, int64_t value, kin_exact_reason why)
{
    kin_line place = kin_snap_line(v, s->snap);
    note(v, size, value, why, s->snap, place.code != NULL ? v->trace.snaps.at[s->snap].code : 0, place.line);
}

static interval *
interval_of(finder *f, const kin_known_size *size)
{
    for (uint32_t i = 0; i < f->known.len; i++)
        if (f->known.at[i].size == size)
            return &f->known.at[i];
    interval all = {.size = size, .least = 2, .most = INT64_MAX}; /* 0 and 1 have recordings of their own */
    return kin_vec_push(&f->known, all) == KIN_OK ? &f->known.at[f->known.len - 1] : NULL;
}

static int64_t
divide_down(int64_t a, int64_t b)
{
    return a / b - (a % b != 0 && a < 0);
}

/* factor * size op right, for a positive factor. */
static void
narrow(interval *known, int64_t factor, int op, int64_t right)
{
    int64_t down = divide_down(right, factor), up = down + (down * factor != right);
    if (op == Py_EQ && down != up)
        return;
    if (op == Py_EQ || op == Py_GE || op == Py_GT) {
        int64_t least = op == Py_GT ? down + 1 : up;
        known->least = least > known->least ? least : known->least;
    }
    if (op == Py_EQ || op == Py_LE || op == Py_LT) {
        int64_t most = op == Py_LT ? up - 1 : down;
        known->most = most < known->most ? most : known->most;
    }
}

static int
mirrored(int op)
{
    return op == Py_LT ? Py_GT : op == Py_GT ? Py_LT : op == Py_LE ? Py_GE : op == Py_GE ? Py_LE : op;
}

static int
negated(int op)
{
    static const int other[] = {[Py_LT] = Py_GE, [Py_LE] = Py_GT, [Py_EQ] = Py_NE, [Py_NE] = Py_EQ, [Py_GT] = Py_LE, [Py_GE] = Py_LT};
    return other[op];
}

/* The step is left unless `a op b` holds. */
static void
decide(finder *f, const kin_step *s, const linear *a, int op, const linear *b, kin_exact_reason why)
{
    linear difference;
    int64_t right;
    if (op == Py_NE || !add(a, b, -1, &difference) || difference.size == NULL || difference.factor == 0 || difference.constant == INT64_MIN)
        return;
    right = -difference.constant;
    if (difference.factor < 0) {
        if (difference.factor == INT64_MIN || right == INT64_MIN)
            return;
        difference.factor = -difference.factor;
        right = -right;
        op = mirrored(op);
    }
    interval *known = interval_of(f, difference.size);
    if (known == NULL)
        return;
    narrow(known, difference.factor, op, right);
    if (known->least == known->most)
        note_step(f->v, s, difference.size, known->least, why);
}

/* A comparison, or its negation, that must come out as `holds`. */
static void
decide_truth(finder *f, const kin_step *s, kin_vid vid, bool holds, int depth)
{
    const kin_step *maker = maker_of(f->v, vid);
    if (maker == NULL || depth > MOST_DEPTH)
        return;
    const kin_vid *args = f->v->trace.vids.at + maker->args;
    if (maker->kind == KIN_STEP_UNARY && maker->imm == KIN_UNARY_NOT)
        decide_truth(f, s, args[0], !holds, depth + 1);
    linear a, b;
    int op = maker->imm & ~KIN_COMPARE_TO_BOOL;
    if (maker->kind == KIN_STEP_COMPARE && op <= Py_GE && linear_of(f->v, args[0], 0, &a) && linear_of(f->v, args[1], 0, &b))
        decide(f, s, &a, holds ? op : negated(op), &b, KIN_EXACT_COMPARED);
}

/* The end of a loop over range(size), written out. */
static void
decide_rounds(finder *f, const kin_step *s, const kin_step *next)
{
    const kin_trace *t = &f->v->trace;
    const kin_step *iter = next != NULL && next->kind == KIN_STEP_NEXT ? maker_of(f->v, t->vids.at[next->args]) : NULL;
    const kin_step *range = iter != NULL && iter->kind == KIN_STEP_ITER ? maker_of(f->v, t->vids.at[iter->args]) : NULL;
    if (range == NULL || range->kind != KIN_STEP_CALL || constant_of(f->v, t->vids.at[range->args]) != (PyObject *)&PyRange_Type)
        return;
    linear number;
    for (uint32_t i = 1; i < range->nargs; i++)
        if (!f->side && linear_of(f->v, t->vids.at[range->args + i], 0, &number) && number.factor != 0)
            note_step(f->v, s, number.size, number.size->size, KIN_EXACT_ROUNDS);
}

static void
decide_metadata(finder *f, const kin_step *s, kin_vid tensor)
{
    PyObject *record = kin_refs_get(&f->v->refs, s->ref);
    for (int d = 0; record != NULL && d < 64; d++) {
        int64_t size = kin_meta_size(record, d);
        if (size > 1)
            note_step(f->v, s, trace_back(f->v, tensor, d, size, 0), size, KIN_EXACT_ROWS);
    }
}

/* The number of results of a torch call: is each of them a row of a tensor (unbind)? Parts of a tensor have as many dims as the whole. */
static void
decide_length(finder *f, const kin_step *s, kin_vid results)
{
    const kin_trace *t = &f->v->trace;
    const kin_step *call = maker_of(f->v, results), *item = NULL;
    int64_t sizes[64];
    for (uint32_t i = (uint32_t)(s - t->steps.at); i < t->steps.len && item == NULL; i++)
        if (t->steps.at[i].kind == KIN_STEP_SUBSCR && t->vids.at[t->steps.at[i].args] == results)
            item = &t->steps.at[i];
    int rank = item != NULL && call != NULL && call->flags & KIN_STEP_TORCH ? recorded_sizes(f->v, item->out, sizes, 64) : -1;
    for (uint32_t i = 1; rank >= 0 && i < call->nargs; i++)
        if (recorded_sizes(f->v, t->vids.at[call->args + i], sizes, 64) == rank + 1)
            note_step(f->v, s, trace_back(f->v, t->vids.at[call->args + i], -1, s->num, 0), s->num, KIN_EXACT_ROWS);
}

static void
look_at_check(finder *f, const kin_step *s)
{
    kin_vid vid = f->v->trace.vids.at[s->args];
    PyObject *ref = kin_refs_get(&f->v->refs, s->ref);
    linear number, value = {0};
    switch ((kin_check)s->imm) {
    case KIN_CHECK_TRUE: case KIN_CHECK_FALSE: case KIN_CHECK_WAS_TRUE: case KIN_CHECK_WAS_FALSE:
        decide_truth(f, s, vid, s->imm == KIN_CHECK_TRUE || s->imm == KIN_CHECK_WAS_TRUE, 0);
        break;
    case KIN_CHECK_IS:
        if (ref != NULL && PyBool_Check(ref))
            decide_truth(f, s, vid, ref == Py_True, 0);
        break;
    case KIN_CHECK_EQ:
        if (read_int(ref, &value.constant) && linear_of(f->v, vid, 0, &number))
            decide(f, s, &number, Py_EQ, &value, KIN_EXACT_NEEDED);
        break;
    case KIN_CHECK_LEN:
        decide_length(f, s, vid);
        break;
    case KIN_CHECK_NULL:
        decide_rounds(f, s, maker_of(f->v, vid));
        break;
    case KIN_CHECK_META:
        decide_metadata(f, s, vid);
        break;
    default:
        break;
    }
}

/* Guards that name the size: it was not left open at all. */
static void
look_at_fact(kin_entry *v, const kin_fact *fact)
{
    PyObject *record = kin_refs_get(&v->refs, fact->ref), *code = kin_refs_get(&v->refs, fact->code);
    for (int d = 0; fact->kind == KIN_FACT_T_META && record != NULL && d < 64; d++) {
        int64_t size = kin_meta_size(record, d);
        bool known = code != NULL && PyCode_Check(code);
        if (size > 1)
            note(v, find_declared(v, fact->vid, d, size), size, KIN_EXACT_STATIC, 0, fact->code, known ? PyCode_Addr2Line((PyCodeObject *)code, (int)fact->offset) : 0);
    }
}

void
kin_exact_sizes_find(kin_entry *v, uint32_t first)
{
    finder f = {.v = v, .side = first > 0};
    if (v->declared.len == 0)
        return;
    for (uint32_t i = first; i < v->trace.steps.len; i++)
        if (v->trace.steps.at[i].kind == KIN_STEP_CHECK)
            look_at_check(&f, &v->trace.steps.at[i]);
    for (uint32_t i = 0; i < v->trace.facts.len; i++)
        look_at_fact(v, &v->trace.facts.at[i]);
    kin_vec_deinit(&f.known);
}

/* -- in words ------------------------------------------------------------------------------------------------------- */

PyObject *
kin_exact_size_source(const kin_entry *v, const kin_exact_size *exact)
{
    PyObject *path = kin_path_text(v, exact->tensor, true);
    PyObject *source = path != NULL ? PyUnicode_FromFormat("%U.shape[%d]", path, (int)exact->dim) : NULL;
    Py_XDECREF(path);
    return source;
}

PyObject *
kin_exact_size_text(const kin_entry *v, const kin_exact_size *exact)
{
    static const char *const why[] = {
        [KIN_EXACT_COMPARED] = "the comparison on this line comes out like this for one size only",
        [KIN_EXACT_NEEDED] = "this line needs its value, as a key, an index or a constant",
        [KIN_EXACT_ROWS] = "this line takes the tensor apart, into a fixed number of items",
        [KIN_EXACT_ROUNDS] = "the loop on this line is written out, round by round",
        [KIN_EXACT_STATIC] = "the function is compiled with dynamic=False",
    };
    PyObject *source = kin_exact_size_source(v, exact), *text = NULL;
    if (source != NULL && exact->why == KIN_EXACT_STATIC)
        text = PyUnicode_FromFormat("%U is marked with mark_dynamic, but it is tested exactly: it must be %lld, because %s. Each other size is recorded anew. "
                                    "To leave the size open, compile without dynamic=False.", source, (long long)exact->size, why[exact->why]);
    else if (source != NULL)
        text = PyUnicode_FromFormat("%U is marked with mark_dynamic, but it is tested exactly: it must be %lld, because %s. Calls with another size leave the "
                                    "recording here, and what they do instead is recorded as a branch of its own. To leave the size open, write the line so that it holds for every "
                                    "size; to keep it as it is, use maybe_mark_dynamic, or drop the mark.", source, (long long)exact->size, why[exact->why]);
    Py_XDECREF(source);
    return text;
}
