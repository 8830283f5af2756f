"""The kernels of each family as functions of numpy arrays."""

from __future__ import annotations

import ctypes
import inspect
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from gen import contract, isa
from gen.native import harness
from gen.native.arrays import Checker, NativeError, element
from gen.native.structures import structure
from gen.spec import KernelSpec
from gen.winograd.matrices import algorithm_of

Array = NDArray[Any]

_MOST = 2**62
_ANY = range(_MOST)  # a size
_TILES = [name for name in isa.EXTENSIONS if name.startswith("AMX-")]


@dataclass(frozen=True)
class Call:
    """A kernel with its arguments, ready to be run, also again and again."""

    function: int
    arguments: tuple[int, ...]  # as the ABI passes them: integers and addresses
    result: Any  # what the kernel writes
    kept: tuple[Any, ...]  # what the addresses point to

    def run(self) -> Any:
        """Runs the kernel once; what it wrote."""
        harness.call(self.function, self.arguments)
        return self.result

    def seconds(self, times: int) -> float:
        """How long so many runs take, one after the other."""
        return harness.seconds(self.function, self.arguments, times)


class NativeKernel(ABC):
    """A kernel of a loaded library. What it is called with is that of its `bind`."""

    def __init__(self, spec: KernelSpec, function: int) -> None:
        self.spec = spec
        self.name = spec.name
        self.function = function
        self.check = Checker(spec.name)

    def __repr__(self) -> str:
        return f"<kernel {self.name}>"

    def __call__(self, *arguments: Any, **options: Any) -> Any:
        """Runs the kernel; what it wrote."""
        return self.bind(*arguments, **options).run()

    def bind(self, *arguments: Any, **options: Any) -> Call:
        """The kernel with its arguments, which are checked."""
        levels = isa.native_levels()
        if self.spec.level not in levels:
            has = f"it has {', '.join(levels)}" if levels else "it has none of those that kernels are made for"
            raise self.check.fail(f"needs level {self.spec.level}, which this processor does not have; {has}")
        for extension in self.spec.extensions:
            if extension not in isa.native_extensions():
                raise self.check.fail(f"needs {extension}, which this processor does not have")
            if extension in _TILES and not harness.request_tiles():
                raise self.check.fail("needs AMX's tiles, which the system does not let this process use")
        signature = inspect.signature(self.bound)
        try:
            signature.bind(*arguments, **options)
        except TypeError as error:
            names = [parameter.replace(annotation=parameter.empty) for parameter in signature.parameters.values()]
            raise self.check.fail(f"{error}; it takes {inspect.Signature(names)}") from None
        return self.bound(*arguments, **options)

    @abstractmethod
    def bound(self, *arguments: Any, **options: Any) -> Call:
        """`bind`, on a processor that can run the kernel."""

    def call(self, arguments: Sequence[int | Array | ctypes.Structure | None], result: Any) -> Call:
        """The call with these arguments, of which arrays and structures are passed by their address."""
        return Call(self.function, tuple(map(_address, arguments)), result, (*arguments, result))

    def filled(self, struct: contract.Struct, **fields: Any) -> ctypes.Structure:
        """A structure with these fields; arrays are kept as long as it is."""
        values = structure(struct)()
        for name, value in fields.items():
            setattr(values, name, _address(value) if value is None or isinstance(value, np.ndarray) else value)
        values._kept = tuple(fields.values())
        return values


def _address(value: int | Array | ctypes.Structure | None) -> int:
    if value is None:
        return 0
    if isinstance(value, np.ndarray):
        address: int = value.ctypes.data
        return address
    return ctypes.addressof(value) if isinstance(value, ctypes.Structure) else value


def _stride(array: Array) -> int:
    """Bytes from row to row; of a single row any will do."""
    return int(array.strides[0]) if array.shape[0] > 1 else array.itemsize * int(np.prod(array.shape[1:]))


class Gemm(NativeKernel):
    """c = epilogue(a^T b) of packed panels: a [k][rows], b [k][width], c [rows][columns]"""

    def bound(
        self,
        a: Array,
        b: Array,
        c: Array | None = None,
        *,
        columns: int | None = None,
        accumulate: bool = False,
        scale: float = 1.0,
        row_bias: Array | None = None,
        column_bias: Array | None = None,
    ) -> Call:
        rows, width = self.spec.tile
        check = self.check
        a = self.panel(a)
        k = a.shape[0]
        check.array("b", b, (k, width))
        if columns is None:
            columns = c.shape[1] if isinstance(c, np.ndarray) and c.ndim == 2 else width
        columns = check.number("columns", columns, range(1, width + 1))
        if accumulate and c is None:
            raise check.fail("c is not given, but has to be where the kernel accumulates")
        c = check.output("c", c, (rows, columns), apart=True)
        check.optional("row_bias", row_bias, (rows,))
        check.optional("column_bias", column_bias, (columns,))
        check.apart_from(c, a=a, b=b, row_bias=row_bias, column_bias=column_bias)
        epilogue = self.filled(
            contract.EPILOGUE,
            row_bias=row_bias,
            column_bias=column_bias,
            columns=columns,
            accumulate=int(accumulate),
            scale=scale,
        )
        return self.call((k, a, b, c, _stride(c), epilogue), c)

    def panel(self, a: Array) -> Array:
        """The panel a."""
        return self.check.array("a", a, (None, self.spec.tile[0]))


