/* What sizes.c knows of plans (sizes.h), for its printing. */
#ifndef KIN_PROGRAM_SIZES_PRIV_H
#define KIN_PROGRAM_SIZES_PRIV_H

#include "core/base/vec.h"
#include "core/program/sizes.h"

enum { MOST_FREE = 4, MOST_PARAMS = 24, MOST_FACTORS = 3, MOST_TERMS = 3, MOST_SAMPLES = 32, NO_HOPE = 10, MOST_BY = 64 };

/* A product of params, each counted from 1, in ascending order behind zeros. */
typedef struct {
    uint8_t of[MOST_FACTORS];
} term;

/* (of[0] + of[1] * term + ...) / by */
typedef struct {
    uint8_t nterms;
    term term[MOST_TERMS];
    int64_t of[MOST_TERMS + 1], by;
} poly;

/* What polynomials are of: a size that varies by itself; one of those, or of these, divided by something, rounded: what a stride, a pool or a chunk leaves of a size; one of
 * them shared out among another, with nothing left over: view(b, -1); one of these and a constant, as products of such have many terms. Of divided ones, for each divisor all `add` between two are possible with which (size + add) / by,
 * rounded down, is right in all plans met. */
typedef struct {
    uint32_t column;
    enum { FREE, DIVIDED, SHARED, SHIFTED } kind;
    uint8_t size, among;          /* divided, shared: which params; shifted: column has its polynomial */
    int64_t least[MOST_BY + 1], most[MOST_BY + 1]; /* of `add` by divisor, from 2 on; least > most: it is not this one */
} param;

/* Numbers that are the bits of a double: that of an integer; one over it, perhaps rounded to single precision; n / (n - 1), as of an unbiased variance;
 * an integer over a param, as where an image is resized, perhaps rounded so. */
typedef enum { AS_INTEGER, AS_DOUBLE, AS_SHARE, AS_SINGLE_SHARE, AS_CORRECTION, AS_QUOTIENT, AS_SINGLE_QUOTIENT } reading;

/* Inputs and numbers that were the same in all plans. */
typedef struct {
    uint32_t first;       /* of the inputs and numbers */
    reading as;
    uint8_t by;           /* quotients: over which param, counted from 1; 0 otherwise */
    poly is;
    int64_t least, most, at, step; /* all are at + some times step */
    bool dim;             /* a size of an input or of something in memory is among them */
    bool met[2];          /* 0, 1: they decide what there is at all */
} column;

/* Columns of which the first is never greater in the plans met; strict: always smaller. */
typedef struct {
    uint32_t small, great;
    bool strict;
} pair;

typedef struct {
    kin_sizes_asks asks;
    uint32_t number; /* of a, among inputs and numbers; those of b and what is given follow */
} asked;

struct kin_sizes {
    uint32_t ninputs, n;      /* n: with the numbers */
    uint32_t nsamples;
    KIN_VEC(int64_t) samples; /* n each */
    bool fresh, known;        /* fresh: samples were added since the columns were made */
    uint32_t *column_of;      /* by input, number */
    bool *dims;               /* by input, number: a size in some dim */
    KIN_VEC(column) columns;
    KIN_VEC(pair) order;
    KIN_VEC(asked) asked;
    param params[MOST_PARAMS]; /* the free ones come first */
    uint32_t nparams, nfree;
    KIN_VEC(param) rivals;     /* what else columns may be, of sizes that their polynomials are not of; right in all plans, too */
    int64_t met[MOST_SAMPLES][MOST_PARAMS]; /* what params were in the plans met */
    int64_t now[MOST_SAMPLES];              /* what the column was that is being explained */
    uint32_t vain;            /* plans made to widen ranges that did not */
};

/* What plans for sizes not met should have in common with those met: programs that want even sizes refuse others. Answers need no such thing: what is divided makes
 * numbers of its own, which are integers or not. */
static inline int64_t
kin_sizes_divisor(const column *c)
{
    enum { MOST = 64 };
    int64_t power = c->step & -c->step;
    return power > MOST ? MOST : power;
}

/* What the column was in a plan. */
int64_t kin_sizes_value(const kin_sizes *s, const column *c, uint32_t sample);
/* The polynomial for these values of the params. False: it is no integer, or a very large one. */
bool kin_sizes_evaluate(const poly *f, const int64_t values[MOST_PARAMS], int64_t *out);
/* Is one of its terms made of a size that was divided? */
bool kin_sizes_has_divided(const kin_sizes *s, const poly *f);
/* A size divided, or shared out, where the params before it are known. False: what is known leaves several answers, or there is none. */
bool kin_sizes_divide(const param *p, const int64_t of[MOST_PARAMS], int64_t *value);
/* Was the number this size, divided and rounded, in all plans? Then with which divisors. */
bool kin_sizes_is_divided(const kin_sizes *s, const column *size, const column *c, param *p);
/* One plan more. False: no divisor is left with which the size gives the value. */
bool kin_sizes_narrow(param *p, int64_t size, int64_t value);
/* The size that a param is what is left of. */
uint8_t kin_sizes_root(const kin_sizes *s, uint8_t number);
/* Looks for other rules of columns, once all are explained; false without memory. Then those that a further plan leaves, and whether they say the same for other sizes. */
bool kin_sizes_note_rivals(kin_sizes *s);
void kin_sizes_keep_rivals(kin_sizes *s, uint32_t sample);
bool kin_sizes_rivals_agree(const kin_sizes *s, const int64_t of[MOST_PARAMS], const int64_t *values);
/* Do these plans (a bit each) decide by themselves what the column is? */
bool kin_sizes_is_decided(kin_sizes *s, const column *c, uint32_t plans);
/* The number that is read as this value; `by` for quotients. */
int64_t kin_sizes_write(reading as, int64_t value, int64_t by);
/* Looks at plans that were added since the last time. */
void kin_sizes_update(kin_sizes *s);

#endif
