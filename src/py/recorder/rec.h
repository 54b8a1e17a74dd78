/* The state of a recording, and the functions that the folders that record share (rules, objects, models, iterators, torchcalls).
 *
 * The recorder keeps a symbolic frame for each watched frame: one kin_vid per local and stack slot. A rule (one per
 * operation) runs just before its instruction: it reads the operands' vids, writes facts, checks and at most one visible
 * step, and brings the symbolic stack into the state after the instruction. Results that do not exist yet are
 * "awaited": they are taken from the real stack at the frame's next event.
 *
 * Order inside a rule: all checks and facts first, then pure steps, then at most one step with effects. Every
 * step's snapshot is the state before the instruction.
 */
#ifndef KIN_PY_RECORDER_REC_H
#define KIN_PY_RECORDER_REC_H

#include "core/bytecode/bytecode.h"
#include "core/trace/effects.h"
#include "py/aten/sizes.h"
#include "py/aten/tensor.h"
#include "py/guardeval/guard.h"
#include "py/recorder/options.h"
#include "py/watch/watch.h"
#include <Python.h>

/* An object that the recording created and whose contents it knows. */
typedef enum {
    VIRTUAL_NONE, VIRTUAL_TUPLE, VIRTUAL_LIST, VIRTUAL_DICT, VIRTUAL_SET, VIRTUAL_METHOD, VIRTUAL_CELL, VIRTUAL_FUNCTION, VIRTUAL_SUPER,
    VIRTUAL_ITER,   /* iterator over items[pos..n) */
    VIRTUAL_RANGE, VIRTUAL_SLICE, VIRTUAL_VIEW, VIRTUAL_OBJECT, VIRTUAL_OTHER,
    VIRTUAL_NAMED,   /* an instance of the program's own tuple class: items (rec_named_items) */
    VIRTUAL_ATTRS,   /* the __dict__ of the VIRTUAL_OBJECT items[0], which has the contents */
    VIRTUAL_LAZY,    /* zip, map, islice ...: items as LAZY_CALLBACK says; pos = its own state (iterators/ask.c) */
    VIRTUAL_GETTER,  /* itemgetter, attrgetter, methodcaller: items = its arguments */
    VIRTUAL_WEAKREF, /* weakref.ref without a callback: items = what it refers to, which may be gone, so the contents are not `known` */
    VIRTUAL_PARTIAL, /* functools.partial: items = function, arguments, keyword values; aux = tuple of their names or NULL */
    VIRTUAL_GENERATOR /* items = function, locals and stack; its frame is in rec.gens */
} virtual_kind;

/* Items of a VIRTUAL_LAZY: its class (0: it is made by chain.from_iterable), its function or 0, then its sources, which are iterators and generators, and further operands. */
enum { LAZY_CLASS, LAZY_CALLBACK, LAZY_SOURCES };

/* Items of a VIRTUAL_FUNCTION (0: none). */
enum { FN_DEFAULTS, FN_KWDEFAULTS, FN_CLOSURE, FN_GLOBALS, FN_ITEMS };

enum { REC_OVER_LISTS = 1, REC_OVER_DICTS = 2, REC_OVER_OTHERS = 4, REC_OVER_FIXED = 8 /* what never changes */ };

typedef struct {
    virtual_kind kind;
    bool known;       /* items are exactly the contents (dict: keys and values alternate) */
    bool escaped;     /* code that is not watched may reach it */
    bool given;       /* VIRTUAL_ITER: only the C function that exhausts it holds it */
    enum { ENDS, COUNTS, CYCLES } endless; /* VIRTUAL_ITER: after the items come others: each is the last one and `of`, or the one `period` before */
    uint8_t over;     /* VIRTUAL_ITER without `of`: kinds of containers that it goes over and that can change (REC_OVER_...) */
    uint32_t period;
    uint32_t gone;    /* VIRTUAL_LAZY: how many of its sources it has let go of */
    uint32_t let_go;  /* VIRTUAL_LAZY: a bit for each other operand that it has let go of, the lowest for its first source */
    uint32_t made_of; /* VIRTUAL_LAZY: how many items it was made with; of others it keeps the last one, if any: while `pos` is not 0 */
    uint32_t n, cap, pos;
    kin_vid *items;
    kin_vid of;       /* VIRTUAL_ITER: the container it runs over. VIRTUAL_OBJECT of a dict class: a value without an
                         object whose VIRTUAL_DICT is the mapping part. VIRTUAL_DICT: 0, or the function that
                         gives a defaultdict its values. VIRTUAL_FUNCTION: 0, or its __wrapped__ */
    PyObject *aux;    /* CONST detail: METHOD/FUNCTION/SUPER: borrowed object kept by refs */
} rec_virtual;

/* Does the value depend on tensor data (data.c)? */
typedef enum { REC_NO_DATA, REC_DATA_IN_GRAPH, REC_DATA_OUTSIDE /* and was computed by Python code, which no graph can contain */ } rec_data;

