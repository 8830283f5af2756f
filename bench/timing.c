#include "timing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "numbers.h"
#include "program.h"

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

/* A task that is run by all threads, or by a program, and so often in turn that the clock is fine enough. */
struct task {
    team_task *function;
    void *data, *work;
    size_t work_size;
    struct program *program; /* or NULL */
    double amount;           /* of a run */
    int runs;
};

/* Seconds of a run. */
struct times {
    double clock, cpu; /* the first thread's processor time */
};

static struct times time_by_team(struct bench *bench, const struct task *task)
{
    const struct times start = {seconds_of(CLOCK_MONOTONIC), seconds_of(CLOCK_THREAD_CPUTIME_ID)};
    for (int i = 0; i < task->runs; i++)
        team_run(bench->team, task->function, task->data, task->work, task->work_size);
    return (struct times){(seconds_of(CLOCK_MONOTONIC) - start.clock) / task->runs,
                          (seconds_of(CLOCK_THREAD_CPUTIME_ID) - start.cpu) / task->runs};
}

/* What is asked of a program while the team rests. */
struct question {
    struct program *program;
    int runs;
    struct times times;
};

static void ask_to_run(void *data)
{
    struct question *question = data;
    if (!program_run(question->program, question->runs, &question->times.clock, &question->times.cpu))
        question->times = (struct times){NAN, NAN};
}

static struct times time_by_program(struct bench *bench, const struct task *task)
{
    struct question question = {.program = task->program, .runs = task->runs};
    team_rest(bench->team, ask_to_run, &question);
    return question.times;
}

static struct times time_task(struct bench *bench, const struct task *task)
{
    return task->program ? time_by_program(bench, task) : time_by_team(bench, task);
}

double probe_rate(struct bench *bench, struct probe *probe)
{
    return probe->amount / time_task(bench, &(struct task){.function = probe_task, .data = probe, .runs = 1}).clock;
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
    double before = nop_rate(bench);
    struct times times = time_task(bench, task);
    sample->rate = task->amount / times.clock;
    sample->cpu_seconds = times.cpu;
    sample->nops = fmin(before, nop_rate(bench));
    sample->peak = copy->amount > 0 ? copy->amount / time_task(bench, copy).clock : probe_rate(bench, &bench->fma[level]);
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

/* Medians of what is_quiet says, and of the rest; without samples of the first way, it is not compared with that. */
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
    const int compared = first ? ratios_of(ratios, samples, first, count, best_nops) : 0;
    result->ratio = compared ? median(ratios, compared) : NAN;
    result->ratio_noise = compared ? noise_of(ratios, compared) : NAN;
}

/* ---- all ways of an operation ---- */

/* What is asked of a program before it is timed. */
struct beginning {
    struct program *program;
    const char *path;
    struct operation *operation;
    int threads;
    double seconds; /* of its first run; NaN where it failed */
};

static void begin_program(void *data)
{
    struct beginning *beginning = data;
    double cpu_seconds;
    if (!program_start(beginning->program, beginning->path, beginning->operation, beginning->threads) ||
        !program_run(beginning->program, 1, &beginning->seconds, &cpu_seconds) ||
        !program_result(beginning->program, beginning->operation))
        beginning->seconds = NAN;
}

/* Its first run, which is checked. */
static double run_first(struct bench *bench, struct operation *operation, const struct call *call, const struct task *task)
{
    spoil_result(operation);
    if (!task->program)
        return time_task(bench, task).clock;
    struct beginning beginning = {
        .program = task->program, .path = call->program, .operation = operation, .threads = bench->options->threads};
    team_rest(bench->team, begin_program, &beginning);
    return beginning.seconds;
}

static void fail_result(struct result *result, const struct task *task)
{
    result->fault = task->program->fault;
    result->wrong = false;
    result->error = NAN;
}

/* Unlike a result that is wrong, it has no samples. */
static bool has_failed(const struct result *result)
{
    return result->fault && !result->wrong;
}

static void begin_call(struct bench *bench, struct operation *operation, struct call *call, struct task *task, struct result *result)
{
    const double seconds = run_first(bench, operation, call, task);
    if (seconds < LEAST_SECONDS)
        task->runs = (int)ceil(LEAST_SECONDS / fmax(seconds, LEAST_SECONDS / MOST_RUNS));
    result->method = call_method(call);
    result->unit = operation->copy.size ? "GB/s" : "GFLOP/s";
    if (seconds != seconds) {
        fail_result(result, task);
        return;
    }
    result->error = call_error(call);
    result->wrong = !(result->error <= call_limit(call));
    if (result->wrong)
        result->fault = "the result is wrong";
}

/* A round of samples, the first of them another one each time. */
static void take_samples(struct bench *bench, const struct call *calls, const struct task *tasks, const struct task *copy,
                         struct result *results, struct sample samples[][MOST_SAMPLES], int count, int round)
{
    for (int i = 0; i < count; i++) {
        const int which = (i + round) % count;
        struct sample *sample = &samples[which][round];
        if (has_failed(&results[which]))
            continue;
        take_sample(bench, &tasks[which], level_of(&calls[which]), copy, sample);
        if (sample->rate != sample->rate)
            fail_result(&results[which], &tasks[which]);
    }
}

void time_calls(struct bench *bench, struct operation *operation, struct call *calls, struct result *results, int count)
{
    static struct sample samples[MOST_ENTRIES][MOST_SAMPLES];
    static struct program programs[MOST_ENTRIES];
    struct task tasks[MOST_ENTRIES], copy = {.function = copy_task, .data = &operation->copy};
    size_t work_size = 0;
    for (int i = 0; i < count; i++) {
        size_t size = calls[i].program ? 0 : call_work_size(&calls[i], bench->options->threads);
        work_size = size > work_size ? size : work_size;
    }
    void *work = work_size ? allocate(work_size) : NULL;
    for (int i = 0; i < count; i++) {
        tasks[i] = (struct task){.function = call_task,
                                 .data = &calls[i],
                                 .work = work,
                                 .work_size = work_size,
                                 .program = calls[i].program ? &programs[i] : NULL,
                                 .amount = operation->amount,
                                 .runs = 1};
        begin_call(bench, operation, &calls[i], &tasks[i], &results[i]);
        copy.runs = tasks[i].runs > copy.runs ? tasks[i].runs : copy.runs;
    }
    if (operation->copy.size)
        copy.amount = operation->amount;
    double end = seconds_of(CLOCK_MONOTONIC) + bench->options->seconds * count;
    int rounds = 0;
    do
        take_samples(bench, calls, tasks, &copy, results, samples, count, rounds++);
    while (rounds < bench->options->repetitions || (rounds < MOST_SAMPLES && seconds_of(CLOCK_MONOTONIC) < end));
    free(work);
    for (int i = 0; i < count; i++) {
        if (tasks[i].program)
            program_stop(tasks[i].program);
        if (has_failed(&results[i]))
            continue;
        summarize(&results[i], samples[i], has_failed(&results[0]) ? NULL : samples[0], rounds, bench->best_nops);
        results[i].seconds = operation->amount / results[i].rate;
    }
}
