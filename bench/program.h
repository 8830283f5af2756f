/* A program of its own that computes an operation whenever it is asked to: bench/upstream.c, which does it by ggml.
 *
 * A call that fails returns false and leaves a sentence in `fault`; nothing but program_stop may follow. */
#ifndef SDGEN_BENCH_PROGRAM_H
#define SDGEN_BENCH_PROGRAM_H

#include <stdio.h>
#include <sys/types.h>

#include "operations.h"

struct program {
    const char *path;
    pid_t pid; /* 0 where it does not run */
    int socket; /* its input and its output */
    FILE *answers;
    char fault[512];
};

/* Starts it and hands it the operation's inputs. */
bool program_start(struct program *program, const char *path, const struct operation *operation, int threads);

/* The seconds of a run, of the clock and of the first thread's processor time. */
bool program_run(struct program *program, int runs, double *seconds, double *cpu_seconds);

/* The last run's result becomes the operation's. */
bool program_result(struct program *program, struct operation *operation);

void program_stop(struct program *program);

#endif
