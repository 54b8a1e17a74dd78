/* Partitioning small traces written as text: which calls run together, and which part each step in between has.
 *
 * A line is a value or a step, words with blanks between them:
 *
 *     x = tensor          a local variable that holds a tensor; `local`: another object; `const atom`: a constant, with its bits
 *     y = call torch f x  a step: its kind, flags, effects, `imm:2`, `ref:name`, and operands (`-` is vid 0)
 *
 * The trace ends with a RETURN of its own. The answer has a line per subgraph: the roles of its steps from first to last, C call,
 * D deferred, T test, I in order, O in order and observable, s sunk; then `at 3` where it runs before that step, `plain` or `hides` where it is so, and
 * why it ended.
 */
#include "core/trace/effects.h"
#include "core/trace/partition.h"
#include "check.h"

#include <stdlib.h>

enum { MOST = 64 };

static kin_trace t;
static kin_object_traits objects[MOST];
static char names[MOST][16];   /* by vid */
static char texts[MOST][16];   /* by kin_ref: names of attributes */
static kin_ref nrefs;

typedef struct {
    const char *word;
    uint32_t bits;
} word;

static const word flag_words[] = {{"torch", KIN_STEP_TORCH}, {"opaque", KIN_STEP_OPAQUE}, {"break", KIN_STEP_BREAK}, {"effect", KIN_STEP_EFFECT},
    {"pure", KIN_STEP_PURE}, {"mutates", KIN_STEP_MUTATES}, {"raises", KIN_STEP_RAISES}, {NULL, 0}};
static const word effect_words[] = {{"asks", KIN_ASKS}, {"inside", KIN_INSIDE}, {"of_first", KIN_OF_FIRST}, {"holds", KIN_HOLDS}, {"by_name", KIN_BY_NAME},
    {"stores", KIN_STORES}, {"settings", KIN_SETTINGS}, {"grad_mode", KIN_GRAD_MODE}, {"fits", KIN_FITS}, {"into_dict", KIN_INTO_DICT},
    {"instance", KIN_INSTANCE}, {"from_data", KIN_FROM_DATA}, {"deep", KIN_LOOKS(NOT, DEEP, DEEP)}, {"items", KIN_LOOKS(NOT, ITEMS, ITEMS)}, {"nothing", KIN_MAY_RAISE}, {NULL, 0}};
static const word object_words[] = {{"atom", KIN_IS_ATOM}, {"code", KIN_IS_CODE}, {"class", KIN_IS_CLASS | KIN_IS_CODE}, {"true", KIN_IS_TRUE | KIN_IS_ATOM},
    {"false", KIN_IS_FALSE | KIN_IS_ATOM}, {"buffer", KIN_IS_BUFFER}, {"offset", KIN_IS_OFFSET}, {"late", KIN_IS_LATE}, {NULL, 0}};

static uint32_t
bits_of(const word *words, const char *text)
{
    for (; words->word != NULL; words++)
        if (strcmp(words->word, text) == 0)
            return words->bits;
    return 0;
}

/* -- reading ---------------------------------------------------------------------------------------------------- */

static kin_vid
add_val(const char *name, kin_val val)
{
    CHECK(t.vals.len < MOST && kin_vec_push(&t.vals, val) == KIN_OK);
    snprintf(names[t.vals.len - 1], sizeof *names, "%s", name);
    return t.vals.len - 1;
}

static kin_ref
text_ref(const char *text)
{
    for (kin_ref i = 1; i < nrefs; i++)
        if (strcmp(texts[i], text) == 0)
            return i;
    snprintf(texts[nrefs], sizeof *texts, "%s", text);
    objects[nrefs] = (kin_object_traits){.is = KIN_IS_ATOM, .text = nrefs};
    if (strcmp(text, "__dict__") == 0 || strcmp(text, "cell_contents") == 0)
        objects[nrefs].is |= KIN_IS_INSIDE_NAME;
    if (strcmp(text, "_version") == 0)
        objects[nrefs].is |= KIN_IS_VERSION;
    return nrefs++;
}

static bool
find(const char *name, kin_vid *vid)
{
    for (*vid = t.vals.len; --*vid > 0;)
        if (strcmp(names[*vid], name) == 0)
            return true;
    return strcmp(name, "-") == 0;
}

