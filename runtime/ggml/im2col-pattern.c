/* Convolutions of one, two or three dimensions that ggml makes of an IM2COL and a product:
 *
 *   c = MUL_MAT(RESHAPE? IM2COL(w, x), RESHAPE? w), or CONT(PERMUTE(RESHAPE? c)) where images and channels change places
 *
 * They are computed from x itself, in the place of the last node, and the matrix of patches is never written. Where x or the weights do
 * not stay until then, or the result takes their place, in the place of the IM2COL and into its memory, and the product only copies. */
#include "plan.h"

#include "ggml-impl.h"

const struct ggml_tensor *sdgen_convolved(const struct ggml_tensor *node)
{
    if (node->op == GGML_OP_CONT)
        node = sdgen_without_reshapes(node->src[0]->src[0]);
    return node->op == GGML_OP_MUL_MAT ? sdgen_without_reshapes(node->src[0]) : node;
}

static bool set_operation(const struct ggml_tensor *im2col, struct sdgen_conv2d *op)
{
    const struct ggml_tensor *w = im2col->src[0], *x = im2col->src[1];
    const int32_t *p = im2col->op_params;
    *op = (struct sdgen_conv2d){
        .width = x->ne[0],
        .height = 1,
        .width_out = im2col->ne[1],
        .height_out = 1,
        .kernel_width = w->ne[0],
        .kernel_height = 1,
        .stride_x = p[0],
        .stride_y = 1,
        .dilation_y = 1,
        .w = w->data,
        .x = x->data,
        .x_row_stride = (int64_t)x->nb[1],
        .scale = 1,
    };
    if (!sdgen_type_of(w, &op->w_type) || !ggml_is_contiguous(w) || x->type != GGML_TYPE_F32 || x->nb[0] != sizeof(float) ||
        !sdgen_plain(w) || !sdgen_plain(x))
        return false;
    if (im2col->op == GGML_OP_IM2COL_3D) {
        const int64_t channels_in = p[9];
        if (channels_in <= 0 || x->ne[3] < channels_in || x->ne[3] % channels_in || w->ne[3] % channels_in)
            return false;
        op->batch = x->ne[3] / channels_in;
        op->channels_in = channels_in;
        op->channels_out = w->ne[3] / channels_in;
        op->height = x->ne[1];
        op->height_out = im2col->ne[2];
        op->kernel_height = w->ne[1];
        op->stride_y = p[1];
        op->pad_x = p[3];
        op->pad_y = p[4];
        op->dilation_x = p[6];
        op->dilation_y = p[7];
        op->x_channel_stride = (int64_t)x->nb[3];
        op->x_batch_stride = channels_in * op->x_channel_stride;
        op->frames = (struct sdgen_frames){
            .in = x->ne[2],
            .out = im2col->ne[3] / op->batch,
            .kernel = w->ne[2],
            .stride = p[2],
            .pad = p[5],
            .dilation = p[8],
            .x_stride = (int64_t)x->nb[2],
        };
        return true;
    }
    op->pad_x = p[2];
    op->dilation_x = p[4];
    if (p[6] == 1) {
        op->batch = x->ne[3];
        op->channels_in = x->ne[2];
        op->channels_out = w->ne[3];
        op->height = x->ne[1];
        op->height_out = im2col->ne[2];
        op->kernel_height = w->ne[1];
        op->stride_y = p[1];
        op->pad_y = p[3];
        op->dilation_y = p[5];
        op->x_channel_stride = (int64_t)x->nb[2];
        op->x_batch_stride = (int64_t)x->nb[3];
        return x->nb[1] == (size_t)x->ne[0] * sizeof(float); /* which ggml takes for granted */
    }
    op->batch = x->ne[2];
    op->channels_in = x->ne[1];
    op->channels_out = w->ne[2];
    op->x_channel_stride = (int64_t)x->nb[1];
    op->x_batch_stride = (int64_t)x->nb[2];
    return w->ne[3] == 1;
}

static bool is_matrix(const struct ggml_tensor *tensor, int64_t columns, int64_t rows)
{
    return tensor->ne[0] == columns && tensor->ne[1] == rows && tensor->ne[2] == 1 && tensor->ne[3] == 1 && ggml_is_contiguous(tensor);
}

