/* What the processor has and the operating system lets be used. This file alone is compiled for the oldest processor of its
 * kind: it has to run, and to say what is wrong, where the rest of the program cannot. */
#include "sdgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif
#if defined(__linux__)
#include <sys/syscall.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#define HAVE_CPUID 1
#else
#define HAVE_CPUID 0
#endif

/* Intel SDM volume 2A, CPUID; volume 1, 13.3 (XCR0). */
enum { LEAF1_ECX_OSXSAVE = 1u << 27 };
#define XCR0_AVX UINT64_C(0x6)       /* XMM and YMM */
#define XCR0_AVX512 UINT64_C(0xe6)   /* and masks, the upper halves of ZMM0 to 15, and ZMM16 to 31 */
#define XCR0_TILES UINT64_C(0x60006) /* TILECFG and TILEDATA */

/* A feature: where CPUID shows it, and what the system has to save for it. */
static const struct feature {
    const char *name;
    uint32_t feature;
    uint32_t needs; /* features above without which it is of no use */
    size_t offset;  /* of its register in struct sdgen_cpuid */
    unsigned bit;
    uint32_t leaf;
    uint64_t xcr0;
} features[] = {
#define IN(member) offsetof(struct sdgen_cpuid, member)
    {"avx2", SDGEN_FEATURE_AVX2, 0, IN(leaf7_ebx), 5, 7, XCR0_AVX},
    {"fma", SDGEN_FEATURE_FMA, 0, IN(leaf1_ecx), 12, 1, XCR0_AVX},
    {"f16c", SDGEN_FEATURE_F16C, 0, IN(leaf1_ecx), 29, 1, XCR0_AVX},
    {"avx_vnni", SDGEN_FEATURE_AVX_VNNI, SDGEN_FEATURE_AVX2, IN(leaf7_1_eax), 4, 7, XCR0_AVX},
    {"avx512f", SDGEN_FEATURE_AVX512F, SDGEN_FEATURE_AVX2, IN(leaf7_ebx), 16, 7, XCR0_AVX512},
    {"avx512dq", SDGEN_FEATURE_AVX512DQ, SDGEN_FEATURE_AVX512F, IN(leaf7_ebx), 17, 7, XCR0_AVX512},
    {"avx512bw", SDGEN_FEATURE_AVX512BW, SDGEN_FEATURE_AVX512F, IN(leaf7_ebx), 30, 7, XCR0_AVX512},
    {"avx512vl", SDGEN_FEATURE_AVX512VL, SDGEN_FEATURE_AVX512F, IN(leaf7_ebx), 31, 7, XCR0_AVX512},
    {"avx512_vnni", SDGEN_FEATURE_AVX512_VNNI, SDGEN_FEATURE_AVX512F, IN(leaf7_ecx), 11, 7, XCR0_AVX512},
    {"avx512_bf16", SDGEN_FEATURE_AVX512_BF16, SDGEN_FEATURE_AVX512F, IN(leaf7_1_eax), 5, 7, XCR0_AVX512},
    {"avx512_fp16", SDGEN_FEATURE_AVX512_FP16, SDGEN_FEATURE_AVX512F, IN(leaf7_edx), 23, 7, XCR0_AVX512},
    {"avx10_2", SDGEN_FEATURE_AVX10_2, SDGEN_FEATURE_AVX512F, IN(leaf7_1_edx), 19, 0x24, XCR0_AVX512},
    {"amx_tile", SDGEN_FEATURE_AMX_TILE, 0, IN(leaf7_edx), 24, 7, XCR0_TILES},
    {"amx_bf16", SDGEN_FEATURE_AMX_BF16, SDGEN_FEATURE_AMX_TILE, IN(leaf7_edx), 22, 7, XCR0_TILES},
    {"amx_int8", SDGEN_FEATURE_AMX_INT8, SDGEN_FEATURE_AMX_TILE, IN(leaf7_edx), 25, 7, XCR0_TILES},
    {"bmi2", SDGEN_FEATURE_BMI2, 0, IN(leaf7_ebx), 8, 7, 0},
    {"amx_fp16", SDGEN_FEATURE_AMX_FP16, SDGEN_FEATURE_AMX_TILE, IN(leaf7_1_eax), 21, 7, XCR0_TILES},
#undef IN
};
enum { FEATURES = sizeof features / sizeof *features, LEAF1_ECX_AVX_BIT = 28 };

const char *sdgen_feature_name(unsigned bit)
{
    for (size_t i = 0; i < FEATURES; i++)
        if (bit < 32 && features[i].feature == 1u << bit)
            return features[i].name;
    return NULL;
}

uint32_t sdgen_features(const struct sdgen_cpuid *cpuid)
{
    /* All of them are VEX- or EVEX-encoded, or useless without what is. */
    if (cpuid->max_leaf < 1 || !(cpuid->leaf1_ecx & LEAF1_ECX_OSXSAVE) || !(cpuid->leaf1_ecx >> LEAF1_ECX_AVX_BIT & 1))
        return 0;
    uint32_t found = 0;
    for (size_t i = 0; i < FEATURES; i++) {
        const struct feature *feature = &features[i];
        uint32_t value;
        memcpy(&value, (const char *)cpuid + feature->offset, sizeof value);
        if (cpuid->max_leaf >= feature->leaf && (value >> feature->bit & 1) && (cpuid->xcr0 & feature->xcr0) == feature->xcr0 &&
            (found & feature->needs) == feature->needs)
            found |= feature->feature;
    }
    if ((cpuid->leaf24_ebx & 0xff) < 2) /* AVX10.1 is AVX-512 by another name */
        found &= ~(uint32_t)SDGEN_FEATURE_AVX10_2;
    if (!cpuid->tiles_permitted)
        found &= ~(uint32_t)(SDGEN_FEATURE_AMX_TILE | SDGEN_FEATURE_AMX_BF16 | SDGEN_FEATURE_AMX_INT8 | SDGEN_FEATURE_AMX_FP16);
    return found;
}

