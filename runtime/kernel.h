/* What a micro-kernel takes: the argument types shared by the generated assembly and its C form.
 *
 * The generated kernels.h declares every kernel with one of these types; gen/microkernels/ writes the same offsets into the
 * assembly, and a test compares the two.
 */
#ifndef SDGEN_KERNEL_H
#define SDGEN_KERNEL_H

#include <stddef.h>
#include <stdint.h>

/* What happens to a tile of sums on its way to C, in this order:
 *
 *   t = accumulate ? c + sum : sum
 *   t = t * scale                     where scale is not 1
 *   t = t + row_bias[row]             where row_bias is not NULL
 *   t = t + column_bias[column]       where column_bias is not NULL
 *
 * Both biases point at the tile's own first element. */
struct sdgen_epilogue {
    const float *row_bias;    /* [rows] or NULL */
    const float *column_bias; /* [columns] or NULL */
    int32_t columns;          /* columns of the tile that exist, 1 to the tile's width */
    int32_t accumulate;       /* 0: C is overwritten, never read; 1: C is added to */
    float scale;
};

/* Matrix product of packed panels, one tile:
 *
 *   c[i][j] = epilogue(sum over p < k of a[p][i] * b[p][j]),  i < rows, j < columns
 *
 * a: [k][rows], b: [k][width], both packed without gaps, any 4-byte alignment. c: rows of c_stride bytes. k may be 0. Each
 * element is one chain of fused multiply-adds in the order of p, so its value does not depend on the tile that holds it. */
typedef void sdgen_gemm_kernel(size_t k, const float *a, const float *b, float *c, size_t c_stride,
                               const struct sdgen_epilogue *epilogue);

/* Where the sums of a product of few rows go: c[i][j] = sum * scale + column_bias[j]. */
struct sdgen_dot_output {
    float *c;
    int64_t c_stride;         /* bytes */
    const float *column_bias; /* of the tile's first column on, or NULL */
    float scale;
};

/* Matrix product of few rows, nothing packed, `rows` by `columns` of the kernel:
 *
 *   c[i][j] = (sum over p < k of x[i][p] * w[j][p]) * scale + column_bias[j]
 *
 * x and w: rows of k elements side by side, x_stride and w_stride bytes apart, aligned to their elements; w of the kernel's type. k
 * may be 0. The order of the sums is the kernel's own, the same for every element. */
typedef void sdgen_dot_kernel(size_t k, const float *x, ptrdiff_t x_stride, const void *w, ptrdiff_t w_stride,
                              const struct sdgen_dot_output *output);

/* Packing of a panel of rows whose k elements lie side by side (a transposition):
 *
 *   dst[p][i] = float(src[i][p]),  p < k, i < width;  rows from `rows` to width - 1 become 0
 *
 * src: rows of src_stride bytes (may be negative or not a multiple of the element), 1 <= rows <= width; elements of the
 * kernel's type, aligned to nothing. dst: [k][width] without gaps. */
typedef void sdgen_pack_kernel(size_t k, size_t rows, const void *src, ptrdiff_t src_stride, float *dst);

/* Packing of image patches: a panel of `width` pixels that are neighbours in the flattened output image, for one tap (ky, kx) of
 * the convolution kernel and `channels` input channels. The panel is taken in groups of 8 lanes, each of which lies in at most
 * two rows of the image, its two segments:
 *
 *   dst[c][8 g + l] = mask[2 g][l] ? segment[2 g][c][l] : mask[2 g + 1][l] ? segment[2 g + 1][c][l] : 0
 *
 * where segment[s][c] = segment[s] + c * channel_stride bytes. Lanes whose mask is 0 are never read, so a segment may start
 * before its array or end behind it. Masks are 0 or -1; no lane has both. dst: rows of dst_stride bytes. */
struct sdgen_patches {
    const float *segment[8]; /* [2 * width / 8] used */
    int32_t mask[8][8];
};
typedef void sdgen_pack_patches_kernel(size_t channels, const struct sdgen_patches *patches, size_t channel_stride, float *dst,
                                       size_t dst_stride);

/* ---- Winograd's F(m x m, 3 x 3) ----
 *
 * An output tile of m x m pixels is made of an input tile of t x t, t = m + 2: Y = A^T [(G g G^T) * (B^T d B)] A, the product in the
 * middle element by element ("taps", t * t of them), summed over the input channels (Lavin and Gray 2016). Tiles are handled four
 * at a time, neighbours in a row of tiles: a quad. A vector holds one or more quads, whose places in the image are independent.
 * The matrices are in gen/winograd/matrices.py.
 *
 * The same of an image doubled by repeating its pixels ("up"): an output tile of 2 x 2 is made of 3 x 3 pixels of the image that is
 * doubled, so m = 2 and t = 3, and neighbouring tiles are one pixel apart in it. What differs is in the last lines of each comment. */

