/* The ways a convolution is computed. */
#ifndef SDGEN_CONV_H
#define SDGEN_CONV_H

#include "gemm.h"

/* The norm before a convolution, by itself; where there is none, one of no groups. */
struct sdgen_group_norm sdgen_conv2d_norm(const struct sdgen_conv2d *op);

/* Directly, any convolution (conv.c). */
size_t sdgen_conv2d_direct_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int nth);
void sdgen_conv2d_direct(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_team *team);

/* By Winograd's F(m x m, 3 x 3), m of 2, 3 and 4, or 2 of an image doubled, where it fits (winograd.c): not where padding leaves a
 * pixel fewer than 4 products, for it has the rounding errors of its whole tile. */
bool sdgen_winograd_fits(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m);
size_t sdgen_winograd_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, int nth);
int64_t sdgen_winograd_sum_pieces(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m);
void sdgen_winograd(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, const struct sdgen_team *team);

#endif
