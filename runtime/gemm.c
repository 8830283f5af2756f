#include "gemm.h"

#include "memory.h"
#include "schedule.h"

/* Fewest rows that packed A is cut to: each packed number of B is used once for each, and packing one costs about as much as four
 * products. Where even so few rows are too deep, the depth is cut. */
enum { LEAST_CHUNK_ROWS = 384 };

/* Rows handed out apart where there are too few columns for this many shares a thread. */
enum { LEAST_SHARES = 4 };

/* Parts of these rows that are handed out apart where little is left: so many that all there is makes PARTS a thread, for then one part
 * is less than 5% of it even to a thread that takes twice as long as others; but none of fewer than PART_ROWS rows, of which packing
 * the columns once more costs a sixteenth. */
enum { PARTS = 32, PART_ROWS = 64 };

/* The sums of one element are made in at least so many chains where none gets shorter than this, for the error of a sum of numbers of
 * either sign falls with the number of chains it is made in: half a million sums of 36 to 320 products err by up to 2.7e-7 to 3.6e-7 of
 * the magnitudes summed in one chain, 1.5e-7 to 2.4e-7 in two, and 1.2e-7 to 1.7e-7 in three. */
enum { LEAST_CHAINS = 3, LEAST_CHAIN = 12 };

/* A block of a gated product, of which both halves are to stay in L2: fewer rows are handed out at a time, and fewer columns. */
enum { GATED_ROWS = 256, GATED_COLUMNS = 256 };

/* How a product is cut; the same for every thread. */
struct cut {
    int64_t depth_step;    /* length of a chain of sums, a multiple of 4; the last may be shorter */
    int64_t slab;          /* depth that is packed at a time; all of it but where that would take too much memory */
    int64_t chunks;        /* of A's rows */
    int64_t units;         /* (batch of A, chunk): what is packed together */
    int64_t group;         /* units packed at a time */
    int64_t unit_size;     /* numbers that the largest packed unit holds */
    int64_t nc;            /* columns a thread packs at a time */
    int64_t band;          /* ... and takes at a time */
    int64_t column_panels;
    int64_t row_shares;    /* shares that the rows of a unit are handed out in */
    int64_t parts;         /* of a share, in the end */
};

/* Panels of columns; those of the products that share A come one after the other, each a whole number. */
static int64_t panels_of(const struct sdgen_gemm *gemm)
{
    return sdgen_ceil_div(gemm->columns, gemm->tile.columns);
}

static struct cut cut_of(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, int nth)
{
    const struct sdgen_blocking *blocking = &plan->blocking;
    struct cut cut;
    int64_t chains = sdgen_min(LEAST_CHAINS, sdgen_max(gemm->depth / LEAST_CHAIN, 1));
    int64_t depth_blocks = sdgen_max(sdgen_ceil_div(gemm->depth, blocking->kc), chains);
    cut.depth_step = sdgen_ceil_div(sdgen_ceil_div(gemm->depth, depth_blocks), 4) * 4;

    int64_t most_depth = blocking->packed_bytes / (LEAST_CHUNK_ROWS * (int64_t)sizeof(float));
    cut.slab = sdgen_min(sdgen_max(most_depth / cut.depth_step, 1) * cut.depth_step, gemm->depth);
    if (gemm->gated)
        cut.slab = gemm->depth;
    int64_t row_bytes = cut.slab * (int64_t)sizeof(float);
    int64_t most_rows = sdgen_max(blocking->packed_bytes / row_bytes, gemm->gated ? gemm->tile.rows : LEAST_CHUNK_ROWS);
    cut.chunks = sdgen_ceil_div(gemm->rows, most_rows);
    int64_t chunk_rows = sdgen_ceil_div(gemm->rows, cut.chunks);
    cut.unit_size = chunk_rows * cut.slab;
    cut.units = cut.chunks * (gemm->a_shared ? 1 : gemm->batches);
    cut.group = sdgen_min(cut.units, sdgen_max(blocking->packed_bytes / (chunk_rows * row_bytes), 1));

