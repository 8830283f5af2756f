/* Graphs by the patched ggml, those with attention in them here, those of chains in chain-graphs.c,
 * those of operations by themselves in single-graphs.c:
 *
 *   graphs CASE
 *   graphs random FIRST COUNT, or networks FIRST COUNT: random ones of these seeds, of attentions or of parts of models
 *   graphs tight FIRST COUNT: random ones of both kinds with less working memory than they are planned with
 *   graphs cramped: all cases in several sizes of working memory less than planned
 *   graphs pieces: all cases cut in two, at each of their nodes
 *   graphs aborted: all cases ended early, after each of their nodes, and computed again
 *   graphs at_once CASE: several graphs of the case, in step with each other, a few times
 *
 * Computes a graph with several numbers of threads, which may not make a difference, then by ggml alone, and says on stdout how far the
 * worst numbers of both are from the exact ones, relative to the largest of their tensor. What the hook took it says itself on stderr
 * (SDGEN_VERBOSE=1). */
#define _POSIX_C_SOURCE 200809L

#include "graphs.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "ggml-alloc.h"
#include "ggml-backend.h"
#include "ggml-cpu.h"
#include "ggml-impl.h"

enum {
    NODES = 1024,
    CANARIES = 4096,
    CANARY = 0xa5,
    ALIGNMENT = 32,
    ARENA = 32 << 20,
};

static const char *doing = "";

_Noreturn void die(const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "graphs: %s: ", doing);
    vfprintf(stderr, format, arguments);
    fputc('\n', stderr);
    exit(1);
}

void *memory(size_t size)
{
    void *allocated = malloc(size + 1);
    if (!allocated)
        die("no memory");
    return allocated;
}

/* ---- chance ---- */

static uint64_t chance;

static void seed(uint64_t with)
{
    chance = (with + 1) * 0x9e3779b97f4a7c15u;
}

static uint32_t bits(void)
{
    chance = chance * 6364136223846793005u + 1442695040888963407u;
    uint32_t high = (uint32_t)(chance >> 33);
    return high ^ high >> 15;
}

int64_t below(int64_t limit)
{
    return bits() % limit;
}

bool once_in(int64_t times)
{
    return below(times) == 0;
}

int64_t one_of(int count, const int64_t *values)
{
    return values[below(count)];
}

static float number(void)
{
    double sum = 0; /* of four even ones: about normal, of variance 1 */
    for (int i = 0; i < 4; i++)
        sum += (double)(bits() & 0xffffff) / (1 << 24) - 0.5;
    return (float)(sum * sqrt(3));
}

/* ---- a graph ---- */

static struct scene empty_scene(void)
{
    struct scene scene = {.ctx = ggml_init((struct ggml_init_params){.mem_size = 4 << 20, .no_alloc = true}), .tolerance = 2e-5};
    scene.graph = ggml_new_graph_custom(scene.ctx, NODES, false);
    scene.numbers = memory(4 * NODES * sizeof *scene.numbers);
    return scene;
}

static bool is_leaf(const struct ggml_tensor *t)
{
    return t->op == GGML_OP_NONE;
}

struct ggml_tensor *leaf(struct scene *scene, enum ggml_type type, float factor, int64_t n0, int64_t n1, int64_t n2, int64_t n3)
{
    struct ggml_tensor *made = ggml_new_tensor_4d(scene->ctx, type, n0, n1, n2, n3);
    float *values = memory((size_t)ggml_nelements(made) * sizeof *values);
    for (int64_t i = 0; i < ggml_nelements(made); i++)
        values[i] = factor * number();
    made->data = memory(ggml_nbytes(made));
    ggml_quantize_chunk(type, values, made->data, 0, ggml_nrows(made), n0, NULL);
    free(values);
    return made;
}

static void free_scene(struct scene *scene)
{
    for (struct ggml_tensor *t = ggml_get_first_tensor(scene->ctx); t; t = ggml_get_next_tensor(scene->ctx, t))
        if (is_leaf(t))
            free(t->data);
    for (int i = 0; i < scene->known; i++)
        free(scene->numbers[i].at);
    free(scene->numbers);
    free(scene->arena);
    if (scene->allocator)
        ggml_gallocr_free(scene->allocator);
    ggml_free(scene->ctx);
}

void expand(struct scene *scene, struct ggml_tensor *node)
{
    ggml_build_forward_expand(scene->graph, node);
}

void want(struct scene *scene, struct ggml_tensor *node)
{
    ggml_set_output(node);
    expand(scene, node);
}

/* ---- exact numbers, by what the graph means and not where its tensors are ---- */

static int64_t place(const struct ggml_tensor *t, int64_t i0, int64_t i1, int64_t i2, int64_t i3)
{
    return i0 + t->ne[0] * (i1 + t->ne[1] * (i2 + t->ne[2] * i3));
}

#define FOR_ROWS(t)                                 \
    for (int64_t i3 = 0; i3 < (t)->ne[3]; i3++)     \
        for (int64_t i2 = 0; i2 < (t)->ne[2]; i2++) \
            for (int64_t i1 = 0; i1 < (t)->ne[1]; i1++)
#define FOR_ALL(t) FOR_ROWS(t) for (int64_t i0 = 0; i0 < (t)->ne[0]; i0++)

static float parameter(const struct ggml_tensor *t, int index)
{
    float value;
    memcpy(&value, t->op_params + index, sizeof value);
    return value;
}

static bool is_view(const struct ggml_tensor *t)
{
    return t->op == GGML_OP_RESHAPE || t->op == GGML_OP_VIEW || t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

static double slope(double max_bias, int64_t head, int64_t heads)
{
    if (max_bias <= 0)
        return 1;
    double power = exp2(floor(log2((double)heads)));
    return (double)head < power ? pow(exp2(-max_bias / power), (double)head + 1)
                                : pow(exp2(-max_bias / 2 / power), 2 * ((double)head - power) + 1);
}

/* Softmax of a row in place; a sink only adds to the sum. All 0 where all are -infinite. */
static void soft_max(double *row, int64_t count, const double *sink)
{
    double most = sink ? *sink : -HUGE_VAL, sum = 0;
    for (int64_t i = 0; i < count; i++)
        most = fmax(most, row[i]);
    for (int64_t i = 0; i < count; i++)
        sum += row[i] = most == -HUGE_VAL ? 0 : exp(row[i] - most);
    if (sink)
        sum += exp(*sink - most);
    for (int64_t i = 0; i < count && sum > 0; i++)
        row[i] /= sum;
}

static void flash_attention(struct scene *scene, const struct ggml_tensor *t, double *to)
{
    const struct ggml_tensor *q = t->src[0], *k = t->src[1], *v = t->src[2], *mask = t->src[3];
    const double *q_at = exact(scene, q), *k_at = exact(scene, k), *v_at = exact(scene, v),
                 *mask_at = mask ? exact(scene, mask) : NULL, *sinks = t->src[4] ? exact(scene, t->src[4]) : NULL;
    double *row = memory((size_t)k->ne[1] * sizeof *row), cap = (double)parameter(t, 2);
    FOR_ROWS(q) {
        for (int64_t j = 0; j < k->ne[1]; j++) {
            double score = 0;
            for (int64_t p = 0; p < q->ne[0]; p++)
                score += q_at[place(q, p, i1, i2, i3)] *
                         k_at[place(k, p, j, i2 / (q->ne[2] / k->ne[2]), i3 / (q->ne[3] / k->ne[3]))];
            score *= (double)parameter(t, 0);
            row[j] = cap != 0 ? cap * tanh(score / cap) : score;
            if (mask)
                row[j] += slope((double)parameter(t, 1), i2, q->ne[2]) *
                          mask_at[place(mask, j, i1, i2 % mask->ne[2], i3 % mask->ne[3])];
        }
        soft_max(row, k->ne[1], sinks ? sinks + i2 : NULL);
        for (int64_t p = 0; p < v->ne[0]; p++) {
            double sum = 0;
            for (int64_t j = 0; j < k->ne[1]; j++)
                sum += row[j] * v_at[place(v, p, j, i2 / (q->ne[2] / v->ne[2]), i3 / (q->ne[3] / v->ne[3]))];
            to[place(t, p, i2, i1, i3)] = sum;
        }
    }
    free(row);
}

static void numbers_of_leaf(const struct ggml_tensor *t, double *to)
{
    float *values = memory((size_t)ggml_nelements(t) * sizeof *values);
    if (t->type == GGML_TYPE_F32)
        memcpy(values, t->data, ggml_nbytes(t));
    else
        ggml_get_type_traits(t->type)->to_float(t->data, values, ggml_nelements(t));
    for (int64_t i = 0; i < ggml_nelements(t); i++)
        to[i] = (double)values[i];
    free(values);
}

static double unary(enum ggml_unary_op op, double x)
{
    switch (op) {
    case GGML_UNARY_OP_NEG: return -x;
    case GGML_UNARY_OP_SILU: return x / (1 + exp(-x));
    case GGML_UNARY_OP_GELU: return x / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (x + 0.044715 * x * x * x)));
    case GGML_UNARY_OP_GELU_ERF: return x / 2 * (1 + erf(x / sqrt(2)));
    case GGML_UNARY_OP_GELU_QUICK: return x / (1 + exp(-1.702 * x));
    case GGML_UNARY_OP_SIGMOID: return 1 / (1 + exp(-x));
    case GGML_UNARY_OP_TANH: return tanh(x);
    case GGML_UNARY_OP_RELU: return fmax(x, 0);
    case GGML_UNARY_OP_EXP: return exp(x);
    default: die("no numbers of %s", ggml_unary_op_name(op));
    }
}

