/* Direct convolution, as the product of the weights [channels_out][depth] and the image's patches [depth][pixels], where depth counts
 * input channels and, within one, the taps of the kernel. A panel of patches is read from the image where it is needed; a patch
 * matrix as a whole never exists. */
#include "conv.h"

#include "elementwise.h"
#include "norm.h"

enum {
    LANES = 8, /* of a group of sdgen_patches */
    STRIP_GAP = 16,
    LINE = 64,
};

static int64_t size_out(int64_t size, int64_t kernel, int64_t stride, int64_t pad, int64_t dilation)
{
    return (size + 2 * pad - dilation * (kernel - 1) - 1) / stride + 1;
}

/* How often each pixel of x is repeated, each way. */
static int64_t repeat_of(const struct sdgen_conv2d *op)
{
    return op->x_doubled ? 2 : 1;
}

struct sdgen_group_norm sdgen_conv2d_norm(const struct sdgen_conv2d *op)
{
    const struct sdgen_before *before = &op->before;
    return (struct sdgen_group_norm){
        .batch = op->batch,
        .channels = op->channels_in,
        .pixels = op->width * op->height,
        .groups = before->groups,
        .x = op->x,
        .x_channel_stride = op->x_channel_stride,
        .x_batch_stride = op->x_batch_stride,
        .weight = before->weight,
        .bias = before->bias,
        .eps = before->eps,
        .function = before->function,
        .parameter = {before->parameter[0], before->parameter[1]},
        .sums = before->sums,
        .sum_pieces = before->sum_pieces,
    };
}

static const char *before_check(const struct sdgen_conv2d *op)
{
    if (op->x_doubled || op->x_pixel_stride || op->frames.out)
        return "x is normed and doubled, of tokens or of frames";
    if (op->x_row_stride != op->width * (int64_t)sizeof(float))
        return "x is normed and has gaps between its rows";
    struct sdgen_group_norm norm = sdgen_conv2d_norm(op);
    norm.y = op->c; /* any array: it is not written as a whole */
    norm.y_channel_stride = norm.pixels * (int64_t)sizeof(float);
    return sdgen_group_norm_check(&norm);
}

/* Whether each pixel of the output is made of the one pixel of x that is in its place. */
static bool pointwise(const struct sdgen_conv2d *op)
{
    return op->kernel_width == 1 && op->kernel_height == 1 && op->pad_x == 0 && op->pad_y == 0 && op->stride_x == 1 &&
           op->stride_y == 1 && !op->x_doubled;
}

