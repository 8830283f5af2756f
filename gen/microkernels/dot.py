"""Matrix product of few rows in single precision: nothing is packed, as each weight is used a few times only.

Lanes run along k. Each element of the tile has sums of its own, vectors called chains, whose lanes become one number at
the end. Weights are converted to single precision as they are loaded. How the elements beyond whole vectors are loaded
is another class for each instruction set.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from itertools import pairwise

from gen.contract import DOT, DOT_OUTPUT
from gen.dsl import Assembler, Contract, DslError, Kernel, Memory, Register, VectorUnit, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec

# Measured on one core of a Zen 5, F16 weights from memory, rows of 1536 to 4096: for a row of x prefetching makes 45 to
# 70 GB/s of 25 to 40, for four rows of x 28 to 53 of 14 to 23; 1x1 needs none, reads w in one piece and makes 44 to 60;
# ggml 40 to 50. For a row of x the next tile in one piece is 15% faster than row by row where k is 3072 or 4096 and 20%
# slower where it is 1536; for four rows of x it is slower throughout. Weights in L3 lose by prefetching, 85 of 108 GB/s
# with AVX-512 and 60 of 80 to 95 with AVX2, but a model's are rarely there. To fetch into L2 only, one line of two, or
# between the steps is no better.
OPTIONS = {
    "unroll": 1,  # passes over the chains, and over a line of each row of w, in a pass of the loop
    "align": 32,  # of the loop, bytes
    "prefetch": 1,  # 1: the next tile's rows of w while this one's are used, 0: nothing; tiles of one column never do
}

_ELEMENT_SIZE = {"f32": 4, "f16": 2, "bf16": 2}
_LINE = 64
_MOVES = {1: "VMOVSS", 2: "VMOVSD", 4: "VMOVUPS"}  # of so many numbers

_Load = Callable[[Register, Memory, str], None]


class _Tile(ABC):
    """One kernel in the making: its registers and the parts of its code."""

    last: str  # what happens to the elements beyond whole vectors, for the banner

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.spec = spec
        (self.type,), (self.rows, self.columns) = spec.types, spec.tile
        self.size = _ELEMENT_SIZE[self.type]
        # Enough sums to hide the latency of a multiply-add, and registers left to feed them.
        fitting = [n for n in (4, 2) if self.rows * self.columns * n <= level.vector_registers // 2]
        self.chains = fitting[0] if fitting else 1
        self.a = a = Assembler(spec, level, DOT)
        self.v: VectorUnit = vector_unit(a)

        if self.columns not in _MOVES:
            raise DslError(f"{spec.name}: there are {self.columns} columns, but can be {', '.join(map(str, _MOVES))}")
        unroll = self.option("unroll")
        if unroll < 1:
            raise DslError(f"{spec.name}: unroll is {unroll}, but has to be at least 1")
        self.vectors = unroll * max(self.chains, _LINE // (self.size * self.v.lanes))  # of a row in a pass
        self.prefetches = self.option("prefetch") and self.columns > 1

        sums = a.vectors("sum[i][j][u]", "chain u of each element of the tile", self.rows * self.columns * self.chains)
        chains = [sums[n : n + self.chains] for n in range(0, len(sums), self.chains)]
        self.sums = [chains[n : n + self.columns] for n in range(0, len(chains), self.columns)]
        # The rows of x or those of w, whichever are fewer, are held for a step while the others pass by.
        self.holds_x = self.rows <= self.columns
        held, passing = ("x", "w") if self.holds_x else ("w", "x")
        self.held = a.vectors("held", f"a vector of each row of {held}", min(self.rows, self.columns))
        self.passing = a.vector("passing", f"a vector of one row of {passing} after the other")

    def option(self, name: str) -> int:
        """The value of an option."""
        return self.spec.option(name, OPTIONS[name])

    def ends(self, name: str, count: int, size: int) -> tuple[Register, ...]:
        """The ends of the rows of x or w; the first is in the argument's register."""
        a, first, k = self.a, self.a.argument(name), self.a.argument("k")
        ends = (first, *a.generals(f"{name}_end[n]", f"ends of the rows of {name}, from row 1 on", count - 1))
        a.comment(f"{name}_end[n] = {name} + n {name}_stride + k elements, that of row 0 in {name}'s register")
        a.LEA(first, at(first, index=k, scale=size))
        for previous, end in pairwise(ends):
            a.LEA(end, at(previous, index=a.argument(f"{name}_stride")))
        return ends

    def begin(self) -> None:
        """The ends of the rows, the place before them, sums of zero."""
        a = self.a
        if self.prefetches:
            tile = f"{self.columns} w_stride"
            a.comment(f"ahead = w + {tile}" if self.rows == 1 else f"ahead = {tile} - k, in elements")
        self.ahead = a.general("ahead", "place in the next tile's rows of w") if self.prefetches else None
        if self.ahead:
            a.IMUL(self.ahead, a.argument("w_stride"), self.columns)
            if self.rows == 1:
                a.ADD(self.ahead, a.argument("w"))
            else:
                a.SAR(self.ahead, self.size.bit_length() - 1)
                a.SUB(self.ahead, a.argument("k"))
        self.x_ends = self.ends("x", self.rows, 4)
        a.release(a.argument("x_stride"))
        self.w_ends = self.ends("w", self.columns, self.size)
        a.release(a.argument("w_stride"))
        a.comment("index = -k, in k's register: the place in all rows, in elements before their ends")
        self.index = a.argument("k")
        a.NEG(self.index)
        a.comment("sum = 0")
        for row in self.sums:
            for chains in row:
                for total in chains:
                    self.v.zero(total)

    def step(self, load: _Load, u: int = 0, displacement: int = 0, whole: bool = False) -> None:
        """sum[i][j][u] += x[i] * w[j], a vector of each row; a whole one may be an operand in memory."""
        xs = [(at(end, 4 * displacement, index=self.index, scale=4), "f32") for end in self.x_ends]
        ws = [(at(end, self.size * displacement, index=self.index, scale=self.size), self.type) for end in self.w_ends]
        held, passing = (xs, ws) if self.holds_x else (ws, xs)
        for register, (place, type_) in zip(self.held, held, strict=True):
            load(register, place, type_)
        for n, (place, type_) in enumerate(passing):
            is_operand = whole and type_ == "f32" and len(held) == 1
            if not is_operand:
                load(self.passing, place, type_)
            for m, register in enumerate(self.held):
                i, j = (m, n) if self.holds_x else (n, m)
                self.v.fma(self.sums[i][j][u], register, place if is_operand else self.passing)

    def whole_step(self, vector: int, displacement: int) -> None:
        """A whole vector of each row, by its number."""
        self.step(self.v.load_widened, vector % self.chains, displacement, whole=True)

    def prefetch(self, ahead: Register, elements: int) -> None:
        """As much of the next tile's rows of w as a pass takes: for a single row of x in one piece, else row by row."""
        size = self.size * elements
        if self.rows == 1:
            places = [at(ahead, line) for line in range(0, self.columns * size, _LINE)]
        else:
            lines = range(0, size, _LINE)
            places = [at(end, line, index=ahead, scale=self.size) for end in self.w_ends for line in lines]
        for place in places:
            self.a.PREFETCHT0(place)
        self.a.ADD(ahead, self.columns * size if self.rows == 1 else elements)

    def product(self) -> None:
        """The loop over k: passes, then single vectors, then what is left."""
        a, lanes, elements = self.a, self.v.lanes, self.v.lanes * self.vectors
        few, rest, done = a.label("few"), a.label("rest"), a.label("product_done")
        a.comment(
            f"{elements} elements of each row a pass:",
            f"sum[i][j][u] += x[i][p] * w[j][p], u = {f'p / {lanes} mod {self.chains}' if self.chains > 1 else 0}",
        )
        a.ADD(self.index, elements)
        a.JG(few)
        with a.repeat("pass", "JLE", self.option("align")):
            if self.ahead:
                self.prefetch(self.ahead, elements)
            for vector in range(self.vectors):
                self.whole_step(vector, lanes * vector - elements)
            a.ADD(self.index, elements)

        a.comment("vector by vector")
        a.place(few)
        a.SUB(self.index, elements - lanes)
        for vector in range(self.vectors - 1):
            a.JG(rest)
            self.whole_step(vector, -lanes)
            a.ADD(self.index, lanes)
        a.comment("the elements that are left, to chain 0")
        a.place(rest)
        a.SUB(self.index, lanes)
        a.JZ(done)
        self.rest()
        a.place(done)
        if self.ahead:
            a.release(self.ahead)
        a.release(*self.held, self.passing, *self.x_ends, *self.w_ends)

    @abstractmethod
    def rest(self) -> None:
        """The elements that are left: at least one, fewer than a vector's lanes."""

    def joined(self, chains: tuple[Register, ...]) -> Register:
        """The first register = the sum of all, neighbours first."""
        distance = 1
        while distance < len(chains):
            for u in range(0, len(chains), 2 * distance):
                self.v.add(chains[u], chains[u], chains[u + distance])
            distance *= 2
        self.a.release(*chains[1:])
        return chains[0]

    def numbers(self, totals: list[Register]) -> Register:
        """An xmm register = the sums of the lanes of the vectors, side by side: four, two or one of them."""
        a = self.a
        high = a.vector("high", "upper halves of sums")
        for total in totals:
            self.v.fold(total, high)
        a.release(high)
        wide = [total.as_kind("ymm") for total in totals]
        for _ in ("lanes 2 n and 2 n + 1", "lanes 4 n to 4 n + 3"):
            for first, second in zip(wide[::2], wide[1::2] or wide, strict=True):
                a.VHADDPS(first, first, second)
            wide = wide[::2]
        a.release(*totals[1:])
        high = a.vector("high", "upper halves of sums")
        low, upper = wide[0].as_kind("xmm"), high.as_kind("xmm")
        a.VEXTRACTF128(upper, wide[0], 1)
        a.VADDPS(low, low, upper)
        a.release(high)
        return low

    def move(self, count: int) -> Callable[[Register | Memory, Register | Memory], None]:
        """The instruction that moves so many numbers, between memory and the low lanes of a register."""
        instruction: Callable[[Register | Memory, Register | Memory], None] = getattr(self.a, _MOVES[count])
        return instruction

    def finish(self) -> None:
        """Sums become numbers and go to C."""
        a, output, move = self.a, self.a.argument("output"), self.move(self.columns)
        c = a.general("c", "a row of C")
        stride = a.general("c_stride", "from it to the next")
        bias = a.general("bias", "column_bias")
        unbiased = a.label("unbiased")

        if self.chains > 1:
            a.comment(f"the chains of each sum: {self.order_of_chains()}")
        totals = [[self.joined(chains) for chains in row] for row in self.sums]
        a.comment(f"t[i][j] = the lanes of sum[i][j]: {self.order_of_lanes()}")
        rows = [self.numbers(row) for row in totals]
        a.comment("t = t * scale")
        term = a.vector("term", "what t is multiplied by, then what is added").as_kind("xmm")
        self.v.broadcast(term, at(output, DOT_OUTPUT.offset("scale")))
        for row in rows:
            a.VMULPS(row, row, term)

        a.comment("t = t + column_bias[j]")
        a.MOV(bias, at(output, DOT_OUTPUT.offset("column_bias")))
        a.TEST(bias, bias)
        a.JZ(unbiased)
        move(term, at(bias))
        for row in rows:
            a.VADDPS(row, row, term)
        a.place(unbiased)

        a.comment("c = t")
        a.MOV(c, at(output, DOT_OUTPUT.offset("c")))
        if self.rows > 1:
            a.MOV(stride, at(output, DOT_OUTPUT.offset("c_stride")))
        for i, row in enumerate(rows):
            if i:
                a.ADD(c, stride)
            move(at(c), row)
        a.ret()

    def order_of_chains(self) -> str:
        """How chains are added."""
        return {1: "0", 2: "0 + 1", 4: "(0 + 1) + (2 + 3)"}[self.chains]

    def order_of_lanes(self) -> str:
        """How lanes are added."""
        order = "((0 + 1) + (2 + 3)) + ((4 + 5) + (6 + 7))"
        return order if self.v.lanes == 8 else f"l + (l + 8), then {order}"

    def notes(self) -> tuple[str, ...]:
        """The order of the sums, for the banner."""
        lanes = self.v.lanes
        chain, chains = "one chain", ""
        if self.chains > 1:
            chain, chains = f"chain n mod {self.chains}", f"the chains are added, {self.order_of_chains()}, then "
        return (
            f"Sums are all made in one order: elements {lanes} n to {lanes} n + {lanes - 1} go to the lanes of {chain}",
            f"by fused multiply-adds, n upwards, {self.last}.",
            f"Then {chains}the lanes: {self.order_of_lanes()}.",
            "The product with the scale and the sum with the bias are rounded one by one.",
        )

    def kernel(self) -> Kernel:
        """The whole kernel."""
        self.begin()
        self.product()
        self.finish()
        return self.a.finish(
            Contract(
                formula=("c[i][j] = (sum over p < k of x[i][p] * w[j][p]) * scale + column_bias[j]",),
                extents=(
                    f"x: [{self.rows}][k], rows of x_stride bytes.",
                    f"w: [{self.columns}][k] of type {self.type}, rows of w_stride bytes.",
                    "Strides may be negative; k may be 0.",
                    f"c: [{self.rows}][{self.columns}], rows of c_stride bytes. column_bias: [{self.columns}] or NULL.",
                    "All aligned to their elements. Nothing else is read or written.",
                ),
                notes=self.notes(),
            ),
            "gen/microkernels/dot.py",
        )


