#include "graph.h"

#include "ggml-backend.h"
#include "ggml-impl.h"

#include <stdlib.h>

static uint32_t slot_of(const struct sdgen_graph *graph, const struct ggml_tensor *tensor)
{
    uint32_t slot = (uint32_t)(((uintptr_t)tensor >> 4) * 2654435761u) % (uint32_t)graph->slots;
    while (graph->slot[slot].node && graph->slot[slot].node != tensor)
        slot = (slot + 1) % (uint32_t)graph->slots;
    return slot;
}

bool sdgen_graph_init(struct sdgen_graph *graph, const struct ggml_cgraph *of)
{
    struct ggml_cgraph *unchanged = (struct ggml_cgraph *)(uintptr_t)of; /* not const in ggml's interface, though it only reads */
    int nodes = ggml_graph_n_nodes(unchanged);
    *graph = (struct sdgen_graph){.of = of, .nodes = nodes, .slots = 2 * nodes + 1};
    graph->node = malloc(((size_t)nodes + 1) * sizeof *graph->node);
    graph->reader = malloc(((size_t)nodes + 1) * sizeof *graph->reader);
    graph->skipped = calloc((size_t)nodes + 1, sizeof *graph->skipped);
    graph->filled = calloc((size_t)nodes + 1, sizeof *graph->filled);
    graph->slot = calloc((size_t)graph->slots, sizeof *graph->slot);
    if (!graph->node || !graph->reader || !graph->skipped || !graph->filled || !graph->slot) {
        sdgen_graph_free(graph);
        return false;
    }
    for (int i = 0; i < nodes; i++) {
        const struct ggml_tensor *node = ggml_graph_node(unchanged, i);
        graph->node[i] = node;
        graph->slot[slot_of(graph, node)] = (struct sdgen_graph_slot){node, i};
        /* Uses are counted over the whole graph that this may be a part of, so a reader outside of this part makes two or none. */
        graph->reader[i] = -1;
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            int read = node->src[s] ? sdgen_graph_index(graph, node->src[s]) : -1;
            if (read >= 0 && read != i && !(node->src[s]->flags & GGML_TENSOR_FLAG_OUTPUT) && ggml_node_get_use_count(of, read) == 1)
                graph->reader[read] = i;
        }
    }
    return true;
}

void sdgen_graph_free(struct sdgen_graph *graph)
{
    free(graph->node);
    free(graph->reader);
    free(graph->skipped);
    free(graph->filled);
    free(graph->slot);
}

int sdgen_graph_index(const struct sdgen_graph *graph, const struct ggml_tensor *tensor)
{
    const struct sdgen_graph_slot *slot = &graph->slot[slot_of(graph, tensor)];
    return slot->node ? slot->index : -1;
}

const struct ggml_tensor *sdgen_graph_reader(const struct sdgen_graph *graph, const struct ggml_tensor *node)
{
    int index = sdgen_graph_index(graph, node);
    return index >= 0 && graph->reader[index] >= 0 ? graph->node[graph->reader[index]] : NULL;
}

const struct ggml_tensor *sdgen_graph_reader_past_reshapes(const struct sdgen_graph *graph, const struct ggml_tensor *node)
{
    const struct ggml_tensor *reader = sdgen_graph_reader(graph, node);
    while (reader && reader->op == GGML_OP_RESHAPE)
        reader = sdgen_graph_reader(graph, reader);
    return reader;
}

const struct ggml_tensor *sdgen_without_reshapes(const struct ggml_tensor *tensor)
{
    while (tensor->op == GGML_OP_RESHAPE)
        tensor = tensor->src[0];
    return tensor;
}

bool sdgen_overlap(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    uintptr_t a_begin = (uintptr_t)a->data, b_begin = (uintptr_t)b->data;
    return a_begin < b_begin + ggml_nbytes(b) && b_begin < a_begin + ggml_nbytes(a);
}

static bool writes(const struct ggml_tensor *node)
{
    return !ggml_op_is_empty(node->op) && (node->flags & GGML_TENSOR_FLAG_COMPUTE) && !ggml_is_empty(node);
}

bool sdgen_graph_stays(const struct sdgen_graph *graph, const struct ggml_tensor *tensor, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (!graph->skipped[i] && writes(graph->node[i]) && sdgen_overlap(graph->node[i], tensor))
            return false;
    return true;
}

bool sdgen_graph_unseen(const struct sdgen_graph *graph, int index)
{
    const struct ggml_tensor *owner = graph->node[index]->view_src;
    for (const struct ggml_tensor *node = graph->node[index]; owner && node != owner; node = graph->node[index]) {
        const int source = node->src[0] ? sdgen_graph_index(graph, node->src[0]) : -1;
        if (source < 0 || graph->reader[source] != index)
            return false;
        index = source;
    }
    return true;
}

bool sdgen_plain(const struct ggml_tensor *tensor)
{
    const struct ggml_tensor *owner = tensor->view_src ? tensor->view_src : tensor;
    return tensor->data && (!owner->buffer || ggml_backend_buffer_is_host(owner->buffer));
}

bool sdgen_type_of(const struct ggml_tensor *tensor, enum sdgen_type *type)
{
    switch (tensor->type) {
    case GGML_TYPE_F32: *type = SDGEN_F32; return true;
    case GGML_TYPE_F16: *type = SDGEN_F16; return true;
    case GGML_TYPE_BF16: *type = SDGEN_BF16; return true;
    default: return false;
    }
}
