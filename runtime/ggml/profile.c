#include "profile.h"

#include "conv.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { MOST_ENTRIES = 1024, NAME = 96 };

struct entry {
    char name[NAME];
    enum { HEAVY, LIGHT, UPSTREAM } kind; /* products, convolutions and attentions; what else is computed here; ggml's */
    long long calls;
    double seconds, waiting, flops;
};

static struct {
    pthread_mutex_t mutex; /* of all that follows */
    struct entry entries[MOST_ENTRIES];
    int count, threads;
} profile = {.mutex = PTHREAD_MUTEX_INITIALIZER};

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

/* The index of the entry of that name and kind; the last one holds all that is too much. */
static int entry_of(const struct entry *described)
{
    for (int i = 0; i < profile.count; i++)
        if (strcmp(profile.entries[i].name, described->name) == 0)
            return i;
    if (profile.count == MOST_ENTRIES)
        return MOST_ENTRIES - 1;
    struct entry *entry = &profile.entries[profile.count];
    *entry = (struct entry){.kind = described->kind};
    snprintf(entry->name, sizeof entry->name, "%s", profile.count == MOST_ENTRIES - 1 ? "others" : described->name);
    return profile.count++;
}

#define LL(value) ((long long)(value))

/* Name, kind and floating-point operations of a node. */
static struct entry describe(const struct sdgen_node_plan *plan, const struct ggml_tensor *node, const struct sdgen_plan *with)
{
    struct entry entry = {.kind = HEAVY};
    switch (plan->kind) {
    case SDGEN_MATMUL: {
        const struct sdgen_matmul *op = &plan->matmul;
        int64_t batches = op->batch[0] * op->batch[1];
        int length = snprintf(entry.name, NAME, "linear %lldx%lldx%lld%s", LL(op->m), LL(op->n), LL(op->k), op->gated ? " gated" : "");
        if (batches > 1)
            snprintf(entry.name + length, NAME - (size_t)length, " x%lld", LL(batches));
        entry.flops = (op->gated ? 4.0 : 2.0) * (double)op->m * (double)op->n * (double)op->k * (double)batches;
        break;
    }
    case SDGEN_CONV2D: {
        const struct sdgen_conv2d *op = &plan->conv2d;
        int m = sdgen_select_winograd(with, op);
        char form[16] = "";
        if (m)
            snprintf(form, sizeof form, " F%d", m);
        snprintf(entry.name, NAME, "%sconv%lldx%lld%s %lld->%lld@%lldx%lld%s", op->before.groups ? "norm + " : "", LL(op->kernel_width),
                 LL(op->kernel_height), op->x_doubled ? " up" : op->stride_x > 1 ? "/2" : "", LL(op->channels_in),
                 LL(op->channels_out), LL(op->width_out), LL(op->height_out), form);
        entry.flops = 2.0 * (double)(op->kernel_width * op->kernel_height * op->channels_in) *
                      (double)(op->channels_out * op->width_out * op->height_out * op->batch);
        break;
    }
    case SDGEN_ATTENTION: {
        const struct sdgen_attention *op = &plan->attention.op;
        snprintf(entry.name, NAME, "attention %lldx%lld %lldx%lld", LL(op->queries), LL(op->keys), LL(op->heads * op->batch),
                 LL(op->depth));
        entry.flops = 2.0 * (double)(op->queries * op->keys) * (double)(op->heads * op->batch * (op->depth + op->value_depth));
        break;
    }
    default:
        entry.kind = plan->kind == SDGEN_LEFT_TO_GGML ? UPSTREAM : LIGHT;
        snprintf(entry.name, NAME, "%s%s %lldx%lldx%lldx%lld", entry.kind == UPSTREAM ? "ggml " : "",
                 plan->kind == SDGEN_GROUP_NORM   ? "group norm"
                 : plan->kind == SDGEN_LAYER_NORM ? "layer norm"
                 : plan->kind == SDGEN_MAP        ? "map"
                 : plan->kind == SDGEN_PERMUTE    ? "permutation"
                 : plan->kind == SDGEN_COPY       ? "copy"
                 : plan->kind == SDGEN_NOTHING    ? "nothing"
                                                  : ggml_op_desc(node),
                 LL(node->ne[0]), LL(node->ne[1]), LL(node->ne[2]), LL(node->ne[3]));
    }
    return entry;
}

