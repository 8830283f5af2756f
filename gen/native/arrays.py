"""What is asked of the arrays that kernels are called with."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen.errors import UserError

# An extent: a number, the numbers from a first to a last one, or None for any.
Extent = int | range | None

_ELEMENTS: dict[str, Any] = {"f32": np.dtype(np.float32), "f16": np.dtype(np.float16), "bf16": np.dtype(np.uint16)}


class NativeError(UserError):
    """A kernel cannot be built, loaded or called; the message says what was wrong and what is allowed."""


def element(type_: str) -> np.dtype[Any]:
    """The dtype of a kernel's type; bf16, which numpy does not have, as its bits."""
    dtype: np.dtype[Any] = _ELEMENTS[type_]
    return dtype


def _shown(shape: Iterable[Extent]) -> str:
    def one(extent: Extent) -> str:
        if isinstance(extent, range):
            return f"{extent.start} to {extent.stop - 1}"
        return "any" if extent is None else str(extent)

    extents = [one(extent) for extent in shape]
    return f"({extents[0]},)" if len(extents) == 1 else f"({', '.join(extents)})"


def _fits(shape: tuple[int, ...], wanted: tuple[Extent, ...]) -> bool:
    def one(extent: int, allowed: Extent) -> bool:
        return allowed is None or (extent in allowed if isinstance(allowed, range) else extent == allowed)

    return len(shape) == len(wanted) and all(map(one, shape, wanted))


@dataclass(frozen=True)
class Checker:
    """Checks the arguments of one kernel, whose name its messages begin with."""

    kernel: str

    def fail(self, what: str) -> NativeError:
        """The error that says what is wrong."""
        return NativeError(f"{self.kernel}: {what}")

    def array(
        self,
        name: str,
        value: NDArray[Any],
        shape: tuple[Extent, ...],
        dtype: Any = np.float32,
        *,
        apart: bool = False,
        backwards: bool = False,
        unaligned: bool = False,
        writable: bool = False,
    ) -> NDArray[Any]:
        """The array, if it is as it has to be.

        `apart`: what the first axis counts (rows) may be apart, by any number of elements, also by none or `backwards`;
        without it the array is contiguous in C's order. `unaligned`: nothing is asked of addresses and strides.
        """
        dtype = np.dtype(dtype)
        if not isinstance(value, np.ndarray):
            raise self.fail(f"{name} is of type {type(value).__name__}, but has to be a numpy array of {dtype}")
        if value.dtype != dtype:
            raise self.fail(f"{name} is of {value.dtype}, but has to be of {dtype}")
        if not _fits(value.shape, shape):
            raise self.fail(f"{name} has shape {_shown(value.shape)}, but has to have {_shown(shape)}")
        if value.size:  # numpy's strides of an array without elements mean nothing
            self._strides(name, value, apart, backwards, unaligned)
        if not unaligned and value.size and value.ctypes.data % dtype.itemsize:
            raise self.fail(f"{name} is not aligned, but has to be, to its elements of {dtype.itemsize} bytes")
        if writable:
            self._writable(name, value)
        return value

    def _strides(self, name: str, value: NDArray[Any], apart: bool, backwards: bool, unaligned: bool) -> None:
        packed = value.itemsize
        for axis in reversed(range(value.ndim)):
            stride, free = value.strides[axis], apart and axis == 0
            if value.shape[axis] > 1 and not free and stride != packed:
                what = "the elements of its rows side by side" if apart else "its elements side by side, in C's order"
                raise self.fail(f"{name} has strides {value.strides}, but has to have {what}")
            if value.shape[axis] > 1 and free and stride < 0 and not backwards:
                raise self.fail(f"{name} has strides {value.strides}, but rows have to go forwards")
            if value.shape[axis] > 1 and free and stride % value.itemsize and not unaligned:
                raise self.fail(f"{name} has rows {stride} bytes apart, which are not whole elements")
            packed *= value.shape[axis]

    def _writable(self, name: str, value: NDArray[Any]) -> None:
        if not value.flags.writeable:
            raise self.fail(f"{name} cannot be written to, but the kernel does")
        row = value.itemsize * int(np.prod(value.shape[1:]))
        if value.ndim > 1 and value.shape[0] > 1 and abs(value.strides[0]) < row:
            raise self.fail(f"{name} has rows that overlap, but the kernel writes them")

    def optional(
        self, name: str, value: NDArray[Any] | None, shape: tuple[Extent, ...], dtype: Any = np.float32, **how: bool
    ) -> NDArray[Any] | None:
        """The array, or None."""
        return None if value is None else self.array(name, value, shape, dtype, **how)

    def output(
        self, name: str, value: NDArray[Any] | None, shape: tuple[int, ...], dtype: Any = np.float32, **how: bool
    ) -> NDArray[Any]:
        """The array to write to, a new one where None is given."""
        return np.empty(shape, dtype) if value is None else self.array(name, value, shape, dtype, writable=True, **how)

    def number(self, name: str, value: Any, allowed: range) -> int:
        """An integer in a range."""
        try:
            number = operator.index(value)
        except TypeError:
            raise self.fail(f"{name} is {value!r}, but has to be an integer") from None
        if number not in allowed:
            raise self.fail(f"{name} is {number}, but has to be from {allowed.start} to {allowed.stop - 1}")
        return number

    def apart_from(self, output: NDArray[Any], **inputs: NDArray[Any] | None) -> None:
        """Raises where what is written shares memory with what is read."""
        for name, array in inputs.items():
            if array is not None and np.shares_memory(output, array):
                raise self.fail(f"{name} shares memory with what the kernel writes")
