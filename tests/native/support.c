/* Memory between guard pages, sums in a fixed order, sizes of structures. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "support.h"

static size_t whole_pages(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    return (size + page - 1) / page * page;
}

void *sdgen_test_map(size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    char *start = mmap(NULL, whole_pages(size) + 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (start == MAP_FAILED)
        return NULL;
    if (mprotect(start + page, whole_pages(size), PROT_READ | PROT_WRITE) != 0)
        return NULL;
    return start + page;
}

void sdgen_test_unmap(void *start, size_t size)
{
    size_t page = (size_t)sysconf(_SC_PAGESIZE);
    munmap((char *)start - page, whole_pages(size) + 2 * page);
}

void sdgen_test_gemm(size_t rows, size_t width, size_t k, const float *a, const float *b, float *c, size_t c_stride,
                     const struct sdgen_epilogue *epilogue)
{
    for (size_t i = 0; i < rows; i++) {
        float *row = (float *)((char *)c + i * c_stride);
        for (size_t j = 0; j < (size_t)epilogue->columns; j++) {
            float sum = 0;
            for (size_t p = 0; p < k; p++)
                sum = fmaf(a[p * rows + i], b[p * width + j], sum);
            if (epilogue->accumulate)
                sum += row[j];
            sum *= epilogue->scale;
            if (epilogue->row_bias)
                sum += epilogue->row_bias[i];
            if (epilogue->column_bias)
                sum += epilogue->column_bias[j];
            row[j] = sum;
        }
    }
}

size_t sdgen_test_sizeof(const char *name)
{
    static const struct {
        const char *name;
        size_t size;
    } SIZES[] = {
#define SIZE(name) {#name, sizeof(struct name)}
        SIZE(sdgen_processor), SIZE(sdgen_cpuid),    SIZE(sdgen_config),  SIZE(sdgen_kernel_row),
        SIZE(sdgen_blocking),  SIZE(sdgen_matmul),   SIZE(sdgen_conv2d),  SIZE(sdgen_plan),
        SIZE(sdgen_operand),   SIZE(sdgen_map),      SIZE(sdgen_group_norm), SIZE(sdgen_layer_norm),
        SIZE(sdgen_epilogue),  SIZE(sdgen_patches),  SIZE(sdgen_scores),  SIZE(sdgen_unpack),
        SIZE(sdgen_map_run),   SIZE(sdgen_after),    SIZE(sdgen_attention), SIZE(sdgen_tuning),
        SIZE(sdgen_permute), SIZE(sdgen_test_report), SIZE(sdgen_clock), SIZE(sdgen_team),
        SIZE(sdgen_row_norm), SIZE(sdgen_softmax), SIZE(sdgen_upscale), SIZE(sdgen_hash),
        SIZE(sdgen_store_counts), SIZE(sdgen_frames), SIZE(sdgen_pad), SIZE(sdgen_before),
#undef SIZE
    };
    for (size_t i = 0; i < sizeof SIZES / sizeof SIZES[0]; i++)
        if (strcmp(SIZES[i].name, name) == 0)
            return SIZES[i].size;
    return 0;
}
