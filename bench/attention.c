/* Attention and what stands beside it in a transformer, computed by ggml through its API, against double precision.
 *
 * Prints an object of JSON a line; bench/attention.py makes tables of them. */
#include <getopt.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml.h"

static const char usage[] =
    "usage: bench-attention [--threads N] [--seconds S] SECTION\n"
    "\n"
    "  attention DIM HEADS N   attention of N queries and keys, in all its forms\n"
    "  masks                   block-causal masks and a query that may see no key\n"
    "  matmul N                weights of 1024 by 4096 and N columns\n"
    "  accuracy                errors of norm, gelu and gelu_erf\n"
    "\n"
    "The exit status is 1 where an attention is wrong.\n"
    "\n"
    "  --threads N             threads (all processors by default)\n"
    "  --seconds S             time spent on a measurement, which is the best of its runs (0.5 by default)\n";

static struct {
    int threads;
    double seconds;
} options = {.seconds = 0.5};

static void *allocate(size_t size)
{
    void *memory = malloc(size);
    if (!memory && size > 0) {
        fprintf(stderr, "bench-attention: no memory for %zu bytes\n", size);
        exit(2);
    }
    return memory;
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* Memory that programs can still take. */
static double available_bytes(void)
{
    double kilobytes = -1;
    char line[256];
    FILE *file = fopen("/proc/meminfo", "r");
    while (file && fgets(line, sizeof line, file) && sscanf(line, "MemAvailable: %lf kB", &kilobytes) != 1)
        ;
    if (file)
        fclose(file);
    return kilobytes >= 0 ? 1024 * kilobytes : (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE);
}

/* ---- numbers ---- */

/* About normal, of variance 1: a sum of four even ones, of xorshift64 (Marsaglia 2003). */
static float random_number(void)
{
    static uint64_t state = 0x9e3779b97f4a7c15u;
    state ^= state << 13;
    state ^= state >> 7;
    state ^= state << 17;
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(state >> (16 * i) & 0xffff) / 65536 - 0.5;
    return (float)(sum * sqrt(3));
}

static float *random_numbers(int64_t count)
{
    float *numbers = allocate((size_t)count * sizeof *numbers);
    for (int64_t i = 0; i < count; i++)
        numbers[i] = random_number();
    return numbers;
}

/* How far results are from what they should be. */
struct errors {
    double absolute; /* the largest error */
    double largest;  /* magnitude of an exact result */
    double cosine;   /* the least of an exact and a computed row */
};

static const struct errors no_errors = {.cosine = 1};

/* A row of results; one that is no number makes the error infinite. */
static void compare_row(struct errors *errors, const double *exact, const float *computed, int64_t count)
{
    double product = 0, exact_square = 0, computed_square = 0;
    for (int64_t i = 0; i < count; i++) {
        double error = fabs(computed[i] - exact[i]);
        if (!(error <= errors->absolute))
            errors->absolute = error < HUGE_VAL ? error : HUGE_VAL;
        errors->largest = fmax(errors->largest, fabs(exact[i]));
        product += exact[i] * computed[i];
        exact_square += exact[i] * exact[i];
        computed_square += (double)computed[i] * computed[i];
    }
    double cosine = product / sqrt(exact_square * computed_square);
    if (!(cosine >= errors->cosine))
        errors->cosine = isnan(cosine) ? -1 : cosine;
}

static double relative(const struct errors *errors)
{
    return errors->absolute / errors->largest;
}

/* ---- what is printed ---- */

static const char *type_name(enum ggml_type type)
{
    return type == GGML_TYPE_F32 ? "F32" : type == GGML_TYPE_F16 ? "F16" : "Q8_0";
}

static void print_number(const char *name, double value)
{
    if (isfinite(value))
        printf(", \"%s\": %.9g", name, value);
    else
        printf(", \"%s\": null", name); /* JSON has no infinity */
}

static void print_skipped(void)
{
    printf(", \"skipped\": \"needs more than half of the memory available\"");
}

static void end_row(void)
{
    printf("}\n");
    fflush(stdout);
}

/* ---- tensors and graphs ---- */

enum { MOST_TENSORS = 64 };

static struct ggml_context *context(void)
{
    struct ggml_context *ctx = ggml_init((struct ggml_init_params){
        .mem_size = MOST_TENSORS * ggml_tensor_overhead() + ggml_graph_overhead(),
        .no_alloc = true,
    });
    if (!ctx) {
        fprintf(stderr, "bench-attention: ggml has no memory\n");
        exit(2);
    }
    return ctx;
}

/* Tensors that graphs read. */
struct inputs {
    struct ggml_context *ctx;
    ggml_backend_buffer_t buffer;
};

static void allocate_inputs(struct inputs *inputs)
{
    inputs->buffer = ggml_backend_alloc_ctx_tensors_from_buft(inputs->ctx, ggml_backend_cpu_buffer_type());
    if (!inputs->buffer) {
        fprintf(stderr, "bench-attention: no memory for the inputs\n");
        exit(2);
    }
}

static void free_inputs(struct inputs *inputs)
{
    ggml_backend_buffer_free(inputs->buffer);
    ggml_free(inputs->ctx);
}

static void fill(struct ggml_tensor *tensor, const float *values)
{
    ggml_quantize_chunk(tensor->type, values, tensor->data, 0, ggml_nrows(tensor), tensor->ne[0], NULL);
}

struct graph {
    struct ggml_context *ctx;
    struct ggml_cgraph *nodes;
    struct ggml_tensor *result;
    ggml_gallocr_t allocator;
    struct ggml_cplan plan;
    size_t bytes; /* of what is computed, the score matrix of an unfused attention among it */
};

/* A graph that ends in the result, with its memory; false, and without, where that is more than half of what there is. To be freed in
 * either case. */
static bool make_graph(struct graph *graph, struct ggml_context *ctx, struct ggml_tensor *result)
{
    *graph = (struct graph){.ctx = ctx, .nodes = ggml_new_graph(ctx), .result = result};
    ggml_set_output(result);
    ggml_build_forward_expand(graph->nodes, result);
    graph->allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    ggml_gallocr_reserve_n_size(graph->allocator, graph->nodes, NULL, NULL, &graph->bytes);
    if ((double)graph->bytes > available_bytes() / 2)
        return false;
    if (!ggml_gallocr_reserve(graph->allocator, graph->nodes) || !ggml_gallocr_alloc_graph(graph->allocator, graph->nodes)) {
        fprintf(stderr, "bench-attention: no memory for a graph of %zu bytes\n", graph->bytes);
        exit(2);
    }
    graph->bytes = ggml_gallocr_get_buffer_size(graph->allocator, 0);
    graph->plan = ggml_graph_plan(graph->nodes, options.threads, NULL);
    graph->plan.work_data = allocate(graph->plan.work_size);
    return true;
}

static void free_graph(struct graph *graph)
{
    free(graph->plan.work_data);
    ggml_gallocr_free(graph->allocator);
    ggml_free(graph->ctx);
}

static void compute(struct graph *graph)
{
    if (ggml_graph_compute(graph->nodes, &graph->plan) != GGML_STATUS_SUCCESS) {
        fprintf(stderr, "bench-attention: ggml could not compute a graph\n");
        exit(2);
    }
}

/* Computes into a result of NaN. */
static void compute_once(struct graph *graph)
{
    memset(graph->result->data, 0xff, ggml_nbytes(graph->result));
    compute(graph);
}

/* The least seconds of as many runs as there is time for. */
static double time_graph(struct graph *graph)
{
    double best = HUGE_VAL;
    const double begin = now();
    do {
        double start = now();
        compute(graph);
        best = fmin(best, now() - start);
    } while (now() - begin < options.seconds);
    return best;
}

/* ---- attention ---- */

struct attention {
    int64_t dim, heads, n;
    struct inputs inputs;
    struct ggml_tensor *qkv;             /* [3 * heads * dim, n], as one product makes them */
    struct ggml_tensor *q, *k[2], *v[2]; /* the same as [dim, n, heads]; k and v in F32 and in F16 */
    struct ggml_tensor *mask[2];         /* [n, n] in F32 and in F16, or NULL */
    int64_t block;                       /* tokens see those of their block and of the blocks before; 0: all see all */
    int64_t blind;                       /* with a mask, the query that sees no key */
};

static int index_of(enum ggml_type type)
{
    return type == GGML_TYPE_F16;
}

static bool sees(const struct attention *of, int64_t query, int64_t key)
{
    return !of->block || (query != of->blind && key / of->block <= query / of->block);
}

static void fill_mask(struct attention *of)
{
    float *values = allocate((size_t)(of->n * of->n) * sizeof *values);
    for (int64_t query = 0; query < of->n; query++)
        for (int64_t key = 0; key < of->n; key++)
            values[query * of->n + key] = sees(of, query, key) ? 0 : -INFINITY;
    for (int type = 0; type < 2; type++)
        fill(of->mask[type], values);
    free(values);
}

/* One of q, k and v (part 0, 1 or 2) of a token. */
static const float *row_of(const struct attention *of, int part, int64_t head, int64_t token)
{
    const int64_t width = of->heads * of->dim;
    return (const float *)of->qkv->data + token * 3 * width + part * width + head * of->dim;
}

static void fill_part(const struct attention *of, int part, struct ggml_tensor *f32, struct ggml_tensor *f16)
{
    float *values = f32->data;
    for (int64_t head = 0; head < of->heads; head++)
        for (int64_t token = 0; token < of->n; token++)
            memcpy(values + (head * of->n + token) * of->dim, row_of(of, part, head, token), (size_t)of->dim * sizeof *values);
    if (f16)
        fill(f16, values);
}

static struct attention make_attention(int64_t dim, int64_t heads, int64_t n, bool masked)
{
    struct attention made = {.dim = dim, .heads = heads, .n = n, .inputs.ctx = context()};
    struct ggml_context *ctx = made.inputs.ctx;
    static const enum ggml_type types[2] = {GGML_TYPE_F32, GGML_TYPE_F16};
    made.qkv = ggml_new_tensor_2d(ctx, GGML_TYPE_F32, 3 * heads * dim, n);
    made.q = ggml_new_tensor_3d(ctx, GGML_TYPE_F32, dim, n, heads);
    for (int type = 0; type < 2; type++) {
        made.k[type] = ggml_new_tensor_3d(ctx, types[type], dim, n, heads);
        made.v[type] = ggml_new_tensor_3d(ctx, types[type], dim, n, heads);
        made.mask[type] = masked ? ggml_new_tensor_2d(ctx, types[type], n, n) : NULL;
    }
    allocate_inputs(&made.inputs);
    for (int64_t i = 0; i < ggml_nelements(made.qkv); i++)
        ((float *)made.qkv->data)[i] = random_number();
    fill_part(&made, 0, made.q, NULL);
    fill_part(&made, 1, made.k[0], made.k[1]);
    fill_part(&made, 2, made.v[0], made.v[1]);
    return made;
}

static float scale_of(const struct attention *of)
{
    return 1 / sqrtf((float)of->dim);
}

/* One of q, k and v within qkv, as [dim, n, heads]. */
static struct ggml_tensor *part_of_qkv(struct ggml_context *ctx, const struct attention *of, int part)
{
    const size_t row = (size_t)of->dim * sizeof(float);
    struct ggml_tensor *view = ggml_view_3d(ctx, of->qkv, of->dim, of->heads, of->n, row, of->qkv->nb[1],
                                            (size_t)(part * of->heads) * row);
    return ggml_permute(ctx, view, 0, 2, 1, 3);
}

/* All of these give [dim, heads, n]. */
struct form {
    const char *name;
    struct ggml_tensor *(*build)(struct ggml_context *ctx, const struct attention *of, const struct form *form);
    enum ggml_type kv, mask;
};

static struct ggml_tensor *build_flash(struct ggml_context *ctx, const struct attention *of, const struct form *form)
{
    const int type = index_of(form->kv);
    return ggml_flash_attn_ext(ctx, of->q, of->k[type], of->v[type], of->mask[index_of(form->mask)], scale_of(of), 0, 0);
}

/* Reads q, k and v where they lie in qkv. */
static struct ggml_tensor *build_flash_qkv(struct ggml_context *ctx, const struct attention *of, const struct form *form)
{
    struct ggml_tensor *q = part_of_qkv(ctx, of, 0), *k = part_of_qkv(ctx, of, 1), *v = part_of_qkv(ctx, of, 2);
    if (form->kv != GGML_TYPE_F32) {
        k = ggml_cast(ctx, k, form->kv);
        v = ggml_cast(ctx, v, form->kv);
    }
    return ggml_flash_attn_ext(ctx, q, k, v, of->mask[index_of(form->mask)], scale_of(of), 0, 0);
}

static struct ggml_tensor *build_unfused(struct ggml_context *ctx, const struct attention *of, const struct form *form)
{
    struct ggml_tensor *q = ggml_cont(ctx, part_of_qkv(ctx, of, 0)), *k = ggml_cont(ctx, part_of_qkv(ctx, of, 1));
    struct ggml_tensor *v = ggml_cont(ctx, ggml_transpose(ctx, part_of_qkv(ctx, of, 2)));
    struct ggml_tensor *scores = ggml_scale(ctx, ggml_mul_mat(ctx, k, q), scale_of(of));
    struct ggml_tensor *weights = ggml_soft_max_ext(ctx, scores, of->mask[index_of(form->mask)], 1, 0);
    return ggml_cont(ctx, ggml_permute(ctx, ggml_mul_mat(ctx, v, weights), 0, 2, 1, 3));
}

static const struct form forms[] = {
    {"unfused", build_unfused, GGML_TYPE_F32, GGML_TYPE_F16},
    {"flash", build_flash, GGML_TYPE_F32, GGML_TYPE_F16},
    {"flash", build_flash, GGML_TYPE_F16, GGML_TYPE_F16},
    {"flash of qkv", build_flash_qkv, GGML_TYPE_F32, GGML_TYPE_F16},
    {"flash of qkv", build_flash_qkv, GGML_TYPE_F16, GGML_TYPE_F16},
    /* Only with a mask another than the first. */
    {"unfused", build_unfused, GGML_TYPE_F32, GGML_TYPE_F32},
};
enum { FORMS = sizeof forms / sizeof *forms, FORMS_WITHOUT_MASK = FORMS - 1 };

static bool make_attention_graph(struct graph *graph, const struct attention *of, const struct form *form)
{
    struct ggml_context *ctx = context();
    return make_graph(graph, ctx, form->build(ctx, of, form));
}

/* Exact results of some queries of each head, other ones in the next head. */
struct sample {
    int64_t queries;
    double *exact; /* [heads][queries][dim] */
};

static int64_t sampled_query(const struct attention *of, const struct sample *sample, int64_t head, int64_t index)
{
    return (index * of->n / sample->queries + head) % of->n;
}

/* Of one query, with room for as many weights as there are keys. */
static void exact_row(const struct attention *of, int64_t head, int64_t query, double *weights, double *result)
{
    const float *q = row_of(of, 0, head, query);
    const double scale = 1 / sqrt((double)of->dim);
    double top = -HUGE_VAL, sum = 0;
    for (int64_t key = 0; key < of->n; key++) {
        const float *k = row_of(of, 1, head, key);
        double score = 0;
        for (int64_t i = 0; i < of->dim; i++)
            score += (double)q[i] * k[i];
        weights[key] = sees(of, query, key) ? score * scale : -HUGE_VAL;
        top = fmax(top, weights[key]);
    }
    memset(result, 0, (size_t)of->dim * sizeof *result);
    for (int64_t key = 0; key < of->n; key++) {
        const float *v = row_of(of, 2, head, key);
        double weight = weights[key] > -HUGE_VAL ? exp(weights[key] - top) : 0;
        sum += weight;
        for (int64_t i = 0; i < of->dim; i++)
            result[i] += weight * v[i];
    }
    for (int64_t i = 0; i < of->dim && sum > 0; i++)
        result[i] /= sum;
}

static struct sample make_sample(const struct attention *of)
{
    /* All queries of a short attention, at least a few of any. */
    int64_t affordable = 65536 / of->n > 16 ? 65536 / of->n : 16;
    struct sample sample = {.queries = of->n < affordable ? of->n : affordable};
    sample.exact = allocate((size_t)(of->heads * sample.queries * of->dim) * sizeof(double));
    double *weights = allocate((size_t)of->n * sizeof *weights), *result = sample.exact;
    for (int64_t head = 0; head < of->heads; head++)
        for (int64_t index = 0; index < sample.queries; index++, result += of->dim)
            exact_row(of, head, sampled_query(of, &sample, head, index), weights, result);
    free(weights);
    return sample;
}

static const float *computed_row(const struct attention *of, const struct graph *graph, int64_t head, int64_t query)
{
    return (const float *)graph->result->data + (query * of->heads + head) * of->dim;
}

static struct errors attention_errors(const struct attention *of, const struct sample *sample, const struct graph *graph)
{
    struct errors errors = no_errors;
    const double *exact = sample->exact;
    for (int64_t head = 0; head < of->heads; head++)
        for (int64_t index = 0; index < sample->queries; index++, exact += of->dim) {
            int64_t query = sampled_query(of, sample, head, index);
            if (!of->block || query != of->blind)
                compare_row(&errors, exact, computed_row(of, graph, head, query), of->dim);
        }
    return errors;
}

static bool precise(const struct form *form, const struct errors *errors)
{
    /* Roundings to F32, and those of k, v and, in ggml, q to F16. */
    return relative(errors) <= (form->kv == GGML_TYPE_F32 ? 2e-5 : 5e-3);
}

static void print_form(const char *section, const struct attention *of, const struct form *form)
{
    printf("{\"section\": \"%s\", \"dim\": %lld, \"heads\": %lld, \"n\": %lld, \"form\": \"%s\", \"kv\": \"%s\"", section,
           (long long)of->dim, (long long)of->heads, (long long)of->n, form->name, type_name(form->kv));
}

static void print_right(bool right)
{
    printf(", \"right\": %s", right ? "true" : "false");
}

/* Whether the result is right. */
static bool bench_form(const struct attention *of, const struct sample *sample, const struct form *form)
{
    struct graph graph;
    bool fits = make_attention_graph(&graph, of, form), right = true;
    print_form("attention", of, form);
    print_number("graph_bytes", (double)graph.bytes);
    if (fits) {
        compute_once(&graph);
        struct errors errors = attention_errors(of, sample, &graph);
        double seconds = time_graph(&graph);
        double flops = 4.0 * (double)of->n * (double)of->n * (double)(of->dim * of->heads);
        print_number("work_bytes", (double)graph.plan.work_size);
        print_number("ms", 1e3 * seconds);
        print_number("gflops", 1e-9 * flops / seconds);
        print_number("absolute", errors.absolute);
        print_number("relative", relative(&errors));
        print_number("cosine", errors.cosine);
        right = precise(form, &errors);
        print_right(right);
    } else {
        print_skipped();
    }
    end_row();
    free_graph(&graph);
    return right;
}

static bool bench_attention(int64_t dim, int64_t heads, int64_t n)
{
    struct attention attention = make_attention(dim, heads, n, false);
    struct sample sample = make_sample(&attention);
    bool right = true;
    for (int i = 0; i < FORMS_WITHOUT_MASK; i++)
        right &= bench_form(&attention, &sample, &forms[i]);
    free(sample.exact);
    free_inputs(&attention.inputs);
    return right;
}

/* ---- masks ---- */

/* What the rows of the query that sees nothing are: "zeros", "nan" or "other". */
static const char *blind_rows(const struct attention *of, const struct graph *graph)
{
    int64_t zeros = 0, nans = 0;
    for (int64_t head = 0; head < of->heads; head++) {
        const float *row = computed_row(of, graph, head, of->blind);
        for (int64_t i = 0; i < of->dim; i++) {
            zeros += row[i] == 0;
            nans += isnan(row[i]);
        }
    }
    const int64_t all = of->heads * of->dim;
    return zeros == all ? "zeros" : nans == all ? "nan" : "other";
}

/* Whether the result is right. */
static bool check_mask(const struct attention *of, const struct sample *sample, const struct form *form)
{
    struct graph graph;
    if (!make_attention_graph(&graph, of, form)) {
        fprintf(stderr, "bench-attention: no memory for masks\n");
        exit(2);
    }
    compute_once(&graph);
    struct errors errors = attention_errors(of, sample, &graph);
    const char *blind = blind_rows(of, &graph);
    bool undefined = form->build == build_unfused && strcmp(blind, "nan") == 0; /* 0 / 0 */
    bool right = precise(form, &errors) && (strcmp(blind, "zeros") == 0 || undefined);
    print_form("masks", of, form);
    printf(", \"mask\": \"%s\", \"block\": %lld, \"blind\": \"%s\"", type_name(form->mask), (long long)of->block, blind);
    print_right(right);
    print_number("absolute", errors.absolute);
    print_number("relative", relative(&errors));
    end_row();
    free_graph(&graph);
    return right;
}

static bool check_masks(void)
{
    static const struct {
        int64_t n, block;
    } cases[] = {{48, 1}, {48, 7}, {48, 16}, {256, 1}, {256, 16}, {256, 100}};
    bool right = true;
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct attention attention = make_attention(64, 4, cases[i].n, true);
        attention.block = cases[i].block;
        attention.blind = cases[i].n / 2 + 1;
        fill_mask(&attention);
        struct sample sample = make_sample(&attention);
        for (int form = 0; form < FORMS; form++)
            right &= check_mask(&attention, &sample, &forms[form]);
        free(sample.exact);
        free_inputs(&attention.inputs);
    }
    return right;
}

