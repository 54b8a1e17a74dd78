/* Reads the text that print.c writes. */
#include "core/aten/aten.h"
#include "core/ir/scan.h"

#include <ctype.h>

typedef struct {
    kin_scan s;
    kin_aten *g;
    kin_scan_ints sizes, strides;
} reader;

static void read_arg(reader *r, bool in_list);

static kin_aten_val
read_ref(reader *r)
{
    kin_scan_need(&r->s, "%");
    int64_t n = kin_scan_int(&r->s);
    if (n < 0 || n > UINT32_MAX)
        kin_scan_fail(&r->s, "no such value");
    return (kin_aten_val)n;
}

/* "f32[2, 3]{3, 1}@1+0"; of an input when is_input. */
static void
read_value(reader *r, bool is_input)
{
    kin_dtype dtype = kin_scan_type(&r->s, &r->sizes);
    kin_scan_list(&r->s, "{", "}", &r->strides);
    if (r->strides.len != r->sizes.len)
        kin_scan_fail(&r->s, "as many strides as sizes expected");
    kin_scan_need(&r->s, "@");
    int64_t storage = kin_scan_int(&r->s);
    kin_scan_need(&r->s, "+");
    int64_t offset = kin_scan_int(&r->s);
    if (storage < 0 || storage > UINT32_MAX)
        kin_scan_fail(&r->s, "no such storage");
    if (r->s.wrong)
        return;
    if (is_input)
        kin_aten_input(r->g, dtype, r->sizes.len, r->sizes.at, r->strides.at, (uint32_t)storage, offset);
    else
        kin_aten_add_result(r->g, dtype, r->sizes.len, r->sizes.at, r->strides.at, (uint32_t)storage, offset);
}

/* How many elements stand in the list that was just opened. */
static uint32_t
count_elements(const char *at)
{
    uint32_t count = 0;
    bool text = false, blank = true;
    for (int depth = 0; *at != '\0' && *at != '\n'; at++) {
        if (text) {
            text = *at != '"';
            at += *at == '\\' && at[1] != '\0';
            continue;
        }
        if (*at == ']' && depth-- == 0)
            return blank ? 0 : count + 1;
        depth += *at == '[';
        count += *at == ',' && depth == 0;
        text = *at == '"';
        blank &= *at == ' ';
    }
    return 0;
}

static void
read_list(reader *r, const char *keyword)
{
    kin_aten_arg arg = {.kind = KIN_ATEN_LIST};
    uint32_t count = count_elements(r->s.at);
    arg.list.count = count;
    kin_aten_add_arg(r->g, arg, keyword, NULL);
    for (uint32_t i = 0; i < count; i++) {
        if (i > 0)
            kin_scan_need(&r->s, ",");
        read_arg(r, true);
    }
    kin_scan_need(&r->s, "]");
}

static kin_aten_arg
read_number(reader *r)
{
    kin_scan_take(&r->s, "");
    size_t len = strcspn(r->s.at, ",)] \n");
    bool is_float = false;
    for (size_t i = 0; i < len; i++)
        is_float |= strchr(".eEn", r->s.at[i]) != NULL;
    if (is_float)
        return (kin_aten_arg){.kind = KIN_ATEN_FLOAT, .f = kin_scan_float(&r->s)};
    return (kin_aten_arg){.kind = KIN_ATEN_INT, .i = kin_scan_int(&r->s)};
}

static bool
is_word(const char *word, size_t len, const char *name)
{
    return strlen(name) == len && memcmp(word, name, len) == 0;
}

/* A word that is no number: a constant, a dtype, or something that is kept as it is. */
static void
add_word(reader *r, const char *word, size_t len, const char *keyword)
{
    kin_aten_arg arg = {0};
    kin_dtype dtype;
    kin_text text = {0};
    kin_text_add_len(&text, word, (uint32_t)len);
    if (len == 0)
        kin_scan_fail(&r->s, "argument expected");
    else if (is_word(word, len, "None"))
        arg.kind = KIN_ATEN_NONE;
    else if (is_word(word, len, "True") || is_word(word, len, "False"))
        arg = (kin_aten_arg){.kind = KIN_ATEN_BOOL, .i = *word == 'T'};
    else if (is_word(word, len, "nan") || is_word(word, len, "inf"))
        arg = (kin_aten_arg){.kind = KIN_ATEN_FLOAT, .f = strtod(text.failed ? "0" : text.at, NULL)};
    else if (kin_dtype_from_name(word, len, &dtype))
        arg = (kin_aten_arg){.kind = KIN_ATEN_DTYPE, .i = dtype};
    else
        arg.kind = KIN_ATEN_WORD;
    if (!r->s.wrong)
        kin_aten_add_arg(r->g, arg, keyword, text.failed ? "" : text.at);
    kin_text_deinit(&text);
}

