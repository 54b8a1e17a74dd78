/* What tests/shape needs of src/core, for ctypes: what the rules say about each call of a graph in text. */
#include "core/shape/shape.h"

static void
say_layout(kin_text *to, const int64_t *numbers, unsigned n)
{
    for (unsigned d = 0; d < n; d++)
        kin_text_addf(to, "%s%lld", d ? ", " : "", (long long)numbers[d]);
}

static void
say_difference(kin_text *to, const kin_aten *g, kin_aten_val v, const kin_shape *s)
{
    const kin_aten_value *real = kin_aten_at(g, v);
    kin_text_addf(to, "differs: eager %s[", kin_dtype_name((kin_dtype)real->dtype));
    say_layout(to, kin_aten_sizes(g, v), real->ndim);
    kin_text_add(to, "]{");
    say_layout(to, kin_aten_strides(g, v), real->ndim);
    kin_text_addf(to, "}@%u+%lld, rule %s[", real->storage, (long long)real->offset, kin_dtype_name(s->dtype));
    say_layout(to, s->sizes, s->ndim);
    kin_text_add(to, "]{");
    say_layout(to, s->strides, s->ndim);
    kin_text_addf(to, "} of %%%u+%lld", s->of, (long long)s->offset);
}

/* Is result `v` of the graph what the rule says? Memory of its own has a number that no earlier value has. */
static bool
agrees(const kin_aten *g, kin_aten_val v, const kin_shape *s)
{
    const kin_aten_value *real = kin_aten_at(g, v);
    size_t row = s->ndim * sizeof(int64_t);
    if (real->dtype != s->dtype || real->ndim != s->ndim || real->offset != s->offset ||
        (row > 0 && (memcmp(kin_aten_sizes(g, v), s->sizes, row) != 0 || memcmp(kin_aten_strides(g, v), s->strides, row) != 0)))
        return false;
    if (s->of != 0)
        return kin_aten_at(g, s->of)->storage == real->storage;
    for (kin_aten_val earlier = 1; earlier < v; earlier++)
        if (kin_aten_at(g, earlier)->storage == real->storage)
            return false;
    return true;
}

/* With a mark for each result where some are None. */
static void
say_verdict(kin_text *to, const kin_aten *g, const kin_aten_call *call, const kin_shapes *shapes)
{
    uint32_t k = 0; /* results so far that are not None */
    char places[64] = "";
    for (uint32_t i = 0; i < shapes->results.len && k <= call->nresults && i < sizeof places - 1; i++) {
        const kin_shape *s = &shapes->results.at[i];
        places[i] = s->none ? '-' : 'x';
        if (!s->none && ++k <= call->nresults && !agrees(g, call->results + k - 1, s)) {
            say_difference(to, g, call->results + k - 1, s);
            return;
        }
    }
    bool nones = strchr(places, '-') != NULL;
    if (k != call->nresults)
        kin_text_addf(to, "differs: %u results, rule %u", call->nresults, k);
    else
        kin_text_addf(to, "ok%s%s%s", shapes->list ? " list" : "", nones ? " " : "", nones ? places : "");
}

static void
check_call(const kin_aten *g, uint32_t number, const kin_shape_options *options, kin_text *to)
{
    const kin_aten_call *call = &g->calls.at[number];
    kin_shapes shapes = {0};
    kin_status status = kin_shape_call(g, number, options, &shapes);
    if (!kin_shape_has_rule(call))
        kin_text_add(to, "none");
    else if (status != KIN_OK)
        kin_text_add(to, "declined");
    else
        say_verdict(to, g, call, &shapes);
    kin_text_add(to, "\n");
    kin_vec_deinit(&shapes.results);
}

/* A line for each call; text that is not understood: what the parser says. To be freed. */
char *shapes_check(const char *text, const char *default_dtype);
char *
shapes_check(const char *text, const char *default_dtype)
{
    kin_text out = {0}, why = {0};
    kin_shape_options options = {.default_dtype = KIN_F32};
    kin_dtype_from_name(default_dtype, strlen(default_dtype), &options.default_dtype);
    kin_aten *g = kin_aten_parse(text, &why);
    for (uint32_t i = 0; g != NULL && i < g->calls.len; i++)
        check_call(g, i, &options, &out);
    kin_aten_free(g);
    if (g == NULL)
        return why.at;
    kin_text_deinit(&why);
    return out.at;
}

void shapes_free(char *text);
void shapes_free(char *text) { free(text); }