static bool
read_value(const char *name, const char *kind, char *rest)
{
    if (strcmp(kind, "tensor") == 0 || strcmp(kind, "local") == 0) {
        add_val(name, (kin_val){.kind = KIN_VAL_SRC, .access = KIN_ACCESS_LOCAL, .note = kind[0] == 't'});
        return true;
    }
    if (strcmp(kind, "const") != 0)
        return false;
    kin_val val = {.kind = KIN_VAL_CONST, .key = nrefs};
    objects[nrefs++] = (kin_object_traits){0};
    for (char *w = strtok(rest, " "); w != NULL; w = strtok(NULL, " "))
        if (strncmp(w, "text:", 5) == 0)
            val.key = text_ref(w + 5);
        else
            objects[val.key].is |= bits_of(object_words, w);
    add_val(name, val);
    return true;
}

static kin_step_kind
kind_named(const char *name)
{
    for (int k = 0; k < KIN_STEP__COUNT; k++)
        if (strcmp(kin_step_name((kin_step_kind)k), name) == 0)
            return (kin_step_kind)k;
    CHECK_STR(name, "a kind of step");
    return KIN_STEP_EXIT;
}

static void
read_word(kin_step *s, const char *w)
{
    kin_vid vid;
    if (strncmp(w, "imm:", 4) == 0)
        s->imm = (uint8_t)atoi(w + 4);
    else if (strncmp(w, "ref:", 4) == 0)
        s->ref = text_ref(w + 4);
    else if (strncmp(w, "num:", 4) == 0)
        s->num = (uint32_t)atoi(w + 4);
    else if (bits_of(flag_words, w) != 0)
        s->flags |= (uint16_t)bits_of(flag_words, w);
    else if (bits_of(effect_words, w) != 0)
        s->effects |= bits_of(effect_words, w);
    else if (CHECK(find(w, &vid)) && CHECK(kin_vec_push(&t.vids, vid) == KIN_OK))
        s->nargs++;
}

static void
read_line(char *line)
{
    char *equals = strstr(line, " = "), *name = "", *rest = line;
    if (equals != NULL) {
        *equals = 0;
        name = line;
        rest = equals + 3;
    }
    char *blank = strchr(rest, ' '), *kind = rest;
    rest = blank != NULL ? blank + 1 : "";
    if (blank != NULL)
        *blank = 0;
    char copy[128];
    snprintf(copy, sizeof copy, "%s", rest);
    if (read_value(name, kind, copy))
        return;
    kin_step s = {.kind = (uint8_t)kind_named(kind), .args = t.vids.len};
    for (char *w = strtok(copy, " "); w != NULL; w = strtok(NULL, " "))
        read_word(&s, w);
    if (s.effects != 0 && s.kind != KIN_STEP_CALL)
        s.effects |= kin_kind_effects((kin_step_kind)s.kind);
    if (equals != NULL)
        s.out = add_val(name, (kin_val){.kind = KIN_VAL_STEP, .step = t.steps.len, .note = s.flags & KIN_STEP_TORCH ? 1u : 0u});
    CHECK(kin_vec_push(&t.steps, s) == KIN_OK);
}

/* -- the answer ------------------------------------------------------------------------------------------------- */

static void
describe(const kin_subgraph *g, char *out, size_t size)
{
    static const char letters[] = "-CDTIO";
    size_t n = strlen(out);
    for (uint32_t i = g->first; i <= g->last && n + 2 < size; i++)
        out[n++] = t.steps.at[i].flags & KIN_STEP_SUNK ? 's' : letters[g->role[i - g->first]];
    out[n] = 0;
    if (g->at != 0)
        n += (size_t)snprintf(out + n, size - n, " at %u", g->at);
    for (uint32_t i = g->first; g->grads != NULL && i <= g->last; i++)
        n += (size_t)snprintf(out + n, size - n, "%s%d", i == g->first ? " gradients " : "", kin_subgraph_grad(g, i));
    snprintf(out + n, size - n, "%s%s%s%s\n", g->plain ? " plain" : "", g->deferred && g->hides_writes ? " hides" : "", g->why ? " | " : "", g->why ? g->why : "");
}

static kin_vids *asked; /* gets the inputs of the first subgraph */
static uint32_t excluded[4], barriers[4], nexcluded, nbarriers;

