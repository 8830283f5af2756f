#include "plan.h"

#include "memory.h"

#include "ggml-impl.h"

static bool plan_matmul(const struct ggml_tensor *dst, struct sdgen_matmul *op)
{
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    enum sdgen_type w_type;
    if (!sdgen_type_of(w, &w_type) || x->type != GGML_TYPE_F32 || dst->type != GGML_TYPE_F32 ||
        w->nb[0] != ggml_type_size(w->type) || w->ne[0] != x->ne[0] || x->nb[0] != sizeof(float) || dst->nb[0] != sizeof(float))
        return false;
    *op = (struct sdgen_matmul){
        .m = dst->ne[1],
        .n = dst->ne[0],
        .k = w->ne[0],
        .batch = {dst->ne[2], dst->ne[3]},
        .w = w->data,
        .w_type = w_type,
        .w_stride = (int64_t)w->nb[1],
        .w_batch_stride = {(int64_t)w->nb[2], (int64_t)w->nb[3]},
        .w_repeat = {dst->ne[2] / w->ne[2], dst->ne[3] / w->ne[3]},
        .x = x->data,
        .x_stride = (int64_t)x->nb[1],
        .x_batch_stride = {(int64_t)x->nb[2], (int64_t)x->nb[3]},
        .c = dst->data,
        .c_stride = (int64_t)dst->nb[1],
        .c_batch_stride = {(int64_t)dst->nb[2], (int64_t)dst->nb[3]},
        .scale = 1,
    };
    return sdgen_matmul_check(op) == NULL;
}

static bool plan_conv2d(const struct ggml_tensor *dst, struct sdgen_conv2d *op)
{
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    enum sdgen_type w_type;
    if (!sdgen_type_of(w, &w_type) || x->type != GGML_TYPE_F32 || dst->type != GGML_TYPE_F32 || !ggml_is_contiguous(w) ||
        !ggml_is_contiguous(dst) || x->nb[0] != sizeof(float) || w->ne[2] != x->ne[2] || w->ne[3] != dst->ne[2])
        return false;
    const int32_t *parameters = dst->op_params;
    *op = (struct sdgen_conv2d){
        .batch = dst->ne[3],
        .channels_in = x->ne[2],
        .channels_out = dst->ne[2],
        .width = x->ne[0],
        .height = x->ne[1],
        .width_out = dst->ne[0],
        .height_out = dst->ne[1],
        .kernel_width = w->ne[0],
        .kernel_height = w->ne[1],
        .stride_x = parameters[0],
        .stride_y = parameters[1],
        .pad_x = parameters[2],
        .pad_y = parameters[3],
        .dilation_x = parameters[4],
        .dilation_y = parameters[5],
        .w = w->data,
        .w_type = w_type,
        .x = x->data,
        .x_row_stride = (int64_t)x->nb[1],
        .x_channel_stride = (int64_t)x->nb[2],
        .x_batch_stride = (int64_t)x->nb[3],
        .c = dst->data,
        .c_batch_stride = (int64_t)dst->nb[3],
        .scale = 1,
    };
    return sdgen_conv2d_check(op) == NULL;
}

static bool plan_conv3d(const struct ggml_tensor *dst, struct sdgen_conv2d *op)
{
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    const int32_t *p = dst->op_params; /* strides, paddings, dilations; channels in, batch, channels out */
    enum sdgen_type w_type;
    if (!sdgen_type_of(w, &w_type) || x->type != GGML_TYPE_F32 || dst->type != GGML_TYPE_F32 || !ggml_is_contiguous(w) ||
        !ggml_is_contiguous(dst) || x->nb[0] != sizeof(float))
        return false;
    *op = (struct sdgen_conv2d){
        .batch = p[10],
        .channels_in = p[9],
        .channels_out = p[11],
        .width = x->ne[0],
        .height = x->ne[1],
        .width_out = dst->ne[0],
        .height_out = dst->ne[1],
        .kernel_width = w->ne[0],
        .kernel_height = w->ne[1],
        .stride_x = p[0],
        .stride_y = p[1],
        .pad_x = p[3],
        .pad_y = p[4],
        .dilation_x = p[6],
        .dilation_y = p[7],
        .w = w->data,
        .w_type = w_type,
        .x = x->data,
        .x_row_stride = (int64_t)x->nb[1],
        .x_channel_stride = (int64_t)x->nb[3],
        .x_batch_stride = p[9] * (int64_t)x->nb[3],
        .c = dst->data,
        .c_batch_stride = p[11] * (int64_t)dst->nb[3],
        .scale = 1,
        .frames = {.in = x->ne[2],
                   .out = dst->ne[2],
                   .kernel = w->ne[2],
                   .stride = p[2],
                   .pad = p[5],
                   .dilation = p[8],
                   .x_stride = (int64_t)x->nb[2]},
    };
    return sdgen_conv2d_check(op) == NULL;
}

