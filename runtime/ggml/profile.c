#include "profile.h"

#include "conv.h"
#include "trace.h"

#include "ggml-impl.h"

#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { MOST_ENTRIES = 1024, NAME = 96, LINE = 64 };

/* Of all nodes that are described by the same name. */
struct entry {
    char name[NAME];
    enum { HEAVY, LIGHT, UPSTREAM } kind; /* products, convolutions and attentions; what else is computed here; ggml's */
    long long calls;
    double flops;
    double seconds[SDGEN_PHASES]; /* the mean of the threads' */
};

static struct {
    pthread_mutex_t mutex; /* of all that follows, and of the trace */
    struct entry entries[MOST_ENTRIES];
    int count, threads; /* the most threads of a graph */
} profile = {.mutex = PTHREAD_MUTEX_INITIALIZER};

/* One thread's part of a graph. Nothing else writes to its cache lines. */
struct thread {
    _Alignas(LINE) struct sdgen_clock clock; /* first, so that the thread is found by it; of the node that was begun last */
    int node;                                /* that one; -1 before the first */
    bool reused;                             /* it was, and not computed */
    int64_t (*spent)[SDGEN_PHASES];          /* by entry, nanoseconds */
    struct sdgen_trace_lane *lane;           /* or NULL */
};

struct sdgen_profile {
    int threads, nodes;
    int entries; /* that there were when it began, its own included */
    int place;   /* in the trace */
    struct node {
        int entry, reused_entry;
        bool upstream; /* computed by ggml */
        bool begun, reused;
        double flops;
    } *node;
    struct thread thread[];
};

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
        int64_t batches = op->batch[0] * op->batch[1], columns = 0;
        int length = snprintf(entry.name, NAME, "linear %lldx", LL(op->m));
        for (const struct sdgen_matmul *each = op; each; each = each->more) {
            length += snprintf(entry.name + length, NAME - (size_t)length, "%s%lld", each == op ? "" : "+", LL(each->n));
            columns += each->n * (each->gated ? 2 : 1);
        }
        length += snprintf(entry.name + length, NAME - (size_t)length, "x%lld%s%s", LL(op->k), op->gated ? " gated" : "",
                           op->normalized ? " normalized" : "");
        if (batches > 1)
            snprintf(entry.name + length, NAME - (size_t)length, " x%lld", LL(batches));
        entry.flops = 2.0 * (double)op->m * (double)columns * (double)op->k * (double)batches;
        break;
    }
    case SDGEN_CONV2D: {
        const struct sdgen_conv2d *op = &plan->conv2d;
        int m = sdgen_select_winograd(with, op);
        char form[16] = "";
        if (m)
            snprintf(form, sizeof form, " F%d", m);
        char depth[24] = "", frames[24] = "";
        if (op->frames.out) {
            snprintf(depth, sizeof depth, "x%lld", LL(op->frames.kernel));
            snprintf(frames, sizeof frames, "x%lld", LL(op->frames.out));
        }
        snprintf(entry.name, NAME, "%sconv%lldx%lld%s%s %lld->%lld@%lldx%lld%s%s", op->before.groups ? "norm + " : "",
                 LL(op->kernel_width), LL(op->kernel_height), depth, op->x_doubled ? " up" : op->stride_x > 1 ? "/2" : "",
                 LL(op->channels_in), LL(op->channels_out), LL(op->width_out),
                 LL(op->height_out), frames, form);
        entry.flops = 2.0 * (double)(op->kernel_width * op->kernel_height * sdgen_conv2d_channels(op)) *
                      (double)(op->channels_out * op->width_out * op->height_out * sdgen_conv2d_images(op));
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
                 : plan->kind == SDGEN_SOFTMAX    ? "softmax"
                 : plan->kind == SDGEN_UPSCALE    ? "upscale"
                 : plan->kind == SDGEN_PAD        ? "padding"
                 : plan->kind == SDGEN_COPY       ? "copy"
                 : plan->kind == SDGEN_NOTHING    ? "nothing"
                                                  : ggml_op_desc(node),
                 LL(node->ne[0]), LL(node->ne[1]), LL(node->ne[2]), LL(node->ne[3]));
    }
    return entry;
}

static void phase_ended(struct sdgen_clock *clock, enum sdgen_phase phase, int64_t begin, int64_t end)
{
    sdgen_trace_phase(((struct thread *)clock)->lane, phase, begin, end);
}

static struct sdgen_profile *new_profile(int threads, int nodes)
{
    struct sdgen_profile *of = aligned_alloc(LINE, sizeof *of + (size_t)threads * sizeof *of->thread);
    struct node *node = calloc((size_t)nodes, sizeof *node);
    if (!of || !node) {
        free(of);
        free(node);
        return NULL;
    }
    *of = (struct sdgen_profile){.threads = threads, .nodes = nodes, .node = node};
    return of;
}

