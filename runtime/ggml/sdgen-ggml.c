#include "sdgen-ggml.h"

#include "gemm.h"
#include "listing.h"
#include "memory.h"
#include "profile.h"
#include "trace.h"

#include "ggml-impl.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static struct {
    struct sdgen_config config;
    struct sdgen_plan plan;
} chosen;

/* Counts over all graphs so far, for SDGEN_VERBOSE. */
static struct {
    _Atomic long long offered, taken;          /* products, convolutions and attentions, and those of them that were taken */
    _Atomic long long others_offered, others_taken; /* norms, softmaxes, elementwise operations and copies */
    _Atomic long long doublings, doublings_copied; /* of an image that was not written; for how many it was copied */
    _Atomic long long attentions, inputs_copied, outputs_copied; /* made of a pattern of several nodes */
} counts;

static void print_counts(void)
{
    fprintf(stderr, "sdgen: took %lld of %lld nodes that are products, convolutions or attentions\n", atomic_load(&counts.taken),
            atomic_load(&counts.offered));
    if (atomic_load(&counts.others_offered))
        fprintf(stderr, "sdgen: took %lld of %lld other nodes: norms, softmaxes, elementwise operations, copies\n",
                atomic_load(&counts.others_taken), atomic_load(&counts.others_offered));
    if (atomic_load(&counts.doublings))
        fprintf(stderr, "sdgen: doubled %lld images within convolutions, %lld of them copied first\n", atomic_load(&counts.doublings),
                atomic_load(&counts.doublings_copied));
    sdgen_reuse_print();
    if (chosen.plan.store)
        fprintf(stderr, "sdgen: kept transformed weights of %.1f MiB\n",
                (double)sdgen_store_counts(chosen.plan.store).bytes / (1 << 20));
    if (atomic_load(&counts.attentions))
        fprintf(stderr, "sdgen: made %lld attentions of several nodes each, %lld inputs copied first and %lld outputs last\n",
                atomic_load(&counts.attentions), atomic_load(&counts.inputs_copied), atomic_load(&counts.outputs_copied));
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
    if (chosen.config.form == SDGEN_FORM_UPSTREAM) {
        fprintf(stderr, "; chosen: upstream\n");
        return;
    }
    fprintf(stderr, "; chosen: %s (kc %lld, mc %lld, nc %lld, packed %lld MiB", sdgen_level_name(level), (long long)blocking->kc,
            (long long)blocking->mc, (long long)blocking->nc, (long long)(blocking->packed_bytes >> 20));
    fprintf(stderr, ")");
    const char *before = "; tuned: ";
    for (size_t i = 0; i < sdgen_tunable_count(); i++) {
        const int value = sdgen_tuning_value(&chosen.config.tuning, i);
        if (value < 0)
            continue;
        fprintf(stderr, "%s%s=%d", before, sdgen_tunable(i)->name, value);
        before = ",";
    }
    fputc('\n', stderr);
}

static void print_profile(void)
{
    sdgen_profile_print(sdgen_select_level(sdgen_processor()->features, SDGEN_FORM_ASSEMBLY, chosen.config.cap));
}

static void choose(void)
{
    char message[640];
    if (!sdgen_config_from_environment(&chosen.config, message, sizeof message)) {
        fprintf(stderr, "sdgen: %s\n", message);
        exit(2);
    }
    if (*message)
        fprintf(stderr, "sdgen: %s\n", message);
    enum sdgen_level level = sdgen_select_level(sdgen_processor()->features, chosen.config.form, chosen.config.cap);
    chosen.plan = sdgen_plan(level, &chosen.config.tuning);
    const bool ours = chosen.config.form != SDGEN_FORM_UPSTREAM;
    if (ours && chosen.config.tuning.reuse != 0)
        sdgen_reuse_start();
    if (ours && chosen.config.store_mb > 0)
        chosen.plan.store = sdgen_store_new((size_t)chosen.config.store_mb << 20);
    if (chosen.config.verbose) {
        print_choice(level);
        if (ours)
            atexit(print_counts);
    }
    if (!chosen.config.profile)
        return;
    if (chosen.config.form == SDGEN_FORM_UPSTREAM) {
        fprintf(stderr, "sdgen: SDGEN_PROFILE shows nothing with SDGEN_KERNELS=upstream\n");
        return;
    }
    if (chosen.config.trace && !sdgen_trace_open(chosen.config.trace, SDGEN_TRACE_EVENTS)) {
        fprintf(stderr, "sdgen: SDGEN_PROFILE=%s: the file cannot be written: %s\n", chosen.config.trace, strerror(errno));
        exit(2);
    }
    atexit(print_profile);
}

