/* Arrays in a frame of zeros: row by row, each written once. */
#include "elementwise.h"

#include <string.h>

enum { DIMENSIONS = 4 };

const char *sdgen_pad_check(const struct sdgen_pad *op)
{
    for (int d = 0; d < DIMENSIONS; d++) {
        if (op->extent[d] <= 0)
            return "an extent is not positive";
        if (op->before[d] < 0 || op->after[d] < 0)
            return "a padding is negative";
    }
    if (!op->x || !op->y)
        return "an array is missing";
    if (sdgen_unaligned(op->x, op->x_stride, DIMENSIONS) || sdgen_unaligned(op->y, op->y_stride, DIMENSIONS - 1))
        return "x, y or one of their strides is not aligned to elements";
    return NULL;
}

/* Elements that a dimension of y has. */
static int64_t extent_of(const struct sdgen_pad *op, int d)
{
    return op->before[d] + op->extent[d] + op->after[d];
}

static void fill_row(const struct sdgen_pad *op, int64_t row)
{
    const int64_t n = op->extent[0];
    int64_t x_place = 0, y_place = 0;
    bool inside = true;
    for (int d = 1; d < DIMENSIONS; d++) {
        int64_t i = row % extent_of(op, d);
        row /= extent_of(op, d);
        y_place += i * op->y_stride[d - 1];
        i -= op->before[d];
        inside = inside && i >= 0 && i < op->extent[d];
        x_place += i * op->x_stride[d];
    }
    float *y = (float *)(void *)((char *)op->y + y_place);
    if (!inside) {
        memset(y, 0, (size_t)extent_of(op, 0) * sizeof(float));
        return;
    }
    const float *x = sdgen_at(op->x, x_place);
    memset(y, 0, (size_t)op->before[0] * sizeof(float));
    y += op->before[0];
    if (op->x_stride[0] == sizeof(float))
        memcpy(y, x, (size_t)n * sizeof(float));
    else
        for (int64_t i = 0; i < n; i++)
            y[i] = *sdgen_at(x, i * op->x_stride[0]);
    memset(y + n, 0, (size_t)op->after[0] * sizeof(float));
}

size_t sdgen_pad_work_size(const struct sdgen_plan *plan, const struct sdgen_pad *op, int nth)
{
    (void)plan, (void)op, (void)nth;
    return 0;
}

void sdgen_pad(const struct sdgen_plan *plan, const struct sdgen_pad *op, const struct sdgen_team *team)
{
    (void)plan;
    /* Items: several rows of y. */
    int64_t rows = extent_of(op, 1) * extent_of(op, 2) * extent_of(op, 3), first, end;
    int64_t together = sdgen_max(1, SDGEN_MAP_BLOCK / extent_of(op, 0)), items = sdgen_ceil_div(rows, together);
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        for (int64_t row = first * together; row < sdgen_min(end * together, rows); row++)
            fill_row(op, row);
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}
