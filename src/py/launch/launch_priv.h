/* Private to src/py/launch. */
#ifndef KIN_PY_LAUNCH_PRIV_H
#define KIN_PY_LAUNCH_PRIV_H

#include "core/base/table.h"
#include "core/pipeline/pipeline.h"
#include "core/program/numbers.h"
#include "core/tier/abtest.h"
#include "core/tier/compile_heuristic.h"
#include "py/capture/capture.h"
#include "py/launch/launch.h"
#include "py/launch/signature.h"
#include "py/run/frozen.h"
#include "py/run/run.h"
#include "py/training/training.h"

/* -- compile.c -------------------------------------------------------------------------------------------------- */

typedef struct launch_ticket launch_ticket; /* async.c: kernels that are being compiled */

typedef struct launch_version {
    launch_signature signature;
    launch_code *code;    /* NULL: the steps run one by one */
    char reason[200];     /* why */
    char *aten;           /* text of the graph, for reports; malloc'ed */
    char *not_fused;      /* what could not share a kernel, a line each; malloc'ed */
    char *listing;        /* of its code, if somebody asked for it; malloc'ed */
    char *halves[2];      /* ... of forward and backward before the passes, where it gives gradients */
    kin_capture_hints hints; /* layouts of results that differed from those captured */
    bool again;           /* compile again, with the hints */
    bool decided;         /* numbers that were open turned out to decide on the code: it is to be captured anew */
    bool no_writes;       /* calls that write to inputs are left out */
    launch_ticket *ticket; /* its kernels are still being compiled in the background; NULL: they are not */
    kin_capture *held;    /* the capture, until they are ready */
    uint32_t waits;       /* tickets it has had */
    uint32_t stuck;       /* step with a call that cannot be compiled with others; UINT32_MAX: none */
    uint32_t nnative, nextern, failures, nans;
    kin_compile_stats stats;
    double capture_ns, total_ns; /* of compiling */
    KIN_VEC(kin_pass_note) passes; /* of the last compilation */
    bool *frozen;         /* what that was given, to show what each pass left: by input; NULL: nothing was compiled */
    kin_lower_options lower;
    kin_rewrite_options rewrite;
    bool libraries;
    bool retired;         /* its code was evicted */
    bool spare;           /* ... and the version is nobody's: the next one takes its place */
    struct launch_version *next_spare;
    uint64_t hash;        /* of the signature */
    uint32_t number;      /* among the launcher's */
    uint32_t used;        /* when, by the launcher's clock */
    kin_abtest abtest;        /* compiled code against steps */
    uint64_t validations; /* launches since validation was asked for (validate.c) */
    bool copied;       /* made by template.c */
    bool unlike;       /* ... and the passes decide otherwise for its sizes: what it computes is to be compared with the steps (KINTSUGI_VERIFY=1) */
    uint32_t like;     /* number of its template, counted from 1; 0: none */
    uint32_t nnumbers; /* ... which has so many numbers */
    uint32_t nasked;   /* the last of which are not the plan's, but its program's */
    double retry_at;   /* if it was slower: the time at which it is compiled and compared again; 0: never */
    uint32_t drops;       /* how often it was slower */
    bool small;           /* not compiled: a single call on little data */
    bool repeatable;      /* its calls are known to have no effects but writes to inputs */
    kin_aten_work work;   /* of its calls, if the passes made it; zeroed: not known */
} launch_version;

/* template.c: plans that were made, by structure. */
typedef struct launch_template launch_template;
typedef struct {
    KIN_VEC(launch_template *) at;
    uint64_t state;
} launch_templates;

typedef struct {
    launch_ticket *ticket;
    uint64_t class; /* of the inputs that wait for it (launch_signature_class) */
} launch_sizes_job;