const char *sdgen_conv2d_check(const struct sdgen_conv2d *op)
{
    int64_t width = op->width * repeat_of(op), height = op->height * repeat_of(op);
    if (op->batch <= 0 || op->channels_in <= 0 || op->channels_out <= 0 || op->width <= 0 || op->height <= 0 ||
        op->width_out <= 0 || op->height_out <= 0 || op->kernel_width <= 0 || op->kernel_height <= 0)
        return "an extent is not positive";
    if (op->stride_x <= 0 || op->stride_y <= 0 || op->dilation_x <= 0 || op->dilation_y <= 0)
        return "a stride or dilation is not positive";
    if (op->pad_x < 0 || op->pad_y < 0)
        return "a padding is negative";
    if (width + 2 * op->pad_x < op->dilation_x * (op->kernel_width - 1) + 1 ||
        height + 2 * op->pad_y < op->dilation_y * (op->kernel_height - 1) + 1)
        return "the kernel is larger than the padded image";
    if (op->width_out != size_out(width, op->kernel_width, op->stride_x, op->pad_x, op->dilation_x) ||
        op->height_out != size_out(height, op->kernel_height, op->stride_y, op->pad_y, op->dilation_y))
        return "the output's size does not follow from the image's";
    const struct sdgen_frames *frames = &op->frames;
    if (frames->out) {
        if (frames->in <= 0 || frames->out < 0 || frames->kernel <= 0 || frames->stride <= 0 || frames->dilation <= 0 || frames->pad < 0)
            return "an extent, stride, padding or dilation of frames is not as it should be";
        if (frames->in + 2 * frames->pad < frames->dilation * (frames->kernel - 1) + 1 ||
            frames->out > size_out(frames->in, frames->kernel, frames->stride, frames->pad, frames->dilation))
            return "there are more frames of c than those of x make";
        if (op->x_doubled)
            return "frames are doubled";
        if (op->sums)
            return "sums are made of images only, not of frames";
        if (frames->x_stride % (int64_t)sizeof(float))
            return "the stride of frames is not aligned to elements";
    }
    if ((unsigned)op->w_type >= SDGEN_TYPES)
        return "w_type is none of F32, F16 and BF16";
    if (!op->w || !op->x || !op->c)
        return "an array is missing";
    if ((uintptr_t)op->w % (uintptr_t)sdgen_type_size(op->w_type))
        return "w is not aligned to its elements";
    if ((uintptr_t)op->x % sizeof(float) || op->x_row_stride % (int64_t)sizeof(float) ||
        op->x_channel_stride % (int64_t)sizeof(float) || op->x_batch_stride % (int64_t)sizeof(float) ||
        op->x_pixel_stride % (int64_t)sizeof(float))
        return "x or one of its strides is not aligned to its elements";
    if (op->x_pixel_stride && (!pointwise(op) || op->frames.out))
        return "pixels of x lie apart, and the kernel reads several of them";
    if ((uintptr_t)op->c % sizeof(float) || op->c_batch_stride % (int64_t)sizeof(float))
        return "c or its stride is not aligned to its elements";
    if (op->batch > 1 && op->c_batch_stride < op->channels_out * sdgen_conv2d_c_channel(op))
        return "batches of c overlap";
    if (op->after.addend.data == op->c && op->scale != 1)
        return "an addend that is c is not scaled, the convolution is";
    if ((uintptr_t)op->sums % sizeof(double))
        return "the sums are not aligned to their elements";
    const char *wrong = op->before.groups ? before_check(op) : NULL;
    if (wrong)
        return wrong;
    int64_t image = op->width_out * op->height_out * (int64_t)sizeof(float), batch = op->batch > 1 ? op->c_batch_stride : -1;
    const int64_t of_frames[] = {sdgen_conv2d_c_channel(op), frames->out > 1 ? image : -1, batch}, of_images[] = {image, batch, -1};
    return sdgen_after_check(&op->after, op->c, frames->out ? of_frames : of_images);
}

static void pack_w(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t row, int64_t rows,
                   int64_t begin, int64_t end, float *dst, float *scratch)
{
    (void)batch, (void)scratch;
    const struct sdgen_conv2d *op = gemm->operation;
    int64_t stride = gemm->depth * sdgen_type_size(op->w_type);
    kernels->pack[op->w_type][rows]((size_t)(end - begin), (size_t)rows,
                                    (const char *)op->w + row * stride + begin * sdgen_type_size(op->w_type), (ptrdiff_t)stride, dst);
}

/* Taps of the kernel, of all of its frames. */
static int64_t taps_of(const struct sdgen_conv2d *op)
{
    return op->kernel_width * op->kernel_height * sdgen_conv2d_kernel_frames(op);
}

/* The part of a panel of patches that one tap reads: the input channels whose numbers for this tap lie in [begin, end). */
struct tap {
    const char *image;         /* the first input channel, of the tap's frame */
    bool exists;               /* x has the frame */
    int64_t x, y;              /* offset of the tap from an output pixel's first input pixel, padding taken off */
    int64_t channel, channels; /* first and number */
    float *dst;                /* of the first; the next ones lie taps * width numbers apart */
};

static struct tap tap_of(const struct sdgen_conv2d *op, int64_t image, int64_t index, int64_t begin, int64_t end, int64_t width, float *dst)
{
    int64_t taps = taps_of(op), offset;
    struct tap tap;
    tap.exists = sdgen_conv2d_x(op, image, index / (op->kernel_width * op->kernel_height), &offset);
    tap.image = (const char *)((uintptr_t)op->x + (uintptr_t)offset);
    tap.x = index % op->kernel_width * op->dilation_x - op->pad_x;
    tap.y = index / op->kernel_width % op->kernel_height * op->dilation_y - op->pad_y;
    tap.channel = begin > index ? sdgen_ceil_div(begin - index, taps) : 0;
    tap.channels = (end > index ? sdgen_ceil_div(end - index, taps) : 0) - tap.channel;
    tap.dst = dst + (tap.channel * taps + index - begin) * width;
    return tap;
}

