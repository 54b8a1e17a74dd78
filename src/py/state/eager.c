/* Why calls run eagerly: texts, and rows of breaks.def (eager.def). */
#include "core/diag/breaks.h"
#include "py/state/state.h"

const char *
kin_eager_text(kin_eager why)
{
    static const char *const texts[] = {
        "",
#define EAGER(NAME, WHY, text) text,
#include "py/state/eager.def"
#undef EAGER
    };
    return texts[why];
}

unsigned
kin_eager_row(kin_eager why)
{
    static const unsigned rows[] = {
        KIN_WHY_NONE,
#define EAGER(NAME, WHY, text) WHY,
#include "py/state/eager.def"
#undef EAGER
    };
    return rows[why];
}
