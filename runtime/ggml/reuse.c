/* A product is looked for in up to two steps, each with a barrier, in which all threads hash a slice after the other: x first, and where
 * that was there in an earlier graph, w. So an input that changes in each step, as the image does, costs the hash of it alone, and its
 * results are not kept. Contents are hashed each time, because a model's weights are changed in place where LoRAs are applied. Two
 * products are taken to be the same where their hashes are: that two different ones have the same is less likely than 2^-100. */
#include "plan.h"

#include "gemm.h"
#include "schedule.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

/* Less is not worth it: for each number of w a product makes as many FMAs as it has rows, and the hash takes as long as some 4; for each
 * number of x as many as it has columns. */
enum { LEAST_ROWS = 48, LEAST_COLUMNS = 256 };

enum {
    MOST_BYTES = 128 << 20, /* kept: for two prompts of SDXL 103 MB are needed, of SD 1.5 15 */
    MOST_X = 16 << 20,      /* bytes */
    SLICE = 16 << 10,       /* bytes, at least */
    INPUTS = 64,            /* remembered */
};

static struct {
    struct sdgen_store *store; /* NULL: nothing is kept */
    pthread_mutex_t mutex;     /* of what follows */
    int64_t graphs;
    struct {
        struct sdgen_hash x;
        int64_t first, last; /* the graphs that it was met in, from 1 */
    } input[INPUTS];
    _Atomic long long looked, copied, kept;
} reuse = {.mutex = PTHREAD_MUTEX_INITIALIZER};

void sdgen_reuse_start(void)
{
    reuse.store = sdgen_store_new(MOST_BYTES);
}

void sdgen_reuse_tick(void)
{
    if (!reuse.store)
        return;
    pthread_mutex_lock(&reuse.mutex);
    reuse.graphs++;
    pthread_mutex_unlock(&reuse.mutex);
    sdgen_store_tick(reuse.store);
}

void sdgen_reuse_print(void)
{
    if (!reuse.store || !atomic_load(&reuse.looked))
        return;
    const struct sdgen_store_counts counts = sdgen_store_counts(reuse.store);
    fprintf(stderr, "sdgen: of %lld products that may be the same in each step, copied %lld and kept %lld; "
                    "at the end %lld are kept, %.1f MiB\n",
            atomic_load(&reuse.looked), atomic_load(&reuse.copied), atomic_load(&reuse.kept), (long long)counts.arrays,
            (double)counts.bytes / (1 << 20));
}

/* ---- which products ---- */

/* Whether nothing in the graph computes a tensor, but for copies. */
static bool given(const struct ggml_tensor *tensor, bool copied)
{
    while (tensor->op == GGML_OP_VIEW || tensor->op == GGML_OP_RESHAPE || tensor->op == GGML_OP_PERMUTE ||
           tensor->op == GGML_OP_TRANSPOSE || (copied && tensor->op == GGML_OP_CONT))
        tensor = tensor->src[0];
    return tensor->op == GGML_OP_NONE;
}

/* Whether the rows of all batches follow each other with one stride. */
static bool regular(const struct sdgen_matmul *op, int64_t stride, const int64_t batch_stride[2])
{
    return (op->batch[0] == 1 || batch_stride[0] == op->m * stride) &&
           (op->batch[1] == 1 || batch_stride[1] == op->batch[0] * op->m * stride);
}

static int64_t rows_of(const struct sdgen_matmul *op)
{
    return op->m * op->batch[0] * op->batch[1];
}

static bool worth(const struct sdgen_matmul *op)
{
    return !op->more && !op->normalized && rows_of(op) >= LEAST_ROWS && op->n >= LEAST_COLUMNS &&
           rows_of(op) * op->k * (int64_t)sizeof(float) <= MOST_X &&
           op->w_repeat[0] == op->batch[0] && op->w_repeat[1] == op->batch[1] && regular(op, op->x_stride, op->x_batch_stride) &&
           regular(op, op->c_stride, op->c_batch_stride) && !op->after.shift && !op->after.weight.data && !op->after.addend.data &&
           !op->after.factor.data;
}

void sdgen_reuse_plan(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state)
{
    for (int i = 0; reuse.store && i < graph->nodes; i++) {
        struct sdgen_node_plan *plan = &state->node[i];
        if (plan->kind != SDGEN_MATMUL)
            continue;
        const struct ggml_tensor *product = graph->node[plan->head];
        plan->reusable = given(product->src[0], false) && given(product->src[1], true) && worth(&plan->matmul);
    }
    atomic_init(&state->reuse.done, 0);
}

/* ---- a product ---- */

/* Hashes a matrix; true for the one thread that ends it, with the hash. Slices are the same for any number of threads. */
static bool hash(struct sdgen_reuse *shared, const struct sdgen_kernels *kernels, const struct sdgen_team *team, const void *data,
                 int64_t rows, int64_t row_bytes, int64_t stride, struct sdgen_hash *whole)
{
    int64_t slices = (rows * row_bytes + SLICE - 1) / SLICE, begin, end;
    slices = slices < rows ? slices : rows;
    slices = slices < SDGEN_REUSE_SLICES ? slices : SDGEN_REUSE_SLICES;
    bool last = false;
    while (sdgen_queue_take(sdgen_queue(team), slices, 1, slices, team->nth, NULL, &begin, &end)) {
        for (int64_t i = begin; i < end; i++) {
            int64_t first = rows * i / slices, behind = rows * (i + 1) / slices;
            shared->slice[i] = sdgen_hash(kernels, (const char *)data + first * stride, (size_t)(behind - first), (size_t)row_bytes,
                                          (ptrdiff_t)stride);
        }
        const int taken = (int)(end - begin);
        last = atomic_fetch_add_explicit(&shared->done, taken, memory_order_acq_rel) + taken == slices;
    }
    if (last) {
        atomic_store_explicit(&shared->done, 0, memory_order_relaxed);
        *whole = sdgen_hash(kernels, shared->slice, 1, (size_t)slices * sizeof *shared->slice, 0);
    }
    sdgen_phase(team, SDGEN_PHASE_OTHER);
    return last;
}

