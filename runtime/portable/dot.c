#include "portable.h"

/* Sums of one element, added lane by lane, so that the compiler has vectors to make of them. */
enum { LANES = 16 };

static inline __attribute__((always_inline)) float sum_of(const float sums[LANES])
{
    float folded[LANES / 2];
    for (int lane = 0; lane < LANES / 2; lane++)
        folded[lane] = sums[lane] + sums[lane + LANES / 2];
    for (int width = LANES / 4; width > 0; width /= 2)
        for (int lane = 0; lane < width; lane++)
            folded[lane] += folded[lane + width];
    return folded[0];
}

#define SDGEN_DOT_KERNEL(type, rows, columns, level, symbol)                                                                    \
    void symbol(size_t k, const float *x, ptrdiff_t x_stride, const void *w, ptrdiff_t w_stride,                                \
                const struct sdgen_dot_output *output)                                                                          \
    {                                                                                                                           \
        for (int j = 0; j < columns; j++)                                                                                       \
            for (int i = 0; i < rows; i++) {                                                                                    \
                const float *xs = (const float *)(const void *)((const char *)x + i * x_stride);                                \
                const char *ws = (const char *)w + j * w_stride;                                                                \
                float sums[LANES] = {0};                                                                                        \
                size_t p = 0;                                                                                                   \
                for (; p + LANES <= k; p += LANES)                                                                              \
                    for (size_t lane = 0; lane < LANES; lane++)                                                                 \
                        sums[lane] += xs[p + lane] * sdgen_load_##type(ws + (p + lane) * SDGEN_SIZE_##type);                    \
                for (size_t lane = 0; p < k; p++, lane++)                                                                       \
                    sums[lane] += xs[p] * sdgen_load_##type(ws + p * SDGEN_SIZE_##type);                                        \
                float result = sum_of(sums) * output->scale;                                                                    \
                ((float *)(void *)((char *)output->c + i * output->c_stride))[j] =                                              \
                    output->column_bias ? result + output->column_bias[j] : result;                                             \
            }                                                                                                                   \
    }
#include "kernels.inc"