/* Whether a node may be computed elsewhere, or otherwise. */
static bool is_free(const struct sdgen_graph *graph, const struct ggml_tensor *node)
{
    int index = sdgen_graph_index(graph, node);
    return index >= 0 && !graph->skipped[index] && !graph->filled[index] && (node->flags & GGML_TENSOR_FLAG_COMPUTE) && sdgen_plain(node);
}

/* The product of the matrix of patches with the weights; NULL where its reader is another. */
static const struct ggml_tensor *product_of(const struct sdgen_graph *graph, const struct ggml_tensor *im2col, int64_t pixels,
                                            int64_t channels_out)
{
    const struct ggml_tensor *product = sdgen_graph_reader_past_reshapes(graph, im2col), *w = im2col->src[0];
    if (!product || product->op != GGML_OP_MUL_MAT || !is_free(graph, product) || product->type != GGML_TYPE_F32)
        return NULL;
    const struct ggml_tensor *patches = product->src[0], *weights = product->src[1];
    return sdgen_without_reshapes(patches) == im2col && sdgen_without_reshapes(weights) == sdgen_without_reshapes(w) &&
                   is_matrix(patches, im2col->ne[0], pixels) && is_matrix(weights, im2col->ne[0], channels_out) &&
                   is_matrix(product, pixels, channels_out)
               ? product
               : NULL;
}

/* The copy in which images and channels of a product have changed places, or NULL. */
static const struct ggml_tensor *merged(const struct sdgen_graph *graph, const struct ggml_tensor *product, int64_t batch,
                                        int64_t channels_out)
{
    const struct ggml_tensor *permuted = sdgen_graph_reader_past_reshapes(graph, product);
    if (!permuted || permuted->op != GGML_OP_PERMUTE)
        return NULL;
    const struct ggml_tensor *split = permuted->src[0], *copy = sdgen_graph_reader(graph, permuted);
    const int32_t *axes = permuted->op_params;
    return sdgen_without_reshapes(split) == product && split->ne[2] == batch && split->ne[3] == channels_out && axes[0] == 0 &&
                   axes[1] == 1 && axes[2] == 3 && axes[3] == 2 && copy && copy->op == GGML_OP_CONT && copy->type == GGML_TYPE_F32 &&
                   ggml_is_contiguous(copy) && ggml_are_same_shape(copy, permuted) && is_free(graph, copy)
               ? copy
               : NULL;
}

/* The zeros that are put around an image for this convolution alone become its own padding: of as many pixels on both sides, and of frames
 * before the first. The node that puts them there, or NULL. */
static const struct ggml_tensor *take_padding(const struct sdgen_graph *graph, const struct ggml_tensor *im2col, struct sdgen_conv2d *op)
{
    const struct ggml_tensor *padded = im2col->src[1], *x = padded->src[0];
    const int32_t *p = padded->op_params; /* before and after, dimension by dimension; whether circular */
    const bool deep = op->frames.out, flat = !deep && im2col->op_params[6] != 1;
    if (padded->op != GGML_OP_PAD || !is_free(graph, padded) || sdgen_graph_reader(graph, padded) != im2col || p[0] != p[1] ||
        p[2] != p[3] || p[6] || p[7] || p[8] || (!deep && (p[4] || p[5])) || flat || x->type != GGML_TYPE_F32 ||
        x->nb[0] != sizeof(float) || !sdgen_plain(x))
        return NULL;
    struct sdgen_conv2d without = *op;
    without.x = x->data;
    without.width = x->ne[0];
    without.height = x->ne[1];
    without.pad_x += p[0];
    without.pad_y += p[2];
    without.x_row_stride = (int64_t)x->nb[1];
    without.x_channel_stride = (int64_t)x->nb[deep ? 3 : 2];
    without.x_batch_stride = deep ? op->channels_in * (int64_t)x->nb[3] : (int64_t)x->nb[3];
    without.frames.in = deep ? x->ne[2] : 0;
    without.frames.pad += p[4];
    without.frames.x_stride = deep ? (int64_t)x->nb[2] : 0;
    if (sdgen_conv2d_check(&without))
        return NULL;
    *op = without;
    return padded;
}

/* Whether what a convolution reads is there when it is computed in the place of a node, and its result is elsewhere; x as of a node. */
static bool stays(const struct sdgen_graph *graph, const struct ggml_tensor *im2col, const struct ggml_tensor *x, int from, int at)
{
    const struct ggml_tensor *w = im2col->src[0], *c = graph->node[at];
    return !sdgen_overlap(w, c) && !sdgen_overlap(x, c) && sdgen_graph_stays(graph, x, from, at) &&
           sdgen_graph_stays(graph, w, sdgen_graph_index(graph, im2col) + 1, at);
}

