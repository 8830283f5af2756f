#include "options.h"

#include <ctype.h>
#include <getopt.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "numbers.h"
#include "select.h"
#include "team.h"

static const char usage[] =
    "usage: sdgen-bench [--set NAMES | --shape SHAPE ...] [--forms NAMES] [--variant LABEL:NAME=VALUE,... ...] [--tune NAME=VALUE,...]\n"
    "                   [--upstream FOLDER] [--filter TEXT] [--threads N] [--seconds S] [--repetitions N] [--format table|json|csv|md]\n"
    "       sdgen-bench --peak [--filter TEXT] [--threads N] [--seconds S] [--format table|json|csv|md]\n"
    "       sdgen-bench --help-tune\n"
    "\n"
    "Times kernels in L1 and the operations of models, each in turn with a register-only loop of FMAs, and prints GFLOP/s, the share of\n"
    "that loop's rate, and the error against double precision. A wrong result voids the row, and the exit status is 1. Elementwise\n"
    "operations and norms (map, norm) are timed in GB/s, one read and one write of the array, beside memcpy. Several forms and\n"
    "variants are computed in turn, sample by sample, and each is compared with the first.\n"
    "\n"
    "  --set NAMES       kernels (each kernel of products in L1), sd15, sdxl, flux, vae and attention, several by commas (kernels,sd15,\n"
    "                    vae,attention by default)\n"
    "  --shape SHAPE     an operation by its row's name, like \"linear 4096x320x320\"; may be repeated; no set then unless asked for\n"
    "  --forms NAMES     a row each: assembly (the richest level that the processor has, the default), avx2, avx512, c (the portable\n"
    "                    form), and ggml's own kernels, as programs that `make bench-upstream` builds: upstream (compiled as it is by\n"
    "                    default), upstream-llamafile (with GGML_LLAMAFILE) and upstream-avx2 (for AVX2 and no more)\n"
    "  --upstream FOLDER where those programs are (beside this one by default)\n"
    "  --variant V       a row for LABEL with these of --tune's values, and isa=c, avx2 or avx512, else as --forms assembly; may be\n"
    "                    repeated, and has no NAME=VALUE for the defaults, as \"plain:\"\n"
    "  --tune VALUES     values of tunables, for all rows (--help-tune lists them); tuning files and SDGEN_ variables are not looked at\n"
    "  --peak            the most FMAs, products of 8 and 16 bits, and products of tiles that the processor makes, at each width, and\n"
    "                    which of them it lacks: the best of three runs, or of as many as it takes until three agree within 2%; a\n"
    "                    product and its addition are two operations\n"
    "  --filter TEXT     only rows whose name holds TEXT\n"
    "  --threads N       threads, each kept on a processor where there are as many (all processors by default)\n"
    "  --seconds S       time spent on a row (0.7 by default, which makes a minute for the 75 rows of the default sets)\n"
    "  --repetitions N   at least so many samples, after a first run that is not counted (5 by default)\n"
    "  --format F        table (default), json in Google Benchmark's keys, csv or md\n"
    "\n"
    "Upstream's rows are its nodes of an operation: products with weights of half precision, convolutions by im2col as is the default in\n"
    "stable-diffusion.cpp, FLASH_ATTN_EXT of k and v cast to half precision. Its errors are above the others' for it makes halves of what\n"
    "it multiplies. bench/compare.py compares whole pictures.\n";

__attribute__((noreturn, format(printf, 3, 4))) static void fail(const char *option, const char *value, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    fprintf(stderr, "sdgen-bench: %s %s: ", option, value);
    vfprintf(stderr, format, arguments);
    fprintf(stderr, "\n");
    va_end(arguments);
    exit(2);
}

static void help_tune(void)
{
    for (size_t i = 0; i < sdgen_tunable_count(); i++) {
        const struct sdgen_tunable *tunable = sdgen_tunable(i);
        char allowed[64] = "";
        for (const int *value = tunable->values; value && *value >= 0; value++)
            snprintf(allowed + strlen(allowed), sizeof allowed - strlen(allowed), "%s%d", *allowed ? ", " : "", *value);
        if (!tunable->values)
            snprintf(allowed, sizeof allowed, "%d to %d", tunable->least, tunable->most);
        printf("%-10s %-14s %s\n%26sdefault: %s\n", tunable->name, allowed, tunable->meaning, "", tunable->by_default);
    }
}

