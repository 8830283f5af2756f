/* From (features, form, cap) to a level, and from a level to its kernels. The tables are made of the generated kernels.inc and of
 * the C form's portable/kernels.inc, which has one line a kernel in the same format. */
#include "conv.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels.h"
#include "portable/portable.h"

#define LEVEL_c SDGEN_LEVEL_C
#define LEVEL_avx2 SDGEN_LEVEL_AVX2
#define LEVEL_avx512 SDGEN_LEVEL_AVX512
#define TYPE_f32 SDGEN_F32
#define TYPE_f16 SDGEN_F16
#define TYPE_bf16 SDGEN_BF16
#define FEATURE_none 0
#define FEATURE_avx_vnni SDGEN_FEATURE_AVX_VNNI
#define FEATURE_avx512_vnni SDGEN_FEATURE_AVX512_VNNI
#define FEATURE_avx512_bf16 SDGEN_FEATURE_AVX512_BF16
#define FEATURE_avx512_fp16 SDGEN_FEATURE_AVX512_FP16
#define FEATURE_amx_bf16 SDGEN_FEATURE_AMX_BF16
#define FEATURE_amx_int8 SDGEN_FEATURE_AMX_INT8
#define FEATURE_amx_fp16 SDGEN_FEATURE_AMX_FP16
#define FUNCTION_none SDGEN_FUNCTION_NONE
#define FUNCTION_silu SDGEN_FUNCTION_SILU
#define FUNCTION_gelu SDGEN_FUNCTION_GELU
#define FUNCTION_gelu_erf SDGEN_FUNCTION_GELU_ERF
#define FUNCTION_gelu_quick SDGEN_FUNCTION_GELU_QUICK
#define FUNCTION_sigmoid SDGEN_FUNCTION_SIGMOID
#define FUNCTION_tanh SDGEN_FUNCTION_TANH
#define FUNCTION_relu SDGEN_FUNCTION_RELU
#define FUNCTION_leaky SDGEN_FUNCTION_LEAKY
#define FUNCTION_clamp SDGEN_FUNCTION_CLAMP
#define FUNCTION_exp SDGEN_FUNCTION_EXP

enum { LEVELS = SDGEN_LEVEL_RICHEST + 1, MOST_STORE_MB = 1 << 20 };

#define AVX2_FEATURES (SDGEN_FEATURE_AVX2 | SDGEN_FEATURE_FMA | SDGEN_FEATURE_F16C)

static const struct {
    const char *name;
    uint32_t features; /* all of which it needs */
} levels[LEVELS] = {
    [SDGEN_LEVEL_C] = {"c", 0},
    [SDGEN_LEVEL_AVX2] = {"avx2", AVX2_FEATURES},
    [SDGEN_LEVEL_AVX512] = {"avx512", AVX2_FEATURES | SDGEN_FEATURE_BMI2 | SDGEN_FEATURE_AVX512F | SDGEN_FEATURE_AVX512DQ |
                                          SDGEN_FEATURE_AVX512BW | SDGEN_FEATURE_AVX512VL},
};

/* The tiles that are chosen from, with the rate of each where its rows and columns are all used, relative to the others of its level.
 * Measured on one core of a Zen 5, medians over SD 1.5's linear layers and convolutions: 99, 97 and 100. The tiles of AVX-512 load
 * 0.67, 0.46 and 0.42 vectors for each FMA; llvm-mca's Skylake-X and Ice Lake make 86%, 100% and 100% of their two FMAs a cycle of
 * them, so the first is taken only where the others would be padded much. */
static const struct {
    enum sdgen_level level;
    int rows, columns, rate;
    bool only16; /* of 16 rows there are kernels for a panel of so many only */
} tiles[] = {
    {SDGEN_LEVEL_C, 6, 16, 100, false},
    {SDGEN_LEVEL_AVX2, 6, 16, 100, false},
    {SDGEN_LEVEL_AVX512, 16, 16, 85, true},
    {SDGEN_LEVEL_AVX512, 6, 32, 92, false},
    {SDGEN_LEVEL_AVX512, 8, 48, 97, false},
    {SDGEN_LEVEL_AVX512, 6, 64, 100, false},
};
enum { TILES = sizeof tiles / sizeof *tiles };