static void skip(const struct sdgen_graph *graph, struct sdgen_im2col_match *match, const struct ggml_tensor *node)
{
    match->node[match->nodes] = sdgen_graph_index(graph, node);
    graph->skipped[match->node[match->nodes++]] = true;
}

void sdgen_unmatch_im2col(const struct sdgen_graph *graph, struct sdgen_im2col_match *match)
{
    while (match->nodes > 0)
        graph->skipped[match->node[--match->nodes]] = false;
}

/* Where a convolution is computed, and what for that need not be. Of its nodes, `padded` may be NULL, as may `copy`. */
static bool find_place(const struct sdgen_graph *graph, struct sdgen_im2col_match *match, const struct ggml_tensor *padded,
                       const struct ggml_tensor *im2col, const struct ggml_tensor *product, const struct ggml_tensor *copy)
{
    const int index = sdgen_graph_index(graph, im2col), from = padded ? sdgen_graph_index(graph, padded) : index;
    const struct ggml_tensor *x = padded ? padded->src[0] : im2col->src[1], *last = copy ? copy : product;
    struct sdgen_conv2d *op = &match->plan.conv2d;
    op->c = last->data;
    match->copy_at = -1;
    match->at = match->plan.head = sdgen_graph_index(graph, last);
    if (padded)
        skip(graph, match, padded);
    skip(graph, match, im2col);
    if (copy)
        skip(graph, match, product);
    if ((op->batch == 1 || copy) && stays(graph, im2col, x, from + 1, match->at))
        return true;
    sdgen_unmatch_im2col(graph, match);

    op->c = im2col->data;
    match->at = match->plan.head = index;
    if (padded)
        skip(graph, match, padded);
    const int nodes = match->nodes;
    const bool fits = ggml_nbytes(product) <= ggml_nbytes(im2col) && stays(graph, im2col, x, from + 1, index);
    const struct ggml_tensor *places[] = {copy, op->batch == 1 ? product : NULL};
    const size_t row = (size_t)product->ne[0] * sizeof(float);
    for (int i = 0; i < 2 && fits; i++) {
        if (!places[i])
            continue;
        match->copy_at = sdgen_graph_index(graph, places[i]);
        match->copy = (struct sdgen_copy){
            .src = im2col->data, .dst = places[i]->data, .row_bytes = row, .rows = {product->ne[1], 1, 1}, .stride = {row}};
        if (places[i] != product)
            skip(graph, match, product);
        if (!sdgen_overlap(im2col, places[i]) && sdgen_graph_stays(graph, im2col, index + 1, match->copy_at))
            return true;
        while (match->nodes > nodes)
            graph->skipped[match->node[--match->nodes]] = false;
    }
    sdgen_unmatch_im2col(graph, match);
    return false;
}

bool sdgen_match_im2col(const struct sdgen_graph *graph, int index, struct sdgen_im2col_match *match)
{
    const struct ggml_tensor *im2col = graph->node[index];
    *match = (struct sdgen_im2col_match){.plan.kind = SDGEN_CONV2D};
    struct sdgen_conv2d *op = &match->plan.conv2d;
    if ((im2col->op != GGML_OP_IM2COL && im2col->op != GGML_OP_IM2COL_3D) || !is_free(graph, im2col) || !set_operation(im2col, op))
        return false;
    const int64_t images = op->batch * (op->frames.out ? op->frames.out : 1), image = op->width_out * op->height_out;
    const struct ggml_tensor *product = product_of(graph, im2col, images * image, op->channels_out);
    if (!product)
        return false;
    const struct ggml_tensor *copy = merged(graph, product, op->batch, op->channels_out);
    op->c_batch_stride = (int64_t)ggml_nbytes(product) / op->batch;
    op->c = product->data;
    if (sdgen_conv2d_check(op))
        return false;
    const struct sdgen_conv2d of_padded = *op;
    const struct ggml_tensor *padded = take_padding(graph, im2col, op);
    if (padded && find_place(graph, match, padded, im2col, product, copy))
        return true;
    *op = of_padded;
    return find_place(graph, match, NULL, im2col, product, copy);
}
