"""The largest of a run of elements."""

from __future__ import annotations

import math

from gen.contract import MAXIMUM_KERNEL
from gen.dsl import Assembler, Contract, Kernel, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS
from gen.spec import KernelSpec

OPTIONS = {
    "vectors": 4,  # in a pass; each has a maximum of its own, so that they do not wait for one another
    "align": 32,  # of the loop, bytes
}


def build(spec: KernelSpec) -> Kernel:
    """The kernel."""
    level = LEVELS[spec.level]
    a = Assembler(spec, level, MAXIMUM_KERNEL)
    v = vector_unit(a)
    chains = spec.option("vectors", OPTIONS["vectors"])
    elements = chains * v.lanes
    n, x, maximum = a.argument("n"), a.argument("x"), a.argument("maximum")
    values = a.vectors("values[c]", "elements", chains)
    largest = a.vectors("largest[c]", "of them", chains)
    rest, done = a.label("rest"), a.label("done")

    for register in largest:
        v.load_constant(register, -math.inf)
    a.comment(f"{elements} elements a pass, vector c to largest[c]; the second operand stays where the first is NaN")
    a.SUB(n, elements)
    a.JB(rest)
    with a.repeat("pass", "JAE", spec.option("align", OPTIONS["align"])):
        for chain in range(chains):
            v.load(values[chain], at(x, v.bytes * chain))
        for chain in range(chains):
            v.maximum(largest[chain], values[chain], largest[chain])
        a.ADD(x, v.bytes * chains)
        a.SUB(n, elements)
    a.comment(f"the elements that are left, up to {v.lanes} at a time")
    a.place(rest)
    a.ADD(n, elements)
    a.JZ(done)
    left, scratch = a.generals("left", "elements that are left, for the mask", 2)
    with a.repeat("part", "JA", 1):
        a.MOV(left, n)
        mask = v.tail_mask("mask", left, scratch)
        v.load_masked(values[0], mask, at(x))
        v.maximum_where(largest[0], mask, values[0])
        a.release(mask)
        a.ADD(x, v.bytes)
        a.SUB(n, v.lanes)
    a.place(done)
    a.comment("the vectors, and then their lanes by halves")
    for chain in range(1, chains):
        v.maximum(largest[0], largest[chain], largest[0])
    low, high = largest[0].as_kind("ymm"), values[0].as_kind("ymm")
    if level.vector_kind == "zmm":
        a.VEXTRACTF64X4(high, largest[0], 1)
        a.VMAXPS(low, high, low)
    one, other = low.as_kind("xmm"), high.as_kind("xmm")
    a.VEXTRACTF128(other, low, 1)
    a.VMAXPS(one, other, one)
    a.VMOVHLPS(other, one, one)
    a.VMAXPS(one, other, one)
    a.VMOVSHDUP(other, one)
    a.VMAXSS(one, other, one)
    a.VMAXSS(one, one, at(maximum))
    a.VMOVSS(at(maximum), one)
    a.ret()
    return a.finish(
        Contract(
            formula=("*maximum = the largest of *maximum and x[i], i < n; a NaN among the x is passed over",),
            extents=("x: [n], aligned to 4 bytes; maximum: [1], no NaN. n may be 0.",),
        ),
        "gen/elementwise/maximum.py",
    )


KERNELS = tuple(KernelSpec("maximum", ("f32",), (), level) for level in ("avx2", "avx512"))

FAMILY = Family(
    macro="SDGEN_MAXIMUM_KERNEL",
    columns=("type", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
