"""Matrix product of packed panels in single precision.

The tile of C stays in registers while k goes by: each step loads a row of B, broadcasts one element of A after the
other, and adds their outer product.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from gen.contract import EPILOGUE, GEMM
from gen.dsl import Assembler, Contract, DslError, Kernel, Memory, Register, VectorUnit, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

# Measured at 512 bits on a Zen 5, 6x32, 6x64 and 8x48 with k = 320: 4 and 8 steps a pass reach 98% of the peak, 2 lose
# 1 to 4 points; prefetching B 512 or 1024 bytes ahead or aligning the loop to 64 bytes gains nothing.
OPTIONS = {
    "unroll": 4,  # steps of k per pass of the loop
    "align": 32,  # of the loop, bytes
    "prefetch_a": 0,  # bytes ahead, 0: none
    "prefetch_b": 0,
}

_LINE = 64
_WIDE_PANEL = 16  # rows of the panel that gemm16 takes A from
_ONE = 0x3F800000  # 1.0 in single precision


class _Tile:
    """One kernel in the making: its registers and the parts of its code."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.rows, self.width = spec.tile
        self.spec = spec
        self.a_width = _WIDE_PANEL if spec.operation == "gemm16" else self.rows
        self.a = Assembler(spec, level, GEMM)
        self.v: VectorUnit = vector_unit(self.a)
        self.vectors = self.width // self.v.lanes

        # Rows of C are reached from a base every three rows: base, base + stride, base + 2 stride.
        more = -(-self.rows // 3) - 1
        self.c_rows = (self.a.argument("c"), *self.a.generals("c_rows", "every third row of C, from row 3 on", more))
        sums = self.a.vectors("sum[i][v]", "the tile, row by row", self.rows * self.vectors)
        self.sums = [sums[i * self.vectors : (i + 1) * self.vectors] for i in range(self.rows)]
        self.b = self.a.vectors("b[v]", "a row of B", self.vectors)
        self.x = self.a.vectors("x", "elements of A", max(1, min(2, self.rows, self.a.free_vectors())))

    def field(self, name: str, size: int | None = None) -> Memory:
        """A field of the epilogue."""
        return at(self.a.argument("epilogue"), EPILOGUE.offset(name), size=size)

    def c_row(self, row: int, displacement: int) -> Memory:
        """A place in a row of C."""
        base, step = self.c_rows[row // 3], row % 3
        return at(base, displacement, index=self.a.argument("c_stride") if step else None, scale=step or 1)

    def begin(self) -> None:
        """The addresses of C's rows, both ends of each row on their way to the cache, sums of zero."""
        a, stride = self.a, self.a.argument("c_stride")
        if len(self.c_rows) > 1:
            a.comment("c_rows[n] = c + 3 n c_stride")
        for previous, base in zip(self.c_rows, self.c_rows[1:], strict=False):
            a.LEA(base, at(previous, index=stride, scale=2))
            a.ADD(base, stride)
        a.comment("the tile of C is needed at the end; a row of it may lie in two lines")
        for row in range(self.rows):
            for displacement in (*range(0, 4 * self.width, _LINE), 4 * self.width - 1):
                a.PREFETCHT0(self.c_row(row, displacement))
        a.comment("sum = 0")
        for totals in self.sums:
            for total in totals:
                self.v.zero(total)

    def step(self, p: int) -> None:
        """sum[i][j] += a[p][i] * b[p][j], p steps after the panels' pointers"""
        a, b = self.a.argument("a"), self.a.argument("b")
        for vector, register in enumerate(self.b):
            self.v.load(register, at(b, 4 * self.width * p + self.v.bytes * vector))
        for i, row in enumerate(self.sums):
            x = self.x[i % len(self.x)]
            self.v.broadcast(x, at(a, 4 * (self.a_width * p + i)))
            for total, register in zip(row, self.b, strict=True):
                self.v.fma(total, x, register)

    def advance(self, steps: int) -> None:
        """The panels' pointers, `steps` further."""
        self.a.ADD(self.a.argument("a"), 4 * self.a_width * steps)
        self.a.ADD(self.a.argument("b"), 4 * self.width * steps)

    def prefetch(self, panel: str, distance: int, size: int) -> None:
        """Fetches `size` bytes of a panel from `distance` bytes ahead."""
        for line in range(0, size if distance else 0, _LINE):
            self.a.PREFETCHT0(at(self.a.argument(panel), distance + line))

    def product(self) -> None:
        """The loop over k: passes of `unroll` steps, then single steps."""
        a, k = self.a, self.a.argument("k")
        count = a.general("count", "passes of the loop that are left")
        unroll = self.spec.option("unroll", OPTIONS["unroll"])
        align = self.spec.option("align", OPTIONS["align"])
        if unroll < 1 or unroll & (unroll - 1):
            raise DslError(f"{self.spec.name}: unroll is {unroll}, but has to be a power of two")
        rest, done = a.label("rest"), a.label("product_done")

        a.comment(f"{unroll} steps a pass: sum[i][j] += a[p][i] * b[p][j]")
        a.MOV(count, k)
        if unroll > 1:
            a.SHR(count, unroll.bit_length() - 1)
        else:
            a.TEST(count, count)  # a shift by 0 leaves the flags as they are
        a.JZ(rest)
        with a.loop("steps", count, align):
            self.prefetch("a", self.spec.option("prefetch_a", OPTIONS["prefetch_a"]), 4 * self.a_width * unroll)
            self.prefetch("b", self.spec.option("prefetch_b", OPTIONS["prefetch_b"]), 4 * self.width * unroll)
            for p in range(unroll):
                self.step(p)
            self.advance(unroll)

        a.comment("the steps that are left, one by one")
        a.place(rest)
        a.AND(k, unroll - 1)
        a.JZ(done)
        with a.loop("single_step", k):
            self.step(0)
            self.advance(1)
        a.place(done)
        a.release(*self.b, *self.x, count, k, a.argument("a"), a.argument("b"))

    def finish(self, role: str, vectors: range, mask: Register | None) -> None:
        """Epilogue of some of the tile's vectors, all of it, or one vector with those lanes that the mask has."""
        a, v = self.a, self.v
        term = a.vector("term", "what the epilogue adds or multiplies by")
        bias = a.general("bias", "address of a bias")
        places = [(i, vector) for i in range(self.rows) for vector in vectors]

        a.comment("t = accumulate ? c + sum : sum")
        overwrite = a.label(f"{role}_overwrite")
        a.CMP(self.field("accumulate", 4), 0)
        a.JE(overwrite)
        for i, vector in places:
            total, c = self.sums[i][vector], self.c_row(i, v.bytes * vector)
            if mask:
                v.load_masked(term, mask, c)
                v.add(total, total, term)
            else:
                v.add(total, total, c)
        a.place(overwrite)

        a.comment("t = t * scale")
        unscaled = a.label(f"{role}_unscaled")
        a.CMP(self.field("scale", 4), _ONE)
        a.JE(unscaled)
        v.broadcast(term, self.field("scale"))
        for i, vector in places:
            v.multiply(self.sums[i][vector], self.sums[i][vector], term)
        a.place(unscaled)

        a.comment("t = t + row_bias[row]")
        no_row_bias = a.label(f"{role}_no_row_bias")
        a.MOV(bias, self.field("row_bias"))
        a.TEST(bias, bias)
        a.JZ(no_row_bias)
        for i, row in enumerate(self.sums):
            v.broadcast(term, at(bias, 4 * i))
            for vector in vectors:
                v.add(row[vector], row[vector], term)
        a.place(no_row_bias)

        a.comment("t = t + column_bias[column]")
        no_column_bias = a.label(f"{role}_no_column_bias")
        a.MOV(bias, self.field("column_bias"))
        a.TEST(bias, bias)
        a.JZ(no_column_bias)
        for vector in vectors:
            if mask:
                v.load_masked(term, mask, at(bias, v.bytes * vector))
            else:
                v.load(term, at(bias, v.bytes * vector))
            for row in self.sums:
                v.add(row[vector], row[vector], term)
        a.place(no_column_bias)

        a.comment("c = t")
        for i, vector in places:
            if mask:
                v.store_masked(self.c_row(i, v.bytes * vector), mask, self.sums[i][vector])
            else:
                v.store(self.c_row(i, v.bytes * vector), self.sums[i][vector])
        a.release(term, bias)

    def finish_partial(self, columns: Register) -> None:
        """Epilogue where the tile is wider than C: vector by vector, the lanes below `columns`."""
        a = self.a
        scratch = a.general("scratch", "for the mask")
        done = a.label("partial_done")
        for vector in range(self.vectors):
            if vector:
                a.comment(f"nothing is left where columns <= {vector * self.v.lanes}")
                a.MOV(columns.as_kind("r32"), self.field("columns"))
                a.SUB(columns.as_kind("r32"), vector * self.v.lanes)
                a.JBE(done)
            a.comment(f"mask[lane] = {vector * self.v.lanes} + lane < columns")
            mask = self.v.tail_mask("mask", columns, scratch)
            self.finish(f"partial{vector}", range(vector, vector + 1), mask)
            a.release(mask)
        a.place(done)
        a.ret()

    def panels(self) -> str:
        """Their extents, for the banner."""
        if self.a_width == self.rows:
            return f"a: [k][{self.rows}] and b: [k][{self.width}], packed without gaps; k may be 0."
        return f"a: [k][{self.rows}], {self.a_width} elements apart, b: [k][{self.width}] without gaps; k may be 0."

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a = self.a
        self.begin()
        self.product()
        partial = a.label("partial")
        a.comment(f"a full tile has {self.width} columns")
        columns = a.general("columns", "columns that exist")
        a.MOV(columns.as_kind("r32"), self.field("columns"))
        a.CMP(columns.as_kind("r32"), self.width)
        a.JNE(partial)
        self.finish("full", range(self.vectors), None)
        a.ret()
        a.place(partial)
        self.finish_partial(columns)
        return a.finish(
            Contract(
                formula=(
                    "c[i][j] = epilogue(sum over p < k of a[p][i] * b[p][j])",
                    "epilogue(t): t = accumulate ? c + t : t;  t *= scale;  t += row_bias[i];  t += column_bias[j]",
                ),
                extents=(
                    self.panels(),
                    f"c: [{self.rows}][columns], rows of c_stride bytes, 1 <= columns <= {self.width}.",
                    f"row_bias: [{self.rows}] or NULL, column_bias: [columns] or NULL. All aligned to 4 bytes.",
                    "Nothing else is read or written; C is read only where accumulate is set.",
                ),
                notes=("Each element is one chain of fused multiply-adds in the order of p.",),
            ),
            "gen/microkernels/gemm_f32.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The product kernel of a tile of `spec.tile` = (rows, columns), columns a multiple of the level's lanes."""
    return _Tile(spec, LEVELS[spec.level]).kernel()


# (most rows, columns) of the tiles; every smaller number of rows is made as well. Loads per multiply-add at 512 bits:
# 6x32 0.67, 8x48 0.46, 6x64 0.42. A Zen 5 reaches 98% of its peak with each; llvm-mca's model of Skylake-X, which
# charges loads an arithmetic port, says 86% for 6x32 and 100% for the other two. With few rows the wide ones are ahead:
# 3x64 94%, 3x48 89%, 3x32 69% on a Zen 5.
#   9x48: no faster than 8x48 on a Zen 5 (98%), and it leaves no register.
_TILES = {
    "avx2": ((6, 16),),
    "avx512": ((6, 32), (6, 64), (8, 48)),
}


# Beside those, of products whose A is a part of the rows of a panel of sixteen: all of the rows by one vector, for
# images of so few tiles that a wider panel would be padded. It loads 1.06 vectors for each multiply-add.
_NARROW_TILES = {"avx2": (), "avx512": ((16, 16),)}


def _specs(operation: str, tiles: Mapping[str, Sequence[tuple[int, int]]]) -> tuple[KernelSpec, ...]:
    """Kernels of tiles of each level, with every smaller number of rows."""
    return tuple(
        KernelSpec(operation, ("f32",), (rows, columns), level)
        for level, shapes in tiles.items()
        for most, columns in shapes
        for rows in range(1, most + 1)
    )


KERNELS = _specs("gemm", _TILES)
GEMM16_KERNELS = (*_specs("gemm16", _TILES), *_specs("gemm16", _NARROW_TILES))

FAMILY = Family(
    macro="SDGEN_GEMM_KERNEL",
    columns=("type", "rows", "columns", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)

GEMM16_FAMILY = replace(FAMILY, macro="SDGEN_GEMM16_KERNEL", kernels=GEMM16_KERNELS)
