/* What the patterns need to know of a graph: who reads a node, and what is written when. */
#ifndef SDGEN_GRAPH_H
#define SDGEN_GRAPH_H

#include "ggml.h"
#include "sdgen.h"

#include <stdbool.h>

struct ggml_cgraph;

struct sdgen_graph {
    const struct ggml_cgraph *of;
    int nodes;
    const struct ggml_tensor **node;
    int *reader;   /* the index of the one node that reads a node; -1: none, several, or its result is wanted for itself */
    bool *skipped; /* computed by another node, or not at all */
    bool *filled;  /* where another pattern is computed, so that no one else may do without it */
    int slots;
    struct sdgen_graph_slot {
        const struct ggml_tensor *node;
        int index;
    } *slot;
};

/* false where there is no memory. */
bool sdgen_graph_init(struct sdgen_graph *graph, const struct ggml_cgraph *of);
void sdgen_graph_free(struct sdgen_graph *graph);

/* The index of a node; -1 for what is none: a leaf, or a node of the graph that this one is a part of. */
int sdgen_graph_index(const struct sdgen_graph *graph, const struct ggml_tensor *tensor);

/* The one node that reads this one, NULL where reader is -1. */
const struct ggml_tensor *sdgen_graph_reader(const struct sdgen_graph *graph, const struct ggml_tensor *node);

/* The same past reshapes. */
const struct ggml_tensor *sdgen_graph_reader_past_reshapes(const struct sdgen_graph *graph, const struct ggml_tensor *node);

/* What a tensor is a reshape of, or itself. */
const struct ggml_tensor *sdgen_without_reshapes(const struct ggml_tensor *tensor);

/* Whether the memory of two tensors overlaps, as far as their first and last bytes say. */
bool sdgen_overlap(const struct ggml_tensor *a, const struct ggml_tensor *b);

/* Whether a tensor's memory is written by none of the nodes from `begin` to before `end` that are computed in their places. */
bool sdgen_graph_stays(const struct sdgen_graph *graph, const struct ggml_tensor *tensor, int begin, int end);

/* Whether a node may stay unwritten: it has no memory of its own where it is in place of another one, which then has to be read for
 * it alone, and so on to the one that the memory belongs to. */
bool sdgen_graph_unseen(const struct sdgen_graph *graph, int index);

/* The type of a tensor's elements; false where it is none that is computed with here. */
bool sdgen_type_of(const struct ggml_tensor *tensor, enum sdgen_type *type);

/* In memory, and in ggml's plain layout: other buffer types rearrange what they hold. */
bool sdgen_plain(const struct ggml_tensor *tensor);

#endif
