"""Input transform of Winograd's convolution: from the image to taps, for a vector of tiles."""

from __future__ import annotations

from gen.contract import WINOGRAD_INPUT, WINOGRAD_INPUT_KERNEL
from gen.dsl import Assembler, Contract, Kernel, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec
from gen.winograd.matrices import ALGORITHMS
from gen.winograd.quads import LANE, Taps, insert, transpose
from gen.winograd.transforms import Constants, emit, formulas, program

OPTIONS: dict[str, int] = {}

_QUAD = 4  # tiles
_QUADS = 4  # that the argument has room for


class _Input:
    """One kernel in the making.

    Four neighbours of each of four tiles, at m l for tile l, become the tiles' columns 0 to 3 by a transposition; with
    a fifth load, at 4 m, columns 4 and 5 are columns m - 4 and m - 3 of the following tile. B^T is applied to rows
    first, while the neighbours are as they were loaded: to fewer vectors than there are columns.
    """

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.m = spec.tile[0]
        self.algorithm = ALGORITHMS[self.m]
        self.t = self.algorithm.t
        self.loads = 4 if self.t == 4 else 5
        self.a = a = Assembler(spec, level, WINOGRAD_INPUT_KERNEL)
        self.v = vector_unit(a)
        self.quads = self.v.lanes // _QUAD

        self.row = self.loads * self.v.bytes  # of the intermediate result
        self.stack = a.frame("r[i][s], all loads after B^T, row by row", self.t * self.row)
        self.x = a.generals("x[q]", "row 0 of each quad, at the load that is next", self.quads)
        self.row_stride = a.general("row_stride", "of the image")
        self.row_stride3 = a.general("row_stride3", "three times that")
        self.row_stride5 = a.general("row_stride5", "five times that") if self.t > 5 else None
        self.dst = a.general("dst", "first tap of the channel")
        self.tap_stride = a.general("tap_stride", "from tap to tap")
        self.taps = Taps(a, self.t, self.tap_stride)
        self.channels = a.general("channels", "channels that are left")
        self.place = a.general("place", "in r, bytes")
        self.code = program(self.algorithm.bt)

    def field(self, name: str, displacement: int = 0, index: Register | None = None, size: int | None = None) -> Memory:
        """A field of the argument, or a part of it."""
        # Masks of a load are _QUADS lanes apart, what r holds for it as many as there are quads.
        scale = _QUADS // self.quads if index else 1
        base, displacement = self.a.argument("input"), WINOGRAD_INPUT.offset(name) + displacement
        return at(base, displacement, index=index, scale=scale, size=size)

    def image(self, quad: int, row: int) -> Memory:
        """The next load of a quad's row."""
        index, scale = {
            0: (None, 1),
            3: (self.row_stride3, 1),
            5: (self.row_stride5, 1),
        }.get(row, (self.row_stride, row))
        return at(self.x[quad], index=index, scale=scale)

    def load(self, row: int) -> Register:
        """L[row], all of it from memory"""
        neighbours = self.a.vector("L[i]", "four neighbours of a row of each quad")
        for quad in range(self.quads):
            insert(self.a, neighbours, self.image(quad, row), quad)
        return neighbours

    def load_masked(self, row: int, masks: tuple[Register, ...]) -> Register:
        """L[row], 0 where it is masked away"""
        a = self.a
        neighbours = a.vector("L[i]", "four neighbours of a row of each quad")
        other = a.vector("mask", "of a load's row; what it loads")
        for quad, mask in enumerate(masks):
            part = (other if quad else neighbours).as_kind("xmm")
            row_mask = self.field("row_mask", LANE * (_QUADS * row + quad))
            a.VANDPS(part, mask.as_kind("xmm"), row_mask)
            a.VMASKMOVPS(part, part, self.image(quad, row))
            if quad:
                insert(a, neighbours, part, quad)
        a.release(other)
        return neighbours

    def columns(self, masked: bool) -> None:
        """r[i][s] = (B^T L)[i] for each load s"""
        a, v = self.a, self.v
        role = "masked" if masked else "whole"
        a.comment(f"{role} loads: r[i][s] = (B^T L)[i], L[i] = load s of row i", *formulas(self.algorithm.bt, "r", "L"))
        a.XOR(self.place.as_kind("r32"), self.place.as_kind("r32"))
        with a.repeat(f"{role}_load", "JNE"):

            def store(i: int, register: Register) -> None:
                v.store(at(self.stack, self.row * i, index=self.place), register)

            if masked:
                masks = a.vectors("mask[q]", "of the load", self.quads)
                for quad, mask in enumerate(masks):
                    a.VMOVUPS(mask.as_kind("xmm"), self.field("load_mask", LANE * quad, index=self.place))
                emit(a, self.code, self.constants, lambda i: self.load_masked(i, masks), store)
                a.release(*masks)
            else:
                emit(a, self.code, self.constants, self.load, store)
            for x in self.x:
                a.ADD(x, 4 * self.m)
            a.ADD(self.place, v.bytes)
            a.CMP(self.place, self.row)

    def rows(self) -> None:
        """dst[tap] = (r B)[tap], row by row"""
        a, v = self.a, self.v
        a.comment("dst[t i + j] = (B^T c)[j], c[j] = column j of row i of r", *formulas(self.algorithm.bt, "dst", "c"))
        self.taps.start(self.dst)
        a.XOR(self.place.as_kind("r32"), self.place.as_kind("r32"))
        with a.repeat("row", "JNE"):
            loads = a.vectors("load", "loads after B^T", self.loads)
            for s, register in enumerate(loads):
                v.load(register, at(self.stack, v.bytes * s, index=self.place))
            c = transpose(a, loads[:4])
            if self.t > 4:
                # lanes 1 to 3 of a column of the following tile's, then that of the fifth load
                last = loads[4]
                following = a.vectors("column", "columns of a transposition", self.t - 4)
                for n, register in enumerate(following):
                    column = n + 4 - self.m
                    if column == 0:
                        a.VPALIGNR(register, last, c[0], 4)
                    else:
                        a.VMOVSHDUP(register, last)
                        a.VPALIGNR(register, register, c[column], 4)
                a.release(last)
                c += following

            def store(j: int, register: Register) -> None:
                v.store(self.taps.place(j), register)

            emit(a, self.code, self.constants, lambda j: c[j], store)
            self.taps.next_row()
            a.ADD(self.place, self.row)
            a.CMP(self.place, self.row * self.t)

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a = self.a
        done, masked, loaded = a.label("done"), a.label("masked"), a.label("loaded")
        a.MOV(self.channels, self.field("channels"))
        a.TEST(self.channels, self.channels)
        a.JZ(done)
        for quad, x in enumerate(self.x):
            a.MOV(x, self.field("x", 8 * quad))
        a.MOV(self.row_stride, self.field("row_stride"))
        a.LEA(self.row_stride3, at(self.row_stride, index=self.row_stride, scale=2))
        if self.row_stride5:
            a.LEA(self.row_stride5, at(self.row_stride, index=self.row_stride, scale=4))
        a.MOV(self.dst, self.field("dst"))
        a.MOV(self.tap_stride, self.field("tap_stride"))
        self.constants = Constants(self.v, [self.code])

        with a.loop("channel", self.channels):
            a.CMP(self.field("masked", size=8), 0)
            a.JNE(masked)
            self.columns(masked=False)
            a.place(loaded)
            self.rows()
            for x in self.x:
                a.ADD(x, self.field("channel_stride"))
                a.SUB(x, 4 * self.m * self.loads)
            a.ADD(self.dst, self.field("dst_channel_stride"))
        a.place(done)
        a.ret()
        a.place(masked)
        self.columns(masked=True)
        a.JMP(loaded)
        return a.finish(
            Contract(
                formula=(
                    f"dst[tap][c][4 q + l] = (B^T d B)[tap], q < {self.quads}, l < 4, tap < {self.t * self.t}",
                    f"d[i][j] = row i of quad q of channel c, at {self.m} l + j; 0 where it is masked away",
                ),
                extents=(
                    f"x[q]: {self.t} rows of each channel, row_stride and channel_stride bytes apart. In each row are",
                    f"{self.loads} loads of four neighbours, load s at {self.m} s. Where `masked` is 0 all are",
                    "read, else the lanes set both in load_mask[s][q] and, for row i, in row_mask[i][q].",
                    f"dst: {self.t * self.t} taps, tap_stride bytes apart, of channels dst_channel_stride bytes apart,",
                    f"each of {self.v.lanes} tiles. channels may be 0.",
                    "All aligned to 4 bytes. Nothing else is read or written.",
                ),
            ),
            "gen/winograd/input.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The input transform of F(m x m, 3 x 3), `spec.tile` = (m, m)."""
    return _Input(spec, LEVELS[spec.level]).kernel()


_LEVELS = ("avx2", "avx512")

KERNELS = tuple(KernelSpec("winograd_input", ("f32",), (m, m), level) for level in _LEVELS for m in ALGORITHMS)

FAMILY = Family(
    macro="SDGEN_WINOGRAD_INPUT_KERNEL",
    columns=("m", "lanes", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.tile[0], LEVELS[spec.level].lanes, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
