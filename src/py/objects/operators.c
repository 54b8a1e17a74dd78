/* Operators, identity and membership: folded for constants and known contents, turned into facts for values that are
 * read by path, executed again for everything else.
 */
#include "core/diag/breaks.h"
#include "py/compat/heap.h"
#include "py/objects/objects.h"
#include "py/torchcalls/torchcalls.h"

/* Exact builtin values whose operators run no user code, save through the elements they hold. */
bool
rec_is_plain_value(PyObject *obj)
{
    PyTypeObject *tp = Py_TYPE(obj);
    return kin_is_exact_immutable(obj) || tp == &PyList_Type || tp == &PyTuple_Type || tp == &PyDict_Type ||
           tp == &PySet_Type || tp == &PyFrozenSet_Type || tp == &PyRange_Type || tp == &PySlice_Type ||
           tp == &PyByteArray_Type || tp == &PyODict_Type || tp == &PyDictKeys_Type || tp == &PyDictItems_Type || tp == &PyDictValues_Type ||
           tp == &PyODictKeys_Type || tp == &PyODictItems_Type || tp == &PyODictValues_Type ||
           kin_heap_type_is(tp, "collections.deque") || tp == kin_size_type() || kin_heap_type_is(tp, "torch.device");
}

bool
rec_has_tensor(rec *r, const kin_vid *args, int n)
{
    for (int i = 0; i < n; i++)
        if (O(r, args[i]) != NULL && kin_is_tensor(O(r, args[i])))
            return true;
    return false;
}

bool
rec_can_fold(rec *r, kin_vid vid)
{
    return rec_can_const(r, vid) && !PyFunction_Check(O(r, vid)) && !PyModule_Check(O(r, vid));
}

/* Does comparing the object, and others of its class from now on, follow from which object it is? By identity, as object
 * and type do, or by a value that cannot change, as members of an IntEnum do. */
static bool
compares_as_constant(rec *r, kin_vid vid)
{
    static PyTypeObject *const types[] = {&PyBaseObject_Type, &PyType_Type, &PyLong_Type, &PyUnicode_Type, &PyFloat_Type,
                                          &PyBytes_Type};
    PyObject *obj = O(r, vid);
    PyTypeObject *tp = Py_TYPE(obj);
    bool known = false;
    for (size_t i = 0; i < sizeof types / sizeof *types; i++)
        known = known || tp->tp_richcompare == types[i]->tp_richcompare;
    if (!known)
        return kin_is_exact_immutable(obj);
    rec_class_version(r, tp);
    return true;
}

/* Does the operator give another number for each other one? What `%` or `>>` leave of it is perhaps one of a few. */
static bool
moves_on(int imm)
{
    int op = imm % KIN_BINARY_INPLACE_ADD;
    return op == KIN_BINARY_ADD || op == KIN_BINARY_SUBTRACT || op == KIN_BINARY_MULTIPLY;
}

static bool
divides(int imm)
{
    int op = imm % KIN_BINARY_INPLACE_ADD;
    return op == KIN_BINARY_FLOOR_DIVIDE || op == KIN_BINARY_REMAINDER;
}

/* What a size is divided by: a number of a module's that has not changed so far, such as a patch size, becomes a constant, so that it is known not to be 0; another size
 * is tested. */
static kin_vid
known_divisor(rec *r, const kin_vid *args, bool *tested)
{
    PyObject *left = O(r, args[0]), *right = O(r, args[1]);
    bool may_be_0 = PyLong_CheckExact(left) && PyLong_CheckExact(right) && r->info.at[args[0]].sized && !rec_is_const(r, args[1]);
    kin_vid known = may_be_0 && rec_can_const(r, args[1]) ? rec_need_const(r, args[1]) : 0;
    *tested = may_be_0 && known == 0 && !r->opt->custom && rec_is_size(r, args[1]) && rec_data_of(r, args[1]) == REC_NO_DATA && PyObject_IsTrue(right) == 1;
    if (*tested)
        rec_check(r, KIN_CHECK_TRUE, args[1], NULL, 0);
    return known != 0 ? known : args[1];
}

