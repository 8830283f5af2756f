/* Chains: what follows an operation becomes a part of it.
 *
 * A chain is computed in the place of its last node, into that node's memory, so all that it reads has to hold until then what it held
 * when its own reader's turn was. Where it does not, or where the last node's memory is that of something read, the chain ends
 * earlier. The others of its nodes are not written; that has to be seen by none but their readers, which are in the chain. */
#include "listing.h"
#include "plan.h"

#include "ggml-impl.h"

enum head {
    PRODUCT = 1 << SDGEN_MATMUL,
    CONVOLUTION = 1 << SDGEN_CONV2D,
    GROUP_NORM = 1 << SDGEN_GROUP_NORM,
    LAYER_NORM = 1 << SDGEN_LAYER_NORM,
    MAP = 1 << SDGEN_MAP,
};

/* The operand of a node in a chain, beside the chain itself. */
enum shape {
    NONE,
    COLUMNS, /* a number for each element of a row, the same for all rows and batches */
    CHANNELS, /* a number for each channel, the same for all pixels, frames and images */
    EACH_COLUMN, /* a number for each element of a row, the same for all rows, not for all batches */
    SAME, /* the result's */
    ANY,  /* the result's, or 1 in some dimensions */
};

/* Where a node becomes part of the operation, in the order in which an operation does these things: each once. */
enum slot { SCALE, BIAS, SHIFT, WEIGHT, MODULATION, ADDEND, FUNCTION, FACTOR };

/* The patterns: after which operations a node can follow, with what operand, and what it becomes. The first that is not too late in the
 * order is taken. */
static const struct step {
    unsigned heads;
    enum ggml_op op; /* GGML_OP_UNARY: any function */
    enum shape operand;
    enum slot slot;
} steps[] = {
    {PRODUCT | CONVOLUTION, GGML_OP_SCALE, NONE, SCALE},
    {PRODUCT, GGML_OP_ADD, COLUMNS, BIAS},
    {CONVOLUTION, GGML_OP_ADD, CHANNELS, BIAS},
    {CONVOLUTION, GGML_OP_ADD, CHANNELS, SHIFT},
    {PRODUCT, GGML_OP_MUL, EACH_COLUMN, WEIGHT},
    {PRODUCT | CONVOLUTION, GGML_OP_ADD, SAME, ADDEND},
    {PRODUCT, GGML_OP_ADD, EACH_COLUMN, ADDEND},
    {GROUP_NORM, GGML_OP_MUL, CHANNELS, WEIGHT},
    {GROUP_NORM, GGML_OP_ADD, CHANNELS, ADDEND},
    {LAYER_NORM, GGML_OP_MUL, COLUMNS, WEIGHT},
    {LAYER_NORM, GGML_OP_ADD, EACH_COLUMN, ADDEND},
    {MAP, GGML_OP_MUL, ANY, WEIGHT},
    {MAP, GGML_OP_ADD, ANY, ADDEND},
    {PRODUCT | CONVOLUTION | GROUP_NORM | MAP, GGML_OP_UNARY, NONE, FUNCTION},
    {PRODUCT | CONVOLUTION, GGML_OP_MUL, SAME, FACTOR},
    {MAP, GGML_OP_MUL, ANY, FACTOR},
};
enum { STEPS = sizeof steps / sizeof *steps };

enum { MOST_NODES = FACTOR + 4, MOST_READ = 2 * MOST_NODES };

/* Nodes between a norm and the sum that modulates it, at most: the condition may be computed there. */
enum { MOST_BETWEEN = 64 };

struct chain {
    struct sdgen_node_plan plan;
    const struct ggml_tensor *result; /* the last node */
    int channels;                     /* the dimension of the result that counts channels */
    int slot;                         /* the last taken; -1: none */
    int nodes, node[MOST_NODES + 1];  /* of the chain, in order; the last one computes it */
    size_t work_size;                 /* that there is */
    int reads;
    struct {
        const struct ggml_tensor *tensor;
        int from; /* the node that would have read it */
        bool in_place; /* the result may take its place, element by element */
    } read[MOST_READ];
};

