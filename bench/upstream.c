/* Computes an operation by ggml, whenever it is asked to: what sdgen-bench's upstream forms time (bench/program.h).
 *
 * usage: bench-upstream THREADS
 *
 * It is asked and answers in lines, but for numbers, which come as they lie in memory:
 *
 *   linear 4096 320 320    rows, outputs, inputs; below, the other operations. Answer: "inputs" and the bytes of each input, which are
 *                          to follow; then, when there is room for all else, "ready" and the bytes of the result
 *   run N                  computes it N times. Answer: "ran" and the nanoseconds of all of them, of the clock and of this thread
 *   result                 Answer: the result
 *
 * It ends with its input, and, with a sentence on stderr, where it is asked for anything else. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* clock_gettime */
#endif
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#ifdef _OPENMP
#include <omp.h>
#endif

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

enum { MOST_TENSORS = 32, MOST_INPUTS = 3, MOST_NUMBERS = 7, GROUPS = 32 };

__attribute__((noreturn)) static void fail(const char *what, const char *of)
{
    fprintf(stderr, "bench-upstream: %s%s\n", what, of);
    exit(2);
}

/* ---- operations ---- */

struct graph {
    struct ggml_context *inputs_ctx, *ctx;
    struct ggml_tensor *inputs[MOST_INPUTS], *result;
    int input_count;
    struct ggml_cgraph *nodes;
    struct ggml_cplan plan;
};

/* The next of the inputs. */
static struct ggml_tensor *input(struct graph *graph, enum ggml_type type, int64_t ne0, int64_t ne1, int64_t ne2, int64_t ne3)
{
    return graph->inputs[graph->input_count++] = ggml_new_tensor_4d(graph->inputs_ctx, type, ne0, ne1, ne2, ne3);
}

static struct ggml_tensor *build_linear(struct graph *graph, const long long *of)
{
    const int64_t m = of[0], n = of[1], k = of[2];
    struct ggml_tensor *w = input(graph, GGML_TYPE_F16, k, n, 1, 1), *x = input(graph, GGML_TYPE_F32, k, m, 1, 1);
    return ggml_mul_mat(graph->ctx, w, x);
}

/* As stable-diffusion.cpp does it unless told otherwise: by im2col and a product. */
static struct ggml_tensor *build_conv(struct graph *graph, const long long *of)
{
    const int64_t kernel = of[0], in = of[1], out = of[2], height = of[3], width = of[4], repeat = of[6];
    const int stride = (int)of[5], pad = (int)kernel / 2;
    struct ggml_tensor *w = input(graph, GGML_TYPE_F16, kernel, kernel, in, out);
    struct ggml_tensor *x = input(graph, GGML_TYPE_F32, width / repeat, height / repeat, in, 1);
    if (repeat > 1)
        x = ggml_upscale(graph->ctx, x, (int)repeat, GGML_SCALE_MODE_NEAREST);
    return ggml_conv_2d(graph->ctx, w, x, stride, stride, pad, pad, 1, 1);
}

/* [dim, tokens, heads] of what a linear layer makes. */
static struct ggml_tensor *heads_of(struct ggml_context *ctx, struct ggml_tensor *tokens, int64_t heads)
{
    struct ggml_tensor *split = ggml_reshape_3d(ctx, tokens, tokens->ne[0] / heads, heads, tokens->ne[1]);
    return ggml_permute(ctx, split, 0, 2, 1, 3);
}

/* k and v of half precision, as stable-diffusion.cpp makes them for it; without its padding, which ggml has no need of. */
static struct ggml_tensor *build_attention(struct graph *graph, const long long *of)
{
    const int64_t queries = of[0], keys = of[1], heads = of[2], dim = of[3];
    struct ggml_context *ctx = graph->ctx;
    struct ggml_tensor *q = heads_of(ctx, input(graph, GGML_TYPE_F32, heads * dim, queries, 1, 1), heads);
    struct ggml_tensor *k = heads_of(ctx, input(graph, GGML_TYPE_F32, heads * dim, keys, 1, 1), heads);
    struct ggml_tensor *v = heads_of(ctx, input(graph, GGML_TYPE_F32, heads * dim, keys, 1, 1), heads);
    return ggml_flash_attn_ext(ctx, q, ggml_cast(ctx, k, GGML_TYPE_F16), ggml_cast(ctx, v, GGML_TYPE_F16), NULL, 1 / sqrtf((float)dim), 0,
                               0);
}

