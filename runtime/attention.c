/* Attention without a matrix of scores ("Self-attention Does Not Need O(n^2) Memory", Rabe and Staats 2021; "FlashAttention", Dao et
 * al. 2022), with lanes along the queries:
 *
 *   Panels of queries of one head are handed out, as many at a time as stay in L2 beside their outputs. The thread takes a block of
 *   keys after the other, packs its K and V, and for each of its panels makes the scores and their powers of two, P[key][query],
 *   which stay in L1, and adds V^T P to the output[value][query].
 *
 * Powers are of scores less a shift, one for each query: 0 to begin with. Numbers of floating point are as exact at 2^30 as at 1, so
 * the shift stays until a score is more than LIMIT beyond it, or the first scores are all less than it by more than that. Then the
 * block's maximum becomes the shift, what was summed is rescaled, and the block is computed again. Where there are few queries, the
 * keys are split as well, and the parts joined at the end. */
#include "elementwise.h"
#include "memory.h"

#include <math.h>
#include <string.h>

enum {
    VALUES = SDGEN_COLUMNS_STEP, /* columns of V packed side by side */
    KEY_ROWS = SDGEN_SCORES_ROWS,
    /* Of a block, which is as many as the chains of sums of V^T P are long. The error falls with the number of keys that have a share in
     * the output, and rises with the length of the chains. */
    MOST_KEYS = 240,
    FEW_KEYS = 512,
    FEW_BLOCK_KEYS = 60,
    CHUNK = 20,         /* of the depth: longest chain of sums of a score */
    LEAST_PANEL_ROWS = 96, /* queries taken at a time, at least: K and V are packed for each time */
    MOST_PANEL_ROWS = 512,
    LEAST_ITEMS = 32,   /* where there are fewer panels, keys are split to make so many items */
    MOST_PARTS_BYTES = 3 << 19, /* of all that they come to: then fewer */
};

#define LIMIT 32.0f
#define LOG2_E 1.44269504088896340736

_Static_assert(MOST_PANEL_ROWS / SDGEN_COLUMNS_STEP <= 64, "a bit for each panel taken at a time");

/* How an operation is cut; the same for every thread and every number of threads. */
struct cut {
    int64_t width;        /* queries of a panel */
    int64_t panels;       /* of a head */
    int64_t block_panels; /* most taken at a time */
    int64_t block_keys, blocks;
    int64_t depth_step;   /* depth that is gone through at a time: a panel of so many rows stays in L1 */
    int64_t chunk;        /* of the depth */
    int64_t value_panels;
    int64_t splits;       /* of the blocks */
    int64_t items;        /* (head, split, panel) */
};

static int64_t width_of(const struct sdgen_plan *plan, const struct sdgen_attention *op)
{
    int64_t best = 0, least = INT64_MAX;
    for (int64_t width = SDGEN_MOST_COLUMNS; width > 0; width -= SDGEN_COLUMNS_STEP) {
        if (!plan->kernels->scores[width / SDGEN_COLUMNS_STEP][1])
            continue;
        if (width == plan->tile_columns)
            return width;
        int64_t padded = sdgen_ceil_div(op->queries, width) * width;
        if (padded < least) {
            best = width;
            least = padded;
        }
    }
    return best;
}

/* The state of a panel of queries: shift and sum of the powers, and the output so far; later also what a part of the keys came
 * to. */
static int64_t part_floats(const struct cut *cut, const struct sdgen_attention *op)
{
    return (op->value_depth + 2) * cut->width;
}

static struct cut cut_of(const struct sdgen_plan *plan, const struct sdgen_attention *op)
{
    const struct sdgen_processor *processor = sdgen_processor();
    const int64_t number = sizeof(float);
    struct cut cut;
    cut.width = width_of(plan, op);
    cut.panels = sdgen_ceil_div(op->queries, cut.width);
    int64_t row_bytes = (op->depth + op->value_depth) * number;
    int64_t rows = (int64_t)processor->l2 / 2 / row_bytes;
    rows = sdgen_min(sdgen_max(rows, LEAST_PANEL_ROWS), MOST_PANEL_ROWS);
    cut.block_panels = sdgen_min(sdgen_max(rows / cut.width, 1), cut.panels);

