/* 3x3 convolutions by Winograd's F(m x m, 3 x 3), several blocks of tiles at a time:
 *
 *   1. all threads transform the blocks' input tiles into V[tap][panel of tiles][channel in][columns of a panel];
 *   2. groups of 16 output channels of a block are handed out; for each a thread packs and transforms the weights of a few input
 *      channels after the other into U[tap][channel in][16], and adds their products with V to M[tap][16][tiles of the block];
 *   3. the same thread transforms M into the output.
 *
 * Threads wait for each other around step 1 alone, so that V is of several blocks where there are many threads, but of no more, because
 * with all that would fit the cache that they share it took up to a third longer on a Zen 5 (128 channels at 512x512). In the end
 * parts of a block are handed out, some of its panels or of the group's output channels, so that a slow thread does not come last with a
 * whole one; each transforms the weights once more, which costs as much as the products of 16 channels with four columns.
 *
 * With a norm before it, a thread norms in step 1 what it then transforms: the rows of a few channels, into a strip that holds them for
 * the tiles of the next blocks too, so that each row is normed once. (Normed for each row of tiles, two of six rows would be normed twice
 * with F(4 x 4), and SiLU once is a 20th of such a convolution of 128 channels as it is, on one core of a Zen 5 with AVX2.) Rows are
 * normed to their ends, so what is read of x lies below what was written in the meantime, and the output may take x's place.
 *
 * So V, shared, and M, a thread's own, stay in the cache, and the weights are read as they are, once a block. Where the plan has a store
 * and the transform takes a large part of the time (select.c), U is kept there from one evaluation to the next, found by a hash of the
 * weights, which are read for it as before. For 1280 channels it takes 105 and 236 MB a layer by F(2 x 2) and F(4 x 4), whose way from
 * memory costs about as much as AVX-512's transform. */
#include "conv.h"

#include "elementwise.h"
#include "memory.h"
#include "norm.h"

#include <string.h>

enum {
    QUAD = 4,            /* tiles */
    GROUP = 16,          /* output channels */
    MOST_TAPS = 36,
    CHAIN = 80,          /* most input channels summed before they are added to M: for accuracy, and so that U stays in L2 */
    LEAST_CHAINS = 3,    /* for accuracy where there are few input channels */
    TAP_GAP = 16,        /* numbers between taps: without, all taps of a channel may lie in one set of L1 */
    INPUT_CHANNELS = 64, /* input channels transformed at a time */
    /* ... and where they are normed first: at most, so that they stay in L2, and at least, where threads share them. */
    NORMED_CHANNELS = 16,
    LEAST_NORMED_CHANNELS = 4,
    LEAST_SHARES = 4,    /* shares of V for each thread, at least */
    MOST_PARTS = 8,      /* of a share, in the end; a power of two */
    PART_COLUMNS = 8,    /* the least of a part, of 16 output channels; twice as many of half the channels */
    HALO = 2,            /* rows of x that a tile shares with the one below */
};

/* How a convolution is cut; the same for every thread. */
struct cut {
    const struct sdgen_winograd_kernels *kernels;
    struct sdgen_tile tile;
    int64_t m, t, taps;
    int64_t step;                      /* from tile to tile of x, in pixels */
    int64_t tiles_x, tiles_y, quads_x; /* of an image; rows of tiles are padded to whole quads */
    int64_t quads;                     /* of all images */
    int64_t panel_quads;
    int64_t panels;       /* of all quads */
    int64_t v_panels;     /* whose V is there at a time: several blocks */
    int64_t block_panels; /* whose M is made at a time */
    int64_t chain;        /* input channels */
    int64_t groups;       /* of output channels */
    int64_t shares;       /* of a block's panels that are handed out apart, because there are few groups and blocks */
    int64_t parts;        /* of a share, handed out apart in the end: stretches of panels... */
    int64_t row_parts;    /* ...each in so many parts of its output channels */
    int64_t strip_rows;   /* of normed x that are there at a time, whole rows of tiles; 0: x is read as it is */
};

static const struct sdgen_winograd_kernels *kernels_of(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m)
{
    return op->x_doubled ? &plan->kernels->winograd_up : &plan->kernels->winograd[m];
}

bool sdgen_winograd_fits(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m)
{
    bool padded = op->x_doubled ? m == 2 && op->pad_x == 1 && op->pad_y == 1
                                : op->pad_x <= 1 && op->pad_y <= 1 && (op->width > 1 || !op->pad_x) && (op->height > 1 || !op->pad_y);
    return kernels_of(plan, op, m)->input && op->kernel_width == 3 && op->kernel_height == 3 && op->stride_x == 1 &&
           op->stride_y == 1 && op->dilation_x == 1 && op->dilation_y == 1 && padded;
}

