"""Scores of a panel of queries with tiles of keys, and their exponentials.

The tile is that of a product whose rows are keys and whose columns are queries. When its depth has gone by, the
exponentials are taken in its registers: the multipliers, which those leave idle for the most part, are busy with the
next tile by then, for the processor executes ahead.
"""

from __future__ import annotations

from gen.contract import SCORES, SCORES_KERNEL
from gen.dsl import Assembler, Contract, DslError, Exponential, Kernel, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

OPTIONS = {
    "unroll": 4,  # steps of the depth per pass of the loop
    "align": 32,  # of the loop, bytes
}


class _Scores:
    """One kernel in the making."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.spec = spec
        self.rows, self.width = spec.tile
        self.a = a = Assembler(spec, level, SCORES_KERNEL)
        self.v = vector_unit(a)
        self.vectors = self.width // self.v.lanes
        self.argument = a.argument("scores")
        self.k = a.general("k", "the tile of keys, later the end of it that is reached")
        self.q = a.general("q", "the panel of queries, as far as it is reached")
        self.p = a.general("p", "the tile's scores")
        self.bias = a.general("bias", "the tile's bias, or NULL")
        self.tiles = a.general("tiles", "tiles that are left")
        self.next_k = a.general("next_k", "the next tile of keys")
        self.depth = a.general("depth", "what is left of it")
        self.steps = a.general("steps", "of the chunk")
        self.load = a.general("load", "whether there are sums in p")
        self.count = a.general("count", "passes of the loop that are left")
        self.vector = a.general("vector", "shift, sum or maximum of the panel")
        sums = a.vectors("s[i][v]", "the tile, row by row", self.rows * self.vectors)
        self.sums = [sums[i * self.vectors : (i + 1) * self.vectors] for i in range(self.rows)]
        self.places = [(i, vector) for i in range(self.rows) for vector in range(self.vectors)]

    def field(self, name: str, size: int | None = None) -> Memory:
        """A field of the argument."""
        return at(self.argument, SCORES.offset(name), size=size)

    def place(self, base: Register, i: int, vector: int) -> Memory:
        """A vector of a tile."""
        return at(base, 4 * self.width * i + self.v.bytes * vector)

    def begin_chunk(self) -> None:
        """The sums as they are at the beginning of a part of the depth."""
        self.a.comment("s = 0")
        for i, vector in self.places:
            self.v.zero(self.sums[i][vector])

    def step(self, c: int) -> None:
        """s[i][j] += k[c][i] * q[c][j], c steps after the pointers"""
        for vector, register in enumerate(self.panel):
            self.v.load(register, at(self.q, 4 * self.width * c + self.v.bytes * vector))
        for i, row in enumerate(self.sums):
            x = self.broadcasts[i % len(self.broadcasts)]
            self.v.broadcast(x, at(self.k, 4 * (self.rows * c + i)))
            for total, register in zip(row, self.panel, strict=True):
                self.v.fma(total, x, register)

    def advance(self, steps: int) -> None:
        """The pointers, `steps` further."""
        self.a.ADD(self.k, 4 * self.rows * steps)
        self.a.ADD(self.q, 4 * self.width * steps)

    def chunk(self) -> None:
        """The loop over a part of the depth: passes of `unroll` steps, then single steps."""
        a = self.a
        self.panel = a.vectors("q[v]", "a row of the queries", self.vectors)
        self.broadcasts = a.vectors("x", "elements of keys", max(1, min(2, self.rows, a.free_vectors())))
        unroll = self.spec.option("unroll", OPTIONS["unroll"])
        align = self.spec.option("align", OPTIONS["align"])
        if unroll < 1 or unroll & (unroll - 1):
            raise DslError(f"{self.spec.name}: unroll is {unroll}, but has to be a power of two")
        rest, done = a.label("rest"), a.label("chunk_done")
        a.comment(f"{unroll} steps a pass: s[i][j] += k[c][i] * q[c][j]")
        a.MOV(self.steps, self.field("chunk"))
        a.CMP(self.steps, self.depth)
        a.CMOVA(self.steps, self.depth)
        a.SUB(self.depth, self.steps)
        a.MOV(self.count, self.steps)
        if unroll > 1:
            a.SHR(self.count, unroll.bit_length() - 1)
        else:
            a.TEST(self.count, self.count)  # a shift by 0 leaves the flags as they are
        a.JZ(rest)
        with a.loop("steps", self.count, align):
            for c in range(unroll):
                self.step(c)
            self.advance(unroll)
        a.comment("the steps that are left, one by one")
        a.place(rest)
        a.AND(self.steps, unroll - 1)
        a.JZ(done)
        with a.loop("single_step", self.steps):
            self.step(0)
            self.advance(1)
        a.place(done)
        a.release(*self.panel, *self.broadcasts)

    def product(self) -> None:
        """The sums over the depth, chunk by chunk, those so far being kept in p."""
        a, v = self.a, self.v
        chunks, first, last = a.label("chunks"), a.label("first"), a.label("last")
        a.MOV(self.q, self.field("q"))
        a.MOV(self.depth, self.field("depth"))
        a.MOV(self.load.as_kind("r32"), self.field("load", 4))
        a.place(chunks)
        self.begin_chunk()
        self.chunk()
        a.comment("s = p + s, unless there is none in p")
        a.TEST(self.load.as_kind("r32"), self.load.as_kind("r32"))
        a.JZ(first)
        for i, vector in self.places:
            v.add(self.sums[i][vector], self.sums[i][vector], self.place(self.p, i, vector))
        a.place(first)
        a.TEST(self.depth, self.depth)
        a.JZ(last)
        self.store_raw()
        a.MOV(self.load.as_kind("r32"), 1)
        a.JMP(chunks)
        a.place(last)

    def store_raw(self) -> None:
        """p = s"""
        self.a.comment("p = s")
        for i, vector in self.places:
            self.v.store(self.place(self.p, i, vector), self.sums[i][vector])

    def scores(self) -> None:
        """x = s * scale + bias * bias_scale - shift, and the panel's maximum."""
        a, v = self.a, self.v
        scale, shift, term = a.vector("scale", "scale"), a.vector("shift", "of a vector of queries"), a.vector("x", "")
        no_bias, shifted = a.label("no_bias"), a.label("shifted")
        v.broadcast(scale, self.field("scale"))
        a.MOV(self.vector, self.field("shift"))
        a.TEST(self.bias, self.bias)
        a.JZ(no_bias)
        a.comment("x = s * scale + (bias * bias_scale - shift)")
        for vector in range(self.vectors):
            v.load(shift, at(self.vector, v.bytes * vector))
            for i in range(self.rows):
                v.broadcast(term, self.field("bias_scale"))
                a.VFMSUB132PS(term, shift, self.place(self.bias, i, vector))
                a.VFMADD213PS(self.sums[i][vector], scale, term)
        a.ADD(self.bias, 4 * self.width * self.rows)
        a.JMP(shifted)
        a.place(no_bias)
        a.comment("x = s * scale - shift")
        for i, vector in self.places:
            a.VFMSUB213PS(self.sums[i][vector], scale, at(self.vector, v.bytes * vector))
        a.place(shifted)
        a.comment("maximum = max(maximum, x)")
        a.MOV(self.vector, self.field("maximum"))
        for vector in range(self.vectors):
            v.load(term, at(self.vector, v.bytes * vector))
            for row in self.sums:
                v.maximum(term, row[vector], term)
            v.store(at(self.vector, v.bytes * vector), term)
        a.release(scale, shift, term)

    def exponentials(self) -> None:
        """p = 2^x, and the panel's sum."""
        a, v = self.a, self.v
        a.comment("n = round(x), r = x - n, p = 2^x = 2^n p(r), 0 where x < -126")
        power = Exponential(v)
        a.MOV(self.vector, self.field("sum"))
        for vector in range(self.vectors):
            column = [row[vector] for row in self.sums]
            for i, x in enumerate(column):
                power(x)
                v.store(self.place(self.p, i, vector), x)
            a.comment("sum = sum + the sum of p over the tile, by halves")
            while len(column) > 1:
                half = (len(column) + 1) // 2
                for x, y in zip(column, column[half:], strict=False):
                    v.add(x, x, y)
                column = column[:half]
            v.add(column[0], column[0], at(self.vector, v.bytes * vector))
            v.store(at(self.vector, v.bytes * vector), column[0])
        power.release()

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a = self.a
        a.MOV(self.next_k, self.field("k"))
        a.MOV(self.p, self.field("p"))
        a.MOV(self.bias, self.field("bias"))
        a.MOV(self.tiles, self.field("tiles"))
        exponentials, next_tile = a.label("exponentials"), a.label("next_tile")
        with a.repeat("tile", "JNZ", align=1):
            a.MOV(self.k, self.next_k)
            self.product()
            a.CMP(self.field("raw", 4), 0)
            a.JE(exponentials)
            self.store_raw()
            a.JMP(next_tile)
            a.place(exponentials)
            self.scores()
            self.exponentials()
            a.place(next_tile)
            a.ADD(self.next_k, self.field("k_stride"))
            a.ADD(self.p, 4 * self.width * self.rows)
            a.SUB(self.tiles, 1)
        a.ret()
        return a.finish(
            Contract(
                formula=(
                    "s = (load ? p[t][i][j] : 0) + sum over c < depth of k[t][c][i] * q[c][j]",
                    "raw: p[t][i][j] = s; else, with x = s * scale + bias[t][i][j] * bias_scale - shift[j]:",
                    "p[t][i][j] = x < -126 ? 0 : 2^x;  sum[j] += p[t][i][j];  maximum[j] = max(maximum[j], x)",
                ),
                extents=(
                    f"k: tiles, k_stride bytes apart, of [depth][{self.rows}]; q: [depth][{self.width}];",
                    f"p and bias (or NULL): [tiles][{self.rows}][{self.width}];",
                    f"shift, sum and maximum: [{self.width}]. depth may be 0, chunk and tiles are at least 1.",
                    "All aligned to 4 bytes.",
                ),
                notes=(
                    "Chains of `chunk` summands are added up one after the other, for accuracy.",
                    "2^x is within two units in the last place for x up to 127.",
                ),
            ),
            "gen/attention/scores.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The scores kernel of a tile of `spec.tile` = (keys, queries), queries a multiple of the level's lanes."""
    return _Scores(spec, LEVELS[spec.level]).kernel()


_WIDTHS = {"avx2": (16,), "avx512": (32, 64)}
_MOST_ROWS = 6

KERNELS = tuple(
    KernelSpec("scores", ("f32",), (rows, width), level)
    for level, widths in _WIDTHS.items()
    for width in widths
    for rows in range(1, _MOST_ROWS + 1)
)

FAMILY = Family(
    macro="SDGEN_SCORES_KERNEL",
    columns=("type", "rows", "columns", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
