#include "operations.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "exactly.h"
#include "numbers.h"
#include "select.h"

enum { DEPTH_IN_L1 = 320, CALLS_IN_L1 = 1000, GROUPS = 32 };

static const enum sdgen_function functions[MEMORY_KINDS] = {
    [MEMORY_SILU] = SDGEN_FUNCTION_SILU,
    [MEMORY_GELU] = SDGEN_FUNCTION_GELU,
    [MEMORY_GELU_ERF] = SDGEN_FUNCTION_GELU_ERF,
    [MEMORY_NORM_GROUP] = SDGEN_FUNCTION_SILU,
};

void copy_task(void *data, const struct sdgen_team *member)
{
    const struct copy *copy = data;
    size_t begin = copy->size * (size_t)member->ith / (size_t)member->nth;
    memcpy(copy->dst + begin, copy->src + begin, copy->size * (size_t)(member->ith + 1) / (size_t)member->nth - begin);
}

/* ---- calls ---- */

static void run_in_l1(const struct operation *operation, float *c, size_t calls, bool accumulate)
{
    const struct sdgen_kernel_row *kernel = operation->shape->kernel;
    const struct sdgen_epilogue epilogue = {.columns = kernel->columns, .accumulate = accumulate, .scale = 1};
    for (size_t i = 0; i < calls; i++)
        ((sdgen_gemm_kernel *)kernel->function)(DEPTH_IN_L1, operation->in_l1.a, operation->in_l1.b, c,
                                                (size_t)kernel->columns * sizeof(float), &epilogue);
}

void call_task(void *data, const struct sdgen_team *member)
{
    const struct call *call = data;
    const struct operation *operation = call->operation;
    switch (operation->shape->kind) {
    case SHAPE_KERNEL: run_in_l1(operation, operation->in_l1.c[member->ith % TILES_IN_L1], CALLS_IN_L1, true); break;
    case SHAPE_LINEAR: sdgen_matmul(&call->plan, &operation->matmul, member); break;
    case SHAPE_CONV: sdgen_conv2d(&call->plan, &operation->conv2d, member); break;
    case SHAPE_ATTENTION: sdgen_attention(&call->plan, &operation->attention, member); break;
    case SHAPE_MEMORY:
        if (operation->shape->memory.kind == MEMORY_NORM_GROUP)
            sdgen_group_norm(&call->plan, &operation->group_norm, member);
        else if (operation->shape->memory.kind == MEMORY_NORM_ROWS)
            sdgen_layer_norm(&call->plan, &operation->layer_norm, member);
        else
            sdgen_map(&call->plan, &operation->map, member);
        break;
    }
}

size_t call_work_size(const struct call *call, int threads)
{
    const struct operation *operation = call->operation;
    switch (operation->shape->kind) {
    case SHAPE_LINEAR: return sdgen_matmul_work_size(&call->plan, &operation->matmul, threads);
    case SHAPE_CONV: return sdgen_conv2d_work_size(&call->plan, &operation->conv2d, threads);
    case SHAPE_ATTENTION: return sdgen_attention_work_size(&call->plan, &operation->attention, threads);
    case SHAPE_MEMORY:
        return operation->shape->memory.kind == MEMORY_NORM_GROUP
                   ? sdgen_group_norm_work_size(&call->plan, &operation->group_norm, threads)
               : operation->shape->memory.kind == MEMORY_NORM_ROWS
                   ? sdgen_layer_norm_work_size(&call->plan, &operation->layer_norm, threads)
                   : sdgen_map_work_size(&call->plan, &operation->map, threads);
    default: return 0;
    }
}

static int winograd(const struct call *call)
{
    return call->operation->shape->kind == SHAPE_CONV ? sdgen_select_winograd(&call->plan, &call->operation->conv2d) : 0;
}

const char *call_method(const struct call *call)
{
    static const char *const names[] = {[0] = "direct", [2] = "F2", [3] = "F3", [4] = "F4"};
    if (call->operation->shape->kind != SHAPE_CONV)
        return "";
    return call->program ? "im2col" : names[winograd(call)];
}

