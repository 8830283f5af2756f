/* How working memory is cut: what lies in it begins with a cache line. */
#ifndef SDGEN_MEMORY_H
#define SDGEN_MEMORY_H

#include <stddef.h>
#include <stdint.h>

enum { SDGEN_LINE = 64 };

static inline size_t sdgen_line_up(size_t size)
{
    return (size + SDGEN_LINE - 1) / SDGEN_LINE * SDGEN_LINE;
}

static inline size_t sdgen_floats_size(int64_t count)
{
    return sdgen_line_up((size_t)count * sizeof(float));
}

/* The first line of memory of any alignment, SDGEN_LINE bytes of which this may cost. */
static inline char *sdgen_first_line(void *memory)
{
    return (char *)memory + (SDGEN_LINE - (uintptr_t)memory % SDGEN_LINE) % SDGEN_LINE;
}

#endif
