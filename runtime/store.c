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

/* The oldest entry, from one on, that may be given up because it was not used for so many ticks. */
static struct entry *idle(const struct sdgen_store *store, struct entry *from, int64_t ticks)
{
    for (; from && store->now - from->used >= ticks; from = from->newer)
        if (!from->users)
            return from;
    return NULL;
}

/* Of all of an entry; more than there ever is room for where that is no number. */
static size_t bytes_of(size_t size)
{
    return size > SIZE_MAX - HEADER - LINE ? SIZE_MAX : HEADER + (size + LINE - 1) / LINE * LINE;
}

static bool has_room(const struct sdgen_store *store, size_t bytes)
{
    size_t kept = (size_t)store->counts.bytes;
    for (const struct entry *entry = NULL; bytes <= store->most && kept > store->most - bytes; kept -= entry->bytes) {
        entry = idle(store, entry ? entry->newer : store->oldest, SDGEN_STORE_BUSY);
        if (!entry)
            return false;
    }
    return bytes <= store->most;
}

bool sdgen_store_has_room(struct sdgen_store *store, size_t size)
{
    pthread_mutex_lock(&store->mutex);
    bool room = has_room(store, bytes_of(size));
    pthread_mutex_unlock(&store->mutex);
    return room;
}

void sdgen_store_tick(struct sdgen_store *store)
{
    pthread_mutex_lock(&store->mutex);
    store->now++;
    for (struct entry *entry; (entry = idle(store, store->oldest, SDGEN_STORE_IDLE));)
        drop(store, entry);
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
    const size_t bytes = bytes_of(size);
    const bool absent = !*link_of(store, key);
    if (absent && has_room(store, bytes)) {
        while ((size_t)store->counts.bytes > store->most - bytes)
            drop(store, idle(store, store->oldest, SDGEN_STORE_BUSY));
        entry = aligned_alloc(LINE, bytes);
    }
    if (entry) {
        *entry = (struct entry){.key = key, .bytes = bytes, .users = 1};
        *link_of(store, key) = entry;
        link_newest(store, entry);
        store->counts.bytes += (int64_t)bytes;
        store->counts.arrays++;
        store->counts.added++;
    }
    store->counts.turned_away += absent && !entry;
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
