/* SDGEN_PROFILE=1: where the time of the graphs goes, by operation and shape, as the first of the threads sees it. */
#ifndef SDGEN_PROFILE_H
#define SDGEN_PROFILE_H

#include "plan.h"

/* To be called by the first thread of a graph: where a node begins, and where it has ended that is not ggml's. What lies between two
 * nodes is the first one's, as waiting where it is not ggml's. Several graphs may be computed at a time. */
void sdgen_profile_begin(struct sdgen_ggml_graph *state, int node);
void sdgen_profile_end(struct sdgen_ggml_graph *state);

/* Before its end: the node that was begun last was not computed, but its result copied from where it was kept. */
void sdgen_profile_reused(struct sdgen_ggml_graph *state, int node);

/* After the last node of a graph. */
void sdgen_profile_finish(struct sdgen_ggml_graph *state);

/* Prints all of it to stderr; the rate of the processor's FMAs is measured with the level's loop of them, if it has one. */
void sdgen_profile_print(enum sdgen_level level);

#endif
