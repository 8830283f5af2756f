/* One case of the hook in ggml: hook CASE FILE
 *
 * Computes the case with the patched ggml, says on stdout how far the worst number of its result is from the exact one, relative to
 * the sum of the magnitudes that it is the sum of, and writes the result to the file. What the hook took it says itself on
 * stderr (SDGEN_VERBOSE=1). */
#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-cpu.h"
#include "ggml.h"

enum { MEMORY = 64 << 20, CANARIES = 4096, CANARY = 0xa5, THREADS = 2, MOST_RESULTS = 4 };

static _Noreturn void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fputs("hook: ", stderr);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

/* ---- tensors ---- */

static float random_number(void)
{
    static uint64_t state = 1;
    double sum = 0; /* of four even ones: about normal, of variance 1 */
    for (int i = 0; i < 4; i++) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        sum += (double)(state >> 40) / (1 << 24) - 0.5;
    }
    return (float)(sum * sqrt(3));
}

static struct ggml_tensor *tensor(struct ggml_context *ctx, enum ggml_type type, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    struct ggml_tensor *made = ggml_new_tensor_4d(ctx, type, n0, n1, n2, n3);
    float *values = malloc((size_t)ggml_nelements(made) * sizeof *values);
    for (int64_t i = 0; i < ggml_nelements(made); i++)
        values[i] = random_number();
    ggml_quantize_chunk(type, values, made->data, 0, ggml_nrows(made), n0, NULL);
    free(values);
    return made;
}

static double value(const struct ggml_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    const char *element = (const char *)t->data + i0 * (int64_t)t->nb[0] + i1 * (int64_t)t->nb[1] + i2 * (int64_t)t->nb[2] +
                          i3 * (int64_t)t->nb[3];
    switch (t->type) {
    case GGML_TYPE_F32: return *(const float *)(const void *)element;
    case GGML_TYPE_F16: return ggml_fp16_to_fp32(*(const ggml_fp16_t *)(const void *)element);
    case GGML_TYPE_BF16: return ggml_bf16_to_fp32(*(const ggml_bf16_t *)(const void *)element);
    default: die("no values of type %s", ggml_type_name(t->type));
    }
}

/* A row of quantized weights as numbers. */
static struct ggml_tensor *plain(struct ggml_context *ctx, const struct ggml_tensor *w)
{
    if (!ggml_is_quantized(w->type))
        return (struct ggml_tensor *)w;
    struct ggml_tensor *numbers = ggml_new_tensor(ctx, GGML_TYPE_F32, GGML_MAX_DIMS, w->ne);
    ggml_get_type_traits(w->type)->to_float(w->data, numbers->data, ggml_nelements(w));
    return numbers;
}

/* ---- exact results ---- */

struct sum {
    double exact, magnitude;
};

static void add(struct sum *sum, double product)
{
    sum->exact += product;
    sum->magnitude += fabs(product);
}

static struct sum product_at(const struct ggml_tensor *c, const struct ggml_tensor *w, const int64_t i[4])
{
    const struct ggml_tensor *x = c->src[1];
    struct sum sum = {0, 0};
    for (int64_t k = 0; k < w->ne[0]; k++)
        add(&sum, value(w, k, i[0], i[2] / (x->ne[2] / w->ne[2]), i[3] / (x->ne[3] / w->ne[3])) * value(x, k, i[1], i[2], i[3]));
    return sum;
}

/* Of an image that may be one doubled, which is not written where the hook takes both in one; through what copies its source. */
static double pixel(const struct ggml_tensor *x, int64_t at_x, int64_t at_y, int64_t channel, int64_t image)
{
    int64_t repeat = 1;
    if (x->op == GGML_OP_UPSCALE && x->op_params[0] == GGML_SCALE_MODE_NEAREST) {
        repeat = 2;
        x = x->src[0]->op == GGML_OP_DUP ? x->src[0]->src[0] : x->src[0];
    }
    return value(x, at_x / repeat, at_y / repeat, channel, image);
}

static struct sum convolution_at(const struct ggml_tensor *c, const struct ggml_tensor *w, const int64_t i[4])
{
    const struct ggml_tensor *x = c->src[1];
    const int32_t *stride = c->op_params, *pad = stride + 2, *dilation = stride + 4;
    struct sum sum = {0, 0};
    for (int64_t channel = 0; channel < w->ne[2]; channel++)
        for (int64_t ky = 0; ky < w->ne[1]; ky++)
            for (int64_t kx = 0; kx < w->ne[0]; kx++) {
                int64_t at_x = i[0] * stride[0] + kx * dilation[0] - pad[0], at_y = i[1] * stride[1] + ky * dilation[1] - pad[1];
                if (at_x >= 0 && at_x < x->ne[0] && at_y >= 0 && at_y < x->ne[1])
                    add(&sum, value(w, kx, ky, channel, i[2]) * pixel(x, at_x, at_y, channel, i[3]));
            }
    return sum;
}