static const char *
partition(const char *text, unsigned how)
{
    static char answer[600];
    char lines[1200];
    memset(&objects, 0, sizeof objects);
    memset(&texts, 0, sizeof texts);
    nrefs = 1;
    CHECK(kin_trace_init(&t) == KIN_OK);
    snprintf(lines, sizeof lines, "%s", text);
    for (char *line = lines, *end; *line != 0; line = end) {
        end = line + strcspn(line, "\n");
        end += *end != 0 ? (*end = 0, 1) : 0;
        read_line(line);
    }
    kin_vid result = t.vals.len - 1;
    kin_step ret = {.kind = KIN_STEP_RETURN, .args = t.vids.len, .nargs = 1};
    CHECK(kin_vec_push(&t.vids, result) == KIN_OK && kin_vec_push(&t.steps, ret) == KIN_OK && kin_trace_finish(&t) == KIN_OK);
    kin_partition_input in = {.t = &t, .objects = objects, .excluded = excluded, .nexcluded = nexcluded, .barriers = barriers,
                              .nbarriers = nbarriers, .grad = false, .how = how};
    kin_subgraphs *found = kin_partition_find(&in);
    answer[0] = 0;
    for (uint32_t u = 0; CHECK(found != NULL) && u < found->at.len; u++)
        describe(&found->at.at[u], answer, sizeof answer);
    if (asked != NULL && CHECK(found != NULL && found->at.len > 0)) {
        kin_vids out = {0};
        CHECK(kin_subgraph_bounds(&t, found, 0, asked, &out) == KIN_OK);
        kin_vec_deinit(&out);
    }
    kin_partition_free(found);
    kin_trace_deinit(&t);
    nexcluded = nbarriers = 0;
    return answer;
}

/* The names of what goes into the first subgraph. */
static const char *
inputs(const char *text)
{
    static char answer[200];
    kin_vids in = {0};
    asked = &in;
    partition(text, KIN_SUBGRAPHS_WIDE);
    asked = NULL;
    answer[0] = 0;
    for (uint32_t i = 0; i < in.len; i++)
        snprintf(answer + strlen(answer), sizeof answer - strlen(answer), "%s ", names[in.at[i]]);
    kin_vec_deinit(&in);
    return answer;
}

#define INPUTS(text) inputs("f = const code\nx = tensor\ny = tensor\n" text)
#define WIDE(text) partition("f = const code\nx = tensor\n" text, KIN_SUBGRAPHS_WIDE)
#define EVERY(text) partition("f = const code\nx = tensor\n" text, KIN_SUBGRAPHS_WIDE | KIN_SUBGRAPHS_EVERY)
#define PLAIN(text) partition("f = const code\nx = tensor\n" text, KIN_SUBGRAPHS_PLAIN)
#define FIRST "a = call torch f x\n"
#define LAST "b = call torch f x\n"

/* -- tests ------------------------------------------------------------------------------------------------------ */

static void
test_calls(void)
{
    CHECK_STR(WIDE(FIRST "b = call torch f a\n"), "CC plain | the recording ends\n");
    CHECK_STR(PLAIN(FIRST "b = call torch f a\n"), "CC plain | another step stands between its calls\n");
    CHECK_STR(WIDE(FIRST "o = call opaque effect f\n" LAST), "C plain | it may run arbitrary Python code\nC plain | the recording ends\n");
    CHECK_STR(WIDE(FIRST "o = call opaque break f\n" LAST), "C plain | it may run arbitrary Python code\nC plain | the recording ends\n");
    excluded[0] = 2;
    nexcluded = 1;
    CHECK_STR(WIDE(FIRST "b = call torch f a\nc = call torch f b\n"), "C plain | it cannot be compiled together with other calls\nC plain | the recording ends\n");
}

/* What uses a result is deferred, what does not runs in order. */
static void
test_order(void)
{
    CHECK_STR(WIDE("l = local\n" FIRST "n = len l\n" LAST), "CIC hides | the recording ends\n");
    CHECK_STR(PLAIN("l = local\n" FIRST "n = len l\n" LAST), "C plain | another step stands between its calls\n"
                                                              "C plain | another step stands between its calls\n");
    CHECK_STR(WIDE(FIRST "n = size a\nm = binary pure n n\nb = call torch f x m\n"), "CDDC | the recording ends\n");
    CHECK_STR(WIDE(FIRST "n = truth a\n" LAST), "C plain | Python code needs a result of the graph before its end\nC plain | the recording ends\n");
    CHECK_STR(WIDE(FIRST "check imm:2 a\n" LAST), "CTC | the recording ends\n");
    CHECK_STR(WIDE(FIRST "check imm:0 a\n" LAST), "C plain | Python code needs a result of the graph before its end\nC plain | the recording ends\n");
}

