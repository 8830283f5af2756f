/* sdgen: matrix products, convolutions and attention on the processor, by kernels chosen at run time.
 *
 * No function here starts a thread, and none allocates memory while computing, but for what a store keeps. The caller brings the
 * threads (struct sdgen_team): each calls the same function with the same operation, its own index and the same working memory.
 * Results do not depend on the number of threads.
 *
 * Strides are in bytes, extents in elements. */
#ifndef SDGEN_H
#define SDGEN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define SDGEN_API __attribute__((visibility("default")))
#else
#define SDGEN_API
#endif

/* ---- the processor, and what is chosen for it ---- */

/* Extensions that the processor has and the operating system lets be used, one bit each. */
enum sdgen_feature {
    SDGEN_FEATURE_AVX2 = 1u << 0,
    SDGEN_FEATURE_FMA = 1u << 1,
    SDGEN_FEATURE_F16C = 1u << 2,
    SDGEN_FEATURE_AVX_VNNI = 1u << 3,
    SDGEN_FEATURE_AVX512F = 1u << 4,
    SDGEN_FEATURE_AVX512DQ = 1u << 5,
    SDGEN_FEATURE_AVX512BW = 1u << 6,
    SDGEN_FEATURE_AVX512VL = 1u << 7,
    SDGEN_FEATURE_AVX512_VNNI = 1u << 8,
    SDGEN_FEATURE_AVX512_BF16 = 1u << 9,
    SDGEN_FEATURE_AVX512_FP16 = 1u << 10,
    SDGEN_FEATURE_AVX10_2 = 1u << 11,
    SDGEN_FEATURE_AMX_TILE = 1u << 12,
    SDGEN_FEATURE_AMX_BF16 = 1u << 13,
    SDGEN_FEATURE_AMX_INT8 = 1u << 14,
    SDGEN_FEATURE_AMX_FP16 = 1u << 15,
    SDGEN_FEATURE_BMI2 = 1u << 16,
};

/* The name of the feature of one bit, "avx512_vnni"; NULL where no feature has it. */
SDGEN_API const char *sdgen_feature_name(unsigned bit);

struct sdgen_processor {
    uint32_t features;      /* of enum sdgen_feature */
    size_t l1, l2, l3;      /* bytes of data cache: of one core, one core, and all that share it; never 0 */
    char name[64];          /* the brand string, "" where there is none */
};

/* The raw CPUID leaves, XCR0 and permission that detection reads. */
struct sdgen_cpuid {
    uint32_t max_leaf;
    uint32_t leaf1_ecx;
    uint32_t leaf7_ebx, leaf7_ecx, leaf7_edx; /* subleaf 0 */
    uint32_t leaf7_1_eax, leaf7_1_edx;        /* subleaf 1 */
    uint32_t leaf24_ebx;                      /* AVX10 (leaf 0x24): its version in the low byte */
    uint64_t xcr0;                            /* 0 where OSXSAVE is clear */
    bool tiles_permitted;                     /* the system lets processes that ask for them use AMX's tiles */
};

/* Asks the system to let this process use AMX's tiles, which it does not until it is asked; false where it refuses. */
SDGEN_API bool sdgen_request_tiles(void);

/* The features that these bits allow; a pure function. */
SDGEN_API uint32_t sdgen_features(const struct sdgen_cpuid *cpuid);

/* The processor this runs on; asked for once, the same ever after. */
SDGEN_API const struct sdgen_processor *sdgen_processor(void);

enum sdgen_form { SDGEN_FORM_ASSEMBLY, SDGEN_FORM_C, SDGEN_FORM_UPSTREAM };

/* Levels, least first. SDGEN_LEVEL_C is the portable form, which every processor has that the library is compiled for. */
enum sdgen_level { SDGEN_LEVEL_C, SDGEN_LEVEL_AVX2, SDGEN_LEVEL_AVX512, SDGEN_LEVEL_RICHEST = SDGEN_LEVEL_AVX512 };
SDGEN_API const char *sdgen_level_name(enum sdgen_level level);

/* The richest level of the form that the features allow, no richer than cap; SDGEN_LEVEL_C where none is. A pure function. */
SDGEN_API enum sdgen_level sdgen_select_level(uint32_t features, enum sdgen_form form, enum sdgen_level cap);