/* The largest |c - exact| / sum of magnitudes; infinite where a number was not written. */
static double error_of(struct ggml_context *ctx, const struct ggml_tensor *c)
{
    const struct ggml_tensor *w = plain(ctx, c->src[0]);
    double worst = 0;
    int64_t i[4];
    for (i[3] = 0; i[3] < c->ne[3]; i[3]++)
        for (i[2] = 0; i[2] < c->ne[2]; i[2]++)
            for (i[1] = 0; i[1] < c->ne[1]; i[1]++)
                for (i[0] = 0; i[0] < c->ne[0]; i[0]++) {
                    struct sum sum = c->op == GGML_OP_MUL_MAT ? product_at(c, w, i) : convolution_at(c, w, i);
                    double error = fabs(value(c, i[0], i[1], i[2], i[3]) - sum.exact);
                    if (!(error <= worst * sum.magnitude))
                        worst = error < HUGE_VAL && sum.magnitude > 0 ? error / sum.magnitude : HUGE_VAL;
                }
    return worst;
}

/* ---- a graph and how it is computed ---- */

struct scene {
    struct ggml_context *ctx;
    struct ggml_cgraph *graph;
    struct ggml_tensor *result[MOST_RESULTS]; /* products and convolutions, in the order of the graph */
    int results;
};

static struct scene empty_scene(void)
{
    struct scene scene = {.ctx = ggml_init((struct ggml_init_params){.mem_size = MEMORY})};
    scene.graph = ggml_new_graph(scene.ctx);
    return scene;
}

static struct ggml_tensor *add_result(struct scene *scene, struct ggml_tensor *node)
{
    ggml_build_forward_expand(scene->graph, node);
    scene->result[scene->results++] = node;
    return node;
}

struct manner {
    int planned, threads;
    bool use_ref;
    struct ggml_threadpool *pool;
    ggml_abort_callback abort;
    void *abort_data;
};

/* Computes with exactly the working memory that was planned, into results of NaN. */
static enum ggml_status compute(const struct scene *scene, struct manner manner)
{
    for (int i = 0; i < scene->results; i++)
        memset(scene->result[i]->data, 0xff, ggml_nbytes(scene->result[i]));
    struct ggml_cplan plan = ggml_graph_plan(scene->graph, manner.planned, manner.pool);
    plan.work_data = malloc(plan.work_size + CANARIES);
    memset(plan.work_data + plan.work_size, CANARY, CANARIES);
    plan.n_threads = manner.threads;
    plan.use_ref = manner.use_ref;
    plan.abort_callback = manner.abort;
    plan.abort_callback_data = manner.abort_data;
    enum ggml_status status = ggml_graph_compute(scene->graph, &plan);
    for (int i = 0; i < CANARIES; i++)
        if (plan.work_data[plan.work_size + (size_t)i] != CANARY)
            die("planned for %d threads, run with %d: wrote behind the working memory", manner.planned, manner.threads);
    free(plan.work_data);
    return status;
}

static void compute_all(const struct scene *scene, struct manner manner)
{
    if (compute(scene, manner) != GGML_STATUS_SUCCESS)
        die("planned for %d threads, run with %d: failed", manner.planned, manner.threads);
}

/* A copy of all results, one behind the other. */
static char *copy_of(const struct scene *scene, size_t *size)
{
    char *copy = NULL;
    *size = 0;
    for (int i = 0; i < scene->results; i++) {
        size_t more = ggml_nbytes(scene->result[i]);
        copy = realloc(copy, *size + more);
        memcpy(copy + *size, scene->result[i]->data, more);
        *size += more;
    }
    return copy;
}

static void compare(const struct scene *scene, const char *expected, const char *what)
{
    size_t size;
    char *now = copy_of(scene, &size);
    if (memcmp(now, expected, size) != 0)
        die("%s: another result", what);
    free(now);
}

/* ---- cases of one node ---- */

static struct ggml_tensor *product(struct scene *scene, struct ggml_tensor *w, struct ggml_tensor *x)
{
    return add_result(scene, ggml_mul_mat(scene->ctx, w, x));
}

static void product_of_types(struct scene *scene, enum ggml_type w_type, enum ggml_type x_type, int64_t k)
{
    product(scene, tensor(scene->ctx, w_type, k, 37, 1, 1), tensor(scene->ctx, x_type, k, 23, 1, 1));
}

