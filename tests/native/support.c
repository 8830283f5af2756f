/* Memory between guard pages, sums in a fixed order, sizes of structures. */
#define _GNU_SOURCE
#include <math.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "schedule.h"
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

int64_t sdgen_test_queue(int64_t count, int64_t whole, int64_t most, int nth, bool tallied, const unsigned char *order, size_t length)
{
    struct sdgen_queue queue = {0};
    int64_t taken[256] = {0}, last = 0, ranges = 0;
    bool ended[256] = {false};
    int left = nth;
    for (size_t i = 0; left > 0; i++) {
        int thread = order[i % length] % nth;
        if (i >= length) /* so that all come to their end */
            thread = (int)(i % (size_t)nth);
        if (ended[thread])
            continue;
        int64_t begin, end;
        if (!sdgen_queue_take(&queue, count, whole, most, nth, tallied ? &taken[thread] : NULL, &begin, &end)) {
            ended[thread] = true;
            left--;
            continue;
        }
        if (begin != last || end <= begin || end > count || end - begin > most)
            return -1;
        last = end;
        ranges++;
    }
    return last == count && queue.next == 0 && queue.left == 0 ? ranges : -2;
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
