/* Guards that are asked in vain: that ends when they cost more than the calls that fit save, and begins again now and then. */
#include "core/tier/lookup.h"

#include "check.h"

/* Of so many calls one fits; how many look? */
static int
count_looks(int one_of, double lost, double ratio)
{
    kin_lookup s = {0};
    int looks = 0;
    for (int i = 0; i < 10000; i++) {
        if (kin_lookup_skips(&s))
            continue;
        looks++;
        if (one_of > 0 && i % one_of == 0)
            kin_lookup_hit(&s, lost / 2, ratio);
        else
            kin_lookup_miss(&s, lost, 1000);
    }
    return looks;
}

int
main(void)
{
    CHECK_EQ(count_looks(1, 100, 0.5), 10000);  /* all fit */
    CHECK_EQ(count_looks(2, 100, 0.5), 10000);  /* half of them, and they save more than that */
    CHECK_EQ(count_looks(10, 10, 0.1), 10000);
    CHECK(count_looks(0, 10, 0) < 1000);        /* none ever */
    CHECK(count_looks(10, 100, 0.5) < 1000);
    CHECK(count_looks(3, 100, 1) < 1000);       /* what fits saves nothing */
    CHECK(count_looks(0, 10, 0) >= 96);         /* it is asked again */
    return check_report("lookup");
}