static void product_f32(struct scene *scene) { product_of_types(scene, GGML_TYPE_F32, GGML_TYPE_F32, 77); }
static void product_f16(struct scene *scene) { product_of_types(scene, GGML_TYPE_F16, GGML_TYPE_F32, 77); }
static void product_bf16(struct scene *scene) { product_of_types(scene, GGML_TYPE_BF16, GGML_TYPE_F32, 77); }
static void product_q8_0(struct scene *scene) { product_of_types(scene, GGML_TYPE_Q8_0, GGML_TYPE_F32, 96); }
static void product_q4_K(struct scene *scene) { product_of_types(scene, GGML_TYPE_Q4_K, GGML_TYPE_F32, 256); }
static void product_x_f16(struct scene *scene) { product_of_types(scene, GGML_TYPE_F16, GGML_TYPE_F16, 77); }

static void product_of_one_row(struct scene *scene)
{
    product(scene, tensor(scene->ctx, GGML_TYPE_F16, 320, 130, 1, 1), tensor(scene->ctx, GGML_TYPE_F32, 320, 1, 1, 1));
}

static void product_batched(struct scene *scene)
{
    product(scene, tensor(scene->ctx, GGML_TYPE_F16, 40, 19, 3, 2), tensor(scene->ctx, GGML_TYPE_F32, 40, 21, 3, 2));
}

static void product_broadcast(struct scene *scene)
{
    product(scene, tensor(scene->ctx, GGML_TYPE_F32, 40, 19, 2, 1), tensor(scene->ctx, GGML_TYPE_F32, 40, 21, 6, 3));
}

/* Attention: K and Q lie as [token][head][number]. */
static void product_permuted(struct scene *scene)
{
    struct ggml_tensor *k = tensor(scene->ctx, GGML_TYPE_F32, 40, 8, 33, 1), *q = tensor(scene->ctx, GGML_TYPE_F32, 40, 8, 21, 1);
    product(scene, ggml_permute(scene->ctx, k, 0, 2, 1, 3), ggml_permute(scene->ctx, q, 0, 2, 1, 3));
}

/* Parts of larger matrices. */
static void product_of_views(struct scene *scene)
{
    struct ggml_tensor *w = tensor(scene->ctx, GGML_TYPE_F16, 101, 50, 1, 1), *x = tensor(scene->ctx, GGML_TYPE_F32, 93, 40, 1, 1);
    product(scene, ggml_view_2d(scene->ctx, w, 80, 37, w->nb[1], 3 * w->nb[1] + 7 * w->nb[0]),
            ggml_view_2d(scene->ctx, x, 80, 23, x->nb[1], 5 * x->nb[1] + 9 * x->nb[0]));
}

static void product_with_itself(struct scene *scene)
{
    struct ggml_tensor *x = tensor(scene->ctx, GGML_TYPE_F32, 72, 45, 1, 1);
    product(scene, x, x);
}

static struct ggml_tensor *convolution(struct scene *scene, struct ggml_tensor *w, struct ggml_tensor *x, int stride, int pad,
                                       int dilation)
{
    return add_result(scene, ggml_conv_2d_direct(scene->ctx, w, x, stride, stride, pad, pad, dilation, dilation));
}

static void convolution_of_type(struct scene *scene, enum ggml_type w_type)
{
    convolution(scene, tensor(scene->ctx, w_type, 3, 3, 9, 11), tensor(scene->ctx, GGML_TYPE_F32, 21, 14, 9, 2), 1, 1, 1);
}

static void convolution_f32(struct scene *scene) { convolution_of_type(scene, GGML_TYPE_F32); }
static void convolution_f16(struct scene *scene) { convolution_of_type(scene, GGML_TYPE_F16); }
static void convolution_bf16(struct scene *scene) { convolution_of_type(scene, GGML_TYPE_BF16); }

/* Of a shape for Winograd's convolution. */
static void convolution_deep(struct scene *scene)
{
    convolution(scene, tensor(scene->ctx, GGML_TYPE_F16, 3, 3, 64, 48), tensor(scene->ctx, GGML_TYPE_F32, 30, 22, 64, 2), 1, 1, 1);
}

static void convolution_1x1(struct scene *scene)
{
    convolution(scene, tensor(scene->ctx, GGML_TYPE_F16, 1, 1, 40, 33), tensor(scene->ctx, GGML_TYPE_F32, 13, 9, 40, 1), 1, 0, 1);
}