static void normalize(const double *from, double *to, int64_t count, bool rms, double eps)
{
    double mean = 0, variance = 0;
    for (int64_t i = 0; i < count && !rms; i++)
        mean += from[i] / (double)count;
    for (int64_t i = 0; i < count; i++)
        variance += (from[i] - mean) * (from[i] - mean) / (double)count;
    for (int64_t i = 0; i < count; i++)
        to[i] = (from[i] - mean) / sqrt(variance + eps);
}

static void convolve(const struct ggml_tensor *t, const double *w_at, const double *x_at, double *to)
{
    const struct ggml_tensor *w = t->src[0], *x = t->src[1];
    const int32_t *p = t->op_params; /* strides, paddings, dilations */
    FOR_ALL(t) {
        double sum = 0;
        for (int64_t c = 0; c < x->ne[2]; c++)
            for (int64_t ky = 0; ky < w->ne[1]; ky++)
                for (int64_t kx = 0; kx < w->ne[0]; kx++) {
                    int64_t y_in = i1 * p[1] + ky * p[5] - p[3], x_in = i0 * p[0] + kx * p[4] - p[2];
                    if (y_in >= 0 && y_in < x->ne[1] && x_in >= 0 && x_in < x->ne[0])
                        sum += w_at[place(w, kx, ky, c, i2)] * x_at[place(x, x_in, y_in, c, i3)];
                }
        to[place(t, i0, i1, i2, i3)] = sum;
    }
}

/* The images that a convolution's kernel reads: place by place of the kernel and channel in, of one, two or three dimensions. */
static void patches(const struct ggml_tensor *t, const double *x_at, double *to)
{
    const struct ggml_tensor *w = t->src[0], *x = t->src[1];
    const int32_t *p = t->op_params;
    const bool deep = t->op == GGML_OP_IM2COL_3D, flat = !deep && p[6] != 1;
    const int64_t kernel[] = {w->ne[0], flat ? 1 : w->ne[1], deep ? w->ne[2] : 1};
    const int64_t size[] = {x->ne[0], flat ? 1 : x->ne[1], deep ? x->ne[2] : 1};
    const int dimensions = deep ? 3 : 2;
    const int64_t channels = t->ne[0] / (kernel[0] * kernel[1] * kernel[2]);
    const int64_t frames = deep ? t->ne[3] / (x->ne[3] / channels) : 1;
    FOR_ALL(t) {
        int64_t tap = i0, out[] = {i1, flat ? 0 : i2, i3 % frames}, in[3] = {0}, image = flat ? i2 : i3 / frames;
        bool inside = true;
        for (int d = 0; d < 3; d++) {
            in[d] = tap % kernel[d];
            tap /= kernel[d];
            if (d < dimensions && !(flat && d == 1))
                in[d] = out[d] * p[d] + in[d] * p[2 * dimensions + d] - p[dimensions + d];
            inside = inside && in[d] >= 0 && in[d] < size[d];
        }
        int64_t pixel = ((image * channels + tap) * size[2] + in[2]) * size[1] * size[0] + in[1] * size[0] + in[0];
        to[place(t, i0, i1, i2, i3)] = inside ? x_at[pixel] : 0;
    }
}

static void convolve_frames(const struct ggml_tensor *t, const double *w_at, const double *x_at, double *to)
{
    const struct ggml_tensor *w = t->src[0], *x = t->src[1];
    const int32_t *p = t->op_params; /* strides, paddings, dilations; channels in, images, channels out */
    FOR_ALL(t) {
        double sum = 0;
        for (int64_t c = 0; c < p[9]; c++)
            for (int64_t k = 0; k < w->ne[0] * w->ne[1] * w->ne[2]; k++) {
                int64_t kx = k % w->ne[0], ky = k / w->ne[0] % w->ne[1], kz = k / w->ne[0] / w->ne[1];
                int64_t in_x = i0 * p[0] + kx * p[6] - p[3], in_y = i1 * p[1] + ky * p[7] - p[4], in_z = i2 * p[2] + kz * p[8] - p[5];
                if (in_x >= 0 && in_x < x->ne[0] && in_y >= 0 && in_y < x->ne[1] && in_z >= 0 && in_z < x->ne[2])
                    sum += w_at[place(w, kx, ky, kz, i3 % p[11] * p[9] + c)] * x_at[place(x, in_x, in_y, in_z, i3 / p[11] * p[9] + c)];
            }
        to[place(t, i0, i1, i2, i3)] = sum;
    }
}

static void numbers_of(struct scene *scene, const struct ggml_tensor *t, double *to)
{
    const struct ggml_tensor *a = t->src[0], *b = t->src[1];
    if (is_leaf(t)) {
        numbers_of_leaf(t, to);
        return;
    }
    if (is_view(t)) {
        while (is_view(a))
            a = a->src[0];
        const double *from = exact(scene, a);
        FOR_ALL(t)
            to[place(t, i0, i1, i2, i3)] = from[(t->view_offs - a->view_offs + (size_t)i0 * t->nb[0] + (size_t)i1 * t->nb[1] +
                                                 (size_t)i2 * t->nb[2] + (size_t)i3 * t->nb[3]) /
                                                ggml_type_size(t->type)];
        return;
    }
    const double *a_at = exact(scene, a), *b_at = b && b != t ? exact(scene, b) : NULL;
    const int64_t elements = ggml_nelements(t);
    switch (t->op) {
    case GGML_OP_CONT:
    case GGML_OP_CPY: memcpy(to, a_at, (size_t)elements * sizeof *to); break;
    case GGML_OP_SCALE:
        for (int64_t i = 0; i < elements; i++)
            to[i] = a_at[i] * (double)parameter(t, 0) + (double)parameter(t, 1);
        break;
    case GGML_OP_UNARY:
        for (int64_t i = 0; i < elements; i++)
            to[i] = unary(ggml_get_unary_op(t), a_at[i]);
        break;
    case GGML_OP_LEAKY_RELU:
        for (int64_t i = 0; i < elements; i++)
            to[i] = fmax(a_at[i], 0) + (double)parameter(t, 0) * fmin(a_at[i], 0);
        break;
    case GGML_OP_CLAMP:
        for (int64_t i = 0; i < elements; i++)
            to[i] = fmin(fmax(a_at[i], (double)parameter(t, 0)), (double)parameter(t, 1));
        break;
    case GGML_OP_ADD:
    case GGML_OP_MUL:
        FOR_ALL(t) {
            double x = a_at[place(a, i0, i1, i2, i3)];
            double y = b_at[place(b, i0 % b->ne[0], i1 % b->ne[1], i2 % b->ne[2], i3 % b->ne[3])];
            to[place(t, i0, i1, i2, i3)] = t->op == GGML_OP_ADD ? x + y : x * y;
        }
        break;
    case GGML_OP_NORM:
    case GGML_OP_RMS_NORM:
        for (int64_t i = 0; i < elements; i += t->ne[0])
            normalize(a_at + i, to + i, t->ne[0], t->op == GGML_OP_RMS_NORM, (double)parameter(t, 0));
        break;
    case GGML_OP_GROUP_NORM: {
        int64_t size = t->ne[0] * t->ne[1] * t->ne[2] / t->op_params[0];
        for (int64_t i = 0; i < elements; i += size)
            normalize(a_at + i, to + i, size, false, (double)parameter(t, 1));
        break;
    }
    case GGML_OP_CONCAT:
        FOR_ALL(t) {
            int64_t at[] = {i0, i1, i2, i3}, d = t->op_params[0];
            bool second = at[d] >= a->ne[d];
            at[d] -= second ? a->ne[d] : 0;
            to[place(t, i0, i1, i2, i3)] = (second ? b_at : a_at)[place(second ? b : a, at[0], at[1], at[2], at[3])];
        }
        break;
    case GGML_OP_PAD: {
        const int32_t *p = t->op_params;
        FOR_ALL(t) {
            int64_t at[] = {i0 - p[0], i1 - p[2], i2 - p[4], i3 - p[6]};
            bool inside = true;
            for (int d = 0; d < 4; d++)
                inside = inside && at[d] >= 0 && at[d] < a->ne[d];
            to[place(t, i0, i1, i2, i3)] = inside ? a_at[place(a, at[0], at[1], at[2], at[3])] : 0;
        }
        break;
    }
    case GGML_OP_UPSCALE:
        FOR_ALL(t)
            to[place(t, i0, i1, i2, i3)] = a_at[place(a, i0 * a->ne[0] / t->ne[0], i1 * a->ne[1] / t->ne[1], i2 * a->ne[2] / t->ne[2],
                                                      i3 * a->ne[3] / t->ne[3])];
        break;
    case GGML_OP_CONV_2D: convolve(t, a_at, b_at, to); break;
    case GGML_OP_CONV_3D: convolve_frames(t, a_at, b_at, to); break;
    case GGML_OP_IM2COL:
    case GGML_OP_IM2COL_3D: patches(t, b_at, to); break;
    case GGML_OP_MUL_MAT:
        FOR_ALL(t) {
            double sum = 0;
            const double *w = a_at + place(a, 0, i0, i2 / (b->ne[2] / a->ne[2]), i3 / (b->ne[3] / a->ne[3]));
            const double *x = b_at + place(b, 0, i1, i2, i3);
            for (int64_t k = 0; k < a->ne[0]; k++)
                sum += w[k] * x[k];
            to[place(t, i0, i1, i2, i3)] = sum;
        }
        break;
    case GGML_OP_SOFT_MAX: {
        const double *sinks = t->src[2] ? exact(scene, t->src[2]) : NULL;
        FOR_ROWS(t) {
            double *row = to + place(t, 0, i1, i2, i3);
            for (int64_t i0 = 0; i0 < t->ne[0]; i0++) {
                row[i0] = a_at[place(a, i0, i1, i2, i3)] * (double)parameter(t, 0);
                if (b)
                    row[i0] += slope((double)parameter(t, 1), i2, t->ne[2]) * b_at[place(b, i0, i1, i2 % b->ne[2], i3 % b->ne[3])];
            }
            soft_max(row, t->ne[0], sinks ? sinks + i2 : NULL);
        }
        break;
    }
    case GGML_OP_FLASH_ATTN_EXT: flash_attention(scene, t, to); break;
    default: die("no numbers of %s", ggml_op_name(t->op));
    }
}