/* A container is built late where a call's result is in it, in order where something in order wants it. */
static void
test_containers(void)
{
    CHECK_STR(WIDE(FIRST "p = tuple pure a x\nb = call torch f p\n"), "CDC plain | the recording ends\n");
    CHECK_STR(WIDE("l = local\n" FIRST "p = tuple pure l\nn = len p\nb = call torch f x n\n"), "CIIC hides | the recording ends\n");
    CHECK_STR(WIDE("l = local\n" FIRST "list_append mutates l a\n" LAST), "C plain | Python code needs a result of the graph before its end\nC plain | the recording ends\n");
}

/* A list that was built before the subgraph, or is an item of one, goes in as what it was built from, unless something may have changed it. */
static void
test_lists(void)
{
    CHECK_STR(INPUTS("p = list pure x y\na = call torch f p\n"), "x y ");
    CHECK_STR(INPUTS("p = list pure x y\nlist_append mutates p y\na = call torch f p\n"), "p ");
    CHECK_STR(INPUTS("p = list pure x y\nq = list pure p y\na = call torch f q\n"), "x y ");
    CHECK_STR(INPUTS("p = list pure x y\nq = tuple pure p y\na = call torch f q\n"), "x y ");
    CHECK_STR(INPUTS("p = list pure x y\nq = list pure p y\nlist_append mutates p y\na = call torch f q\n"), "p y ");
    CHECK_STR(INPUTS("p = list pure x y\nq = list pure p y\no = call opaque effect f q\na = call torch f q p\n"), "q p ");
    CHECK_STR(INPUTS("p = list pure x y\nq = tuple pure p y\no = call opaque effect f q\na = call torch f p\n"), "p ");
}

/* What a call has been given must not change before it runs. */
static void
test_changes(void)
{
    CHECK_STR(WIDE("l = local\na = call torch f l\ng = const code\nc = call effect asks inside of_first deep g l\n" LAST),
              "C plain | a tensor call before it might see what it changes\nC plain | the recording ends\n");
    CHECK_STR(WIDE("l = local\n" FIRST "g = const code\nc = call effect asks inside of_first deep g l\n" LAST), "COC | the recording ends\n");
    CHECK_STR(WIDE("l = local\n" FIRST "g = const code\nc = call effect asks inside of_first deep g l\nb = call torch f l\n"),
              "C plain | one of its inputs is modified between the calls\nC plain | the recording ends\n");
    barriers[0] = 2;
    nbarriers = 1;
    CHECK_STR(WIDE("l = local\n" FIRST "g = const code\nc = call effect asks inside of_first deep g l\n" LAST),
              "C plain | a call before it may raise because of data, after which this must not have run\nC plain | the recording ends\n");
}

/* Calls of known callables: by what the recorder stamped on them. */
static void
test_callables(void)
{
    CHECK_STR(WIDE("l = local\n" FIRST "g = const code\nn = call asks inside deep g l\n" LAST), "CIC | the recording ends\n");
    CHECK_STR(WIDE("l = local\n" FIRST "g = const code\nn = call nothing g l\n" LAST), "C plain | what it returns may depend on a tensor call before it\nC plain | the recording ends\n");
    CHECK_STR(WIDE("l = local\nk = const text:size\n" FIRST "g = const code\nn = call asks by_name g l k\n" LAST), "CIC hides | the recording ends\n");
    CHECK_STR(WIDE("l = local\nk = const text:_version\n" FIRST "g = const code\nn = call asks by_name g l k\n" LAST), "CIC | the recording ends\n");
    CHECK_STR(WIDE("l = local\n" FIRST "g = const code\nn = call asks by_name g l l\n" LAST), "C plain | what it returns may depend on a tensor call before it\nC plain | the recording ends\n");
    CHECK_STR(WIDE(FIRST "g = const code\nn = call effect settings g\n" LAST), "CIC hides | the recording ends\n");
}

