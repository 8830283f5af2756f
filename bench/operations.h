/* Operations on random data: how they are run, and how exact their results are. */
#ifndef SDGEN_BENCH_OPERATIONS_H
#define SDGEN_BENCH_OPERATIONS_H

#include "kernel.h"
#include "shapes.h"
#include "team.h"

/* A copy that all threads share. */
struct copy {
    const char *src;
    char *dst;
    size_t size;
};
void copy_task(void *copy, const struct sdgen_team *member);

enum { MOST_THREADS = 1024, TILES_IN_L1 = 64, MOST_INPUTS = 3, RESULT = MOST_INPUTS };

struct operation {
    const struct shape *shape;
    double amount;    /* floating-point operations of a run, all threads; bytes where there is a copy */
    struct copy copy; /* what memory bounds is timed beside it; size 0: the loop of FMAs */
    union {
        struct sdgen_matmul matmul;
        struct sdgen_conv2d conv2d;
        struct sdgen_attention attention;
        struct sdgen_map map;
        struct sdgen_group_norm group_norm;
        struct sdgen_layer_norm layer_norm;
        struct { /* a kernel whose panels and tile stay in L1, called again and again */
            float *a, *b, *c[TILES_IN_L1];
        } in_l1;
    };
    void *memory[MOST_INPUTS + 1]; /* what was allocated: the inputs and the RESULT */
    size_t input_size[MOST_INPUTS], result_size;
};

/* One way of computing the operation. */
struct call {
    const struct operation *operation;
    struct sdgen_plan plan;
    const char *program; /* of bench/program.h, which computes it instead; or NULL */
};
void call_task(void *call, const struct sdgen_team *member);
size_t call_work_size(const struct call *call, int threads);

/* "F4", "direct", "im2col", or "". */
const char *call_method(const struct call *call);

/* The largest error seen, |result - exact| / sum of the magnitudes of what is summed, of some of the outputs of the last run, and the
 * largest that is right. */
double call_error(const struct call *call);
double call_limit(const struct call *call);

/* NULL if the operation can be made, else what is wrong with the shape. */
const char *shape_fault(const struct shape *shape);

/* Allocates and fills what the shape needs; returns NULL, or what is wrong with it. */
const char *make_operation(struct operation *operation, const struct shape *shape, int threads);
void free_operation(struct operation *operation);

/* The result becomes NaN, so that nothing is left of another way's. */
void spoil_result(struct operation *operation);

#endif
