/* The pipeline from a captured ATen graph to a program that runs: a table of named passes (passes.c), each of which takes one form of
 * the graph and leaves another. docs/design/pipeline.md is the contract.
 *
 *     kin_pipeline_options options = {.jit = jit, .frozen = frozen, .libraries = true};
 *     kin_compiled made;
 *     if (kin_pipeline_run(graph, &options, &made, &why) == KIN_OK) ... made.main.program ...
 *     kin_compiled_deinit(&made);
 *
 * After each pass a verifier checks its result, always in tests (`verify`); a problem ends the compilation with KIN_BUG and a
 * reason that names the pass. Callers handle every failure in the same way: the calls of the graph run one by one.
 */
#ifndef KIN_PIPELINE_PIPELINE_H
#define KIN_PIPELINE_PIPELINE_H

#include "core/codegen/codegen.h"
#include "core/ir/hoist.h"
#include "core/lower/lower.h"
#include "core/rewrite/rewrite.h"

/* What a pass takes and leaves. */
typedef enum {
    KIN_FORM_ATEN,    /* calls as captured */
    KIN_FORM_LOWERED, /* a tensor program that still holds what rules left behind */
    KIN_FORM_IR,      /* a tensor program */
    KIN_FORM_PARTS,   /* two of them: what is computed once, of frozen inputs, and the rest. Later passes take one part at a time */
    KIN_FORM_LOOPS,   /* a program whose kernels are loops, without places for temporary buffers */
    KIN_FORM_PLANNED, /* with them */
    KIN_FORM_CODE,    /* whose kernels are machine code */
    KIN_FORM__COUNT
} kin_form;

typedef struct kin_compilation kin_compilation;

typedef struct {
    const char *name;
    kin_form takes, leaves;
    bool of_library;  /* left out when the graph is compiled as it was captured */
    bool always;      /* verified in every process: it is cheap, and all that follows relies on it */
    kin_status (*run)(kin_compilation *c, kin_text *why);
    bool (*verify)(const kin_compilation *c, kin_text *why);
    const char *does; /* for people */
} kin_pass;

extern const kin_pass kin_passes[];
extern const unsigned kin_npasses;
/* UINT32_MAX: there is none. */
unsigned kin_pass_find(const char *name);

typedef enum { KIN_PART_MAIN, KIN_PART_ONCE, KIN_PARTS } kin_part_name;

/* One run of a pass. */
typedef struct {
    uint8_t pass, part;
    bool changed;     /* it left something else than it was given */
    double ns;        /* without the verifier */
} kin_pass_note;

/* For tests: what goes wrong in one pass. */
typedef enum {
    KIN_PLANT_NONE,
    KIN_PLANT_MEMORY,    /* it has no memory */
    KIN_PLANT_BREAK,     /* it gives up */
    KIN_PLANT_MALFORMED, /* it leaves something that its verifier must find */
    KIN_PLANT_WRONG      /* it leaves a well-formed program that computes something else: only a comparison of results finds that */
} kin_plant_kind;
typedef struct {
    kin_plant_kind kind;
    unsigned pass;
} kin_plant;

typedef struct {
    kin_lower_options lower;      /* channels_last is decided here */
    kin_rewrite_options rewrite;  /* post is cleared where a run could not be done again */
    const bool *frozen;           /* by input: it stays as it is between calls; NULL: none does */
    bool libraries;               /* library calls may take the place of operators */
    kin_jit *jit;                 /* NULL: no machine code is made, the program ends as KIN_FORM_PLANNED */
    kin_family *family;           /* of the same graph for other sizes; NULL: sizes are in the code */
    kin_ir_common *common;        /* the same: what its programs keep of frozen inputs; NULL: there is only one */
    bool meet;                    /* the family only notes the program (KIN_BREAK) */
    bool background;              /* kernels that LLVM has to compile are left to a job */
    uint8_t print;                /* keep the code as text; 2: LLVM's as well */
    bool verify;                  /* after every pass */
    kin_plant plant;
    /* Called after each pass with what it left (valid during the call); may be NULL. */
    void (*watch)(void *arg, const kin_compilation *c, const kin_pass *pass);
    void *arg;
} kin_pipeline_options;

typedef struct {
    const kin_ir *ir;      /* what it was made from; NULL: there is no such part */
    kin_program *program;
    char *text;            /* of its code, when that was asked for */
    char *notes;           /* what could not share a kernel, a line each; NULL: nothing */
} kin_compiled_part;

typedef struct {
    kin_compiled_part parts[KIN_PARTS];
    kin_lowered lowered;   /* what the outputs and the inputs written to are */
    kin_rewritten library; /* the calls that replace operators; ir is NULL: none do */
    kin_ir_hoisted hoisted;
    kin_compile_stats stats;
    KIN_VEC(kin_pass_note) passes;
    kin_jit_job *job;      /* background: kernels that are not there (KIN_BREAK), the caller's to run; then it compiles again */
    unsigned failed;       /* the pass that failed; UINT32_MAX: none */
} kin_compiled;

/* KIN_BREAK with `why`: it cannot be compiled. In every case `out` is to be given to kin_compiled_deinit. */
kin_status kin_pipeline_run(const kin_aten *graph, const kin_pipeline_options *options, kin_compiled *out, kin_text *why) KIN_MUST_CHECK;
/* The same from where `graph` has been lowered, or a part of it: takes `lowered`. */
kin_status kin_pipeline_run_lowered(const kin_aten *graph, kin_lowered *lowered, const kin_pipeline_options *options, kin_compiled *out,
                                    kin_text *why) KIN_MUST_CHECK;
void kin_compiled_deinit(kin_compiled *c);

/* Of passes with the same name: all of them together. */
double kin_compiled_ns(const kin_compiled *c, const char *name);

/* Lowering alone, as far as a clean tensor program: for tests and tools. */
kin_status kin_pipeline_lower(const kin_aten *graph, const kin_lower_options *options, kin_lowered *out, kin_text *why) KIN_MUST_CHECK;
/* From a tensor program on, verified after each pass. notes: one line for each fusion that was refused; with KIN_BREAK, why. */
kin_status kin_pipeline_compile(kin_jit *jit, kin_family *family, const kin_ir *ir, kin_program **out, kin_compile_stats *stats, kin_text *notes) KIN_MUST_CHECK;
/* As far as loops: for tests. */
kin_status kin_pipeline_fuse(const kin_ir *ir, kin_fused *out, kin_text *notes) KIN_MUST_CHECK;

/* -- for `watch` --------------------------------------------------------------------------------------------------- */
kin_part_name kin_compilation_part(const kin_compilation *c);
/* The form that the last pass left, as text. False without memory. */
bool kin_compilation_print(const kin_compilation *c, kin_text *out);

#endif
