/* Splits a program by its frozen inputs (hoist.h). A forward pass finds what depends only on them, a backward pass finds what
 * each half needs, then both are copied out. */
#include "core/ir/hoist.h"

#include "core/base/hash.h"
#include "core/base/words.h"

enum { MAX_GROWTH = 4, FREE_BYTES = 1 << 16 };

typedef struct {
    bool frozen;       /* kin_ir_find_frozen */
    bool output;
    bool in_once, in_rest, handed;
    bool rare;         /* programs for other sizes do not have it */
    uint64_t hash;     /* of all that it is made of; 0: not asked for */
    bool wide;         /* an extern call of the rest takes it, perhaps through views */
    int64_t from;      /* bytes of the frozen inputs it was made from, repetitions counted */
    kin_irn once, rest;
} node_info;

static int64_t
bytes_of(const kin_ir *p, kin_irn n)
{
    return kin_ir_numel(p, n) * kin_dtype_bytes(kin_ir_at(p, n)->dtype);
}

/* Depends on no input and on nothing that is not known to be the same in each call. */
static bool
is_constant(const kin_ir *p, kin_irn n, const bool *constant)
{
    kin_ir_op op = kin_ir_at(p, n)->op;
    bool all = op != KIN_IR_INPUT && op != KIN_IR_EXTERN;
    for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++)
        all = all && constant[kin_ir_arg(p, n, a)];
    return all;
}

void
kin_ir_find_frozen(const kin_ir *p, const bool *frozen, bool *result)
{
    bool *constant = calloc(p->nodes.len, sizeof *constant);
    result[0] = false;
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        if (constant != NULL)
            constant[n] = is_constant(p, n, constant);
        bool all = !kin_ir_has_effect(p, n), any = false;
        for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++) {
            kin_irn arg = kin_ir_arg(p, n, a);
            all = all && (result[arg] || (constant != NULL && constant[arg]));
            any = any || result[arg];
        }
        result[n] = kin_ir_at(p, n)->op == KIN_IR_INPUT ? frozen[kin_ir_attrs(p, n)[0]] : all && any;
    }
    free(constant);
}

static void
find_origins(const kin_ir *p, const bool *frozen, node_info *info)
{
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        info[n].frozen = frozen[n];
        if (kin_ir_at(p, n)->op == KIN_IR_INPUT)
            info[n].from = bytes_of(p, n);
        for (unsigned a = 0; a < kin_ir_at(p, n)->nargs; a++)
            info[n].from += info[kin_ir_arg(p, n, a)].from;
    }
    for (uint32_t o = 0; o < p->outputs.len; o++)
        info[p->outputs.at[o].node].output = true;
}

/* -- what programs for different sizes have in common ----------------------------------------------------------------- */

static uint64_t
hash_ints(uint64_t hash, const kin_ir *p, uint32_t at, unsigned n)
{
    return n == 0 ? hash : kin_hash_bytes(hash, p->ints.at + at, n * sizeof *p->ints.at);
}

static uint64_t
hash_of_node(const kin_ir *p, kin_irn n, const node_info *info)
{
    const kin_ir_node *node = kin_ir_at(p, n);
    const char *name = kin_ir_name(p, n);
    uint64_t hash = kin_hash_word(node->op, (uint64_t)node->dtype << 8 | node->ndim);
    if (node->op == KIN_IR_CONST)
        hash = kin_hash_word(hash, (uint64_t)node->value.i);
    hash = hash_ints(hash_ints(hash, p, node->sizes, node->ndim), p, node->attrs, node->nattrs);
    hash = kin_hash_bytes(hash, name, strlen(name));
    for (unsigned a = 0; a < node->nargs; a++)
        hash = kin_hash_word(hash, info[kin_ir_arg(p, n, a)].hash);
    return hash;
}

