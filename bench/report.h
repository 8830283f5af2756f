/* The output: a table, JSON in Google Benchmark's keys, CSV or Markdown, on stdout; progress on stderr. */
#ifndef SDGEN_BENCH_REPORT_H
#define SDGEN_BENCH_REPORT_H

#include "timing.h"

/* The most that a loop of registers makes. */
struct peak {
    const char *name;
    int bits; /* of its registers */
    const char *unit;
    int threads, runs;
    double rate;   /* the best */
    double spread; /* of the best three, as a share of the best */
};

struct report {
    const struct options *options;
    int rows, printed; /* how many are to come, and how many did */
};

void report_begin(struct report *report, const struct options *options, int rows);
void report_progress(const struct report *report, const char *name); /* what is measured now */
void report_result(struct report *report, const struct result *result);
void report_peak(struct report *report, const struct peak *peak);
void report_end(struct report *report);

#endif
