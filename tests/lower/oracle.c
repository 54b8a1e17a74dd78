/* What tests/lower needs of src/core, for ctypes: lower the text of an ATen graph, evaluate the tensor program. */
#include "core/ir/in_place.h"
#include "core/lower/lower.h"

typedef struct {
    kin_aten *g;
    kin_lowered l;
    kin_text why, text;
    int status;
} oracle;

oracle *oracle_new(const char *aten_text, int fast_math);
void oracle_free(oracle *o);

/* The passes of core/pipeline that clean up after lowering. */
static void
finish(oracle *o)
{
    kin_ir *clean = kin_ir_simplify(o->l.ir, o->l.ir->fast_math);
    kin_ir_free(o->l.ir);
    o->l.ir = clean;
    if (kin_ir_copies_large_input(clean)) {
        kin_text_add(&o->why, "it modifies an input in place");
        kin_lowered_deinit(&o->l);
        o->status = KIN_BREAK;
    } else {
        o->status = kin_ir_verify(clean, &o->why) && kin_ir_print(clean, &o->text) ? KIN_OK : KIN_BUG;
    }
}

oracle *
oracle_new(const char *aten_text, int fast_math)
{
    oracle *o = calloc(1, sizeof *o);
    kin_lower_options options = {.fast_math = fast_math != 0};
    o->status = KIN_BREAK;
    o->g = kin_aten_parse(aten_text, &o->why);
    if (o->g == NULL || !kin_aten_verify(o->g, &o->why))
        return o;
    o->status = kin_lower(o->g, &options, &o->l, &o->why);
    if (o->status == KIN_OK)
        finish(o);
    return o;
}

void
oracle_free(oracle *o)
{
    kin_aten_free(o->g);
    kin_lowered_deinit(&o->l);
    kin_text_deinit(&o->why);
    kin_text_deinit(&o->text);
    free(o);
}

int oracle_status(const oracle *o);
int oracle_status(const oracle *o) { return o->status; }
const char *oracle_why(const oracle *o);
const char *oracle_why(const oracle *o) { return o->why.at ? o->why.at : ""; }
const char *oracle_text(const oracle *o);
const char *oracle_text(const oracle *o) { return o->text.at ? o->text.at : ""; }
int oracle_nextern(const oracle *o);
int oracle_nextern(const oracle *o) { return (int)o->l.nextern; }
int oracle_nprogram(const oracle *o);
int oracle_nprogram(const oracle *o) { return (int)o->l.ir->outputs.len; }

/* kind, index, whole, offset of output i */
void oracle_output(const oracle *o, int i, int64_t *four);
void
oracle_output(const oracle *o, int i, int64_t *four)
{
    const kin_lower_out *out = &o->l.outs.at[i];
    four[0] = out->kind;
    four[1] = out->index;
    four[2] = out->whole;
    four[3] = out->offset;
}

/* dtype, ndim, then sizes and strides (0 sizes: row-major) of program output i */
void oracle_layout(const oracle *o, int i, int64_t *out);
void
oracle_layout(const oracle *o, int i, int64_t *out)
{
    const kin_ir_out *r = &o->l.ir->outputs.at[i];
    const kin_ir_node *n = kin_ir_at(o->l.ir, r->node);
    out[0] = n->dtype;
    out[1] = n->ndim;
    int64_t expected = 1;
    for (unsigned d = n->ndim; d-- > 0;) {
        out[2 + d] = kin_ir_sizes(o->l.ir, r->node)[d];
        out[2 + n->ndim + d] = r->strides ? o->l.ir->ints.at[r->strides + d] : expected;
        expected *= out[2 + d];
    }
}

int oracle_eval(const oracle *o, const void *const *inputs, void **outputs);
int
oracle_eval(const oracle *o, const void *const *inputs, void **outputs)
{
    return kin_ir_eval(o->l.ir, inputs, outputs);
}