bool sdgen_ggml_active(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, choose);
    return chosen.config.form != SDGEN_FORM_UPSTREAM;
}

int sdgen_ggml_default_threads(void)
{
    return sdgen_default_threads();
}

/* ---- an image doubled, and then convolved ----
 *
 * The convolution reads the image that is doubled. ggml_gallocr may have given that image's memory to what is computed after the
 * doubling, the convolution's own output not least; then the image is copied in the doubling's place, to where it would be doubled. */

/* Whether this doubles an image by repeating its pixels, and the memory of one is not the other's. */
static bool doubles(const struct ggml_tensor *node)
{
    const struct ggml_tensor *x = node->src[0];
    return node->op == GGML_OP_UPSCALE && (node->flags & GGML_TENSOR_FLAG_COMPUTE) && node->op_params[0] == GGML_SCALE_MODE_NEAREST &&
           ggml_is_contiguous(node) && x->type == GGML_TYPE_F32 && x->nb[0] == sizeof(float) && node->ne[0] == 2 * x->ne[0] &&
           node->ne[1] == 2 * x->ne[1] && node->ne[2] == x->ne[2] && node->ne[3] == x->ne[3] && sdgen_plain(node) && sdgen_plain(x) &&
           !sdgen_overlap(node, x);
}

/* Where the convolution is the only reader of a doubling: makes it one of the image that is doubled. */
static void fuse_doubling(const struct sdgen_graph *graph, int at, int n_threads, size_t work_size,
                          struct sdgen_ggml_graph *state)
{
    const struct ggml_tensor *convolved = sdgen_convolved(graph->node[state->node[at].head]), *doubled = convolved->src[1];
    const struct ggml_tensor *x = doubled->src[0];
    int index = sdgen_graph_index(graph, doubled);
    if (index < 0 || sdgen_graph_reader(graph, doubled) != convolved || !doubles(doubled))
        return;
    bool stays = sdgen_graph_stays(graph, x, index + 1, at + 1);
    struct sdgen_conv2d fused = state->node[at].conv2d;
    fused.x_doubled = true;
    fused.width = x->ne[0];
    fused.height = x->ne[1];
    fused.x = stays ? x->data : doubled->data;
    fused.x_row_stride = stays ? (int64_t)x->nb[1] : x->ne[0] * (int64_t)sizeof(float);
    fused.x_channel_stride = stays ? (int64_t)x->nb[2] : x->ne[1] * fused.x_row_stride;
    fused.x_batch_stride = stays ? (int64_t)x->nb[3] : x->ne[2] * fused.x_channel_stride;
    if (sdgen_conv2d_check(&fused) || sdgen_conv2d_work_size(&chosen.plan, &fused, n_threads) > work_size)
        return;
    state->node[at].conv2d = fused;
    graph->skipped[index] = stays; /* what only copies writes memory, too */
    struct sdgen_node_plan *plan = &state->node[index];
    *plan = (struct sdgen_node_plan){.kind = SDGEN_NOTHING};
    if (!stays)
        *plan = (struct sdgen_node_plan){.kind = SDGEN_COPY,
                                   .copy = {.src = x->data,
                                            .dst = doubled->data,
                                            .row_bytes = (size_t)x->ne[0] * sizeof(float),
                                            .rows = {x->ne[1], x->ne[2], x->ne[3]},
                                            .stride = {x->nb[1], x->nb[2], x->nb[3]}}};
}

