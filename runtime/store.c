#include "sdgen.h"

#include <pthread.h>
#include <stdlib.h>

enum { BUCKETS = 1024, LINE = 64 };

/* The array itself begins HEADER bytes behind its entry. */
struct entry {
    struct entry *next;          /* of the bucket */
    struct entry *older, *newer; /* by when they were used last */
    struct sdgen_hash key;
    size_t bytes; /* of all of it */
    int64_t used; /* when */
    int users;
    bool published;
};
enum { HEADER = (sizeof(struct entry) + LINE - 1) / LINE * LINE };

struct sdgen_store {
    pthread_mutex_t mutex; /* of all that follows */
    size_t most;
    int64_t now;
    struct entry *bucket[BUCKETS];
    struct entry *oldest, *newest;
    struct sdgen_store_counts counts;
};

struct sdgen_store *sdgen_store_new(size_t most_bytes)
{
    struct sdgen_store *store = calloc(1, sizeof *store);
    if (store) {
        pthread_mutex_init(&store->mutex, NULL);
        store->most = most_bytes;
    }
    return store;
}

static struct entry *entry_of(const void *array)
{
    return (struct entry *)((uintptr_t)array - HEADER);
}

static void *array_of(struct entry *entry)
{
    return (char *)entry + HEADER;
}

/* The link to the entry of a key, or to NULL. */
static struct entry **link_of(struct sdgen_store *store, struct sdgen_hash key)
{
    struct entry **link = &store->bucket[key.word[0] % BUCKETS];
    while (*link && ((*link)->key.word[0] != key.word[0] || (*link)->key.word[1] != key.word[1]))
        link = &(*link)->next;
    return link;
}

static void unlink_age(struct sdgen_store *store, struct entry *entry)
{
    *(entry->older ? &entry->older->newer : &store->oldest) = entry->newer;
    *(entry->newer ? &entry->newer->older : &store->newest) = entry->older;
}

static void link_newest(struct sdgen_store *store, struct entry *entry)
{
    entry->used = store->now;
    entry->older = store->newest;
    entry->newer = NULL;
    *(store->newest ? &store->newest->newer : &store->oldest) = entry;
    store->newest = entry;
}

static void drop(struct sdgen_store *store, struct entry *entry)
{
    *link_of(store, entry->key) = entry->next;
    unlink_age(store, entry);
    store->counts.bytes -= (int64_t)entry->bytes;
    store->counts.arrays--;
    free(entry);
}

void sdgen_store_free(struct sdgen_store *store)
{
    if (!store)
        return;
    while (store->oldest)
        drop(store, store->oldest);
    pthread_mutex_destroy(&store->mutex);
    free(store);
}

/* Gives up what was not used for so many ticks, from the oldest on, as far as that is needed for so many more bytes; all of it where
 * `more` is SIZE_MAX. */
static void drop_idle(struct sdgen_store *store, int64_t ticks, size_t more)
{
    for (struct entry *entry = store->oldest, *newer; entry && store->now - entry->used >= ticks; entry = newer) {
        newer = entry->newer;
        if (more <= store->most && (size_t)store->counts.bytes + more <= store->most)
            return;
        if (!entry->users)
            drop(store, entry);
    }
}

void sdgen_store_tick(struct sdgen_store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->now++;
    drop_idle(store, SDGEN_STORE_IDLE, SIZE_MAX);
    pthread_mutex_unlock(&store->mutex);
}

const void *sdgen_store_find(struct sdgen_store *store, struct sdgen_hash key)
{
    pthread_mutex_lock(&store->mutex);
    struct entry *entry = *link_of(store, key);
    if (entry && !entry->published)
        entry = NULL;
    if (entry) {
        unlink_age(store, entry);
        link_newest(store, entry);
        entry->users++;
        store->counts.found++;
    }
    pthread_mutex_unlock(&store->mutex);
    return entry ? array_of(entry) : NULL;
}

void *sdgen_store_add(struct sdgen_store *store, struct sdgen_hash key, size_t size)
{
    struct entry *entry = NULL;
    pthread_mutex_lock(&store->mutex);
    struct entry **link = link_of(store, key);
    if (!*link && size <= store->most && store->most - size >= HEADER + LINE) {
        size_t bytes = HEADER + (size + LINE - 1) / LINE * LINE;
        drop_idle(store, SDGEN_STORE_BUSY, bytes);
        if ((size_t)store->counts.bytes + bytes <= store->most)
            entry = aligned_alloc(LINE, bytes);
        if (entry) {
            link = link_of(store, key); /* what led to it may be gone */
            *entry = (struct entry){.key = key, .bytes = bytes, .users = 1};
            *link = entry;
            link_newest(store, entry);
            store->counts.bytes += (int64_t)bytes;
            store->counts.arrays++;
            store->counts.added++;
        }
    }
    store->counts.turned_away += !*link;
    pthread_mutex_unlock(&store->mutex);
    return entry ? array_of(entry) : NULL;
}

void sdgen_store_publish(struct sdgen_store *store, const void *array)
{
    pthread_mutex_lock(&store->mutex);
    entry_of(array)->published = true;
    pthread_mutex_unlock(&store->mutex);
}

void sdgen_store_release(struct sdgen_store *store, const void *array)
{
    pthread_mutex_lock(&store->mutex);
    struct entry *entry = entry_of(array);
    if (--entry->users == 0 && !entry->published)
        drop(store, entry);
    pthread_mutex_unlock(&store->mutex);
}

struct sdgen_store_counts sdgen_store_counts(struct sdgen_store *store)
{
    pthread_mutex_lock(&store->mutex);
    struct sdgen_store_counts counts = store->counts;
    pthread_mutex_unlock(&store->mutex);
    return counts;
}