const double *exact(struct scene *scene, const struct ggml_tensor *t)
{
    for (int i = 0; i < scene->known; i++)
        if (scene->numbers[i].of == t)
            return scene->numbers[i].at;
    double *at = memory((size_t)ggml_nelements(t) * sizeof *at);
    numbers_of(scene, t, at);
    scene->numbers[scene->known++] = (struct numbers){t, at};
    return at;
}

/* ---- where its tensors are ---- */

struct ggml_tensor *root(struct ggml_tensor *t)
{
    return t->view_src ? t->view_src : t;
}

static int index_of(const struct scene *scene, const struct ggml_tensor *t)
{
    for (int i = 0; i < ggml_graph_n_nodes(scene->graph); i++)
        if (ggml_graph_node(scene->graph, i) == t)
            return i;
    return -1;
}

static void place_views(const struct scene *scene)
{
    for (int i = 0; i < ggml_graph_n_nodes(scene->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(scene->graph, i);
        if (node->view_src)
            node->data = (char *)node->view_src->data + node->view_offs;
    }
}

static size_t room(const struct ggml_tensor *t)
{
    return (ggml_nbytes(t) + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
}

static void new_arena(struct scene *scene)
{
    scene->arena = memory(ARENA + ALIGNMENT);
}

static char *arena_begin(const struct scene *scene)
{
    return (char *)(((uintptr_t)scene->arena + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT);
}

/* One behind the other, but for the overlays. */
static void allocate_apart(struct scene *scene)
{
    new_arena(scene);
    char *next = arena_begin(scene);
    for (int i = 0; i < ggml_graph_n_nodes(scene->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(scene->graph, i);
        if (node->view_src)
            continue;
        node->data = next;
        next += room(node);
    }
    for (int i = 0; i < scene->overlays; i++)
        scene->overlay[i].node->data = (char *)root(scene->overlay[i].on)->data + scene->overlay[i].offset;
    place_views(scene);
}

/* Anywhere in as little memory as will do, but for what is still to be read. */
static void allocate_at_random(struct scene *scene)
{
    new_arena(scene);
    const int nodes = ggml_graph_n_nodes(scene->graph);
    int *last = memory((size_t)nodes * sizeof *last); /* where a node, or a view of it, is read for the last time */
    for (int i = 0; i < nodes; i++) {
        struct ggml_tensor *node = ggml_graph_node(scene->graph, i);
        last[i] = i;
        for (int s = 0; s < GGML_MAX_SRC; s++)
            if (node->src[s] && index_of(scene, root(node->src[s])) >= 0)
                last[index_of(scene, root(node->src[s]))] = i;
        if (node->flags & GGML_TENSOR_FLAG_OUTPUT)
            last[index_of(scene, root(node))] = nodes;
    }
    for (int i = 0; i < nodes; i++) /* what is wanted stays so, whatever was read since */
        if (ggml_graph_node(scene->graph, i)->flags & GGML_TENSOR_FLAG_OUTPUT)
            last[index_of(scene, root(ggml_graph_node(scene->graph, i)))] = nodes;
    size_t size = 1024;
    for (int i = 0; i < nodes; i++) {
        struct ggml_tensor *node = ggml_graph_node(scene->graph, i);
        if (node->view_src)
            continue;
        for (int tries = 0;; tries++) {
            if (tries % 32 == 31)
                size += room(node);
            if (size > ARENA)
                die("the arena is too small");
            if (size < room(node))
                continue;
            node->data = arena_begin(scene) + below((int64_t)((size - room(node)) / ALIGNMENT) + 1) * ALIGNMENT;
            bool fits = true;
            for (int j = 0; j < i && fits; j++) {
                struct ggml_tensor *other = ggml_graph_node(scene->graph, j);
                fits = other->view_src || last[j] < i || (char *)other->data + ggml_nbytes(other) <= (char *)node->data ||
                       (char *)node->data + ggml_nbytes(node) <= (char *)other->data;
            }
            if (fits)
                break;
        }
    }
    free(last);
    place_views(scene);
}

static void allocate_as_ggml_does(struct scene *scene)
{
    for (int i = 0; i < ggml_graph_n_nodes(scene->graph); i++) /* it gives back the memory of a view that is wanted */
        if (ggml_graph_node(scene->graph, i)->flags & GGML_TENSOR_FLAG_OUTPUT)
            ggml_set_output(root(ggml_graph_node(scene->graph, i)));
    scene->allocator = ggml_gallocr_new(ggml_backend_cpu_buffer_type());
    if (!ggml_gallocr_alloc_graph(scene->allocator, scene->graph))
        die("not allocated");
}

/* ---- computing ---- */

/* What is not computed shows. */
static void forget(struct scene *scene)
{
    for (int i = 0; i < ggml_graph_n_nodes(scene->graph); i++) {
        struct ggml_tensor *node = ggml_graph_node(scene->graph, i);
        if (!node->view_src)
            memset(node->data, 0xff, ggml_nbytes(node));
    }
}

/* How a graph, or a part of it, is computed. */
struct run {
    int planned, threads; /* threads that it is planned for, and run with */
    bool use_ref;
    size_t work_size; /* bytes of working memory; 0: what is planned */
    int nodes;        /* ended after so many; 0: not ended early */
    pthread_barrier_t *meeting; /* of graphs that are computed at once, after each node; or NULL */
};

static bool at_end(void *left)
{
    return --*(int *)left == 0;
}

static bool meet(void *meeting)
{
    pthread_barrier_wait(meeting);
    return false;
}

static void compute_nodes(struct ggml_cgraph *graph, const struct run *run)
{
    struct ggml_cplan plan = ggml_graph_plan(graph, run->planned, NULL);
    if (run->work_size)
        plan.work_size = run->work_size;
    plan.work_data = memory(plan.work_size + CANARIES);
    memset(plan.work_data, 0xff, plan.work_size);
    memset(plan.work_data + plan.work_size, CANARY, CANARIES);
    plan.n_threads = run->threads;
    plan.use_ref = run->use_ref;
    int left = run->nodes;
    plan.abort_callback = run->meeting ? meet : left ? at_end : NULL;
    plan.abort_callback_data = run->meeting ? (void *)run->meeting : &left;
    enum ggml_status status = ggml_graph_compute(graph, &plan);
    if (status != GGML_STATUS_SUCCESS && !(run->nodes && left <= 0 && status == GGML_STATUS_ABORTED))
        die("failed");
    for (int i = 0; i < CANARIES; i++)
        if (plan.work_data[plan.work_size + (size_t)i] != CANARY)
            die("planned for %d threads, run with %d: wrote behind the working memory", run->planned, run->threads);
    free(plan.work_data);
}

static void compute(struct scene *scene, const struct run *run)
{
    forget(scene);
    compute_nodes(scene->graph, run);
}

/* Of all wanted nodes: the largest |number - exact|, relative to the largest exact number of the node; infinite for NaN, and for what
 * should be 0 and is not. */
static double error_of(struct scene *scene)
{
    double worst = 0;
    for (int n = 0; n < ggml_graph_n_nodes(scene->graph); n++) {
        const struct ggml_tensor *node = ggml_graph_node(scene->graph, n);
        if (!(node->flags & GGML_TENSOR_FLAG_OUTPUT))
            continue;
        const double *expected = exact(scene, node);
        double most = 0, error = 0;
        for (int64_t i = 0; i < ggml_nelements(node); i++) {
            double off = fabs((double)((const float *)node->data)[i] - expected[i]);
            if (expected[i] == 0 && off > 0 && scene->exact_zeros)
                off = HUGE_VAL;
            most = fmax(most, fabs(expected[i]));
            error = off <= error ? error : off < HUGE_VAL ? off : HUGE_VAL; /* infinite for NaN, and it stays so */
        }
        worst = fmax(worst, error == 0 ? 0 : most == 0 ? HUGE_VAL : error / most);
    }
    return worst;
}

/* With the nodes before a cut computed as one graph, the others as another. */
static double error_in_pieces(struct scene *scene, int cut, int threads)
{
    forget(scene);
    struct ggml_cgraph parts[] = {ggml_graph_view(scene->graph, 0, cut),
                                  ggml_graph_view(scene->graph, cut, ggml_graph_n_nodes(scene->graph))};
    for (int i = 0; i < 2; i++)
        compute_nodes(&parts[i], &(struct run){.planned = threads, .threads = threads});
    return error_of(scene);
}

/* A copy of the numbers of all wanted nodes. */
static char *copy_of(const struct scene *scene, size_t *size)
{
    char *copy = NULL;
    *size = 0;
    for (int i = 0; i < ggml_graph_n_nodes(scene->graph); i++) {
        const struct ggml_tensor *node = ggml_graph_node(scene->graph, i);
        if (!(node->flags & GGML_TENSOR_FLAG_OUTPUT))
            continue;
        copy = realloc(copy, *size + ggml_nbytes(node));
        memcpy(copy + *size, node->data, ggml_nbytes(node));
        *size += ggml_nbytes(node);
    }
    return copy;
}

struct errors {
    double hook, ggml;
};

static struct errors compute_all(struct scene *scene, int count, const int *threads)
{
    char *first = NULL;
    struct errors errors = {0, 0};
    for (int i = 0; i < count; i++) {
        size_t size;
        compute(scene, &(struct run){.planned = threads[i], .threads = threads[i]});
        char *copy = copy_of(scene, &size);
        if (first && memcmp(copy, first, size) != 0)
            die("another result with %d threads", threads[i]);
        errors.hook = fmax(errors.hook, error_of(scene));
        free(first);
        first = copy;
    }
    free(first);
    compute(scene, &(struct run){.planned = 2, .threads = 2, .use_ref = true});
    errors.ggml = error_of(scene);
    return errors;
}

/* ---- attention as stable-diffusion.cpp builds it without FLASH_ATTN_EXT, and what is next to it ---- */

enum part { NONE, Q_FROM, K_FROM, V_FROM, Q, K, V, MASK, SINKS, SCORES, SCALED, MASKED, WEIGHTS, PRODUCT, OUTPUT, PARTS };
enum { MOST_CLOBBERS = 4 };

struct form {
    int64_t depth, heads, kv_heads, queries, keys, batch, kv_batch;
    bool in_place;   /* scale, mask and softmax overwrite the scores */
    bool four;       /* products of [.., .., heads, batch] instead of [.., .., heads * batch] */
    bool made;       /* q and k are no copies, as what was rotated is not */
    bool by_cont;    /* the copies have the products' shape, not what they copy */
    bool unscaled;   /* no SCALE */
    bool unmerged;   /* the product's rows stay head by head */
    bool late;       /* the values are copied after the softmax */
    float bias;      /* of the SCALE */
    bool half;       /* scores are made F16 between */
    bool swapped;    /* the product of the weights and the values, not the other way round */
    bool v_as_is;    /* the values are transposed by something else than a copy */
    bool transposed; /* the copy at the end is of other dimensions exchanged */
    enum ggml_type k_type;                                                       /* a leaf of this type, if not F32 */
    enum { /* given: to the softmax */
        NO_MASK,
        ADDED,
        ADDED_ROW,        /* of all queries */
        ADDED_HEADS,      /* one for each head of each batch */
        ADDED_HALF_HEADS, /* for half of them, used again for the others */
        ADDED_PART,       /* of a larger mask */
        ADDED_TRANSPOSED,
        ADDED_CAUSAL, /* no query sees the keys behind it */
        GIVEN,
        GIVEN_F16,
        GIVEN_HEADS,
        GIVEN_LONGER, /* for more queries than there are */
        MASKS
    } mask;
    float given_scale, max_bias;                                                 /* of the softmax; 0: a scale of 1 */
    bool sinks;
    enum part read_twice, wanted;
    struct ggml_tensor *after_q; /* a node that is computed when q has been copied */
    enum part output_on; /* where the output's memory is */
    struct {
        enum part after, what;
    } clobber[MOST_CLOBBERS]; /* memory that a node of another branch is written to */
};

struct parts {
    struct ggml_tensor *at[PARTS];
};

struct ggml_tensor *projected(struct scene *scene, struct ggml_tensor *x, int64_t rows)
{
    struct ggml_tensor *w = leaf(scene, GGML_TYPE_F32, 1 / sqrtf((float)x->ne[0]), x->ne[0], rows, 1, 1);
    return ggml_mul_mat(scene->ctx, w, x);
}

/* Nodes of another branch, of all sizes, between those of the attentions. */
struct branch {
    struct ggml_tensor *x;
};
static struct branch *branching; /* NULL: none is to be built */

static void sometimes_grow(struct scene *scene, struct branch *branch)
{
    if (!branch || !once_in(3))
        return;
    struct ggml_tensor *big = projected(scene, branch->x, ONE_OF(3, 40, 200));
    branch->x = ggml_add(scene->ctx, projected(scene, ggml_silu(scene->ctx, big), branch->x->ne[0]), branch->x);
    expand(scene, branch->x);
}

void clobber(struct scene *scene, struct ggml_tensor *what)
{
    struct ggml_tensor *x = leaf(scene, GGML_TYPE_F32, 1, ggml_nelements(root(what)), 1, 1, 1), *node = ggml_scale(scene->ctx, x, 3);
    expand(scene, node);
    scene->overlay[scene->overlays++] = (struct overlay){.node = node, .on = what};
}

static struct ggml_tensor *part(struct scene *scene, const struct form *form, struct parts *parts, enum part which,
                                struct ggml_tensor *node)
{
    parts->at[which] = node;
    if (form->read_twice == which)
        want(scene, ggml_cont(scene->ctx, node));
    if (form->wanted == which)
        ggml_set_output(node);
    if (branching && once_in(3)) {
        expand(scene, node);
        sometimes_grow(scene, branching);
    }
    for (int i = 0; i < MOST_CLOBBERS; i++)
        if (form->clobber[i].after == which && which != NONE) {
            expand(scene, node);
            clobber(scene, parts->at[form->clobber[i].what]);
        }
    return node;
}

/* From [depth, heads, tokens, batch], which `from` is a view of. */
static struct ggml_tensor *copied(struct scene *scene, const struct form *form, struct ggml_tensor *from, bool transpose)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *x = transpose ? ggml_permute(ctx, from, 1, 2, 0, 3) : ggml_permute(ctx, from, 0, 2, 1, 3);
    int64_t all = x->ne[2] * x->ne[3];
    if (form->by_cont && !form->four)
        return ggml_cont_3d(ctx, x, x->ne[0], x->ne[1], all);
    struct ggml_tensor *copy = ggml_cont(ctx, x);
    if (transpose ? form->v_as_is : form->made)
        copy = ggml_scale(ctx, copy, 1.25f);
    return form->four ? copy : ggml_reshape_3d(ctx, copy, x->ne[0], x->ne[1], all);
}

static struct ggml_tensor *make_mask(struct scene *scene, const struct form *form)
{
    struct ggml_context *ctx = scene->ctx;
    const int64_t all = form->four ? form->heads : form->heads * form->batch;
    const int64_t batch = form->four && form->mask == ADDED_HEADS ? form->batch : 1;
    const int64_t half = form->heads % 2 ? form->heads : form->heads / 2;
    int64_t heads[MASKS] = {[ADDED_HEADS] = all, [ADDED_HALF_HEADS] = half, [GIVEN_HEADS] = form->heads};
    enum ggml_type type = form->mask == GIVEN_F16 ? GGML_TYPE_F16 : GGML_TYPE_F32;
    int64_t keys = form->keys, queries = form->queries;
    if (form->mask == ADDED_ROW)
        queries = 1;
    if (form->mask == ADDED_PART)
        keys += 3;
    if (form->mask == ADDED_TRANSPOSED) {
        keys = form->queries;
        queries = form->keys;
    }
    if (form->mask == GIVEN_LONGER)
        queries += 5;
    struct ggml_tensor *mask = leaf(scene, type, 0.5f, keys, queries, heads[form->mask] ? heads[form->mask] : 1, batch);
    if (form->mask == ADDED_CAUSAL)
        for (int64_t i = 0; i < queries; i++)
            for (int64_t j = i + 1; j < keys; j++)
                ((float *)mask->data)[i * keys + j] = -INFINITY;
    for (int64_t i = 0; i < mask->ne[1] && form->keys > 2 && form->mask != ADDED_CAUSAL && form->mask != ADDED_TRANSPOSED; i++) /* a key of each query */
        if (type == GGML_TYPE_F16)
            ((ggml_fp16_t *)mask->data)[i * mask->ne[0] + 1 + below(mask->ne[0] - 1)] = ggml_fp32_to_fp16(-INFINITY);
        else
            ((float *)mask->data)[i * mask->ne[0] + 1 + below(mask->ne[0] - 1)] = -INFINITY;
    if (form->mask == GIVEN_F16)
        return mask;
    mask = ggml_cont(ctx, mask); /* a node, whose memory is given back after it was read */
    if (form->mask == ADDED_PART)
        return ggml_view_2d(ctx, mask, form->keys, queries, mask->nb[1], 2 * mask->nb[0]);
    return form->mask == ADDED_TRANSPOSED ? ggml_transpose(ctx, mask) : mask;
}

/* Of q, k and v as [depth, heads, tokens, batch]; the output as [depth * heads, queries, batch]. */
static struct ggml_tensor *attention(struct scene *scene, const struct form *form, struct ggml_tensor *q, struct ggml_tensor *k,
                                     struct ggml_tensor *v, struct parts *parts)
{
    struct ggml_context *ctx = scene->ctx;
    const bool in_place = form->in_place && !form->read_twice && !form->wanted;
    struct ggml_tensor *mask = form->mask ? make_mask(scene, form) : NULL;
    const bool given = form->mask >= GIVEN;
    parts->at[MASK] = mask;
    if (mask)
        expand(scene, mask);
    q = part(scene, form, parts, Q, copied(scene, form, part(scene, form, parts, Q_FROM, q), false));
    if (form->after_q) {
        expand(scene, q);
        expand(scene, form->after_q);
    }
    if (!form->k_type)
        k = part(scene, form, parts, K, copied(scene, form, part(scene, form, parts, K_FROM, k), false));
    v = part(scene, form, parts, V_FROM, v);
    expand(scene, v);
    struct ggml_tensor *v_copy = copied(scene, form, v, true);
    if (!form->late)
        expand(scene, v_copy);
    struct ggml_tensor *scores = part(scene, form, parts, SCORES, ggml_mul_mat(ctx, k, q));
    if (form->half)
        scores = ggml_cast(ctx, ggml_cast(ctx, scores, GGML_TYPE_F16), GGML_TYPE_F32);
    float scale = 1 / sqrtf((float)form->depth);
    if (!form->unscaled)
        scores = part(scene, form, parts, SCALED,
                      in_place && form->bias == 0 ? ggml_scale_inplace(ctx, scores, scale)
                                                  : ggml_scale_bias(ctx, scores, scale, form->bias));
    if (mask && !given)
        scores = part(scene, form, parts, MASKED,
                      in_place ? ggml_add_inplace(ctx, scores, mask) : ggml_add(ctx, scores, mask));
    float given_scale = form->given_scale != 0 ? form->given_scale : 1;
    struct ggml_tensor *weights =
        in_place ? ggml_soft_max_ext_inplace(ctx, scores, given ? mask : NULL, given_scale, given ? form->max_bias : 0)
                 : ggml_soft_max_ext(ctx, scores, given ? mask : NULL, given_scale, given ? form->max_bias : 0);
    if (form->sinks) {
        parts->at[SINKS] = ggml_cont(ctx, leaf(scene, GGML_TYPE_F32, 1, weights->ne[2], 1, 1, 1));
        expand(scene, parts->at[SINKS]);
        ggml_soft_max_add_sinks(weights, parts->at[SINKS]);
    }
    weights = part(scene, form, parts, WEIGHTS, weights);
    if (form->late)
        expand(scene, weights);
    v = part(scene, form, parts, V, v_copy);
    if (form->swapped)
        return part(scene, form, parts, OUTPUT, ggml_mul_mat(ctx, weights, v));
    struct ggml_tensor *product = part(scene, form, parts, PRODUCT, ggml_mul_mat(ctx, v, weights)), *out = product;
    if (!form->unmerged) {
        out = ggml_reshape_4d(ctx, product, form->depth, form->queries, form->heads, form->batch);
        out = form->transposed ? ggml_permute(ctx, out, 1, 0, 2, 3) : ggml_permute(ctx, out, 0, 2, 1, 3);
        out = ggml_cont(ctx, out);
    }
    part(scene, form, parts, OUTPUT, out);
    if (form->output_on)
        scene->overlay[scene->overlays++] = (struct overlay){.node = root(out), .on = parts->at[form->output_on]};
    return ggml_reshape_3d(ctx, out, form->depth * form->heads, form->queries, form->batch);
}

/* Rows of a projection as [depth, heads, tokens, batch]. */
static struct ggml_tensor *by_heads(struct scene *scene, struct ggml_tensor *x, int64_t depth)
{
    return ggml_reshape_4d(scene->ctx, x, depth, x->ne[0] / depth, x->ne[1], x->ne[2]);
}

/* ---- cases ---- */

static const struct {
    const char *name;
    struct form form; /* what is 0 is as in `usual` */
} patterns[] = {
    {"self", {.in_place = true}},
    {"cross", {.keys = 77, .in_place = true}},
    {"four_dimensions", {.four = true, .batch = 2, .kv_batch = 2, .heads = 6, .kv_heads = 2, .in_place = true}},
    {"masked", {.mask = ADDED, .in_place = true}},
    {"masked_by_head", {.mask = ADDED_HEADS, .in_place = true}},
    {"causal", {.mask = ADDED_CAUSAL, .in_place = true}},
    {"causal_of_many", {.mask = ADDED_CAUSAL, .queries = 150, .keys = 150, .in_place = true}},
    {"masked_by_some_heads", {.mask = ADDED_HALF_HEADS, .heads = 4, .in_place = true}},
    {"masked_by_part", {.mask = ADDED_PART, .in_place = true}},
    {"batched", {.batch = 2, .kv_batch = 2, .in_place = true}},
    {"batched_masked", {.batch = 2, .kv_batch = 2, .mask = ADDED, .in_place = true}},
    {"batched_grouped", {.batch = 2, .kv_batch = 2, .heads = 6, .kv_heads = 2, .in_place = true}},
    {"grouped", {.heads = 6, .kv_heads = 2, .in_place = true}},
    {"made", {.made = true, .in_place = true}},
    {"made_batched", {.made = true, .batch = 2, .kv_batch = 2, .in_place = true}},
    {"unmerged", {.unmerged = true, .in_place = true}},
    {"unscaled", {.unscaled = true, .in_place = true}},
    {"not_in_place", {.mask = ADDED}},
    {"given_mask", {.mask = GIVEN, .given_scale = 0.3f, .in_place = true}},
    {"given_mask_f16", {.mask = GIVEN_F16, .given_scale = 0.3f, .unscaled = true}},
    {"given_longer_mask", {.mask = GIVEN_LONGER, .in_place = true}},
    {"given_mask_by_head", {.mask = GIVEN_HEADS, .max_bias = 4, .heads = 6, .kv_heads = 6}},
    {"given_scale", {.given_scale = 0.3f, .in_place = true}},
    {"sinks", {.sinks = true, .in_place = true}},
    {"one_query", {.queries = 1, .in_place = true}},
    {"one_key", {.keys = 1, .in_place = true}},
    {"one_head", {.heads = 1, .kv_heads = 1, .depth = 96, .in_place = true}},
    {"transposed_after", {.transposed = true, .in_place = true}},
    {"output_wanted", {.wanted = OUTPUT}},
    {"product_wanted", {.wanted = PRODUCT}},
    {"product_read_twice", {.read_twice = PRODUCT}},
    {"q_read_twice", {.read_twice = Q}},
    {"k_wanted", {.wanted = K}},
    {"v_read_twice", {.read_twice = V}},
    {"q_from_read_twice", {.read_twice = Q_FROM}},
    /* Next to the pattern. */
    {"scores_read_twice", {.read_twice = SCORES}},
    {"scaled_read_twice", {.read_twice = SCALED}},
    {"masked_read_twice", {.read_twice = MASKED, .mask = ADDED}},
    {"weights_read_twice", {.read_twice = WEIGHTS}},
    {"scores_wanted", {.wanted = SCORES}},
    {"scaled_wanted", {.wanted = SCALED}},
    {"masked_wanted", {.wanted = MASKED, .mask = ADDED}},
    {"weights_wanted", {.wanted = WEIGHTS}},
    {"scale_with_bias", {.bias = 0.5f}},
    {"half_scores", {.half = true}},
    {"quantized_keys", {.k_type = GGML_TYPE_Q8_0, .depth = 32}},
    {"half_keys", {.k_type = GGML_TYPE_F16}},
    {"values_not_copied", {.v_as_is = true}},
    {"swapped", {.swapped = true}},
    {"mask_of_one_row", {.mask = ADDED_ROW}},
    {"transposed_mask", {.mask = ADDED_TRANSPOSED, .queries = 21}},
    {"batched_masked_by_head", {.batch = 2, .kv_batch = 2, .mask = ADDED_HEADS}},
    {"keys_of_one_batch", {.batch = 2, .kv_batch = 1, .heads = 6, .kv_heads = 2, .in_place = true}},
    {"keys_of_one_batch_4d", {.batch = 2, .kv_batch = 1, .heads = 6, .kv_heads = 2, .four = true}},
    {"flattened_by_copies", {.batch = 2, .kv_batch = 2, .heads = 6, .kv_heads = 2, .by_cont = true, .in_place = true}},
    /* Memory that is used again. */
    {"output_on_q", {.in_place = true, .output_on = Q_FROM}},
    {"output_on_k", {.in_place = true, .output_on = K_FROM}},
    {"output_on_v", {.in_place = true, .output_on = V_FROM}},
    {"output_on_mask", {.in_place = true, .mask = ADDED, .keys = 120, .output_on = MASK}},
    {"output_on_scores", {.in_place = true, .keys = 120, .output_on = SCORES}},
    {"product_on_q", {.in_place = true, .unmerged = true, .output_on = Q_FROM}},
    {"q_overwritten", {.in_place = true, .clobber = {{Q, Q_FROM}}}},
    {"k_overwritten", {.in_place = true, .clobber = {{SCORES, K_FROM}}}},
    {"v_overwritten", {.in_place = true, .clobber = {{SCALED, V_FROM}}}},
    {"q_read_twice_and_overwritten", {.in_place = true, .read_twice = Q_FROM, .clobber = {{SCALED, Q_FROM}}}},
    {"k_read_twice_and_overwritten", {.in_place = true, .read_twice = K_FROM, .clobber = {{SCORES, K_FROM}}}},
    {"v_read_twice_and_overwritten", {.in_place = true, .read_twice = V_FROM, .clobber = {{SCALED, V_FROM}}}},
    {"q_read_twice_all_overwritten", {.in_place = true, .read_twice = Q_FROM, .clobber = {{SCORES, V_FROM}, {SCORES, K_FROM}, {SCALED, Q_FROM}}}},
    {"all_overwritten", {.in_place = true, .clobber = {{SCORES, V_FROM}, {SCORES, K_FROM}, {SCALED, Q_FROM}}}},
    {"q_overwritten_output_on_copy", {.in_place = true, .clobber = {{Q, Q_FROM}}, .output_on = Q}},
    {"copy_overwritten", {.in_place = true, .clobber = {{SCORES, Q}}}},
    {"q_and_copy_overwritten", {.in_place = true, .clobber = {{Q, Q_FROM}, {SCORES, Q}}}},
    {"made_overwritten", {.in_place = true, .made = true, .clobber = {{SCORES, Q}}}},
    {"mask_overwritten", {.in_place = true, .mask = ADDED, .clobber = {{MASKED, MASK}}}},
    {"mask_overwritten_late", {.in_place = true, .mask = ADDED, .clobber = {{WEIGHTS, MASK}}}},
    {"sinks_overwritten", {.in_place = true, .sinks = true, .clobber = {{WEIGHTS, SINKS}}}},
    {"output_on_sinks", {.in_place = true, .sinks = true, .depth = 1, .queries = 1, .output_on = SINKS}},
};

static int64_t or(int64_t value, int64_t usual)
{
    return value ? value : usual;
}

static void build_pattern(struct scene *scene, struct form form)
{
    form.depth = or(form.depth, 40);
    form.heads = or(form.heads, 3);
    form.kv_heads = or(form.kv_heads, form.heads);
    form.queries = or(form.queries, 37);
    form.keys = or(form.keys, 37);
    form.batch = or(form.batch, 1);
    form.kv_batch = or(form.kv_batch, 1);
    if (form.half)
        scene->tolerance = 2e-3;
    if (form.k_type)
        scene->tolerance = 2e-2;
    struct ggml_tensor *x = leaf(scene, GGML_TYPE_F32, 1, 24, form.queries, form.batch, 1);
    struct ggml_tensor *y = leaf(scene, GGML_TYPE_F32, 1, 24, form.keys, form.kv_batch, 1);
    struct ggml_tensor *q = by_heads(scene, projected(scene, x, form.depth * form.heads), form.depth);
    struct ggml_tensor *k = form.k_type ? leaf(scene, form.k_type, 1, form.depth, form.keys, form.kv_heads, 1)
                                        : by_heads(scene, projected(scene, y, form.depth * form.kv_heads), form.depth);
    struct ggml_tensor *v = by_heads(scene, projected(scene, y, form.depth * form.kv_heads), form.depth);
    struct parts parts = {{0}};
    struct ggml_tensor *out = attention(scene, &form, q, k, v, &parts);
    if (form.wanted == OUTPUT)
        expand(scene, out);
    else
        want(scene, ggml_scale(scene->ctx, out, 1.5f));
}

/* Values are copied to where the mask was, and have to be, before the mask is read. */
static void values_on_mask(struct scene *scene)
{
    struct form form = {.depth = 40, .heads = 3, .kv_heads = 3, .queries = 41, .keys = 120, .batch = 1, .kv_batch = 1,
                        .in_place = true, .mask = ADDED_HEADS, .late = true, .clobber = {{V, V_FROM}}};
    struct ggml_tensor *x = leaf(scene, GGML_TYPE_F32, 1, 24, 41, 1, 1), *y = leaf(scene, GGML_TYPE_F32, 1, 24, 120, 1, 1);
    struct parts parts = {{0}};
    want(scene, ggml_scale(scene->ctx,
                           attention(scene, &form, by_heads(scene, projected(scene, x, 120), 40),
                                     by_heads(scene, projected(scene, y, 120), 40), by_heads(scene, projected(scene, y, 120), 40), &parts),
                           1.5f));
    scene->overlay[scene->overlays++] = (struct overlay){.node = root(parts.at[V]), .on = parts.at[MASK]};
}

/* A doubling of an image that only copies, because its convolution's output lies on the image, writes where q was. */
static void doubled_on_q(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct form form = {.depth = 40, .heads = 3, .kv_heads = 3, .queries = 37, .keys = 37, .batch = 1, .kv_batch = 1};
    struct ggml_tensor *x = leaf(scene, GGML_TYPE_F32, 1, 24, 37, 1, 1), *y = leaf(scene, GGML_TYPE_F32, 1, 24, 37, 1, 1);
    struct ggml_tensor *image = ggml_cont(ctx, leaf(scene, GGML_TYPE_F32, 1, 6, 5, 32, 1));
    struct ggml_tensor *doubled = ggml_upscale(ctx, image, 2, GGML_SCALE_MODE_NEAREST);
    struct ggml_tensor *convolved = ggml_conv_2d_direct(ctx, leaf(scene, GGML_TYPE_F16, 1, 3, 3, 32, 32), doubled, 1, 1, 1, 1, 1, 1);
    struct ggml_tensor *q = by_heads(scene, projected(scene, x, 120), 40);
    struct parts parts = {{0}};
    form.after_q = convolved;
    want(scene, ggml_scale(ctx,
                           attention(scene, &form, q, by_heads(scene, projected(scene, y, 120), 40),
                                     by_heads(scene, projected(scene, y, 120), 40), &parts),
                           1.5f));
    scene->overlay[scene->overlays++] = (struct overlay){.node = image, .on = convolved};
    scene->overlay[scene->overlays++] = (struct overlay){.node = doubled, .on = root(q)};
}

struct ggml_tensor *as_queries(struct scene *scene, struct ggml_tensor *q, struct ggml_tensor **product)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *k = leaf(scene, GGML_TYPE_F32, 0.3f, q->ne[0], 15, q->ne[2], 1);
    struct ggml_tensor *v = leaf(scene, GGML_TYPE_F32, 1, q->ne[0], 15, q->ne[2], 1);
    struct ggml_tensor *weights = ggml_soft_max(ctx, ggml_mul_mat(ctx, k, q));
    *product = ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, v)), weights);
    return ggml_cont(ctx, ggml_permute(ctx, *product, 0, 2, 1, 3));
}

