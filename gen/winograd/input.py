"""Input transform of Winograd's convolution: from the image to taps, for a vector of tiles."""

from __future__ import annotations

from dataclasses import replace

from gen.contract import WINOGRAD_INPUT, WINOGRAD_INPUT_KERNEL
from gen.dsl import Assembler, Contract, Kernel, Label, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec
from gen.winograd.matrices import ALGORITHMS, algorithm_of
from gen.winograd.quads import LANE, Taps, insert, transpose
from gen.winograd.transforms import Constants, emit, formulas, program

OPTIONS: dict[str, int] = {}

_QUAD = 4  # tiles
_QUADS = 4  # that the argument has room for
_LAST = 7  # the load of F(3x3) that is for the last tile alone


class _Input:
    """One kernel in the making.

    Four neighbours of each of four tiles, at m l for tile l, become the tiles' columns 0 to 3 by a transposition. The
    columns beyond are columns 4 - m and 5 - m of the following tile; what the last tile needs of them is a fifth load,
    at 3 m + 4. B^T is applied to rows first, while the neighbours are as they were loaded: to fewer vectors than there
    are columns.

    Of an image that is to be doubled, each tile takes three neighbours, a pixel further than the tile before: the loads
    are the columns as they are.
    """

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        self.m = spec.tile[0]
        self.algorithm = algorithm_of(spec.operation, self.m)
        self.t = self.algorithm.t
        self.step = self.m if self.t > 3 else 1  # pixels from a tile to the next, and from a load to the next
        self.loads = min(self.t, 5)
        self.even_loads = 4 if self.m == 3 else self.loads  # those that are a step apart
        self.advance = 4 * (self.step * self.even_loads + self.loads - self.even_loads)  # bytes, by all of them
        self.a = a = Assembler(spec, level, WINOGRAD_INPUT_KERNEL)
        self.v = vector_unit(a)
        self.quads = self.v.lanes // _QUAD

        self.row = self.loads * self.v.bytes  # of the intermediate result
        self.flags = self.t * self.row  # where they are on the stack
        self.stack = a.frame(
            "r[i][s], all loads after B^T, row by row; masked[s], a vector apart", self.flags + self.row
        )
        self.x = a.generals("x[q]", "row 0 of each quad, at the load that is next", self.quads)
        self.row_stride = a.general("row_stride", "of the image")
        self.row_stride3 = a.general("row_stride3", "three times that") if self.t > 3 else None
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

    def find_masked(self) -> None:
        """masked[s] = whether any lane of a load is masked away in any row"""
        a, flag, ready = self.a, self.place.as_kind("r32"), self.a.label("ready")
        a.comment("masked[s] = 0")
        a.XOR(flag, flag)
        for s in range(self.loads):
            a.MOV(at(self.stack, self.flags + self.v.bytes * s, size=4), flag)
        a.CMP(self.field("masked", size=8), 0)
        a.JE(ready)
        a.comment("masked[s] = not all of load_mask[s][q] and row_mask[i][q]")
        registers = a.vectors("existing", "lanes that exist in all rows; of a load", 2)
        rows, load = (register.as_kind("xmm") for register in registers)
        a.VPCMPEQD(rows, rows, rows)
        for i in range(self.t):
            for quad in range(self.quads):
                a.VANDPS(rows, rows, self.field("row_mask", LANE * (_QUADS * i + quad)))
        for s in range(self.loads):
            first = s if s < self.even_loads else _LAST
            for quad in range(self.quads):
                a.VANDPS(load, load if quad else rows, self.field("load_mask", LANE * (_QUADS * first + quad)))
            a.VMOVMSKPS(flag, load)
            a.XOR(flag, 0b1111)
            a.MOV(at(self.stack, self.flags + self.v.bytes * s, size=4), flag)
        a.release(*registers)
        a.place(ready)

    def store(self, i: int, register: Register) -> None:
        """r[i][s] = register, s as `place` says"""
        self.v.store(at(self.stack, self.row * i, index=self.place), register)

    def column(self, role: str) -> tuple[Label, Label]:
        """r[i][s] = (B^T L)[i] for the next load; where code for a masked one is to begin, and where it has to go on"""
        a = self.a
        masked, done = a.label(f"masked_{role}"), a.label(f"{role}_done")
        a.CMP(at(self.stack, self.flags, index=self.place, size=4), 0)
        a.JNE(masked)
        emit(a, self.code, self.constants, self.load, self.store)
        a.place(done)
        return masked, done

    def masked_column(self, begin: Label, end: Label, skipped: int) -> None:
        """The same for a load with lanes that are masked away; its masks are so many loads further than s."""
        a = self.a
        a.comment("r[i][s] = (B^T L)[i] of a masked load")
        a.place(begin)
        masks = a.vectors("mask[q]", "of the load", self.quads)
        for quad, mask in enumerate(masks):
            load_mask = self.field("load_mask", LANE * (_QUADS * skipped + quad), index=self.place)
            a.VMOVUPS(mask.as_kind("xmm"), load_mask)
        emit(a, self.code, self.constants, lambda i: self.load_masked(i, masks), self.store)
        a.release(*masks)
        a.JMP(end)

    def columns(self) -> list[tuple[Label, Label, int]]:
        """r[i][s] = (B^T L)[i] for each load s; the arguments of masked_column for what is left to be written"""
        a, v = self.a, self.v
        a.comment("r[i][s] = (B^T L)[i], L[i] = load s of row i", *formulas(self.algorithm.bt, "r", "L"))
        a.XOR(self.place.as_kind("r32"), self.place.as_kind("r32"))
        with a.repeat("load", "JNE"):
            left = [(*self.column("column"), 0)]
            for x in self.x:
                a.ADD(x, 4 * self.step)
            a.ADD(self.place, v.bytes)
            a.CMP(self.place, v.bytes * self.even_loads)
        if self.even_loads < self.loads:
            a.comment("the last load, a pixel further than the others go on")
            for x in self.x:
                a.ADD(x, 4)
            left.append((*self.column("last_column"), _LAST - self.even_loads))
        return left

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
            c = list(loads) if self.t == 3 else transpose(a, loads[:4])
            if self.t > 4:
                # column 4 + n: that of the following tiles, lanes 1 to 3, then element n of the fifth load
                following = a.vectors("column", "columns of a transposition", self.t - 4)
                for n, register in enumerate(following):
                    last = loads[4]
                    if n:
                        a.VMOVSHDUP(register, last)
                        last = register
                    a.VPALIGNR(register, last, c[4 - self.m + n], 4)
                a.release(loads[4])
                c += following

            def store(j: int, register: Register) -> None:
                v.store(self.taps.place(j), register)

            emit(a, self.code, self.constants, lambda j: c[j], store)
            self.taps.next_row()
            a.ADD(self.place, self.row)
            a.CMP(self.place, self.row * self.t)

    def where(self) -> str:
        """Where the loads are, for the banner."""
        if self.even_loads == self.loads:
            return f"load s at {self.step} s, s < {self.loads}"
        return f"load s at {self.step} s, s < {self.even_loads}, and load {_LAST} at {3 * self.m + 4}"

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a = self.a
        done = a.label("done")
        a.MOV(self.channels, self.field("channels"))
        a.TEST(self.channels, self.channels)
        a.JZ(done)
        for quad, x in enumerate(self.x):
            a.MOV(x, self.field("x", 8 * quad))
        a.MOV(self.row_stride, self.field("row_stride"))
        if self.row_stride3:
            a.LEA(self.row_stride3, at(self.row_stride, index=self.row_stride, scale=2))
        if self.row_stride5:
            a.LEA(self.row_stride5, at(self.row_stride, index=self.row_stride, scale=4))
        a.MOV(self.dst, self.field("dst"))
        a.MOV(self.tap_stride, self.field("tap_stride"))
        self.find_masked()
        self.constants = Constants(self.v, [self.code])

        with a.loop("channel", self.channels):
            left = self.columns()
            self.rows()
            for x in self.x:
                a.ADD(x, self.field("channel_stride"))
                a.SUB(x, self.advance)
            a.ADD(self.dst, self.field("dst_channel_stride"))
        a.place(done)
        a.ret()
        for part in left:
            self.masked_column(*part)
        return a.finish(
            Contract(
                formula=(
                    f"dst[tap][c][4 q + l] = (B^T d B)[tap], q < {self.quads}, l < 4, tap < {self.t * self.t}",
                    f"d[i][j] = row i of quad q of channel c, at {self.step} l + j; 0 where it is masked away",
                ),
                extents=(
                    f"x[q]: {self.t} rows of each channel, row_stride and channel_stride bytes apart. In each row are",
                    f"loads of four neighbours: {self.where()}. Where `masked` is 0 all are",
                    "read, else the lanes set both in load_mask[s][q] and, for row i, in row_mask[i][q].",
                    f"dst: {self.t * self.t} taps, tap_stride bytes apart, of channels dst_channel_stride bytes apart,",
                    f"each of {self.v.lanes} tiles. channels may be 0.",
                    "All aligned to 4 bytes. Nothing else is read or written.",
                ),
            ),
            "gen/winograd/input.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The input transform, for output tiles of `spec.tile` = (m, m)."""
    return _Input(spec, LEVELS[spec.level]).kernel()


_LEVELS = ("avx2", "avx512")

KERNELS = tuple(KernelSpec("winograd_input", ("f32",), (m, m), level) for level in _LEVELS for m in ALGORITHMS)

UP_KERNELS = tuple(KernelSpec("winograd_input_up", ("f32",), (2, 2), level) for level in _LEVELS)

FAMILY = Family(
    macro="SDGEN_WINOGRAD_INPUT_KERNEL",
    columns=("m", "lanes", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.tile[0], LEVELS[spec.level].lanes, spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)

UP_FAMILY = replace(FAMILY, macro="SDGEN_WINOGRAD_INPUT_UP_KERNEL", kernels=UP_KERNELS)
