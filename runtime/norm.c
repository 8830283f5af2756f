/* Group and layer normalization: sums in double precision, then one multiply-add for each element.
 *
 * A group is summed in fixed pieces, which are added up in their order, so that the result does not depend on the threads. */
#include "norm.h"

#include "elementwise.h"

#include <math.h>

/* (x - mean) * scale */
struct affine {
    double mean, scale;
};

/* That of so many numbers, of which these are the sums, and those of the squares. */
static struct affine affine_of(const double sums[2], double count, double eps, bool rms)
{
    double mean = rms ? 0 : sums[0] / count, variance = sums[1] / count - mean * mean;
    return (struct affine){.mean = mean, .scale = 1 / sqrt((variance < 0 ? 0 : variance) + eps)};
}

/* x * scale + shift = (x - mean) * scale * weight + bias. The shift is made for the scale as rounded, so that rounding the scale costs
 * nothing where the mean is many times the deviation. */
static void set_affine(struct sdgen_map_run *run, const struct affine *affine, double weight, double bias)
{
    run->scale = (float)(affine->scale * weight);
    run->shift = (float)(bias - affine->mean * (double)run->scale);
}

/* ---- groups ---- */

/* How a group is cut: into several of its channels each, or into parts of one. */
struct pieces {
    int64_t channels; /* of a piece */
    struct sdgen_parts parts; /* of a channel's pixels */
    int64_t count; /* in a group */
};

static struct pieces pieces_of(const struct sdgen_group_norm *op)
{
    int64_t channels = op->channels / op->groups;
    struct pieces pieces = {.channels = 1, .parts = sdgen_parts_of(op->pixels)};
    if (pieces.parts.count == 1)
        pieces.channels = sdgen_min(channels, sdgen_max(1, SDGEN_MAP_BLOCK / op->pixels));
    pieces.count = sdgen_ceil_div(channels, pieces.channels) * pieces.parts.count;
    return pieces;
}

/* Of a piece: its group, its first channel, how many it has, and which of their pixels. */
struct piece {
    int64_t batch, group, channel, channels, begin, pixels;
};

static struct piece piece_of(const struct sdgen_group_norm *op, const struct pieces *pieces, int64_t item)
{
    int64_t group = item / pieces->count, part = item % pieces->count % pieces->parts.count;
    int64_t group_channels = op->channels / op->groups;
    int64_t channel = item % pieces->count / pieces->parts.count * pieces->channels;
    int64_t begin = part * pieces->parts.size;
    return (struct piece){
        .batch = group / op->groups,
        .group = group,
        .channel = group % op->groups * group_channels + channel,
        .channels = sdgen_min(pieces->channels, group_channels - channel),
        .begin = begin,
        .pixels = sdgen_min(pieces->parts.size, op->pixels - begin),
    };
}

static const float *x_of(const struct sdgen_group_norm *op, const struct piece *piece)
{
    return sdgen_at(op->x, piece->batch * op->x_batch_stride + piece->channel * op->x_channel_stride) + piece->begin;
}

static void sum_piece(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct piece *piece, double sums[2])
{
    const float *x = x_of(op, piece);
    sums[0] = sums[1] = 0;
    if (op->x_channel_stride == piece->pixels * (int64_t)sizeof(float)) {
        plan->kernels->moments((size_t)(piece->channels * piece->pixels), x, sums);
        return;
    }
    for (int64_t c = 0; c < piece->channels; c++)
        plan->kernels->moments((size_t)piece->pixels, sdgen_at(x, c * op->x_channel_stride), sums);
}

static void add_up(const double (*sums)[2], int64_t count, double all[2])
{
    all[0] = all[1] = 0;
    for (int64_t i = 0; i < count; i++) {
        all[0] += sums[i][0];
        all[1] += sums[i][1];
    }
}

/* Sums of a group that are there when all threads have made them: of its pieces, or one, of those that were given. */
static int64_t sums_of_group(const struct sdgen_group_norm *op)
{
    return op->sums ? 1 : pieces_of(op).count;
}

static struct affine affine_of_group(const struct sdgen_group_norm *op, const double (*sums)[2], int64_t group)
{
    double all[2];
    add_up(sums + group * sums_of_group(op), sums_of_group(op), all);
    return affine_of(all, (double)(op->channels / op->groups) * (double)op->pixels, (double)op->eps, false);
}

static void set_channel(const struct sdgen_group_norm *op, const struct affine *affine, int64_t channel, struct sdgen_map_run *run)
{
    set_affine(run, affine, op->weight ? (double)op->weight[channel] : 1, op->bias ? (double)op->bias[channel] : 0);
}