/* sizes.c: code for all sizes. */
typedef struct {
    kin_family *main, *backward; /* NULL: nothing was compiled yet */
    kin_ir_common common;   /* what programs precompute from weights for all sizes */
    kin_table by_signature; /* versions */
    uint32_t last;          /* version found last */
    launch_version *spare;  /* versions that were evicted, whose places are free */
    bool evicted;           /* some version was evicted */
    bool met;               /* a capture was noted, so the next one shows which sizes vary */
    bool ready;             /* code that takes sizes as arguments exists */
    bool settled;           /* it is known to be faster than the steps, for all sizes */
    bool settled_training;  /* ... with gradients */
    bool off;               /* it is not faster */
    uint32_t tried;         /* calls in which both were timed */
    uint32_t alone;         /* calls that ran the code alone to be compared with what the steps are expected to take */
    bool expected;          /* ... which has settled the comparison */
    double steps_ns;        /* the time of the steps in one call (expect.c); 0: not known */
    kin_aten_work steps_work; /* ... whose work is this */
    double ours, theirs;    /* ... and their total times in nanoseconds */
    double plan_ns;         /* the time to make a plan */
    double copy_ns;         /* ... by copying another one; 0: none was copied */
    uint32_t without;       /* calls without a plan for their sizes, since the last plan was made */
    uint32_t tries;         /* plans that cost more than one call gains, made since a plan was last used again */
    KIN_VEC(launch_sizes_job) jobs; /* code for all sizes that is being compiled in the background */
    uint32_t waits;         /* how many there were */
    bool came;              /* one has ended */
    kin_compile_stats made; /* compiled in the background since the last version was made */
    launch_templates templates;
    uint32_t nmade, ncopied; /* plans since code for all sizes exists */
} launch_sizes;

typedef struct {
    double ours, theirs;  /* nanoseconds */
    bool disturbed;       /* other processes had the processor meanwhile */
    double clock, thread; /* when it began */
} launch_timing;

typedef struct {
    kin_launcher base;
    kin_launch_context context;
    uint32_t graph;       /* number in its entry, for reports; a graph may have several subgraphs */
    KIN_VEC(launch_version *) versions;
    bool exact_nan;       /* NaNs are common here: no operations that would lose them */
    char unfreeze[160];       /* why the last of `unfrozen` was given up */
    launch_numbers unfrozen; /* inputs that turned out not to be constant */
    launch_numbers raising;  /* calls that some capture has found to raise where the data ask for it, or to draw random numbers */
    bool surprised;       /* a later input did not fit the chosen version: there may be a new kind to compile for */
    kin_input_kinds kinds; /* kinds of inputs without code */
    bool said_changing;   /* an event said that there are too many kinds */
    uint32_t looks;       /* captures compared so far (vary.c) */
    KIN_VEC(uint64_t) seen; /* hashes of the calls in the first of these captures */
    uint32_t nplans;      /* versions for which the passes ran */
    uint32_t clock;       /* of uses */
    double first_ns;      /* by how much the first run of new code was slower than its steps, because of packing */
    launch_timing begun;  /* when the steps of this call began; clock 0: not measured */
    bool varies;          /* its trace has dynamic dims, or few calls reach it */
    bool must_pay;        /* few calls reach it: code must pay for itself first */
    bool full;            /* the limit of signatures, or of excluded calls, is reached */
    uint32_t left_early;  /* kinds of inputs for which a test near its beginning leaves the subgraph, which stayed whole */
    launch_sizes sizes;
    bool meeting;         /* the capture is only noted */
    bool keeps_met;       /* ... and kept until the steps of the call have been timed (expect.c) */
    launch_version *met;  /* NULL: none is kept */
    bool ahead;           /* the plan is made for inputs that no call has had yet */
    bool checking;        /* the plan is only made to verify a copied one */
    char gone[200];       /* the reason why nothing is compiled any more */
    const char *not_yet;  /* why the last call that asked for code got none; NULL: it got code, or no call has asked */
    bool *open, *fixed;   /* by input: a number that code reads at run time; a number that code depends on (numbers.c). NULL: not known yet */
    uint32_t fixings;     /* how often these changed */
} kernel_launcher;

