#include "trace.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    MOST_PLACES = 64,
    /* Of an operation on one thread: what comes after so many is summed up, phase by phase. */
    MOST_SLICES = 64,
    OPERATION = -1,
};

struct event {
    int64_t begin, end;
    int32_t operation;
    int16_t phase; /* of the operation before; OPERATION: itself */
    bool summed;   /* of times that are not all in one piece */
};

struct sdgen_trace_lane {
    struct sdgen_trace_lane *next;
    int place, thread;
    int current, slices;        /* of the operation: its event, and its phases' */
    int64_t rest[SDGEN_PHASES]; /* of its phases that have no event */
    int64_t rest_begin;
    int count;
    struct event event[];
};

static struct {
    FILE *file;
    char *path;
    int64_t begin;
    uint64_t taken; /* places, one bit each */
    struct sdgen_trace_lane *first, *last;
    long long most, count, phases_left_out, operations_left_out, lanes_left_out;
} trace;

bool sdgen_trace_open(const char *path, long long most)
{
    trace.path = strdup(path);
    trace.file = trace.path ? fopen(path, "w") : NULL;
    trace.most = most;
    trace.begin = sdgen_now();
    return trace.file;
}

int sdgen_trace_take_place(void)
{
    int place = 0;
    while (place < MOST_PLACES && trace.taken >> place & 1)
        place++;
    if (!trace.file || place == MOST_PLACES)
        return -1;
    trace.taken |= UINT64_C(1) << place;
    return place;
}

void sdgen_trace_free_place(int place)
{
    if (place >= 0)
        trace.taken &= ~(UINT64_C(1) << place);
}

struct sdgen_trace_lane *sdgen_trace_lane(int place, int thread, int nodes)
{
    if (!trace.file)
        return NULL;
    /* Memory that is not written to is not taken. */
    const size_t most = (size_t)nodes * (1 + MOST_SLICES + SDGEN_PHASES);
    struct sdgen_trace_lane *lane = place < 0 ? NULL : malloc(sizeof *lane + most * sizeof *lane->event);
    if (lane)
        *lane = (struct sdgen_trace_lane){.place = place, .thread = thread};
    else
        trace.lanes_left_out++;
    return lane;
}

void sdgen_trace_begin(struct sdgen_trace_lane *lane, int64_t time)
{
    lane->current = lane->count++;
    lane->slices = 0;
    lane->event[lane->current] = (struct event){.begin = time, .phase = OPERATION};
}

static void add(struct sdgen_trace_lane *lane, enum sdgen_phase phase, int64_t begin, int64_t end, bool summed)
{
    lane->event[lane->count++] = (struct event){.begin = begin, .end = end, .phase = (int16_t)phase, .summed = summed};
}

void sdgen_trace_phase(struct sdgen_trace_lane *lane, enum sdgen_phase phase, int64_t begin, int64_t end)
{
    struct event *last = &lane->event[lane->count - 1];
    if (lane->slices <= MOST_SLICES && last->phase == (int)phase && last->end == begin) {
        last->end = end;
        return;
    }
    if (lane->slices == MOST_SLICES)
        lane->rest_begin = begin;
    if (lane->slices++ < MOST_SLICES)
        add(lane, phase, begin, end, false);
    else
        lane->rest[phase] += end - begin;
}

void sdgen_trace_end(struct sdgen_trace_lane *lane, int operation, int64_t time)
{
    lane->event[lane->current].operation = operation;
    lane->event[lane->current].end = time;
    if (lane->slices <= MOST_SLICES)
        return;
    int64_t begin = lane->rest_begin;
    for (int phase = 0; phase < SDGEN_PHASES; phase++)
        if (lane->rest[phase]) {
            add(lane, (enum sdgen_phase)phase, begin, begin + lane->rest[phase], true);
            begin += lane->rest[phase];
            lane->rest[phase] = 0;
        }
}

/* Without the phases, and how many they were. */
static int strip(struct sdgen_trace_lane *lane)
{
    int kept = 0;
    for (int i = 0; i < lane->count; i++)
        if (lane->event[i].phase == OPERATION)
            lane->event[kept++] = lane->event[i];
    int stripped = lane->count - kept;
    lane->count = kept;
    return stripped;
}

