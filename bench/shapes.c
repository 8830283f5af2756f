#include "shapes.h"

#include <stdio.h>
#include <string.h>

/* At 512 by 512: the products, convolutions and activations that take its time. */
static const char *const sd15[] = {
    "linear 4096x320x320",
    "linear 1024x640x640",
    "linear 256x1280x1280",
    "linear 64x1280x1280",
    "linear 4096x2560x320",
    "linear 1024x5120x640",
    "linear 256x10240x1280",
    "linear 4096x320x1280",
    "linear 1024x640x2560",
    "linear 256x1280x5120",
    "linear 77x320x768",
    "linear 77x768x3072",
    "conv3x3 320->320@64x64",
    "conv3x3 960->320@64x64",
    "conv3x3 640->640@32x32",
    "conv3x3 1280->1280@16x16",
    "conv3x3 1280->1280@8x8",
    "conv3x3/2 320->320@64x64",
    "conv1x1 320->320@64x64",
    "conv1x1 640->640@32x32",
    "conv3x3 4->320@64x64",
    "conv3x3 320->4@64x64",
    "conv3x3 up 640->640@64x64",
    "attention 4096x4096 8x40",
    "attention 1024x1024 8x80",
    "attention 256x256 8x160",
    "attention 4096x77 8x40",
    "map add 320x4096",
    "map add-channel 320x4096",
    "map silu 320x4096",
    "map gelu 320x4096",
    "map gelu_erf 320x4096",
    "norm group silu 320x4096",
    "norm rows 320x4096",
    "map add 1280x256",
    "map add-channel 1280x256",
    "map silu 1280x256",
    "map gelu 1280x256",
    "map gelu_erf 1280x256",
    "norm group silu 1280x256",
    "norm rows 1280x256",
    NULL,
};

/* The UNet at 1024 by 1024. */
static const char *const sdxl[] = {
    "linear 4096x640x640",
    "linear 4096x5120x640",
    "linear 4096x640x2560",
    "linear 1024x1280x1280",
    "linear 1024x10240x1280",
    "linear 1024x1280x5120",
    "linear 77x1280x2048",
    "conv3x3 320->320@128x128",
    "conv3x3 640->640@64x64",
    "conv3x3 1280->1280@32x32",
    "conv3x3 2560->1280@32x32",
    "conv3x3 up 1280->1280@64x64",
    "conv3x3/2 320->320@128x128",
    "attention 4096x4096 10x64",
    "attention 1024x1024 20x64",
    "attention 1024x77 20x64",
    "norm group silu 320x16384",
    "norm rows 1280x1024",
    NULL,
};

/* 1024 by 1024 and a prompt of 256 tokens. */
static const char *const flux[] = {
    "linear 4352x3072x3072",
    "linear 4352x9216x3072",
    "linear 4352x12288x3072",
    "linear 4352x3072x12288",
    "linear 4352x21504x3072",
    "linear 4352x3072x15360",
    "attention 4352x4352 24x128",
    "map gelu 12288x4352",
    "norm rows 3072x4352",
    NULL,
};

/* The decoder of SD 1.5 and SDXL at 512 by 512. */
static const char *const vae[] = {
    "conv3x3 512->512@64x64",
    "conv3x3 512->512@128x128",
    "conv3x3 256->256@256x256",
    "conv3x3 128->128@512x512",
    "attention 4096x4096 1x512",
    "map add 128x262144",
    "map add-channel 128x262144",
    "map silu 128x262144",
    "map gelu 128x262144",
    "map gelu_erf 128x262144",
    "norm group silu 128x262144",
    "norm rows 128x262144",
    NULL,
};

static const char *const attention[] = {
    "attention 4096x4096 8x40",  "attention 1024x1024 8x80",  "attention 256x256 8x160",    "attention 4096x77 8x40",
    "attention 4096x4096 10x64", "attention 4352x4352 24x128", "attention 4096x4096 1x512", NULL,
};

static const struct {
    const char *name;
    const char *const *shapes;
} sets[] = {{"sd15", sd15}, {"sdxl", sdxl}, {"flux", flux}, {"vae", vae}, {"attention", attention}};
enum { SETS = sizeof sets / sizeof *sets };

