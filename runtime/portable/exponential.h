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

/* 2^x, 0 where x < -126, infinite from 128 on, NaN where x is NaN. Within two units in the last place where the file is compiled with
 * -ffp-contract=fast for a processor that has fused multiply-adds. */
static inline float sdgen_exp2(float x)
{
    /* The sum with 1.5 * 2^23 is rounded to an integer, and holds n = round(x) in its lowest bits. */
    const float magic = 0x1.8p23f;
    float shifted = x + magic;
    float r = x - (shifted - magic);
    float power = SDGEN_EXPONENTIAL_C5;
    power = power * r + SDGEN_EXPONENTIAL_C4;
    power = power * r + SDGEN_EXPONENTIAL_C3;
    power = power * r + SDGEN_EXPONENTIAL_C2;
    power = power * r + SDGEN_EXPONENTIAL_C1;
    power = power * r + SDGEN_EXPONENTIAL_C0;
    uint32_t n, bits;
    memcpy(&n, &shifted, sizeof n);
    memcpy(&bits, &power, sizeof bits);
    bits += n << 23;
    /* By masks, because GCC 12 makes branches of choices between numbers. */
    uint32_t below = -(uint32_t)(x < SDGEN_EXPONENTIAL_LEAST), inside = -(uint32_t)(x < 128), nan = -(uint32_t)(x != x);
    bits = (bits & inside & ~below) | (0x7f800000u & ~inside) | (0x400000u & nan);
    memcpy(&power, &bits, sizeof power);
    return power;
}

#endif