    /* P and a panel of V in seven eighths of L1. */
    int64_t keys = (int64_t)processor->l1 * 7 / 8 / ((cut.width + VALUES) * number) / KEY_ROWS * KEY_ROWS;
    keys = sdgen_min(sdgen_max(keys, 8 * KEY_ROWS), op->keys <= FEW_KEYS ? FEW_BLOCK_KEYS : MOST_KEYS);
    cut.blocks = sdgen_ceil_div(op->keys, keys);
    cut.block_keys = sdgen_ceil_div(op->keys, cut.blocks);

    int64_t depth = sdgen_max((int64_t)processor->l1 * 3 / 4 / (cut.width * number) / 8 * 8, 64);
    int64_t depths = sdgen_ceil_div(op->depth, depth);
    cut.depth_step = sdgen_ceil_div(sdgen_ceil_div(op->depth, depths), 4) * 4;
    int64_t chunks = sdgen_ceil_div(cut.depth_step, CHUNK);
    cut.chunk = sdgen_ceil_div(sdgen_ceil_div(cut.depth_step, chunks), 4) * 4;
    cut.value_panels = sdgen_ceil_div(op->value_depth, VALUES);

    int64_t panels = cut.panels * op->heads * op->batch;
    int64_t most = sdgen_max(MOST_PARTS_BYTES / (panels * part_floats(&cut, op) * number), 1);
    cut.splits = sdgen_min(sdgen_min(cut.blocks, sdgen_ceil_div(LEAST_ITEMS, panels)), most);
    cut.items = panels * cut.splits;
    return cut;
}

/* A thread's own memory. */
struct own {
    float *q;       /* [panel][depth][width] */
    float *state;   /* [panel]: shift [width], sum [width], output [value_depth][width] */
    float *k, *v;   /* of a block: tiles of [depth][rows]; panels of [key][VALUES] */
    float *p, *bias; /* [key][width] */
    float *sum, *maximum, *factor; /* [width] */
};

static size_t own_size(const struct cut *cut, const struct sdgen_attention *op)
{
    return sdgen_floats_size(cut->block_panels * op->depth * cut->width) + sdgen_floats_size(cut->block_panels * part_floats(cut, op)) +
           sdgen_floats_size(cut->block_keys * op->depth) + sdgen_floats_size(cut->block_keys * cut->value_panels * VALUES) +
           sdgen_floats_size(cut->block_keys * cut->width) * (op->mask ? 2 : 1) + 3 * sdgen_floats_size(cut->width);
}

static size_t parts_size(const struct cut *cut, const struct sdgen_attention *op)
{
    return cut->splits > 1 ? sdgen_floats_size(cut->items * part_floats(cut, op)) : 0;
}

static float *take(char **memory, int64_t floats)
{
    float *taken = (float *)(void *)*memory;
    *memory += sdgen_floats_size(floats);
    return taken;
}

static struct own own_of(const struct cut *cut, const struct sdgen_attention *op, char *memory)
{
    struct own own;
    own.q = take(&memory, cut->block_panels * op->depth * cut->width);
    own.state = take(&memory, cut->block_panels * part_floats(cut, op));
    own.k = take(&memory, cut->block_keys * op->depth);
    own.v = take(&memory, cut->block_keys * cut->value_panels * VALUES);
    own.p = take(&memory, cut->block_keys * cut->width);
    own.bias = op->mask ? take(&memory, cut->block_keys * cut->width) : NULL;
    own.sum = take(&memory, cut->width);
    own.maximum = take(&memory, cut->width);
    own.factor = take(&memory, cut->width);
    return own;
}

size_t sdgen_attention_work_size(const struct sdgen_plan *plan, const struct sdgen_attention *op, int nth)
{
    struct cut cut = cut_of(plan, op);
    return SDGEN_LINE + parts_size(&cut, op) + (size_t)nth * own_size(&cut, op);
}