class _Parts(_Tile):
    """AVX2: four, two and one of the elements that are left, each from lane 0 on; the other lanes are 0."""

    last = "then those beyond whole vectors to chain 0, four, two and one of them, from lane 0 on"

    def rest(self) -> None:
        a = self.a
        left = a.general("left", "elements that are left").as_kind("r32")
        a.MOV(left, self.index.as_kind("r32"))
        a.NEG(left)
        for count in (4, 2, 1):
            skip = a.label(f"no_{count}")
            a.TEST(left, count)
            a.JZ(skip)
            self.step(partial(self.load, count))
            if count > 1:
                a.ADD(self.index, count)
            a.place(skip)

    def load(self, count: int, dst: Register, src: Memory, type_: str) -> None:
        """dst = so many elements, and 0"""
        low = dst.as_kind("xmm")
        if type_ == "f32":
            self.move(count)(low, src)
        elif count == 4:
            self.v.widen(low, src, type_)
        else:
            if count == 2:
                self.a.VMOVSS(low, src)
            else:
                self.a.VPXOR(low, low, low)
                self.a.VPINSRW(low, low, src, 0)
            self.v.widen(low, low, type_)


class _Masked(_Tile):
    """AVX-512: masked lanes."""

    last = "then those beyond whole vectors to chain 0, from lane 0 on"

    def rest(self) -> None:
        left, scratch = self.a.generals("left", "elements that are left, for the mask", 2)
        self.a.MOV(left, self.index)
        self.a.NEG(left)
        self.step(partial(self.load, self.v.tail_mask("mask", left, scratch)))

    def load(self, mask: Register, dst: Register, src: Memory, type_: str) -> None:
        """dst = the elements in the mask, and 0"""
        if type_ == "f32":
            self.v.load_masked(dst, mask, src)
        else:
            half = dst.as_kind("ymm")
            self.a.VMOVDQU16(half.masked(mask, zeroing=True), src)
            self.v.widen(dst, half, type_)


