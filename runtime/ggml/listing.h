/* What SDGEN_VERBOSE=2 lists on stderr: a line for each operation that was looked at, with the name of its weights, which says where in
 * the model it is; where it has none, of the weights that what it reads is made with. */
#ifndef SDGEN_LISTING_H
#define SDGEN_LISTING_H

#include "attention-pattern.h"

/* Nodes that became one operation, in order, and why no more did; of a node alone, why nothing did. */
void sdgen_list_chain(const struct sdgen_graph *graph, const int node[], int nodes, const char *why);

/* Products of one input that became one operation, in the place of that node; whether the norm before them is a part of it. */
void sdgen_list_shared_input(const struct sdgen_graph *graph, int node, int products, bool normalized);

/* Why a norm is no part of the products that read it. */
void sdgen_list_norm(const struct sdgen_graph *graph, int node, const char *why);

/* An attention that is a node by itself, or was made of several; why not, where `why` is not NULL. */
void sdgen_list_flash_attention(const struct ggml_tensor *node, const struct sdgen_attention *op, const char *why);
void sdgen_list_attention(const struct sdgen_graph *graph, int soft_max, const struct sdgen_attention_match *match, const char *why);

#endif