/* How convolutions of 3 by 3 are computed: F(m x m, 3 x 3) by m, or directly. By Winograd's method an output has the rounding errors
 * of its whole tile of m by m, and a number that is not finite, or so large that it overflows in the transforms, makes NaNs of the
 * tiles that read it; no others. */
enum sdgen_winograd_choice {
    SDGEN_WINOGRAD_DIRECT = 0,
    SDGEN_WINOGRAD_2 = 2,
    SDGEN_WINOGRAD_3 = 3,
    SDGEN_WINOGRAD_4 = 4,
    SDGEN_WINOGRAD_BY_SHAPE = -1,
};

/* What may be chosen otherwise than by processor and shape; -1: not. */
struct sdgen_tuning {
    int winograd, tile, kc, mc, nc, packed_mb, reuse, fuse;
};

SDGEN_API struct sdgen_tuning sdgen_untuned(void); /* nothing is */

/* One row for each member of struct sdgen_tuning. */
struct sdgen_tunable {
    const char *name;
    int least, most;        /* allowed values... */
    const int *values;      /* ...or these only, least to most, if not NULL; -1 behind the last */
    const char *meaning;
    const char *by_default; /* in words */
};
SDGEN_API size_t sdgen_tunable_count(void);
SDGEN_API const struct sdgen_tunable *sdgen_tunable(size_t index); /* NULL from the count on */
SDGEN_API int sdgen_tuning_value(const struct sdgen_tuning *tuning, size_t index); /* of that tunable; -1: not chosen */

/* Reads name=value,... into the tuning, whose other members stay. Where a name or value is none, returns false and writes one sentence,
 * which names what is allowed, into message. */
SDGEN_API bool sdgen_tune(struct sdgen_tuning *tuning, const char *text, char *message, size_t message_size);

struct sdgen_config {
    enum sdgen_form form;     /* SDGEN_KERNELS=assembly|c|upstream */
    enum sdgen_level cap;     /* SDGEN_ISA=avx2|avx512: the richest level taken; the richest built if unset */
    int verbose;              /* SDGEN_VERBOSE=0|1|2 */
    int profile;              /* SDGEN_PROFILE=0|1, or FILE.json: 1 */
    const char *trace;        /* that path, as it lies in the environment; or NULL */
    int store_mb;             /* SDGEN_STORE_MB=0 to 1048576: MiB of transformed weights kept; 0 if unset */
    struct sdgen_tuning tuning; /* SDGEN_TUNE=name=value,..., over what the tuning file says */
};

/* Reads the configuration from the environment. On a wrong value returns false and writes one sentence, which names the
 * variable, the value and what is allowed, into message. Then the tuning file, which `python -m gen tune` writes: SDGEN_TUNE_FILE, or
 * sdgen/tuning in the user's folder of configurations; it says for which processor it is, and for each level what is to be chosen. One
 * that is of another processor, or that cannot be understood, changes nothing, and the sentence says so, with true returned; else the
 * message is empty. */
SDGEN_API bool sdgen_config_from_environment(struct sdgen_config *config, char *message, size_t message_size);

/* ---- kernels ---- */

/* One row for each kernel that was built. */
struct sdgen_kernel_row {
    const char *name;      /* gemm_f32_6x16_avx2 */
    const char *operation; /* gemm, pack, pack_patches, map_silu, probe, ... */
    const char *type;      /* f32, f16, bf16, u32: of what it reads; probe: of the factors, also s8 and u8s8, "" where it makes no products */
    int rows, columns;     /* of its tile; of a panel, columns is the width and rows 1; 0 where it has none */
    int per_round;         /* probe: multiplications and additions in a round, or instructions where it makes none; else 0 */
    enum sdgen_level level;
    uint32_t features;     /* what the processor must have beside the level, of enum sdgen_feature; with AMX the system must be asked too */
    void (*function)(void);
};
SDGEN_API size_t sdgen_kernel_count(void);
SDGEN_API const struct sdgen_kernel_row *sdgen_kernel_row(size_t index); /* NULL from the count on */

