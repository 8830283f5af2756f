/* What the processor has and the operating system lets be used. This file alone is compiled for the oldest processor of its
 * kind: it has to run, and to say what is wrong, where the rest of the program cannot. */
#include "sdgen.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif

#if defined(__x86_64__)
#include <cpuid.h>
#define HAVE_CPUID 1
#else
#define HAVE_CPUID 0
#endif

/* Intel SDM volume 2A, CPUID; volume 1, 13.3 (XCR0). */
enum {
    LEAF1_ECX_FMA = 1u << 12,
    LEAF1_ECX_OSXSAVE = 1u << 27,
    LEAF1_ECX_AVX = 1u << 28,
    LEAF1_ECX_F16C = 1u << 29,
    LEAF7_EBX_AVX2 = 1u << 5,
    XCR0_SSE_AVX = 0x6,
};

uint32_t sdgen_features(const struct sdgen_cpuid *cpuid)
{
    uint32_t ecx = cpuid->leaf1_ecx;
    if (cpuid->max_leaf < 1 || !(ecx & LEAF1_ECX_OSXSAVE) || !(ecx & LEAF1_ECX_AVX) ||
        (cpuid->xcr0 & XCR0_SSE_AVX) != XCR0_SSE_AVX)
        return 0; /* the system does not save the upper halves of the vector registers */
    uint32_t features = 0;
    if (ecx & LEAF1_ECX_FMA)
        features |= SDGEN_FEATURE_FMA;
    if (ecx & LEAF1_ECX_F16C)
        features |= SDGEN_FEATURE_F16C;
    if (cpuid->max_leaf >= 7 && (cpuid->leaf7_ebx & LEAF7_EBX_AVX2))
        features |= SDGEN_FEATURE_AVX2;
    return features;
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
    if (__get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx))
        cpuid.leaf7_ebx = ebx;
    if (cpuid.leaf1_ecx & LEAF1_ECX_OSXSAVE) {
        uint32_t low, high;
        __asm__ volatile("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
        cpuid.xcr0 = (uint64_t)high << 32 | low;
    }
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
    uint32_t required = SDGEN_FEATURE_AVX2 | SDGEN_FEATURE_FMA | SDGEN_FEATURE_F16C;
    if ((detected.features & required) != required) {
        fprintf(stderr, "sdgen: this program was built for processors with AVX2, FMA and F16C (x86-64-v3), and this one%s%s%s "
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