static void add_read(struct chain *chain, const struct ggml_tensor *tensor, int from, bool in_place)
{
    chain->read[chain->reads].tensor = tensor;
    chain->read[chain->reads].from = from;
    chain->read[chain->reads++].in_place = in_place;
}

static bool has_shape(const struct ggml_tensor *operand, const struct ggml_tensor *result, int channels, enum shape shape)
{
    const int64_t *ne = operand->ne;
    bool vector = operand->type == GGML_TYPE_F32 && operand->nb[0] == sizeof(float);
    switch (shape) {
    case COLUMNS: return vector && ne[0] == result->ne[0] && ne[1] == 1 && ne[2] == 1 && ne[3] == 1;
    case CHANNELS:
        return operand->type == GGML_TYPE_F32 && ne[channels] == result->ne[channels] && ggml_nelements(operand) == ne[channels] &&
               operand->nb[channels] == sizeof(float);
    case EACH_COLUMN: return vector && ne[0] == result->ne[0] && ne[1] == 1;
    case SAME: return vector && ggml_are_same_shape(operand, result);
    case ANY: return operand->nb[0] == sizeof(float) || ne[0] == 1;
    default: return false;
    }
}

/* Of a convolution, an operand has the strides from pixel to pixel, channel to channel, and image to image or frame to frame. */
static bool set_image_operand(const struct ggml_tensor *tensor, int channels, struct sdgen_operand *operand)
{
    operand->data = tensor->data;
    operand->stride[0] = (int64_t)tensor->nb[0];
    operand->stride[1] = (int64_t)tensor->nb[channels];
    operand->stride[2] = (int64_t)tensor->nb[channels == 3 ? 2 : 3];
    operand->stride[3] = 0;
    return channels == 1 || tensor->nb[1] == (size_t)tensor->ne[0] * tensor->nb[0];
}

/* Of a norm, an operand is a row for each batch, or one for all. */
static bool set_by_batch(const struct ggml_tensor *tensor, const struct ggml_tensor *node, const float **array, int64_t stride[2])
{
    struct sdgen_operand operand;
    if (!sdgen_operand_of(tensor, node, &operand))
        return false;
    *array = operand.data;
    stride[0] = operand.stride[2];
    stride[1] = operand.stride[3];
    return true;
}

/* Gives a node its slot in the operation; false where its operand does not fit. */
static bool set_slot(struct sdgen_node_plan *plan, int channels, enum slot slot, const struct ggml_tensor *node,
                     const struct ggml_tensor *operand)
{
    struct sdgen_after *after = plan->kind == SDGEN_CONV2D ? &plan->conv2d.after : &plan->matmul.after;
    switch (plan->kind) {
    case SDGEN_MATMUL:
    case SDGEN_CONV2D: {
        float *scale = plan->kind == SDGEN_CONV2D ? &plan->conv2d.scale : &plan->matmul.scale;
        const float **bias = plan->kind == SDGEN_CONV2D ? &plan->conv2d.bias : &plan->matmul.bias;
        struct sdgen_operand *to = slot == WEIGHT ? &after->weight : slot == ADDEND ? &after->addend : &after->factor;
        switch (slot) {
        case SCALE: *scale = ggml_get_op_params_f32(node, 0); return ggml_get_op_params_f32(node, 1) == 0;
        case BIAS: *bias = operand->data; return true;
        case SHIFT: after->shift = operand->data; return true;
        case FUNCTION: return sdgen_function_of(node, &after->function, after->parameter);
        default: return plan->kind == SDGEN_CONV2D ? set_image_operand(operand, channels, to) : sdgen_operand_of(operand, node, to);
        }
    }
    case SDGEN_GROUP_NORM:
        if (slot == FUNCTION)
            return sdgen_function_of(node, &plan->group_norm.function, plan->group_norm.parameter);
        *(slot == WEIGHT ? &plan->group_norm.weight : &plan->group_norm.bias) = operand->data;
        return true;
    case SDGEN_LAYER_NORM: {
        struct sdgen_row_norm *norm = &plan->layer_norm.norm;
        if (slot == WEIGHT)
            norm->weight = operand->data;
        else if (slot == MODULATION)
            return set_by_batch(operand, node, &norm->modulation, norm->modulation_stride);
        else
            return set_by_batch(operand, node, &norm->bias, norm->bias_stride);
        return true;
    }
    default:
        if (slot == FUNCTION)
            return sdgen_function_of(node, &plan->map.function, plan->map.parameter);
        return sdgen_operand_of(operand, node, slot == WEIGHT ? &plan->map.weight : slot == ADDEND ? &plan->map.addend : &plan->map.factor);
    }
}

