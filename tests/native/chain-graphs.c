/* Graphs of chains: an operation and what follows it, each pattern of runtime/ggml/chains.c and what is next to it; and parts of
 * models, by chance. */
#include "graphs.h"

#include <string.h>

/* ---- a chain, letter by letter ---- */

enum operand { NO_OPERAND, IN, WEIGHTS, BIAS, EMBEDDING, RESIDUAL, WEIGHT, GATE, FACTOR, OPERANDS };

enum { MOST_STEPS = 12, SHIFT = 64 };

struct form {
    /* c, C: a convolution of 3x3, of 1x1; l, d: a product, one of few rows; g, n, m: norms of groups, of rows, of their squares;
     * e: elements as they are. Then
     *   s, S: scale, with a bias          b, B: + bias of a channel or column, another one
     *   t: + time embedding               r, R, J: + residual, on the left, in its place
     *   w: * weight of channel or column  k, K: * gate, + gate: by column and batch
     *   f, F: * factor, on the left       I: + the input
     *   z, Z: + a number for each row of columns or column of pixels, + half as many rows
     *   2, ^: x + x, x * x                v: a view of it
     *   x: + x * gate
     *   i, u, y, q, E, h, o, L, p: SiLU, ReLU, GELU, its approximation and the exact one, tanh, sigmoid, leaky ReLU, clamp */
    const char *steps;
    bool apart;               /* nothing is in place */
    bool late;                /* what is added is computed just before that */
    bool views;               /* what is added and multiplied by has gaps between its rows */
    bool transposed;          /* ... or lies transposed */
    bool f16_weights;
    int64_t batch;
    int read_twice, wanted;   /* a step, the first is 1 */
    enum operand clobbered;   /* memory that is written again after the step `clobber_after` */
    int clobber_after;
    enum operand result_on;   /* the memory that the result takes, or a part of it and of what is behind or before it */
    enum { EXACTLY, PARTLY, BEFORE, TO_THE_END } where;
};

struct chain {
    struct scene *scene;
    struct form form;
    bool rows; /* else images */
    struct ggml_tensor *x, *at[OPERANDS], *step[MOST_STEPS + 1];
};

/* A node of random numbers, whose memory may be used again. */
static struct ggml_tensor *made(struct scene *scene, float factor, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    struct ggml_tensor *node = ggml_neg(scene->ctx, leaf(scene, GGML_TYPE_F32, factor, n0, n1, n2, n3));
    expand(scene, node);
    return node;
}

static struct ggml_tensor *vector(struct chain *chain)
{
    int64_t n = chain->rows ? chain->x->ne[0] : chain->x->ne[2];
    struct ggml_tensor *v = made(chain->scene, 1, n, 1, 1, 1);
    return chain->rows ? v : ggml_reshape_4d(chain->scene->ctx, v, 1, 1, n, 1);
}

/* [1, 1, channels, batch], or of rows [columns, 1, batch], by products. */
static struct ggml_tensor *embedding(struct chain *chain)
{
    struct ggml_context *ctx = chain->scene->ctx;
    const int64_t *ne = chain->x->ne;
    const int64_t n = chain->rows ? ne[0] : ne[2], batch = chain->rows ? ne[2] : ne[3];
    struct ggml_tensor *x = projected(chain->scene, ggml_silu(ctx, made(chain->scene, 1, 16, batch, 1, 1)), n);
    x = ggml_add_inplace(ctx, x, leaf(chain->scene, GGML_TYPE_F32, 1, n, 1, 1, 1));
    return chain->rows ? ggml_reshape_3d(ctx, x, n, 1, batch) : ggml_reshape_4d(ctx, x, 1, 1, n, batch);
}

/* Of the result's shape. */
static struct ggml_tensor *same(struct chain *chain)
{
    struct ggml_context *ctx = chain->scene->ctx;
    const int64_t *ne = chain->x->ne;
    if (chain->form.views) {
        struct ggml_tensor *wide = made(chain->scene, 1, ne[0] + 3, ne[1], ne[2], ne[3]);
        return ggml_view_4d(ctx, wide, ne[0], ne[1], ne[2], ne[3], wide->nb[1], wide->nb[2], wide->nb[3], 2 * wide->nb[0]);
    }
    if (chain->form.transposed)
        return ggml_transpose(ctx, made(chain->scene, 1, ne[1], ne[0], ne[2], ne[3]));
    return made(chain->scene, 1, ne[0], ne[1], ne[2], ne[3]);
}

static struct ggml_tensor *operand(struct chain *chain, enum operand which)
{
    struct ggml_tensor **at = &chain->at[which];
    if (*at)
        return *at;
    switch (which) {
    case BIAS:
    case WEIGHT: *at = vector(chain); break;
    case EMBEDDING:
    case GATE: *at = embedding(chain); break;
    default: *at = same(chain); break;
    }
    expand(chain->scene, *at);
    return *at;
}

static enum operand operand_of(char step)
{
    switch (step) {
    case 'b': return BIAS;
    case 't': return EMBEDDING;
    case 'r':
    case 'R':
    case 'J': return RESIDUAL;
    case 'w': return WEIGHT;
    case 'k':
    case 'x':
    case 'K': return GATE;
    case 'f':
    case 'F': return FACTOR;
    default: return NO_OPERAND;
    }
}

static struct ggml_tensor *head(struct chain *chain, char which)
{
    struct scene *scene = chain->scene;
    struct ggml_context *ctx = scene->ctx;
    const int64_t batch = chain->form.batch ? chain->form.batch : 1;
    const enum ggml_type type = chain->form.f16_weights ? GGML_TYPE_F16 : GGML_TYPE_F32;
    struct ggml_tensor **in = &chain->at[IN], **weights = &chain->at[WEIGHTS];
    const bool square = strchr(chain->form.steps, 'I');
    chain->rows = strchr("ldnme", which);
    switch (which) {
    case 'c':
    case 'C': {
        int64_t k = which == 'c' ? 3 : 1;
        *in = made(scene, 1, 13, 11, square ? 20 : 24, batch);
        *weights = chain->form.f16_weights ? leaf(scene, type, 0.1f, k, k, (*in)->ne[2], 20) : made(scene, 0.1f, k, k, (*in)->ne[2], 20);
        return ggml_conv_2d_direct(ctx, *weights, *in, 1, 1, (int)k / 2, (int)k / 2, 1, 1);
    }
    case 'l':
    case 'd':
        *in = made(scene, 1, square ? 36 : 40, which == 'd' ? 5 : 36, batch, 1);
        *weights = chain->form.f16_weights ? leaf(scene, type, 0.2f, (*in)->ne[0], 36, 1, 1) : made(scene, 0.2f, (*in)->ne[0], 36, 1, 1);
        return ggml_mul_mat(ctx, *weights, *in);
    case 'g': *in = made(scene, 1, 13, 11, 32, batch); return ggml_group_norm(ctx, *in, 8, 1e-6f);
    case 'n':
    case 'm':
        *in = made(scene, 1, 48, 13, batch, 2);
        return which == 'n' ? ggml_norm(ctx, *in, 1e-5f) : ggml_rms_norm(ctx, *in, 1e-5f);
    default: *in = made(scene, 1, 34, 18, 8, batch); return *in;
    }
}

static struct ggml_tensor *sum(struct ggml_context *ctx, bool in_place, struct ggml_tensor *a, struct ggml_tensor *b)
{
    return in_place ? ggml_add_inplace(ctx, a, b) : ggml_add(ctx, a, b);
}

static struct ggml_tensor *times(struct ggml_context *ctx, bool in_place, struct ggml_tensor *a, struct ggml_tensor *b)
{
    return in_place ? ggml_mul_inplace(ctx, a, b) : ggml_mul(ctx, a, b);
}

static struct ggml_tensor *unary(struct ggml_context *ctx, bool in_place, struct ggml_tensor *x, enum ggml_unary_op op)
{
    return in_place ? ggml_unary_inplace(ctx, x, op) : ggml_unary(ctx, x, op);
}

