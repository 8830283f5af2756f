/* Times kernels and operations as shares of the most FMAs that the processor makes, or of what memcpy moves, measured beside them. */
#include <stdio.h>

#include "peak.h"

/* The ways of computing a shape: those asked for, or a kernel's own. */
static int ways_of(const struct options *options, const struct shape *shape, struct entry *entries)
{
    if (shape->kind == SHAPE_KERNEL) {
        entries[0] = (struct entry){.level = shape->kernel->level, .tuning = sdgen_untuned()};
        return 1;
    }
    for (int i = 0; i < options->entry_count; i++) {
        entries[i] = options->entries[i];
        if (options->entry_count == 1)
            *entries[i].label = 0;
    }
    return options->entry_count;
}

static int time_shapes(struct bench *bench)
{
    static struct entry entries[MOST_ENTRIES];
    static struct call calls[MOST_ENTRIES];
    static struct result results[MOST_ENTRIES];
    const struct options *options = bench->options;
    struct report report;
    int rows = 0, status = 0;
    for (int s = 0; s < options->shape_count; s++)
        rows += ways_of(options, &options->shapes[s], entries);
    for (int s = 0; s < options->shape_count; s++) {
        const char *fault = shape_fault(&options->shapes[s]);
        if (fault) {
            fprintf(stderr, "sdgen-bench: %s: %s\n", options->shapes[s].name, fault);
            return 2;
        }
    }
    report_begin(&report, options, rows);
    for (int s = 0; s < options->shape_count; s++) {
        const struct shape *shape = &options->shapes[s];
        struct operation operation;
        report_progress(&report, shape->name);
        const char *fault = make_operation(&operation, shape, options->threads);
        if (fault) {
            report_end(&report);
            fprintf(stderr, "sdgen-bench: %s: %s\n", shape->name, fault);
            return 2;
        }
        const int count = ways_of(options, shape, entries);
        for (int i = 0; i < count; i++) {
            calls[i] = (struct call){.operation = &operation, .plan = sdgen_plan(entries[i].level, &entries[i].tuning),
                                     .program = entries[i].program};
            results[i] = (struct result){.shape = shape, .label = entries[i].label, .threads = options->threads};
        }
        time_calls(bench, &operation, calls, results, count);
        for (int i = 0; i < count; i++) {
            report_result(&report, &results[i]);
            status |= results[i].fault != NULL;
        }
        free_operation(&operation);
    }
    report_end(&report);
    return status;
}

int main(int argc, char **argv)
{
    static struct options options;
    struct bench bench;
    parse_options(&options, argc, argv);
    if (!start_bench(&bench, &options))
        return 1;
    int status = options.peak ? measure_peaks(&bench) : time_shapes(&bench);
    stop_bench(&bench);
    return status;
}