    int64_t nc = gemm->gated ? sdgen_min(blocking->nc, GATED_COLUMNS) : blocking->nc;
    cut.nc = sdgen_max(nc / gemm->tile.columns, 1) * gemm->tile.columns;
    cut.column_panels = panels_of(gemm);
    int64_t most_panels = cut.column_panels;
    for (const struct sdgen_gemm *more = gemm->more; more; more = more->more) {
        cut.column_panels += panels_of(more);
        most_panels = sdgen_max(most_panels, panels_of(more));
    }
    cut.nc = sdgen_min(cut.nc, most_panels * gemm->tile.columns);
    if (gemm->band)
        cut.nc = sdgen_min(cut.nc, gemm->band);
    cut.band = gemm->band ? gemm->band : cut.nc;
    int64_t products = cut.column_panels * cut.group * (gemm->a_shared ? gemm->batches : 1);
    int64_t row_panels = sdgen_ceil_div(chunk_rows, gemm->tile.rows);
    cut.row_shares = nth == 1 ? 1 : sdgen_min(sdgen_ceil_div((int64_t)LEAST_SHARES * nth, products), row_panels);
    if (gemm->gated)
        cut.row_shares = sdgen_min(sdgen_max(cut.row_shares, sdgen_ceil_div(chunk_rows, GATED_ROWS)), row_panels);
    products *= cut.row_shares;
    int64_t most_parts = sdgen_max(chunk_rows / (cut.row_shares * PART_ROWS), 1);
    cut.parts = nth == 1 ? 1 : sdgen_min(sdgen_ceil_div((int64_t)PARTS * nth, products), most_parts);
    return cut;
}

void sdgen_gemm_pack_columns(const struct sdgen_gemm *gemm, const struct sdgen_kernels *kernels, enum sdgen_type type, const char *src,
                             int64_t stride, int64_t columns, int64_t depth, float *dst)
{
    const int64_t width = gemm->tile.columns;
    for (int64_t j = 0; j < columns; j += width)
        kernels->pack[type][width]((size_t)depth, (size_t)sdgen_min(columns - j, width), src + j * stride, (ptrdiff_t)stride,
                                   dst + j * depth);
}

/* A unit of A: the rows [row, row + rows) of one batch, in `panels` panels whose heights differ by one at most. */
struct unit {
    int64_t batch, row, rows, panels;
};

static struct unit unit_of(const struct sdgen_gemm *gemm, const struct cut *cut, int64_t index)
{
    struct unit unit;
    unit.batch = index / cut->chunks;
    int64_t chunk = index % cut->chunks;
    unit.row = chunk * gemm->rows / cut->chunks;
    unit.rows = (chunk + 1) * gemm->rows / cut->chunks - unit.row;
    unit.panels = sdgen_ceil_div(unit.rows, gemm->tile.rows);
    return unit;
}

/* First row of a panel, counted from the unit's first. */
static int64_t panel_row(const struct unit *unit, int64_t panel)
{
    return panel * unit->rows / unit->panels;
}

/* Working memory: the packed A of a group of units, and for each thread the packed B. */
struct work {
    float *a;
    float *b;    /* this thread's */
    float *gate; /* this thread's, where the product is gated: [rows of a share][nc] */
};

static size_t a_size(const struct cut *cut)
{
    return sdgen_floats_size(cut->group * cut->unit_size);
}

static size_t b_size(const struct cut *cut)
{
    return sdgen_floats_size(cut->nc * cut->depth_step);
}

static size_t gate_size(const struct sdgen_gemm *gemm, const struct cut *cut)
{
    if (!gemm->gated)
        return 0;
    int64_t panels = sdgen_ceil_div(sdgen_ceil_div(gemm->rows, cut->chunks), gemm->tile.rows);
    return sdgen_floats_size(sdgen_ceil_div(panels, cut->row_shares) * gemm->tile.rows * cut->nc);
}

size_t sdgen_gemm_work_size(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, int nth)
{
    struct cut cut = cut_of(plan, gemm, nth);
    return SDGEN_LINE + a_size(&cut) + (size_t)nth * (b_size(&cut) + gate_size(gemm, &cut));
}

static struct work work_of(const struct sdgen_gemm *gemm, const struct cut *cut, const struct sdgen_team *team)
{
    char *base = sdgen_first_line(team->work);
    struct work work;
    work.a = (float *)(void *)base;
    base += a_size(cut) + (size_t)team->ith * (b_size(cut) + gate_size(gemm, cut));
    work.b = (float *)(void *)base;
    work.gate = (float *)(void *)(base + b_size(cut));
    return work;
}

/* A stretch of the depth: a slab, of which the packed A is there. */
struct slab {
    int64_t begin, end;
};

/* Packed A of a unit: for each block of the slab, panel after panel, [depth of the block][rows of the panel]. No B is packed yet. */
static void pack_panel(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct cut *cut, const struct unit *unit,
                       int64_t panel, struct slab slab, float *unit_a, const struct work *work)
{
    int64_t row = panel_row(unit, panel), rows = panel_row(unit, panel + 1) - row;
    if (gemm->prepare_a)
        gemm->prepare_a(gemm, plan->kernels, unit->batch, unit->row + row, rows, work->b);
    for (int64_t begin = slab.begin; begin < slab.end; begin += cut->depth_step) {
        int64_t end = sdgen_min(begin + cut->depth_step, slab.end);
        float *dst = unit_a + unit->rows * (begin - slab.begin) + row * (end - begin);
        gemm->pack_a(gemm, plan->kernels, unit->batch, unit->row + row, rows, begin, end, dst, work->b);
    }
}