static struct ggml_tensor *step(struct chain *chain, char which, bool in_place)
{
    struct scene *scene = chain->scene;
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = chain->x;
    struct ggml_tensor *with = operand_of(which) ? operand(chain, operand_of(which)) : NULL;
    switch (which) {
    case 's': return in_place ? ggml_scale_inplace(ctx, x, 0.7f) : ggml_scale(ctx, x, 0.7f);
    case 'S': return ggml_scale_bias(ctx, x, 0.7f, 0.3f);
    case 'B': return sum(ctx, in_place, x, vector(chain));
    case 'b':
    case 't':
    case 'K':
    case 'r': return sum(ctx, in_place, x, with);
    case 'R': return ggml_add(ctx, with, x);
    case 'J': return ggml_add_inplace(ctx, with, x);
    case 'w':
    case 'k':
    case 'f': return times(ctx, in_place, x, with);
    case 'F': return ggml_mul(ctx, with, x);
    case 'I': return sum(ctx, in_place, x, chain->at[IN]);
    case 'z':
        return sum(ctx, in_place, x, chain->rows ? made(scene, 1, 1, x->ne[1], 1, 1) : made(scene, 1, x->ne[0], 1, 1, 1));
    case 'Z': return sum(ctx, in_place, x, made(scene, 1, x->ne[0], x->ne[1] / 2, 1, 1));
    case 'x': return ggml_add(ctx, x, ggml_mul(ctx, x, with));
    case '2': return ggml_add(ctx, x, x);
    case '^': return ggml_mul(ctx, x, x);
    case 'v': return ggml_reshape_4d(ctx, x, x->ne[0], x->ne[1], x->ne[2], x->ne[3]);
    case 'i': return unary(ctx, in_place, x, GGML_UNARY_OP_SILU);
    case 'u': return unary(ctx, in_place, x, GGML_UNARY_OP_RELU);
    case 'y': return unary(ctx, in_place, x, GGML_UNARY_OP_GELU);
    case 'q': return unary(ctx, in_place, x, GGML_UNARY_OP_GELU_QUICK);
    case 'E': return unary(ctx, in_place, x, GGML_UNARY_OP_GELU_ERF);
    case 'h': return unary(ctx, in_place, x, GGML_UNARY_OP_TANH);
    case 'o': return unary(ctx, in_place, x, GGML_UNARY_OP_SIGMOID);
    case 'L': return ggml_leaky_relu(ctx, x, 0.1f, in_place);
    case 'p': return ggml_clamp(ctx, x, -0.5f, 1.25f);
    default: die("no step %c", which);
    }
}

static void build_chain(struct scene *scene, struct form form)
{
    struct chain chain = {.scene = scene, .form = form};
    const char *steps = form.steps;
    scene->apart = true;
    chain.x = chain.step[1] = head(&chain, steps[0]);
    if (strpbrk(steps, "yq") || form.f16_weights)
        scene->tolerance = 3e-3; /* a table of half precision, or products of it */
    for (size_t i = 1; steps[i] && !form.late; i++)
        if (operand_of(steps[i]))
            operand(&chain, operand_of(steps[i]));
    for (int i = 1; steps[i]; i++) {
        if (steps[0] != 'e' || i > 1)
            expand(scene, chain.x);
        if (form.clobber_after == i)
            clobber(scene, chain.at[form.clobbered]);
        const bool in_place = !form.apart && !form.wanted && !form.read_twice && (steps[0] != 'e' || i > 1);
        chain.x = chain.step[i + 1] = step(&chain, steps[i], in_place);
        if (form.read_twice == i)
            want(scene, ggml_cont(scene->ctx, chain.step[i]));
        if (form.wanted == i)
            want(scene, chain.step[i]);
    }
    want(scene, ggml_neg(scene->ctx, chain.x)); /* what is wanted is no view */
    if (form.result_on) {
        struct ggml_tensor *on = root(chain.at[form.result_on]);
        const int64_t behind = (int64_t)ggml_nbytes(on) - (int64_t)ggml_nbytes(chain.x);
        const int64_t offset[] = {[EXACTLY] = 0, [PARTLY] = SHIFT, [BEFORE] = -SHIFT, [TO_THE_END] = -(-behind / SHIFT + 1) * SHIFT};
        scene->overlay[scene->overlays++] = (struct overlay){.node = chain.x, .on = on, .offset = offset[form.where]};
    }
}