static struct cut cut_of(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, int nth)
{
    struct cut cut;
    cut.kernels = kernels_of(plan, op, m);
    cut.m = m;
    cut.t = op->x_doubled ? 3 : m + 2;
    cut.taps = cut.t * cut.t;
    cut.step = op->x_doubled ? 1 : m;
    cut.tiles_x = sdgen_ceil_div(op->width_out, m);
    cut.tiles_y = sdgen_ceil_div(op->height_out, m);
    cut.quads_x = sdgen_ceil_div(cut.tiles_x, QUAD);
    cut.quads = cut.quads_x * cut.tiles_y * sdgen_conv2d_images(op);
    cut.tile = sdgen_select_tile16(plan, GROUP, cut.quads * QUAD);
    cut.panel_quads = cut.tile.columns / QUAD;
    cut.panels = sdgen_ceil_div(cut.quads, cut.panel_quads);

    int64_t channels_in = sdgen_conv2d_channels(op), panel_bytes = cut.taps * channels_in * cut.tile.columns * (int64_t)sizeof(float);
    /* V within what is packed at a time, M within the half of L2 that is for a thread's packed panels. */
    int64_t m_columns = plan->blocking.nc * plan->blocking.kc / (cut.taps * GROUP);
    int64_t v_most = sdgen_max(plan->blocking.packed_bytes / panel_bytes, 1), most = sdgen_min(v_most, m_columns / cut.tile.columns);
    int64_t blocks = sdgen_ceil_div(cut.panels, sdgen_max(most, 1));
    cut.block_panels = sdgen_ceil_div(cut.panels, blocks);
    cut.groups = sdgen_ceil_div(op->channels_out, GROUP);
    int64_t v_blocks = sdgen_min(sdgen_ceil_div((int64_t)LEAST_SHARES * nth, cut.groups), v_most / cut.block_panels);
    v_blocks = nth == 1 ? 1 : sdgen_max(v_blocks, 1);
    v_blocks = sdgen_ceil_div(blocks, sdgen_ceil_div(blocks, v_blocks));
    cut.v_panels = sdgen_min(v_blocks * cut.block_panels, cut.panels);

    int64_t chains = sdgen_max(sdgen_ceil_div(channels_in, CHAIN), sdgen_min(LEAST_CHAINS, channels_in));
    cut.chain = sdgen_ceil_div(channels_in, chains);
    cut.shares = nth == 1 ? 1 : sdgen_min(sdgen_ceil_div((int64_t)LEAST_SHARES * nth, cut.groups * v_blocks), cut.block_panels);
    int64_t share_panels = cut.block_panels / cut.shares;
    cut.parts = cut.row_parts = 1;
    while (nth > 1 && cut.parts < MOST_PARTS && share_panels * cut.tile.columns >= 2 * cut.parts * PART_COLUMNS)
        cut.parts *= 2;
    while (share_panels * cut.row_parts < cut.parts)
        cut.row_parts *= 2;

    /* Rows of tiles that V may be of, the one that each image has more of in the strip, and the last one's halo. */
    int64_t tile_rows = sdgen_min(sdgen_ceil_div(cut.v_panels * cut.panel_quads - 1, cut.quads_x) + 1, cut.tiles_y * op->batch);
    int64_t gaps = sdgen_ceil_div(tile_rows - 1, cut.tiles_y);
    cut.strip_rows = op->before.groups ? (tile_rows + gaps + 1) * m : 0;
    return cut;
}

/* Working memory: V, with a norm before it a strip of x, the lines of its channels and its sums, and for each thread its packed weights,
 * U, M and, where something becomes of it, the output. */
struct work {
    float *v, *strip;
    struct sdgen_line *lines;
    double (*sums)[2];
    float *packed, *u, *m, *y;
};

/* Numbers from tap to tap of V, for a block of so many panels; of U, for so many input channels; of M, for so many columns. */
static int64_t v_tap(const struct cut *cut, const struct sdgen_conv2d *op, int64_t panels)
{
    return panels * sdgen_conv2d_channels(op) * cut->tile.columns + TAP_GAP;
}

static int64_t u_tap(int64_t channels)
{
    return channels * GROUP + TAP_GAP;
}

static int64_t m_tap(int64_t columns)
{
    return GROUP * columns + TAP_GAP;
}

static size_t v_size(const struct cut *cut, const struct sdgen_conv2d *op)
{
    return sdgen_floats_size(cut->taps * v_tap(cut, op, cut->v_panels));
}

/* Numbers from channel to channel of the strip. */
static int64_t strip_channel(const struct cut *cut, const struct sdgen_conv2d *op)
{
    return (cut->strip_rows + HALO) * op->width;
}

