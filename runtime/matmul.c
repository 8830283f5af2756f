#include "matmul.h"

const char *sdgen_matmul_check(const struct sdgen_matmul *op)
{
    if (op->m <= 0 || op->n <= 0 || op->k <= 0 || op->batch[0] <= 0 || op->batch[1] <= 0)
        return "an extent is not positive";
    if (op->w_repeat[0] <= 0 || op->w_repeat[1] <= 0)
        return "w_repeat is not positive";
    if ((unsigned)op->w_type >= SDGEN_TYPES)
        return "w_type is none of F32, F16 and BF16";
    if (!op->w || !op->x || !op->c)
        return "an array is missing";
    if ((uintptr_t)op->w % (uintptr_t)sdgen_type_size(op->w_type) || op->w_stride % sdgen_type_size(op->w_type) ||
        op->w_batch_stride[0] % sdgen_type_size(op->w_type) || op->w_batch_stride[1] % sdgen_type_size(op->w_type))
        return "w or one of its strides is not aligned to its elements";
    if ((uintptr_t)op->x % sizeof(float) || op->x_stride % (int64_t)sizeof(float) ||
        op->x_batch_stride[0] % (int64_t)sizeof(float) || op->x_batch_stride[1] % (int64_t)sizeof(float))
        return "x or one of its strides is not aligned to its elements";
    if ((uintptr_t)op->c % sizeof(float) || op->c_stride % (int64_t)sizeof(float) ||
        op->c_batch_stride[0] % (int64_t)sizeof(float) || op->c_batch_stride[1] % (int64_t)sizeof(float))
        return "c or one of its strides is not aligned to its elements";
    if (op->m > 1 && op->c_stride < op->n * (int64_t)sizeof(float))
        return "rows of c overlap";
    if (op->gated && (op->after.shift || op->after.weight.data || op->after.addend.data || op->after.factor.data))
        return "what is gated has more than a function after it";
    if (op->after.addend.data == op->c && op->scale != 1)
        return "an addend that is c is not scaled, the product is";
    return sdgen_after_check(&op->after, op->c, (const int64_t[]){op->m > 1 ? op->c_stride : -1, op->batch[0] > 1 ? op->c_batch_stride[0] : -1,
                                                                    op->batch[1] > 1 ? op->c_batch_stride[1] : -1});
}

static void pack_x(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t row, int64_t rows,
                   int64_t begin, int64_t end, float *dst)
{
    const struct sdgen_matmul *op = gemm->operation;
    const char *x = sdgen_matmul_x(op, batch) + row * op->x_stride + begin * (int64_t)sizeof(float);
    kernels->pack[SDGEN_F32][rows]((size_t)(end - begin), (size_t)rows, x, (ptrdiff_t)op->x_stride, dst);
}

static void pack_w(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t column,
                   int64_t columns, int64_t begin, int64_t end, float *dst)
{
    const struct sdgen_matmul *op = gemm->operation;
    const char *w = sdgen_matmul_w(op, batch) + begin * sdgen_type_size(op->w_type);
    sdgen_gemm_pack_columns(gemm, kernels, op->w_type, w + column * op->w_stride, op->w_stride, columns, end - begin, dst);
}

static float *c_of(const struct sdgen_gemm *gemm, int64_t batch)
{
    const struct sdgen_matmul *op = gemm->operation;
    return (float *)(void *)sdgen_matmul_c(op, batch);
}

static struct sdgen_gemm gemm_of(const struct sdgen_plan *plan, const struct sdgen_matmul *op)
{
    struct sdgen_gemm gemm = {
        .tile = sdgen_select_tile(plan, op->m, op->n),
        .rows = op->m,
        .columns = op->n,
        .depth = op->k,
        .batches = op->batch[0] * op->batch[1],
        .c_stride = op->c_stride,
        .scale = op->scale,
        .column_bias = op->bias,
        .operation = op,
        .pack_a = pack_x,
        .pack_b = pack_w,
        .c = c_of,
        .accumulate = op->after.addend.data == op->c,
        .after = op->after,
        .gated = op->gated,
        .batch0 = op->batch[0],
    };
    if (gemm.accumulate)
        gemm.after.addend.data = NULL;
    return gemm;
}

size_t sdgen_matmul_work_size(const struct sdgen_plan *plan, const struct sdgen_matmul *op, int nth)
{
    if (sdgen_dot_fits(plan, op))
        return 0;
    struct sdgen_gemm gemm = gemm_of(plan, op);
    size_t most = sdgen_gemm_work_size(plan, &gemm, nth);
    /* With fewer threads each has larger shares of a gated product. */
    for (int fewer = 1; op->gated && fewer < nth; fewer++) {
        size_t size = sdgen_gemm_work_size(plan, &gemm, fewer);
        most = size > most ? size : most;
    }
    return most;
}

void sdgen_matmul(const struct sdgen_plan *plan, const struct sdgen_matmul *op, const struct sdgen_team *team)
{
    if (sdgen_dot_fits(plan, op)) {
        sdgen_dot(plan, op, team);
        return;
    }
    struct sdgen_gemm gemm = gemm_of(plan, op);
    sdgen_gemm(plan, &gemm, team);
}