/* The copy at the end of an attention is the one at the beginning of another. */
static void chained(struct scene *scene)
{
    struct ggml_tensor *product;
    struct ggml_tensor *q = as_queries(scene, leaf(scene, GGML_TYPE_F32, 1, 16, 21, 5, 1), &product);
    want(scene, as_queries(scene, q, &product));
}

/* The result of an attention is the scores of another. */
static void chained_scores(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *product;
    as_queries(scene, leaf(scene, GGML_TYPE_F32, 1, 16, 21, 5, 1), &product);
    struct ggml_tensor *v = leaf(scene, GGML_TYPE_F32, 1, 24, 16, 5, 1);
    want(scene, ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, v)), ggml_soft_max(ctx, product)));
}

/* The same where no copy belongs to both. */
static void chained_scores_of_one_key(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *q = leaf(scene, GGML_TYPE_F32, 1, 16, 21, 5, 1), *k = leaf(scene, GGML_TYPE_F32, 1, 16, 1, 5, 1);
    struct ggml_tensor *first = leaf(scene, GGML_TYPE_F32, 1, 1, 16, 5, 1), *second = leaf(scene, GGML_TYPE_F32, 1, 24, 16, 5, 1);
    struct ggml_tensor *product = ggml_mul_mat(ctx, first, ggml_soft_max(ctx, ggml_mul_mat(ctx, k, q)));
    want(scene, ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, second)), ggml_soft_max(ctx, product)));
}