/* ggml makes halves of what it multiplies, rounded by 2^-11. In attention these are both factors of the scores, so that a weight is wrong
 * by exp(2^-10 sum |q k| / sqrt(depth)), and the sums of values as well; in gelu its argument, whose error grows by 1.13 at most, and what
 * a table of halves holds of it, of numbers among which some are too small for halves of full precision. */
static double limit_of_halves(const struct shape *shape)
{
    switch (shape->kind) {
    case SHAPE_ATTENTION: return 2e-2;
    case SHAPE_MEMORY: return shape->memory.kind == MEMORY_GELU ? 2e-3 : 6e-7;
    default: return 5e-4;
    }
}

double call_limit(const struct call *call)
{
    if (call->program)
        return limit_of_halves(call->operation->shape);
    static const double by_form[] = {[0] = 2.1e-7, [2] = 1.5e-7, [3] = 2e-7, [4] = 4e-7};
    int m = winograd(call);
    switch (call->operation->shape->kind) {
    case SHAPE_KERNEL: return 5e-7; /* one chain of sums */
    case SHAPE_LINEAR: return 2.4e-7;
    case SHAPE_CONV: return by_form[m] * (m ? 2.25 : 1); /* a corner has 4 of the 9 products whose roundings it has */
    case SHAPE_ATTENTION: return 1e-6;                   /* a query whose softmax rests on few keys has the error of their scores */
    default: return 6e-7;                                /* 4 units in the last place, and 1e-7 */
    }
}

double call_error(const struct call *call)
{
    const struct operation *operation = call->operation;
    const struct shape *shape = operation->shape;
    switch (shape->kind) {
    case SHAPE_KERNEL:
        run_in_l1(operation, operation->in_l1.c[0], 1, false);
        return tile_error(shape->kernel, DEPTH_IN_L1, operation->in_l1.a, operation->in_l1.b, operation->in_l1.c[0]);
    case SHAPE_LINEAR: return matmul_error(&operation->matmul);
    case SHAPE_CONV: return conv2d_error(&operation->conv2d);
    case SHAPE_ATTENTION: return attention_error(&operation->attention);
    default:
        return shape->memory.kind == MEMORY_NORM_GROUP  ? group_norm_error(&operation->group_norm)
               : shape->memory.kind == MEMORY_NORM_ROWS ? layer_norm_error(&operation->layer_norm)
                                                        : map_error(&operation->map);
    }
}

/* ---- data ---- */

static float *make_floats(struct operation *operation, int input, int64_t count)
{
    operation->input_size[input] = (size_t)count * sizeof(float);
    return operation->memory[input] = random_floats((size_t)count);
}

static uint16_t *make_halves(struct operation *operation, int input, int64_t count)
{
    operation->input_size[input] = (size_t)count * sizeof(uint16_t);
    return operation->memory[input] = random_halves((size_t)count);
}

static float *make_result(struct operation *operation, int64_t count)
{
    operation->result_size = (size_t)count * sizeof(float);
    return operation->memory[RESULT] = allocate(operation->result_size);
}

static void make_in_l1(struct operation *operation, const struct sdgen_kernel_row *kernel, int threads)
{
    const size_t tile = (size_t)(kernel->rows * kernel->columns);
    const size_t page = (tile * sizeof(float) + 4095) / 4096 * 4096;
    operation->in_l1.a = make_floats(operation, 0, kernel->rows * DEPTH_IN_L1);
    operation->in_l1.b = make_floats(operation, 1, kernel->columns * DEPTH_IN_L1);
    operation->memory[RESULT] = allocate(page * TILES_IN_L1);
    operation->result_size = 0; /* it is added to */
    memset(operation->memory[RESULT], 0, page * TILES_IN_L1);
    for (int t = 0; t < TILES_IN_L1; t++)
        operation->in_l1.c[t] = (float *)(void *)((char *)operation->memory[RESULT] + page * (size_t)t);
    operation->amount = 2.0 * (double)tile * DEPTH_IN_L1 * CALLS_IN_L1 * threads;
}

