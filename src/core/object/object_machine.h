/* The parts of loading objects (object.c) that depend on the processor: object_x86.c and object_arm.c, of which the build has one. */
#ifndef KIN_OBJECT_OBJECT_MACHINE_H
#define KIN_OBJECT_OBJECT_MACHINE_H

#include "core/object/object.h"

typedef struct {
    uint32_t type;
    unsigned char *at;    /* what is written */
    uint64_t addend;
    uint64_t symbol;      /* where it lies, or its jump for an outside function */
    uint64_t slot;        /* where its address is kept */
} kin_relocation;

extern const uint16_t kin_object_machine;      /* of an object's header */
extern const uint32_t kin_object_unwind;       /* the type of sections that are left out; 0: none */
extern const unsigned char kin_object_jump[8]; /* to the address in the eight bytes before it */

/* False: a type that generated code does not have, or too far. */
bool kin_object_relocate(const kin_relocation *r);

#endif
