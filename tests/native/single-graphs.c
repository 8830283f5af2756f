/* Graphs of operations that are taken one by one, with nothing before or after that they could become a part of. */
#include "graphs.h"

/* A node of random numbers, whose memory may be used again. */
static struct ggml_tensor *made(struct scene *scene, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    struct ggml_tensor *node = ggml_neg(scene->ctx, leaf(scene, GGML_TYPE_F32, 1, n0, n1, n2, n3));
    expand(scene, node);
    return node;
}

/* ---- softmax ---- */

static void soft_max(struct scene *scene)
{
    want(scene, ggml_soft_max(scene->ctx, made(scene, 77, 19, 4, 1)));
}

/* In the place of what nothing else reads, and not where something does. */
static void soft_max_in_place(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 77, 19, 4, 1), *y = made(scene, 77, 19, 4, 1);
    want(scene, ggml_neg(scene->ctx, ggml_soft_max_inplace(scene->ctx, x)));
    want(scene, ggml_soft_max(scene->ctx, y));
    want(scene, ggml_cont(scene->ctx, y));
}

/* The longer mask is that of more rows than there are. */
static void soft_max_masked(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 85, 13, 6, 2);
    want(scene, ggml_soft_max_ext(ctx, x, made(scene, 85, 20, 1, 1), 0.25f, 0));
    want(scene, ggml_soft_max_ext(ctx, x, made(scene, 85, 13, 3, 2), 0.25f, 8));
    want(scene, ggml_soft_max_ext(ctx, x, leaf(scene, GGML_TYPE_F16, 1, 85, 13, 6, 1), -0.5f, 4));
    struct ggml_tensor *with_sinks = ggml_soft_max_ext(ctx, x, leaf(scene, GGML_TYPE_F16, 1, 85, 13, 1, 2), 0.25f, 0);
    ggml_soft_max_add_sinks(with_sinks, leaf(scene, GGML_TYPE_F32, 1, 6, 1, 1, 1));
    want(scene, with_sinks);
}

/* A view of some of its rows, whose results are read twice. */
static void soft_max_of_view(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 90, 64, 2, 1);
    struct ggml_tensor *rows = ggml_view_2d(ctx, x, 90, 60, x->nb[1], 3 * x->nb[1]), *y = ggml_soft_max_ext(ctx, rows, NULL, 2, 0);
    want(scene, y);
    want(scene, ggml_neg(ctx, y));
}

/* ---- upscaling ---- */

static void upscale(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 17, 12, 2);
    want(scene, ggml_upscale(ctx, x, 2, GGML_SCALE_MODE_NEAREST));
    want(scene, ggml_upscale(ctx, x, 3, GGML_SCALE_MODE_NEAREST));
    want(scene, ggml_interpolate(ctx, x, 13 * 5, 17, 24, 6, GGML_SCALE_MODE_NEAREST));
    want(scene, ggml_upscale(ctx, ggml_permute(ctx, x, 2, 0, 1, 3), 2, GGML_SCALE_MODE_NEAREST));
}

/* To no whole multiple: left to ggml. */
static void upscale_between(struct scene *scene)
{
    want(scene, ggml_interpolate(scene->ctx, made(scene, 32, 16, 12, 1), 40, 24, 12, 1, GGML_SCALE_MODE_NEAREST));
}

/* ---- others ---- */

static void norms(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 15, 13, 24, 2);
    want(scene, ggml_group_norm(ctx, x, 6, 1e-6f));
    want(scene, ggml_norm(ctx, x, 1e-5f));
    want(scene, ggml_rms_norm(ctx, x, 1e-5f));
}

static void elements(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 15, 13, 24, 1), *channels = made(scene, 1, 1, 24, 1);
    want(scene, ggml_add(ctx, x, channels));
    want(scene, ggml_mul(ctx, x, channels));
    want(scene, ggml_add(ctx, x, made(scene, 15, 1, 1, 1)));
    want(scene, ggml_mul(ctx, x, made(scene, 15, 13, 24, 1)));
    want(scene, ggml_scale(ctx, x, 0.3f));
}

static void functions(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 15, 13, 24, 1);
    scene->tolerance = 3e-3; /* a table of half precision */
    want(scene, ggml_silu(ctx, x));
    want(scene, ggml_gelu(ctx, x));
    want(scene, ggml_gelu_erf(ctx, x));
    want(scene, ggml_gelu_quick(ctx, x));
    want(scene, ggml_relu(ctx, x));
    want(scene, ggml_leaky_relu(ctx, x, 0.2f, false));
    want(scene, ggml_sigmoid(ctx, x));
    want(scene, ggml_tanh(ctx, x));
    want(scene, ggml_exp(ctx, x));
    want(scene, ggml_cont(ctx, ggml_clamp(ctx, made(scene, 15, 13, 24, 1), -0.5f, 0.75f))); /* in place always */
}

/* Along each dimension, and of views. */
static void concatenations(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    const int64_t ne[] = {15, 13, 24, 2};
    struct ggml_tensor *x = made(scene, ne[0], ne[1], ne[2], ne[3]);
    for (int d = 0; d < 4; d++) {
        int64_t other[] = {ne[0], ne[1], ne[2], ne[3]};
        other[d] = 5;
        want(scene, ggml_concat(ctx, x, made(scene, other[0], other[1], other[2], other[3]), d));
    }
    struct ggml_tensor *part = ggml_view_4d(ctx, x, 11, 13, 24, 2, x->nb[1], x->nb[2], x->nb[3], 2 * x->nb[0]);
    want(scene, ggml_concat(ctx, part, made(scene, 3, 13, 24, 2), 0));
    want(scene, ggml_concat(ctx, made(scene, 24, 13, 15, 2), ggml_permute(ctx, x, 2, 1, 0, 3), 1));
}

/* All permutations. */
static void permutations(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 17, 6, 11, 5);
    for (int a = 0; a < 4; a++)
        for (int b = 0; b < 4; b++)
            for (int c = 0; c < 4; c++)
                if (a != b && b != c && a != c)
                    want(scene, ggml_cont(ctx, ggml_permute(ctx, x, a, b, c, 6 - a - b - c)));
}

static const struct {
    const char *name;
    void (*build)(struct scene *scene);
} cases[] = {
    {"soft_max", soft_max},
    {"soft_max_in_place", soft_max_in_place},
    {"soft_max_masked", soft_max_masked},
    {"soft_max_of_view", soft_max_of_view},
    {"upscale", upscale},
    {"upscale_between", upscale_between},
    {"norms", norms},
    {"elements", elements},
    {"functions", functions},
    {"concatenations", concatenations},
    {"permutations", permutations},
};

const char *single_case(size_t index)
{
    return index < sizeof cases / sizeof *cases ? cases[index].name : NULL;
}

void build_single_case(struct scene *scene, size_t index)
{
    cases[index].build(scene);
}