static size_t strip_size(const struct cut *cut, const struct sdgen_conv2d *op)
{
    return cut->strip_rows ? sdgen_floats_size(op->channels_in * strip_channel(cut, op)) : 0;
}

static size_t lines_size(const struct cut *cut, const struct sdgen_conv2d *op)
{
    return cut->strip_rows ? sdgen_floats_size(op->batch * op->channels_in * (int64_t)(sizeof(struct sdgen_line) / sizeof(float))) : 0;
}

static size_t sums_size(const struct cut *cut, const struct sdgen_conv2d *op)
{
    struct sdgen_group_norm norm = sdgen_conv2d_norm(op);
    return cut->strip_rows ? sdgen_floats_size((int64_t)(sdgen_group_norm_sums_size(&norm) / sizeof(float))) : 0;
}

static size_t shared_size(const struct cut *cut, const struct sdgen_conv2d *op)
{
    return v_size(cut, op) + strip_size(cut, op) + lines_size(cut, op) + sums_size(cut, op);
}

static size_t packed_size(const struct cut *cut)
{
    return sdgen_floats_size(9 * cut->chain * GROUP);
}

static size_t u_size(const struct cut *cut)
{
    return sdgen_floats_size(cut->taps * u_tap(cut->chain));
}

static size_t m_size(const struct cut *cut)
{
    return sdgen_floats_size(cut->taps * m_tap(cut->block_panels * cut->tile.columns));
}

/* Numbers from row to row of a thread's own output, and from channel to channel: quad after quad of m rows. */
static int64_t y_row(const struct cut *cut, int64_t panels)
{
    return panels * cut->panel_quads * QUAD * cut->m;
}

static int64_t y_channel(const struct cut *cut, int64_t panels)
{
    return cut->m * y_row(cut, panels);
}

static size_t y_size(const struct cut *cut, const struct sdgen_conv2d *op)
{
    return sdgen_after_any(&op->after) ? sdgen_floats_size(GROUP * y_channel(cut, cut->block_panels)) : 0;
}

static size_t own_size(const struct cut *cut, const struct sdgen_conv2d *op)
{
    return packed_size(cut) + u_size(cut) + m_size(cut) + y_size(cut, op);
}

size_t sdgen_winograd_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, int nth)
{
    struct cut cut = cut_of(plan, op, m, nth);
    return SDGEN_LINE + shared_size(&cut, op) + (size_t)nth * own_size(&cut, op);
}

/* Pieces of an image's channel are panels, or the parts of them that lie in the image. */
static int64_t sum_pieces(const struct cut *cut)
{
    return sdgen_ceil_div(cut->quads_x * cut->tiles_y - 1, cut->panel_quads) + 1;
}

int64_t sdgen_winograd_sum_pieces(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m)
{
    struct cut cut = cut_of(plan, op, m, 1);
    return sum_pieces(&cut);
}

static struct work work_of(const struct cut *cut, const struct sdgen_conv2d *op, const struct sdgen_team *team)
{
    char *base = sdgen_first_line(team->work);
    struct work work;
    work.v = (float *)(void *)base;
    work.strip = (float *)(void *)(base + v_size(cut, op));
    work.lines = (struct sdgen_line *)(void *)(base + v_size(cut, op) + strip_size(cut, op));
    work.sums = (double(*)[2])(void *)(base + v_size(cut, op) + strip_size(cut, op) + lines_size(cut, op));
    base += shared_size(cut, op) + (size_t)team->ith * own_size(cut, op);
    work.packed = (float *)(void *)base;
    work.u = (float *)(void *)(base + packed_size(cut));
    work.m = (float *)(void *)(base + packed_size(cut) + u_size(cut));
    work.y = (float *)(void *)(base + packed_size(cut) + u_size(cut) + m_size(cut));
    return work;
}

/* Where a quad lies: its image and its first output pixel; false beyond the last one. */
struct place {
    int64_t image, x, y;
};

static bool place_of(const struct cut *cut, int64_t quad, struct place *place)
{
    place->image = quad / (cut->quads_x * cut->tiles_y);
    place->y = quad / cut->quads_x % cut->tiles_y * cut->m;
    place->x = quad % cut->quads_x * QUAD * cut->m;
    return quad < cut->quads;
}

/* Loads of a quad's row by the input transform, in pixels from its first: step l, and step l + 4 where the tile is wider than 4. */
static int64_t load_offset(const struct cut *cut, int64_t load)
{
    return cut->step == 4 || load < QUAD ? cut->step * load : cut->step * (load - QUAD) + 4;
}

static int64_t load_count(const struct cut *cut)
{
    static const int64_t counts[] = {[3] = 3, [4] = 4, [5] = 8, [6] = 5};
    return counts[cut->t];
}