/* Single precision, elements of a row side by side, in memory. */
static bool rows(const struct ggml_tensor *tensor)
{
    return tensor->type == GGML_TYPE_F32 && tensor->nb[0] == sizeof(float) && sdgen_plain(tensor);
}

/* Rows of an image side by side, too. */
static bool images(const struct ggml_tensor *tensor)
{
    return rows(tensor) && tensor->nb[1] == (size_t)tensor->ne[0] * sizeof(float);
}

static bool plan_group_norm(const struct ggml_tensor *dst, struct sdgen_group_norm *op)
{
    const struct ggml_tensor *x = dst->src[0];
    if (!images(x) || !images(dst))
        return false;
    *op = (struct sdgen_group_norm){
        .batch = x->ne[3],
        .channels = x->ne[2],
        .pixels = x->ne[0] * x->ne[1],
        .groups = dst->op_params[0],
        .x = x->data,
        .x_channel_stride = (int64_t)x->nb[2],
        .x_batch_stride = (int64_t)x->nb[3],
        .y = dst->data,
        .y_channel_stride = (int64_t)dst->nb[2],
        .y_batch_stride = (int64_t)dst->nb[3],
        .eps = ggml_get_op_params_f32(dst, 1),
    };
    return sdgen_group_norm_check(op) == NULL;
}

static bool plan_layer_norm(const struct ggml_tensor *dst, struct sdgen_layer_norm *op)
{
    const struct ggml_tensor *x = dst->src[0];
    if (!rows(x) || !rows(dst))
        return false;
    *op = (struct sdgen_layer_norm){
        .n = x->ne[0],
        .rows = {x->ne[1], x->ne[2], x->ne[3]},
        .x = x->data,
        .x_stride = {(int64_t)x->nb[1], (int64_t)x->nb[2], (int64_t)x->nb[3]},
        .y = dst->data,
        .y_stride = {(int64_t)dst->nb[1], (int64_t)dst->nb[2], (int64_t)dst->nb[3]},
        .norm = {.eps = ggml_get_op_params_f32(dst, 0), .rms = dst->op == GGML_OP_RMS_NORM},
    };
    return sdgen_layer_norm_check(op) == NULL;
}

bool sdgen_function_of(const struct ggml_tensor *node, enum sdgen_function *function, float parameters[2])
{
    if (node->op == GGML_OP_LEAKY_RELU || node->op == GGML_OP_CLAMP) {
        *function = node->op == GGML_OP_CLAMP ? SDGEN_FUNCTION_CLAMP : SDGEN_FUNCTION_LEAKY;
        parameters[0] = ggml_get_op_params_f32(node, 0);
        parameters[1] = ggml_get_op_params_f32(node, 1);
        return true;
    }
    if (node->op != GGML_OP_UNARY)
        return false;
    switch (ggml_get_unary_op(node)) {
    case GGML_UNARY_OP_SILU: *function = SDGEN_FUNCTION_SILU; return true;
    case GGML_UNARY_OP_GELU: *function = SDGEN_FUNCTION_GELU; return true;
    case GGML_UNARY_OP_GELU_ERF: *function = SDGEN_FUNCTION_GELU_ERF; return true;
    case GGML_UNARY_OP_GELU_QUICK: *function = SDGEN_FUNCTION_GELU_QUICK; return true;
    case GGML_UNARY_OP_SIGMOID: *function = SDGEN_FUNCTION_SIGMOID; return true;
    case GGML_UNARY_OP_TANH: *function = SDGEN_FUNCTION_TANH; return true;
    case GGML_UNARY_OP_RELU: *function = SDGEN_FUNCTION_RELU; return true;
    case GGML_UNARY_OP_EXP: *function = SDGEN_FUNCTION_EXP; return true;
    default: return false;
    }
}

