/* 2^x, written so that a compiler vectorizes loops over it: no branch, no call. */
#ifndef SDGEN_EXPONENTIAL_H
#define SDGEN_EXPONENTIAL_H

#include <stdint.h>
#include <string.h>

/* Those of gen/dsl/exponential.py, which says where they come from: of r^5 down to r^0. */
#define SDGEN_EXPONENTIAL_C5 0x1.5ab438p-10f
#define SDGEN_EXPONENTIAL_C4 0x1.3ceca0p-7f
#define SDGEN_EXPONENTIAL_C3 0x1.c6baa2p-5f
#define SDGEN_EXPONENTIAL_C2 0x1.ebf9b4p-3f
#define SDGEN_EXPONENTIAL_C1 0x1.62e424p-1f
#define SDGEN_EXPONENTIAL_C0 0x1p0f
#define SDGEN_EXPONENTIAL_LEAST -126.0f

/* A sum with 1.5 * 2^23 is rounded to an integer, which it holds in its lowest bits. */
static const float sdgen_exponential_magic = 0x1.8p23f;

static inline uint32_t sdgen_exponential_bits(float value)
{
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static inline float sdgen_exponential_of_bits(uint32_t bits)
{
    float value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* 2^r, |r| <= 1/2. */
static inline float sdgen_exp2_fraction(float r)
{
    float power = SDGEN_EXPONENTIAL_C5;
    power = power * r + SDGEN_EXPONENTIAL_C4;
    power = power * r + SDGEN_EXPONENTIAL_C3;
    power = power * r + SDGEN_EXPONENTIAL_C2;
    power = power * r + SDGEN_EXPONENTIAL_C1;
    return power * r + SDGEN_EXPONENTIAL_C0;
}

/* power * 2^n, where neither is denormal nor infinite; of n the lowest 9 bits count. */
static inline float sdgen_exp2_scale(float power, uint32_t n)
{
    return sdgen_exponential_of_bits(sdgen_exponential_bits(power) + (n << 23));
}

/* r of n + r = (high + low) x, by two multiply-adds, so that its error does not grow with n; *n has n in its lowest 9 bits. */
static inline float sdgen_exp2_reduce(float x, float high, float low, uint32_t *n)
{
    float shifted = x * high + sdgen_exponential_magic;
    *n = sdgen_exponential_bits(shifted);
    return x * low + (x * high - (shifted - sdgen_exponential_magic));
}

/* 2^x, 0 where x < -126, infinite from 128 on, NaN where x is NaN. Within two units in the last place where the file is compiled with
 * -ffp-contract=fast for a processor that has fused multiply-adds. */
static inline float sdgen_exp2(float x)
{
    float shifted = x + sdgen_exponential_magic;
    float r = x - (shifted - sdgen_exponential_magic);
    uint32_t bits = sdgen_exponential_bits(sdgen_exp2_scale(sdgen_exp2_fraction(r), sdgen_exponential_bits(shifted)));
    /* By masks, because GCC 12 makes branches of choices between numbers. */
    uint32_t below = -(uint32_t)(x < SDGEN_EXPONENTIAL_LEAST), inside = -(uint32_t)(x < 128), nan = -(uint32_t)(x != x);
    bits = (bits & inside & ~below) | (0x7f800000u & ~inside) | (0x400000u & nan);
    return sdgen_exponential_of_bits(bits);
}

#endif