typedef struct {
    PyObject *obj;        /* as seen while recording; may dangle when !held: use only from a live slot */
    PyTypeObject *type;   /* exact type, when known by fact, check or construction */
    uint32_t type_epoch;    /* ... for heap types valid in this epoch only */
    uint32_t born_epoch;    /* epoch in which the value came into being */
    kin_vid as_const;     /* the CONST it was specialised to */
    uint32_t meta_epoch;  /* tensors: meta epoch + 1 for which meta_mask holds */
    unsigned meta_mask;
    rec_virtual *virtual;
    uint32_t raised;      /* number in rec.raises from which on the exception (or its traceback) exists; 0 = none */
    bool held, graph;     /* graph: result of a torch call */
    bool varies;          /* an address, a time, a random number, or computed from one: differs from call to call */
    bool made;            /* by the recording: another object in each call */
    bool mortal;          /* Python code runs when it dies: its own finaliser, or that of something it holds */
    bool changes_each_call; /* computed from a number that differed in every call so far */
    rec_data data;        /* does it depend on tensor data? */
    int data_row;         /* ... the row of breaks.def for the call that read the data */
    bool of_sizes;        /* ... only through the sizes of tensors */
    bool unbacked;        /* a tensor, or several, whose sizes may depend on data: those that are not in kept_sizes only */
    uint64_t kept_sizes, data_sizes; /* sizes of its operands, as bits by size modulo 64: fixed ones, and those that depend on data */
    kin_ref content;      /* tensors that were there before the epoch: what they held when they were first met; 0: not known */
    bool sized;           /* a tensor whose sizes differ from call to call, or a number computed from such sizes */
    uint32_t open_epoch;  /* tensors: meta epoch + 1 for which dynamic_dims holds */
    uint64_t dynamic_dims;
    uint64_t fixed_sizes; /* ... that are not left open after all: the number of rounds of a loop is one of them */
} rec_info;

/* An instruction that raised, and the state of the trace before it, to which it is cut back if the exception escapes. */
typedef struct {
    kin_trace_mark end;
    uint32_t snap;        /* state before the instruction */
    bool in_region;       /* of a region that is over: frames are missing in the traceback */
} rec_raise;

typedef enum { AWAIT_NONE, AWAIT_RESULT, AWAIT_CONST, AWAIT_BRANCH, AWAIT_FRAME, AWAIT_ITER,
               AWAIT_CONSUMER, AWAIT_CACHED,
               AWAIT_TRUTH /* the bool that a check must find again at replay */ } await_kind;

enum { REC_UNDO = 32 };

/* The loop that a frame is in, whose number of rounds is not known (loops.c). */
typedef struct {
    uint32_t offset;         /* of the instruction to which it jumps back */
    kin_vid it;              /* of a for loop: its iterator */
    uint32_t turns;          /* how often it has done so; 0: there is no loop */
    uint32_t head;           /* the LOOP step; 0: none */
} rec_loop;

typedef struct rec_frame {
    struct rec_frame *back;
    struct _PyInterpreterFrame *f;
    PyCodeObject *code;
    const kin_code *kc;
    kin_ref code_ref;
    kin_vid func;
    kin_vid *slots;          /* nlocalsplus + stack */
    int nlocals, sp, sp0;    /* sp0: depth before the current instruction */
    int nslots; /* room for locals and stack */
    uint32_t parent_snap;
    uint32_t offset, next;   /* current instruction and its fall-through successor (byte offsets) */
    const kin_instr *in;     /* the current instruction; NULL: none yet */
    kin_canon op;            /* its current action or, after the rule has run, its main one (KIN_DO__COUNT: none) */
    int arg, extra;          /* operands of that action */
    unsigned flags;
    uint32_t jumped_from;    /* the instruction before it in time, if that is behind it in the text; else 0 */
    uint32_t exit_offset;    /* where an exit before this instruction resumes */
    uint32_t jump;           /* other legal successor, or UINT32_MAX */
    await_kind await;
    int await_slot;          /* stack index of the awaited value */
    kin_vid await_vid;
    uint32_t await_step;
    bool await_tensor;       /* of a test: what is tested is a tensor; when its outcome is known it may be gone */
    uint32_t steps0;         /* trace.steps.len when the instruction began */
    uint32_t snap;           /* snapshot before the instruction, 0 = not made yet */
    bool started;            /* cells and free variables are in the symbolic frame */
    bool ran;                /* an instruction was dispatched */
    bool inlined;            /* the current instruction called an inlined frame */
    uint32_t parent_for_call;/* snapshot of this frame during the inlined call */
    kin_resume call_resume;
    kin_vid call_extra;
    kin_vid then_func, then_extra; /* KIN_RESUME_OPERATOR after NotImplemented: the function to call, or (without one) the result */
    kin_vid exc;             /* exception being handled */
    kin_vid names;           /* as in kin_snap */
    struct rec_consumer *consumer; /* set while C code of the current instruction calls watched frames */
    struct rec_gen *gen;     /* the generator whose frame this is */
    bool from_c;             /* called by C code: the result goes to back->consumer */
    rec_loop loop;
    int nundo;               /* stack slots overwritten by the current instruction, for late snapshots */
    struct { int slot; kin_vid old; } undo[REC_UNDO];
} rec_frame;

/* A call, as an instruction makes it or as one of its handlers has rewritten it. */
typedef struct {
    kin_vid callee;
    const kin_vid *args; /* positional, then keyword values */
    uint32_t npos, nkw;
    PyObject *kwnames;   /* tuple of nkw names; NULL: none */
    int ndrop;           /* how many operands the result replaces on the stack */
} rec_args;

static inline bool
rec_is_keyword(const rec_args *a, uint32_t i, const char *name)
{
    return PyUnicode_CompareWithASCIIString(PyTuple_GET_ITEM(a->kwnames, i), name) == 0;
}

/* The same call with another callable. */
static inline rec_args
rec_args_to(const rec_args *a, kin_vid callee)
{
    rec_args to = *a;
    to.callee = callee;
    return to;
}

