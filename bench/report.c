#include "report.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

/* ---- cells, of tables and Markdown ---- */

struct column {
    const char *title;
    int width; /* negative: to the left */
    bool of_several; /* only where there are several ways */
};

static const struct column result_columns[] = {
    {"", -34, false},       {"form", -18, true},    {"method", -6, false},     {"GFLOP/s", 8, false}, {"peak", 8, false}, {"best", 7, false},
    {"quiet", 7, false}, {"cont.", 7, false}, {"samples", 9, false}, {"ratio", 7, true},    {"error", 9, false},
};
enum { RESULT_COLUMNS = sizeof result_columns / sizeof *result_columns };

static const struct column peak_columns[] = {
    {"", -34, false}, {"bits", 5, false}, {"rate", 9, false}, {"unit", -8, false}, {"spread", 7, false}, {"runs", 5, false},
};
enum { PEAK_COLUMNS = sizeof peak_columns / sizeof *peak_columns, CELL = 80 };

static void print_cells(const struct report *report, const struct column *columns, int count, char cells[][CELL])
{
    const bool md = report->options->format == FORMAT_MD;
    bool any = false;
    for (int i = 0; i < count; i++) {
        if (columns[i].of_several && report->options->entry_count == 1)
            continue;
        if (md)
            printf("| %s ", cells[i]);
        else
            printf("%s%*s", any ? " " : "", columns[i].width, cells[i]);
        any = true;
    }
    printf(md ? "|\n" : "\n");
}

static void print_titles(const struct report *report, const struct column *columns, int count)
{
    char cells[RESULT_COLUMNS][CELL];
    for (int i = 0; i < count; i++)
        snprintf(cells[i], CELL, "%s", columns[i].title);
    print_cells(report, columns, count, cells);
    if (report->options->format != FORMAT_MD)
        return;
    for (int i = 0; i < count; i++)
        snprintf(cells[i], CELL, "%s", columns[i].width < 0 ? "---" : "---:");
    print_cells(report, columns, count, cells);
}

static void percent(char *cell, double share)
{
    if (share == share)
        snprintf(cell, CELL, "%.1f%%", 100 * share);
    else
        snprintf(cell, CELL, "-");
}

static void print_result_cells(const struct report *report, const struct result *result)
{
    char cells[RESULT_COLUMNS][CELL];
    snprintf(cells[0], CELL, "%s", result->shape->name);
    snprintf(cells[1], CELL, "%s", result->label);
    snprintf(cells[2], CELL, "%s", result->method);
    if (result->fault)
        for (int i = 3; i < RESULT_COLUMNS - 1; i++)
            snprintf(cells[i], CELL, "%s", i > 3 ? "-" : result->wrong ? "WRONG" : "FAILED");
    else {
        snprintf(cells[3], CELL, "%.1f", result->rate / 1e9);
        snprintf(cells[4], CELL, "%.1f", result->peak / 1e9);
        percent(cells[5], result->best_share);
        percent(cells[6], result->quiet_share);
        percent(cells[7], result->contended_share);
        snprintf(cells[8], CELL, "%d/%d", result->quiet, result->samples);
        snprintf(cells[9], CELL, *result->label && result->ratio == result->ratio ? "%.3f" : "-", result->ratio);
    }
    snprintf(cells[10], CELL, result->error == result->error ? "%.1e" : "-", result->error);
    print_cells(report, result_columns, RESULT_COLUMNS, cells);
}

static void print_peak_cells(const struct report *report, const struct peak *peak)
{
    char cells[PEAK_COLUMNS][CELL];
    snprintf(cells[0], CELL, "%s", peak->name);
    snprintf(cells[1], CELL, peak->bits ? "%d" : "-", peak->bits);
    snprintf(cells[2], CELL, "%.1f", peak->rate / 1e9);
    snprintf(cells[3], CELL, "%s", peak->unit);
    percent(cells[4], peak->spread);
    snprintf(cells[5], CELL, "%d", peak->runs);
    print_cells(report, peak_columns, PEAK_COLUMNS, cells);
}

/* ---- JSON ---- */