static const char *make_linear(struct operation *operation, int64_t m, int64_t n, int64_t k)
{
    uint16_t *w = make_halves(operation, 0, n * k);
    float *x = make_floats(operation, 1, m * k), *c = make_result(operation, m * n);
    operation->amount = 2.0 * (double)m * (double)n * (double)k;
    operation->matmul = (struct sdgen_matmul){.m = m,
                                              .n = n,
                                              .k = k,
                                              .batch = {1, 1},
                                              .w = w,
                                              .w_type = SDGEN_F16,
                                              .w_stride = k * 2,
                                              .w_repeat = {1, 1},
                                              .x = x,
                                              .x_stride = k * 4,
                                              .c = c,
                                              .c_stride = n * 4,
                                              .scale = 1};
    return sdgen_matmul_check(&operation->matmul);
}

static const char *make_conv(struct operation *operation, const struct shape *shape)
{
    const int64_t in = shape->conv.in, out = shape->conv.out, kernel = shape->conv.kernel, stride = shape->conv.stride;
    const int64_t height_out = (shape->conv.height + stride - 1) / stride, width_out = (shape->conv.width + stride - 1) / stride;
    const int64_t repeat = shape->conv.up ? 2 : 1, height = shape->conv.height / repeat, width = shape->conv.width / repeat;
    uint16_t *w = make_halves(operation, 0, in * out * kernel * kernel);
    float *x = make_floats(operation, 1, in * height * width), *c = make_result(operation, out * height_out * width_out);
    operation->amount = 2.0 * (double)(in * out * kernel * kernel) * (double)(height_out * width_out);
    operation->conv2d = (struct sdgen_conv2d){.batch = 1,
                                              .channels_in = in,
                                              .channels_out = out,
                                              .width = width,
                                              .height = height,
                                              .width_out = width_out,
                                              .height_out = height_out,
                                              .kernel_width = kernel,
                                              .kernel_height = kernel,
                                              .stride_x = stride,
                                              .stride_y = stride,
                                              .pad_x = kernel / 2,
                                              .pad_y = kernel / 2,
                                              .dilation_x = 1,
                                              .dilation_y = 1,
                                              .w = w,
                                              .w_type = SDGEN_F16,
                                              .x = x,
                                              .x_row_stride = width * 4,
                                              .x_channel_stride = height * width * 4,
                                              .c = c,
                                              .scale = 1,
                                              .x_doubled = shape->conv.up};
    return sdgen_conv2d_check(&operation->conv2d);
}

static const char *make_attention(struct operation *operation, int64_t queries, int64_t keys, int64_t heads, int64_t depth)
{
    const int64_t row = heads * depth; /* as a linear layer makes them: the heads of a token side by side */
    float *q = make_floats(operation, 0, queries * row), *k = make_floats(operation, 1, keys * row);
    float *v = make_floats(operation, 2, keys * row), *c = make_result(operation, queries * row);
    operation->amount = 4.0 * (double)queries * (double)keys * (double)row;
    operation->attention = (struct sdgen_attention){.queries = queries,
                                                    .keys = keys,
                                                    .heads = heads,
                                                    .batch = 1,
                                                    .depth = depth,
                                                    .value_depth = depth,
                                                    .q = q,
                                                    .q_stride = row * 4,
                                                    .q_head_stride = depth * 4,
                                                    .k = k,
                                                    .k_stride = row * 4,
                                                    .k_head_stride = depth * 4,
                                                    .k_repeat = {1, 1},
                                                    .v = v,
                                                    .v_stride = row * 4,
                                                    .v_head_stride = depth * 4,
                                                    .v_repeat = {1, 1},
                                                    .scale = 1 / sqrtf((float)depth),
                                                    .c = c,
                                                    .c_stride = row * 4,
                                                    .c_head_stride = depth * 4};
    return sdgen_attention_check(&operation->attention);
}

