/* The hook that the patched ggml calls. Everything ggml-specific is behind it. */
#ifndef SDGEN_GGML_H
#define SDGEN_GGML_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif

struct ggml_cgraph;
struct sdgen_ggml_graph;

/* Whether nodes go to this project's kernels: false with SDGEN_KERNELS=upstream. */
bool sdgen_ggml_active(void);

/* Threads to compute with where the user says nothing: no more than the process has processors for. */
int sdgen_ggml_default_threads(void);

/* Bytes of work buffer that the graph's nodes need for up to n_threads threads, for ggml_graph_plan. A node whose tensors have no
 * memory yet counts for nothing, and is left to ggml later if ggml's own need turns out smaller. */
size_t sdgen_ggml_work_size(const struct ggml_cgraph *graph, int n_threads);

/* Decides, once for all threads, which nodes are taken. A node that only the next one of a pattern reads may stay unwritten: of a chain,
 * an attention, a gated product, an image doubled or normed and convolved; the flag GGML_TENSOR_FLAG_OUTPUT keeps it. NULL (take none)
 * where nothing is. Ended by sdgen_ggml_end. */
struct sdgen_ggml_graph *sdgen_ggml_begin(const struct ggml_cgraph *graph, int n_threads, size_t work_size);
void sdgen_ggml_end(struct sdgen_ggml_graph *state);

/* Called by every thread for each node: computes it and the ones after it that it takes in one go, and returns how many those
 * are; 0 leaves the node to ggml. barrier(pool) waits for all nth threads. */
int sdgen_ggml_compute(struct sdgen_ggml_graph *state, int node_index, int ith, int nth, void *work, size_t work_size,
                       void (*barrier)(void *pool), void *pool);

#ifdef __cplusplus
}
#endif

#endif
