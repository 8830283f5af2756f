#include "timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"

/* ---- the most that the processor can do ---- */

static const struct sdgen_kernel_row *find_probe(const char *name)
{
    for (size_t i = 0; i < sdgen_kernel_count(); i++)
        if (strcmp(sdgen_kernel_row(i)->name, name) == 0)
            return sdgen_kernel_row(i);
    return NULL;
}

static struct probe probe_of(const struct sdgen_kernel_row *row, double amount, int threads)
{
    size_t rounds = (size_t)(amount / row->per_round) + 1;
    return (struct probe){.function = (sdgen_probe_kernel *)row->function,
                          .rounds = rounds,
                          .amount = (double)row->per_round * (double)rounds * threads};
}

static void probe_task(void *data, const struct sdgen_team *member)
{
    (void)member;
    const struct probe *probe = data;
    probe->function(probe->rounds);
}

/* A task that is run by all threads, and so often in turn that the clock is fine enough. */
struct task {
    team_task *function;
    void *data, *work;
    size_t work_size;
    double amount; /* of a run */
    int runs;
};

/* Seconds of a run. */
static double time_task(struct bench *bench, const struct task *task)
{
    double start = seconds_of(CLOCK_MONOTONIC);
    for (int i = 0; i < task->runs; i++)
        team_run(bench->team, task->function, task->data, task->work, task->work_size);
    return (seconds_of(CLOCK_MONOTONIC) - start) / task->runs;
}

double probe_rate(struct bench *bench, struct probe *probe)
{
    return probe->amount / time_task(bench, &(struct task){.function = probe_task, .data = probe, .runs = 1});
}

struct probe calibrated_probe(struct bench *bench, const struct sdgen_kernel_row *row, double seconds)
{
    struct probe probe = probe_of(row, 1e6, bench->options->threads);
    for (;;) {
        double took = probe.amount / probe_rate(bench, &probe);
        if (took >= seconds / 2)
            return probe;
        probe.rounds *= 2;
        probe.amount *= 2;
    }
}

static double nop_rate(struct bench *bench)
{
    double rate = probe_rate(bench, &bench->nop);
    bench->best_nops = fmax(bench->best_nops, rate);
    return rate;
}

bool start_bench(struct bench *bench, const struct options *options)
{
    *bench = (struct bench){.options = options};
    const struct sdgen_kernel_row *avx2 = find_probe("probe_fma_f32_avx2"), *avx512 = find_probe("probe_fma_f32_avx512");
    const struct sdgen_kernel_row *nop = find_probe("probe_nop_avx2");
    if (!avx2 || !avx512 || !nop ||
        sdgen_select_level(sdgen_processor()->features, SDGEN_FORM_ASSEMBLY, SDGEN_LEVEL_AVX2) != SDGEN_LEVEL_AVX2) {
        fprintf(stderr, "sdgen-bench: a processor with AVX2, and a build for it, are needed to measure beside its FMAs\n");
        return false;
    }
    for (int level = SDGEN_LEVEL_C; level <= SDGEN_LEVEL_RICHEST; level++)
        bench->fma[level] = probe_of(level == SDGEN_LEVEL_AVX512 ? avx512 : avx2, 32e6, options->threads);
    bench->nop = probe_of(nop, 1e6, options->threads);
    bench->team = team_start(options->threads);
    if (!bench->team) {
        fprintf(stderr, "sdgen-bench: %d threads cannot be started\n", options->threads);
        return false;
    }
    for (int i = 0; i < 20; i++) /* the clock rises */
        nop_rate(bench);
    return true;
}

void stop_bench(struct bench *bench)
{
    team_stop(bench->team);
}

/* ---- samples ---- */

struct sample {
    double rate;        /* of the operation */
    double peak;        /* of the loop, or of the copy, beside it */
    double cpu_seconds; /* of the first thread */
    double nops;        /* their rate before and after, the lower */
};

enum { MOST_SAMPLES = 1000, MOST_RUNS = 1000 };
static const double LEAST_SECONDS = 50e-6; /* of a sample */