struct sdgen_kernels; /* the kernels of one level */
SDGEN_API const struct sdgen_kernels *sdgen_kernels(enum sdgen_level level); /* NULL: not built */

/* Sizes of blocks; made by sdgen_blocking, or by hand in a test: any positive values give the same result but for kc, which
 * sets the order of the sums. */
struct sdgen_blocking {
    int64_t kc;           /* longest chain of sums before it is added to C */
    int64_t mc;           /* rows of packed A that are kept in L2 */
    int64_t nc;           /* columns of packed B that a thread packs at a time */
    int64_t packed_bytes; /* most bytes of A packed at a time, shared by all threads */
};
SDGEN_API struct sdgen_blocking sdgen_blocking(const struct sdgen_processor *processor);

/* ---- what is kept, found by its contents ---- */

/* A hash of contents; that of two different arrays of up to 64 MiB is the same with a chance of less than 2^-100. It is the same for
 * every level, alignment and stride, not for every order of bytes. */
struct sdgen_hash {
    uint64_t word[2];
};

/* Of so many rows of so many bytes, stride bytes apart. */
SDGEN_API struct sdgen_hash sdgen_hash(const struct sdgen_kernels *kernels, const void *data, size_t rows, size_t row_bytes,
                                       ptrdiff_t stride);

/* Arrays that are kept to be found by the hash of what they were made of; for several threads at a time. Time passes by ticks. An array
 * that is in use, or was added or found less than SDGEN_STORE_BUSY ticks ago, is not given up for another one, which then is not kept:
 * so of what is used in turns, and is more than there is room for, a part is found each time. Of the others the one added or found
 * longest ago goes first. What was not for SDGEN_STORE_IDLE ticks goes anyway. */
enum { SDGEN_STORE_BUSY = 8, SDGEN_STORE_IDLE = 32 };

struct sdgen_store;
SDGEN_API struct sdgen_store *sdgen_store_new(size_t most_bytes); /* NULL where there is no memory */
SDGEN_API void sdgen_store_free(struct sdgen_store *store);       /* nothing of it may be in use; NULL does nothing */
SDGEN_API void sdgen_store_tick(struct sdgen_store *store);

/* What is kept under a key, in use until it is released; NULL where nothing is. */
SDGEN_API const void *sdgen_store_find(struct sdgen_store *store, struct sdgen_hash key);

/* Memory for what is to be kept under a key, of so many bytes and aligned to 64, in use until it is released; NULL where there is no
 * room for it, or no memory, or such an array is there or is being made. It is found once it is published. */
SDGEN_API void *sdgen_store_add(struct sdgen_store *store, struct sdgen_hash key, size_t size);
SDGEN_API void sdgen_store_publish(struct sdgen_store *store, const void *array);

/* Whether there is room for an array of so many bytes. */
SDGEN_API bool sdgen_store_has_room(struct sdgen_store *store, size_t size);

/* An array is not used further, as often as it was found or added; one that was not published is given up. */
SDGEN_API void sdgen_store_release(struct sdgen_store *store, const void *array);

struct sdgen_store_counts {
    int64_t bytes, arrays;        /* kept now, with what is kept beside each */
    int64_t found, added, turned_away; /* since the beginning; those for which there was no room or memory */
};
SDGEN_API struct sdgen_store_counts sdgen_store_counts(struct sdgen_store *store);

/* ---- threads ---- */

/* How many threads a program should have where its user says nothing. */
SDGEN_API int sdgen_default_threads(void);

/* The same, given the processors of the machine (0: unknown), those that the process may run on, and what its quota allows. */
SDGEN_API int sdgen_threads_of(int online, int allowed, int quota);

/* Processors' time that the control groups of the process leave it, rounded up to whole processors; INT_MAX where they set no limit.
 * What /proc and /sys say is looked for below a folder, "" for the system's own. */
SDGEN_API int sdgen_quota(const char *root);

