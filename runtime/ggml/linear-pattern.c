/* Linear layers of one input: up to SDGEN_MATMUL_SHARED products of the same x, such as an attention's q, k and v, become one operation,
 * and the norm of rows that their x is becomes a part of it where nothing else reads that.
 *
 * They are computed in the place of one of them, so each of the others moves past the nodes between: none of these may write what it
 * reads, nor write or read its result's memory. What the norm reads has to stay until then, too.
 *
 * It pays for all shapes that were measured, on one thread of a Zen 5, against the norm and one product after the other: q, k and v of
 * 4096 rows of 320 take 5% less at the avx2 level and 9% less with AVX-512, of 1024 rows of 640 2% and 3%, of 256 rows of 1280 1% and
 * 2%; one product of 4096x320x320 1% and 2%, a gated one of 4096x1280x320 0.1% and 0.6%. To normalize and pack 4096 rows of 3072 takes
 * 7.3 to 8.3 ms instead of 11.1 to 11.4; 77 rows of 768 take as long as before. */
#include "listing.h"
#include "plan.h"

#include "matmul.h"

#include "ggml-impl.h"

/* MOST_BETWEEN: nodes from one product to the last that is computed with it; those of a transformer's block are some twenty apart. */
enum { MOST_READ = 24, MOST_BETWEEN = 96 };

/* What a node reads that is in memory: through the nodes that became parts of it, or of what it reads. More than MOST_READ: not all. */
struct reads {
    int count;
    const struct ggml_tensor *of[MOST_READ];
};

struct member {
    int at; /* the node in whose place it would be computed by itself */
    const struct ggml_tensor *result;
    struct reads reads;
};

struct group {
    const struct ggml_tensor *x;
    int norm; /* the node that x is, where it becomes a part of the products; -1: it does not */
    struct reads norm_reads;
    int members, place; /* the place is the index of a member */
    struct member member[SDGEN_MATMUL_SHARED];
};

static void add_reads(const struct sdgen_graph *graph, const struct ggml_tensor *node, struct reads *reads);

static void add_read(const struct sdgen_graph *graph, const struct ggml_tensor *tensor, struct reads *reads)
{
    const struct ggml_tensor *owner = tensor;
    while (ggml_op_is_empty(owner->op) && owner->src[0])
        owner = owner->src[0];
    int index = sdgen_graph_index(graph, owner);
    if (index >= 0 && graph->skipped[index]) {
        add_reads(graph, owner, reads);
        return;
    }
    for (int i = 0; i < reads->count && i < MOST_READ; i++)
        if (reads->of[i] == tensor)
            return;
    if (reads->count < MOST_READ)
        reads->of[reads->count] = tensor;
    reads->count++;
}

static void add_reads(const struct sdgen_graph *graph, const struct ggml_tensor *node, struct reads *reads)
{
    for (int s = 0; s < GGML_MAX_SRC && reads->count <= MOST_READ; s++)
        if (node->src[s] && node->src[s] != node)
            add_read(graph, node->src[s], reads);
}

/* Whether a node is computed in its place. */
static bool runs(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int index)
{
    return !graph->skipped[index] && state->node[index].kind != SDGEN_NOTHING && !ggml_op_is_empty(graph->node[index]->op);
}

/* The node whose memory the result of a node is written to: its own, or that of its copy which needs not be made then. */
static const struct ggml_tensor *result_of(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int index)
{
    const void *c = state->node[index].kind == SDGEN_MATMUL ? state->node[index].matmul.c : NULL;
    for (int i = index + 1; c && c != graph->node[index]->data && i < graph->nodes; i++)
        if (graph->node[i]->op == GGML_OP_CONT && graph->node[i]->data == c && state->node[i].kind == SDGEN_NOTHING)
            return graph->node[i];
    return graph->node[index];
}

/* Whether none of the nodes from `begin` to before `end` writes a tensor's memory. */
static bool stays(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, const struct ggml_tensor *tensor, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (runs(graph, state, i) && sdgen_overlap(result_of(graph, state, i), tensor))
            return false;
    return true;
}

