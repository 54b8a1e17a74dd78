/* Units: runs of torch calls that a backend has compiled, launched by replay in one call.
 *
 * A unit is a range of steps of one graph between which nothing runs that could leave the program or see their
 * results: only sunk steps, builds of containers, known steps of a loop, and tests that a torch call gave a tensor. So launching it at its
 * first step is the same as running its steps one after the other, and no exit ever lands inside it. A graph with
 * other steps in between has several units.
 *
 * Wide units go on over every test of what their own calls gave (a shape, a length): their launcher must show, once for
 * each kind of inputs, that these tests pass.
 */
#ifndef KIN_PY_UNITS_H
#define KIN_PY_UNITS_H

#include "py/replay/variant.h"

struct kin_unit;

typedef enum { KIN_LAUNCH_NOT, KIN_LAUNCH_DONE, KIN_LAUNCH_RAISED } kin_launch;

/* What runs a unit: made by a backend, shared by the plans of a growing variant. */
typedef struct kin_launcher {
    uint32_t refs;
    bool framed; /* it may run code that looks at frames: they are linked meanwhile */
    /* in: the unit's inputs, borrowed, all there. Done: new references in out[0..nout); NOT: it has nothing for these
     * inputs, and nothing happened. */
    kin_launch (*run)(struct kin_launcher *self, kin_variant *v, const struct kin_unit *unit, PyObject *const *in,
                      PyObject **out);
    int (*traverse)(struct kin_launcher *self, visitproc visit, void *arg);
    void (*free)(struct kin_launcher *self);
} kin_launcher;

typedef struct kin_unit {
    uint32_t first, last;  /* steps */
    uint32_t nin, nout, nbuilds;
    kin_vid *in, *out;
    uint32_t *builds;      /* builds of containers inside that somebody outside wants */
    uint8_t *runs;         /* by step, from first: does it have a part in what the calls get? Set by kin_unit_bounds */
    bool drops;            /* values that only the snapshot of RETURN mentions are not made */
    bool passes_sunk;      /* steps inside would change sunk objects, had these been built */
    bool changes_sunk;     /* ... to hold values that are not made by a launch */
    kin_launcher *launcher; /* NULL: never launched */
} kin_unit;

typedef struct kin_units {
    uint32_t refs;         /* the variant and replays in progress */
    uint32_t nsteps;
    uint32_t *by_step;     /* unit number of every step that is one of its calls, from 1 */
    uint8_t *needed;       /* by vid: something outside of its unit uses it */
    KIN_VEC(kin_unit) at;
} kin_units;

/* The units of a finished trace, without launchers; NULL without memory. Inputs and outputs come with kin_unit_set. */
kin_units *kin_units_find(const kin_variant *v, bool wide);
/* Values handed over and given back, and what to call (copied; the launcher gets a new reference). KIN_BREAK: an
 * input comes into being, or is changed, inside the unit, so it cannot be launched. */
kin_status kin_unit_set(const kin_variant *v, kin_units *units, uint32_t unit, const kin_vid *in, uint32_t nin,
                        const kin_vid *out, uint32_t nout, kin_launcher *launcher) KIN_MUST_CHECK;
void kin_units_release(kin_units *units);
void kin_launcher_release(kin_launcher *launcher);
/* Adds the vids that the unit's calls take from elsewhere and that something elsewhere needs of them; containers that are
 * built just to be arguments count as their parts. */
typedef KIN_VEC(kin_vid) kin_vids;
kin_status kin_unit_bounds(const kin_variant *v, kin_units *units, uint32_t unit, kin_vids *in, kin_vids *out) KIN_MUST_CHECK;

/* Is it a build of a container, or another step that only moves values about? */
bool kin_unit_builds(const kin_step *s);
/* Is it one of the calls that units are made of? */
bool kin_unit_calls(const kin_step *s);
/* Did a step from `first` to `last` make the value? */
bool kin_unit_made(const kin_trace *t, kin_vid vid, uint32_t first, uint32_t last);

#endif
