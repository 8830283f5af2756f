"""Kernels called from Python: on numpy arrays, whose types, shapes and strides are checked.

    >>> import numpy as np
    >>> from gen import native
    >>> kernels = native.build(["gemm_f32_6x16_avx2"], unroll=8)
    >>> gemm = kernels["gemm_f32_6x16_avx2"]
    >>> a, b = np.ones((320, 6), np.float32), np.full((320, 16), 0.5, np.float32)
    >>> c = gemm(a, b, scale=2, row_bias=np.arange(6, dtype=np.float32))
    >>> c.shape, c[5, 0]
    ((6, 16), np.float32(325.0))
    >>> gemm(a, b[:, :8])
    Traceback (most recent call last):
    gen.native.arrays.NativeError: gemm_f32_6x16_avx2_unroll8: b has shape (320, 8), but has to have (320, 16)

`load()` has every kernel that this processor can run. Each takes its arrays as its banner names them (`python -m gen
show NAME`); what it writes may be left out, and is returned. Needs numpy and a C compiler.
"""

from gen.native.arrays import NativeError
from gen.native.kernels import Call, NativeKernel
from gen.native.objects import Kernels, build, load
from gen.native.structures import structure

__all__ = ["Call", "Kernels", "NativeError", "NativeKernel", "build", "load", "structure"]
