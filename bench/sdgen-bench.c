/* Times kernels and operations as shares of the most FMAs that the processor makes, or of what memcpy moves, measured beside them. */
#include "sdgen.h"

#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "select.h"
#include "team.h"

static const char usage[] =
    "usage: sdgen-bench [--threads N] [--level NAME] [--tile COLUMNS] [--winograd M] [--filter TEXT] [--seconds S] [--format table|json]\n"
    "\n"
    "Times the kernels in L1 and the operations of SD 1.5 at 512 by 512, each in turn with a register-only loop of FMAs, and\n"
    "prints GFLOP/s, the share of that loop's rate, and the error against double precision. A wrong result is an error.\n"
    "Elementwise operations and norms (map, norm) are timed in GB/s, one read and one write of the array, beside memcpy.\n"
    "\n"
    "  --threads N     threads (all processors by default)\n"
    "  --level NAME    c, avx2 or avx512 (the richest the processor has by default)\n"
    "  --tile COLUMNS  the tile of so many columns (chosen by shape by default)\n"
    "  --winograd M    0 (direct), 2, 3 or 4: the form of 3x3 convolutions (chosen by shape by default)\n"
    "  --filter TEXT   only rows whose name holds TEXT\n"
    "  --seconds S     time spent on a row (1 by default)\n"
    "  --format F      table (default) or json, in Google Benchmark's keys\n";

struct options {
    int threads;
    enum sdgen_level level;
    int tile;
    enum sdgen_winograd_choice winograd;
    const char *filter;
    double seconds;
    bool json;
};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void *allocate(size_t size)
{
    void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!memory) {
        fprintf(stderr, "sdgen-bench: no memory for %zu bytes\n", size);
        exit(1);
    }
    return memory;
}

/* ---- numbers ---- */

static uint64_t random_state = 0x9e3779b97f4a7c15u;

/* Sum of uniform numbers: zero mean, unit variance, near enough to normal. xorshift64 (Marsaglia 2003). */
static float random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(random_state >> (16 * i) & 0xffff) / 65536;
    return (float)((sum - 2) * 1.7320508);
}

/* Random numbers of a few mantissa bits, so that they are exact in FP16. */
static uint16_t random_half(void)
{
    float value = random_number() * 0.02f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int32_t exponent = (int32_t)(bits >> 23 & 0xff) - 112;
    if (exponent <= 0)
        return 0;
    return (uint16_t)((bits >> 16 & 0x8000u) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ffu));
}

static double half_value(uint16_t half)
{
    double magnitude = ldexp(1024 + (half & 0x3ff), (half >> 10 & 0x1f) - 25);
    return half == 0 ? 0 : half & 0x8000 ? -magnitude : magnitude;
}