/* The next of several by commas, copied; NULL behind the last. */
static const char *next_item(const char **text, char *item, size_t size)
{
    if (!*text)
        return NULL;
    size_t length = strcspn(*text, ",");
    snprintf(item, size, "%.*s", (int)length, *text);
    *text = (*text)[length] ? *text + length + 1 : NULL;
    return item;
}

static long whole_number(const char *option, const char *text, long least, long most)
{
    char *end = NULL;
    long value = isdigit((unsigned char)*text) ? strtol(text, &end, 10) : 0;
    if (!end || *end || value < least || value > most)
        fail(option, text, "a number from %ld to %ld is allowed", least, most);
    return value;
}

/* ---- forms and variants ---- */

static enum sdgen_level richest_level(void)
{
    return sdgen_select_level(sdgen_processor()->features, SDGEN_FORM_ASSEMBLY, SDGEN_LEVEL_RICHEST);
}

static enum sdgen_level level_of(const char *option, const char *text, const char *name, const char *allowed)
{
    for (int l = SDGEN_LEVEL_C; l <= SDGEN_LEVEL_RICHEST; l++) {
        const enum sdgen_level level = (enum sdgen_level)l;
        if (strcmp(name, sdgen_level_name(level)) != 0)
            continue;
        if (level != SDGEN_LEVEL_C && sdgen_select_level(sdgen_processor()->features, SDGEN_FORM_ASSEMBLY, level) != level)
            fail(option, text, "this processor does not have %s", name);
        return level;
    }
    fail(option, text, "%s", allowed);
}

static void add_entry(struct options *options, const char *option, const char *text, struct entry entry)
{
    if (options->entry_count == MOST_ENTRIES)
        fail(option, text, "%d forms and variants are allowed", MOST_ENTRIES);
    for (int i = 0; i < options->entry_count; i++)
        if (strcmp(options->entries[i].label, entry.label) == 0)
            fail(option, text, "%s is there already", entry.label);
    if (entry.tuning.tile > 0 && !sdgen_has_tile(entry.level, entry.tuning.tile))
        fail(option, text, "level %s has no tile of %d columns", sdgen_level_name(entry.level), entry.tuning.tile);
    options->entries[options->entry_count++] = entry;
}

