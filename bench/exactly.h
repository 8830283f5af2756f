/* Some of the outputs of an operation beside those in double precision: the largest error seen, |result - exact| / sum of the
 * magnitudes of what is summed; infinite where a result is no number. */
#ifndef SDGEN_BENCH_EXACTLY_H
#define SDGEN_BENCH_EXACTLY_H

#include "sdgen.h"

double tile_error(const struct sdgen_kernel_row *kernel, int64_t k, const float *a, const float *b, const float *c);
double matmul_error(const struct sdgen_matmul *op);           /* w of half precision, one batch, no bias */
double conv2d_error(const struct sdgen_conv2d *op);           /* the same */
double attention_error(const struct sdgen_attention *op);     /* k and v of single precision, no mask */
double map_error(const struct sdgen_map *op);                 /* of two dimensions; an addend at most */
double group_norm_error(const struct sdgen_group_norm *op);   /* one batch */
double layer_norm_error(const struct sdgen_layer_norm *op);   /* of two dimensions, not rms */

#endif