static void convolution_strided(struct scene *scene)
{
    convolution(scene, tensor(scene->ctx, GGML_TYPE_F16, 5, 2, 3, 7), tensor(scene->ctx, GGML_TYPE_F32, 30, 17, 3, 2), 2, 3, 2);
}

/* A part of a larger image. */
static void convolution_of_view(struct scene *scene)
{
    struct ggml_tensor *x = tensor(scene->ctx, GGML_TYPE_F32, 32, 20, 11, 2);
    struct ggml_tensor *part = ggml_view_4d(scene->ctx, x, 21, 14, 9, 2, x->nb[1], x->nb[2], x->nb[3], 4 * x->nb[1] + 3 * x->nb[0]);
    convolution(scene, tensor(scene->ctx, GGML_TYPE_F32, 3, 3, 9, 11), part, 1, 1, 1);
}

/* The pixels of a row are not side by side: left to ggml. */
static void convolution_transposed(struct scene *scene)
{
    struct ggml_tensor *x = tensor(scene->ctx, GGML_TYPE_F32, 14, 21, 9, 1);
    convolution(scene, tensor(scene->ctx, GGML_TYPE_F32, 3, 3, 9, 11), ggml_transpose(scene->ctx, x), 1, 1, 1);
}

/* ---- an image doubled, and then convolved ---- */

static struct ggml_tensor *convolution_of_doubled(struct scene *scene, struct ggml_tensor *doubled)
{
    return convolution(scene, tensor(scene->ctx, GGML_TYPE_F16, 3, 3, 64, 48), doubled, 1, 1, 1);
}

static struct ggml_tensor *image(struct scene *scene)
{
    return tensor(scene->ctx, GGML_TYPE_F32, 13, 9, 64, 2);
}

static struct ggml_tensor *doubled_as(struct scene *scene, struct ggml_tensor *x, enum ggml_scale_mode mode)
{
    return ggml_upscale(scene->ctx, x, 2, mode);
}

static void doubled(struct scene *scene)
{
    convolution_of_doubled(scene, doubled_as(scene, image(scene), GGML_SCALE_MODE_NEAREST));
}

/* A part of a larger image. */
static void doubled_view(struct scene *scene)
{
    struct ggml_tensor *x = tensor(scene->ctx, GGML_TYPE_F32, 20, 11, 70, 2);
    struct ggml_tensor *part = ggml_view_4d(scene->ctx, x, 13, 9, 64, 2, x->nb[1], x->nb[2], x->nb[3], 2 * x->nb[1] + 3 * x->nb[0]);
    convolution_of_doubled(scene, doubled_as(scene, part, GGML_SCALE_MODE_NEAREST));
}

/* The image lies where the convolution's output goes. */
static void doubled_overwritten(struct scene *scene)
{
    struct ggml_tensor *x = ggml_dup(scene->ctx, image(scene));
    struct ggml_tensor *c = convolution_of_doubled(scene, doubled_as(scene, x, GGML_SCALE_MODE_NEAREST));
    x->data = (char *)c->data + ggml_nbytes(c) - ggml_nbytes(x);
}

static void doubled_read_twice(struct scene *scene)
{
    struct ggml_tensor *both = doubled_as(scene, image(scene), GGML_SCALE_MODE_NEAREST);
    convolution_of_doubled(scene, both);
    convolution_of_doubled(scene, both);
}

static void doubled_wanted(struct scene *scene)
{
    struct ggml_tensor *wanted = doubled_as(scene, image(scene), GGML_SCALE_MODE_NEAREST);
    ggml_set_output(wanted);
    convolution_of_doubled(scene, wanted);
}

static void doubled_smoothly(struct scene *scene)
{
    convolution_of_doubled(scene, doubled_as(scene, image(scene), GGML_SCALE_MODE_BILINEAR));
}

static void once(struct scene *scene)
{
    compute_all(scene, (struct manner){.planned = THREADS, .threads = THREADS});
}

/* ---- manners of computing ---- */

static void use_ref(struct scene *scene)
{
    compute_all(scene, (struct manner){.planned = THREADS, .threads = THREADS, .use_ref = true});
}

static void product_and_convolution(struct scene *scene)
{
    product_f32(scene);
    convolution_f32(scene);
    convolution_deep(scene);
}

static void planned_for_eight(struct scene *scene)
{
    compute_all(scene, (struct manner){.planned = 8, .threads = 8});
    size_t size;
    char *expected = copy_of(scene, &size);
    for (int threads = 1; threads < 8; threads++) {
        compute_all(scene, (struct manner){.planned = 8, .threads = threads});
        compare(scene, expected, "fewer threads");
    }
    free(expected);
}

static void planned_for_one(struct scene *scene)
{
    compute_all(scene, (struct manner){.planned = 1, .threads = 4});
}

