/* Arrays whose elements are repeated: each row is built once, and copied to where it is repeated. */
#include "elementwise.h"

#include <string.h>

enum { DIMENSIONS = 4 };

const char *sdgen_upscale_check(const struct sdgen_upscale *op)
{
    for (int d = 0; d < DIMENSIONS; d++)
        if (op->extent[d] <= 0 || op->factor[d] <= 0)
            return "an extent or a factor is not positive";
    if (!op->x || !op->y)
        return "an array is missing";
    if (sdgen_unaligned(op->x, op->x_stride, DIMENSIONS) || sdgen_unaligned(op->y, op->y_stride, DIMENSIONS - 1))
        return "x, y or one of their strides is not aligned to elements";
    return NULL;
}

/* A row, of which each element is repeated. */
static void build(const struct sdgen_upscale *op, const float *x, float *y)
{
    const int64_t n = op->extent[0], factor = op->factor[0], stride = op->x_stride[0];
    if (factor == 1 && stride == sizeof(float))
        memcpy(y, x, (size_t)n * sizeof(float));
    else if (factor == 2 && stride == sizeof(float)) /* as a loop that a compiler vectorizes */
        for (int64_t i = 0; i < n; i++)
            y[2 * i] = y[2 * i + 1] = x[i];
    else
        for (int64_t i = 0; i < n; i++)
            for (int64_t j = 0; j < factor; j++)
                y[i * factor + j] = *sdgen_at(x, i * stride);
}

static float *row_of(const struct sdgen_upscale *op, int64_t y1, int64_t y2, int64_t y3)
{
    return (float *)(void *)((char *)op->y + y1 * op->y_stride[0] + y2 * op->y_stride[1] + y3 * op->y_stride[2]);
}

/* All rows of y that a row of x becomes. */
static void repeat_row(const struct sdgen_upscale *op, int64_t row)
{
    const int64_t x1 = row % op->extent[1], x2 = row / op->extent[1] % op->extent[2], x3 = row / op->extent[1] / op->extent[2];
    const int64_t y1 = x1 * op->factor[1], y2 = x2 * op->factor[2], y3 = x3 * op->factor[3];
    float *first = row_of(op, y1, y2, y3);
    build(op, sdgen_at(op->x, x1 * op->x_stride[1] + x2 * op->x_stride[2] + x3 * op->x_stride[3]), first);
    for (int64_t i3 = 0; i3 < op->factor[3]; i3++)
        for (int64_t i2 = 0; i2 < op->factor[2]; i2++)
            for (int64_t i1 = 0; i1 < op->factor[1]; i1++)
                if (i1 + i2 + i3 > 0)
                    memcpy(row_of(op, y1 + i1, y2 + i2, y3 + i3), first, (size_t)(op->extent[0] * op->factor[0]) * sizeof(float));
}

size_t sdgen_upscale_work_size(const struct sdgen_plan *plan, const struct sdgen_upscale *op, int nth)
{
    (void)plan, (void)op, (void)nth;
    return 0;
}

void sdgen_upscale(const struct sdgen_plan *plan, const struct sdgen_upscale *op, const struct sdgen_team *team)
{
    (void)plan;
    /* Items: so many rows of x as make a block of y. */
    int64_t rows = op->extent[1] * op->extent[2] * op->extent[3];
    int64_t made = op->extent[0] * op->factor[0] * op->factor[1] * op->factor[2] * op->factor[3];
    int64_t together = sdgen_max(1, SDGEN_MAP_BLOCK / made), items = sdgen_ceil_div(rows, together), first, end;
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        for (int64_t row = first * together; row < sdgen_min(end * together, rows); row++)
            repeat_row(op, row);
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}