/* The call with one more operand in front; all operands are copied to `all`, which has room for one more. */
static inline rec_args
rec_args_behind(const rec_args *a, kin_vid callee, kin_vid first, kin_vid *all)
{
    rec_args to = *a;
    all[0] = first;
    memcpy(all + 1, a->args, (a->npos + a->nkw) * sizeof *all);
    to.callee = callee;
    to.args = all;
    to.npos++;
    return to;
}

enum { REC_OPERANDS = 16 };

/* A Python call that is inlined, and which the next frame event must be: its bound parameters. */
typedef struct {
    bool active;
    PyObject *func;          /* function object the frame must have */
    kin_vid func_vid;
    kin_vid *locals;
    uint32_t nlocals, cap;
    bool of_torch;           /* torch calls it (objects/override.c) for a call with these operands */
    uint32_t noperands;
    kin_vid operands[REC_OPERANDS];
} rec_call;

/* A word of the heap that the recording has stored to (overlay.c). */
typedef struct {
    kin_place kind;
    kin_vid base;
    PyObject *key;   /* ITEM, ATTR */
    uint32_t index;  /* index in the list, or byte offset of the SLOT */
    bool filled;     /* the epoch knows that the place was not empty before */
} rec_place;

typedef struct {
    rec_place place;
    kin_vid value;   /* 0: deleted */
} rec_write;

/* Such a word, with all that the whole recording has stored to it (changes.c). */
typedef struct {
    PyObject *base, *key;
    kin_place kind;
    uint32_t index;
    PyObject *before; /* a builtin immutable; NULL: something else, or nothing */
    PyObject *held;   /* for a custom backend: what it had, an immutable or a tensor; base and held are owned then */
    bool absent;      /* ... it had nothing: a new key, attribute or item of a list; held is None */
    bool whole;       /* ... base is a container, held all that was in it */
    bool covered;     /* ... by an earlier change that is whole */
    bool deleted;     /* the word was emptied */
    bool undone;      /* it has that again */
} rec_change;

typedef struct {
    int64_t size;
    bool first;         /* of the first dim */
    bool opens, varies; /* note_open_length in sizes.c */
} rec_length;

typedef struct rec {
    kin_entry *v;
    kin_trace *t;
    kin_refs *refs;
    const kin_record_options *opt;
    kin_record_result *result;
    KIN_VEC(rec_info) info;  /* by vid */
    rec_frame *top;
    KIN_VEC(rec_virtual *) forgotten; /* contents of virtual objects that are ordinary objects now */
    KIN_VEC(kin_vid) escapees; /* virtual objects that have escaped; some may be listed twice, or no longer be virtual */
    KIN_VEC(kin_vid) made_classes; /* classes that the recording itself has made (models/namedtuple.c): no facts are needed about them */
    KIN_VEC(kin_vid) iters;  /* iterators over containers that can change */
    KIN_VEC(rec_length) open_lengths; /* this call's values of the sizes that differed between calls, or may have */
    KIN_VEC(rec_write) writes; /* what this epoch has written to older objects */
    KIN_VEC(rec_change) changes; /* ... and the whole recording */
    struct kin_written *written;   /* for a custom backend: what torch calls write to (changes.c) */
    rec_call call;
    uint32_t epoch;            /* current epoch */
    uint32_t skip;           /* depth of frames being ignored below a leaf */
    PyCodeObject *told;      /* code of the library that was told of compiling last; NULL: none was */
    bool hides_compiling;    /* torch.compiler's flag reads as False in the current instruction */
    int came;                /* how many objects the instruction before has found and left on top of the stack */
    kin_vid cached;          /* what a cached function has given in the instruction before; 0: none was called */
    bool ran_below;          /* Python code that is not followed has run below the current instruction */
    bool skip_expected;      /* Python frames below the current instruction are accounted for */
    bool foreign;            /* unexpected Python code ran below the current instruction */
    bool collecting;         /* the garbage collector ran when the current instruction began: in another thread, or it has called the program */
    bool collected;          /* the collector has called code. That is no part of the program: it runs whenever a collection is due, in replays as well. What is
                              * known may be out of date: as soon as the program's stack differs from that, the recording ends */
    bool deaths;             /* ... perhaps a finaliser of an object that died: the next epoch says so */
    uint32_t store_effects;  /* effects of the next store, as verified by the check before it (overlay.c) */
    bool only_asks;          /* the step being written reads its operands, runs no code and changes nothing */
    bool may_wait;           /* the store being written may be deferred to the end of a region */
    bool reads_words;        /* ... of an exception, of which it sees the arguments alone */
    bool keep_inside;        /* the operands of the step being written do not escape */
    bool epoch_ended;          /* heap knowledge ended: the next fact or path begins a new epoch */
    bool ambient;            /* the recording itself has changed ambient state */
    bool inplace;            /* a torch call changed some tensor in place in this epoch */
    uint32_t meta_epoch;     /* bumped whenever tensor metadata may have changed */
    bool stopped;            /* recording has ended and the watch was abandoned. The current rule continues as if nothing had
                              * happened, and what it still writes is dropped, so rules need not test this */
    kin_trace_mark end;      /* ... and where the trace ends in that case; no steps: it has not ended */
    bool failed;             /* nothing usable */
    bool done;
    kin_watch watch;
    struct rec_map *facts_seen, *value_numbers, *consts;
    kin_status status;
    uint32_t ninstr, nbreaks;
    const rec_args *star; /* the call (with keywords only) that will get the items, while their consumer is created */
    KIN_VEC(rec_raise) raises;
    kin_vid pending;         /* the exception that is looking for its handler */
    kin_vid handled;         /* the exception that was being handled when the call began (or None), if it was read */
    uint32_t escaped;        /* an exception whose traceback can be observed has escaped: its rec_info.raised */
    kin_vid thrown;          /* what is thrown into the generator that starts now; 0: nothing */
    kin_vid returned;        /* value of the return in progress */
    uint32_t left_snap, left_steps; /* before the return that has just happened, if the frame may have had the last reference to a generator; 0: none has */
    kin_vid returning;       /* what the recorded function has returned, which ends when its locals are gone; 0: it has not, or nothing waits for that */
    PyObject *fullgraph_error; /* set when fullgraph met a break */
    uint32_t first_step;     /* a side trace: its first step ... */
    uint32_t join;           /* ... and the step whose failure leads to it; 0 = no side trace */
    KIN_VEC(uint32_t) heads; /* ... LOOP steps on the way there */
    bool heads_found;        /* ... which have been looked for */
    uint32_t depth;
    struct rec_gen *gens;    /* generators made by the recording */
    uint64_t region_values;    /* values that regions have saved so far */
    struct rec_region *region; /* region.c: the atomic region that is being recorded; NULL: none */
    PyObject *raised_by_c;   /* the builtin class of which the C function that has just ended raised an instance; NULL: none */
    kin_vid raised_with;     /* its only argument; 0: it has none */
    bool refused;            /* the region has failed; it is cut off at the end of the watcher's callback */
    PyObject *dropped_functions, *report_functions; /* logging.c; NULL: none */
    struct rec_crosscheck *crosscheck; /* crosscheck.h; NULL: off */
    bool asserts;          /* the check being written belongs to an assert statement */
    bool overrides_off;    /* the call being written ignores __torch_function__ of its operands */
    bool unchecked;        /* the current instruction reads or changes torch modes, so it is not cross-checked */
    enum { CLASSES_NOT_ASKED, NO_CLASS_VARIES, A_CLASS_VARIES } classes_vary; /* did anything of some class differ between calls (open_values.c)? */
    bool meta_asked;         /* the current instruction's rule made tensor metadata a fact */
    bool dispatched;         /* a __torch_dispatch__ of torch's own, which is Python and may warn, did what a call does */
} rec;

