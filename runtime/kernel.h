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

/* Rounds of a register-only loop, for measuring the processor: each round makes as many instructions as the kernel's banner
 * says. */
typedef void sdgen_probe_kernel(size_t rounds);

#endif