void sdgen_trace_keep(struct sdgen_trace_lane *lane)
{
    if (trace.count + lane->count > trace.most / 4 * 3)
        trace.phases_left_out += strip(lane);
    if (lane->count == 0 || trace.count + lane->count > trace.most) {
        trace.operations_left_out += lane->count;
        free(lane);
        return;
    }
    trace.count += lane->count;
    struct sdgen_trace_lane *smaller = realloc(lane, sizeof *lane + (size_t)lane->count * sizeof *lane->event);
    lane = smaller ? smaller : lane;
    *(trace.last ? &trace.last->next : &trace.first) = lane;
    trace.last = lane;
}

/* The names of a place and of its threads, each where it is first met. */
static void name_lane(const struct sdgen_trace_lane *lane, int threads[MOST_PLACES])
{
    const int pid = lane->place + 1;
    if (threads[lane->place] == 0)
        fprintf(trace.file, ",\n{\"ph\":\"M\",\"pid\":%d,\"name\":\"process_name\",\"args\":{\"name\":\"%s\"}}", pid,
                pid == 1 ? "graphs" : "graphs computed beside those");
    for (; threads[lane->place] <= lane->thread; threads[lane->place]++)
        fprintf(trace.file, ",\n{\"ph\":\"M\",\"pid\":%d,\"tid\":%d,\"name\":\"thread_name\",\"args\":{\"name\":\"thread %d\"}}", pid,
                threads[lane->place] + 1, threads[lane->place] + 1);
}

/* Microseconds since the trace began are written with all digits that there are. */
#define MICROSECONDS "%lld.%03d"
#define MICROSECONDS_OF(nanoseconds) (long long)((nanoseconds) / 1000), (int)((nanoseconds) % 1000)

static void write_event(const struct sdgen_trace_lane *lane, const struct event *event, const char *(*name_of)(int operation))
{
    const bool whole = event->phase == OPERATION;
    fprintf(trace.file, ",\n{\"ph\":\"X\",\"pid\":%d,\"tid\":%d,\"ts\":" MICROSECONDS ",\"dur\":" MICROSECONDS ",\"cat\":\"%s\",\"name\":\"%s\"%s}",
            lane->place + 1, lane->thread + 1, MICROSECONDS_OF(event->begin - trace.begin), MICROSECONDS_OF(event->end - event->begin),
            whole ? "operation" : "phase", whole ? name_of(event->operation) : sdgen_phase_name((enum sdgen_phase)event->phase),
            event->summed ? ",\"args\":{\"summed\":true}" : "");
}

/* Processes and threads are counted from 1: readers of the format take 0 for the system's. */
void sdgen_trace_write(const char *(*name_of)(int operation))
{
    if (!trace.file)
        return;
    char left_out[160] = "";
    if (trace.phases_left_out || trace.operations_left_out || trace.lanes_left_out)
        snprintf(left_out, sizeof left_out, "left out, for there was no room: %lld phases, %lld operations, %lld threads of graphs",
                 trace.phases_left_out, trace.operations_left_out, trace.lanes_left_out);
    int threads[MOST_PLACES] = {0};
    int64_t end = trace.begin;
    errno = 0;
    fprintf(trace.file, "{\"displayTimeUnit\":\"ms\",\"otherData\":{\"note\":\"%s\"},\"traceEvents\":[\n", left_out);
    fprintf(trace.file, "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_sort_index\",\"args\":{\"sort_index\":0}}");
    for (struct sdgen_trace_lane *lane = trace.first, *next; lane; lane = next) {
        name_lane(lane, threads);
        for (int i = 0; i < lane->count; i++) {
            write_event(lane, &lane->event[i], name_of);
            end = lane->event[i].end > end ? lane->event[i].end : end;
        }
        next = lane->next;
        free(lane);
    }
    if (*left_out)
        fprintf(trace.file, ",\n{\"ph\":\"i\",\"s\":\"g\",\"pid\":1,\"tid\":1,\"ts\":" MICROSECONDS ",\"name\":\"%s\"}",
                MICROSECONDS_OF(end - trace.begin), left_out);
    fprintf(trace.file, "\n]}\n");
    const bool written = !ferror(trace.file);
    if (fclose(trace.file) != 0 || !written)
        fprintf(stderr, "sdgen: the trace could not be written to %s: %s\n", trace.path, strerror(errno));
    else
        fprintf(stderr, "sdgen: the trace is in %s%s%s\n", trace.path, *left_out ? "; " : "", left_out);
    free(trace.path);
    memset(&trace, 0, sizeof trace);
}
