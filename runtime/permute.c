/* Copies that lay an array out anew: by rows where they are rows on both sides, else by transpositions of eight rows of x at a time. */
#include "elementwise.h"

#include <string.h>

enum { DIMENSIONS = 4 };

const char *sdgen_permute_check(const struct sdgen_permute *op)
{
    for (int d = 0; d < DIMENSIONS; d++)
        if (op->extent[d] <= 0)
            return "an extent is not positive";
    if (!op->x || !op->y)
        return "an array is missing";
    if (sdgen_unaligned(op->x, op->x_stride, DIMENSIONS) || sdgen_unaligned(op->y, op->y_stride, DIMENSIONS - 1))
        return "x, y or one of their strides is not aligned to elements";
    return NULL;
}

/* The dimension whose elements are side by side in x, which a transposition makes rows of; 0 where there is none but the first. */
static int lanes_of(const struct sdgen_permute *op)
{
    if (op->x_stride[0] == sizeof(float) || op->extent[0] == 1)
        return 0;
    for (int d = 1; d < DIMENSIONS; d++)
        if (op->x_stride[d] == sizeof(float) && op->extent[d] > 1)
            return d;
    return 0;
}

/* Rows of y [first, first + count) along the dimension `lanes`, at a place of the two others. */
static void transpose(const struct sdgen_kernels *kernels, const struct sdgen_permute *op, const float *x, float *y, int lanes,
                      int64_t first, int64_t count)
{
    static const float ones[SDGEN_UNPACK_LANES] = {1, 1, 1, 1, 1, 1, 1, 1};
    const int64_t row = op->y_stride[lanes - 1];
    for (int64_t i = first; i < first + count; i += SDGEN_UNPACK_LANES)
        kernels->unpack(&(struct sdgen_unpack){
            .src = x + i,
            .src_stride = op->x_stride[0],
            .factor = ones,
            .dst = (float *)(void *)((char *)y + i * row),
            .dst_stride = row,
            .k = op->extent[0],
            .rows = sdgen_min(first + count - i, SDGEN_UNPACK_LANES),
        });
}

static void copy_rows(const struct sdgen_permute *op, const float *x, float *y, int64_t first, int64_t count)
{
    for (int64_t i = first; i < first + count; i++) {
        const float *from = sdgen_at(x, i * op->x_stride[1]);
        float *to = (float *)(void *)((char *)y + i * op->y_stride[0]);
        if (op->x_stride[0] == sizeof(float))
            memcpy(to, from, (size_t)op->extent[0] * sizeof(float));
        else
            for (int64_t j = 0; j < op->extent[0]; j++)
                to[j] = *sdgen_at(from, j * op->x_stride[0]);
    }
}

size_t sdgen_permute_work_size(const struct sdgen_plan *plan, const struct sdgen_permute *op, int nth)
{
    (void)plan, (void)op, (void)nth;
    return 0;
}

void sdgen_permute(const struct sdgen_plan *plan, const struct sdgen_permute *op, const struct sdgen_team *team)
{
    const int lanes = lanes_of(op), along = lanes ? lanes : 1;
    int outer[2], found = 0;
    for (int d = 1; d < DIMENSIONS; d++)
        if (d != along)
            outer[found++] = d;
    /* Items: so many rows of y along the dimension as make a block, at a place of the two outer ones. */
    int64_t together = sdgen_max(SDGEN_MAP_BLOCK / op->extent[0] / SDGEN_UNPACK_LANES, 1) * SDGEN_UNPACK_LANES;
    int64_t parts = sdgen_ceil_div(op->extent[along], together);
    int64_t items = parts * op->extent[outer[0]] * op->extent[outer[1]], first, end;
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        for (int64_t item = first; item < end; item++) {
            int64_t a = item / parts % op->extent[outer[0]], b = item / parts / op->extent[outer[0]];
            int64_t row = item % parts * together, rows = sdgen_min(together, op->extent[along] - row);
            const float *x = sdgen_at(op->x, a * op->x_stride[outer[0]] + b * op->x_stride[outer[1]]);
            float *y = (float *)(void *)((char *)op->y + a * op->y_stride[outer[0] - 1] + b * op->y_stride[outer[1] - 1]);
            if (lanes)
                transpose(plan->kernels, op, x, y, lanes, row, rows);
            else
                copy_rows(op, x, y, row, rows);
        }
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}
