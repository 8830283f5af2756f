"""Kernels called from Python: that they compute what they say, and that what they cannot take is refused."""

from __future__ import annotations

import doctest
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from gen import contract, isa, native, registry
from gen.native import compiler
from gen.native.objects import Row
from gen.spec import KernelSpec
from tests.sdgen_native import LIBRARIES

ROOT = Path(__file__).parent.parent
NATIVE = isa.native_levels() if Path("/proc/cpuinfo").exists() else ()
NAMES = (
    "gemm_f32_6x16_avx2",
    "gemm16_f32_5x16_avx2",
    "dot_f16_3x4_avx2",
    "pack_bf16_6_avx2",
    "pack_rows_f32_16_avx2",
    "pack_patches_f32_16_avx2",
    "scores_f32_6x16_avx2",
    "unpack_f32_8_avx2",
    "map_silu_f32_avx2",
    "moments_f32_avx2",
    "maximum_f32_avx2",
    "nh_u32_avx2",
    "probe_nop_avx2",
    "winograd_weights_f32_2x2_avx2",
    "winograd_input_f32_2x2_avx2",
)

pytestmark = pytest.mark.skipif("avx2" not in NATIVE, reason="this processor does not have level avx2")


@pytest.fixture(scope="module")
def kernels() -> native.Kernels:
    """One kernel of each operation."""
    return native.build(NAMES)


def normal(rng: np.random.Generator, *shape: int) -> NDArray[Any]:
    return rng.standard_normal(shape, np.float32)


def close(result: NDArray[Any], exact: NDArray[Any]) -> bool:
    return np.allclose(result, exact, rtol=1e-5, atol=1e-5)


def test_the_example() -> None:
    assert doctest.testmod(native, raise_on_error=True).attempted > 5


# ---- structures ----


@pytest.mark.parametrize(
    "struct",
    [value for value in vars(contract).values() if isinstance(value, contract.Struct)],
    ids=lambda struct: str(struct.tag),
)
def test_structures_are_the_contracts(struct: contract.Struct) -> None:
    made = native.structure(struct)
    assert {name: getattr(made, name).offset for _, name, _ in struct.fields} == {
        name: struct.offset(name) for _, name, _ in struct.fields
    }


def test_rows_are_the_headers() -> None:
    lines = ["#include <stddef.h>", '#include "sdgen.h"']
    for name, *_ in Row._fields_:
        place = getattr(Row, name)
        lines.append(f'_Static_assert(offsetof(struct sdgen_kernel_row, {name}) == {place.offset}, "{name}");')
    command = ["gcc", "-std=c17", "-fsyntax-only", f"-I{ROOT / 'runtime' / 'include'}", "-x", "c", "-"]
    subprocess.run(command, input="\n".join(lines), text=True, check=True)


# ---- what they compute ----


def test_gemm(kernels: native.Kernels, rng: np.random.Generator) -> None:
    gemm = kernels["gemm_f32_6x16_avx2"]
    a, b, row_bias, column_bias = normal(rng, 37, 6), normal(rng, 37, 16), normal(rng, 6), normal(rng, 11)
    whole = normal(rng, 6, 40)
    c, before = whole[:, 5:16], whole.copy()
    result = gemm(a, b, c, accumulate=True, scale=0.5, row_bias=row_bias, column_bias=column_bias)
    assert result is c
    assert close(c, (before[:, 5:16] + a.T @ b[:, :11]) * 0.5 + row_bias[:, None] + column_bias)
    outside = np.ones(40, np.bool_)
    outside[5:16] = False
    assert np.array_equal(whole[:, outside], before[:, outside])
    assert np.array_equal(gemm(a[:0], b[:0]), np.zeros((6, 16)))