/* Arithmetic and comparisons of ints that always have an answer. */
static bool
cannot_raise(rec *r, kin_step_kind kind, int imm, const kin_vid *args, int n)
{
    if (kind == KIN_STEP_UNARY)
        return PyLong_CheckExact(O(r, args[0])) && imm != KIN_UNARY_NOT;
    if (n != 2 || !PyLong_CheckExact(O(r, args[0])) || !PyLong_CheckExact(O(r, args[1])))
        return false;
    if (kind == KIN_STEP_COMPARE)
        return true;
    return kind == KIN_STEP_BINARY &&
           (moves_on(imm) || (divides(imm) && rec_is_const(r, args[1]) && PyObject_IsTrue(O(r, args[1])) == 1));
}

/* Is a number among the operands that data decides, by itself? Those that follow from sizes may be asked for later. */
static bool
of_data(rec *r, const kin_vid *args, int n)
{
    for (int i = 0; i < n; i++)
        if (rec_data_of(r, args[i]) != REC_NO_DATA && r->t->vals.at[args[i]].kind == KIN_VAL_STEP &&
            r->t->steps.at[r->t->vals.at[args[i]].step].effects & KIN_FROM_DATA)
            return true;
    return false;
}

/* Leaves the operator as a step; new containers are virtual, contents unknown. */
void
rec_operator_step(rec *r, kin_step_kind kind, int imm, const kin_vid *operands, int n, PyTypeObject *result)
{
    kin_vid args[2] = {operands[0], n == 2 ? operands[1] : 0};
    bool no_code = true;
    bool format = kind == KIN_STEP_BINARY && PyUnicode_Check(O(r, args[0]));
    bool plays = kind == KIN_STEP_SUBSCR && rec_plays_builtin(O(r, args[0])) && kin_is_exact_immutable(O(r, args[1]));
    for (int i = plays; i < n; i++)
        no_code = no_code && rec_is_plain_value(O(r, args[i]));
    for (int i = kind == KIN_STEP_SUBSCR; no_code && i < n; i++)
        no_code = rec_need_no_code(r, args[i], format);
    if (plays && no_code)
        rec_need_played(r, args[0]);
    for (int i = plays; no_code && i < n; i++)
        if (VIRTUAL(r, args[i]) == NULL)
            rec_need_type(r, args[i]);
    bool tested = false;
    if (no_code && kind == KIN_STEP_BINARY && n == 2 && divides(imm))
        args[1] = known_divisor(r, args, &tested);
    bool pure = no_code && !of_data(r, args, n) && (tested || cannot_raise(r, kind, imm, args, n));
    kin_vid out = rec_step_out(r, kind, pure ? KIN_STEP_PURE : no_code ? 0 : KIN_STEP_OPAQUE, args, (uint32_t)n);
    uint32_t s = r->t->vals.at[out].step;
    r->t->steps.at[s].imm = (uint8_t)imm;
    if (pure && kind != KIN_STEP_COMPARE)
        result = &PyLong_Type;
    r->info.at[out].changes_each_call = r->info.at[out].changes_each_call && moves_on(imm);
    if (no_code)
        r->info.at[out].type = result;
    else {
        if (rec_any_tensor(r, args, (uint32_t)n))
            rec_break(r, s, KIN_ROW_OPAQUE_CALL);
        rec_forget_contents(r);
        r->skip_expected = true;
    }
    rec_drop(r, n);
    rec_await_result(r, out, s);
}

/* a + b of known lists or tuples: a new one with both contents. */
static bool
concatenate(rec *r, int imm, const kin_vid *args)
{
    enum { MOST = 250 };
    rec_virtual *a = VIRTUAL(r, args[0]), *b = VIRTUAL(r, args[1]);
    PyTypeObject *tp = Py_TYPE(O(r, args[0]));
    if (imm != 0 || tp != Py_TYPE(O(r, args[1])) || (tp != &PyTuple_Type && tp != &PyList_Type) || (!a && !b))
        return false;
    kin_vid *x = NULL, *y = NULL;
    uint32_t nx = 0, ny = 0;
    bool known = rec_items_of(r, args[0], &x, &nx) && rec_items_of(r, args[1], &y, &ny);
    bool tuple = tp == &PyTuple_Type, few = nx + ny <= MOST;
    if (known && tuple && (nx == 0 || ny == 0)) { /* no new one */
        rec_drop(r, 2);
        rec_push(r, args[nx == 0]);
    } else if (known) {
        kin_vid items[MOST];
        for (uint32_t i = 0; few && i < nx + ny; i++)
            items[i] = i < nx ? x[i] : y[i - nx];
        /* a list read late could have changed by then: only tuples may be sunk */
        kin_vid out = few ? rec_step_out(r, tuple ? KIN_STEP_BUILD_TUPLE : KIN_STEP_BUILD_LIST, KIN_STEP_PURE, items, nx + ny)
                          : rec_step_out(r, KIN_STEP_BINARY, tuple ? KIN_STEP_PURE : 0u, args, 2);
        rec_virtual *f = rec_make_virtual(r, out, tuple ? VIRTUAL_TUPLE : VIRTUAL_LIST, x, nx, true);
        for (uint32_t i = 0; f && i < ny; i++)
            rec_virtual_push(f, y[i]);
        r->info.at[out].type = tp;
        rec_drop(r, 2);
        rec_await_result(r, out, r->t->vals.at[out].step);
    }
    free(x);
    free(y);
    return known;
}

