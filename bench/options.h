/* The command line. */
#ifndef SDGEN_BENCH_OPTIONS_H
#define SDGEN_BENCH_OPTIONS_H

#include "shapes.h"

enum { MOST_ENTRIES = 16, MOST_SHAPES = 512 };

enum format { FORMAT_TABLE, FORMAT_JSON, FORMAT_CSV, FORMAT_MD };

/* A way of computing each operation: a row of the output. */
struct entry {
    char label[32];
    enum sdgen_level level;
    struct sdgen_tuning tuning;
    const char *program; /* that computes them, or NULL */
};

struct options {
    int threads, repetitions;
    double seconds;
    enum format format;
    const char *filter; /* or NULL */
    bool peak;
    int entry_count, shape_count;
    struct entry entries[MOST_ENTRIES];
    struct shape shapes[MOST_SHAPES]; /* those that the filter leaves */
};

/* Ends the program, in a sentence, where the arguments are wrong, and where they ask for help. */
void parse_options(struct options *options, int argc, char **argv);

#endif
