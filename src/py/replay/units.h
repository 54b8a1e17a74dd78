/* Units: runs of torch calls that a custom backend has compiled, launched by replay in one call.
 *
 * A unit is a range of steps of one graph between which nothing runs that could leave the program or see their
 * results: only sunk steps, builds of containers, known steps of a loop, and tests that a torch call gave a tensor. So launching it at its
 * first step is the same as running its steps one after the other, and no exit ever lands inside it. A graph with
 * other steps in between (a test of a shape, say) has several units.
 *
 * A unit's callable answers None when it has nothing for these inputs; then the steps run one by one.
 */
#ifndef KIN_PY_UNITS_H
#define KIN_PY_UNITS_H

#include "py/replay/variant.h"

typedef struct {
    uint32_t first, last;  /* steps */
    uint32_t nin, nout, nbuilds;
    kin_vid *in, *out;
    uint32_t *builds;      /* builds of containers inside that somebody outside wants */
    bool drops;            /* values that only the snapshot of RETURN mentions are not made */
    bool changes_sunk;     /* steps inside would change sunk objects, had these been built */
    PyObject *callable;    /* NULL: never launched */
} kin_unit;

typedef struct kin_units {
    uint32_t refs;         /* the variant and replays in progress */
    uint32_t nsteps;
    uint32_t *by_step;     /* unit number of every step that is one of its calls, from 1 */
    uint8_t *needed;       /* by vid: something outside of its unit uses it */
    KIN_VEC(kin_unit) at;
} kin_units;

/* The units of a finished trace, without callables; NULL without memory. Inputs and outputs come with kin_unit_set. */
kin_units *kin_units_find(const kin_variant *v);
/* Values handed over and given back, and what to call (all copied, the callable gets a new reference). KIN_BREAK: an
 * input comes into being, or is changed, inside the unit, so it cannot be launched. */
kin_status kin_unit_set(const kin_variant *v, kin_units *units, uint32_t unit, const kin_vid *in, uint32_t nin,
                        const kin_vid *out, uint32_t nout, PyObject *callable) KIN_MUST_CHECK;
void kin_units_release(kin_units *units);

#endif
