#include "portable.h"

enum { SUMS = 4, WORDS = 8 }; /* from sum to sum of the secrets */

#define SDGEN_NH_KERNEL(type, level, symbol)                                                                                      \
    void symbol(size_t size, const void *data, const uint64_t *secrets, uint64_t *sums)                                           \
    {                                                                                                                             \
        for (size_t p = 0; p < SUMS; p++) {                                                                                       \
            uint64_t sum = 0;                                                                                                     \
            for (size_t i = 0; i < size / sizeof sum; i++) {                                                                      \
                uint64_t word, secret = secrets[i + WORDS * p];                                                                   \
                memcpy(&word, (const char *)data + i * sizeof word, sizeof word);                                                 \
                uint32_t low = (uint32_t)word + (uint32_t)secret, high = (uint32_t)(word >> 32) + (uint32_t)(secret >> 32);       \
                sum += (uint64_t)low * high;                                                                                      \
            }                                                                                                                     \
            sums[p] = sum;                                                                                                        \
        }                                                                                                                         \
    }
#include "kernels.inc"