const char *const *find_set(const char *name)
{
    for (int i = 0; i < SETS; i++)
        if (strcmp(sets[i].name, name) == 0)
            return sets[i].shapes;
    return NULL;
}

const char *set_name(int index)
{
    return index < SETS ? sets[index].name : NULL;
}

/* ---- parsing ---- */

static const char *const memory_names[MEMORY_KINDS] = {
    [MEMORY_ADD] = "map add",
    [MEMORY_ADD_CHANNEL] = "map add-channel",
    [MEMORY_SILU] = "map silu",
    [MEMORY_GELU] = "map gelu",
    [MEMORY_GELU_ERF] = "map gelu_erf",
    [MEMORY_NORM_GROUP] = "norm group silu",
    [MEMORY_NORM_ROWS] = "norm rows",
};

typedef long long number;

/* Each reads a shape of its kind, with whatever numbers, and writes its name: a text that is not that name is no shape. */

static void read_linear(const char *text, struct shape *shape)
{
    number m = 0, n = 0, k = 0;
    sscanf(text, "linear %lldx%lldx%lld", &m, &n, &k);
    shape->linear.m = m;
    shape->linear.n = n;
    shape->linear.k = k;
    snprintf(shape->name, sizeof shape->name, "linear %lldx%lldx%lld", m, n, k);
}

static void read_conv(const char *text, struct shape *shape)
{
    number kernel = 0, in = 0, out = 0, height = 0, width = 0;
    int end = 0;
    sscanf(text, "conv%lldx%*d%n", &kernel, &end);
    const char *rest = text + end, *between = strncmp(rest, "/2", 2) == 0 ? "/2" : strncmp(rest, " up", 3) == 0 ? " up" : "";
    sscanf(rest + strlen(between), " %lld->%lld@%lldx%lld", &in, &out, &height, &width);
    shape->conv.kernel = kernel;
    shape->conv.in = in;
    shape->conv.out = out;
    shape->conv.height = height;
    shape->conv.width = width;
    shape->conv.stride = *between == '/' ? 2 : 1;
    shape->conv.up = *between == ' ';
    snprintf(shape->name, sizeof shape->name, "conv%lldx%lld%s %lld->%lld@%lldx%lld", kernel, kernel, between, in, out, height, width);
}

static void read_attention(const char *text, struct shape *shape)
{
    number queries = 0, keys = 0, heads = 0, depth = 0;
    sscanf(text, "attention %lldx%lld %lldx%lld", &queries, &keys, &heads, &depth);
    shape->attention.queries = queries;
    shape->attention.keys = keys;
    shape->attention.heads = heads;
    shape->attention.depth = depth;
    snprintf(shape->name, sizeof shape->name, "attention %lldx%lld %lldx%lld", queries, keys, heads, depth);
}

static void read_memory(const char *text, struct shape *shape, enum memory_kind kind)
{
    number channels = 0, pixels = 0;
    sscanf(text + strlen(memory_names[kind]), " %lldx%lld", &channels, &pixels);
    shape->memory.kind = kind;
    shape->memory.channels = channels;
    shape->memory.pixels = pixels;
    snprintf(shape->name, sizeof shape->name, "%s %lldx%lld", memory_names[kind], channels, pixels);
}

static bool begins(const char *text, const char *with)
{
    return strncmp(text, with, strlen(with)) == 0;
}

static bool read_shape(const char *text, struct shape *shape)
{
    *shape = (struct shape){.kind = SHAPE_KERNEL};
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *kernel = sdgen_kernel_row(i);
        if (strcmp(kernel->operation, "gemm") == 0 && strcmp(kernel->name, text) == 0) {
            shape->kernel = kernel;
            snprintf(shape->name, sizeof shape->name, "%s", text);
            return true;
        }
    }
    if (begins(text, "linear ")) {
        shape->kind = SHAPE_LINEAR;
        read_linear(text, shape);
    } else if (begins(text, "conv")) {
        shape->kind = SHAPE_CONV;
        read_conv(text, shape);
    } else if (begins(text, "attention ")) {
        shape->kind = SHAPE_ATTENTION;
        read_attention(text, shape);
    } else {
        shape->kind = SHAPE_MEMORY;
        for (int kind = 0; kind < MEMORY_KINDS; kind++)
            if (begins(text, memory_names[kind]) && text[strlen(memory_names[kind])] == ' ')
                read_memory(text, shape, (enum memory_kind)kind);
    }
    return *text && strcmp(shape->name, text) == 0;
}