/* A thread's share of the rows. */
static void copy_rows(const struct sdgen_copy *copy, int ith, int nth)
{
    const int64_t *rows = copy->rows;
    int64_t all = rows[0] * rows[1] * rows[2];
    for (int64_t row = all * ith / nth; row < all * (ith + 1) / nth; row++) {
        size_t y = (size_t)(row % rows[0]), z = (size_t)(row / rows[0] % rows[1]), image = (size_t)(row / rows[0] / rows[1]);
        memcpy(copy->dst + (size_t)row * copy->row_bytes,
               copy->src + y * copy->stride[0] + z * copy->stride[1] + image * copy->stride[2], copy->row_bytes);
    }
}

/* ---- attention ---- */

static void fuse_attention(const struct sdgen_attention_match *match, const struct sdgen_node_plan *plan,
                           struct sdgen_ggml_graph *state)
{
    for (int i = 0; i < match->nodes; i++)
        state->node[match->node[i]] = (struct sdgen_node_plan){.kind = SDGEN_NOTHING};
    for (int i = 0; i < match->copies; i++)
        state->node[match->copy_at[i]] = (struct sdgen_node_plan){.kind = SDGEN_COPY, .copy = match->copy[i]};
    state->node[match->at] = *plan;
}

/* By all threads: to memory that nothing is read from, then to its place. */
static void compute_attention(const struct sdgen_node_plan *plan, const struct sdgen_team *team)
{
    const size_t elsewhere = sdgen_line_up(plan->attention.elsewhere);
    if (!elsewhere) {
        sdgen_attention(&chosen.plan, &plan->attention.op, team);
        return;
    }
    struct sdgen_attention op = plan->attention.op;
    op.c = team->work;
    struct sdgen_team rest = *team;
    rest.work = (char *)team->work + elsewhere;
    rest.work_size = team->work_size - elsewhere;
    sdgen_attention(&chosen.plan, &op, &rest);
    sdgen_wait(team);
    const struct sdgen_copy copy = {.src = team->work,
                                    .dst = (char *)plan->attention.op.c,
                                    .row_bytes = SDGEN_LINE,
                                    .rows = {(int64_t)(plan->attention.elsewhere / SDGEN_LINE), 1, 1},
                                    .stride = {SDGEN_LINE}};
    copy_rows(&copy, team->ith, team->nth);
    const size_t done = plan->attention.elsewhere / SDGEN_LINE * SDGEN_LINE;
    if (team->ith == 0)
        memcpy(copy.dst + done, copy.src + done, plan->attention.elsewhere - done);
    sdgen_phase(team, SDGEN_PHASE_EPILOGUE);
}

static void fuse_im2col(const struct sdgen_graph *graph, const struct sdgen_im2col_match *match, struct sdgen_ggml_graph *state)
{
    for (int i = 0; i < match->nodes; i++)
        state->node[match->node[i]] = (struct sdgen_node_plan){.kind = SDGEN_NOTHING};
    if (match->copy_at >= 0) {
        state->node[match->copy_at] = (struct sdgen_node_plan){.kind = SDGEN_COPY, .copy = match->copy};
        graph->filled[match->copy_at] = true;
    }
    state->node[match->at] = match->plan;
    graph->filled[match->at] = true;
}

/* ---- nodes ---- */

static bool offered(const struct ggml_tensor *node)
{
    return (node->op == GGML_OP_MUL_MAT || node->op == GGML_OP_CONV_2D || node->op == GGML_OP_CONV_3D ||
            node->op == GGML_OP_FLASH_ATTN_EXT) &&
           (node->flags & GGML_TENSOR_FLAG_COMPUTE) && !ggml_is_empty(node);
}

static size_t node_work_size(const struct sdgen_node_plan *plan, int n_threads)
{
    return sdgen_node_work_size(&chosen.plan, plan, n_threads);
}

static void list_gated(const struct sdgen_graph *graph, int at, const int needless[], int count)
{
    int node[SDGEN_GATE_NODES + 1];
    for (int i = 0; i < count; i++)
        node[i] = needless[count - 1 - i];
    node[count] = at;
    sdgen_list_chain(graph, node, count + 1, "it is gated");
}

