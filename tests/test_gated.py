"""sdgen_matmul with a gate: each output the product of one sum and of a function of another."""

from __future__ import annotations

import ctypes
from itertools import product

import numpy as np
import pytest

from tests import functions
from tests import sdgen_native as native
from tests.exact import UNIT, chain_bound, first_difference
from tests.guarded import guards
from tests.operations import (
    SMALL_BLOCKS,
    Array,
    Matmul,
    Run,
    Tile,
    default_blocking,
    every_tile,
    execute,
    loaded,
    plan_of,
    stored,
)
from tests.sdgen_native import Function, Level, Type


def compute(
    m: int, n: int, k: int, w: Array, w_type: Type, x: Array, bias: Array, function: Function, run: Run
) -> Array:
    """c, with gaps behind its rows."""
    with guards(run.flush) as arrays:
        weights = arrays.copy("w", stored(w, w_type))
        c = arrays.strided("c", (m, n), (4 * n + 12, 4))
        op = native.Matmul(m, n, k, (1, 1), weights.ctypes.data, w_type, k * weights.itemsize, (0, 0), (1, 1))
        op.x, op.x_stride = arrays.copy("x", x).ctypes.data, 4 * k
        op.c, op.c_stride = c.ctypes.data, 4 * n + 12
        op.scale, op.bias, op.gated = 1, arrays.copy("bias", bias).ctypes.data, True
        op.after.function, op.after.parameter = function, functions.PARAMETERS.get(function, (0, 0))
        execute("sdgen_matmul", op, arrays, run, f"gated {m}x{n}x{k} {function.name} {run}")
        result: Array = c.copy()
    return result


@every_tile
@pytest.mark.parametrize("blocks", [None, SMALL_BLOCKS])
def test_against_float64(tile: Tile, blocks: native.Blocking | None, rng: np.random.Generator) -> None:
    shapes = [(1, 1, 1), (5, 7, 9), (17, 16, 40), (64, 65, 33), (130, 100, 70), (300, 41, 20)]
    for index, ((m, n, k), function) in enumerate(product(shapes, (Function.GELU, Function.SILU, Function.NONE))):
        w_type = list(Type)[index % 3]
        w, x = rng.standard_normal((2 * n, k), np.float32), rng.standard_normal((m, k), np.float32)
        bias = rng.standard_normal(2 * n, np.float32)
        c = compute(m, n, k, w, w_type, x, bias, function, Run(tile, blocking=blocks))
        w64, x64 = loaded(stored(w, w_type), w_type).astype(np.float64), x.astype(np.float64)
        t, magnitude = x64 @ w64.T + bias, np.abs(x64) @ np.abs(w64.T) + np.abs(bias)
        kc = (blocks or default_blocking()).kc
        off = magnitude * chain_bound(min(k, kc + 3) + -(-k // kc) + 1)
        value, gate = t[:, :n], functions.exact(function, t[:, n:])
        # No function here is steeper than 1.2.
        gate_off = 1.2 * off[:, n:] + functions.allowed(function, t[:, n:], gate)
        most = off[:, :n] * (np.abs(gate) + gate_off) + np.abs(value) * gate_off
        most += UNIT * (np.abs(value) + off[:, :n]) * (np.abs(gate) + gate_off)
        wrong = np.argwhere(~(np.abs(c - value * gate) <= most))
        assert not len(wrong), f"{m}x{n}x{k} {function.name} {tile} at {wrong[0]}"


@every_tile
def test_threads_do_not_matter(tile: Tile, rng: np.random.Generator) -> None:
    m, n, k = 100, 130, 50
    w, x = rng.standard_normal((2 * n, k), np.float32), rng.standard_normal((m, k), np.float32)
    bias = rng.standard_normal(2 * n, np.float32)
    results = [
        compute(m, n, k, w, Type.F16, x, bias, Function.GELU, Run(tile, threads=threads, blocking=blocks))
        for blocks in (None, native.Blocking(64, 48, 64, 1))
        for threads in (1, 2, 3, 4)
    ]
    for result in results[1:4]:
        assert not first_difference(results[0], result)
    for result in results[5:]:
        assert not first_difference(results[4], result)


def test_only_a_function_after_it() -> None:
    op = native.Matmul(
        4, 8, 16, (1, 1), 4096, Type.F32, 64, (0, 0), (1, 1), 4096, 64, (0, 0), 8192, 32, (0, 0), 1.0, None
    )
    op.gated = True
    assert native.sdgen_matmul_check(ctypes.byref(op)) is None
    op.after.shift = 4096
    assert b"gated" in native.sdgen_matmul_check(ctypes.byref(op))


def test_reference_is_that_of_products(rng: np.random.Generator) -> None:
    """With a gate of ones (no weights, a bias of 1) the result is the product's."""
    m, n, k = 40, 33, 21
    w, x = rng.standard_normal((n, k), np.float32), rng.standard_normal((m, k), np.float32)
    gated = np.concatenate([w, np.zeros_like(w)])
    bias = np.concatenate([np.zeros(n, np.float32), np.ones(n, np.float32)])
    for level in native.native_levels():
        run = Run(Tile(level, 0))
        c = compute(m, n, k, gated, Type.F32, x, bias, Function.NONE, run)
        plain = Matmul(m, n, k).compute((w[None, None], x[None, None], np.zeros(n, np.float32)), run)
        assert not first_difference(c, plain[0, 0])


def test_work_for_fewer_threads() -> None:
    """What is asked for is for fewer threads, too, of which each has larger shares then."""
    op = native.Matmul(256, 16, 8, (1, 1), 4096, Type.F32, 32, (0, 0), (1, 1), 4096, 32, (0, 0), 4096, 64, (0, 0), 1.0)
    op.gated = True
    plan = plan_of(Run(Tile(Level.C)))
    sizes = [native.sdgen_matmul_work_size(ctypes.byref(plan), ctypes.byref(op), nth) for nth in range(1, 33)]
    assert sizes == sorted(sizes)