/* An interned string, made once. */
#define REC_STR(text)                                        \
    ({                                                       \
        static PyObject *rec_str_;                           \
        if (rec_str_ == NULL)                                \
            rec_str_ = PyUnicode_InternFromString(text);     \
        rec_str_;                                            \
    })

/* Does the garbage collector call what begins now? */
static inline bool
rec_in_collector(const rec *r)
{
    return !r->collecting && kin_watch_collecting();
}

/* A function, so that its arguments may create values: infos move when their array grows. */
static inline rec_info *
rec_info_of(const rec *r, kin_vid vid)
{
    return &r->info.at[vid];
}
#define O(r, vid) (rec_info_of(r, vid)->obj)
#define VIRTUAL(r, vid) (rec_info_of(r, vid)->virtual)

static inline void
rec_set_action(rec_frame *f, kin_action action)
{
    f->op = (kin_canon)action.op;
    f->arg = (int)action.arg;
    f->extra = (int)action.extra;
    f->flags = action.flags;
}

typedef enum { GEN_NEW, GEN_SUSPENDED, GEN_RUNNING, GEN_DONE, GEN_LOST } gen_state;

typedef struct rec_gen {
    struct rec_gen *next;
    kin_vid vid, func;
    PyCodeObject *code;
    gen_state state;
    bool hidden;           /* only C code holds its object, which it got from an __iter__ */
    bool dirty;            /* its state has not been written yet */
    bool guarded;          /* suspended inside try or with */
    uint32_t sends_at;     /* where `yield from` has asked another iterator for an item: the yield that gives it; 0: nowhere */
    bool delegates;        /* suspended in that yield */
    bool handles;          /* ... while it handles an exception of its own */
    kin_vid interrupts;    /* the exception that was on its way when it began to run for the last time; 0: none */
    bool closing;          /* it runs because it is closed, or because its last reference has gone */
    rec_raise resumed;     /* where it was last resumed, if that led there outside of context managers */
    rec_frame *frame;      /* while suspended or running */
    void *raw;             /* the real frame, once started */
    kin_vid *locals;       /* parameters, bound */
} rec_gen;

typedef enum { ATTR_VALUE, ATTR_METHOD, ATTR_CALL, ATTR_STEP, ATTR_AWAIT_CONST, ATTR_ABSENT } attr_kind;

typedef struct {
    attr_kind kind;
    kin_vid value;      /* VALUE; METHOD: function */
    kin_vid self;       /* METHOD: receiver */
    kin_vid func;       /* CALL: Python function to inline */
    kin_vid args[3];
    uint32_t nargs;
    unsigned flags;     /* STEP: step flags */
    bool fallback;      /* CALL: after an AttributeError, the type's __getattr__ is called */
    bool makes_dict;    /* STEP: it creates the object's dict, so paths to attributes change */
} attr_result;

typedef bool rec_call_rule(rec *r, const rec_args *a); /* false: the rule does not cover the call and has written nothing */

/* The rules for calls in the order in which they are asked (rules/calls.c), for callables of which kinds. */
enum { REC_OF_FUNCTIONS = 1, /* in Python */ REC_OF_CONSTANTS = 2, REC_OF_OTHERS = 4, REC_OF_ALL = 7 };