/* Three products one after the other. */
static void chain(struct scene *scene)
{
    struct ggml_tensor *x = tensor(scene->ctx, GGML_TYPE_F32, 64, 23, 1, 1);
    for (int i = 0; i < 3; i++)
        x = product(scene, tensor(scene->ctx, GGML_TYPE_F32, 64, 64, 1, 1), x);
}

static bool abort_at_second(void *data)
{
    return ++*(int *)data == 2;
}

static void aborted(struct scene *scene)
{
    struct manner manner = {.planned = THREADS, .threads = THREADS};
    compute_all(scene, manner);
    size_t size;
    char *expected = copy_of(scene, &size);
    int calls = 0;
    manner.abort = abort_at_second;
    manner.abort_data = &calls;
    if (compute(scene, manner) != GGML_STATUS_ABORTED)
        die("not aborted");
    if (!isnan(ggml_get_f32_1d(scene->result[2], 0)))
        die("computed after it was aborted");
    manner.abort = NULL;
    compute_all(scene, manner);
    compare(scene, expected, "after it was aborted");
    free(expected);
}

static void reused_threadpool(struct scene *scene)
{
    struct scene other = empty_scene();
    product_and_convolution(&other);
    struct ggml_threadpool_params parameters = ggml_threadpool_params_default(4);
    struct manner manner = {.planned = 4, .threads = 4, .pool = ggml_threadpool_new(&parameters)};
    compute_all(scene, manner);
    size_t size;
    char *expected = copy_of(scene, &size);
    for (int i = 0; i < 3; i++) {
        compute_all(&other, manner);
        manner.threads = 4 - i;
        compute_all(scene, manner);
        compare(scene, expected, "a threadpool used again");
    }
    free(expected);
    ggml_threadpool_free(manner.pool);
    ggml_free(other.ctx);
}

/* ---- the cases ---- */

static const struct {
    const char *name;
    void (*build)(struct scene *scene);
    void (*run)(struct scene *scene);
} cases[] = {
#define ONCE(name) {#name, name, once}
    ONCE(product_f32),
    ONCE(product_f16),
    ONCE(product_bf16),
    ONCE(product_q8_0),
    ONCE(product_q4_K),
    ONCE(product_x_f16),
    ONCE(product_of_one_row),
    ONCE(product_batched),
    ONCE(product_broadcast),
    ONCE(product_permuted),
    ONCE(product_of_views),
    ONCE(product_with_itself),
    ONCE(convolution_f32),
    ONCE(convolution_f16),
    ONCE(convolution_bf16),
    ONCE(convolution_deep),
    ONCE(convolution_1x1),
    ONCE(convolution_strided),
    ONCE(convolution_of_view),
    ONCE(convolution_transposed),
    ONCE(doubled),
    ONCE(doubled_view),
    ONCE(doubled_overwritten),
    ONCE(doubled_read_twice),
    ONCE(doubled_wanted),
    ONCE(doubled_smoothly),
    {"use_ref", product_f16, use_ref},
    {"doubled_use_ref", doubled, use_ref},
    {"planned_for_eight", product_and_convolution, planned_for_eight},
    {"doubled_planned_for_eight", doubled, planned_for_eight},
    {"doubled_overwritten_planned_for_eight", doubled_overwritten, planned_for_eight},
    {"product_planned_for_one", product_f32, planned_for_one},
    {"convolution_planned_for_one", convolution_f32, planned_for_one},
    {"aborted", chain, aborted},
    {"reused_threadpool", chain, reused_threadpool},
#undef ONCE
};

static void write_results(const struct scene *scene, const char *path)
{
    FILE *file = fopen(path, "wb");
    if (!file)
        die("cannot write %s", path);
    for (int i = 0; i < scene->results; i++)
        fwrite(scene->result[i]->data, 1, ggml_nbytes(scene->result[i]), file);
    if (fclose(file) != 0)
        die("cannot write %s", path);
}

int main(int argc, char **argv)
{
    if (argc != 3)
        die("usage: hook CASE FILE");
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        if (strcmp(cases[i].name, argv[1]) != 0)
            continue;
        struct scene scene = empty_scene();
        ggml_cpu_init();
        cases[i].build(&scene);
        cases[i].run(&scene);
        double worst = 0;
        for (int r = 0; r < scene.results; r++)
            worst = fmax(worst, error_of(scene.ctx, scene.result[r]));
        printf("%.9g\n", worst);
        write_results(&scene, argv[2]);
        ggml_free(scene.ctx);
        return 0;
    }
    die("no case is called %s", argv[1]);
}
