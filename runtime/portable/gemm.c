#include "portable.h"

#include <string.h>

enum { WIDTH = 16, LANES = 8 };

/* Eight numbers; the compiler makes of them what the processor has, two or four instructions where its vectors are shorter. (GCC 12
 * makes scalar code of loops over an array of sums, at a tenth of the rate.) */
typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

static inline vector load(const float *src)
{
    vector value;
    memcpy(&value, src, sizeof value);
    return value;
}

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 6")
#endif

/* With `rows` a constant the sums stay in registers. This file is compiled so that s + a * b becomes a fused multiply-add where the
 * processor has one. */
static inline __attribute__((always_inline)) void gemm(int rows, int a_step, size_t k, const float *a, const float *b, float *c,
                                                       size_t c_stride, const struct sdgen_epilogue *epilogue)
{
    vector sum[6][WIDTH / LANES] = {{{0}}};
    for (size_t p = 0; p < k; p++, a += a_step, b += WIDTH) {
        vector b0 = load(b), b1 = load(b + LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            sum[i][0] += a[i] * b0;
            sum[i][1] += a[i] * b1;
        }
    }
    sdgen_portable_epilogue(rows, WIDTH, (const float *)sum, c, c_stride, epilogue);
}

#define SDGEN_GEMM_KERNEL(type, rows, width, level, symbol)                                                                 \
    void symbol(size_t k, const float *a, const float *b, float *c, size_t c_stride, const struct sdgen_epilogue *epilogue) \
    {                                                                                                                       \
        gemm(rows, rows, k, a, b, c, c_stride, epilogue);                                                                         \
    }
#define SDGEN_GEMM16_KERNEL(type, rows, width, level, symbol)                                                               \
    void symbol(size_t k, const float *a, const float *b, float *c, size_t c_stride, const struct sdgen_epilogue *epilogue) \
    {                                                                                                                       \
        gemm(rows, 16, k, a, b, c, c_stride, epilogue);                                                                     \
    }
#include "kernels.inc"