static void
read_plain(reader *r, const char *keyword)
{
    kin_aten_arg arg = {0};
    if (kin_scan_take(&r->s, "[")) {
        read_list(r, keyword);
        return;
    }
    if (*r->s.at == '%') {
        arg = (kin_aten_arg){.kind = KIN_ATEN_VALUE, .value = read_ref(r)};
        arg.written = *r->s.at == '!';
        r->s.at += arg.written;
    } else if (*r->s.at == '-' || isdigit((unsigned char)*r->s.at))
        arg = read_number(r);
    else if (*r->s.at == '"') {
        kin_text text = {0};
        kin_scan_string(&r->s, &text);
        arg.kind = KIN_ATEN_STR;
        if (!r->s.wrong)
            kin_aten_add_arg(r->g, arg, keyword, text.at ? text.at : "");
        kin_text_deinit(&text);
        return;
    } else {
        size_t len;
        const char *word = kin_scan_word(&r->s, &len);
        add_word(r, word, len, keyword);
        return;
    }
    if (!r->s.wrong)
        kin_aten_add_arg(r->g, arg, keyword, NULL);
}

static void
read_arg(reader *r, bool in_list)
{
    size_t len;
    kin_scan probe = r->s;
    const char *word = kin_scan_word(&probe, &len);
    if (in_list || len == 0 || *probe.at != '=') {
        kin_scan_take(&r->s, "");
        read_plain(r, NULL);
        return;
    }
    kin_text keyword = {0};
    kin_text_add_len(&keyword, word, (uint32_t)len);
    r->s.at = probe.at + 1;
    if (!keyword.failed)
        read_plain(r, keyword.at);
    kin_text_deinit(&keyword);
}

/* The results' numbers, "=" and the operator's name; how many results. */
static uint32_t
read_head(reader *r)
{
    uint32_t count = 0;
    for (kin_scan probe = r->s; kin_scan_take(&probe, "%"); probe = r->s) {
        if (read_ref(r) != r->g->values.len + count++)
            kin_scan_fail(&r->s, "values are numbered in order, from %1");
        if (!kin_scan_take(&r->s, ","))
            break;
    }
    if (count > 0)
        kin_scan_need(&r->s, "=");
    return count;
}

static void
read_line(reader *r)
{
    uint32_t count = read_head(r);
    size_t len;
    const char *word = kin_scan_word(&r->s, &len);
    if (is_word(word, len, "input") && count == 1) {
        if (kin_scan_int(&r->s) != r->g->ninputs || r->g->calls.len > 0)
            kin_scan_fail(&r->s, "inputs come first, in order");
        kin_scan_need(&r->s, ":");
        read_value(r, true);
        kin_scan_end_line(&r->s);
        return;
    }
    bool random = is_word(word, len, "random");
    if (random)
        word = kin_scan_word(&r->s, &len);
    kin_text name = {0};
    kin_text_add_len(&name, word, (uint32_t)len);
    kin_aten_add_call(r->g, name.failed ? "" : name.at, random);
    kin_text_deinit(&name);
    kin_scan_need(&r->s, "(");
    for (bool first = true; !r->s.wrong && !kin_scan_take(&r->s, ")"); first = false) {
        if (!first)
            kin_scan_need(&r->s, ",");
        read_arg(r, false);
    }
    for (uint32_t i = 0; i < count && !r->s.wrong; i++) {
        kin_scan_need(&r->s, i ? "," : ":");
        read_value(r, false);
    }
    kin_scan_end_line(&r->s);
}

static void
read_graph(reader *r)
{
    while (kin_scan_next_line(&r->s)) {
        if (!kin_scan_take(&r->s, "return")) {
            read_line(r);
            continue;
        }
        for (kin_scan probe = r->s; kin_scan_take(&probe, "%"); probe = r->s) {
            kin_aten_output(r->g, read_ref(r));
            if (!kin_scan_take(&r->s, ","))
                break;
        }
        kin_scan_end_line(&r->s);
        if (kin_scan_next_line(&r->s))
            kin_scan_fail(&r->s, "nothing may follow the return");
        return;
    }
    kin_scan_fail(&r->s, "return expected");
}

kin_aten *
kin_aten_parse(const char *text, kin_text *why)
{
    reader r = {.s = {.at = text, .line = 1, .why = why}, .g = kin_aten_new()};
    if (r.g == NULL)
        return NULL;
    read_graph(&r);
    if (r.g->failed)
        kin_scan_fail(&r.s, "no memory");
    kin_vec_deinit(&r.sizes);
    kin_vec_deinit(&r.strides);
    if (!r.s.wrong)
        return r.g;
    kin_aten_free(r.g);
    return NULL;
}
