/* Elementwise operations: dimensions that lie side by side in every array become one, and the kernel is called for each run of the
 * innermost. Operands that are constant in a run become part of its scale and shift. */
#include "elementwise.h"

enum { DIMENSIONS = 4, X, Y, WEIGHT, ADDEND, FACTOR, ARRAYS };

/* An operand that is constant in a run and has no place in its scale and shift is repeated as often, on the stack. */
enum { REPEATS = 1024 };

struct loops {
    int64_t extent[DIMENSIONS];
    int64_t stride[ARRAYS][DIMENSIONS]; /* 0 for operands that are absent */
};

static const struct sdgen_operand *operand_of(const struct sdgen_map *op, int array)
{
    return array == WEIGHT ? &op->weight : array == ADDEND ? &op->addend : &op->factor;
}

const char *sdgen_map_check(const struct sdgen_map *op)
{
    for (int d = 0; d < DIMENSIONS; d++)
        if (op->extent[d] <= 0)
            return "an extent is not positive";
    if (!op->x || !op->y)
        return "an array is missing";
    if ((unsigned)op->function >= SDGEN_FUNCTIONS)
        return "the function is unknown";
    if (sdgen_unaligned(op->x, op->x_stride, 3) || sdgen_unaligned(op->y, op->y_stride, 3))
        return "x, y or one of their strides is not aligned to elements";
    for (int array = WEIGHT; array < ARRAYS; array++) {
        const struct sdgen_operand *operand = operand_of(op, array);
        if (!operand->data)
            continue;
        if (sdgen_unaligned(operand->data, operand->stride, DIMENSIONS))
            return "an operand or one of its strides is not aligned to elements";
        if (operand->stride[0] != 0 && operand->stride[0] != sizeof(float))
            return "elements of an operand are neither side by side nor one";
    }
    return NULL;
}

/* Whether the elements of a dimension lie as a kernel takes them: side by side, or an operand's all in one. */
static bool is_run(const struct loops *loops, int d)
{
    for (int array = X; array < ARRAYS; array++)
        if (loops->stride[array][d] != sizeof(float) && (array <= Y || loops->stride[array][d] != 0))
            return false;
    return true;
}

static bool continues(const struct loops *loops, int inner, int outer)
{
    for (int array = X; array < ARRAYS; array++)
        if (loops->stride[array][outer] != loops->extent[inner] * loops->stride[array][inner])
            return false;
    return true;
}

static void set_dimension(struct loops *loops, int to, int from)
{
    loops->extent[to] = loops->extent[from];
    for (int array = X; array < ARRAYS; array++)
        loops->stride[array][to] = loops->stride[array][from];
}

/* The operation's dimensions, as few and as long as they can be. */
static struct loops loops_of(const struct sdgen_map *op)
{
    struct loops loops = {.stride = {[X] = {sizeof(float)}, [Y] = {sizeof(float)}}};
    for (int d = 0; d < DIMENSIONS; d++) {
        loops.extent[d] = op->extent[d];
        if (d > 0) {
            loops.stride[X][d] = op->x_stride[d - 1];
            loops.stride[Y][d] = op->y_stride[d - 1];
        }
        for (int array = WEIGHT; array < ARRAYS; array++)
            if (operand_of(op, array)->data)
                loops.stride[array][d] = operand_of(op, array)->stride[d];
    }
    int last = 0;
    for (int d = 1; d < DIMENSIONS; d++) {
        if (loops.extent[d] == 1)
            continue;
        if (last == 0 && loops.extent[0] == 1 && is_run(&loops, d))
            set_dimension(&loops, 0, d);
        else if (continues(&loops, last, d))
            loops.extent[last] *= loops.extent[d];
        else
            set_dimension(&loops, ++last, d);
    }
    while (++last < DIMENSIONS)
        loops.extent[last] = 1;
    return loops;
}