/* What a thread does within an operation. */
enum sdgen_phase {
    SDGEN_PHASE_OTHER,     /* none of those below */
    SDGEN_PHASE_PACK,      /* lays out anew what products read, weights or activations, with the norm before them */
    SDGEN_PHASE_TRANSFORM, /* Winograd's: of input, with the norm before it, of weights and of output */
    SDGEN_PHASE_PRODUCT,   /* products, with scale and bias; in attention scores and exponentials as well, which are made with them; and
                              what comes after a product of few rows where it is added to c tile by tile */
    SDGEN_PHASE_EPILOGUE,  /* what comes after a product: `after`, the gate, attention's division by the sums and joining of its parts */
    SDGEN_PHASE_ELEMENTS,  /* all of a norm, an elementwise operation or a copy */
    SDGEN_PHASE_WAIT,      /* for the team's other threads */
    SDGEN_PHASES
};
SDGEN_API const char *sdgen_phase_name(enum sdgen_phase phase); /* "pack"; NULL where there is none */

/* What a thread spends its time on: where a phase ends, what has passed since the one before it ended is added to it. Of one thread,
 * for one operation or several. */
struct sdgen_clock {
    int64_t mark;                /* when the last phase ended; to begin with, sdgen_now() */
    int64_t spent[SDGEN_PHASES]; /* nanoseconds */
    void (*ended)(struct sdgen_clock *clock, enum sdgen_phase phase, int64_t begin, int64_t end); /* told of each, or NULL */
};
SDGEN_API int64_t sdgen_now(void); /* nanoseconds since some time in the past */
SDGEN_API void sdgen_clock_end(struct sdgen_clock *clock, enum sdgen_phase phase);

enum { SDGEN_QUEUE_SIZE = 128 };

struct sdgen_team {
    int ith, nth;
    void *queue;           /* SDGEN_QUEUE_SIZE bytes, the same for all threads, aligned to 8: zero before the first of the team's
                              operations, and again after each */
    void *work;            /* the same for all threads; any alignment; contents need not be kept */
    size_t work_size;      /* at least what the operation's *_work_size says for nth threads */
    void (*barrier)(void *barrier_data); /* returns when all nth threads have called it; may be NULL if nth is 1 */
    void *barrier_data;
    struct sdgen_clock *clock; /* this thread's own; NULL: nothing is measured */
};

/* ---- operations ---- */

enum sdgen_type { SDGEN_F32, SDGEN_F16, SDGEN_BF16 };

/* Functions of an element t, with parameters p where they have any. A NaN stays one. */
enum sdgen_function {
    SDGEN_FUNCTION_NONE,       /* t */
    SDGEN_FUNCTION_SILU,       /* t / (1 + e^-t) */
    SDGEN_FUNCTION_GELU,       /* t / 2 (1 + tanh(sqrt(2 / pi) (t + 0.044715 t^3))) */
    SDGEN_FUNCTION_GELU_ERF,   /* t / 2 (1 + erf(t / sqrt(2))) */
    SDGEN_FUNCTION_GELU_QUICK, /* t / (1 + e^(-1.702 t)) */
    SDGEN_FUNCTION_SIGMOID,    /* 1 / (1 + e^-t) */
    SDGEN_FUNCTION_TANH,
    SDGEN_FUNCTION_RELU,       /* max(t, 0) */
    SDGEN_FUNCTION_LEAKY,      /* max(t, 0) + p[0] min(t, 0) */
    SDGEN_FUNCTION_CLAMP,      /* min(max(t, p[0]), p[1]) */
    SDGEN_FUNCTION_EXP,
};

/* An operand of an elementwise operation, repeated where its stride is 0. */
struct sdgen_operand {
    const float *data; /* or NULL */
    int64_t stride[4]; /* the first is 4, or 0 */
};

/* What becomes of each element t of a product or a convolution while it is in the cache:
 *
 *   c = f((t + shift[row]) * weight + addend) * factor
 *
 * without what is NULL. A row is that of a product's c, or an output channel, and the strides of the operands are those from column
 * to column or pixel to pixel (4, or 0 where all are the same; 4 for weight and factor), from row to row, and from batch to batch. The
 * addend may be c itself, with its strides, where there is neither scale nor weight; no other operand may overlap c. */
struct sdgen_after {
    const float *shift;
    struct sdgen_operand weight, addend, factor;
    enum sdgen_function function;
    float parameter[2];
};

