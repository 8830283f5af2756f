/* Products of few rows: each number of w is used so seldom that packing it would take longer than the product. */
#include "matmul.h"

#include "schedule.h"

enum { COLUMNS = 4, MOST_BLOCKS = 64 };

/* Rows of x from which on packing pays: at 4096 by 4096 it takes as long at 32 rows on a Zen 5. */
enum { FEW_ROWS = 16 };

bool sdgen_dot_fits(const struct sdgen_plan *plan, const struct sdgen_matmul *op)
{
    return op->m <= FEW_ROWS && !op->gated && plan->kernels->dot[op->w_type][1][1];
}

/* Most rows of a tile of COLUMNS columns. */
static int64_t tile_rows(const struct sdgen_plan *plan, const struct sdgen_matmul *op)
{
    int64_t rows = 1;
    while (rows < SDGEN_DOT_ROWS && plan->kernels->dot[op->w_type][rows + 1][COLUMNS])
        rows++;
    return rows;
}

/* Then c may only be written when what it held is no longer needed. */
static bool adds_to_c(const struct sdgen_matmul *op)
{
    return op->after.addend.data == op->c;
}

/* All rows of the columns [column, column + columns) of one batch: a whole tile wide, or one column after the other. */
static void multiply(const struct sdgen_plan *plan, const struct sdgen_matmul *op, int64_t batch, int64_t column, int64_t columns)
{
    const char *w = sdgen_matmul_w(op, batch), *x = sdgen_matmul_x(op, batch);
    float *c = (float *)(void *)sdgen_matmul_c(op, batch) + column, tile[FEW_ROWS][COLUMNS];
    const bool in_place = adds_to_c(op);
    float *t = in_place ? tile[0] : c;
    int64_t t_stride = in_place ? (int64_t)sizeof *tile : op->c_stride;
    int64_t groups = sdgen_ceil_div(op->m, tile_rows(plan, op)), step = columns == COLUMNS ? COLUMNS : 1;
    for (int64_t group = 0; group < groups; group++) {
        int64_t row = group * op->m / groups, rows = (group + 1) * op->m / groups - row;
        for (int64_t j = column; j < column + columns; j += step) {
            const struct sdgen_dot_output output = {
                .c = (float *)(void *)((char *)t + row * t_stride) + j - column,
                .c_stride = t_stride,
                .column_bias = op->bias ? op->bias + j : NULL,
                .scale = op->scale,
            };
            plan->kernels->dot[op->w_type][rows][step]((size_t)op->k, (const float *)(const void *)(x + row * op->x_stride),
                                                       (ptrdiff_t)op->x_stride, w + j * op->w_stride, (ptrdiff_t)op->w_stride,
                                                       &output);
        }
    }
    if (in_place)
        sdgen_after_apply(plan->kernels, &op->after, (const int64_t[]){batch % op->batch[0], batch / op->batch[0]}, 0, op->m, column,
                          columns, t, t_stride, c, op->c_stride);
}

/* What becomes of the columns of the blocks [begin, end), which may lie in several batches. */
static void apply_after(const struct sdgen_plan *plan, const struct sdgen_matmul *op, int64_t blocks, int64_t begin, int64_t end)
{
    while (begin < end) {
        int64_t batch = begin / blocks, run_end = sdgen_min(end, (batch + 1) * blocks);
        int64_t column = begin % blocks * COLUMNS, column_end = sdgen_min(column + (run_end - begin) * COLUMNS, op->n);
        float *c = (float *)(void *)sdgen_matmul_c(op, batch) + column;
        sdgen_after_apply(plan->kernels, &op->after, (const int64_t[]){batch % op->batch[0], batch / op->batch[0]}, 0, op->m, column,
                          column_end - column, c, op->c_stride, c, op->c_stride);
        begin = run_end;
    }
}

void sdgen_dot(const struct sdgen_plan *plan, const struct sdgen_matmul *op, const struct sdgen_team *team)
{
    /* Items: blocks of COLUMNS columns, so that the tile that makes a column does not depend on the threads, within batches. */
    int64_t blocks = sdgen_ceil_div(op->n, COLUMNS), begin, end;
    while (sdgen_queue_take(sdgen_queue(team), blocks * op->batch[0] * op->batch[1], 1, MOST_BLOCKS, team->nth, NULL, &begin, &end)) {
        for (int64_t item = begin; item < end; item++) {
            int64_t column = item % blocks * COLUMNS;
            multiply(plan, op, item / blocks, column, sdgen_min(COLUMNS, op->n - column));
        }
        sdgen_phase(team, SDGEN_PHASE_PRODUCT);
        if (!sdgen_after_any(&op->after) || adds_to_c(op))
            continue;
        apply_after(plan, op, blocks, begin, end);
        sdgen_phase(team, SDGEN_PHASE_EPILOGUE);
    }
}