static const struct {
    const char *name;
    struct form form;
} chains[] = {
    {"conv_bias", {.steps = "cb"}},
    {"conv_resblock", {.steps = "cbtri"}},
    {"conv_resblock_apart", {.steps = "cbtri", .apart = true}},
    {"conv_resblock_late", {.steps = "cbtri", .late = true}},
    {"conv_f16", {.steps = "cbtri", .f16_weights = true}},
    {"conv_1x1", {.steps = "Cbru"}},
    {"conv_batched", {.steps = "cbri", .batch = 2}},
    {"conv_residual_left", {.steps = "cbR"}},
    {"conv_in_place_of_residual", {.steps = "cbJi"}},
    {"conv_scale", {.steps = "csbrif", .apart = true}},
    {"conv_two_biases", {.steps = "cbBr"}},
    {"conv_no_bias", {.steps = "cr"}},
    {"conv_clamp", {.steps = "cbp"}},
    {"conv_factor_left", {.steps = "cbF"}},
    {"linear_bias", {.steps = "lb"}},
    {"linear_residual", {.steps = "lbr"}},
    {"linear_residual_left", {.steps = "lbR", .batch = 2}},
    {"linear_residual_view", {.steps = "lbr", .views = true, .batch = 2}},
    {"linear_gate", {.steps = "lbkr"}},
    {"linear_gate_batched", {.steps = "lbkr", .batch = 3}},
    {"linear_gate_apart", {.steps = "lbkr", .batch = 3, .apart = true, .late = true}},
    {"linear_add_by_batch", {.steps = "lbK", .batch = 2}},
    {"linear_f16", {.steps = "lbr", .f16_weights = true}},
    {"linear_all", {.steps = "lsbkrif", .batch = 2}},
    {"linear_few_rows", {.steps = "dbkrif", .batch = 2}},
    {"linear_two_biases", {.steps = "lbB"}},
    {"linear_gelu", {.steps = "lby"}},
    {"linear_gelu_quick", {.steps = "lbq"}},
    {"linear_gelu_erf", {.steps = "lbE"}},
    {"linear_tanh", {.steps = "lbh"}},
    {"linear_sigmoid", {.steps = "lbo"}},
    {"linear_relu", {.steps = "lbu"}},
    {"linear_leaky", {.steps = "lbL"}},
    {"group_norm", {.steps = "gwbi"}},
    {"group_norm_batched", {.steps = "gwbi", .batch = 2, .apart = true}},
    {"group_norm_bias", {.steps = "gb"}},
    {"norm", {.steps = "nwb"}},
    {"norm_apart", {.steps = "nwb", .batch = 3, .apart = true}},
    {"rms_norm", {.steps = "mw"}},
    {"rms_norm_bias", {.steps = "mwb"}},
    {"norm_modulated", {.steps = "nxK", .batch = 3, .apart = true}},
    {"norm_modulated_late", {.steps = "nxK", .batch = 3, .late = true}},
    {"norm_modulated_weight", {.steps = "nwxb"}},
    {"rms_norm_modulated", {.steps = "mwx", .batch = 2}},
    {"elements", {.steps = "ewbif"}},
    {"elements_apart", {.steps = "ewbif", .apart = true, .batch = 2}},
    {"elements_of_views", {.steps = "erif", .views = true}},
    {"elements_scale", {.steps = "eSwrf"}},
    {"elements_gate", {.steps = "ekrif", .batch = 2}},
    {"elements_by_row", {.steps = "ezf"}},
    {"elements_left", {.steps = "eiF"}},
    {"elements_function", {.steps = "eEf", .apart = true}},
    /* Next to the patterns. */
    {"head_read_twice", {.steps = "cbr", .read_twice = 1}},
    {"bias_read_twice", {.steps = "cbr", .read_twice = 2}},
    {"head_wanted", {.steps = "lbr", .wanted = 1}},
    {"bias_wanted", {.steps = "lbr", .wanted = 2}},
    {"residual_wanted", {.steps = "lbri", .wanted = 3}},
    {"norm_wanted", {.steps = "nwb", .wanted = 1}},
    {"elements_read_twice", {.steps = "ewbif", .read_twice = 3}},
    {"linear_in_place_of_view", {.steps = "lbJ", .views = true}},
    {"view_between", {.steps = "cbvr"}},
    {"conv_residual_view", {.steps = "cbr", .views = true}},
    {"conv_residual_transposed", {.steps = "cbr", .transposed = true}},
    {"linear_residual_transposed", {.steps = "lbr", .transposed = true}},
    {"elements_transposed", {.steps = "eir", .transposed = true}},
    {"conv_embedding_batched", {.steps = "cbti", .batch = 2}},
    {"conv_three_biases", {.steps = "cbBB"}},
    {"conv_by_column", {.steps = "cbz"}},
    {"linear_by_row", {.steps = "lbz"}},
    {"linear_half_repeated", {.steps = "lbZ"}},
    {"elements_half_repeated", {.steps = "eiZ"}},
    {"linear_scale_with_bias", {.steps = "lSb"}},
    {"scale_after_bias", {.steps = "lbs"}},
    {"doubled_by_addition", {.steps = "cb2"}},
    {"squared", {.steps = "lb^"}},
    {"norm_bias_first", {.steps = "gbw"}},
    {"norm_function", {.steps = "nwbi"}},
    {"norm_modulated_read_again", {.steps = "nxK", .read_twice = 1}},
    {"norm_modulated_wanted", {.steps = "nxK", .wanted = 1}},
    {"norm_modulated_twice", {.steps = "nxx"}},
    {"elements_modulated", {.steps = "eixf"}},
    {"two_residuals", {.steps = "lrr"}},
    {"function_twice", {.steps = "lii"}},
    {"input_added", {.steps = "lbI"}},
    {"input_added_conv", {.steps = "cbI"}},
    /* Memory that is used again. */
    {"conv_on_input", {.steps = "cbr", .apart = true, .result_on = IN}},
    {"conv_on_weights", {.steps = "cbr", .apart = true, .result_on = WEIGHTS}},
    {"conv_on_bias", {.steps = "cbr", .apart = true, .result_on = BIAS, .where = TO_THE_END}},
    {"conv_on_embedding", {.steps = "cbtr", .apart = true, .result_on = EMBEDDING, .where = TO_THE_END}},
    {"conv_on_residual", {.steps = "cbr", .apart = true, .result_on = RESIDUAL}},
    {"conv_on_residual_batched", {.steps = "cbri", .apart = true, .result_on = RESIDUAL, .batch = 2}},
    {"conv_partly_on_residual", {.steps = "cbri", .apart = true, .result_on = RESIDUAL, .where = PARTLY}},
    {"conv_scaled_on_residual", {.steps = "csbr", .apart = true, .result_on = RESIDUAL}},
    {"conv_on_factor", {.steps = "cbf", .apart = true, .result_on = FACTOR}},
    {"conv_on_input_added", {.steps = "cbI", .apart = true, .result_on = IN}},
    {"linear_on_input", {.steps = "lbr", .apart = true, .result_on = IN}},
    {"linear_partly_on_input", {.steps = "lbr", .apart = true, .result_on = IN, .where = PARTLY}},
    {"linear_on_weights", {.steps = "lbr", .apart = true, .result_on = WEIGHTS}},
    {"linear_on_bias", {.steps = "lbr", .apart = true, .result_on = BIAS, .where = TO_THE_END}},
    {"linear_on_residual", {.steps = "lbri", .apart = true, .result_on = RESIDUAL, .batch = 2}},
    {"linear_few_rows_on_residual", {.steps = "dbrif", .apart = true, .result_on = RESIDUAL, .batch = 2}},
    {"linear_gate_on_residual", {.steps = "lbkr", .apart = true, .result_on = RESIDUAL}},
    {"linear_partly_on_residual", {.steps = "lbri", .apart = true, .result_on = RESIDUAL, .where = PARTLY}},
    {"group_norm_on_input", {.steps = "gwbi", .apart = true, .result_on = IN}},
    {"group_norm_partly_on_input", {.steps = "gwbi", .apart = true, .result_on = IN, .where = PARTLY}},
    {"group_norm_on_weight", {.steps = "gwbi", .apart = true, .result_on = WEIGHT, .where = TO_THE_END}},
    {"norm_on_input", {.steps = "nwb", .apart = true, .result_on = IN}},
    {"norm_partly_on_input", {.steps = "nwb", .apart = true, .result_on = IN, .where = PARTLY}},
    {"norm_modulated_on_input", {.steps = "nxK", .apart = true, .result_on = IN, .batch = 2}},
    {"norm_modulated_on_gate", {.steps = "nxb", .apart = true, .result_on = GATE, .where = TO_THE_END}},
    {"gate_of_norm_overwritten", {.steps = "nxb", .apart = true, .clobbered = GATE, .clobber_after = 2}},
    {"elements_on_input", {.steps = "erif", .apart = true, .result_on = IN}},
    {"elements_on_residual", {.steps = "erif", .apart = true, .result_on = RESIDUAL}},
    {"elements_on_factor", {.steps = "erif", .apart = true, .result_on = FACTOR}},
    {"elements_partly_on_input", {.steps = "eri", .apart = true, .result_on = IN, .where = PARTLY}},
    {"elements_partly_on_residual", {.steps = "eri", .apart = true, .result_on = RESIDUAL, .where = BEFORE}},
    {"elements_on_weight", {.steps = "ewri", .apart = true, .result_on = WEIGHT, .where = TO_THE_END}},
    {"input_overwritten", {.steps = "cbr", .apart = true, .clobbered = IN, .clobber_after = 1}},
    {"input_overwritten_late", {.steps = "cbr", .apart = true, .clobbered = IN, .clobber_after = 2}},
    {"weights_overwritten", {.steps = "lbr", .apart = true, .clobbered = WEIGHTS, .clobber_after = 1}},
    {"bias_overwritten", {.steps = "cbr", .apart = true, .clobbered = BIAS, .clobber_after = 2}},
    {"residual_overwritten", {.steps = "lbri", .apart = true, .clobbered = RESIDUAL, .clobber_after = 3}},
    {"gate_overwritten", {.steps = "lbkr", .apart = true, .clobbered = GATE, .clobber_after = 3}},
    {"norm_input_overwritten", {.steps = "gwbi", .apart = true, .clobbered = IN, .clobber_after = 1}},
    {"norm_weight_overwritten", {.steps = "gwbi", .apart = true, .clobbered = WEIGHT, .clobber_after = 2}},
    {"elements_overwritten", {.steps = "erif", .apart = true, .clobbered = RESIDUAL, .clobber_after = 2}},
    {"hole", {.steps = "cbri", .apart = true, .late = true, .clobbered = IN, .clobber_after = 3}},
};

/* ---- more than one chain ---- */

static struct ggml_tensor *columns(struct scene *scene, struct ggml_tensor *x)
{
    return ggml_add_inplace(scene->ctx, x, leaf(scene, GGML_TYPE_F32, 1, x->ne[0], 1, 1, 1));
}

static struct ggml_tensor *channels(struct scene *scene, struct ggml_tensor *x)
{
    return leaf(scene, GGML_TYPE_F32, 1, 1, 1, x->ne[2], 1);
}

static struct ggml_tensor *convolved(struct scene *scene, struct ggml_tensor *x, int64_t out, int64_t kernel)
{
    struct ggml_tensor *w = leaf(scene, GGML_TYPE_F32, 1 / sqrtf((float)(x->ne[2] * kernel * kernel)), kernel, kernel, x->ne[2], out);
    struct ggml_tensor *c = ggml_conv_2d_direct(scene->ctx, w, x, 1, 1, (int)kernel / 2, (int)kernel / 2, 1, 1);
    return ggml_add_inplace(scene->ctx, c, channels(scene, c));
}

/* The first one takes it. */
static void one_addition_of_two(struct scene *scene)
{
    scene->apart = true;
    struct ggml_tensor *x = made(scene, 1, 40, 30, 1, 1), *y = made(scene, 1, 24, 30, 1, 1);
    struct ggml_tensor *a = columns(scene, projected(scene, x, 36));
    expand(scene, a);
    want(scene, ggml_silu(scene->ctx, ggml_add(scene->ctx, a, columns(scene, projected(scene, y, 36)))));
}

/* A residual that is the result of a chain, of a resblock's second convolution and of its skip. */
static void skip_convolved(struct scene *scene)
{
    scene->apart = true;
    struct ggml_tensor *x = made(scene, 1, 9, 12, 24, 1);
    struct ggml_tensor *h = convolved(scene, convolved(scene, x, 20, 3), 20, 3);
    want(scene, ggml_add(scene->ctx, h, convolved(scene, x, 20, 1)));
}

/* A gate that is halves of a projection: VIEW VIEW CONT GELU MUL. */
static struct ggml_tensor *geglu(struct scene *scene, struct ggml_tensor *x, int64_t inner, bool in_place)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *both = columns(scene, projected(scene, x, 2 * inner));
    size_t half = (size_t)inner * sizeof(float);
    struct ggml_tensor *values = ggml_view_4d(ctx, both, inner, both->ne[1], both->ne[2], both->ne[3], both->nb[1], both->nb[2],
                                              both->nb[3], 0);
    struct ggml_tensor *gate = ggml_cont(ctx, ggml_view_4d(ctx, both, inner, both->ne[1], both->ne[2], both->ne[3], both->nb[1],
                                                           both->nb[2], both->nb[3], half));
    return ggml_mul(ctx, values, in_place ? ggml_gelu_inplace(ctx, gate) : ggml_gelu(ctx, gate));
}

static void gated(struct scene *scene)
{
    scene->tolerance = 3e-3;
    struct ggml_tensor *x = made(scene, 1, 24, 65, 2, 1);
    want(scene, ggml_add(scene->ctx, columns(scene, projected(scene, geglu(scene, x, 64, true), 24)), x));
}

static void gated_apart(struct scene *scene)
{
    scene->tolerance = 3e-3;
    want(scene, geglu(scene, made(scene, 1, 24, 65, 1, 1), 64, false));
}

