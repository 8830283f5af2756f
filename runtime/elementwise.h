/* What elementwise operations and norms have in common. */
#ifndef SDGEN_ELEMENTWISE_H
#define SDGEN_ELEMENTWISE_H

#include "gemm.h"
#include "schedule.h"

/* Elements of an item of work: 64 KiB, so that what a thread reads twice is in its L2 the second time. */
enum { SDGEN_MAP_BLOCK = 16384 };

static inline bool sdgen_unaligned(const void *array, const int64_t *strides, int count)
{
    bool unaligned = (uintptr_t)array % sizeof(float) != 0;
    for (int i = 0; i < count; i++)
        unaligned |= strides[i] % (int64_t)sizeof(float) != 0;
    return unaligned;
}

static inline const float *sdgen_at(const float *array, int64_t bytes)
{
    return (const float *)(const void *)((const char *)array + bytes);
}

/* A length cut into parts of about SDGEN_MAP_BLOCK elements, all but the last of one size, a multiple of 16. */
struct sdgen_parts {
    int64_t count, size;
};

static inline struct sdgen_parts sdgen_parts_of(int64_t length)
{
    int64_t count = sdgen_ceil_div(length, SDGEN_MAP_BLOCK);
    int64_t size = count > 1 ? sdgen_ceil_div(sdgen_ceil_div(length, count), 16) * 16 : length;
    return (struct sdgen_parts){.count = sdgen_ceil_div(length, size), .size = size};
}

/* What a head's mask is multiplied by: ALiBi's slope ("Train Short, Test Long", Press et al. 2021), as ggml takes it for any number of
 * heads, or 1 where max_bias is 0 (softmax.c). */
float sdgen_mask_slope(float max_bias, int64_t heads, int64_t head);

#endif