static void free_profile(struct sdgen_profile *of)
{
    for (int i = 0; i < of->threads; i++)
        free(of->thread[i].spent);
    free(of->node);
    free(of);
}

struct sdgen_profile *sdgen_profile_begin(const struct sdgen_ggml_graph *state)
{
    struct sdgen_profile *of = new_profile(state->threads, state->nodes);
    if (!of)
        return NULL;
    pthread_mutex_lock(&profile.mutex);
    for (int i = 0; i < of->nodes; i++) {
        if (ggml_op_is_empty(state->tensor[i]->op))
            continue;
        struct entry described = describe(&state->node[i], state->tensor[i], state->plan);
        of->node[i] = (struct node){
            .entry = entry_of(&described), .upstream = described.kind == UPSTREAM, .flops = described.flops};
        if (!state->node[i].reusable)
            continue;
        size_t length = strlen(described.name);
        snprintf(described.name + length, NAME - length, " reused");
        described.kind = LIGHT;
        of->node[i].reused_entry = entry_of(&described);
    }
    of->entries = profile.count;
    of->place = sdgen_trace_take_place();
    bool complete = true;
    for (int i = 0; i < of->threads; i++) {
        struct thread *thread = &of->thread[i];
        *thread = (struct thread){.node = -1, .spent = calloc((size_t)of->entries, sizeof *thread->spent)};
        thread->lane = sdgen_trace_lane(of->place, i, of->nodes);
        thread->clock.ended = thread->lane ? phase_ended : NULL;
        complete = complete && thread->spent;
    }
    pthread_mutex_unlock(&profile.mutex);
    if (complete)
        return of;
    sdgen_profile_finish(of);
    return NULL;
}

/* What has passed since the node's last phase, and what its phases came to. */
static void end_node(const struct sdgen_profile *of, struct thread *thread)
{
    const struct node *node = &of->node[thread->node];
    sdgen_clock_end(&thread->clock, node->upstream ? SDGEN_PHASE_OTHER : SDGEN_PHASE_WAIT);
    const int entry = thread->reused ? node->reused_entry : node->entry;
    for (int phase = 0; phase < SDGEN_PHASES; phase++)
        thread->spent[entry][phase] += thread->clock.spent[phase];
    memset(thread->clock.spent, 0, sizeof thread->clock.spent);
    if (thread->lane)
        sdgen_trace_end(thread->lane, entry, thread->clock.mark);
}

struct sdgen_clock *sdgen_profile_node(struct sdgen_profile *of, int ith, int node)
{
    struct thread *thread = &of->thread[ith];
    if (thread->node < 0)
        thread->clock.mark = sdgen_now();
    else
        end_node(of, thread);
    thread->node = node;
    thread->reused = false;
    if (ith == 0)
        of->node[node].begun = true;
    if (thread->lane)
        sdgen_trace_begin(thread->lane, thread->clock.mark);
    return &thread->clock;
}

void sdgen_profile_reused(struct sdgen_profile *of, int ith)
{
    struct thread *thread = &of->thread[ith];
    thread->reused = true;
    if (ith == 0)
        of->node[thread->node].reused = true;
}

void sdgen_profile_finish(struct sdgen_profile *of)
{
    int threads = 0; /* that had a part in it */
    for (int i = 0; i < of->threads; i++)
        if (of->thread[i].node >= 0) {
            end_node(of, &of->thread[i]);
            threads++;
        }
    pthread_mutex_lock(&profile.mutex);
    for (int i = 0; i < of->nodes; i++)
        if (of->node[i].reused) {
            profile.entries[of->node[i].reused_entry].calls++;
        } else if (of->node[i].begun) {
            profile.entries[of->node[i].entry].calls++;
            profile.entries[of->node[i].entry].flops += of->node[i].flops;
        }
    for (int i = 0; i < of->threads; i++) {
        const struct thread *thread = &of->thread[i];
        for (int entry = 0; thread->node >= 0 && entry < of->entries; entry++)
            for (int phase = 0; phase < SDGEN_PHASES; phase++)
                profile.entries[entry].seconds[phase] += 1e-9 * (double)thread->spent[entry][phase] / threads;
        if (thread->lane)
            sdgen_trace_keep(thread->lane);
    }
    sdgen_trace_free_place(of->place);
    profile.threads = threads > profile.threads ? threads : profile.threads;
    pthread_mutex_unlock(&profile.mutex);
    free_profile(of);
}

/* ---- what is said ---- */