static float *random_floats(size_t count)
{
    float *numbers = allocate(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = random_number();
    return numbers;
}

static uint16_t *random_halves(size_t count)
{
    uint16_t *numbers = allocate(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = random_half();
    return numbers;
}

/* ---- what is timed ---- */

/* A copy that all threads share. */
struct copy {
    const char *src;
    char *dst;
    size_t size;
};

static void copy_task(void *data, const struct sdgen_team *member)
{
    const struct copy *copy = data;
    size_t begin = copy->size * (size_t)member->ith / (size_t)member->nth;
    memcpy(copy->dst + begin, copy->src + begin, copy->size * (size_t)(member->ith + 1) / (size_t)member->nth - begin);
}

struct row {
    const char *name;
    double flops; /* of one run, all threads; bytes where it is timed beside memcpy */
    team_task *task;
    void *data;
    size_t work_size;
    double limit; /* of the error; 0: not checked */
    struct copy *copy; /* NULL: it is timed beside the loop of FMAs */
    double error; /* largest seen, in the error measure: |result - exact| / sum of the magnitudes of the products summed */
};

static sdgen_probe_kernel *find_probe(const char *name, int *per_round)
{
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *row = sdgen_kernel_row(i);
        if (strcmp(row->name, name) == 0) {
            *per_round = row->per_round;
            return (sdgen_probe_kernel *)row->function;
        }
    }
    fprintf(stderr, "sdgen-bench: kernel %s was not built\n", name);
    exit(1);
}

struct probe {
    sdgen_probe_kernel *function;
    size_t rounds;
};

static void probe_task(void *data, const struct sdgen_team *member)
{
    (void)member;
    const struct probe *probe = data;
    probe->function(probe->rounds);
}

/* A kernel whose panels and tile stay in L1, called again and again. */
struct in_l1 {
    sdgen_gemm_kernel *function;
    size_t rows, columns, k, calls;
    float *a, *b, *c[64];
};

static void in_l1_task(void *data, const struct sdgen_team *member)
{
    const struct in_l1 *run = data;
    const struct sdgen_epilogue epilogue = {.columns = (int32_t)run->columns, .accumulate = 1, .scale = 1};
    for (size_t i = 0; i < run->calls; i++)
        run->function(run->k, run->a, run->b, run->c[member->ith % 64], run->columns * sizeof(float), &epilogue);
}

struct operation {
    struct sdgen_plan plan;
    struct sdgen_matmul matmul;
    struct sdgen_conv2d conv2d;
    struct sdgen_attention attention;
    struct sdgen_map map;
    struct sdgen_group_norm group_norm;
    struct sdgen_layer_norm layer_norm;
};

static void matmul_task(void *data, const struct sdgen_team *member)
{
    const struct operation *operation = data;
    sdgen_matmul(&operation->plan, &operation->matmul, member);
}

static void conv2d_task(void *data, const struct sdgen_team *member)
{
    const struct operation *operation = data;
    sdgen_conv2d(&operation->plan, &operation->conv2d, member);
}

static void attention_task(void *data, const struct sdgen_team *member)
{
    const struct operation *operation = data;
    sdgen_attention(&operation->plan, &operation->attention, member);
}

static void map_task(void *data, const struct sdgen_team *member)
{
    const struct operation *operation = data;
    sdgen_map(&operation->plan, &operation->map, member);
}

static void group_norm_task(void *data, const struct sdgen_team *member)
{
    const struct operation *operation = data;
    sdgen_group_norm(&operation->plan, &operation->group_norm, member);
}

static void layer_norm_task(void *data, const struct sdgen_team *member)
{
    const struct operation *operation = data;
    sdgen_layer_norm(&operation->plan, &operation->layer_norm, member);
}

enum { CHECKED = 400 }; /* outputs compared with double precision */

static double error_of(double exact, double magnitude, float result)
{
    double error = fabs((double)result - exact) / magnitude;
    return error == error ? error : INFINITY;
}

static double matmul_error(const struct sdgen_matmul *op)
{
    double worst = 0;
    for (int64_t i = 0; i < CHECKED; i++) {
        int64_t row = i * 7919 % op->m, column = i * 104729 % op->n;
        double exact = 0, magnitude = 0;
        for (int64_t p = 0; p < op->k; p++) {
            double product = half_value(((const uint16_t *)op->w)[column * op->k + p]) * (double)op->x[row * op->k + p];
            exact += product;
            magnitude += fabs(product);
        }
        worst = fmax(worst, error_of(exact, magnitude, op->c[row * op->n + column]));
    }
    return worst;
}

static double conv2d_error(const struct sdgen_conv2d *op)
{
    double worst = 0;
    for (int64_t i = 0; i < CHECKED; i++) {
        int64_t channel = i * 7919 % op->channels_out, x = i * 104729 % op->width_out, y = i * 1299709 % op->height_out;
        double exact = 0, magnitude = 0;
        for (int64_t ic = 0; ic < op->channels_in; ic++)
            for (int64_t ky = 0; ky < op->kernel_height; ky++)
                for (int64_t kx = 0; kx < op->kernel_width; kx++) {
                    int64_t repeat = op->x_doubled ? 2 : 1;
                    int64_t in_x = x * op->stride_x + kx - op->pad_x, in_y = y * op->stride_y + ky - op->pad_y;
                    if (in_x < 0 || in_x >= op->width * repeat || in_y < 0 || in_y >= op->height * repeat)
                        continue;
                    int64_t w = ((channel * op->channels_in + ic) * op->kernel_height + ky) * op->kernel_width + kx;
                    double product = half_value(((const uint16_t *)op->w)[w]) *
                                     (double)op->x[(ic * op->height + in_y / repeat) * op->width + in_x / repeat];
                    exact += product;
                    magnitude += fabs(product);
                }
        worst = fmax(worst, error_of(exact, magnitude, op->c[(channel * op->height_out + y) * op->width_out + x]));
    }
    return worst;
}

static const float *element(const void *base, int64_t stride, int64_t row, int64_t head_stride, int64_t head)
{
    return (const float *)(const void *)((const char *)base + row * stride + head * head_stride);
}

/* K and V of single precision, no mask. */
static double attention_error(const struct sdgen_attention *op)
{
    enum { QUERIES = 24 };
    double *power = allocate((size_t)op->keys * sizeof *power), worst = 0;
    for (int64_t i = 0; i < QUERIES; i++) {
        int64_t query = i * 7919 % op->queries, head = i % op->heads;
        const float *q = element(op->q, op->q_stride, query, op->q_head_stride, head);
        double most = -INFINITY, sum = 0;
        for (int64_t key = 0; key < op->keys; key++) {
            const float *k = element(op->k, op->k_stride, key, op->k_head_stride, head);
            double score = 0;
            for (int64_t p = 0; p < op->depth; p++)
                score += (double)q[p] * (double)k[p];
            power[key] = score * (double)op->scale;
            most = fmax(most, power[key]);
        }
        for (int64_t key = 0; key < op->keys; key++)
            sum += power[key] = exp(power[key] - most);
        for (int64_t p = 0; p < op->value_depth; p++) {
            double exact = 0, magnitude = 0;
            for (int64_t key = 0; key < op->keys; key++) {
                double product = power[key] / sum * (double)element(op->v, op->v_stride, key, op->v_head_stride, head)[p];
                exact += product;
                magnitude += fabs(product);
            }
            worst = fmax(worst, error_of(exact, magnitude, element(op->c, op->c_stride, query, op->c_head_stride, head)[p]));
        }
    }
    free(power);
    return worst;
}

/* ---- timing ---- */

struct sample {
    double rate;  /* of the row, FLOP/s */
    double peak;  /* of the FMA loop beside it */
    double quiet; /* rate of NOPs before and after, the lower */
};

static int by_rate(const void *a, const void *b)
{
    double x = ((const struct sample *)a)->rate / ((const struct sample *)a)->peak;
    double y = ((const struct sample *)b)->rate / ((const struct sample *)b)->peak;
    return (x > y) - (x < y);
}

struct bench {
    struct options options;
    struct team *team;
    struct probe fma, nop;
    double fma_flops, nops; /* of one run, all threads */
    double best_peak, best_nops;
    int printed;
};

static double run_rate(struct bench *bench, team_task *task, void *data, void *work, size_t work_size, double amount)
{
    double start = now();
    team_run(bench->team, task, data, work, work_size);
    return amount / (now() - start);
}

static double nop_rate(struct bench *bench)
{
    double rate = run_rate(bench, probe_task, &bench->nop, NULL, 0, bench->nops);
    bench->best_nops = fmax(bench->best_nops, rate);
    return rate;
}

enum { MOST_SAMPLES = 1000 };

/* The samples in whose time the NOPs ran at 9 tenths of their best rate or faster, first; returns how many. A neighbour on the
 * same physical core slows NOPs and real kernels, and leaves a register-only loop of FMAs alone. */
static int quiet_first(struct sample *samples, int count, double best_nops)
{
    int quiet = 0;
    for (int i = 0; i < count; i++)
        if (samples[i].quiet >= 0.9 * best_nops) {
            struct sample swapped = samples[quiet];
            samples[quiet++] = samples[i];
            samples[i] = swapped;
        }
    return quiet;
}

static double median_share(struct sample *samples, int count)
{
    if (count == 0)
        return NAN;
    qsort(samples, (size_t)count, sizeof *samples, by_rate);
    return samples[count / 2].rate / samples[count / 2].peak;
}

static void print_share(double share)
{
    if (share == share)
        printf(" %6.1f%%", 100 * share);
    else
        printf(" %7s", "-");
}

static void time_row(struct bench *bench, const struct row *row)
{
    static struct sample samples[MOST_SAMPLES];
    void *work = row->work_size ? allocate(row->work_size) : NULL;
    team_run(bench->team, row->task, row->data, work, row->work_size);
    double end = now() + bench->options.seconds, best = 0, peak = 0;
    int count = 0;
    do {
        struct sample *sample = &samples[count++];
        double before = nop_rate(bench);
        sample->rate = run_rate(bench, row->task, row->data, work, row->work_size, row->flops);
        sample->quiet = fmin(before, nop_rate(bench));
        sample->peak = row->copy ? run_rate(bench, copy_task, row->copy, NULL, 0, row->flops)
                                 : run_rate(bench, probe_task, &bench->fma, NULL, 0, bench->fma_flops);
        best = fmax(best, sample->rate);
        peak = fmax(peak, sample->peak);
    } while (count < 3 || (count < MOST_SAMPLES && now() < end));
    free(work);
    if (!row->copy)
        bench->best_peak = fmax(bench->best_peak, peak);
    /* Where the processor changes its clock the peak beside a sample is the fair one, but a single one is noisy. */
    int quiet = quiet_first(samples, count, bench->best_nops);
    double quiet_share = median_share(samples, quiet), contended_share = median_share(samples + quiet, count - quiet);
    if (bench->options.json) {
        printf("%s\n    {\"name\": \"%s\", \"run_type\": \"iteration\", \"iterations\": %d, \"real_time\": %.9g, \"time_unit\": \"s\", "
               "\"threads\": %d, \"gflops\": %.6g, \"peak_gflops\": %.6g, \"best_share\": %.4g, \"quiet_samples\": %d, ",
               bench->printed ? "," : "", row->name, count, row->flops / best, bench->options.threads, best / 1e9, peak / 1e9,
               best / peak, quiet);
        printf(quiet ? "\"quiet_share\": %.4g, " : "\"quiet_share\": null, ", quiet_share);
        printf(count > quiet ? "\"contended_share\": %.4g, " : "\"contended_share\": null, ", contended_share);
        printf("\"error\": %.3g}", row->error);
    } else {
        printf("%-34s %8.1f %8.1f %6.1f%%", row->name, best / 1e9, peak / 1e9, 100 * best / peak);
        print_share(quiet_share);
        print_share(contended_share);
        printf(" %5d/%-5d", quiet, count);
        if (row->limit > 0)
            printf(" %9.1e", row->error);
        printf("\n");
    }
    fflush(stdout);
    bench->printed++;
    if (row->limit > 0 && !(row->error <= row->limit)) {
        fprintf(stderr, "sdgen-bench: %s: error %g; the result is wrong and the time means nothing\n", row->name, row->error);
        exit(1);
    }
}

static bool wanted(const struct bench *bench, const char *name)
{
    return !bench->options.filter || strstr(name, bench->options.filter);
}

/* ---- rows ---- */

static void bench_kernels(struct bench *bench)
{
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *kernel = sdgen_kernel_row(i);
        if (strcmp(kernel->operation, "gemm") != 0 || kernel->level != bench->options.level || !wanted(bench, kernel->name))
            continue;
        struct in_l1 run = {.function = (sdgen_gemm_kernel *)kernel->function,
                            .rows = (size_t)kernel->rows,
                            .columns = (size_t)kernel->columns,
                            .k = 320,
                            .calls = 1000};
        run.a = random_floats(run.rows * run.k);
        run.b = random_floats(run.columns * run.k);
        for (int t = 0; t < 64; t++) {
            run.c[t] = allocate(run.rows * run.columns * sizeof(float));
            memset(run.c[t], 0, run.rows * run.columns * sizeof(float));
        }
        struct row row = {.name = kernel->name,
                          .flops = 2.0 * (double)(run.rows * run.columns * run.k * run.calls) * bench->options.threads,
                          .task = in_l1_task,
                          .data = &run};
        time_row(bench, &row);
        free(run.a);
        free(run.b);
        for (int t = 0; t < 64; t++)
            free(run.c[t]);
    }
}

