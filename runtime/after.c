/* What is done to a part of a product or convolution that has just been made. */
#include "elementwise.h"

const char *sdgen_after_check(const struct sdgen_after *after, const float *c, const int64_t c_stride[3])
{
    if ((unsigned)after->function >= SDGEN_FUNCTIONS)
        return "the function after it is unknown";
    if (sdgen_unaligned(after->shift, NULL, 0))
        return "the shift after it is not aligned to its elements";
    const struct sdgen_operand *operands[] = {&after->weight, &after->addend, &after->factor};
    for (int i = 0; i < 3; i++) {
        const struct sdgen_operand *operand = operands[i];
        if (!operand->data)
            continue;
        if (sdgen_unaligned(operand->data, operand->stride, 4))
            return "an operand after it, or one of its strides, is not aligned to its elements";
        if (operand->stride[0] != sizeof(float) && (operand != &after->addend || operand->stride[0] != 0 || after->weight.data))
            return "elements of an operand after it are not side by side";
    }
    if (after->weight.data == c || after->factor.data == c)
        return "an operand after it is c";
    if (after->addend.data == c) {
        if (after->weight.data)
            return "an addend that is c cannot follow a weight";
        if (after->addend.stride[0] != sizeof(float))
            return "an addend that is c has other strides";
        for (int d = 0; d < 3; d++)
            if (after->addend.stride[d + 1] != c_stride[d] && c_stride[d] >= 0)
                return "an addend that is c has other strides";
    }
    return NULL;
}

static const float *place_of(const struct sdgen_operand *operand, const int64_t batch[2], int64_t row, int64_t column)
{
    if (!operand->data)
        return NULL;
    const int64_t *stride = operand->stride;
    return sdgen_at(operand->data, column * stride[0] + row * stride[1] + batch[0] * stride[2] + batch[1] * stride[3]);
}

void sdgen_after_apply(const struct sdgen_kernels *kernels, const struct sdgen_after *after, const int64_t batch[2], int64_t row,
                       int64_t rows, int64_t column, int64_t columns, const float *t, int64_t t_stride, float *c, int64_t c_stride)
{
    const bool constant = after->addend.data && after->addend.stride[0] == 0;
    for (int64_t i = row; i < row + rows; i++) {
        const float *addend = place_of(&after->addend, batch, i, column);
        const struct sdgen_map_run run = {
            .x = t,
            .y = c,
            .n = columns,
            .weight = place_of(&after->weight, batch, i, column),
            .addend = constant ? NULL : addend,
            .factor = place_of(&after->factor, batch, i, column),
            .scale = 1,
            .shift = (after->shift ? after->shift[i] : 0) + (constant ? *addend : 0),
            .parameter = {after->parameter[0], after->parameter[1]},
        };
        kernels->map[after->function](&run);
        t = sdgen_at(t, t_stride);
        c = (float *)(void *)((char *)c + c_stride);
    }
}