static void map_piece(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct piece *piece,
                      const double (*sums)[2])
{
    struct affine affine = affine_of_group(op, sums, piece->group);
    struct sdgen_map_run run = {
        .x = x_of(op, piece),
        .y = (float *)(void *)((char *)op->y + piece->batch * op->y_batch_stride + piece->channel * op->y_channel_stride) +
             piece->begin,
        .n = piece->pixels,
        .parameter = {op->parameter[0], op->parameter[1]},
    };
    for (int64_t c = piece->channel; c < piece->channel + piece->channels; c++) {
        set_channel(op, &affine, c, &run);
        plan->kernels->map[op->function](&run);
        run.x = sdgen_at(run.x, op->x_channel_stride);
        run.y = (float *)(void *)((char *)run.y + op->y_channel_stride);
    }
}

const char *sdgen_group_norm_check(const struct sdgen_group_norm *op)
{
    if (op->batch <= 0 || op->channels <= 0 || op->pixels <= 0 || op->groups <= 0)
        return "an extent is not positive";
    if (op->channels % op->groups)
        return "the groups do not divide the channels";
    if (!op->x || !op->y)
        return "an array is missing";
    if ((unsigned)op->function >= SDGEN_FUNCTIONS)
        return "the function is unknown";
    if (sdgen_unaligned(op->x, (const int64_t[]){op->x_channel_stride, op->x_batch_stride}, 2) ||
        sdgen_unaligned(op->y, (const int64_t[]){op->y_channel_stride, op->y_batch_stride}, 2) ||
        sdgen_unaligned(op->weight, NULL, 0) || sdgen_unaligned(op->bias, NULL, 0))
        return "an array or one of its strides is not aligned to elements";
    if (op->channels > 1 && op->y_channel_stride < op->pixels * (int64_t)sizeof(float))
        return "channels of y overlap";
    if (op->sums && (op->sum_pieces <= 0 || (uintptr_t)op->sums % sizeof(double)))
        return "the sums are of no pieces, or not aligned to their elements";
    return NULL;
}

size_t sdgen_group_norm_sums_size(const struct sdgen_group_norm *op)
{
    return (size_t)(op->batch * op->groups * pieces_of(op).count) * sizeof(double[2]);
}

void sdgen_group_norm_sums(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct sdgen_team *team,
                           double (*sums)[2])
{
    struct pieces pieces = pieces_of(op);
    int64_t items = op->batch * op->groups * sums_of_group(op), given = op->channels / op->groups * op->sum_pieces, first, end;
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        for (int64_t item = first; item < end; item++) {
            if (op->sums) {
                add_up(op->sums + item * given, given, sums[item]);
                continue;
            }
            struct piece piece = piece_of(op, &pieces, item);
            sum_piece(plan, op, &piece, sums[item]);
        }
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
    sdgen_wait(team);
}

void sdgen_group_norm_lines(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct sdgen_team *team,
                            double (*sums)[2], struct sdgen_line *lines)
{
    sdgen_group_norm_sums(plan, op, team, sums);
    int64_t groups = op->batch * op->groups, channels = op->channels / op->groups;
    for (int64_t group = groups * team->ith / team->nth; group < groups * (team->ith + 1) / team->nth; group++) {
        struct affine affine = affine_of_group(op, (const double(*)[2])sums, group);
        for (int64_t c = 0; c < channels; c++) {
            struct sdgen_map_run run;
            set_channel(op, &affine, group % op->groups * channels + c, &run);
            lines[group * channels + c] = (struct sdgen_line){.scale = run.scale, .shift = run.shift};
        }
    }
}

size_t sdgen_group_norm_work_size(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, int nth)
{
    (void)plan, (void)nth;
    return _Alignof(double) + sdgen_group_norm_sums_size(op);
}

void sdgen_group_norm(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct sdgen_team *team)
{
    const uintptr_t align = _Alignof(double), base = (uintptr_t)team->work;
    double(*sums)[2] = (double(*)[2])(void *)((char *)team->work + (align - base % align) % align);
    sdgen_group_norm_sums(plan, op, team, sums);
    struct pieces pieces = pieces_of(op);
    int64_t items = op->batch * op->groups * pieces.count, first, end;
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        for (int64_t item = first; item < end; item++) {
            struct piece piece = piece_of(op, &pieces, item);
            map_piece(plan, op, &piece, (const double(*)[2])sums);
        }
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}

/* ---- rows ---- */

const char *sdgen_row_norm_check(const struct sdgen_row_norm *norm)
{
    if (sdgen_unaligned(norm->weight, NULL, 0) || sdgen_unaligned(norm->modulation, norm->modulation_stride, 2) ||
        sdgen_unaligned(norm->bias, norm->bias_stride, 2))
        return "an array of a norm, or a stride, is not aligned to its elements";
    return NULL;
}