/* What the copy is made of is written again before the copy is read. */
static void copied_overwritten(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 1, 70, 65, 1, 1);
    struct ggml_tensor *copy = ggml_cont(scene->ctx, x);
    expand(scene, copy);
    clobber(scene, x);
    want(scene, ggml_silu(scene->ctx, copy));
}

static struct ggml_tensor *copied_part(struct scene *scene, struct ggml_tensor *x)
{
    return ggml_silu(scene->ctx, ggml_cont(scene->ctx, ggml_view_2d(scene->ctx, x, 70, 65, x->nb[1], x->nb[1] - 70 * sizeof(float))));
}

static void copied(struct scene *scene)
{
    want(scene, copied_part(scene, made(scene, 1, 140, 65, 1, 1)));
}

/* The result's memory is that of what is copied: its rows are others, or the same. */
static void copied_onto_wider(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 1, 140, 65, 1, 1), *y = copied_part(scene, x);
    want(scene, y);
    scene->overlay[scene->overlays++] = (struct overlay){.node = y, .on = x};
}

static void copied_onto_itself(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 1, 70, 65, 1, 1), *y = copied_part(scene, x);
    want(scene, y);
    scene->overlay[scene->overlays++] = (struct overlay){.node = y, .on = x};
}

/* Next to that: the copy exchanges dimensions, or is read by another too. */
static void copied_transposed(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    want(scene, ggml_silu(ctx, ggml_cont(ctx, ggml_transpose(ctx, made(scene, 1, 70, 65, 1, 1)))));
}

static void copied_for_two(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *copy = ggml_cont(ctx, ggml_permute(ctx, made(scene, 1, 40, 13, 9, 1), 0, 2, 1, 3));
    want(scene, ggml_silu(ctx, copy));
    want(scene, ggml_scale(ctx, copy, 3));
}

/* The copy that an attention ends with is no copy any more. There is working memory for it, for something else needs as much. */
static void attention_scaled(struct scene *scene)
{
    want(scene, projected(scene, made(scene, 1, 300, 300, 1, 1), 500));
    struct ggml_tensor *product;
    struct ggml_tensor *out = as_queries(scene, leaf(scene, GGML_TYPE_F32, 1, 40, 37, 3, 1), &product);
    want(scene, ggml_add(scene->ctx, ggml_scale(scene->ctx, out, 1.5f), leaf(scene, GGML_TYPE_F32, 1, 40, 3, 37, 1)));
}

static void attention_unmerged_scaled(struct scene *scene)
{
    struct ggml_tensor *product;
    as_queries(scene, leaf(scene, GGML_TYPE_F32, 1, 40, 37, 3, 1), &product);
    want(scene, ggml_scale(scene->ctx, ggml_silu(scene->ctx, product), 1.5f));
}

/* A transformer's block: norm, attention of projections with biases, its projection with bias and residual. */
static void around_attention(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 24, 37, 1, 1), *product;
    struct ggml_tensor *n = ggml_norm(ctx, x, 1e-5f);
    n = ggml_add_inplace(ctx, ggml_mul_inplace(ctx, n, leaf(scene, GGML_TYPE_F32, 1, 24, 1, 1, 1)), leaf(scene, GGML_TYPE_F32, 1, 24, 1, 1, 1));
    struct ggml_tensor *q = ggml_reshape_3d(ctx, columns(scene, projected(scene, n, 48)), 16, 3, 37);
    struct ggml_tensor *a = as_queries(scene, ggml_cont(ctx, ggml_permute(ctx, q, 0, 2, 1, 3)), &product);
    want(scene, ggml_add(ctx, columns(scene, projected(scene, ggml_reshape_2d(ctx, a, 48, 37), 24)), x));
}

static struct ggml_tensor *doubled(struct scene *scene, struct ggml_tensor *x, int64_t out)
{
    return convolved(scene, ggml_upscale(scene->ctx, x, 2, GGML_SCALE_MODE_NEAREST), out, 3);
}

static void doubled_image(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 1, 7, 5, 24, 1);
    want(scene, ggml_silu(scene->ctx, ggml_add(scene->ctx, doubled(scene, x, 20), made(scene, 1, 14, 10, 20, 1))));
}

/* The image's memory is that of the last of the chain: it is copied. */
static void doubled_on_image(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 1, 7, 5, 96, 1);
    struct ggml_tensor *out = ggml_add(scene->ctx, doubled(scene, x, 20), made(scene, 1, 14, 10, 20, 1));
    want(scene, out);
    scene->overlay[scene->overlays++] = (struct overlay){.node = out, .on = x};
}

/* And here by a node between. */
static void doubled_overwritten(struct scene *scene)
{
    struct ggml_tensor *x = made(scene, 1, 7, 5, 96, 1), *c = doubled(scene, x, 20);
    expand(scene, c);
    clobber(scene, x);
    want(scene, ggml_add(scene->ctx, c, made(scene, 1, 14, 10, 20, 1)));
}

/* In the place of a tensor that is still read: what is not computed by itself would be missing there. */
static void read_where_it_was(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 70, 65, 1, 1);
    struct ggml_tensor *scaled = ggml_scale_inplace(ctx, x, 0.5f);
    want(scene, ggml_add(ctx, scaled, made(scene, 1, 70, 65, 1, 1)));
    struct ggml_tensor *later = ggml_cont(ctx, x);
    want(scene, later);
    double *at = memory((size_t)ggml_nelements(x) * sizeof *at);
    memcpy(at, exact(scene, scaled), (size_t)ggml_nelements(x) * sizeof *at);
    scene->numbers[scene->known++] = (struct numbers){later, at};
}

static void wanted_where_it_was(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 70, 65, 1, 1);
    struct ggml_tensor *scaled = ggml_scale_inplace(ctx, x, 0.5f);
    ggml_set_output(x);
    want(scene, ggml_add(ctx, scaled, made(scene, 1, 70, 65, 1, 1)));
    const double *halved = exact(scene, scaled);
    for (int i = 0; i < scene->known; i++)
        if (scene->numbers[i].of == x)
            memcpy(scene->numbers[i].at, halved, (size_t)ggml_nelements(x) * sizeof *halved);
}

/* Half precision on the left makes a result of that. */
static void half_on_the_left(struct scene *scene)
{
    scene->tolerance = 2e-3;
    struct ggml_tensor *x = columns(scene, projected(scene, made(scene, 1, 40, 30, 1, 1), 36));
    want(scene, ggml_cast(scene->ctx, ggml_add(scene->ctx, leaf(scene, GGML_TYPE_F16, 1, 36, 30, 1, 1), x), GGML_TYPE_F32));
}

static void half_factor(struct scene *scene)
{
    scene->tolerance = 2e-3;
    struct ggml_tensor *x = columns(scene, projected(scene, made(scene, 1, 40, 30, 1, 1), 36));
    struct ggml_tensor *half = ggml_cast(scene->ctx, x, GGML_TYPE_F16);
    want(scene, ggml_cast(scene->ctx, ggml_mul(scene->ctx, half, made(scene, 1, 36, 30, 1, 1)), GGML_TYPE_F32));
}

/* Copies that lay out anew: to tokens and back, and joined. */
static void permuted(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 16, 15, 20, 1);
    struct ggml_tensor *tokens = ggml_reshape_3d(ctx, ggml_cont(ctx, ggml_permute(ctx, x, 1, 2, 0, 3)), 20, 240, 1);
    want(scene, ggml_cont(ctx, ggml_permute(ctx, tokens, 1, 0, 2, 3)));
    want(scene, ggml_cont(ctx, ggml_permute(ctx, x, 0, 2, 1, 3)));
}

static void joined(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 9, 16, 20, 2);
    want(scene, ggml_concat(ctx, x, made(scene, 1, 9, 16, 7, 2), 2));
    want(scene, ggml_concat(ctx, ggml_permute(ctx, x, 1, 0, 2, 3), made(scene, 1, 5, 9, 20, 2), 0));
    want(scene, ggml_concat(ctx, x, made(scene, 1, 9, 3, 20, 2), 1));
    want(scene, ggml_concat(ctx, x, made(scene, 1, 9, 16, 20, 1), 3));
}

/* ---- norms before convolutions ---- */

struct before {
    int64_t width, height, channels, out, batch;
    int64_t kernel; /* 0: 3 */
    bool residual, apart;
    bool twice, wanted;                     /* the norm: read twice, wanted */
    bool in_place;                          /* nothing but a norm, in the place of x, which is read before too */
    bool x_overwritten, weight_overwritten; /* after the norm */
    bool on_x;                              /* the result's memory is x's, from `offset` on */
    int64_t offset;
};