/* -- heuristic.c ---------------------------------------------------------------------------------------------------- */

extern const char launch_changing[];
typedef struct launch_copy launch_copy; /* template.c */
/* Is it worth compiling for these inputs, which have no code? Counts them, and returns the plan to copy, if one was searched for. */
bool launch_compile_pays(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, launch_copy *copy);
/* ... which had code that was evicted. */
bool launch_compile_pays_again(kernel_launcher *self, const launch_version *version, kin_entry *v, const kin_subgraph *subgraph,
                           PyObject *const *in);
/* Do its inputs change too often to compile code for each kind? */
bool launch_is_changing(const kernel_launcher *self);
/* Account for a compilation, a run, and the beginning of steps (whose end is a call of one of the functions above). */
void launch_note_cost(const kernel_launcher *self, const launch_version *version);
/* Accounts for a first run, which packs weights. */
void launch_note_first(kernel_launcher *self, const launch_version *version, double ns);
void launch_note_use(kernel_launcher *self, launch_version *version);
void launch_begin_steps(kernel_launcher *self);
/* Does the subgraph have dynamic dims? */
bool launch_subgraph_varies(const kin_entry *v, const kin_subgraph *subgraph);
/* Is it behind a check that only some calls pass? */
bool launch_subgraph_is_chosen(const kin_entry *v, const kin_subgraph *subgraph);

/* -- sizes.c ---------------------------------------------------------------------------------------------------- */

bool launch_sizes_are_on(const kernel_launcher *self);
/* Did calls have several kinds of sizes, with code for all of them? */
bool launch_sizes_vary(const kernel_launcher *self);
/* The family of a program, or of its backward half; NULL: sizes are part of the code. */
kin_family *launch_sizes_family(kernel_launcher *self, bool backward);
void launch_sizes_deinit(launch_sizes *s);
/* The version for the inputs; NULL: there is none. In constant time, however many there are. */
launch_version *launch_sizes_find(kernel_launcher *self, PyObject *const *in, uint32_t n);
/* A new version for these inputs, which takes the signature; reuses the place of an evicted one. NULL: out of memory. */
launch_version *launch_sizes_enter(kernel_launcher *self, launch_signature *signature, PyObject *const *in);
/* Gives the version another signature, for these inputs. */
void launch_sizes_enter_again(kernel_launcher *self, launch_version *version, PyObject *const *in);
/* Evicts the version, so that it is no longer found. */
void launch_sizes_leave(kernel_launcher *self, launch_version *version);
/* The version was made, in `ns` of this thread. */
void launch_sizes_note_made(kernel_launcher *self, launch_version *version, double ns);
/* Applies to the version what was decided for all sizes. */
void launch_sizes_take_over(const kernel_launcher *self, launch_version *version);
/* Does a copied plan pay in one call? */
bool launch_sizes_copy_pays(const kernel_launcher *self);
/* How much of a call's `ns` without code would have been saved with it, as far as that is known. */
double launch_sizes_lost(const kernel_launcher *self, double ns);
/* Does a plan for new sizes pay in one call? */
bool launch_sizes_plan_pays(const kernel_launcher *self);
/* May a plan be made for sizes that no call has had, with which plans for many more can be copied? */
bool launch_sizes_widening_pays(const kernel_launcher *self);
/* Should its machine code be compiled in the background, while calls run step by step? */
bool launch_sizes_go_behind(const kernel_launcher *self);
/* Its code, for inputs of this class, is being compiled. */
void launch_sizes_begin_wait(kernel_launcher *self, launch_ticket *ticket, uint64_t class);
/* Is code that these inputs need still being compiled? */
bool launch_sizes_wait(kernel_launcher *self, PyObject *const *in, uint32_t n);
/* Attributes what was compiled in the background to the first version that uses it. */
void launch_sizes_count_made(kernel_launcher *self, launch_version *version);
/* Should steps and code both be timed in this call, to decide for all sizes? */
bool launch_sizes_are_in_trial(const kernel_launcher *self, const launch_version *version);
void launch_sizes_note_trial(kernel_launcher *self, const launch_timing *t);
/* Should the code run alone, and be compared with what the steps are expected to take? */
bool launch_sizes_may_run_alone(const kernel_launcher *self, const launch_version *version);
/* It did; `theirs` is the least that the steps take, `usual` what they take as far as is known. */
void launch_sizes_note_alone(kernel_launcher *self, const launch_timing *t, double usual);
/* The version gives gradients, and was found faster. */
void launch_sizes_note_training(kernel_launcher *self, const launch_version *version);