/* How rows of n elements are normalized:
 *
 *   y[i] = (x[i] - mean) / sqrt(variance + eps) * weight[i] * (1 + modulation[i]) + bias[i]
 *   y[i] = x[i] / sqrt(mean of squares + eps) * weight[i] * (1 + modulation[i]) + bias[i]      where rms
 *
 * without what is NULL, with sums as in group normalization. Modulation and bias may be others for each batch, as where an image's
 * condition shifts and scales ("Scalable Diffusion Models with Transformers", Peebles and Xie 2022). */
struct sdgen_row_norm {
    const float *weight;                            /* [n], or NULL */
    const float *modulation, *bias;                 /* [b1][b0][n], or NULL */
    int64_t modulation_stride[2], bias_stride[2];   /* from batch to batch; 0: all have the same */
    float eps;
    bool rms;
};

/* Linear layer, batched and broadcast:
 *
 *   c[b1][b0][m][n] = scale * sum over k of x[b1][b0][m][k] * w[b1 / w_repeat[1]][b0 / w_repeat[0]][n][k] + bias[n]
 *
 * then what `after` says. Where it is gated, w and bias have 2 n rows, and with t[n] the result above,
 *
 *   c[b1][b0][m][i] = t[i] * f(t[i + n]),  i < n,  f the function of `after`, which has nothing else
 *
 * ("GLU Variants Improve Transformer", Shazeer 2020). Where it is normalized, x[b1][b0][m] stands for that row as `before` says.
 * Elements along k are side by side in x and w, and along n in c.
 *
 * `more` is another linear layer of the same x, and so on: up to SDGEN_MATMUL_SHARED in all, none of them gated, all computed with the
 * first. Their m, k, batch, x and its strides, and what `before` is, are those of the first; no c overlaps what another one reads or
 * writes. */
enum { SDGEN_MATMUL_SHARED = 4 };
struct sdgen_matmul {
    int64_t m, n, k;
    int64_t batch[2];
    const void *w;
    enum sdgen_type w_type;
    int64_t w_stride, w_batch_stride[2], w_repeat[2];
    const float *x;
    int64_t x_stride, x_batch_stride[2];
    float *c;
    int64_t c_stride, c_batch_stride[2];
    float scale;       /* 1: none */
    const float *bias; /* [n], or NULL */
    struct sdgen_after after;
    bool gated;
    bool normalized;
    struct sdgen_row_norm before;
    const struct sdgen_matmul *more; /* or NULL */
};

/* A group normalization of a convolution's x, whose rows have no gaps: in place of x is
 *
 *   f((x - mean) / sqrt(variance + eps) * weight[channel] + bias[channel])
 *
 * as struct sdgen_group_norm has it, within the image: its padding stays 0. x is then neither doubled nor of tokens or frames. */
struct sdgen_before {
    int64_t groups;             /* divides channels_in; 0: nothing is done to x */
    const float *weight, *bias; /* [channels_in], or NULL */
    float eps;
    enum sdgen_function function;
    float parameter[2];
    const double (*sums)[2]; /* of x, as in struct sdgen_group_norm, or NULL */
    int64_t sum_pieces;
};

/* Two-dimensional convolution:
 *
 *   c[b][oc][oy][ox] = scale * sum over ic, ky, kx of w[oc][ic][ky][kx] * x[b][ic][oy sy + ky dy - py][ox sx + kx dx - px] + bias[oc]
 *
 * with 0 for x outside of the image. w is without gaps, so is each image of c (its batches lie c_batch_stride apart); rows of x
 * are x_row_stride apart, and the pixels of a row side by side. Where x is doubled, the convolution is that of an image of twice the
 * width and height, which repeats each pixel of x two by two and is never written. Where x_pixel_stride is not 0, the channels of a
 * pixel are side by side in x, and the pixels, row after row, so far apart, as tokens are; x_row_stride and x_channel_stride are not
 * looked at. That is for kernels of 1 by 1 with strides of 1, no padding, no frames, and x not doubled.
 *
 * Of frames too, where frames.out is not 0, and then x is not doubled:
 *
 *   c[b][oc][oz][oy][ox] = scale * sum over ic, kz, ky, kx of w[oc][ic][kz][ky][kx] * x[b][ic][oz sz + kz dz - pz][..][..] + bias[oc]
 *
 * with 0 for frames that x does not have; c may have fewer frames than there could be. A channel's frames are without gaps in c, and
 * `after` counts them as batches of a first dimension, those of x and c as batches of a second.
 *
 * c may be the array of x only where sdgen_conv2d_overwrites says so. */