#define SDGEN_KEEP_KERNEL_MACROS

static const struct sdgen_kernels tables[LEVELS] = {
#define SDGEN_GEMM_KERNEL(type, rows, width, level, symbol) [LEVEL_##level].gemm[(width) / SDGEN_COLUMNS_STEP][rows] = symbol,
#define SDGEN_PACK_KERNEL(type, width, level, symbol) [LEVEL_##level].pack[TYPE_##type][width] = symbol,
#define SDGEN_PACK_PATCHES_KERNEL(type, width, level, symbol) [LEVEL_##level].pack_patches = symbol,
#define SDGEN_PACK_ROWS_KERNEL(type, width, level, symbol) [LEVEL_##level].pack_rows[TYPE_##type] = symbol,
#define SDGEN_SCORES_KERNEL(type, rows, width, level, symbol) [LEVEL_##level].scores[(width) / SDGEN_COLUMNS_STEP][rows] = symbol,
#define SDGEN_UNPACK_KERNEL(type, width, level, symbol) [LEVEL_##level].unpack = symbol,
#define SDGEN_MAP_KERNEL(function, level, symbol) [LEVEL_##level].map[FUNCTION_##function] = symbol,
#define SDGEN_MOMENTS_KERNEL(type, level, symbol) [LEVEL_##level].moments = symbol,
#define SDGEN_MAXIMUM_KERNEL(type, level, symbol) [LEVEL_##level].maximum = symbol,
#define SDGEN_NH_KERNEL(type, level, symbol) [LEVEL_##level].nh = symbol,
#define SDGEN_DOT_KERNEL(type, rows, columns, level, symbol) [LEVEL_##level].dot[TYPE_##type][rows][columns] = symbol,
#define SDGEN_GEMM16_KERNEL(type, rows, width, level, symbol) [LEVEL_##level].gemm16[(width) / SDGEN_COLUMNS_STEP][rows] = symbol,
#define SDGEN_WINOGRAD_INPUT_KERNEL(m, lanes, level, symbol) \
    [LEVEL_##level].winograd[m].input = symbol, [LEVEL_##level].winograd[m].input_lanes = lanes,
#define SDGEN_WINOGRAD_WEIGHTS_KERNEL(m, level, symbol) [LEVEL_##level].winograd[m].weights = symbol,
#define SDGEN_WINOGRAD_OUTPUT_KERNEL(m, lanes, level, symbol) \
    [LEVEL_##level].winograd[m].output = symbol, [LEVEL_##level].winograd[m].output_lanes = lanes,
#define SDGEN_WINOGRAD_INPUT_UP_KERNEL(m, lanes, level, symbol) \
    [LEVEL_##level].winograd_up.input = symbol, [LEVEL_##level].winograd_up.input_lanes = lanes,
#define SDGEN_WINOGRAD_WEIGHTS_UP_KERNEL(m, level, symbol) [LEVEL_##level].winograd_up.weights = symbol,
#define SDGEN_WINOGRAD_OUTPUT_UP_KERNEL(m, lanes, level, symbol) \
    [LEVEL_##level].winograd_up.output = symbol, [LEVEL_##level].winograd_up.output_lanes = lanes,
#include "portable/kernels.inc"
#include "kernels.inc"
};

static const struct sdgen_kernel_row kernel_rows[] = {
#define ROW(operation, type, rows, columns, level, symbol) ANY_ROW(operation, type, rows, columns, 0, level, none, symbol)
#define ANY_ROW(operation, type, rows, columns, per_round, level, feature, symbol) \
    {#symbol, operation, type, rows, columns, per_round, LEVEL_##level, FEATURE_##feature, (void (*)(void))symbol},
#define SDGEN_GEMM_KERNEL(type, rows, width, level, symbol) ROW("gemm", #type, rows, width, level, symbol)
#define SDGEN_PACK_KERNEL(type, width, level, symbol) ROW("pack", #type, 1, width, level, symbol)
#define SDGEN_PACK_PATCHES_KERNEL(type, width, level, symbol) ROW("pack_patches", #type, 1, width, level, symbol)
#define SDGEN_PACK_ROWS_KERNEL(type, width, level, symbol) ROW("pack_rows", #type, 1, width, level, symbol)
#define SDGEN_SCORES_KERNEL(type, rows, width, level, symbol) ROW("scores", #type, rows, width, level, symbol)
#define SDGEN_UNPACK_KERNEL(type, width, level, symbol) ROW("unpack", #type, 1, width, level, symbol)
#define SDGEN_MAP_KERNEL(function, level, symbol) ROW("map_" #function, "f32", 0, 0, level, symbol)
#define SDGEN_MOMENTS_KERNEL(type, level, symbol) ROW("moments", #type, 0, 0, level, symbol)
#define SDGEN_MAXIMUM_KERNEL(type, level, symbol) ROW("maximum", #type, 0, 0, level, symbol)
#define SDGEN_NH_KERNEL(type, level, symbol) ROW("nh", #type, 0, 0, level, symbol)
#define SDGEN_DOT_KERNEL(type, rows, columns, level, symbol) ROW("dot", #type, rows, columns, level, symbol)
#define SDGEN_GEMM16_KERNEL(type, rows, width, level, symbol) ROW("gemm16", #type, rows, width, level, symbol)
#define SDGEN_WINOGRAD_INPUT_KERNEL(m, lanes, level, symbol) ROW("winograd_input", "f32", m, lanes, level, symbol)
#define SDGEN_WINOGRAD_WEIGHTS_KERNEL(m, level, symbol) ROW("winograd_weights", "f32", m, 16, level, symbol)
#define SDGEN_WINOGRAD_OUTPUT_KERNEL(m, lanes, level, symbol) ROW("winograd_output", "f32", m, lanes, level, symbol)
#define SDGEN_WINOGRAD_INPUT_UP_KERNEL(m, lanes, level, symbol) ROW("winograd_input_up", "f32", m, lanes, level, symbol)
#define SDGEN_WINOGRAD_WEIGHTS_UP_KERNEL(m, level, symbol) ROW("winograd_weights_up", "f32", m, 16, level, symbol)
#define SDGEN_WINOGRAD_OUTPUT_UP_KERNEL(m, lanes, level, symbol) ROW("winograd_output_up", "f32", m, lanes, level, symbol)
#define SDGEN_PROBE_KERNEL(type, instructions, operations, feature, level, symbol) \
    ANY_ROW("probe", #type, 0, 0, (operations) ? (operations) : (instructions), level, feature, symbol)
#include "portable/kernels.inc"
#include "kernels.inc"
};

/* Every generated tile must be one that the drivers know. */
#define SDGEN_GEMM_KERNEL(type, rows, width, level, symbol) \
    _Static_assert((rows) <= SDGEN_MOST_ROWS && (width) <= SDGEN_MOST_COLUMNS && (width) % SDGEN_COLUMNS_STEP == 0, \
                   #symbol ": a tile that the drivers do not know");
#define SDGEN_GEMM16_KERNEL(type, rows, width, level, symbol) \
    _Static_assert((rows) <= SDGEN_MOST_ROWS16 && (width) <= SDGEN_MOST_COLUMNS && (width) % SDGEN_COLUMNS_STEP == 0, \
                   #symbol ": a tile that the drivers do not know");
#define SDGEN_PACK_PATCHES_KERNEL(type, width, level, symbol) \
    _Static_assert((width) == SDGEN_COLUMNS_STEP, #symbol ": a width that the drivers do not know");
#define SDGEN_PACK_ROWS_KERNEL(type, width, level, symbol) \
    _Static_assert((width) == SDGEN_COLUMNS_STEP, #symbol ": a width that the drivers do not know");
#define SDGEN_SCORES_KERNEL(type, rows, width, level, symbol)                                                                   \
    _Static_assert((rows) <= SDGEN_SCORES_ROWS && (width) <= SDGEN_MOST_COLUMNS && (width) % SDGEN_COLUMNS_STEP == 0, \
                   #symbol ": a tile that the drivers do not know");
#define SDGEN_UNPACK_KERNEL(type, width, level, symbol) \
    _Static_assert((width) == SDGEN_UNPACK_LANES, #symbol ": a width that the drivers do not know");
#include "kernels.inc"

const char *sdgen_level_name(enum sdgen_level level)
{
    return (unsigned)level < LEVELS ? levels[level].name : "unknown";
}

const struct sdgen_kernels *sdgen_kernels(enum sdgen_level level)
{
    return (unsigned)level < LEVELS && tables[level].pack_patches ? &tables[level] : NULL;
}

size_t sdgen_kernel_count(void)
{
    return sizeof kernel_rows / sizeof *kernel_rows;
}

const struct sdgen_kernel_row *sdgen_kernel_row(size_t index)
{
    return index < sdgen_kernel_count() ? &kernel_rows[index] : NULL;
}

enum sdgen_level sdgen_select_level(uint32_t features, enum sdgen_form form, enum sdgen_level cap)
{
    if (form != SDGEN_FORM_ASSEMBLY)
        return SDGEN_LEVEL_C;
    for (int i = (unsigned)cap < LEVELS ? (int)cap : LEVELS - 1; i > SDGEN_LEVEL_C; i--) {
        enum sdgen_level level = (enum sdgen_level)i;
        if ((features & levels[i].features) == levels[i].features && sdgen_kernels(level))
            return level;
    }
    return SDGEN_LEVEL_C;
}

/* A tile's rate, times the share of the tile that the product uses: columns are padded to whole panels, rows are split evenly, and a
 * panel of fewer rows takes less time but feeds the multipliers less well. */
static int64_t useful_rate(int i, int64_t rows, int64_t columns)
{
    int64_t row_panels = (rows + tiles[i].rows - 1) / tiles[i].rows;
    int64_t column_panels = (columns + tiles[i].columns - 1) / tiles[i].columns;
    int64_t panel_rows = (rows + row_panels - 1) / row_panels;
    return (int64_t)tiles[i].rate * 1000 * columns / (column_panels * tiles[i].columns) * panel_rows / tiles[i].rows;
}

static int select_tile(const struct sdgen_plan *plan, int64_t rows, int64_t columns, bool may16)
{
    int best = -1;
    int64_t best_rate = -1;
    for (int i = 0; i < TILES; i++) {
        if (plan->kernels != &tables[tiles[i].level] || (plan->tile_columns && plan->tile_columns != tiles[i].columns) ||
            (tiles[i].only16 && !may16))
            continue;
        int64_t rate = useful_rate(i, rows, columns);
        if (rate > best_rate) {
            best = i;
            best_rate = rate;
        }
    }
    return best;
}

struct sdgen_tile sdgen_select_tile(const struct sdgen_plan *plan, int64_t rows, int64_t columns)
{
    int i = select_tile(plan, rows, columns, false);
    return (struct sdgen_tile){
        .rows = tiles[i].rows,
        .columns = tiles[i].columns,
        .gemm = plan->kernels->gemm[tiles[i].columns / SDGEN_COLUMNS_STEP],
    };
}

struct sdgen_tile sdgen_select_tile16(const struct sdgen_plan *plan, int64_t rows, int64_t columns)
{
    int i = select_tile(plan, rows, columns, true);
    return (struct sdgen_tile){
        .rows = tiles[i].rows,
        .columns = tiles[i].columns,
        .gemm = plan->kernels->gemm16[tiles[i].columns / SDGEN_COLUMNS_STEP],
    };
}

/* What the transforms of F(m x m, 3 x 3) cost in cycles: of the input for each vector of tiles and input
 * channel, of the output for each vector of tiles and output channel, of the weights for each 16 output channels and input channel,
 * packing included. Measured in L2 on a Zen 5, at the avx2 level; avx512's vectors take the same to a third more. */
static const struct {
    int input, output, weights;
    int least_channels; /* with fewer input channels the error of the transforms, which falls with their square root, is too large */
} winograd_costs[SDGEN_MOST_WINOGRAD + 1] = {[2] = {65, 29, 84, 24}, [3] = {105, 64, 102, 64}, [4] = {125, 91, 123, 128}};

/* Cycles of a convolution if its products ran at the peak of two vectors a cycle. */
static double winograd_cycles(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, int lanes)
{
    double in = (double)sdgen_conv2d_channels(op), out = 16.0 * (double)((op->channels_out + 15) / 16);
    double quads = (double)((op->width_out + 4 * m - 1) / (4 * m) * ((op->height_out + m - 1) / m) * sdgen_conv2d_images(op));
    int i = select_tile(plan, 16, (int64_t)(4 * quads), true);
    double columns = tiles[i].columns * ceil(4 * quads / tiles[i].columns);
    double blocks = ceil(columns / 128); /* about what a block holds; the weights are transformed for each */
    double product = (m + 2) * (m + 2) * columns * in * out / (2 * lanes) * 100 / tiles[i].rate;
    return product + columns / lanes * (in * winograd_costs[m].input + out * winograd_costs[m].output) +
           blocks * in * out / 16 * winograd_costs[m].weights;
}

static double direct_cycles(const struct sdgen_conv2d *op, int lanes)
{
    return 9.0 * (double)(sdgen_conv2d_images(op) * op->width_out * op->height_out) * (double)sdgen_conv2d_channels(op) *
           (double)op->channels_out /
           (2 * lanes);
}

int sdgen_select_winograd(const struct sdgen_plan *plan, const struct sdgen_conv2d *op)
{
    if (op->x_doubled) {
        /* The one form that there is, as exact as F(2 x 2). It makes 2.25 products for the direct form's 9. */
        bool exact = plan->winograd != SDGEN_WINOGRAD_BY_SHAPE || op->channels_in >= winograd_costs[2].least_channels;
        return plan->winograd && exact && sdgen_winograd_fits(plan, op, 2) ? 2 : 0;
    }
    if (plan->winograd != SDGEN_WINOGRAD_BY_SHAPE)
        return plan->winograd && sdgen_winograd_fits(plan, op, plan->winograd) ? plan->winograd : 0;
    if (!sdgen_winograd_fits(plan, op, 2))
        return 0;
    int lanes = plan->kernels->winograd[2].output_lanes;
    int best = 0;
    double least = direct_cycles(op, lanes);
    for (int m = 2; m <= SDGEN_MOST_WINOGRAD; m++) {
        double cycles = winograd_cycles(plan, op, m, lanes);
        if (sdgen_conv2d_channels(op) >= winograd_costs[m].least_channels && cycles < least) {
            best = m;
            least = cycles;
        }
    }
    return best;
}

/* Where transformed weights are kept: with so few panels of tiles, for which they would be transformed, and so many input channels.
 *
 * Measured on one core of a Zen 5 that others shared, six layers of FP16 weights in turn, hash included: best times kept for those
 * transformed at each use. C: 1280 channels at 8x8 1.8, at 16x16 1.5, 640 at 32x32 1.2. AVX2: 1280 at 8x8 1.04, 2560 at 8x8 1.00 to 1.05,
 * 1280 and 2560 at 16x16 1.05 to 1.12, 640 at 16x16 1.04, 640 at 32x32 0.97, 320 at 16x16 0.74. AVX-512, whose transform takes half
 * as long while memory is no faster: 0.88 to 1.0 at 8x8, 0.95 to 1.05 at 16x16. */
static const struct {
    int64_t most_panels, least_channels;
} kept_weights[LEVELS] = {[SDGEN_LEVEL_C] = {8, 0}, [SDGEN_LEVEL_AVX2] = {1, 640}, [SDGEN_LEVEL_AVX512] = {0, 0}};

bool sdgen_select_kept_weights(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int64_t panels)
{
    for (int level = 0; plan->store && level < LEVELS; level++)
        if (plan->kernels == &tables[level])
            return panels <= kept_weights[level].most_panels && sdgen_conv2d_channels(op) >= kept_weights[level].least_channels;
    return false;
}

/* Pixels of an image from which on a norm is better made a part of the convolution after it. With a norm of its own, and as a part,
 * milliseconds on one core of a Zen 5 (AVX2, AVX-512), best of many by turns, while the machine had other work; SiLU too, but before the
 * kernels of one pixel:
 *
 *   3x3 128->128@512x512    229.6 229.4    126.6 122.7     Winograd's
 *   3x3 512->512@64x64       48.3  48.6     25.8  25.2
 *   3x3 320->320@64x64       18.6  18.6     10.1   9.8
 *   3x3 640->640@32x32       17.8  17.8     10.3  10.5
 *   3x3 1280->1280@8x8        9.5   9.4      6.3   6.4
 *   3x3 128->3@512x512        80.6  71.1     69.6  50.9     directly
 *   3x3 320->4@64x64           2.9   2.3      2.2   1.5
 *   1x1 320->320@64x64         6.9   6.6      3.7   3.5
 *   1x1 640->640@32x32         6.3   6.2      3.4   3.3
 *   1x1 1280->1280@16x16       6.7   6.6      3.7   3.6
 *
 * What is saved is traffic with memory, three of the five times that x passes, so that it counts for more the more threads share that;
 * images that stay in the cache have none. */
enum { NORM_PAYS_PIXELS = 4096 };

bool sdgen_conv2d_norm_pays(const struct sdgen_conv2d *op)
{
    return op->width * op->height >= NORM_PAYS_PIXELS;
}

/* Pixels from which on the sums of an image are better made by the convolution that writes it. What they take there, and what they save
 * in the norm, in milliseconds as above:
 *
 *                              AVX2             AVX-512
 *                              take    save     take    save
 *   128 channels at 512x512    5.2     4.7      2.5     3.9
 *   256 channels at 256x256    2.9     2.3      1.1     1.9
 *   512 channels at 128x128    1.5     0.9      0.6     0.5
 *   512 channels at 64x64      0.3     0.2      0.1     0.0
 *
 * What is saved is a way through memory, which several threads share, what is taken is not. */
enum { SUMS_PAY_PIXELS = 65536 };

bool sdgen_conv2d_sums_pay(const struct sdgen_plan *plan, const struct sdgen_conv2d *op)
{
    return op->width_out * op->height_out >= SUMS_PAY_PIXELS && sdgen_conv2d_sum_pieces(plan, op) > 0;
}

bool sdgen_has_tile(enum sdgen_level level, int columns)
{
    for (int i = 0; i < TILES; i++)
        if (tiles[i].level == level && tiles[i].columns == columns && !tiles[i].only16)
            return true;
    return false;
}

/* The index of the variable's value among the names; fallback where it is unset or empty; -1 and a message where it is none. */
static int choice(const char *variable, const char *const names[], int count, int fallback, char *message, size_t message_size)
{
    const char *value = getenv(variable);
    if (!value || !*value)
        return fallback;
    for (int i = 0; i < count; i++)
        if (strcmp(value, names[i]) == 0)
            return i;
    int length = snprintf(message, message_size, "%s=%s: allowed are ", variable, value);
    for (int i = 0; i < count && length >= 0 && (size_t)length < message_size; i++)
        length += snprintf(message + length, message_size - (size_t)length, "%s%s", i == 0 ? "" : i + 1 < count ? ", " : " and ",
                           names[i]);
    return -1;
}

/* The value of SDGEN_PROFILE where it is a path, else NULL. */
static const char *trace_path(const char *value)
{
    static const char ending[] = ".json";
    size_t length = value ? strlen(value) : 0;
    return length >= sizeof ending - 1 && strcmp(value + length - (sizeof ending - 1), ending) == 0 ? value : NULL;
}

/* The variable's value, a number from 0 to `most`; fallback where it is unset or empty; -1 and a message where it is none. */
static int number(const char *variable, int most, int fallback, char *message, size_t message_size)
{
    const char *value = getenv(variable);
    if (!value || !*value)
        return fallback;
    char *end;
    long read = *value >= '0' && *value <= '9' ? strtol(value, &end, 10) : -1;
    if (read >= 0 && read <= most && !*end)
        return (int)read;
    snprintf(message, message_size, "%s=%s: allowed is a number from 0 to %d", variable, value, most);
    return -1;
}

bool sdgen_config_from_environment(struct sdgen_config *config, char *message, size_t message_size)
{
    static const char *const forms[] = {
        [SDGEN_FORM_ASSEMBLY] = "assembly", [SDGEN_FORM_C] = "c", [SDGEN_FORM_UPSTREAM] = "upstream"};
    const char *caps[LEVELS];
    for (int i = 0; i < LEVELS; i++)
        caps[i] = levels[i].name;
    static const char *const verbosities[] = {"0", "1", "2"};
    static const char *const profiles[] = {"0", "1", "the path of a file that ends in .json"};

    int form = choice("SDGEN_KERNELS", forms, 3, SDGEN_FORM_ASSEMBLY, message, message_size);
    if (form < 0)
        return false;
    int cap = choice("SDGEN_ISA", caps + 1, LEVELS - 1, LEVELS - 2, message, message_size);
    if (cap < 0)
        return false;
    int verbose = choice("SDGEN_VERBOSE", verbosities, 3, 0, message, message_size);
    if (verbose < 0)
        return false;
    const char *trace = trace_path(getenv("SDGEN_PROFILE"));
    int profile = trace ? 1 : choice("SDGEN_PROFILE", profiles, 3, 0, message, message_size);
    if (profile < 0)
        return false;
    int store_mb = number("SDGEN_STORE_MB", MOST_STORE_MB, 0, message, message_size);
    if (store_mb < 0)
        return false;
    config->form = (enum sdgen_form)form;
    config->store_mb = store_mb;
    config->profile = profile;
    config->trace = trace;
    config->cap = (enum sdgen_level)(cap + 1);
    config->verbose = verbose;
    enum sdgen_level level = sdgen_select_level(sdgen_processor()->features, config->form, config->cap);
    return sdgen_tuning_from_environment(&config->tuning, level, message, message_size);
}

static int64_t clamp(int64_t value, int64_t least, int64_t most)
{
    return value < least ? least : value > most ? most : value;
}

struct sdgen_blocking sdgen_blocking(const struct sdgen_processor *processor)
{
    /* A panel of B, 16 columns, stays in L1 while panels of A, 6 rows, pass through it: in seven eighths of L1. No more than 256
     * rows however large L1 is: a longer chain of sums is less exact, and C is updated seldom enough. */
    const int64_t number = sizeof(float);
    int64_t kc = (int64_t)processor->l1 * 7 / 8 / (number * (6 + 16)) / 8 * 8;
    kc = clamp(kc, 64, 256);
    /* In L2, a quarter for A's rows and a half for the B that a thread packs. */
    int64_t mc = (int64_t)processor->l2 / 4 / (kc * number);
    int64_t nc = (int64_t)processor->l2 / 2 / (kc * number);
    return (struct sdgen_blocking){
        .kc = kc,
        .mc = clamp(mc, 48, 384),
        .nc = clamp(nc, 64, 512),
        .packed_bytes = clamp((int64_t)processor->l3 / 2, (int64_t)4 << 20, (int64_t)16 << 20),
    };
}