static void
test_gradients(void)
{
    CHECK_STR(WIDE(FIRST "on = const false\ng = const code\nn = call effect grad_mode g on\n" LAST), "CIC hides | the recording ends\n");
    /* switched really: what is put off knows how it was at each call; a graph that a backend gets has the switch as a call of its own, or ends */
    CHECK_STR(WIDE(FIRST "on = const true\ng = const code\nn = call effect grad_mode g on\n" LAST), "CIC gradients 001 hides | the recording ends\n");
    CHECK_STR(WIDE("off = const false\n" FIRST "on = const true\ng = const code\nn = call effect grad_mode g on\n" LAST "m = call effect grad_mode g off\nc = call torch f x\n"),
              "CICIC gradients 00110 hides | the recording ends\n");
    CHECK_STR(WIDE(FIRST "on = local\ng = const code\nn = call effect grad_mode g on\n" LAST),
              "C plain | a tensor call before it might see what it changes\nC plain | the recording ends\n");
    CHECK_STR(WIDE(FIRST "on = const true\ng = const code\nn = call effect grad_mode g on\n"), "C plain | the recording ends\n");
    CHECK_STR(WIDE("on = const true\ng = const code\nm = call effect grad_mode g on\n" FIRST "n = call effect grad_mode g on\n" LAST), "CIC hides | the recording ends\n");
}

/* A store of a result is deferred when it is known to change one word only, and nobody asks for that meanwhile. */
static void
test_stores(void)
{
    CHECK_STR(WIDE("o = local\n" FIRST "setattr effect fits ref:h o a\n" LAST), "CDC | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "setattr effect ref:h o a\n" LAST), "C plain | Python code needs a result of the graph before its end\nC plain | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "setattr effect fits ref:h o a\nn = getattr ref:g o\n" LAST), "CDIC hides | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "setattr effect fits ref:h o a\nn = getattr ref:h o\n" LAST),
              "C plain | it might see that an attribute is set later than in eager\nC plain | the recording ends\n");
    CHECK_STR(WIDE("o = local\nk = const text:h\ng = const code\n" FIRST "setattr effect fits ref:h o a\nn = call asks by_name g o k\n" LAST),
              "C plain | it might see that an attribute is set later than in eager\nC plain | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "setattr effect fits ref:h o a\nn = getattr ref:__dict__ o\n" LAST),
              "C plain | it might see that an attribute is set later than in eager\nC plain | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "setattr effect fits into_dict ref:h o a\nn = len o\n" LAST),
              "C plain | it might see that an attribute is set later than in eager\nC plain | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "setattr effect fits ref:h o a\nn = len o\n" LAST), "CDIC hides | the recording ends\n");
}

/* Items of a dict or list that was there before, or of a list that the recording has made: nobody may look into what may be that container. */
static void
test_items(void)
{
    const char *seen = "C plain | it might see that an attribute is set later than in eager\nC plain | the recording ends\n";
    const char *not_yet = "C plain | Python code needs a result of the graph before its end\nC plain | the recording ends\n";
#define INTO_DICT "d = local\nk = const text:h\no = local\n" FIRST "set_subscr effect fits into_dict d k a\n"
#define INTO_LIST "l = local\nm = const code\no = local\nk = const text:h\n" FIRST "call effect into_dict of_first m l a\n"
    CHECK_STR(WIDE(INTO_DICT LAST), "CDC | the recording ends\n");
    CHECK_STR(WIDE(INTO_LIST LAST), "CDC | the recording ends\n");
    CHECK_STR(WIDE("o = local\nl = list pure\nsetattr effect fits ref:h o l\n" FIRST "list_append mutates l a\n" LAST), "CDC | the recording ends\n");
    CHECK_STR(WIDE("l = local\n" FIRST "list_append mutates l a\n" LAST), not_yet);
    CHECK_STR(WIDE("d = local\nk = const text:h\n" FIRST "set_subscr effect d k a\n" LAST), not_yet);
    CHECK_STR(WIDE(INTO_DICT "n = len d\n" LAST), seen);
    CHECK_STR(WIDE(INTO_DICT "n = len o\n" LAST), seen); /* it may be the same dict */
    CHECK_STR(WIDE(INTO_DICT "n = len k\n" LAST), "CDIC hides | the recording ends\n");
    CHECK_STR(WIDE(INTO_DICT "n = getattr ref:h o\n" LAST), seen); /* the dict may be o's own */
    CHECK_STR(WIDE(INTO_DICT "n = getattr ref:g o\n" LAST), "CDIC hides | the recording ends\n");
    CHECK_STR(WIDE(INTO_LIST "n = len o\n" LAST), seen);
    CHECK_STR(WIDE(INTO_LIST "n = getattr ref:h o\n" LAST), "CDIC hides | the recording ends\n");
    CHECK_STR(WIDE("o = local\nl = list pure\nsetattr effect fits ref:h o l\n" FIRST "list_append mutates l a\nn = len l\n" LAST), seen);
    CHECK_STR(WIDE("o = local\ne = list pure\nl = list pure\nsetattr effect fits ref:h o l\n" FIRST "list_append mutates l a\nn = len e\n" LAST), "CDIC hides | the recording ends\n");
#undef INTO_DICT
#undef INTO_LIST
}