struct sdgen_frames {
    int64_t in, out; /* of x, of c */
    int64_t kernel, stride, pad, dilation;
    int64_t x_stride; /* from frame to frame */
};

struct sdgen_conv2d {
    int64_t batch;
    int64_t channels_in, channels_out;
    int64_t width, height;         /* of x, not doubled */
    int64_t width_out, height_out; /* of c */
    int64_t kernel_width, kernel_height;
    int64_t stride_x, stride_y, pad_x, pad_y, dilation_x, dilation_y;
    const void *w;
    enum sdgen_type w_type;
    const float *x;
    int64_t x_row_stride, x_channel_stride, x_batch_stride;
    float *c;
    int64_t c_batch_stride;
    float scale;       /* 1: none */
    const float *bias; /* [channels_out], or NULL */
    bool x_doubled;
    struct sdgen_after after;
    int64_t x_pixel_stride; /* or 0 */
    struct sdgen_frames frames;
    struct sdgen_before before;
    double (*sums)[2]; /* of c as it is written, and of its squares, for a norm: [batch][channels_out][sdgen_conv2d_sum_pieces], or NULL */
};

/* Attention: for each query i, head h and batch b,
 *
 *   s[j] = f(scale * sum over p < depth of q[b][h][i][p] * k[b / k_repeat[1]][h / k_repeat[0]][j][p])
 *          + slope[h] * mask[b % mask_batch][h % mask_heads][i][j]
 *   c[b][h][i][p] = sum over j of e^s[j] v[b / v_repeat[1]][h / v_repeat[0]][j][p] / (sum over j of e^s[j] + e^sinks[h])
 *
 * with f(x) = softcap * tanh(x / softcap) where softcap is not 0, and slope 1, or ALiBi's where max_bias is more than 0. Where all of a
 * query's scores are -infinity its output is 0. Elements along p are side by side in q, k, v and c, elements of a query's mask too. */
struct sdgen_attention {
    int64_t queries, keys, heads, batch;
    int64_t depth, value_depth;
    const float *q;
    int64_t q_stride, q_head_stride, q_batch_stride;
    const void *k;
    enum sdgen_type k_type;
    int64_t k_stride, k_head_stride, k_batch_stride, k_repeat[2]; /* repeat: heads, batches that share one */
    const void *v;
    enum sdgen_type v_type;
    int64_t v_stride, v_head_stride, v_batch_stride, v_repeat[2];
    const void *mask; /* or NULL */
    enum sdgen_type mask_type;
    int64_t mask_stride, mask_head_stride, mask_batch_stride, mask_heads, mask_batch;
    const float *sinks; /* [heads], or NULL */
    float scale, max_bias, softcap;
    float *c;
    int64_t c_stride, c_head_stride, c_batch_stride;
};

/* Elementwise operation over up to four dimensions, the first of which has its elements side by side in x and y:
 *
 *   y[i] = f((x[i] * scale + shift) * weight[i] + addend[i]) * factor[i]
 *
 * without the operands that are NULL. y may be the array of x or of an operand, with the same strides. */
struct sdgen_map {
    int64_t extent[4];
    const float *x;
    int64_t x_stride[3]; /* of all dimensions but the first */
    float *y;
    int64_t y_stride[3];
    struct sdgen_operand weight, addend, factor;
    enum sdgen_function function;
    float parameter[2];
    float scale, shift; /* 1 and 0: none */
};

/* Group normalization: over all pixels of the channels of a group, which are neighbours,
 *
 *   y[b][c][i] = f((x[b][c][i] - mean) / sqrt(variance + eps) * weight[c] + bias[c])
 *
 * with the mean of squares less the square of the mean for the variance, all sums in double precision. Pixels are side by side. y may
 * be the array of x, with the same strides. Where sums are given, of x and of its squares, over pieces that each channel is cut into
 * somehow, they need not be made. */