static bool is_upstream(const char *form)
{
    static const char *const names[] = {"upstream", "upstream-llamafile", "upstream-avx2"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (strcmp(form, names[i]) == 0)
            return true;
    return false;
}

/* That of a form of upstream's. */
static const char *program_of(const char *form, const char *folder)
{
    char own[PATH_MAX] = "";
    if (!folder) {
        ssize_t length = readlink("/proc/self/exe", own, sizeof own - 1);
        char *end = length > 0 ? strrchr(own, '/') : NULL;
        if (end)
            *end = 0;
        folder = end ? own : ".";
    }
    const size_t size = strlen(folder) + sizeof "/bench-" + strlen(form);
    char *path = allocate(size);
    snprintf(path, size, "%s/bench-%s", folder, form);
    return path;
}

static void add_forms(struct options *options, const char *forms, const struct sdgen_tuning *tuning, const char *folder)
{
    char name[32];
    for (const char *rest = forms; next_item(&rest, name, sizeof name);) {
        struct entry entry = {.tuning = *tuning, .level = richest_level()};
        if (is_upstream(name)) {
            entry.tuning = sdgen_untuned();
            entry.program = program_of(name, folder);
            if (access(entry.program, X_OK) != 0)
                fail("--forms", forms, "there is no program %s; `make bench-upstream` builds it", entry.program);
        } else if (strcmp(name, "assembly") != 0)
            entry.level = level_of("--forms", forms, name,
                                   "assembly, avx2, avx512, c, upstream, upstream-llamafile and upstream-avx2 are allowed");
        snprintf(entry.label, sizeof entry.label, "%s", name);
        add_entry(options, "--forms", forms, entry);
    }
}

static bool is_tunable(const char *item)
{
    for (size_t i = 0; i < sdgen_tunable_count(); i++) {
        const char *name = sdgen_tunable(i)->name;
        if (strncmp(item, name, strlen(name)) == 0 && item[strlen(name)] == '=')
            return true;
    }
    return false;
}

static void add_variant(struct options *options, const char *text, const struct sdgen_tuning *tuning)
{
    static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789.-_+=";
    static const char isa_allowed[] = "isa=c, isa=avx2 and isa=avx512 are allowed";
    struct entry entry = {.tuning = *tuning, .level = richest_level()};
    size_t length = strspn(text, letters);
    if (length == 0 || length >= sizeof entry.label || text[length] != ':')
        fail("--variant", text, "LABEL:NAME=VALUE,... is allowed, with a label of at most %zu letters, digits and .-_+=",
             sizeof entry.label - 1);
    memcpy(entry.label, text, length);
    char item[64], message[512];
    for (const char *rest = text[length + 1] ? text + length + 1 : NULL; next_item(&rest, item, sizeof item);) {
        if (strncmp(item, "isa=", 4) == 0)
            entry.level = level_of("--variant", text, item + 4, isa_allowed);
        else if (!*item)
            fail("--variant", text, "a NAME=VALUE is missing");
        else if (!sdgen_tune(&entry.tuning, item, message, sizeof message))
            fail("--variant", text, "%s%s%s", message, is_tunable(item) ? "" : "; beside them ", is_tunable(item) ? "" : isa_allowed);
    }
    add_entry(options, "--variant", text, entry);
}

/* ---- shapes ---- */

static void add_shape(struct options *options, const char *option, const char *text)
{
    struct shape shape;
    char message[768];
    if (!parse_shape(text, &shape, message, sizeof message))
        fail(option, text, "%s", message);
    if (options->filter && !strstr(shape.name, options->filter))
        return;
    for (int i = 0; i < options->shape_count; i++)
        if (strcmp(options->shapes[i].name, shape.name) == 0)
            return;
    if (options->shape_count == MOST_SHAPES)
        fail(option, text, "no more than %d rows are allowed", MOST_SHAPES);
    options->shapes[options->shape_count++] = shape;
}

/* Of all levels that are timed. */
static void add_kernels(struct options *options)
{
    for (size_t i = 0; i < sdgen_kernel_count(); i++) {
        const struct sdgen_kernel_row *kernel = sdgen_kernel_row(i);
        bool timed = false;
        for (int e = 0; e < options->entry_count; e++)
            timed |= !options->entries[e].program && options->entries[e].level == kernel->level;
        if (timed && strcmp(kernel->operation, "gemm") == 0)
            add_shape(options, "--set", kernel->name);
    }
}

static void add_sets(struct options *options, const char *sets)
{
    char name[32];
    for (const char *rest = sets; next_item(&rest, name, sizeof name);) {
        const char *const *shapes = find_set(name);
        if (strcmp(name, "kernels") == 0)
            add_kernels(options);
        else if (!shapes) {
            char known[128] = "kernels";
            for (int i = 0; set_name(i); i++)
                snprintf(known + strlen(known), sizeof known - strlen(known), "%s%s", set_name(i + 1) ? ", " : " and ", set_name(i));
            fail("--set", sets, "%s are allowed", known);
        }
        for (; shapes && *shapes; shapes++)
            add_shape(options, "--set", *shapes);
    }
}

/* ---- all of it ---- */

static enum format format_of(const char *text)
{
    static const char *const names[] = {[FORMAT_TABLE] = "table", [FORMAT_JSON] = "json", [FORMAT_CSV] = "csv", [FORMAT_MD] = "md"};
    for (int i = 0; i < (int)(sizeof names / sizeof *names); i++)
        if (strcmp(text, names[i]) == 0)
            return (enum format)i;
    fail("--format", text, "table, json, csv and md are allowed");
}

void parse_options(struct options *options, int argc, char **argv)
{
    enum { SET = 1, SHAPE, FORMS, VARIANT, TUNE, HELP_TUNE, PEAK, FILTER, THREADS, SECONDS, REPETITIONS, FORMAT, UPSTREAM };
    static const struct option names[] = {
        {"set", required_argument, NULL, SET},         {"shape", required_argument, NULL, SHAPE},
        {"forms", required_argument, NULL, FORMS},     {"variant", required_argument, NULL, VARIANT},
        {"tune", required_argument, NULL, TUNE},       {"help-tune", no_argument, NULL, HELP_TUNE},
        {"peak", no_argument, NULL, PEAK},             {"filter", required_argument, NULL, FILTER},
        {"threads", required_argument, NULL, THREADS}, {"seconds", required_argument, NULL, SECONDS},
        {"format", required_argument, NULL, FORMAT},   {"repetitions", required_argument, NULL, REPETITIONS},
        {"upstream", required_argument, NULL, UPSTREAM}, {"help", no_argument, NULL, 'h'},
        {NULL, 0, NULL, 0}};
    const char *sets = NULL, *forms = NULL, *upstream = NULL, *variants[MOST_ENTRIES], *shapes[MOST_SHAPES];
    int variant_count = 0, shape_count = 0, option;
    struct sdgen_tuning tuning = sdgen_untuned();
    char message[512];
    opterr = 0;
    *options = (struct options){.threads = team_processors(), .seconds = 0.7, .repetitions = 5};
    while ((option = getopt_long(argc, argv, "h", names, NULL)) != -1) {
        char *end = NULL;
        switch (option) {
        case SET: sets = optarg; break;
        case SHAPE:
            if (shape_count == MOST_SHAPES)
                fail("--shape", optarg, "no more than %d are allowed", MOST_SHAPES);
            shapes[shape_count++] = optarg;
            break;
        case FORMS: forms = optarg; break;
        case VARIANT:
            if (variant_count == MOST_ENTRIES)
                fail("--variant", optarg, "no more than %d are allowed", MOST_ENTRIES);
            variants[variant_count++] = optarg;
            break;
        case TUNE:
            if (!sdgen_tune(&tuning, optarg, message, sizeof message)) {
                fprintf(stderr, "sdgen-bench: --tune %s\n", message);
                exit(2);
            }
            break;
        case HELP_TUNE: help_tune(); exit(0);
        case UPSTREAM: upstream = optarg; break;
        case PEAK: options->peak = true; break;
        case FILTER: options->filter = optarg; break;
        case THREADS: options->threads = (int)whole_number("--threads", optarg, 1, 1024); break;
        case REPETITIONS: options->repetitions = (int)whole_number("--repetitions", optarg, 1, 1000); break;
        case SECONDS:
            options->seconds = strtod(optarg, &end);
            if (end == optarg || *end || !(options->seconds > 0 && options->seconds < 3600))
                fail("--seconds", optarg, "a number above 0 and below 3600 is allowed");
            break;
        case FORMAT: options->format = format_of(optarg); break;
        case 'h': printf("%s", usage); exit(0);
        default: fail("argument", argv[optind - 1], "no such option, or its value is missing or too much; --help lists them");
        }
    }
    if (optind < argc)
        fail("argument", argv[optind], "only options are allowed; --help lists them");
    if (forms || !variant_count)
        add_forms(options, forms ? forms : "assembly", &tuning, upstream);
    for (int i = 0; i < variant_count; i++)
        add_variant(options, variants[i], &tuning);
    for (int i = 0; i < shape_count; i++)
        add_shape(options, "--shape", shapes[i]);
    if (sets || !shape_count)
        add_sets(options, sets ? sets : "kernels,sd15,vae,attention");
    for (int i = 0; i < options->shape_count; i++)
        if (options->shapes[i].kind == SHAPE_KERNEL && options->shapes[i].kernel->level != SDGEN_LEVEL_C)
            level_of("--shape", options->shapes[i].name, sdgen_level_name(options->shapes[i].kernel->level), "");
    if (options->threads > team_processors())
        fprintf(stderr, "sdgen-bench: %d threads take turns on %d processors, which makes all rates uncertain\n",
                options->threads, team_processors());
    if (options->shape_count == 0 && !options->peak)
        fail("--filter", options->filter, "no row's name holds it");
}