/* [a, b] * n, n * (a, b) with a constant n: a new list or tuple of the elements. */
static bool
repeat_items(rec *r, int imm, const kin_vid *args)
{
    enum { MULTIPLY = 5, MOST = 250 };
    int at = VIRTUAL(r, args[0]) == NULL;
    rec_virtual *f = VIRTUAL(r, args[at]);
    kin_vid items[MOST], number = args[1 - at];
    bool list = rec_known_list(r, args[at]) != NULL, tuple = f != NULL && f->kind == VIRTUAL_TUPLE && f->known && Py_IS_TYPE(O(r, args[at]), &PyTuple_Type);
    if (imm != MULTIPLY || (!list && !tuple) || !PyLong_CheckExact(O(r, number)) || !(rec_can_const(r, number) || rec_fix_number(r, number)))
        return false;
    int overflow;
    long times = PyLong_AsLongAndOverflow(O(r, number), &overflow);
    if (overflow != 0 || times > MOST || (times > 0 && f->n * (uint64_t)times > MOST))
        return false;
    uint32_t n = times > 0 ? f->n * (uint32_t)times : 0;
    if (tuple && (times == 1 || n == 0))
        return false; /* the tuple itself, or the empty one */
    rec_need_const(r, number);
    for (uint32_t i = 0; i < n; i++)
        items[i] = f->items[i % f->n];
    kin_vid out = tuple ? rec_build_tuple(r, items, n, NULL) : rec_step_out(r, KIN_STEP_BUILD_LIST, KIN_STEP_PURE, items, n);
    if (list)
        rec_make_virtual(r, out, VIRTUAL_LIST, items, n, true);
    r->info.at[out].type = list ? &PyList_Type : &PyTuple_Type;
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

void
rec_add_in_place(rec *r, const kin_vid *args, int imm, int row)
{
    uint32_t s = rec_step(r, KIN_STEP_BINARY, KIN_STEP_OPAQUE | KIN_STEP_EFFECT, args, 2);
    r->t->steps.at[s].imm = (uint8_t)imm;
    if (row >= 0)
        rec_break(r, s, row);
    if (VIRTUAL(r, args[0]) != NULL)
        VIRTUAL(r, args[0])->known = false;
    rec_forget_contents(r);
    r->skip_expected = true;
    rec_drop(r, 2);
    rec_push(r, args[0]);
}

/* Is a list extended by what code of the program makes of tensors? Then that is told as of list.extend(). */
static int
row_of_added(rec *r, int imm, const kin_vid *args)
{
    bool asks = imm == KIN_BINARY_INPLACE_ADD && PyList_CheckExact(O(r, args[0])) && !rec_is_plain_value(O(r, args[1]));
    return asks ? rec_opaque_row(r, rec_const(r, rec_list_extend()), args + 1, 1) : -1;
}

/* list += ..., dict |= ... change the left operand and return it. */
static bool
inplace_container(rec *r, int imm, const kin_vid *args)
{
    PyTypeObject *tp = Py_TYPE(O(r, args[0]));
    bool mutable_left = tp == &PyList_Type || tp == &PyDict_Type || tp == &PySet_Type;
    if (imm < 13 || !mutable_left)
        return false;
    rec_virtual *f = VIRTUAL(r, args[0]);
    kin_vid *items = NULL;
    uint32_t n;
    if ((imm == KIN_BINARY_INPLACE_ADD && rec_extend_older(r, args)) || rec_update_older(r, imm, args))
        return true;
    bool known = f && f->known && tp == &PyList_Type && imm == 13 && rec_use_up(r, args[1], &items, &n);
    bool no_code = f != NULL && f->kind != VIRTUAL_ATTRS && rec_is_plain_value(O(r, args[1]));
    bool extends = known && no_code;
    if (!no_code && !known) {
        rec_add_in_place(r, args, imm, row_of_added(r, imm, args));
        return true;
    }
    kin_vid step[2] = {args[0], extends ? rec_take_apart(r, args[1], items, n) : args[1]};
    uint32_t s = rec_step(r, extends ? KIN_STEP_LIST_EXTEND : KIN_STEP_BINARY, no_code ? KIN_STEP_MUTATES : KIN_STEP_OPAQUE | KIN_STEP_EFFECT, step, 2);
    r->t->steps.at[s].imm = extends ? 0 : (uint8_t)imm;
    if (known)
        for (uint32_t i = 0; i < n; i++)
            rec_virtual_push(f, items[i]);
    else if (f)
        f->known = false;
    if (!no_code) {
        rec_forget_contents(r);
        r->skip_expected = true;
    }
    free(items);
    rec_drop(r, 2);
    rec_push(r, args[0]);
    return true;
}

static bool
is_size(rec *r, kin_vid vid)
{
    return Py_TYPE(O(r, vid)) == kin_size_type() && rec_can_fold(r, vid);
}

/* x.shape[:-1] + (a, b), with constants in the tuple: a constant like the shape. */
static bool
fold_size(rec *r, const kin_vid *args)
{
    int at = is_size(r, args[0]) ? 1 : 0;
    rec_virtual *f = VIRTUAL(r, args[at]);
    if (!is_size(r, args[1 - at]) || f == NULL || f->kind != VIRTUAL_TUPLE || !f->known ||
        Py_TYPE(O(r, args[at])) != &PyTuple_Type)
        return false;
    for (uint32_t i = 0; i < f->n; i++)
        if (O(r, f->items[i]) == NULL || !PyLong_CheckExact(O(r, f->items[i])) || !rec_can_fold(r, f->items[i]))
            return false;
    for (uint32_t i = 0; i < f->n; i++)
        rec_need_const(r, f->items[i]);
    rec_need_const(r, args[1 - at]);
    rec_drop(r, 2);
    rec_await_const(r);
    return true;
}

/* The items of a torch.Size, or of a tuple of numbers. */
static bool
numbers_of(rec *r, kin_vid vid, kin_vid **items, uint32_t *n)
{
    PyTypeObject *tp = Py_TYPE(O(r, vid));
    *items = NULL;
    if ((!kin_is_size_type(tp) && tp != &PyTuple_Type) || !rec_items_of(r, vid, items, n))
        return false;
    for (uint32_t i = 0; i < *n; i++)
        if (O(r, (*items)[i]) == NULL || !PyLong_CheckExact(O(r, (*items)[i])))
            return false;
    return true;
}

/* x.shape[:-1] + (a, b), where the shape has sizes that change. */
static bool
concatenate_sizes(rec *r, int imm, const kin_vid *args)
{
    bool known[2] = {VIRTUAL(r, args[0]) != NULL, VIRTUAL(r, args[1]) != NULL};
    kin_vid *x = NULL, *y = NULL;
    uint32_t nx = 0, ny = 0;
    bool size = kin_is_size(O(r, args[0])) || kin_is_size(O(r, args[1]));
    bool ok = size && imm == KIN_BINARY_ADD && (known[0] || known[1]) && numbers_of(r, args[0], &x, &nx) && numbers_of(r, args[1], &y, &ny);
    for (uint32_t i = 0; ok && i < nx + ny; i++)
        rec_need_type(r, i < nx ? x[i] : y[i - nx]);
    kin_vid *both = ok ? realloc(x, (nx + ny + 1) * sizeof *both) : NULL;
    if (both != NULL) {
        x = both;
        memcpy(x + nx, y, ny * sizeof *y);
        kin_vid out = rec_build_size(r, x, nx + ny);
        rec_drop(r, 2);
        rec_await_result(r, out, r->t->vals.at[out].step);
    }
    ok = both != NULL;
    free(x);
    free(y);
    return ok;
}

void
rec_op_binary(rec *r, kin_step_kind kind, int imm, int n)
{
    kin_vid args[2] = {rec_peek(r, n - 1), n == 2 ? rec_peek(r, 0) : 0};
    if (kind == KIN_STEP_UNARY && imm == KIN_UNARY_NOT) {
        int truth = rec_truth(r, args[0]);
        if (truth >= 0) {
            rec_drop(r, 1);
            rec_push(r, rec_const(r, truth ? Py_False : Py_True));
            return;
        }
        bool tensor = rec_has_tensor(r, args, 1);
        bool number = !tensor && rec_data_of(r, args[0]) != REC_NO_DATA && rec_is_plain_value(O(r, args[0]));
        if (number)
            rec_need_type(r, args[0]);
        kin_vid out = rec_step_out(r, kind, tensor || number ? 0 : KIN_STEP_OPAQUE, args, 1);
        uint32_t s = r->t->vals.at[out].step;
        r->t->steps.at[s].imm = (uint8_t)imm;
        if (tensor)
            rec_break(r, s, KIN_ROW_DATA_DEPENDENT_BRANCH);
        else if (!number)
            rec_forget_contents(r);
        r->info.at[out].type = &PyBool_Type;
        r->skip_expected = true;
        rec_drop(r, 1);
        rec_await_result(r, out, s);
        return;
    }
    if (rec_operator_override(r, kind, imm, args, (uint32_t)n))
        return;
    if (rec_has_tensor(r, args, n)) {
        rec_torch_operator(r, kind, imm, args, (uint32_t)n, n);
        return;
    }
    if (kind == KIN_STEP_BINARY && (inplace_container(r, imm, args) || rec_inplace_python(r, imm, args)))
        return;
    if (n == 2 ? rec_operator_python(r, kind, imm, args) : rec_unary_python(r, imm, args[0]))
        return;
    if (kind == KIN_STEP_COMPARE && !(rec_is_const(r, args[0]) && rec_is_const(r, args[1])) && rec_equal_by_identity(r, imm, args))
        return;
    bool fold = true;
    for (int i = 0; i < n; i++)
        fold = fold && rec_can_fold(r, args[i]) &&
               (rec_is_value(O(r, args[i])) || (kind == KIN_STEP_COMPARE && compares_as_constant(r, args[i])));
    if (fold) {
        for (int i = 0; i < n; i++)
            rec_need_const(r, args[i]);
        rec_drop(r, n);
        rec_await_const(r);
        return;
    }
    if (kind == KIN_STEP_BINARY && (fold_size(r, args) || concatenate(r, imm, args) || repeat_items(r, imm, args) || concatenate_sizes(r, imm, args)))
        return;
    if (kind == KIN_STEP_COMPARE && (rec_equal_sizes(r, imm, args) || rec_compare_items(r, imm, args)))
        return;
    rec_operator_step(r, kind, imm, args, n, kind == KIN_STEP_COMPARE ? &PyBool_Type : NULL);
}

/* -- identity ------------------------------------------------------------------------------------------------------------ */

void
rec_op_is(rec *r, int invert)
{
    bool same = rec_decide_is(r, rec_peek(r, 1), rec_peek(r, 0));
    rec_drop(r, 2);
    rec_push(r, rec_const(r, same != (invert != 0) ? Py_True : Py_False));
}

/* -- membership ------------------------------------------------------------------------------------------------------------ */

static int
known_member(rec *r, kin_vid container, kin_vid item)
{
    PyObject *obj = O(r, container), *key = O(r, item);
    rec_virtual *f = VIRTUAL(r, container);
    if (!kin_is_exact_key(key) || !rec_can_const(r, item))
        return -1;
    if (f != NULL) {
        if ((f = rec_asked_dict(r, container, REC_STR("__contains__"))) == NULL || !rec_is_pair_key(key))
            return -1;
        rec_need_const(r, item);
        return rec_pairs_find(r, f, key) != NULL;
    }
    if (PyDict_CheckExact(obj)) {
        bool found = kin_exact_item(obj, key) != NULL;
        rec_need_const(r, item);
        rec_root(r, container);
        rec_need_type(r, container);
        int written = rec_written_key(r, container, key);
        if (written >= 0)
            return written;
        rec_fact(r, found ? KIN_FACT_HAS_KEY : KIN_FACT_LACKS_KEY, container, key, 0);
        return found;
    }
    return -1;
}

/* Elements of a list or tuple that are all constants: membership follows from them. */
static bool
fold_elements(rec *r, kin_vid container)
{
    PyObject *obj = O(r, container);
    if (!PyList_CheckExact(obj) && !PyTuple_CheckExact(obj))
        return false;
    kin_vid *items = NULL;
    uint32_t n;
    bool ok = rec_items_of(r, container, &items, &n) && n <= 64;
    for (uint32_t i = 0; ok && i < n; i++)
        ok = rec_can_const(r, items[i]) && compares_as_constant(r, items[i]);
    for (uint32_t i = 0; ok && i < n; i++)
        rec_need_const(r, items[i]);
    free(items);
    return ok;
}

/* `x in table` where x, and what is in there, is hashed and compared by its identity or by a builtin: asked again at replay. */
static bool
ask_table(rec *r, int invert, const kin_vid *args)
{
    PyTypeObject *tp = Py_TYPE(O(r, args[1]));
    if ((tp != &PySet_Type && tp != &PyFrozenSet_Type && tp != &PyDict_Type) || !rec_need_no_code(r, args[1], false) ||
        !rec_need_no_code(r, args[0], false))
        return false;
    for (int i = 0; i < 2; i++)
        if (VIRTUAL(r, args[i]) == NULL && !rec_is_const(r, args[i]))
            rec_need_type(r, args[i]);
    int added = rec_region_added(r, args[1], args[0]);
    if (added > 0) {
        rec_drop(r, 2);
        rec_push(r, rec_const(r, invert ? Py_False : Py_True));
        return true;
    }
    r->keep_inside = true;
    rec_region_asks(r, added == 0);
    kin_vid out = rec_step_out(r, KIN_STEP_CONTAINS, 0, args, 2);
    rec_region_asks(r, false);
    r->keep_inside = false;
    r->t->steps.at[r->t->vals.at[out].step].imm = (uint8_t)invert;
    r->info.at[out].type = &PyBool_Type;
    r->skip_expected = true; /* a tensor's hash is Python code */
    rec_drop(r, 2);
    rec_await_result(r, out, r->t->vals.at[out].step);
    return true;
}

static void
push_member(rec *r, bool member, bool invert)
{
    rec_drop(r, 2);
    rec_push(r, rec_const(r, member != invert ? Py_True : Py_False));
}

/* The dict whose keys are asked, where it is a view of them. */
static kin_vid
dict_of_keys(rec *r, kin_vid container)
{
    const rec_virtual *f = VIRTUAL(r, container);
    return f != NULL && f->kind == VIRTUAL_VIEW && Py_IS_TYPE(O(r, container), &PyDictKeys_Type) ? f->items[0] : container;
}

void
rec_op_contains(rec *r, int invert)
{
    kin_vid args[2] = {rec_peek(r, 1), rec_peek(r, 0)};
    int found = known_member(r, dict_of_keys(r, args[1]), args[0]);
    if (found >= 0) {
        push_member(r, found != 0, invert);
        return;
    }
    PyTypeObject *tp = Py_TYPE(O(r, args[1]));
    PyObject *own = tp->tp_flags & Py_TPFLAGS_HEAPTYPE ? _PyType_Lookup(tp, REC_STR("__contains__")) : NULL;
    bool consts = rec_can_fold(r, args[0]) && compares_as_constant(r, args[0]);
    bool python = own != NULL && PyFunction_Check(own); /* a member of an enum.Flag is a constant, and asks Python code */
    if (consts && ((rec_can_fold(r, args[1]) && !PyType_Check(O(r, args[1])) && !python) || fold_elements(r, args[1]))) {
        rec_need_const(r, args[0]);
        if (rec_can_fold(r, args[1]))
            rec_need_const(r, args[1]);
        rec_drop(r, 2);
        rec_await_const(r);
        return;
    }
    if (python && rec_can_inline(r, own)) {
        kin_vid call[2] = {args[1], args[0]};
        rec_need_attrs(r, args[1]);
        rec_lookup(r, tp, REC_STR("__contains__"));
        if (rec_inline(r, &(rec_args){.callee = rec_found(r, tp, REC_STR("__contains__"), own), .args = call, .npos = 2, .ndrop = 2}, NULL, 0, invert ? KIN_RESUME_FALSITY : KIN_RESUME_TRUTH, 0))
            return;
    }
    int at = !python && rec_finds_by_item(r, args[1], args[0]) ? rec_place_of_item(r, args[1], args[0], NULL) : REC_ITEM_UNKNOWN;
    if (at != REC_ITEM_UNKNOWN)
        push_member(r, at != REC_ITEM_MISSING, invert);
    else if (!ask_table(r, invert, args))
        rec_operator_step(r, KIN_STEP_CONTAINS, invert, args, 2, &PyBool_Type);
}
