/* The hash that arrays are found by: NH over blocks, and a polynomial over what comes of them.
 *
 * NH is a sum of products of neighbouring words of 32 bits with secrets added to them (kernel.h), here four such with other secrets
 * each ("UMAC: Fast and Secure Message Authentication", Black, Halevi, Krawczyk, Krovetz and Rogaway 1999). The sums make two
 * coefficients of 126 bits of a polynomial modulo 2^127 - 1, as in "VHASH Security", Dai and Krovetz 2007, whose value at one more secret
 * is the hash; the last coefficient is the extents. For secrets drawn after them, two different arrays of 64 MiB have the same hash with
 * a chance of less than 2^-100: 2^-124 by the blocks, 2^-105 by the polynomial, even of rows of 64 bytes. The secrets are constants, so
 * this is of arrays that nobody chose by them. */
#include "select.h"

#include <string.h>

typedef uint64_t word;

enum { BLOCK = 1024, LINE = 64, SUMS = 4, KEYS = BLOCK / sizeof(word) + (SUMS - 1) * LINE / sizeof(word), SECRETS = KEYS + 2 };

/* The first outputs of splitmix64 from 0 ("Fast Splittable Pseudorandom Number Generators", Steele, Lea and Flood 2014). */
static const _Alignas(LINE) word secrets[SECRETS] = {
    0xe220a8397b1dcdaf, 0x6e789e6aa1b965f4, 0x06c45d188009454f, 0xf88bb8a8724c81ec, 0x1b39896a51a8749b, 0x53cb9f0c747ea2ea,
    0x2c829abe1f4532e1, 0xc584133ac916ab3c, 0x3ee5789041c98ac3, 0xf3b8488c368cb0a6, 0x657eecdd3cb13d09, 0xc2d326e0055bdef6,
    0x8621a03fe0bbdb7b, 0x8e1f7555983aa92f, 0xb54e0f1600cc4d19, 0x84bb3f97971d80ab, 0x7d29825c75521255, 0xc3cf17102b7f7f86,
    0x3466e9a083914f64, 0xd81a8d2b5a4485ac, 0xdb01602b100b9ed7, 0xa9038a921825f10d, 0xedf5f1d90dca2f6a, 0x54496ad67bd2634c,
    0xdd7c01d4f5407269, 0x935e82f1db4c4f7b, 0x69b82ebc92233300, 0x40d29eb57de1d510, 0xa2f09dabb45c6316, 0xee521d7a0f4d3872,
    0xf16952ee72f3454f, 0x377d35dea8e40225, 0x0c7de8064963bab0, 0x05582d37111ac529, 0xd254741f599dc6f7, 0x69630f7593d108c3,
    0x417ef96181daa383, 0x3c3c41a3b43343a1, 0x6e19905dcbe531df, 0x4fa9fa7324851729, 0x84eb4454a792922a, 0x134f7096918175ce,
    0x07dc930b302278a8, 0x12c015a97019e937, 0xcc06c31652ebf438, 0xecee65630a691e37, 0x3e84ecb1763e79ad, 0x690ed476743aae49,
    0x774615d7b1a1f2e1, 0x22b353f04f4f52da, 0xe3ddd86ba71a5eb1, 0xdf268adeb6513356, 0x2098eb73d4367d77, 0x03d6845323ce3c71,
    0xc952c5620043c714, 0x9b196bca844f1705, 0x30260345dd9e0ec1, 0xcf448a5882bb9698, 0xf4a578dccbc87656, 0xbfdeaed9a17b3c8f,
    0xed79402d1d5c5d7b, 0x55f070ab1cbbf170, 0x3e00a34929a88f1d, 0xe255b237b8bb18fb, 0x2a7b67af6c6ad50e, 0x466d5e7f3e46f143,
    0x42375cb399a4fc72, 0x8c8a1f148a8bb259, 0x32fcab5daed5bdfc, 0x9e60398c8d8553c0, 0xee89cceb8c4064c0, 0xdb0215941d86a66f,
    0x5ccde78203c367a8, 0xf1bcbc6a1ec11786, 0xef054fceee954551, 0xdf82012d0555c6df, 0x292566ff72403c08, 0xc4dd302a1bfa1137,
    0xd85f219db5c554e1, 0x6a27ff807441bcd2, 0x96a573e9b48216e8, 0x46a9fdac40bf0048, 0x3dd12464a0ee15b4, 0x451e521296a7eea1,
    0x56e4398a98f8a0fd, 0x7b7dc2160e3335a7, 0xc679ee0bebcb1cca, 0x928d6f2d7453424e, 0x1b38994205234c6d, 0x8086d193a6f2b568,
    0x21c6e26639ac2c65, 0xd9dccac414d23c6f, 0x91cd642057e00235, 0x77fc607dc6589373, 0x05b8abe26dd3aee7, 0x12f6436ac376cc66,
    0x64952424897b2307, 0xee8c2baf6343e5c3, 0xdc4c613d9eba2304, 0x3505b7796bd1a506, 0x8176daf800a05f50, 0x8bd8ff7a0385cdbc,
    0x1a764a3cd78101da, 0xbe4d15bf6ca266ac, 0xa85e1f38bb2dc749, 0x56759a968493cd8c, 0xf3a9bce7336bd182, 0x365b15013741519b,
    0x1f7a44a6b109ac94, 0x3521d628813cb177, 0x6a77afab0f7c9370, 0x179642d8cde95015, 0x5ef102a8fb354461, 0xf51c504764ed82f2,
    0xc58427f041ce6808, 0xfad8fc45c9643c37, 0xcf8682f9a70fa9c0, 0x7e1b3b75a4005729, 0x992dd867927b52d8, 0x7fbd5db142f6791f,
    0x370595aacab4adae, 0xb1392dbdc5ab61d6, 0x9fea7dfc79d452d9, 0x40b12b120085641c, 0xa192afe3157c85d0, 0xc847729f4e08f3a3,
    0x6f1384a306c41fc2, 0x12d05c4045a39c19, 0x9899202fd20f0841, 0xe9c7191857e774b8, 0x4eead809af5b0cc3, 0xe809acafa23864a4,
    0x4da1edaba1d0f7bd, 0x846eb9673349f8e4, 0x87bae55b86039fe8, 0x7f367b8bd953eff2, 0x3884700f650d04e1, 0xbfe4b2ab46980cad,
    0xc5fc89075299106c, 0x37b2fa361adea7cd, 0x7d75d813f04895b4, 0x702f5b393f62c0e0, 0x0a3fc775f4ecf37f, 0xe4b23787a352437f,
    0xf83fa245c34d6363, 0xb99bcf040786cf50, 0x38b6ea0a0e6c9d8a, 0x093fdc76776e37e1, 0x1a75e6f76ba7eee8, 0x442cdcfee9660c62,
    0x22d58d35116b5e0b, 0x87d4a5180f6a3645, 0x589fb216bd82131b, 0x91d031cad319aec0,
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
    const struct wide k = {secrets[KEYS], secrets[KEYS + 1] >> 2};
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

/* So many bytes, a multiple of LINE and at most a block. */
static struct wide absorb(struct wide h, sdgen_nh_kernel *nh, const char *block, size_t size)
{
    word sums[SUMS];
    nh(size, block, secrets, sums);
    return step(step(h, (struct wide){sums[0], sums[1] >> 2}), (struct wide){sums[2], sums[3] >> 2});
}

struct sdgen_hash sdgen_hash(const struct sdgen_kernels *kernels, const void *data, size_t rows, size_t row_bytes, ptrdiff_t stride)
{
    struct wide h = {0, 0};
    for (size_t row = 0; row < rows; row++) {
        const char *from = (const char *)data + (ptrdiff_t)row * stride;
        size_t left = row_bytes;
        for (; left >= BLOCK; left -= BLOCK, from += BLOCK)
            h = absorb(h, kernels->nh, from, BLOCK);
        size_t lines = left / LINE * LINE;
        if (lines == left && left)
            h = absorb(h, kernels->nh, from, left);
        else if (left) {
            char tail[BLOCK];
            memcpy(tail, from, left);
            memset(tail + left, 0, lines + LINE - left);
            h = absorb(h, kernels->nh, tail, lines + LINE);
        }
    }
    h = step(step(h, (struct wide){rows, row_bytes}), (struct wide){0, 0});
    return (struct sdgen_hash){{h.low, h.high}};
}