/* One segment of a group: lanes [lane, lane + lanes) are the output pixels from (x, y) on, of one row of the image. */
static void set_segment(const struct sdgen_conv2d *op, const struct tap *tap, int64_t lane, int64_t lanes, int64_t x, int64_t y,
                        const float **segment, int32_t mask[LANES])
{
    int64_t in_x = x + tap->x - lane, in_y = y * op->stride_y + tap->y; /* of lane 0 */
    int64_t first = sdgen_max(lane, -in_x), last = sdgen_min(lane + lanes, op->width - in_x);
    if (!tap->exists || in_y < 0 || in_y >= op->height)
        last = first;
    for (int64_t l = 0; l < LANES; l++)
        mask[l] = l >= first && l < last ? -1 : 0;
    /* May lie outside of the image; only lanes of the mask are read. */
    *segment = (const float *)((uintptr_t)tap->image + (uintptr_t)(in_y * op->x_row_stride + in_x * (int64_t)sizeof(float)));
}

/* Packs SDGEN_COLUMNS_STEP columns of a panel `width` wide, of which `pixels` exist. Pixels side by side in the output are side by
 * side in the image: stride 1, and no group of lanes in more than two rows. */
static void pack_by_segments(const struct sdgen_conv2d *op, const struct sdgen_kernels *kernels, int64_t image,
                             int64_t pixel, int64_t pixels, int64_t begin, int64_t end, int64_t width, float *dst)
{
    int64_t taps = taps_of(op);
    for (int64_t index = 0; index < taps; index++) {
        struct tap tap = tap_of(op, image, index, begin, end, width, dst);
        if (tap.channels <= 0)
            continue;
        struct sdgen_patches patches;
        for (int64_t group = 0; group < SDGEN_COLUMNS_STEP / LANES; group++) {
            int64_t first = pixel + group * LANES, x = first % op->width_out, y = first / op->width_out;
            int64_t lanes = sdgen_min(pixels - group * LANES, LANES);
            int64_t in_row = sdgen_max(sdgen_min(op->width_out - x, lanes), 0);
            set_segment(op, &tap, 0, in_row, x, y, &patches.segment[2 * group], patches.mask[2 * group]);
            set_segment(op, &tap, in_row, lanes - in_row, 0, y + 1, &patches.segment[2 * group + 1],
                        patches.mask[2 * group + 1]);
        }
        for (int64_t s = 0; s < 2 * SDGEN_COLUMNS_STEP / LANES; s++)
            patches.segment[s] =
                (const float *)((uintptr_t)patches.segment[s] + (uintptr_t)(tap.channel * op->x_channel_stride));
        kernels->pack_patches((size_t)tap.channels, &patches, (size_t)op->x_channel_stride, tap.dst,
                              (size_t)(taps * width) * sizeof(float));
    }
}

/* The same for any stride, any width of the image, and an image doubled: lane by lane. */
static void pack_by_pixels(const struct sdgen_conv2d *op, int64_t image, int64_t pixel, int64_t pixels, int64_t begin,
                           int64_t end, int64_t width, float *dst)
{
    int64_t taps = taps_of(op), repeat = repeat_of(op);
    for (int64_t index = 0; index < taps; index++) {
        struct tap tap = tap_of(op, image, index, begin, end, width, dst);
        int64_t offset[SDGEN_COLUMNS_STEP];
        bool inside[SDGEN_COLUMNS_STEP];
        for (int64_t j = 0; j < SDGEN_COLUMNS_STEP; j++) {
            int64_t x = (pixel + j) % op->width_out * op->stride_x + tap.x, y = (pixel + j) / op->width_out * op->stride_y + tap.y;
            inside[j] = tap.exists && j < pixels && x >= 0 && x < op->width * repeat && y >= 0 && y < op->height * repeat;
            offset[j] = y / repeat * op->x_row_stride + x / repeat * (int64_t)sizeof(float);
        }
        for (int64_t c = 0; c < tap.channels; c++) {
            const char *channel = tap.image + (tap.channel + c) * op->x_channel_stride;
            float *to = tap.dst + c * taps * width;
            for (int64_t j = 0; j < SDGEN_COLUMNS_STEP; j++)
                to[j] = inside[j] ? *(const float *)(const void *)(channel + offset[j]) : 0.0f;
        }
    }
}