static int ascending(const void *a, const void *b)
{
    double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* The numbers become sorted. */
static double median(double *numbers, int count)
{
    if (count == 0)
        return NAN;
    qsort(numbers, (size_t)count, sizeof *numbers, ascending);
    return count % 2 ? numbers[count / 2] : (numbers[count / 2 - 1] + numbers[count / 2]) / 2;
}

/* The standard error of the median of sorted numbers, by their quartiles, as if they were normal. */
static double noise_of(const double *numbers, int count)
{
    double range = numbers[count - 1 - count / 4] - numbers[count / 4];
    return 1.2533 * range / 1.349 / sqrt((double)count);
}

/* A neighbour on the same physical core slows NOPs and real kernels, and leaves a register-only loop of FMAs alone. */
static bool is_quiet(const struct sample *sample, double best_nops)
{
    return sample->nops >= 0.9 * best_nops;
}

static void take_sample(struct bench *bench, const struct task *task, enum sdgen_level level, const struct task *copy,
                        struct sample *sample)
{
    double before = nop_rate(bench), cpu = seconds_of(CLOCK_THREAD_CPUTIME_ID);
    sample->rate = task->amount / time_task(bench, task);
    sample->cpu_seconds = (seconds_of(CLOCK_THREAD_CPUTIME_ID) - cpu) / task->runs;
    sample->nops = fmin(before, nop_rate(bench));
    sample->peak = copy->amount > 0 ? copy->amount / time_task(bench, copy) : probe_rate(bench, &bench->fma[level]);
}

static enum sdgen_level level_of(const struct call *call)
{
    int level = SDGEN_LEVEL_C;
    while (level < SDGEN_LEVEL_RICHEST && sdgen_kernels((enum sdgen_level)level) != call->plan.kernels)
        level++;
    return (enum sdgen_level)level;
}

/* The ratios of the samples' rates with those of the first way: of the rounds that were quiet for both, if these are enough to tell. */
static int ratios_of(double *ratios, const struct sample *samples, const struct sample *first, int count, double best_nops)
{
    enum { ENOUGH = 3 };
    int quiet = 0;
    for (int i = 0; i < count; i++)
        if (is_quiet(&samples[i], best_nops) && is_quiet(&first[i], best_nops))
            ratios[quiet++] = samples[i].rate / first[i].rate;
    if (quiet >= ENOUGH)
        return quiet;
    for (int i = 0; i < count; i++)
        ratios[i] = samples[i].rate / first[i].rate;
    return count;
}

/* Medians of what is_quiet says, and of the rest. */
static void summarize(struct result *result, const struct sample *samples, const struct sample *first, int count, double best_nops)
{
    static double quiet[MOST_SAMPLES], contended[MOST_SAMPLES], rates[MOST_SAMPLES], peaks[MOST_SAMPLES], cpus[MOST_SAMPLES],
        ratios[MOST_SAMPLES];
    double best = 0, best_peak = 0;
    int contended_count = 0, used = 0;
    result->samples = count;
    result->quiet = 0;
    for (int i = 0; i < count; i++) {
        best = fmax(best, samples[i].rate);
        best_peak = fmax(best_peak, samples[i].peak);
        /* Where the processor changes its clock the peak beside a sample is the fair one, but a single one is noisy. */
        double share = samples[i].rate / samples[i].peak;
        if (is_quiet(&samples[i], best_nops))
            quiet[result->quiet++] = share;
        else
            contended[contended_count++] = share;
    }
    for (int i = 0; i < count; i++)
        if (result->quiet == 0 || is_quiet(&samples[i], best_nops)) {
            rates[used] = samples[i].rate;
            peaks[used] = samples[i].peak;
            cpus[used++] = samples[i].cpu_seconds;
        }
    result->rate = median(rates, used);
    result->peak = median(peaks, used);
    result->cpu_seconds = median(cpus, used);
    result->best_share = best / best_peak;
    result->quiet_share = median(quiet, result->quiet);
    result->contended_share = median(contended, contended_count);
    const int compared = ratios_of(ratios, samples, first, count, best_nops);
    result->ratio = median(ratios, compared);
    result->ratio_noise = noise_of(ratios, compared);
}

void time_calls(struct bench *bench, struct operation *operation, struct call *calls, struct result *results, int count)
{
    static struct sample samples[MOST_ENTRIES][MOST_SAMPLES];
    struct task tasks[MOST_ENTRIES], copy = {.function = copy_task, .data = &operation->copy};
    size_t work_size = 0;
    for (int i = 0; i < count; i++) {
        size_t size = call_work_size(&calls[i], bench->options->threads);
        work_size = size > work_size ? size : work_size;
    }
    void *work = work_size ? allocate(work_size) : NULL;
    for (int i = 0; i < count; i++) { /* the first run of each, which is checked */
        spoil_result(operation);
        tasks[i] = (struct task){.function = call_task, .data = &calls[i], .work = work, .work_size = work_size,
                                 .amount = operation->amount, .runs = 1};
        double seconds = time_task(bench, &tasks[i]);
        if (seconds < LEAST_SECONDS)
            tasks[i].runs = (int)ceil(LEAST_SECONDS / fmax(seconds, LEAST_SECONDS / MOST_RUNS));
        results[i].error = call_error(&calls[i]);
        results[i].wrong = !(results[i].error <= call_limit(&calls[i]));
        results[i].method = call_method(&calls[i]);
        results[i].unit = operation->copy.size ? "GB/s" : "GFLOP/s";
    }
    if (operation->copy.size) {
        copy.amount = operation->amount;
        copy.runs = tasks[0].runs;
    }
    double end = seconds_of(CLOCK_MONOTONIC) + bench->options->seconds * count;
    int rounds = 0;
    do {
        for (int i = 0; i < count; i++) { /* each is the first at times */
            int which = (i + rounds) % count;
            take_sample(bench, &tasks[which], level_of(&calls[which]), &copy, &samples[which][rounds]);
        }
        rounds++;
    } while (rounds < bench->options->repetitions || (rounds < MOST_SAMPLES && seconds_of(CLOCK_MONOTONIC) < end));
    free(work);
    for (int i = 0; i < count; i++) {
        summarize(&results[i], samples[i], samples[0], rounds, bench->best_nops);
        results[i].seconds = operation->amount / results[i].rate;
    }
}