static void set_result(struct sdgen_node_plan *plan, const struct ggml_tensor *node)
{
    switch (plan->kind) {
    case SDGEN_MATMUL: plan->matmul.c = node->data; break;
    case SDGEN_CONV2D: plan->conv2d.c = node->data; break;
    case SDGEN_GROUP_NORM: plan->group_norm.y = node->data; break;
    case SDGEN_LAYER_NORM: plan->layer_norm.y = node->data; break;
    default: plan->map.y = node->data; break;
    }
}

static const char *check(const struct sdgen_node_plan *plan)
{
    switch (plan->kind) {
    case SDGEN_MATMUL: return sdgen_matmul_check(&plan->matmul);
    case SDGEN_CONV2D: return sdgen_conv2d_check(&plan->conv2d);
    case SDGEN_GROUP_NORM: return sdgen_group_norm_check(&plan->group_norm);
    case SDGEN_LAYER_NORM: return sdgen_layer_norm_check(&plan->layer_norm);
    default: return sdgen_map_check(&plan->map);
    }
}

/* Whether a node is laid out as the result that it follows, and computed by itself as yet. */
static bool follows(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int index, const struct ggml_tensor *result)
{
    const struct ggml_tensor *node = graph->node[index];
    const struct sdgen_node_plan *plan = &state->node[index];
    return !graph->skipped[index] && ((plan->kind == SDGEN_MAP && plan->head == index) || plan->kind == SDGEN_LEFT_TO_GGML) &&
           (node->flags & GGML_TENSOR_FLAG_COMPUTE) && node->type == GGML_TYPE_F32 && sdgen_plain(node) &&
           ggml_are_same_shape(node, result) && ggml_are_same_stride(node, result);
}

/* What stable-diffusion.cpp's transformers make of a norm's result t, which nothing else reads: t * s, and then t + t * s. */
static bool extend_by_modulation(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, struct chain *chain)
{
    const struct ggml_tensor *t = chain->result;
    const int index = sdgen_graph_index(graph, t);
    if (chain->plan.kind != SDGEN_LAYER_NORM || chain->slot >= MODULATION || (t->flags & GGML_TENSOR_FLAG_OUTPUT) ||
        ggml_node_get_use_count(graph->of, index) != 2)
        return false;
    for (int i = index + 1; i < graph->nodes && i <= index + MOST_BETWEEN; i++) {
        const struct ggml_tensor *sum = graph->node[i], *product = sum->src[0] == t ? sum->src[1] : sum->src[0];
        if (sum->op != GGML_OP_ADD || (sum->src[0] != t && sum->src[1] != t) || product->op != GGML_OP_MUL || product->src[0] != t ||
            !has_shape(product->src[1], t, chain->channels, EACH_COLUMN) || sdgen_graph_reader(graph, product) != sum)
            continue;
        const int at = sdgen_graph_index(graph, product);
        if (!follows(graph, state, at, t) || !follows(graph, state, i, t) ||
            !set_slot(&chain->plan, chain->channels, MODULATION, product, product->src[1]))
            return false;
        set_result(&chain->plan, sum);
        chain->slot = MODULATION;
        chain->result = sum;
        chain->node[chain->nodes++] = at;
        chain->node[chain->nodes++] = i;
        add_read(chain, product->src[1], at, false);
        return !check(&chain->plan);
    }
    return false;
}