static void pack_patches(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t column,
                         int64_t columns, int64_t begin, int64_t end, float *dst)
{
    const struct sdgen_conv2d *op = gemm->operation;
    bool segments = op->stride_x == 1 && !op->x_doubled && (op->width_out >= LANES || op->height_out == 1);
    int64_t width = gemm->tile.columns, panels = sdgen_ceil_div(columns, width);
    for (int64_t j = 0; j < panels * width; j += SDGEN_COLUMNS_STEP) {
        int64_t pixels = sdgen_max(sdgen_min(columns - j, SDGEN_COLUMNS_STEP), 0);
        float *part = dst + j / width * width * (end - begin) + j % width;
        if (segments)
            pack_by_segments(op, kernels, batch, column + j, pixels, begin, end, width, part);
        else
            pack_by_pixels(op, batch, column + j, pixels, begin, end, width, part);
    }
}

static void pack_tokens(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t column,
                        int64_t columns, int64_t begin, int64_t end, float *dst)
{
    const struct sdgen_conv2d *op = gemm->operation;
    const char *x = (const char *)op->x + batch * op->x_batch_stride + column * op->x_pixel_stride + begin * (int64_t)sizeof(float);
    sdgen_gemm_pack_columns(gemm, kernels, SDGEN_F32, x, op->x_pixel_stride, columns, end - begin, dst);
}

/* ---- x, normed ----
 *
 * For each block of the depth, a thread norms the rows of x that the patches of its columns read, of the channels of that block, into a
 * strip that it packs from then. It takes as many columns at a time as make the strip about half of L2, so that few rows are normed for
 * two lots of them. Where the output channels are handed out in several shares, each thread norms for itself. */

/* As a thread computes it. */
struct normed {
    struct sdgen_conv2d op;         /* first, as which other functions of the product know it */
    const struct sdgen_line *lines; /* [batch][channels_in] */
    struct sdgen_conv2d *strip;     /* the same of normed rows in place of x, as much of it as is packed next */
    float *rows;
};

/* Input channels of a block of the depth, at most. */
static int64_t strip_channels(const struct sdgen_plan *plan, const struct sdgen_conv2d *op)
{
    return sdgen_min((plan->blocking.kc + 3) / taps_of(op) + 2, op->channels_in);
}

/* Numbers of the strip from channel to channel, for so many rows: where rows are as long as a power of two, all channels of a pixel would
 * lie in one set of L1 without the gap. */
static int64_t strip_channel(const struct sdgen_conv2d *op, int64_t rows)
{
    return rows * op->width + STRIP_GAP;
}

/* Rows of x that a column of taps covers. */
static int64_t span_of(const struct sdgen_conv2d *op)
{
    return op->dilation_y * (op->kernel_height - 1) + 1;
}

/* Columns that a thread takes at a time at most, whole panels. */
static int64_t band_of(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int64_t panel)
{
    int64_t rows = plan->blocking.nc * plan->blocking.kc / (strip_channels(plan, op) * op->width);
    int64_t rows_out = rows < span_of(op) ? 1 : (rows - span_of(op)) / op->stride_y + 1;
    return sdgen_max(rows_out * op->width_out / panel, 1) * panel;
}

