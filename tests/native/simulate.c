/* Teams of threads on processors that are not there: coroutines, of which the one whose time is least runs on. */
#include <stdlib.h>
#include <sys/mman.h>
#include <ucontext.h>
#include <unistd.h>

#include "select.h"
#include "support.h"

enum { MAX_THREADS = 64, STACK = 256 << 10 };

struct thread {
    ucontext_t context;
    struct sdgen_team team;
    double time, factor;
    enum { RUNS, WAITS, ENDED } state;
};

static struct {
    struct thread thread[MAX_THREADS];
    int nth, running;
    ucontext_t caller;
    sdgen_test_operation *operation;
    const struct sdgen_plan *plan;
    const void *op;
} simulated;

/* Lets the thread run whose time is least; where all wait, all go on from the latest time. */
static void run_next(void)
{
    struct thread *thread = simulated.thread, *from = &thread[simulated.running];
    int next = -1, waiting = 0;
    double latest = 0;
    for (int i = 0; i < simulated.nth; i++) {
        waiting += thread[i].state == WAITS;
        latest = thread[i].time > latest ? thread[i].time : latest;
        if (thread[i].state == RUNS && (next < 0 || thread[i].time < thread[next].time))
            next = i;
    }
    if (next < 0 && waiting < simulated.nth) { /* all have ended, or will wait for ever */
        setcontext(&simulated.caller);
        abort();
    }
    for (int i = 0; next < 0 && i < simulated.nth; i++) {
        thread[i].state = RUNS;
        thread[i].time = latest;
    }
    next = next < 0 ? 0 : next;
    if (next == simulated.running)
        return;
    simulated.running = next;
    swapcontext(&from->context, &thread[next].context);
}

static void spend(double cost)
{
    struct thread *thread = &simulated.thread[simulated.running];
    thread->time += cost * thread->factor;
    run_next();
}

static void barrier(void *data)
{
    (void)data;
    simulated.thread[simulated.running].state = WAITS;
    run_next();
}

static void run_thread(void)
{
    struct thread *thread = &simulated.thread[simulated.running];
    simulated.operation(simulated.plan, simulated.op, &thread->team);
    thread->state = ENDED;
    run_next();
}

/* ---- costs, in multiply-adds of one number ---- */

enum {
    PACKED = 4,      /* a number packed, as runtime/gemm.c has it */
    COPIED = 2,      /* a number moved without a transposition, or summed */
    INPUT = 7, WEIGHT = 3, OUTPUT = 5, /* a number of Winograd's V, U and M, after the cycles in runtime/select.c */
    MAPPED = 8,      /* a number of whatever function, a power of two not least */
};

#define PRODUCT(rows, columns)                                                                                                        \
    static void gemm_##rows##_##columns(size_t k, const float *a, const float *b, float *c, size_t c_stride,                          \
                                        const struct sdgen_epilogue *epilogue)                                                        \
    {                                                                                                                                  \
        (void)a, (void)b, (void)c, (void)c_stride, (void)epilogue;                                                                     \
        spend((double)k * rows * columns);                                                                                             \
    }
#define SCORES(rows, columns)                                                                                                         \
    static void scores_##rows##_##columns(const struct sdgen_scores *scores)                                                          \
    {                                                                                                                                  \
        spend((double)scores->tiles * rows * columns * ((double)scores->depth + (scores->raw ? 0 : MAPPED)));                         \
    }
#define COLUMNS(kind, rows) kind(rows, 16) kind(rows, 32) kind(rows, 48) kind(rows, 64)
#define EACH(kind, ...) COLUMNS(kind, 1) COLUMNS(kind, 2) COLUMNS(kind, 3) COLUMNS(kind, 4) COLUMNS(kind, 5) COLUMNS(kind, 6) __VA_ARGS__
EACH(PRODUCT, COLUMNS(PRODUCT, 7) COLUMNS(PRODUCT, 8) COLUMNS(PRODUCT, 9) COLUMNS(PRODUCT, 10) COLUMNS(PRODUCT, 11)
     COLUMNS(PRODUCT, 12) COLUMNS(PRODUCT, 13) COLUMNS(PRODUCT, 14) COLUMNS(PRODUCT, 15) COLUMNS(PRODUCT, 16))
