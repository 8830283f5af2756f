#include "portable.h"

/* Row by row over blocks of k, so that both sides stay in L1 whatever the stride. */
#define SDGEN_PACK_KERNEL(type, width, level, symbol)                                             \
    void symbol(size_t k, size_t rows, const void *src, ptrdiff_t src_stride, float *dst)         \
    {                                                                                             \
        for (size_t begin = 0; begin < k; begin += 64) {                                          \
            size_t end = begin + 64 < k ? begin + 64 : k;                                         \
            for (size_t i = 0; i < width; i++) {                                                  \
                const char *row = (const char *)src + (i < rows ? (ptrdiff_t)i : 0) * src_stride; \
                for (size_t p = begin; p < end; p++)                                              \
                    dst[p * width + i] = i < rows ? sdgen_load_##type(row + p * SDGEN_SIZE_##type) : 0;  \
            }                                                                                     \
        }                                                                                         \
    }
#define SDGEN_PACK_PATCHES_KERNEL(type, width, level, symbol)                                                                  \
    void symbol(size_t channels, const struct sdgen_patches *patches, size_t channel_stride, float *dst, size_t dst_stride)    \
    {                                                                                                                          \
        for (size_t c = 0; c < channels; c++, dst = (float *)(void *)((char *)dst + dst_stride))                               \
            for (size_t j = 0; j < width; j++) {                                                                               \
                size_t s = j / 8 * 2, l = j % 8;                                                                               \
                float value = 0;                                                                                               \
                if (patches->mask[s][l])                                                                                       \
                    value = *(const float *)((uintptr_t)patches->segment[s] + c * channel_stride + l * sizeof(float));         \
                else if (patches->mask[s + 1][l])                                                                              \
                    value = *(const float *)((uintptr_t)patches->segment[s + 1] + c * channel_stride + l * sizeof(float));     \
                dst[j] = value;                                                                                                \
            }                                                                                                                  \
    }
#include "kernels.inc"