static double seconds_of(const struct entry *entry)
{
    double seconds = 0;
    for (int phase = 0; phase < SDGEN_PHASES; phase++)
        seconds += entry->seconds[phase];
    return seconds;
}

static int by_time(const void *a, const void *b)
{
    double difference = seconds_of(b) - seconds_of(a);
    return (difference > 0) - (difference < 0);
}

/* FMAs of one thread, in floating-point operations a second: the best of a few short runs. */
static double peak_of(enum sdgen_level level)
{
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *row = sdgen_kernel_row(i);
        if (strcmp(row->operation, "probe") != 0 || row->level != level || strcmp(row->type, "f32") != 0)
            continue;
        double best = 0;
        const size_t rounds = 20000000 / (size_t)row->per_round;
        for (int repeat = 0; repeat < 5; repeat++) {
            const int64_t start = sdgen_now();
            ((sdgen_probe_kernel *)row->function)(rounds);
            double rate = (double)row->per_round * (double)rounds / (1e-9 * (double)(sdgen_now() - start));
            best = rate > best ? rate : best;
        }
        return best;
    }
    return 0;
}

static const char *name_of(int entry)
{
    return profile.entries[entry].name;
}

static void print_row(const struct entry *entry, double whole, double peak)
{
    const double seconds = seconds_of(entry), rate = entry->flops / seconds;
    fprintf(stderr, "%-44s %7lld %9.4f %6.2f%%", entry->name, entry->calls, seconds, 100 * seconds / whole);
    if (entry->flops > 0)
        fprintf(stderr, " %8.1f %6.1f%%", rate / 1e9, peak > 0 ? 100 * rate / peak : 0);
    else
        fprintf(stderr, " %8s %7s", "", "");
    for (int phase = 1; phase <= SDGEN_PHASES; phase++) { /* the last: those that are none of the others */
        const double part = entry->seconds[phase % SDGEN_PHASES];
        if (part > 0)
            fprintf(stderr, " %5.1f", 100 * part / seconds);
        else
            fprintf(stderr, " %5s", "-");
    }
    fputc('\n', stderr);
}

void sdgen_profile_print(enum sdgen_level level)
{
    pthread_mutex_lock(&profile.mutex); /* for good: the program ends */
    sdgen_trace_write(name_of);
    qsort(profile.entries, (size_t)profile.count, sizeof *profile.entries, by_time);
    struct entry all = {.name = "all"};
    double of_kind[3] = {0};
    for (int i = 0; i < profile.count; i++) {
        const struct entry *entry = &profile.entries[i];
        all.calls += entry->calls;
        all.flops += entry->flops;
        for (int phase = 0; phase < SDGEN_PHASES; phase++)
            all.seconds[phase] += entry->seconds[phase];
        of_kind[entry->kind] += seconds_of(entry) - entry->seconds[SDGEN_PHASE_WAIT];
    }
    const double whole = seconds_of(&all), waiting = all.seconds[SDGEN_PHASE_WAIT];
    if (whole <= 0)
        return;
    const double peak = peak_of(level) * profile.threads;
    fprintf(stderr, "sdgen: seconds, the mean of %d threads, and their share of all; GFLOP/s, and their share of the FMAs that the threads "
                    "would make (%.0f GFLOP/s);\n"
                    "sdgen: percentages of an operation's time: packing, Winograd's transforms, products, epilogues, elements (norms, copies), "
                    "waiting, other (ggml's, and comparing with what was kept)\n",
            profile.threads, peak / 1e9);
    fprintf(stderr, "%-44s %7s %9s %7s %8s %7s %5s %5s %5s %5s %5s %5s %5s\n", "", "calls", "seconds", "share", "GFLOP/s", "peak", "pack",
            "trans", "prod", "epi", "elem", "wait", "other");
    for (int i = 0; i < profile.count; i++)
        if (profile.entries[i].calls > 0)
            print_row(&profile.entries[i], whole, peak);
    print_row(&all, whole, peak);
    fprintf(stderr, "%-52s %9.4f %6.2f%%\n", "products, convolutions, attentions", of_kind[HEAVY], 100 * of_kind[HEAVY] / whole);
    fprintf(stderr, "%-52s %9.4f %6.2f%%\n", "norms, elementwise operations, copies", of_kind[LIGHT], 100 * of_kind[LIGHT] / whole);
    fprintf(stderr, "%-52s %9.4f %6.2f%%\n", "left to ggml", of_kind[UPSTREAM], 100 * of_kind[UPSTREAM] / whole);
    fprintf(stderr, "%-52s %9.4f %6.2f%%\n", "waiting for other threads", waiting, 100 * waiting / whole);
}
