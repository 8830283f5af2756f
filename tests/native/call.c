/* Calls that end when they fault, and teams of threads. */
#define _GNU_SOURCE
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdbool.h>
#include <time.h>
#include <ucontext.h>

#include "support.h"

enum { MAX_THREADS = 64, PAGE_FAULT_WRITE = 2 };

static const struct timespec SLEEP = {.tv_nsec = 2000000};
static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGILL};
enum { SIGNAL_COUNT = sizeof SIGNALS / sizeof SIGNALS[0] };

struct protection {
    sigjmp_buf jump;
    struct sdgen_test_report *report;
};

static struct sigaction old_actions[SIGNAL_COUNT];
static _Thread_local struct protection *current;

static void restore_handlers(void)
{
    for (int i = 0; i < SIGNAL_COUNT; i++)
        sigaction(SIGNALS[i], &old_actions[i], NULL);
}

static void on_fault(int signal, siginfo_t *info, void *context)
{
    if (!current) {
        restore_handlers(); /* somebody else's fault: it happens again, and the old handler sees it */
        return;
    }
    const ucontext_t *state = context;
    current->report->signal = signal;
    current->report->wrote = signal == SIGSEGV && (state->uc_mcontext.gregs[REG_ERR] & PAGE_FAULT_WRITE);
    current->report->address = (uint64_t)info->si_addr;
    siglongjmp(current->jump, 1);
}

static void install_handlers(void)
{
    struct sigaction action = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
    for (int i = 0; i < SIGNAL_COUNT; i++)
        sigaction(SIGNALS[i], &action, &old_actions[i]);
}

void sdgen_test_call(void (*function)(void), const uint64_t arguments[6], struct sdgen_test_report *report)
{
    struct protection protection = {.report = report};
    *report = (struct sdgen_test_report){0};
    install_handlers();
    current = &protection;
    if (sigsetjmp(protection.jump, 1) == 0)
        report->broken = sdgen_test_trampoline(function, arguments, __builtin_cpu_supports("avx"));
    current = NULL;
    restore_handlers();
}

struct crew {
    pthread_mutex_t mutex;
    pthread_cond_t changed;
    int nth, waiting, finished;
    unsigned round;
    bool given_up; /* a member faulted or finished early: the others, at the barrier, must not wait for it */
    bool uneven;
    sdgen_test_operation *operation;
    const struct sdgen_plan *plan;
    const void *op;
};

struct member {
    struct crew *crew;
    struct sdgen_team team;
    struct sdgen_test_report report;
    pthread_t thread;
    bool slow;
};

/* Called with the mutex held. */
static void give_up_if_uneven(struct crew *crew)
{
    if (crew->waiting > 0 && crew->finished > 0 && crew->waiting + crew->finished == crew->nth) {
        crew->uneven = crew->uneven || !crew->given_up;
        crew->given_up = true;
        pthread_cond_broadcast(&crew->changed);
    }
}

static void barrier(void *data)
{
    struct member *member = data;
    struct crew *crew = member->crew;
    if (member->slow)
        nanosleep(&SLEEP, NULL);
    pthread_mutex_lock(&crew->mutex);
    unsigned round = crew->round;
    if (++crew->waiting == crew->nth) {
        crew->waiting = 0;
        crew->round++;
        pthread_cond_broadcast(&crew->changed);
    }
    give_up_if_uneven(crew);
    while (crew->round == round && !crew->given_up)
        pthread_cond_wait(&crew->changed, &crew->mutex);
    bool leave = crew->round == round;
    pthread_mutex_unlock(&crew->mutex);
    if (leave)
        siglongjmp(current->jump, 1);
}

static void *run_member(void *data)
{
    struct member *member = data;
    struct crew *crew = member->crew;
    struct protection protection = {.report = &member->report};
    current = &protection;
    if (sigsetjmp(protection.jump, 1) == 0) {
        if (member->slow)
            nanosleep(&SLEEP, NULL);
        crew->operation(crew->plan, crew->op, &member->team);
    }
    current = NULL;
    pthread_mutex_lock(&crew->mutex);
    crew->finished++;
    if (member->report.signal) {
        crew->given_up = true;
        pthread_cond_broadcast(&crew->changed);
    }
    give_up_if_uneven(crew);
    pthread_mutex_unlock(&crew->mutex);
    return NULL;
}

void sdgen_test_team_run(sdgen_test_operation *operation, const struct sdgen_plan *plan, const void *op, int nth, int slow, void *work,
                         size_t work_size, struct sdgen_test_report *report)
{
    struct crew crew = {.mutex = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER, .nth = nth,
                        .operation = operation, .plan = plan, .op = op};
    struct member members[MAX_THREADS];
    int64_t queue[SDGEN_QUEUE_SIZE / sizeof(int64_t)] = {0};
    *report = (struct sdgen_test_report){0};
    install_handlers();
    for (int i = 0; i < nth; i++) {
        members[i] = (struct member){.crew = &crew, .slow = i == slow,
                                     .team = {.ith = i, .nth = nth, .queue = queue, .work = work, .work_size = work_size,
                                              .barrier = nth == 1 ? NULL : barrier, .barrier_data = &members[i]}};
        pthread_create(&members[i].thread, NULL, run_member, &members[i]);
    }
    for (int i = 0; i < nth; i++)
        pthread_join(members[i].thread, NULL);
    restore_handlers();
    for (int i = 0; i < nth; i++)
        if (members[i].report.signal && !report->signal)
            *report = members[i].report;
    if (crew.uneven)
        report->broken |= SDGEN_TEST_BARRIER;
    for (size_t i = 0; i < sizeof queue / sizeof *queue; i++)
        if (queue[i] && !crew.given_up)
            report->broken |= SDGEN_TEST_QUEUE;
}