/* Of channels and pixels. */
static struct ggml_tensor *array(struct graph *graph, const long long *of)
{
    return input(graph, GGML_TYPE_F32, of[1], 1, of[0], 1);
}

static struct ggml_tensor *by_channel(struct graph *graph, const long long *of)
{
    return input(graph, GGML_TYPE_F32, 1, 1, of[0], 1);
}

static struct ggml_tensor *build_add(struct graph *graph, const long long *of)
{
    struct ggml_tensor *x = array(graph, of);
    return ggml_add(graph->ctx, x, array(graph, of));
}

static struct ggml_tensor *build_add_channel(struct graph *graph, const long long *of)
{
    struct ggml_tensor *x = array(graph, of);
    return ggml_add(graph->ctx, x, by_channel(graph, of));
}

static struct ggml_tensor *build_silu(struct graph *graph, const long long *of)
{
    return ggml_silu(graph->ctx, array(graph, of));
}

static struct ggml_tensor *build_gelu(struct graph *graph, const long long *of)
{
    return ggml_gelu(graph->ctx, array(graph, of));
}

static struct ggml_tensor *build_gelu_erf(struct graph *graph, const long long *of)
{
    return ggml_gelu_erf(graph->ctx, array(graph, of));
}

static struct ggml_tensor *build_norm_group(struct graph *graph, const long long *of)
{
    struct ggml_context *ctx = graph->ctx;
    struct ggml_tensor *x = array(graph, of), *weight = by_channel(graph, of);
    struct ggml_tensor *scaled = ggml_mul_inplace(ctx, ggml_group_norm(ctx, x, GROUPS, 1e-6f), weight);
    return ggml_silu_inplace(ctx, ggml_add_inplace(ctx, scaled, weight));
}

static struct ggml_tensor *build_norm_rows(struct graph *graph, const long long *of)
{
    struct ggml_context *ctx = graph->ctx;
    struct ggml_tensor *x = input(graph, GGML_TYPE_F32, of[0], of[1], 1, 1), *weight = input(graph, GGML_TYPE_F32, of[0], 1, 1, 1);
    return ggml_add_inplace(ctx, ggml_mul_inplace(ctx, ggml_norm(ctx, x, 1e-5f), weight), weight);
}

static const struct operation {
    const char *name;
    int numbers;
    struct ggml_tensor *(*build)(struct graph *graph, const long long *of);
} operations[] = {
    {"linear", 3, build_linear},       /* rows, outputs, inputs */
    {"conv", 7, build_conv},           /* kernel, channels in and out, height, width, stride, how often the image's sides are repeated */
    {"attention", 4, build_attention}, /* queries, keys, heads, dimension */
    /* channels, pixels; of norms the weight is the bias as well */
    {"map add", 2, build_add},
    {"map add-channel", 2, build_add_channel},
    {"map silu", 2, build_silu},
    {"map gelu", 2, build_gelu},
    {"map gelu_erf", 2, build_gelu_erf},
    {"norm group silu", 2, build_norm_group},
    {"norm rows", 2, build_norm_rows},
};

/* What the line names, and its numbers. */
static const struct operation *read_operation(const char *line, long long *numbers)
{
    for (size_t i = 0; i < sizeof operations / sizeof *operations; i++) {
        const struct operation *operation = &operations[i];
        const size_t length = strlen(operation->name);
        if (strncmp(line, operation->name, length) != 0)
            continue;
        const char *rest = line + length;
        int count = 0, end = 0;
        while (count < operation->numbers && sscanf(rest, " %lld%n", &numbers[count], &end) == 1 && numbers[count] > 0) {
            rest += end;
            count++;
        }
        if (count == operation->numbers && strcmp(rest, "\n") == 0)
            return operation;
    }
    fail("no operation is asked for by ", line);
}

/* ---- computing ---- */

