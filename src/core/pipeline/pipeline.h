/* The pipeline from a captured ATen graph to a program that runs: a table of named passes (passes.c), each of which takes one form of
 * the graph and leaves another. docs/design/pipeline.md is the contract.
 *
 *     kin_pipeline_options options = {.jit = jit, .frozen = frozen, .libraries = true};
 *     kin_pipeline_result made;
 *     if (kin_pipeline_run(graph, &options, &made, &why) == KIN_OK) ... made.main.program ...
 *     kin_pipeline_result_deinit(&made);
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
    KIN_FORM_LOWERED, /* a tensor program that may hold nodes which rules left behind */
    KIN_FORM_IR,      /* a tensor program */
    KIN_FORM_PARTS,   /* two of them: what is computed once from frozen inputs, and the rest. Later passes take one part at a time */
    KIN_FORM_LOOPS,   /* a program whose kernels are loops, without places for temporary buffers */
    KIN_FORM_PLANNED, /* the same with places for temporary buffers */
    KIN_FORM_CODE,    /* a program whose kernels are machine code */
    KIN_FORM__COUNT
} kin_form;

typedef struct kin_compilation kin_compilation;

typedef struct {
    const char *name;
    kin_form takes, leaves;
    bool of_library;  /* skipped if the graph is compiled as it was captured */
    bool always;      /* verified in every process, because that is cheap and all later passes rely on it */
    kin_status (*run)(kin_compilation *c, kin_text *why);
    bool (*verify)(const kin_compilation *c, kin_text *why);
    const char *does; /* for people */
} kin_pass;

extern const kin_pass kin_passes[];
extern const unsigned kin_npasses;
/* The number of a pass by its name; UINT32_MAX: there is none. */
unsigned kin_pass_find(const char *name);

typedef enum { KIN_PART_MAIN, KIN_PART_ONCE, KIN_PARTS } kin_part_name;

/* One run of a pass. */
typedef struct {
    uint8_t pass, part;
    bool changed;     /* its output differs from its input */
    double ns;        /* without the verifier */
} kin_pass_note;

/* For tests: the fault to inject into one pass. */
typedef enum {
    KIN_PLANT_NONE,
    KIN_PLANT_MEMORY,    /* it runs out of memory */
    KIN_PLANT_BREAK,     /* it gives up */
    KIN_PLANT_MALFORMED, /* it leaves a malformed form, which its verifier must detect */
    KIN_PLANT_WRONG      /* it leaves a well-formed program with wrong results, which only a comparison detects */
} kin_plant_kind;
typedef struct {
    kin_plant_kind kind;
    unsigned pass;
} kin_plant;

typedef struct {
    kin_lower_options lower;      /* channels_last is decided here; fusion heeds `varying`, too */
    kin_rewrite_options rewrite;  /* post is cleared if runs cannot be repeated */
    const bool *frozen;           /* by input: it does not change between calls; NULL: none is frozen */
    bool libraries;               /* library calls may replace operators */
    kin_jit *jit;                 /* NULL: no machine code; the pipeline ends at KIN_FORM_PLANNED */
    kin_family *family;           /* shared by programs of the same graph for different sizes; NULL: sizes are part of the code */
    kin_ir_common *common;        /* the values of frozen inputs that these programs have in common; NULL: there is only one program */
    bool meet;                    /* the family only notes the program's numbers (KIN_BREAK) */
    bool background;              /* kernels that LLVM has to compile become a job */
    bool no_notes;                /* none on refused fusions */
    uint8_t print;                /* keep the code as text; 2: LLVM's as well */
    bool verify;                  /* after every pass */
    kin_plant plant;
    /* Called after each pass with what it left (valid during the call); may be NULL. */
    void (*watch)(void *arg, const kin_compilation *c, const kin_pass *pass);
    void *arg;
} kin_pipeline_options;

typedef struct {
    const kin_ir *ir;      /* the tensor program that was compiled; NULL: there is no such part */
    kin_program *program;
    char *text;            /* its code, if `print` asked for it */
    char *notes;           /* refused fusions, one per line; NULL: none */
} kin_pipeline_part;

typedef struct {
    kin_pipeline_part parts[KIN_PARTS];
    kin_lowered lowered;   /* describes the outputs and the inputs that are written to */
    kin_rewritten library; /* the library calls that replace operators; ir is NULL: none do */
    kin_ir_hoisted hoisted;
    kin_compile_stats stats;
    KIN_VEC(kin_pass_note) passes;
    kin_jit_job *job;      /* background: the missing kernels (KIN_BREAK); the caller runs the job, then compiles again */
    bool repeatable;       /* known to have no effects, random numbers among them */
    unsigned failed;       /* the pass that failed; UINT32_MAX: none */
} kin_pipeline_result;

/* KIN_BREAK with `why`: it cannot be compiled. The caller must always pass `out` to kin_pipeline_result_deinit. */
kin_status kin_pipeline_run(const kin_aten *graph, const kin_pipeline_options *options, kin_pipeline_result *out, kin_text *why) KIN_MUST_CHECK;
/* The same for a graph, or a part of one, that has been lowered already; takes ownership of `lowered`. */
kin_status kin_pipeline_run_lowered(const kin_aten *graph, kin_lowered *lowered, const kin_pipeline_options *options, kin_pipeline_result *out,
                                    kin_text *why) KIN_MUST_CHECK;
void kin_pipeline_result_deinit(kin_pipeline_result *c);

/* Only up to a simplified tensor program, for tests and tools. */
kin_status kin_pipeline_lower(const kin_aten *graph, const kin_lower_options *options, kin_lowered *out, kin_text *why) KIN_MUST_CHECK;
/* Starts from a tensor program; verified after each pass. notes: one line for each refused fusion; with KIN_BREAK, the reason. */
kin_status kin_pipeline_compile(kin_jit *jit, kin_family *family, const kin_ir *ir, kin_program **out, kin_compile_stats *stats, kin_text *notes) KIN_MUST_CHECK;
/* Only up to loops, for tests. */
kin_status kin_pipeline_fuse(const kin_ir *ir, kin_fused *out, kin_text *notes) KIN_MUST_CHECK;

/* -- for `watch` --------------------------------------------------------------------------------------------------- */
kin_part_name kin_compilation_part(const kin_compilation *c);
/* The form that the last pass left, as text. False without memory. */
bool kin_compilation_print(const kin_compilation *c, kin_text *out);

#endif
