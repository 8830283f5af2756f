/* Products that need not be computed again, because all that they are made of was seen before: keys and values of cross-attention, which
 * are the same in all steps. Kept results are found by the contents of all that was read, never by where it lies. */
#ifndef SDGEN_REUSE_H
#define SDGEN_REUSE_H

#include "sdgen.h"

#include <stdatomic.h>

struct sdgen_ggml_graph;
struct sdgen_graph;
struct sdgen_node_plan;

enum { SDGEN_REUSE_SLICES = 256 };

/* What the threads of a graph share while a product is looked for. */
struct sdgen_reuse {
    _Atomic int done; /* slices hashed, or threads that have copied */
    bool seen;        /* x was, in an earlier graph */
    struct sdgen_hash x, slice[SDGEN_REUSE_SLICES];
    const void *found; /* its result, from earlier */
    void *kept;        /* where it is to be kept */
};

/* To be called once, before all else: from then on products are kept. */
void sdgen_reuse_start(void);

/* Marks the products of a planned graph that may be worth it. */
void sdgen_reuse_plan(const struct sdgen_graph *graph, struct sdgen_ggml_graph *state);

/* A graph begins. */
void sdgen_reuse_tick(void);

/* By all threads: a product that is marked; whether it was copied, and not computed. */
bool sdgen_reuse_matmul(struct sdgen_ggml_graph *state, const struct sdgen_node_plan *plan, const struct sdgen_team *team);

/* Says on stderr what was. */
void sdgen_reuse_print(void);

#endif