enum { SDGEN_WINOGRAD_QUADS = 4, SDGEN_WINOGRAD_LOADS = 8, SDGEN_WINOGRAD_TILE = 6 };

/* The input transform of the tiles of one vector (`quads` of them: lanes / 4), channel after channel:
 *
 *   dst[tap][c][4 q + l] = (B^T d B)[tap],  d[i][j] = row i of quad q of channel c, at m l + j
 *
 * where row i begins at x[q] + i * row_stride + c * channel_stride, with 0 for what is masked away. Four neighbours are loaded at a
 * time, at m l for l = 0 to 3 and, where t > 4, at m l + 4 (m = 4: that of l + 1, but for l = 3). Load s of a quad has its mask,
 * and each row i has one. dst: taps of tap_stride bytes, channels of dst_channel_stride bytes (a panel of tiles, of which the
 * vector is a part). Where `masked` is 0 all of a quad's loads are of real memory and the masks are not looked at.
 *
 * Up: d[i][j] is at l + j, with loads at 0, 1 and 2. For a padding of 1, x[q] is one row up and one pixel to the left of the pixel
 * that the quad's first output pixel repeats. */
struct sdgen_winograd_input {
    const float *x[SDGEN_WINOGRAD_QUADS];
    int64_t row_stride, channel_stride, channels;
    float *dst;
    int64_t tap_stride, dst_channel_stride;
    int64_t masked;
    int32_t load_mask[SDGEN_WINOGRAD_LOADS][SDGEN_WINOGRAD_QUADS][4]; /* 0 or -1; by load, quad, neighbour */
    int32_t row_mask[SDGEN_WINOGRAD_TILE][SDGEN_WINOGRAD_QUADS][4];   /* 0 or -1, the same four times; by row, quad */
};
typedef void sdgen_winograd_input_kernel(const struct sdgen_winograd_input *input);

/* The weight transform of 16 output channels:
 *
 *   dst[tap][c][o] = (G g G^T)[tap],  g[i][j] = src[9 c + 3 i + j][o],  o < 16
 *
 * src: [9 channels][16], as sdgen_pack_kernel packs it. dst: taps of tap_stride bytes, each [channels][16]. Up: the same, 9 taps. */
typedef void sdgen_winograd_weights_kernel(size_t channels, const float *src, float *dst, size_t tap_stride);

/* The output transform of the tiles of one vector, output channel after output channel:
 *
 *   y[i][m l + j] = (A^T M A)[i][j] * scale + bias[c],  M[tap] = src[tap][c][4 q + l]
 *
 * written to row i of quad q of channel c, which begins at y[q] + i * row_stride + c * channel_stride; only the rows below rows[q]
 * and the pixels below columns[q] of it are written (0 to m and 0 to 4 m). src: taps of tap_stride bytes, channels of
 * src_channel_stride bytes. Up: the same, m = 2 and 9 taps. */
struct sdgen_winograd_output {
    const float *src;
    int64_t tap_stride, src_channel_stride, channels;
    float *y[SDGEN_WINOGRAD_QUADS];
    int64_t row_stride, channel_stride;
    const float *bias; /* [channels] or NULL */
    int32_t rows[SDGEN_WINOGRAD_QUADS], columns[SDGEN_WINOGRAD_QUADS];
    float scale;
};
typedef void sdgen_winograd_output_kernel(const struct sdgen_winograd_output *output);

/* ---- attention ----
 *
 * Lanes lie along queries: a panel of `width` queries is [depth][width], its scores with the keys are [keys][width], its output is
 * [value depth][width]. So no step crosses lanes, and the elements of K and V are broadcast. */

/* Scores of a panel of queries with tiles of `rows` keys, and their powers of two. For t < tiles, i < rows, j < width:
 *
 *   s = (load ? p[t][i][j] : 0) + sum over c < depth of k[t][c][i] * q[c][j]
 *   where raw:  p[t][i][j] = s
 *   else        x = s * scale + bias[t][i][j] * bias_scale - shift[j]     bias: 0 where NULL
 *               p[t][i][j] = x < -126 ? 0 : 2^x,  sum[j] += p[t][i][j],  maximum[j] = max(maximum[j], x)
 *
 * Each sum over the depth is made in chains of `chunk` summands, the last maybe shorter, which are then added up, one after the other.
 * k: tiles of k_stride bytes, each [depth][rows]; q: [depth][width]; p and bias: [tiles][rows][width]; shift, sum and maximum:
 * [width]; all without gaps otherwise and aligned to 4 bytes. depth may be 0, chunk and tiles are at least 1. 2^x is within two units in the last
 * place where x < 128, and infinite, or any number, from there on. A NaN among the x is one in p and sum; maximum ignores it. */