static bool aligned(const void *pointer, int64_t size, int64_t a, int64_t b, int64_t c)
{
    return (uintptr_t)pointer % (uintptr_t)size == 0 && a % size == 0 && b % size == 0 && c % size == 0;
}

const char *sdgen_attention_check(const struct sdgen_attention *op)
{
    if (op->queries <= 0 || op->keys <= 0 || op->heads <= 0 || op->batch <= 0 || op->depth <= 0 || op->value_depth <= 0)
        return "an extent is not positive";
    if (op->k_repeat[0] <= 0 || op->k_repeat[1] <= 0 || op->v_repeat[0] <= 0 || op->v_repeat[1] <= 0)
        return "a repetition is not positive";
    if ((unsigned)op->k_type >= SDGEN_TYPES || (unsigned)op->v_type >= SDGEN_TYPES ||
        (op->mask && (unsigned)op->mask_type >= SDGEN_TYPES))
        return "a type is none of F32, F16 and BF16";
    if (!op->q || !op->k || !op->v || !op->c)
        return "an array is missing";
    if (!aligned(op->q, sizeof(float), op->q_stride, op->q_head_stride, op->q_batch_stride))
        return "q or one of its strides is not aligned to its elements";
    if (!aligned(op->k, sdgen_type_size(op->k_type), op->k_stride, op->k_head_stride, op->k_batch_stride))
        return "k or one of its strides is not aligned to its elements";
    if (!aligned(op->v, sdgen_type_size(op->v_type), op->v_stride, op->v_head_stride, op->v_batch_stride))
        return "v or one of its strides is not aligned to its elements";
    if (!aligned(op->c, sizeof(float), op->c_stride, op->c_head_stride, op->c_batch_stride))
        return "c or one of its strides is not aligned to its elements";
    if (op->mask && !aligned(op->mask, sdgen_type_size(op->mask_type), op->mask_stride, op->mask_head_stride, op->mask_batch_stride))
        return "the mask or one of its strides is not aligned to its elements";
    if (op->mask && (op->mask_heads <= 0 || op->mask_batch <= 0))
        return "an extent of the mask is not positive";
    int64_t row = op->value_depth * (int64_t)sizeof(float);
    if ((op->queries > 1 && op->c_stride < row) || (op->heads > 1 && op->c_head_stride < row) ||
        (op->batch > 1 && op->c_batch_stride < row))
        return "rows of c overlap";
    return NULL;
}

/* One head, and a range of its panels. */
struct job {
    const struct sdgen_plan *plan;
    const struct sdgen_attention *op;
    const struct cut *cut;
    const struct sdgen_team *team;
    struct own own;
    int64_t head, batch, panel, panels; /* panel: the first */
    const char *q, *k, *v, *mask;
    float slope; /* of the mask */
};

static void begin_job(struct job *job, int64_t head, int64_t panel, int64_t panels)
{
    const struct sdgen_attention *op = job->op;
    int64_t h = head % op->heads, b = head / op->heads;
    job->head = h;
    job->batch = b;
    job->panel = panel;
    job->panels = panels;
    job->q = (const char *)op->q + h * op->q_head_stride + b * op->q_batch_stride;
    job->k = (const char *)op->k + h / op->k_repeat[0] * op->k_head_stride + b / op->k_repeat[1] * op->k_batch_stride;
    job->v = (const char *)op->v + h / op->v_repeat[0] * op->v_head_stride + b / op->v_repeat[1] * op->v_batch_stride;
    job->mask = op->mask ? (const char *)op->mask + h % op->mask_heads * op->mask_head_stride +
                               b % op->mask_batch * op->mask_batch_stride
                         : NULL;
    job->slope = sdgen_mask_slope(op->max_bias, op->heads, h);
}

static int64_t panel_row(const struct job *job, int64_t panel)
{
    return (job->panel + panel) * job->cut->width;
}

