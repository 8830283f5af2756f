#include "team.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
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
