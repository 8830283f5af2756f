/* The blocked product that every operation is driven by:
 *
 *   C[batch][i][j] = epilogue(sum over p of A[batch][i][p] * B[batch][p][j])
 *
 * A is packed into panels of up to tile.rows rows, shared by all threads, as much at a time as blocking.packed_bytes holds.
 * Then columns of C are handed out; a thread packs the panels of B that belong to them, kc rows at a time, and passes the packed A
 * over them ("Anatomy of High-Performance Matrix Multiplication", Goto and van de Geijn 2008, with A shared).
 * How A and B are read is the operation's own matter. */
#ifndef SDGEN_GEMM_H
#define SDGEN_GEMM_H

#include "select.h"

struct sdgen_gemm {
    struct sdgen_tile tile;
    int64_t rows, columns, depth;
    int64_t batches;
    bool a_shared;        /* all batches have the same A */
    int64_t c_stride;     /* bytes between the rows of C */
    float scale;
    const float *row_bias, *column_bias; /* or NULL */

    const void *operation;
    /* Packs rows [row, row + rows) of A, a panel, for p in [begin, end): as sdgen_pack_kernel does. The thread's scratch is as large as
     * a panel of B of this depth. */
    void (*pack_a)(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t row, int64_t rows,
                   int64_t begin, int64_t end, float *dst, float *scratch);
    /* What is done for a panel first, or NULL: what it leaves at the beginning of the scratch stays until the panel has been packed. Where
     * the depth is packed in several slabs, it is done for each. */
    void (*prepare_a)(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t row, int64_t rows,
                      float *scratch);
    /* Packs columns [column, column + columns) of B, as panels of tile.columns, for p in [begin, end). Numbers beyond the
     * last column may be anything finite. */
    void (*pack_b)(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t column,
                   int64_t columns, int64_t begin, int64_t end, float *dst);
    /* What is done first for all columns that a thread takes, for p in [begin, end), or NULL: then these are packed, some at a time. */
    void (*prepare_b)(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, int64_t batch, int64_t column, int64_t columns,
                      int64_t begin, int64_t end);
    int64_t band; /* columns that a thread takes at a time at most, whole panels; 0: as many as it packs at a time */
    float *(*c)(const struct sdgen_gemm *gemm, int64_t batch);
    bool accumulate;          /* C is added to */
    struct sdgen_after after; /* but for an addend that is C, which is what `accumulate` is for */
    bool gated;               /* C[i][j] = t[i][j] * f(t[i][j + columns]), f of `after`, which has nothing else; B and column_bias are twice
                                 as wide as C */
    int64_t batch0;           /* batches of the first of the two dimensions that there may be */
    const struct sdgen_gemm *more; /* another product of the same A and tile, whose rows, depth and batches are the same, or NULL */
};

/* Packs columns of B whose elements along the depth are side by side, `stride` bytes from column to column, as pack_b does. */
void sdgen_gemm_pack_columns(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, enum sdgen_type type, const char *src,
                             int64_t stride, int64_t columns, int64_t depth, float *dst);

size_t sdgen_gemm_work_size(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, int nth);
void sdgen_gemm(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct sdgen_team *team);

/* Ends a phase of the thread's, of microseconds at least: a mark takes some 30 ns. */
static inline void sdgen_phase(const struct sdgen_team *team, enum sdgen_phase phase)
{
    if (team->clock)
        sdgen_clock_end(team->clock, phase);
}

/* Returns when all of the team's threads have come here. */
static inline void sdgen_wait(const struct sdgen_team *team)
{
    if (team->nth == 1)
        return;
    team->barrier(team->barrier_data);
    sdgen_phase(team, SDGEN_PHASE_WAIT);
}

/* Whether anything becomes of the elements. */
static inline bool sdgen_after_any(const struct sdgen_after *after)
{
    return after->shift || after->weight.data || after->addend.data || after->factor.data || after->function != SDGEN_FUNCTION_NONE;
}

/* What is wrong with it, or NULL; c_stride: from row to row, and from batch to batch, of c. */
const char *sdgen_after_check(const struct sdgen_after *after, const float *c, const int64_t c_stride[3]);

/* Applies it to elements [column, column + columns) of rows [row, row + rows) of a batch, from t to c; both begin with the first of
 * these elements, and may be the same. */
void sdgen_after_apply(const struct sdgen_kernels *kernels, const struct sdgen_after *after, const int64_t batch[2], int64_t row,
                       int64_t rows, int64_t column, int64_t columns, const float *t, int64_t t_stride, float *c, int64_t c_stride);

static inline int64_t sdgen_type_size(enum sdgen_type type)
{
    return type == SDGEN_F32 ? 4 : 2;
}

static inline int64_t sdgen_min(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static inline int64_t sdgen_max(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline int64_t sdgen_ceil_div(int64_t a, int64_t b)
{
    return (a + b - 1) / b;
}

#endif
