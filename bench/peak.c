#include "peak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "numbers.h"

enum { BEST = 3, MOST_RUNS = 12 };
static const double agreement = 0.02, burst_seconds = 0.0005;

static bool is_measured(const struct sdgen_kernel_row *row, const struct options *options)
{
    return strcmp(row->operation, "probe") == 0 && strncmp(row->name, "probe_nop", 9) != 0 &&
           sdgen_select_level(sdgen_processor()->features, SDGEN_FORM_ASSEMBLY, row->level) == row->level &&
           (!options->filter || strstr(row->name, options->filter));
}

/* The best of the bursts of a third of the time: those that nothing interrupted. */
static double best_burst(struct bench *bench, struct probe *probe)
{
    double end = seconds_of(CLOCK_MONOTONIC) + bench->options->seconds / BEST, best = 0;
    do
        best = fmax(best, probe_rate(bench, probe));
    while (seconds_of(CLOCK_MONOTONIC) < end);
    return best;
}

static void insert(double *best, int count, double rate)
{
    for (int i = 0; i < count; i++)
        if (rate > best[i]) {
            double less = best[i];
            best[i] = rate;
            rate = less;
        }
}

static struct peak measure(struct bench *bench, const struct sdgen_kernel_row *row)
{
    struct probe probe = calibrated_probe(bench, row, burst_seconds);
    double best[BEST] = {0};
    int runs = 0;
    do {
        insert(best, BEST, best_burst(bench, &probe));
        runs++;
    } while (runs < BEST || (runs < MOST_RUNS && best[BEST - 1] < (1 - agreement) * best[0]));
    return (struct peak){.name = row->name,
                         .bits = row->level == SDGEN_LEVEL_AVX512 ? 512 : row->level == SDGEN_LEVEL_AVX2 ? 256 : 0,
                         .unit = strncmp(row->name, "probe_fma", 9) == 0 ? "GFLOP/s" : "GOP/s",
                         .threads = bench->options->threads,
                         .runs = runs,
                         .rate = best[0],
                         .spread = 1 - best[BEST - 1] / best[0]};
}

int measure_peaks(struct bench *bench)
{
    struct report report;
    int rows = 0;
    for (size_t i = 0; i < sdgen_kernel_count(); i++)
        rows += is_measured(sdgen_kernel_row(i), bench->options);
    if (rows == 0) {
        fprintf(stderr, "sdgen-bench: --filter %s: no loop's name holds it\n", bench->options->filter);
        return 2;
    }
    report_begin(&report, bench->options, rows);
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *row = sdgen_kernel_row(i);
        if (!is_measured(row, bench->options))
            continue;
        report_progress(&report, row->name);
        struct peak peak = measure(bench, row);
        report_peak(&report, &peak);
        if (peak.spread > agreement)
            fprintf(stderr, "sdgen-bench: %s: no three of %d runs agree within %.0f%%: the machine is too busy to say\n", row->name,
                    peak.runs, 100 * agreement);
    }
    report_end(&report);
    return 0;
}