/* -- template.c ------------------------------------------------------------------------------------------------- */

void launch_templates_deinit(launch_templates *all);
/* The version was made by the passes for these inputs. */
void launch_template_note(kernel_launcher *self, launch_version *version, const kin_capture *capture, PyObject *const *in);
/* Which plan is copied, and its numbers for other inputs. */
struct launch_copy {
    bool looked;                 /* for one */
    uint32_t like;               /* number of its template, counted from 1; 0: there is none */
    const launch_version *model;
    kin_walk walk;
};
/* Searches for a plan to copy, unless that was done already. */
bool launch_template_find(kernel_launcher *self, PyObject *const *in, uint32_t n, launch_copy *copy);
/* Makes the version's plan by copying; false: the passes must run. */
bool launch_template_make(kernel_launcher *self, launch_version *version, PyObject *const *in, launch_copy *copy);
void launch_copy_deinit(launch_copy *copy);
/* Can plans be copied for some sizes at least? */
bool launch_templates_known(const kernel_launcher *self);
/* Is the copy equal to what the passes made? Where they decided otherwise, that is not known: version->unlike. */
bool launch_template_is_right(launch_version *version, const launch_version *made, kin_text *why);
/* Would a few more plans make copying possible? */
bool launch_templates_want_more(const kernel_launcher *self);
/* Inputs for a plan with which the one for these could be copied, and many more, where sizes only lie outside of the ranges met; NULL: there are none. The caller
 * frees them. *like: the template. */
PyObject **launch_template_widen(const kernel_launcher *self, PyObject *const *in, uint32_t n, uint32_t *like);
/* The plan was made, and the one for the inputs still cannot be copied. */
void launch_template_in_vain(const kernel_launcher *self, uint32_t like);
/* Frees an array of objects, with its references; NULL allowed. */
void launch_forget(PyObject **objects, uint32_t n);

/* -- numbers.c -------------------------------------------------------------------------------------------------- */

/* The inputs of compiled code: the subgraph's, with 0-dim tensors in place of open numbers. */
typedef struct {
    PyObject *const *in;
    PyObject **own; /* NULL: they are the subgraph's */
    uint32_t n;
} launch_operands;
/* False without memory. */
bool launch_operands_make(const launch_signature *s, PyObject *const *in, launch_operands *out);
void launch_operands_end(launch_operands *o);
/* Finds out which numbers may be open among inputs that have no code. */
void launch_numbers_learn(kernel_launcher *self, const kin_subgraph *subgraph, PyObject *const *in);
/* Captures the subgraph on these inputs, with those numbers open. */
kin_status launch_numbers_capture(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, unsigned may,
                                  kin_capture *out) KIN_MUST_CHECK;
/* Does the code depend on open numbers of the capture? These are fixed from now on. */
bool launch_numbers_decided(kernel_launcher *self, launch_version *version, const kin_capture *capture, PyObject *const *in);

/* -- vary.c ----------------------------------------------------------------------------------------------------- */

/* Finds out which calls differ between kinds of inputs, and excludes them from the subgraph. */
void launch_look_what_varies(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in);
/* Are all its calls shape-invariant, as found by the above? */
bool launch_is_invariant(const kin_entry *v, const kin_subgraph *subgraph);

/* -- compile.c -------------------------------------------------------------------------------------------------- */

