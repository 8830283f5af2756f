/* Gated products:
 *
 *   t = MUL_MAT(w, x) ADD(bias)?, c = MUL(VIEW(t, first half), function(CONT?(VIEW(t, second half))))
 *
 * where t is read by nothing else. They are computed in the place of the last node, and t is never written. */
#include "plan.h"

#include "ggml-impl.h"

static int uses(const struct ggml_cgraph *of, const struct sdgen_graph *graph, const struct ggml_tensor *node)
{
    int index = sdgen_graph_index(graph, node);
    return index < 0 || (node->flags & GGML_TENSOR_FLAG_OUTPUT) ? -1 : ggml_node_get_use_count(of, index);
}

/* Whether a tensor is one half of each row of another, which has no other rows. */
static bool is_half(const struct ggml_tensor *view, const struct ggml_tensor *whole, int half)
{
    return view->op == GGML_OP_VIEW && view->src[0] == whole && view->type == GGML_TYPE_F32 && 2 * view->ne[0] == whole->ne[0] &&
           view->ne[1] == whole->ne[1] && view->ne[2] == whole->ne[2] && view->ne[3] == whole->ne[3] && view->nb[0] == whole->nb[0] &&
           view->nb[1] == whole->nb[1] && view->nb[2] == whole->nb[2] && view->nb[3] == whole->nb[3] &&
           (const char *)view->data == (const char *)whole->data + half * view->ne[0] * (int64_t)sizeof(float);
}

bool sdgen_match_gate(const struct ggml_cgraph *of, const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int index,
                      struct sdgen_node_plan *plan, int needless[SDGEN_GATE_NODES], int *count)
{
    const struct ggml_tensor *product = graph->node[index];
    if (product->op != GGML_OP_MUL || graph->skipped[index] || graph->filled[index] || !sdgen_plain(product) ||
        !(product->flags & GGML_TENSOR_FLAG_COMPUTE))
        return false;
    const struct ggml_tensor *value = product->src[0], *gate = product->src[1];
    struct sdgen_after after = {.function = SDGEN_FUNCTION_NONE};
    *count = 0;
    if (!sdgen_function_of(gate, &after.function, after.parameter) || sdgen_graph_reader(graph, gate) != product ||
        sdgen_graph_reader(graph, value) != product)
        return false;
    needless[(*count)++] = sdgen_graph_index(graph, gate);
    const struct ggml_tensor *half = gate->src[0];
    if (half->op == GGML_OP_CONT && sdgen_graph_reader(graph, half) == gate && ggml_are_same_shape(half, half->src[0])) {
        needless[(*count)++] = sdgen_graph_index(graph, half);
        half = half->src[0];
    }
    const struct ggml_tensor *whole = value->src[0];
    if (value->op != GGML_OP_VIEW || !is_half(value, whole, 0) || !is_half(half, whole, 1) || uses(of, graph, whole) != 2 ||
        uses(of, graph, value) != 1 || uses(of, graph, half) != 1)
        return false;

    const struct ggml_tensor *bias = NULL, *source = whole;
    if (whole->op == GGML_OP_ADD) {
        source = whole->src[0];
        bias = whole->src[1];
        if (sdgen_graph_reader(graph, source) != whole || bias->type != GGML_TYPE_F32 || !ggml_is_contiguous(bias) ||
            ggml_nelements(bias) != whole->ne[0] || bias->ne[0] != whole->ne[0] || !sdgen_plain(bias))
            return false;
        needless[(*count)++] = sdgen_graph_index(graph, whole);
    }
    int head = sdgen_graph_index(graph, source);
    if (head < 0 || source->op != GGML_OP_MUL_MAT || state->node[head].kind != SDGEN_MATMUL || !ggml_are_same_shape(source, whole) ||
        product->type != GGML_TYPE_F32 || product->nb[0] != sizeof(float) || !ggml_are_same_shape(product, value))
        return false;
    needless[(*count)++] = head;
    for (int i = 0; i < *count; i++)
        if (graph->skipped[needless[i]] || graph->filled[needless[i]])
            return false;

    *plan = state->node[head];
    struct sdgen_matmul *op = &plan->matmul;
    op->n = product->ne[0];
    op->gated = true;
    op->after = after;
    op->bias = bias ? bias->data : NULL;
    op->c = product->data;
    op->c_stride = (int64_t)product->nb[1];
    op->c_batch_stride[0] = (int64_t)product->nb[2];
    op->c_batch_stride[1] = (int64_t)product->nb[3];
    if (sdgen_matmul_check(op))
        return false;
    for (int i = 0; i < *count; i++)
        graph->skipped[needless[i]] = true;
    const struct ggml_tensor *read[] = {source->src[0], source->src[1], bias};
    bool fits = true;
    for (int i = 0; i < 3; i++)
        fits = fits && (!read[i] || (!sdgen_overlap(read[i], product) && sdgen_graph_stays(graph, read[i], head, index)));
    if (!fits)
        for (int i = 0; i < *count; i++)
            graph->skipped[needless[i]] = false;
    return fits;
}