static uint64_t
hash_operations(const kin_ir *p)
{
    uint64_t hash = 0;
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        const kin_ir_node *node = kin_ir_at(p, n);
        hash = kin_hash_word(hash, (uint64_t)node->op << 16 | (uint64_t)node->dtype << 8 | node->ndim);
        for (unsigned a = 0; a < node->nargs; a++)
            hash = kin_hash_word(hash, kin_ir_arg(p, n, a));
    }
    return hash;
}

/* What the program is compared with. NULL: there is no memory. */
static kin_ir_common_kind *
find_kind(const kin_ir *p, kin_ir_common *c)
{
    enum { MOST_KINDS = 8 };
    uint64_t operations = hash_operations(p);
    for (uint32_t i = 0; i < c->kinds.len; i++)
        if (c->kinds.at[i].operations == operations)
            return &c->kinds.at[i];
    if (c->kinds.len < MOST_KINDS && kin_vec_push(&c->kinds, ((kin_ir_common_kind){.operations = operations})) != KIN_OK)
        return NULL;
    return &c->kinds.at[c->kinds.len - 1];
}

/* The common part becomes that with this program, which it marks the rest of. */
static kin_status
meet(const kin_ir *p, kin_ir_common *common, node_info *info)
{
    kin_ir_common_kind *c = find_kind(p, common);
    if (c == NULL)
        return KIN_NOMEM;
    kin_ir_common_kind both = {.operations = c->operations, .programs = c->programs + 1};
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        info[n].hash = hash_of_node(p, n, info);
        info[n].rare = c->programs > 0 && !kin_words_have(c->at.at, c->at.len, info[n].hash);
        if (info[n].frozen && !info[n].rare && kin_vec_push(&both.at, info[n].hash) != KIN_OK) {
            kin_vec_deinit(&both.at);
            return KIN_NOMEM;
        }
    }
    kin_words_sort(both.at.at, both.at.len);
    kin_vec_deinit(&c->at);
    *c = both;
    return KIN_OK;
}

void
kin_ir_common_deinit(kin_ir_common *c)
{
    for (uint32_t i = 0; i < c->kinds.len; i++)
        kin_vec_deinit(&c->kinds.at[i].at);
    kin_vec_deinit(&c->kinds);
    *c = (kin_ir_common){0};
}

/* -- what is handed over ----------------------------------------------------------------------------------------------- */

/* A view that costs its reader nothing: not one that has to be copied to be handed to an extern call. */
static bool
is_free_view(const kin_ir *p, kin_irn n)
{
    const kin_ir_node *node = kin_ir_at(p, n);
    if (node->op == KIN_IR_EXPAND || node->op == KIN_IR_PERMUTE || node->op == KIN_IR_SLICE)
        return true;
    if (node->op != KIN_IR_RESHAPE)
        return false;
    for (n = kin_ir_arg(p, n, 0); kin_ir_at(p, n)->op == KIN_IR_RESHAPE;)
        n = kin_ir_arg(p, n, 0);
    kin_ir_op op = kin_ir_at(p, n)->op;
    return op != KIN_IR_PERMUTE && op != KIN_IR_SLICE && op != KIN_IR_EXPAND;
}

/* Inputs of half precision as floats: to read twice as much takes longer than to convert, unless a call wants floats in memory. */
static bool
is_cheap_cast(const kin_ir *p, const node_info *info, kin_irn n)
{
    if (kin_ir_at(p, n)->op != KIN_IR_CAST || info[n].wide)
        return false;
    kin_irn from = kin_ir_arg(p, n, 0);
    while (is_free_view(p, from))
        from = kin_ir_arg(p, from, 0);
    unsigned dtype = kin_ir_at(p, from)->dtype;
    return kin_ir_at(p, from)->op == KIN_IR_INPUT && (dtype == KIN_F16 || dtype == KIN_BF16);
}