static struct ggml_tensor *group_normed(struct scene *scene, struct ggml_tensor *x, struct ggml_tensor *weight, bool in_place)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *n = times(ctx, in_place, ggml_group_norm(ctx, x, 4, 1e-6f), weight);
    return unary(ctx, in_place, sum(ctx, in_place, n, channels(scene, n)), GGML_UNARY_OP_SILU);
}

static void build_before(struct scene *scene, struct before form)
{
    struct ggml_context *ctx = scene->ctx;
    scene->apart = form.apart || form.on_x;
    struct ggml_tensor *x = made(scene, 1, form.width ? form.width : 64, form.height ? form.height : 66, form.channels ? form.channels : 24,
                                 form.batch ? form.batch : 1);
    struct ggml_tensor *weight = ggml_reshape_4d(ctx, made(scene, 1, x->ne[2], 1, 1, 1), 1, 1, x->ne[2], 1);
    if (form.in_place)
        want(scene, ggml_scale(ctx, x, 2));
    struct ggml_tensor *n =
        form.in_place ? ggml_group_norm_inplace(ctx, x, 4, 1e-6f) : group_normed(scene, x, weight, !form.wanted);
    expand(scene, n);
    if (form.x_overwritten)
        clobber(scene, x);
    if (form.weight_overwritten)
        clobber(scene, weight);
    if (form.wanted)
        want(scene, n);
    struct ggml_tensor *c = convolved(scene, n, form.out ? form.out : x->ne[2], form.kernel ? form.kernel : 3);
    if (form.residual)
        c = ggml_add(ctx, c, x);
    if (form.twice)
        want(scene, ggml_scale(ctx, n, 2));
    want(scene, ggml_neg(ctx, c));
    if (form.on_x)
        scene->overlay[scene->overlays++] = (struct overlay){.node = root(c), .on = x, .offset = form.offset};
}

/* Two of them, with an embedding and a residual between them, whose memory is used again. */
static void normed_resblock(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 64, 66, 24, 1);
    struct ggml_tensor *e = ggml_reshape_4d(ctx, projected(scene, made(scene, 1, 16, 1, 1, 1), 24), 1, 1, 24, 1);
    expand(scene, e);
    struct ggml_tensor *h = ggml_add_inplace(ctx, convolved(scene, group_normed(scene, x, channels(scene, x), true), 24, 3), e);
    want(scene, ggml_neg(ctx, ggml_add(ctx, convolved(scene, group_normed(scene, h, channels(scene, h), true), 24, 3), x)));
}

static const struct {
    const char *name;
    struct before form;
} befores[] = {
    {"normed", {.apart = true}},
    {"normed_reused", {.out = 32}},
    {"normed_batched", {.batch = 3, .height = 65}},
    {"normed_residual", {.residual = true, .batch = 2}},
    {"normed_on_x", {.on_x = true}},
    {"normed_on_x_residual", {.on_x = true, .residual = true}},
    {"normed_on_x_batched", {.on_x = true, .batch = 2}},
    {"normed_on_x_fewer", {.on_x = true, .out = 17}},
    {"normed_by_1x1", {.kernel = 1, .batch = 2, .apart = true}},
    {"normed_by_5x5", {.kernel = 5, .out = 4, .batch = 2, .apart = true}},
    /* Next to that. */
    {"normed_small", {.width = 63, .height = 65}},
    {"normed_on_x_by_1x1", {.on_x = true, .kernel = 1}},
    {"normed_on_x_by_5x5", {.on_x = true, .kernel = 5, .out = 4}},
    {"normed_twice", {.twice = true}},
    {"normed_wanted", {.wanted = true}},
    {"normed_in_place", {.in_place = true, .apart = true}},
    {"normed_overwritten", {.x_overwritten = true, .apart = true}},
    {"normed_weight_overwritten", {.weight_overwritten = true, .apart = true}},
    {"normed_partly_on_x", {.on_x = true, .offset = SHIFT}},
    {"normed_on_x_fewer_batched", {.on_x = true, .out = 17, .batch = 2}},
};

/* ---- norms of what a convolution writes ---- */

enum { LARGE = 256 }; /* pixels each way, from which on it makes their sums */

static struct ggml_tensor *written(struct scene *scene, int64_t size)
{
    struct ggml_tensor *x = made(scene, 1, size, size, 4, 1), *h = convolved(scene, x, 8, 3);
    expand(scene, h);
    return h;
}

/* One norm before a convolution, one by itself. */
static void summed(struct scene *scene)
{
    struct ggml_tensor *h = written(scene, LARGE);
    want(scene, ggml_neg(scene->ctx, convolved(scene, group_normed(scene, h, channels(scene, h), true), 4, 3)));
    want(scene, ggml_neg(scene->ctx, group_normed(scene, h, channels(scene, h), true)));
}

static void summed_residual(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = written(scene, LARGE);
    struct ggml_tensor *h = ggml_add(ctx, convolved(scene, x, 8, 3), x);
    want(scene, ggml_neg(ctx, ggml_add(ctx, convolved(scene, group_normed(scene, h, channels(scene, h), true), 8, 3), h)));
}

static void summed_small(struct scene *scene)
{
    struct ggml_tensor *h = written(scene, LARGE / 2);
    want(scene, ggml_neg(scene->ctx, convolved(scene, group_normed(scene, h, channels(scene, h), true), 4, 3)));
}

/* Written again in between, with half of the numbers, of which the norm is the same. */
static void summed_overwritten(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *h = written(scene, LARGE), *halved = ggml_scale_inplace(ctx, h, 0.5f);
    scene->apart = true;
    want(scene, ggml_neg(ctx, halved));
    want(scene, ggml_neg(ctx, group_normed(scene, h, channels(scene, h), true)));
}

static void summed_by_1x1(struct scene *scene)
{
    struct ggml_tensor *h = convolved(scene, written(scene, LARGE), 8, 1);
    want(scene, ggml_neg(scene->ctx, group_normed(scene, h, channels(scene, h), true)));
}

/* The norm is not of the convolution's channels, which are rows here. */
static void summed_as_one_channel(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 256, 256, 4, 1), *w = leaf(scene, GGML_TYPE_F32, 0.2f, 3, 3, 4, 8);
    struct ggml_tensor *patches = ggml_im2col(ctx, w, x, 1, 1, 1, 1, 1, 1, true, GGML_TYPE_F32);
    patches = ggml_reshape_2d(ctx, patches, patches->ne[0], patches->ne[1] * patches->ne[2]);
    scene->apart = true;
    want(scene, ggml_neg(ctx, ggml_group_norm(ctx, ggml_mul_mat(ctx, patches, ggml_reshape_2d(ctx, w, 36, 8)), 1, 1e-6f)));
}

/* Its projections may write their results where they would be copied to. */
static void attention_unbiased(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 40, 30, 2, 1), *n = ggml_rms_norm(ctx, x, 1e-5f), *of[3];
    for (int i = 0; i < 3; i++) { /* values, keys, queries */
        struct ggml_tensor *heads = ggml_reshape_4d(ctx, projected(scene, n, 40), 8, 5, 30, 2);
        of[i] = ggml_cont(ctx, i == 0 ? ggml_permute(ctx, heads, 1, 2, 0, 3) : ggml_permute(ctx, heads, 0, 2, 1, 3));
        expand(scene, of[i]);
    }
    struct ggml_tensor *scores = ggml_soft_max(ctx, ggml_scale(ctx, ggml_mul_mat(ctx, of[1], of[2]), 0.25f));
    struct ggml_tensor *out = ggml_cont(ctx, ggml_permute(ctx, ggml_mul_mat(ctx, of[0], scores), 0, 2, 1, 3));
    want(scene, ggml_add(ctx, columns(scene, projected(scene, ggml_reshape_3d(ctx, out, 40, 30, 2), 40)), x));
}

/* ---- images of tokens ---- */

static struct ggml_tensor *to_tokens(struct scene *scene, struct ggml_tensor *x)
{
    struct ggml_context *ctx = scene->ctx;
    return ggml_reshape_3d(ctx, ggml_cont(ctx, ggml_permute(ctx, x, 1, 2, 0, 3)), x->ne[2], x->ne[0] * x->ne[1], x->ne[3]);
}

static struct ggml_tensor *to_image(struct scene *scene, struct ggml_tensor *x, int64_t width)
{
    struct ggml_context *ctx = scene->ctx;
    x = ggml_cont(ctx, ggml_permute(ctx, x, 1, 0, 2, 3));
    return ggml_reshape_4d(ctx, x, width, x->ne[0] / width, x->ne[1], x->ne[2]);
}

/* A transformer's way in and out. */
static void tokens_of_transformer(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 13, 11, 36, 2), *h = ggml_group_norm(ctx, x, 4, 1e-6f);
    h = ggml_add_inplace(ctx, ggml_mul_inplace(ctx, h, channels(scene, h)), channels(scene, h));
    h = to_tokens(scene, convolved(scene, h, 36, 1));
    h = ggml_add(ctx, columns(scene, projected(scene, ggml_rms_norm(ctx, h, 1e-5f), 36)), h);
    want(scene, ggml_add(ctx, convolved(scene, to_image(scene, h, 13), 36, 1), x));
}

