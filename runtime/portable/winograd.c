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
                if (a[i * inner + k] != 0) /* 0 times infinity is no 0 */
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

/* From tile to tile of the image read, in pixels: of the image doubled, whose tiles are of t = 3, one. */
INLINE int step_of(int m, int t)
{
    return t == 3 ? 1 : m;
}

/* The load of a quad's row that holds pixel j of tile l, and the pixel's place in it. */
INLINE int load_of(int m, int t, int l, int j, int *place)
{
    *place = t == 3 ? l : j % 4;
    return t == 3 ? j : m == 4 ? l + j / 4 : l + (j < 4 ? 0 : QUAD);
}

INLINE void input_transform(int m, int t, const float *b, const struct sdgen_winograd_input *input)
{
    float d[MOST_TILE][MOST_TILE][LANES], v[MOST_TILE][MOST_TILE][LANES];
    for (int64_t c = 0; c < input->channels; c++) {
        for (int i = 0; i < t; i++)
            for (int j = 0; j < t; j++)
                for (int lane = 0; lane < LANES; lane++) {
                    int q = lane / QUAD, l = lane % QUAD, place;
                    int load = load_of(m, t, l, j, &place);
                    int present = !input->masked || (input->load_mask[load][q][place] && input->row_mask[i][q][0]);
                    int64_t pixel = step_of(m, t) * l + j;
                    int64_t offset = i * input->row_stride + c * input->channel_stride + pixel * (int64_t)sizeof(float);
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

INLINE void weights_transform(int t, const float *g_matrix, size_t channels, const float *src, float *dst, size_t tap_stride)
{
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

INLINE void output_transform(int m, int t, const float *a, const struct sdgen_winograd_output *output)
{
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

#define INPUT_KERNEL(m, t, name, symbol)                                  \
    void symbol(const struct sdgen_winograd_input *input)                 \
    {                                                                     \
        input_transform(m, t, &sdgen_winograd_BT_##name[0][0], input);    \
    }
#define WEIGHTS_KERNEL(t, name, symbol)                                                        \
    void symbol(size_t channels, const float *src, float *dst, size_t tap_stride)              \
    {                                                                                          \
        weights_transform(t, &sdgen_winograd_G_##name[0][0], channels, src, dst, tap_stride);  \
    }
#define OUTPUT_KERNEL(m, t, name, symbol)                                 \
    void symbol(const struct sdgen_winograd_output *output)               \
    {                                                                     \
        output_transform(m, t, &sdgen_winograd_AT_##name[0][0], output);  \
    }
#define SDGEN_WINOGRAD_INPUT_KERNEL(m, lanes, level, symbol) INPUT_KERNEL(m, (m) + 2, m, symbol)
#define SDGEN_WINOGRAD_WEIGHTS_KERNEL(m, level, symbol) WEIGHTS_KERNEL((m) + 2, m, symbol)
#define SDGEN_WINOGRAD_OUTPUT_KERNEL(m, lanes, level, symbol) OUTPUT_KERNEL(m, (m) + 2, m, symbol)
#define SDGEN_WINOGRAD_INPUT_UP_KERNEL(m, lanes, level, symbol) INPUT_KERNEL(m, 3, up, symbol)
#define SDGEN_WINOGRAD_WEIGHTS_UP_KERNEL(m, level, symbol) WEIGHTS_KERNEL(3, up, symbol)
#define SDGEN_WINOGRAD_OUTPUT_UP_KERNEL(m, lanes, level, symbol) OUTPUT_KERNEL(m, 3, up, symbol)
#include "kernels.inc"
