/* One compilation in progress; shared by the files of this folder. */
#ifndef KIN_PIPELINE_PIPELINE_PRIV_H
#define KIN_PIPELINE_PIPELINE_PRIV_H

#include "core/pipeline/pipeline.h"

struct kin_compilation {
    const kin_aten *graph;           /* NULL: the compilation starts from a tensor program */
    const kin_pipeline_options *options;
    kin_pipeline_result *out;
    kin_form form;                   /* the form that the last pass left */
    kin_part_name part;              /* after KIN_FORM_PARTS: the part that passes work on */
    const kin_ir *before;            /* the input of the running pass; NULL: not a tensor program */
    const kin_ir *ir;                /* the current tensor program */
    kin_ir *own;                     /* the same, if the compilation owns it; else NULL */
    kin_fused fused;                 /* from KIN_FORM_LOOPS on */
    kin_text notes;
    kin_compile_stats stats;         /* of this part */
    bool changed;                    /* set by passes that leave another form */
};


/* -- checks.c: verifiers between passes, beyond those of the forms themselves */
bool pipeline_check_aten(const kin_compilation *c, kin_text *why);
/* Checks that the pass kept the inputs and outputs of the tensor program. */
bool pipeline_check_ir(const kin_compilation *c, kin_text *why);
bool pipeline_check_library(const kin_compilation *c, kin_text *why);
bool pipeline_check_parts(const kin_compilation *c, kin_text *why);
/* ... except for outputs that are now written in place. */
bool pipeline_check_in_place(const kin_compilation *c, kin_text *why);
bool pipeline_check_loops(const kin_compilation *c, kin_text *why);
bool pipeline_check_plan(const kin_compilation *c, kin_text *why);
bool pipeline_check_code(const kin_compilation *c, kin_text *why);

/* -- plant.c: damages what the pass has just left. False without memory, or when there is nothing to damage. */
bool pipeline_plant(kin_compilation *c, kin_plant_kind kind);

#endif
