#include "sdgen-ggml.h"

#include "ggml-backend.h"
#include "ggml-impl.h"
#include "ggml.h"
#include "sdgen.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct sdgen_config config;
    struct sdgen_plan plan;
} chosen;

/* Products and convolutions of all graphs so far, and those of them that were taken; those of an image doubled that was not
 * written, and for how many of them the image was copied; for SDGEN_VERBOSE. */
static _Atomic long long nodes_offered, nodes_taken, doublings_fused, doublings_copied;

static void print_taken(void)
{
    fprintf(stderr, "sdgen: took %lld of %lld nodes that are products or convolutions\n", atomic_load(&nodes_taken),
            atomic_load(&nodes_offered));
    if (atomic_load(&doublings_fused))
        fprintf(stderr, "sdgen: doubled %lld images within convolutions, %lld of them copied first\n", atomic_load(&doublings_fused),
                atomic_load(&doublings_copied));
}

static void print_choice(enum sdgen_level level)
{
    const struct sdgen_processor *processor = sdgen_processor();
    const struct sdgen_blocking *blocking = &chosen.plan.blocking;
    fprintf(stderr, "sdgen: built:");
    for (int l = SDGEN_LEVEL_C; l <= SDGEN_LEVEL_RICHEST; l++)
        if (sdgen_kernels((enum sdgen_level)l))
            fprintf(stderr, " %s", sdgen_level_name((enum sdgen_level)l));
    fprintf(stderr, "; detected: %s (%s; L1 %zu KiB, L2 %zu KiB, L3 %zu KiB;",
            sdgen_level_name(sdgen_select_level(processor->features, SDGEN_FORM_ASSEMBLY, SDGEN_LEVEL_RICHEST)), processor->name,
            processor->l1 >> 10, processor->l2 >> 10, processor->l3 >> 10);
    for (unsigned bit = 0; bit < 32; bit++)
        if (processor->features >> bit & 1)
            fprintf(stderr, " %s", sdgen_feature_name(bit));
    fprintf(stderr, ")");
    if (chosen.config.form == SDGEN_FORM_UPSTREAM)
        fprintf(stderr, "; chosen: upstream\n");
    else
        fprintf(stderr, "; chosen: %s (kc %lld, mc %lld, nc %lld)\n", sdgen_level_name(level), (long long)blocking->kc,
                (long long)blocking->mc, (long long)blocking->nc);
}

static void choose(void)
{
    char message[256];
    if (!sdgen_config_from_environment(&chosen.config, message, sizeof message)) {
        fprintf(stderr, "sdgen: %s\n", message);
        exit(2);
    }
    const struct sdgen_processor *processor = sdgen_processor();
    enum sdgen_level level = sdgen_select_level(processor->features, chosen.config.form, chosen.config.cap);
    chosen.plan.kernels = sdgen_kernels(level);
    chosen.plan.blocking = sdgen_blocking(processor);
    chosen.plan.winograd = chosen.config.winograd;
    if (chosen.config.verbose) {
        print_choice(level);
        atexit(print_taken);
    }
}

bool sdgen_ggml_active(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen.config.form != SDGEN_FORM_UPSTREAM;
}

/* What is computed in place of a node. */
struct node_plan {
    enum { LEFT_TO_GGML, MATMUL, CONV2D, NOTHING, COPY } kind;
    union {
        struct sdgen_matmul matmul;
        struct sdgen_conv2d conv2d;
        const struct ggml_tensor *doubling; /* COPY: its source goes to the beginning of its own memory */
    };
};

struct sdgen_ggml_graph {
    int nodes;
    struct node_plan node[];
};

static bool weight_type(enum ggml_type type, enum sdgen_type *to)
{
    switch (type) {
    case GGML_TYPE_F32: *to = SDGEN_F32; return true;
    case GGML_TYPE_F16: *to = SDGEN_F16; return true;
    case GGML_TYPE_BF16: *to = SDGEN_BF16; return true;
    default: return false;
    }
}