static void norm_strip(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t column, int64_t columns,
                       int64_t begin, int64_t end)
{
    const struct normed *normed = gemm->operation;
    const struct sdgen_conv2d *op = &normed->op;
    const int64_t number = sizeof(float), last = column + columns - 1, y = column / op->width_out, last_y = last / op->width_out;
    const int64_t first = sdgen_max(y * op->stride_y - op->pad_y, 0);
    const int64_t rows = sdgen_max(sdgen_min(last_y * op->stride_y - op->pad_y + span_of(op), op->height) - first, 0);
    int64_t left = 0, right = op->width, together = rows;
    if (y == last_y) { /* a part of a row, maybe */
        left = sdgen_max(column % op->width_out * op->stride_x - op->pad_x, 0);
        right = sdgen_min(last % op->width_out * op->stride_x - op->pad_x + op->dilation_x * (op->kernel_width - 1) + 1, op->width);
        together = 1;
    }
    const int64_t channel = begin / taps_of(op), channels = sdgen_ceil_div(end, taps_of(op)) - channel, size = strip_channel(op, rows);
    for (int64_t c = 0; c < channels && left < right; c++) {
        const struct sdgen_line line = normed->lines[batch * op->channels_in + channel + c];
        for (int64_t row = 0; row < rows; row += together)
            kernels->map[op->before.function](&(struct sdgen_map_run){
                .x = sdgen_at(op->x, batch * op->x_batch_stride + (channel + c) * op->x_channel_stride + (first + row) * op->x_row_stride) +
                     left,
                .y = normed->rows + c * size + row * op->width + left,
                .n = (together - 1) * op->width + right - left,
                .scale = line.scale,
                .shift = line.shift,
                .parameter = {op->before.parameter[0], op->before.parameter[1]},
            });
    }
    *normed->strip = *op;
    normed->strip->x_batch_stride = 0;
    normed->strip->x_channel_stride = size * number;
    /* Lies elsewhere; what is read is in the strip. */
    normed->strip->x = (const float *)((uintptr_t)normed->rows - (uintptr_t)((channel * size + first * op->width) * number));
}

static void pack_strip(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t column,
                       int64_t columns, int64_t begin, int64_t end, float *dst)
{
    const struct normed *normed = gemm->operation;
    struct sdgen_gemm strip = *gemm;
    strip.operation = normed->strip;
    pack_patches(&strip, kernels, batch, column, columns, begin, end, dst);
}

static float *c_of(const struct sdgen_gemm *gemm, int64_t batch)
{
    const struct sdgen_conv2d *op = gemm->operation;
    return (float *)(void *)((char *)op->c + sdgen_conv2d_c(op, batch));
}

/* The same convolution with the image laid out as one row, where that changes nothing: no panel of patches then straddles rows. */
static struct sdgen_conv2d flattened(const struct sdgen_conv2d *op)
{
    struct sdgen_conv2d flat = *op;
    if (pointwise(op) && op->x_row_stride == op->width * (int64_t)sizeof(float)) {
        flat.width = flat.width_out = op->width * op->height;
        flat.height = flat.height_out = 1;
    }
    return flat;
}

static struct sdgen_gemm gemm_of(const struct sdgen_plan *plan, const struct sdgen_conv2d *op)
{
    int64_t pixels = op->width_out * op->height_out;
    struct sdgen_gemm gemm = {
        .tile = sdgen_select_tile(plan, op->channels_out, pixels),
        .rows = op->channels_out,
        .columns = pixels,
        .depth = op->channels_in * taps_of(op),
        .batches = sdgen_conv2d_images(op),
        .a_shared = true,
        .c_stride = sdgen_conv2d_c_channel(op),
        .scale = op->scale,
        .row_bias = op->bias,
        .operation = op,
        .pack_a = pack_w,
        .pack_b = op->x_pixel_stride ? pack_tokens : pack_patches,
        .c = c_of,
        .accumulate = op->after.addend.data == op->c,
        .after = op->after,
        .batch0 = op->frames.out ? op->frames.out : op->batch,
    };
    if (gemm.accumulate)
        gemm.after.addend.data = NULL;
    if (op->before.groups) {
        gemm.prepare_b = norm_strip;
        gemm.pack_b = pack_strip;
        gemm.band = band_of(plan, op, gemm.tile.columns);
    }
    return gemm;
}