enum { XFEATURE_XTILEDATA = 18 };

/* Linux gives the tiles' state to processes that ask for it ("Using XSTATE features in user space applications"), which makes their
 * signal frames larger: this only sees whether it would. */
static bool tiles_supported(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_GET_XCOMP_SUPP = 0x1021 };
    uint64_t supported = 0;
    return syscall(SYS_arch_prctl, ARCH_GET_XCOMP_SUPP, &supported) == 0 && (supported >> XFEATURE_XTILEDATA & 1);
#else
    return false;
#endif
}

bool sdgen_request_tiles(void)
{
#if defined(__linux__) && defined(SYS_arch_prctl)
    enum { ARCH_REQ_XCOMP_PERM = 0x1023 };
    return syscall(SYS_arch_prctl, ARCH_REQ_XCOMP_PERM, XFEATURE_XTILEDATA) == 0;
#else
    return false;
#endif
}

static struct sdgen_cpuid read_cpuid(char name[static 49])
{
    struct sdgen_cpuid cpuid = {0};
    name[0] = '\0';
#if HAVE_CPUID
    unsigned eax, ebx, ecx, edx;
    cpuid.max_leaf = (uint32_t)__get_cpuid_max(0, NULL);
    if (__get_cpuid(1, &eax, &ebx, &ecx, &edx))
        cpuid.leaf1_ecx = ecx;
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx)) {
        cpuid.leaf7_ebx = ebx;
        cpuid.leaf7_ecx = ecx;
        cpuid.leaf7_edx = edx;
        if (eax >= 1 && __get_cpuid_count(7, 1, &eax, &ebx, &ecx, &edx)) {
            cpuid.leaf7_1_eax = eax;
            cpuid.leaf7_1_edx = edx;
        }
    }
    if (__get_cpuid_count(0x24, 0, &eax, &ebx, &ecx, &edx))
        cpuid.leaf24_ebx = ebx;
    if (cpuid.leaf1_ecx & LEAF1_ECX_OSXSAVE) {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        cpuid.xcr0 = (uint64_t)high << 32 | low;
    }
    if ((cpuid.xcr0 & XCR0_TILES) == XCR0_TILES)
        cpuid.tiles_permitted = tiles_supported();
    if ((uint32_t)__get_cpuid_max(0x80000000u, NULL) >= 0x80000004u) {
        for (unsigned leaf = 0; leaf < 3; leaf++) {
            unsigned r[4];
            __get_cpuid(0x80000002u + leaf, &r[0], &r[1], &r[2], &r[3]);
            memcpy(name + 16 * leaf, r, sizeof r);
        }
        name[48] = '\0';
    }
#endif
    return cpuid;
}

static size_t cache_size(int sysconf_name, size_t fallback)
{
#if defined(_SC_LEVEL1_DCACHE_SIZE)
    long size = sysconf(sysconf_name);
    if (size > 0)
        return (size_t)size;
#else
    (void)sysconf_name;
#endif
    return fallback;
}

#if !defined(_SC_LEVEL1_DCACHE_SIZE)
enum { _SC_LEVEL1_DCACHE_SIZE, _SC_LEVEL2_CACHE_SIZE, _SC_LEVEL3_CACHE_SIZE };
#endif

static struct sdgen_processor detected;

/* Runs before main and before any other constructor, so that there is no race to fill it, and a program whose common code needs
 * AVX2 can refuse in a sentence where it would die of an illegal instruction. */
__attribute__((constructor(101))) static void detect(void)
{
    char name[49];
    struct sdgen_cpuid cpuid = read_cpuid(name);
    detected.features = sdgen_features(&cpuid);
    detected.l1 = cache_size(_SC_LEVEL1_DCACHE_SIZE, 32u << 10);
    detected.l2 = cache_size(_SC_LEVEL2_CACHE_SIZE, 256u << 10);
    detected.l3 = cache_size(_SC_LEVEL3_CACHE_SIZE, 4u << 20);
    const char *start = name + strspn(name, " ");
    snprintf(detected.name, sizeof detected.name, "%s", start);
    for (size_t n = strlen(detected.name); n > 0 && detected.name[n - 1] == ' '; n--)
        detected.name[n - 1] = '\0';
#if defined(SDGEN_REQUIRE_AVX2)
    uint32_t required = SDGEN_FEATURE_AVX2 | SDGEN_FEATURE_FMA | SDGEN_FEATURE_F16C | SDGEN_FEATURE_BMI2;
    if ((detected.features & required) != required) {
        fprintf(stderr, "sdgen: this program was built for processors with AVX2, FMA, F16C and BMI2 (x86-64-v3), and this one%s%s%s "
                        "lacks them or its operating system withholds them\n",
                *detected.name ? " (" : "", detected.name, *detected.name ? ")" : "");
        exit(1);
    }
#endif
}

const struct sdgen_processor *sdgen_processor(void)
{
    return &detected;
}
