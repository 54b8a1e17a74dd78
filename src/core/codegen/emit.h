/* A kernel's loops as an LLVM module. Private to core/codegen; only in builds with LLVM. */
#ifndef KIN_CODEGEN_EMIT_H
#define KIN_CODEGEN_EMIT_H

#include "core/object/object.h"
#include "core/codegen/open.h"
#include "core/fuse/loops.h"

#ifdef KIN_LLVM
#include <llvm-c/Core.h>

/* What the machine can do, as far as the emitter cares. */
typedef struct {
    const char *cpu, *features;
    unsigned vector_bytes; /* 64, 32, 16 */
    bool f16;              /* converts half precision in hardware */
} kin_machine;

/* Loops run as: LINEAR: [begin, end) are elements of the only variable. ROWS: [begin, end) number the outer variables'
 * combinations; the vector's variable is an inner one, or there is none. COLUMNS: the vector's variable is an outer one;
 * the range numbers (combination of the others, chunk of lanes). */
typedef enum { KIN_RUN_LINEAR, KIN_RUN_ROWS, KIN_RUN_COLUMNS } kin_run_kind;
typedef struct {
    kin_run_kind kind;
    unsigned lanes;
    kin_kernel_work work;
} kin_kernel_plan;

/* any: code for any size of the vector's variable. */
kin_kernel_plan kin_emit_plan(const kin_loops *k, const kin_machine *t, bool any);
/* The variable whose size is in the range that a call of the kernel gets and nowhere in its code; UINT32_MAX: there is none. */
uint32_t kin_emit_open_var(const kin_loops *k, const kin_kernel_plan *run, bool any);
/* What of a kernel's numbers is read when it runs; open NULL: nothing. */
typedef struct {
    const kin_numbers *numbers;
    const bool *open;
} kin_open;
/* Adds the function `kernel` to the module; false with `why` for what has no code. */
bool kin_emit(const kin_loops *k, const kin_machine *t, const kin_kernel_plan *run, const kin_open *open, LLVMModuleRef module, kin_text *why);

/* From this length on the code of a LINEAR run is the same for all: it has a part for what is left behind the last whole step. */
enum { KIN_EMIT_ANY_LENGTH = 256 };

enum { KIN_EMIT_MAX_INNER = 24, KIN_EMIT_MAX_LANES = 256 };

typedef struct {
    LLVMValueRef value, position; /* of an accumulator while its loops run; position: ARGMAX, ARGMIN */
} kin_emit_state;

/* One emission; see emit.c for the loops, accumulate.c for what they gather, value.c and arithmetic.c for instructions, address.c for where they read and write. */
typedef struct {
    const kin_loops *k;
    const kin_machine *target;
    const kin_kernel_plan *run;
    const kin_open *open;
    LLVMValueRef *loaded;          /* by number: open ones, I64 */
    kin_text *why;
    LLVMContextRef context;
    LLVMModuleRef module;
    LLVMBuilderRef b;
    LLVMValueRef fn, error;        /* error: two places, the first is the answer */
    LLVMBasicBlockRef entry;       /* allocas go to its end; it is closed last */
    LLVMValueRef window[2];        /* columns: from, to */
    LLVMValueRef *bases;           /* of buffers */
    LLVMValueRef *vars;            /* value of each variable, at lane 0 */
    LLVMValueRef lanes;            /* <N x i1>: which lanes count, NULL = all */
    uint64_t *deps;
    LLVMValueRef *memo;            /* by instruction */
    uint8_t *memo_level;
    LLVMValueRef *accs;
    kin_emit_state *states;        /* by accumulator */
    uint32_t inner[KIN_EMIT_MAX_INNER]; /* variables of the inner loops, outermost first */
    unsigned ninner;
    unsigned depth;                /* loops that are open */
    LLVMBasicBlockRef here;        /* where code of the innermost open loop goes */
    LLVMBasicBlockRef before[KIN_EMIT_MAX_INNER + 2]; /* [d]: the block in front of loop d, d >= 1 */
    LLVMValueRef *other;           /* where the cosine that goes with a sine is wanted, or the sine; NULL: it is not */
    bool streamed;                 /* something was written past the caches */
    bool failed;
} kin_em;

