/* The table of graph breaks, growable texts and the event log. */
#include "core/diag/breaks.h"
#include "core/diag/events.h"
#include "core/diag/text.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failures;

#define CHECK(condition)                                                            \
    do {                                                                            \
        if (!(condition)) {                                                         \
            fprintf(stderr, "%s:%d: %s does not hold\n", __FILE__, __LINE__, #condition); \
            failures++;                                                             \
        }                                                                           \
    } while (0)

static void
test_break_rows(void)
{
    CHECK(kin_break_find(KIN_WHY_NONE) == NULL);
    CHECK(kin_break_find(KIN_WHY__COUNT) == NULL);
    unsigned last_id = 0;
    for (unsigned why = 1; why < KIN_WHY__COUNT; why++) {
        const kin_break_row *row = kin_break_find(why);
        CHECK(row->id > last_id); /* ids are unique and in order */
        last_id = row->id;
        CHECK(row->type[0] != '\0' && row->explanation[0] != '\0' && row->hints[0] != '\0');
        CHECK(kin_break_by_name(row->name) == why);
        CHECK(strcmp(kin_break_category_name(row->category), "?") != 0);
    }
    CHECK(kin_break_by_name("NO_SUCH_ROW") == KIN_WHY_NONE);
    CHECK(KIN_ROW_DATA_DEPENDENT_BRANCH + 1 == KIN_WHY_DATA_DEPENDENT_BRANCH);
}

static void
test_json_quoting(void)
{
    kin_text t = {0};
    kin_text_add_json(&t, "a\"b\\c\n\x01\xc3\xa9");
    CHECK(strcmp(t.at, "\"a\\\"b\\\\c\\n\\u0001\xc3\xa9\"") == 0);
    kin_text_deinit(&t);
}

static void
test_event_order_and_loss(void)
{
    kin_event_log *log = kin_event_log_new(2);
    for (int i = 0; i < 3; i++) {
        kin_event_begin(log, KIN_EVENT_BREAK);
        kin_event_int(log, "line", i);
        kin_event_str(log, "function", "f");
        kin_event_num(log, "bad", 1.0 / 0.0);
        kin_event_end(log);
    }
    CHECK(kin_event_count(log) == 2);
    CHECK(kin_event_dropped(log) == 1);
    char *line = kin_event_take(log);
    CHECK(strncmp(line, "{\"event\": \"break\", \"seq\": 1, ", 28) == 0);
    CHECK(strstr(line, "\"line\": 1, \"function\": \"f\", \"bad\": null}") != NULL);
    free(line);
    free(kin_event_take(log));
    CHECK(kin_event_take(log) == NULL);
    kin_event_log_free(log);
}

static void
test_missing_log(void)
{
    kin_event_begin(NULL, KIN_EVENT_BUG);
    kin_event_str(NULL, "a", "b");
    kin_event_end(NULL);
    CHECK(kin_event_take(NULL) == NULL);
    CHECK(!kin_event_log_open(NULL, "x"));
}

int
main(void)
{
    test_break_rows();
    test_json_quoting();
    test_event_order_and_loss();
    test_missing_log();
    return failures != 0;
}
