/* Rules for instructions that create objects: displays and what extends them, slices, functions, formatted strings. */
#include "core/diag/breaks.h"
#include "py/iterators/iterators.h"
#include "py/objects/objects.h"
#include "py/rules/rules.h"
#include "py/torchcalls/torchcalls.h"

/* -- new objects -------------------------------------------------------------------------------------------------------- */

static void
build(rec *r, kin_step_kind kind, virtual_kind virtual, PyTypeObject *type, uint32_t n)
{
    kin_vid *items = r->top->slots + r->top->nlocals + r->top->sp - n;
    kin_vid out = rec_step_out(r, kind, KIN_STEP_PURE, items, n);
    rec_make_virtual(r, out, virtual, items, n, true);
    r->info.at[out].type = type;
    rec_drop(r, (int)n);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

static void
op_build_tuple(rec *r)
{
    build(r, KIN_STEP_BUILD_TUPLE, VIRTUAL_TUPLE, &PyTuple_Type, (uint32_t)r->top->arg);
}

/* Keys of a dict display: constants keep its contents known; other keys may have hashes of their own. */
static bool
keys_known(rec *r, const kin_vid *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2)
        if (!rec_is_known_key(r, pairs[i]) || rec_need_const(r, pairs[i]) == 0)
            return false;
    return true;
}

/* Are the values hashed and compared without code of the program, and will be at replay? */
static bool
hashes_run_no_code(rec *r, const kin_vid *vids, uint32_t n, uint32_t stride)
{
    for (uint32_t i = 0; i < n; i += stride) {
        if (!rec_need_no_code(r, vids[i], false))
            return false;
        if (VIRTUAL(r, vids[i]) == NULL && !rec_is_const(r, vids[i]))
            rec_need_type(r, vids[i]);
    }
    return true;
}

/* Code of the program ran below the current instruction, or may at replay. */
static void
expect_code(rec *r)
{
    rec_forget_contents(r);
    r->skip_expected = true;
}

static void
build_map(rec *r, kin_vid *pairs, uint32_t n, int ndrop)
{
    bool known = keys_known(r, pairs, n), no_code = known || hashes_run_no_code(r, pairs, n, 2);
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_MAP, known ? KIN_STEP_PURE : no_code ? 0u : KIN_STEP_OPAQUE, pairs, n);
    if (!no_code)
        expect_code(r);
    rec_virtual *f = rec_make_virtual(r, out, VIRTUAL_DICT, pairs, known ? 0 : n, known);
    for (uint32_t i = 0; f != NULL && known && i < n; i += 2)
        rec_pairs_put(r, f, rec_as_const(r, pairs[i]), pairs[i + 1]);
    r->info.at[out].type = &PyDict_Type;
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

static void
op_build_map(rec *r)
{
    uint32_t n = 2 * (uint32_t)r->top->arg;
    build_map(r, r->top->slots + r->top->nlocals + r->top->sp - n, n, (int)n);
}

static void
op_build_map_of_names(rec *r)
{
    uint32_t n = (uint32_t)r->top->arg;
    PyObject *keys = rec_stack_obj(r, 0);
    kin_vid *pairs = malloc((2 * n + 1) * sizeof *pairs);
    if (pairs == NULL) {
        r->status = KIN_NOMEM;
        return;
    }
    for (uint32_t i = 0; i < n; i++) {
        pairs[2 * i] = rec_const(r, PyTuple_GET_ITEM(keys, i));
        pairs[2 * i + 1] = rec_peek(r, (int)(n - i));
    }
    build_map(r, pairs, 2 * n, (int)n + 1);
    free(pairs);
}

static void
op_build_set(rec *r)
{
    uint32_t n = (uint32_t)r->top->arg;
    kin_vid *items = r->top->slots + r->top->nlocals + r->top->sp - n;
    bool no_code = hashes_run_no_code(r, items, n, 1);
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_SET, no_code ? 0 : KIN_STEP_OPAQUE, items, n);
    if (!no_code)
        expect_code(r);
    rec_make_virtual(r, out, VIRTUAL_SET, items, n, false);
    r->info.at[out].type = &PySet_Type;
    rec_drop(r, (int)n);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