static bool any_overlaps(const struct reads *reads, const struct ggml_tensor *result)
{
    if (reads->count > MOST_READ)
        return true;
    for (int i = 0; i < reads->count; i++)
        if (sdgen_overlap(reads->of[i], result))
            return true;
    return false;
}

static bool all_stay(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, const struct reads *reads, int begin, int end)
{
    bool stay = reads->count <= MOST_READ;
    for (int i = 0; i < reads->count && stay; i++)
        stay = stays(graph, state, reads->of[i], begin, end);
    return stay;
}

/* Whether the nodes from `begin` to before `end` neither write nor read its result's memory, nor write what it reads. */
static bool passes(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, const struct member *member, int begin, int end)
{
    if (!all_stay(graph, state, &member->reads, begin, end) || !stays(graph, state, member->result, begin, end))
        return false;
    for (int i = begin; i < end; i++) {
        struct reads reads = {.count = 0};
        if (!runs(graph, state, i))
            continue;
        add_reads(graph, graph->node[i], &reads);
        if (any_overlaps(&reads, member->result))
            return false;
    }
    return true;
}

/* The operation, as a list; the first is that of the place. */
static void compose(const struct sdgen_ggml_graph *state, const struct group *group, struct sdgen_matmul *op[])
{
    for (int i = 0; i < group->members; i++) {
        op[i]->more = i + 1 < group->members ? op[i + 1] : NULL;
        if (group->norm < 0)
            continue;
        const struct sdgen_layer_norm *norm = &state->node[group->norm].layer_norm;
        op[i]->normalized = true;
        op[i]->before = norm->norm;
        op[i]->x = norm->x;
        op[i]->x_stride = norm->x_stride[0];
        op[i]->x_batch_stride[0] = norm->x_stride[1];
        op[i]->x_batch_stride[1] = norm->x_stride[2];
    }
}

/* The members' order in the list: that of the place first. */
static int listed(const struct group *group, int i)
{
    return i == 0 ? group->place : i <= group->place ? i - 1 : i;
}

static bool can_be_computed(const struct sdgen_ggml_graph *state, const struct group *group, size_t work_size)
{
    struct sdgen_node_plan plan[SDGEN_MATMUL_SHARED];
    struct sdgen_matmul *op[SDGEN_MATMUL_SHARED];
    for (int i = 0; i < group->members; i++) {
        plan[i] = state->node[group->member[listed(group, i)].at];
        op[i] = &plan[i].matmul;
    }
    compose(state, group, op);
    return !sdgen_matmul_check(op[0]) && sdgen_node_work_size(state->plan, &plan[0], state->threads) <= work_size;
}

/* Whether one of the nodes from `begin` to before `end` is the place of a group, which writes more than its own result. */
static bool has_group(const struct sdgen_ggml_graph *state, int begin, int end)
{
    for (int i = begin; i < end; i++)
        if (state->node[i].kind == SDGEN_MATMUL && state->node[i].matmul.more)
            return true;
    return false;
}

/* Whether the group can be computed in its place. */
static bool fits(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, const struct group *group, size_t work_size)
{
    const int place = group->member[group->place].at;
    if (!can_be_computed(state, group, work_size) ||
        has_group(state, group->norm >= 0 ? group->norm : group->member[0].at, group->member[group->members - 1].at) ||
        (group->norm >= 0 && !all_stay(graph, state, &group->norm_reads, group->norm + 1, place)))
        return false;
    for (int i = 0; i < group->members; i++) {
        const struct member *member = &group->member[i];
        if (!passes(graph, state, member, (member->at < place ? member->at : place) + 1, member->at < place ? place : member->at) ||
            any_overlaps(&group->norm_reads, member->result))
            return false;
        for (int j = 0; j < group->members; j++)
            if (j != i && (sdgen_overlap(member->result, group->member[j].result) || any_overlaps(&group->member[j].reads, member->result)))
                return false;
    }
    return true;
}