/* Runs the kernel REPEATS elements at a time, with the constants as arrays; NULL for those that are none. */
static void run_with_constants(sdgen_map_kernel *kernel, struct sdgen_map_run run, const float *addend, const float *factor)
{
    float repeated[2][REPEATS];
    int64_t n = run.n;
    for (int64_t i = 0; i < sdgen_min(n, REPEATS); i++) {
        repeated[0][i] = addend ? *addend : 0;
        repeated[1][i] = factor ? *factor : 0;
    }
    for (int64_t begin = 0; begin < n; begin += REPEATS) {
        struct sdgen_map_run part = run;
        part.n = sdgen_min(REPEATS, n - begin);
        part.x += begin;
        part.y += begin;
        part.weight = run.weight ? run.weight + begin : NULL;
        part.addend = addend ? repeated[0] : run.addend ? run.addend + begin : NULL;
        part.factor = factor ? repeated[1] : run.factor ? run.factor + begin : NULL;
        kernel(&part);
    }
}

/* Elements [begin, begin + n) of a run of the innermost dimension. */
static void map_run(const struct sdgen_plan *plan, const struct sdgen_map *op, const struct loops *loops, int64_t run_index,
                    int64_t begin, int64_t n)
{
    int64_t place[ARRAYS];
    for (int array = X; array < ARRAYS; array++)
        place[array] = begin * loops->stride[array][0];
    for (int d = 1; d < DIMENSIONS; d++) {
        for (int array = X; array < ARRAYS; array++)
            place[array] += run_index % loops->extent[d] * loops->stride[array][d];
        run_index /= loops->extent[d];
    }
    const float *operands[ARRAYS] = {NULL}, *constants[ARRAYS] = {NULL};
    for (int array = WEIGHT; array < ARRAYS; array++)
        if (operand_of(op, array)->data)
            *(loops->stride[array][0] ? &operands[array] : &constants[array]) = sdgen_at(operand_of(op, array)->data, place[array]);

    struct sdgen_map_run run = {
        .x = sdgen_at(op->x, place[X]),
        .y = (float *)(void *)((char *)op->y + place[Y]),
        .n = n,
        .weight = operands[WEIGHT],
        .addend = operands[ADDEND],
        .factor = operands[FACTOR],
        .scale = op->scale,
        .shift = op->shift,
        .parameter = {op->parameter[0], op->parameter[1]},
    };
    if (constants[WEIGHT]) {
        run.scale *= *constants[WEIGHT];
        run.shift *= *constants[WEIGHT];
    }
    if (constants[ADDEND] && !run.weight) {
        run.shift += *constants[ADDEND];
        constants[ADDEND] = NULL;
    }
    sdgen_map_kernel *kernel = plan->kernels->map[op->function];
    if (constants[ADDEND] || constants[FACTOR])
        run_with_constants(kernel, run, constants[ADDEND], constants[FACTOR]);
    else
        kernel(&run);
}

size_t sdgen_map_work_size(const struct sdgen_plan *plan, const struct sdgen_map *op, int nth)
{
    (void)plan, (void)op, (void)nth;
    return 0;
}

void sdgen_map(const struct sdgen_plan *plan, const struct sdgen_map *op, const struct sdgen_team *team)
{
    struct loops loops = loops_of(op);
    int64_t runs = loops.extent[1] * loops.extent[2] * loops.extent[3];
    /* Items: a part of a long run, or several short runs. */
    struct sdgen_parts parts = sdgen_parts_of(loops.extent[0]);
    int64_t together = parts.count > 1 ? 1 : sdgen_max(1, SDGEN_MAP_BLOCK / loops.extent[0]);
    int64_t items = sdgen_ceil_div(runs, together) * parts.count;
    int64_t first, end;
    while (sdgen_queue_take(sdgen_queue(team), items, 1, items, team->nth, NULL, &first, &end))
        for (int64_t item = first; item < end; item++) {
            int64_t begin = item % parts.count * parts.size, run = item / parts.count * together;
            for (int64_t last = sdgen_min(run + together, runs); run < last; run++)
                map_run(plan, op, &loops, run, begin, sdgen_min(parts.size, loops.extent[0] - begin));
        }
    sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
}
