#include "portable.h"

#include "winograd.h" /* generated: the matrices */

enum { LANES = 16, QUAD = 4, MOST_M = 4, MOST_TILE = 6 };

/* In what follows m is a constant to the compiler, which unrolls the loops over it and vectorizes those over lanes. */
#define INLINE static inline __attribute__((always_inline))

/* A matrix times the columns of a matrix of vectors: y[i][j] = sum over k of a[i][k] x[k][j]. */
INLINE void times(int rows, int inner, int columns, const float *a, float x[][MOST_TILE][LANES], float y[][MOST_TILE][LANES])
{
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < columns; j++) {
            float sum[LANES] = {0};
            for (int k = 0; k < inner; k++)
                for (int lane = 0; lane < LANES; lane++)
                    sum[lane] += a[i * inner + k] * x[k][j][lane];
            for (int lane = 0; lane < LANES; lane++)
                y[i][j][lane] = sum[lane];
        }
}

/* y = a x a^T */
INLINE void transform(int rows, int inner, const float *a, float x[][MOST_TILE][LANES], float y[][MOST_TILE][LANES])
{
    float half[MOST_TILE][MOST_TILE][LANES], turned[MOST_TILE][MOST_TILE][LANES], turned_y[MOST_TILE][MOST_TILE][LANES];
    times(rows, inner, inner, a, x, half);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < inner; j++)
            for (int lane = 0; lane < LANES; lane++)
                turned[j][i][lane] = half[i][j][lane];
    times(rows, inner, rows, a, turned, turned_y);
    for (int i = 0; i < rows; i++)
        for (int j = 0; j < rows; j++)
            for (int lane = 0; lane < LANES; lane++)
                y[i][j][lane] = turned_y[j][i][lane];
}

/* The load of a quad's row that holds pixel m l + j, and the pixel's place in it. */
INLINE int load_of(int m, int l, int j, int *place)
{
    int load = m == 4 ? l + j / 4 : l + (j < 4 ? 0 : QUAD);
    *place = j % 4;
    return load;
}

INLINE void input_transform(int m, const float *b, const struct sdgen_winograd_input *input)
{
    int t = m + 2;
    float d[MOST_TILE][MOST_TILE][LANES], v[MOST_TILE][MOST_TILE][LANES];
    for (int64_t c = 0; c < input->channels; c++) {
        for (int i = 0; i < t; i++)
            for (int j = 0; j < t; j++)
                for (int lane = 0; lane < LANES; lane++) {
                    int q = lane / QUAD, l = lane % QUAD, place;
                    int load = load_of(m, l, j, &place);
                    int present = !input->masked || (input->load_mask[load][q][place] && input->row_mask[i][q][0]);
                    int64_t offset = i * input->row_stride + c * input->channel_stride + (m * l + j) * (int64_t)sizeof(float);
                    d[i][j][lane] = present ? *(const float *)((uintptr_t)input->x[q] + (uintptr_t)offset) : 0.0f;
                }
        transform(t, t, b, d, v);
        float *dst = (float *)(void *)((char *)input->dst + c * input->dst_channel_stride);
        for (int i = 0; i < t; i++)
            for (int j = 0; j < t; j++)
                for (int lane = 0; lane < LANES; lane++)
                    ((float *)(void *)((char *)dst + (i * t + j) * input->tap_stride))[lane] = v[i][j][lane];
    }
}

INLINE void weights_transform(int m, const float *g_matrix, size_t channels, const float *src, float *dst, size_t tap_stride)
{
    int t = m + 2;
    float g[MOST_TILE][MOST_TILE][LANES], u[MOST_TILE][MOST_TILE][LANES];
    for (size_t c = 0; c < channels; c++, src += 9 * LANES, dst += LANES) {
        for (int i = 0; i < 3; i++)
            for (int j = 0; j < 3; j++)
                for (int lane = 0; lane < LANES; lane++)
                    g[i][j][lane] = src[(3 * i + j) * LANES + lane];
        transform(t, 3, g_matrix, g, u);
        for (int i = 0; i < t; i++)
            for (int j = 0; j < t; j++)
                for (int lane = 0; lane < LANES; lane++)
                    ((float *)(void *)((char *)dst + (size_t)(i * t + j) * tap_stride))[lane] = u[i][j][lane];
    }
}

INLINE void output_transform(int m, const float *a, const struct sdgen_winograd_output *output)
{
    int t = m + 2;
    float sums[MOST_TILE][MOST_TILE][LANES], y[MOST_TILE][MOST_TILE][LANES];
    for (int64_t c = 0; c < output->channels; c++) {
        const char *src = (const char *)output->src + c * output->src_channel_stride;
        for (int i = 0; i < t; i++)
            for (int j = 0; j < t; j++)
                for (int lane = 0; lane < LANES; lane++)
                    sums[i][j][lane] = ((const float *)(const void *)(src + (i * t + j) * output->tap_stride))[lane];
        transform(m, t, a, sums, y);
        for (int q = 0; q < LANES / QUAD; q++)
            for (int i = 0; i < output->rows[q]; i++) {
                char *row = (char *)output->y[q] + i * output->row_stride + c * output->channel_stride;
                for (int x = 0; x < output->columns[q]; x++) {
                    float value = y[i][x % m][q * QUAD + x / m] * output->scale;
                    ((float *)(void *)row)[x] = output->bias ? value + output->bias[c] : value;
                }
            }
    }
}

#define SDGEN_WINOGRAD_INPUT_KERNEL(m, lanes, level, symbol)              \
    void symbol(const struct sdgen_winograd_input *input)                 \
    {                                                                     \
        input_transform(m, &sdgen_winograd_BT_##m[0][0], input);          \
    }
#define SDGEN_WINOGRAD_WEIGHTS_KERNEL(m, level, symbol)                                      \
    void symbol(size_t channels, const float *src, float *dst, size_t tap_stride)            \
    {                                                                                        \
        weights_transform(m, &sdgen_winograd_G_##m[0][0], channels, src, dst, tap_stride);   \
    }
#define SDGEN_WINOGRAD_OUTPUT_KERNEL(m, lanes, level, symbol)             \
    void symbol(const struct sdgen_winograd_output *output)               \
    {                                                                     \
        output_transform(m, &sdgen_winograd_AT_##m[0][0], output);        \
    }
#include "kernels.inc"