/* In memory, and in ggml's plain layout: other buffer types rearrange what they hold. */
static bool plain(const struct ggml_tensor *tensor)
{
    const struct ggml_tensor *owner = tensor->view_src ? tensor->view_src : tensor;
    return tensor->data && (!owner->buffer || ggml_backend_buffer_is_host(owner->buffer));
}

static bool plan_matmul(const struct ggml_tensor *dst, struct sdgen_matmul *op)
{
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    enum sdgen_type w_type;
    if (!weight_type(w->type, &w_type) || x->type != GGML_TYPE_F32 || dst->type != GGML_TYPE_F32 ||
        w->nb[0] != ggml_type_size(w->type) || w->ne[0] != x->ne[0] || x->nb[0] != sizeof(float) || dst->nb[0] != sizeof(float))
        return false;
    *op = (struct sdgen_matmul){
        .m = dst->ne[1],
        .n = dst->ne[0],
        .k = w->ne[0],
        .batch = {dst->ne[2], dst->ne[3]},
        .w = w->data,
        .w_type = w_type,
        .w_stride = (int64_t)w->nb[1],
        .w_batch_stride = {(int64_t)w->nb[2], (int64_t)w->nb[3]},
        .w_repeat = {dst->ne[2] / w->ne[2], dst->ne[3] / w->ne[3]},
        .x = x->data,
        .x_stride = (int64_t)x->nb[1],
        .x_batch_stride = {(int64_t)x->nb[2], (int64_t)x->nb[3]},
        .c = dst->data,
        .c_stride = (int64_t)dst->nb[1],
        .c_batch_stride = {(int64_t)dst->nb[2], (int64_t)dst->nb[3]},
        .scale = 1,
    };
    return sdgen_matmul_check(op) == NULL;
}

static bool plan_conv2d(const struct ggml_tensor *dst, struct sdgen_conv2d *op)
{
    const struct ggml_tensor *w = dst->src[0], *x = dst->src[1];
    enum sdgen_type w_type;
    if (!weight_type(w->type, &w_type) || x->type != GGML_TYPE_F32 || dst->type != GGML_TYPE_F32 || !ggml_is_contiguous(w) ||
        !ggml_is_contiguous(dst) || x->nb[0] != sizeof(float) || w->ne[2] != x->ne[2] || w->ne[3] != dst->ne[2])
        return false;
    const int32_t *parameters = dst->op_params;
    *op = (struct sdgen_conv2d){
        .batch = dst->ne[3],
        .channels_in = x->ne[2],
        .channels_out = dst->ne[2],
        .width = x->ne[0],
        .height = x->ne[1],
        .width_out = dst->ne[0],
        .height_out = dst->ne[1],
        .kernel_width = w->ne[0],
        .kernel_height = w->ne[1],
        .stride_x = parameters[0],
        .stride_y = parameters[1],
        .pad_x = parameters[2],
        .pad_y = parameters[3],
        .dilation_x = parameters[4],
        .dilation_y = parameters[5],
        .w = w->data,
        .w_type = w_type,
        .x = x->data,
        .x_row_stride = (int64_t)x->nb[1],
        .x_channel_stride = (int64_t)x->nb[2],
        .x_batch_stride = (int64_t)x->nb[3],
        .c = dst->data,
        .c_batch_stride = (int64_t)dst->nb[3],
        .scale = 1,
    };
    return sdgen_conv2d_check(op) == NULL;
}

static int node_count(const struct ggml_cgraph *graph)
{
    return ggml_graph_n_nodes((struct ggml_cgraph *)(uintptr_t)graph); /* not const in ggml's interface, though it only reads */
}

static const struct ggml_tensor *node_at(const struct ggml_cgraph *graph, int index)
{
    return ggml_graph_node((struct ggml_cgraph *)(uintptr_t)graph, index);
}

/* ---- an image doubled, and then convolved ----
 *
 * The convolution reads the image that is doubled. ggml_gallocr may have given that image's memory to what is computed after the
 * doubling, the convolution's own output not least; then the image is copied in the doubling's place, to where it would be doubled. */

