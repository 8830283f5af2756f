"""Sums of elements and of their squares, in double precision."""

from __future__ import annotations

from gen.contract import MOMENTS_KERNEL
from gen.dsl import Assembler, Contract, DslError, Kernel, Memory, Register, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS
from gen.spec import KernelSpec

OPTIONS = {
    "vectors": 4,  # of doubles, in a pass; each has sums of its own, so that they do not wait for one another
    "align": 32,  # of the loop, bytes
}

_NARROW = {
    "ymm": "xmm",
    "zmm": "ymm",
}  # half a register: the single-precision numbers that a vector of doubles is made of


def build(spec: KernelSpec) -> Kernel:
    """The kernel."""
    level = LEVELS[spec.level]
    a = Assembler(spec, level, MOMENTS_KERNEL)
    v = vector_unit(a)
    chains = spec.option("vectors", OPTIONS["vectors"])
    if chains < 2 or chains & (chains - 1):
        raise DslError(f"{spec.name}: vectors is {chains}, but has to be a power of two from 2 on")
    elements = chains * v.lanes // 2
    n, x, sums = a.argument("n"), a.argument("x"), a.argument("sums")
    values = a.vector("values", "elements as doubles")
    totals = a.vectors("sum[c]", "of x", chains), a.vectors("square[c]", "of x^2", chains)
    rest, done = a.label("rest"), a.label("done")

    def step(src: Register | Memory, chain: int) -> None:
        """sum[c] += x, square[c] += x^2"""
        a.VCVTPS2PD(values, src)
        a.VADDPD(totals[0][chain], totals[0][chain], values)
        a.VFMADD231PD(totals[1][chain], values, values)

    for chain in range(chains):
        for total in totals:
            v.zero(total[chain])
    a.comment(f"{elements} elements a pass: sum[c] += x, square[c] += x^2, c = i / {v.lanes // 2} mod {chains}")
    a.SUB(n, elements)
    a.JB(rest)
    with a.repeat("pass", "JAE", spec.option("align", OPTIONS["align"])):
        for chain in range(chains):
            step(at(x, v.bytes // 2 * chain), chain)
        a.ADD(x, 4 * elements)
        a.SUB(n, elements)
    a.comment(f"the elements that are left, up to {v.lanes} at a time, with 0 behind them: to the first two chains")
    a.place(rest)
    a.ADD(n, elements)
    a.JZ(done)
    left, scratch = a.generals("left", "elements that are left, for the mask", 2)
    part = a.vector("part", "elements, then the upper half of them")
    with a.repeat("part", "JA", 1):
        a.MOV(left, n)
        mask = v.tail_mask("mask", left, scratch)
        v.load_masked(part, mask, at(x))
        a.release(mask)
        step(part.as_kind(_NARROW[level.vector_kind]), 0)
        if level.vector_kind == "ymm":
            a.VEXTRACTF128(part.as_kind("xmm"), part, 1)
        else:
            a.VEXTRACTF64X4(part.as_kind("ymm"), part, 1)
        step(part.as_kind(_NARROW[level.vector_kind]), 1)
        a.ADD(x, 4 * v.lanes)
        a.SUB(n, v.lanes)
    a.place(done)
    a.comment("the chains, by halves, and then their lanes")
    half = a.vector("half", "upper lanes of a sum")
    for place, total in enumerate(totals):
        count = chains
        while count > 1:
            count //= 2
            for chain in range(count):
                a.VADDPD(total[chain], total[chain], total[chain + count])
        low, high = total[0].as_kind("ymm"), half.as_kind("ymm")
        if level.vector_kind == "zmm":
            a.VEXTRACTF64X4(high, total[0], 1)
            a.VADDPD(low, low, high)
        a.VEXTRACTF128(half.as_kind("xmm"), low, 1)
        one, other = total[0].as_kind("xmm"), half.as_kind("xmm")
        a.VADDPD(one, one, other)
        a.VHADDPD(one, one, one)
        a.VADDSD(one, one, at(sums, 8 * place))
        a.VMOVSD(at(sums, 8 * place), one)
    a.ret()
    return a.finish(
        Contract(
            formula=("sums[0] += sum over i < n of x[i];  sums[1] += sum over i < n of x[i]^2",),
            extents=("x: [n], aligned to 4 bytes; sums: [2]. n may be 0.",),
            notes=(
                f"Order: element i to chain i / {v.lanes // 2} mod {chains} and lane i mod {v.lanes // 2},",
                "those beyond passes to the chains 0 and 1; then chains by halves, lanes by halves, neighbours.",
            ),
        ),
        "gen/elementwise/moments.py",
    )


KERNELS = tuple(KernelSpec("moments", ("f32",), (), level) for level in ("avx2", "avx512"))

FAMILY = Family(
    macro="SDGEN_MOMENTS_KERNEL",
    columns=("type", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
