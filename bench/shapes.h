/* What can be timed, by name: "linear 4096x320x320". The names are those of the rows, and what --shape takes. */
#ifndef SDGEN_BENCH_SHAPES_H
#define SDGEN_BENCH_SHAPES_H

#include "sdgen.h"

enum shape_kind { SHAPE_KERNEL, SHAPE_LINEAR, SHAPE_CONV, SHAPE_ATTENTION, SHAPE_MEMORY };

/* Operations that memory bounds, on an array of [channels][pixels], rows being of one of [pixels][channels]. */
enum memory_kind {
    MEMORY_ADD,
    MEMORY_ADD_CHANNEL,
    MEMORY_SILU,
    MEMORY_GELU,
    MEMORY_GELU_ERF,
    MEMORY_NORM_GROUP,
    MEMORY_NORM_ROWS,
    MEMORY_KINDS,
};

struct shape {
    enum shape_kind kind;
    char name[64];
    union {
        const struct sdgen_kernel_row *kernel; /* of one tile in L1 */
        struct {
            int64_t m, n, k;
        } linear;
        struct {
            int64_t kernel, in, out, height, width; /* of the image that the convolution sees */
            int stride;
            bool up; /* it is given by half its size, doubled */
        } conv;
        struct {
            int64_t queries, keys, heads, depth;
        } attention;
        struct {
            enum memory_kind kind;
            int64_t channels, pixels;
        } memory;
    };
};

/* Reads a shape; where it is none, returns false and says what is allowed. */
bool parse_shape(const char *text, struct shape *shape, char *message, size_t message_size);

/* An operation's shape as bench/upstream.c reads it: "linear 4096 320 320". */
void shape_numbers(const struct shape *shape, char *text, size_t size);

/* The shapes of a set, NULL behind the last; NULL where no set has the name. */
const char *const *find_set(const char *name);

/* The name of the set of so many; NULL from the count on. */
const char *set_name(int index);

#endif
