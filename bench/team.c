#ifndef _GNU_SOURCE
#define _GNU_SOURCE /* sched_getaffinity, pthread_setaffinity_np */
#endif
#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

struct member {
    struct team *team;
    int ith;
    pthread_t thread;
};

struct team {
    int threads;
    _Atomic int waiting;    /* threads at the barrier */
    _Atomic unsigned phase; /* barriers passed */
    bool stopping;
    team_task *task;
    void *data, *work;
    int64_t queue[SDGEN_QUEUE_SIZE / sizeof(int64_t)];
    size_t work_size;
    cpu_set_t allowed; /* processors of the process */
    struct member members[];
};

static void barrier(void *data)
{
    struct team *team = data;
    unsigned phase = atomic_load(&team->phase);
    if (atomic_fetch_add(&team->waiting, 1) == team->threads - 1) {
        atomic_store(&team->waiting, 0);
        atomic_fetch_add(&team->phase, 1);
        return;
    }
    for (unsigned spins = 1; atomic_load(&team->phase) == phase; spins++)
        if (spins % 1024 == 0)
            sched_yield(); /* more threads than processors */
}

static void run_member(struct team *team, int ith)
{
    struct sdgen_team member = {
        .ith = ith, .nth = team->threads, .queue = team->queue, .work = team->work, .work_size = team->work_size, .barrier = barrier, .barrier_data = team};
    team->task(team->data, &member);
}

static void *serve(void *data)
{
    struct member *member = data;
    for (;;) {
        barrier(member->team);
        if (member->team->stopping)
            return NULL;
        run_member(member->team, member->ith);
        barrier(member->team);
    }
}

/* ---- processors ---- */

int team_processors(void)
{
    cpu_set_t allowed;
    return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

/* Whether the processor is the first of its core's, as far as Linux says. */
static bool is_first_of_core(int processor)
{
    char path[80];
    int first = processor;
    snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%d/topology/thread_siblings_list", processor);
    FILE *file = fopen(path, "r");
    if (file) {
        if (fscanf(file, "%d", &first) != 1)
            first = processor;
        fclose(file);
    }
    return first == processor;
}

/* Keeps each thread on a processor, where there are enough; without that they go where the system has them. */
static void pin(struct team *team)
{
    const cpu_set_t allowed = team->allowed;
    cpu_set_t one;
    if (CPU_COUNT(&allowed) < team->threads)
        return;
    int next = 0;
    for (int first = 1; first >= 0; first--)
        for (int processor = 0; processor < CPU_SETSIZE && next < team->threads; processor++) {
            if (!CPU_ISSET(processor, &allowed) || is_first_of_core(processor) != first)
                continue;
            CPU_ZERO(&one);
            CPU_SET(processor, &one);
            pthread_setaffinity_np(next == 0 ? pthread_self() : team->members[next].thread, sizeof one, &one);
            next++;
        }
}

/* ---- */

struct team *team_start(int threads)
{
    struct team *team = calloc(1, sizeof *team + (size_t)threads * sizeof *team->members);
    if (!team)
        return NULL;
    team->threads = threads;
    for (int i = 1; i < threads; i++) {
        team->members[i] = (struct member){.team = team, .ith = i};
        if (pthread_create(&team->members[i].thread, NULL, serve, &team->members[i]) != 0) {
            team->threads = i; /* those that run wait at the barrier for as many */
            team_stop(team);
            return NULL;
        }
    }
    if (sched_getaffinity(0, sizeof team->allowed, &team->allowed) == 0)
        pin(team);
    return team;
}

void team_stop(struct team *team)
{
    team->stopping = true;
    barrier(team);
    for (int i = 1; i < team->threads; i++)
        pthread_join(team->members[i].thread, NULL);
    free(team);
}

struct rest {
    const struct team *team;
    void (*task)(void *data);
    void *data;
    sem_t over;
};

static void rest_task(void *data, const struct sdgen_team *member)
{
    struct rest *rest = data;
    cpu_set_t own;
    if (member->ith > 0) {
        while (sem_wait(&rest->over) != 0)
            ;
        return;
    }
    sched_getaffinity(0, sizeof own, &own);
    sched_setaffinity(0, sizeof rest->team->allowed, &rest->team->allowed);
    rest->task(rest->data);
    sched_setaffinity(0, sizeof own, &own);
    for (int i = 1; i < member->nth; i++)
        sem_post(&rest->over);
}

void team_rest(struct team *team, void (*task)(void *data), void *data)
{
    struct rest rest = {.team = team, .task = task, .data = data};
    sem_init(&rest.over, 0, 0);
    team_run(team, rest_task, &rest, NULL, 0);
    sem_destroy(&rest.over);
}

void team_run(struct team *team, team_task *task, void *data, void *work, size_t work_size)
{
    team->task = task;
    team->data = data;
    team->work = work;
    team->work_size = work_size;
    barrier(team);
    run_member(team, 0);
    barrier(team);
}