bool sdgen_operand_of(const struct ggml_tensor *tensor, const struct ggml_tensor *result, struct sdgen_operand *operand)
{
    if (tensor->type != GGML_TYPE_F32 || !sdgen_plain(tensor))
        return false;
    operand->data = tensor->data;
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        if (tensor->ne[d] != result->ne[d] && tensor->ne[d] != 1)
            return false;
        operand->stride[d] = tensor->ne[d] == 1 && result->ne[d] != 1 ? 0 : (int64_t)tensor->nb[d];
    }
    return true;
}

/* Fewer elements than that are left to ggml where nothing else is to be done with them. */
enum { FEW = 4096 };

static bool plan_map(const struct ggml_tensor *dst, struct sdgen_map *op)
{
    const struct ggml_tensor *x = dst->src[0];
    if (!rows(x) || !rows(dst) || !ggml_are_same_shape(x, dst) || ggml_nelements(dst) < FEW)
        return false;
    *op = (struct sdgen_map){
        .extent = {dst->ne[0], dst->ne[1], dst->ne[2], dst->ne[3]},
        .x = x->data,
        .x_stride = {(int64_t)x->nb[1], (int64_t)x->nb[2], (int64_t)x->nb[3]},
        .y = dst->data,
        .y_stride = {(int64_t)dst->nb[1], (int64_t)dst->nb[2], (int64_t)dst->nb[3]},
        .scale = 1,
    };
    switch (dst->op) {
    case GGML_OP_ADD:
        if (!sdgen_operand_of(dst->src[1], dst, &op->addend))
            return false;
        break;
    case GGML_OP_MUL:
        if (!sdgen_operand_of(dst->src[1], dst, &op->weight))
            return false;
        break;
    case GGML_OP_SCALE:
        op->scale = ggml_get_op_params_f32(dst, 0);
        op->shift = ggml_get_op_params_f32(dst, 1);
        break;
    default:
        if (!sdgen_function_of(dst, &op->function, op->parameter))
            return false;
    }
    return sdgen_map_check(op) == NULL;
}

static bool plan_permute(const struct ggml_tensor *x, const struct ggml_tensor *dst, size_t offset, struct sdgen_permute *op)
{
    if (x->type != GGML_TYPE_F32 || !rows(dst))
        return false;
    *op = (struct sdgen_permute){
        .extent = {x->ne[0], x->ne[1], x->ne[2], x->ne[3]},
        .x = x->data,
        .x_stride = {(int64_t)x->nb[0], (int64_t)x->nb[1], (int64_t)x->nb[2], (int64_t)x->nb[3]},
        .y = (float *)(void *)((char *)dst->data + offset),
        .y_stride = {(int64_t)dst->nb[1], (int64_t)dst->nb[2], (int64_t)dst->nb[3]},
    };
    return sdgen_permute_check(op) == NULL;
}

static bool plan_concat(const struct ggml_tensor *dst, struct sdgen_permute op[2])
{
    const struct ggml_tensor *a = dst->src[0], *b = dst->src[1];
    const int dimension = dst->op_params[0];
    return plan_permute(a, dst, 0, &op[0]) && plan_permute(b, dst, (size_t)a->ne[dimension] * dst->nb[dimension], &op[1]);
}

