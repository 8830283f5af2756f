/* The hash that arrays are found by: NH over blocks, and a polynomial over what comes of them, both of 64 by 64 to 128 bits.
 *
 * For a block of words a[0], a[1], ... with secret words s,
 *
 *   NH(a, s) = sum over i of (a[2i] + s[2i] mod 2^64) * (a[2i + 1] + s[2i + 1] mod 2^64)   mod 2^128
 *
 * once with s from its start and once from its third word on ("UMAC: Fast and Secure Message Authentication", Black, Halevi, Krawczyk,
 * Krovetz and Rogaway 1999). Both, of 126 bits each, are coefficients of a polynomial modulo 2^127 - 1, as in "VHASH Security", Dai and
 * Krovetz 2007, whose value at one more secret is the hash; the last coefficient is the extents. For secrets drawn after them, two
 * different arrays of 64 MiB have the same hash with a chance of less than 2^-100: 2^-122 by the blocks, 2^-109 by the polynomial. The
 * secrets are constants, so this is of arrays that nobody chose by them. */
#include "sdgen.h"

#include <string.h>

typedef uint64_t word;

enum { BLOCK_WORDS = 64, BLOCK = BLOCK_WORDS * sizeof(word), SHIFT = 2, SECRETS = BLOCK_WORDS + SHIFT + 2 };

/* The first outputs of splitmix64 from 0 ("Fast Splittable Pseudorandom Number Generators", Steele, Lea and Flood 2014). */
static const word secrets[SECRETS] = {
    0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec, 0x1b39896a51a8749b,
    0x53cb9f0c747ea2ea, 0x2c829abe1f4532e1, 0xc584133ac916ab3c, 0x3ee5789041c98ac3, 0xf3b8488c368cb0a6,
    0x657eecdd3cb13d09, 0xc2d326e0055bdef6, 0x8621a03fe0bbdb7b, 0x8e1f7555983aa92f, 0xb54e0f1600cc4d19,
    0x84bb3f97971d80ab, 0x7d29825c75521255, 0xc3cf17102b7f7f86, 0x3466e9a083914f64, 0xd81a8d2b5a4485ac,
    0xdb01602b100b9ed7, 0xa9038a921825f10d, 0xedf5f1d90dca2f6a, 0x54496ad67bd2634c, 0xdd7c01d4f5407269,
    0x935e82f1db4c4f7b, 0x69b82ebc92233300, 0x40d29eb57de1d510, 0xa2f09dabb45c6316, 0xee521d7a0f4d3872,
    0xf16952ee72f3454f, 0x377d35dea8e40225, 0x0c7de8064963bab0, 0x05582d37111ac529, 0xd254741f599dc6f7,
    0x69630f7593d108c3, 0x417ef96181daa383, 0x3c3c41a3b43343a1, 0x6e19905dcbe531df, 0x4fa9fa7324851729,
    0x84eb4454a792922a, 0x134f7096918175ce, 0x07dc930b302278a8, 0x12c015a97019e937, 0xcc06c31652ebf438,
    0xecee65630a691e37, 0x3e84ecb1763e79ad, 0x690ed476743aae49, 0x774615d7b1a1f2e1, 0x22b353f04f4f52da,
    0xe3ddd86ba71a5eb1, 0xdf268adeb6513356, 0x2098eb73d4367d77, 0x03d6845323ce3c71, 0xc952c5620043c714,
    0x9b196bca844f1705, 0x30260345dd9e0ec1, 0xcf448a5882bb9698, 0xf4a578dccbc87656, 0xbfdeaed9a17b3c8f,
    0xed79402d1d5c5d7b, 0x55f070ab1cbbf170, 0x3e00a34929a88f1d, 0xe255b237b8bb18fb, 0x2a7b67af6c6ad50e,
    0x466d5e7f3e46f143, 0x42375cb399a4fc72, 0x8c8a1f148a8bb259,
};

struct wide {
    word low, high;
};

#if defined(__SIZEOF_INT128__)
__extension__ typedef unsigned __int128 wide_word;

static inline struct wide multiply(word a, word b)
{
    wide_word product = (wide_word)a * b;
    return (struct wide){(word)product, (word)(product >> 64)};
}
#else
static inline struct wide multiply(word a, word b)
{
    const word half = 0xffffffff;
    word low = (a & half) * (b & half), middle = (a >> 32) * (b & half) + (low >> 32), other = (a & half) * (b >> 32) + (middle & half);
    return (struct wide){other << 32 | (low & half), (a >> 32) * (b >> 32) + (middle >> 32) + (other >> 32)};
}
#endif

static inline struct wide add(struct wide a, struct wide b)
{
    word low = a.low + b.low;
    return (struct wide){low, a.high + b.high + (low < b.low)};
}

/* h * k + coefficient modulo 2^127 - 1, not fully reduced, less than 2^128; k and the coefficient are less than 2^126. */
static struct wide step(struct wide h, struct wide coefficient)
{
    const word top = (word)1 << 63;
    const struct wide k = {secrets[SECRETS - 2], secrets[SECRETS - 1] >> 2};
    const struct wide low = multiply(h.low, k.low), high = multiply(h.high, k.high);
    const struct wide cross = multiply(h.low, k.high), other = multiply(h.high, k.low);
    /* The product's words from the second on. */
    struct wide upper = add((struct wide){low.high, 0}, cross);
    struct wide second = add((struct wide){upper.low, 0}, other);
    struct wide rest = add(high, add((struct wide){upper.high, 0}, (struct wide){second.high, 0}));
    /* 2^127 is 1. */
    struct wide sum = add((struct wide){low.low, second.low & ~top},
                          (struct wide){rest.low << 1 | second.low >> 63, rest.high << 1 | rest.low >> 63});
    sum = add((struct wide){sum.low, sum.high & ~top}, (struct wide){sum.high >> 63, 0});
    return add(sum, coefficient);
}

static inline word load(const char *from)
{
    word value;
    memcpy(&value, from, sizeof value);
    return value;
}

/* So many bytes, a multiple of 16 and at most a block. */
static inline struct wide absorb(struct wide h, const char *block, size_t size)
{
    const word over = ~(word)0 >> 2;
    struct wide first = {0, 0}, second = {0, 0};
#pragma GCC unroll 8
    for (size_t i = 0; i < size / sizeof(word); i += 2) {
        word a = load(block + i * sizeof(word)), b = load(block + (i + 1) * sizeof(word));
        first = add(first, multiply(a + secrets[i], b + secrets[i + 1]));
        second = add(second, multiply(a + secrets[i + SHIFT], b + secrets[i + 1 + SHIFT]));
    }
    first.high &= over;
    second.high &= over;
    return step(step(h, first), second);
}

struct sdgen_hash sdgen_hash(const void *data, size_t rows, size_t row_bytes, ptrdiff_t stride)
{
    struct wide h = {0, 0};
    for (size_t row = 0; row < rows; row++) {
        const char *from = (const char *)data + (ptrdiff_t)row * stride;
        size_t left = row_bytes;
        for (; left >= BLOCK; left -= BLOCK, from += BLOCK)
            h = absorb(h, from, BLOCK);
        if (left) {
            char tail[BLOCK];
            size_t whole = (left + 15) / 16 * 16;
            memset(tail + whole - 16, 0, 16);
            memcpy(tail, from, left);
            h = absorb(h, tail, whole);
        }
    }
    h = step(step(h, (struct wide){rows, row_bytes}), (struct wide){0, 0});
    return (struct sdgen_hash){{h.low, h.high}};
}
