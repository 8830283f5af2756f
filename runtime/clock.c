/* What a thread spends its time on. */
#include "sdgen.h"

#include <time.h>

const char *sdgen_phase_name(enum sdgen_phase phase)
{
    static const char *const names[SDGEN_PHASES] = {
        [SDGEN_PHASE_OTHER] = "other",       [SDGEN_PHASE_PACK] = "pack",         [SDGEN_PHASE_TRANSFORM] = "transform",
        [SDGEN_PHASE_PRODUCT] = "product",   [SDGEN_PHASE_EPILOGUE] = "epilogue", [SDGEN_PHASE_ELEMENTS] = "elements",
        [SDGEN_PHASE_WAIT] = "wait",
    };
    return (unsigned)phase < SDGEN_PHASES ? names[phase] : NULL;
}

int64_t sdgen_now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

void sdgen_clock_end(struct sdgen_clock *clock, enum sdgen_phase phase)
{
    const int64_t begin = clock->mark, end = sdgen_now();
    clock->spent[phase] += end - begin;
    clock->mark = end;
    if (clock->ended)
        clock->ended(clock, phase, begin, end);
}
