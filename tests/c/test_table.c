/* The hash table and the hash: many keys, equal hashes, growth, what was never entered. */
#include "check.h"
#include "core/base/hash.h"
#include "core/base/intern.h"
#include "core/base/table.h"

static uint32_t
find(const kin_table *t, uint64_t hash, const uint32_t *keys, uint32_t key)
{
    uint32_t n, at = 0;
    while ((n = kin_table_next(t, hash, &at)) != KIN_TABLE_NONE)
        if (keys[n] == key)
            return n;
    return KIN_TABLE_NONE;
}

/* hash_bits: how many different hashes there are. */
static void
test_many(unsigned hash_bits)
{
    enum { N = 500 };
    uint32_t keys[N] = {0};
    kin_table t = {0};
    CHECK(find(&t, 7, keys, 7) == KIN_TABLE_NONE);
    for (uint32_t i = 0; i < N; i++) {
        keys[i] = i * 7919;
        CHECK(kin_table_add(&t, kin_hash_word(0, keys[i]) & ((UINT64_C(1) << hash_bits) - 1), i) == KIN_OK);
    }
    for (uint32_t i = 0; i < N; i++) {
        uint64_t mask = (UINT64_C(1) << hash_bits) - 1;
        CHECK(find(&t, kin_hash_word(0, keys[i]) & mask, keys, keys[i]) == i);
        CHECK(find(&t, kin_hash_word(0, keys[i] + 1) & mask, keys, keys[i] + 1) == KIN_TABLE_NONE);
    }
    kin_table_clear(&t);
    CHECK(find(&t, kin_hash_word(0, keys[0]), keys, keys[0]) == KIN_TABLE_NONE);
    kin_table_deinit(&t);
}

/* Entered and taken out in turns, with few different hashes: what is left is found, what was taken out is not. */
static void
test_removal(unsigned hash_bits)
{
    enum { N = 300 };
    uint32_t keys[N];
    uint64_t mask = (UINT64_C(1) << hash_bits) - 1;
    bool in[N] = {false};
    kin_table t = {0};
    for (uint32_t i = 0; i < N; i++)
        keys[i] = i * 31;
    for (uint32_t round = 0; round < 4000; round++) {
        uint32_t i = (uint32_t)(kin_hash_word(1, round) % N);
        if (in[i])
            kin_table_remove(&t, kin_hash_word(0, keys[i]) & mask, i);
        else
            CHECK(kin_table_add(&t, kin_hash_word(0, keys[i]) & mask, i) == KIN_OK);
        in[i] = !in[i];
        for (uint32_t k = round % 7; k < N; k += 7)
            CHECK(find(&t, kin_hash_word(0, keys[k]) & mask, keys, keys[k]) == (in[k] ? k : KIN_TABLE_NONE));
    }
    CHECK(t.size <= 1024); /* places are used again */
    kin_table_deinit(&t);
}

static void
test_hash(void)
{
    char bytes[24] = "abcdefghijklmnopqrstuvw";
    CHECK(kin_hash_bytes(0, bytes, 8) != kin_hash_bytes(0, bytes, 9));
    CHECK(kin_hash_bytes(0, bytes, 3) != kin_hash_bytes(1, bytes, 3));
    CHECK(kin_hash_bytes(0, "\0", 1) != kin_hash_bytes(0, "", 0));
    uint64_t before = kin_hash_bytes(0, bytes, sizeof bytes);
    for (unsigned i = 0; i < sizeof bytes; i++) {
        bytes[i] ^= 1;
        CHECK(kin_hash_bytes(0, bytes, sizeof bytes) != before);
        bytes[i] ^= 1;
    }
}

static void
test_intern(void)
{
    kin_intern t = {0};
    bool fresh;
    for (uint32_t i = 0; i < 1000; i++) {
        CHECK(kin_intern_put(&t, &i, sizeof i, &fresh) == i && fresh);
        CHECK(kin_intern_put(&t, &i, sizeof i, &fresh) == i && !fresh);
    }
    CHECK(kin_intern_put(&t, "", 0, &fresh) == 1000 && fresh);
    CHECK(kin_intern_put(&t, "", 0, &fresh) == 1000 && !fresh);
    kin_intern_clear(&t);
    CHECK(kin_intern_put(&t, "x", 1, &fresh) == 0 && fresh && !t.failed);
    kin_intern_deinit(&t);
}

int
main(void)
{
    test_many(32);
    test_many(3);
    test_removal(32);
    test_removal(3);
    test_hash();
    test_intern();
    return check_report("table");
}
