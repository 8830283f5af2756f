"""What kernels take, as runtime/kernel.h declares it: signatures and the places of the fields of structures.

Kernels take offsets and argument names from here; a test compares all of it with the header.
"""

from __future__ import annotations

from dataclasses import dataclass

_SIZES = {"const float *": 8, "float *": 8, "int64_t": 8, "int32_t": 4, "float": 4}


@dataclass(frozen=True)
class Signature:
    """A kernel's type: the header's typedef and its parameters as (C type, name), all of them integers or pointers."""

    typedef: str
    parameters: tuple[tuple[str, str], ...]

    def prototype(self, symbol: str) -> str:
        """The C prototype of a kernel of this type."""
        parameters = (kind + ("" if kind.endswith("*") else " ") + name for kind, name in self.parameters)
        return f"void {symbol}({', '.join(parameters)});"


@dataclass(frozen=True)
class Struct:
    """A C structure: its tag and its fields as (C type, name, number of elements)."""

    tag: str
    fields: tuple[tuple[str, str, int], ...]

    def offset(self, field: str) -> int:
        """The place of a field in bytes (System V: each element aligned to its own size)."""
        end = 0
        for kind, name, count in self.fields:
            size = _SIZES[kind]
            start = -(-end // size) * size
            if name == field:
                return start
            end = start + size * count
        raise KeyError(f"struct {self.tag} has no field {field}")


EPILOGUE = Struct(
    "sdgen_epilogue",
    (
        ("const float *", "row_bias", 1),
        ("const float *", "column_bias", 1),
        ("int32_t", "columns", 1),
        ("int32_t", "accumulate", 1),
        ("float", "scale", 1),
    ),
)

PATCHES = Struct("sdgen_patches", (("const float *", "segment", 8), ("int32_t", "mask", 64)))

WINOGRAD_INPUT = Struct(
    "sdgen_winograd_input",
    (
        ("const float *", "x", 4),
        ("int64_t", "row_stride", 1),
        ("int64_t", "channel_stride", 1),
        ("int64_t", "channels", 1),
        ("float *", "dst", 1),
        ("int64_t", "tap_stride", 1),
        ("int64_t", "dst_channel_stride", 1),
        ("int64_t", "masked", 1),
        ("int32_t", "load_mask", 128),
        ("int32_t", "row_mask", 96),
    ),
)

WINOGRAD_OUTPUT = Struct(
    "sdgen_winograd_output",
    (
        ("const float *", "src", 1),
        ("int64_t", "tap_stride", 1),
        ("int64_t", "src_channel_stride", 1),
        ("int64_t", "channels", 1),
        ("float *", "y", 4),
        ("int64_t", "row_stride", 1),
        ("int64_t", "channel_stride", 1),
        ("const float *", "bias", 1),
        ("int32_t", "rows", 4),
        ("int32_t", "columns", 4),
        ("float", "scale", 1),
    ),
)

SCORES = Struct(
    "sdgen_scores",
    (
        ("const float *", "k", 1),
        ("const float *", "q", 1),
        ("float *", "p", 1),
        ("const float *", "bias", 1),
        ("const float *", "shift", 1),
        ("float *", "sum", 1),
        ("float *", "maximum", 1),
        ("int64_t", "k_stride", 1),
        ("int64_t", "depth", 1),
        ("int64_t", "chunk", 1),
        ("int64_t", "tiles", 1),
        ("int32_t", "load", 1),
        ("int32_t", "raw", 1),
        ("float", "scale", 1),
        ("float", "bias_scale", 1),
    ),
)

UNPACK = Struct(
    "sdgen_unpack",
    (
        ("const float *", "src", 1),
        ("int64_t", "src_stride", 1),
        ("const float *", "factor", 1),
        ("float *", "dst", 1),
        ("int64_t", "dst_stride", 1),
        ("int64_t", "k", 1),
        ("int64_t", "rows", 1),
    ),
)

MAP_RUN = Struct(
    "sdgen_map_run",
    (
        ("const float *", "x", 1),
        ("float *", "y", 1),
        ("int64_t", "n", 1),
        ("const float *", "weight", 1),
        ("const float *", "addend", 1),
        ("const float *", "factor", 1),
        ("float", "scale", 1),
        ("float", "shift", 1),
        ("float", "parameter", 2),
    ),
)

GEMM = Signature(
    "sdgen_gemm_kernel",
    (
        ("size_t", "k"),
        ("const float *", "a"),
        ("const float *", "b"),
        ("float *", "c"),
        ("size_t", "c_stride"),
        ("const struct sdgen_epilogue *", "epilogue"),
    ),
)

DOT_OUTPUT = Struct(
    "sdgen_dot_output",
    (
        ("float *", "c", 1),
        ("int64_t", "c_stride", 1),
        ("const float *", "column_bias", 1),
        ("float", "scale", 1),
    ),
)

DOT = Signature(
    "sdgen_dot_kernel",
    (
        ("size_t", "k"),
        ("const float *", "x"),
        ("ptrdiff_t", "x_stride"),
        ("const void *", "w"),
        ("ptrdiff_t", "w_stride"),
        ("const struct sdgen_dot_output *", "output"),
    ),
)

PACK = Signature(
    "sdgen_pack_kernel",
    (
        ("size_t", "k"),
        ("size_t", "rows"),
        ("const void *", "src"),
        ("ptrdiff_t", "src_stride"),
        ("float *", "dst"),
    ),
)

PACK_PATCHES = Signature(
    "sdgen_pack_patches_kernel",
    (
        ("size_t", "channels"),
        ("const struct sdgen_patches *", "patches"),
        ("size_t", "channel_stride"),
        ("float *", "dst"),
        ("size_t", "dst_stride"),
    ),
)

WINOGRAD_INPUT_KERNEL = Signature("sdgen_winograd_input_kernel", (("const struct sdgen_winograd_input *", "input"),))

WINOGRAD_WEIGHTS_KERNEL = Signature(
    "sdgen_winograd_weights_kernel",
    (
        ("size_t", "channels"),
        ("const float *", "src"),
        ("float *", "dst"),
        ("size_t", "tap_stride"),
    ),
)

WINOGRAD_OUTPUT_KERNEL = Signature(
    "sdgen_winograd_output_kernel", (("const struct sdgen_winograd_output *", "output"),)
)

SCORES_KERNEL = Signature("sdgen_scores_kernel", (("const struct sdgen_scores *", "scores"),))

PACK_ROWS = Signature(
    "sdgen_pack_rows_kernel",
    (
        ("size_t", "k"),
        ("size_t", "columns"),
        ("const void *", "src"),
        ("ptrdiff_t", "src_stride"),
        ("float *", "dst"),
    ),
)

UNPACK_KERNEL = Signature("sdgen_unpack_kernel", (("const struct sdgen_unpack *", "unpack"),))

MAP_KERNEL = Signature("sdgen_map_kernel", (("const struct sdgen_map_run *", "run"),))

MOMENTS_KERNEL = Signature("sdgen_moments_kernel", (("size_t", "n"), ("const float *", "x"), ("double *", "sums")))

MAXIMUM_KERNEL = Signature("sdgen_maximum_kernel", (("size_t", "n"), ("const float *", "x"), ("float *", "maximum")))

NH_KERNEL = Signature(
    "sdgen_nh_kernel",
    (
        ("size_t", "size"),
        ("const void *", "data"),
        ("const uint64_t *", "secrets"),
        ("uint64_t *", "sums"),
    ),
)

PROBE = Signature("sdgen_probe_kernel", (("size_t", "rounds"),))