static bool
may_hand_over(const kin_ir *p, const node_info *info, kin_irn n)
{
    kin_ir_op op = kin_ir_at(p, n)->op;
    if (is_cheap_cast(p, info, n))
        return false;
    return info[n].frozen && !info[n].rare && !info[n].output && op != KIN_IR_INPUT && op != KIN_IR_EXTERN && !is_free_view(p, n) &&
           bytes_of(p, n) <= MAX_GROWTH * info[n].from + FREE_BYTES;
}

static void
find_halves(const kin_ir *p, node_info *info)
{
    for (kin_irn n = p->nodes.len - 1; n > 0; n--) {
        const kin_ir_node *node = kin_ir_at(p, n);
        node_info *i = &info[n];
        i->in_rest = i->in_rest || i->output || kin_ir_has_effect(p, n);
        if (i->in_rest && may_hand_over(p, info, n)) {
            i->handed = i->in_once = true;
            i->in_rest = false;
        }
        for (unsigned a = 0; a < node->nargs; a++) {
            info[kin_ir_arg(p, n, a)].in_rest |= i->in_rest;
            info[kin_ir_arg(p, n, a)].in_once |= i->in_once;
            info[kin_ir_arg(p, n, a)].wide |= i->in_rest && (node->op == KIN_IR_EXTERN || (i->wide && kin_ir_op_class(node->op) == KIN_IR_CLASS_VIEW));
        }
    }
}

static kin_irn
add_handed_input(const kin_ir *p, kin_irn n, kin_ir_hoisted *out)
{
    const kin_ir_node *node = kin_ir_at(p, n);
    return kin_ir_input(out->rest, out->first + out->count++, node->dtype, node->ndim, kin_ir_sizes(p, n));
}

static void
copy_halves(const kin_ir *p, node_info *info, kin_ir_hoisted *out)
{
    for (kin_irn n = 1; n < p->nodes.len; n++)
        if (info[n].handed)
            info[n].rest = add_handed_input(p, n, out);
    for (kin_irn n = 1; n < p->nodes.len; n++) {
        if (info[n].in_once)
            info[n].once = kin_ir_copy_mapped(out->once, p, n, &info->once, sizeof *info);
        if (info[n].in_rest && !info[n].handed)
            info[n].rest = kin_ir_copy_mapped(out->rest, p, n, &info->rest, sizeof *info);
        if (info[n].handed)
            kin_ir_output(out->once, info[n].once, NULL);
    }
    for (uint32_t o = 0; o < p->outputs.len; o++)
        kin_ir_output_like(out->rest, info[p->outputs.at[o].node].rest, p, o);
    out->once->fast_math = out->rest->fast_math = p->fast_math;
    out->once->ninputs = p->ninputs;
    out->rest->ninputs = p->ninputs + out->count;
}

kin_status
kin_ir_hoist(const kin_ir *p, const bool *frozen, kin_ir_common *common, kin_ir_hoisted *out)
{
    *out = (kin_ir_hoisted){.once = kin_ir_new(), .rest = kin_ir_new(), .first = p->ninputs};
    node_info *info = calloc(p->nodes.len, sizeof *info);
    bool *per_node = calloc(p->nodes.len, sizeof *per_node);
    bool ok = out->once != NULL && out->rest != NULL && info != NULL && per_node != NULL;
    if (ok) {
        kin_ir_find_frozen(p, frozen, per_node);
        find_origins(p, per_node, info);
        ok = common == NULL || meet(p, common, info) == KIN_OK;
    }
    if (ok) {
        find_halves(p, info);
        copy_halves(p, info, out);
        ok = !out->once->failed && !out->rest->failed;
    }
    free(info);
    free(per_node);
    if (!ok)
        kin_ir_hoisted_deinit(out);
    else if (out->count == 0) {
        kin_ir_free(out->once);
        out->once = NULL;
    }
    return ok ? KIN_OK : KIN_NOMEM;
}

void
kin_ir_hoisted_deinit(kin_ir_hoisted *h)
{
    kin_ir_free(h->once);
    kin_ir_free(h->rest);
    h->once = h->rest = NULL;
}
