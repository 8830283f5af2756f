/* Powers of two in single precision, of expressions that any compiler vectorizes: the polynomial of gen/dsl/exponential.py. */
#ifndef SDGEN_EXPONENTIAL_H
#define SDGEN_EXPONENTIAL_H

#include "portable.h"

/* 1.5 * 2^23: added to a number of less than 2^22, it leaves the nearest integer in the sum's lowest bits. */
#define SDGEN_ROUND 0x1.8p23f

static inline uint32_t sdgen_bits_of(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

/* 2^r, |r| <= 1/2, within two units in the last place. */
static inline float sdgen_exp2_fraction(float r)
{
    float p = 0x1.5ab438p-10f;
    p = p * r + 0x1.3ceca0p-7f;
    p = p * r + 0x1.c6baa2p-5f;
    p = p * r + 0x1.ebf9b4p-3f;
    p = p * r + 0x1.62e424p-1f;
    return p * r + 1;
}

/* 2^x for x < 127.5, 0 where x < -126, NaN where x is NaN. */
static inline float sdgen_exp2(float x)
{
    float shifted = x + SDGEN_ROUND;
    float p = sdgen_exp2_fraction(x - (shifted - SDGEN_ROUND));
    float power = sdgen_of_bits(sdgen_bits_of(p) + (sdgen_bits_of(shifted) << 23));
    return x < -126 ? 0 : power;
}

/* *shifted: its lowest bits are n; returns r, where n + r = (high + low) x, as exact as if that had not been rounded. */
static inline float sdgen_exp2_reduce(float x, float high, float low, float *shifted)
{
    *shifted = x * high + SDGEN_ROUND;
    return x * low + (x * high - (*shifted - SDGEN_ROUND));
}

/* 2^n p. */
static inline float sdgen_exp2_scale(float p, uint32_t n)
{
    return sdgen_of_bits(sdgen_bits_of(p) + (n << 23));
}

#endif