enum tokens_form { TIGHT, WITH_GAPS, WITH_LARGER_KERNEL, COPIED_AS_THEY_ARE };

/* The convolution's result, with a residual; the copy is `image`. */
static struct ggml_tensor *of_tokens(struct scene *scene, enum tokens_form form, struct ggml_tensor **tokens, struct ggml_tensor **image)
{
    struct ggml_context *ctx = scene->ctx;
    scene->apart = true;
    *tokens = made(scene, 1, 40, 143, 1, 1);
    struct ggml_tensor *x = *tokens;
    if (form == WITH_GAPS)
        x = ggml_view_2d(ctx, x, 33, 143, x->nb[1], 3 * x->nb[0]);
    *image = form == COPIED_AS_THEY_ARE ? ggml_reshape_4d(ctx, ggml_cont(ctx, x), 13, 11, 40, 1) : to_image(scene, x, 13);
    struct ggml_tensor *residual = made(scene, 1, 13, 11, 20, 1);
    expand(scene, residual);
    expand(scene, *image);
    return ggml_add(ctx, convolved(scene, *image, 20, form == WITH_LARGER_KERNEL ? 3 : 1), residual);
}

static void tokens_in(struct scene *scene, enum tokens_form form)
{
    struct ggml_tensor *tokens, *image;
    want(scene, of_tokens(scene, form, &tokens, &image));
}

static void tokens_convolved(struct scene *scene)
{
    tokens_in(scene, TIGHT);
}

static void tokens_with_gaps(struct scene *scene)
{
    tokens_in(scene, WITH_GAPS);
}

/* Next to that. */
static void tokens_with_larger_kernel(struct scene *scene)
{
    tokens_in(scene, WITH_LARGER_KERNEL);
}

static void tokens_copied_as_they_are(struct scene *scene)
{
    tokens_in(scene, COPIED_AS_THEY_ARE);
}

static void tokens_for_two(struct scene *scene)
{
    struct ggml_tensor *tokens, *image, *y = of_tokens(scene, TIGHT, &tokens, &image);
    want(scene, ggml_neg(scene->ctx, image));
    want(scene, y);
}

static void tokens_wanted(struct scene *scene)
{
    struct ggml_tensor *tokens, *image, *y = of_tokens(scene, TIGHT, &tokens, &image);
    want(scene, image->src[0]);
    want(scene, y);
}

static void tokens_overwritten(struct scene *scene)
{
    struct ggml_tensor *tokens, *image, *y = of_tokens(scene, TIGHT, &tokens, &image);
    clobber(scene, tokens);
    want(scene, y);
}

static void tokens_under_result(struct scene *scene)
{
    struct ggml_tensor *tokens, *image, *y = of_tokens(scene, TIGHT, &tokens, &image);
    want(scene, y);
    scene->overlay[scene->overlays++] = (struct overlay){.node = y, .on = tokens, .offset = SHIFT};
}

/* ---- products of one input, and a norm before them; memory is used again only by hand ---- */

static struct ggml_tensor *input(struct scene *scene, int64_t n, int64_t rows, int64_t batch)
{
    scene->apart = true;
    return made(scene, 1, n, rows, batch, 1);
}

static struct ggml_tensor *normal(struct scene *scene, struct ggml_tensor *x)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *n = ggml_mul_inplace(ctx, ggml_norm(ctx, x, 1e-5f), made(scene, 1, x->ne[0], 1, 1, 1));
    return ggml_add_inplace(ctx, n, made(scene, 1, x->ne[0], 1, 1, 1));
}

/* The node is wanted, and no part of a chain. */
static void want_apart(struct scene *scene, struct ggml_tensor *x)
{
    want(scene, ggml_neg(scene->ctx, x));
}

static void norm_linear(struct scene *scene)
{
    want_apart(scene, ggml_silu(scene->ctx, columns(scene, projected(scene, normal(scene, input(scene, 40, 30, 3)), 36))));
}

static void rms_norm_linear(struct scene *scene)
{
    want_apart(scene, projected(scene, ggml_rms_norm(scene->ctx, input(scene, 41, 30, 1), 1e-6f), 36));
}

/* As a transformer's that shifts and scales by what the batch is conditioned with. */
static void modulated_products(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *n = ggml_norm(ctx, input(scene, 40, 30, 3), 1e-6f), *of[2];
    struct ggml_tensor *scale = made(scene, 1, 40, 1, 3, 1), *shift = made(scene, 1, 40, 1, 3, 1);
    n = ggml_add(ctx, ggml_add(ctx, n, ggml_mul(ctx, n, scale)), shift);
    for (int i = 0; i < 2; i++)
        expand(scene, of[i] = columns(scene, projected(scene, n, 20)));
    for (int i = 0; i < 2; i++)
        want(scene, ggml_neg(ctx, of[i]));
}

static void norm_gated(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 24, 65, 2);
    scene->tolerance = 3e-3;
    want_apart(scene, ggml_add(scene->ctx, columns(scene, projected(scene, geglu(scene, normal(scene, x), 64, true), 24)), x));
}

static void products(struct scene *scene, struct ggml_tensor *x, int count, struct ggml_tensor *of[])
{
    for (int i = 0; i < count; i++)
        expand(scene, of[i] = columns(scene, projected(scene, x, i == 1 ? 36 : 20)));
}

static void three_products(struct scene *scene)
{
    struct ggml_tensor *of[3];
    products(scene, normal(scene, input(scene, 40, 30, 2)), 3, of);
    for (int i = 0; i < 3; i++)
        want_apart(scene, of[i]);
}

static void five_products(struct scene *scene)
{
    struct ggml_tensor *of[5];
    products(scene, normal(scene, input(scene, 40, 30, 1)), 5, of);
    for (int i = 0; i < 5; i++)
        want_apart(scene, of[i]);
}

/* Two, of which the first is read by a node between them. */
static void two_products(struct scene *scene, struct ggml_tensor *x, struct ggml_tensor *of[2])
{
    struct ggml_tensor *n = normal(scene, x);
    want_apart(scene, of[0] = projected(scene, n, 40));
    want_apart(scene, of[1] = projected(scene, n, 40));
}

static void lay(struct scene *scene, struct ggml_tensor *node, struct ggml_tensor *on)
{
    scene->overlay[scene->overlays++] = (struct overlay){.node = node, .on = on};
}

static void read_between(struct scene *scene)
{
    struct ggml_tensor *of[2];
    two_products(scene, input(scene, 40, 30, 1), of);
}

/* In memory that is used again. */
static void read_between_on_first(struct scene *scene)
{
    struct ggml_tensor *of[2];
    two_products(scene, input(scene, 40, 30, 1), of);
    lay(scene, of[1], of[0]);
}

static void read_between_on_input(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 40, 30, 1), *of[2];
    two_products(scene, x, of);
    lay(scene, of[1], x);
}

static void read_by_the_second(struct scene *scene)
{
    struct ggml_tensor *n = normal(scene, input(scene, 40, 30, 1)), *first = projected(scene, n, 20);
    expand(scene, first);
    want_apart(scene, ggml_add(scene->ctx, projected(scene, n, 20), first));
}

static void norm_linear_on_input(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 40, 30, 1), *c = projected(scene, normal(scene, x), 40);
    want_apart(scene, c);
    lay(scene, c, x);
}

static void normalized_overwritten(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 40, 30, 1), *n = normal(scene, x);
    expand(scene, n);
    clobber(scene, x);
    want_apart(scene, projected(scene, n, 36));
}

static void weight_of_norm_overwritten(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 40, 30, 1), *weight = made(scene, 1, 40, 1, 1, 1);
    struct ggml_tensor *n = ggml_mul(scene->ctx, ggml_norm(scene->ctx, x, 1e-5f), weight);
    expand(scene, n);
    clobber(scene, weight);
    want_apart(scene, projected(scene, n, 36));
}

/* After the first of two, which cannot be computed later then. */
static void weights_overwritten_between(struct scene *scene)
{
    struct ggml_tensor *n = normal(scene, input(scene, 40, 30, 1)), *w = made(scene, 0.2f, 40, 20, 1, 1);
    want_apart(scene, ggml_mul_mat(scene->ctx, w, n));
    clobber(scene, w);
    want_apart(scene, projected(scene, n, 20));
}

static void norm_read_by_others(struct scene *scene)
{
    struct ggml_tensor *n = normal(scene, input(scene, 40, 30, 1)), *of[2];
    products(scene, n, 2, of);
    for (int i = 0; i < 2; i++)
        want_apart(scene, of[i]);
    want_apart(scene, n);
}