/* ---- x, normed ----
 *
 * Rows of the strip are counted over all images, from the padding above on, with a row of tiles more for each image, so that none has
 * rows of two. Row r lies at r % strip_rows, and the first HALO ones again behind the last, so that the rows of a tile lie side by
 * side. */

/* The first row that a quad reads. */
static int64_t strip_row(const struct cut *cut, int64_t quad)
{
    int64_t tile_row = quad / cut->quads_x;
    return (tile_row + tile_row / cut->tiles_y) * cut->m;
}

/* Rows [begin, end) of the strip, which some panels read beside those that the panels before have read. */
struct stretch {
    int64_t begin, end;
};

static struct stretch rows_of(const struct cut *cut, int64_t panel, int64_t panels)
{
    int64_t quad = panel * cut->panel_quads, last = sdgen_min(quad + panels * cut->panel_quads, cut->quads) - 1;
    int64_t normed = quad ? strip_row(cut, quad - 1) + cut->t : 0;
    return (struct stretch){.begin = sdgen_max(strip_row(cut, quad), normed), .end = strip_row(cut, last) + cut->t};
}

/* Rows [begin, end) of an image's channel, that are side by side in the strip too. */
static void norm_rows(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut, const struct work *work,
                      int64_t image, int64_t channel, int64_t begin, int64_t end, int64_t strip_row)
{
    float *strip = work->strip + channel * strip_channel(cut, op);
    const struct sdgen_line line = work->lines[image * op->channels_in + channel];
    plan->kernels->map[op->before.function](&(struct sdgen_map_run){
        .x = sdgen_at(op->x, image * op->x_batch_stride + channel * op->x_channel_stride + begin * op->x_row_stride),
        .y = strip + strip_row * op->width,
        .n = (end - begin) * op->width,
        .scale = line.scale,
        .shift = line.shift,
        .parameter = {op->before.parameter[0], op->before.parameter[1]},
    });
    int64_t again = sdgen_min(HALO - strip_row, end - begin);
    if (again > 0)
        memcpy(strip + (cut->strip_rows + strip_row) * op->width, strip + strip_row * op->width,
               (size_t)(again * op->width) * sizeof(float));
}

static void norm_channels(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut, const struct work *work,
                          struct stretch rows, int64_t channel, int64_t channels)
{
    const int64_t image_rows = (cut->tiles_y + 1) * cut->m;
    for (int64_t row = rows.begin, next; row < rows.end; row = next) {
        int64_t strip_row = row % cut->strip_rows, image = row / image_rows, y = row % image_rows - op->pad_y;
        next = sdgen_min(sdgen_min(rows.end, row + cut->strip_rows - strip_row), (image + 1) * image_rows);
        int64_t begin = sdgen_max(y, 0), end = sdgen_min(y + next - row, op->height);
        for (int64_t c = channel; begin < end && c < channel + channels; c++)
            norm_rows(plan, op, cut, work, image, c, begin, end, strip_row + begin - y);
    }
}

/* What becomes of each channel of x. */
static void begin_norm(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_team *team,
                       const struct work *work)
{
    const struct sdgen_group_norm norm = sdgen_conv2d_norm(op);
    sdgen_group_norm_lines(plan, &norm, team, work->sums, work->lines);
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
    sdgen_wait(team);
}

/* ---- x to V ---- */

/* Input channels that are normed and transformed at a time. */
static int64_t normed_channels(const struct sdgen_conv2d *op, int nth)
{
    int64_t share = nth == 1 ? NORMED_CHANNELS : op->channels_in / ((int64_t)LEAST_SHARES * nth);
    return sdgen_max(sdgen_min(share, NORMED_CHANNELS), LEAST_NORMED_CHANNELS);
}

static void set_input_quad(const struct cut *cut, const struct sdgen_conv2d *op, const struct work *work, int64_t quad, int64_t channel,
                           int64_t kernel_frame, struct sdgen_winograd_input *input, int64_t q)
{
    struct place place;
    int64_t image = 0;
    bool exists = place_of(cut, quad, &place) && sdgen_conv2d_x(op, place.image, kernel_frame, &image);
    int64_t x = place.x / cut->m * cut->step - op->pad_x, y = place.y / cut->m * cut->step - op->pad_y;
    int64_t offset = exists ? channel * input->channel_stride + x * (int64_t)sizeof(float) : 0;
    if (exists)
        offset += cut->strip_rows ? strip_row(cut, quad) % cut->strip_rows * input->row_stride
                                  : image + y * input->row_stride;
    /* May begin before the image. */
    input->x[q] = (const float *)((uintptr_t)(cut->strip_rows ? work->strip : op->x) + (uintptr_t)offset);
    bool inside = exists && y >= 0 && y + cut->t <= op->height;
    for (int64_t row = 0; row < cut->t; row++) {
        int32_t mask = exists && y + row >= 0 && y + row < op->height ? -1 : 0;
        for (int64_t l = 0; l < QUAD; l++)
            input->row_mask[row][q][l] = mask;
    }
    for (int64_t load = 0; load < load_count(cut); load++) {
        int64_t first = x + load_offset(cut, load);
        inside = inside && first >= 0 && first + QUAD <= op->width;
        for (int64_t l = 0; l < QUAD; l++)
            input->load_mask[load][q][l] = exists && first + l >= 0 && first + l < op->width ? -1 : 0;
    }
    input->masked |= !inside;
}