static void pack_group(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct cut *cut,
                       const struct sdgen_team *team, const struct work *work, struct slab slab, int64_t first_unit, int64_t units)
{
    int64_t most_panels = sdgen_ceil_div(sdgen_ceil_div(gemm->rows, cut->chunks), gemm->tile.rows);
    int64_t begin, end;
    while (sdgen_queue_take(sdgen_queue(team), units * most_panels, 1, most_panels, team->nth, NULL, &begin, &end))
        for (int64_t item = begin; item < end; item++) {
            struct unit unit = unit_of(gemm, cut, first_unit + item / most_panels);
            if (item % most_panels < unit.panels)
                pack_panel(plan, gemm, cut, &unit, item % most_panels, slab, work->a + item / most_panels * cut->unit_size, work);
        }
    sdgen_phase(team, SDGEN_PHASE_PACK);
}

/* What is multiplied at a time: a unit's panels [first, last) by some columns of C. */
struct block {
    const struct unit *unit;
    const float *a; /* the unit's */
    int64_t first, last;
    int64_t batch, column, columns; /* columns <= band */
};

/* Adds the products of a block's A with packed columns of B, for p in [begin, end), to t: rows of t_stride bytes, the first that of the
 * first panel. In the end, what becomes of the sums where `after`. */
static void multiply_packed(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct sdgen_team *team,
                            const struct block *block, int64_t begin, int64_t end, const float *a, const float *b, int64_t column,
                            int64_t columns, char *t, int64_t t_stride, bool after)
{
    const struct unit *unit = block->unit;
    const int64_t panels_step = sdgen_max(plan->blocking.mc / gemm->tile.rows, 1), depth = end - begin;
    const int64_t batches[2] = {block->batch % gemm->batch0, block->batch / gemm->batch0}, first_row = panel_row(unit, block->first);
    const bool last = end == gemm->depth;
    for (int64_t mc_panel = block->first; mc_panel < block->last; mc_panel += panels_step) {
        int64_t mc_end = sdgen_min(mc_panel + panels_step, block->last);
        for (int64_t j = 0; j < columns; j += gemm->tile.columns) {
            struct sdgen_epilogue epilogue = {
                .columns = (int32_t)sdgen_min(columns - j, gemm->tile.columns),
                .accumulate = begin > 0 || gemm->accumulate,
                .scale = last ? gemm->scale : 1.0f,
                .column_bias = last && gemm->column_bias ? gemm->column_bias + column + j : NULL,
            };
            for (int64_t panel = mc_panel; panel < mc_end; panel++) {
                int64_t row = panel_row(unit, panel), rows = panel_row(unit, panel + 1) - row;
                epilogue.row_bias = last && gemm->row_bias ? gemm->row_bias + unit->row + row : NULL;
                gemm->tile.gemm[rows]((size_t)depth, a + row * depth, b + j * depth,
                                      (float *)(void *)(t + (row - first_row) * t_stride) + j, (size_t)t_stride, &epilogue);
            }
        }
        sdgen_phase(team, SDGEN_PHASE_PRODUCT);
        if (last && after) {
            int64_t row = panel_row(unit, mc_panel), rows = panel_row(unit, mc_end) - row;
            float *to = (float *)(void *)(t + (row - first_row) * t_stride);
            sdgen_after_apply(plan->kernels, &gemm->after, batches, unit->row + row, rows, column, columns, to, t_stride, to, t_stride);
            sdgen_phase(team, SDGEN_PHASE_EPILOGUE);
        }
    }
}

/* The sums of a block with the columns of B from `column` on, to t as above. */
static void multiply_columns(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct cut *cut,
                             const struct sdgen_team *team, const struct block *block, struct slab slab, int64_t column, float *b,
                             char *t, int64_t t_stride, bool after)
{
    for (int64_t begin = slab.begin; begin < slab.end; begin += cut->depth_step) {
        int64_t end = sdgen_min(begin + cut->depth_step, slab.end);
        const float *a = block->a + block->unit->rows * (begin - slab.begin);
        if (gemm->prepare_b) {
            gemm->prepare_b(gemm, plan->kernels, block->batch, column, block->columns, begin, end);
            sdgen_phase(team, SDGEN_PHASE_ELEMENTS);
        }
        for (int64_t j = 0; j < block->columns; j += cut->nc) {
            int64_t columns = sdgen_min(block->columns - j, cut->nc);
            gemm->pack_b(gemm, plan->kernels, block->batch, column + j, columns, begin, end, b);
            sdgen_phase(team, SDGEN_PHASE_PACK);
            multiply_packed(plan, gemm, team, block, begin, end, a, b, column + j, columns, t + j * (int64_t)sizeof(float), t_stride,
                            after);
        }
    }
}