/* Working memory: the product's, and with a norm the lines of x's channels, its sums, and for each thread its strip. */
static size_t line_up(size_t size)
{
    return (size + LINE - 1) / LINE * LINE;
}

static size_t lines_size(const struct sdgen_conv2d *op)
{
    return line_up((size_t)(op->batch * op->channels_in) * sizeof(struct sdgen_line));
}

static size_t sums_size(const struct sdgen_conv2d *op)
{
    struct sdgen_group_norm norm = sdgen_conv2d_norm(op);
    return line_up(sdgen_group_norm_sums_size(&norm));
}

static size_t strip_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_gemm *gemm)
{
    /* Of a band that begins within a row. */
    int64_t rows_out = sdgen_min(sdgen_ceil_div(gemm->band - 1, op->width_out) + 1, op->height_out);
    int64_t rows = sdgen_min((rows_out - 1) * op->stride_y + span_of(op), op->height);
    return line_up((size_t)(strip_channels(plan, op) * strip_channel(op, rows)) * sizeof(float));
}

size_t sdgen_conv2d_direct_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int nth)
{
    struct sdgen_gemm gemm = gemm_of(plan, op);
    size_t size = sdgen_gemm_work_size(plan, &gemm, nth);
    return op->before.groups ? LINE + size + lines_size(op) + sums_size(op) + (size_t)nth * strip_size(plan, op, &gemm) : size;
}

/* One whose x is normed. */
static void compute_normed(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_team *team)
{
    struct sdgen_conv2d strip;
    struct normed normed = {.op = *op, .strip = &strip};
    struct sdgen_gemm gemm = gemm_of(plan, op);
    gemm.operation = &normed;
    char *base = (char *)team->work + sdgen_gemm_work_size(plan, &gemm, team->nth);
    base += (LINE - (uintptr_t)base % LINE) % LINE;
    struct sdgen_line *lines = (struct sdgen_line *)(void *)base;
    double(*sums)[2] = (double(*)[2])(void *)(base + lines_size(op));
    normed.lines = lines;
    normed.rows = (float *)(void *)(base + lines_size(op) + sums_size(op) + (size_t)team->ith * strip_size(plan, op, &gemm));
    struct sdgen_group_norm norm = sdgen_conv2d_norm(op);
    sdgen_group_norm_lines(plan, &norm, team, sums, lines);
    /* All of them are there when the product's weights are packed. */
    sdgen_gemm(plan, &gemm, team);
}

void sdgen_conv2d_direct(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_team *team)
{
    if (op->before.groups) {
        compute_normed(plan, op, team);
        return;
    }
    struct sdgen_conv2d flat = flattened(op);
    struct sdgen_gemm gemm = gemm_of(plan, &flat);
    sdgen_gemm(plan, &gemm, team);
}

bool sdgen_conv2d_overwrites(const struct sdgen_plan *plan, const struct sdgen_conv2d *op)
{
    /* Row by row of tiles, where rows are those of x. */
    return op->before.groups && sdgen_select_winograd(plan, op) && op->pad_x == 1 && op->pad_y == 1 &&
           op->x_channel_stride == op->width * op->height * (int64_t)sizeof(float) &&
           (op->batch == 1 || op->x_batch_stride == op->c_batch_stride);
}

int64_t sdgen_conv2d_sum_pieces(const struct sdgen_plan *plan, const struct sdgen_conv2d *op)
{
    int m = op->frames.out ? 0 : sdgen_select_winograd(plan, op);
    return m ? sdgen_winograd_sum_pieces(plan, op, m) : 0;
}

size_t sdgen_conv2d_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int nth)
{
    int m = sdgen_select_winograd(plan, op);
    return m ? sdgen_winograd_work_size(plan, op, m, nth) : sdgen_conv2d_direct_work_size(plan, op, nth);
}

void sdgen_conv2d(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_team *team)
{
    int m = sdgen_select_winograd(plan, op);
    if (m)
        sdgen_winograd(plan, op, m, team);
    else
        sdgen_conv2d_direct(plan, op, team);
}