static void list_flash_attentions(const struct sdgen_graph *graph)
{
    for (int i = 0; i < graph->nodes; i++) {
        struct sdgen_attention op;
        if (offered(graph->node[i]) && graph->node[i]->op == GGML_OP_FLASH_ATTN_EXT)
            sdgen_list_flash_attention(graph->node[i], &op, sdgen_plan_attention(graph->node[i], &op));
    }
}

static void fuse_norm(const struct sdgen_graph *graph, int at, size_t work_size, bool verbose, struct sdgen_ggml_graph *state)
{
    struct sdgen_node_plan fused;
    const char *why;
    int norm = sdgen_match_norm(graph, state, at, work_size, &fused, &why);
    if (norm < 0)
        return;
    if (!why) {
        state->node[at] = fused;
        state->node[norm] = (struct sdgen_node_plan){.kind = SDGEN_NOTHING, .head = state->node[norm].head};
    }
    if (verbose)
        sdgen_list_convolved_norm(graph, state->node[at].head, why);
}

static bool can_head_chain(const struct sdgen_node_plan *plan)
{
    return plan->kind == SDGEN_MATMUL || plan->kind == SDGEN_CONV2D || plan->kind == SDGEN_GROUP_NORM ||
           plan->kind == SDGEN_LAYER_NORM || plan->kind == SDGEN_MAP;
}

/* ---- what becomes of a graph's nodes, in order ---- */

static void fuse_im2cols(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, size_t work_size)
{
    for (int i = 0; i < graph->nodes; i++) {
        struct sdgen_im2col_match match;
        if (!sdgen_match_im2col(graph, i, &match))
            continue;
        if (node_work_size(&match.plan, state->threads) <= work_size)
            fuse_im2col(graph, &match, state);
        else
            sdgen_unmatch_im2col(graph, &match);
    }
}

static void fuse_attentions(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, size_t work_size, bool verbose)
{
    for (int i = 0; i < graph->nodes; i++) {
        if (graph->node[i]->op != GGML_OP_SOFT_MAX)
            continue;
        struct sdgen_attention_match match;
        const char *why = sdgen_match_attention(graph, i, &match);
        if (!why) {
            struct sdgen_node_plan plan = {.kind = SDGEN_ATTENTION, .head = match.at, .attention.op = match.op};
            plan.attention.elsewhere = match.aliased ? ggml_nbytes(match.output) : 0;
            if (node_work_size(&plan, state->threads) <= work_size) {
                fuse_attention(&match, &plan, state);
            } else {
                sdgen_unmatch_attention(graph, &match);
                why = "it would need more working memory";
            }
        }
        if (verbose)
            sdgen_list_attention(graph, i, &match, why);
    }
}

static void fuse_gates(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, size_t work_size, bool verbose)
{
    for (int i = 0; i < graph->nodes; i++) {
        struct sdgen_node_plan gated;
        int needless[SDGEN_GATE_NODES], count;
        if (!sdgen_match_gate(graph->of, graph, state, i, &gated, needless, &count))
            continue;
        const bool fits = node_work_size(&gated, state->threads) <= work_size;
        for (int j = 0; j < count; j++) {
            graph->skipped[needless[j]] = fits;
            if (fits)
                state->node[needless[j]] = (struct sdgen_node_plan){.kind = SDGEN_NOTHING};
        }
        if (fits) {
            state->node[i] = gated;
            if (verbose)
                list_gated(graph, i, needless, count);
        }
        graph->filled[i] = fits;
    }
}

static void fuse_chains(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, size_t work_size, bool verbose)
{
    for (int i = 0; i < graph->nodes; i++)
        if (can_head_chain(&state->node[i]) && state->node[i].head == i && !graph->skipped[i])
            sdgen_extend_chain(graph, state, i, work_size, verbose);
}

