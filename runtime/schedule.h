/* Handing out of work to threads. */
#ifndef SDGEN_SCHEDULE_H
#define SDGEN_SCHEDULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* A queue of `count` equal items, taken from the front in ranges that shrink toward the end: half of a thread's even share of
 * what is left, so that fast and slow cores finish together ("guided self-scheduling", Polychronopoulos and Kuck 1987). One thread
 * alone takes as many as it may. */
struct sdgen_queue {
    _Alignas(64) _Atomic int64_t next;
};

static inline void sdgen_queue_reset(struct sdgen_queue *queue)
{
    atomic_store_explicit(&queue->next, 0, memory_order_relaxed);
}

/* Takes [*begin, *end), at most `most` items; false when none is left. */
static inline bool sdgen_queue_take(struct sdgen_queue *queue, int64_t count, int64_t most, int nth, int64_t *begin, int64_t *end)
{
    int64_t next = atomic_load_explicit(&queue->next, memory_order_relaxed);
    int64_t take;
    do {
        if (next >= count)
            return false;
        take = nth == 1 ? count - next : (count - next) / (2 * (int64_t)nth);
        take = take < 1 ? 1 : take > most ? most : take;
    } while (!atomic_compare_exchange_weak_explicit(&queue->next, &next, next + take, memory_order_relaxed, memory_order_relaxed));
    *begin = next;
    *end = next + take;
    return true;
}

#endif
