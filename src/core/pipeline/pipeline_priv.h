/* One compilation in progress; shared by the files of this folder. */
#ifndef KIN_PIPELINE_PIPELINE_PRIV_H
#define KIN_PIPELINE_PIPELINE_PRIV_H

#include "core/pipeline/pipeline.h"

struct kin_compilation {
    const kin_aten *graph;           /* NULL: it begins with a tensor program */
    const kin_pipeline_options *options;
    kin_compiled *out;
    kin_form form;                   /* of what the last pass left */
    kin_part_name part;              /* after KIN_FORM_PARTS: the one that passes work on */
    const kin_ir *before;            /* what the running pass was given; NULL: no tensor program */
    const kin_ir *ir;                /* the tensor program as it is now */
    kin_ir *own;                     /* it, when it belongs to nobody else; NULL: it is somebody else's */
    kin_fused fused;                 /* from KIN_FORM_LOOPS on */
    kin_text notes;
    kin_compile_stats stats;         /* of this part */
    bool changed;                    /* said by passes that leave another form */
};

/* A new tensor program of the compilation's own; NULL: KIN_NOMEM. */
kin_status pipeline_take(kin_compilation *c, kin_ir *made) KIN_MUST_CHECK;

/* -- checks.c: verifiers between passes, beyond those of the forms themselves */
bool pipeline_check_aten(const kin_compilation *c, kin_text *why);
/* A tensor program that takes and gives what the one before the pass did. */
bool pipeline_check_ir(const kin_compilation *c, kin_text *why);
bool pipeline_check_library(const kin_compilation *c, kin_text *why);
bool pipeline_check_parts(const kin_compilation *c, kin_text *why);
/* ... but for outputs that are written at once. */
bool pipeline_check_in_place(const kin_compilation *c, kin_text *why);
bool pipeline_check_loops(const kin_compilation *c, kin_text *why);
bool pipeline_check_plan(const kin_compilation *c, kin_text *why);
bool pipeline_check_code(const kin_compilation *c, kin_text *why);

/* -- plant.c: damages what the pass has just left. False without memory, or when there is nothing to damage. */
bool pipeline_plant(kin_compilation *c, kin_plant_kind kind);

#endif
