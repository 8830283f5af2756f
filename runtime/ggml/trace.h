/* SDGEN_PROFILE=FILE.json: what each thread did and when, in the Trace Event Format, which Chrome's tracing and Perfetto read. Nothing
 * here is called by several threads at a time but what is of one lane. */
#ifndef SDGEN_TRACE_H
#define SDGEN_TRACE_H

#include "sdgen.h"

/* Opens the file that is written at the end, with so many events at most (24 bytes of memory each, and about 90 of the file); from three
 * quarters of that on operations are kept without their phases. False, with what is wrong in errno, where it cannot be. */
enum { SDGEN_TRACE_EVENTS = 1 << 21 };
bool sdgen_trace_open(const char *path, long long most);

/* A place for the lanes of a graph, which no other one has at the same time; negative where there is no trace, or all are taken. */
int sdgen_trace_take_place(void);
void sdgen_trace_free_place(int place);

/* What one thread does in a graph of so many nodes; NULL where there is no memory for it. */
struct sdgen_trace_lane;
struct sdgen_trace_lane *sdgen_trace_lane(int place, int thread, int nodes);

/* An operation begins; its phases, one after the other; it ends, and turns out to be the one of that index, by which its name is asked
 * for. */
void sdgen_trace_begin(struct sdgen_trace_lane *lane, int64_t time);
void sdgen_trace_phase(struct sdgen_trace_lane *lane, enum sdgen_phase phase, int64_t begin, int64_t end);
void sdgen_trace_end(struct sdgen_trace_lane *lane, int operation, int64_t time);

/* The lane is done: it becomes a part of the trace, or what there is no room for is left out. */
void sdgen_trace_keep(struct sdgen_trace_lane *lane);

/* Writes the trace, and says on stderr where it is, or why not, and what was left out. */
void sdgen_trace_write(const char *(*name_of)(int operation));

#endif