static void print_string(const char *key, const char *text)
{
    printf("\"%s\": \"", key);
    for (; *text; text++)
        if (*text == '"' || *text == '\\')
            printf("\\%c", *text);
        else if ((unsigned char)*text >= ' ')
            putchar(*text);
    printf("\", ");
}

/* JSON has no NaN and no infinity. */
static void print_number(const char *key, double number)
{
    if (isfinite(number))
        printf("\"%s\": %.9g, ", key, number);
    else
        printf("\"%s\": null, ", key);
}

static void print_context(const struct report *report)
{
    const struct options *options = report->options;
    const struct sdgen_processor *processor = sdgen_processor();
    const struct sdgen_blocking blocking = sdgen_blocking(processor);
    char date[32];
    time_t seconds = time(NULL);
    strftime(date, sizeof date, "%Y-%m-%dT%H:%M:%SZ", gmtime(&seconds));
    printf("{\n  \"context\": {");
    print_string("date", date);
    print_string("cpu", processor->name);
    printf("\"num_cpus\": %ld, \"threads\": %d, \"rows\": %d, ", sysconf(_SC_NPROCESSORS_ONLN), options->threads, report->rows);
    printf("\"caches\": {\"l1\": %zu, \"l2\": %zu, \"l3\": %zu}, ", processor->l1, processor->l2, processor->l3);
    printf("\"defaults\": {\"kc\": %lld, \"mc\": %lld, \"nc\": %lld, \"packed_mb\": %lld}},\n  \"benchmarks\": [", (long long)blocking.kc,
           (long long)blocking.mc, (long long)blocking.nc, (long long)(blocking.packed_bytes >> 20));
}

static void print_result_json(const struct report *report, const struct result *result)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s%s", result->shape->name, *result->label ? "/" : "", result->label);
    printf("%s\n    {", report->printed ? "," : "");
    print_string("name", name);
    print_string("run_name", name);
    print_string("run_type", "iteration");
    print_string("shape", result->shape->name);
    print_string("label", result->label);
    print_string("method", result->method);
    if (result->fault) {
        printf("\"error_occurred\": true, ");
        print_string("error_message", result->fault);
    } else {
        const bool flops = strcmp(result->unit, "GFLOP/s") == 0;
        printf("\"iterations\": %d, ", result->samples);
        print_number("real_time", result->seconds);
        print_number("cpu_time", result->cpu_seconds);
        print_string("time_unit", "s");
        print_number(flops ? "gflops" : "gbytes", result->rate / 1e9);
        print_number(flops ? "peak_gflops" : "peak_gbytes", result->peak / 1e9);
        print_number("best_share", result->best_share);
        print_number("quiet_share", result->quiet_share);
        print_number("contended_share", result->contended_share);
        printf("\"quiet_samples\": %d, ", result->quiet);
        print_number("ratio", result->ratio);
        print_number("ratio_noise", result->ratio_noise);
    }
    print_number("error", result->error);
    printf("\"threads\": %d}", result->threads);
}

static void print_peak_json(const struct report *report, const struct peak *peak)
{
    printf("%s\n    {", report->printed ? "," : "");
    print_string("name", peak->name);
    print_string("run_name", peak->name);
    print_string("run_type", "iteration");
    printf("\"iterations\": %d, \"bits\": %d, ", peak->runs, peak->bits);
    print_string("unit", peak->unit);
    print_number("rate", peak->rate / 1e9);
    print_number("spread", peak->spread);
    printf("\"threads\": %d}", peak->threads);
}

/* ---- CSV ---- */

static const char result_titles[] =
    "name,label,method,threads,iterations,real_time,cpu_time,time_unit,rate,peak,unit,best_share,quiet_share,contended_share,quiet_samples,"
    "ratio,ratio_noise,error,error_occurred";
static const char peak_titles[] = "name,bits,threads,iterations,rate,unit,spread";

/* Nothing where it is no number, or void. */
static void print_field(double number, bool is_void)
{
    if (!is_void && isfinite(number))
        printf("%.9g,", number);
    else
        printf(",");
}

