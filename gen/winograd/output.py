"""Output transform of Winograd's convolution: from taps to the image, for a vector of tiles."""

from __future__ import annotations

from dataclasses import replace

from gen.contract import WINOGRAD_OUTPUT, WINOGRAD_OUTPUT_KERNEL
from gen.dsl import Assembler, Contract, Kernel, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec
from gen.winograd.matrices import ALGORITHMS, algorithm_of
from gen.winograd.quads import LANE, extract, transpose
from gen.winograd.transforms import Constants, emit, formulas, program

OPTIONS: dict[str, int] = {}

_QUAD = 4  # tiles


class _Output:
    """One kernel in the making. A^T is applied to columns of taps first; a row of all tiles is finished at a time."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.m = spec.tile[0]
        self.algorithm = algorithm_of(spec.operation, self.m)
        self.t = self.algorithm.t
        self.a = a = Assembler(spec, level, WINOGRAD_OUTPUT_KERNEL)
        self.v = vector_unit(a)
        self.quads = self.v.lanes // _QUAD

        self.row = self.t * self.v.bytes  # of the intermediate result
        self.stack = a.frame("r[i][j], all columns after A^T, row by row", self.m * self.row)
        self.y = a.generals("y[q]", "row 0 of each quad", self.quads)
        self.y_row = a.general("y_row", "from row 0 to the row that is next, bytes")
        self.src = a.general("src", "first tap of the channel")
        self.tap_stride = a.general("tap_stride", "from tap to tap")
        self.tap_row = a.general("tap_row", "from a row of taps to the next, bytes")
        self.bias = a.general("bias", "the channel's, or NULL")
        self.channels = a.general("channels", "channels that are left")
        self.place = a.general("place", "in r, bytes")
        self.scratch = a.generals("scratch", "rows 0 and 3 of a column of taps; for partial rows", 2)
        self.code = program(self.algorithm.at)

    def field(self, name: str, displacement: int = 0, size: int | None = None) -> Memory:
        """A field of the argument, or a part of it."""
        return at(self.a.argument("output"), WINOGRAD_OUTPUT.offset(name) + displacement, size=size)

    def columns(self, role: str) -> None:
        """r[i][j] = (A^T M)[i] for each column j of taps"""
        a, v = self.a, self.v
        low, high = self.scratch
        a.comment("r[i][j] = (A^T M)[i], M[i] = src[t i + j]", *formulas(self.algorithm.at, "r", "M"))
        a.MOV(low, self.src)
        a.LEA(high, at(low, index=self.tap_row, scale=2))
        a.ADD(high, self.tap_row)
        a.XOR(self.place.as_kind("r32"), self.place.as_kind("r32"))
        with a.repeat(f"{role}_column", "JNE"):

            def load(i: int) -> Register:
                register = a.vector("M[i]", "taps")
                base, step = (low, i) if i < 3 else (high, i - 3)
                v.load(register, at(base, index=self.tap_row if step else None, scale=step or 1))
                return register

            def store(i: int, register: Register) -> None:
                v.store(at(self.stack, self.row * i, index=self.place), register)

            emit(a, self.code, self.constants, load, store)
            a.ADD(low, self.tap_stride)
            a.ADD(high, self.tap_stride)
            a.ADD(self.place, v.bytes)
            a.CMP(self.place, self.row)

    def finish_row(self) -> list[Register]:
        """A row of the image: register p holds pixels 4 p to 4 p + 3 of each quad."""
        a, v = self.a, self.v

        def load(j: int) -> Register:
            register = a.vector("r[j]", "a row after A^T")
            v.load(register, at(self.stack, v.bytes * j, index=self.place))
            return register

        pixels = emit(a, self.code, self.constants, load)
        for register in pixels:
            a.VFMADD213PS(register, self.scale, self.bias_term)
        return self.by_pixel(pixels)

    def by_pixel(self, pixels: list[Register]) -> list[Register]:
        """From a register for each column of a tile to a register for each four pixels of a quad, in their order."""
        a = self.a
        if self.m == 4:
            return transpose(a, pixels)
        low, high = a.vectors("pair", "columns 0 and 1 of the tiles in turn", 2)
        a.VUNPCKLPS(low, *pixels[:2])
        a.VUNPCKHPS(high, *pixels[:2])
        if self.m == 2:
            a.release(*pixels)
            return [low, high]
        # Tiles are columns 0 1 2: of 00 10 20 01 | 11 21 02 12 | 22 03 13 23, the first number the column.
        first, second, third = pixels
        a.VSHUFPS(first, third, low, 0b10_10_00_00)  # 20 20 01 01
        a.VSHUFPS(first, low, first, 0b10_00_01_00)
        a.VSHUFPS(second, low, third, 0b01_01_11_11)  # 11 11 21 21
        a.VSHUFPS(second, second, high, 0b01_00_10_00)
        a.VSHUFPS(low, third, high, 0b10_10_10_10)  # 22 22 03 03
        a.VSHUFPS(third, high, third, 0b11_11_11_11)  # 13 13 23 23
        a.VSHUFPS(third, low, third, 0b10_00_10_00)
        a.release(low, high)
        return [first, second, third]

    def store_full(self, pixels: list[Register]) -> None:
        """All pixels of the row."""
        a = self.a
        for quad, y in enumerate(self.y):
            for p, register in enumerate(pixels):
                place = at(y, LANE * p, index=self.y_row)
                if quad:
                    extract(a, place, register, quad)
                else:
                    a.VMOVUPS(place, register.as_kind("xmm"))

    def store_partial(self, pixels: list[Register]) -> None:
        """Those pixels of the row that exist: four by four, two, one."""
        a = self.a
        to, left = self.scratch
        whole = a.vector("part", "four pixels of one quad")
        part = whole.as_kind("xmm")
        for quad, y in enumerate(self.y):
            tail, one, done = (a.label(f"quad{quad}_{role}") for role in ("tail", "one", "done"))
            a.comment(f"quad {quad}: nothing where row >= rows, else {4 * self.m} pixels or `columns`")
            a.MOV(left.as_kind("r32"), self.row)
            a.IMUL(left.as_kind("r32"), self.field("rows", 4 * quad))
            a.CMP(self.place, left)
            a.JAE(done)
            a.LEA(to, at(y, index=self.y_row))
            a.MOV(left.as_kind("r32"), self.field("columns", 4 * quad))
            for p, register in enumerate(pixels):
                if quad:
                    extract(a, part, register, quad)
                else:
                    a.VMOVAPS(part, register.as_kind("xmm"))
                a.SUB(left, _QUAD)
                a.JB(tail)
                a.VMOVUPS(at(to), part)
                if p + 1 < len(pixels):
                    a.ADD(to, LANE)
            a.JMP(done)
            a.place(tail)
            a.TEST(left.as_kind("r32"), 2)
            a.JZ(one)
            a.VMOVLPS(at(to), part)
            a.ADD(to, 8)
            a.VMOVHLPS(part, part, part)
            a.place(one)
            a.TEST(left.as_kind("r32"), 1)
            a.JZ(done)
            a.VMOVSS(at(to), part)
            a.place(done)
        a.release(whole)

    def channel(self, role: str) -> None:
        """All channels, where all tiles exist entirely (full) or not (partial)."""
        a, v = self.a, self.v
        with a.loop(role, self.channels):
            self.columns(role)
            unbiased = a.label(f"{role}_unbiased")
            self.bias_term = a.vector("bias", "of the channel")
            v.zero(self.bias_term)
            a.TEST(self.bias, self.bias)
            a.JZ(unbiased)
            v.broadcast(self.bias_term, at(self.bias))
            a.ADD(self.bias, 4)
            a.place(unbiased)
            a.comment("y[i] = (A^T r)[j] * scale + bias, tiles side by side", *formulas(self.algorithm.at, "y", "r"))
            a.XOR(self.place.as_kind("r32"), self.place.as_kind("r32"))
            a.XOR(self.y_row.as_kind("r32"), self.y_row.as_kind("r32"))
            with a.repeat(f"{role}_row", "JNE"):
                pixels = self.finish_row()
                if role == "full":
                    self.store_full(pixels)
                else:
                    self.store_partial(pixels)
                a.release(*pixels)
                a.ADD(self.y_row, self.field("row_stride"))
                a.ADD(self.place, self.row)
                a.CMP(self.place, self.m * self.row)
            a.release(self.bias_term)
            for y in self.y:
                a.ADD(y, self.field("channel_stride"))
            a.ADD(self.src, self.field("src_channel_stride"))

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a, v = self.a, self.v
        done, partial = a.label("done"), a.label("partial_tiles")
        a.MOV(self.channels, self.field("channels"))
        a.TEST(self.channels, self.channels)
        a.JZ(done)
        for quad, y in enumerate(self.y):
            a.MOV(y, self.field("y", 8 * quad))
        a.MOV(self.src, self.field("src"))
        a.MOV(self.tap_stride, self.field("tap_stride"))
        a.IMUL(self.tap_row, self.tap_stride, self.t)
        a.MOV(self.bias, self.field("bias"))
        self.constants = Constants(v, [self.code])
        self.scale = a.vector("scale", "of everything")
        v.broadcast(self.scale, self.field("scale"))

        a.comment("do all tiles of all quads exist entirely?")
        for name, whole in (("rows", self.m), ("columns", _QUAD * self.m)):
            for quad in range(self.quads):
                a.CMP(self.field(name, 4 * quad, size=4), whole)
                a.JNE(partial)
        self.channel("full")
        a.place(done)
        a.ret()
        a.place(partial)
        self.channel("partial")
        a.ret()
        return a.finish(
            Contract(
                formula=(
                    f"y[i][{self.m} l + j] = (A^T M A)[i][j] * scale + bias[c], M[tap] = src[tap][c][4 q + l]",
                    f"for row i of quad q of channel c: q < {self.quads}, l < 4, tap < {self.t * self.t}, i < rows[q],",
                    f"{self.m} l + j < columns[q]",
                ),
                extents=(
                    f"src: {self.t * self.t} taps, tap_stride bytes apart, of channels src_channel_stride bytes apart,",
                    f"each of {v.lanes} tiles.",
                    f"y[q]: channels, channel_stride bytes apart, of rows[q] <= {self.m} rows,",
                    f"row_stride bytes apart, of columns[q] <= {4 * self.m} pixels. bias: [channels] or NULL.",
                    "channels may be 0.",
                    "All aligned to 4 bytes. Nothing else is read or written.",
                ),
            ),
            "gen/winograd/output.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The output transform, for tiles of `spec.tile` = (m, m)."""
    return _Output(spec, LEVELS[spec.level]).kernel()


_LEVELS = ("avx2", "avx512")

KERNELS = tuple(KernelSpec("winograd_output", ("f32",), (m, m), level) for level in _LEVELS for m in ALGORITHMS)

UP_KERNELS = tuple(KernelSpec("winograd_output_up", ("f32",), (2, 2), level) for level in _LEVELS)

FAMILY = Family(
    macro="SDGEN_WINOGRAD_OUTPUT_KERNEL",
    columns=("m", "lanes", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.tile[0], LEVELS[spec.level].lanes, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)

UP_FAMILY = replace(FAMILY, macro="SDGEN_WINOGRAD_OUTPUT_UP_KERNEL", kernels=UP_KERNELS)