static void soft_max_of_no_product(struct scene *scene)
{
    struct ggml_context *ctx = scene->ctx;
    struct ggml_tensor *scores = leaf(scene, GGML_TYPE_F32, 1, 15, 21, 5, 1), *v = leaf(scene, GGML_TYPE_F32, 1, 24, 15, 5, 1);
    want(scene, ggml_mul_mat(ctx, ggml_cont(ctx, ggml_transpose(ctx, v)), ggml_soft_max(ctx, ggml_scale(ctx, scores, 2))));
}

/* ---- FLASH_ATTN_EXT ---- */

struct flash {
    int64_t depth, value_depth, queries, keys, heads, kv_heads, batch;
    enum ggml_type k_type, v_type;
    bool masked, masked_query, sinks, fused;
    int64_t mask_heads;
    float max_bias, softcap;
    double tolerance;
};

static void build_flash(struct scene *scene, struct flash flash)
{
    struct ggml_context *ctx = scene->ctx;
    int64_t depth = or(flash.depth, 40), heads = or(flash.heads, 3), queries = or(flash.queries, 37), keys = or(flash.keys, 45);
    int64_t kv_heads = or(flash.kv_heads, heads), batch = or(flash.batch, 1);
    struct ggml_tensor *q = leaf(scene, GGML_TYPE_F32, 1, depth, queries, heads, batch);
    struct ggml_tensor *k = leaf(scene, flash.k_type, 1, depth, keys, kv_heads, batch);
    struct ggml_tensor *v = leaf(scene, flash.v_type, 1, or(flash.value_depth, depth), keys, kv_heads, batch), *mask = NULL;
    if (flash.fused) { /* rows of [q, k, v], each of all heads */
        struct ggml_tensor *qkv = leaf(scene, GGML_TYPE_F32, 1, 3 * depth * heads, queries, batch, 1), *of[3];
        for (int i = 0; i < 3; i++)
            of[i] = ggml_permute(ctx,
                                 ggml_view_4d(ctx, qkv, depth, heads, queries, batch, (size_t)depth * sizeof(float), qkv->nb[1],
                                              qkv->nb[2], (size_t)(i * depth * heads) * sizeof(float)),
                                 0, 2, 1, 3);
        q = of[0];
        k = of[1];
        v = of[2];
    }
    if (flash.masked) {
        mask = leaf(scene, GGML_TYPE_F16, 0.5f, k->ne[1], queries, or(flash.mask_heads, 1), 1);
        ggml_fp16_t *at = mask->data;
        for (int64_t i = 0; i < ggml_nelements(mask); i++)
            if (once_in(4) || (flash.masked_query && i / mask->ne[0] % queries == 5))
                at[i] = ggml_fp32_to_fp16(-INFINITY);
    }
    scene->exact_zeros = true;
    struct ggml_tensor *out = ggml_flash_attn_ext(ctx, q, k, v, mask, 1 / sqrtf((float)depth), flash.max_bias, flash.softcap);
    ggml_flash_attn_ext_set_prec(out, GGML_PREC_F32);
    if (flash.sinks)
        ggml_flash_attn_ext_add_sinks(out, leaf(scene, GGML_TYPE_F32, 1, heads, 1, 1, 1));
    want(scene, out);
    scene->tolerance = flash.tolerance > 0 ? flash.tolerance : 2e-3; /* sums of F16 */
}