def test_rows_of_a_panel_of_sixteen(kernels: native.Kernels, rng: np.random.Generator) -> None:
    panel, b = normal(rng, 9, 16), normal(rng, 9, 16)
    a = panel[:, 3:8]
    assert close(kernels["gemm16_f32_5x16_avx2"](a, b), a.T @ b)
    with pytest.raises(
        native.NativeError, match=r"a has strides \(20, 4\), but has to be a view of a panel \[k\]\[16\]"
    ):
        kernels["gemm16_f32_5x16_avx2"](np.ascontiguousarray(a), b)


def test_dot(kernels: native.Kernels, rng: np.random.Generator) -> None:
    """Rows that go backwards as well."""
    x, w = normal(rng, 3, 50)[::-1, :33], normal(rng, 4, 33).astype(np.float16)
    bias = normal(rng, 4)
    c = kernels["dot_f16_3x4_avx2"](x, w, scale=2, column_bias=bias)
    assert close(c, x @ w.astype(np.float32).T * 2 + bias)


def test_packing(kernels: native.Kernels, rng: np.random.Generator) -> None:
    words = rng.integers(0, 0x7F00, (5, 30)).astype(np.uint16)
    packed = kernels["pack_bf16_6_avx2"](words[:, :21])
    expected = (words[:, :21].astype(np.uint32) << 16).view(np.float32).T
    assert np.array_equal(packed, np.pad(expected, ((0, 0), (0, 1))))
    rows = normal(rng, 7, 13)
    assert np.array_equal(kernels["pack_rows_f32_16_avx2"](rows), np.pad(rows, ((0, 0), (0, 3))))


def test_pack_patches(kernels: native.Kernels, rng: np.random.Generator) -> None:
    image = normal(rng, 5, 100)
    masks = np.zeros((4, 8), np.bool_)
    masks[0, 2:6] = masks[1, 6:] = masks[2, :3] = True
    segments = [image[:, 8:16], image[:, 50:58], image[:, 20:28], None]
    expected = np.zeros((5, 16), np.float32)
    expected[:, 2:6], expected[:, 6:8], expected[:, 8:11] = image[:, 10:14], image[:, 56:58], image[:, 20:23]
    patches = kernels["pack_patches_f32_16_avx2"]
    assert np.array_equal(patches(segments, masks), expected)
    masks[3, 0] = True
    with pytest.raises(native.NativeError, match=r"segments\[3\] is None, but its mask is not all False"):
        patches(segments, masks)
    with pytest.raises(native.NativeError, match="masks has lanes that are taken from two segments"):
        patches([*segments[:3], image[:, :8]], masks)


def test_scores(kernels: native.Kernels, rng: np.random.Generator) -> None:
    scores = kernels["scores_f32_6x16_avx2"]
    k, q = normal(rng, 2, 10, 6), normal(rng, 10, 16)
    products = np.einsum("tci,cj->tij", k, q)
    assert close(scores(k, q, raw=True, chunk=3), products)
    total, maximum = np.zeros(16, np.float32), np.full(16, -np.inf, np.float32)
    p = scores(k, q, shift=np.ones(16, np.float32), sum=total, maximum=maximum, scale=0.5)
    assert close(p, np.exp2(products * 0.5 - 1))
    assert close(total, p.sum((0, 1))) and close(maximum, (products * 0.5 - 1).max((0, 1)))
    with pytest.raises(
        native.NativeError, match="shift is not given, but has to be where the kernel makes exponentials"
    ):
        scores(k, q)


