#include "listing.h"

#include <stdio.h>

#define LL(value) ((long long)(value))

static const struct ggml_tensor *owner_of(const struct ggml_tensor *tensor)
{
    return tensor->view_src ? tensor->view_src : tensor;
}

/* The shape of a node, and a name, of which views have no good one. */
static void print_tensor(const struct ggml_tensor *node, const struct ggml_tensor *named)
{
    fprintf(stderr, " %lldx%lldx%lldx%lld \"%s\"", LL(node->ne[0]), LL(node->ne[1]), LL(node->ne[2]), LL(node->ne[3]), owner_of(named)->name);
}

static void print_nodes(const struct sdgen_graph *graph, const int node[], int nodes)
{
    for (int i = 0; i < nodes; i++)
        fprintf(stderr, "%s %s", i ? " +" : "", ggml_op_desc(graph->node[node[i]]));
}

/* What a result is made of first of all. */
static const struct ggml_tensor *origin_of(const struct ggml_tensor *tensor)
{
    while (tensor->op != GGML_OP_NONE && tensor->src[0])
        tensor = tensor->src[0];
    return tensor;
}

/* The first of what the nodes read that is no node itself, or what that is made of. */
static const struct ggml_tensor *weights_of(const struct sdgen_graph *graph, const int node[], int nodes)
{
    for (int i = 0; i < nodes; i++)
        for (int s = 0; s < GGML_MAX_SRC && graph->node[node[i]]->src[s]; s++)
            if (owner_of(graph->node[node[i]]->src[s])->op == GGML_OP_NONE)
                return graph->node[node[i]]->src[s];
    return origin_of(graph->node[node[0]]);
}

void sdgen_list_chain(const struct sdgen_graph *graph, const int node[], int nodes, const char *why)
{
    fprintf(stderr, nodes > 1 ? "sdgen: chain of" : "sdgen:");
    print_nodes(graph, node, nodes);
    print_tensor(graph->node[node[nodes - 1]], weights_of(graph, node, nodes));
    fprintf(stderr, "%s: %s\n", nodes > 1 ? "; no more" : " alone", why);
}

static void print_node(const struct sdgen_graph *graph, int node)
{
    print_nodes(graph, &node, 1);
    print_tensor(graph->node[node], weights_of(graph, &node, 1));
}

void sdgen_list_shared_input(const struct sdgen_graph *graph, int node, int products, bool normalized)
{
    fprintf(stderr, "sdgen: one input of %d product%s,", products, products > 1 ? "s" : "");
    print_node(graph, node);
    fprintf(stderr, "%s\n", normalized ? ", normalized" : "");
}

void sdgen_list_norm(const struct sdgen_graph *graph, int node, const char *why)
{
    fprintf(stderr, "sdgen:");
    print_node(graph, node);
    fprintf(stderr, " is no part of the products after it: %s\n", why);
}

void sdgen_list_convolved_norm(const struct sdgen_graph *graph, int convolution, const char *why)
{
    fprintf(stderr, "sdgen: norm before");
    print_node(graph, convolution);
    fprintf(stderr, ": %s\n", why ? why : "a part of it");
}

void sdgen_list_sums(const struct sdgen_graph *graph, int convolution)
{
    fprintf(stderr, "sdgen: sums of a norm by");
    print_node(graph, convolution);
    fprintf(stderr, "\n");
}

static void print_attention(const struct sdgen_attention *op)
{
    fprintf(stderr, "; %lld queries, %lld keys, %lld heads of %lld", LL(op->queries), LL(op->keys), LL(op->heads), LL(op->depth));
    if (op->value_depth != op->depth)
        fprintf(stderr, " and %lld", LL(op->value_depth));
    if (op->batch > 1)
        fprintf(stderr, ", batch of %lld", LL(op->batch));
}

void sdgen_list_flash_attention(const struct ggml_tensor *node, const struct sdgen_attention *op, const char *why)
{
    fprintf(stderr, "sdgen: %s %s", why ? "no attention of" : "attention of", ggml_op_desc(node));
    print_tensor(node, origin_of(node->src[1]));
    if (!why)
        print_attention(op);
    fprintf(stderr, "%s%s\n", why ? ": " : "", why ? why : "");
}

void sdgen_list_attention(const struct sdgen_graph *graph, int soft_max, const struct sdgen_attention_match *match, const char *why)
{
    const struct ggml_tensor *keys = origin_of(graph->node[soft_max]); /* the weights of their projection */
    if (why) {
        fprintf(stderr, "sdgen: no attention of SOFT_MAX");
        print_tensor(graph->node[soft_max], keys);
        fprintf(stderr, ": %s\n", why);
        return;
    }
    int node[SDGEN_ATTENTION_NODES + 1], nodes = 0;
    for (int i = 0; i < match->nodes; i++) {
        int place = nodes++;
        for (; place > 0 && node[place - 1] > match->node[i]; place--)
            node[place] = node[place - 1];
        node[place] = match->node[i];
    }
    node[nodes++] = match->at;
    fprintf(stderr, "sdgen: attention of");
    print_nodes(graph, node, nodes);
    print_tensor(match->output, keys);
    print_attention(&match->op);
    if (match->copies)
        fprintf(stderr, "; %d of its inputs laid out anew first, by the products that make them where they can", match->copies);
    fprintf(stderr, "%s\n", match->aliased ? "; its output copied last" : "");
}
