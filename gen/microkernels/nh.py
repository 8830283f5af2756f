"""NH, the part of a hash that reads: sums of products of neighbouring words with secrets added."""

from __future__ import annotations

from gen.contract import NH_KERNEL
from gen.dsl import Assembler, Contract, Kernel, at, vector_unit
from gen.family import Family
from gen.isa import LEVELS
from gen.spec import KernelSpec

OPTIONS = {
    "align": 32,  # of the loop, bytes
}

_LINE = 64  # bytes that the loop takes at a time
_SUMS = 4


def build(spec: KernelSpec) -> Kernel:
    """The kernel."""
    level = LEVELS[spec.level]
    a = Assembler(spec, level, NH_KERNEL)
    v = vector_unit(a)
    size, data, secrets, sums = (a.argument(name) for name in ("size", "data", "secrets", "sums"))
    words = a.vector("words", "pairs of words, the data's")
    keyed = a.vectors("keyed[p]", "the same with secrets added", _SUMS)
    products = a.vectors("product[p]", "the upper words of the pairs, then the products", _SUMS)
    totals = a.vectors("sum[p]", "of the products", _SUMS)
    for total in totals:
        v.zero(total)
    a.comment("sum[p] += (low(data) + low(secret)) (high(data) + high(secret)), secrets from 64 p bytes on")
    with a.repeat("line", "JNZ", spec.option("align", OPTIONS["align"])):
        for offset in range(0, _LINE, v.bytes):
            v.load(words, at(data, offset))
            for p in range(_SUMS):
                a.VPADDD(keyed[p], words, at(secrets, offset + _LINE * p))
            for p in range(_SUMS):
                a.VPSRLQ(products[p], keyed[p], 32)
            for p in range(_SUMS):
                a.VPMULUDQ(products[p], products[p], keyed[p])
            for p in range(_SUMS):
                a.VPADDQ(totals[p], totals[p], products[p])
        a.ADD(data, _LINE)
        a.ADD(secrets, _LINE)
        a.SUB(size, _LINE)
    a.comment("the lanes of each sum")
    for p, total in enumerate(totals):
        half, low = words.as_kind("ymm"), total.as_kind("ymm")
        if level.vector_kind == "zmm":
            a.VEXTRACTI64X4(half, total, 1)
            a.VPADDQ(low, low, half)
        a.VEXTRACTI128(half.as_kind("xmm"), low, 1)
        one, other = total.as_kind("xmm"), half.as_kind("xmm")
        a.VPADDQ(one, one, other)
        a.VPSRLDQ(other, one, 8)
        a.VPADDQ(one, one, other)
        a.VMOVQ(at(sums, 8 * p), one)
    a.ret()
    return a.finish(
        Contract(
            formula=(
                "sums[p] = sum over i < size / 8 of (low(data[i]) + low(secrets[i + 8 p]) mod 2^32)",
                "          * (high(data[i]) + high(secrets[i + 8 p]) mod 2^32)   mod 2^64,  p < 4",
            ),
            extents=(
                "data: size bytes, a multiple of 64 and not 0, aligned to nothing; secrets: [size / 8 + 24];",
                "sums: [4], both aligned to 8 bytes. low and high are the halves of a word of 64 bits.",
            ),
            notes=(),
        ),
        "gen/microkernels/nh.py",
    )


KERNELS = tuple(KernelSpec("nh", ("u32",), (), level) for level in ("avx2", "avx512"))

FAMILY = Family(
    macro="SDGEN_NH_KERNEL",
    columns=("type", "level", "symbol"),
    build=build,
    row=lambda spec: (spec.types[0], spec.level, spec.name),
    kernels=KERNELS,
    options=OPTIONS,
)
