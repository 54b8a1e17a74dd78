/* Which part each step has between the calls of a subgraph (subgraphs.h), decided while the subgraph grows.
 *
 * A subgraph is launched at its last call. Until then a step in between either runs at its place (it uses nothing that the
 * subgraph makes, and neither sees nor changes what its calls work on), or it is put off until the launch with what it is made of.
 * A step that can be neither ends the subgraph.
 */
#ifndef KIN_PY_SPREAD_H
#define KIN_PY_SPREAD_H

#include "py/replay/subgraphs.h"

typedef struct {
    uint32_t subgraph;   /* the rest is about this one; another: as if it were zero */
    uint8_t made;    /* kin_made */
    bool reached;    /* a call gets it, perhaps inside of something else */
    bool changed;    /* a step at its place changed it */
} kin_spread_val;

typedef struct {
    const kin_entry *v;
    uint8_t *role;          /* by step: kin_role */
    uint32_t subgraph, first, last_call;
    uint32_t reads;         /* the last step that waits and looks into a container that was there before; 0: none */
    uint32_t store, newest; /* the first and the last store that waits; 0: none does */
    bool into_dict;         /* one of them goes into a dict that others may have, too */
    uint32_t into_own;      /* the step that made the oldest dict of the program's own that one of them goes into; 0: none does */
    bool wall;              /* the step that is looked at must not be one that could be told to have run */
    const char *why;        /* of the step that ended the subgraph */
    kin_spread_val *vals;   /* by vid */
    uint32_t *starts;       /* by segment: its SEGMENT step */
} kin_spread;

kin_status kin_spread_init(kin_spread *s, const kin_entry *v, uint8_t *role) KIN_MUST_CHECK;
void kin_spread_deinit(kin_spread *s);
void kin_spread_begin(kin_spread *s, uint32_t subgraph, uint32_t first);
/* The next call of the subgraph; false: it is not one, as a step in between changed what it gets. */
bool kin_spread_call(kin_spread *s, uint32_t step);
/* A step that is no call of the subgraph; false: the subgraph ended before it. `wall`: a call before it may raise, so that it must wait if it could
 * be told that it ran. */
bool kin_spread_pass(kin_spread *s, uint32_t step, bool wall);

/* Does nothing that runs between the calls of a subgraph look at memory of tensors? Then calls that write to some may wait as well. */
bool kin_subgraph_hides_writes(const kin_entry *v, const kin_subgraph *subgraph);

#endif