enum { MOST = 1 << 20 };

static bool every_extent_is_allowed(const struct shape *shape)
{
    int64_t extents[5] = {1, 1, 1, 1, 1};
    switch (shape->kind) {
    case SHAPE_KERNEL: break;
    case SHAPE_LINEAR: memcpy(extents, (int64_t[]){shape->linear.m, shape->linear.n, shape->linear.k}, 3 * sizeof *extents); break;
    case SHAPE_CONV:
        memcpy(extents, (int64_t[]){shape->conv.kernel, shape->conv.in, shape->conv.out, shape->conv.height, shape->conv.width},
               sizeof extents);
        break;
    case SHAPE_ATTENTION:
        memcpy(extents,
               (int64_t[]){shape->attention.queries, shape->attention.keys, shape->attention.heads, shape->attention.depth},
               4 * sizeof *extents);
        break;
    case SHAPE_MEMORY: memcpy(extents, (int64_t[]){shape->memory.channels, shape->memory.pixels}, 2 * sizeof *extents); break;
    }
    for (int i = 0; i < 5; i++)
        if (extents[i] < 1 || extents[i] > MOST)
            return false;
    return true;
}

bool parse_shape(const char *text, struct shape *shape, char *message, size_t message_size)
{
    *message = 0;
    if (!read_shape(text, shape))
        snprintf(message, message_size,
                 "allowed are names of rows, like \"linear 4096x320x320\" (rows, outputs, inputs), \"conv3x3 320->640@64x64\" (conv1x1; "
                 "conv3x3/2: a stride of 2; conv3x3 up: an image doubled), \"attention 4096x77 8x40\" (queries, keys, heads, "
                 "dimension), \"map silu 320x4096\" (channels, pixels; map add, map add-channel, map gelu, map gelu_erf, norm group silu, "
                 "norm rows) or a kernel's like \"gemm_f32_6x16_avx2\"");
    else if (!every_extent_is_allowed(shape))
        snprintf(message, message_size, "every extent has to be from 1 to %d", MOST);
    else if (shape->kind == SHAPE_CONV && shape->conv.kernel % 2 == 0)
        snprintf(message, message_size, "a kernel has to be of odd width");
    else if (shape->kind == SHAPE_CONV && shape->conv.up && (shape->conv.height % 2 || shape->conv.width % 2))
        snprintf(message, message_size, "an image that is doubled has even sides");
    return !*message;
}

void shape_numbers(const struct shape *shape, char *text, size_t size)
{
    switch (shape->kind) {
    case SHAPE_KERNEL: snprintf(text, size, "%s", shape->name); break;
    case SHAPE_LINEAR:
        snprintf(text, size, "linear %lld %lld %lld", (number)shape->linear.m, (number)shape->linear.n, (number)shape->linear.k);
        break;
    case SHAPE_CONV:
        snprintf(text, size, "conv %lld %lld %lld %lld %lld %d %d", (number)shape->conv.kernel, (number)shape->conv.in,
                 (number)shape->conv.out, (number)shape->conv.height, (number)shape->conv.width, shape->conv.stride,
                 shape->conv.up ? 2 : 1);
        break;
    case SHAPE_ATTENTION:
        snprintf(text, size, "attention %lld %lld %lld %lld", (number)shape->attention.queries, (number)shape->attention.keys,
                 (number)shape->attention.heads, (number)shape->attention.depth);
        break;
    case SHAPE_MEMORY:
        snprintf(text, size, "%s %lld %lld", memory_names[shape->memory.kind], (number)shape->memory.channels,
                 (number)shape->memory.pixels);
        break;
    }
}
