/* Softmax of rows, each of which a thread computes alone and in the cache: its largest number, the exponentials, their sum in double
 * precision, and a product. */
#include "elementwise.h"

#include <math.h>

/* Elements of a mask that are converted at a time, on the stack. */
enum { CONVERTED = 1024 };

float sdgen_mask_slope(float max_bias, int64_t heads, int64_t head)
{
    if (max_bias <= 0)
        return 1;
    int64_t power = 1;
    while (2 * power <= heads)
        power *= 2;
    double exponent = head < power ? (double)(head + 1) : (double)(2 * (head - power) + 1) / 2;
    return (float)exp2(-(double)max_bias / (double)power * exponent);
}

const char *sdgen_softmax_check(const struct sdgen_softmax *op)
{
    if (op->n <= 0 || op->rows[0] <= 0 || op->rows[1] <= 0 || op->rows[2] <= 0)
        return "an extent is not positive";
    if (!op->x || !op->y)
        return "an array is missing";
    if (sdgen_unaligned(op->x, op->x_stride, 3) || sdgen_unaligned(op->y, op->y_stride, 3) || sdgen_unaligned(op->sinks, NULL, 0))
        return "an array or one of its strides is not aligned to elements";
    if (op->rows[0] > 1 && op->y_stride[0] < op->n * (int64_t)sizeof(float))
        return "rows of y overlap";
    if (!op->mask)
        return op->max_bias > 0 ? "there is a slope, but no mask" : NULL;
    if ((unsigned)op->mask_type >= SDGEN_TYPES)
        return "mask_type is none of F32, F16 and BF16";
    if (op->mask_extent[0] <= 0 || op->mask_extent[1] <= 0)
        return "an extent of the mask is not positive";
    const int64_t size = sdgen_type_size(op->mask_type);
    if ((uintptr_t)op->mask % (uintptr_t)size || op->mask_stride[0] % size || op->mask_stride[1] % size || op->mask_stride[2] % size)
        return "the mask or one of its strides is not aligned to its elements";
    return NULL;
}

/* to = src, as single precision; a whole number of the kernel's widths is written. */
static void convert(const struct sdgen_kernels *kernels, enum sdgen_type type, const char *src, int64_t n, float *to)
{
    enum { WIDTH = SDGEN_COLUMNS_STEP };
    const int64_t whole = n / WIDTH, row = WIDTH * sdgen_type_size(type);
    if (whole)
        kernels->pack_rows[type]((size_t)whole, WIDTH, src, (ptrdiff_t)row, to);
    if (n % WIDTH)
        kernels->pack_rows[type](1, (size_t)(n % WIDTH), src + whole * row, (ptrdiff_t)row, to + whole * WIDTH);
}

/* y = x * scale + slope * mask */
static void apply_mask(const struct sdgen_kernels *kernels, const struct sdgen_softmax *op, const float *x, const char *mask,
                       float slope, float *y)
{
    float converted[CONVERTED];
    sdgen_map_kernel *map = kernels->map[SDGEN_FUNCTION_NONE];
    for (int64_t begin = 0; begin < op->n; begin += CONVERTED) {
        struct sdgen_map_run run = {.x = x + begin, .y = y + begin, .n = sdgen_min(CONVERTED, op->n - begin), .scale = op->scale};
        const char *part = mask + begin * sdgen_type_size(op->mask_type);
        const float *addend = (const float *)(const void *)part;
        if (op->mask_type != SDGEN_F32) {
            convert(kernels, op->mask_type, part, run.n, converted);
            addend = converted;
        }
        if (slope == 1) {
            run.addend = addend;
            map(&run);
        } else {
            map(&run);
            map(&(struct sdgen_map_run){.x = addend, .y = run.y, .n = run.n, .addend = run.y, .scale = slope});
        }
    }
}

static void compute_row(const struct sdgen_plan *plan, const struct sdgen_softmax *op, int64_t row)
{
    const struct sdgen_kernels *kernels = plan->kernels;
    const int64_t at[3] = {row % op->rows[0], row / op->rows[0] % op->rows[1], row / op->rows[0] / op->rows[1]};
    struct sdgen_map_run run = {
        .x = sdgen_at(op->x, at[0] * op->x_stride[0] + at[1] * op->x_stride[1] + at[2] * op->x_stride[2]),
        .y = (float *)(void *)((char *)op->y + at[0] * op->y_stride[0] + at[1] * op->y_stride[1] + at[2] * op->y_stride[2]),
        .n = op->n,
        .scale = op->scale,
    };
    if (op->mask) {
        const char *mask = (const char *)op->mask + at[0] * op->mask_stride[0] + at[1] % op->mask_extent[0] * op->mask_stride[1] +
                           at[2] % op->mask_extent[1] * op->mask_stride[2];
        apply_mask(kernels, op, run.x, mask, sdgen_mask_slope(op->max_bias, op->rows[1], at[1]), run.y);
    } else if (op->scale < 0) {
        kernels->map[SDGEN_FUNCTION_NONE](&run);
    }
    if (op->mask || op->scale < 0) {
        run.x = run.y;
        run.scale = 1;
    }
    float top = -INFINITY;
    kernels->maximum((size_t)op->n, run.x, &top);
    top *= run.scale;
    if (op->sinks)
        top = fmaxf(top, op->sinks[at[1]]);
    /* Rounding it costs nothing, for it is the same for the whole row. */
    run.shift = -top;
    kernels->map[SDGEN_FUNCTION_EXP](&run);
    double sums[2] = {0};
    kernels->moments((size_t)op->n, run.y, sums);
    if (op->sinks)
        sums[0] += exp((double)op->sinks[at[1]] - (double)top);
    kernels->map[SDGEN_FUNCTION_NONE](&(struct sdgen_map_run){.x = run.y, .y = run.y, .n = op->n, .scale = (float)(1 / sums[0])});
}

size_t sdgen_softmax_work_size(const struct sdgen_plan *plan, const struct sdgen_softmax *op, int nth)
{
    (void)plan, (void)op, (void)nth;
    return 0;
}

void sdgen_softmax(const struct sdgen_plan *plan, const struct sdgen_softmax *op, const struct sdgen_team *team)
{
    /* Items: several rows. */
    int64_t rows = op->rows[0] * op->rows[1] * op->rows[2], together = sdgen_max(1, SDGEN_MAP_BLOCK / op->n), first, end;
    int64_t items = sdgen_ceil_div(rows, together);
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        for (int64_t row = first * together; row < sdgen_min(end * together, rows); row++)
            compute_row(plan, op, row);
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}
