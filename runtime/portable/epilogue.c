#include "portable.h"

/* In a file of its own, compiled so that no multiplication is fused with the addition after it: the order of roundings is that of
 * kernel.h. */
void sdgen_portable_epilogue(int rows, int width, const float *sum, float *c, size_t c_stride, const struct sdgen_epilogue *epilogue)
{
    for (int i = 0; i < rows; i++, sum += width) {
        float *row = (float *)(void *)((char *)c + (size_t)i * c_stride);
        for (int32_t j = 0; j < epilogue->columns; j++) {
            float t = epilogue->accumulate ? row[j] + sum[j] : sum[j];
            t *= epilogue->scale;
            if (epilogue->row_bias)
                t += epilogue->row_bias[i];
            if (epilogue->column_bias)
                t += epilogue->column_bias[j];
            row[j] = t;
        }
    }
}