static int64_t panel_rows(const struct job *job, int64_t panel)
{
    return sdgen_min(job->op->queries - panel_row(job, panel), job->cut->width);
}

/* Shift, sum and output of a panel. */
static float *shift_of(const struct job *job, int64_t panel)
{
    return job->own.state + panel * part_floats(job->cut, job->op);
}

static void pack_queries(const struct job *job)
{
    const struct sdgen_attention *op = job->op;
    int64_t width = job->cut->width;
    for (int64_t panel = 0; panel < job->panels; panel++) {
        job->plan->kernels->pack[SDGEN_F32][width]((size_t)op->depth, (size_t)panel_rows(job, panel),
                                                   job->q + panel_row(job, panel) * op->q_stride, (ptrdiff_t)op->q_stride,
                                                   job->own.q + panel * op->depth * width);
        memset(shift_of(job, panel), 0, (size_t)(2 * width) * sizeof(float));
    }
}

/* A block of keys, in `tiles` tiles, the first `full` of them of `rows` keys, the others of one less. */
struct block {
    int64_t begin, keys, tiles, rows, full;
};

static struct block block_of(int64_t begin, int64_t end)
{
    struct block block = {.begin = begin, .keys = end - begin};
    block.tiles = sdgen_ceil_div(block.keys, KEY_ROWS);
    block.rows = sdgen_ceil_div(block.keys, block.tiles);
    block.full = block.tiles - (block.rows * block.tiles - block.keys);
    return block;
}

static int64_t tile_key(const struct block *block, int64_t tile)
{
    return block->begin + tile * (block->rows - 1) + sdgen_min(tile, block->full);
}

/* The tiles of a block with keys in [from, to), at least one. The kernel sums the powers of a tile before it adds them: tiles stay
 * what they are whatever is left out, and so do the sums. */
static struct block tiles_within(const struct block *block, int64_t from, int64_t to)
{
    int64_t first = 0, last = block->tiles;
    while (tile_key(block, first + 1) <= from)
        first++;
    while (tile_key(block, last - 1) >= to)
        last--;
    struct block part = {.begin = tile_key(block, first), .tiles = last - first, .rows = block->rows};
    part.keys = tile_key(block, last) - part.begin;
    part.full = sdgen_min(block->full - first, part.tiles);
    if (part.full <= 0) {
        part.rows--;
        part.full = part.tiles;
    }
    return part;
}

static void pack_block(const struct job *job, const struct block *block)
{
    const struct sdgen_attention *op = job->op;
    float *dst = job->own.k;
    for (int64_t tile = 0, key = block->begin; tile < block->tiles; tile++) {
        int64_t rows = tile < block->full ? block->rows : block->rows - 1;
        job->plan->kernels->pack[op->k_type][rows]((size_t)op->depth, (size_t)rows, job->k + key * op->k_stride,
                                                   (ptrdiff_t)op->k_stride, dst);
        dst += op->depth * rows;
        key += rows;
    }
    for (int64_t column = 0; column < op->value_depth; column += VALUES)
        job->plan->kernels->pack_rows[op->v_type]((size_t)block->keys, (size_t)sdgen_min(op->value_depth - column, VALUES),
                                                  job->v + block->begin * op->v_stride + column * sdgen_type_size(op->v_type),
                                                  (ptrdiff_t)op->v_stride, job->own.v + column * block->keys);
}

/* ---- masks ---- */

static bool is_masked(const struct sdgen_attention *op, const char *row, int64_t key)
{
    if (op->mask_type == SDGEN_F32)
        return ((const uint32_t *)(const void *)row)[key] == 0xff800000u;
    return ((const uint16_t *)(const void *)row)[key] == (op->mask_type == SDGEN_F16 ? 0xfc00u : 0xff80u);
}

static bool is_zero(const struct sdgen_attention *op, const char *row, int64_t begin, int64_t end)
{
    uint32_t any = 0;
    if (op->mask_type == SDGEN_F32)
        for (int64_t key = begin; key < end; key++)
            any |= ((const uint32_t *)(const void *)row)[key] << 1;
    else
        for (int64_t key = begin; key < end; key++)
            any |= (uint32_t)((const uint16_t *)(const void *)row)[key] << 17;
    return any == 0;
}

