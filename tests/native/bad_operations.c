/* Operations that a team must find fault with. */
#include "support.h"

SDGEN_TEST_API void sdgen_test_uneven_barriers(const struct sdgen_plan *plan, const void *op, const struct sdgen_team *team)
{
    (void)plan, (void)op;
    if (team->ith > 0)
        team->barrier(team->barrier_data);
}

/* The last thread writes to op, the others wait for it. */
SDGEN_TEST_API void sdgen_test_one_thread_faults(const struct sdgen_plan *plan, const void *op, const struct sdgen_team *team)
{
    (void)plan;
    if (team->ith == team->nth - 1)
        *(volatile char *)(uintptr_t)op = 0;
    if (team->nth > 1)
        team->barrier(team->barrier_data);
}

/* Each thread adds to its own part of the working memory, then to a neighbour's: at the end every part holds 2. */
SDGEN_TEST_API void sdgen_test_good_operation(const struct sdgen_plan *plan, const void *op, const struct sdgen_team *team)
{
    (void)plan, (void)op;
    unsigned char *parts = team->work;
    parts[team->ith] = 1;
    if (team->nth > 1)
        team->barrier(team->barrier_data);
    parts[(team->ith + 1) % team->nth]++;
}
