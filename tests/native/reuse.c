/* Products that may be kept from graph to graph, by the patched ggml: reuse CASE THREADS FILE
 *
 * Computes graphs of a case one after the other and appends all of their results to the file. What was kept the hook says itself on stderr
 * (SDGEN_VERBOSE=1). */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-cpu.h"
#include "ggml.h"

enum { MEMORY = 64 << 20, MOST_RESULTS = 8, ROWS = 77, COLUMNS = 272, DEPTH = 40, IDLE = 33 };

static _Noreturn void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("reuse: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

static float number(void)
{
    static uint64_t state = 1;
    state = state * 6364136223846793005u + 1442695040888963407u;
    return (float)(int32_t)(state >> 32) / (1u << 30);
}

static void fill(struct ggml_tensor *t)
{
    float *values = malloc((size_t)ggml_nelements(t) * sizeof *values);
    if (!values)
        die("no memory");
    for (int64_t i = 0; i < ggml_nelements(t); i++)
        values[i] = number();
    ggml_quantize_chunk(t->type, values, t->data, 0, ggml_nrows(t), t->ne[0], NULL);
    free(values);
}

/* ---- a graph ---- */

struct scene {
    int threads;
    FILE *file;
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *result[MOST_RESULTS];
    int results;
};

static struct ggml_tensor *leaf(struct scene *scene, enum ggml_type type, int64_t columns, int64_t rows, int64_t batches)
{
    struct ggml_tensor *made = ggml_new_tensor_3d(scene->ctx, type, columns, rows, batches);
    fill(made);
    return made;
}

static void want(struct scene *scene, struct ggml_tensor *node)
{
    ggml_build_forward_expand(scene->graph, node);
    scene->result[scene->results++] = node;
}

static void product(struct scene *scene, struct ggml_tensor *w, struct ggml_tensor *x)
{
    want(scene, ggml_mul_mat(scene->ctx, w, x));
}

static void compute(struct scene *scene)
{
    for (int i = 0; i < scene->results; i++)
        memset(scene->result[i]->data, 0xff, ggml_nbytes(scene->result[i]));
    if (ggml_graph_compute_with_ctx(scene->ctx, scene->graph, scene->threads) != GGML_STATUS_SUCCESS)
        die("a graph failed");
    for (int i = 0; i < scene->results; i++)
        if (fwrite(scene->result[i]->data, ggml_nbytes(scene->result[i]), 1, scene->file) != 1)
            die("cannot write");
}

static void compute_times(struct scene *scene, int times)
{
    for (int i = 0; i < times; i++)
        compute(scene);
}

static struct ggml_tensor *x_of(struct scene *scene)
{
    return leaf(scene, GGML_TYPE_F32, DEPTH, ROWS, 1);
}

static struct ggml_tensor *w_of(struct scene *scene, enum ggml_type type)
{
    return leaf(scene, type, DEPTH, COLUMNS, 1);
}

/* Bytes of tensors of one size change places. */
static void swap(struct ggml_tensor *a, struct ggml_tensor *b)
{
    char *kept = malloc(ggml_nbytes(a));
    if (!kept)
        die("no memory");
    memcpy(kept, a->data, ggml_nbytes(a));
    memcpy(a->data, b->data, ggml_nbytes(a));
    memcpy(b->data, kept, ggml_nbytes(a));
    free(kept);
}

/* ---- cases ---- */

/* Keys and values of one prompt, weights of all types; the last is read by way of views and copies of x. */
static void same(struct scene *scene)
{
    struct ggml_tensor *x = x_of(scene), *wide = leaf(scene, GGML_TYPE_F32, DEPTH + 3, ROWS + 5, 1);
    product(scene, w_of(scene, GGML_TYPE_F16), x);
    product(scene, w_of(scene, GGML_TYPE_F32), x);
    product(scene, w_of(scene, GGML_TYPE_BF16), ggml_reshape_4d(scene->ctx, x, DEPTH, ROWS, 1, 1));
    product(scene, w_of(scene, GGML_TYPE_F16), ggml_view_2d(scene->ctx, wide, DEPTH, ROWS, wide->nb[1], 2 * wide->nb[1] + 4));
    product(scene, w_of(scene, GGML_TYPE_F16), ggml_cont(scene->ctx, ggml_transpose(scene->ctx, leaf(scene, GGML_TYPE_F32, ROWS, DEPTH, 1))));
    compute_times(scene, 5);
}

static void two_prompts(struct scene *scene)
{
    struct ggml_tensor *x = x_of(scene), *other = x_of(scene);
    product(scene, w_of(scene, GGML_TYPE_F16), x);
    product(scene, w_of(scene, GGML_TYPE_F16), x);
    for (int i = 0; i < 8; i++) {
        compute(scene);
        swap(x, other);
    }
}

/* An input that is another one each time, and one that changes once. */
static void changing(struct scene *scene)
{
    struct ggml_tensor *x = x_of(scene);
    product(scene, w_of(scene, GGML_TYPE_F16), x);
    for (int i = 0; i < 5; i++) {
        compute(scene);
        fill(x);
    }
}

static void prompt_changes(struct scene *scene)
{
    struct ggml_tensor *x = x_of(scene);
    product(scene, w_of(scene, GGML_TYPE_F16), x);
    compute_times(scene, 4);
    ((float *)x->data)[ROWS * DEPTH - 1] += 1;
    compute_times(scene, 4);
}

/* One number of the weights, the smallest change that there is. */
static void weights_change(struct scene *scene)
{
    struct ggml_tensor *w = w_of(scene, GGML_TYPE_F16);
    product(scene, w, x_of(scene));
    compute_times(scene, 3);
    ((uint16_t *)w->data)[COLUMNS * DEPTH / 2] ^= 1;
    compute_times(scene, 3);
    ((uint16_t *)w->data)[COLUMNS * DEPTH / 2] ^= 1;
    compute(scene);
}

/* A model freed and another one in its memory. */
static void weights_change_places(struct scene *scene)
{
    struct ggml_tensor *w = w_of(scene, GGML_TYPE_F16), *other = w_of(scene, GGML_TYPE_F16), *x = x_of(scene);
    product(scene, w, x);
    product(scene, other, x);
    compute_times(scene, 3);
    swap(w, other);
    compute(scene);
    fill(w);
    compute_times(scene, 2);
}

/* Weights that a node adds to, graph after graph, before they are read as if they were given. */
static void weights_added_to(struct scene *scene)
{
    struct ggml_tensor *w = w_of(scene, GGML_TYPE_F32);
    ggml_build_forward_expand(scene->graph, ggml_add_inplace(scene->ctx, w, w_of(scene, GGML_TYPE_F32)));
    product(scene, w, x_of(scene));
    compute_times(scene, 4);
}

/* Between products of the same input, in one graph. */
static void input_changes_within(struct scene *scene)
{
    struct ggml_tensor *w = w_of(scene, GGML_TYPE_F16), *x = x_of(scene);
    product(scene, w, x);
    ggml_build_forward_expand(scene->graph, ggml_scale_inplace(scene->ctx, x, -1));
    product(scene, w, x);
    compute_times(scene, 4);
}

static void chains(struct scene *scene)
{
    struct ggml_tensor *x = x_of(scene), *w = w_of(scene, GGML_TYPE_F16), *bias = leaf(scene, GGML_TYPE_F32, COLUMNS, 1, 1);
    struct ggml_tensor *sum = ggml_add(scene->ctx, ggml_mul_mat(scene->ctx, w, x), bias);
    want(scene, ggml_gelu(scene->ctx, sum));
    want(scene, ggml_silu(scene->ctx, ggml_add(scene->ctx, ggml_mul_mat(scene->ctx, w, x), bias)));
    want(scene, ggml_scale(scene->ctx, ggml_mul_mat(scene->ctx, w, x), 0.5f));
    want(scene, ggml_scale(scene->ctx, ggml_mul_mat(scene->ctx, w, x), 0.25f));
    want(scene, ggml_leaky_relu(scene->ctx, ggml_mul_mat(scene->ctx, w, x), 0.1f, false));
    want(scene, ggml_leaky_relu(scene->ctx, ggml_mul_mat(scene->ctx, w, x), 0.2f, false));
    compute_times(scene, 3);
    ((float *)bias->data)[COLUMNS - 1] += 1;
    compute_times(scene, 2);
}

/* The same bytes in other shapes; several batches. */
static void shapes(struct scene *scene)
{
    struct ggml_tensor *x = leaf(scene, GGML_TYPE_F32, 2 * DEPTH, 64, 2), *w = leaf(scene, GGML_TYPE_F16, 2 * DEPTH, 512, 1);
    product(scene, w, x);
    product(scene, w, ggml_reshape_2d(scene->ctx, x, 2 * DEPTH, 128));
    product(scene, ggml_reshape_2d(scene->ctx, w, DEPTH, 1024), ggml_reshape_2d(scene->ctx, x, DEPTH, 256));
    compute_times(scene, 4);
}

/* What is not looked for: computed inputs or weights, few rows or columns, weights for each batch, a sum with another tensor. */
static void not_taken(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = x_of(scene), *w = w_of(scene, GGML_TYPE_F32);
    product(scene, w, ggml_scale(ctx, x, 2));
    product(scene, ggml_scale(ctx, w, 2), x);
    product(scene, w, ggml_view_2d(ctx, x, DEPTH, 47, x->nb[1], 0));
    product(scene, ggml_view_2d(ctx, w, DEPTH, 255, w->nb[1], 0), x);
    product(scene, leaf(scene, GGML_TYPE_F16, DEPTH, COLUMNS, 2), leaf(scene, GGML_TYPE_F32, DEPTH, ROWS, 2));
    want(scene, ggml_add(ctx, ggml_mul_mat(ctx, w, x), leaf(scene, GGML_TYPE_F32, COLUMNS, ROWS, 1)));
    compute_times(scene, 4);
}

/* Other graphs are computed for a while. */
static void idle(struct scene *scene)
{
    struct scene other = *scene;
    product(scene, w_of(scene, GGML_TYPE_F16), x_of(scene));
    compute_times(scene, 3);
    other.graph = ggml_new_graph(other.ctx);
    want(&other, ggml_add(other.ctx, x_of(&other), x_of(&other)));
    compute_times(&other, IDLE);
    compute_times(scene, 2);
}

static const struct {
    const char *name;
    void (*run)(struct scene *scene);
} cases[] = {
    {"same", same},
    {"two_prompts", two_prompts},
    {"changing", changing},
    {"prompt_changes", prompt_changes},
    {"weights_change", weights_change},
    {"weights_change_places", weights_change_places},
    {"weights_added_to", weights_added_to},
    {"input_changes_within", input_changes_within},
    {"chains", chains},
    {"shapes", shapes},
    {"not_taken", not_taken},
    {"idle", idle},
};

int main(int argc, char **argv)
{
    if (argc != 4)
        die("usage: reuse CASE THREADS FILE");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0)
            continue;
        struct scene scene = {.threads = atoi(argv[2]), .file = fopen(argv[3], "wb")};
        scene.ctx = ggml_init((struct ggml_init_params){.mem_size = MEMORY});
        if (!scene.file || !scene.ctx)
            die("cannot begin");
        scene.graph = ggml_new_graph(scene.ctx);
        cases[i].run(&scene);
        ggml_free(scene.ctx);
        return fclose(scene.file) ? 1 : 0;
    }
    die("no case %s", argv[1]);
}
