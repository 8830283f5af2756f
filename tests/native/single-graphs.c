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

/* ---- convolutions that are made of an IM2COL and a product, and what is next to them ---- */

static const float WEIGHTS = 0.1f;

static struct ggml_tensor *half(struct scene *scene, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    scene->tolerance = 3e-3; /* ggml rounds the image to half precision, too */
    return leaf(scene, GGML_TYPE_F16, WEIGHTS, n0, n1, n2, n3);
}

/* Of six channels in five frames to seven. */
static struct ggml_tensor *frames(struct scene *scene, struct ggml_tensor *x)
{
    return ggml_conv_3d(scene->ctx, half(scene, 3, 3, 3, 6 * 7), x, 6, 1, 1, 1, 1, 1, 1, 1, 1, 1);
}

static void frames_convolved(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 5, 6), *residual = made(scene, 13, 11, 5, 7);
    struct ggml_tensor *c = ggml_add_inplace(ctx, frames(scene, x), ggml_reshape_4d(ctx, leaf(scene, GGML_TYPE_F32, 1, 7, 1, 1, 1), 1, 1, 1, 7));
    want(scene, ggml_silu(ctx, ggml_add(ctx, c, residual)));
}

/* Strides, paddings and dilations of each dimension, and two images, of which one does not follow the other in memory. */
static void frames_convolved_otherwise(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 14, 12, 9, 2 * 4);
    want(scene, ggml_conv_3d(ctx, half(scene, 3, 2, 3, 4 * 5), x, 4, 2, 1, 2, 1, 0, 2, 1, 2, 1));
    want(scene, ggml_conv_3d(ctx, leaf(scene, GGML_TYPE_F32, WEIGHTS, 1, 1, 3, 4 * 5), x, 4, 1, 1, 1, 0, 0, 1, 1, 1, 1));
    struct ggml_tensor *part = ggml_view_4d(ctx, x, 9, 7, 4, 8, x->nb[1], x->nb[2], x->nb[3], x->nb[2] + x->nb[1]);
    want(scene, ggml_conv_3d(ctx, half(scene, 2, 2, 2, 8 * 3), part, 8, 1, 1, 1, 0, 0, 0, 1, 1, 1));
}

/* By Winograd's method: of enough channels. */
static void frames_transformed(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 20, 18, 5, 40);
    want(scene, ggml_conv_3d(ctx, half(scene, 3, 3, 3, 40 * 32), x, 40, 1, 1, 1, 1, 1, 0, 1, 1, 1));
}

/* As of videos: a frame sees none after it. */
static struct ggml_tensor *causal(struct scene *scene, struct ggml_tensor *x, int after)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *padded = ggml_pad_ext(ctx, x, 1, 1, 1, 1, 2 - after, after, 0, 0);
    struct ggml_tensor *c = ggml_conv_3d(ctx, half(scene, 3, 3, 3, 6 * 7), padded, 6, 1, 1, 1, 0, 0, 0, 1, 1, 1);
    return ggml_add_inplace(ctx, c, ggml_reshape_4d(ctx, leaf(scene, GGML_TYPE_F32, 1, 7, 1, 1, 1), 1, 1, 1, 7));
}

static void frames_padded(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 5, 6);
    want(scene, ggml_silu(ctx, causal(scene, x, 0)));
    want(scene, ggml_silu(ctx, causal(scene, x, 1)));
    want(scene, ggml_neg(ctx, x));
}

/* After the last frame there are zeros only as many as before the first. */
static void frames_padded_after(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 13, 11, 5, 6);
    want(scene, ggml_silu(scene->ctx, causal(scene, x, 2)));
    want(scene, ggml_neg(scene->ctx, x));
}

/* The memory of what is padded is used again at once, or by the result. */
static void frames_padded_overwritten(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 5, 6), *padded = ggml_pad_ext(ctx, x, 1, 1, 1, 1, 2, 0, 0, 0);
    scene->apart = true;
    expand(scene, padded);
    clobber(scene, x);
    want(scene, ggml_conv_3d(ctx, half(scene, 3, 3, 3, 6 * 7), padded, 6, 1, 1, 1, 0, 0, 0, 1, 1, 1));
}

static void frames_padded_on_image(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 13, 11, 5, 6), *c = causal(scene, x, 0);
    scene->apart = true;
    expand(scene, c);
    want(scene, ggml_neg(scene->ctx, c));
    scene->overlay[scene->overlays++] = (struct overlay){.node = root(c), .on = x};
}