class Gemm16(Gemm):
    """The same where a is some of the rows of a panel [k][16]: a view panel[:, i : i + rows]"""

    def panel(self, a: Array) -> Array:
        a = self.check.array("a", a, (None, self.spec.tile[0]), apart=True)
        if a.shape[0] > 1 and a.strides[0] != 64:
            raise self.check.fail(f"a has strides {a.strides}, but has to be a view of a panel [k][16]: (64, 4)")
        return a


class Dot(NativeKernel):
    """c = x w^T scale + column_bias: x [rows][k], w [columns][k], c [rows][columns]"""

    def bound(
        self, x: Array, w: Array, c: Array | None = None, *, scale: float = 1.0, column_bias: Array | None = None
    ) -> Call:
        (rows, columns), check = self.spec.tile, self.check
        check.array("x", x, (rows, None), apart=True, backwards=True)
        k = x.shape[1]
        check.array("w", w, (columns, k), element(self.spec.types[0]), apart=True, backwards=True)
        check.optional("column_bias", column_bias, (columns,))
        c = check.output("c", c, (rows, columns), apart=True)
        check.apart_from(c, x=x, w=w, column_bias=column_bias)
        output = self.filled(contract.DOT_OUTPUT, c=c, c_stride=_stride(c), column_bias=column_bias, scale=scale)
        return self.call((k, x, _stride(x), w, _stride(w), output), c)


class Pack(NativeKernel):
    """dst[p][i] = src[i][p]: src [rows][k], rows up to the width, dst [k][width]; what is left of it becomes 0"""

    def bound(self, src: Array, dst: Array | None = None) -> Call:
        (width,) = self.spec.tile
        how = {"apart": True, "backwards": True, "unaligned": True}
        self.check.array("src", src, (range(1, width + 1), None), element(self.spec.types[0]), **how)
        rows, k = src.shape
        dst = self.check.output("dst", dst, (k, width))
        self.check.apart_from(dst, src=src)
        return self.call((k, rows, src, _stride(src), dst), dst)


class PackRows(NativeKernel):
    """dst[p][i] = src[p][i]: src [k][columns], columns up to the width, dst [k][width]; what is left becomes 0"""

    def bound(self, src: Array, dst: Array | None = None) -> Call:
        (width,) = self.spec.tile
        how = {"apart": True, "backwards": True, "unaligned": True}
        self.check.array("src", src, (None, range(1, width + 1)), element(self.spec.types[0]), **how)
        k, columns = src.shape
        dst = self.check.output("dst", dst, (k, width))
        self.check.apart_from(dst, src=src)
        return self.call((k, columns, src, _stride(src), dst), dst)


class PackPatches(NativeKernel):
    """dst[c][8 g + l] = segments[2 g][c][l] where masks[2 g][l], else segments[2 g + 1][c][l] where its mask, else 0

    Each segment is an array [channels][8], or None where its mask is all False; all are equally far apart in memory
    from channel to channel. Only what the masks hold is read.
    """

    def bound(self, segments: Sequence[Array | None], masks: Array, dst: Array | None = None) -> Call:
        (width,), check = self.spec.tile, self.check
        count = 2 * width // 8
        check.array("masks", masks, (count, 8), np.bool_)
        if len(segments) != count:
            raise check.fail(f"there are {len(segments)} segments, but have to be {count}")
        given = [segment for segment in segments if segment is not None]
        channels, stride = 0, 32
        for index, segment in enumerate(segments):
            if segment is None:
                if masks[index].any():
                    raise check.fail(f"segments[{index}] is None, but its mask is not all False")
                continue
            channels = given[0].shape[0] if given[0].ndim else 0
            check.array(f"segments[{index}]", segment, (channels, 8), apart=True)
            stride = _stride(given[0])
            if _stride(segment) != stride:
                raise check.fail(f"segments[{index}] has rows {_stride(segment)} bytes apart, the first has {stride}")
        if (masks[::2] & masks[1::2]).any():
            raise check.fail("masks has lanes that are taken from two segments")
        dst = check.output("dst", dst, (channels, width), apart=True)
        check.apart_from(dst, **{f"segments[{index}]": segment for index, segment in enumerate(segments)})
        patches = structure(contract.PATCHES)()
        patches.segment[:count] = [_address(segment) for segment in segments]
        patches.mask[: 8 * count] = [-int(lane) for lane in masks.ravel()]
        call = self.call((channels, patches, stride, dst, _stride(dst)), dst)
        return Call(call.function, call.arguments, dst, (*call.kept, *given))