static struct operation operation_of(const struct bench *bench)
{
    return (struct operation){
        .plan = {.kernels = sdgen_kernels(bench->options.level),
                 .blocking = sdgen_blocking(sdgen_processor()),
                 .tile_columns = bench->options.tile,
                 .winograd = bench->options.winograd}};
}

static void bench_matmul(struct bench *bench, int64_t m, int64_t n, int64_t k)
{
    char name[64];
    snprintf(name, sizeof name, "linear %lldx%lldx%lld", (long long)m, (long long)n, (long long)k);
    if (!wanted(bench, name))
        return;
    struct operation operation = operation_of(bench);
    uint16_t *w = random_halves((size_t)(n * k));
    float *x = random_floats((size_t)(m * k)), *c = allocate((size_t)(m * n) * sizeof(float));
    operation.matmul = (struct sdgen_matmul){.m = m,
                                             .n = n,
                                             .k = k,
                                             .batch = {1, 1},
                                             .w = w,
                                             .w_type = SDGEN_F16,
                                             .w_stride = k * 2,
                                             .w_repeat = {1, 1},
                                             .x = x,
                                             .x_stride = k * 4,
                                             .c = c,
                                             .c_stride = n * 4,
                                             .scale = 1};
    struct row row = {.name = name, .flops = 2.0 * (double)m * (double)n * (double)k, .task = matmul_task, .data = &operation};
    row.work_size = sdgen_matmul_work_size(&operation.plan, &operation.matmul, bench->options.threads);
    void *work = allocate(row.work_size);
    team_run(bench->team, row.task, row.data, work, row.work_size);
    free(work);
    row.limit = 2.4e-7;
    row.error = matmul_error(&operation.matmul);
    time_row(bench, &row);
    free(w);
    free(x);
    free(c);
}

