/* How many threads there should be: as many as upstream takes, but no more than there are processors that the process may run on,
 * nor than the time that the control groups it is in leave it. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "sdgen.h"

#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__unix__) || defined(__APPLE__)
#include <unistd.h>
#endif
#if defined(__linux__)
#include <errno.h>
#include <sched.h>
#endif

enum { LONGEST_PATH = 4096, MOST_PROCESSORS = 1 << 20 };

/* The limit that a group's quota is, rounded up to whole processors; INT_MAX where there is none. */
static int processors_of(long long quota, long long period)
{
    if (quota <= 0 || period <= 0)
        return INT_MAX;
    long long processors = quota / period + (quota % period != 0);
    return processors < INT_MAX ? (int)processors : INT_MAX;
}

/* Reads up to two numbers that a file begins with; how many there are. */
static int read_numbers(const char *folder, const char *name, long long numbers[2])
{
    char path[2 * LONGEST_PATH];
    int length = snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *file = length > 0 && (size_t)length < sizeof path ? fopen(path, "r") : NULL;
    if (!file)
        return 0;
    int found = fscanf(file, "%18lld %18lld", &numbers[0], &numbers[1]);
    fclose(file);
    return found;
}

static int limit_of(const char *folder, bool unified)
{
    long long quota[2], period[2];
    if (unified) /* "max 100000" where there is none */
        return read_numbers(folder, "cpu.max", quota) == 2 ? processors_of(quota[0], quota[1]) : INT_MAX;
    if (read_numbers(folder, "cpu.cfs_quota_us", quota) < 1 || read_numbers(folder, "cpu.cfs_period_us", period) < 1)
        return INT_MAX;
    return processors_of(quota[0], period[0]); /* -1 where there is none */
}

/* Whether a word is one of a list's, which are separated by commas. */
static bool lists(const char *list, const char *word)
{
    for (size_t length; *list; list += length + (list[length] == ',')) {
        length = strcspn(list, ",\n");
        if (length == strlen(word) && strncmp(list, word, length) == 0)
            return true;
        if (list[length] == '\n')
            break;
    }
    return false;
}

/* Whether a line of /proc/self/cgroup, "number:controllers:path", is of a hierarchy that limits processors; then its path. */
static const char *group_path(char *line, bool *unified)
{
    char *controllers = strchr(line, ':'), *path = controllers ? strchr(controllers + 1, ':') : NULL;
    if (!path)
        return NULL;
    *controllers++ = 0;
    *path++ = 0;
    path[strcspn(path, "\n")] = 0;
    *unified = strcmp(line, "0") == 0 && !*controllers;
    return *path == '/' && (*unified || lists(controllers, "cpu")) ? path : NULL;
}

/* Where a hierarchy is mounted, and which of its groups is there, by /proc/self/mountinfo: "id parent device group place options
 * ... - type source options". */
static bool find_mount(const char *root, bool unified, char group[LONGEST_PATH], char place[LONGEST_PATH])
{
    char path[LONGEST_PATH], *line = NULL;
    size_t size = 0;
    int length = snprintf(path, sizeof path, "%s/proc/self/mountinfo", root);
    FILE *file = (size_t)length < sizeof path ? fopen(path, "r") : NULL;
    bool found = false;
    while (file && !found && getline(&line, &size, file) > 0) {
        char type[16], options[256];
        const char *rest = strstr(line, " - ");
        found = rest && sscanf(rest, " - %15s %*s %255s", type, options) == 2 &&
                sscanf(line, "%*s %*s %*s %4095s %4095s", group, place) == 2 &&
                (unified ? strcmp(type, "cgroup2") == 0 : strcmp(type, "cgroup") == 0 && lists(options, "cpu"));
    }
    free(line);
    if (file)
        fclose(file);
    return found;
}

/* The least limit of a group and those above it. */
static int least_limit(const char *root, const char *path, bool unified)
{
    char group[LONGEST_PATH], place[LONGEST_PATH], folder[2 * LONGEST_PATH];
    if (!find_mount(root, unified, group, place))
        return INT_MAX;
    /* A container may see the hierarchy from its own group on; the path is from the hierarchy's root, or from the container's. */
    size_t above = strcmp(group, "/") == 0 ? 0 : strlen(group);
    if (above && strncmp(path, group, above) == 0 && (path[above] == '/' || !path[above]))
        path += above;
    if (strstr(path, "/.."))
        path = ""; /* of a group outside of what is mounted */
    int base = snprintf(folder, sizeof folder, "%s%s", root, place);
    int length = snprintf(folder, sizeof folder, "%s%s%s", root, place, path);
    if (base < 0 || length < base || (size_t)length >= sizeof folder)
        return INT_MAX;
    int least = limit_of(folder, unified);
    while (length > base) {
        while (length > base && folder[length - 1] != '/')
            length--;
        length -= length > base;
        folder[length] = 0;
        int limit = limit_of(folder, unified);
        least = limit < least ? limit : least;
    }
    return least;
}

int sdgen_quota(const char *root)
{
    char path[LONGEST_PATH], *line = NULL;
    size_t size = 0;
    int length = snprintf(path, sizeof path, "%s/proc/self/cgroup", root), least = INT_MAX;
    FILE *file = (size_t)length < sizeof path ? fopen(path, "r") : NULL;
    while (file && getline(&line, &size, file) > 0) {
        bool unified;
        const char *group = group_path(line, &unified);
        int limit = group ? least_limit(root, group, unified) : INT_MAX;
        least = limit < least ? limit : least;
    }
    free(line);
    if (file)
        fclose(file);
    return least;
}

int sdgen_threads_of(int online, int allowed, int quota)
{
    int threads = online <= 0 ? 4 : online <= 4 ? online : online / 2; /* as upstream has it on Linux */
    threads = allowed < threads ? allowed : threads;
    threads = quota < threads ? quota : threads;
    return threads < 1 ? 1 : threads;
}

/* Processors that the process may run on. */
static int allowed_processors(void)
{
#if defined(__linux__)
    for (int most = 1024; most <= MOST_PROCESSORS; most *= 2) {
        cpu_set_t *set = CPU_ALLOC((size_t)most);
        if (!set)
            break;
        const int wrong = sched_getaffinity(0, CPU_ALLOC_SIZE((size_t)most), set) == 0 ? 0 : errno;
        const int count = wrong ? 0 : CPU_COUNT_S(CPU_ALLOC_SIZE((size_t)most), set);
        CPU_FREE(set);
        if (!wrong)
            return count;
        if (wrong != EINVAL) /* that is: more processors than fit */
            break;
    }
#endif
    return INT_MAX;
}

int sdgen_default_threads(void)
{
    long online = 0;
#if defined(_SC_NPROCESSORS_ONLN)
    online = sysconf(_SC_NPROCESSORS_ONLN);
#endif
    return sdgen_threads_of(online > 0 && online < INT_MAX ? (int)online : 0, allowed_processors(), sdgen_quota(""));
}