/* -- accumulate.c: what reductions and scans gather */
void kin_em_start_state(kin_em *e, const kin_loop_action *a);
void kin_em_reduce(kin_em *e, const kin_loop_action *a);
LLVMValueRef kin_em_scanned(kin_em *e, const kin_loop_action *a); /* what a scan stores now */
void kin_em_add_state(kin_em *e, const kin_loop_action *a, kin_emit_state with); /* takes in what was put aside */
void kin_em_finish_state(kin_em *e, const kin_loop_action *a); /* the accumulator's result, of the action's dtype */
bool kin_em_state_is_vector(const kin_em *e, const kin_loop_action *a);

/* -- value.c */
LLVMValueRef kin_em_value(kin_em *e, uint32_t inst);
void kin_em_store(kin_em *e, const kin_loop_action *a, LLVMValueRef value, bool vector);
LLVMValueRef kin_em_load_for_update(kin_em *e, const kin_loop_action *a, bool vector);
bool kin_em_is_vector(const kin_em *e, uint32_t inst);
LLVMValueRef kin_em_widen(kin_em *e, LLVMValueRef v);
LLVMTypeRef kin_em_type(const kin_em *e, unsigned dtype, bool vector); /* of values in registers */
LLVMValueRef kin_em_const_like(LLVMTypeRef type, unsigned dtype, kin_scalar value);
LLVMValueRef kin_em_round_half(kin_em *e, LLVMValueRef v, unsigned dtype);
LLVMValueRef kin_em_intrinsic(kin_em *e, const char *name, LLVMTypeRef *types, unsigned ntypes, LLVMValueRef *args, unsigned nargs);
LLVMValueRef kin_em_alloca(kin_em *e, LLVMTypeRef type, unsigned align);
LLVMTypeRef kin_em_scalar_type(const kin_em *e, unsigned dtype);
LLVMTypeRef kin_em_with_element(LLVMTypeRef shape, LLVMTypeRef element); /* a vector of as many, or a scalar */
LLVMValueRef kin_em_int_like(LLVMTypeRef type, int64_t v);
LLVMValueRef kin_em_mask_for(kin_em *e, uint32_t mask, bool vector); /* the instruction's and the lanes that count; NULL = always */
bool kin_em_is_half(unsigned dtype);
unsigned kin_em_level_of(const kin_em *e, uint64_t deps); /* the innermost loop that it changes in */
void kin_em_fail(kin_em *e, const char *what);
/* The number as I64, from the code or from where the kernel reads it. */
bool kin_em_is_open(const kin_em *e, uint32_t number);
LLVMValueRef kin_em_number(const kin_em *e, uint32_t number, int64_t fixed);
/* Of an expression's constant, a term's factor, an atom's divisor, an instruction's constant. */
#define NUMBER_OF(e, what, i) ((e)->open->open == NULL ? KIN_NUMBER_NONE : (e)->open->numbers->what[i])
uint32_t kin_em_size_of(const kin_em *e, uint32_t var); /* number of a variable's size */
void kin_em_error_if(kin_em *e, LLVMValueRef condition);

/* -- address.c */

/* How an index moves from lane to lane. */
typedef struct {
    int64_t step;
    uint32_t number; /* of the step: it may be open, where it is more than 2 */
    bool irregular;
} kin_lane_step;

void kin_em_place(kin_em *e, unsigned level);
bool kin_em_deps_vector(const kin_em *e, uint64_t deps); /* does it differ between lanes? */
void kin_em_need_values(kin_em *e, kin_ix x);
LLVMValueRef kin_em_index_scalar(kin_em *e, kin_ix x, unsigned level);
LLVMValueRef kin_em_index_vector(kin_em *e, kin_ix x, unsigned level);
kin_lane_step kin_em_lanes_of(const kin_em *e, kin_ix x);
LLVMValueRef kin_em_pointer_at(kin_em *e, uint32_t buffer, kin_ix x, unsigned level, int64_t further);
LLVMValueRef kin_em_pointers_at(kin_em *e, uint32_t buffer, LLVMValueRef indices);

/* -- arithmetic.c */
LLVMValueRef kin_em_op(kin_em *e, const kin_loop_inst *in, bool vector);
LLVMValueRef kin_em_combine(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b);

/* -- math.c */
LLVMValueRef kin_em_math(kin_em *e, unsigned op, unsigned dtype, LLVMValueRef a, LLVMValueRef b);

#endif
#endif