/* What convolutions read. */
static void fuse_images(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, size_t work_size, bool verbose)
{
    for (int i = 0; i < graph->nodes; i++)
        if (state->node[i].kind == SDGEN_CONV2D) {
            fuse_norm(graph, i, work_size, verbose, state);
            fuse_doubling(graph, i, state->threads, work_size, state);
            sdgen_read_tokens(graph, state, i, work_size, verbose);
        }
}

/* What becomes of each node of a graph, with no more than so much working memory; NULL where there is no memory for the plan. */
static struct sdgen_ggml_graph *plan_graph(const struct ggml_cgraph *of, int n_threads, size_t work_size, bool verbose)
{
    const bool fuse = chosen.config.tuning.fuse != 0;
    struct sdgen_graph graph;
    if (!sdgen_graph_init(&graph, of))
        return NULL;
    struct sdgen_ggml_graph *state = malloc(sizeof *state + (size_t)graph.nodes * sizeof *state->node);
    if (!state) {
        sdgen_graph_free(&graph);
        return NULL;
    }
    state->nodes = graph.nodes;
    state->threads = n_threads;
    memset(state->queue, 0, sizeof state->queue);
    state->profile = NULL;
    state->plan = &chosen.plan;
    state->sums = NULL;
    for (int i = 0; i < graph.nodes; i++)
        sdgen_plan_node(&graph, i, &state->node[i]);
    if (verbose)
        list_flash_attentions(&graph);
    if (fuse) {
        fuse_im2cols(&graph, state, work_size);
        fuse_attentions(&graph, state, work_size, verbose);
        fuse_gates(&graph, state, work_size, verbose);
        fuse_chains(&graph, state, work_size, verbose);
        fuse_images(&graph, state, work_size, verbose);
    }
    sdgen_reuse_plan(&graph, state);
    if (fuse)
        sdgen_share_inputs(&graph, state, work_size, verbose);
    /* What more became of was seen to fit. What did not become anything else may need more than there is: ggml_graph_plan knew of what
     * it would become, or planned for another graph, or for fewer threads. */
    for (int i = 0; i < graph.nodes; i++)
        if (node_work_size(&state->node[i], n_threads) > work_size)
            state->node[i].kind = SDGEN_LEFT_TO_GGML;
    if (fuse)
        sdgen_share_sums(&graph, state, verbose);
    for (int i = graph.nodes - 2; i >= 0; i--) {
        bool idle = state->node[i + 1].kind == SDGEN_NOTHING || ggml_op_is_empty(graph.node[i + 1]->op);
        state->node[i].idle = idle ? state->node[i + 1].idle + 1 : 0;
    }
    state->tensor = graph.node;
    graph.node = NULL;
    sdgen_graph_free(&graph);
    return state;
}

static void free_plan(struct sdgen_ggml_graph *state)
{
    if (state) {
        free(state->tensor);
        free(state->sums);
    }
    free(state);
}

size_t sdgen_ggml_work_size(const struct ggml_cgraph *graph, int n_threads)
{
    struct sdgen_ggml_graph *state = sdgen_ggml_active() ? plan_graph(graph, n_threads, SIZE_MAX, false) : NULL;
    size_t most = 0;
    for (int i = 0; state && i < state->nodes; i++) {
        size_t size = node_work_size(&state->node[i], n_threads);
        most = size > most ? size : most;
    }
    free_plan(state);
    return most;
}

static void count(const struct ggml_cgraph *graph, const struct sdgen_ggml_graph *state)
{
    for (int i = 0; i < state->nodes; i++) {
        const struct ggml_tensor *node = ggml_graph_node((struct ggml_cgraph *)(uintptr_t)graph, i);
        const struct sdgen_node_plan *plan = &state->node[i];
        bool copied = plan->kind == SDGEN_COPY, whole = offered(node) && plan->kind != SDGEN_LEFT_TO_GGML;
        counts.offered += offered(node);
        counts.taken += whole;
        const bool other = !offered(node) && sdgen_knows(node);
        counts.others_offered += other;
        counts.others_taken += other && plan->kind != SDGEN_LEFT_TO_GGML;
        counts.doublings += plan->kind == SDGEN_CONV2D && plan->conv2d.x_doubled;
        counts.doublings_copied += copied && node->op == GGML_OP_UPSCALE;
        counts.attentions += plan->kind == SDGEN_ATTENTION && node->op != GGML_OP_FLASH_ATTN_EXT;
        counts.inputs_copied += copied && node->op == GGML_OP_CONT;
        counts.outputs_copied += plan->kind == SDGEN_ATTENTION && plan->attention.elsewhere;
    }
}