def test_unpack_map_moments_nh_and_probe(kernels: native.Kernels, rng: np.random.Generator) -> None:
    src, factor, dst = normal(rng, 19, 8), normal(rng, 8), np.zeros((5, 19), np.float32)
    assert np.array_equal(kernels["unpack_f32_8_avx2"](src, factor, dst), (src * factor).T[:5])
    x, addend = normal(rng, 100), normal(rng, 100)
    t = x.astype(np.float64) * 2 + addend
    expected = t / (1 + np.exp(-t))
    assert close(kernels["map_silu_f32_avx2"](x, addend=addend, scale=2), expected)
    kernels["map_silu_f32_avx2"](x, x, addend=addend, scale=2)
    assert close(x, expected)
    assert np.allclose(kernels["moments_f32_avx2"](x), [x.astype(np.float64).sum(), (x.astype(np.float64) ** 2).sum()])
    assert kernels["maximum_f32_avx2"](x)[0] == np.max(x)
    assert kernels["maximum_f32_avx2"](x, np.full(1, 7, np.float32))[0] == 7
    words, secrets = rng.integers(0, 2**32, 8, np.uint64), np.zeros(32, np.uint64)
    assert np.array_equal(kernels["nh_u32_avx2"](words << np.uint64(32) | words, secrets), np.full(4, np.sum(words**2)))
    probe = kernels["probe_nop_avx2"].bind(100000)
    assert probe.run() is None
    assert 0 < probe.seconds(1) < probe.seconds(100)


def test_winograd(kernels: native.Kernels, rng: np.random.Generator) -> None:
    """Of weights and input of a single pixel: the taps multiplied are the convolution's, as A^T and A sum them up."""
    g = normal(rng, 9, 16)
    taps = kernels["winograd_weights_f32_2x2_avx2"](g)
    assert taps.shape == (16, 1, 16)
    image = normal(rng, 4, 10)
    dst = np.zeros((16, 1, 8), np.float32)
    kernels["winograd_input_f32_2x2_avx2"](
        x=[image, image], row_stride=40, channel_stride=0, channels=1, dst=dst, tap_stride=32, dst_channel_stride=32
    )
    from gen.winograd.matrices import ALGORITHMS

    bt = np.array(ALGORITHMS[2].bt, np.float64)
    at = np.array(ALGORITHMS[2].at, np.float64)
    for tile in range(4):
        exact = bt @ image[:, 2 * tile : 2 * tile + 4] @ bt.T
        assert close(dst[:, 0, tile].reshape(4, 4), exact) and close(dst[:, 0, 4 + tile].reshape(4, 4), exact)
        y = at @ (dst[:, 0, tile].reshape(4, 4) * taps[:, 0, 3].reshape(4, 4)) @ at.T
        kernel = g[:, 3].reshape(3, 3)
        direct = [[(image[i : i + 3, 2 * tile + j : 2 * tile + j + 3] * kernel).sum() for j in (0, 1)] for i in (0, 1)]
        assert close(y, np.array(direct))
    with pytest.raises(native.NativeError, match="has no field rows; there are: x, row_stride"):
        kernels["winograd_input_f32_2x2_avx2"](rows=1)


@pytest.mark.parametrize("name", ["gemm_f32_1x16_avx2", "gemm_f32_6x16_avx2", "scores_f32_1x16_avx2"])
def test_loops_that_are_not_unrolled(name: str, rng: np.random.Generator) -> None:
    """A shift by 0 sets no flags."""
    kernel = native.build([name], unroll=1)[name]
    rows = kernel.spec.tile[0]
    for k in (0, 1, 5):
        a, b = normal(rng, k, rows), normal(rng, k, 16)
        result = kernel(a[None], b, raw=True)[0] if kernel.spec.operation == "scores" else kernel(a, b)
        assert close(result, a.T @ b)


# ---- what is refused ----


def floats(*shape: int) -> NDArray[np.float32]:
    return np.zeros(shape, np.float32)


def frozen() -> NDArray[np.float32]:
    array = floats(6, 16)
    array.flags.writeable = False
    return array


A, B = floats(8, 6), floats(8, 16)
SHARED = floats(64, 16)
UNALIGNED = np.zeros(4 * 96 + 1, np.uint8)[1:].view(np.float32).reshape(6, 16)
OVERLAPPING = np.lib.stride_tricks.as_strided(floats(12), (3, 4), (8, 4))

GEMM, DOT, PACK = "gemm_f32_6x16_avx2", "dot_f16_3x4_avx2", "pack_bf16_6_avx2"