static struct ggml_context *context(void)
{
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = MOST_TENSORS * ggml_tensor_overhead() + ggml_graph_overhead(),
        .no_alloc = true,
    });
    if (!ctx)
        fail("ggml has no memory", "");
    return ctx;
}

static struct graph make_graph(const struct operation *operation, const long long *of)
{
    struct graph graph = {.inputs_ctx = context(), .ctx = context()};
    graph.result = operation->build(&graph, of);
    if (!ggml_backend_alloc_ctx_tensors_from_buft(graph.inputs_ctx, ggml_backend_cpu_buffer_type()))
        fail("no memory for the inputs", "");
    return graph;
}

static void read_inputs(struct graph *graph)
{
    printf("inputs");
    for (int i = 0; i < graph->input_count; i++)
        printf(" %zu", ggml_nbytes(graph->inputs[i]));
    printf("\n");
    fflush(stdout);
    for (int i = 0; i < graph->input_count; i++)
        if (fread(graph->inputs[i]->data, ggml_nbytes(graph->inputs[i]), 1, stdin) != 1)
            fail("the inputs end too early", "");
}

/* Leaves a result of NaN. */
static void plan(struct graph *graph, int threads)
{
    graph->nodes = ggml_new_graph(graph->ctx);
    ggml_set_output(graph->result);
    ggml_build_forward_expand(graph->nodes, graph->result);
    ggml_gallocr_t allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (!ggml_gallocr_alloc_graph(allocator, graph->nodes))
        fail("no memory for what is computed", "");
    graph->plan = ggml_graph_plan(graph->nodes, threads, NULL);
    graph->plan.work_data = malloc(graph->plan.work_size + 1);
    if (!graph->plan.work_data)
        fail("no memory for the work", "");
    memset(graph->result->data, 0xff, ggml_nbytes(graph->result));
}

static void compute(struct graph *graph)
{
    if (ggml_graph_compute(graph->nodes, &graph->plan) != GGML_STATUS_SUCCESS)
        fail("ggml could not compute the graph", "");
}

/* A graph of next to nothing, which all threads have a part in. */
static struct graph make_small(int threads)
{
    static const struct operation silu = {"map silu", 2, build_silu};
    struct graph graph = make_graph(&silu, (long long[]){threads, 1});
    memset(graph.inputs[0]->data, 0, ggml_nbytes(graph.inputs[0]));
    plan(&graph, threads);
    return graph;
}

static int64_t nanoseconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* OpenMP's threads are there, by the small graph, before the clock starts, as they are in the middle of a model; and they are gone before
 * the answer: those that wait would take the processor from what is timed next. */
static void run(struct graph *graph, struct graph *small, int runs)
{
    compute(small);
    const int64_t start = nanoseconds_of(CLOCK_MONOTONIC), start_of_thread = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID);
    for (int i = 0; i < runs; i++)
        compute(graph);
    const int64_t of_thread = nanoseconds_of(CLOCK_THREAD_CPUTIME_ID) - start_of_thread;
    const int64_t of_clock = nanoseconds_of(CLOCK_MONOTONIC) - start;
#ifdef _OPENMP
    omp_pause_resource_all(omp_pause_soft);
#endif
    printf("ran %lld %lld\n", (long long)of_clock, (long long)of_thread);
}

int main(int argc, char **argv)
{
    const int threads = argc == 2 ? atoi(argv[1]) : 0;
    char line[256];
    long long numbers[MOST_NUMBERS];
    if (threads < 1)
        fail("usage: bench-upstream THREADS", "");
    if (!fgets(line, sizeof line, stdin))
        return 0;
    const struct operation *operation = read_operation(line, numbers);
    struct graph graph = make_graph(operation, numbers), small = make_small(threads);
    read_inputs(&graph);
    plan(&graph, threads);
    printf("ready %zu\n", ggml_nbytes(graph.result));
    fflush(stdout);
    while (fgets(line, sizeof line, stdin)) {
        int runs = 0;
        if (sscanf(line, "run %d", &runs) == 1 && runs > 0)
            run(&graph, &small, runs);
        else if (strcmp(line, "result\n") == 0)
            fwrite(graph.result->data, ggml_nbytes(graph.result), 1, stdout);
        else
            fail("nothing is known of ", line);
        fflush(stdout);
    }
    return 0;
}