static bool plan_softmax(const struct ggml_tensor *dst, struct sdgen_softmax *op)
{
    const struct ggml_tensor *x = dst->src[0], *mask = dst->src[1], *sinks = dst->src[2];
    if (!rows(x) || !rows(dst) || ggml_nelements(dst) < FEW)
        return false;
    *op = (struct sdgen_softmax){
        .n = x->ne[0],
        .rows = {x->ne[1], x->ne[2], x->ne[3]},
        .x = x->data,
        .x_stride = {(int64_t)x->nb[1], (int64_t)x->nb[2], (int64_t)x->nb[3]},
        .y = dst->data,
        .y_stride = {(int64_t)dst->nb[1], (int64_t)dst->nb[2], (int64_t)dst->nb[3]},
        .sinks = sinks ? sinks->data : NULL,
        .scale = ggml_get_op_params_f32(dst, 0),
        .max_bias = ggml_get_op_params_f32(dst, 1),
    };
    if (mask) {
        if (!sdgen_type_of(mask, &op->mask_type) || mask->nb[0] != ggml_type_size(mask->type) || sdgen_overlap(mask, dst))
            return false;
        op->mask = mask->data;
        op->mask_extent[0] = mask->ne[2];
        op->mask_extent[1] = mask->ne[3];
        for (int d = 0; d < 3; d++)
            op->mask_stride[d] = (int64_t)mask->nb[d + 1];
    }
    return (!sinks || !sdgen_overlap(sinks, dst)) && sdgen_softmax_check(op) == NULL;
}

/* By nearest neighbours, to whole multiples. */
static bool plan_upscale(const struct ggml_tensor *dst, struct sdgen_upscale *op)
{
    const struct ggml_tensor *x = dst->src[0];
    if (dst->op_params[0] != GGML_SCALE_MODE_NEAREST || x->type != GGML_TYPE_F32 || !rows(dst) || ggml_nelements(dst) < FEW)
        return false;
    *op = (struct sdgen_upscale){
        .x = x->data,
        .x_stride = {(int64_t)x->nb[0], (int64_t)x->nb[1], (int64_t)x->nb[2], (int64_t)x->nb[3]},
        .y = dst->data,
        .y_stride = {(int64_t)dst->nb[1], (int64_t)dst->nb[2], (int64_t)dst->nb[3]},
    };
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        op->extent[d] = x->ne[d];
        op->factor[d] = dst->ne[d] / x->ne[d];
        if (op->factor[d] * x->ne[d] != dst->ne[d])
            return false;
    }
    return sdgen_upscale_check(op) == NULL;
}

/* With zeros; not with what lies at the other end. */
static bool plan_pad(const struct ggml_tensor *dst, struct sdgen_pad *op)
{
    const struct ggml_tensor *x = dst->src[0];
    const int32_t *paddings = dst->op_params; /* before and after, dimension by dimension; whether circular */
    if (paddings[8] || x->type != GGML_TYPE_F32 || !rows(dst) || ggml_nelements(dst) < FEW)
        return false;
    *op = (struct sdgen_pad){
        .x = x->data,
        .x_stride = {(int64_t)x->nb[0], (int64_t)x->nb[1], (int64_t)x->nb[2], (int64_t)x->nb[3]},
        .y = dst->data,
        .y_stride = {(int64_t)dst->nb[1], (int64_t)dst->nb[2], (int64_t)dst->nb[3]},
    };
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        op->extent[d] = x->ne[d];
        op->before[d] = paddings[2 * d];
        op->after[d] = paddings[2 * d + 1];
    }
    return sdgen_pad_check(op) == NULL;
}

bool sdgen_knows(const struct ggml_tensor *node)
{
    enum sdgen_function function;
    float parameters[2];
    if (!(node->flags & GGML_TENSOR_FLAG_COMPUTE) || ggml_is_empty(node))
        return false;
    switch (node->op) {
    case GGML_OP_MUL_MAT:
    case GGML_OP_CONV_2D:
    case GGML_OP_CONV_3D:
    case GGML_OP_FLASH_ATTN_EXT:
    case GGML_OP_GROUP_NORM:
    case GGML_OP_NORM:
    case GGML_OP_RMS_NORM:
    case GGML_OP_SOFT_MAX:
    case GGML_OP_UPSCALE:
    case GGML_OP_PAD:
    case GGML_OP_CONT:
    case GGML_OP_CONCAT:
    case GGML_OP_ADD:
    case GGML_OP_MUL:
    case GGML_OP_SCALE: return true;
    default: return sdgen_function_of(node, &function, parameters);
    }
}