def build(spec: KernelSpec) -> Kernel:
    """The product kernel of a tile of `spec.tile` = (rows of x, rows of w: 1, 2 or 4), w of `spec.types`."""
    kind: type[_Tile] = _Parts if spec.level == "avx2" else _Masked
    return kind(spec, LEVELS[spec.level]).kernel()


# (rows of x, rows of w) of the tiles; those of a single row of w are made as well, for the rows that are left. Shares
# of the peak on a Zen 5, weights of 16 bits, everything in L2: with AVX-512 1x4 52%, 2x4 80%, 3x4 88%, 4x4 93%; with
# AVX2 1x4 70%, 2x4 85%, 3x4 98%; single rows of w 38% to 78%.
#   4x4 with AVX2: its 16 sums leave no register. 4x2: 88%, no better than 3x4 and 1x4 in turn.
#   1x8: no faster than 1x4 from L2.
_TILES = {
    "avx2": ((1, 4), (2, 4), (3, 4)),
    "avx512": ((1, 4), (2, 4), (3, 4), (4, 4)),
}

KERNELS = tuple(
    KernelSpec("dot", (type_,), (rows, columns), level)
    for level, tiles in _TILES.items()
    for type_ in _ELEMENT_SIZE
    for rows, most in tiles
    for columns in (1, most)
)

FAMILY = Family(
    macro="SDGEN_DOT_KERNEL",
    columns=("type", "rows", "columns", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], *spec.tile, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