/* Are the tensors among the inputs of a kind that code is compiled for? Others may have no sizes or strides, so these are not read. */
bool launch_takes(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in);
/* A version for these inputs, which it takes and has none for, if that is worth it; one without code (and with a reason) when they cannot be compiled. NULL:
 * it is not, or there is no memory. */
launch_version *launch_compile_if_it_pays(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in);
/* Compiles an existing version again, with what its runs have shown. */
void launch_compile_again(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph,
                          PyObject *const *in);
/* Finishes a version whose kernels were compiled in the background, if they are ready. */
void launch_compile_ready(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph,
                          PyObject *const *in);
/* Only notes the numbers of its kernels: the next code leaves those open that differ. */
void launch_meet(kernel_launcher *self, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in);
void launch_version_deinit(launch_version *version);
void launch_version_free(launch_version *version);

/* -- validate.c ------------------------------------------------------------------------------------------------- */

/* Should the results of this launch be compared? Counts it. */
bool launch_wants_validation(const kernel_launcher *self, launch_version *version);
/* Runs the code (with `run`) and the steps, and compares. Outputs are those of the steps; code with different results is dropped for good. */
kin_launch launch_validate(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
                           PyObject **out);
/* trial.c: runs the code and handles its failures. */
kin_launch launch_run_code(kernel_launcher *self, launch_version *version, PyObject *const *in, PyObject **out);
bool launch_acts(const launch_version *version);

/* -- plan.c ----------------------------------------------------------------------------------------------------- */

/* These calls cannot be compiled with others: the next plan excludes them. KIN_BREAK: too many are excluded already. */
kin_status launch_exclude(kin_entry *v, const uint32_t *steps, uint32_t n, const char *why) KIN_MUST_CHECK;
/* These calls may raise: no step that can be observed may stand between one of them and the launch. KIN_BREAK: one did; the next plan
 * has barriers there. */
kin_status launch_put_barriers(kin_entry *v, const kin_subgraph *subgraph, const uint32_t *raising, uint32_t n) KIN_MUST_CHECK;
/* No subgraph may extend over this step, a check that fails when it is captured. KIN_BREAK: it was known, or there are too many. */
kin_status launch_put_barrier(kin_entry *v, uint32_t step) KIN_MUST_CHECK;
/* -- describe.c ------------------------------------------------------------------------------------------------- */

const char *launch_name_of(const kin_launch_context *context); /* of the compiled function, for events */
/* The subgraph runs step by step: an event. */
void launch_say(const kernel_launcher *self, const char *reason);
/* The launcher of a subgraph that reports show; NULL: none. */
const kernel_launcher *launch_of_subgraph(const kin_subgraph *subgraph);
/* What could not share a kernel: an event. */
void launch_say_fusion(const kernel_launcher *self, const char *notes);
/* Are the graph and the refused fusions of the version that is being compiled kept as text? */
bool launch_tells(const kernel_launcher *self);
/* Should the code be kept as text? 2: LLVM's as well. */
int launch_listing(void);
/* Something is no longer precomputed from weights: an event, and for reports. */
void launch_say_unfrozen(kernel_launcher *self, const char *reason);

/* -- launcher.c -------------------------------------------------------------------------------------------------- */

/* Are gradients on, and does an input require some? */
bool launch_wants_gradient(const kin_subgraph *subgraph, PyObject *const *in);

/* -- freeze.c --------------------------------------------------------------------------------------------------- */

/* Marks the tensor inputs of the graph (by number) that are expected to be constant: parameters and buffers of modules. unfrozen:
 * inputs of the subgraph that turned out not to be. */
void launch_find_frozen(const kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, const kin_aten *graph,
                        const launch_numbers *unfrozen, bool *frozen);

/* -- make.c ----------------------------------------------------------------------------------------------------- */

/* Gives the version its code. KIN_BREAK with `why`. */
kin_status launch_code_make(kernel_launcher *self, const kin_entry *v, const kin_capture *capture, const kin_subgraph *subgraph,
                            PyObject *const *in, launch_version *version, kin_text *why) KIN_MUST_CHECK;

