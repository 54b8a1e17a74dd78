/* What running a step reads, changes and may run, as one word. steps.def has it for each kind of step, callables.def for each
 * known callable. The recorder stamps the word on the steps that it writes (kin_step.effects); all other code reads it there.
 *
 * Bits are permissions: a word without any bit belongs to a step of which nothing is known.
 */
#ifndef KIN_TRACE_EFFECTS_H
#define KIN_TRACE_EFFECTS_H

#include "core/trace/trace.h"

/* How deep a step looks into an operand. */
enum {
    KIN_LOOK_NOT,   /* its identity, its class, its hash: nothing that it holds */
    KIN_LOOK_ITEMS, /* what it holds, without a look into that */
    KIN_LOOK_DEEP
};
/* ... into args[0], args[1], and the others. */
#define KIN_LOOKS(first, second, rest) ((uint32_t)KIN_LOOK_##first | (uint32_t)KIN_LOOK_##second << 2 | (uint32_t)KIN_LOOK_##rest << 4)

static inline unsigned
kin_look_into(uint32_t effects, uint32_t operand)
{
    return effects >> 2 * (operand < 2 ? operand : 2) & 3;
}

enum {
    /* -- what it does ------------------------------------------------------------------------------------------ */
    KIN_MAY_RUN = 1 << 6,    /* may run Python code of the program */
    KIN_MAY_RAISE = 1 << 7,
    KIN_ASKS = 1 << 8,       /* asks its operands, finds the answer in them, and changes nothing */
    KIN_MOVES = 1 << 9,      /* makes an object of its operands without a look at them */
    KIN_STORES = 1 << 10,    /* puts operands into args[0] without a look at anything */
    KIN_BLIND = 1 << 11,     /* looks into no container, and changes none */
    KIN_INSIDE = 1 << 12,    /* what it reads is in its operands: it looks up no attribute, no global */
    KIN_OF_FIRST = 1 << 13,  /* a method: what it changes, if anything, is the object that it is called on */
    KIN_LETS_GO = 1 << 14,   /* nobody can get at its operands through it afterwards */
    KIN_HASHES = 1 << 15,    /* finds things by their hash where an operand is a set or a dict */
    KIN_NESTED = 1 << 16,    /* looks at containers inside of containers */
    KIN_BY_NAME = 1 << 17,   /* a call that asks for the attribute (KIN_ASKS) or stores it (KIN_STORES) that an operand names */
    KIN_SETTINGS = 1 << 18,  /* asks torch for its settings; with KIN_STORES: changes one that torch calls read */
    KIN_GRAD_MODE = 1 << 19, /* switches gradients to its operand */
    KIN_FITS = 1 << 20,      /* a store that changes one word of the heap, as the CHECK FITS before it makes sure */
    KIN_INTO_DICT = 1 << 21, /* ... in a dict that others may have, too */
    /* -- what it gives ----------------------------------------------------------------------------------------- */
    KIN_GIVES_FIXED = 1 << 22,  /* an object that never changes */
    KIN_GIVES_NUMBER = 1 << 23, /* a number, where it is PURE */
    KIN_GIVES_ATOM = 1 << 24,   /* a number or a text */
    KIN_GIVES_NEW = 1 << 25,    /* an object that was not there before */
    KIN_HOLDS = 1 << 26,        /* an object that holds its operands and nothing else */
    KIN_INSTANCE = 1 << 27,     /* an instance of a class, without anything in it */
    KIN_OF_CLASS = 1 << 28,     /* exactly an instance of the class that is called */
    KIN_VIEW = 1 << 29,         /* a view of a dict */
    KIN_GIVES_GRAD = 1 << 30    /* whether gradients are on */
};

/* A number, or some, that the data of tensors decides, or an assertion about that: part of the graph, as the torch calls are. (An enum has no room for it.) */
#define KIN_FROM_DATA (UINT32_C(1) << 31)

/* What only the recorder asks of a callable (callables.def). */
enum {
    KIN_KNOWS_COMPUTES = 1,  /* changes nothing itself, unless it uses up an iterator */
    KIN_KNOWS_LAZY = 2,      /* ... and uses up none */
    KIN_KNOWS_NO_RESUME = 4, /* does not resume a generator that it is handed */
    KIN_KNOWS_ENTRY = 8,     /* answers from ambient state alone: a guard can ask it */
    KIN_KNOWS_NO_CHANGE = 16, /* changes no ambient state */
    KIN_KNOWS_ACTS = 32,     /* changes something outside of the process, or waits */
    KIN_KNOWS_VARIES = 64    /* answers something else in each call: a clock, a random number */
};

/* The word of a kind of step. */
uint32_t kin_kind_effects(kin_step_kind kind);
/* Does it read operand number `operand`, so that running it later gives something else when that has changed? */
bool kin_kind_reads_late(kin_step_kind kind, uint32_t operand);

/* The word that the recorder stamped on the step, that of its kind where it did not. */
static inline uint32_t
kin_step_effects(const kin_step *s)
{
    return s->effects != 0 ? s->effects : kin_kind_effects((kin_step_kind)s->kind);
}

static inline bool
kin_step_does(const kin_step *s, uint32_t effects)
{
    return (kin_step_effects(s) & effects) == effects;
}

/* Does it change a setting of torch? As a node of a graph it is both: the graph switches between its calls, and leaves the setting as it was; the step
 * itself runs where it stands, for everybody else. */
static inline bool
kin_step_switches(const kin_step *s)
{
    return kin_step_does(s, KIN_GRAD_MODE) || kin_step_does(s, KIN_SETTINGS | KIN_STORES);
}

#endif
