"""Multiply-adds in single precision as AMX and AVX10.2 make them: rounded once to nearest even, denormal inputs taken
as zero, denormal results flushed to zero, MXCSR neither read nor written.

Sources: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, TDPBF16PS and TDPFP16PS ("FP32 FMA with
DAZ=FTZ=1, RNE rounding"). Which of several NaNs comes out is not modelled: it is the default one."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

F32 = NDArray[np.float32]

_LEAST_NORMAL = 2.0**-126
# Rounded to 24 bits with any exponent, a smaller magnitude is below the least normal number: tininess is detected after
# rounding (volume 1, section 4.9.1.5).
_TINY = _LEAST_NORMAL - 2.0**-151
_DEFAULT_NAN = np.array(0xFFC00000, np.uint32).view(np.float32)


def from_bf16(bits: NDArray[np.uint16]) -> F32:
    """The numbers of bfloat16 elements."""
    return (bits.astype(np.uint32) << 16).view(np.float32)


def from_fp16(bits: NDArray[np.uint16]) -> F32:
    """The numbers of half-precision elements; denormals keep their values."""
    return bits.view(np.float16).astype(np.float32)


def _daz(values: F32) -> F32:
    return np.where(np.abs(values) < _LEAST_NORMAL, np.copysign(np.float32(0), values), values).astype(np.float32)


def fused(a: Any, b: Any, c: Any) -> F32:
    """a * b + c, rounded once, for products of at most 24 bits."""
    a, b, c = (_daz(np.asarray(values, np.float32)).astype(np.float64) for values in (a, b, c))
    with np.errstate(all="ignore"):
        # The product is exact in double precision. So is the sum where it matters: the smaller addend has at most 24
        # bits, so if it reaches the place where single precision rounds, it ends within the 53 bits of the sum; if it
        # does not, the sum is on the same side of that place however it is rounded.
        total = a * b + c
        result = total.astype(np.float32)
    result = np.where(np.abs(total) < _TINY, np.copysign(np.float32(0), result), result)
    return np.where(np.isnan(result), _DEFAULT_NAN, result).astype(np.float32)
