"""The models of processors, and Bochs made one of them."""

from __future__ import annotations

import ctypes
import importlib
import importlib.util
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.emulator.toolchain import BUILD, HERE, shared_library


class MissingError(Exception):
    """Bochs is not installed, or does not have what is asked of it."""


@dataclass(frozen=True)
class Model:
    """A processor: what Bochs calls it, whether it has AVX-512, and what is emulated here because Bochs lacks it."""

    factory: str  # Bochs' function that makes its CPUID
    avx512: bool = False
    added: frozenset[str] = frozenset()


_AMX = frozenset({"AMX_TILE", "AMX_BF16", "AMX_INT8"})
_SAPPHIRE_RAPIDS = "_Z28create_sapphire_rapids_cpuidP8BX_CPU_C"

MODELS = {
    "haswell": Model("_Z32create_corei7_haswell_4770_cpuidP8BX_CPU_C"),
    "skylake-x": Model("_Z29create_corei7_skylake_x_cpuidP8BX_CPU_C", True),
    "icelake": Model("_Z29create_corei7_icelake_u_cpuidP8BX_CPU_C", True),
    "arrow-lake": Model("_Z23create_arrow_lake_cpuidP8BX_CPU_C"),
    "sapphire-rapids": Model(_SAPPHIRE_RAPIDS, True, _AMX),
    # Bochs has no later server; what these add to Sapphire Rapids for us is emulated anyway.
    "granite-rapids": Model(_SAPPHIRE_RAPIDS, True, _AMX | {"AMX_FP16"}),
    "diamond-rapids": Model(_SAPPHIRE_RAPIDS, True, _AMX | {"AMX_FP16", "AVX10_2"}),
}

_PACKAGE = "bochscpu"
_kept: list[bytes] = []  # what the shim's pointers point to


def load(name: str) -> tuple[Any, Any]:
    """The modules of Bochs and of its memory, with the processor of that name. Once in a process."""
    spec = importlib.util.find_spec(_PACKAGE)
    if spec is None or spec.origin is None:
        raise MissingError(f"emulator: the package {_PACKAGE}-python is not installed; requirements.txt names it")
    extensions = list(Path(spec.origin).parent.glob("_bochscpu.*.so"))
    if not extensions:
        raise MissingError(f"emulator: {Path(spec.origin).parent} holds no extension module for this Python")
    # Symbols of glibc 2.38 that an older one lacks: there the shim defines them.
    options = () if hasattr(ctypes.CDLL(None), "__isoc23_strtoull") else ("-DOLD_GLIBC",)
    shim = shared_library(BUILD / f"shim{''.join(options)}.so", [HERE / "shim.c"], "-O1", "-fPIC", *options)
    library = ctypes.CDLL(str(shim), mode=ctypes.RTLD_GLOBAL)
    for variable, value in (("sdgen_module", str(extensions[0])), ("sdgen_factory", MODELS[name].factory)):
        _kept.append(value.encode())
        ctypes.c_char_p.in_dll(library, variable).value = _kept[-1]
    return importlib.import_module(f"{_PACKAGE}._bochscpu"), importlib.import_module(f"{_PACKAGE}.memory")