/* The same in the place of any of them, the last one's first. */
static bool fits_somewhere(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, struct group *group, size_t work_size)
{
    for (group->place = group->members - 1; group->place >= 0; group->place--)
        if (fits(graph, state, group, work_size))
            return true;
    return false;
}

static void take(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, const struct group *group)
{
    struct sdgen_matmul *op[SDGEN_MATMUL_SHARED];
    for (int i = 0; i < group->members; i++)
        op[i] = &state->node[group->member[listed(group, i)].at].matmul;
    compose(state, group, op);
    for (int i = 1; i < group->members; i++) /* the operation is still there, in the list; it is not skipped, for its result is written */
        state->node[group->member[listed(group, i)].at].kind = SDGEN_NOTHING;
    if (group->norm >= 0) {
        state->node[group->norm].kind = SDGEN_NOTHING;
        graph->skipped[group->norm] = true;
    }
}

/* ---- which of them ---- */

/* The x of a product that can be one of a group, or NULL. One of few rows packs nothing; one that may be kept from graph to graph is
 * looked for by itself. */
static const struct ggml_tensor *input_of(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at)
{
    const struct sdgen_node_plan *plan = &state->node[at];
    if (plan->kind != SDGEN_MATMUL || graph->skipped[at] || plan->matmul.more || plan->matmul.normalized ||
        plan->reusable || sdgen_dot_fits(state->plan, &plan->matmul))
        return NULL;
    return graph->node[plan->head]->src[1];
}

static struct member member_of(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at)
{
    struct member member = {.at = at, .result = result_of(graph, state, at)};
    add_reads(graph, graph->node[at], &member.reads);
    return member;
}

/* The products of the same x as this one, as many of them as can be computed together. */
static struct group group_of(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at, size_t work_size)
{
    struct group group = {.x = input_of(graph, state, at), .norm = -1, .members = 1, .member = {member_of(graph, state, at)}};
    for (int i = at + 1; i < graph->nodes && i <= at + MOST_BETWEEN && group.members < SDGEN_MATMUL_SHARED; i++) {
        if (state->node[at].matmul.gated || input_of(graph, state, i) != group.x || state->node[i].matmul.gated)
            continue;
        struct group larger = group;
        larger.member[larger.members++] = member_of(graph, state, i);
        if (fits_somewhere(graph, state, &larger, work_size))
            group = larger;
    }
    return group;
}

/* Products of this x that are not part of anything yet. */
static int products_of(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, const struct ggml_tensor *x)
{
    int count = 0;
    for (int i = 0; i < graph->nodes; i++)
        count += input_of(graph, state, i) == x;
    return count;
}

/* Makes the norm that x is a part of the group; else why that cannot be. */
static const char *add_norm(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, struct group *group, int norm,
                            size_t work_size)
{
    const int uses = ggml_node_get_use_count(graph->of, norm);
    if ((group->x->flags & GGML_TENSOR_FLAG_OUTPUT) || uses != products_of(graph, state, group->x))
        return "its result is read by others, or wanted";
    if (uses != group->members)
        return "the products that read it cannot be computed together";
    if (!sdgen_graph_unseen(graph, norm))
        return "what it is made in the place of is read by others";
    struct group with = *group;
    with.norm = norm;
    add_reads(graph, graph->node[norm], &with.norm_reads);
    if (!fits_somewhere(graph, state, &with, work_size))
        return "what it reads does not stay";
    *group = with;
    return NULL;
}

/* ---- copies that an attention reads ----
 *
 * Where an attention's q, k or v does not stay, it is copied first. The product that makes it can write it to the copy's memory at once, as
 * it is laid out itself: the attention reads it there with the strides that the copy would have been made with. */