/* size: of the image that the convolution sees; `up` says that it is given by half its size, doubled. */
static void bench_conv2d(struct bench *bench, int64_t in, int64_t out, int64_t size, int64_t kernel, int64_t stride, bool up)
{
    char name[64];
    snprintf(name, sizeof name, "conv%lldx%lld%s %lld->%lld@%lldx%lld", (long long)kernel, (long long)kernel,
             stride == 2 ? "/2" : up ? " up" : "", (long long)in, (long long)out, (long long)size, (long long)size);
    if (!wanted(bench, name))
        return;
    struct operation operation = operation_of(bench);
    int64_t out_size = (size + stride - 1) / stride, x_size = up ? size / 2 : size;
    uint16_t *w = random_halves((size_t)(in * out * kernel * kernel));
    float *x = random_floats((size_t)(in * x_size * x_size));
    float *c = allocate((size_t)(out * out_size * out_size) * sizeof(float));
    operation.conv2d = (struct sdgen_conv2d){.batch = 1,
                                             .channels_in = in,
                                             .channels_out = out,
                                             .width = x_size,
                                             .height = x_size,
                                             .width_out = out_size,
                                             .height_out = out_size,
                                             .kernel_width = kernel,
                                             .kernel_height = kernel,
                                             .stride_x = stride,
                                             .stride_y = stride,
                                             .pad_x = kernel / 2,
                                             .pad_y = kernel / 2,
                                             .dilation_x = 1,
                                             .dilation_y = 1,
                                             .w = w,
                                             .w_type = SDGEN_F16,
                                             .x = x,
                                             .x_row_stride = x_size * 4,
                                             .x_channel_stride = x_size * x_size * 4,
                                             .c = c,
                                             .scale = 1,
                                             .x_doubled = up};
    int m = sdgen_select_winograd(&operation.plan, &operation.conv2d);
    char row_name[sizeof name + 16];
    snprintf(row_name, sizeof row_name, m ? "%s F%d" : "%s direct", name, m);
    struct row row = {.name = row_name,
                      .flops = 2.0 * (double)(in * out * kernel * kernel) * (double)(out_size * out_size),
                      .task = conv2d_task,
                      .data = &operation};
    row.work_size = sdgen_conv2d_work_size(&operation.plan, &operation.conv2d, bench->options.threads);
    void *work = allocate(row.work_size);
    team_run(bench->team, row.task, row.data, work, row.work_size);
    free(work);
    static const double limits[] = {[0] = 2.1e-7, [2] = 1.5e-7, [3] = 2e-7, [4] = 4e-7};
    row.limit = limits[m] * (m ? 2.25 : 1); /* a corner has 4 of the 9 products whose roundings it has */
    row.error = conv2d_error(&operation.conv2d);
    time_row(bench, &row);
    free(w);
    free(x);
    free(c);
}

