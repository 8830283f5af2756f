/* SDGEN_PROFILE: where the time of the graphs goes, by operation, shape and phase, on all threads. */
#ifndef SDGEN_PROFILE_H
#define SDGEN_PROFILE_H

#include "plan.h"

/* What is measured of one graph. Several graphs may be computed at a time. NULL where there is no memory for it. */
struct sdgen_profile *sdgen_profile_begin(const struct sdgen_ggml_graph *state);

/* To be called by each thread where a node begins, of which what follows is until the next one does; what is not one of its phases is
 * waiting where it is not ggml's. Gives the thread's clock. */
struct sdgen_clock *sdgen_profile_node(struct sdgen_profile *of, int ith, int node);

/* By each thread, before the next node begins: the one that was begun last was not computed, but copied from where it was kept. */
void sdgen_profile_reused(struct sdgen_profile *of, int ith);

/* After the last node of a graph, when its threads have come together. */
void sdgen_profile_finish(struct sdgen_profile *of);

/* Writes the trace, if one is open, and prints all of it to stderr; the rate of the processor's FMAs is measured with the level's loop of
 * them, if it has one. */
void sdgen_profile_print(enum sdgen_level level);

#endif
