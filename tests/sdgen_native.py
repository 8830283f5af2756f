"""sdgen.h, kernel.h and the support library for Python: structures, functions, rows of kernels."""

from __future__ import annotations

import ctypes
import functools
import os
from ctypes import (
    CFUNCTYPE,
    POINTER,
    Structure,
    c_bool,
    c_char,
    c_char_p,
    c_double,
    c_float,
    c_int,
    c_int32,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from dataclasses import dataclass
from enum import IntEnum, IntFlag
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parent.parent
LIBRARIES = Path(os.environ.get("SDGEN_NATIVE_DIR", REPOSITORY / "build" / "native"))


class Form(IntEnum):
    ASSEMBLY = 0
    C = 1
    UPSTREAM = 2


class Level(IntEnum):
    C = 0
    AVX2 = 1
    AVX512 = 2


class Feature(IntFlag):
    AVX2 = 1 << 0
    FMA = 1 << 1
    F16C = 1 << 2
    AVX_VNNI = 1 << 3
    AVX512F = 1 << 4
    AVX512DQ = 1 << 5
    AVX512BW = 1 << 6
    AVX512VL = 1 << 7
    AVX512_VNNI = 1 << 8
    AVX512_BF16 = 1 << 9
    AVX512_FP16 = 1 << 10
    AVX10_2 = 1 << 11
    AMX_TILE = 1 << 12
    AMX_BF16 = 1 << 13
    AMX_INT8 = 1 << 14
    AMX_FP16 = 1 << 15
    BMI2 = 1 << 16


TILES = Feature.AMX_BF16 | Feature.AMX_INT8 | Feature.AMX_FP16


class Type(IntEnum):
    F32 = 0
    F16 = 1
    BF16 = 2


class Function(IntEnum):
    NONE = 0
    SILU = 1
    GELU = 2
    GELU_ERF = 3
    GELU_QUICK = 4
    SIGMOID = 5
    TANH = 6
    RELU = 7
    LEAKY = 8
    CLAMP = 9
    EXP = 10


class Processor(Structure):
    _fields_ = [("features", c_uint32), ("l1", c_size_t), ("l2", c_size_t), ("l3", c_size_t), ("name", c_char * 64)]


class Cpuid(Structure):
    _fields_ = [
        ("max_leaf", c_uint32),
        ("leaf1_ecx", c_uint32),
        ("leaf7_ebx", c_uint32),
        ("leaf7_ecx", c_uint32),
        ("leaf7_edx", c_uint32),
        ("leaf7_1_eax", c_uint32),
        ("leaf7_1_edx", c_uint32),
        ("leaf24_ebx", c_uint32),
        ("xcr0", c_uint64),
        ("tiles_permitted", c_bool),
    ]


class Tuning(Structure):
    _fields_ = [(name, c_int) for name in ("winograd", "tile", "kc", "mc", "nc", "packed_mb", "reuse", "fuse")]


class Config(Structure):
    _fields_ = [
        ("form", c_int),
        ("cap", c_int),
        ("verbose", c_int),
        ("profile", c_int),
        ("trace", c_char_p),
        ("store_mb", c_int),
        ("tuning", Tuning),
    ]


class KernelRow(Structure):
    _fields_ = [
        ("name", c_char_p),
        ("operation", c_char_p),
        ("type", c_char_p),
        ("rows", c_int),
        ("columns", c_int),
        ("per_round", c_int),
        ("level", c_int),
        ("features", c_uint32),
        ("function", c_void_p),
    ]


class Blocking(Structure):
    _fields_ = [("kc", c_int64), ("mc", c_int64), ("nc", c_int64), ("packed_bytes", c_int64)]

    def __repr__(self) -> str:
        return f"Blocking({self.kc}, {self.mc}, {self.nc}, {self.packed_bytes})"


class Hash(Structure):
    _fields_ = [("word", c_uint64 * 2)]

    @property
    def value(self) -> int:
        return int(self.word[1]) << 64 | int(self.word[0])


class StoreCounts(Structure):
    _fields_ = [(name, c_int64) for name in ("bytes", "arrays", "found", "added", "turned_away")]


class Operand(Structure):
    _fields_ = [("data", c_void_p), ("stride", c_int64 * 4)]


class After(Structure):
    _fields_ = [
        ("shift", c_void_p),
        ("weight", Operand),
        ("addend", Operand),
        ("factor", Operand),
        ("function", c_int),
        ("parameter", c_float * 2),
    ]


class Before(Structure):
    _fields_ = [
        ("groups", c_int64),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("eps", c_float),
        ("function", c_int),
        ("parameter", c_float * 2),
        ("sums", c_void_p),
        ("sum_pieces", c_int64),
    ]


class RowNorm(Structure):
    _fields_ = [
        ("weight", c_void_p),
        ("modulation", c_void_p),
        ("bias", c_void_p),
        ("modulation_stride", c_int64 * 2),
        ("bias_stride", c_int64 * 2),
        ("eps", c_float),
        ("rms", c_bool),
    ]


class Matmul(Structure):
    _fields_ = [
        ("m", c_int64),
        ("n", c_int64),
        ("k", c_int64),
        ("batch", c_int64 * 2),
        ("w", c_void_p),
        ("w_type", c_int),
        ("w_stride", c_int64),
        ("w_batch_stride", c_int64 * 2),
        ("w_repeat", c_int64 * 2),
        ("x", c_void_p),
        ("x_stride", c_int64),
        ("x_batch_stride", c_int64 * 2),
        ("c", c_void_p),
        ("c_stride", c_int64),
        ("c_batch_stride", c_int64 * 2),
        ("scale", c_float),
        ("bias", c_void_p),
        ("after", After),
        ("gated", c_bool),
        ("normalized", c_bool),
        ("before", RowNorm),
        ("more", c_void_p),
    ]


class Frames(Structure):
    _fields_ = [(name, c_int64) for name in ("in", "out", "kernel", "stride", "pad", "dilation", "x_stride")]


class Conv2d(Structure):
    _fields_ = [
        ("batch", c_int64),
        ("channels_in", c_int64),
        ("channels_out", c_int64),
        ("width", c_int64),
        ("height", c_int64),
        ("width_out", c_int64),
        ("height_out", c_int64),
        ("kernel_width", c_int64),
        ("kernel_height", c_int64),
        ("stride_x", c_int64),
        ("stride_y", c_int64),
        ("pad_x", c_int64),
        ("pad_y", c_int64),
        ("dilation_x", c_int64),
        ("dilation_y", c_int64),
        ("w", c_void_p),
        ("w_type", c_int),
        ("x", c_void_p),
        ("x_row_stride", c_int64),
        ("x_channel_stride", c_int64),
        ("x_batch_stride", c_int64),
        ("c", c_void_p),
        ("c_batch_stride", c_int64),
        ("scale", c_float),
        ("bias", c_void_p),
        ("x_doubled", c_bool),
        ("after", After),
        ("x_pixel_stride", c_int64),
        ("frames", Frames),
        ("before", Before),
        ("sums", c_void_p),
    ]


class Map(Structure):
    _fields_ = [
        ("extent", c_int64 * 4),
        ("x", c_void_p),
        ("x_stride", c_int64 * 3),
        ("y", c_void_p),
        ("y_stride", c_int64 * 3),
        ("weight", Operand),
        ("addend", Operand),
        ("factor", Operand),
        ("function", c_int),
        ("parameter", c_float * 2),
        ("scale", c_float),
        ("shift", c_float),
    ]


class GroupNorm(Structure):
    _fields_ = [
        ("batch", c_int64),
        ("channels", c_int64),
        ("pixels", c_int64),
        ("groups", c_int64),
        ("x", c_void_p),
        ("x_channel_stride", c_int64),
        ("x_batch_stride", c_int64),
        ("y", c_void_p),
        ("y_channel_stride", c_int64),
        ("y_batch_stride", c_int64),
        ("weight", c_void_p),
        ("bias", c_void_p),
        ("eps", c_float),
        ("function", c_int),
        ("parameter", c_float * 2),
        ("sums", c_void_p),
        ("sum_pieces", c_int64),
    ]


class LayerNorm(Structure):
    _fields_ = [
        ("n", c_int64),
        ("rows", c_int64 * 3),
        ("x", c_void_p),
        ("x_stride", c_int64 * 3),
        ("y", c_void_p),
        ("y_stride", c_int64 * 3),
        ("norm", RowNorm),
    ]


class Softmax(Structure):
    _fields_ = [
        ("n", c_int64),
        ("rows", c_int64 * 3),
        ("x", c_void_p),
        ("x_stride", c_int64 * 3),
        ("y", c_void_p),
        ("y_stride", c_int64 * 3),
        ("mask", c_void_p),
        ("mask_type", c_int),
        ("mask_stride", c_int64 * 3),
        ("mask_extent", c_int64 * 2),
        ("sinks", c_void_p),
        ("scale", c_float),
        ("max_bias", c_float),
    ]


class Upscale(Structure):
    _fields_ = [
        ("extent", c_int64 * 4),
        ("factor", c_int64 * 4),
        ("x", c_void_p),
        ("x_stride", c_int64 * 4),
        ("y", c_void_p),
        ("y_stride", c_int64 * 3),
    ]


class Pad(Structure):
    _fields_ = [
        ("extent", c_int64 * 4),
        ("before", c_int64 * 4),
        ("after", c_int64 * 4),
        ("x", c_void_p),
        ("x_stride", c_int64 * 4),
        ("y", c_void_p),
        ("y_stride", c_int64 * 3),
    ]


class Permute(Structure):
    _fields_ = [
        ("extent", c_int64 * 4),
        ("x", c_void_p),
        ("x_stride", c_int64 * 4),
        ("y", c_void_p),
        ("y_stride", c_int64 * 3),
    ]


class Attention(Structure):
    _fields_ = [
        ("queries", c_int64),
        ("keys", c_int64),
        ("heads", c_int64),
        ("batch", c_int64),
        ("depth", c_int64),
        ("value_depth", c_int64),
        ("q", c_void_p),
        ("q_stride", c_int64),
        ("q_head_stride", c_int64),
        ("q_batch_stride", c_int64),
        ("k", c_void_p),
        ("k_type", c_int),
        ("k_stride", c_int64),
        ("k_head_stride", c_int64),
        ("k_batch_stride", c_int64),
        ("k_repeat", c_int64 * 2),
        ("v", c_void_p),
        ("v_type", c_int),
        ("v_stride", c_int64),
        ("v_head_stride", c_int64),
        ("v_batch_stride", c_int64),
        ("v_repeat", c_int64 * 2),
        ("mask", c_void_p),
        ("mask_type", c_int),
        ("mask_stride", c_int64),
        ("mask_head_stride", c_int64),
        ("mask_batch_stride", c_int64),
        ("mask_heads", c_int64),
        ("mask_batch", c_int64),
        ("sinks", c_void_p),
        ("scale", c_float),
        ("max_bias", c_float),
        ("softcap", c_float),
        ("c", c_void_p),
        ("c_stride", c_int64),
        ("c_head_stride", c_int64),
        ("c_batch_stride", c_int64),
    ]


class Plan(Structure):
    _fields_ = [
        ("kernels", c_void_p),
        ("blocking", Blocking),
        ("tile_columns", c_int),
        ("winograd", c_int),
        ("store", c_void_p),
    ]


class Phase(IntEnum):
    OTHER = 0
    PACK = 1
    TRANSFORM = 2
    PRODUCT = 3
    EPILOGUE = 4
    ELEMENTS = 5
    WAIT = 6


QUEUE_SIZE = 128  # SDGEN_QUEUE_SIZE


class Clock(Structure):
    pass


ENDED = CFUNCTYPE(None, POINTER(Clock), c_int, c_int64, c_int64)
Clock._fields_ = [("mark", c_int64), ("spent", c_int64 * len(Phase)), ("ended", ENDED)]


class Team(Structure):
    _fields_ = [
        ("ith", c_int),
        ("nth", c_int),
        ("queue", c_void_p),
        ("work", c_void_p),
        ("work_size", c_size_t),
        ("barrier", c_void_p),
        ("barrier_data", c_void_p),
        ("clock", POINTER(Clock)),
    ]


class Epilogue(Structure):
    _fields_ = [
        ("row_bias", c_void_p),
        ("column_bias", c_void_p),
        ("columns", c_int32),
        ("accumulate", c_int32),
        ("scale", c_float),
    ]


class Patches(Structure):
    _fields_ = [("segment", c_void_p * 8), ("mask", (c_int32 * 8) * 8)]


class MapRun(Structure):
    _fields_ = [
        ("x", c_void_p),
        ("y", c_void_p),
        ("n", c_int64),
        ("weight", c_void_p),
        ("addend", c_void_p),
        ("factor", c_void_p),
        ("scale", c_float),
        ("shift", c_float),
        ("parameter", c_float * 2),
    ]


class Scores(Structure):
    _fields_ = [
        ("k", c_void_p),
        ("q", c_void_p),
        ("p", c_void_p),
        ("bias", c_void_p),
        ("shift", c_void_p),
        ("sum", c_void_p),
        ("maximum", c_void_p),
        ("k_stride", c_int64),
        ("depth", c_int64),
        ("chunk", c_int64),
        ("tiles", c_int64),
        ("load", c_int32),
        ("raw", c_int32),
        ("scale", c_float),
        ("bias_scale", c_float),
    ]


class Unpack(Structure):
    _fields_ = [
        ("src", c_void_p),
        ("src_stride", c_int64),
        ("factor", c_void_p),
        ("dst", c_void_p),
        ("dst_stride", c_int64),
        ("k", c_int64),
        ("rows", c_int64),
    ]


class Report(Structure):
    _fields_ = [("broken", c_uint32), ("signal", c_int32), ("wrote", c_int32), ("address", c_uint64)]


STRUCTURES: dict[str, type[Structure]] = {
    "sdgen_processor": Processor,
    "sdgen_cpuid": Cpuid,
    "sdgen_tuning": Tuning,
    "sdgen_config": Config,
    "sdgen_kernel_row": KernelRow,
    "sdgen_blocking": Blocking,
    "sdgen_hash": Hash,
    "sdgen_store_counts": StoreCounts,
    "sdgen_after": After,
    "sdgen_before": Before,
    "sdgen_row_norm": RowNorm,
    "sdgen_matmul": Matmul,
    "sdgen_frames": Frames,
    "sdgen_conv2d": Conv2d,
    "sdgen_operand": Operand,
    "sdgen_map": Map,
    "sdgen_group_norm": GroupNorm,
    "sdgen_layer_norm": LayerNorm,
    "sdgen_softmax": Softmax,
    "sdgen_upscale": Upscale,
    "sdgen_pad": Pad,
    "sdgen_permute": Permute,
    "sdgen_attention": Attention,
    "sdgen_plan": Plan,
    "sdgen_clock": Clock,
    "sdgen_team": Team,
    "sdgen_epilogue": Epilogue,
    "sdgen_patches": Patches,
    "sdgen_map_run": MapRun,
    "sdgen_scores": Scores,
    "sdgen_unpack": Unpack,
    "sdgen_test_report": Report,
}

# Bits of Report.broken, lowest first: SDGEN_TEST_* in tests/native/support.h.
BROKEN = (
    *("rbx", "rbp", "r12", "r13", "r14", "r15", "rsp"),
    *("stack_above", "stack_below", "direction", "mxcsr", "x87", "upper_ymm", "barrier", "queue"),
)


def _load(name: str) -> ctypes.CDLL:
    path = LIBRARIES / name
    if not path.exists():
        pytest.fail(f"{path} is absent: `make test` builds it and runs the tests", pytrace=False)
    return ctypes.CDLL(str(path))


def _function(library: ctypes.CDLL, name: str, result: Any, *arguments: Any) -> Any:
    function = getattr(library, name)
    function.restype = result
    function.argtypes = arguments
    return function


_sdgen = _load("libsdgen.so")
sdgen_feature_name = _function(_sdgen, "sdgen_feature_name", c_char_p, ctypes.c_uint)
sdgen_features = _function(_sdgen, "sdgen_features", c_uint32, POINTER(Cpuid))
sdgen_request_tiles = _function(_sdgen, "sdgen_request_tiles", c_bool)
sdgen_processor = _function(_sdgen, "sdgen_processor", POINTER(Processor))
sdgen_level_name = _function(_sdgen, "sdgen_level_name", c_char_p, c_int)
sdgen_select_level = _function(_sdgen, "sdgen_select_level", c_int, c_uint32, c_int, c_int)
sdgen_config_from_environment = _function(
    _sdgen, "sdgen_config_from_environment", c_bool, POINTER(Config), c_char_p, c_size_t
)
sdgen_default_threads = _function(_sdgen, "sdgen_default_threads", c_int)
sdgen_threads_of = _function(_sdgen, "sdgen_threads_of", c_int, c_int, c_int, c_int)
sdgen_quota = _function(_sdgen, "sdgen_quota", c_int, c_char_p)
sdgen_phase_name = _function(_sdgen, "sdgen_phase_name", c_char_p, c_int)
sdgen_now = _function(_sdgen, "sdgen_now", c_int64)
sdgen_kernel_count = _function(_sdgen, "sdgen_kernel_count", c_size_t)
sdgen_kernel_row = _function(_sdgen, "sdgen_kernel_row", POINTER(KernelRow), c_size_t)
sdgen_kernels = _function(_sdgen, "sdgen_kernels", c_void_p, c_int)
sdgen_blocking = _function(_sdgen, "sdgen_blocking", Blocking, POINTER(Processor))
sdgen_hash = _function(_sdgen, "sdgen_hash", Hash, c_void_p, c_void_p, c_size_t, c_size_t, ctypes.c_ssize_t)
sdgen_store_new = _function(_sdgen, "sdgen_store_new", c_void_p, c_size_t)
sdgen_store_free = _function(_sdgen, "sdgen_store_free", None, c_void_p)
sdgen_store_tick = _function(_sdgen, "sdgen_store_tick", None, c_void_p)
sdgen_store_find = _function(_sdgen, "sdgen_store_find", c_void_p, c_void_p, Hash)
sdgen_store_add = _function(_sdgen, "sdgen_store_add", c_void_p, c_void_p, Hash, c_size_t)
sdgen_store_has_room = _function(_sdgen, "sdgen_store_has_room", c_bool, c_void_p, c_size_t)
sdgen_store_publish = _function(_sdgen, "sdgen_store_publish", None, c_void_p, c_void_p)
sdgen_store_release = _function(_sdgen, "sdgen_store_release", None, c_void_p, c_void_p)
sdgen_store_counts = _function(_sdgen, "sdgen_store_counts", StoreCounts, c_void_p)
sdgen_matmul_check = _function(_sdgen, "sdgen_matmul_check", c_char_p, POINTER(Matmul))
sdgen_conv2d_check = _function(_sdgen, "sdgen_conv2d_check", c_char_p, POINTER(Conv2d))
sdgen_attention_check = _function(_sdgen, "sdgen_attention_check", c_char_p, POINTER(Attention))
sdgen_matmul_work_size = _function(_sdgen, "sdgen_matmul_work_size", c_size_t, POINTER(Plan), POINTER(Matmul), c_int)
sdgen_conv2d_work_size = _function(_sdgen, "sdgen_conv2d_work_size", c_size_t, POINTER(Plan), POINTER(Conv2d), c_int)
sdgen_conv2d_norm_pays = _function(_sdgen, "sdgen_conv2d_norm_pays", c_bool, POINTER(Conv2d))
sdgen_conv2d_sum_pieces = _function(_sdgen, "sdgen_conv2d_sum_pieces", c_int64, POINTER(Plan), POINTER(Conv2d))
sdgen_conv2d_sums_pay = _function(_sdgen, "sdgen_conv2d_sums_pay", c_bool, POINTER(Plan), POINTER(Conv2d))
sdgen_conv2d_overwrites = _function(_sdgen, "sdgen_conv2d_overwrites", c_bool, POINTER(Plan), POINTER(Conv2d))
sdgen_map_check = _function(_sdgen, "sdgen_map_check", c_char_p, POINTER(Map))
sdgen_group_norm_check = _function(_sdgen, "sdgen_group_norm_check", c_char_p, POINTER(GroupNorm))
sdgen_layer_norm_check = _function(_sdgen, "sdgen_layer_norm_check", c_char_p, POINTER(LayerNorm))
sdgen_softmax_check = _function(_sdgen, "sdgen_softmax_check", c_char_p, POINTER(Softmax))
sdgen_softmax_work_size = _function(_sdgen, "sdgen_softmax_work_size", c_size_t, POINTER(Plan), POINTER(Softmax), c_int)
sdgen_upscale_check = _function(_sdgen, "sdgen_upscale_check", c_char_p, POINTER(Upscale))
sdgen_upscale_work_size = _function(_sdgen, "sdgen_upscale_work_size", c_size_t, POINTER(Plan), POINTER(Upscale), c_int)
sdgen_pad_check = _function(_sdgen, "sdgen_pad_check", c_char_p, POINTER(Pad))
sdgen_pad_work_size = _function(_sdgen, "sdgen_pad_work_size", c_size_t, POINTER(Plan), POINTER(Pad), c_int)
sdgen_permute_check = _function(_sdgen, "sdgen_permute_check", c_char_p, POINTER(Permute))
sdgen_permute_work_size = _function(_sdgen, "sdgen_permute_work_size", c_size_t, POINTER(Plan), POINTER(Permute), c_int)
sdgen_map_work_size = _function(_sdgen, "sdgen_map_work_size", c_size_t, POINTER(Plan), POINTER(Map), c_int)
sdgen_group_norm_work_size = _function(
    _sdgen, "sdgen_group_norm_work_size", c_size_t, POINTER(Plan), POINTER(GroupNorm), c_int
)
sdgen_layer_norm_work_size = _function(
    _sdgen, "sdgen_layer_norm_work_size", c_size_t, POINTER(Plan), POINTER(LayerNorm), c_int
)
sdgen_attention_work_size = _function(
    _sdgen, "sdgen_attention_work_size", c_size_t, POINTER(Plan), POINTER(Attention), c_int
)

_support = _load("libsdgen-test.so")
test_call = _function(_support, "sdgen_test_call", None, c_void_p, c_uint64 * 6, POINTER(Report))
test_team_run = _function(
    _support,
    "sdgen_test_team_run",
    None,
    *(c_void_p, POINTER(Plan), c_void_p, c_int, c_int, c_void_p, c_size_t, POINTER(Report)),
)
test_queue = _function(
    _support,
    "sdgen_test_queue",
    c_int64,
    *(c_int64, c_int64, c_int64, c_int, c_bool, c_char_p, c_size_t),
)
test_simulate = _function(
    _support,
    "sdgen_test_simulate",
    c_double,
    *(c_void_p, POINTER(Plan), c_void_p, c_int, POINTER(c_double), c_void_p, c_size_t),
)
test_map = _function(_support, "sdgen_test_map", c_void_p, c_size_t)
test_unmap = _function(_support, "sdgen_test_unmap", None, c_void_p, c_size_t)
test_gemm = _function(
    _support,
    "sdgen_test_gemm",
    None,
    *(c_size_t, c_size_t, c_size_t, c_void_p, c_void_p, c_void_p, c_size_t, POINTER(Epilogue)),
)
trace_open = _function(_support, "sdgen_trace_open", c_bool, c_char_p, ctypes.c_longlong)
trace_take_place = _function(_support, "sdgen_trace_take_place", c_int)
trace_free_place = _function(_support, "sdgen_trace_free_place", None, c_int)
trace_lane = _function(_support, "sdgen_trace_lane", c_void_p, c_int, c_int, c_int)
trace_begin = _function(_support, "sdgen_trace_begin", None, c_void_p, c_int64)
trace_phase = _function(_support, "sdgen_trace_phase", None, c_void_p, c_int, c_int64, c_int64)
trace_end = _function(_support, "sdgen_trace_end", None, c_void_p, c_int, c_int64)
trace_keep = _function(_support, "sdgen_trace_keep", None, c_void_p)
trace_write = _function(_support, "sdgen_trace_write", None, c_void_p)
test_sizeof = _function(_support, "sdgen_test_sizeof", c_size_t, c_char_p)


def function_address(name: str) -> int:
    """The address of a function of either library, to be called by the support library."""
    library = _support if name.startswith("sdgen_test_") else _sdgen
    address = ctypes.cast(getattr(library, name), c_void_p).value
    assert address is not None
    return address


@dataclass(frozen=True)
class Kernel:
    """One row of the table of kernels."""

    name: str
    operation: str
    type: str
    rows: int
    columns: int
    level: Level
    features: int
    function: int

    def lacks(self) -> str:
        """What this processor does not have of what the kernel needs; "" where it has all."""
        if not runs_natively(self.level):
            return f"this processor does not have level {level_name(self.level)}"
        missing = Feature(self.features & ~sdgen_processor().contents.features)
        return f"this processor does not have {missing!r}" if missing else ""


@functools.cache
def kernels() -> tuple[Kernel, ...]:
    rows = []
    for index in range(sdgen_kernel_count()):
        row = sdgen_kernel_row(index).contents
        rows.append(
            Kernel(
                row.name.decode(),
                row.operation.decode(),
                row.type.decode(),
                row.rows,
                row.columns,
                Level(row.level),
                row.features,
                row.function,
            )
        )
    return tuple(rows)


def level_name(level: Level) -> str:
    name: bytes = sdgen_level_name(level)
    return name.decode()


def runs_natively(level: Level) -> bool:
    """Whether this processor has what the level asks for."""
    features = sdgen_processor().contents.features
    return level == Level.C or sdgen_select_level(features, Form.ASSEMBLY, level) == level


def native_levels() -> list[Level]:
    """The levels that are built and run here."""
    return [level for level in Level if sdgen_kernels(level) and runs_natively(level)]