static void bench_attention(struct bench *bench, int64_t queries, int64_t keys, int64_t heads, int64_t depth)
{
    char name[64];
    snprintf(name, sizeof name, "attention %lldx%lld %lldx%lld", (long long)queries, (long long)keys, (long long)heads,
             (long long)depth);
    if (!wanted(bench, name))
        return;
    struct operation operation = operation_of(bench);
    const int64_t row = heads * depth; /* as a linear layer makes them: the heads of a token side by side */
    float *q = random_floats((size_t)(queries * row)), *k = random_floats((size_t)(keys * row));
    float *v = random_floats((size_t)(keys * row)), *c = allocate((size_t)(queries * row) * sizeof(float));
    operation.attention = (struct sdgen_attention){.queries = queries,
                                                   .keys = keys,
                                                   .heads = heads,
                                                   .batch = 1,
                                                   .depth = depth,
                                                   .value_depth = depth,
                                                   .q = q,
                                                   .q_stride = row * 4,
                                                   .q_head_stride = depth * 4,
                                                   .k = k,
                                                   .k_stride = row * 4,
                                                   .k_head_stride = depth * 4,
                                                   .k_repeat = {1, 1},
                                                   .v = v,
                                                   .v_stride = row * 4,
                                                   .v_head_stride = depth * 4,
                                                   .v_repeat = {1, 1},
                                                   .scale = 1 / sqrtf((float)depth),
                                                   .c = c,
                                                   .c_stride = row * 4,
                                                   .c_head_stride = depth * 4};
    struct row timed = {.name = name,
                        .flops = 4.0 * (double)queries * (double)keys * (double)row,
                        .task = attention_task,
                        .data = &operation};
    timed.work_size = sdgen_attention_work_size(&operation.plan, &operation.attention, bench->options.threads);
    void *work = allocate(timed.work_size);
    team_run(bench->team, timed.task, timed.data, work, timed.work_size);
    free(work);
    timed.limit = 1e-6; /* a query whose softmax rests on few keys has the error of their scores */
    timed.error = attention_error(&operation.attention);
    time_row(bench, &timed);
    free(q);
    free(k);
    free(v);
    free(c);
}

