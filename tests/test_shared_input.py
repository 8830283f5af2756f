"""sdgen_matmul of rows that are normalized first, and of several products that share them."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from tests import functions
from tests import sdgen_native as native
from tests.exact import UNIT, chain_bound, first_difference
from tests.guarded import Flush, Guards, guards
from tests.operations import SMALL_BLOCKS, Array, Run, Tile, default_blocking, every_tile, execute, loaded, stored
from tests.sdgen_native import Blocking, Function, Level, Type

pytestmark = pytest.mark.slow

# Of a number that is normalized, as in test_norm.py.
ROUNDINGS = 4


@dataclass(frozen=True)
class Data:
    """x, weight, modulation and bias of the norm, and of each product w as elements of its type and bias."""

    x: Array
    weight: Array
    modulation: Array
    bias: Array
    w: list[NDArray[Any]]
    column_bias: list[Array]


@dataclass(frozen=True)
class Products:
    """Of n columns each. The gap is in elements, behind each row of x and c, and twice behind each batch."""

    m: int
    n: tuple[int, ...]
    k: int
    batch: tuple[int, int] = (1, 1)
    normalized: bool = True
    rms: bool = False
    weight: bool = True
    bias: bool = True
    modulation: bool = False  # another for each batch, as bias then is
    eps: float = 1e-5
    mean: float = 0.5
    gap: int = 0
    first_type: int = 0
    column_bias: bool = True
    function: Function = Function.NONE
    gated: bool = False

    def types(self) -> list[Type]:
        return [list(Type)[(self.first_type + i) % 3] for i in range(len(self.n))]

    def data(self, rng: np.random.Generator) -> Data:
        x = rng.standard_normal((*self.batch[::-1], self.m, self.k)) + self.mean
        rows = [n * (2 if self.gated else 1) for n in self.n]
        batches = (*self.batch[::-1], 1, self.k) if self.modulation else (1, 1, 1, self.k)
        modulation, bias = rng.standard_normal((2, *batches), np.float32)
        return Data(
            *(x.astype(np.float32), rng.standard_normal(self.k, np.float32), modulation, bias),
            [stored(rng.standard_normal((r, self.k), np.float32), t) for r, t in zip(rows, self.types(), strict=True)],
            [rng.standard_normal(r, np.float32) for r in rows],
        )

    def strides(self, columns: int) -> tuple[int, int, int, int]:
        row = 4 * (columns + self.gap)
        batch = row * self.m + 8 * self.gap
        return batch * self.batch[0], batch, row, 4

    def norm(self, data: Data, arrays: Guards) -> native.RowNorm:
        return native.RowNorm(
            arrays.copy("weight", data.weight).ctypes.data if self.weight else None,
            arrays.copy("modulation", data.modulation).ctypes.data if self.modulation else None,
            arrays.copy("norm's bias", data.bias).ctypes.data if self.bias else None,
            *([data.bias.strides[1::-1]] * 2 if self.modulation else ((0, 0), (0, 0))),
            *(self.eps, self.rms),
        )

    def compute(self, data: Data, run: Run) -> list[Array]:
        """All at once."""
        with run.guards(run.flush) as arrays:
            x = arrays.strided("x", data.x.shape, self.strides(self.k))
            x[...] = data.x
            norm = self.norm(data, arrays) if self.normalized else native.RowNorm()
            return self._execute(x, norm, self.normalized, data, run, arrays)

    def compute_apart(self, data: Data, run: Run) -> list[Array]:
        """The norm, then each product by itself."""
        with run.guards(run.flush) as arrays:
            x = arrays.copy("x", data.x)
            if self.normalized:
                strides = x.strides[-2::-1]
                op = native.LayerNorm(
                    *(self.k, (self.m, *self.batch), x.ctypes.data, strides, x.ctypes.data, strides),
                    self.norm(data, arrays),
                )
                execute("sdgen_layer_norm", op, arrays, run, f"{self} {run}")
            normalized = x.copy()
        results = []
        for i, n in enumerate(self.n):
            one = replace(self, n=(n,), first_type=self.first_type + i)
            part = replace_data(data, i)
            with run.guards(run.flush) as arrays:
                x = arrays.strided("x", data.x.shape, self.strides(self.k))
                x[...] = normalized
                results += one._execute(x, native.RowNorm(), False, part, run, arrays)
        return results

    def _execute(
        self, x: Array, norm: native.RowNorm, normalized: bool, data: Data, run: Run, arrays: Guards
    ) -> list[Array]:
        results, ops = [], []
        for i, n in enumerate(self.n):
            w = arrays.copy(f"w {i}", data.w[i])
            c = arrays.strided(f"c {i}", (*x.shape[:3], n), self.strides(n))
            op = native.Matmul(self.m, n, self.k, self.batch, w.ctypes.data, self.types()[i], w.strides[0])
            op.w_repeat = self.batch
            op.x, op.x_stride, op.x_batch_stride = x.ctypes.data, x.strides[2], x.strides[1::-1]
            op.c, op.c_stride, op.c_batch_stride = c.ctypes.data, c.strides[2], c.strides[1::-1]
            op.scale = 1
            op.bias = arrays.copy(f"bias {i}", data.column_bias[i]).ctypes.data if self.column_bias else None
            op.after.function, op.gated = self.function, self.gated
            op.normalized, op.before = normalized, norm
            results.append(c)
            ops.append(op)
        for one, more in pairwise(ops):
            one.more = ctypes.addressof(more)
        execute("sdgen_matmul", ops[0], arrays, run, f"{self} {run}")
        return [c.copy() for c in results]

    def judge(self, data: Data, results: list[Array], run: Run) -> None:
        """A number that is normalized is wrong by so many roundings of what it is made of, and each product of it by as
        much of the weight, beside its own chain's."""
        x = data.x.astype(np.float64)
        y, off = x, np.zeros_like(x)
        if self.normalized:
            mean = np.zeros_like(x[..., :1]) if self.rms else x.mean(-1, keepdims=True)
            scale = 1 / np.sqrt(((x - mean) ** 2).mean(-1, keepdims=True) + float(np.float32(self.eps)))
            y, magnitude = (x - mean) * scale, (np.abs(x) + np.abs(mean)) * scale
            if self.weight:
                y, magnitude = y * data.weight, magnitude * np.abs(data.weight)
            if self.modulation:
                factor = 1 + data.modulation.astype(np.float64)
                y, magnitude = y * factor, magnitude * np.abs(factor)
            if self.bias:
                y, magnitude = y + data.bias, magnitude + np.abs(data.bias)
            off = chain_bound(ROUNDINGS + 2 * self.modulation) * magnitude
        kc = (run.blocking or default_blocking()).kc
        chain = chain_bound(min(self.k, kc + 3) + -(-self.k // kc) + 3)
        for i, c in enumerate(results):
            w = loaded(data.w[i], self.types()[i]).astype(np.float64).T
            bias = data.column_bias[i].astype(np.float64) if self.column_bias else np.zeros(w.shape[1])
            t = y @ w + bias
            t_off = ((np.abs(y) + off) * chain + off) @ np.abs(w) + chain * np.abs(bias)
            exact, most = functions.exact(self.function, t), 1.2 * t_off  # no function here is steeper
            most += functions.allowed(self.function, t, exact)
            if self.gated:
                n = self.n[i]
                value, gate, gate_off = t[..., :n], exact[..., n:], most[..., n:]
                exact = value * gate
                most = t_off[..., :n] * (np.abs(gate) + gate_off) + np.abs(value) * gate_off
                most += UNIT * (np.abs(value) + t_off[..., :n]) * (np.abs(gate) + gate_off)
            wrong = np.argwhere(~(np.abs(c - exact) <= most))
            assert not len(wrong), f"{self} {run}: product {i} at {wrong[0]}"

    def verify(self, rng: np.random.Generator, run: Run) -> None:
        """Against float64, and bit for bit what the operations give one by one."""
        data = self.data(rng)
        results = self.compute(data, run)
        self.judge(data, results, run)
        for i, (result, apart) in enumerate(zip(results, self.compute_apart(data, run), strict=True)):
            assert not first_difference(result, apart), f"{self} {run}: product {i}"


def replace_data(data: Data, index: int) -> Data:
    """That of one product."""
    return replace(data, w=data.w[index : index + 1], column_bias=data.column_bias[index : index + 1])


LENGTHS = [1, 2, 3, 4, 5, 7, 16, 24, 25, 31, 63, 64, 65, 97, 200, 255, 257, 511, 640, 769, 1023, 1280, 1999, 2000]


@every_tile
@pytest.mark.parametrize("flush", Flush)
def test_normalized(tile: Tile, flush: Flush, rng: np.random.Generator) -> None:
    """All heights of panels, and of the last; with small blocks the depth is packed in several slabs."""
    for index, m in enumerate(range(1, 41)):
        case = Products(
            *(m, (1 + 5 * m % 34,), LENGTHS[(index * 7) % len(LENGTHS)]),
            rms=index % 2 == 1,
            weight=index % 3 != 1,
            bias=index % 5 != 2,
            modulation=index % 4 == 3,
            gap=index % 4,
            first_type=index,
        )
        case.verify(rng, Run(tile, flush, blocking=SMALL_BLOCKS if m % 2 else None, work_shift=m % 37))


@every_tile
def test_lengths(tile: Tile, rng: np.random.Generator) -> None:
    for index, k in enumerate(LENGTHS):
        case = Products(19, (33,), k, rms=index % 3 == 0, mean=(0.5, -3, 100)[index % 3], first_type=index)
        case.verify(rng, Run(tile, list(Flush)[index % 2], threads=1 + index % 3))


@every_tile
def test_several(tile: Tile, rng: np.random.Generator) -> None:
    widths = [(1, 1), (64, 64, 64), (5, 100, 33), (100, 1, 16, 47), (17, 31), (200, 3), (3, 200, 70)]
    for index, (n, normalized, blocking) in enumerate(product(widths, (False, True), (None, SMALL_BLOCKS))):
        case = Products(
            *((3, 29, 70, 16)[index % 4], n, (40, 77, 300)[index % 3], ((1, 1), (3, 2))[index % 2], normalized),
            first_type=index,
            modulation=normalized and index % 3 == 0,
            gap=index % 3,
            function=(Function.NONE, Function.SILU)[index % 2],
            column_bias=index % 5 != 0,
        )
        case.verify(rng, Run(tile, list(Flush)[index % 2], threads=1 + index % 4, blocking=blocking))


@every_tile
def test_gated(tile: Tile, rng: np.random.Generator) -> None:
    for m, n, k, function in ((5, 7, 9, Function.GELU), (70, 65, 130, Function.SILU), (300, 41, 50, Function.NONE)):
        case = Products(m, (n,), k, function=function, gated=True)
        for blocking in (None, SMALL_BLOCKS):
            case.verify(rng, Run(tile, blocking=blocking))


@every_tile
@pytest.mark.parametrize("mean", [10.0, 100.0, -100.0, 1e4])
def test_far_from_zero(tile: Tile, mean: float, rng: np.random.Generator) -> None:
    for m in (9, 40):
        Products(m, (20, 9), 320, mean=mean, eps=1e-12).verify(rng, Run(tile))


@every_tile
def test_threads_do_not_change_the_result(tile: Tile, rng: np.random.Generator) -> None:
    cases = [
        Products(100, (130,), 50),
        Products(33, (20, 70, 20), 129, (2, 2)),
        Products(7, (100, 30), 64, (2, 1), rms=True, modulation=True),
        Products(100, (70,), 50, gated=True),
        Products(300, (17, 40, 16, 1), 40, normalized=False),
    ]
    for case, blocking in product(cases, (None, Blocking(64, 48, 64, 1))):
        data = case.data(rng)
        alone = case.compute(data, Run(tile, blocking=blocking))
        for threads, slow in ((2, -1), (3, 0), (4, 3)):
            run = Run(tile, threads=threads, slow=slow, blocking=blocking)
            for i, result in enumerate(case.compute(data, run)):
                assert not first_difference(result, alone[i]), f"{case} {run}"


@every_tile
@pytest.mark.parametrize("blocks", [(1, 1, 1, 1), (5, 1, 1, 1), (7, 6, 16, 1000), (1000, 1000, 1000, 10**9)])
def test_any_blocks(tile: Tile, blocks: tuple[int, int, int, int], rng: np.random.Generator) -> None:
    modulated = Products(18, (3,), 25, (2, 2), modulation=True)
    for case in (Products(17, (35, 4), 40), Products(40, (17, 50), 129, rms=True), Products(18, (3,), 1), modulated):
        for threads in (1, 3):
            case.verify(rng, Run(tile, threads=threads, blocking=Blocking(*blocks)))


@every_tile
def test_what_is_not_finite_stays_in_its_row(tile: Tile, rng: np.random.Generator) -> None:
    case = Products(37, (20, 5), 70)
    data = case.data(rng)
    data.x[0, 0, 4, 7], data.x[0, 0, 30, 69] = np.nan, np.inf
    for c in case.compute(data, Run(tile)):
        finite = np.all(np.isfinite(c[0, 0]), axis=1)
        assert not np.any(np.isfinite(c[0, 0, [4, 30]])) and np.sum(finite) == 35


# ---- what the check refuses ----


def valid() -> list[native.Matmul]:
    """Products that pass their check; the addresses are never used."""
    ops = []
    for place in (8192, 16384, 32768):
        op = native.Matmul(
            *(4, 8, 16, (2, 1), 4096, Type.F32, 64, (0, 0), (2, 1), 4096, 64, (256, 0), place, 32, (128, 0), 1.0, None)
        )
        op.normalized, op.before = True, native.RowNorm(4096, 4096, 4096, (64, 0), (64, 0), 1e-5, False)
        ops.append(op)
    return ops


def check(ops: list[native.Matmul]) -> bytes | None:
    for op, more in pairwise(ops):
        op.more = ctypes.addressof(more)
    message: bytes | None = native.sdgen_matmul_check(ctypes.byref(ops[0]))
    return message


WRONG: dict[str, Callable[[native.Matmul], None]] = {
    "n is 0": lambda op: setattr(op, "n", 0),
    "w is missing": lambda op: setattr(op, "w", None),
    "it is gated": lambda op: setattr(op, "gated", True),
    "another m": lambda op: setattr(op, "m", 3),
    "another k": lambda op: setattr(op, "k", 15),
    "another batch": lambda op: setattr(op, "batch", (1, 1)),
    "another x": lambda op: setattr(op, "x", 4100),
    "another stride of x": lambda op: setattr(op, "x_stride", 68),
    "another stride of batches": lambda op: setattr(op, "x_batch_stride", (256, 4)),
    "not normalized": lambda op: setattr(op, "normalized", False),
    "another eps": lambda op: setattr(op.before, "eps", 1e-6),
    "another form": lambda op: setattr(op.before, "rms", True),
    "another weight": lambda op: setattr(op.before, "weight", None),
    "another modulation": lambda op: setattr(op.before, "modulation", 8192),
    "another bias": lambda op: setattr(op.before, "bias", 8192),
    "another stride of modulation": lambda op: setattr(op.before, "modulation_stride", (128, 0)),
    "another stride of biases": lambda op: setattr(op.before, "bias_stride", (64, 64)),
}


def test_check_passes_what_is_right() -> None:
    assert check(valid()) is None
    assert check(valid()[:1]) is None


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize("which", [0, 1, 2])
def test_check_refuses(wrong: str, which: int) -> None:
    ops = valid()
    WRONG[wrong](ops[which])
    message = check(ops)
    assert message and 5 < len(message) < 100


def test_check_refuses_more() -> None:
    message = check([*valid(), *valid()])
    assert message and b"too many" in message


@pytest.mark.parametrize("member", ["weight", "modulation", "bias"])
def test_check_refuses_what_is_not_aligned(member: str) -> None:
    ops = valid()[:1]
    setattr(ops[0].before, member, 4098)
    message = check(ops)
    assert message and b"aligned" in message


def test_few_rows_are_normalized_once(rng: np.random.Generator) -> None:
    """Where nothing is packed, working memory holds the rows; elsewhere a panel's lie in what is to hold packed w."""
    case = Products(5, (20, 30), 64)
    with guards(Flush.END) as arrays:
        plan = native.Plan(native.sdgen_kernels(native.native_levels()[-1]), default_blocking(), 0, 0)
        data = case.data(rng)
        sizes = []
        for m, normalized in product((5, 40), (False, True)):
            w = arrays.copy("w", data.w[0])
            op = native.Matmul(m, 20, 64, (1, 1), w.ctypes.data, case.types()[0], w.strides[0], (0, 0), (1, 1))
            op.normalized = normalized
            sizes.append(native.sdgen_matmul_work_size(ctypes.byref(plan), ctypes.byref(op), 3))
    if native.native_levels()[-1] is not Level.C:
        assert sizes[0] == 0
        assert 5 * 64 * 4 <= sizes[1] < 5 * 64 * 4 + 64
    assert sizes[2] == sizes[3]
