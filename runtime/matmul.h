/* Matrix products: where the arrays of a batch begin, and products of few rows (dot.c). */
#ifndef SDGEN_MATMUL_H
#define SDGEN_MATMUL_H

#include "gemm.h"

static inline const char *sdgen_matmul_x(const struct sdgen_matmul *op, int64_t batch)
{
    return (const char *)op->x + batch % op->batch[0] * op->x_batch_stride[0] + batch / op->batch[0] * op->x_batch_stride[1];
}

static inline const char *sdgen_matmul_w(const struct sdgen_matmul *op, int64_t batch)
{
    return (const char *)op->w + batch % op->batch[0] / op->w_repeat[0] * op->w_batch_stride[0] +
           batch / op->batch[0] / op->w_repeat[1] * op->w_batch_stride[1];
}

static inline char *sdgen_matmul_c(const struct sdgen_matmul *op, int64_t batch)
{
    return (char *)op->c + batch % op->batch[0] * op->c_batch_stride[0] + batch / op->batch[0] * op->c_batch_stride[1];
}

/* Whether the product has so few rows that it is computed without packing. */
bool sdgen_dot_fits(const struct sdgen_plan *plan, const struct sdgen_matmul *op);
void sdgen_dot(const struct sdgen_plan *plan, const struct sdgen_matmul *op, const struct sdgen_team *team);

#endif
