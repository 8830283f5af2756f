#include "attention-pattern.h"

#include "ggml-impl.h"

/* These say why what they are to set cannot be, or return NULL. */

static const char *set_mask(struct sdgen_attention *op, const struct ggml_tensor *mask)
{
    if (!sdgen_plain(mask) || !sdgen_type_of(mask, &op->mask_type) || mask->nb[0] != ggml_type_size(mask->type))
        return "the mask is of another type or layout than is computed with";
    if (mask->ne[0] != op->keys || mask->ne[1] < op->queries)
        return "the mask is not one of queries and keys";
    op->mask = mask->data;
    op->mask_stride = (int64_t)mask->nb[1];
    op->mask_head_stride = (int64_t)mask->nb[2];
    op->mask_batch_stride = (int64_t)mask->nb[3];
    op->mask_heads = mask->ne[2];
    op->mask_batch = mask->ne[3];
    return op->heads % op->mask_heads == 0 && op->batch % op->mask_batch == 0 ? NULL : "the mask's heads or batch do not divide those there are";
}

static const char *set_sinks(struct sdgen_attention *op, const struct ggml_tensor *sinks)
{
    op->sinks = sinks->data;
    return sdgen_plain(sinks) && sinks->type == GGML_TYPE_F32 && ggml_is_contiguous(sinks) && ggml_nelements(sinks) == op->heads
               ? NULL
               : "the sinks are not one number for each head";
}

/* q, k and v as [depth, tokens, heads, batch]. */
static const char *set_inputs(struct sdgen_attention *op, const struct ggml_tensor *q, const struct ggml_tensor *k,
                              const struct ggml_tensor *v)
{
    if (!sdgen_plain(q) || !sdgen_plain(k) || !sdgen_plain(v))
        return "queries, keys or values are not in plain memory";
    if (q->type != GGML_TYPE_F32 || !sdgen_type_of(k, &op->k_type) || !sdgen_type_of(v, &op->v_type))
        return "queries, keys or values are of a type that is not computed with";
    if (q->nb[0] != sizeof(float) || k->nb[0] != ggml_type_size(k->type) || v->nb[0] != ggml_type_size(v->type))
        return "elements of queries, keys or values are not side by side";
    if (q->ne[0] != k->ne[0] || k->ne[1] != v->ne[1] || q->ne[2] % k->ne[2] || q->ne[2] % v->ne[2] || q->ne[3] % k->ne[3] ||
        q->ne[3] % v->ne[3])
        return "the shapes of queries, keys and values do not fit together";
    op->queries = q->ne[1];
    op->keys = k->ne[1];
    op->heads = q->ne[2];
    op->batch = q->ne[3];
    op->depth = q->ne[0];
    op->value_depth = v->ne[0];
    op->q = q->data;
    op->q_stride = (int64_t)q->nb[1];
    op->q_head_stride = (int64_t)q->nb[2];
    op->q_batch_stride = (int64_t)q->nb[3];
    op->k = k->data;
    op->k_stride = (int64_t)k->nb[1];
    op->k_head_stride = (int64_t)k->nb[2];
    op->k_batch_stride = (int64_t)k->nb[3];
    op->k_repeat[0] = q->ne[2] / k->ne[2];
    op->k_repeat[1] = q->ne[3] / k->ne[3];
    op->v = v->data;
    op->v_stride = (int64_t)v->nb[1];
    op->v_head_stride = (int64_t)v->nb[2];
    op->v_batch_stride = (int64_t)v->nb[3];
    op->v_repeat[0] = q->ne[2] / v->ne[2];
    op->v_repeat[1] = q->ne[3] / v->ne[3];
    return NULL;
}

const char *sdgen_plan_attention(const struct ggml_tensor *node, struct sdgen_attention *op)
{
    *op = (struct sdgen_attention){
        .scale = ggml_get_op_params_f32(node, 0),
        .max_bias = ggml_get_op_params_f32(node, 1),
        .softcap = ggml_get_op_params_f32(node, 2),
        .c = node->data,
        .c_stride = (int64_t)node->nb[2],
        .c_head_stride = (int64_t)node->nb[1],
        .c_batch_stride = (int64_t)node->nb[3],
    };
    if (!sdgen_plain(node) || node->nb[0] != sizeof(float))
        return "the result is not in plain memory";
    const char *why = set_inputs(op, node->src[0], node->src[1], node->src[2]);
    if (!why && node->src[3])
        why = set_mask(op, node->src[3]);
    if (!why && node->src[4])
        why = set_sinks(op, node->src[4]);
    return why ? why : sdgen_attention_check(op);
}

