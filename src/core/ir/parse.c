/* Parses the text that print.c writes. It takes what is written literally, so that tests can give malformed programs
 * to verify.c.
 */
#include "core/ir/ir_priv.h"
#include "core/ir/scan.h"

typedef struct {
    kin_scan s;
    kin_ir *p;
    kin_ir_node n;
    KIN_VEC(kin_irn) args;
    kin_scan_ints attrs, list, sizes;
} reader;

static kin_irn
read_ref(reader *r)
{
    kin_scan_need(&r->s, "%");
    int64_t n = kin_scan_int(&r->s);
    if (n < 0 || n > UINT32_MAX)
        kin_scan_fail(&r->s, "no such value");
    return (kin_irn)n;
}

static void
add_attr(reader *r, int64_t value)
{
    if (kin_vec_push(&r->attrs, value) != KIN_OK)
        kin_scan_fail(&r->s, "no memory");
}

static void
read_ints(reader *r, const char *name)
{
    kin_scan_need(&r->s, name);
    kin_scan_list(&r->s, "[", "]", &r->list);
    for (uint32_t i = 0; i < r->list.len; i++)
        add_attr(r, r->list.at[i]);
}

static void
read_int(reader *r, const char *name)
{
    kin_scan_need(&r->s, name);
    add_attr(r, kin_scan_int(&r->s));
}

static void
read_scatter(reader *r)
{
    static const char *const names[] = {"set", "add", "mul", "max", "min"};
    kin_scan_need(&r->s, "mode=");
    for (unsigned i = 0; i < sizeof names / sizeof *names; i++)
        if (kin_scan_take(&r->s, names[i])) {
            add_attr(r, i);
            read_ints(r, "map=");
            return;
        }
    kin_scan_fail(&r->s, "unknown mode");
}

static void
read_attrs(reader *r)
{
    kin_ir_class class = kin_ir_op_class((kin_ir_op)r->n.op);
    switch ((kin_ir_op)r->n.op) {
    case KIN_IR_INPUT:
        add_attr(r, kin_scan_int(&r->s));
        return;
    case KIN_IR_SLICE:
        read_ints(r, "starts=");
        read_ints(r, "steps=");
        return;
    case KIN_IR_PAD:
        read_ints(r, "low=");
        return;
    case KIN_IR_INDEX:
        read_ints(r, "map=");
        return;
    case KIN_IR_SCATTER:
        read_scatter(r);
        return;
    case KIN_IR_EXTERN:
        read_int(r, "number=");
        read_int(r, "flags=");
        return;
    case KIN_IR_RESULT:
        read_int(r, "which=");
        return;
    case KIN_IR_CAT:
    case KIN_IR_IOTA:
        read_int(r, "dim=");
        return;
    default:
        break;
    }
    if (class == KIN_IR_CLASS_SCAN)
        read_int(r, "dim=");
    else if (class == KIN_IR_CLASS_REDUCE || r->n.op == KIN_IR_PERMUTE)
        read_ints(r, "dims=");
}

static void
read_op(reader *r)
{
    size_t len;
    const char *word = kin_scan_word(&r->s, &len);
    for (unsigned op = 0; op < KIN_IR__COUNT; op++)
        if (strlen(kin_ir_op_name((kin_ir_op)op)) == len && memcmp(kin_ir_op_name((kin_ir_op)op), word, len) == 0) {
            r->n.op = (uint8_t)op;
            return;
        }
    kin_scan_fail(&r->s, "unknown operation");
}

static void
read_args(reader *r)
{
    if (r->n.op == KIN_IR_EXTERN) {
        kin_text name = {0};
        kin_scan_string(&r->s, &name);
        r->n.name = kin_ir_add_text(r->p, name.at ? name.at : "");
        kin_text_deinit(&name);
    }
    kin_scan probe = r->s;
    r->args.len = 0;
    while (kin_scan_take(&probe, "%")) {
        if (kin_vec_push(&r->args, read_ref(r)) != KIN_OK)
            kin_scan_fail(&r->s, "no memory");
        if (!kin_scan_take(&r->s, ","))
            break;
        probe = r->s;
    }
    if (r->args.len > UINT16_MAX)
        kin_scan_fail(&r->s, "too many arguments");
}

