/* The most that the processor can do, by loops of registers only. */
#ifndef SDGEN_BENCH_PEAK_H
#define SDGEN_BENCH_PEAK_H

#include "report.h"

/* Measures every such loop that the processor runs and the filter leaves, and says of the others what it lacks; returns the exit status. */
int measure_peaks(struct bench *bench);

#endif