struct sdgen_scores {
    const float *k, *q;
    float *p;
    const float *bias;
    const float *shift;
    float *sum, *maximum;
    int64_t k_stride, depth, chunk, tiles;
    int32_t load, raw;
    float scale, bias_scale;
};
typedef void sdgen_scores_kernel(const struct sdgen_scores *scores);

/* Packing of rows that stay rows, with conversion:
 *
 *   dst[p][i] = float(src[p][i]),  p < k, i < columns;  0 for i from `columns` to width - 1
 *
 * src: k rows of src_stride bytes (may be negative or not a multiple of the element), 1 <= columns <= width; elements of the
 * kernel's type, aligned to nothing. dst: [k][width] without gaps. */
typedef void sdgen_pack_rows_kernel(size_t k, size_t columns, const void *src, ptrdiff_t src_stride, float *dst);

/* A transposition of `width` lanes, each scaled:
 *
 *   dst[j][p] = src[p][j] * factor[j],  p < k, j < rows
 *
 * src: k rows of src_stride bytes, of which `width` numbers may be read; 1 <= rows <= width; factor: [width]. dst: rows of dst_stride
 * bytes, of which k numbers are written. Aligned to 4 bytes. */
struct sdgen_unpack {
    const float *src;
    int64_t src_stride;
    const float *factor;
    float *dst;
    int64_t dst_stride;
    int64_t k, rows;
};
typedef void sdgen_unpack_kernel(const struct sdgen_unpack *unpack);

/* ---- elementwise operations and norms ---- */

/* A function of each element of a run of n, n >= 0. For i < n:
 *
 *   t = x[i] * scale + shift
 *   t = t * weight[i]      where weight is not NULL
 *   t = t + addend[i]      where addend is not NULL
 *   y[i] = f(t)            or f(t) * factor[i] where factor is not NULL
 *
 * The first line, and the second with the third where both apply, is rounded once. y may be the array that x, weight, addend or
 * factor is, but overlap none of them otherwise. All aligned to 4 bytes. f is the kernel's, p the parameters:
 *
 *   none       t
 *   silu       t / (1 + e^-t)
 *   gelu       t / (1 + e^-2u),  u = sqrt(2 / pi) (t + 0.044715 t^3)      the form with tanh
 *   gelu_erf   t / 2 (1 + erf(t / sqrt(2)))
 *   gelu_quick t / (1 + e^(-1.702 t))
 *   sigmoid    1 / (1 + e^-t)
 *   tanh       tanh(t)
 *   relu       max(t, 0)
 *   leaky      max(t, 0) + p[0] min(t, 0)
 *   clamp      min(max(t, p[0]), p[1])
 *   exp        e^t
 *
 * f(t) is within 4 units in the last place, that of gelu and gelu_erf within 1e-7 |t| beside that; where it is smaller in magnitude than
 * 2^-120 it may be 0 (but for exp and tanh). A NaN stays one. */
struct sdgen_map_run {
    const float *x;
    float *y;
    int64_t n;
    const float *weight, *addend, *factor;
    float scale, shift;
    float parameter[2];
};
typedef void sdgen_map_kernel(const struct sdgen_map_run *run);

/* Sums of n elements, in double precision: sums[0] += sum of x[i], sums[1] += sum of x[i]^2. The order is the kernel's own, the same
 * for every n. x is aligned to 4 bytes, sums to 8. */
typedef void sdgen_moments_kernel(size_t n, const float *x, double *sums);

/* The largest of n elements: *maximum = the largest of *maximum, which is no NaN, and x[i], i < n, where a NaN is passed over. x and
 * maximum are aligned to 4 bytes. */
typedef void sdgen_maximum_kernel(size_t n, const float *x, float *maximum);


/* The part of a hash that reads (hash.c):
 *
 *   sums[p] = sum over i < size / 8 of (low(data[i]) + low(secrets[i + 8 p]) mod 2^32) * (high(data[i]) + high(secrets[i + 8 p]) mod 2^32)
 *             mod 2^64,  p < 4
 *
 * with low and high the halves of a word of 64 bits. size: a multiple of 64 and not 0; data is aligned to nothing; secrets:
 * [size / 8 + 24]. */
typedef void sdgen_nh_kernel(size_t size, const void *data, const uint64_t *secrets, uint64_t *sums);

/* Rounds of a register-only loop, for measuring the processor: each round makes as many instructions as the kernel's banner
 * says. */
typedef void sdgen_probe_kernel(size_t rounds);

#endif
