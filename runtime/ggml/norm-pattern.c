/* Norms before convolutions:
 *
 *   CONV_2D(w, GROUP_NORM(x) MUL(weight)? ADD(bias)? function?)
 *
 * where the norm, a chain of its own by then, is read by the convolution alone, whose chain may be longer. The norm is computed within
 * the convolution and never written, so x has to hold until then what it held in the norm's turn. The convolution's result may take
 * x's place, as memory that is used again often does. */
#include "plan.h"

#include "ggml-impl.h"

/* Some bytes as a tensor. */
static struct ggml_tensor bytes_of(const void *data, size_t size)
{
    return (struct ggml_tensor){
        .type = GGML_TYPE_I8, .ne = {(int64_t)size, 1, 1, 1}, .nb = {1, size, size, size}, .data = (void *)(uintptr_t)data};
}

/* Why what the norm reads is not there for a convolution in the place of node `at`; NULL: it is. The norm is marked as skipped. */
static const char *hazard(const struct sdgen_graph *graph, const struct sdgen_plan *with, const struct sdgen_conv2d *fused,
                          const struct ggml_tensor *x, int norm, int at)
{
    const struct ggml_tensor *result = graph->node[at];
    const size_t channels = (size_t)fused->channels_in * sizeof(float);
    const struct ggml_tensor weight = bytes_of(fused->before.weight, channels), bias = bytes_of(fused->before.bias, channels);
    const struct ggml_tensor *read[] = {x, weight.data ? &weight : NULL, bias.data ? &bias : NULL};
    for (int i = 0; i < 3; i++) {
        if (!read[i])
            continue;
        if (sdgen_overlap(read[i], result) && !(i == 0 && result->data == x->data && sdgen_conv2d_overwrites(with, fused)))
            return "the result would take the place of what is normed";
        if (!sdgen_graph_stays(graph, read[i], norm + 1, at))
            return "what is normed does not stay";
    }
    return NULL;
}

int sdgen_match_norm(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at, size_t work_size,
                     struct sdgen_node_plan *plan, const char **why)
{
    const int convolution = state->node[at].head;
    const int norm = sdgen_graph_index(graph, graph->node[convolution]->src[1]);
    if (norm < 0 || state->node[norm].kind != SDGEN_GROUP_NORM)
        return -1;
    const struct sdgen_group_norm *op = &state->node[norm].group_norm;
    *plan = state->node[at];
    plan->conv2d.x = op->x;
    plan->conv2d.x_channel_stride = op->x_channel_stride;
    plan->conv2d.x_batch_stride = op->x_batch_stride;
    plan->conv2d.before = (struct sdgen_before){
        .groups = op->groups,
        .weight = op->weight,
        .bias = op->bias,
        .eps = op->eps,
        .function = op->function,
        .parameter = {op->parameter[0], op->parameter[1]},
    };
    *why = NULL;
    if (graph->reader[norm] != convolution || !sdgen_graph_unseen(graph, norm) || graph->filled[norm])
        *why = "it is read by several, or wanted";
    else if (!sdgen_conv2d_norms(state->plan, &plan->conv2d))
        *why = "the convolution is not by Winograd's method";
    else if (!sdgen_conv2d_norm_pays(state->plan, &plan->conv2d))
        *why = "the image is small";
    else if (sdgen_conv2d_check(&plan->conv2d))
        *why = "it does not fit the convolution";
    else if (sdgen_node_work_size(state->plan, plan, state->threads) > work_size)
        *why = "it would need more working memory";
    if (*why)
        return norm;
    const struct ggml_tensor *x = graph->node[state->node[norm].head]->src[0];
    graph->skipped[norm] = true;
    *why = hazard(graph, state->plan, &plan->conv2d, x, norm, at);
    graph->skipped[norm] = !*why;
    return norm;
}
