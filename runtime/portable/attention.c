#include "portable.h"

#include "exponential.h"

#include <stdbool.h>

enum { WIDTH = 16, LANES = 8, MOST_ROWS = 6 };

/* As in gemm.c: eight numbers, of which the compiler makes what the processor has. */
typedef float vector __attribute__((vector_size(LANES * sizeof(float))));

static inline vector load(const float *src)
{
    vector value;
    memcpy(&value, src, sizeof value);
    return value;
}

static inline void store(float *dst, vector value)
{
    memcpy(dst, &value, sizeof value);
}

#if defined(__clang__)
#define UNROLL _Pragma("clang loop unroll(full)")
#else
#define UNROLL _Pragma("GCC unroll 6")
#endif

/* p = p + k^T q for a part of the depth, p = k^T q where there is none in p yet; with `rows` a constant the sums stay in registers. */
static inline __attribute__((always_inline)) void product(int rows, int64_t depth, const float *k, const float *q, float *p, bool add)
{
    vector sum[MOST_ROWS][WIDTH / LANES] = {{{0}}};
    for (int64_t c = 0; c < depth; c++, k += rows, q += WIDTH) {
        vector q0 = load(q), q1 = load(q + LANES);
        UNROLL
        for (int i = 0; i < rows; i++) {
            sum[i][0] += k[i] * q0;
            sum[i][1] += k[i] * q1;
        }
    }
    UNROLL
    for (int i = 0; i < rows; i++) {
        float *row = p + i * WIDTH;
        store(row, add ? sum[i][0] + load(row) : sum[i][0]);
        store(row + LANES, add ? sum[i][1] + load(row + LANES) : sum[i][1]);
    }
}

/* Of a row of the tile: x of the scores in p, then p = 2^x, with the panel's sum and maximum. */
static void exponentials(const struct sdgen_scores *scores, float *restrict p, const float *restrict bias)
{
    float scale = scores->scale, bias_scale = scores->bias_scale;
    const float *restrict shift = scores->shift;
    float *restrict sum = scores->sum, *restrict maximum = scores->maximum;
    float x[WIDTH];
    for (int j = 0; j < WIDTH; j++)
        x[j] = -shift[j];
    if (bias)
        for (int j = 0; j < WIDTH; j++)
            x[j] += bias[j] * bias_scale;
    for (int j = 0; j < WIDTH; j++) {
        x[j] += p[j] * scale;
        maximum[j] = x[j] > maximum[j] ? x[j] : maximum[j];
        p[j] = sdgen_exp2(x[j]);
        sum[j] += p[j];
    }
}

static inline __attribute__((always_inline)) void all_scores(int rows, const struct sdgen_scores *scores)
{
    const char *k = (const char *)scores->k;
    for (int64_t t = 0; t < scores->tiles; t++, k += scores->k_stride) {
        int64_t tile = t * rows * WIDTH;
        int64_t begin = 0;
        do {
            int64_t depth = scores->depth - begin < scores->chunk ? scores->depth - begin : scores->chunk;
            product(rows, depth, (const float *)(const void *)k + begin * rows, scores->q + begin * WIDTH, scores->p + tile,
                    scores->load || begin);
            begin += depth;
        } while (begin < scores->depth);
        for (int i = 0; i < rows && !scores->raw; i++)
            exponentials(scores, scores->p + tile + i * WIDTH, scores->bias ? scores->bias + tile + i * WIDTH : NULL);
    }
}

#define SDGEN_SCORES_KERNEL(type, rows, width, level, symbol) \
    void symbol(const struct sdgen_scores *scores)            \
    {                                                         \
        all_scores(rows, scores);                             \
    }
#define SDGEN_PACK_ROWS_KERNEL(type, width, level, symbol)                                                            \
    void symbol(size_t k, size_t columns, const void *src, ptrdiff_t src_stride, float *dst)                          \
    {                                                                                                                 \
        for (size_t p = 0; p < k; p++, dst += width) {                                                                \
            const char *row = (const char *)src + (ptrdiff_t)p * src_stride;                                          \
            for (size_t i = 0; i < columns; i++)                                                                      \
                dst[i] = sdgen_load_##type(row + i * SDGEN_SIZE_##type);                                              \
            for (size_t i = columns; i < width; i++)                                                                  \
                dst[i] = 0;                                                                                           \
        }                                                                                                             \
    }
#define SDGEN_UNPACK_KERNEL(type, width, level, symbol)                                                               \
    void symbol(const struct sdgen_unpack *unpack)                                                                    \
    {                                                                                                                 \
        for (int64_t j = 0; j < unpack->rows; j++) {                                                                  \
            const char *src = (const char *)(unpack->src + j);                                                        \
            float *dst = (float *)(void *)((char *)unpack->dst + j * unpack->dst_stride);                             \
            for (int64_t p = 0; p < unpack->k; p++, src += unpack->src_stride)                                        \
                dst[p] = sdgen_load_f32(src) * unpack->factor[j];                                                     \
        }                                                                                                             \
    }
#include "kernels.inc"