static void normalized_wanted(struct scene *scene)
{
    struct ggml_tensor *n = ggml_norm(scene->ctx, input(scene, 40, 30, 1), 1e-5f);
    want(scene, n);
    want_apart(scene, projected(scene, n, 20));
}

static void norm_reshaped(struct scene *scene)
{
    struct ggml_tensor *n = normal(scene, input(scene, 40, 30, 2));
    want_apart(scene, projected(scene, ggml_reshape_2d(scene->ctx, n, 40, 60), 20));
}

static void norm_in_place(struct scene *scene)
{
    want_apart(scene, projected(scene, ggml_norm_inplace(scene->ctx, input(scene, 40, 30, 1), 1e-5f), 20));
}

/* What was normalized in place is read as such. */
static void read_where_normalized(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 40, 30, 1), *n = ggml_norm_inplace(scene->ctx, x, 1e-5f);
    want_apart(scene, projected(scene, n, 20));
    struct ggml_tensor *later = ggml_cont(scene->ctx, x);
    want(scene, later);
    double *at = memory((size_t)ggml_nelements(x) * sizeof *at);
    memcpy(at, exact(scene, n), (size_t)ggml_nelements(x) * sizeof *at);
    scene->numbers[scene->known++] = (struct numbers){later, at};
}

static void norm_few_rows(struct scene *scene)
{
    want_apart(scene, projected(scene, normal(scene, input(scene, 40, 5, 3)), 20));
}

static void norm_as_weights(struct scene *scene)
{
    struct ggml_tensor *n = normal(scene, input(scene, 40, 30, 1));
    want_apart(scene, ggml_mul_mat(scene->ctx, n, n));
}

/* A result of the group's middle, and the input that is not normalized. */
static void shared_and_wanted(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 40, 30, 1), *of[3];
    for (int i = 0; i < 3; i++)
        expand(scene, of[i] = projected(scene, x, 20));
    want(scene, of[1]);
    want_apart(scene, of[0]);
    want_apart(scene, of[2]);
    want_apart(scene, x);
}

/* Memory is used again as ggml_gallocr does, so that q, k and v have to be where their copies would be. */
static void attention_of_one_input(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = made(scene, 1, 24, 37, 1, 1), *n = normal(scene, x), *of[3];
    for (int i = 0; i < 3; i++) { /* v, k, q */
        struct ggml_tensor *heads = ggml_reshape_3d(ctx, columns(scene, projected(scene, n, 48)), 16, 3, 37);
        of[i] = ggml_cont(ctx, i == 0 ? ggml_permute(ctx, heads, 1, 2, 0, 3) : ggml_permute(ctx, heads, 0, 2, 1, 3));
        expand(scene, of[i]);
    }
    struct ggml_tensor *scores = ggml_soft_max(ctx, ggml_scale(ctx, ggml_mul_mat(ctx, of[1], of[2]), 0.25f));
    struct ggml_tensor *out = ggml_cont(ctx, ggml_permute(ctx, ggml_mul_mat(ctx, of[0], scores), 0, 2, 1, 3));
    want(scene, ggml_add(ctx, columns(scene, projected(scene, ggml_reshape_2d(ctx, out, 48, 37), 24)), x));
}

/* The place of the first is between the products of the second. */
static void two_groups(struct scene *scene)
{
    struct ggml_tensor *x = input(scene, 40, 30, 1), *y = made(scene, 1, 24, 30, 1, 1), *of[4];
    for (int i = 0; i < 4; i++)
        expand(scene, of[i] = projected(scene, i % 2 ? y : x, 20));
    for (int i = 0; i < 4; i++)
        want_apart(scene, of[i]);
}

static const struct {
    const char *name;
    void (*build)(struct scene *scene);
} others[] = {
    {"norm_linear", norm_linear},
    {"rms_norm_linear", rms_norm_linear},
    {"modulated_products", modulated_products},
    {"norm_gated", norm_gated},
    {"three_products", three_products},
    {"five_products", five_products},
    {"read_between", read_between},
    {"read_between_on_first", read_between_on_first},
    {"read_by_the_second", read_by_the_second},
    {"read_between_on_input", read_between_on_input},
    {"norm_linear_on_input", norm_linear_on_input},
    {"normalized_overwritten", normalized_overwritten},
    {"weight_of_norm_overwritten", weight_of_norm_overwritten},
    {"weights_overwritten_between", weights_overwritten_between},
    {"norm_read_by_others", norm_read_by_others},
    {"normalized_wanted", normalized_wanted},
    {"norm_reshaped", norm_reshaped},
    {"norm_in_place", norm_in_place},
    {"read_where_normalized", read_where_normalized},
    {"norm_few_rows", norm_few_rows},
    {"norm_as_weights", norm_as_weights},
    {"shared_and_wanted", shared_and_wanted},
    {"attention_of_one_input", attention_of_one_input},
    {"two_groups", two_groups},
    {"one_addition_of_two", one_addition_of_two},
    {"skip_convolved", skip_convolved},
    {"gated", gated},
    {"gated_apart", gated_apart},
    {"copied", copied},
    {"copied_onto_wider", copied_onto_wider},
    {"copied_onto_itself", copied_onto_itself},
    {"copied_overwritten", copied_overwritten},
    {"copied_transposed", copied_transposed},
    {"copied_for_two", copied_for_two},
    {"attention_scaled", attention_scaled},
    {"attention_unmerged_scaled", attention_unmerged_scaled},
    {"around_attention", around_attention},
    {"doubled_image", doubled_image},
    {"doubled_on_image", doubled_on_image},
    {"doubled_overwritten", doubled_overwritten},
    {"read_where_it_was", read_where_it_was},
    {"wanted_where_it_was", wanted_where_it_was},
    {"half_on_the_left", half_on_the_left},
    {"half_factor", half_factor},
    {"permuted", permuted},
    {"joined", joined},
    {"attention_unbiased", attention_unbiased},
    {"normed_resblock", normed_resblock},
    {"summed", summed},
    {"summed_residual", summed_residual},
    {"summed_small", summed_small},
    {"summed_overwritten", summed_overwritten},
    {"summed_by_1x1", summed_by_1x1},
    {"summed_as_one_channel", summed_as_one_channel},
    {"tokens_of_transformer", tokens_of_transformer},
    {"tokens_convolved", tokens_convolved},
    {"tokens_with_gaps", tokens_with_gaps},
    {"tokens_with_larger_kernel", tokens_with_larger_kernel},
    {"tokens_copied_as_they_are", tokens_copied_as_they_are},
    {"tokens_for_two", tokens_for_two},
    {"tokens_wanted", tokens_wanted},
    {"tokens_overwritten", tokens_overwritten},
    {"tokens_under_result", tokens_under_result},
};

#define LENGTH(array) (sizeof(array) / sizeof *(array))

const char *chain_case(size_t index)
{
    if (index < LENGTH(chains))
        return chains[index].name;
    index -= LENGTH(chains);
    if (index < LENGTH(befores))
        return befores[index].name;
    index -= LENGTH(befores);
    return index < LENGTH(others) ? others[index].name : NULL;
}

void build_chain_case(struct scene *scene, size_t index)
{
    if (index < LENGTH(chains))
        build_chain(scene, chains[index].form);
    else if (index - LENGTH(chains) < LENGTH(befores))
        build_before(scene, befores[index - LENGTH(chains)].form);
    else
        others[index - LENGTH(chains) - LENGTH(befores)].build(scene);
}

/* ---- parts of models by chance ---- */

enum { GROUPS = 4 };

static struct ggml_tensor *maybe_in_place(struct scene *scene, struct ggml_tensor *x, struct ggml_tensor *y, bool product)
{
    return product ? times(scene->ctx, !once_in(4), x, y) : sum(scene->ctx, !once_in(4), x, y);
}

/* Something else of it is read or wanted, sometimes; then it may not be written over. */
static struct ggml_tensor *sometimes_shared(struct scene *scene, struct ggml_tensor *x)
{
    if (once_in(15))
        want(scene, ggml_cont(scene->ctx, x));
    else if (x->view_src || !once_in(15))
        return x;
    else
        ggml_set_output(x);
    return ggml_scale(scene->ctx, x, 1.25f);
}

static struct ggml_tensor *activated(struct scene *scene, struct ggml_tensor *x)
{
    const int64_t op = ONE_OF(GGML_UNARY_OP_SILU, GGML_UNARY_OP_SILU, GGML_UNARY_OP_GELU_ERF, GGML_UNARY_OP_TANH, GGML_UNARY_OP_SIGMOID);
    return unary(scene->ctx, !once_in(3), x, (enum ggml_unary_op)op);
}

