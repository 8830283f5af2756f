/* The C form of every kernel: plain C that any compiler vectorizes for any processor, with the prototypes of ../kernel.h. */
#ifndef SDGEN_PORTABLE_H
#define SDGEN_PORTABLE_H

#include "../kernel.h"

#define SDGEN_GEMM_KERNEL(type, rows, width, level, symbol) extern sdgen_gemm_kernel symbol;
#define SDGEN_PACK_KERNEL(type, width, level, symbol) extern sdgen_pack_kernel symbol;
#define SDGEN_PACK_PATCHES_KERNEL(type, width, level, symbol) extern sdgen_pack_patches_kernel symbol;
#define SDGEN_GEMM16_KERNEL(type, rows, width, level, symbol) extern sdgen_gemm_kernel symbol;
#define SDGEN_WINOGRAD_INPUT_KERNEL(m, lanes, level, symbol) extern sdgen_winograd_input_kernel symbol;
#define SDGEN_WINOGRAD_WEIGHTS_KERNEL(m, level, symbol) extern sdgen_winograd_weights_kernel symbol;
#define SDGEN_WINOGRAD_OUTPUT_KERNEL(m, lanes, level, symbol) extern sdgen_winograd_output_kernel symbol;
#include "kernels.inc"

/* What sdgen_epilogue says, for a tile of sums [rows][width]. */
void sdgen_portable_epilogue(int rows, int width, const float *sum, float *c, size_t c_stride,
                             const struct sdgen_epilogue *epilogue);

#endif