REFUSED: dict[str, tuple[str, Callable[[native.NativeKernel], Any], str]] = {
    "dtype": (GEMM, lambda f: f(np.zeros((8, 6)), B), "a is of float64, but has to be of float32"),
    "no array": (GEMM, lambda f: f([[1.0] * 6], B), "a is of type list, but has to be a numpy array of float32"),
    "shape": (GEMM, lambda f: f(floats(8, 5), B), "a has shape (8, 5), but has to have (any, 6)"),
    "other k": (GEMM, lambda f: f(A, B[:7]), "b has shape (7, 16), but has to have (8, 16)"),
    "strides": (GEMM, lambda f: f(floats(6, 8).T, B), "a has strides (4, 32), but has to have its elements side by"),
    "rows apart": (GEMM, lambda f: f(A, floats(8, 17)[:, :16]), "b has strides (68, 4), but has to have its elements"),
    "columns": (GEMM, lambda f: f(A, B, columns=17), "columns is 17, but has to be from 1 to 16"),
    "number": (GEMM, lambda f: f(A, B, columns=1.5), "columns is 1.5, but has to be an integer"),
    "no c": (GEMM, lambda f: f(A, B, accumulate=True), "c is not given, but has to be where the kernel accumulates"),
    "read-only": (GEMM, lambda f: f(A, B, frozen()), "c cannot be written to"),
    "shared": (GEMM, lambda f: f(A, SHARED[:8], SHARED[2:8]), "b shares memory with what the kernel writes"),
    "backwards": (GEMM, lambda f: f(A, B, floats(6, 16)[::-1]), "c has strides (-64, 4), but rows have to go forwards"),
    "unaligned": (GEMM, lambda f: f(A, B, UNALIGNED), "c is not aligned, but has to be, to its elements of 4 bytes"),
    "overlapping": (
        DOT,
        lambda f: f(floats(3, 8), np.zeros((4, 8), np.float16), OVERLAPPING),
        "c has rows that overlap",
    ),
    "bf16": (PACK, lambda f: f(floats(3, 8)), "src is of float32, but has to be of uint16"),
    "rows": (PACK, lambda f: f(np.zeros((7, 8), np.uint16)), "src has shape (7, 8), but has to have (1 to 6, any)"),
    "in part": ("map_silu_f32_avx2", lambda f: f(SHARED.ravel()[:64], SHARED.ravel()[1:65]), "x shares memory"),
    "doubles": ("moments_f32_avx2", lambda f: f(floats(9), floats(2)), "sums is of float32, but has to be of float64"),
    "weights": (
        "winograd_weights_f32_2x2_avx2",
        lambda f: f(floats(10, 16)),
        "src has 10 rows, but has to have nine for",
    ),
    "rounds": ("probe_nop_avx2", lambda f: f(-1), "rounds is -1, but has to be from 0 to"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refusals(case: str, kernels: native.Kernels) -> None:
    name, call, message = REFUSED[case]
    with pytest.raises(native.NativeError, match=re.escape(f"{name}: {message}")):
        call(kernels[name])


def test_level_that_the_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = native.build(["moments_f32_avx512"])["moments_f32_avx512"]
    monkeypatch.setattr("gen.isa.native_levels", lambda: ("avx2",))
    with pytest.raises(native.NativeError, match="needs level avx512, which this processor does not have; it has avx2"):
        kernel(floats(9))


def test_extension_that_the_processor_lacks(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels = native.build(["probe_vpdpbusd_u8s8_avx2", "probe_tdpbusd_u8s8_avx512"])
    monkeypatch.setattr("gen.isa.native_extensions", lambda: frozenset({"AVX2", "AMX-INT8"}))
    monkeypatch.setattr("gen.isa.native_levels", lambda: ("avx2", "avx512"))
    monkeypatch.setattr("gen.native.harness.request_tiles", lambda: False)
    with pytest.raises(native.NativeError, match="needs AVX-VNNI, which this processor does not have"):
        kernels["probe_vpdpbusd_u8s8_avx2"](3)
    with pytest.raises(native.NativeError, match="needs AMX's tiles, which the system does not let this process use"):
        kernels["probe_tdpbusd_u8s8_avx512"](3)


# ---- libraries ----


def test_library_that_was_built_before(tmp_path: Path, rng: np.random.Generator) -> None:
    """Options that are part of a name are read from it."""
    path = tmp_path / "own.so"
    other = KernelSpec("gemm", ("f32",), (4, 24), "avx2")
    native.build(["gemm_f32_6x16_avx2", other], path=path, prefetch_b=512, unroll=8)
    (loaded,) = native.load(path).values()  # nothing says what a tile is that no table has
    assert loaded.spec == registry.find("gemm_f32_6x16_avx2", {"prefetch_b": 512, "unroll": 8})
    a, b = normal(rng, 20, 6), normal(rng, 20, 16)
    assert close(loaded(a, b), a.T @ b)


def test_the_runtimes_library(rng: np.random.Generator) -> None:
    kernels = native.load(LIBRARIES / "libsdgen.so")
    assert set(kernels) == {spec.name for spec in registry.specs(isa.LEVELS)}
    x = normal(rng, 1000)
    assert np.allclose(kernels["moments_f32_avx2"](x)[1], np.square(x.astype(np.float64)).sum())


def test_unknown_names(kernels: native.Kernels) -> None:
    with pytest.raises(
        native.NativeError, match="the library has no kernel 'gemm'; the closest are gemm_f32_6x16_avx2"
    ):
        kernels["gemm"]
    assert "gemm" not in kernels and kernels.get("gemm_f32_6x16_avx2") is not None
    for one in (["gemm"], "gemm"):
        with pytest.raises(registry.UnknownKernelError, match="unknown kernel 'gemm'; the closest are gemm_f32_6x16"):
            native.build(one)
    with pytest.raises(registry.UnknownKernelError, match="has no option 'speed'"):
        native.build(["gemm_f32_6x16_avx2"], speed=9)
    with pytest.raises(native.NativeError, match="no kernel is named"):
        native.build([])


def test_a_name_is_one_kernel() -> None:
    assert list(native.build("moments_f32_avx2")) == ["moments_f32_avx2"]


def test_arguments_by_name(kernels: native.Kernels, rng: np.random.Generator) -> None:
    gemm = kernels["gemm_f32_6x16_avx2"]
    takes = re.escape("; it takes (a, b, c=None, *, columns=None, ")
    with pytest.raises(native.NativeError, match=f"^{gemm.name}: missing a required argument: 'b'{takes}"):
        gemm(normal(rng, 20, 6))
    with pytest.raises(native.NativeError, match=f"^{gemm.name}: got an unexpected keyword argument 'd'{takes}"):
        gemm(normal(rng, 20, 6), normal(rng, 20, 16), d=1)


def test_what_is_no_library(tmp_path: Path) -> None:
    with pytest.raises(native.NativeError, match="there is no such library; `make native` builds"):
        native.load(tmp_path / "absent.so")
    (tmp_path / "text.so").write_text("not a library")
    with pytest.raises(native.NativeError, match=r"text\.so is no library of kernels"):
        native.load(tmp_path / "text.so")
    source = tmp_path / "other.c"
    source.write_text("int other;")
    compiler.shared_library(tmp_path / "other.so", [source])
    with pytest.raises(native.NativeError, match=r"other\.so is no library of kernels"):
        native.load(tmp_path / "other.so")


def test_compiler_that_is_missing_or_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    with pytest.raises(native.NativeError, match="CC=no-such-compiler: there is no such C compiler"):
        native.build(["moments_f32_avx2"])
    monkeypatch.setenv("CC", "false")
    with pytest.raises(native.NativeError, match="false failed with status 1: no message"):
        native.build(["moments_f32_avx2"])
    monkeypatch.delenv("CC")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(native.NativeError, match="there is no C compiler: install gcc or clang"):
        native.build(["moments_f32_avx2"])