void sdgen_plan_node(const struct sdgen_graph *graph, int index, struct sdgen_node_plan *plan)
{
    const struct ggml_tensor *node = graph->node[index];
    *plan = (struct sdgen_node_plan){.kind = SDGEN_LEFT_TO_GGML, .head = index};
    if (!(node->flags & GGML_TENSOR_FLAG_COMPUTE) || ggml_is_empty(node) || !sdgen_plain(node))
        return;
    for (int s = 0; s < GGML_MAX_SRC; s++)
        if (node->src[s] && !sdgen_plain(node->src[s]))
            return;
    bool taken = false;
    switch (node->op) {
    case GGML_OP_MUL_MAT:
        taken = plan_matmul(node, &plan->matmul);
        plan->kind = SDGEN_MATMUL;
        break;
    case GGML_OP_CONV_2D:
        taken = plan_conv2d(node, &plan->conv2d);
        plan->kind = SDGEN_CONV2D;
        break;
    case GGML_OP_CONV_3D:
        taken = plan_conv3d(node, &plan->conv2d);
        plan->kind = SDGEN_CONV2D;
        break;
    case GGML_OP_FLASH_ATTN_EXT:
        taken = !sdgen_plan_attention(node, &plan->attention.op);
        plan->kind = SDGEN_ATTENTION;
        break;
    case GGML_OP_GROUP_NORM:
        taken = plan_group_norm(node, &plan->group_norm);
        plan->kind = SDGEN_GROUP_NORM;
        break;
    case GGML_OP_NORM:
    case GGML_OP_RMS_NORM:
        taken = plan_layer_norm(node, &plan->layer_norm);
        plan->kind = SDGEN_LAYER_NORM;
        break;
    case GGML_OP_SOFT_MAX:
        taken = plan_softmax(node, &plan->softmax);
        plan->kind = SDGEN_SOFTMAX;
        break;
    case GGML_OP_UPSCALE:
        taken = plan_upscale(node, &plan->upscale);
        plan->kind = SDGEN_UPSCALE;
        break;
    case GGML_OP_PAD:
        taken = plan_pad(node, &plan->pad);
        plan->kind = SDGEN_PAD;
        break;
    case GGML_OP_CONT:
        taken = ggml_are_same_shape(node, node->src[0]) && ggml_nelements(node) >= FEW && plan_permute(node->src[0], node, 0, plan->permute);
        plan->kind = SDGEN_PERMUTE;
        break;
    case GGML_OP_CONCAT:
        taken = ggml_nelements(node) >= FEW && plan_concat(node, plan->permute);
        plan->kind = SDGEN_PERMUTE;
        break;
    case GGML_OP_ADD:
    case GGML_OP_MUL:
    case GGML_OP_SCALE:
    case GGML_OP_UNARY:
    case GGML_OP_LEAKY_RELU:
    case GGML_OP_CLAMP:
        taken = plan_map(node, &plan->map);
        plan->kind = SDGEN_MAP;
        break;
    default: break;
    }
    if (!taken)
        plan->kind = SDGEN_LEFT_TO_GGML;
}

size_t sdgen_node_work_size(const struct sdgen_plan *with, const struct sdgen_node_plan *plan, int threads)
{
    switch (plan->kind) {
    case SDGEN_MATMUL: return sdgen_matmul_work_size(with, &plan->matmul, threads);
    case SDGEN_CONV2D: return sdgen_conv2d_work_size(with, &plan->conv2d, threads);
    case SDGEN_ATTENTION:
        return sdgen_line_up(plan->attention.elsewhere) + sdgen_attention_work_size(with, &plan->attention.op, threads);
    case SDGEN_GROUP_NORM: return sdgen_group_norm_work_size(with, &plan->group_norm, threads);
    case SDGEN_LAYER_NORM: return sdgen_layer_norm_work_size(with, &plan->layer_norm, threads);
    case SDGEN_MAP: return sdgen_map_work_size(with, &plan->map, threads);
    case SDGEN_PERMUTE: return sdgen_permute_work_size(with, &plan->permute[0], threads);
    case SDGEN_SOFTMAX: return sdgen_softmax_work_size(with, &plan->softmax, threads);
    case SDGEN_UPSCALE: return sdgen_upscale_work_size(with, &plan->upscale, threads);
    case SDGEN_PAD: return sdgen_pad_work_size(with, &plan->pad, threads);
    default: return 0;
    }
}