/* ---- matmul ---- */

enum { INPUTS = 1024, OUTPUTS = 4096, CHECKED_COLUMNS = 64 };

static void bench_type(enum ggml_type type, int64_t n, const float *w, const float *x, const double *exact)
{
    struct inputs inputs = {.ctx = context()};
    struct ggml_tensor *w_tensor = ggml_new_tensor_2d(inputs.ctx, type, INPUTS, OUTPUTS);
    struct ggml_tensor *x_tensor = ggml_new_tensor_2d(inputs.ctx, GGML_TYPE_F32, INPUTS, n);
    allocate_inputs(&inputs);
    fill(w_tensor, w);
    fill(x_tensor, x);
    struct graph graph;
    struct ggml_context *ctx = context();
    bool fits = make_graph(&graph, ctx, ggml_mul_mat(ctx, w_tensor, x_tensor));
    printf("{\"section\": \"matmul\", \"type\": \"%s\", \"n\": %lld", type_name(type), (long long)n);
    if (fits) {
        compute_once(&graph);
        struct errors errors = no_errors;
        compare_row(&errors, exact, graph.result->data, (n < CHECKED_COLUMNS ? n : CHECKED_COLUMNS) * OUTPUTS);
        double seconds = time_graph(&graph);
        print_number("work_bytes", (double)graph.plan.work_size);
        print_number("ms", 1e3 * seconds);
        print_number("gflops", 2e-9 * INPUTS * OUTPUTS * (double)n / seconds);
        print_number("relative", relative(&errors));
    } else {
        print_skipped();
    }
    end_row();
    free_graph(&graph);
    free_inputs(&inputs);
}

