/* Index expressions: the position of an element as a function of loop variables. An expression is a constant plus multiples
 * of atoms; an atom is a loop variable, the quotient or remainder of an expression by a constant, or an I64 value computed
 * by the kernel. Equal expressions have the same number; 0 is the constant 0. Every expression knows its range,
 * with which quotients are simplified: (i*128 + j) / 128 is i if 0 <= j < 128.
 *
 * What is read under a mask lies within a dimension where the mask holds, though its variables reach further: kin_ix_within
 * says so to what simplifies it, and kin_ix_plain takes it back, so that of what says so only the ranges of quotients are left.
 *
 * A quotient or remainder of a plain variable that cannot be simplified asks for the variable to be split
 * (`split_var`, `split_at`): the kernel is then built again with two variables in its place, and where sizes vary, whether it divides up is a question of the plan.
 */
#ifndef KIN_FUSE_INDEX_H
#define KIN_FUSE_INDEX_H

#include "core/base/intern.h"
#include "core/program/sizes.h"

typedef uint32_t kin_ix;

typedef enum { KIN_IX_VAR, KIN_IX_DIV, KIN_IX_MOD, KIN_IX_VALUE, KIN_IX_WITHIN } kin_ix_atom_kind;

typedef struct {
    uint32_t kind;   /* kin_ix_atom_kind */
    uint32_t of;     /* variable, expression, instruction */
    int64_t by;      /* DIV, MOD; WITHIN: below this */
    int64_t lo, hi;  /* smallest and largest value */
} kin_ix_atom;

typedef struct {
    int64_t coef;
    uint64_t atom;
} kin_ix_term;

typedef struct {
    int64_t constant, lo, hi;
    uint32_t terms, nterms; /* in order of their atoms */
} kin_ix_expr;

/* A question, and which ends of which expressions it compares. */
typedef struct {
    kin_sizes_question is;
    uint64_t of, than;
} kin_ix_asked;

typedef struct {
    KIN_VEC(kin_ix_expr) exprs;
    KIN_VEC(kin_ix_term) terms;
    KIN_VEC(kin_ix_atom) atoms;
    kin_intern expr_keys, atom_keys;
    bool split;            /* wanted: split_var into quotient and remainder by split_at */
    uint32_t split_var;
    int64_t split_at;
    bool varying;          /* what depends on how numbers compare is noted, as they may compare otherwise in plans for other sizes */
    KIN_VEC(kin_ix_asked) asked;
    bool failed;
} kin_ix_space;

void kin_ix_init(kin_ix_space *s);
void kin_ix_clear(kin_ix_space *s);
void kin_ix_deinit(kin_ix_space *s);

kin_ix kin_ix_const(kin_ix_space *s, int64_t c);
kin_ix kin_ix_var(kin_ix_space *s, uint32_t var, int64_t size);
/* A value in [lo, hi]. */
kin_ix kin_ix_value(kin_ix_space *s, uint32_t inst, int64_t lo, int64_t hi);
kin_ix kin_ix_add(kin_ix_space *s, kin_ix a, kin_ix b);
/* a * factor + c */
kin_ix kin_ix_affine(kin_ix_space *s, kin_ix a, int64_t factor, int64_t c);
/* Of expressions that are never negative. */
kin_ix kin_ix_div(kin_ix_space *s, kin_ix a, int64_t by);
kin_ix kin_ix_mod(kin_ix_space *s, kin_ix a, int64_t by);
/* The same, known to lie in [0, size) wherever it matters. */
kin_ix kin_ix_within(kin_ix_space *s, kin_ix a, int64_t size);
/* Without what kin_ix_within has added. */
kin_ix kin_ix_plain(kin_ix_space *s, kin_ix a);

/* Is it as large as that somewhere (the largest value), or everywhere (the smallest one)? */
bool kin_ix_reaches(kin_ix_space *s, kin_ix e, int64_t at);
bool kin_ix_begins_at(kin_ix_space *s, kin_ix e, int64_t at);
/* Is all of a at least as large as all of b? */
bool kin_ix_is_above(kin_ix_space *s, kin_ix a, kin_ix b);
/* Is a at least b? For numbers that belong to a plan. */
bool kin_ix_is_at_least(kin_ix_space *s, int64_t a, int64_t b);
/* Notes what the quotient and the remainder of an expression depend on. */
void kin_ix_note_division(kin_ix_space *s, kin_ix a, int64_t by);

/* Does a variable count several elements at a time in it? */
bool kin_ix_has_steps(const kin_ix_space *s, kin_ix e);

static inline const kin_ix_expr *kin_ix_at(const kin_ix_space *s, kin_ix e) { return &s->exprs.at[e]; }
static inline bool kin_ix_is_const(const kin_ix_space *s, kin_ix e) { return s->exprs.at[e].nterms == 0; }

#endif
