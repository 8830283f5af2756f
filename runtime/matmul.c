#include "matmul.h"

#include "elementwise.h"
#include "norm.h"

static const char *check(const struct sdgen_matmul *op)
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
    if (op->normalized && sdgen_row_norm_check(&op->before))
        return sdgen_row_norm_check(&op->before);
    return sdgen_after_check(&op->after, op->c, (const int64_t[]){op->m > 1 ? op->c_stride : -1, op->batch[0] > 1 ? op->c_batch_stride[0] : -1,
                                                                    op->batch[1] > 1 ? op->c_batch_stride[1] : -1});
}

static bool same_strides(const int64_t a[2], const int64_t b[2])
{
    return a[0] == b[0] && a[1] == b[1];
}

static bool same_norm(const struct sdgen_row_norm *a, const struct sdgen_row_norm *b)
{
    return a->weight == b->weight && a->modulation == b->modulation && a->bias == b->bias &&
           same_strides(a->modulation_stride, b->modulation_stride) && same_strides(a->bias_stride, b->bias_stride) && a->eps == b->eps &&
           a->rms == b->rms;
}

static bool same_x(const struct sdgen_matmul *a, const struct sdgen_matmul *b)
{
    return a->m == b->m && a->k == b->k && a->batch[0] == b->batch[0] && a->batch[1] == b->batch[1] && a->x == b->x &&
           a->x_stride == b->x_stride && same_strides(a->x_batch_stride, b->x_batch_stride) && a->normalized == b->normalized &&
           (!a->normalized || same_norm(&a->before, &b->before));
}

const char *sdgen_matmul_check(const struct sdgen_matmul *op)
{
    int products = 0;
    for (const struct sdgen_matmul *each = op; each; each = each->more) {
        if (++products > SDGEN_MATMUL_SHARED)
            return "too many products share their x";
        if (op->more && each->gated)
            return "what shares its x is gated";
        if (!same_x(op, each))
            return "products that share their x do not have the same";
        const char *wrong = check(each);
        if (wrong)
            return wrong;
    }
    return NULL;
}

static void pack_x(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t row, int64_t rows,
                   int64_t begin, int64_t end, float *dst, float *scratch)
{
    (void)scratch;
    const struct sdgen_matmul *op = gemm->operation;
    const char *x = sdgen_matmul_x(op, batch) + row * op->x_stride + begin * (int64_t)sizeof(float);
    kernels->pack[SDGEN_F32][rows]((size_t)(end - begin), (size_t)rows, x, (ptrdiff_t)op->x_stride, dst);
}

/* ---- rows that are normalized as they are packed ----
 *
 * Scratch: the scales and shifts of a panel's rows, then what they are multiplied by, if that is made for the batch, and what is packed
 * of them. Depths are packed in multiples of 4 but for the last. */

enum { AFFINES = SDGEN_MOST_ROWS * sizeof(struct sdgen_line) / sizeof(float), LEAST_DEPTH = 4 };
_Static_assert(AFFINES + (1 + SDGEN_MOST_ROWS) * LEAST_DEPTH <= SDGEN_COLUMNS_STEP * LEAST_DEPTH, "the scratch holds a panel of B");

static void measure_x(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t row, int64_t rows,
                      float *scratch)
{
    const struct sdgen_matmul *op = gemm->operation;
    const float *x = (const float *)(const void *)sdgen_matmul_x(op, batch);
    struct sdgen_line *affine = (struct sdgen_line *)(void *)scratch;
    for (int64_t i = 0; i < rows; i++)
        affine[i] = sdgen_row_line(kernels, &op->before, op->k, sdgen_at(x, (row + i) * op->x_stride));
}