static void bench_matmul(int64_t n)
{
    float *w = random_numbers(INPUTS * OUTPUTS), *x = random_numbers(INPUTS * n);
    const int64_t columns = n < CHECKED_COLUMNS ? n : CHECKED_COLUMNS;
    double *exact = allocate((size_t)(columns * OUTPUTS) * sizeof *exact);
    for (int64_t column = 0; column < columns; column++)
        for (int64_t row = 0; row < OUTPUTS; row++) {
            double sum = 0;
            for (int64_t i = 0; i < INPUTS; i++)
                sum += (double)w[row * INPUTS + i] * x[column * INPUTS + i];
            exact[column * OUTPUTS + row] = sum;
        }
    bench_type(GGML_TYPE_F32, n, w, x, exact);
    bench_type(GGML_TYPE_F16, n, w, x, exact);
    bench_type(GGML_TYPE_Q8_0, n, w, x, exact);
    free(exact);
    free(x);
    free(w);
}

/* ---- accuracy ---- */

enum { ROW = 1024, ROWS = 1024 };

static const float epsilon = 1e-6f;

static void exact_norm(double *exact, const float *x)
{
    for (int64_t begin = 0; begin < ROWS * ROW; begin += ROW) {
        double mean = 0, variance = 0;
        for (int64_t i = begin; i < begin + ROW; i++)
            mean += x[i] / (double)ROW;
        for (int64_t i = begin; i < begin + ROW; i++)
            variance += (x[i] - mean) * (x[i] - mean) / ROW;
        for (int64_t i = begin; i < begin + ROW; i++)
            exact[i] = (x[i] - mean) / sqrt(variance + (double)epsilon);
    }
}

