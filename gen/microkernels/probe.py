"""Loops of registers only, for measuring what the processor can do."""

from __future__ import annotations

from gen.contract import PROBE
from gen.dsl import Assembler, Contract, Kernel, vector_unit
from gen.family import Family
from gen.isa import LEVELS
from gen.spec import KernelSpec

OPTIONS: dict[str, int] = {}

_CHAINS = 12  # more than any processor's latency times its multiply-adds a cycle
_REPEATS = 8
_NOPS = 120
_LOOP = 2  # instructions of the loop itself


def _instructions(spec: KernelSpec) -> int:
    """Instructions of a round, those of the loop included."""
    return (_CHAINS * _REPEATS if spec.operation == "probe_fma" else _NOPS) + _LOOP


def _flops(spec: KernelSpec) -> int:
    """Floating-point operations of a round."""
    return _CHAINS * _REPEATS * LEVELS[spec.level].lanes * 2 if spec.operation == "probe_fma" else 0


def build(spec: KernelSpec) -> Kernel:
    """The probe of `spec.operation`: probe_fma or probe_nop."""
    a = Assembler(spec, LEVELS[spec.level], PROBE)
    rounds = a.argument("rounds")
    done = a.label("done")
    a.TEST(rounds, rounds)
    a.JZ(done)
    if spec.operation == "probe_fma":
        v = vector_unit(a)
        chains = a.vectors("chain", "independent sums", _CHAINS)
        x = a.vector("x", "both factors")
        a.comment("everything is 0: no denormals, no infinities, whatever the number of rounds")
        for register in (*chains, x):
            v.zero(register)
        with a.loop("round", rounds, align=64):
            for _ in range(_REPEATS):
                for chain in chains:
                    v.fma(chain, x, x)
        what = f"{_CHAINS} chains of {_REPEATS} multiply-adds"
    else:
        with a.loop("round", rounds, align=64):
            for _ in range(_NOPS):
                a.NOP()
        what = f"{_NOPS} times nothing"
    a.place(done)
    a.ret()
    return a.finish(
        Contract(
            formula=(f"{what}, `rounds` times",),
            extents=("No memory is touched.",),
            notes=(
                f"Instructions per round: {_instructions(spec)}, {_LOOP} of them the loop's. "
                f"Floating-point operations per round: {_flops(spec)}.",
            ),
        ),
        "gen/microkernels/probe.py",
    )


KERNELS = (
    KernelSpec("probe_fma", ("f32",), (), "avx2"),
    KernelSpec("probe_fma", ("f32",), (), "avx512"),
    KernelSpec("probe_nop", (), (), "avx2"),
)

FAMILY = Family(
    macro="SDGEN_PROBE_KERNEL",
    columns=("what", "instructions_per_round", "flops_per_round", "level", "symbol"),
    build=build,
    row=lambda spec: (
        "_".join((spec.operation.removeprefix("probe_"), *spec.types)),
        _instructions(spec),
        _flops(spec),
        spec.level,
        spec.name,
    ),
    kernels=KERNELS,
    options=OPTIONS,
)
