/* What the files of the partitioner share: one pass over the steps, with what is known about the subgraph that is growing.
 *
 * A value is *deferred* if the step that makes it is, because it depends on a call of the subgraph; *soft* if it is a container, or a number computed of others, that may be made
 * either late or in order. All others exist by the time they are used.
 */
#ifndef KIN_TRACE_PARTITION_PRIV_H
#define KIN_TRACE_PARTITION_PRIV_H

#include "core/trace/effects.h"
#include "core/trace/partition.h"

typedef enum { KIN_MADE_ELSEWHERE, KIN_MADE_SOFT, KIN_MADE_DEFERRED } kin_made;

/* What is known of a value for the whole program, beside the bits of kin_object_traits.is. */
enum {
    KIN_IS_KNOWN = 1 << 14, /* its class is known */
    KIN_RUNS_NO_CODE = 1 << 15  /* it holds nothing but the interpreter's own simple objects */
};

/* ... and for the subgraph that is growing. */
typedef struct {
    uint32_t subgraph; /* the rest is about this one; another: as if it were zero */
    uint8_t made;      /* kin_made */
    bool reached;      /* a call gets it, perhaps inside of something else */
    bool changed;      /* a step that runs in order changed it */
    bool late;         /* ... and did so, or made it, when the subgraph had run */
    bool takes;        /* a deferred store puts an item into it */
} kin_partition_val;

typedef struct {
    const kin_partition_input *in;
    const kin_trace *t;
    const kin_object_traits *objects;
    uint8_t *role;          /* by step: kin_role */
    uint32_t *traits;       /* by vid: KIN_IS_... */
    kin_partition_val *vals; /* by vid */
    uint32_t *starts;       /* by epoch: its EPOCH step */
    int8_t *grads_at;       /* by epoch: whether gradients are on where it begins, as its facts say; -1: they do not */
    bool dict_operand;      /* the dict of an instance is handed to a step, which may look into it */
    uint32_t subgraph, first, last_call;
    uint32_t at;            /* the subgraph runs before this step; 0: at its last call */
    uint32_t reports;       /* the first step behind that which has KIN_STEP_REPORTS; 0: none */
    uint32_t reads;         /* the last deferred step that looks into a container that was there before; 0: none */
    uint32_t store, newest; /* the first and the last deferred store; 0: none is */
    bool into_dict;         /* one of them goes into a dict that others may have, too */
    uint32_t into_own;      /* the step that made the oldest dict of the program's own that one of them goes into; 0: none does */
    bool into_cell;         /* one of them goes into a cell */
    bool into_list, into_exact; /* one of them is an item of a list, of an exact dict */
    bool into_named;        /* one of them is found by a name: an attribute, an item of a dict, what is in a cell */
    bool grads;             /* gradients were switched between its calls */
    bool barrier;           /* an earlier call may raise: that the step at hand ran must not be observable */
    const char *why;        /* of the step that ended the subgraph */
} kin_partitioner;

/* An attribute that the program stores, what a cell (a variable of a closure) contains, or an item. */
typedef struct {
    kin_vid owner;
    kin_ref name; /* its text, also that of a dict's key: the dict may be an object's; KIN_NAME_OF_CELL, KIN_NAME_OF_ITEM */
} kin_attribute;

#define KIN_NAME_OF_CELL UINT32_MAX
#define KIN_NAME_OF_ITEM (UINT32_MAX - 1)

static inline kin_partition_val *
kin_val_of(kin_partitioner *p, kin_vid vid)
{
    kin_partition_val *val = &p->vals[vid];
    if (val->subgraph != p->subgraph)
        *val = (kin_partition_val){.subgraph = p->subgraph};
    return val;
}

static inline bool
kin_is_deferred(kin_partitioner *p, kin_vid vid)
{
    return vid != 0 && kin_val_of(p, vid)->made == KIN_MADE_DEFERRED;
}