static void exact_gelu_erf(double *exact, const float *x)
{
    for (int64_t i = 0; i < ROWS * ROW; i++)
        exact[i] = 0.5 * x[i] * (1 + erf(x[i] / sqrt(2)));
}

static void exact_gelu_tanh(double *exact, const float *x)
{
    const double factor = sqrt(2 / acos(-1));
    for (int64_t i = 0; i < ROWS * ROW; i++)
        exact[i] = 0.5 * x[i] * (1 + tanh(factor * (x[i] + 0.044715 * x[i] * x[i] * x[i])));
}

static struct ggml_tensor *norm_of_rows(struct ggml_context *ctx, struct ggml_tensor *x)
{
    return ggml_norm(ctx, x, epsilon);
}

static void bench_accuracy(void)
{
    static const struct {
        const char *operation, *formula;
        struct ggml_tensor *(*build)(struct ggml_context *ctx, struct ggml_tensor *x);
        void (*exact)(double *exact, const float *x);
        bool normal; /* data; otherwise evenly from -12 to 12 */
    } cases[] = {
        {"norm", "(x - mean) / sqrt(variance + 1e-6)", norm_of_rows, exact_norm, true},
        {"gelu", "by erf", ggml_gelu, exact_gelu_erf, false},
        {"gelu", "by tanh, its own", ggml_gelu, exact_gelu_tanh, false},
        {"gelu_erf", "by erf, its own", ggml_gelu_erf, exact_gelu_erf, false},
    };
    struct inputs inputs = {.ctx = context()};
    struct ggml_tensor *x = ggml_new_tensor_2d(inputs.ctx, GGML_TYPE_F32, ROW, ROWS);
    allocate_inputs(&inputs);
    double *exact = allocate(ROWS * ROW * sizeof *exact);
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        float *values = x->data;
        for (int64_t i = 0; i < ROWS * ROW; i++)
            values[i] = cases[c].normal ? random_number() : (float)(24.0 * (double)i / (ROWS * ROW - 1) - 12);
        cases[c].exact(exact, values);
        struct graph graph;
        struct ggml_context *ctx = context();
        if (!make_graph(&graph, ctx, cases[c].build(ctx, x))) {
            fprintf(stderr, "bench-attention: no memory for a million numbers\n");
            exit(2);
        }
        compute_once(&graph);
        struct errors errors = no_errors;
        compare_row(&errors, exact, graph.result->data, ROWS * ROW);
        printf("{\"section\": \"accuracy\", \"operation\": \"%s\", \"formula\": \"%s\"", cases[c].operation, cases[c].formula);
        print_number("absolute", errors.absolute);
        end_row();
        free_graph(&graph);
    }
    free(exact);
    free_inputs(&inputs);
}

