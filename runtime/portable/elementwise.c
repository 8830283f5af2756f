/* Elementwise functions and sums. The functions are those of gen/elementwise/functions.py, whose comments say how they are made.
 * This file is compiled so that s + a * b becomes a fused multiply-add where the processor has one. */
#include "exponential.h"
#include "portable.h"

#define INLINE static inline __attribute__((always_inline))

/* A NaN stays one in x. */
INLINE float at_least(float least, float x)
{
    return x < least ? least : x;
}

INLINE float at_most(float most, float x)
{
    return x > most ? most : x;
}

/* e^(factor x), high + low = factor / ln 2, where the result is neither infinite nor denormal. */
INLINE float exponential(float x, float high, float low)
{
    uint32_t n;
    float r = sdgen_exp2_reduce(x, high, low, &n);
    return sdgen_exp2_scale(sdgen_exp2_fraction(r), n);
}

/* numerator / (1 + e^(-factor u)) */
INLINE float logistic(float numerator, float u, float factor, float high, float low)
{
    float clamped = at_most(87.0f / factor, at_least(-88.7f / factor, u));
    float quotient = numerator / (1 + exponential(clamped, -high, -low));
    return u < -88.7f / factor ? 0 : quotient;
}

#define LOG2_E 0x1.715476p0f, 0x1.4ae0cp-26f         /* 1 / ln 2 */
#define LOG2_E_TWICE 0x1.715476p1f, 0x1.4ae0cp-25f   /* 2 / ln 2 */
#define LOG2_E_HALF -0x1.715476p-1f, -0x1.4ae0cp-27f /* -1 / (2 ln 2) */
#define LOG2_E_QUICK 0x1.3a4cbep1f, -0x1.c08ecap-26f /* 1.702 / ln 2 */

INLINE float f_none(float x, const float *p)
{
    (void)p;
    return x;
}

INLINE float f_silu(float x, const float *p)
{
    (void)p;
    return logistic(x, x, 1, LOG2_E);
}

INLINE float f_gelu(float x, const float *p)
{
    (void)p;
    const float c = 1.59576912160573f; /* 2 sqrt(2 / pi) */
    return logistic(x, x * (x * x * (0.044715f * c) + c), 1, LOG2_E);
}

INLINE float f_gelu_quick(float x, const float *p)
{
    (void)p;
    return logistic(x, x, 1.702f, LOG2_E_QUICK);
}

INLINE float f_sigmoid(float x, const float *p)
{
    (void)p;
    return logistic(1, x, 1, LOG2_E);
}

INLINE float f_gelu_erf(float x, const float *p)
{
    (void)p;
    float b = -__builtin_fabsf(x), inside = b < -13.2f ? -13.2f : b;
    float numerator = 0.00407773f * inside - 0.04037362f;
    numerator = numerator * inside + 0.18246535f;
    numerator = numerator * inside - 0.43725622f;
    numerator = numerator * inside + 0.5f;
    float denominator = -0.01022122f * inside + 0.10120845f;
    denominator = denominator * inside - 0.46743827f;
    denominator = denominator * inside + 1.19930625f;
    denominator = denominator * inside - 1.6723974f;
    denominator = denominator * inside + 1;
    float tail = exponential(inside * inside, LOG2_E_HALF) * inside * numerator / denominator;
    return at_least(0, x) + (b < -13.2f ? 0 : tail);
}

INLINE float f_tanh(float x, const float *p)
{
    (void)p;
    uint32_t n;
    float r = sdgen_exp2_reduce(at_most(9.2f, at_least(-9.2f, x)), LOG2_E_TWICE, &n);
    float m = 1.54035111e-04f * r + 1.33907355e-03f;
    m = m * r + 9.61823750e-03f;
    m = m * r + 5.55035743e-02f;
    m = m * r + 2.40226498e-01f;
    m = m * r + 6.93147188e-01f;
    m = m * r;
    float power = sdgen_exp2_scale(1, n);
    m = m * power + (power - 1);
    return m / (m + 2);
}

INLINE float f_relu(float x, const float *p)
{
    (void)p;
    return at_least(0, x);
}

INLINE float f_leaky(float x, const float *p)
{
    return at_least(0, x) + p[0] * at_most(0, x);
}

INLINE float f_clamp(float x, const float *p)
{
    return at_most(p[1], at_least(p[0], x));
}

