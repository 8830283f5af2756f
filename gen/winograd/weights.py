"""Weight transform of Winograd's convolution, for sixteen output channels."""

from __future__ import annotations

from dataclasses import replace

from gen.contract import WINOGRAD_WEIGHTS_KERNEL
from gen.dsl import Assembler, Contract, Kernel, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS, Level
from gen.spec import KernelSpec
from gen.winograd.matrices import ALGORITHMS, KERNEL, algorithm_of
from gen.winograd.quads import Taps
from gen.winograd.transforms import Constants, Program, emit, formulas, program, row_groups

OPTIONS: dict[str, int] = {}

_CHANNELS = 16  # output channels
_BYTES = 4 * _CHANNELS


class _Weights:
    """One kernel in the making. A pair of rows of G g is kept in registers while both rows of taps are made from it."""

    def __init__(self, spec: KernelSpec, level: Level) -> None:
        algorithm = algorithm_of(spec.operation, spec.tile[0])
        self.g, self.t = algorithm.g, algorithm.t
        self.a = a = Assembler(spec, level, WINOGRAD_WEIGHTS_KERNEL)
        self.v = vector_unit(a)
        self.taps = Taps(a, self.t, a.argument("tap_stride"))
        self.code = program(self.g)
        self.groups = [(rows, program(tuple(self.g[k] for k in rows))) for rows in row_groups(self.g)]

    def column(self, code: Program, j: int, part: int) -> list[Register]:
        """Some rows of G g, column j, of the output channels of a part of the panel"""

        def load(i: int) -> Register:
            register = self.a.vector("g", "a weight of each output channel")
            self.v.load(register, at(self.a.argument("src"), _BYTES * (KERNEL * i + j) + part))
            return register

        return emit(self.a, code, self.constants, load)

    def row(self, h: list[Register], part: int) -> None:
        """A row of taps from the row of G g"""

        def store(j: int, register: Register) -> None:
            self.v.store(self.taps.place(j, part), register)

        emit(self.a, self.code, self.constants, lambda j: h[j], store)
        self.taps.next_row()

    def part(self, part: int) -> None:
        """All taps of as many output channels as a vector holds"""
        a = self.a
        self.taps.start(a.argument("dst"))
        for rows, code in self.groups:
            lines = formulas(tuple(self.g[k] for k in rows), "h", "g")
            a.comment(f"output channels from {part // 4} on: rows {', '.join(map(str, rows))} of h = G g", *lines)
            columns = [self.column(code, j, part) for j in range(KERNEL)]
            for k, h in zip(rows, zip(*columns, strict=True), strict=True):
                a.comment(f"dst[{self.t * k} + j] = (G h)[j], h = row {k}")
                self.row(list(h), part)

    def kernel(self) -> Kernel:
        """The whole kernel."""
        a, channels = self.a, self.a.argument("channels")
        done = a.label("done")
        a.TEST(channels, channels)
        a.JZ(done)
        self.constants = Constants(self.v, [self.code, *(code for _, code in self.groups)])
        with a.loop("channel", channels):
            for part in range(0, _BYTES, self.v.bytes):
                self.part(part)
            a.ADD(a.argument("src"), _BYTES * KERNEL * KERNEL)
            a.ADD(a.argument("dst"), _BYTES)
        a.place(done)
        a.ret()
        taps = self.t * self.t
        return a.finish(
            Contract(
                formula=(
                    f"dst[tap][c][o] = (G g G^T)[tap], g[i][j] = src[9 c + 3 i + j][o], o < {_CHANNELS}, tap < {taps}",
                ),
                extents=(
                    f"src: [9 channels][{_CHANNELS}] without gaps; channels may be 0.",
                    f"dst: {taps} taps, tap_stride bytes apart, of [channels][{_CHANNELS}] without gaps.",
                    "All aligned to 4 bytes. Nothing else is read or written.",
                ),
            ),
            "gen/winograd/weights.py",
        )


def build(spec: KernelSpec) -> Kernel:
    """The weight transform, for output tiles of `spec.tile` = (m, m)."""
    return _Weights(spec, LEVELS[spec.level]).kernel()


_LEVELS = ("avx2", "avx512")

KERNELS = tuple(KernelSpec("winograd_weights", ("f32",), (m, m), level) for level in _LEVELS for m in ALGORITHMS)

UP_KERNELS = tuple(KernelSpec("winograd_weights_up", ("f32",), (2, 2), level) for level in _LEVELS)

FAMILY = Family(
    macro="SDGEN_WINOGRAD_WEIGHTS_KERNEL",
    columns=("m", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.tile[0], spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)

UP_FAMILY = replace(FAMILY, macro="SDGEN_WINOGRAD_WEIGHTS_UP_KERNEL", kernels=UP_KERNELS)
