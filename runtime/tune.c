/* The tunables: one table of what may be chosen otherwise, and where the choice is read from. */
#include "select.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const int winograd_values[] = {0, 2, 3, 4, -1};
static const int tile_values[] = {16, 32, 48, 64, -1};

static const struct row {
    struct sdgen_tunable tunable;
    size_t place; /* in struct sdgen_tuning */
} rows[] = {
    {{"winograd", 0, 4, winograd_values, "3x3 convolutions wherever it fits: directly (0), or by Winograd's F(m x m)",
      "by shape, as is fastest within the bounds on errors"},
     offsetof(struct sdgen_tuning, winograd)},
    {{"tile", 16, 64, tile_values, "columns of the tiles of products, of those that the level has", "by shape"},
     offsetof(struct sdgen_tuning, tile)},
    {{"kc", 64, 512, NULL, "depth of a block: the longest chain of sums before they are added up", "by the size of L1, at most 256"},
     offsetof(struct sdgen_tuning, kc)},
    {{"mc", 48, 4096, NULL, "rows of packed A that are kept in L2", "by the size of L2"}, offsetof(struct sdgen_tuning, mc)},
    {{"nc", 64, 8192, NULL, "columns of packed B that a thread packs at a time", "by the size of L2"},
     offsetof(struct sdgen_tuning, nc)},
    {{"packed_mb", 1, 256, NULL, "MiB of A packed at a time, shared by all threads", "half of L3, 4 to 16"},
     offsetof(struct sdgen_tuning, packed_mb)},
    {{"reuse", 0, 1, NULL, "products of the same inputs, step after step, kept (1) or computed each time (0)", "1"},
     offsetof(struct sdgen_tuning, reuse)},
    {{"fuse", 0, 1, NULL, "operations that follow each other, one where that can be (1), or each by itself (0)", "1"},
     offsetof(struct sdgen_tuning, fuse)},
};
enum { ROWS = sizeof rows / sizeof *rows };

struct sdgen_tuning sdgen_untuned(void)
{
    struct sdgen_tuning tuning;
    memset(&tuning, -1, sizeof tuning); /* -1 in each member */
    return tuning;
}

size_t sdgen_tunable_count(void)
{
    return ROWS;
}

const struct sdgen_tunable *sdgen_tunable(size_t index)
{
    return index < ROWS ? &rows[index].tunable : NULL;
}

int sdgen_tuning_value(const struct sdgen_tuning *tuning, size_t index)
{
    int value = -1;
    if (index < ROWS)
        memcpy(&value, (const char *)tuning + rows[index].place, sizeof value);
    return value;
}

static void append(char *message, size_t size, const char *text)
{
    size_t length = strlen(message);
    if (length + 1 < size)
        snprintf(message + length, size - length, "%s", text);
}

static void append_allowed(char *message, size_t size, const struct sdgen_tunable *tunable)
{
    char text[64];
    for (const int *value = tunable->values; value && *value >= 0; value++) {
        snprintf(text, sizeof text, "%s%s=%d", value == tunable->values ? "" : ", ", tunable->name, *value);
        append(message, size, text);
    }
    if (!tunable->values) {
        snprintf(text, sizeof text, "%s=%d to %d", tunable->name, tunable->least, tunable->most);
        append(message, size, text);
    }
}

static bool allowed(const struct sdgen_tunable *tunable, long value)
{
    for (const int *v = tunable->values; v && *v >= 0; v++)
        if (*v == value)
            return true;
    return !tunable->values && value >= tunable->least && value <= tunable->most;
}

bool sdgen_tune(struct sdgen_tuning *tuning, const char *text, char *message, size_t message_size)
{
    for (const char *item = text; *item;) {
        size_t length = strcspn(item, ","), name = strcspn(item, "=,");
        const struct row *row = NULL;
        for (int i = 0; i < ROWS; i++)
            if (strlen(rows[i].tunable.name) == name && strncmp(item, rows[i].tunable.name, name) == 0)
                row = &rows[i];
        char *end = NULL;
        const bool digit = item[name] == '=' && item[name + 1] >= '0' && item[name + 1] <= '9';
        long value = digit ? strtol(item + name + 1, &end, 10) : -1;
        if (!row || !digit || end != item + length || !allowed(&row->tunable, value)) {
            snprintf(message, message_size, "%.100s: allowed %s ", text, row ? "is" : "are");
            for (int i = 0; i < ROWS; i++)
                if (!row || row == &rows[i]) {
                    append_allowed(message, message_size, &rows[i].tunable);
                    append(message, message_size, row || i + 1 == ROWS ? "" : i + 2 == ROWS ? " and " : ", ");
                }
            return false;
        }
        memcpy((char *)tuning + row->place, &(int){(int)value}, sizeof(int));
        item += length + (item[length] == ',');
    }
    return true;
}