static void multiply_block(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct cut *cut,
                           const struct sdgen_team *team, const struct block *block, struct slab slab, const struct work *work)
{
    const int64_t first_row = panel_row(block->unit, block->first);
    char *c = (char *)gemm->c(gemm, block->batch) + (block->unit->row + first_row) * gemm->c_stride +
              block->column * (int64_t)sizeof(float);
    if (!gemm->gated) {
        multiply_columns(plan, gemm, cut, team, block, slab, block->column, work->b, c, gemm->c_stride, sdgen_after_any(&gemm->after));
        return;
    }
    const int64_t gate_stride = cut->nc * (int64_t)sizeof(float), rows = panel_row(block->unit, block->last) - first_row;
    multiply_columns(plan, gemm, cut, team, block, slab, gemm->columns + block->column, work->b, (char *)work->gate, gate_stride, false);
    multiply_columns(plan, gemm, cut, team, block, slab, block->column, work->b, c, gemm->c_stride, false);
    for (int64_t row = 0; row < rows; row++) {
        float *to = (float *)(void *)(c + row * gemm->c_stride);
        plan->kernels->map[gemm->after.function](&(struct sdgen_map_run){
            .x = work->gate + row * cut->nc,
            .y = to,
            .n = block->columns,
            .factor = to,
            .scale = 1,
            .parameter = {gemm->after.parameter[0], gemm->after.parameter[1]},
        });
    }
    sdgen_phase(team, SDGEN_PHASE_EPILOGUE);
}

static void multiply_group(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct cut *cut,
                           const struct sdgen_team *team, const struct work *work, struct slab slab, int64_t first_unit,
                           int64_t units)
{
    /* Items: parts of shares, within column panels of all products, within shares of a unit's rows, within batches of C, within units. */
    int64_t panels = cut->column_panels;
    int64_t batches = gemm->a_shared ? gemm->batches : 1;
    int64_t parts = cut->parts, shares = cut->row_shares, items = units * batches * shares * panels * parts, taken = 0, begin, end;
    while (sdgen_queue_take(sdgen_queue(team), items, parts, cut->band / gemm->tile.columns * parts, team->nth, &taken, &begin, &end))
        while (begin < end) {
            int64_t run = begin / parts / panels, run_end = sdgen_min(end, (run + 1) * panels * parts);
            int64_t share = run % shares, batch = run / shares % batches, index = run / shares / batches;
            struct unit unit = unit_of(gemm, cut, first_unit + index);
            const struct sdgen_gemm *product = gemm;
            int64_t first = 0; /* of the product's panels */
            for (; begin / parts % panels >= first + panels_of(product); product = product->more)
                first += panels_of(product);
            run_end = sdgen_min(run_end, (run * panels + first + panels_of(product)) * parts);
            int64_t column = (begin / parts % panels - first) * gemm->tile.columns;
            int64_t column_end = sdgen_min(column + sdgen_ceil_div(run_end - begin, parts) * gemm->tile.columns, product->columns);
            int64_t part = share * parts + begin % parts, part_end = share * parts + (run_end - 1) % parts + 1;
            int64_t first_panel = part * unit.panels / (shares * parts), last_panel = part_end * unit.panels / (shares * parts);
            const struct block block = {
                .unit = &unit,
                .a = work->a + index * cut->unit_size,
                .first = first_panel,
                .last = last_panel,
                .batch = gemm->a_shared ? batch : unit.batch,
                .column = column,
                .columns = column_end - column,
            };
            if (first_panel < last_panel)
                multiply_block(plan, product, cut, team, &block, slab, work);
            begin = run_end;
        }
}

void sdgen_gemm(const struct sdgen_plan *plan, const struct sdgen_gemm *gemm, const struct sdgen_team *team)
{
    struct cut cut = cut_of(plan, gemm, team->nth);
    struct work work = work_of(gemm, &cut, team);
    for (int64_t begin = 0; begin < gemm->depth; begin += cut.slab) {
        struct slab slab = {begin, sdgen_min(begin + cut.slab, gemm->depth)};
        for (int64_t unit = 0; unit < cut.units; unit += cut.group) {
            int64_t units = sdgen_min(cut.group, cut.units - unit);
            pack_group(plan, gemm, &cut, team, &work, slab, unit, units);
            sdgen_wait(team);
            multiply_group(plan, gemm, &cut, team, &work, slab, unit, units);
            if (unit + units < cut.units || slab.end < gemm->depth)
                sdgen_wait(team);
        }
    }
}