typedef struct {
    unsigned of;
    rec_call_rule *rule;
} rec_call_row;
extern const rec_call_row rec_call_rows[]; /* ends with a row without a rule */

/* What a region needs of those who run frames in it (iterators/consume.c). */
typedef struct {
    void (*abandon)(rec_frame *f);           /* the frame is no longer followed */
    void (*refused)(rec *r, rec_frame *f);   /* the region's instruction becomes opaque steps */
    void (*write_generator)(rec *r, rec_gen *gen);
} rec_region_user;

/* ---- stack of the current frame ---- */
static inline kin_vid rec_peek(rec *r, int i) { return r->top->slots[r->top->nlocals + r->top->sp - 1 - i]; }
static inline void rec_drop(rec *r, int n) { r->top->sp -= n; }

/* ---- callstep.c ---- */
void rec_call_step(rec *r, const rec_args *a, unsigned flags, int break_row);
kin_vid rec_build_tuple(rec *r, const kin_vid *items, uint32_t n, PyObject *obj);
kin_vid rec_build_list(rec *r, const kin_vid *items, uint32_t n);
kin_vid rec_build_cell(rec *r, kin_vid content, PyObject *obj); /* obj: the real one, where it is there already */
kin_vid rec_build_function(rec *r, const kin_vid *parts, uint32_t n, PyObject *qualname); /* parts: as BUILD_FUNCTION takes them */

/* ---- changes.c ---- */
void rec_note_change(rec *r, const rec_place *p, kin_vid value); /* before the store happens */
void rec_changes_free(rec *r);
bool rec_changes_undone(const rec *r);                           /* each place that was stored to is as it was */
/* ... and for a custom backend: */
void rec_written_begin(rec *r);
bool rec_written_judges_call(rec *r, const rec_args *a); /* a torch call that is about to happen: what it writes to is saved */
bool rec_written_judges_operator(rec *r, kin_step_kind kind, int imm, const kin_vid *args);
bool rec_written_judges_change(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n); /* ... a step that changes one container */
bool rec_written_judges_report(rec *r, const rec_args *a); /* ... a call that tells somebody something (KIN_STEP_REPORTS), and runs no code of the program's */
void rec_written_note(rec *r, uint32_t step, bool judged);
void rec_written_truncate(rec *r, uint32_t len);
struct kin_written *rec_written_end(rec *r); /* NULL: not all that the call has written to is known */

/* ---- compiling.c ---- */
void rec_set_compiling(bool on); /* torch.compiler's flag: enters (true) or leaves, calls nest */
bool rec_is_compiling_flag(PyObject *dict, PyObject *key);
bool rec_compiling_init(PyObject *compiler_module);
kin_vid rec_answer_compiling(rec *r); /* the flag is read: what the one who asks is told */
bool rec_is_of_optimizer(const PyCodeObject *code); /* of torch.optim */
void rec_note_detour(rec *r); /* a call of an operator that PyTorch does not have */
/* Answers False until the next instruction that is recorded, or again True. */
void rec_hide_compiling(rec *r);
void rec_show_compiling(rec *r);

/* ---- data.c ---- */
rec_data rec_data_of(rec *r, kin_vid vid);
void rec_make_node(rec *r, uint32_t step);            /* the step is part of the graph */
void rec_set_data(rec *r, kin_vid vid, int row);              /* what the step makes is decided by data, and part of the graph */
void rec_note_data(rec *r, uint32_t step);            /* ... follows from what it is made of */
bool rec_is_list_of_numbers(PyObject *obj);
void rec_note_example(rec *r, kin_vid vid, PyObject *obj); /* the numbers of this call, for those who show something of a graph */
void rec_note_decision(rec *r, uint32_t step, kin_check check, kin_vid vid, PyObject *ref); /* a check: of data it ends the graph */

/* ---- decide.c ---- */
bool rec_varies(rec *r, kin_vid vid);                 /* will differ in the next call */
bool rec_changes_each_call(rec *r, kin_vid vid);
bool rec_in_list(const char *name, const char *const *list); /* the list ends with NULL */
kin_vid rec_recognise(rec *r, kin_vid vid);            /* the graph's value that it is, if it is one; else itself */
bool rec_decide_is(rec *r, kin_vid a, kin_vid b);      /* makes the outcome a fact or a check */

/* ---- frames.c ---- */
kin_vid rec_frame_globals(rec *r);                    /* of the running frame */
kin_vid rec_frame_builtins(rec *r);
kin_vid rec_find_global(rec *r, PyObject *name); /* what a name of the top frame's function stands for; 0: it is not defined */
void rec_pop_frame(rec *r);
rec_frame *rec_pop_inlined(rec *r); /* a call that was followed is over: the caller, which goes on behind it */
rec_frame *rec_push_frame(rec *r, struct _PyInterpreterFrame *f, PyCodeObject *code);

/* ---- holds.c ---- */
bool rec_values_hold_tensor(rec *r, kin_vid vid); /* does the object, or a dict, of whatever class, hold a tensor as a value? */
bool rec_any_tensor(rec *r, const kin_vid *args, uint32_t n);
/* Of one value, and what it is known to hold, so many levels down. */
bool rec_holds_tensor(rec *r, kin_vid vid, int depth);
bool rec_death_runs_code(PyObject *obj); /* its own death, or that of what it holds */
bool rec_is_mortal(rec *r, kin_vid vid); /* does Python code run when it dies? It is alive, and so is what it holds */
/* ... by what the recording noted of it alone: its contents may be dead. */
bool rec_generator_has_tensor(rec *r, kin_vid gen); /* at hand in its frame */
/* Is it a tensor, or does it hold some: items of containers, what is in the dict of an object (a module), attributes of these names (a tuple, or NULL)? */
bool rec_leads_to_tensor(PyObject *obj, PyObject *names);
bool rec_function_has_tensor(rec *r, kin_vid func); /* in its closure; true where that is not known */
/* Of generators that are ours. */
rec_gen *rec_find_generator(rec *r, kin_vid vid);

