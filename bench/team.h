/* A team of threads for the bench: started once, spinning between the tasks so that starting one costs next to nothing, and each kept
 * on a processor of its own where there are as many: of different cores first. */
#ifndef SDGEN_BENCH_TEAM_H
#define SDGEN_BENCH_TEAM_H

#include "sdgen.h"

struct team;

typedef void team_task(void *data, const struct sdgen_team *member);

/* How many processors this process may run on. */
int team_processors(void);

/* NULL if the threads cannot be started. */
struct team *team_start(int threads);
void team_stop(struct team *team);

/* Runs the task by the caller alone, while the others sleep, for what other programs compute. The caller may run on any processor
 * meanwhile, and so may what it starts. */
void team_rest(struct team *team, void (*task)(void *data), void *data);

/* Runs the task on all threads, the caller's being the first, and returns when all have finished. */
void team_run(struct team *team, team_task *task, void *data, void *work, size_t work_size);

#endif