/* The scalar of a CONST stands before its type, whose dtype says how it reads. */
static void
read_const(reader *r)
{
    kin_scan from = r->s;
    kin_scan_float(&r->s);
    kin_scan_need(&r->s, ":");
    r->n.dtype = (uint8_t)kin_scan_type(&r->s, &r->sizes);
    if (kin_dtype_is_float((kin_dtype)r->n.dtype))
        r->n.value.f = kin_scan_float(&from);
    else
        r->n.value.i = kin_scan_int(&from);
    r->s.wrong |= from.wrong;
}

static void
read_node(reader *r)
{
    if (read_ref(r) != r->p->nodes.len)
        kin_scan_fail(&r->s, "values are numbered in order, from %1");
    r->n = (kin_ir_node){0};
    r->attrs.len = r->sizes.len = 0;
    kin_scan_need(&r->s, "=");
    read_op(r);
    if (r->s.wrong)
        return;
    read_args(r);
    if (r->n.op == KIN_IR_CONST)
        read_const(r);
    else {
        read_attrs(r);
        if (r->n.op != KIN_IR_EXTERN) {
            kin_scan_need(&r->s, ":");
            r->n.dtype = (uint8_t)kin_scan_type(&r->s, &r->sizes);
        }
    }
    if (r->attrs.len > UINT16_MAX)
        kin_scan_fail(&r->s, "too many numbers");
    if (r->s.wrong)
        return;
    r->n.ndim = (uint8_t)r->sizes.len;
    r->n.nargs = (uint16_t)r->args.len;
    r->n.nattrs = (uint16_t)r->attrs.len;
    if (r->n.op == KIN_IR_INPUT && r->attrs.at[0] >= (int64_t)r->p->ninputs && r->attrs.at[0] < UINT32_MAX)
        r->p->ninputs = (uint32_t)r->attrs.at[0] + 1;
    kin_irn made = kin_ir_push(r->p, &r->n, r->args.at, r->sizes.at, r->attrs.at);
    if (*r->s.at == '{') {
        kin_scan_list(&r->s, "{", "}", &r->list);
        if (r->list.len != r->sizes.len)
            kin_scan_fail(&r->s, "as many strides as sizes expected");
        else if (made != 0)
            kin_ir_set_strides(r->p, made, r->list.at);
    }
    kin_scan_end_line(&r->s);
}

static void
read_return(reader *r)
{
    for (kin_scan probe = r->s; kin_scan_take(&probe, "%"); probe = r->s) {
        kin_irn node = read_ref(r);
        bool has_strides = kin_scan_take(&r->s, ":");
        r->list.len = 0;
        if (has_strides)
            kin_scan_list(&r->s, "{", "}", &r->list);
        if (r->s.wrong || node == 0 || node >= r->p->nodes.len) {
            kin_scan_fail(&r->s, "no such value");
            return;
        }
        if (has_strides && r->list.len != kin_ir_at(r->p, node)->ndim) {
            kin_scan_fail(&r->s, "as many strides as sizes expected");
            return;
        }
        int64_t into = kin_scan_take(&r->s, "into") ? kin_scan_int(&r->s) : -1;
        if (into >= 0)
            kin_ir_output_into(r->p, node, has_strides ? r->list.at : NULL, (uint32_t)into);
        else
            kin_ir_output(r->p, node, has_strides ? r->list.at : NULL);
        if (!kin_scan_take(&r->s, ","))
            break;
    }
    kin_scan_end_line(&r->s);
}

static void
read_program(reader *r)
{
    while (kin_scan_next_line(&r->s)) {
        if (kin_scan_take(&r->s, "return")) {
            read_return(r);
            if (kin_scan_next_line(&r->s))
                kin_scan_fail(&r->s, "nothing may follow the return");
            return;
        }
        read_node(r);
    }
    kin_scan_fail(&r->s, "return expected");
}

kin_ir *
kin_ir_parse(const char *text, kin_text *why)
{
    reader r = {.s = {.at = text, .line = 1, .why = why}, .p = kin_ir_new()};
    if (r.p == NULL)
        return NULL;
    read_program(&r);
    if (r.p->failed)
        kin_scan_fail(&r.s, "no memory");
    kin_vec_deinit(&r.args);
    kin_vec_deinit(&r.attrs);
    kin_vec_deinit(&r.list);
    kin_vec_deinit(&r.sizes);
    if (!r.s.wrong)
        return r.p;
    kin_ir_free(r.p);
    return NULL;
}