static inline const kin_step *
kin_maker_of(const kin_trace *t, kin_vid vid)
{
    const kin_val *val = &t->vals.at[vid];
    return vid != 0 && val->kind == KIN_VAL_STEP ? &t->steps.at[val->step] : NULL;
}

/* partition_values.c: sets p->traits, p->dict_operand. */
void kin_partition_learn_values(kin_partitioner *p);
/* Is it a size of a tensor, or a number computed of sizes and other numbers? */
bool kin_partition_is_number(const kin_trace *t, kin_vid vid);
/* The attribute that the step asks for by a name that is known (its text); 0: it is no such step. */
kin_ref kin_partition_asked_name(const kin_partitioner *p, const kin_step *s);
/* Does it look for something in a set or a dict? A tensor is found there by its identity, whatever its data. */
bool kin_partition_finds_by_hash(const kin_partitioner *p, const kin_step *s);
/* May the step tell whether memory of tensors was written to? Those that ask tensors for data are in no subgraph. */
bool kin_partition_sees_memory(const kin_partitioner *p, const kin_step *s);
/* Does the step look into none of the dicts that deferred stores go into? */
bool kin_partition_no_dicts(const kin_partitioner *p, const kin_step *s);

/* partition_roles.c: the role of each step while a subgraph grows. */
void kin_roles_begin(kin_partitioner *p, uint32_t subgraph, uint32_t first);
/* The next call of the subgraph; false: it is not one, as a step in between changed what it gets. */
bool kin_roles_call(kin_partitioner *p, uint32_t step);
/* Are gradients on before the step? -1: not known. */
int kin_roles_grad(const kin_partitioner *p, uint32_t step);
/* Does the graph have all that the switch of a setting takes? */
bool kin_roles_can_switch(const kin_partitioner *p, uint32_t step);
/* A step that is no call of the subgraph; false: the subgraph ended before it (p->why). `barrier`: as above. */
bool kin_roles_pass(kin_partitioner *p, uint32_t step, bool barrier);
void kin_roles_defer(kin_partitioner *p, uint32_t step, kin_role role, kin_made made);

/* partition_stores.c: stores to older objects that are deferred. */
bool kin_stores_read(const kin_partitioner *p, const kin_step *s, kin_attribute *out);
/* May calls of the subgraph, or settings that they depend on, be what is stored to? */
bool kin_stores_of_others(kin_partitioner *p, kin_vid owner);
bool kin_stores_defer(kin_partitioner *p, uint32_t step);
/* ... of an item behind the last one of a list that the recording has made. */
bool kin_stores_defer_append(kin_partitioner *p, uint32_t step);
/* Does the step look into a dict or list that a deferred store puts an item into, as far as is known? */
bool kin_stores_see_items(kin_partitioner *p, uint32_t step);
/* ... to an object that the recording has made; who runs it sees that nothing else holds the dict. */
bool kin_stores_defer_own(kin_partitioner *p, uint32_t step);
/* Might a step that runs in order see that a store has not been done? It would have to ask for the attribute, or look into
 * the dict that has it. */
bool kin_stores_are_seen(kin_partitioner *p, uint32_t step);

/* partition_bounds.c */
/* Does the subgraph make the value, compiled or behind that? */
bool kin_bounds_made_by(const kin_trace *t, const kin_subgraphs *subgraphs, const kin_subgraph *subgraph, kin_vid vid);
/* A size of something that the subgraph makes follows from its inputs: running it gives the number, and the tensor may never exist. */
bool kin_bounds_given_size(const kin_subgraphs *subgraphs, uint32_t step, const kin_step *s);
bool kin_bounds_made_since(const kin_trace *t, kin_vid vid, uint32_t first);

/* partition_needs.c: who needs what; starts: by epoch, its step. Sets needed, replaced, builds, drops, passes_sunk, changes_sunk, stops. */
kin_status kin_partition_find_needs(const kin_partition_input *in, kin_subgraphs *subgraphs, const uint32_t *starts) KIN_MUST_CHECK;

#endif
