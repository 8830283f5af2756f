#include "exactly.h"

#include <math.h>
#include <stdlib.h>

#include "numbers.h"

enum { CHECKED = 400, CHECKED_QUERIES = 24 };

/* Which row, column and so on is looked at: primes, so that they differ. */
static int64_t some(int64_t i, int64_t of)
{
    return i * 7919 % of;
}

static int64_t other(int64_t i, int64_t of)
{
    return i * 104729 % of;
}

static double error_of(double exact, double magnitude, float result)
{
    double error = fabs((double)result - exact) / magnitude;
    return error == error ? error : INFINITY;
}

static const float *element(const void *base, int64_t stride, int64_t row, int64_t head_stride, int64_t head)
{
    return (const float *)(const void *)((const char *)base + row * stride + head * head_stride);
}

double tile_error(const struct sdgen_kernel_row *kernel, int64_t k, const float *a, const float *b, const float *c)
{
    double worst = 0;
    for (int i = 0; i < kernel->rows; i++)
        for (int j = 0; j < kernel->columns; j++) {
            double exact = 0, magnitude = 0;
            for (int64_t p = 0; p < k; p++) {
                double product = (double)a[p * kernel->rows + i] * (double)b[p * kernel->columns + j];
                exact += product;
                magnitude += fabs(product);
            }
            worst = fmax(worst, error_of(exact, magnitude, c[i * kernel->columns + j]));
        }
    return worst;
}

double matmul_error(const struct sdgen_matmul *op)
{
    double worst = 0;
    for (int64_t i = 0; i < CHECKED; i++) {
        int64_t row = some(i, op->m), column = other(i, op->n);
        double exact = 0, magnitude = 0;
        for (int64_t p = 0; p < op->k; p++) {
            double product = half_value(((const uint16_t *)op->w)[column * op->k + p]) * (double)op->x[row * op->k + p];
            exact += product;
            magnitude += fabs(product);
        }
        worst = fmax(worst, error_of(exact, magnitude, op->c[row * op->n + column]));
    }
    return worst;
}

double conv2d_error(const struct sdgen_conv2d *op)
{
    double worst = 0;
    for (int64_t i = 0; i < CHECKED; i++) {
        int64_t channel = some(i, op->channels_out), x = other(i, op->width_out), y = i * 1299709 % op->height_out;
        int64_t repeat = op->x_doubled ? 2 : 1;
        double exact = 0, magnitude = 0;
        for (int64_t ic = 0; ic < op->channels_in; ic++)
            for (int64_t ky = 0; ky < op->kernel_height; ky++)
                for (int64_t kx = 0; kx < op->kernel_width; kx++) {
                    int64_t in_x = x * op->stride_x + kx - op->pad_x, in_y = y * op->stride_y + ky - op->pad_y;
                    if (in_x < 0 || in_x >= op->width * repeat || in_y < 0 || in_y >= op->height * repeat)
                        continue;
                    int64_t w = ((channel * op->channels_in + ic) * op->kernel_height + ky) * op->kernel_width + kx;
                    double product = half_value(((const uint16_t *)op->w)[w]) *
                                     (double)op->x[(ic * op->height + in_y / repeat) * op->width + in_x / repeat];
                    exact += product;
                    magnitude += fabs(product);
                }
        worst = fmax(worst, error_of(exact, magnitude, op->c[(channel * op->height_out + y) * op->width_out + x]));
    }
    return worst;
}