EACH(SCORES)

#define WINOGRAD(name, taps, lanes)                                                                                                   \
    static void input_##name##_##lanes(const struct sdgen_winograd_input *input)                                                      \
    {                                                                                                                                  \
        spend((double)input->channels * taps * lanes * INPUT);                                                                   \
    }                                                                                                                                  \
    static void output_##name##_##lanes(const struct sdgen_winograd_output *output)                                                   \
    {                                                                                                                                  \
        spend((double)output->channels * taps * lanes * OUTPUT);                                                                  \
    }
#define WEIGHTS(name, taps)                                                                                                            \
    WINOGRAD(name, taps, 4) WINOGRAD(name, taps, 8) WINOGRAD(name, taps, 16)                                                          \
    static void weights_##name(size_t channels, const float *src, float *dst, size_t tap_stride)                                      \
    {                                                                                                                                  \
        (void)src, (void)dst, (void)tap_stride;                                                                                        \
        spend((double)channels * taps * 16 * WEIGHT);                                                                             \
    }
WEIGHTS(2, 16)
WEIGHTS(3, 25)
WEIGHTS(4, 36)
WEIGHTS(up, 9)

static void pack(size_t k, size_t rows, const void *src, ptrdiff_t src_stride, float *dst)
{
    (void)src, (void)src_stride, (void)dst;
    spend((double)k * (double)rows * PACKED);
}

static void pack_rows(size_t k, size_t columns, const void *src, ptrdiff_t src_stride, float *dst)
{
    (void)src, (void)src_stride, (void)dst;
    spend((double)k * (double)columns * COPIED);
}

static void pack_patches(size_t channels, const struct sdgen_patches *patches, size_t channel_stride, float *dst, size_t dst_stride)
{
    (void)patches, (void)channel_stride, (void)dst, (void)dst_stride;
    spend((double)channels * SDGEN_COLUMNS_STEP * COPIED);
}

static void unpack(const struct sdgen_unpack *of)
{
    spend((double)of->k * (double)of->rows * COPIED);
}

static void map(const struct sdgen_map_run *run)
{
    spend((double)run->n * MAPPED);
}

static void moments(size_t n, const float *x, double *sums)
{
    (void)x, (void)sums;
    spend((double)n * COPIED);
}

static void maximum(size_t n, const float *x, float *largest)
{
    (void)x, (void)largest;
    spend((double)n * COPIED);
}

#define ROW(kind, rows) [rows] = {NULL, kind##_##rows##_16, kind##_##rows##_32, kind##_##rows##_48, kind##_##rows##_64}
static sdgen_gemm_kernel *const products[SDGEN_MOST_ROWS16 + 1][5] = {
    ROW(gemm, 1), ROW(gemm, 2), ROW(gemm, 3), ROW(gemm, 4), ROW(gemm, 5), ROW(gemm, 6), ROW(gemm, 7), ROW(gemm, 8),
    ROW(gemm, 9), ROW(gemm, 10), ROW(gemm, 11), ROW(gemm, 12), ROW(gemm, 13), ROW(gemm, 14), ROW(gemm, 15), ROW(gemm, 16)};
static sdgen_scores_kernel *const scores[SDGEN_SCORES_ROWS + 1][5] = {ROW(scores, 1), ROW(scores, 2), ROW(scores, 3),
                                                                      ROW(scores, 4), ROW(scores, 5), ROW(scores, 6)};

#define SET_WINOGRAD(of, name)                                                                                                         \
    if ((of).input) {                                                                                                                  \
        (of).input = (of).input_lanes == 4 ? input_##name##_4 : (of).input_lanes == 8 ? input_##name##_8 : input_##name##_16;         \
        (of).output = (of).output_lanes == 4 ? output_##name##_4 : (of).output_lanes == 8 ? output_##name##_8 : output_##name##_16;   \
        (of).weights = weights_##name;                                                                                                 \
    }

