/* The C form of every kernel: plain C that any compiler vectorizes for any processor, with the prototypes of ../kernel.h. */
#ifndef SDGEN_PORTABLE_H
#define SDGEN_PORTABLE_H

#include "../kernel.h"

#include <string.h>

#define SDGEN_GEMM_KERNEL(type, rows, width, level, symbol) extern sdgen_gemm_kernel symbol;
#define SDGEN_PACK_KERNEL(type, width, level, symbol) extern sdgen_pack_kernel symbol;
#define SDGEN_PACK_PATCHES_KERNEL(type, width, level, symbol) extern sdgen_pack_patches_kernel symbol;
#define SDGEN_DOT_KERNEL(type, rows, columns, level, symbol) extern sdgen_dot_kernel symbol;
#define SDGEN_GEMM16_KERNEL(type, rows, width, level, symbol) extern sdgen_gemm_kernel symbol;
#define SDGEN_WINOGRAD_INPUT_KERNEL(m, lanes, level, symbol) extern sdgen_winograd_input_kernel symbol;
#define SDGEN_WINOGRAD_WEIGHTS_KERNEL(m, level, symbol) extern sdgen_winograd_weights_kernel symbol;
#define SDGEN_WINOGRAD_OUTPUT_KERNEL(m, lanes, level, symbol) extern sdgen_winograd_output_kernel symbol;
#define SDGEN_WINOGRAD_INPUT_UP_KERNEL(m, lanes, level, symbol) extern sdgen_winograd_input_kernel symbol;
#define SDGEN_WINOGRAD_WEIGHTS_UP_KERNEL(m, level, symbol) extern sdgen_winograd_weights_kernel symbol;
#define SDGEN_WINOGRAD_OUTPUT_UP_KERNEL(m, lanes, level, symbol) extern sdgen_winograd_output_kernel symbol;
#define SDGEN_PACK_ROWS_KERNEL(type, width, level, symbol) extern sdgen_pack_rows_kernel symbol;
#define SDGEN_SCORES_KERNEL(type, rows, width, level, symbol) extern sdgen_scores_kernel symbol;
#define SDGEN_UNPACK_KERNEL(type, width, level, symbol) extern sdgen_unpack_kernel symbol;
#define SDGEN_MAP_KERNEL(function, level, symbol) extern sdgen_map_kernel symbol;
#define SDGEN_MOMENTS_KERNEL(type, level, symbol) extern sdgen_moments_kernel symbol;
#define SDGEN_MAXIMUM_KERNEL(type, level, symbol) extern sdgen_maximum_kernel symbol;
#define SDGEN_NH_KERNEL(type, level, symbol) extern sdgen_nh_kernel symbol;
#include "kernels.inc"

/* What sdgen_epilogue says, for a tile of sums [rows][width]. */
void sdgen_portable_epilogue(int rows, int width, const float *sum, float *c, size_t c_stride,
                             const struct sdgen_epilogue *epilogue);

/* Elements of each type as single precision. */

static inline float sdgen_load_f32(const char *src)
{
    float value;
    memcpy(&value, src, sizeof value);
    return value;
}

static inline float sdgen_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline float sdgen_load_bf16(const char *src)
{
    uint16_t half;
    memcpy(&half, src, sizeof half);
    return sdgen_of_bits((uint32_t)half << 16);
}

/* IEEE 754 binary16 to binary32, exactly, NaNs made quiet as hardware does. */
static inline float sdgen_load_f16(const char *src)
{
    uint16_t half;
    memcpy(&half, src, sizeof half);
    uint32_t sign = (uint32_t)(half & 0x8000u) << 16, magnitude = half & 0x7fffu;
    if (magnitude >= 0x7c00u) /* infinity, NaN */
        return sdgen_of_bits(sign | 0x7f800000u | (magnitude & 0x3ffu) << 13 | (magnitude > 0x7c00u ? 0x400000u : 0));
    if (magnitude >= 0x400u)
        return sdgen_of_bits(sign | ((magnitude << 13) + (112u << 23)));
    float value = (float)magnitude * 0x1p-24f; /* zero and denormals */
    return sign ? -value : value;
}

#define SDGEN_SIZE_f32 4
#define SDGEN_SIZE_f16 2
#define SDGEN_SIZE_bf16 2

#endif
