/* What is computed in place of each node of a graph. */
#ifndef SDGEN_PLAN_H
#define SDGEN_PLAN_H

#include "attention-pattern.h"
#include "reuse.h"

struct sdgen_node_plan {
    enum {
        SDGEN_LEFT_TO_GGML,
        SDGEN_MATMUL,
        SDGEN_CONV2D,
        SDGEN_ATTENTION,
        SDGEN_GROUP_NORM,
        SDGEN_LAYER_NORM,
        SDGEN_MAP,
        SDGEN_PERMUTE,
        SDGEN_SOFTMAX,
        SDGEN_UPSCALE,
        SDGEN_PAD,
        SDGEN_NOTHING,
        SDGEN_COPY,
    } kind;
    int idle; /* nodes right after this one that need nothing done: taken with it, they cost no barrier */
    int head; /* the node that the operation began as; those after it, up to this one, became a part of it */
    bool reusable; /* its result may be kept, and found when it is to be computed again */
    union {
        struct sdgen_matmul matmul;
        struct sdgen_conv2d conv2d;
        struct {
            struct sdgen_attention op;
            size_t elsewhere; /* bytes of output made in working memory first, because its place holds inputs; or 0 */
        } attention;
        struct sdgen_group_norm group_norm;
        struct sdgen_layer_norm layer_norm;
        struct sdgen_map map;
        struct sdgen_permute permute[2]; /* one after the other; the second, of a CONCAT, has no x where there is one only */
        struct sdgen_softmax softmax;
        struct sdgen_upscale upscale;
        struct sdgen_pad pad;
        struct sdgen_copy copy;
    };
};

struct sdgen_ggml_graph {
    int nodes, threads;
    int64_t queue[SDGEN_QUEUE_SIZE / sizeof(int64_t)]; /* of the team */
    const struct sdgen_plan *plan;
    const struct ggml_tensor **tensor; /* the nodes themselves */
    double (*sums)[2];                 /* that convolutions make for norms; NULL: none */
    struct sdgen_profile *profile;     /* NULL: nothing is measured */
    struct sdgen_reuse reuse;
    struct sdgen_node_plan node[];
};

/* The operation that a node is by itself; SDGEN_LEFT_TO_GGML where it is none that is computed here. */
void sdgen_plan_node(const struct sdgen_graph *graph, int index, struct sdgen_node_plan *plan);

/* Whether a node is of an operation that is computed here, but perhaps not this one. */
bool sdgen_knows(const struct ggml_tensor *node);

/* The function of a node of one operand, with its parameters; false where it is none of those there are. */
bool sdgen_function_of(const struct ggml_tensor *node, enum sdgen_function *function, float parameters[2]);

/* A tensor as an operand of what has the result's shape, repeated along dimensions of length 1; false where it cannot be one. */
bool sdgen_operand_of(const struct ggml_tensor *tensor, const struct ggml_tensor *result, struct sdgen_operand *operand);

/* A product whose result is gated, in the place of the MUL of both halves; false where that is none. The nodes that it makes needless are
 * marked as skipped. */
enum { SDGEN_GATE_NODES = 4 };
bool sdgen_match_gate(const struct ggml_cgraph *of, const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int index,
                      struct sdgen_node_plan *plan, int needless[SDGEN_GATE_NODES], int *count);

/* A convolution in the place of node `at` as one with the norm before it, in no more than so much working memory. Returns the norm's node,
 * which is marked as skipped, or -1 where there is none; why it stays by itself, or NULL. */
int sdgen_match_norm(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at, size_t work_size,
                     struct sdgen_node_plan *plan, const char **why);

/* Has convolutions make the sums of the norms of what they write, where that pays; as many as there is memory for. */
void sdgen_share_sums(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, bool verbose);

/* A convolution made of an IM2COL and a product. */
struct sdgen_im2col_match {
    struct sdgen_node_plan plan;
    int at;             /* the node in whose place it is computed */
    int nodes, node[3]; /* those that it makes needless */
    int copy_at;        /* a node that only copies now; -1: none */
    struct sdgen_copy copy;
};

/* The convolution of an IM2COL; false where that is none. The nodes that it makes needless are marked as skipped. */
bool sdgen_match_im2col(const struct sdgen_graph *graph, int index, struct sdgen_im2col_match *match);
void sdgen_unmatch_im2col(const struct sdgen_graph *graph, struct sdgen_im2col_match *match); /* undoes the marks */

/* The node that has the weights and the image of a convolution as its operands: the one that it began as, or its IM2COL. */
const struct ggml_tensor *sdgen_convolved(const struct ggml_tensor *node);

/* Makes products of the same input one operation, and a norm of rows before them a part of it, as far as that can be with no more than so
 * much working memory. `verbose` says on stderr what was taken, and of the norms that were not, why. */
void sdgen_share_inputs(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, size_t work_size, bool verbose);

/* Bytes of working memory of a node for up to so many threads. */
size_t sdgen_node_work_size(const struct sdgen_plan *with, const struct sdgen_node_plan *plan, int threads);

/* Makes the nodes after a product, a convolution, a norm or an elementwise operation a part of it, as far as that can be: the plan
 * moves to the last of them, and needs no more than so much working memory. `verbose` says on stderr what was taken, and why no
 * more. */
void sdgen_extend_chain(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, int head, size_t work_size, bool verbose);

/* Where a convolution of 1x1, computed in the place of a node, is the one reader of an image that is copied from tokens: makes it read the
 * tokens, with no more than so much working memory, and drops the copy. `verbose` as with chains. */
void sdgen_read_tokens(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, int at, size_t work_size, bool verbose);

#endif
