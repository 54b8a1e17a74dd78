/* Building a fast array (guard_arm.c). Shared only by guard_arm.c, guard_arm_fact.c and guard_fast.c. */
#ifndef KIN_PY_GUARD_ARM_H
#define KIN_PY_GUARD_ARM_H

#include "core/base/table.h"
#include "py/guardeval/guard_priv.h"

enum { KIN_PIN_NO, KIN_PIN_ADDR, KIN_PIN_SAME };

typedef struct {
    kin_entry *v;
    struct kin_guard_prog *p;
    kin_guard_fast *f;
    uint32_t epoch;
    PyObject *const *slots; /* older values */
    uint8_t *pin;       /* by vid: KIN_PIN_* */
    uint8_t *traits;    /* by vid: KIN_TRAIT_*, by the epoch's own operations; what held elsewhere says nothing about now */
    kin_table seen;     /* from addresses to numbers of words */
    bool ok;            /* false after an allocation failed */
} kin_arm;

bool kin_arm_init(kin_arm *a, kin_entry *v, uint32_t epoch, PyObject *const *slots, kin_guard_fast *f);
void kin_arm_deinit(kin_arm *a);
/* Expresses the epoch as roots, words and remaining operations, from the values in p->cur and in slots. */
bool kin_arm_run(kin_arm *a);

/* The word at the address, if it has been added; NULL otherwise. */
const kin_word *kin_arm_find(const kin_arm *a, const void *addr);
/* Adds the word as it is now, unless it is there already. */
void kin_arm_word(kin_arm *a, const void *addr, kin_vid vid, uint32_t site);
void kin_arm_words(kin_arm *a, const kin_word *words, int n, kin_vid vid, uint32_t site);
bool kin_arm_dropped(const kin_arm *a, kin_vid vid, uint32_t site);
/* Is its type beyond change, given how it is pinned? */
bool kin_arm_type_is_fixed(const kin_arm *a, kin_vid vid, PyObject *obj);
/* Makes sure that a pinned value still has the type it has now; false when no word can prove it. */
bool kin_arm_type(kin_arm *a, kin_vid vid, PyObject *obj);
/* Makes sure that a pinned value is a class with the version it has now. */
bool kin_arm_class(kin_arm *a, kin_vid vid, PyObject *cls);
/* Adds the dict's version word; false when it has none or was given up. */
bool kin_arm_dict(kin_arm *a, PyObject *dict, kin_vid vid, uint32_t site);
/* Makes sure that the object's instance dict, or its absence, is the one of now. */
bool kin_arm_instance_dict(kin_arm *a, kin_vid vid, PyObject *obj);

/* guard_arm_fact.c: expresses a fact that holds now about a pinned value; false: test it explicitly. */
bool kin_arm_fact(kin_arm *a, const kin_fact *fact, PyObject *obj);

#endif