struct sdgen_ggml_graph *sdgen_ggml_begin(const struct ggml_cgraph *graph, int n_threads, size_t work_size)
{
    if (!sdgen_ggml_active())
        return NULL;
    sdgen_reuse_tick();
    if (chosen.plan.store)
        sdgen_store_tick(chosen.plan.store);
    struct sdgen_ggml_graph *state = plan_graph(graph, n_threads, work_size, chosen.config.verbose > 1);
    if (state && chosen.config.verbose)
        count(graph, state);
    if (state && chosen.config.profile)
        state->profile = sdgen_profile_begin(state);
    return state;
}

void sdgen_ggml_end(struct sdgen_ggml_graph *state)
{
    if (state && state->profile)
        sdgen_profile_finish(state->profile);
    free_plan(state);
}

static void compute_permute(const struct sdgen_node_plan *plan, const struct sdgen_team *team)
{
    sdgen_permute(&chosen.plan, &plan->permute[0], team);
    if (!plan->permute[1].x)
        return;
    sdgen_wait(team); /* they share their working memory */
    sdgen_permute(&chosen.plan, &plan->permute[1], team);
}

static void compute_copy(const struct sdgen_node_plan *plan, const struct sdgen_team *team)
{
    copy_rows(&plan->copy, team->ith, team->nth);
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}

/* false: left to ggml. */
static bool compute(const struct sdgen_node_plan *plan, const struct sdgen_team *team)
{
    switch (plan->kind) {
    case SDGEN_MATMUL: sdgen_matmul(&chosen.plan, &plan->matmul, team); return true;
    case SDGEN_CONV2D: sdgen_conv2d(&chosen.plan, &plan->conv2d, team); return true;
    case SDGEN_ATTENTION: compute_attention(plan, team); return true;
    case SDGEN_GROUP_NORM: sdgen_group_norm(&chosen.plan, &plan->group_norm, team); return true;
    case SDGEN_LAYER_NORM: sdgen_layer_norm(&chosen.plan, &plan->layer_norm, team); return true;
    case SDGEN_MAP: sdgen_map(&chosen.plan, &plan->map, team); return true;
    case SDGEN_PERMUTE: compute_permute(plan, team); return true;
    case SDGEN_SOFTMAX: sdgen_softmax(&chosen.plan, &plan->softmax, team); return true;
    case SDGEN_UPSCALE: sdgen_upscale(&chosen.plan, &plan->upscale, team); return true;
    case SDGEN_PAD: sdgen_pad(&chosen.plan, &plan->pad, team); return true;
    case SDGEN_COPY: compute_copy(plan, team); return true;
    case SDGEN_NOTHING: return true;
    default: return false;
    }
}

int sdgen_ggml_compute(struct sdgen_ggml_graph *state, int node_index, int ith, int nth, void *work, size_t work_size,
                       void (*barrier)(void *pool), void *pool)
{
    const struct sdgen_node_plan *plan = &state->node[node_index];
    const struct sdgen_team team = {.ith = ith,
                                    .nth = nth,
                                    .queue = state->queue,
                                    .work = work,
                                    .work_size = work_size,
                                    .barrier = barrier,
                                    .barrier_data = pool,
                                    .clock = state->profile ? sdgen_profile_node(state->profile, ith, node_index) : NULL};
    if (plan->kind == SDGEN_MATMUL && plan->reusable) {
        if (sdgen_reuse_matmul(state, plan, &team) && state->profile)
            sdgen_profile_reused(state->profile, ith);
    } else if (!compute(plan, &team)) {
        return 0;
    }
    return 1 + plan->idle;
}