static void padding_read_twice(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1), *padded = ggml_pad_ext(ctx, x, 1, 1, 1, 1, 0, 0, 0, 0);
    want(scene, ggml_conv_2d(ctx, half(scene, 3, 3, 6, 7), padded, 1, 1, 0, 0, 1, 1));
    want(scene, ggml_neg(ctx, padded));
}

static void image_padded(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 40, 30, 6, 1);
    want(scene, ggml_conv_2d(ctx, half(scene, 3, 3, 6, 7), ggml_pad_ext(ctx, x, 2, 2, 1, 1, 0, 0, 0, 0), 1, 1, 0, 0, 1, 1));
    want(scene, ggml_conv_2d(ctx, half(scene, 3, 3, 6, 7), ggml_pad_ext(ctx, x, 0, 1, 0, 1, 0, 0, 0, 0), 2, 2, 0, 0, 1, 1));
    want(scene, ggml_neg(ctx, x));
}

static void frames_convolved_directly(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 5, 2 * 6), *w = half(scene, 3, 3, 2, 6 * 7);
    want(scene, ggml_conv_3d_direct(ctx, w, x, 1, 2, 1, 1, 1, 0, 1, 1, 2, 6, 2, 7));
    struct ggml_tensor *y = made(scene, 9, 8, 6, 6);
    struct ggml_tensor *bias = ggml_reshape_4d(ctx, made(scene, 7, 1, 1, 1), 1, 1, 1, 7);
    want(scene, ggml_relu(ctx, ggml_add(ctx, ggml_conv_3d_direct(ctx, w, y, 1, 1, 1, 1, 1, 1, 1, 1, 1, 6, 1, 7), bias)));
}

static void images_convolved(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 28, 28, 3, 2), *y = made(scene, 13, 11, 6, 1);
    want(scene, ggml_conv_2d(ctx, half(scene, 7, 7, 3, 20), x, 7, 7, 0, 0, 1, 1));
    struct ggml_tensor *c = ggml_conv_2d(ctx, leaf(scene, GGML_TYPE_F32, WEIGHTS, 3, 3, 6, 9), y, 1, 1, 1, 1, 1, 1);
    want(scene, ggml_add(ctx, c, ggml_reshape_4d(ctx, made(scene, 9, 1, 1, 1), 1, 1, 9, 1)));
}

static void rows_convolved(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 130, 12, 1, 1);
    struct ggml_tensor *c = ggml_conv_1d(ctx, half(scene, 5, 12, 17, 1), x, 2, 2, 1);
    c = ggml_add(ctx, c, ggml_reshape_2d(ctx, made(scene, 17, 1, 1, 1), 1, 17));
    want(scene, ggml_gelu_erf(ctx, ggml_add(ctx, c, made(scene, c->ne[0], 17, 1, 1))));
    want(scene, ggml_neg(ctx, x)); /* whose memory is used again otherwise */
}

static void image_doubled_and_convolved(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *doubled = ggml_upscale(ctx, made(scene, 12, 10, 6, 1), 2, GGML_SCALE_MODE_NEAREST);
    want(scene, ggml_conv_2d(ctx, half(scene, 3, 3, 6, 7), doubled, 1, 1, 1, 1, 1, 1));
}

/* The result's memory is that of the image. */
static void frames_on_image(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 13, 11, 5, 6), *c = frames(scene, x);
    scene->apart = true;
    expand(scene, c);
    want(scene, ggml_neg(scene->ctx, c));
    scene->overlay[scene->overlays++] = (struct overlay){.node = root(c), .on = x};
}

/* The same by parts, so that something comes between them. */
static struct ggml_tensor *product_of(struct scene *scene, struct ggml_tensor *x, struct ggml_tensor *w, bool overwritten)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *matrix = ggml_im2col(ctx, w, x, 1, 1, 1, 1, 1, 1, true, w->type);
    expand(scene, matrix);
    if (overwritten)
        clobber(scene, x);
    struct ggml_tensor *product = ggml_mul_mat(ctx, ggml_reshape_2d(ctx, matrix, matrix->ne[0], matrix->ne[1] * matrix->ne[2]),
                                               ggml_reshape_2d(ctx, w, matrix->ne[0], w->ne[3]));
    expand(scene, product);
    return product;
}

static struct ggml_tensor *image_of(struct scene *scene, struct ggml_tensor *product, const struct ggml_tensor *x)
{
    struct ggml_tensor *split = ggml_reshape_4d(scene->ctx, product, x->ne[0], x->ne[1], 1, product->ne[1]);
    return ggml_cont(scene->ctx, ggml_permute(scene->ctx, split, 0, 1, 3, 2));
}

