/* What running a step reads, changes and may run, as one word. steps.def has it for each kind of step, callables.def for each
 * known callable. The recorder stamps the word on the steps that it writes (kin_step.effects); all other code reads it there.
 *
 * Bits are permissions: a word without any bit belongs to a step of which nothing is known.
 */
#ifndef KIN_TRACE_EFFECTS_H
#define KIN_TRACE_EFFECTS_H

#include "core/trace/trace.h"

/* How deeply a step looks into an operand. */
enum {
    KIN_LOOK_NOT,   /* only at its identity, class or hash, not at its contents */
    KIN_LOOK_ITEMS, /* at its contents, but not into these */
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
    KIN_MAY_RUN = 1 << 6,    /* may run user code */
    KIN_MAY_RAISE = 1 << 7,
    KIN_ASKS = 1 << 8,       /* reads its operands, finds the answer in them, and changes nothing */
    KIN_MOVES = 1 << 9,      /* makes an object from its operands without looking at them */
    KIN_STORES = 1 << 10,    /* puts operands into args[0] without looking at anything */
    KIN_BLIND = 1 << 11,     /* looks into no container, and changes none */
    KIN_INSIDE = 1 << 12,    /* reads nothing but the contents of its operands: looks up no attribute and no global */
    KIN_OF_FIRST = 1 << 13,  /* a method: changes at most the object that it is called on */
    KIN_LETS_GO = 1 << 14,   /* its result does not lead to its operands */
    KIN_HASHES = 1 << 15,    /* looks things up by hash if an operand is a set or a dict */
    KIN_NESTED = 1 << 16,    /* looks at containers inside of containers */
    KIN_BY_NAME = 1 << 17,   /* a call that reads (KIN_ASKS) or stores (KIN_STORES) an attribute whose name is an operand */
    KIN_SETTINGS = 1 << 18,  /* reads a torch setting; with KIN_STORES: changes one that torch calls read */
    KIN_GRAD_MODE = 1 << 19, /* sets grad mode to its operand */
    KIN_FITS = 1 << 20,      /* a store that changes only one word of the heap, as the CHECK FITS before it verifies */
    KIN_INTO_DICT = 1 << 21, /* a store into a dict, or behind the last item of a list, that others may hold as well; the CHECK FITS before it holds */
    /* -- what it gives ----------------------------------------------------------------------------------------- */
    KIN_GIVES_FIXED = 1 << 22,  /* the result never changes */
    KIN_GIVES_NUMBER = 1 << 23, /* the result is a number, if the step is PURE */
    KIN_GIVES_ATOM = 1 << 24,   /* the result is a number or a str */
    KIN_GIVES_NEW = 1 << 25,    /* the result is a new object */
    KIN_HOLDS = 1 << 26,        /* the result holds the operands and nothing else */
    KIN_INSTANCE = 1 << 27,     /* the result is an empty instance of a class */
    KIN_OF_CLASS = 1 << 28,     /* the result is exactly an instance of the class that is called */
    KIN_VIEW = 1 << 29,         /* the result is a view of a dict */
    KIN_GIVES_GRAD = 1 << 30    /* the result says whether gradients are on */
};

/* Numbers from tensor data, or an assertion about them: part of the graph, like torch calls. (An enum has no room for this bit.) */
#define KIN_FROM_DATA (UINT32_C(1) << 31)

/* What only the recorder needs to know about a callable (callables.def). */
enum {
    KIN_KNOWS_COMPUTES = 1,  /* changes nothing itself, except that it may exhaust an iterator */
    KIN_KNOWS_LAZY = 2,      /* ... and does not */
    KIN_KNOWS_NO_RESUME = 4, /* does not resume a generator that it is given */
    KIN_KNOWS_ENTRY = 8,     /* its result depends on ambient state alone, so a guard can call it */
    KIN_KNOWS_NO_CHANGE = 16, /* changes no ambient state */
    KIN_KNOWS_ACTS = 32,     /* changes something outside the process, or waits */
    KIN_KNOWS_VARIES = 64,   /* returns something else in each call: a clock, a random number */
    KIN_KNOWS_VALUE = 128,   /* computes a value without contents from its operands alone, though its model is of its own */
    KIN_KNOWS_IN_GRAPHS = 256, /* may stand in a function that is part of a graph: gives what its operands' values decide, and no attribute by its name,
                                * no identity and no item of an iterator, in which something could be that changes */
    KIN_KNOWS_NUMBERS = 512, /* computes a number of numbers */
    KIN_KNOWS_MOVES = 1024,  /* puts its operands, whatever they are, into the list or dict that it is called on */
    KIN_KNOWS_MOVES_ITEMS = 2048, /* ... those that its operand, a list, tuple or dict, holds */
    KIN_KNOWS_WRITES = 8192, /* may write to tensors among its operands, though neither its name nor an argument `out` says so */
    KIN_KNOWS_CONTENT = 4096 /* gives a tensor, whose content follows from its operands and what they hold; writes to none of them */
};

/* The effects of a kind of step. */
uint32_t kin_kind_effects(kin_step_kind kind);
/* Does it read operand number `operand`, so that running it later has another result if that has changed? */
bool kin_kind_reads_late(kin_step_kind kind, uint32_t operand);

/* What of args[0] a kind of step changes: all that can be changed later as well, at the end of an atomic region (py/recorder/region.c). */
typedef enum {
    KIN_CHANGES_NOTHING,   /* or something that cannot wait */
    KIN_CHANGES_POSITION,  /* an iterator's */
    KIN_CHANGES_END,       /* the iterator gives nothing more */
    KIN_CHANGES_CONTENTS,  /* takes up args[1] */
    KIN_CHANGES_CELL,      /* args[1] replaces what the cell held */
    KIN_CHANGES_ATTRIBUTE, /* ... what is found by name */
    KIN_CHANGES_GLOBAL,
    KIN_CHANGES_ITEM       /* args[2] replaces what is found at args[1] */
} kin_changes;
kin_changes kin_kind_changes(kin_step_kind kind);

/* The effects that the recorder stamped on the step, or else those of its kind. */
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

/* Is it certain that nothing is written to the memory of a tensor while it runs? */
static inline bool
kin_step_leaves_memory(const kin_step *s)
{
    if (s->flags & (KIN_STEP_OPAQUE | KIN_STEP_RAISES))
        return false;
    if (s->flags & KIN_STEP_PURE || s->kind == KIN_STEP_NEXT || kin_step_does(s, KIN_MOVES))
        return true;
    return kin_step_does(s, KIN_ASKS) && s->kind != KIN_STEP_BINARY; /* which may be in-place */
}

/* Does it change a torch setting? In a graph, such a step happens twice: the graph switches between its calls, and restores the setting; the step
 * itself runs in order, for everything else. */
static inline bool
kin_step_switches(const kin_step *s)
{
    return kin_step_does(s, KIN_GRAD_MODE) || kin_step_does(s, KIN_SETTINGS | KIN_STORES);
}

#endif