/* ---- items.c ---- */
PyObject *rec_known_keys(rec *r, kin_vid dict); /* of an older dict, of any class, in its order; new reference. NULL: not known */
kin_vid rec_dict_item(rec *r, kin_vid dict, PyObject *key, PyObject *obj);
bool rec_counts_as_tuple(PyTypeObject *tp);            /* a class of tuples whose size, and with it the truth, is that of the tuple */
bool rec_reads_as_tuple(PyTypeObject *tp);             /* ... that leaves reading to tuple's own code */
rec_virtual *rec_named_items(rec *r, kin_vid vid);      /* VIRTUAL_NAMED that tuple's own code reads; NULL = not so */
bool rec_iter_of(rec *r, kin_vid vid, int ndrop);     /* pushes iter(vid) when modelled */
/* The same of a range over free numbers, which are checked: there are as many items as now. False: it is none. */
bool rec_iter_of_pinned(rec *r, kin_vid range, int ndrop);
bool rec_items_of(rec *r, kin_vid vid, kin_vid **items, uint32_t *n); /* elements of a known sequence (malloc'ed) */
bool rec_iterated(rec *r, kin_vid *vid, kin_vid **items, uint32_t *n); /* ... of a range, a text, a tensor, in whose place its rows come */
/* What to extend a list with, where the items of `vid` are known: what a torch call gave comes apart, so that graphs see where each item goes, and
 * what was found comes as what it holds, so that a call before it (f(x + 1, *self.args)) need not be over. */
kin_vid rec_take_apart(rec *r, kin_vid vid, const kin_vid *items, uint32_t n);
bool rec_use_up(rec *r, kin_vid vid, kin_vid **items, uint32_t *n);   /* ... of an iterator too, which is at its end then */
unsigned rec_kinds_gone_over(rec *r, const kin_vid *operands, uint32_t n);
bool rec_is_known_iter(rec *r, kin_vid vid);          /* a VIRTUAL_ITER: what it gives is known */
/* Such an iterator gives its next item; 0: it is at its end. False: the item is not known after all. */
bool rec_next_item(rec *r, kin_vid it, kin_vid *item);
bool rec_is_step_tuple(rec *r, kin_vid vid);                            /* an exact tuple that a step has made */
bool rec_is_graph_tuple(rec *r, kin_vid vid);         /* ... by a torch call */
kin_vid rec_graph_item(rec *r, kin_vid tuple, Py_ssize_t i);
bool rec_step_items(rec *r, kin_vid vid, int n, kin_vid *items); /* of an exact tuple or list made by a step */
bool rec_tensor_rows(rec *r, kin_vid vid, kin_vid **items, uint32_t *n, kin_vid *tuple);
void rec_end_if_read(rec *r, kin_vid changed);

/* ---- loops.c ---- */
/* The program has jumped back to the current instruction: if that is a loop whose end is not known, the round that begins becomes its body, and where the
 * next one would begin, the recording ends. True: it has ended. */
bool rec_loop_turns(rec *r);
bool rec_is_in_loop(const rec *r); /* is what is recorded a part of its body? */
/* Does a loop over the rows of the tensor, over what a torch call has split one into, or over a list of tensors have another number of rounds in other calls? */
bool rec_has_open_rows(rec *r, kin_vid vid);

/* ---- lookup.c ---- */
void rec_attrs_of(rec *r, PyTypeObject *tp);          /* begins: what rec_lookup answers for the class will be facts */
PyTypeObject *rec_need_attrs(rec *r, kin_vid vid);    /* ... for the class of the value, which becomes a fact */
PyObject *rec_lookup(rec *r, PyTypeObject *tp, PyObject *name); /* _PyType_Lookup; borrowed, NULL = absent */
kin_vid rec_found(rec *r, PyTypeObject *tp, PyObject *name, PyObject *found); /* what rec_lookup found, as a callable or descriptor */
kin_vid rec_found_value(rec *r, PyTypeObject *tp, PyObject *name, PyObject *found); /* ... as a value */
void rec_bases_of(rec *r, PyTypeObject *tp);          /* makes the MRO a fact */

/* ---- made_classes.c ---- */
kin_vid rec_made_class(rec *r, PyObject *obj); /* the value of a class that the recording has made; 0: it is another object */
bool rec_may_change_made_class(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n); /* may the step do so? */

/* ---- map.c ---- */
struct rec_map *rec_map_new(void);
void rec_map_free(struct rec_map *m);
bool rec_map_reserve(struct rec_map *m, uint32_t more); /* room for so many more keys */
/* Slot for the key (zero when new), until the next call; NULL without memory. */
uint32_t *rec_map_at(struct rec_map *m, uint32_t a, uint32_t b, uint32_t c, uint32_t d);

/* ---- overlay.c ---- */
/* True: the check is written, and the store's step is to follow, then rec_end_write. False: the store ends the epoch (which
 * may have ended already). */