/* What has passed belongs to the node that was begun last. */
static void account(struct sdgen_ggml_graph *state)
{
    double time = now();
    if (state->profile.entry >= 0) {
        struct entry *entry = &profile.entries[state->profile.entry];
        *(state->profile.waiting ? &entry->waiting : &entry->seconds) += time - state->profile.mark;
    }
    state->profile.mark = time;
}

void sdgen_profile_begin(struct sdgen_ggml_graph *state, int node)
{
    const struct entry described = describe(&state->node[node], state->tensor[node], state->plan);
    pthread_mutex_lock(&profile.mutex);
    account(state);
    state->profile.entry = entry_of(&described);
    state->profile.waiting = false;
    profile.entries[state->profile.entry].flops += described.flops;
    profile.entries[state->profile.entry].calls++;
    profile.threads = state->threads;
    pthread_mutex_unlock(&profile.mutex);
}

void sdgen_profile_end(struct sdgen_ggml_graph *state)
{
    pthread_mutex_lock(&profile.mutex);
    account(state);
    state->profile.waiting = true;
    pthread_mutex_unlock(&profile.mutex);
}

void sdgen_profile_finish(struct sdgen_ggml_graph *state)
{
    pthread_mutex_lock(&profile.mutex);
    account(state);
    state->profile.entry = -1;
    pthread_mutex_unlock(&profile.mutex);
}

static int by_time(const void *a, const void *b)
{
    const struct entry *x = a, *y = b;
    double difference = (y->seconds + y->waiting) - (x->seconds + x->waiting);
    return (difference > 0) - (difference < 0);
}

/* FMAs of one thread, in floating-point operations a second: the best of a few short runs. */
static double peak_of(enum sdgen_level level)
{
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *row = sdgen_kernel_row(i);
        if (strcmp(row->operation, "probe") != 0 || row->level != level || !strstr(row->name, "fma"))
            continue;
        double best = 0;
        const size_t rounds = 20000000 / (size_t)row->per_round;
        for (int repeat = 0; repeat < 5; repeat++) {
            double start = now();
            ((sdgen_probe_kernel *)row->function)(rounds);
            double rate = (double)row->per_round * (double)rounds / (now() - start);
            best = rate > best ? rate : best;
        }
        return best;
    }
    return 0;
}

void sdgen_profile_print(enum sdgen_level level)
{
    pthread_mutex_lock(&profile.mutex); /* for good: the program ends */
    qsort(profile.entries, (size_t)profile.count, sizeof *profile.entries, by_time);
    double seconds = 0, of_kind[3] = {0}, waiting = 0;
    for (int i = 0; i < profile.count; i++) {
        const struct entry *entry = &profile.entries[i];
        seconds += entry->seconds + entry->waiting;
        of_kind[entry->kind] += entry->seconds;
        waiting += entry->waiting;
    }
    if (seconds <= 0)
        return;
    const double peak = peak_of(level) * profile.threads;
    fprintf(stderr, "sdgen: time of the first of %d threads, in seconds and shares of the whole; GFLOP/s, and their share of the FMAs that "
                    "%d such threads would make (%.0f GFLOP/s)\n",
            profile.threads, profile.threads, peak / 1e9);
    fprintf(stderr, "%-44s %7s %9s %7s %9s %9s %7s\n", "", "calls", "seconds", "share", "waiting", "GFLOP/s", "peak");
    for (int i = 0; i < profile.count; i++) {
        const struct entry *entry = &profile.entries[i];
        double all = entry->seconds + entry->waiting;
        fprintf(stderr, "%-44s %7lld %9.4f %6.2f%% %9.4f", entry->name, entry->calls, entry->seconds, 100 * all / seconds, entry->waiting);
        if (entry->flops > 0)
            fprintf(stderr, " %9.1f %6.1f%%", entry->flops / all / 1e9, peak > 0 ? 100 * entry->flops / all / peak : 0);
        fputc('\n', stderr);
    }
    fprintf(stderr, "%-44s %7s %9.4f %6.2f%%\n", "products, convolutions, attentions", "", of_kind[HEAVY], 100 * of_kind[HEAVY] / seconds);
    fprintf(stderr, "%-44s %7s %9.4f %6.2f%%\n", "norms, elementwise operations, copies", "", of_kind[LIGHT], 100 * of_kind[LIGHT] / seconds);
    fprintf(stderr, "%-44s %7s %9.4f %6.2f%%\n", "left to ggml", "", of_kind[UPSTREAM], 100 * of_kind[UPSTREAM] / seconds);
    fprintf(stderr, "%-44s %7s %9.4f %6.2f%%\n", "waiting for other threads", "", waiting, 100 * waiting / seconds);
}