static bool overlap(const struct ggml_tensor *a, const struct ggml_tensor *b)
{
    uintptr_t a_begin = (uintptr_t)a->data, b_begin = (uintptr_t)b->data;
    return a_begin < b_begin + ggml_nbytes(b) && b_begin < a_begin + ggml_nbytes(a);
}

/* Whether this doubles an image by repeating its pixels, and the memory of one is not the other's. */
static bool doubles(const struct ggml_tensor *node)
{
    const struct ggml_tensor *x = node->src[0];
    return node->op == GGML_OP_UPSCALE && (node->flags & GGML_TENSOR_FLAG_COMPUTE) && node->op_params[0] == GGML_SCALE_MODE_NEAREST &&
           ggml_is_contiguous(node) && x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && node->ne[0] == 2 * x->ne[0] &&
           node->ne[1] == 2 * x->ne[1] && node->ne[2] == x->ne[2] && node->ne[3] == x->ne[3] && plain(node) && plain(x) &&
           !overlap(node, x);
}

/* The index of the doubling that this convolution reads, and nothing else in this graph or the one it is a part of; -1: none. */
static int doubling_of(const struct ggml_cgraph *graph, int convolution)
{
    const struct ggml_tensor *doubling = node_at(graph, convolution)->src[1];
    if (!doubles(doubling))
        return -1;
    int index = convolution - 1;
    while (index >= 0 && node_at(graph, index) != doubling)
        index--;
    return index >= 0 && ggml_node_has_n_uses(graph, index, 1) ? index : -1;
}

/* Whether what is doubled is still there when the convolution, too, has been computed. */
static bool source_stays(const struct ggml_cgraph *graph, int doubling, int convolution)
{
    for (int i = doubling + 1; i <= convolution; i++)
        if (overlap(node_at(graph, i), node_at(graph, doubling)->src[0]))
            return false;
    return true;
}

/* Makes a convolution of the doubled image one of the image; false, and nothing changed, where that cannot be computed. */
static bool fuse_doubling(const struct ggml_cgraph *graph, int doubling, int convolution, struct sdgen_conv2d *op)
{
    const struct ggml_tensor *doubled = node_at(graph, doubling), *x = doubled->src[0];
    bool stays = source_stays(graph, doubling, convolution);
    struct sdgen_conv2d fused = *op;
    fused.x_doubled = true;
    fused.width = x->ne[0];
    fused.height = x->ne[1];
    fused.x = stays ? x->data : doubled->data;
    fused.x_row_stride = stays ? (int64_t)x->nb[1] : x->ne[0] * (int64_t)sizeof(float);
    fused.x_channel_stride = stays ? (int64_t)x->nb[2] : x->ne[1] * fused.x_row_stride;
    fused.x_batch_stride = stays ? (int64_t)x->nb[3] : x->ne[2] * fused.x_channel_stride;
    if (sdgen_conv2d_check(&fused))
        return false;
    *op = fused;
    return true;
}

/* A thread's share of the rows. */
static void copy_source(const struct ggml_tensor *doubling, int ith, int nth)
{
    const struct ggml_tensor *x = doubling->src[0];
    int64_t rows = x->ne[1] * x->ne[2] * x->ne[3];
    size_t size = (size_t)x->ne[0] * sizeof(float);
    for (int64_t row = rows * ith / nth; row < rows * (ith + 1) / nth; row++) {
        int64_t y = row % x->ne[1], z = row / x->ne[1] % x->ne[2], image = row / x->ne[1] / x->ne[2];
        memcpy((char *)doubling->data + (size_t)row * size,
               (const char *)x->data + (size_t)y * x->nb[1] + (size_t)z * x->nb[2] + (size_t)image * x->nb[3], size);
    }
}

/* ---- nodes ---- */

static bool offered(const struct ggml_tensor *node)
{
    return (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_CONV_2D) && (node->flags & GGML_TENSOR_FLAG_COMPUTE) &&
           !ggml_is_empty(node);
}