/* Some channels of one vector of a panel, and of a frame of the kernel, for the V that begins with first_panel and has so many. */
static void transform_vector(const struct sdgen_conv2d *op, const struct cut *cut, const struct work *work, int64_t first_panel,
                             int64_t panels, int64_t panel, int64_t vector, int64_t frame, int64_t channel, int64_t channels)
{
    int64_t columns = cut->tile.columns, lanes = cut->kernels->input_lanes, frames = sdgen_conv2d_kernel_frames(op);
    struct sdgen_winograd_input input = {
        .row_stride = cut->strip_rows ? op->width * (int64_t)sizeof(float) : op->x_row_stride,
        .channel_stride = cut->strip_rows ? strip_channel(cut, op) * (int64_t)sizeof(float) : op->x_channel_stride,
        .channels = channels,
        .dst = work->v + ((panel * op->channels_in + channel) * frames + frame) * columns + vector * lanes,
        .tap_stride = v_tap(cut, op, panels) * (int64_t)sizeof(float),
        .dst_channel_stride = frames * columns * (int64_t)sizeof(float),
    };
    int64_t quad = (first_panel + panel) * cut->panel_quads + vector * lanes / QUAD;
    for (int64_t q = 0; q < lanes / QUAD; q++)
        set_input_quad(cut, op, work, quad + q, channel, frame, &input, q);
    cut->kernels->input(&input);
}

static void transform_inputs(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut,
                             const struct sdgen_team *team, const struct work *work, int64_t first_panel, int64_t panels)
{
    /* Items: channels and a frame of a vector, or, for what is normed for one is read by others too, of all vectors. */
    int64_t vectors = cut->tile.columns / cut->kernels->input_lanes, all = panels * vectors, together = cut->strip_rows ? all : 1;
    int64_t channels = cut->strip_rows ? normed_channels(op, team->nth) : INPUT_CHANNELS, frames = sdgen_conv2d_kernel_frames(op);
    int64_t channel_blocks = sdgen_ceil_div(op->channels_in, channels) * frames, items = all / together * channel_blocks, begin, end;
    const struct stretch rows = rows_of(cut, first_panel, panels);
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &begin, &end))
        for (int64_t item = begin; item < end; item++) {
            int64_t frame = item % channel_blocks % frames, channel = item % channel_blocks / frames * channels;
            int64_t count = sdgen_min(channels, op->channels_in - channel), first = item / channel_blocks * together;
            if (cut->strip_rows)
                norm_channels(plan, op, cut, work, rows, channel, count);
            for (int64_t i = first; i < first + together; i++)
                transform_vector(op, cut, work, first_panel, panels, i / vectors, i % vectors, frame, channel, count);
        }
    sdgen_phase(team, SDGEN_PHASE_TRANSFORM);
}

/* Weights come from memory once for each block, in short stretches of 16 rows, which the processor does not foresee. */
static void prefetch(const char *from, int64_t size)
{
    for (int64_t offset = 0; offset < size; offset += SDGEN_LINE)
        __builtin_prefetch(from + offset);
}

/* Output channels of a group, all or some. */
struct rows {
    int64_t first, count;
};

static struct rows group_rows(const struct sdgen_conv2d *op, int64_t group)
{
    return (struct rows){group * GROUP, sdgen_min(GROUP, op->channels_out - group * GROUP)};
}

/* The weights of an output channel from an input channel on. */
static const char *weights_of(const struct sdgen_conv2d *op, int64_t row, int64_t channel)
{
    return (const char *)op->w + (row * sdgen_conv2d_channels(op) + channel) * 9 * sdgen_type_size(op->w_type);
}

/* U of a chain of input channels. */
static void transform_weights(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut,
                              const struct sdgen_team *team, const struct work *work, struct rows of, int64_t channel, int64_t channels,
                              float *u)
{
    int64_t w_stride = sdgen_conv2d_channels(op) * 9 * sdgen_type_size(op->w_type);
    plan->kernels->pack[op->w_type][GROUP]((size_t)channels * 9, (size_t)of.count, weights_of(op, of.first, channel), (ptrdiff_t)w_stride,
                                           work->packed);
    sdgen_phase(team, SDGEN_PHASE_PACK);
    cut->kernels->weights((size_t)channels, work->packed, u, (size_t)u_tap(channels) * sizeof(float));
    sdgen_phase(team, SDGEN_PHASE_TRANSFORM);
}