static void pack_normalized(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t row, int64_t rows,
                            int64_t begin, int64_t end, float *dst, float *scratch)
{
    const struct sdgen_matmul *op = gemm->operation;
    const float *x = (const float *)(const void *)sdgen_matmul_x(op, batch) + begin;
    const struct sdgen_line *affine = (const struct sdgen_line *)(const void *)scratch;
    const int64_t depth = end - begin, batches[2] = {batch % op->batch[0], batch / op->batch[0]};
    const struct sdgen_row_vectors vectors = sdgen_row_vectors_of(kernels, &op->before, batches, begin, depth, scratch + AFFINES);
    float *normalized = scratch + AFFINES + depth;
    for (int64_t i = 0; i < rows; i++)
        sdgen_normalize(kernels, affine[i], vectors, depth, sdgen_at(x, (row + i) * op->x_stride), normalized + i * depth);
    kernels->pack[SDGEN_F32][rows]((size_t)depth, (size_t)rows, normalized, (ptrdiff_t)(depth * (int64_t)sizeof(float)), dst);
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

static struct sdgen_gemm gemm_of(const struct sdgen_matmul *op, struct sdgen_tile tile)
{
    struct sdgen_gemm gemm = {
        .tile = tile,
        .rows = op->m,
        .columns = op->n,
        .depth = op->k,
        .batches = op->batch[0] * op->batch[1],
        .c_stride = op->c_stride,
        .scale = op->scale,
        .column_bias = op->bias,
        .operation = op,
        .pack_a = op->normalized ? pack_normalized : pack_x,
        .prepare_a = op->normalized ? measure_x : NULL,
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

/* The products of all that share their x, the first one first, with the tile of the widest. */
static void set_gemms(const struct sdgen_plan *plan, const struct sdgen_matmul *op, struct sdgen_gemm gemm[SDGEN_MATMUL_SHARED])
{
    int64_t most = 0;
    for (const struct sdgen_matmul *each = op; each; each = each->more)
        most = sdgen_max(most, each->n);
    const struct sdgen_tile tile = sdgen_select_tile(plan, op->m, most);
    for (int i = 0; op; op = op->more, i++) {
        gemm[i] = gemm_of(op, tile);
        gemm[i].more = op->more ? &gemm[i + 1] : NULL;
    }
}

/* ---- few rows: nothing is packed; normalized in working memory first ---- */

static bool dots_fit(const struct sdgen_plan *plan, const struct sdgen_matmul *op)
{
    for (; op; op = op->more)
        if (!sdgen_dot_fits(plan, op))
            return false;
    return true;
}

static size_t normalized_size(const struct sdgen_matmul *op)
{
    return _Alignof(float) + (size_t)(op->k * op->m * op->batch[0] * op->batch[1]) * sizeof(float);
}

static struct sdgen_layer_norm norm_of(const struct sdgen_matmul *op, void *work)
{
    const uintptr_t align = _Alignof(float), base = (uintptr_t)work;
    const int64_t row = op->k * (int64_t)sizeof(float);
    return (struct sdgen_layer_norm){
        .n = op->k,
        .rows = {op->m, op->batch[0], op->batch[1]},
        .x = op->x,
        .x_stride = {op->x_stride, op->x_batch_stride[0], op->x_batch_stride[1]},
        .y = (float *)(void *)((char *)work + (align - base % align) % align),
        .y_stride = {row, op->m * row, op->batch[0] * op->m * row},
        .norm = op->before,
    };
}

static size_t dots_work_size(const struct sdgen_plan *plan, const struct sdgen_matmul *op, int nth)
{
    if (!op->normalized)
        return 0;
    const struct sdgen_layer_norm norm = norm_of(op, NULL);
    return normalized_size(op) + sdgen_layer_norm_work_size(plan, &norm, nth);
}

static void dots(const struct sdgen_plan *plan, const struct sdgen_matmul *op, const struct sdgen_team *team)
{
    struct sdgen_layer_norm norm = {.y = NULL};
    if (op->normalized) {
        struct sdgen_team rest = *team;
        rest.work = (char *)team->work + normalized_size(op);
        rest.work_size = team->work_size - normalized_size(op);
        norm = norm_of(op, team->work);
        sdgen_layer_norm(plan, &norm, &rest);
        sdgen_wait(team);
    }
    for (; op; op = op->more) {
        struct sdgen_matmul product = *op;
        if (op->normalized) {
            product.x = norm.y;
            product.x_stride = norm.y_stride[0];
            product.x_batch_stride[0] = norm.y_stride[1];
            product.x_batch_stride[1] = norm.y_stride[2];
        }
        sdgen_dot(plan, &product, team);
        if (op->more)
            sdgen_wait(team); /* they share the queue */
    }
}

size_t sdgen_matmul_work_size(const struct sdgen_plan *plan, const struct sdgen_matmul *op, int nth)
{
    if (dots_fit(plan, op))
        return dots_work_size(plan, op, nth);
    struct sdgen_gemm gemm[SDGEN_MATMUL_SHARED];
    set_gemms(plan, op, gemm);
    size_t most = sdgen_gemm_work_size(plan, gemm, nth);
    /* With fewer threads each has larger shares of a gated product. */
    for (int fewer = 1; op->gated && fewer < nth; fewer++) {
        size_t size = sdgen_gemm_work_size(plan, gemm, fewer);
        most = size > most ? size : most;
    }
    return most;
}

void sdgen_matmul(const struct sdgen_plan *plan, const struct sdgen_matmul *op, const struct sdgen_team *team)
{
    if (dots_fit(plan, op)) {
        dots(plan, op, team);
        return;
    }
    struct sdgen_gemm gemm[SDGEN_MATMUL_SHARED];
    set_gemms(plan, op, gemm);
    sdgen_gemm(plan, gemm, team);
}