/* Elementwise operations and norms of an array [channels][pixels], that of rows being of one of [pixels][channels]. The error is not
 * looked at here. */
static void bench_memory(struct bench *bench, int64_t channels, int64_t pixels)
{
    static const struct {
        const char *name;
        team_task *task;
        enum sdgen_function function;
        bool add;     /* another array */
        bool channel; /* a number for each channel */
    } kinds[] = {
        {"map add", map_task, SDGEN_FUNCTION_NONE, true, false},
        {"map add-channel", map_task, SDGEN_FUNCTION_NONE, false, true},
        {"map silu", map_task, SDGEN_FUNCTION_SILU, false, false},
        {"map gelu", map_task, SDGEN_FUNCTION_GELU, false, false},
        {"map gelu_erf", map_task, SDGEN_FUNCTION_GELU_ERF, false, false},
        {"norm group silu", group_norm_task, SDGEN_FUNCTION_SILU, false, false},
        {"norm rows", layer_norm_task, SDGEN_FUNCTION_NONE, false, false},
    };
    size_t count = (size_t)(channels * pixels);
    float *x = random_floats(count), *other = random_floats(count), *y = allocate(count * sizeof(float));
    struct copy copy = {.src = (const char *)x, .dst = (char *)y, .size = count * sizeof(float)};
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        char name[64];
        snprintf(name, sizeof name, "%s %lldx%lld", kinds[i].name, (long long)channels, (long long)pixels);
        if (!wanted(bench, name))
            continue;
        struct operation operation = operation_of(bench);
        operation.map = (struct sdgen_map){
            .extent = {pixels, channels, 1, 1},
            .x = x,
            .x_stride = {pixels * 4},
            .y = y,
            .y_stride = {pixels * 4},
            .addend = {.data = kinds[i].add || kinds[i].channel ? other : NULL,
                       .stride = {kinds[i].add ? 4 : 0, kinds[i].add ? pixels * 4 : 4}},
            .function = kinds[i].function,
            .scale = 1,
        };
        operation.group_norm = (struct sdgen_group_norm){
            .batch = 1,
            .channels = channels,
            .pixels = pixels,
            .groups = 32,
            .x = x,
            .x_channel_stride = pixels * 4,
            .y = y,
            .y_channel_stride = pixels * 4,
            .weight = other,
            .bias = other,
            .eps = 1e-6f,
            .function = kinds[i].function,
        };
        operation.layer_norm = (struct sdgen_layer_norm){
            .n = channels,
            .rows = {pixels, 1, 1},
            .x = x,
            .x_stride = {channels * 4},
            .y = y,
            .y_stride = {channels * 4},
            .weight = other,
            .bias = other,
            .eps = 1e-5f,
        };
        struct row row = {.name = name, .flops = 2.0 * (double)copy.size, .task = kinds[i].task, .data = &operation, .copy = &copy};
        row.work_size = row.task == map_task ? sdgen_map_work_size(&operation.plan, &operation.map, bench->options.threads)
                        : row.task == group_norm_task
                            ? sdgen_group_norm_work_size(&operation.plan, &operation.group_norm, bench->options.threads)
                            : sdgen_layer_norm_work_size(&operation.plan, &operation.layer_norm, bench->options.threads);
        time_row(bench, &row);
    }
    free(x);
    free(other);
    free(y);
}

