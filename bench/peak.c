#include "peak.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "numbers.h"

enum { BEST = 3, MOST_RUNS = 12 };
static const double agreement = 0.02, burst_seconds = 0.0005;

#define TILE_FEATURES (SDGEN_FEATURE_AMX_BF16 | SDGEN_FEATURE_AMX_INT8 | SDGEN_FEATURE_AMX_FP16)
enum { TILE_BITS = 8192 };

static bool is_asked_for(const struct sdgen_kernel_row *row, const struct options *options)
{
    return strcmp(row->operation, "probe") == 0 && *row->type && (!options->filter || strstr(row->name, options->filter));
}

/* What the loop needs and is not there; NULL: nothing. */
static const char *lacking(const struct sdgen_kernel_row *row)
{
    const uint32_t features = sdgen_processor()->features;
    if (sdgen_select_level(features, SDGEN_FORM_ASSEMBLY, row->level) != row->level)
        return sdgen_level_name(row->level);
    for (unsigned bit = 0; bit < 32; bit++)
        if ((row->features & ~features) >> bit & 1)
            return sdgen_feature_name(bit);
    return row->features & TILE_FEATURES && !sdgen_request_tiles() ? "the system's leave to use AMX's tiles" : NULL;
}

static bool is_measured(const struct sdgen_kernel_row *row, const struct options *options)
{
    return is_asked_for(row, options) && !lacking(row);
}

static bool makes_integers(const struct sdgen_kernel_row *row)
{
    return strcmp(row->type, "s8") == 0 || strcmp(row->type, "u8s8") == 0;
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
                         .bits = row->features & TILE_FEATURES ? TILE_BITS : row->level == SDGEN_LEVEL_AVX512 ? 512 : 256,
                         .unit = makes_integers(row) ? "GOP/s" : "GFLOP/s",
                         .threads = bench->options->threads,
                         .runs = runs,
                         .rate = best[0],
                         .spread = 1 - best[BEST - 1] / best[0]};
}

int measure_peaks(struct bench *bench)
{
    struct report report;
    int asked = 0, rows = 0;
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        asked += is_asked_for(sdgen_kernel_row(i), bench->options);
        rows += is_measured(sdgen_kernel_row(i), bench->options);
    }
    if (asked == 0) {
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
    fflush(stdout);
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *row = sdgen_kernel_row(i);
        if (is_asked_for(row, bench->options) && lacking(row))
            fprintf(stderr, "sdgen-bench: %s is not measured: this processor lacks %s\n", row->name, lacking(row));
    }
    return 0;
}