struct sdgen_group_norm {
    int64_t batch, channels, pixels;
    int64_t groups; /* divides channels */
    const float *x;
    int64_t x_channel_stride, x_batch_stride;
    float *y;
    int64_t y_channel_stride, y_batch_stride;
    const float *weight, *bias; /* [channels], or NULL */
    float eps;
    enum sdgen_function function;
    float parameter[2];
    const double (*sums)[2]; /* [batch][channels][sum_pieces], or NULL */
    int64_t sum_pieces;
};

/* Normalization of each row of n elements, side by side, over up to three more dimensions. y may be the array of x, with the same
 * strides. */
struct sdgen_layer_norm {
    int64_t n, rows[3]; /* the last two count batches */
    const float *x;
    int64_t x_stride[3];
    float *y;
    int64_t y_stride[3];
    struct sdgen_row_norm norm;
};

/* Softmax of each row of n elements, side by side in x, y and mask, over rows, heads and batches:
 *
 *   s[i] = scale * x[b][h][r][i] + slope[h] * mask[b % mask_extent[1]][h % mask_extent[0]][r][i]
 *   y[b][h][r][i] = e^s[i] / (sum over j of e^s[j] + e^sinks[h])
 *
 * without a mask or sinks where they are NULL; slope 1, or ALiBi's where max_bias is more than 0, and then there is a mask. The sum is in
 * double precision. Where all of a row is -infinity, and no sink is more, or any number is NaN or +infinity, all of its y are NaN. y may be
 * the array of x, with the same strides. */
struct sdgen_softmax {
    int64_t n, rows[3]; /* rows, heads, batches */
    const float *x;
    int64_t x_stride[3];
    float *y;
    int64_t y_stride[3];
    const void *mask; /* or NULL */
    enum sdgen_type mask_type;
    int64_t mask_stride[3], mask_extent[2]; /* extent: heads and batches that it has */
    const float *sinks; /* [heads], or NULL */
    float scale, max_bias;
};

/* A copy of an array of up to four dimensions with other strides: y[i] = x[i]. The elements of the first dimension are side by side in
 * y. A signalling NaN may become a quiet one. */
struct sdgen_permute {
    int64_t extent[4];
    const float *x;
    int64_t x_stride[4];
    float *y;
    int64_t y_stride[3]; /* of all dimensions but the first */
};

/* An array of up to four dimensions, each of whose elements is repeated along each of them: y[i] = x[i / factor]. The elements of the first
 * dimension are side by side in y. A signalling NaN may become a quiet one. */
struct sdgen_upscale {
    int64_t extent[4]; /* of x */
    int64_t factor[4];
    const float *x;
    int64_t x_stride[4];
    float *y;
    int64_t y_stride[3]; /* of all dimensions but the first */
};

/* An array of up to four dimensions among zeros, so many before and after it along each of them: y[i] = x[i - before], or 0 where x has no
 * such element. The elements of the first dimension are side by side in y. */
struct sdgen_pad {
    int64_t extent[4]; /* of x */
    int64_t before[4], after[4];
    const float *x;
    int64_t x_stride[4];
    float *y;
    int64_t y_stride[3]; /* of all dimensions but the first */
};

/* What an operation is computed with. */
struct sdgen_plan {
    const struct sdgen_kernels *kernels; /* not NULL */
    struct sdgen_blocking blocking;
    int tile_columns; /* 0: the tile is chosen by shape; else the one of so many columns, which the level must have */
    enum sdgen_winograd_choice winograd; /* where it fits; else directly */
    struct sdgen_store *store; /* of transformed weights, found by the weights themselves; NULL: none are kept */
};

/* NULL if the operation can be computed, else what is wrong with it, in a few words. */
SDGEN_API const char *sdgen_matmul_check(const struct sdgen_matmul *op);
SDGEN_API const char *sdgen_conv2d_check(const struct sdgen_conv2d *op);
SDGEN_API const char *sdgen_attention_check(const struct sdgen_attention *op);
SDGEN_API const char *sdgen_map_check(const struct sdgen_map *op);
SDGEN_API const char *sdgen_permute_check(const struct sdgen_permute *op);
SDGEN_API const char *sdgen_group_norm_check(const struct sdgen_group_norm *op);
SDGEN_API const char *sdgen_layer_norm_check(const struct sdgen_layer_norm *op);
SDGEN_API const char *sdgen_softmax_check(const struct sdgen_softmax *op);
SDGEN_API const char *sdgen_upscale_check(const struct sdgen_upscale *op);
SDGEN_API const char *sdgen_pad_check(const struct sdgen_pad *op);