/* Narrows [*begin, *end) to the keys, from the first to the last, that are not masked for some of a panel's queries. */
static void narrow(const struct job *job, int64_t panel, int64_t *begin, int64_t *end)
{
    int64_t first = *end, last = *begin;
    const char *row = job->mask + panel_row(job, panel) * job->op->mask_stride;
    for (int64_t i = 0; i < panel_rows(job, panel); i++, row += job->op->mask_stride) {
        for (int64_t key = *begin; key < first && first > *begin; key++)
            if (!is_masked(job->op, row, key))
                first = key;
        for (int64_t key = *end - 1; key >= last; key--)
            if (!is_masked(job->op, row, key))
                last = key + 1;
    }
    *begin = first;
    *end = last;
}

/* Narrows a range to the keys that are not masked for all of the job's queries; empty where all are. */
static void narrow_job(const struct job *job, int64_t *begin, int64_t *end)
{
    if (!job->mask)
        return;
    int64_t first = *end, last = *begin;
    for (int64_t panel = 0; panel < job->panels; panel++) {
        int64_t from = *begin, to = *end;
        narrow(job, panel, &from, &to);
        first = sdgen_min(first, from);
        last = sdgen_max(last, to);
    }
    *begin = first;
    *end = last;
}

static bool needs_bias(const struct job *job, int64_t panel, const struct block *block)
{
    const char *row = job->mask + panel_row(job, panel) * job->op->mask_stride;
    for (int64_t i = 0; i < panel_rows(job, panel); i++, row += job->op->mask_stride)
        if (!is_zero(job->op, row, block->begin, block->begin + block->keys))
            return true;
    return false;
}

/* ---- a block of keys for one panel ---- */

/* P, the sums and maxima of a block, from the depth [begin, begin + scores->depth) of the packed keys. */
static void run_tiles(const struct job *job, const struct block *block, int64_t begin, struct sdgen_scores scores)
{
    sdgen_scores_kernel *const *kernel = job->plan->kernels->scores[job->cut->width / SDGEN_COLUMNS_STEP];
    const int64_t depth = job->op->depth, width = job->cut->width;
    const float *k = job->own.k;
    for (int64_t rows = block->rows, tile = 0; tile < block->tiles; rows--) {
        scores.tiles = tile < block->full ? block->full : block->tiles - block->full;
        scores.k = k + begin * rows;
        scores.k_stride = depth * rows * (int64_t)sizeof(float);
        kernel[rows](&scores);
        int64_t keys = scores.tiles * rows;
        k += keys * depth;
        scores.p += keys * width;
        if (scores.bias)
            scores.bias += keys * width;
        tile += scores.tiles;
    }
}

static void score_block(const struct job *job, const struct block *block, int64_t panel, bool biased)
{
    const struct sdgen_attention *op = job->op;
    const struct own *own = &job->own;
    const int64_t width = job->cut->width, step = job->cut->depth_step;
    const bool softened = op->softcap != 0;
    for (int64_t lane = 0; lane < width; lane++) {
        own->sum[lane] = 0;
        own->maximum[lane] = -INFINITY;
    }
    struct sdgen_scores scores = {
        .p = own->p,
        .bias = biased ? own->bias : NULL,
        .shift = shift_of(job, panel),
        .sum = own->sum,
        .maximum = own->maximum,
        .chunk = job->cut->chunk,
        .scale = (float)((double)(softened ? op->softcap : op->scale) * LOG2_E),
        .bias_scale = (float)((double)job->slope * LOG2_E),
    };
    for (int64_t begin = 0; begin < op->depth; begin += step) {
        scores.depth = sdgen_min(op->depth - begin, step);
        scores.q = own->q + (panel * op->depth + begin) * width;
        scores.load = begin > 0;
        scores.raw = softened || begin + step < op->depth;
        run_tiles(job, block, begin, scores);
    }
    if (softened) {
        job->plan->kernels->map[SDGEN_FUNCTION_TANH](&(struct sdgen_map_run){
            .x = own->p, .y = own->p, .n = block->keys * width, .scale = op->scale / op->softcap});
        scores.depth = 0;
        scores.load = 1;
        scores.raw = 0;
        run_tiles(job, block, 0, scores);
    }
}