enum { SAMPLE = 1024 };

static struct sdgen_hash key_of(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut, int64_t group,
                                int64_t size)
{
    const struct sdgen_hash w = sdgen_hash(plan->kernels, weights_of(op, group * GROUP, 0), 1, (size_t)size, 0);
    const uint64_t made_of[] = {(uint64_t)(uintptr_t)cut->kernels->weights, (uint64_t)op->w_type, (uint64_t)sdgen_conv2d_channels(op),
                                (uint64_t)cut->chain, w.word[0], w.word[1]};
    return sdgen_hash(plan->kernels, made_of, 1, sizeof made_of, 0);
}

/* U of all chains of a group, u_size apart, in the plan's store, to be released; NULL where that has no room. It is found by the
 * weights and all else that it depends on; the kernel stands for level and form. Where there is no room, it is not looked for but where
 * the hash of the first weights, under which an array of nothing is kept, says that it may be there. */
static const float *kept_weights(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut,
                                 const struct sdgen_team *team, const struct work *work, int64_t group)
{
    const struct rows of = group_rows(op, group);
    const int64_t channels_in = sdgen_conv2d_channels(op);
    const size_t size = (size_t)sdgen_ceil_div(channels_in, cut->chain) * u_size(cut);
    const int64_t w_size = of.count * channels_in * 9 * sdgen_type_size(op->w_type);
    const struct sdgen_hash sample = key_of(plan, op, cut, group, sdgen_min(SAMPLE, w_size - 1));
    const void *mark = sdgen_store_find(plan->store, sample);
    if (mark)
        sdgen_store_release(plan->store, mark);
    else if (!sdgen_store_has_room(plan->store, size))
        return NULL;
    const struct sdgen_hash key = key_of(plan, op, cut, group, w_size);
    sdgen_phase(team, SDGEN_PHASE_OTHER);
    const float *found = sdgen_store_find(plan->store, key);
    if (found)
        return found;
    float *u = sdgen_store_add(plan->store, key, size);
    for (int64_t channel = 0; u && channel < channels_in; channel += cut->chain)
        transform_weights(plan, op, cut, team, work, of, channel, sdgen_min(cut->chain, channels_in - channel),
                          u + channel / cut->chain * (int64_t)(u_size(cut) / sizeof(float)));
    if (!u)
        return NULL;
    sdgen_store_publish(plan->store, u);
    mark = sdgen_store_add(plan->store, sample, 0);
    if (mark) {
        sdgen_store_publish(plan->store, mark);
        sdgen_store_release(plan->store, mark);
    }
    return u;
}

/* M of some rows of a group and some of V's panels, [tap][GROUP][the panels' columns]. */
static void multiply(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut,
                     const struct sdgen_team *team, const struct work *work, struct rows of, int64_t v_panels, int64_t first_panel,
                     int64_t panels)
{
    int64_t columns = cut->tile.columns, m_stride = panels * columns, rows = of.count;
    int64_t row_panels = sdgen_ceil_div(rows, cut->tile.rows);
    int64_t channels_in = sdgen_conv2d_channels(op), size = sdgen_type_size(op->w_type), w_stride = channels_in * 9 * size;
    const bool keep = sdgen_select_kept_weights(plan, op, cut->panels);
    const float *kept = keep ? kept_weights(plan, op, cut, team, work, of.first / GROUP) : NULL;
    for (int64_t channel = 0; channel < channels_in; channel += cut->chain) {
        int64_t channels = sdgen_min(cut->chain, channels_in - channel);
        const char *w = weights_of(op, of.first, channel);
        const float *u = work->u;
        if (kept) /* that of the whole group */
            u = kept + channel / cut->chain * (int64_t)(u_size(cut) / sizeof(float)) + of.first % GROUP;
        else
            transform_weights(plan, op, cut, team, work, of, channel, channels, work->u);
        const struct sdgen_epilogue epilogue = {.columns = (int32_t)columns, .accumulate = channel > 0, .scale = 1};
        int64_t next_channels = sdgen_min(cut->chain, channels_in - channel - channels);
        for (int64_t tap = 0; tap < cut->taps; tap++) {
            for (int64_t row = tap; !kept && row < rows; row += cut->taps)
                prefetch(w + row * w_stride + channels * 9 * size, next_channels * 9 * size);
            for (int64_t panel = 0; panel < panels; panel++) {
                const float *v = work->v + tap * v_tap(cut, op, v_panels) +
                                 ((first_panel + panel) * channels_in + channel) * columns;
                for (int64_t p = 0; p < row_panels; p++) {
                    int64_t row = p * rows / row_panels, row_end = (p + 1) * rows / row_panels;
                    cut->tile.gemm[row_end - row](
                        (size_t)channels, u + tap * u_tap(channels) + row, v,
                        work->m + tap * m_tap(m_stride) + row * m_stride + panel * columns, (size_t)m_stride * sizeof(float), &epilogue);
                }
            }
        }
        sdgen_phase(team, SDGEN_PHASE_PRODUCT);
    }
    if (kept)
        sdgen_store_release(plan->store, kept);
}

