"""What becomes of the elements of products and convolutions while they are in the cache, at every level that runs here,
against double precision."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from tests import sdgen_native as native
from tests.exact import TINY, UNIT, chain_bound, first_difference
from tests.functions import PARAMETERS, allowed, exact
from tests.guarded import Flush, Guards
from tests.operations import SMALL_BLOCKS, Array, Conv2d, Matmul, PlaceAfter, Run, Tile, every_tile, native_tiles
from tests.sdgen_native import Blocking, Function, Type
from tests.test_matmul import matmuls
from tests.test_winograd_conv2d import ERROR as WINOGRAD_ERROR

pytestmark = pytest.mark.slow

Shape = tuple[int, int, int, int]
Operation = Matmul | Conv2d

OPERANDS = ("weight", "addend", "factor")
IN_PLACE = "0123 of c"

# The most that a function changes by where its argument changes by 1, but that of e^x.
SLOPES = {
    Function.SILU: 1.0999,
    Function.GELU: 1.13,
    Function.GELU_ERF: 1.13,
    Function.GELU_QUICK: 1.0999,
    Function.SIGMOID: 0.25,
}


@dataclass(frozen=True)
class After:
    """An operand is given by the dimensions that it is not repeated along: 0 is that of columns or pixels, 1 of rows or
    output channels, 2 and 3 of batches. The addend IN_PLACE is c itself."""

    shift: bool = False
    weight: str | None = None
    addend: str | None = None
    factor: str | None = None
    function: Function = Function.NONE
    gap: int = 0  # elements behind each row of an operand

    @property
    def exists(self) -> bool:
        """Whether the check lets it be: a constant is no addend of a product by a weight."""
        return self.weight is None or self.addend is None or ("0" in self.addend and not self.in_place)

    @property
    def in_place(self) -> bool:
        return self.addend == IN_PLACE

    def data(self, rng: np.random.Generator, shape: Shape) -> dict[str, Array]:
        """For elements of this shape, the batches before the rows and columns."""
        data = {"shift": rng.standard_normal(shape[2], np.float32)} if self.shift else {}
        for name in OPERANDS:
            dimensions = getattr(self, name)
            if dimensions is not None:
                extents = [n if str(3 - axis) in dimensions else 1 for axis, n in enumerate(shape)]
                data[name] = rng.standard_normal(extents, np.float32)
        return data

    def place(self, data: dict[str, Array], arrays: Guards) -> native.After:
        """The structure, of operands that may not be read beyond what is there of them."""
        after = native.After(function=self.function, parameter=PARAMETERS.get(self.function, (0, 0)))
        for name, values in data.items():
            if name == "shift":
                after.shift = arrays.copy(name, values).ctypes.data
                continue
            if name == "addend" and self.in_place:
                after.addend = self.place_in_c(values, arrays)
                continue
            _, b0, rows, columns = values.shape
            row = 4 * (columns + self.gap)
            strides = (row * (rows * b0 + self.gap), row * rows, row, 4)
            placed = arrays.strided(name, values.shape, strides)
            placed[...] = values
            repeated = (
                0 if str(d) not in getattr(self, name) else stride for d, stride in enumerate((4, row, *strides[1::-1]))
            )
            setattr(after, name, native.Operand(placed.ctypes.data, tuple(repeated)))
        assert isinstance(after, native.After)
        return after

    @staticmethod
    def place_in_c(values: Array, arrays: Guards) -> native.Operand:
        c = next(block.view for block in arrays.blocks if block.name == "c")
        c[...] = values.reshape(c.shape)
        is_product = c.shape == values.shape
        b1, b0, row, _ = c.strides if is_product else (0, *c.strides[:2], 4)
        return native.Operand(c.ctypes.data, (4, row, b0, b1))

    def reference(
        self, data: dict[str, Array], t: NDArray[np.float64], error: NDArray[np.float64]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """The exact result, and how far another may be from it, where t may have such an error."""
        values = {name: array.astype(np.float64) for name, array in data.items()}
        shift = values["shift"][:, None] if self.shift else np.zeros((1, 1))
        weight, addend = values.get("weight", np.ones(1)), values.get("addend", np.zeros(1))
        u = (t + shift) * weight + addend
        # t and shift pass up to three roundings, one of which is of the sum of shift and a constant addend.
        magnitude = (np.abs(t) + error + np.abs(shift)) * np.abs(weight) + np.abs(addend)
        error = error * np.abs(weight) + chain_bound(3) * magnitude + TINY
        slope = np.exp(u + error) if self.function is Function.EXP else SLOPES.get(self.function, 1.0)
        result, moved = exact(self.function, u), slope * error
        most = moved + allowed(self.function, np.abs(u) + error, np.abs(result) + moved)
        if self.factor is not None:
            result = result * values["factor"]
            most = (most * np.abs(values["factor"]) + np.abs(result) * UNIT) * (1 + UNIT) + TINY
        return result, most


def shape_of(case: Operation) -> Shape:
    if isinstance(case, Matmul):
        return (case.batch[1], case.batch[0], case.m, case.n)
    return (1, case.batch, case.channels_out, case.size_out[0] * case.size_out[1])


def product_reference(
    case: Operation, data: tuple[NDArray[np.float32], Array, Array], run: Run, onto: Array | None = None
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """The exact result without what becomes of it, and the most that another may differ from it that was added to the
    numbers `onto`."""
    result, magnitude = case.reference(data)
    if isinstance(case, Matmul):
        bound = case.bound(run)
    elif run.winograd:
        # The promise, of which test_winograd_conv2d.py says how it is meant.
        bound, magnitude = 2 * 9 / 4 * WINOGRAD_ERROR[run.winograd], np.full_like(magnitude, magnitude.max())
    else:
        bound = case.bound()
    magnitude = magnitude.reshape(shape_of(case))
    if onto is not None:
        magnitude = magnitude + np.abs(onto)
    return result.reshape(shape_of(case)), bound * magnitude + TINY


def compute(case: Operation, after: After, rng: np.random.Generator, run: Run) -> Array:
    """What came out of random data, compared with the reference."""
    data, operands = case.data(rng), after.data(rng, shape_of(case))
    if after.in_place:  # which a scale would be for, too
        data, case = (data[0], data[1] * np.float32(case.scale), data[2]), replace(case, scale=1.0)
    c = case.compute(data, run, partial(after.place, operands)).reshape(shape_of(case))
    onto = operands["addend"] if after.in_place else None
    result, most = after.reference(operands, *product_reference(case, data, run, onto))
    wrong = ~(np.abs(c - result) <= most)
    assert not wrong.any(), f"{case} {after} {run}: {wrong.sum()} wrong, the first at {np.argwhere(wrong)[0]}"
    return c


# Scaled so that elements have unit variance, more or less, where functions bend. Few rows, by dot kernels at the levels
# that have them; rows and columns that are no multiples of a tile's; more rows than are packed at once.
PRODUCTS = [
    Matmul(1, 37, 50, scale=0.125),
    Matmul(13, 35, 20, (3, 2), (3, 1), scale=0.25),
    Matmul(16, 3, 17, c_gap=2, scale=0.25, bias=True),
    Matmul(40, 67, 61, scale=0.125, w_type=Type.F16),
    Matmul(1, 1, 1),
    Matmul(23, 50, 100, (3, 2), (3, 2), c_gap=5, batch_gap=3, scale=0.125, bias=True),
    Matmul(19, 1, 30, (2, 2), (1, 2), heads_inside=True, scale=0.25),
    Matmul(23, 18, 20, (2, 3), heads_inside=True, batch_gap=1, scale=0.25, w_type=Type.BF16),
    Matmul(410, 9, 13, scale=0.25),
]

# And the form of Winograd's method: partial tiles and quads, one and several a row, images of one tile and of more.
CONVOLUTIONS = [
    (Conv2d(5, 19, (13, 7), pad=(1, 1), batch=2, batch_gap=3, scale=0.125, bias=True), 0),
    (Conv2d(20, 7, (11, 5), (1, 1), scale=0.25), 0),
    (Conv2d(20, 7, (11, 5), (1, 1), batch=3, row_gap=1, scale=0.25, w_type=Type.F16), 0),
    (Conv2d(20, 7, (11, 5), (1, 1), batch=3, scale=0.25, bias=True, tokens=True), 0),
    (Conv2d(6, 9, (15, 9), (3, 3), (2, 2), (1, 1), batch=2, scale=0.125), 0),
    (Conv2d(4, 5, (5, 4), pad=(1, 1), upsample=2, scale=0.125), 0),
    (Conv2d(20, 19, (19, 7), pad=(1, 1), batch=2, batch_gap=5, scale=0.0625, bias=True), 2),
    (Conv2d(20, 5, (8, 8), pad=(1, 1), batch=3, scale=0.0625), 2),
    (Conv2d(20, 17, (31, 10), pad=(1, 1), scale=0.0625), 3),
    (Conv2d(20, 4, (14, 11), batch=2, scale=0.0625), 3),
    (Conv2d(20, 35, (35, 17), pad=(1, 1), batch=2, scale=0.0625, w_type=Type.F16), 4),
    (Conv2d(20, 5, (16, 12), pad=(1, 1), batch=2, scale=0.0625), 4),
    (Conv2d(20, 3, (3, 2), pad=(1, 1), batch=5, scale=0.0625), 4),
    (Conv2d(20, 18, (9, 5), pad=(1, 1), batch=2, upsample=2, scale=0.0625), 2),
]

# Numbers coprime to those of operations, tiles and functions, so that each meets each.
WEIGHTS = (None, "0", "01", "0123", "03")
ADDENDS = (None, "0", "0123", "1", "12", "", "013")
FACTORS = (None, "0", "0123", "023")
KINDS = [
    after
    for index, (shift, weight, addend, factor) in enumerate(product((False, True), WEIGHTS, ADDENDS, FACTORS))
    if (after := After(shift, weight, addend, factor, Function(index % len(Function)), index % 3)).exists
]

BLOCKS = (
    SMALL_BLOCKS,  # several slabs
    None,
    Blocking(1000, 1000, 1000, 10**9),
    Blocking(16, 1, 1, 1),
)


def run_of(tile: Tile, index: int, winograd: int = 0) -> Run:
    return Run(tile, list(Flush)[index % 2], 1 + index // 2 % 2, blocking=BLOCKS[index % 4], winograd=winograd)


@every_tile
def test_products(tile: Tile, rng: np.random.Generator) -> None:
    for index, after in enumerate(KINDS * 2):
        compute(PRODUCTS[index % len(PRODUCTS)], after, rng, run_of(tile, index + index // 36))


@every_tile
def test_convolutions(tile: Tile, rng: np.random.Generator) -> None:
    for index, after in enumerate(KINDS * 2):
        case, winograd = CONVOLUTIONS[index % len(CONVOLUTIONS)]
        compute(case, after, rng, run_of(tile, index + index // 52, winograd))


@pytest.mark.parametrize("level", native.native_levels(), ids=native.level_name)
@pytest.mark.parametrize("function", Function)
def test_functions(level: native.Level, function: Function, rng: np.random.Generator) -> None:
    afters = After(function=function), After(True, "0", "0123", "0123", function), After(True, None, "1", "0", function)
    for index, ((case, winograd), after) in enumerate(product(CONVOLUTIONS[::4], afters)):
        compute(case, after, rng, run_of(Tile(level), index, winograd))
    for index, (matmul, after) in enumerate(product((PRODUCTS[1], PRODUCTS[5]), afters)):
        compute(matmul, after, rng, run_of(Tile(level), index))


@pytest.mark.parametrize("tile", [tile for tile in native_tiles() if not tile.columns], ids=str)
@pytest.mark.parametrize(
    "case, winograd",
    [
        (Matmul(7, 61, 30, (2, 1), scale=0.25), 0),
        (Matmul(61, 131, 77, (2, 1), c_gap=1, scale=0.125), 0),
        *(CONVOLUTIONS[index] for index in (0, 5, 7, 9, 12)),
    ],
    ids=lambda value: f"F{value}" if isinstance(value, int) else str(value),
)
def test_threads_do_not_change_the_result(tile: Tile, case: Operation, winograd: int, rng: np.random.Generator) -> None:
    """Which cut what a thread is given, and with it the runs of elements, elsewhere."""
    for after in (
        After(True, None, "0123", None, Function.GELU_ERF),
        After(True, "0", "0123", "0123", Function.SILU),
        After(True, None, IN_PLACE, None, Function.GELU),
    ):
        case = replace(case, scale=1.0) if after.in_place else case
        data, operands = case.data(rng), after.data(rng, shape_of(case))

        place: PlaceAfter = partial(after.place, operands)

        for blocking in (SMALL_BLOCKS, None):
            alone = case.compute(data, Run(tile, blocking=blocking, winograd=winograd), place)
            for threads, slow in ((2, -1), (3, 0), (4, 3)):
                run = Run(tile, threads=threads, slow=slow, blocking=blocking, winograd=winograd)
                assert not first_difference(case.compute(data, run, place), alone), f"{after} {run}"


@st.composite
def afters(draw: st.DrawFn) -> After:
    operand = st.sampled_from([None, "0", "01", "02", "0123"])
    weight, factor = draw(operand), draw(operand)
    addend = draw(operand if weight is not None else st.sampled_from([None, "", "0", "1", "2", "13", "012", "0123"]))
    function = draw(st.sampled_from([function for function in Function if function is not Function.EXP]))
    return After(draw(st.booleans()), weight, addend, factor, function, draw(st.integers(0, 3)))


@given(matmuls(), afters())
def test_random_operations(drawn: tuple[Matmul, Run, int], after: After) -> None:
    case, run, seed = drawn
    compute(case, after, np.random.default_rng(seed), run)


ONTO_C = [
    After(addend=IN_PLACE),
    After(True, addend=IN_PLACE),
    After(addend=IN_PLACE, factor="0123", gap=1),
    *(
        After(shift, None, IN_PLACE, factor, function)
        for function in Function
        for shift, factor in ((True, "0"), (False, None))
    ),
]


@every_tile
def test_products_added_to_c(tile: Tile, rng: np.random.Generator) -> None:
    for index, (case, after) in enumerate(product(PRODUCTS, ONTO_C[:3])):
        for blocking in BLOCKS:
            compute(case, after, rng, replace(run_of(tile, index), blocking=blocking))
    for index, after in enumerate(ONTO_C * 3):
        compute(PRODUCTS[index % len(PRODUCTS)], after, rng, run_of(tile, index))


@every_tile
def test_convolutions_added_to_c(tile: Tile, rng: np.random.Generator) -> None:
    for index, ((case, winograd), after) in enumerate(product(CONVOLUTIONS, ONTO_C[:3])):
        compute(case, after, rng, run_of(tile, index, winograd))
    for index, after in enumerate(ONTO_C * 2):
        case, winograd = CONVOLUTIONS[index % len(CONVOLUTIONS)]
        compute(case, after, rng, run_of(tile, index, winograd))


# ---- what the checks refuse ----


AT_C, ELSEWHERE = 4096, 8192


def valid() -> native.After:
    """One that passes the check of an operation; the addresses are never used."""
    operand = (ELSEWHERE, (4, 64, 0, 640))
    operands = {name: native.Operand(*operand) for name in OPERANDS}
    return native.After(shift=ELSEWHERE, function=Function.LEAKY, parameter=(0.1, 0.0), **operands)


def matmul_check(after: native.After, scale: float = 1.0, m: int = 4, batch: tuple[int, int] = (2, 1)) -> bytes | None:
    strides = (64, (6400, 12800))
    arrays = AT_C, Type.F32, *strides, (1, 1), AT_C, *strides, AT_C, *strides
    message: bytes | None = native.sdgen_matmul_check(
        ctypes.byref(native.Matmul(m, 8, 16, batch, *arrays, scale, None, after))
    )
    return message


def conv2d_check(after: native.After, scale: float = 1.0, batch: int = 2) -> bytes | None:
    arrays = AT_C, Type.F32, AT_C, 40, 320, 960, AT_C, 1280
    message: bytes | None = native.sdgen_conv2d_check(
        ctypes.byref(native.Conv2d(batch, 3, 4, 10, 8, 10, 8, 3, 3, *(1,) * 6, *arrays, scale, None, False, after))
    )
    return message


def constant_addend(after: native.After) -> None:
    after.weight = native.Operand()
    after.addend.stride = (0, 4, 0, 0)


RIGHT: dict[str, Callable[[native.After], None]] = {
    "all operands": lambda after: None,
    "strides of what is absent": lambda after: setattr(after, "factor", native.Operand(None, (3, 1, 2, 5))),
    "no shift": lambda after: setattr(after, "shift", None),
    "an addend constant along a row": constant_addend,
}

WRONG: dict[str, tuple[str, Callable[[native.After], None]]] = {
    "the function": ("function", lambda after: setattr(after, "function", len(Function))),
    "a negative function": ("function", lambda after: setattr(after, "function", -1)),
    "the shift's address": ("shift", lambda after: setattr(after, "shift", 4098)),
    "a constant addend of a product by a weight": (
        "side by side",
        lambda after: setattr(after.addend, "stride", (0, 64, 0, 0)),
    ),
    **{
        f"the address of the {name}": ("aligned", lambda after, name=name: setattr(getattr(after, name), "data", 4097))  # type: ignore[misc]
        for name in OPERANDS
    },
    **{
        f"stride {d} of the {name}": (
            "aligned",
            lambda after, name=name, d=d: getattr(after, name).stride.__setitem__(d, 66),  # type: ignore[misc]
        )
        for name in OPERANDS
        for d in range(4)
    },
    **{
        f"elements of the {name} {stride} apart": (
            "side by side",
            lambda after, name=name, stride=stride: getattr(after, name).stride.__setitem__(0, stride),  # type: ignore[misc]
        )
        for name in OPERANDS
        for stride in (0, 8, -4)
    },
}


@pytest.mark.parametrize("check", [matmul_check, conv2d_check])
@pytest.mark.parametrize("right", RIGHT)
def test_check_passes_what_is_right(check: Callable[[native.After], bytes | None], right: str) -> None:
    after = valid()
    RIGHT[right](after)
    assert check(after) is None


@pytest.mark.parametrize("check", [matmul_check, conv2d_check])
@pytest.mark.parametrize("wrong", WRONG)
def test_check_refuses(check: Callable[[native.After], bytes | None], wrong: str) -> None:
    after = valid()
    part, change = WRONG[wrong]
    change(after)
    message = check(after)
    assert message and part in message.decode()
    assert 5 < len(message) < 100


def onto_c(*strides: int) -> native.After:
    return native.After(shift=ELSEWHERE, addend=native.Operand(AT_C, strides), function=Function.SILU)


# The strides that c has, and what it has none of where there is one row, or one image.
OF_PRODUCTS, OF_CONVOLUTIONS = (4, 64, 6400, 12800), (4, 320, 1280, 0)


def test_checks_pass_an_addend_that_is_c() -> None:
    assert matmul_check(onto_c(*OF_PRODUCTS)) is None
    assert matmul_check(onto_c(4, 64, 6400, 0)) is None  # one batch
    assert matmul_check(onto_c(4, 0, 0, 12800), m=1, batch=(1, 2)) is None
    assert conv2d_check(onto_c(*OF_CONVOLUTIONS)) is None
    assert conv2d_check(onto_c(4, 320, 0, 0), batch=1) is None


@pytest.mark.parametrize("d", range(4))
def test_checks_refuse_an_addend_that_is_c_with_other_strides(d: int) -> None:
    for right, check in ((OF_PRODUCTS, partial(matmul_check, batch=(2, 2))), (OF_CONVOLUTIONS, conv2d_check)):
        for stride in (0, right[d] + 4):
            if d == 3 and right is OF_CONVOLUTIONS:  # which have no such dimension
                continue
            message = check(onto_c(*(stride if i == d else right[i] for i in range(4))))
            assert message and (b"strides" in message or b"side by side" in message), stride


@pytest.mark.parametrize("name", OPERANDS)
@pytest.mark.parametrize("check, strides", [(matmul_check, OF_PRODUCTS), (conv2d_check, OF_CONVOLUTIONS)])
def test_checks_refuse_what_does_not_go_with_an_addend_that_is_c(
    check: Callable[..., bytes | None], strides: tuple[int, ...], name: str
) -> None:
    """A scale, a weight, and any other operand that is c."""
    message = check(onto_c(*strides), scale=0.5)
    assert message and b"scale" in message
    weighted = onto_c(*strides)
    weighted.weight = native.Operand(ELSEWHERE, strides)
    message = check(weighted)
    assert message and b"weight" in message
    if name != "addend":
        after = native.After()
        setattr(after, name, native.Operand(AT_C, strides))
        message = check(after)
        assert message and b"c" in message