/* Whether a query's shift has to move, to a block's largest score, which is so much above it. */
static bool asks_for_shift(float sum, float above)
{
    return above > LIMIT || (sum == 0 && above < -LIMIT && above > -INFINITY);
}

/* Moves a query's shift. What was summed is made to fit. */
static void move_shift(const struct job *job, int64_t panel, int64_t lane, float to)
{
    const int64_t width = job->cut->width;
    float *shift = shift_of(job, panel) + lane, *sum = shift + width, *output = sum + width;
    if (*sum != 0) {
        float factor = exp2f(*shift - to);
        *sum *= factor;
        for (int64_t p = 0; p < job->op->value_depth; p++)
            output[p * width] *= factor;
    }
    *shift = to;
}

/* New shifts where the block's scores ask for them; whether there are any. */
static bool move_shifts(const struct job *job, int64_t panel)
{
    const int64_t width = job->cut->width;
    const float *shift = shift_of(job, panel), *sum = shift + width;
    bool moved = false;
    for (int64_t lane = 0; lane < width; lane++) {
        float above = job->own.maximum[lane], to = shift[lane] + above;
        if (!asks_for_shift(sum[lane], above) || to == shift[lane] || to == INFINITY)
            continue; /* an infinite score makes NaNs, as it should */
        move_shift(job, panel, lane, to);
        moved = true;
    }
    return moved;
}

/* P and its sum for one query, slowly, of scores that are rounded before the shift is taken off, and without those of masked keys
 * whatever they are. */
static void score_lane(const struct job *job, const struct block *block, int64_t panel, int64_t lane, bool biased)
{
    const struct sdgen_attention *op = job->op;
    const int64_t width = job->cut->width;
    const float *k = job->own.k, *q = job->own.q + panel * op->depth * width + lane;
    const float *bias = biased ? job->own.bias + lane : NULL;
    float *p = job->own.p + lane, top = -INFINITY;
    for (int64_t tile = 0, key = 0; tile < block->tiles; tile++) {
        int64_t rows = tile < block->full ? block->rows : block->rows - 1;
        for (int64_t i = 0; i < rows; i++, key++) {
            double s = 0;
            for (int64_t c = 0; c < op->depth; c++)
                s += (double)k[c * rows + i] * (double)q[c * width];
            s *= (double)op->scale;
            if (op->softcap != 0)
                s = (double)op->softcap * tanh(s / (double)op->softcap);
            if (bias)
                s = bias[key * width] == -INFINITY ? -(double)INFINITY : s + (double)job->slope * (double)bias[key * width];
            p[key * width] = (float)(s * LOG2_E);
            top = fmaxf(top, p[key * width]);
        }
        k += op->depth * rows;
    }
    const float *shift = shift_of(job, panel) + lane;
    if (asks_for_shift(shift[width], top - *shift) && top != INFINITY)
        move_shift(job, panel, lane, top);
    job->own.sum[lane] = 0;
    for (int64_t key = 0; key < block->keys; key++) {
        p[key * width] = exp2f(p[key * width] - *shift);
        job->own.sum[lane] += p[key * width];
    }
}

/* Makes good what the kernel does not: scores so large that they, less a shift of as few digits, are still far from zero, and scores
 * of masked keys that are no finite numbers. A sum that is none already stays so. */
static void score_lanes(const struct job *job, const struct block *block, int64_t panel, bool biased)
{
    const float *sum = shift_of(job, panel) + job->cut->width;
    for (int64_t lane = 0; lane < job->cut->width; lane++)
        if (sum[lane] < INFINITY && (asks_for_shift(sum[lane], job->own.maximum[lane]) || !(job->own.sum[lane] < INFINITY)))
            score_lane(job, block, panel, lane, biased);
}