double attention_error(const struct sdgen_attention *op)
{
    double *power = allocate((size_t)op->keys * sizeof *power), worst = 0;
    for (int64_t i = 0; i < CHECKED_QUERIES; i++) {
        int64_t query = some(i, op->queries), head = i % op->heads;
        const float *q = element(op->q, op->q_stride, query, op->q_head_stride, head);
        double most = -INFINITY, sum = 0;
        for (int64_t key = 0; key < op->keys; key++) {
            const float *k = element(op->k, op->k_stride, key, op->k_head_stride, head);
            double score = 0;
            for (int64_t p = 0; p < op->depth; p++)
                score += (double)q[p] * (double)k[p];
            power[key] = score * (double)op->scale;
            most = fmax(most, power[key]);
        }
        for (int64_t key = 0; key < op->keys; key++)
            sum += power[key] = exp(power[key] - most);
        for (int64_t p = 0; p < op->value_depth; p++) {
            double exact = 0, magnitude = 0;
            for (int64_t key = 0; key < op->keys; key++) {
                double product = power[key] / sum * (double)element(op->v, op->v_stride, key, op->v_head_stride, head)[p];
                exact += product;
                magnitude += fabs(product);
            }
            worst = fmax(worst, error_of(exact, magnitude, element(op->c, op->c_stride, query, op->c_head_stride, head)[p]));
        }
    }
    free(power);
    return worst;
}

/* Those that are timed. */
static double function_of(enum sdgen_function function, double t)
{
    switch (function) {
    case SDGEN_FUNCTION_SILU: return t / (1 + exp(-t));
    case SDGEN_FUNCTION_GELU: return t / 2 * (1 + tanh(sqrt(2 / acos(-1)) * (t + 0.044715 * t * t * t)));
    case SDGEN_FUNCTION_GELU_ERF: return t / 2 * (1 + erf(t / sqrt(2)));
    default: return t;
    }
}

double map_error(const struct sdgen_map *op)
{
    double worst = 0;
    for (int64_t i = 0; i < CHECKED; i++) {
        int64_t row = some(i, op->extent[1]), column = other(i, op->extent[0]);
        double x = (double)element(op->x, op->x_stride[0], row, 4, column)[0], addend = 0;
        if (op->addend.data)
            addend = (double)element(op->addend.data, op->addend.stride[1], row, op->addend.stride[0], column)[0];
        worst = fmax(worst, error_of(function_of(op->function, x + addend), fabs(x) + fabs(addend),
                                     element(op->y, op->y_stride[0], row, 4, column)[0]));
    }
    return worst;
}

struct moments {
    double mean, deviation;
};

static struct moments moments_of(const float *x, int64_t n, double eps)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < n; i++)
        sum += (double)x[i];
    double mean = sum / (double)n;
    for (int64_t i = 0; i < n; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    return (struct moments){.mean = mean, .deviation = sqrt(squares / (double)n + eps)};
}

static double norm_error(const struct moments *moments, enum sdgen_function function, double x, double weight, double bias, float y)
{
    double scaled = (x - moments->mean) / moments->deviation * weight;
    double magnitude = (fabs(x) + fabs(moments->mean)) / moments->deviation * fabs(weight) + fabs(bias);
    return error_of(function_of(function, scaled + bias), magnitude, y);
}

double group_norm_error(const struct sdgen_group_norm *op)
{
    const int64_t channels = op->channels / op->groups, each = CHECKED / op->groups;
    double worst = 0;
    for (int64_t group = 0; group < op->groups; group++) {
        const float *x = op->x + group * channels * op->pixels, *y = op->y + group * channels * op->pixels;
        struct moments moments = moments_of(x, channels * op->pixels, (double)op->eps);
        for (int64_t i = 0; i < each; i++) {
            int64_t channel = some(i, channels), at = channel * op->pixels + other(i, op->pixels);
            double weight = (double)op->weight[group * channels + channel], bias = (double)op->bias[group * channels + channel];
            worst = fmax(worst, norm_error(&moments, op->function, (double)x[at], weight, bias, y[at]));
        }
    }
    return worst;
}

double layer_norm_error(const struct sdgen_layer_norm *op)
{
    double worst = 0;
    for (int64_t i = 0; i < CHECKED; i++) {
        int64_t row = some(i, op->rows[0]), at = other(i, op->n);
        const float *x = element(op->x, op->x_stride[0], row, 0, 0), *y = element(op->y, op->y_stride[0], row, 0, 0);
        struct moments moments = moments_of(x, op->n, (double)op->norm.eps);
        worst = fmax(worst, norm_error(&moments, SDGEN_FUNCTION_NONE, (double)x[at], (double)op->norm.weight[at], (double)op->norm.bias[at],
                                       y[at]));
    }
    return worst;
}