static void print_result_csv(const struct result *result)
{
    const bool is_void = result->fault != NULL;
    printf("%s,%s,%s,%d,%d,", result->shape->name, result->label, result->method, result->threads, result->samples);
    print_field(result->seconds, is_void);
    print_field(result->cpu_seconds, is_void);
    printf("s,");
    print_field(result->rate / 1e9, is_void);
    print_field(result->peak / 1e9, is_void);
    printf("%s,", result->unit);
    print_field(result->best_share, is_void);
    print_field(result->quiet_share, is_void);
    print_field(result->contended_share, is_void);
    printf("%d,", result->quiet);
    print_field(result->ratio, is_void);
    print_field(result->ratio_noise, is_void);
    print_field(result->error, false);
    printf("%s\n", is_void ? "true" : "false");
}

/* ---- all of it ---- */

/* Upstream's choice is its own. */
static void print_levels(const struct options *options)
{
    const char *before = "; level";
    for (int i = 0; i < options->entry_count; i++) {
        const struct entry *entry = &options->entries[i];
        if (entry->program)
            continue;
        printf("%s %s", before, sdgen_level_name(entry->level));
        if (options->entry_count > 1)
            printf(" (%s)", entry->label);
        before = ",";
    }
}

void report_begin(struct report *report, const struct options *options, int rows)
{
    const struct sdgen_processor *processor = sdgen_processor();
    *report = (struct report){.options = options, .rows = rows};
    switch (options->format) {
    case FORMAT_JSON: print_context(report); break;
    case FORMAT_CSV: printf("%s\n", options->peak ? peak_titles : result_titles); break;
    default:
        printf("processor: %s; threads: %d", processor->name, options->threads);
        if (options->peak)
            printf("; the best of the runs, and by how much the best three differ");
        else
            print_levels(options);
        printf("\n%s", options->format == FORMAT_MD ? "\n" : "");
        if (!options->peak && options->format == FORMAT_TABLE)
            printf("GFLOP/s and the FMA loop's beside it, medians of the quiet samples (by a loop of NOPs); best: the best sample by the\n"
                   "best of the loop; the median share of the quiet and of the contended samples; how many were quiet; the largest error\n"
                   "against double precision. map, norm: GB/s, beside memcpy.%s\n",
                   options->entry_count > 1 ? " ratio: the median of the ratios to the first form." : "");
        if (options->peak)
            print_titles(report, peak_columns, PEAK_COLUMNS);
        else
            print_titles(report, result_columns, RESULT_COLUMNS);
    }
    fflush(stdout);
}

/* On a terminal one line that changes, elsewhere a line each. */
void report_progress(const struct report *report, const char *name)
{
    const bool terminal = isatty(STDERR_FILENO);
    fprintf(stderr, "%s[%d/%d] %s%s", terminal ? "\r\033[K" : "", report->printed + 1, report->rows, name, terminal ? "" : "\n");
    fflush(stderr);
}

static void clear_progress(void)
{
    if (isatty(STDERR_FILENO)) {
        fprintf(stderr, "\r\033[K");
        fflush(stderr);
    }
}

void report_result(struct report *report, const struct result *result)
{
    clear_progress();
    switch (report->options->format) {
    case FORMAT_JSON: print_result_json(report, result); break;
    case FORMAT_CSV: print_result_csv(result); break;
    default: print_result_cells(report, result); break;
    }
    fflush(stdout);
    report->printed++;
    if (result->wrong)
        fprintf(stderr, "sdgen-bench: %s%s%s: error %g; the result is wrong and the time means nothing\n", result->shape->name,
                *result->label ? " " : "", result->label, result->error);
    else if (result->fault)
        fprintf(stderr, "sdgen-bench: %s%s%s: %s\n", result->shape->name, *result->label ? " " : "", result->label, result->fault);
}

void report_peak(struct report *report, const struct peak *peak)
{
    clear_progress();
    switch (report->options->format) {
    case FORMAT_JSON: print_peak_json(report, peak); break;
    case FORMAT_CSV:
        printf("%s,%d,%d,%d,%.9g,%s,%.9g\n", peak->name, peak->bits, peak->threads, peak->runs, peak->rate / 1e9, peak->unit,
               peak->spread);
        break;
    default: print_peak_cells(report, peak); break;
    }
    fflush(stdout);
    report->printed++;
}

void report_end(struct report *report)
{
    if (report->options->format == FORMAT_JSON)
        printf("\n  ]\n}\n");
}