/* The strides of one of an attention's arrays, from row to row, head to head and batch to batch, if it is the copy. */
static bool take_strides(const struct sdgen_copy *copy, const void *array, int64_t *row, int64_t *head, int64_t *batch)
{
    const int64_t size = (int64_t)copy->row_bytes;
    if (array != copy->dst || *row != size || *head != size * copy->rows[0] || *batch != size * copy->rows[0] * copy->rows[1])
        return false;
    *row = (int64_t)copy->stride[0];
    *head = (int64_t)copy->stride[1];
    *batch = (int64_t)copy->stride[2];
    return true;
}

static bool read_as_made(const struct sdgen_copy *copy, struct sdgen_attention *op)
{
    return take_strides(copy, op->q, &op->q_stride, &op->q_head_stride, &op->q_batch_stride) ||
           take_strides(copy, op->k, &op->k_stride, &op->k_head_stride, &op->k_batch_stride) ||
           take_strides(copy, op->v, &op->v_stride, &op->v_head_stride, &op->v_batch_stride);
}

/* The product that a copy is made of, all of it, if nothing else reads that; or -1. */
static int copied_product(const struct sdgen_graph *graph, const struct sdgen_ggml_graph *state, int at)
{
    const struct ggml_tensor *copy = graph->node[at], *made = copy->src[0];
    while (ggml_op_is_empty(made->op) && made->src[0]) {
        if (sdgen_graph_reader(graph, made) == NULL)
            return -1;
        made = made->src[0];
    }
    const int index = sdgen_graph_index(graph, made);
    if (index < 0 || state->node[index].kind != SDGEN_MATMUL || sdgen_graph_reader(graph, made) == NULL ||
        !sdgen_graph_unseen(graph, index) || !ggml_is_contiguous(made) || ggml_nbytes(made) != ggml_nbytes(copy) ||
        state->node[at].copy.src != made->data)
        return -1;
    return index;
}

static void write_at_once(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, int at, size_t work_size)
{
    const int product = copied_product(graph, state, at);
    if (product < 0 || sdgen_node_work_size(state->plan, &state->node[product], state->threads) > work_size)
        return; /* there is none, or it is left to ggml, which writes it to its own place */
    struct member member = {.at = product, .result = graph->node[at]};
    add_reads(graph, graph->node[product], &member.reads);
    if (any_overlaps(&member.reads, member.result) || !passes(graph, state, &member, product + 1, at))
        return;
    for (int i = at + 1; i < graph->nodes; i++) {
        struct sdgen_node_plan reader = state->node[i];
        if (reader.kind != SDGEN_ATTENTION || !read_as_made(&state->node[at].copy, &reader.attention.op))
            continue;
        if (sdgen_attention_check(&reader.attention.op) || sdgen_node_work_size(state->plan, &reader, state->threads) > work_size)
            return;
        state->node[i] = reader;
        state->node[product].matmul.c = graph->node[at]->data;
        state->node[at].kind = SDGEN_NOTHING;
        return;
    }
}

void sdgen_share_inputs(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state, size_t work_size, bool verbose)
{
    for (int at = 0; at < graph->nodes; at++)
        if (state->node[at].kind == SDGEN_COPY && graph->node[at]->op == GGML_OP_CONT)
            write_at_once(graph, state, at, work_size);
    int said = -1; /* the norm that was spoken of last */
    for (int at = 0; at < graph->nodes; at++) {
        if (!input_of(graph, state, at))
            continue;
        struct group group = group_of(graph, state, at, work_size);
        const int norm = sdgen_graph_index(graph, group.x);
        const bool normalized = norm >= 0 && state->node[norm].kind == SDGEN_LAYER_NORM;
        const char *why = normalized ? add_norm(graph, state, &group, norm, work_size) : NULL;
        if (why && verbose && norm != said)
            sdgen_list_norm(graph, norm, why);
        said = why ? norm : said;
        if (group.members == 1 && group.norm < 0)
            continue;
        take(graph, state, &group);
        if (verbose)
            sdgen_list_shared_input(graph, group.member[group.place].at, group.members, group.norm >= 0);
    }
}