static struct ggml_tensor *normalized(struct scene *scene, struct ggml_tensor *x)
{
    struct ggml_tensor *n = ggml_group_norm(scene->ctx, x, GROUPS, 1e-6f);
    n = sometimes_shared(scene, maybe_in_place(scene, n, channels(scene, n), true));
    n = maybe_in_place(scene, n, channels(scene, n), false);
    return once_in(6) ? n : activated(scene, n);
}

static struct ggml_tensor *normalized_rows(struct scene *scene, struct ggml_tensor *x)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *n = once_in(3) ? ggml_rms_norm(ctx, x, 1e-6f) : ggml_norm(ctx, x, 1e-6f);
    n = maybe_in_place(scene, n, leaf(scene, GGML_TYPE_F32, 1, x->ne[0], 1, 1, 1), true);
    if (once_in(3))
        n = ggml_add(ctx, n, ggml_mul(ctx, n, leaf(scene, GGML_TYPE_F32, 0.5f, x->ne[0], 1, once_in(2) ? 1 : x->ne[2], 1)));
    return once_in(4) ? n : maybe_in_place(scene, n, leaf(scene, GGML_TYPE_F32, 1, x->ne[0], 1, 1, 1), false);
}

static struct ggml_tensor *convolution(struct scene *scene, struct ggml_tensor *x, int64_t out)
{
    struct ggml_context *ctx = scene->ctx;
    int64_t kernel = once_in(4) ? 1 : 3;
    struct ggml_tensor *w = leaf(scene, GGML_TYPE_F32, 1 / sqrtf((float)(x->ne[2] * kernel * kernel)), kernel, kernel, x->ne[2], out);
    int pad = (int)kernel / 2;
    const bool direct = !once_in(4);
    if (!direct && once_in(2)) {
        x = ggml_pad_ext(ctx, x, pad, pad, pad, pad, 0, 0, 0, 0);
        pad = 0;
    }
    struct ggml_tensor *c = direct ? ggml_conv_2d_direct(ctx, w, x, 1, 1, pad, pad, 1, 1) : ggml_conv_2d(ctx, w, x, 1, 1, pad, pad, 1, 1);
    if (once_in(8))
        c = ggml_scale(ctx, c, 0.5f);
    return sometimes_shared(scene, once_in(5) ? c : maybe_in_place(scene, sometimes_shared(scene, c), channels(scene, c), false));
}

static struct ggml_tensor *dense(struct scene *scene, struct ggml_tensor *x, int64_t rows)
{
    struct ggml_tensor *y = projected(scene, x, rows);
    return once_in(5) ? y : maybe_in_place(scene, y, leaf(scene, GGML_TYPE_F32, 0.3f, rows, 1, 1, 1), false);
}

static struct ggml_tensor *added(struct scene *scene, struct ggml_tensor *a, struct ggml_tensor *b)
{
    return once_in(3) ? ggml_add(scene->ctx, b, a) : once_in(2) ? ggml_add(scene->ctx, a, b) : ggml_add_inplace(scene->ctx, a, b);
}

static struct ggml_tensor *resblock(struct scene *scene, struct ggml_tensor *x, struct ggml_tensor *embedded, int64_t out)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *skip = x->ne[2] == out && !once_in(4) ? x : convolution(scene, x, out);
    if (once_in(2))
        expand(scene, skip);
    struct ggml_tensor *h = convolution(scene, normalized(scene, x), out);
    if (once_in(2))
        expand(scene, h);
    if (h->ne[0] == x->ne[0] && !once_in(4)) {
        struct ggml_tensor *e = dense(scene, ggml_silu(ctx, embedded), out);
        h = maybe_in_place(scene, h, ggml_reshape_4d(ctx, e, 1, 1, out, e->ne[1]), false);
    }
    h = convolution(scene, normalized(scene, h), out);
    return added(scene, h, skip);
}

static struct ggml_tensor *feed_forward(struct scene *scene, struct ggml_tensor *x)
{
    struct ggml_context *ctx = scene->ctx;
    const int64_t width = x->ne[0], inner = 2 * width;
    struct ggml_tensor *n = normalized_rows(scene, x), *h;
    if (once_in(2)) {
        struct ggml_tensor *both = dense(scene, n, 2 * inner), *half[2];
        for (int i = 0; i < 2; i++)
            half[i] = ggml_view_3d(ctx, both, inner, both->ne[1], both->ne[2], both->nb[1], both->nb[2],
                                   (size_t)(i * inner) * sizeof(float));
        struct ggml_tensor *gate = once_in(4) ? half[1] : ggml_cont(ctx, half[1]);
        h = ggml_mul(ctx, half[0], unary(ctx, ggml_is_contiguous(gate) && !once_in(3), ggml_cont(ctx, gate), GGML_UNARY_OP_SILU));
    } else
        h = activated(scene, dense(scene, n, inner));
    h = sometimes_shared(scene, dense(scene, h, width));
    if (once_in(3))
        h = maybe_in_place(scene, h, leaf(scene, GGML_TYPE_F32, 1, width, 1, once_in(2) ? 1 : x->ne[2], 1), true);
    return added(scene, h, x);
}

static struct ggml_tensor *attention_part(struct scene *scene, struct ggml_tensor *x)
{
    struct ggml_context *ctx = scene->ctx;
    const int64_t width = x->ne[0], tokens = x->ne[1], batch = x->ne[2], depth = 8;
    struct ggml_tensor *n = normalized_rows(scene, x), *of[3];
    for (int i = 0; i < 3; i++) {
        struct ggml_tensor *part = once_in(2) ? dense(scene, n, width) : projected(scene, n, width); /* with a bias, or without */
        struct ggml_tensor *heads = ggml_reshape_4d(ctx, part, depth, width / depth, tokens, batch);
        of[i] = ggml_cont(ctx, i == 2 ? ggml_permute(ctx, heads, 1, 2, 0, 3) : ggml_permute(ctx, heads, 0, 2, 1, 3));
        if (once_in(3))
            expand(scene, of[i]);
    }
    struct ggml_tensor *scores = ggml_scale(ctx, ggml_mul_mat(ctx, of[1], of[0]), 1 / sqrtf((float)depth));
    struct ggml_tensor *out = ggml_mul_mat(ctx, of[2], ggml_soft_max(ctx, scores));
    out = ggml_cont(ctx, ggml_permute(ctx, out, 0, 2, 1, 3));
    if (once_in(3))
        out = ggml_scale(ctx, out, 0.75f);
    return added(scene, sometimes_shared(scene, dense(scene, ggml_reshape_3d(ctx, out, width, tokens, batch), width)), x);
}

/* Of an image, whose channels become the tokens' elements. */
static struct ggml_tensor *transformer(struct scene *scene, struct ggml_tensor *x)
{
    struct ggml_context *ctx = scene->ctx;
    const int64_t width = x->ne[0], height = x->ne[1], inner = x->ne[2], batch = x->ne[3];
    struct ggml_tensor *h = convolution(scene, normalized(scene, x), inner);
    h = ggml_reshape_3d(ctx, ggml_cont(ctx, ggml_permute(ctx, h, 1, 2, 0, 3)), inner, width * height, batch);
    if (once_in(2))
        h = attention_part(scene, h);
    h = feed_forward(scene, h);
    h = ggml_reshape_4d(ctx, ggml_cont(ctx, ggml_permute(ctx, h, 1, 0, 2, 3)), width, height, inner, batch);
    return added(scene, convolution(scene, h, inner), x);
}

void build_network(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    enum { MOST_SKIPS = 3 };
    const int64_t base = ONE_OF(8, 16, 24), batch = once_in(4) ? 2 : 1;
    const int blocks = (int)(2 + below(3));
    struct ggml_tensor *skip[MOST_SKIPS];
    int skips = 0;
    scene->hook_tolerance = 3e-5;
    scene->tolerance = 3e-5;
    struct ggml_tensor *embedded = made(scene, 1, 12, batch, 1, 1);
    embedded = dense(scene, activated(scene, dense(scene, embedded, 20)), 20);
    struct ggml_tensor *x = convolution(scene, made(scene, 1, 3 + below(9), 3 + below(9), 4, batch), base);
    for (int b = 0; b < blocks; b++) {
        expand(scene, x);
        if (skips < MOST_SKIPS && once_in(2))
            skip[skips++] = x;
        x = once_in(3) ? transformer(scene, x) : resblock(scene, x, embedded, once_in(3) ? 2 * base : x->ne[2]);
        if (x->ne[0] <= 8 && once_in(3))
            x = convolution(scene, ggml_upscale(ctx, x, 2, GGML_SCALE_MODE_NEAREST), x->ne[2]);
        while (skips && skip[skips - 1]->ne[0] != x->ne[0])
            skips--;
        if (skips && skip[skips - 1]->ne[1] == x->ne[1] && once_in(2))
            x = ggml_concat(ctx, x, skip[--skips], 2);
    }
    want(scene, ggml_scale(ctx, normalized(scene, x), 1));
}