static const char *make_memory(struct operation *operation, enum memory_kind kind, int64_t channels, int64_t pixels)
{
    float *x = make_floats(operation, 0, channels * pixels), *y = make_result(operation, channels * pixels), *other = NULL;
    if (kind == MEMORY_ADD)
        other = make_floats(operation, 1, channels * pixels);
    else if (kind == MEMORY_ADD_CHANNEL || kind == MEMORY_NORM_GROUP || kind == MEMORY_NORM_ROWS)
        other = make_floats(operation, 1, channels);
    operation->copy = (struct copy){.src = (const char *)x, .dst = (char *)y, .size = operation->result_size};
    operation->amount = 2.0 * (double)operation->copy.size;
    if (kind == MEMORY_NORM_GROUP) {
        operation->group_norm = (struct sdgen_group_norm){.batch = 1,
                                                          .channels = channels,
                                                          .pixels = pixels,
                                                          .groups = GROUPS,
                                                          .x = x,
                                                          .x_channel_stride = pixels * 4,
                                                          .y = y,
                                                          .y_channel_stride = pixels * 4,
                                                          .weight = other,
                                                          .bias = other,
                                                          .eps = 1e-6f,
                                                          .function = functions[kind]};
        return sdgen_group_norm_check(&operation->group_norm);
    }
    if (kind == MEMORY_NORM_ROWS) {
        operation->layer_norm = (struct sdgen_layer_norm){.n = channels,
                                                          .rows = {pixels, 1, 1},
                                                          .x = x,
                                                          .x_stride = {channels * 4},
                                                          .y = y,
                                                          .y_stride = {channels * 4},
                                                          .norm = {.weight = other, .bias = other, .eps = 1e-5f}};
        return sdgen_layer_norm_check(&operation->layer_norm);
    }
    operation->map = (struct sdgen_map){.extent = {pixels, channels, 1, 1},
                                        .x = x,
                                        .x_stride = {pixels * 4},
                                        .y = y,
                                        .y_stride = {pixels * 4},
                                        .function = functions[kind],
                                        .scale = 1};
    if (kind == MEMORY_ADD)
        operation->map.addend = (struct sdgen_operand){.data = other, .stride = {4, pixels * 4}};
    else if (kind == MEMORY_ADD_CHANNEL)
        operation->map.addend = (struct sdgen_operand){.data = other, .stride = {0, 4}};
    return sdgen_map_check(&operation->map);
}

/* Bytes of the arrays, roughly: without working memory. */
static double memory_of(const struct shape *shape)
{
    const double pixels = (double)shape->conv.height * (double)shape->conv.width;
    switch (shape->kind) {
    case SHAPE_LINEAR: {
        const double m = (double)shape->linear.m, n = (double)shape->linear.n, k = (double)shape->linear.k;
        return 2 * n * k + 4 * m * k + 4 * m * n;
    }
    case SHAPE_CONV: {
        const double in = (double)shape->conv.in, out = (double)shape->conv.out, kernel = (double)shape->conv.kernel;
        return 2 * in * out * kernel * kernel + 4 * pixels * (in + out);
    }
    case SHAPE_ATTENTION: {
        const double queries = (double)shape->attention.queries, keys = (double)shape->attention.keys;
        return 8 * (queries + keys) * (double)shape->attention.heads * (double)shape->attention.depth;
    }
    case SHAPE_MEMORY: return 12 * (double)shape->memory.channels * (double)shape->memory.pixels;
    default: return 0;
    }
}

const char *shape_fault(const struct shape *shape)
{
    if (memory_of(shape) > 0.8 * (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE))
        return "its arrays are larger than this machine's memory";
    if (shape->kind == SHAPE_MEMORY && shape->memory.kind == MEMORY_NORM_GROUP && shape->memory.channels % GROUPS)
        return "there are 32 groups, which have to divide the channels";
    return NULL;
}

const char *make_operation(struct operation *operation, const struct shape *shape, int threads)
{
    *operation = (struct operation){.shape = shape};
    switch (shape->kind) {
    case SHAPE_KERNEL: make_in_l1(operation, shape->kernel, threads); return NULL;
    case SHAPE_LINEAR: return make_linear(operation, shape->linear.m, shape->linear.n, shape->linear.k);
    case SHAPE_CONV: return make_conv(operation, shape);
    case SHAPE_ATTENTION:
        return make_attention(operation, shape->attention.queries, shape->attention.keys, shape->attention.heads,
                              shape->attention.depth);
    default: return make_memory(operation, shape->memory.kind, shape->memory.channels, shape->memory.pixels);
    }
}

void free_operation(struct operation *operation)
{
    for (size_t i = 0; i < sizeof operation->memory / sizeof *operation->memory; i++)
        free(operation->memory[i]);
}

void spoil_result(struct operation *operation)
{
    memset(operation->memory[RESULT], 0xff, operation->result_size);
}
