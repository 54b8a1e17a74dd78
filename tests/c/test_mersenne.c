/* Draws by vectors against the generator's definition, from any place in its words on. */
#include "core/tiles/mersenne.h"

#include <math.h>
#include <string.h>

#include "core/tiles/tile.h"

#include "check.h"

enum { N = KIN_MERSENNE_WORDS };

static uint32_t
next_word(kin_mersenne *m)
{
    if (m->next == N) {
        for (int i = 0; i < N; i++) {
            uint32_t y = (m->words[i] & 0x80000000u) | (m->words[(i + 1) % N] & 0x7fffffffu);
            m->words[i] = m->words[(i + 397) % N] ^ y >> 1 ^ (y & 1 ? 0x9908b0dfu : 0);
        }
        m->next = 0;
    }
    uint32_t y = m->words[m->next++];
    y ^= y >> 11;
    y ^= y << 7 & 0x9d2c5680u;
    y ^= y << 15 & 0xefc60000u;
    return y ^ y >> 18;
}

static float
draw(kin_mersenne *m, double p)
{
    uint64_t high = next_word(m), low = next_word(m);
    return ldexp((double)((high << 32 | low) & ((1ull << 53) - 1)), -53) < p;
}

static void
check_draws(uint32_t next, double p, int64_t n)
{
    static float made[4 * N];
    kin_mersenne ours = {.next = next}, plain;
    ours.words[0] = 5489;
    for (uint32_t i = 1; i < N; i++)
        ours.words[i] = 1812433253u * (ours.words[i - 1] ^ ours.words[i - 1] >> 30) + i;
    plain = ours;
    made[n] = 7;
    kin_tile_bernoulli(&ours, p, n, made);
    bool same = made[n] == 7;
    for (int64_t i = 0; i < n; i++)
        same = same && made[i] == draw(&plain, p);
    CHECK(same);
    for (int i = 0; i < 3; i++)
        same = same && next_word(&ours) == next_word(&plain);
    CHECK(same);
}

int
main(void)
{
    static const double chances[] = {0, 1e-3, 0.1, 0.5, 0.9, 1};
    static const int64_t numbers[] = {0, 1, 7, 8, 16, 31, 311, 312, 313, 1000, 2000};
    static const uint32_t places[] = {0, 1, 2, 300, 621, 622, 623, 624};
    for (unsigned p = 0; kin_tile_here() && p < sizeof chances / sizeof *chances; p++)
        for (unsigned n = 0; n < sizeof numbers / sizeof *numbers; n++)
            for (unsigned at = 0; at < sizeof places / sizeof *places; at++)
                check_draws(places[at], chances[p], numbers[n]);
    return check_report("mersenne");
}
