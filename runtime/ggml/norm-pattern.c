/* Norms before convolutions:
 *
 *   CONV_2D(w, GROUP_NORM(x) MUL(weight)? ADD(bias)? function?)
 *
 * where the norm, a chain of its own by then, is read by the convolution alone, whose chain may be longer. The norm is computed within
 * the convolution and never written, so x has to hold until then what it held in the norm's turn. By Winograd's method the result may
 * take x's place, as memory that is used again often does.
 *
 * Where x was written by a convolution, that one makes the sums of the norm, be it by itself or not. */
#include "listing.h"
#include "plan.h"

#include "ggml-impl.h"

#include <stdlib.h>

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
    const struct ggml_tensor *convolved = sdgen_convolved(graph->node[state->node[at].head]);
    const int norm = sdgen_graph_index(graph, convolved->src[1]);
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
    if (sdgen_graph_reader(graph, convolved->src[1]) != convolved || !sdgen_graph_unseen(graph, norm) || graph->filled[norm])
        *why = "it is read by several, or wanted";
    else if (sdgen_conv2d_check(&plan->conv2d))
        *why = "it does not fit the convolution";
    else if (!sdgen_conv2d_norm_pays(&plan->conv2d))
        *why = "the image is small";
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

/* ---- sums ---- */

/* Of the norm in the place of a node, or before the convolution there: the node that it begins with; -1 where there is none. */
static int head_of_norm(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at)
{
    const struct sdgen_node_plan *plan = &state->node[at];
    if (plan->kind == SDGEN_GROUP_NORM)
        return plan->head;
    if (plan->kind != SDGEN_CONV2D || !plan->conv2d.before.groups)
        return -1;
    return state->node[sdgen_graph_index(graph, sdgen_convolved(graph->node[plan->head])->src[1])].head;
}

/* The node in whose place a convolution writes what that norm is of, whose sums it had better make; -1 where there is none. */
static int source_of_sums(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at)
{
    const int head = head_of_norm(graph, state, at);
    const struct ggml_tensor *x = head >= 0 ? graph->node[head]->src[0] : NULL;
    const int source = x ? sdgen_graph_index(graph, x) : -1;
    if (source < 0 || state->node[source].kind != SDGEN_CONV2D || !ggml_is_contiguous(x) ||
        x->ne[2] != state->node[source].conv2d.channels_out || x->ne[3] != state->node[source].conv2d.batch ||
        !sdgen_conv2d_sums_pay(state->plan, &state->node[source].conv2d) || !sdgen_graph_stays(graph, x, source + 1, at))
        return -1;
    return source;
}

void sdgen_share_sums(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, bool verbose)
{
    /* First how many there are, of a convolution with several readers more than once; then where. */
    for (size_t count = 0, pass = 0; pass < 2; pass++, count = 0) {
        for (int at = 0; at < graph->nodes; at++) {
            const int source = source_of_sums(graph, state, at);
            if (source < 0)
                continue;
            struct sdgen_conv2d *op = &state->node[source].conv2d;
            const int64_t pieces = sdgen_conv2d_sum_pieces(state->plan, op);
            if (pass && !op->sums)
                op->sums = state->sums + count;
            count += (size_t)(op->batch * op->channels_out * pieces);
            if (!pass)
                continue;
            struct sdgen_node_plan *plan = &state->node[at];
            const double(**sums)[2] = plan->kind == SDGEN_CONV2D ? &plan->conv2d.before.sums : &plan->group_norm.sums;
            *sums = (const double(*)[2])op->sums;
            *(plan->kind == SDGEN_CONV2D ? &plan->conv2d.before.sum_pieces : &plan->group_norm.sum_pieces) = pieces;
            if (verbose)
                sdgen_list_sums(graph, state->node[source].head);
        }
        if (!pass && (!count || !(state->sums = malloc(count * sizeof *state->sums))))
            return;
    }
}
