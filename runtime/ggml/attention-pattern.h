/* Attention in ggml's graphs: FLASH_ATTN_EXT, and what stable-diffusion.cpp builds without it. */
#ifndef SDGEN_ATTENTION_PATTERN_H
#define SDGEN_ATTENTION_PATTERN_H

#include "graph.h"
#include "sdgen.h"

/* Rows that lie anywhere, to be laid side by side. */
struct sdgen_copy {
    const char *src;
    char *dst;
    size_t row_bytes;
    int64_t rows[3];
    size_t stride[3];
};

enum { SDGEN_ATTENTION_COPIES = 3, SDGEN_ATTENTION_NODES = 9 };

struct sdgen_attention_match {
    struct sdgen_attention op;
    const struct ggml_tensor *output;
    int at;       /* the node in whose place it is computed, whose result is the output */
    bool aliased; /* the output's memory overlaps what is read: it has to be made elsewhere, and copied */
    int nodes, node[SDGEN_ATTENTION_NODES]; /* those that it makes needless, `at` not among them */
    int copies, copy_at[SDGEN_ATTENTION_COPIES]; /* those of them that only copy now, because what they read does not stay */
    struct sdgen_copy copy[SDGEN_ATTENTION_COPIES];
};

/* A FLASH_ATTN_EXT; NULL, or why it cannot be computed. */
const char *sdgen_plan_attention(const struct ggml_tensor *node, struct sdgen_attention *op);

/* The pattern around a SOFT_MAX:
 *
 *   MUL_MAT(CONT k, CONT q) SCALE? ADD mask? SOFT_MAX MUL_MAT(CONT v transposed, .) PERMUTE? CONT?
 *
 * with reshapes between; q, k and v are read where the CONTs find them. Marks the nodes that it makes needless as skipped. NULL, or why it
 * is not there, with nothing marked. */
const char *sdgen_match_attention(const struct sdgen_graph *graph, int soft_max, struct sdgen_attention_match *match);
void sdgen_unmatch_attention(const struct sdgen_graph *graph, const struct sdgen_attention_match *match); /* undoes the marks */

#endif
