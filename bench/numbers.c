#include "numbers.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

double seconds_of(clockid_t clock)
{
    struct timespec time;
    clock_gettime(clock, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

void *allocate(size_t size)
{
    void *memory = aligned_alloc(4096, (size + 4095) / 4096 * 4096);
    if (!memory && size > 0) {
        fprintf(stderr, "sdgen-bench: no memory for %zu bytes\n", size);
        exit(1);
    }
    return memory;
}

static uint64_t random_state = 0x9e3779b97f4a7c15u;

/* Sum of uniform numbers. xorshift64 (Marsaglia 2003). */
static float random_number(void)
{
    random_state ^= random_state << 13;
    random_state ^= random_state >> 7;
    random_state ^= random_state << 17;
    double sum = 0;
    for (int i = 0; i < 4; i++)
        sum += (double)(random_state >> (16 * i) & 0xffff) / 65536;
    return (float)((sum - 2) * 1.7320508);
}

/* Random numbers of a few mantissa bits, so that they are exact in FP16. */
static uint16_t random_half(void)
{
    float value = random_number() * 0.02f;
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    int32_t exponent = (int32_t)(bits >> 23 & 0xff) - 112;
    if (exponent <= 0)
        return 0;
    return (uint16_t)((bits >> 16 & 0x8000u) | (uint32_t)exponent << 10 | (bits >> 13 & 0x3ffu));
}

double half_value(uint16_t half)
{
    double magnitude = ldexp(1024 + (half & 0x3ff), (half >> 10 & 0x1f) - 25);
    return half == 0 ? 0 : half & 0x8000 ? -magnitude : magnitude;
}

float *random_floats(size_t count)
{
    float *numbers = allocate(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = random_number();
    return numbers;
}

uint16_t *random_halves(size_t count)
{
    uint16_t *numbers = allocate(count * sizeof *numbers);
    for (size_t i = 0; i < count; i++)
        numbers[i] = random_half();
    return numbers;
}