/* To c, or to the thread's own memory where something becomes of the output before it gets there. */
static void transform_outputs(const struct sdgen_conv2d *op, const struct cut *cut, const struct work *work, struct rows of,
                              int64_t first_quad, int64_t panels)
{
    const int64_t number = sizeof(float);
    const bool own = sdgen_after_any(&op->after);
    int64_t lanes = cut->kernels->output_lanes, m_stride = panels * cut->tile.columns;
    int64_t channel = of.first, channel_stride = sdgen_conv2d_c_channel(op);
    for (int64_t lane = 0; lane < m_stride; lane += lanes) {
        struct sdgen_winograd_output output = {
            .src = work->m + lane,
            .tap_stride = m_tap(m_stride) * number,
            .src_channel_stride = m_stride * number,
            .channels = of.count,
            .row_stride = own ? y_row(cut, panels) * number : op->width_out * number,
            .channel_stride = own ? y_channel(cut, panels) * number : channel_stride,
            .bias = op->bias ? op->bias + channel : NULL,
            .scale = op->scale,
        };
        for (int64_t q = 0; q < lanes / QUAD; q++) {
            struct place place;
            bool exists = place_of(cut, first_quad + lane / QUAD + q, &place);
            int64_t offset = exists ? sdgen_conv2d_c(op, place.image) + channel * channel_stride + place.y * op->width_out * number +
                                          place.x * number
                                    : 0;
            output.y[q] = own ? work->y + (lane + q * QUAD) * cut->m : (float *)(void *)((char *)op->c + offset);
            output.rows[q] = exists ? (int32_t)sdgen_min(cut->m, op->height_out - place.y) : 0;
            output.columns[q] = exists ? (int32_t)sdgen_min(QUAD * cut->m, op->width_out - place.x) : 0;
        }
        cut->kernels->output(&output);
    }
}

/* From the thread's own output to c: run by run of pixels of a row, whose quads are neighbours in both. */
static void apply_after(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut, const float *y,
                        struct rows of, int64_t first_quad, int64_t panels)
{
    const int64_t number = sizeof(float), quads = panels * cut->panel_quads, channel_stride = sdgen_conv2d_c_channel(op);
    const int64_t frames = op->frames.out ? op->frames.out : op->batch;
    int64_t channel = of.first, channels = of.count;
    struct place place;
    for (int64_t quad = 0, next; quad < quads && place_of(cut, first_quad + quad, &place); quad = next) {
        next = sdgen_min(quads, quad + cut->quads_x - (first_quad + quad) % cut->quads_x);
        int64_t columns = sdgen_min((next - quad) * QUAD * cut->m, op->width_out - place.x);
        for (int64_t row = 0; row < sdgen_min(cut->m, op->height_out - place.y); row++) {
            int64_t pixel = (place.y + row) * op->width_out + place.x;
            float *c = (float *)(void *)((char *)op->c + sdgen_conv2d_c(op, place.image) + channel * channel_stride) + pixel;
            sdgen_after_apply(plan->kernels, &op->after, (const int64_t[]){place.image % frames, place.image / frames}, channel, channels,
                              pixel, columns, y + row * y_row(cut, panels) + quad * QUAD * cut->m, y_channel(cut, panels) * number, c,
                              channel_stride);
        }
    }
}

/* Adds up what is written for quads of an image and some channels: row by row of tiles, or many at once where they are whole. */
static void sum_quads(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut, int64_t quad, int64_t end,
                      struct rows of, double (*sums)[2], int64_t pieces)
{
    const int64_t pixels = op->width_out * op->height_out;
    struct place place;
    for (int64_t next; quad < end && place_of(cut, quad, &place); quad = next) {
        int64_t left = quad % cut->quads_x, whole = left ? 0 : (end - quad) / cut->quads_x;
        next = sdgen_min(whole ? quad + whole * cut->quads_x : quad - left + cut->quads_x, end);
        int64_t columns = whole ? op->width_out : sdgen_min((next - quad) * QUAD * cut->m, op->width_out - place.x);
        int64_t rows = sdgen_min((whole ? whole : 1) * cut->m, op->height_out - place.y), together = columns == op->width_out ? rows : 1;
        const float *c = sdgen_at(op->c, place.image * op->c_batch_stride) + of.first * pixels + place.y * op->width_out + place.x;
        for (int64_t i = 0; i < of.count; i++)
            for (int64_t row = 0; row < rows; row += together)
                plan->kernels->moments((size_t)(together * columns), c + i * pixels + row * op->width_out, sums[i * pieces]);
    }
}