/* The products of SD 1.5 at 512 by 512 that take its time: rows (tokens), columns (outputs), depth (inputs). */
static const int64_t linear_shapes[][3] = {
    {4096, 320, 320},   {1024, 640, 640},  {256, 1280, 1280},   {64, 1280, 1280},   {4096, 2560, 320}, {1024, 5120, 640},
    {256, 10240, 1280}, {4096, 320, 1280}, {1024, 640, 2560},   {256, 1280, 5120},  {77, 320, 768},    {77, 768, 3072},
};

/* Convolutions of SD 1.5's UNet and VAE: channels in and out, height and width, kernel, stride; 1: of an image doubled. */
static const int64_t conv2d_shapes[][6] = {
    {320, 320, 64, 3, 1},  {960, 320, 64, 3, 1},   {640, 640, 32, 3, 1},  {1280, 1280, 16, 3, 1}, {1280, 1280, 8, 3, 1},
    {320, 320, 64, 3, 2},  {320, 320, 64, 1, 1},   {640, 640, 32, 1, 1},  {4, 320, 64, 3, 1},     {320, 4, 64, 3, 1},
    {512, 512, 64, 3, 1},  {512, 512, 128, 3, 1},  {256, 256, 256, 3, 1}, {128, 128, 512, 3, 1},
    {640, 640, 64, 3, 1, 1},
};

/* Attention of SD 1.5 (self and cross), SDXL, Flux and the VAE: queries, keys, heads, head dimension. */
static const int64_t attention_shapes[][4] = {
    {4096, 4096, 8, 40}, {1024, 1024, 8, 80}, {256, 256, 8, 160}, {4096, 77, 8, 40}, {4096, 4096, 10, 64}, {4352, 4352, 24, 128},
    {4096, 4096, 1, 512},
};

/* Activations of SD 1.5's UNet and VAE: channels, pixels. */
static const int64_t memory_shapes[][2] = {{320, 4096}, {1280, 256}, {128, 262144}};

static void print_context(const struct bench *bench)
{
    const struct sdgen_processor *processor = sdgen_processor();
    if (bench->options.json) {
        printf("{\n  \"context\": {\"cpu\": \"%s\", \"level\": \"%s\", \"threads\": %d},\n  \"benchmarks\": [", processor->name,
               sdgen_level_name(bench->options.level), bench->options.threads);
        return;
    }
    printf("processor: %s; level %s; threads: %d\n", processor->name, sdgen_level_name(bench->options.level),
           bench->options.threads);
    printf("best: GFLOP/s of the best sample, of the best sample of the FMA loop, and their ratio; then the median ratio of the\n"
           "quiet and of the contended samples (by a loop of NOPs), how many were quiet, and the largest error\n");
    printf("map, norm: GB/s, beside memcpy\n");
    printf("%-34s %8s %8s %7s %7s %7s %11s %9s\n", "", "GFLOP/s", "peak", "best", "quiet", "cont.", "samples", "error");
}

static bool parse_level(const char *name, enum sdgen_level *level)
{
    for (int l = SDGEN_LEVEL_C; l <= SDGEN_LEVEL_RICHEST; l++)
        if (strcmp(name, sdgen_level_name((enum sdgen_level)l)) == 0) {
            *level = (enum sdgen_level)l;
            return true;
        }
    return false;
}

static bool has_tile(enum sdgen_level level, int columns)
{
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *row = sdgen_kernel_row(i);
        if (strcmp(row->operation, "gemm") == 0 && row->level == level && row->columns == columns)
            return true;
    }
    return false;
}

static void fail(const char *option, const char *value, const char *allowed)
{
    fprintf(stderr, "sdgen-bench: %s %s: %s\n", option, value, allowed);
    exit(2);
}