static bool same(struct sdgen_hash a, struct sdgen_hash b)
{
    return a.word[0] == b.word[0] && a.word[1] == b.word[1];
}

/* Whether an input was met in an earlier graph; it is remembered, in place of the one met longest ago. */
static bool meet(struct sdgen_hash x)
{
    pthread_mutex_lock(&reuse.mutex);
    int at = 0, oldest = 0;
    for (; at < INPUTS && !(reuse.input[at].last && same(reuse.input[at].x, x)); at++)
        if (reuse.input[at].last < reuse.input[oldest].last)
            oldest = at;
    if (at == INPUTS) {
        at = oldest;
        reuse.input[at].x = x;
        reuse.input[at].first = reuse.graphs;
    }
    reuse.input[at].last = reuse.graphs;
    const bool earlier = reuse.input[at].first < reuse.graphs;
    pthread_mutex_unlock(&reuse.mutex);
    return earlier;
}

static struct sdgen_hash key_of(const struct sdgen_kernels *kernels, const struct sdgen_matmul *op, struct sdgen_hash x, struct sdgen_hash w)
{
    const float numbers[] = {op->scale, op->after.parameter[0], op->after.parameter[1]};
    uint32_t bits[3];
    memcpy(bits, numbers, sizeof bits);
    struct sdgen_hash bias = {{0, 0}};
    if (op->bias)
        bias = sdgen_hash(kernels, op->bias, 1, (size_t)(op->gated ? 2 * op->n : op->n) * sizeof(float), 0);
    const uint64_t made_of[] = {(uint64_t)op->m,
                                (uint64_t)op->n,
                                (uint64_t)op->k,
                                (uint64_t)op->batch[0],
                                (uint64_t)op->batch[1],
                                (uint64_t)op->w_type,
                                (uint64_t)op->after.function,
                                op->gated,
                                op->bias != NULL,
                                bits[0],
                                bits[1],
                                bits[2],
                                x.word[0],
                                x.word[1],
                                w.word[0],
                                w.word[1],
                                bias.word[0],
                                bias.word[1]};
    return sdgen_hash(kernels, made_of, 1, sizeof made_of, 0);
}

/* A thread's share of the rows, from one place to another; true for the last thread. */
static bool copy(struct sdgen_reuse *shared, const struct sdgen_matmul *op, const struct sdgen_team *team, char *to, int64_t to_stride,
                 const char *from, int64_t from_stride)
{
    const int64_t rows = rows_of(op);
    for (int64_t row = rows * team->ith / team->nth; row < rows * (team->ith + 1) / team->nth; row++)
        memcpy(to + row * to_stride, from + row * from_stride, (size_t)op->n * sizeof(float));
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
    const bool last = atomic_fetch_add_explicit(&shared->done, 1, memory_order_acq_rel) == team->nth - 1;
    if (last)
        atomic_store_explicit(&shared->done, 0, memory_order_relaxed);
    return last;
}

bool sdgen_reuse_matmul(struct sdgen_ggml_graph *state, const struct sdgen_node_plan *plan, const struct sdgen_team *team)
{
    struct sdgen_reuse *shared = &state->reuse;
    const struct sdgen_kernels *kernels = state->plan->kernels;
    const struct sdgen_matmul *op = &plan->matmul;
    const int64_t row_bytes = op->n * (int64_t)sizeof(float);
    if (hash(shared, kernels, team, op->x, rows_of(op), op->k * (int64_t)sizeof(float), op->x_stride, &shared->x)) {
        atomic_fetch_add(&reuse.looked, 1);
        shared->seen = meet(shared->x);
    }
    sdgen_wait(team);
    if (!shared->seen) {
        sdgen_matmul(state->plan, op, team);
        return false;
    }
    struct sdgen_hash w;
    if (hash(shared, kernels, team, op->w, op->gated ? 2 * op->n : op->n, op->k * sdgen_type_size(op->w_type), op->w_stride, &w)) {
        const struct sdgen_hash key = key_of(kernels, op, shared->x, w);
        shared->found = sdgen_store_find(reuse.store, key);
        shared->kept = shared->found ? NULL : sdgen_store_add(reuse.store, key, (size_t)(rows_of(op) * row_bytes));
    }
    sdgen_wait(team);
    if (shared->found) {
        if (copy(shared, op, team, (char *)op->c, op->c_stride, shared->found, row_bytes)) {
            sdgen_store_release(reuse.store, shared->found);
            atomic_fetch_add(&reuse.copied, 1);
        }
        return true;
    }
    sdgen_matmul(state->plan, op, team);
    if (shared->kept) {
        sdgen_wait(team);
        if (copy(shared, op, team, shared->kept, row_bytes, (const char *)op->c, op->c_stride)) {
            sdgen_store_publish(reuse.store, shared->kept);
            sdgen_store_release(reuse.store, shared->kept);
            atomic_fetch_add(&reuse.kept, 1);
        }
    }
    return false;
}