/* A panel with the keys of some of a block's tiles; whether they are its first. */
static void run_panel(const struct job *job, const struct block *packed, const struct block *block, int64_t panel, bool first)
{
    const struct sdgen_attention *op = job->op;
    const struct own *own = &job->own;
    const int64_t width = job->cut->width;
    float *sum = shift_of(job, panel) + width, *output = sum + width;
    bool biased = job->mask && needs_bias(job, panel, block);
    if (biased)
        job->plan->kernels->pack[op->mask_type][width](
            (size_t)block->keys, (size_t)panel_rows(job, panel),
            job->mask + panel_row(job, panel) * op->mask_stride + block->begin * sdgen_type_size(op->mask_type),
            (ptrdiff_t)op->mask_stride, own->bias);
    score_block(job, block, panel, biased);
    if (move_shifts(job, panel))
        score_block(job, block, panel, biased);
    score_lanes(job, block, panel, biased);
    for (int64_t lane = 0; lane < width; lane++)
        sum[lane] += own->sum[lane];

    const struct sdgen_epilogue epilogue = {.columns = (int32_t)width, .accumulate = !first, .scale = 1};
    sdgen_gemm_kernel *const *kernel = job->plan->kernels->gemm16[width / SDGEN_COLUMNS_STEP];
    for (int64_t column = 0; column < op->value_depth; column += VALUES) {
        int64_t columns = sdgen_min(op->value_depth - column, VALUES);
        int64_t tiles = sdgen_ceil_div(columns, KEY_ROWS);
        for (int64_t tile = 0; tile < tiles; tile++) {
            int64_t row = tile * columns / tiles, rows = (tile + 1) * columns / tiles - row;
            kernel[rows]((size_t)block->keys, own->v + column * packed->keys + (block->begin - packed->begin) * VALUES + row, own->p,
                         output + (column + row) * width, (size_t)width * sizeof(float), &epilogue);
        }
    }
}

/* ---- all keys ---- */

/* The panels of a job with the keys of the blocks [begin, end). */
static void run_job(const struct job *job, int64_t begin, int64_t end)
{
    const struct cut *cut = job->cut;
    pack_queries(job);
    uint64_t begun = 0; /* panels that have had keys, one bit each */
    for (int64_t b = begin; b < end; b++) {
        int64_t from = b * job->op->keys / cut->blocks, to = (b + 1) * job->op->keys / cut->blocks;
        const struct block all = block_of(from, to);
        narrow_job(job, &from, &to);
        if (from >= to)
            continue;
        const struct block packed = tiles_within(&all, from, to);
        pack_block(job, &packed);
        sdgen_phase(job->team, SDGEN_PHASE_PACK);
        for (int64_t panel = 0; panel < job->panels; panel++) {
            /* Each panel has its own keys, whichever are beside it: what is masked for all of its queries is not looked at. */
            int64_t some = from, last = to;
            if (job->mask)
                narrow(job, panel, &some, &last);
            if (some >= last)
                continue;
            const struct block block = tiles_within(&packed, some, last);
            struct job part = *job;
            part.own.k += (block.begin - packed.begin) * job->op->depth;
            run_panel(&part, &packed, &block, panel, !(begun >> panel & 1));
            begun |= UINT64_C(1) << panel;
        }
        sdgen_phase(job->team, SDGEN_PHASE_PRODUCT);
    }
    for (int64_t panel = 0; panel < job->panels; panel++)
        if (!(begun >> panel & 1))
            memset(shift_of(job, panel), 0, (size_t)part_floats(cut, job->op) * sizeof(float));
}

