/* The kernels of one level, as the drivers call them. */
#ifndef SDGEN_SELECT_H
#define SDGEN_SELECT_H

#include "kernel.h"
#include "sdgen.h"

enum {
    SDGEN_MOST_ROWS = 8,
    SDGEN_MOST_ROWS16 = 16,
    SDGEN_MOST_COLUMNS = 64,
    SDGEN_COLUMNS_STEP = 16,
    SDGEN_TYPES = 3,
    SDGEN_MOST_WINOGRAD = 4,
    SDGEN_DOT_ROWS = 4,
    SDGEN_DOT_COLUMNS = 4,
    SDGEN_SCORES_ROWS = 6,
    SDGEN_UNPACK_LANES = 8,
    SDGEN_FUNCTIONS = SDGEN_FUNCTION_EXP + 1,
};

/* The kernels of Winograd's F(m x m, 3 x 3), or of an image doubled; input is NULL where there are none. */
struct sdgen_winograd_kernels {
    int input_lanes, output_lanes; /* tiles of a call */
    sdgen_winograd_input_kernel *input;
    sdgen_winograd_weights_kernel *weights;
    sdgen_winograd_output_kernel *output;
};

struct sdgen_kernels {
    /* by columns / SDGEN_COLUMNS_STEP, and by rows */
    sdgen_gemm_kernel *gemm[SDGEN_MOST_COLUMNS / SDGEN_COLUMNS_STEP + 1][SDGEN_MOST_ROWS + 1];
    sdgen_gemm_kernel *gemm16[SDGEN_MOST_COLUMNS / SDGEN_COLUMNS_STEP + 1][SDGEN_MOST_ROWS16 + 1]; /* A's rows 16 numbers apart */
    sdgen_dot_kernel *dot[SDGEN_TYPES][SDGEN_DOT_ROWS + 1][SDGEN_DOT_COLUMNS + 1]; /* by type, rows and columns */
    struct sdgen_winograd_kernels winograd[SDGEN_MOST_WINOGRAD + 1]; /* by m */
    struct sdgen_winograd_kernels winograd_up;                       /* m = 2, of an image doubled */
    sdgen_pack_kernel *pack[SDGEN_TYPES][SDGEN_MOST_COLUMNS + 1]; /* by type and width: that of A's panels, or of B's */
    sdgen_pack_rows_kernel *pack_rows[SDGEN_TYPES];               /* SDGEN_COLUMNS_STEP wide */
    sdgen_scores_kernel *scores[SDGEN_MOST_COLUMNS / SDGEN_COLUMNS_STEP + 1][SDGEN_SCORES_ROWS + 1]; /* by columns, and by rows */
    sdgen_unpack_kernel *unpack;                                  /* SDGEN_UNPACK_LANES wide */
    sdgen_map_kernel *map[SDGEN_FUNCTIONS];                       /* by function */
    sdgen_moments_kernel *moments;
    sdgen_maximum_kernel *maximum;
    sdgen_nh_kernel *nh;
    sdgen_pack_patches_kernel *pack_patches;                      /* SDGEN_COLUMNS_STEP wide; wider panels take several */
};

/* A tile of C in registers. */
struct sdgen_tile {
    int rows, columns;
    sdgen_gemm_kernel *const *gemm; /* by rows, 1 to rows */
};

/* The tile for a product of so many rows and columns; a pure function. */
struct sdgen_tile sdgen_select_tile(const struct sdgen_plan *plan, int64_t rows, int64_t columns);

/* The same of a product of up to 16 rows, by the kernels that take A from a panel of so many; its `gemm` are these. */
struct sdgen_tile sdgen_select_tile16(const struct sdgen_plan *plan, int64_t rows, int64_t columns);

/* Whether products can be made with tiles of so many columns. */
bool sdgen_has_tile(enum sdgen_level level, int columns);

/* What the environment and the tuning file say of a level; as sdgen_config_from_environment says. */
bool sdgen_tuning_from_environment(struct sdgen_tuning *tuning, enum sdgen_level level, char *message, size_t message_size);

/* The m of F(m x m, 3 x 3) for a convolution, 2 where its image is doubled; 0: directly. A pure function. */
int sdgen_select_winograd(const struct sdgen_plan *plan, const struct sdgen_conv2d *op);

/* Whether the transformed weights of a convolution by Winograd's method, whose tiles fill so many panels, are better taken from the plan's
 * store than transformed at each use; false where it has none. A pure function. */
bool sdgen_select_kept_weights(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int64_t panels);

#endif