bool rec_begin_write(rec *r, rec_place *p);
void rec_end_write(rec *r, const rec_place *p, kin_vid value);
/* What the recording stored where the path leads; 0 = the path leads to what was there before. */
kin_vid rec_written(rec *r, kin_vid parent, kin_access access, uint32_t key, PyObject *obj);
int rec_written_key(rec *r, kin_vid dict, PyObject *key); /* -1: not written in this epoch; is the key there? */
void rec_fact_after_writes(rec *r, kin_fact_kind kind, kin_vid vid, PyObject *ref); /* ends the epoch when a store decides */
void rec_changed(rec *r, kin_vid virtual);              /* ... when facts may speak about the virtual object */

/* ---- region.c, region_steps.c ---- */
void rec_refuse(rec *r);
void rec_settle(rec *r);                              /* undoes a refused region */
bool rec_region_step(rec *r, kin_step_kind kind, unsigned *flags, const kin_vid *args, uint32_t n);
uint32_t rec_region_snap(rec *r);
void rec_region_acts(rec *r);                         /* it has an effect now */
void rec_region_puts_back(rec *r, bool on);           /* where it is left, gradients are on (off) again */
bool rec_region_switches(rec *r, kin_step_kind kind, const kin_vid *args); /* a step that switches gradients, which is put back */
rec_raise rec_region_mark(const rec *r);              /* the state before it */
void rec_region_changes(rec *r, kin_vid vid);         /* its instruction will have changed that: nothing in it may look at it */
bool rec_region_is_changing(rec *r, kin_vid vid);     /* is it that? */
bool rec_defer_append(rec *r, const rec_args *a);         /* list.append of an older list, to the end of the region; false: there is none, or it may not wait */
void rec_name_store(rec *r, uint32_t step, PyObject *name); /* of a store whose step was written, or deferred */
void rec_region_truncate(rec *r, uint32_t len);       /* steps from there on are dropped */
bool rec_raised_in_region(const rec *r, uint32_t raised); /* has it raised the exception with this number? */
kin_vid rec_region_handles(const rec *r);             /* the exception being handled where the innermost frame that C code entered began; 0: none */
bool rec_in_generator(const rec_frame *f);            /* does the frame, or one that has called it, belong to a generator? */
bool rec_region_has_acted(const rec *r);              /* nothing in it can leave any more */
int rec_region_added(rec *r, kin_vid set, kin_vid item); /* by the region, to be put down at its end? -1: not known */
void rec_region_asks(rec *r, bool on);                /* the steps in between have looked at that */
/* At the current instruction, before its rule has changed anything but its own frame; or, if `snap` is not 0, at what has led here since that state. */
bool rec_region_open(rec *r, const rec_region_user *user, uint32_t snap);
void rec_region_free(struct rec_region *g);
bool rec_region_is_of(const rec *r, const rec_frame *f); /* there is one, and it began in this frame */
bool rec_region_repeatable(rec *r);     /* its torch calls changed no tensor and drew no random number */
void rec_region_commit(rec *r);
void rec_region_undo(rec *r);

/* ---- sizes.c ---- */
uint64_t rec_dynamic_dims(rec *r, kin_vid tensor);      /* bit i: size i is not assumed to stay */
PyObject *rec_size_record(rec *r, kin_vid tensor, unsigned mask, uint64_t open);
kin_vid rec_size(rec *r, kin_vid tensor, int dim);    /* as a value; its object is there */
kin_vid rec_build_size(rec *r, const kin_vid *items, uint32_t n);
kin_vid rec_shape(rec *r, kin_vid tensor);            /* torch.Size of the tensor; its object is there */
bool rec_equal_sizes(rec *r, int op, const kin_vid *args); /* a == b, a != b of shapes with known items */
int rec_decide_equal(rec *r, kin_vid a, kin_vid b);   /* of numbers, tuples of them and keys of dicts, as a fact or check; -1: of others */
bool rec_is_size(const rec *r, kin_vid number);           /* an int, for certain, that is a size which differs from call to call, or is computed of such */
bool rec_is_number_in_sized(const rec *r, kin_vid number); /* an int that is read from what an earlier part of the recording made, and that depends on such sizes */
void rec_note_sized(rec *r, kin_step *s);       /* does what the step makes depend on such a size? */
void rec_note_unbacked(rec *r, const kin_step *s);    /* ... on sizes that data decides? */
kin_vid rec_known_size(rec *r, int64_t size);
/* Makes a number a constant if it is computed from sizes which are open, but have not differed so far. */
bool rec_fix_number(rec *r, kin_vid vid);
bool rec_length_has_differed(const rec *r, int64_t length); /* is some size that has differed between calls so long? */
bool rec_number_has_differed(rec *r, kin_vid vid);    /* ... or is it not known how it comes about? False for constants */