static void image_overwritten(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1);
    scene->apart = true;
    want(scene, image_of(scene, product_of(scene, x, half(scene, 3, 3, 6, 7), true), x));
}

static void image_overwritten_late(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1), *product = product_of(scene, x, half(scene, 3, 3, 6, 7), false);
    scene->apart = true;
    clobber(scene, x);
    want(scene, image_of(scene, product, x));
}

/* Of one pixel, whose matrix has no room for the result. */
static void matrix_is_small(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1), *w = half(scene, 1, 1, 6, 40);
    struct ggml_tensor *matrix = ggml_im2col(ctx, w, x, 1, 1, 0, 0, 1, 1, true, w->type);
    scene->apart = true;
    expand(scene, matrix);
    clobber(scene, x);
    want(scene, ggml_mul_mat(ctx, ggml_reshape_2d(ctx, matrix, 6, 143), ggml_reshape_2d(ctx, w, 6, 40)));
}

static void convolution_product_wanted(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1), *product = product_of(scene, x, half(scene, 3, 3, 6, 7), false);
    want(scene, product);
    want(scene, image_of(scene, product, x));
}

static void matrix_read_twice(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1), *w = leaf(scene, GGML_TYPE_F32, WEIGHTS, 3, 3, 6, 7);
    struct ggml_tensor *product = product_of(scene, x, w, false), *matrix = product->src[0]->src[0];
    want(scene, ggml_neg(ctx, matrix));
    want(scene, image_of(scene, product, x));
}

/* Weights on the left make a result of rows by pixels. */
static void weights_on_the_left(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1), *w = leaf(scene, GGML_TYPE_F32, WEIGHTS, 3, 3, 6, 7);
    struct ggml_tensor *matrix = ggml_im2col(ctx, w, x, 1, 1, 1, 1, 1, 1, true, w->type);
    want(scene, ggml_mul_mat(ctx, ggml_reshape_2d(ctx, w, 54, 7), ggml_reshape_2d(ctx, matrix, 54, 143)));
}

/* Other weights than those that the matrix is made for. */
static void other_weights(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 11, 6, 1), *w = leaf(scene, GGML_TYPE_F32, WEIGHTS, 3, 3, 6, 7);
    struct ggml_tensor *matrix = ggml_im2col(ctx, w, x, 1, 1, 1, 1, 1, 1, true, w->type);
    want(scene, ggml_mul_mat(ctx, ggml_reshape_2d(ctx, matrix, 54, 143), leaf(scene, GGML_TYPE_F32, WEIGHTS, 54, 5, 1, 1)));
}

static void channels_apart(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 130, 12, 1, 1);
    want(scene, ggml_conv_1d_dw(scene->ctx, half(scene, 3, 1, 12, 1), x, 1, 1, 1));
}

/* ---- paddings ---- */

static void padded(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 13, 17, 12, 2);
    want(scene, ggml_pad(ctx, x, 3, 2, 0, 1));
    want(scene, ggml_pad_ext(ctx, x, 1, 1, 1, 1, 2, 0, 0, 0));
    want(scene, ggml_pad_ext(ctx, ggml_permute(ctx, x, 1, 0, 2, 3), 5, 0, 0, 4, 1, 3, 2, 0));
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

static void sums_and_products(struct scene *scene)
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
    {"padded", padded},
    {"frames_convolved", frames_convolved},
    {"frames_convolved_otherwise", frames_convolved_otherwise},
    {"frames_transformed", frames_transformed},
    {"frames_padded", frames_padded},
    {"frames_padded_after", frames_padded_after},
    {"frames_padded_overwritten", frames_padded_overwritten},
    {"frames_padded_on_image", frames_padded_on_image},
    {"padding_read_twice", padding_read_twice},
    {"image_padded", image_padded},
    {"frames_convolved_directly", frames_convolved_directly},
    {"images_convolved", images_convolved},
    {"rows_convolved", rows_convolved},
    {"image_doubled_and_convolved", image_doubled_and_convolved},
    {"frames_on_image", frames_on_image},
    {"image_overwritten", image_overwritten},
    {"image_overwritten_late", image_overwritten_late},
    {"matrix_is_small", matrix_is_small},
    {"convolution_product_wanted", convolution_product_wanted},
    {"matrix_read_twice", matrix_read_twice},
    {"weights_on_the_left", weights_on_the_left},
    {"other_weights", other_weights},
    {"channels_apart", channels_apart},
    {"norms", norms},
    {"sums_and_products", sums_and_products},
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
