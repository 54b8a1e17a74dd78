/* Shape rules on graphs in text: one of each kind, what they decline, arguments that make no sense. That rules answer what eager
 * does is tests/shape's matter. */
#include "check.h"
#include "core/shape/shape.h"

static const char two[] = "%1 = input 0 : f32[4, 3]{3, 1}@1+0\n%2 = input 1 : f32[3, 4]{1, 3}@2+0\n";

/* The first result of the call that ends the text, as text; "-" when the rule declines. */
static const char *
answer(const char *inputs, const char *call)
{
    static char out[256];
    char text[2048];
    kin_text why = {0}, made = {0};
    kin_shapes shapes = {0};
    snprintf(text, sizeof text, "%s%s\nreturn\n", inputs, call);
    kin_aten *g = kin_aten_parse(text, &why);
    CHECK(g != NULL);
    if (g == NULL)
        return "?";
    kin_status status = kin_shape_call(g, 0, &(kin_shape_options){.default_dtype = KIN_F32}, &shapes);
    if (status == KIN_OK && shapes.results.len > 0) {
        const kin_shape *s = &shapes.results.at[0];
        kin_text_addf(&made, "%u %s[", shapes.results.len, kin_dtype_name(s->dtype));
        for (unsigned d = 0; d < s->ndim; d++)
            kin_text_addf(&made, d ? " %d/%d" : "%d/%d", (int)s->sizes[d], (int)s->strides[d]);
        kin_text_addf(&made, "] of %u+%d%s%s", s->of, (int)s->offset, s->same ? " same" : "", shapes.list ? " list" : "");
    }
    snprintf(out, sizeof out, "%s", status == KIN_OK ? made.at : "-");
    kin_text_deinit(&made);
    kin_text_deinit(&why);
    kin_vec_deinit(&shapes.results);
    kin_aten_free(g);
    return out;
}

#define ANSWERS(inputs, op, args, want) CHECK_STR(answer(inputs, op args), want)

static void
test_kinds(void)
{
    ANSWERS(two, "aten.exp.default", "(%2)", "1 f32[3/1 4/3] of 0+0");
    ANSWERS(two, "aten.add.Tensor", "(%1, 2.0)", "1 f32[4/3 3/1] of 0+0");
    ANSWERS(two, "aten.eq.Scalar", "(%1, 1)", "1 b8[4/3 3/1] of 0+0");
    ANSWERS(two, "aten.add_.Tensor", "(%1!, %1)", "1 f32[4/3 3/1] of 1+0 same");
    ANSWERS(two, "aten.mm.default", "(%1, %2)", "1 f32[4/4 4/1] of 0+0");
    ANSWERS(two, "aten.t.default", "(%1)", "1 f32[3/1 4/3] of 1+0");
    ANSWERS(two, "aten.slice.Tensor", "(%1, 0, 1, 9223372036854775807, 2)", "1 f32[2/6 3/1] of 1+3");
    ANSWERS(two, "aten.split.Tensor", "(%1, 3)", "2 f32[3/3 3/1] of 1+0 list");
    ANSWERS(two, "aten.sum.dim_IntList", "(%1, [-1], True)", "1 f32[4/1 1/1] of 0+0");
    ANSWERS(two, "aten.max.dim", "(%1, 0)", "2 f32[3/1] of 0+0");
    ANSWERS(two, "aten.clone.default", "(%2, memory_format=contiguous_format)", "1 f32[3/4 4/1] of 0+0");
    ANSWERS(two, "aten.cat.default", "([%1, %1], 1)", "1 f32[4/6 6/1] of 0+0");
    ANSWERS(two, "aten.arange.start_step", "(0, 1, 0.3)", "1 f32[4/1] of 0+0");
    ANSWERS(two, "aten.view.default", "(%1, [2, -1])", "1 f32[2/6 6/1] of 1+0");
    ANSWERS(two, "aten.slice_scatter.default", "(%1, %1, 0, None, 9223372036854775807)", "1 f32[4/3 3/1] of 0+0");
    ANSWERS("%1 = input 0 : f32[3, 4]{1, 3}@1+0\n%2 = input 1 : f32[3]{1}@2+0\n", "aten.select_scatter.default", "(%1, %2, 1, -4)", "1 f32[3/1 4/3] of 0+0");
    ANSWERS("%1 = input 0 : f32[2]{1}@1+0\n%2 = input 1 : f32[1]{1}@2+0\n", "aten.slice_scatter.default", "(%1, %2, 0, 0, 2, 9223372036854775807)", "1 f32[2/1] of 0+0");
}

