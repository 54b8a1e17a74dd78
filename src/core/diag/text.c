/* Growable strings for reports, and JSON string quoting (the event log needs no more of JSON than that). */
#include "core/diag/text.h"

#include "core/base/status.h"
#include "core/base/vec.h"

#include <stdarg.h>
#include <stdio.h>

static bool
make_room(kin_text *t, uint32_t more)
{
    if (t->failed || more == UINT32_MAX
        || kin_vec_grow_raw((void **)&t->at, t->len, &t->cap, more + 1, 1) != KIN_OK) {
        t->failed = true;
        return false;
    }
    return true;
}

void
kin_text_add_len(kin_text *t, const char *s, uint32_t len)
{
    if (!make_room(t, len))
        return;
    memcpy(t->at + t->len, s, len);
    t->len += len;
    t->at[t->len] = '\0';
}

void
kin_text_add(kin_text *t, const char *s)
{
    kin_text_add_len(t, s, (uint32_t)strlen(s));
}

/* Mostly the text fits into the room that is there, and is formatted once. */
void
kin_text_addf(kin_text *t, const char *format, ...)
{
    va_list args, again;
    va_start(args, format);
    va_copy(again, args);
    size_t room = t->at == NULL ? 0 : t->cap - t->len;
    int need = vsnprintf(room == 0 ? NULL : t->at + t->len, room, format, args);
    va_end(args);
    if (need < 0)
        t->failed = true;
    else if (make_room(t, (uint32_t)need)) {
        if ((size_t)need >= room)
            vsnprintf(t->at + t->len, (size_t)need + 1, format, again);
        t->len += (uint32_t)need;
    }
    if (t->failed && t->at != NULL)
        t->at[t->len] = '\0';
    va_end(again);
}

static bool
is_plain(unsigned char c)
{
    return c >= 0x20 && c != 0x7f && c != '"' && c != '\\';
}

void
kin_text_add_json(kin_text *t, const char *s)
{
    kin_text_add(t, "\"");
    for (; *s != '\0'; s++) {
        uint32_t plain = 0;
        while (is_plain((unsigned char)s[plain]))
            plain++;
        kin_text_add_len(t, s, plain);
        s += plain;
        unsigned char c = (unsigned char)*s;
        if (c == '\0')
            break;
        if (c == '"' || c == '\\')
            kin_text_addf(t, "\\%c", c);
        else if (c == '\n')
            kin_text_add(t, "\\n");
        else if (c == '\t')
            kin_text_add(t, "\\t");
        else
            kin_text_addf(t, "\\u%04x", c);
    }
    kin_text_add(t, "\"");
}

void
kin_text_clear(kin_text *t)
{
    t->len = 0;
    t->failed = false;
    if (t->at != NULL)
        t->at[0] = '\0';
}

void
kin_text_deinit(kin_text *t)
{
    free(t->at);
    *t = (kin_text){0};
}