/* A variable of a closure: nobody may look into the cell meanwhile. */
static void
test_cells(void)
{
    const char *seen = "C plain | it might see that an attribute is set later than in eager\nC plain | the recording ends\n";
    CHECK_STR(WIDE("o = local\n" FIRST "cell_set effect fits o a\n" LAST), "CDC | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "cell_set effect o a\n" LAST), "C plain | Python code needs a result of the graph before its end\nC plain | the recording ends\n");
    CHECK_STR(WIDE("o = local\n" FIRST "cell_set effect fits o a\nn = cell_get o\n" LAST), seen);
    CHECK_STR(WIDE("o = local\n" FIRST "cell_set effect fits o a\nn = getattr ref:cell_contents o\n" LAST), seen);
    CHECK_STR(WIDE("o = local\nl = local\n" FIRST "cell_set effect fits o a\nn = compare asks deep o l\n" LAST), seen);
    CHECK_STR(WIDE("o = local\nl = local\n" FIRST "cell_set effect fits o a\nn = len l\n" LAST), "CDIC hides | the recording ends\n");
}

/* An object that the recording has made: its attributes are stored behind the calls. */
static void
test_own_objects(void)
{
    CHECK_STR(WIDE("c = const class\n" FIRST "o = object pure effect c\nsetattr mutates ref:h o a\n" LAST),
              "C plain | a tensor call before it might see what it changes\nC plain | the recording ends\n");
    CHECK_STR(WIDE("c = const class\no = object pure c\n" FIRST "setattr mutates ref:h o a\nd = call torch f o\n"),
              "C plain | one of its inputs is modified between the calls\nC plain | the recording ends\n");
    CHECK_STR(WIDE("c = const class\no = object pure c\n" FIRST "setattr mutates ref:h o a\n" LAST "d = call opaque effect f o\n"), "CDC | it may run arbitrary Python code\n");
}

static const char *
every_of(const char *more, const char *text)
{
    char whole[300];
    snprintf(whole, sizeof whole, "f = const code%s\n%s", more, text);
    return partition(whole, KIN_SUBGRAPHS_WIDE | KIN_SUBGRAPHS_EVERY);
}

/* An assertion is part of a graph for a backend, unless a device would report it late. (All tensors have the description with number 1, which is f's.) */
static void
test_assertions(void)
{
    static const kin_check tests[] = {KIN_CHECK_TRUE, KIN_CHECK_FALSE};
    for (size_t i = 0; i < sizeof tests / sizeof tests[0]; i++) {
        char text[200];
        snprintf(text, sizeof text, "x = tensor\n" FIRST "check torch from_data imm:%d a\n" LAST, tests[i]);
        CHECK_STR(every_of("", text), "CCC plain | the recording ends\n");
        CHECK_STR(every_of(" late", text), "C plain | data on a device decides what runs next\nC plain | the recording ends\n");
    }
}

/* For backends: the calls run before a step that wants a result, and later ones with them if what they take is there by then. */
static void
test_early(void)
{
    CHECK_STR(EVERY("l = local\n" FIRST "list_append mutates l a\nb = call torch f a\n"), "CIC at 2 hides | the recording ends\n");
    CHECK_STR(EVERY("l = local\n" FIRST "list_append mutates l a\nb = call torch f l\n"), "C plain | one of its inputs is modified between the calls\nC plain | the recording ends\n");
    CHECK_STR(EVERY(FIRST "n = truth a\nb = call torch f n\n"), "C plain | one of its inputs is made after a step that needs results of the graph\nC plain | the recording ends\n");
    CHECK_STR(EVERY(FIRST "n = truth a\nb = call torch f a\np = tuple pure b x\nc = call torch f p\n"), "CICDC at 2 hides | the recording ends\n");
    CHECK_STR(EVERY(FIRST "n = truth a\ncheck imm:2 a\ncheck imm:0 n\n" LAST), "CITIC at 2 hides | the recording ends\n");
    CHECK_STR(EVERY(FIRST "o = call opaque effect f a\n" LAST), "C plain | it may run arbitrary Python code\nC plain | the recording ends\n");
    CHECK_STR(EVERY("o = local\n" FIRST "n = binary raises o o\nm = len n\n" LAST), "CIIC at 2 hides | the recording ends\n");
    /* writes may wait while numbers are added up, but not for a step that looks into memory before the graph runs */
    CHECK_STR(WIDE("o = local\n" FIRST "n = truth o\n" LAST), "CIC | the recording ends\n");
    CHECK_STR(EVERY("o = local\n" FIRST "m = truth o\nn = truth a\n" LAST), "CIIC at 3 | the recording ends\n");
    CHECK_STR(EVERY("o = local\n" FIRST "n = truth a\nm = truth o\n" LAST), "CIIC at 2 hides | the recording ends\n");
    /* a write behind the place where the graph runs begins one of its own */
    barriers[0] = 3;
    nbarriers = 1;
    CHECK_STR(EVERY(FIRST "n = truth a\nb = call torch f a\nc = call torch f b\n"),
              "C plain | a graph has to begin here: it writes to a tensor behind the place where the other runs, or gradients are taken from both one after "
              "another\nCC plain | the recording ends\n");
}

/* Settings are switched in the graph and in order. */
static void
test_switches(void)
{
    CHECK_STR(EVERY("on = const true\ng = const code\n" FIRST "n = call torch effect settings stores g on\n" LAST), "CIC at 2 hides | the recording ends\n");
    CHECK_STR(EVERY("on = local\ng = const code\n" FIRST "n = call torch effect settings stores g on\n" LAST),
              "C plain | it may run arbitrary Python code\nC plain | the recording ends\n");
    CHECK_STR(EVERY("on = const true\ng = const code\nn = call torch effect settings stores g on\n" LAST), "C plain | the recording ends\n");
    /* one behind the last call is left to the program: graphs give settings back */
    CHECK_STR(EVERY("on = const true\ng = const code\n" FIRST "n = call torch effect settings stores g on\no = call opaque effect f a\n" LAST),
              "C plain | it may run arbitrary Python code\nC plain | the recording ends\n");
    CHECK_STR(EVERY("on = const true\ng = const code\n" FIRST "n = call torch effect settings stores g on\n"), "C plain | the recording ends\n");
}

/* What each round of a loop takes out of a tensor that was there before is an input of the graph. */
static void
test_loops(void)
{
    CHECK_STR(WIDE("y = tensor\nl = local\nloop opaque l x y\ni = next l\na = call torch f y\np = subscr torch x i\nb = call torch f a p\n"), "CIC | the recording ends\n");
    CHECK_STR(WIDE("y = tensor\nl = local\nloop opaque l x y\ni = next l\na = call torch f y\nt = tuple pure i i\np = subscr torch x t\nb = call torch f a p\n"),
              "CIIC | the recording ends\n");
    CHECK_STR(WIDE("l = local\nloop opaque l x\ni = next l\na = call torch f x\np = subscr torch x i\nb = call torch f a p\n"),
              "C plain | it takes something out of a tensor that a tensor call before it gets\nC plain | the recording ends\n");
    CHECK_STR(WIDE("l = local\nn = local\nloop opaque l x n\ni = next l\na = call torch f x\np = subscr torch x n\nb = call torch f a p\n"), "CCC plain | the recording ends\n");
    CHECK_STR(WIDE("l = local\ni = next l\na = call torch f x\np = subscr torch x i\nb = call torch f a p\n"), "CCC plain | the recording ends\n");
}

int
main(void)
{
    test_assertions();
    test_loops();
    test_early();
    test_switches();
    test_calls();
    test_order();
    test_containers();
    test_lists();
    test_changes();
    test_callables();
    test_gradients();
    test_stores();
    test_items();
    test_cells();
    test_own_objects();
    return check_report("partition");
}