/* ---- steps.c ---- */
uint32_t rec_snapshot(rec *r);                        /* state before the current instruction */
uint32_t rec_snapshot_of(rec *r, rec_frame *f, uint32_t offset, int sp);
uint32_t rec_step(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n);
kin_vid rec_step_out(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n);
bool rec_is_entry_value(rec *r, kin_vid vid);            /* can facts at the beginning of the current epoch speak about this value? */
uint32_t rec_epoch(rec *r);                             /* current epoch; begins a new one when the last has ended */
void rec_end_epoch(rec *r);                         /* heap knowledge ends with the current instruction */
void rec_forget_contents(rec *r);                     /* ... and escaped virtual objects may have changed */
void rec_truncate(rec *r, uint32_t len);              /* drops the steps from `len` on */
void rec_stop(rec *r, const char *why);               /* EXIT at the current instruction, give up watching: a break */
void rec_stop_row(rec *r, int row, const char *why);  /* ... with a row of its own; -1: the call ends here anyway */
void rec_stop_fmt(rec *r, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void rec_end_here(rec *r);                            /* the last step is the end of the recording */
void rec_cut_back(rec *r, const rec_raise *m, int row, const char *why); /* the recording ends where it was then; row: a graph break, or -1 */
void rec_bug(rec *r, const char *what);               /* an invariant failed: nothing of this recording is used */
void rec_break(rec *r, uint32_t step, int row);
void rec_push(rec *r, kin_vid vid);
PyObject *rec_stack_obj(rec *r, int i);               /* real object i below the top, before the instruction */
void rec_await_result(rec *r, kin_vid vid, uint32_t step); /* pushes vid; its object comes with the next event */
void rec_await_const(rec *r);                         /* pushes a constant to come */
void rec_push_step(rec *r, kin_step_kind kind, unsigned flags, const kin_vid *args, uint32_t n);

/* ---- values.c ---- */
kin_vid rec_value(rec *r, kin_val val, PyObject *obj);
kin_vid rec_const(rec *r, PyObject *obj);
kin_vid rec_src(rec *r, kin_vid parent, kin_access access, uint32_t key, PyObject *obj);
kin_vid rec_src_key(rec *r, kin_vid parent, kin_access access, PyObject *key, PyObject *obj);
kin_ref rec_ref(rec *r, PyObject *obj);
void rec_set_obj(rec *r, kin_vid vid, PyObject *obj); /* an awaited object arrived */
bool rec_is_const(rec *r, kin_vid vid);               /* CONST already (or specialised) */
kin_vid rec_as_const(rec *r, kin_vid vid);            /* vid or its constant form */
void rec_fact(rec *r, kin_fact_kind kind, kin_vid vid, PyObject *ref, uint32_t num);
uint32_t rec_check(rec *r, kin_check check, kin_vid vid, PyObject *ref, uint32_t num);
PyTypeObject *rec_need_type(rec *r, kin_vid vid);     /* fixes the exact type */
PyTypeObject *rec_need_version(rec *r, kin_vid vid);  /* ... and its attributes (tp_version_tag) */
void rec_class_version(rec *r, PyTypeObject *type);   /* a class reached as a constant: its version is a fact */
bool rec_is_torch_operator(PyObject *obj);            /* torch.ops.aten.sin, torch.ops.aten.sin.default */
bool rec_can_const(rec *r, kin_vid vid);              /* may be specialised (immutable content or pinnable) */
kin_vid rec_need_const(rec *r, kin_vid vid);          /* specialises; 0 when it cannot be */
bool rec_need_no_code(rec *r, kin_vid vid, bool all);   /* what it contains runs no code, now (false: it may) and at replay */
void rec_need_len(rec *r, kin_vid vid, Py_ssize_t n);
kin_vid rec_root(rec *r, kin_vid vid);                /* makes contents of `vid` readable by path from here */
bool rec_pinnable(PyObject *obj);
bool rec_is_cache(PyObject *obj); /* made by functools.lru_cache or functools.cache */
bool rec_is_value(PyObject *obj);                    /* what C code computes from it is constant as it is */
rec_virtual *rec_make_virtual(rec *r, kin_vid vid, virtual_kind kind, const kin_vid *items, uint32_t n, bool known);
bool rec_virtual_push(rec_virtual *f, kin_vid vid);
void rec_escape(rec *r, kin_vid vid);
/* Known contents as key, value pairs (dict items, instance attributes) with constant keys. */
kin_vid *rec_pairs_find(rec *r, const rec_virtual *f, PyObject *key); /* place of the value; NULL = absent */
/* A builtin value, a plain member of an enum, or what is found by its address (a class, a function): a dict with such keys is followed. */
bool rec_is_pair_key(PyObject *key);
/* Such a key as a constant, also where it is a number that differs between calls: it is checked. 0: none. */
kin_vid rec_pin_key(rec *r, kin_vid key);
bool rec_is_known_key(rec *r, kin_vid key); /* such a key that can be a constant of the recording */
void rec_pairs_put(rec *r, rec_virtual *f, kin_vid key, kin_vid value);
void rec_pairs_drop(rec *r, rec_virtual *f, PyObject *key);
kin_vid rec_proxied(rec *r, kin_vid vid); /* the dict behind a types.MappingProxyType made here; else the value itself */
rec_virtual *rec_mapping(rec *r, kin_vid vid); /* key, value pairs of a virtual dict, dict-like instance or __dict__; NULL = unknown */
rec_virtual *rec_asked_dict(rec *r, kin_vid dict, PyObject *method); /* ... or an instance made here whose class leaves the method to dict */
rec_virtual *rec_own_mapping(rec *r, kin_vid vid); /* ... of an instance of a dict class that is made here, and that nobody else has seen */
PyTypeObject *rec_dict_base(PyTypeObject *tp); /* of such a class: OrderedDict or dict */
void rec_put_in_own_dict(rec *r, kin_vid dict, const kin_vid *pairs, uint32_t n); /* of such an instance: key, value, key, value ... */
rec_virtual *rec_exact_dict(rec *r, kin_vid vid); /* ... where it is an exact dict */
void rec_touch_iterators(rec *r, kin_vid container);
bool rec_meta(rec *r, kin_vid tensor, unsigned mask); /* makes tensor metadata a fact or a check */
bool rec_is_dynamic(rec *r, kin_vid vid);
bool rec_class_is_dynamic(rec *r, PyTypeObject *tp);

#endif
