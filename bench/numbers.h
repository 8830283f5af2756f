/* Time, memory, random numbers and halves. */
#ifndef SDGEN_BENCH_NUMBERS_H
#define SDGEN_BENCH_NUMBERS_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

/* Seconds of a clock, CLOCK_MONOTONIC or CLOCK_THREAD_CPUTIME_ID. */
double seconds_of(clockid_t clock);

/* Whole pages; ends the program where there is not so much memory. */
void *allocate(size_t size);

/* Zero mean, unit variance, near enough to normal; the same in every run. */
float *random_floats(size_t count);
/* The same times 0.02, in half precision. */
uint16_t *random_halves(size_t count);
double half_value(uint16_t half);

#endif