/* Divides by the sums, and writes a panel of `rows` queries from `row` on. */
static void write_panel(const struct job *job, const float *shift, int64_t row, int64_t rows)
{
    const struct sdgen_attention *op = job->op;
    const int64_t width = job->cut->width;
    const float *sum = shift + width, *output = sum + width;
    for (int64_t lane = 0; lane < width; lane++) {
        double total = sum[lane];
        if (op->sinks)
            total += exp2((double)op->sinks[job->head] * LOG2_E - (double)shift[lane]);
        job->own.factor[lane] = total == 0 ? 0 : (float)(1 / total);
    }
    char *c = (char *)op->c + job->head * op->c_head_stride + job->batch * op->c_batch_stride + row * op->c_stride;
    for (int64_t lane = 0; lane < rows; lane += SDGEN_UNPACK_LANES)
        job->plan->kernels->unpack(&(struct sdgen_unpack){
            .src = output + lane,
            .src_stride = width * (int64_t)sizeof(float),
            .factor = job->own.factor + lane,
            .dst = (float *)(void *)(c + lane * op->c_stride),
            .dst_stride = op->c_stride,
            .k = op->value_depth,
            .rows = sdgen_min(rows - lane, SDGEN_UNPACK_LANES),
        });
}

/* Adds a part to another: both are made to fit the larger shift of those that have a sum. */
static void join(const struct job *job, float *shift, const float *other)
{
    const int64_t width = job->cut->width;
    for (int64_t lane = 0; lane < width; lane++) {
        float sum = shift[width + lane], more = other[width + lane];
        if (more == 0)
            continue;
        float to = sum == 0 || other[lane] > shift[lane] ? other[lane] : shift[lane];
        float mine = sum == 0 ? 0 : exp2f(shift[lane] - to), its = exp2f(other[lane] - to);
        shift[lane] = to;
        for (int64_t p = 1; p < job->op->value_depth + 2; p++)
            shift[p * width + lane] = shift[p * width + lane] * mine + other[p * width + lane] * its;
    }
}

void sdgen_attention(const struct sdgen_plan *plan, const struct sdgen_attention *op, const struct sdgen_team *team)
{
    struct cut cut = cut_of(plan, op);
    char *memory = sdgen_first_line(team->work);
    float *parts = (float *)(void *)memory;
    struct job job = {.plan = plan, .op = op, .cut = &cut, .team = team};
    job.own = own_of(&cut, op, memory + parts_size(&cut, op) + (size_t)team->ith * own_size(&cut, op));

    int64_t taken = 0, begin, end;
    while (sdgen_queue_take(sdgen_queue(team), cut.items, cut.panels, cut.block_panels, team->nth, &taken, &begin, &end)) {
        for (int64_t next; begin < end; begin = next) {
            int64_t part = begin / cut.panels; /* (head, split) */
            next = sdgen_min(end, (part + 1) * cut.panels);
            int64_t split = part % cut.splits;
            begin_job(&job, part / cut.splits, begin % cut.panels, next - begin);
            run_job(&job, split * cut.blocks / cut.splits, (split + 1) * cut.blocks / cut.splits);
            for (int64_t panel = 0; panel < job.panels; panel++)
                if (cut.splits == 1)
                    write_panel(&job, shift_of(&job, panel), panel_row(&job, panel), panel_rows(&job, panel));
                else
                    memcpy(parts + (begin + panel) * part_floats(&cut, op), shift_of(&job, panel),
                           (size_t)part_floats(&cut, op) * sizeof(float));
            sdgen_phase(team, SDGEN_PHASE_EPILOGUE);
        }
    }
    if (cut.splits == 1)
        return;
    sdgen_wait(team);
    int64_t panels = cut.items / cut.splits;
    for (int64_t i = panels * team->ith / team->nth; i < panels * (team->ith + 1) / team->nth; i++) {
        begin_job(&job, i / cut.panels, i % cut.panels, 1);
        float *first = parts + (i / cut.panels * cut.splits * cut.panels + i % cut.panels) * part_floats(&cut, op);
        for (int64_t split = 1; split < cut.splits; split++)
            join(&job, first, first + split * cut.panels * part_floats(&cut, op));
        write_panel(&job, first, panel_row(&job, 0), panel_rows(&job, 0));
    }
    sdgen_phase(team, SDGEN_PHASE_EPILOGUE);
}
