/* A program as a structure and numbers (sizes.h): sizes, strides, offsets, ranges, and the numbers that kernels read when they run. */
#ifndef KIN_PROGRAM_NUMBERS_H
#define KIN_PROGRAM_NUMBERS_H

#include "core/base/vec.h"
#include "core/diag/text.h"
#include "core/program/program.h"

/* Three numbers, from this one on, of which this is asked (sizes.h). */
typedef struct {
    uint32_t number;
    kin_sizes_asks asks;
} kin_walk_question;

/* A walk over something that has numbers: it notes them and the structure, or replaces them by others. */
typedef struct {
    kin_text *structure;   /* NULL: it replaces */
    KIN_VEC(int64_t) numbers;
    KIN_VEC(bool) dims;    /* of the numbers noted: is it the size of something in one dim? */
    KIN_VEC(kin_walk_question) asks; /* among the numbers noted */
    bool dim;              /* those that are noted now are */
    uint32_t next;         /* of the numbers, where it replaces */
    bool failed;
} kin_walk;

/* The next number: noted and returned, or the one in its place. */
int64_t kin_walk_number(kin_walk *w, int64_t number);
void kin_walk_numbers(kin_walk *w, const int64_t *numbers, uint32_t n);
void kin_walk_sizes(kin_walk *w, const int64_t *sizes, uint32_t ndim);
void kin_walk_deinit(kin_walk *w);
void kin_walk_question_of(kin_walk *w, kin_sizes_question *asked);
/* A part of the structure. */
void kin_walk_say(kin_walk *w, const void *bytes, size_t n);
void kin_walk_word(kin_walk *w, uint64_t word);
/* All of a program. Where numbers are replaced it must be a copy that nobody uses yet; buffers get places anew. */
void kin_walk_program(kin_walk *w, kin_program *p);

/* NULL without memory. Machine code is not copied: it stays where it is as long as the process. */
kin_program *kin_program_copy(const kin_program *p);

#endif
