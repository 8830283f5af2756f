/* Handing out of work to threads. */
#ifndef SDGEN_SCHEDULE_H
#define SDGEN_SCHEDULE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "sdgen.h"

/* A queue of `count` equal items, taken from the front in ranges that shrink toward the end: half of a thread's even share of
 * what is left, so that fast and slow cores finish together ("guided self-scheduling", Polychronopoulos and Kuck 1987). One thread
 * alone takes as many as it may. */
struct sdgen_queue {
    _Alignas(64) _Atomic int64_t next;
    _Atomic int left; /* threads that have found it empty */
};

/* The team's queue. The last thread to find it empty makes it new: it serves one lot of items after the other, and what
 * has to lie between two lots is a barrier, or what lies between two operations; none has to lie before the first. */
static inline struct sdgen_queue *sdgen_queue(const struct sdgen_team *team)
{
    uintptr_t line = _Alignof(struct sdgen_queue), base = (uintptr_t)team->queue;
    return (struct sdgen_queue *)(void *)((char *)team->queue + (line - base % line) % line);
}

/* How much of what is left goes to a thread that has taken some items: as much as its share so far, counted with the whole that it comes
 * for. One that is in step with the others, within a fifth, gets its even share of all of them at least: what is left is less where others
 * have begun their last ones just before it. */
static inline int64_t sdgen_queue_share(int64_t count, int64_t next, int64_t whole, int nth, int64_t taken)
{
    int64_t left = count - next, share = left * (taken + whole) / (next + whole), even = count / nth - taken;
    share = 5 * taken * nth >= 4 * next && even > share ? even : share;
    return share < left ? share : left;
}

/* Takes [*begin, *end), at most `most` items; false when none is left. Every thread takes until then, and not again.
 *
 * Items may come in wholes of several, which cost less together: what is taken is whole ones, or a part of one. Where so many
 * may be taken, less than one is only where a thread's share of what is left is less: then equal pieces. That share is even, or by the
 * thread's speed if it counts what it has taken of the lot, in *taken, 0 at first; NULL: it does not. */
static inline bool sdgen_queue_take(struct sdgen_queue *queue, int64_t count, int64_t whole, int64_t most, int nth, int64_t *taken,
                                    int64_t *begin, int64_t *end)
{
    int64_t next = atomic_load_explicit(&queue->next, memory_order_relaxed);
    int64_t take;
    do {
        if (next >= count) {
            if (atomic_fetch_add_explicit(&queue->left, 1, memory_order_acq_rel) == nth - 1) {
                atomic_store_explicit(&queue->left, 0, memory_order_relaxed);
                atomic_store_explicit(&queue->next, 0, memory_order_relaxed);
            }
            return false;
        }
        int64_t even = (count - next) / nth, rest = whole - next % whole; /* of a whole that is begun, or all of it */
        int64_t share = taken && *taken > 0 ? sdgen_queue_share(count, next, whole, nth, *taken) : even;
        take = nth == 1 ? share : share / 2;
        take = take < whole && whole <= most ? whole : take < 1 ? 1 : take > most ? most : take;
        if (take >= rest)
            take = rest < whole ? rest : take / whole * whole;
        if (share < take) {
            int64_t pieces = share < 1 ? take : (take + share - 1) / share;
            take = (take + pieces - 1) / pieces;
        }
    } while (!atomic_compare_exchange_weak_explicit(&queue->next, &next, next + take, memory_order_relaxed, memory_order_relaxed));
    if (taken)
        *taken += take;
    *begin = next;
    *end = next + take;
    return true;
}

#endif