/* Makes the node that reads the chain's result a part of it; else why that cannot be. */
static const char *extend(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, struct chain *chain)
{
    const struct ggml_tensor *result = chain->result;
    int index = graph->reader[sdgen_graph_index(graph, result)];
    struct chain modulated = *chain;
    if (index < 0 && extend_by_modulation(graph, state, &modulated)) {
        *chain = modulated;
        return NULL;
    }
    if (index < 0)
        return "its result is read by several, or wanted";
    const struct ggml_tensor *node = graph->node[index];
    const enum ggml_op op = node->op == GGML_OP_LEAKY_RELU || node->op == GGML_OP_CLAMP ? GGML_OP_UNARY : node->op;
    if (graph->skipped[index] || !(node->flags & GGML_TENSOR_FLAG_COMPUTE) || chain->nodes == MOST_NODES)
        return "what follows is a part of something else";
    if (node->type != GGML_TYPE_F32 || !ggml_are_same_shape(node, result) || !ggml_are_same_stride(node, result) || !sdgen_plain(node))
        return "what follows lays it out anew";
    const struct ggml_tensor *operand = node->src[0] == result ? node->src[1] : node->src[0];
    if (node->src[0] == node->src[1])
        return "what follows reads it twice";
    if (operand && !sdgen_plain(operand))
        return "the operand of what follows is not in plain memory";
    const bool taken = state->node[index].kind == SDGEN_MAP && state->node[index].head != index;
    if (taken || (op != GGML_OP_UNARY && state->node[index].kind != SDGEN_MAP && state->node[index].kind != SDGEN_LEFT_TO_GGML))
        return "what follows is a part of something else";
    for (int i = 0; i < STEPS; i++) {
        const struct step *step = &steps[i];
        if (!(step->heads & 1u << chain->plan.kind) || step->op != op || (int)step->slot <= chain->slot ||
            (step->operand != NONE && !has_shape(operand, result, chain->channels, step->operand)))
            continue;
        struct chain longer = *chain;
        if (!set_slot(&longer.plan, chain->channels, step->slot, node, operand))
            continue;
        set_result(&longer.plan, node);
        if (check(&longer.plan))
            continue;
        longer.slot = (int)step->slot;
        longer.result = node;
        longer.node[longer.nodes++] = index;
        if (step->operand != NONE)
            add_read(&longer, operand, index, chain->plan.kind == SDGEN_MAP || step->slot == ADDEND);
        *chain = longer;
        return NULL;
    }
    return "no pattern has what follows";
}

static bool same_place(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    return a->data == b->data && ggml_are_same_shape(a, b) && ggml_are_same_stride(a, b);
}

/* Why the chain cannot be computed in the place of its last node, or NULL. */
static const char *hazard(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, const struct chain *chain)
{
    const int at = chain->node[chain->nodes - 1];
    for (int i = 0; i + 1 < chain->nodes; i++)
        if (!sdgen_graph_unseen(graph, chain->node[i]))
            return "what it is made in the place of is read by others";
    if (sdgen_node_work_size(state->plan, &chain->plan, state->threads) > chain->work_size)
        return "it would need more working memory";
    for (int i = 0; i + 1 < chain->nodes; i++)
        graph->skipped[chain->node[i]] = true;
    const char *why = NULL;
    for (int i = 0; i < chain->reads && !why; i++) {
        const struct ggml_tensor *tensor = chain->read[i].tensor;
        if (sdgen_overlap(tensor, chain->result) && !(chain->read[i].in_place && same_place(tensor, chain->result)))
            why = "the result would take the place of what is read";
        else if (!sdgen_graph_stays(graph, tensor, chain->read[i].from, at))
            why = "what is read does not stay";
    }
    for (int i = 0; i + 1 < chain->nodes; i++)
        graph->skipped[chain->node[i]] = false;
    return why;
}