/* The path of the tuning file; false where there is none, or it is too long. */
static bool tuning_file(char *path, size_t size)
{
    const char *named = getenv("SDGEN_TUNE_FILE"), *folder = getenv("XDG_CONFIG_HOME"), *home = getenv("HOME");
    int length = named            ? snprintf(path, size, "%s", named)
                 : folder && *folder ? snprintf(path, size, "%s/sdgen/tuning", folder)
                 : home && *home     ? snprintf(path, size, "%s/.config/sdgen/tuning", home)
                                     : 0;
    return length > 0 && (size_t)length < size;
}

static bool is_level(const char *name)
{
    for (int level = SDGEN_LEVEL_C; level <= SDGEN_LEVEL_RICHEST; level++)
        if (strcmp(name, sdgen_level_name((enum sdgen_level)level)) == 0)
            return true;
    return false;
}

/* Lines of the file: "sdgen tuning of PROCESSOR", then for each level "LEVEL name=value,...". */
static void read_file(struct sdgen_tuning *tuning, enum sdgen_level level, char *message, size_t message_size)
{
    static const char title[] = "sdgen tuning of ";
    char path[512], line[512], what[256] = "";
    FILE *file = tuning_file(path, sizeof path) ? fopen(path, "r") : NULL;
    if (!file) {
        const char *named = getenv("SDGEN_TUNE_FILE");
        if (named && *named)
            snprintf(message, message_size, "%.200s cannot be read; it is not used", named);
        return;
    }
    const char *processor = sdgen_processor()->name;
    struct sdgen_tuning read = *tuning;
    if (!fgets(line, sizeof line, file) || strncmp(line, title, sizeof title - 1) != 0)
        snprintf(what, sizeof what, "is no tuning file");
    else {
        line[strcspn(line, "\n")] = 0;
        if (strcmp(line + sizeof title - 1, processor) != 0)
            snprintf(what, sizeof what, "is of another processor, %.100s", line + sizeof title - 1);
    }
    while (!*what && fgets(line, sizeof line, file)) {
        line[strcspn(line, "\n")] = 0;
        char *values = strchr(line, ' ');
        if (!values) {
            snprintf(what, sizeof what, "has a line that is none: %.100s", line);
            break;
        }
        *values++ = 0;
        if (!is_level(line)) {
            snprintf(what, sizeof what, "is also of a level that is none: %.20s", line);
            break;
        }
        struct sdgen_tuning other = *tuning;
        const bool mine = strcmp(line, sdgen_level_name(level)) == 0;
        if (!sdgen_tune(mine ? &read : &other, values, what, sizeof what))
            break;
        *what = 0;
        if (mine && read.tile > 0 && !sdgen_has_tile(level, read.tile))
            snprintf(what, sizeof what, "has a tile that level %.20s has not", line);
    }
    fclose(file);
    if (*what)
        snprintf(message, message_size, "%.200s %s; it is not used", path, what);
    else
        *tuning = read;
}

bool sdgen_tuning_from_environment(struct sdgen_tuning *tuning, enum sdgen_level level, char *message, size_t message_size)
{
    if (message_size > 0)
        *message = 0;
    *tuning = sdgen_untuned();
    read_file(tuning, level, message, message_size);
    const char *text = getenv("SDGEN_TUNE");
    char wrong[512] = "";
    if (text && !sdgen_tune(tuning, text, wrong, sizeof wrong)) {
        snprintf(message, message_size, "SDGEN_TUNE=%s", wrong);
        return false;
    }
    if (tuning->tile > 0 && !sdgen_has_tile(level, tuning->tile)) {
        snprintf(message, message_size, "SDGEN_TUNE=tile=%d: of level %s allowed are", tuning->tile, sdgen_level_name(level));
        for (const int *columns = tile_values; *columns > 0; columns++)
            if (sdgen_has_tile(level, *columns)) {
                char one[16];
                snprintf(one, sizeof one, " tile=%d", *columns);
                append(message, message_size, one);
            }
        return false;
    }
    return true;
}

struct sdgen_plan sdgen_plan(enum sdgen_level level, const struct sdgen_tuning *tuning)
{
    struct sdgen_plan plan = {
        .kernels = sdgen_kernels(level),
        .blocking = sdgen_blocking(sdgen_processor()),
        .tile_columns = tuning->tile > 0 ? tuning->tile : 0,
        .winograd = tuning->winograd >= 0 ? (enum sdgen_winograd_choice)tuning->winograd : SDGEN_WINOGRAD_BY_SHAPE,
    };
    if (tuning->kc > 0)
        plan.blocking.kc = tuning->kc;
    if (tuning->mc > 0)
        plan.blocking.mc = tuning->mc;
    if (tuning->nc > 0)
        plan.blocking.nc = tuning->nc;
    if (tuning->packed_mb > 0)
        plan.blocking.packed_bytes = (int64_t)tuning->packed_mb << 20;
    return plan;
}