/* Did the steps give what was captured (launch_gives_the_same)? For captures without code. */
bool launch_capture_gives_the_same(const kin_capture *capture, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out);

/* -- passes.c: what core/pipeline did, for reports; what tests make it do ------------------------------------------ */

/* After each pass its verifier runs: KINTSUGI_VERIFY=1. */
bool launch_verifies(void);
kin_plant launch_plant(void);
/* "pass NAME WHAT": injects a fault; false: there is no such pass or fault. */
bool launch_set_plant(const char *text);
/* A verifier refused the result of a pass: an event. */
void launch_say_bug(const kernel_launcher *self, const char *pass, const char *message);
/* How long each pass took: an event. */
void launch_say_passes(const kernel_launcher *self, const launch_version *version);
/* New list of dicts {name, part, changed, ns}; NULL with an exception. */
PyObject *launch_describe_passes(const launch_version *version);

/* -- jit.c ------------------------------------------------------------------------------------------------------ */

/* NULL with `why`. */
kin_jit *launch_jit(kin_event_log *log, kin_text *why);
/* Called at the end of the process, and in a forked child. */
void launch_jit_cancel(void);
void launch_jit_lock(bool lock);
/* Events for what went wrong with the cache on disk. */
void launch_say_cache(kin_event_log *log, const kin_compile_stats *stats);

/* -- launcher.c ------------------------------------------------------------------------------------------------- */

/* NULL without memory. */
kin_launcher *launch_new(const kin_launch_context *context, uint32_t graph, bool varies, bool must_pay);
bool launch_is_ours(const kin_launcher *launcher);

/* -- trial.c ---------------------------------------------------------------------------------------------------- */

/* Runs the code, or the steps if the comparison needs them. */
kin_launch launch_or_try(kernel_launcher *self, launch_version *version, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in,
                         PyObject **out);
/* Is the choice between code and steps made? */
bool launch_is_settled(const kernel_launcher *self, const launch_version *version);
/* Was it slower, and is it time to compile and compare it again? */
bool launch_is_due(const launch_version *version);
/* Drops the code; false if it is running. */
bool launch_drop(launch_version *version);

launch_timing launch_timing_begin(void);
/* Other processes had the processor since it began. */
bool launch_timing_is_disturbed(const launch_timing *t);

/* -- expect.c --------------------------------------------------------------------------------------------------- */

/* The steps of the version took so long, and gave what the capture says. */
void launch_note_steps(kernel_launcher *self, const launch_version *version, double ns);
/* The sizes of this call were only noted, and the capture was kept: to be freed by the caller. NULL: it was not. */
launch_version *launch_take_met(kernel_launcher *self);
/* Their steps have run, and took so long. */
void launch_learn_steps(kernel_launcher *self, const launch_version *met, const kin_subgraph *subgraph, PyObject *const *in, PyObject *const *out, double ns);
/* Runs them in place of a launch, and times them. */
kin_launch launch_time_steps(kernel_launcher *self, const launch_version *met, kin_entry *v, const kin_subgraph *subgraph, PyObject *const *in, PyObject **out);
/* The time that the steps are expected to take for the version's sizes, and the least that they do; 0: nothing can be said. */
double launch_steps_expected_ns(const kernel_launcher *self, const launch_version *version, double *least);

/* -- async.c ---------------------------------------------------------------------------------------------------- */

/* Takes the job; NULL: not possible, the job still belongs to the caller. */
launch_ticket *launch_in_background(kin_jit_job *job);
bool launch_ticket_done(const launch_ticket *t);
/* One more holder. */
launch_ticket *launch_ticket_hold(launch_ticket *t);
void launch_ticket_release(launch_ticket *t);
/* The statistics of its job, if it is done. */
void launch_ticket_stats(const launch_ticket *t, kin_compile_stats *stats);

#endif
