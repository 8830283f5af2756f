#include "portable.h"

#include <string.h>

static inline float load_f32(const char *src)
{
    float value;
    memcpy(&value, src, sizeof value);
    return value;
}

static inline float of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float load_bf16(const char *src)
{
    uint16_t half;
    memcpy(&half, src, sizeof half);
    return of_bits((uint32_t)half << 16);
}

/* IEEE 754 binary16 to binary32, exactly, NaNs made quiet as hardware does. */
static inline float load_f16(const char *src)
{
    uint16_t half;
    memcpy(&half, src, sizeof half);
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? 0x400000u : 0));
    if (magnitude >= 0x400u)
        return of_bits(sign | ((magnitude << 13) + (112u << 23)));
    float value = (float)magnitude * 0x1p-24f; /* zero and denormals */
    return sign ? -value : value;
}

#define LOAD_SIZE_f32 4
#define LOAD_SIZE_f16 2
#define LOAD_SIZE_bf16 2

/* Row by row over blocks of k, so that both sides stay in L1 whatever the stride. */
#define SDGEN_PACK_KERNEL(type, width, level, symbol)                                             \
    void symbol(size_t k, size_t rows, const void *src, ptrdiff_t src_stride, float *dst)         \
    {                                                                                             \
        for (size_t begin = 0; begin < k; begin += 64) {                                          \
            size_t end = begin + 64 < k ? begin + 64 : k;                                         \
            for (size_t i = 0; i < width; i++) {                                                  \
                const char *row = (const char *)src + (i < rows ? (ptrdiff_t)i : 0) * src_stride; \
                for (size_t p = begin; p < end; p++)                                              \
                    dst[p * width + i] = i < rows ? load_##type(row + p * LOAD_SIZE_##type) : 0;  \
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