struct sdgen_line sdgen_row_line(const struct sdgen_kernels *kernels, const struct sdgen_row_norm *norm, int64_t n, const float *x)
{
    double sums[2] = {0};
    kernels->moments((size_t)n, x, sums);
    struct affine affine = affine_of(sums, (double)n, (double)norm->eps, norm->rms);
    struct sdgen_map_run run;
    set_affine(&run, &affine, 1, 0);
    return (struct sdgen_line){.scale = run.scale, .shift = run.shift};
}

static const float *of_batch(const float *array, const int64_t stride[2], const int64_t batch[2])
{
    return sdgen_at(array, batch[0] * stride[0] + batch[1] * stride[1]);
}

struct sdgen_row_vectors sdgen_row_vectors_of(const struct sdgen_kernels *kernels, const struct sdgen_row_norm *norm, const int64_t batch[2],
                                              int64_t begin, int64_t n, float *scratch)
{
    struct sdgen_row_vectors vectors = {
        .weight = norm->weight ? norm->weight + begin : NULL,
        .bias = norm->bias ? of_batch(norm->bias, norm->bias_stride, batch) + begin : NULL,
    };
    if (norm->modulation) {
        kernels->map[SDGEN_FUNCTION_NONE](&(struct sdgen_map_run){
            .x = of_batch(norm->modulation, norm->modulation_stride, batch) + begin,
            .y = scratch,
            .n = n,
            .weight = vectors.weight,
            .scale = 1,
            .shift = 1,
        });
        vectors.weight = scratch;
    }
    return vectors;
}

void sdgen_normalize(const struct sdgen_kernels *kernels, struct sdgen_line line, struct sdgen_row_vectors vectors, int64_t n,
                     const float *x, float *y)
{
    kernels->map[SDGEN_FUNCTION_NONE](&(struct sdgen_map_run){
        .x = x,
        .y = y,
        .n = n,
        .weight = vectors.weight,
        .addend = vectors.bias,
        .scale = line.scale,
        .shift = line.shift,
    });
}

const char *sdgen_layer_norm_check(const struct sdgen_layer_norm *op)
{
    if (op->n <= 0 || op->rows[0] <= 0 || op->rows[1] <= 0 || op->rows[2] <= 0)
        return "an extent is not positive";
    if (!op->x || !op->y)
        return "an array is missing";
    if (sdgen_unaligned(op->x, op->x_stride, 3) || sdgen_unaligned(op->y, op->y_stride, 3))
        return "an array or one of its strides is not aligned to elements";
    if (op->rows[0] > 1 && op->y_stride[0] < op->n * (int64_t)sizeof(float))
        return "rows of y overlap";
    return sdgen_row_norm_check(&op->norm);
}

size_t sdgen_layer_norm_work_size(const struct sdgen_plan *plan, const struct sdgen_layer_norm *op, int nth)
{
    (void)plan;
    return op->norm.modulation ? _Alignof(float) + (size_t)nth * (size_t)op->n * sizeof(float) : 0;
}

/* Rows [begin, end), which may lie in several batches. */
static void normalize_rows(const struct sdgen_plan *plan, const struct sdgen_layer_norm *op, int64_t begin, int64_t end, float *scratch)
{
    while (begin < end) {
        const int64_t image = begin / op->rows[0], batch[2] = {image % op->rows[1], image / op->rows[1]};
        const int64_t run_end = sdgen_min(end, (image + 1) * op->rows[0]);
        const struct sdgen_row_vectors vectors = sdgen_row_vectors_of(plan->kernels, &op->norm, batch, 0, op->n, scratch);
        const float *x = sdgen_at(op->x, batch[0] * op->x_stride[1] + batch[1] * op->x_stride[2]);
        char *y = (char *)op->y + batch[0] * op->y_stride[1] + batch[1] * op->y_stride[2];
        for (int64_t row = begin % op->rows[0]; begin < run_end; begin++, row++) {
            const float *from = sdgen_at(x, row * op->x_stride[0]);
            sdgen_normalize(plan->kernels, sdgen_row_line(plan->kernels, &op->norm, op->n, from), vectors, op->n, from,
                            (float *)(void *)(y + row * op->y_stride[0]));
        }
    }
}

void sdgen_layer_norm(const struct sdgen_plan *plan, const struct sdgen_layer_norm *op, const struct sdgen_team *team)
{
    const uintptr_t align = _Alignof(float), base = (uintptr_t)team->work;
    float *scratch = (float *)(void *)((char *)team->work + (align - base % align) % align) + team->ith * op->n;
    /* Items: several rows. */
    int64_t rows = op->rows[0] * op->rows[1] * op->rows[2], together = sdgen_max(1, SDGEN_MAP_BLOCK / op->n), first, end;
    int64_t items = sdgen_ceil_div(rows, together);
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        normalize_rows(plan, op, first * together, sdgen_min(end * together, rows), scratch);
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}