/* The plan of a level, which must have been built, with this processor's sizes of blocks and what is tuned. */
SDGEN_API struct sdgen_plan sdgen_plan(enum sdgen_level level, const struct sdgen_tuning *tuning);

/* Whether a convolution with a norm `before` it takes less time than the norm by itself and the convolution after it. */
SDGEN_API bool sdgen_conv2d_norm_pays(const struct sdgen_conv2d *op);

/* Whether c may be the array of x, which has such a norm before it: where each pixel is written to its own place, by Winograd's method. */
SDGEN_API bool sdgen_conv2d_overwrites(const struct sdgen_plan *plan, const struct sdgen_conv2d *op);

/* Into how many pieces a convolution cuts each channel of c for its sums, whatever the threads; 0: it makes none. */
SDGEN_API int64_t sdgen_conv2d_sum_pieces(const struct sdgen_plan *plan, const struct sdgen_conv2d *op);

/* Whether they take less time there than in the norm. */
SDGEN_API bool sdgen_conv2d_sums_pay(const struct sdgen_plan *plan, const struct sdgen_conv2d *op);

/* Bytes of working memory for up to nth threads. */
SDGEN_API size_t sdgen_matmul_work_size(const struct sdgen_plan *plan, const struct sdgen_matmul *op, int nth);
SDGEN_API size_t sdgen_conv2d_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int nth);
SDGEN_API size_t sdgen_attention_work_size(const struct sdgen_plan *plan, const struct sdgen_attention *op, int nth);
SDGEN_API size_t sdgen_map_work_size(const struct sdgen_plan *plan, const struct sdgen_map *op, int nth);
SDGEN_API size_t sdgen_permute_work_size(const struct sdgen_plan *plan, const struct sdgen_permute *op, int nth);
SDGEN_API size_t sdgen_group_norm_work_size(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, int nth);
SDGEN_API size_t sdgen_layer_norm_work_size(const struct sdgen_plan *plan, const struct sdgen_layer_norm *op, int nth);
SDGEN_API size_t sdgen_softmax_work_size(const struct sdgen_plan *plan, const struct sdgen_softmax *op, int nth);
SDGEN_API size_t sdgen_upscale_work_size(const struct sdgen_plan *plan, const struct sdgen_upscale *op, int nth);
SDGEN_API size_t sdgen_pad_work_size(const struct sdgen_plan *plan, const struct sdgen_pad *op, int nth);

/* Called by each of the team's threads; every output is written, and the working memory free, when all have returned. The
 * operation must have passed its check. Outputs must not overlap inputs but where the operation says so. */
SDGEN_API void sdgen_matmul(const struct sdgen_plan *plan, const struct sdgen_matmul *op, const struct sdgen_team *team);
SDGEN_API void sdgen_conv2d(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_team *team);
SDGEN_API void sdgen_attention(const struct sdgen_plan *plan, const struct sdgen_attention *op, const struct sdgen_team *team);
SDGEN_API void sdgen_map(const struct sdgen_plan *plan, const struct sdgen_map *op, const struct sdgen_team *team);
SDGEN_API void sdgen_permute(const struct sdgen_plan *plan, const struct sdgen_permute *op, const struct sdgen_team *team);
SDGEN_API void sdgen_group_norm(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct sdgen_team *team);
SDGEN_API void sdgen_layer_norm(const struct sdgen_plan *plan, const struct sdgen_layer_norm *op, const struct sdgen_team *team);
SDGEN_API void sdgen_softmax(const struct sdgen_plan *plan, const struct sdgen_softmax *op, const struct sdgen_team *team);
SDGEN_API void sdgen_upscale(const struct sdgen_plan *plan, const struct sdgen_upscale *op, const struct sdgen_team *team);
SDGEN_API void sdgen_pad(const struct sdgen_plan *plan, const struct sdgen_pad *op, const struct sdgen_team *team);

#ifdef __cplusplus
}
#endif

#endif