/* What becomes of a node; *doubling is the index of the doubling that a convolution makes needless, or -1. */
static void plan_node(const struct ggml_cgraph *graph, int index, struct node_plan *plan, int *doubling)
{
    const struct ggml_tensor *node = node_at(graph, index);
    *doubling = -1;
    plan->kind = LEFT_TO_GGML;
    if (!offered(node) || !plain(node) || !plain(node->src[0]) || !plain(node->src[1]))
        return;
    if (node->op == GGML_OP_MUL_MAT && plan_matmul(node, &plan->matmul))
        plan->kind = MATMUL;
    else if (node->op == GGML_OP_CONV_2D && plan_conv2d(node, &plan->conv2d)) {
        plan->kind = CONV2D;
        *doubling = doubling_of(graph, index);
        if (*doubling >= 0 && !fuse_doubling(graph, *doubling, index, &plan->conv2d))
            *doubling = -1;
    }
}

static size_t node_work_size(const struct node_plan *plan, int n_threads)
{
    switch (plan->kind) {
    case MATMUL: return sdgen_matmul_work_size(&chosen.plan, &plan->matmul, n_threads);
    case CONV2D: return sdgen_conv2d_work_size(&chosen.plan, &plan->conv2d, n_threads);
    default: return 0;
    }
}

size_t sdgen_ggml_work_size(const struct ggml_cgraph *graph, int n_threads)
{
    if (!sdgen_ggml_active())
        return 0;
    size_t most = 0;
    for (int i = 0; i < node_count(graph); i++) {
        struct node_plan plan;
        int doubling;
        plan_node(graph, i, &plan, &doubling);
        size_t size = node_work_size(&plan, n_threads);
        most = size > most ? size : most;
    }
    return most;
}

struct sdgen_ggml_graph *sdgen_ggml_begin(const struct ggml_cgraph *graph, int n_threads, size_t work_size)
{
    if (!sdgen_ggml_active())
        return NULL;
    int nodes = node_count(graph);
    struct sdgen_ggml_graph *state = malloc(sizeof *state + (size_t)nodes * sizeof *state->node);
    if (!state)
        return NULL;
    state->nodes = nodes;
    for (int i = 0; i < nodes; i++) {
        int doubling;
        plan_node(graph, i, &state->node[i], &doubling);
        if (node_work_size(&state->node[i], n_threads) > work_size)
            state->node[i].kind = LEFT_TO_GGML; /* the plan was made for another graph, or for fewer threads */
        atomic_fetch_add(&nodes_offered, offered(node_at(graph, i)));
        atomic_fetch_add(&nodes_taken, state->node[i].kind != LEFT_TO_GGML);
        if (doubling >= 0 && state->node[i].kind == CONV2D) {
            const struct ggml_tensor *doubled = node_at(graph, doubling);
            bool copied = state->node[i].conv2d.x == doubled->data;
            state->node[doubling] = (struct node_plan){.kind = copied ? COPY : NOTHING, .doubling = doubled};
            atomic_fetch_add(&doublings_fused, 1);
            atomic_fetch_add(&doublings_copied, copied);
        }
    }
    return state;
}

void sdgen_ggml_end(struct sdgen_ggml_graph *state)
{
    free(state);
}

int sdgen_ggml_compute(const struct sdgen_ggml_graph *state, int node_index, int ith, int nth, void *work, size_t work_size,
                       void (*barrier)(void *pool), void *pool)
{
    const struct node_plan *plan = &state->node[node_index];
    const struct sdgen_team team = {
        .ith = ith, .nth = nth, .work = work, .work_size = work_size, .barrier = barrier, .barrier_data = pool};
    switch (plan->kind) {
    case MATMUL: sdgen_matmul(&chosen.plan, &plan->matmul, &team); return 1;
    case CONV2D: sdgen_conv2d(&chosen.plan, &plan->conv2d, &team); return 1;
    case NOTHING: return 1;
    case COPY: copy_source(plan->doubling, ith, nth); return 1;
    default: return 0;
    }
}