/* The copy that an elementwise operation reads need not be made. */
static void drop_copy(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, struct chain *chain,
                      const struct ggml_tensor *x)
{
    int index = sdgen_graph_index(graph, x);
    if (x->op != GGML_OP_CONT || index < 0 || graph->reader[index] != chain->node[0] || graph->skipped[index])
        return;
    if (state->node[index].kind != SDGEN_PERMUTE && state->node[index].kind != SDGEN_LEFT_TO_GGML)
        return; /* an attention ends there, or it is something that one reads */
    const struct ggml_tensor *source = x->src[0];
    if (source->type != GGML_TYPE_F32 || !ggml_are_same_shape(source, x) || source->nb[0] != sizeof(float) || !sdgen_plain(source))
        return;
    struct chain without = *chain;
    without.plan.map.x = source->data;
    for (int d = 1; d < GGML_MAX_DIMS; d++)
        without.plan.map.x_stride[d - 1] = (int64_t)source->nb[d];
    without.read[0].tensor = source;
    without.read[0].from = index;
    for (int i = without.nodes++; i > 0; i--)
        without.node[i] = without.node[i - 1];
    without.node[0] = index;
    if (!check(&without.plan) && !hazard(graph, state, &without))
        *chain = without;
}

/* Has a chain begin with what a convolution's channels are a dimension of: its result, or what ggml reshapes it to; false where there is no
 * such thing. */
static bool begin_with_convolution(const struct sdgen_graph *graph, struct chain *chain)
{
    const struct sdgen_conv2d *op = &chain->plan.conv2d;
    const struct ggml_tensor *node = chain->result, *convolved = sdgen_convolved(node);
    const bool flat = convolved->op == GGML_OP_IM2COL && convolved->op_params[6] != 1;
    chain->channels = op->frames.out ? 3 : flat ? 1 : 2;
    const struct ggml_tensor *reader = sdgen_graph_reader(graph, node);
    if (convolved != node && chain->channels != 2 && reader && reader->op == GGML_OP_RESHAPE)
        chain->result = reader;
    const int64_t *ne = chain->result->ne;
    return (chain->channels == 2 || op->batch == 1) && ne[0] == op->width_out && ne[chain->channels] == op->channels_out &&
           (chain->channels == 1 || ne[1] == op->height_out) && (chain->channels < 3 || ne[2] == op->frames.out);
}

void sdgen_extend_chain(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, int head, size_t work_size, bool verbose)
{
    const struct ggml_tensor *node = graph->node[head];
    struct chain chain = {.plan = state->node[head],
                          .result = node,
                          .channels = 2,
                          .slot = -1,
                          .nodes = 1,
                          .node = {head},
                          .work_size = work_size};
    if (chain.plan.kind == SDGEN_CONV2D) {
        if (!begin_with_convolution(graph, &chain))
            return;
        node = sdgen_convolved(node);
    }
    const bool map = chain.plan.kind == SDGEN_MAP;
    if (map)
        chain.slot = node->op == GGML_OP_SCALE ? SCALE : node->op == GGML_OP_MUL ? WEIGHT : node->op == GGML_OP_ADD ? ADDEND : FUNCTION;
    for (int s = 0; s < GGML_MAX_SRC && node->src[s]; s++) {
        const struct ggml_tensor *read = node->src[s];
        if (chain.plan.kind == SDGEN_CONV2D && s == 1 && read->op == GGML_OP_PAD && read->data != chain.plan.conv2d.x)
            read = read->src[0]; /* the padding is the convolution's own */
        add_read(&chain, read, head, map || chain.plan.kind == SDGEN_GROUP_NORM || chain.plan.kind == SDGEN_LAYER_NORM);
    }
    struct chain best = chain;
    const char *why, *hazardous = NULL;
    /* Longer chains than a hazardous one may be without: a residual's memory is another than that of the bias added before. */
    while (!(why = extend(graph, state, &chain)))
        if (!(hazardous = hazard(graph, state, &chain)))
            best = chain;
    if (hazardous)
        why = hazardous;
    if (map)
        drop_copy(graph, state, &best, node->src[0]);
    if (best.nodes > 1) {
        for (int i = 0; i + 1 < best.nodes; i++) {
            graph->skipped[best.node[i]] = true;
            state->node[best.node[i]] = (struct sdgen_node_plan){.kind = SDGEN_NOTHING};
        }
        state->node[best.node[best.nodes - 1]] = best.plan;
    }
    if (verbose)
        sdgen_list_chain(graph, best.node, best.nodes, why);
}