/* ---- the command line ---- */

static _Noreturn void wrong_usage(void)
{
    fputs(usage, stderr);
    exit(2);
}

static int64_t positive(const char *text)
{
    char *end;
    long long value = strtoll(text, &end, 10);
    if (*end || value < 1 || value > 1 << 20)
        wrong_usage();
    return value;
}

static void parse_options(int argc, char **argv)
{
    static const struct option names[] = {
        {"threads", required_argument, NULL, 't'},
        {"seconds", required_argument, NULL, 's'},
        {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0},
    };
    options.threads = (int)sysconf(_SC_NPROCESSORS_ONLN);
    int option;
    while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        char *end = NULL;
        switch (option) {
        case 't': options.threads = (int)positive(optarg); break;
        case 's':
            options.seconds = strtod(optarg, &end);
            if (*end || !(options.seconds >= 0 && options.seconds < 3600))
                wrong_usage();
            break;
        case 'h': fputs(usage, stdout); exit(0);
        default: wrong_usage();
        }
    }
}

int main(int argc, char **argv)
{
    parse_options(argc, argv);
    argc -= optind;
    argv += optind;
    if (argc == 0)
        wrong_usage();
    ggml_cpu_init();
    bool right = true;
    if (strcmp(argv[0], "attention") == 0 && argc == 4)
        right = bench_attention(positive(argv[1]), positive(argv[2]), positive(argv[3]));
    else if (strcmp(argv[0], "masks") == 0 && argc == 1)
        right = check_masks();
    else if (strcmp(argv[0], "matmul") == 0 && argc == 2)
        bench_matmul(positive(argv[1]));
    else if (strcmp(argv[0], "accuracy") == 0 && argc == 1)
        bench_accuracy();
    else
        wrong_usage();
    return right ? 0 : 1;
}