static void
test_declined(void)
{
    ANSWERS(two, "aten.add.Tensor", "(%1, %2)", "-");
    ANSWERS(two, "aten.add.Tensor", "(%1)", "-");
    ANSWERS(two, "aten.add.Tensor", "()", "-");
    ANSWERS(two, "aten.add.Tensor", "(%1, None)", "-");
    ANSWERS(two, "aten.add.Tensor", "([%1], %1)", "-");
    ANSWERS(two, "aten.mm.default", "(%1, %1)", "-");
    ANSWERS(two, "aten.view.default", "(%2, [12])", "-");
    ANSWERS(two, "aten.view.default", "(%1, [5, -1])", "-");
    ANSWERS(two, "aten.expand.default", "(%1, [-1, 4, 3, 3])", "-");
    ANSWERS(two, "aten.transpose.int", "(%1, 0, 2)", "-");
    ANSWERS(two, "aten.unsqueeze.default", "(%1, 9223372036854775807)", "-");
    ANSWERS(two, "aten.squeeze.dims", "(%1, [0, 0])", "-");
    ANSWERS(two, "aten.slice.Tensor", "(%1, 0, 0, 4, 0)", "-");
    ANSWERS(two, "aten.slice_scatter.default", "(%1, %2, 0)", "-");
    ANSWERS(two, "aten.slice_scatter.default", "(%1, %1, 0, 0, 4, -9223372036854775808)", "-");
    ANSWERS(two, "aten.select_scatter.default", "(%1, %1, 0, 0)", "-");
    ANSWERS(two, "aten.select_scatter.default", "(%1, %2)", "-");
    ANSWERS(two, "aten.cat.default", "([], 0)", "-");
    ANSWERS(two, "aten.cat.default", "([1, 2], 0)", "-");
    ANSWERS(two, "aten.index.Tensor", "(%1, [None, None, None])", "-");
    ANSWERS(two, "aten.as_strided.default", "(%1, [4, 4], [4, 1])", "-");
    ANSWERS(two, "aten.empty.memory_format", "([2, -1])", "-");
    ANSWERS(two, "aten.empty.memory_format", "([2, 3], memory_format=channels_last)", "-");
    ANSWERS(two, "aten.zeros.default", "([2], pin_memory=True)", "-");
    ANSWERS(two, "aten.expand.default",
            "(%1, [1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1, 4, 3])", "-"); /* more dims than there is room for */
    ANSWERS(two, "aten.no_such_operator.default", "(%1)", "-");
}

static bool
has_rule(const char *op)
{
    kin_aten *g = kin_aten_new();
    CHECK(g != NULL);
    kin_aten_add_call(g, op, false);
    bool found = kin_shape_has_rule(&g->calls.at[0]);
    kin_aten_free(g);
    return found;
}

static void
test_names(void)
{
    CHECK(has_rule("aten.add.Tensor"));
    CHECK(has_rule("aten.add_.Tensor"));
    CHECK(has_rule("aten.masked_fill_.Scalar"));
    CHECK(!has_rule("aten.cat_.default"));
    CHECK(!has_rule("aten.add"));
    CHECK(!has_rule(""));
    CHECK(!has_rule("._."));
}

int
main(void)
{
    test_kinds();
    test_declined();
    test_names();
    return check_report("shape");
}
