/* Samples: each of an operation and, right beside it, of the most that the processor can do. */
#ifndef SDGEN_BENCH_TIMING_H
#define SDGEN_BENCH_TIMING_H

#include "operations.h"
#include "options.h"

/* A loop of registers only. */
struct probe {
    sdgen_probe_kernel *function;
    size_t rounds;
    double amount; /* of a run, all threads */
};

struct bench {
    const struct options *options;
    struct team *team;
    struct probe fma[SDGEN_LEVEL_RICHEST + 1], nop; /* by level */
    double best_nops;
};

/* What is printed of one way of computing one shape. */
struct result {
    const struct shape *shape;
    const char *label; /* "" where there is one way only */
    const char *method;
    const char *unit;
    int threads, samples, quiet;
    double rate, peak;                 /* medians of the quiet samples, of all where none is quiet */
    double seconds, cpu_seconds;       /* of a run: the same; of the first thread's processor time */
    double best_share;                 /* best sample by best peak */
    double quiet_share, contended_share; /* medians of the ratios; NaN where there are none */
    double ratio, ratio_noise;         /* median of the ratios with the first way's rates, round by round; its standard error */
    double error; /* NaN where it is not known */
    bool wrong;
    const char *fault; /* why there are no other figures: that the result is wrong, or a sentence; or NULL */
};

/* False, and a sentence on stderr, where the processor has no such loop or the threads cannot be started. */
bool start_bench(struct bench *bench, const struct options *options);
void stop_bench(struct bench *bench);

/* Operations a second of all threads. */
double probe_rate(struct bench *bench, struct probe *probe);

/* A probe of the table of kernels, with so many rounds that a run takes about `seconds`. */
struct probe calibrated_probe(struct bench *bench, const struct sdgen_kernel_row *row, double seconds);

/* Times the operation in each of the ways, in turn; the results are given but for what is measured. Their faults are valid until the next
 * call. */
void time_calls(struct bench *bench, struct operation *operation, struct call *calls, struct result *results, int count);

#endif