class Scores(NativeKernel):
    """Scores p [tiles][rows][width] of a panel of queries q [depth][width] with tiles of keys k [tiles][depth][rows]

    They become powers of two, and `sum` and `maximum` [width] are those so far and with them, but for `raw`.
    """

    def bound(
        self,
        k: Array,
        q: Array,
        p: Array | None = None,
        *,
        shift: Array | None = None,
        sum: Array | None = None,
        maximum: Array | None = None,
        bias: Array | None = None,
        scale: float = 1.0,
        bias_scale: float = 1.0,
        chunk: int | None = None,
        load: bool = False,
        raw: bool = False,
    ) -> Call:
        (rows, width), check = self.spec.tile, self.check
        check.array("k", k, (range(1, _MOST), None, rows), apart=True)
        tiles, depth = k.shape[:2]
        check.array("q", q, (depth, width))
        if load and p is None:
            raise check.fail("p is not given, but has to be where the kernel loads it")
        p = check.output("p", p, (tiles, rows, width))
        chunk = check.number("chunk", max(depth, 1) if chunk is None else chunk, range(1, _MOST))
        check.optional("bias", bias, (tiles, rows, width))
        for name, array in (("shift", shift), ("sum", sum), ("maximum", maximum)):
            if array is None and not raw:
                raise check.fail(f"{name} is not given, but has to be where the kernel makes exponentials")
            check.optional(name, array, (width,), writable=name != "shift")
        check.apart_from(p, k=k, q=q, bias=bias, shift=shift, sum=sum, maximum=maximum)
        values = self.filled(
            contract.SCORES,
            **{"k": k, "q": q, "p": p, "bias": bias, "shift": shift, "sum": sum, "maximum": maximum},
            **{"k_stride": _stride(k), "depth": depth, "chunk": chunk, "tiles": tiles},
            **{"load": int(load), "raw": int(raw), "scale": scale, "bias_scale": bias_scale},
        )
        return self.call((values,), p)


class Unpack(NativeKernel):
    """dst[j][p] = src[p][j] factor[j]: src [k][width], factor [width], dst [rows][k], as many rows as it has"""

    def bound(self, src: Array, factor: Array, dst: Array | None = None) -> Call:
        (width,), check = self.spec.tile, self.check
        check.array("src", src, (None, width), apart=True)
        check.array("factor", factor, (width,))
        k = src.shape[0]
        rows = dst.shape[0] if isinstance(dst, np.ndarray) and dst.ndim == 2 else width
        check.number("rows of dst", rows, range(1, width + 1))
        dst = check.output("dst", dst, (rows, k), apart=True)
        check.apart_from(dst, src=src, factor=factor)
        values = self.filled(
            contract.UNPACK,
            **{"src": src, "src_stride": _stride(src), "factor": factor, "dst": dst, "dst_stride": _stride(dst)},
            **{"k": k, "rows": rows},
        )
        return self.call((values,), dst)


class Map(NativeKernel):
    """y = f(t) factor, t = (x scale + shift) weight + addend; y may be one of the other arrays"""

    def bound(
        self,
        x: Array,
        y: Array | None = None,
        *,
        weight: Array | None = None,
        addend: Array | None = None,
        factor: Array | None = None,
        scale: float = 1.0,
        shift: float = 0.0,
        parameter: tuple[float, float] = (0.0, 0.0),
    ) -> Call:
        check = self.check
        check.array("x", x, (None,))
        n = x.shape[0]
        y = check.output("y", y, (n,))
        inputs = {"weight": weight, "addend": addend, "factor": factor}
        for name, array in inputs.items():
            check.optional(name, array, (n,))
        others = {**inputs, "x": x}
        check.apart_from(y, **{name: None if _same(array, y) else array for name, array in others.items()})
        values = self.filled(contract.MAP_RUN, x=x, y=y, n=n, **inputs, scale=scale, shift=shift, parameter=parameter)
        return self.call((values,), y)


def _same(one: Array | None, other: Array) -> bool:
    return one is not None and one.ctypes.data == other.ctypes.data


class Moments(NativeKernel):
    """sums[0] += the sum of x, sums[1] += that of its squares, in double precision; sums begins as 0 if not given"""

    def bound(self, x: Array, sums: Array | None = None) -> Call:
        self.check.array("x", x, (None,))
        if sums is None:
            sums = np.zeros(2)
        self.check.array("sums", sums, (2,), np.float64, writable=True)
        self.check.apart_from(sums, x=x)
        return self.call((x.shape[0], x, sums), sums)


