/* What all that normalizes has in common. */
#ifndef SDGEN_NORM_H
#define SDGEN_NORM_H

#include "select.h"

/* What a norm does to a channel, or to a row before weights and biases: x * scale + shift. */
struct sdgen_line {
    float scale, shift;
};

/* A group norm's sums, group after group of each image, in memory of so many bytes, aligned to doubles: made by all threads, who wait for
 * each other then. The size is the same where sums are given, so that what fits without them does with them, and the other way. */
size_t sdgen_group_norm_sums_size(const struct sdgen_group_norm *op);
void sdgen_group_norm_sums(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct sdgen_team *team,
                           double (*sums)[2]);

/* The same, and the lines of all images' channels: each thread makes some, and they are there when all have made theirs. */
void sdgen_group_norm_lines(const struct sdgen_plan *plan, const struct sdgen_group_norm *op, const struct sdgen_team *team,
                            double (*sums)[2], struct sdgen_line *lines);

/* What is wrong with it, or NULL. */
const char *sdgen_row_norm_check(const struct sdgen_row_norm *norm);

/* That of a row of n elements. */
struct sdgen_line sdgen_row_line(const struct sdgen_kernels *kernels, const struct sdgen_row_norm *norm, int64_t n, const float *x);

/* What elements [begin, begin + n) of a batch's rows are multiplied by and added to, or NULL: in the norm's arrays, or in the scratch of n
 * numbers. */
struct sdgen_row_vectors {
    const float *weight, *bias;
};
struct sdgen_row_vectors sdgen_row_vectors_of(const struct sdgen_kernels *kernels, const struct sdgen_row_norm *norm, const int64_t batch[2],
                                              int64_t begin, int64_t n, float *scratch);

/* Normalizes so many elements of a row, from x to y, which begin with the first of these as the vectors do. */
void sdgen_normalize(const struct sdgen_kernels *kernels, struct sdgen_line line, struct sdgen_row_vectors vectors, int64_t n,
                     const float *x, float *y);

#endif