/* ---- the pattern ---- */

static const char *const PART_OF_ELSE = "one of its nodes is a part of something else";

static bool needless(const struct sdgen_graph *graph, struct sdgen_attention_match *match, const struct ggml_tensor *node)
{
    int index = sdgen_graph_index(graph, node);
    if (index < 0 || graph->skipped[index] || graph->filled[index] || !(node->flags & GGML_TENSOR_FLAG_COMPUTE) ||
        match->nodes == SDGEN_ATTENTION_NODES)
        return false;
    match->node[match->nodes++] = index;
    return true;
}

/* What q, k or v of a product, [depth or keys, ..., heads * batch], is a contiguous copy of, as [.., .., heads, batch]; the tensor
 * itself where it is none, or where the copy is the output of another attention. `copy` is the CONT, or NULL. */
static const struct ggml_tensor *original(const struct sdgen_graph *graph, const struct ggml_tensor *tensor,
                                          const struct ggml_tensor **copy)
{
    const struct ggml_tensor *base = sdgen_without_reshapes(tensor);
    *copy = NULL;
    int index = sdgen_graph_index(graph, base);
    if (base->op != GGML_OP_CONT || base->type != base->src[0]->type || !ggml_are_same_shape(base, base->src[0]) ||
        base->ne[0] != tensor->ne[0] || base->ne[1] != tensor->ne[1] || base->ne[2] * base->ne[3] != tensor->ne[2] * tensor->ne[3] ||
        (tensor->ne[3] > 1 && base->ne[3] != tensor->ne[3]) || index < 0 || graph->filled[index])
        return tensor;
    /* Read by nothing but this product, through reshapes. */
    const struct ggml_tensor *step = base;
    while (step != tensor && (step = sdgen_graph_reader(graph, step)) && step->op == GGML_OP_RESHAPE)
        ;
    if (step != tensor || !sdgen_graph_reader(graph, tensor))
        return tensor;
    *copy = base;
    return base->src[0];
}

/* A tensor whose first two dimensions are exchanged. */
static struct ggml_tensor transposed(const struct ggml_tensor *tensor)
{
    struct ggml_tensor view = *tensor;
    view.ne[0] = tensor->ne[1];
    view.ne[1] = tensor->ne[0];
    view.nb[0] = tensor->nb[1];
    view.nb[1] = tensor->nb[0];
    return view;
}

/* One of q, k and v: what is read, and the CONT that read it, or NULL where a product did. */
struct input {
    struct ggml_tensor view;
    const struct ggml_tensor *copy;
    int read_at;   /* index of either */
    int64_t batch; /* as the product knows it */
    bool copied;
};

static struct input input_of(const struct sdgen_graph *graph, const struct ggml_tensor *product, const struct ggml_tensor *tensor)
{
    struct input input = {.batch = tensor->ne[3]};
    input.view = *original(graph, tensor, &input.copy);
    input.read_at = sdgen_graph_index(graph, input.copy ? input.copy : product);
    return input;
}

/* Where the products know heads and batch as one, they are split in all inputs as the CONTs had them; false if that cannot be. Shares of
 * heads and of the batch come to the same as those of both together only where all have the same batch. */
static bool split_alike(const struct ggml_tensor *weights, struct input inputs[3])
{
    int64_t batch = 1;
    for (int i = 0; i < 3; i++)
        batch = batch > inputs[i].view.ne[3] ? batch : inputs[i].view.ne[3];
    for (int i = 0; i < 3; i++) {
        struct ggml_tensor *view = &inputs[i].view;
        if (weights->ne[3] > 1) {
            if (view->ne[3] != inputs[i].batch)
                return false;
        } else if (view->ne[3] == 1 && view->ne[2] % batch == 0) {
            view->ne[2] /= batch;
            view->ne[3] = batch;
            view->nb[3] = view->nb[2] * (size_t)view->ne[2];
        } else if (view->ne[3] != batch)
            return false;
    }
    return true;
}