class Maximum(NativeKernel):
    """maximum[0] = the largest of maximum[0] and x; maximum begins as -infinity if not given"""

    def bound(self, x: Array, maximum: Array | None = None) -> Call:
        self.check.array("x", x, (None,))
        if maximum is None:
            maximum = np.full(1, -np.inf, np.float32)
        self.check.array("maximum", maximum, (1,), writable=True)
        self.check.apart_from(maximum, x=x)
        return self.call((x.shape[0], x, maximum), maximum)


class Nh(NativeKernel):
    """NH's four sums of data and secrets, of words of 64 bits; 24 secrets more than data, a multiple of 8 words"""

    def bound(self, data: Array, secrets: Array, sums: Array | None = None) -> Call:
        self.check.array("data", data, (None,), np.uint64)
        if not data.size or data.size % 8:
            raise self.check.fail(f"data has {data.size} words, but has to have a multiple of 8, and not none")
        self.check.array("secrets", secrets, (data.size + 24,), np.uint64)
        if sums is None:
            sums = np.zeros(4, np.uint64)
        self.check.array("sums", sums, (4,), np.uint64, writable=True)
        self.check.apart_from(sums, data=data, secrets=secrets)
        return self.call((data.nbytes, data, secrets, sums), sums)


class Probe(NativeKernel):
    """So many rounds of a loop of registers only"""

    def bound(self, rounds: int) -> Call:
        return self.call((self.check.number("rounds", rounds, _ANY),), None)


class WinogradWeights(NativeKernel):
    """dst[tap][c][o] of weights src[9 c + 3 i + j][o]: src [9 channels][16], dst [taps][channels][16]"""

    def bound(self, src: Array, dst: Array | None = None) -> Call:
        self.check.array("src", src, (None, 16))
        if src.shape[0] % 9:
            raise self.check.fail(f"src has {src.shape[0]} rows, but has to have nine for each channel")
        channels, taps = src.shape[0] // 9, algorithm_of(self.spec.operation, self.spec.tile[0]).t ** 2
        dst = self.check.output("dst", dst, (taps, channels, 16), apart=True)
        self.check.apart_from(dst, src=src)
        return self.call((channels, src, dst, _stride(dst)), dst)


class Winograd(NativeKernel):
    """A transform of tiles, by the fields of its structure in runtime/kernel.h

    Fields are checked by name, pointers to be arrays of float32 or sequences of them; extents are left to the caller.
    """

    def bound(self, **fields: Any) -> Call:
        is_input = self.spec.operation.startswith("winograd_input")
        struct = contract.WINOGRAD_INPUT if is_input else contract.WINOGRAD_OUTPUT
        known = {name: (kind, count) for kind, name, count in struct.fields}
        values, kept = structure(struct)(), []
        for name, value in fields.items():
            if name not in known:
                raise self.check.fail(f"has no field {name}; there are: {', '.join(known)}")
            kind, count = known[name]
            parts = list(value) if count > 1 else [value]
            if len(parts) > count:
                raise self.check.fail(f"{name} has {len(parts)} values, but {count} at most")
            if kind.endswith("*"):
                for part in parts:
                    if part is not None and not (isinstance(part, np.ndarray) and part.dtype == np.float32):
                        raise self.check.fail(f"{name} has to be an array of float32")
                kept += parts
                parts = [_address(part) for part in parts]
            if count > 1:
                getattr(values, name)[: len(parts)] = parts
            else:
                setattr(values, name, parts[0])
        call = self.call((values,), None)
        return Call(call.function, call.arguments, None, (*call.kept, *kept))


_KINDS: dict[str, type[NativeKernel]] = {
    "gemm": Gemm,
    "gemm16": Gemm16,
    "dot": Dot,
    "pack": Pack,
    "pack_rows": PackRows,
    "pack_patches": PackPatches,
    "scores": Scores,
    "unpack": Unpack,
    "map": Map,
    "moments": Moments,
    "maximum": Maximum,
    "nh": Nh,
    "probe": Probe,
    "winograd_weights": WinogradWeights,
    "winograd": Winograd,
}


def native_kernel(spec: KernelSpec, function: int) -> NativeKernel:
    """The kernel at an address: of the kind that its operation names, or the longest beginning of that name."""
    words = spec.operation.split("_")
    for length in range(len(words), 0, -1):
        kind = _KINDS.get("_".join(words[:length]))
        if kind:
            return kind(spec, function)
    raise NativeError(f"{spec.name}: kernels of {spec.operation} cannot be called from Python")
