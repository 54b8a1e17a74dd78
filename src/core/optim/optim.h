/* What optimizers do to parameters, gradients and states, in one pass over all tensors of a step: a table of pointers and lengths,
 * divided evenly among threads, wherever the borders of tensors are. Code does not depend on how many tensors there are.
 *
 * float32 only. Operations are in eager's order, so results differ at most by the rounding of single operations.
 */
#ifndef KIN_OPTIM_OPTIM_H
#define KIN_OPTIM_OPTIM_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "core/base/status.h"

typedef enum {
    KIN_OPTIM_SGD,
    KIN_OPTIM_ADAM,
    KIN_OPTIM_RMSPROP,
    KIN_OPTIM_ADAGRAD,
    KIN_OPTIM_ADAFACTOR,
    KIN_OPTIM_ADADELTA,
    KIN_OPTIM_ADAMAX,
    KIN_OPTIM_NADAM,
    KIN_OPTIM_RADAM,
    KIN_OPTIM_ASGD,
    KIN_OPTIM_RPROP,
} kin_optim_rule;

/* What a step does beside its rule. */
enum {
    KIN_OPTIM_DECAY = 1,    /* weight decay is added to the gradient */
    KIN_OPTIM_NESTEROV = 2,
    KIN_OPTIM_KEEPS_GRAD = 4, /* Nesterov's gradient is written where the gradient was, as eager's foreach form does */
    KIN_OPTIM_RECTIFIES = 8,  /* RAdam, once enough steps were made: the update is divided by the root of the squares */
    KIN_OPTIM_AVERAGES = 16,  /* ASGD: the mean moves towards the parameter by `weight`; else it is the parameter */
    KIN_OPTIM_JOINS = 32      /* ASGD: `shrink` of the parameter joins the gradient; else the parameter is multiplied with it */
};

enum { KIN_OPTIM_STATES = 3 };

/* Numbers that a rule multiplies with; each is what eager's operator gets, as a float. */
typedef struct {
    float sign;      /* -1: maximizes */
    float decay;     /* DECAY: of the gradient; Adam and its kin without: what the parameter is multiplied with first */
    float rate;      /* negative: of the update */
    float momentum, fresh; /* of the buffer, and of the gradient that joins it; NAdam: negative, of the mean's part of the update */
    float weight;    /* of lerp towards the gradient (Adam, centered RMSprop) */
    float shrink;    /* ASGD: of the parameter */
    float up, down, least, most; /* Rprop: what step sizes are multiplied with, and their bounds */
    float square, square_fresh; /* of the squares kept, and of the new ones */
    float correction, eps;
} kin_optim_numbers;

/* States, in this order; NULL: the rule runs without. SGD: momentum. Adam: exp_avg, exp_avg_sq, max_exp_avg_sq. RMSprop: square_avg, momentum,
 * grad_avg. Adagrad: sum. Adadelta: square_avg, acc_delta. Adamax: exp_avg, exp_inf. NAdam, RAdam: exp_avg, exp_avg_sq. ASGD: ax. Rprop: prev,
 * step_size. */
typedef struct {
    float *param, *grad, *state[KIN_OPTIM_STATES];
    int64_t n;
    kin_optim_rule rule;
    unsigned flags;
    kin_optim_numbers by;
    int64_t before; /* elements of the tensors before it; set by kin_optim_run */
} kin_optim_tensor;

typedef void (*kin_optim_parallel)(int64_t n, int64_t grain, void (*fn)(int64_t begin, int64_t end, void *arg), void *arg);

/* A tensor of Adafactor: matrices in rows, or (row == NULL) a vector as one row. Nothing overlaps. */
typedef struct {
    float *param;
    const float *grad;
    float *row, *column, *vector; /* means of squares: of rows, of columns; or squares themselves */
    int64_t matrices, rows, columns; /* not 0 */
    float sign, weight, eps, decay;  /* weight: of the new squares; decay: what the parameter is multiplied with first */
    double rate, least, most;        /* of the update, relative to the parameter's size, which counts as `least` at least; the update's size at most */
} kin_optim_factored;

/* sums: room for a number per row. */
void kin_optim_adafactor(const kin_optim_factored *t, double *sums, kin_optim_parallel parallel);

typedef struct {
    float *data;
    int64_t n;
} kin_optim_part;

/* The root of the sum of all squares, the same whatever threads there are; KIN_NOMEM. */
kin_status kin_optim_norm(const kin_optim_part *parts, size_t n, kin_optim_parallel parallel, double *norm) KIN_MUST_CHECK;
void kin_optim_scale(const kin_optim_part *parts, size_t n, float by, kin_optim_parallel parallel);

/* No two of the tensors overlap. */
void kin_optim_run(kin_optim_tensor *tensors, size_t n, kin_optim_parallel parallel);

#endif