/* The sums of some panels for some channels. Where an image has fewer pieces than others, the rest are zeros. */
static void make_sums(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut, struct rows of,
                      int64_t first_panel, int64_t panels)
{
    const int64_t pieces = sum_pieces(cut), image_quads = cut->quads_x * cut->tiles_y;
    const int64_t quads = sdgen_min((first_panel + panels) * cut->panel_quads, cut->quads);
    for (int64_t quad = first_panel * cut->panel_quads, next; quad < quads; quad = next) {
        const int64_t image = quad / image_quads, image_end = (image + 1) * image_quads, panel = quad / cut->panel_quads;
        next = sdgen_min(sdgen_min((panel + 1) * cut->panel_quads, image_end), quads);
        const int64_t piece = panel - image * image_quads / cut->panel_quads, zeros = next == image_end ? pieces - piece : 1;
        double(*sums)[2] = op->sums + (image * op->channels_out + of.first) * pieces + piece;
        for (int64_t i = 0; i < of.count; i++)
            memset(sums + i * pieces, 0, (size_t)zeros * sizeof *sums);
        sum_quads(plan, op, cut, quad, next, of, sums, pieces);
    }
}

/* The products and the output of the panels whose V is there. */
static void make_outputs(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct cut *cut,
                         const struct sdgen_team *team, const struct work *work, int64_t first_panel, int64_t panels)
{
    /* Items: parts of a stretch's output channels, within stretches of a share of a block, within groups, within blocks. */
    int64_t all = cut->shares * cut->parts, items = sdgen_ceil_div(panels, cut->block_panels) * cut->groups * all;
    int64_t taken = 0, item, end;
    while (sdgen_queue_take(sdgen_queue(team), items, cut->parts, cut->parts, team->nth, &taken, &item, &end)) {
        int64_t group = item / all % cut->groups, block = item / all / cut->groups * cut->block_panels;
        int64_t block_panels = sdgen_min(cut->block_panels, panels - block), channel = group * GROUP;
        int64_t rows = sdgen_min(GROUP, op->channels_out - channel), stretches = all / cut->row_parts;
        for (int64_t next; item < end; item = next) {
            /* stretches with all of their channels together, else what there is of one */
            int64_t part = item % all, row_part = part % cut->row_parts;
            next = row_part == 0 && end - item >= cut->row_parts ? end - (end - item) % cut->row_parts
                                                                 : sdgen_min(end, item + cut->row_parts - row_part);
            int64_t last = part + next - item - 1;
            int64_t first_row = row_part * rows / cut->row_parts, row_end = (last % cut->row_parts + 1) * rows / cut->row_parts;
            const struct rows of = {channel + first_row, row_end - first_row};
            int64_t first = block + part / cut->row_parts * block_panels / stretches;
            int64_t count = block + (last / cut->row_parts + 1) * block_panels / stretches - first;
            if (of.count == 0 || count == 0)
                continue;
            multiply(plan, op, cut, team, work, of, panels, first, count);
            int64_t first_quad = (first_panel + first) * cut->panel_quads;
            transform_outputs(op, cut, work, of, first_quad, count);
            sdgen_phase(team, SDGEN_PHASE_TRANSFORM);
            if (!sdgen_after_any(&op->after) && !op->sums)
                continue;
            if (sdgen_after_any(&op->after))
                apply_after(plan, op, cut, work->y, of, first_quad, count);
            if (op->sums)
                make_sums(plan, op, cut, of, first_panel + first, count);
            sdgen_phase(team, SDGEN_PHASE_EPILOGUE);
        }
    }
}

void sdgen_winograd(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, const struct sdgen_team *team)
{
    struct cut cut = cut_of(plan, op, m, team->nth);
    struct work work = work_of(&cut, op, team);
    if (cut.strip_rows)
        begin_norm(plan, op, team, &work);
    for (int64_t first = 0; first < cut.panels; first += cut.v_panels) {
        int64_t panels = sdgen_min(cut.v_panels, cut.panels - first);
        if (first > 0)
            sdgen_wait(team);
        transform_inputs(plan, op, &cut, team, &work, first, panels);
        sdgen_wait(team);
        make_outputs(plan, op, &cut, team, &work, first, panels);
    }
}