static void
op_build_slice(rec *r)
{
    uint32_t n = (uint32_t)r->top->arg;
    kin_vid *items = r->top->slots + r->top->nlocals + r->top->sp - n;
    bool all_const = true;
    for (uint32_t i = 0; i < n; i++)
        all_const = all_const && kin_is_exact_immutable(O(r, items[i])) && rec_can_const(r, items[i]);
    if (all_const) {
        for (uint32_t i = 0; i < n; i++)
            rec_need_const(r, items[i]);
        rec_drop(r, (int)n);
        rec_await_const(r);
        return;
    }
    build(r, KIN_STEP_BUILD_SLICE, VIRTUAL_SLICE, &PySlice_Type, n);
}

/* Parts as BUILD_FUNCTION takes them, in the place of what is on the stack. */
static void
build_function(rec *r, const kin_vid *args, uint32_t n, int ndrop)
{
    kin_vid out = rec_build_function(r, args, n, ((PyCodeObject *)O(r, args[KIN_FUNCTION_CODE]))->co_qualname);
    rec_drop(r, ndrop);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

static void
op_make_function(rec *r)
{
    int flags = r->top->arg, i = 0;
    kin_vid code = rec_peek(r, i++);
    kin_vid closure = flags & 8 ? rec_peek(r, i++) : 0;
    kin_vid annotations = flags & 4 ? rec_peek(r, i++) : 0;
    kin_vid kwdefaults = flags & 2 ? rec_peek(r, i++) : 0;
    kin_vid defaults = flags & 1 ? rec_peek(r, i++) : 0;
    kin_vid args[KIN_FUNCTION_ANNOTATE] = {code, rec_frame_globals(r), defaults, kwdefaults, annotations, closure};
    build_function(r, args, KIN_FUNCTION_ANNOTATE, i);
}

/* From 3.13 on a function gets its parts one after the other, right behind the instruction that makes it and before anybody else has it: the
 * same function, made with one part more. */
static void
op_set_function_part(rec *r)
{
    static const struct {
        int bit, at;
    } places[] = {{1, KIN_FUNCTION_DEFAULTS}, {2, KIN_FUNCTION_KWDEFAULTS}, {4, KIN_FUNCTION_ANNOTATIONS}, {8, KIN_FUNCTION_CLOSURE},
                {16, KIN_FUNCTION_ANNOTATE}};
    kin_vid func = rec_peek(r, 0), args[KIN_FUNCTION_PARTS] = {0};
    const kin_val *val = &r->t->vals.at[func];
    const kin_step *made = val->kind == KIN_VAL_STEP ? &r->t->steps.at[val->step] : NULL;
    if (made == NULL || made->kind != KIN_STEP_BUILD_FUNCTION) {
        rec_stop(r, "a part of a function that was not made here");
        return;
    }
    memcpy(args, r->t->vids.at + made->args, made->nargs * sizeof *args);
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (places[i].bit == r->top->arg)
            args[places[i].at] = rec_peek(r, 1);
    build_function(r, args, args[KIN_FUNCTION_ANNOTATE] != 0 ? KIN_FUNCTION_PARTS : KIN_FUNCTION_ANNOTATE, 2);
}

/* -- growing displays: LIST_APPEND, LIST_EXTEND, SET_ADD, MAP_ADD, DICT_UPDATE, DICT_MERGE ---------------------------- */

static void
op_list_append(rec *r)
{
    kin_vid v = rec_peek(r, 0), list = rec_peek(r, r->top->arg);
    kin_vid args[2] = {list, v};
    rec_step(r, KIN_STEP_LIST_APPEND, KIN_STEP_MUTATES, args, 2);
    rec_end_if_read(r, list);
    if (VIRTUAL(r, list) && !rec_virtual_push(VIRTUAL(r, list), v))
        r->status = KIN_NOMEM;
    rec_drop(r, 1);
}

static void
op_set_grow(rec *r, kin_step_kind kind)
{
    kin_vid args[2] = {rec_peek(r, r->top->arg), rec_peek(r, 0)};
    bool no_code = (kind == KIN_STEP_SET_ADD || rec_is_plain_value(O(r, args[1]))) && hashes_run_no_code(r, args + 1, 1, 1);
    rec_step(r, kind, no_code ? KIN_STEP_MUTATES : KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, 2);
    rec_end_if_read(r, args[0]);
    if (VIRTUAL(r, args[0]))
        VIRTUAL(r, args[0])->known = false;
    if (!no_code)
        expect_code(r);
    rec_drop(r, 1);
}

static void
op_map_add(rec *r)
{
    kin_vid args[3] = {rec_peek(r, r->top->arg + 1), rec_peek(r, 1), rec_peek(r, 0)};
    rec_virtual *f = VIRTUAL(r, args[0]);
    bool known = f && f->known && rec_is_known_key(r, args[1]) && rec_need_const(r, args[1]);
    bool no_code = known || hashes_run_no_code(r, args + 1, 1, 1);
    rec_step(r, KIN_STEP_SET_SUBSCR, no_code ? KIN_STEP_MUTATES : KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, 3);
    rec_end_if_read(r, args[0]);
    if (known)
        rec_pairs_put(r, f, rec_as_const(r, args[1]), args[2]);
    else if (f)
        f->known = false;
    if (!no_code)
        expect_code(r);
    rec_drop(r, 2);
}

/* Pairs behind those of the display. */
static void
put_behind(rec *r, rec_virtual *f, const kin_vid *pairs, uint32_t n)
{
    for (uint32_t i = 0; i < n; i += 2) {
        uint32_t j = 0;
        while (j < f->n && !kin_exact_equal(O(r, f->items[j]), O(r, pairs[i])))
            j += 2;
        if (j < f->n)
            f->items[j + 1] = pairs[i + 1];
        else if (!rec_virtual_push(f, pairs[i]) || !rec_virtual_push(f, pairs[i + 1]))
            r->status = KIN_NOMEM;
    }
}

static void
op_dict_grow(rec *r, kin_step_kind kind)
{
    kin_vid v = rec_peek(r, 0), dict = rec_peek(r, r->top->arg), from = rec_proxied(r, v);
    kin_vid args[3] = {dict, v, 0}, *pairs = NULL;
    uint32_t n = 0;
    if (kind == KIN_STEP_DICT_MERGE)
        args[2] = rec_peek(r, r->top->arg + 2);
    rec_virtual *f = VIRTUAL(r, dict);
    bool known = f && f->known && rec_pairs_of(r, from, &pairs, &n);
    bool no_code = known || (rec_copy_runs_no_code(r, v) && hashes_run_no_code(r, &v, 1, 1));
    if (!no_code) {
        int row = !rec_copy_runs_no_code(r, from) && rec_values_hold_tensor(r, v) ? KIN_ROW_BUILTIN_CALL : -1;
        if (!rec_consume_display(r, dict, v, row))
            rec_grow_opaquely(r, kind, v, row);
        return;
    }
    rec_step(r, kind, KIN_STEP_MUTATES, args, kind == KIN_STEP_DICT_MERGE ? 3 : 2);
    rec_end_if_read(r, dict);
    if (known)
        put_behind(r, f, pairs, n);
    else if (f)
        f->known = false;
    free(pairs);
    rec_drop(r, 1);
}

static void
op_list_to_tuple(rec *r)
{
    kin_vid v = rec_peek(r, 0);
    rec_virtual *f = VIRTUAL(r, v);
    kin_vid out = rec_step_out(r, KIN_STEP_LIST_TO_TUPLE, KIN_STEP_PURE, &v, 1);
    rec_make_virtual(r, out, VIRTUAL_TUPLE, f ? f->items : NULL, f ? f->n : 0, f && f->known);
    r->info.at[out].type = &PyTuple_Type;
    rec_drop(r, 1);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* -- text ------------------------------------------------------------------------------------------------------------- */

static void
op_format(rec *r)
{
    int n = 1 + r->top->extra;
    kin_vid args[2] = {rec_peek(r, n - 1), n == 2 ? rec_peek(r, 0) : 0};
    bool fold = kin_is_exact_immutable(O(r, args[0])) && rec_is_value(O(r, args[0])) && rec_can_const(r, args[0]) &&
                (n == 1 || rec_can_const(r, args[1]));
    if (fold || (rec_is_const(r, args[0]) && Py_TYPE(O(r, args[0])) == kin_size_type())) {
        rec_need_const(r, args[0]);
        if (n == 2)
            rec_need_const(r, args[1]);
        rec_drop(r, n);
        rec_await_const(r);
        return;
    }
    bool no_code = rec_is_plain_value(O(r, args[0])) && kin_is_exact_immutable(O(r, args[0])) &&
                 rec_need_no_code(r, args[0], true);
    if (no_code)
        rec_need_type(r, args[0]);
    bool words = !no_code && n == 1 && rec_words_run_no_code(r, args[0], (r->top->arg & 3) > 1); /* {e}, {e!s}, {e!r} */
    no_code = no_code || words;
    bool of_tensor = !no_code && args[0] != 0 && r->t->vals.at[args[0]].note != 0 && rec_kind_of_tensor(O(r, args[0])) == REC_TENSOR_PLAIN;
    if (of_tensor)
        rec_need_type(r, args[0]);
    r->reads_words = words;
    kin_vid out = rec_step_out(r, KIN_STEP_FORMAT, no_code ? 0 : of_tensor ? KIN_STEP_OPAQUE | KIN_STEP_REPORTS : KIN_STEP_OPAQUE, args, (uint32_t)n);
    r->reads_words = false;
    uint32_t s = r->t->vals.at[out].step;
    rec_written_note(r, s, of_tensor && r->written != NULL); /* a text can be made twice */
    r->t->steps.at[s].imm = (uint8_t)(r->top->arg | r->top->extra << 2);
    r->info.at[out].type = &PyUnicode_Type;
    if (!no_code) {
        r->skip_expected = true;
        if (rec_any_tensor(r, args, 1))
            r->skip_expected = true;
        rec_forget_contents(r);
    }
    rec_drop(r, n);
    rec_await_result(r, out, s);
}

static void
op_build_string(rec *r)
{
    uint32_t n = (uint32_t)r->top->arg;
    kin_vid *items = r->top->slots + r->top->nlocals + r->top->sp - n;
    bool all_const = true;
    for (uint32_t i = 0; i < n; i++)
        all_const = all_const && rec_is_const(r, items[i]);
    if (all_const) {
        rec_drop(r, (int)n);
        rec_await_const(r);
        return;
    }
    kin_vid out = rec_step_out(r, KIN_STEP_BUILD_STRING, 0, items, n);
    r->info.at[out].type = &PyUnicode_Type;
    rec_drop(r, (int)n);
    rec_await_result(r, out, r->t->vals.at[out].step);
}

/* -- dispatch ---------------------------------------------------------------------------------------------------------------- */

bool
rec_op_build(rec *r)
{
    switch (r->top->op) {
    case KIN_DO_BUILD_TUPLE: op_build_tuple(r); break;
    case KIN_DO_BUILD_LIST: build(r, KIN_STEP_BUILD_LIST, VIRTUAL_LIST, &PyList_Type, (uint32_t)r->top->arg); break;
    case KIN_DO_BUILD_SET: op_build_set(r); break;
    case KIN_DO_BUILD_MAP: op_build_map(r); break;
    case KIN_DO_BUILD_MAP_OF_NAMES: op_build_map_of_names(r); break;
    case KIN_DO_BUILD_SLICE: op_build_slice(r); break;
    case KIN_DO_BUILD_STRING: op_build_string(r); break;
    case KIN_DO_FORMAT: op_format(r); break;
    case KIN_DO_CONVERT: op_format(r); break; /* a text, which is its own format */
    case KIN_DO_MAKE_FUNCTION: op_make_function(r); break;
    case KIN_DO_SET_FUNCTION_PART: op_set_function_part(r); break;
    case KIN_DO_LIST_APPEND: op_list_append(r); break;
    case KIN_DO_LIST_EXTEND: rec_op_list_extend(r); break;
    case KIN_DO_SET_ADD: op_set_grow(r, KIN_STEP_SET_ADD); break;
    case KIN_DO_SET_UPDATE: op_set_grow(r, KIN_STEP_SET_UPDATE); break;
    case KIN_DO_MAP_ADD: op_map_add(r); break;
    case KIN_DO_DICT_UPDATE: op_dict_grow(r, KIN_STEP_DICT_UPDATE); break;
    case KIN_DO_DICT_MERGE: op_dict_grow(r, KIN_STEP_DICT_MERGE); break;
    case KIN_DO_LIST_TO_TUPLE: op_list_to_tuple(r); break;
    default: return false;
    }
    return true;
}