/* The kernels that there are, each with one in its place that only costs. */
static struct sdgen_kernels costs_of(const struct sdgen_kernels *of)
{
    struct sdgen_kernels kernels = *of;
    for (int columns = 1; columns <= SDGEN_MOST_COLUMNS / SDGEN_COLUMNS_STEP; columns++) {
        for (int rows = 1; rows <= SDGEN_MOST_ROWS; rows++)
            kernels.gemm[columns][rows] = of->gemm[columns][rows] ? products[rows][columns] : NULL;
        for (int rows = 1; rows <= SDGEN_MOST_ROWS16; rows++)
            kernels.gemm16[columns][rows] = of->gemm16[columns][rows] ? products[rows][columns] : NULL;
        for (int rows = 1; rows <= SDGEN_SCORES_ROWS; rows++)
            kernels.scores[columns][rows] = of->scores[columns][rows] ? scores[rows][columns] : NULL;
    }
    SET_WINOGRAD(kernels.winograd[2], 2)
    SET_WINOGRAD(kernels.winograd[3], 3)
    SET_WINOGRAD(kernels.winograd[4], 4)
    SET_WINOGRAD(kernels.winograd_up, up)
    for (int type = 0; type < SDGEN_TYPES; type++) {
        for (int width = 0; width <= SDGEN_MOST_COLUMNS; width++)
            kernels.pack[type][width] = of->pack[type][width] ? pack : NULL;
        kernels.pack_rows[type] = pack_rows;
    }
    for (int function = 0; function < SDGEN_FUNCTIONS; function++)
        kernels.map[function] = map;
    kernels.unpack = unpack;
    kernels.moments = moments;
    kernels.maximum = maximum;
    kernels.pack_patches = pack_patches;
    return kernels;
}

/* A level's table, which what chooses the tiles knows by its address, so that it is written over for as long as it takes. */
static struct sdgen_kernels *writable(const struct sdgen_kernels *table)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)table / page * page, end = (uintptr_t)(table + 1);
    if (mprotect((void *)begin, (end - begin + page - 1) / page * page, PROT_READ | PROT_WRITE) != 0)
        abort();
    return (struct sdgen_kernels *)(uintptr_t)table;
}

double sdgen_test_simulate(sdgen_test_operation *operation, const struct sdgen_plan *plan, const void *op, int nth,
                           const double *factors, void *work, size_t work_size)
{
    struct sdgen_kernels *kernels = writable(plan->kernels), real = *kernels;
    int64_t queue[SDGEN_QUEUE_SIZE / sizeof(int64_t)] = {0};
    char *stacks = malloc((size_t)nth * STACK);
    if (!stacks)
        return -1;
    *kernels = costs_of(&real);
    simulated.nth = nth;
    simulated.operation = operation;
    simulated.plan = plan;
    simulated.op = op;
    for (int i = 0; i < nth; i++) {
        struct thread *thread = &simulated.thread[i];
        thread->team = (struct sdgen_team){.ith = i, .nth = nth, .queue = queue, .work = work, .work_size = work_size, .barrier = barrier};
        thread->time = 0;
        thread->factor = factors[i];
        thread->state = RUNS;
        getcontext(&thread->context);
        thread->context.uc_stack.ss_sp = stacks + (size_t)i * STACK;
        thread->context.uc_stack.ss_size = STACK;
        thread->context.uc_link = NULL;
        makecontext(&thread->context, run_thread, 0);
    }
    simulated.running = 0;
    swapcontext(&simulated.caller, &simulated.thread[0].context);
    *kernels = real;
    free(stacks);
    double latest = 0;
    for (int i = 0; i < nth; i++)
        latest = simulated.thread[i].time > latest ? simulated.thread[i].time : latest;
    return latest;
}