static const struct {
    const char *name;
    struct flash flash;
} flashes[] = {
    {"flash_f32", {.depth = 64, .queries = 70}},
    {"flash_depth_40", {.depth = 40, .queries = 70}},
    {"flash_f16", {.k_type = GGML_TYPE_F16, .v_type = GGML_TYPE_F16}},
    {"flash_bf16", {.k_type = GGML_TYPE_BF16, .v_type = GGML_TYPE_BF16, .tolerance = 2e-2}},
    {"flash_mixed", {.k_type = GGML_TYPE_F16, .v_type = GGML_TYPE_F32}},
    {"flash_fused", {.fused = true, .batch = 2}},
    {"flash_grouped", {.heads = 6, .kv_heads = 2, .batch = 2}},
    {"flash_values_deeper", {.value_depth = 56}},
    {"flash_masked", {.masked = true}},
    {"flash_masked_by_head", {.masked = true, .mask_heads = 3}},
    {"flash_masked_query", {.masked = true, .masked_query = true, .k_type = GGML_TYPE_F16, .v_type = GGML_TYPE_F16}},
    {"flash_max_bias", {.masked = true, .max_bias = 4, .heads = 6}},
    {"flash_softcap", {.softcap = 0.7f}},
    {"flash_sinks", {.sinks = true}},
    {"flash_all", {.masked = true, .max_bias = 2, .softcap = 3, .sinks = true, .heads = 5, .batch = 2}},
    {"flash_one_query", {.queries = 1, .keys = 700}},
    {"flash_q8_0", {.k_type = GGML_TYPE_Q8_0, .v_type = GGML_TYPE_Q8_0, .depth = 64, .tolerance = 2e-2}},
    {"flash_q4_0_keys", {.k_type = GGML_TYPE_Q4_0, .v_type = GGML_TYPE_F16, .depth = 64, .tolerance = 2e-2}},
};