/* Has the CONT copy the rows that it reads to where it would have written, and the attention read them there. */
static void copy_rows(const struct sdgen_graph *graph, struct sdgen_attention_match *match, struct input *input)
{
    struct ggml_tensor *view = &input->view;
    match->copy_at[match->copies] = input->read_at;
    match->copy[match->copies++] = (struct sdgen_copy){
        .src = view->data,
        .dst = input->copy->data,
        .row_bytes = (size_t)view->ne[0] * ggml_type_size(view->type),
        .rows = {view->ne[1], view->ne[2], view->ne[3]},
        .stride = {view->nb[1], view->nb[2], view->nb[3]},
    };
    view->data = input->copy->data;
    for (int i = 1; i < GGML_MAX_DIMS; i++)
        view->nb[i] = view->nb[i - 1] * (size_t)view->ne[i - 1];
    graph->skipped[input->read_at] = false;
    input->copied = true;
}

/* Sees to it that q, k and v still hold what they are to when the node `at` is computed. A copy writes memory, too, so that it may make
 * others needed. */
static bool keep(const struct sdgen_graph *graph, struct sdgen_attention_match *match, struct input inputs[3])
{
    for (int i = 0; i < 3; i++) {
        struct input *input = &inputs[i];
        if (sdgen_graph_stays(graph, &input->view, input->read_at + 1, match->at))
            continue;
        if (!input->copy || input->copied)
            return false;
        copy_rows(graph, match, input);
        i = -1; /* all of them again */
    }
    return true;
}

/* Where the result goes: to the CONT that lays the heads of a token side by side, if there is one. */
static const char *set_output(const struct sdgen_graph *graph, struct sdgen_attention_match *match, const struct ggml_tensor *product)
{
    struct sdgen_attention *op = &match->op;
    const struct ggml_tensor *permuted = sdgen_graph_reader_past_reshapes(graph, product), *merged = NULL;
    if (permuted && permuted->op == GGML_OP_PERMUTE) {
        const struct ggml_tensor *split = permuted->src[0];
        const int32_t *axes = permuted->op_params;
        if (split->ne[0] == op->value_depth && split->ne[1] == op->queries && split->ne[2] == op->heads && split->ne[3] == op->batch &&
            axes[0] == 0 && axes[1] == 2 && axes[2] == 1 && axes[3] == 3)
            merged = sdgen_graph_reader(graph, permuted);
        if (merged && (merged->op != GGML_OP_CONT || merged->type != GGML_TYPE_F32 || !ggml_is_contiguous(merged) || !sdgen_plain(merged)))
            merged = NULL;
    }
    const int64_t row = op->value_depth * (int64_t)sizeof(float);
    if (merged) {
        if (!needless(graph, match, product))
            return PART_OF_ELSE;
        op->c_head_stride = row;
        op->c_stride = row * op->heads;
    } else {
        op->c_stride = row;
        op->c_head_stride = row * op->queries;
    }
    op->c_batch_stride = row * op->heads * op->queries;
    match->output = merged ? merged : product;
    match->at = sdgen_graph_index(graph, match->output);
    op->c = match->output->data;
    return match->output->flags & GGML_TENSOR_FLAG_COMPUTE ? NULL : "its result is not computed";
}

void sdgen_unmatch_attention(const struct sdgen_graph *graph, const struct sdgen_attention_match *match)
{
    for (int i = 0; i < match->nodes; i++)
        graph->skipped[match->node[i]] = false;
    graph->filled[match->at] = false;
}

/* Why q, k, v, mask or sinks would not hold what they are to when the attention is computed, or NULL. */
static const char *hazard(const struct sdgen_graph *graph, struct sdgen_attention_match *match, struct input inputs[3],
                          const struct ggml_tensor *masked, const struct ggml_tensor *mask, int soft_max, const struct ggml_tensor *sinks)
{
    if (!keep(graph, match, inputs))
        return "queries, keys or values do not stay until their result is computed";
    if (mask && !sdgen_graph_stays(graph, mask, sdgen_graph_index(graph, masked), match->at))
        return "the mask does not stay until the result is computed";
    if (sinks && !sdgen_graph_stays(graph, sinks, soft_max, match->at))
        return "the sinks do not stay until the result is computed";
    return NULL;
}

