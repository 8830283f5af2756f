/* The ways a convolution is computed.
 *
 * One of frames is one of images, each of which has a frame's worth of input channels for every frame of the kernel: the weights have
 * them one after the other, (channel in, frame of the kernel). */
#ifndef SDGEN_CONV_H
#define SDGEN_CONV_H

#include "gemm.h"

/* Frames of the kernel; of c. */
static inline int64_t sdgen_conv2d_kernel_frames(const struct sdgen_conv2d *op)
{
    return op->frames.out ? op->frames.kernel : 1;
}

static inline int64_t sdgen_conv2d_frames(const struct sdgen_conv2d *op)
{
    return op->frames.out ? op->frames.out : 1;
}

/* Input channels, each once for every frame of the kernel; images of c. */
static inline int64_t sdgen_conv2d_channels(const struct sdgen_conv2d *op)
{
    return op->channels_in * sdgen_conv2d_kernel_frames(op);
}

static inline int64_t sdgen_conv2d_images(const struct sdgen_conv2d *op)
{
    return op->batch * sdgen_conv2d_frames(op);
}

/* Where x begins, in bytes, for an image of c and a frame of the kernel; false where x has no such frame. */
static inline bool sdgen_conv2d_x(const struct sdgen_conv2d *op, int64_t image, int64_t kernel_frame, int64_t *offset)
{
    const struct sdgen_frames *frames = &op->frames;
    if (!frames->out) {
        *offset = image * op->x_batch_stride;
        return true;
    }
    int64_t frame = image % frames->out * frames->stride + kernel_frame * frames->dilation - frames->pad;
    *offset = image / frames->out * op->x_batch_stride + frame * frames->x_stride;
    return frame >= 0 && frame < frames->in;
}

/* Bytes from channel to channel of c, and where an image's first channel begins. */
static inline int64_t sdgen_conv2d_c_channel(const struct sdgen_conv2d *op)
{
    return sdgen_conv2d_frames(op) * op->width_out * op->height_out * (int64_t)sizeof(float);
}

static inline int64_t sdgen_conv2d_c(const struct sdgen_conv2d *op, int64_t image)
{
    int64_t frames = sdgen_conv2d_frames(op);
    return image / frames * op->c_batch_stride + image % frames * op->width_out * op->height_out * (int64_t)sizeof(float);
}

/* Directly, any convolution (conv.c). */
size_t sdgen_conv2d_direct_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int nth);
void sdgen_conv2d_direct(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, const struct sdgen_team *team);

/* By Winograd's F(m x m, 3 x 3), m of 2, 3 and 4, or 2 of an image doubled, where it fits (winograd.c): not where padding leaves a
 * pixel fewer than 4 products, for it has the rounding errors of its whole tile. */
bool sdgen_winograd_fits(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m);
size_t sdgen_winograd_work_size(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, int nth);
void sdgen_winograd(const struct sdgen_plan *plan, const struct sdgen_conv2d *op, int m, const struct sdgen_team *team);

#endif