/* ---- random graphs ---- */

static struct ggml_tensor *with_bias(struct scene *scene, struct ggml_tensor *x)
{
    return once_in(2) ? ggml_add_inplace(scene->ctx, x, leaf(scene, GGML_TYPE_F32, 0.1f, x->ne[0], 1, 1, 1)) : x;
}

/* What an attention of a block reads, if the block's input is x. */
struct block {
    struct form form;
    struct ggml_tensor *q, *k, *v;
};

static struct form random_form(int64_t tokens, int64_t batch)
{
    struct form form = {.depth = ONE_OF(4, 8, 24, 40), .heads = ONE_OF(1, 2, 4, 6), .queries = tokens, .batch = batch, .kv_batch = batch};
    form.kv_heads = once_in(3) ? 1 + (form.heads > 2) * (form.heads / 2 - 1) : form.heads;
    form.keys = once_in(2) ? tokens : ONE_OF(1, 5, 17, 77);
    form.in_place = !once_in(4);
    form.four = once_in(4);
    form.made = once_in(6);
    form.by_cont = once_in(8);
    form.unscaled = once_in(8);
    form.unmerged = once_in(8);
    form.late = once_in(3);
    form.bias = once_in(20) ? 0.5f : 0;
    form.v_as_is = once_in(20);
    form.transposed = once_in(20);
    form.sinks = once_in(8);
    if (once_in(2)) {
        form.mask = (int)(1 + below(MASKS - 1));
        if (form.mask >= GIVEN && once_in(2))
            form.max_bias = 4;
    }
    if (once_in(3))
        form.given_scale = 0.7f;
    if (once_in(6))
        form.read_twice = (enum part)(1 + below(PARTS - 1));
    if (once_in(6))
        form.wanted = (enum part)(1 + below(PARTS - 1));
    if (form.wanted == MASK || form.wanted == SINKS || form.wanted == Q_FROM || form.wanted == K_FROM || form.wanted == V_FROM)
        form.wanted = NONE;
    return form;
}

static void random_keys(struct scene *scene, struct block *block, struct ggml_tensor *context)
{
    const struct form *form = &block->form;
    block->k = by_heads(scene, with_bias(scene, projected(scene, context, form->depth * form->kv_heads)), form->depth);
    block->v = by_heads(scene, with_bias(scene, projected(scene, context, form->depth * form->kv_heads)), form->depth);
}

/* q, k and v as parts of one projection. */
static void random_fused(struct scene *scene, struct block *block, struct ggml_tensor *x)
{
    const struct form *form = &block->form;
    int64_t rows = form->heads + 2 * form->kv_heads, first[] = {0, form->heads, form->heads + form->kv_heads};
    struct ggml_tensor *all = with_bias(scene, projected(scene, x, rows * form->depth)), *of[3];
    for (int i = 0; i < 3; i++)
        of[i] = ggml_view_4d(scene->ctx, all, form->depth, i ? form->kv_heads : form->heads, x->ne[1], x->ne[2],
                             (size_t)form->depth * sizeof(float), all->nb[1], all->nb[2],
                             (size_t)(first[i] * form->depth) * sizeof(float));
    block->q = of[0];
    block->k = of[1];
    block->v = of[2];
}

static void build_random(struct scene *scene)
{
    enum { MOST_BLOCKS = 4 };
    const int64_t tokens = ONE_OF(1, 9, 16, 33), width = ONE_OF(8, 32, 48), batch = once_in(3) ? 2 : 1;
    const int blocks = (int)(2 + below(MOST_BLOCKS - 1));
    struct block block[MOST_BLOCKS];
    struct ggml_tensor *x = ggml_scale(scene->ctx, leaf(scene, GGML_TYPE_F32, 1, width, tokens, batch, 1), 1.5f);
    struct branch branch = {leaf(scene, GGML_TYPE_F32, 1, 16, 4, 1, 1)};
    for (int b = 0; b < blocks; b++) {
        block[b] = (struct block){.form = random_form(tokens, batch)};
        if (block[b].form.keys != tokens || once_in(2)) {
            block[b].form.kv_batch = once_in(3) ? 1 : batch;
            random_keys(scene, &block[b], leaf(scene, GGML_TYPE_F32, 1, 20, block[b].form.keys, block[b].form.kv_batch, 1));
            if (once_in(2)) { /* at the graph's start */
                expand(scene, block[b].k);
                expand(scene, block[b].v);
            }
        }
    }
    for (int b = 0; b < blocks; b++) {
        const struct form *form = &block[b].form;
        struct parts parts = {{0}};
        expand(scene, x);
        if (!block[b].k && once_in(2))
            random_fused(scene, &block[b], x);
        else {
            if (!block[b].k)
                random_keys(scene, &block[b], x);
            block[b].q = by_heads(scene, with_bias(scene, projected(scene, x, form->depth * form->heads)), form->depth);
        }
        sometimes_grow(scene, &branch);
        branching = &branch;
        struct ggml_tensor *a = attention(scene, form, block[b].q, block[b].k, block[b].v, &parts);
        branching = NULL;
        x = ggml_add(scene->ctx, with_bias(scene, projected(scene, a, width)), x);
        if (once_in(2))
            x = ggml_add(scene->ctx, projected(scene, ggml_silu(scene->ctx, projected(scene, x, 4 * width)), width), x);
        sometimes_grow(scene, &branch);
    }
    want(scene, ggml_scale(scene->ctx, x, 1));
    want(scene, ggml_scale(scene->ctx, branch.x, 1));
}