const char *sdgen_match_attention(const struct sdgen_graph *graph, int soft_max, struct sdgen_attention_match *match)
{
    static const char *const read_by_others = "what is between the products is read by others, or wanted";
    const struct ggml_tensor *weights = graph->node[soft_max], *scores = weights->src[0], *mask = weights->src[1];
    const struct ggml_tensor *sinks = weights->src[2], *masked = weights; /* the node that reads the mask */
    *match = (struct sdgen_attention_match){.op = {.scale = ggml_get_op_params_f32(weights, 0), .max_bias = ggml_get_op_params_f32(weights, 1)}};
    struct sdgen_attention *op = &match->op;
    if (graph->skipped[soft_max] || !needless(graph, match, weights))
        return PART_OF_ELSE;
    if (scores->op == GGML_OP_ADD && !mask && op->scale == 1) {
        mask = scores->src[1];
        masked = scores;
        if (!needless(graph, match, scores))
            return PART_OF_ELSE;
        if (sdgen_graph_reader(graph, scores) != weights)
            return read_by_others;
        if (mask->type != GGML_TYPE_F32)
            return "the mask that is added is not of single precision";
        scores = scores->src[0];
    }
    if (scores->op == GGML_OP_SCALE) {
        if (ggml_get_op_params_f32(scores, 1) != 0)
            return "the scores are scaled with a bias";
        if (!needless(graph, match, scores))
            return PART_OF_ELSE;
        if (!sdgen_graph_reader(graph, scores))
            return read_by_others;
        op->scale *= ggml_get_op_params_f32(scores, 0);
        scores = scores->src[0];
    }
    if (scores->op != GGML_OP_MUL_MAT)
        return "the scores are not made by a product";
    if (!needless(graph, match, scores))
        return PART_OF_ELSE;
    const struct ggml_tensor *product = sdgen_graph_reader(graph, weights);
    if (!sdgen_graph_reader(graph, scores) || !product)
        return read_by_others;
    if (product->op != GGML_OP_MUL_MAT || product->src[1] != weights || product->src[0] == weights)
        return "the weights are not those of a product with values";
    if (!sdgen_plain(product) || product->type != GGML_TYPE_F32 || !ggml_is_contiguous(product))
        return "the product with values does not lie in plain memory";

    struct input inputs[3] = {
        input_of(graph, scores, scores->src[0]),
        input_of(graph, scores, scores->src[1]),
        input_of(graph, product, product->src[0]),
    };
    struct input *k = &inputs[0], *q = &inputs[1], *v = &inputs[2];
    v->view = transposed(&v->view);
    if (!split_alike(weights, inputs))
        return "heads and batch are not the same in queries, keys and values";
    const char *why = set_inputs(op, &q->view, &k->view, &v->view);
    if (why)
        return why;
    if (op->keys != weights->ne[0] || op->queries != weights->ne[1] || op->heads * op->batch != weights->ne[2] * weights->ne[3])
        return "the scores are not of the queries' and keys' shape";
    if ((why = set_output(graph, match, product)))
        return why;
    /* The softmax knows heads and batch as one. */
    if (mask) {
        struct sdgen_attention flat = *op;
        flat.heads = weights->ne[2];
        flat.batch = weights->ne[3];
        if ((why = set_mask(&flat, mask)))
            return why;
        if (mask->ne[2] * mask->ne[3] > 1 && op->heads != weights->ne[2])
            return "the mask is by heads and batch as one";
        op->mask = flat.mask;
        op->mask_type = flat.mask_type;
        op->mask_stride = flat.mask_stride;
        op->mask_head_stride = flat.mask_head_stride;
        op->mask_batch_stride = flat.mask_batch_stride;
        op->mask_heads = flat.mask_heads;
        op->mask_batch = flat.mask_batch;
    }
    if ((op->max_bias > 0 || sinks) && op->heads != weights->ne[2])
        return "slopes or sinks are by heads and batch as one";
    if (sinks && (why = set_sinks(op, sinks)))
        return why;
    for (int i = 0; i < 3; i++)
        if (inputs[i].copy && !needless(graph, match, inputs[i].copy))
            return PART_OF_ELSE;
    for (int i = 0; i < match->nodes; i++)
        graph->skipped[match->node[i]] = true;
    graph->filled[match->at] = true;
    why = hazard(graph, match, inputs, masked, mask, soft_max, sinks);
    if (!why)
        why = set_inputs(op, &q->view, &k->view, &v->view);
    if (!why)
        why = sdgen_attention_check(op);
    if (why) {
        sdgen_unmatch_attention(graph, match);
        return why;
    }
    match->aliased = (mask && sdgen_overlap(match->output, mask)) || (sinks && sdgen_overlap(match->output, sinks));
    for (int i = 0; i < 3; i++)
        match->aliased |= sdgen_overlap(match->output, &inputs[i].view);
    return NULL;
}