static struct options parse(int argc, char **argv)
{
    static const struct option names[] = {{"threads", required_argument, NULL, 't'}, {"level", required_argument, NULL, 'l'},
                                          {"tile", required_argument, NULL, 'c'},    {"winograd", required_argument, NULL, 'w'},
                                          {"filter", required_argument, NULL, 'f'},  {"seconds", required_argument, NULL, 's'},
                                          {"format", required_argument, NULL, 'o'},  {"help", no_argument, NULL, 'h'},
                                          {NULL, 0, NULL, 0}};
    struct options options = {.threads = (int)sysconf(_SC_NPROCESSORS_ONLN), .seconds = 1, .winograd = SDGEN_WINOGRAD_BY_SHAPE};
    uint32_t features = sdgen_processor()->features;
    options.level = sdgen_select_level(features, SDGEN_FORM_ASSEMBLY, SDGEN_LEVEL_RICHEST);
    const char *tile_text = NULL;
    int option;
    while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        char *end = NULL;
        switch (option) {
        case 't':
            options.threads = (int)strtol(optarg, &end, 10);
            if (*end || options.threads < 1 || options.threads > 1024)
                fail("--threads", optarg, "a number from 1 to 1024 is allowed");
            break;
        case 'l':
            if (!parse_level(optarg, &options.level))
                fail("--level", optarg, "c, avx2 and avx512 are allowed");
            if (options.level != SDGEN_LEVEL_C && sdgen_select_level(features, SDGEN_FORM_ASSEMBLY, options.level) != options.level)
                fail("--level", optarg, "this processor does not have it");
            break;
        case 'c':
            tile_text = optarg;
            options.tile = (int)strtol(optarg, &end, 10);
            if (*end || options.tile < 1)
                fail("--tile", optarg, "a number of columns is allowed");
            break;
        case 'w':
            if (!strchr("0234", *optarg) || strlen(optarg) != 1)
                fail("--winograd", optarg, "0, 2, 3 and 4 are allowed");
            options.winograd = (enum sdgen_winograd_choice)(*optarg - '0');
            break;
        case 'f': options.filter = optarg; break;
        case 's':
            options.seconds = strtod(optarg, &end);
            if (*end || !(options.seconds > 0 && options.seconds < 3600))
                fail("--seconds", optarg, "a number above 0 and below 3600 is allowed");
            break;
        case 'o':
            if (strcmp(optarg, "table") != 0 && strcmp(optarg, "json") != 0)
                fail("--format", optarg, "table and json are allowed");
            options.json = strcmp(optarg, "json") == 0;
            break;
        case 'h': fputs(usage, stdout); exit(0);
        default: fputs(usage, stderr); exit(2);
        }
    }
    if (optind < argc) {
        fputs(usage, stderr);
        exit(2);
    }
    if (options.tile && !has_tile(options.level, options.tile))
        fail("--tile", tile_text, "the level has no tile of so many columns");
    return options;
}

int main(int argc, char **argv)
{
    struct bench bench = {.options = parse(argc, argv)};
    int flops, nops;
    bench.fma.function = find_probe(bench.options.level == SDGEN_LEVEL_AVX512 ? "probe_fma_f32_avx512" : "probe_fma_f32_avx2", &flops);
    bench.nop.function = find_probe("probe_nop_avx2", &nops);
    bench.fma.rounds = (size_t)(32000000 / flops);
    bench.nop.rounds = (size_t)(1000000 / nops);
    bench.fma_flops = flops * (double)bench.fma.rounds * bench.options.threads;
    bench.nops = (double)nops * (double)bench.nop.rounds * bench.options.threads;
    bench.team = team_start(bench.options.threads);
    if (!bench.team) {
        fprintf(stderr, "sdgen-bench: %d threads cannot be started\n", bench.options.threads);
        return 1;
    }
    for (int i = 0; i < 20; i++) /* the clock rises */
        nop_rate(&bench);
    print_context(&bench);
    bench_kernels(&bench);
    for (size_t i = 0; i < sizeof linear_shapes / sizeof *linear_shapes; i++)
        bench_matmul(&bench, linear_shapes[i][0], linear_shapes[i][1], linear_shapes[i][2]);
    for (size_t i = 0; i < sizeof conv2d_shapes / sizeof *conv2d_shapes; i++)
        bench_conv2d(&bench, conv2d_shapes[i][0], conv2d_shapes[i][1], conv2d_shapes[i][2], conv2d_shapes[i][3],
                     conv2d_shapes[i][4], conv2d_shapes[i][5]);
    for (size_t i = 0; i < sizeof attention_shapes / sizeof *attention_shapes; i++)
        bench_attention(&bench, attention_shapes[i][0], attention_shapes[i][1], attention_shapes[i][2], attention_shapes[i][3]);
    for (size_t i = 0; i < sizeof memory_shapes / sizeof *memory_shapes; i++)
        bench_memory(&bench, memory_shapes[i][0], memory_shapes[i][1]);
    if (bench.options.json)
        printf("\n  ]\n}\n");
    team_stop(bench.team);
    return 0;
}