static void run_random(void (*build)(struct scene *scene), int first, int count)
{
    double worst = 0, worst_of_ggml = 0;
    for (int s = first; s < first + count; s++) {
        char name[32];
        snprintf(name, sizeof name, "seed %d", s);
        doing = name;
        seed((uint64_t)s);
        struct scene scene = empty_scene();
        scene.tolerance = 1e-4; /* of blocks one after the other */
        build(&scene);
        const int threads[] = {1 + s % 3, 5}, nodes = ggml_graph_n_nodes(scene.graph);
        if (s % 2)
            allocate_as_ggml_does(&scene);
        else
            allocate_at_random(&scene);
        struct errors errors = compute_all(&scene, 2, threads);
        if (s % 8 == 0) { /* fewer threads than were planned for */
            compute(&scene, &(struct run){.planned = 8, .threads = 3});
            errors.hook = fmax(errors.hook, error_of(&scene));
        }
        if (s % 4 == 3)
            errors.hook = fmax(errors.hook, error_in_pieces(&scene, 1 + (int)below(nodes - 1), 2));
        const double most = scene.hook_tolerance > 0 ? scene.hook_tolerance : scene.tolerance;
        if (!(errors.hook <= most && errors.ggml <= scene.tolerance))
            die("errors %g, %g by ggml", errors.hook, errors.ggml);
        worst = fmax(worst, errors.hook);
        worst_of_ggml = fmax(worst_of_ggml, errors.ggml);
        free_scene(&scene);
    }
    printf("%.9g %.9g\n", worst, worst_of_ggml);
}

/* With less working memory than the hook would have planned for, but no less than ggml needs; then not all can be taken. */
static void run_tight(int first, int count)
{
    double worst = 0;
    for (int s = first; s < first + count; s++) {
        seed((uint64_t)s);
        struct scene scene = empty_scene();
        (s % 2 ? build_network : build_random)(&scene);
        const int threads = 1 + s % 3;
        size_t least = ggml_graph_plan(scene.graph, threads, NULL).work_size; /* as long as tensors have no memory, ggml's own */
        allocate_as_ggml_does(&scene);
        size_t most = ggml_graph_plan(scene.graph, threads, NULL).work_size;
        for (int tries = 0; tries < 3; tries++) {
            size_t size = least + (size_t)below((int64_t)(most - least) + 1);
            compute(&scene, &(struct run){.planned = threads, .threads = threads, .work_size = size});
            worst = fmax(worst, error_of(&scene));
        }
        free_scene(&scene);
    }
    if (!(worst <= 1e-4))
        die("an error of %g", worst);
    printf("%.9g 0\n", worst);
}

static void allocate(struct scene *scene)
{
    if (scene->overlays || scene->apart)
        allocate_apart(scene);
    else
        allocate_as_ggml_does(scene);
}

static void run(struct scene *scene)
{
    allocate(scene);
    struct errors errors = compute_all(scene, 3, (int[]){1, 2, 5});
    if (!(errors.ggml <= scene->tolerance))
        die("an error of %g by ggml", errors.ggml);
    printf("%.9g %.9g\n", errors.hook, errors.ggml);
    free_scene(scene);
}

/* Of the error, which that of ggml's results is no more than: the largest. */
static double run_in_pieces(struct scene *scene)
{
    double worst = 0;
    allocate(scene);
    for (int cut = 1; cut < ggml_graph_n_nodes(scene->graph); cut++)
        worst = fmax(worst, error_in_pieces(scene, cut, 1 + cut % 3));
    free_scene(scene);
    return worst;
}

/* In several sizes of working memory between what ggml needs and what is planned. */
static double run_cramped(struct scene *scene)
{
    enum { SIZES = 24 };
    double worst = 0;
    const size_t least = ggml_graph_plan(scene->graph, 2, NULL).work_size; /* as long as tensors have no memory, ggml's own */
    allocate(scene);
    const size_t most = ggml_graph_plan(scene->graph, 2, NULL).work_size;
    for (size_t i = 0; i < SIZES && most > least; i++) {
        compute(scene, &(struct run){.planned = 2, .threads = 2, .work_size = least + (most - least) * i / SIZES + 1});
        worst = fmax(worst, error_of(scene));
    }
    free_scene(scene);
    return worst;
}

/* Ended after each of its nodes; nothing may remain of that. */
static double run_aborted(struct scene *scene)
{
    double worst = 0;
    size_t size;
    allocate(scene);
    compute(scene, &(struct run){.planned = 2, .threads = 2});
    char *whole = copy_of(scene, &size);
    for (int nodes = 1; nodes <= ggml_graph_n_nodes(scene->graph); nodes++) {
        compute(scene, &(struct run){.planned = 3, .threads = 1 + nodes % 3, .nodes = nodes});
        compute(scene, &(struct run){.planned = 3, .threads = 1 + nodes % 3});
        char *copy = copy_of(scene, &size);
        if (memcmp(copy, whole, size) != 0)
            die("another result after an end at %d", nodes);
        free(copy);
        worst = fmax(worst, error_of(scene));
    }
    free(whole);
    free_scene(scene);
    return worst;
}

static const struct {
    const char *name;
    void (*build)(struct scene *scene);
} others[] = {
    {"values_on_mask", values_on_mask},
    {"doubled_on_q", doubled_on_q},
    {"chained", chained},
    {"chained_scores", chained_scores},
    {"chained_scores_of_one_key", chained_scores_of_one_key},
    {"soft_max_of_no_product", soft_max_of_no_product},
};

/* ---- at once ---- */

enum { AT_ONCE = 3, TIMES = 4 };

struct one_of_several {
    struct scene scene;
    pthread_barrier_t *meeting;
    pthread_t thread;
};

static void *compute_with_others(void *data)
{
    struct one_of_several *one = data;
    for (int i = 0; i < TIMES; i++)
        compute(&one->scene, &(struct run){.planned = 2, .threads = 2, .meeting = one->meeting});
    return NULL;
}

#define LENGTH(array) (sizeof(array) / sizeof *(array))

static size_t single_cases(void)
{
    size_t count = 0;
    while (single_case(count))
        count++;
    return count;
}

/* The name of a case; NULL from their number on. */
static const char *case_name(size_t index)
{
    if (index < LENGTH(patterns))
        return patterns[index].name;
    index -= LENGTH(patterns);
    if (index < LENGTH(flashes))
        return flashes[index].name;
    index -= LENGTH(flashes);
    if (index < LENGTH(others))
        return others[index].name;
    index -= LENGTH(others);
    return single_case(index) ? single_case(index) : chain_case(index - single_cases());
}

static struct scene build_case(size_t index)
{
    doing = case_name(index);
    seed(1);
    struct scene scene = empty_scene();
    if (index < LENGTH(patterns)) {
        build_pattern(&scene, patterns[index].form);
        return scene;
    }
    index -= LENGTH(patterns);
    if (index < LENGTH(flashes)) {
        build_flash(&scene, flashes[index].flash);
        return scene;
    }
    index -= LENGTH(flashes);
    if (index < LENGTH(others)) {
        others[index].build(&scene);
        return scene;
    }
    index -= LENGTH(others);
    if (single_case(index))
        build_single_case(&scene, index);
    else
        build_chain_case(&scene, index - single_cases());
    return scene;
}

static void run_at_once(size_t index)
{
    struct one_of_several several[AT_ONCE];
    pthread_barrier_t meeting;
    pthread_barrier_init(&meeting, NULL, AT_ONCE);
    for (int i = 0; i < AT_ONCE; i++) {
        several[i] = (struct one_of_several){.scene = build_case(index), .meeting = &meeting};
        allocate(&several[i].scene);
    }
    for (int i = 0; i < AT_ONCE; i++)
        pthread_create(&several[i].thread, NULL, compute_with_others, &several[i]);
    double worst = 0;
    for (int i = 0; i < AT_ONCE; i++) {
        pthread_join(several[i].thread, NULL);
        worst = fmax(worst, error_of(&several[i].scene));
        free_scene(&several[i].scene);
    }
    pthread_barrier_destroy(&meeting);
    printf("%.9g 0\n", worst);
}

static size_t case_index(const char *name)
{
    size_t index = 0;
    while (case_name(index) && strcmp(case_name(index), name) != 0)
        index++;
    if (!case_name(index))
        die("no such case");
    return index;
}

static void run_all(double (*run_one)(struct scene *scene))
{
    double worst = 0, tolerance = 0;
    for (size_t i = 0; case_name(i); i++) {
        struct scene scene = build_case(i);
        tolerance = scene.tolerance;
        double error = run_one(&scene);
        if (!(error <= tolerance))
            die("an error of %g", error);
        worst = fmax(worst, error);
    }
    printf("%.9g 0\n", worst);
}

int main(int argc, char **argv)
{
    ggml_cpu_init();
    if (argc == 4 && strcmp(argv[1], "random") == 0) {
        run_random(build_random, atoi(argv[2]), atoi(argv[3]));
    } else if (argc == 4 && strcmp(argv[1], "networks") == 0) {
        run_random(build_network, atoi(argv[2]), atoi(argv[3]));
    } else if (argc == 4 && strcmp(argv[1], "tight") == 0) {
        run_tight(atoi(argv[2]), atoi(argv[3]));
    } else if (argc == 2 && strcmp(argv[1], "pieces") == 0) {
        run_all(run_in_pieces);
    } else if (argc == 2 && strcmp(argv[1], "cramped") == 0) {
        run_all(run_cramped);
    } else if (argc == 2 && strcmp(argv[1], "aborted") == 0) {
        run_all(run_aborted);
    } else if (argc == 3 && strcmp(argv[1], "at_once") == 0) {
        run_at_once(case_index(argv[2]));
    } else if (argc == 2) {
        struct scene scene = build_case(case_index(argv[1]));
        run(&scene);
    } else
        die("usage: see the beginning of graphs.c");
    return 0;
}