INLINE float f_exp(float x, const float *p)
{
    (void)p;
    uint32_t n;
    float r = sdgen_exp2_reduce(at_most(89, at_least(-104, x)), LOG2_E, &n);
    uint32_t half = ((n + 0x100) & 0x1ff) / 2 - 0x80; /* of n with its sign, rounded down */
    return sdgen_exp2_scale(sdgen_exp2_fraction(r), half) * sdgen_exp2_scale(1, n - half);
}

/* Steps over a block of elements, which stays in L1; y is written when all else has been read. */
enum { BLOCK = 128 };

#define SDGEN_MAP_KERNEL(function, level, symbol)                                             \
    void symbol(const struct sdgen_map_run *run)                                              \
    {                                                                                         \
        const float scale = run->scale, shift = run->shift;                                   \
        const float parameter[2] = {run->parameter[0], run->parameter[1]};                    \
        for (int64_t begin = 0; begin < run->n; begin += BLOCK) {                             \
            int64_t n = run->n - begin < BLOCK ? run->n - begin : BLOCK;                      \
            float t[BLOCK];                                                                   \
            const float *x = run->x + begin;                                                  \
            for (int64_t i = 0; i < n; i++)                                                   \
                t[i] = x[i] * scale + shift;                                                  \
            if (run->weight && run->addend)                                                   \
                for (int64_t i = 0; i < n; i++)                                               \
                    t[i] = t[i] * run->weight[begin + i] + run->addend[begin + i];            \
            else if (run->weight)                                                             \
                for (int64_t i = 0; i < n; i++)                                               \
                    t[i] *= run->weight[begin + i];                                           \
            else if (run->addend)                                                             \
                for (int64_t i = 0; i < n; i++)                                               \
                    t[i] += run->addend[begin + i];                                           \
            for (int64_t i = 0; i < n; i++)                                                   \
                t[i] = f_##function(t[i], parameter);                                         \
            if (run->factor)                                                                  \
                for (int64_t i = 0; i < n; i++)                                               \
                    t[i] *= run->factor[begin + i];                                           \
            memcpy(run->y + begin, t, (size_t)n * sizeof *t);                                 \
        }                                                                                     \
    }

enum { LANES = 8 };

#define SDGEN_MOMENTS_KERNEL(type, level, symbol)                          \
    void symbol(size_t n, const float *x, double *sums)                    \
    {                                                                      \
        double sum[LANES] = {0}, square[LANES] = {0};                      \
        size_t i = 0;                                                      \
        for (; i + LANES <= n; i += LANES)                                 \
            for (size_t lane = 0; lane < LANES; lane++) {                  \
                double value = (double)x[i + lane];                        \
                sum[lane] += value;                                        \
                square[lane] += value * value;                             \
            }                                                              \
        for (size_t lane = 0; i < n; i++, lane++) {                        \
            double value = (double)x[i];                                   \
            sum[lane] += value;                                            \
            square[lane] += value * value;                                 \
        }                                                                  \
        for (size_t width = LANES / 2; width > 0; width /= 2)              \
            for (size_t lane = 0; lane < width; lane++) {                  \
                sum[lane] += sum[lane + width];                            \
                square[lane] += square[lane + width];                      \
            }                                                              \
        sums[0] += sum[0];                                                 \
        sums[1] += square[0];                                              \
    }

#define SDGEN_MAXIMUM_KERNEL(type, level, symbol)                                          \
    void symbol(size_t n, const float *x, float *maximum)                                  \
    {                                                                                      \
        float largest[LANES];                                                              \
        for (size_t lane = 0; lane < LANES; lane++)                                        \
            largest[lane] = *maximum;                                                      \
        size_t i = 0;                                                                      \
        for (; i + LANES <= n; i += LANES)                                                 \
            for (size_t lane = 0; lane < LANES; lane++)                                    \
                largest[lane] = x[i + lane] > largest[lane] ? x[i + lane] : largest[lane]; \
        for (; i < n; i++)                                                                 \
            largest[0] = x[i] > largest[0] ? x[i] : largest[0];                            \
        for (size_t lane = 0; lane < LANES; lane++)                                        \
            *maximum = largest[lane] > *maximum ? largest[lane] : *maximum;                \
    }
#include "kernels.inc"
