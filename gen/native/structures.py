"""C structures for ctypes, made from what gen/contract.py says of them."""

from __future__ import annotations

import ctypes
import functools
from typing import Any

from gen.contract import Struct

_TYPES: dict[str, Any] = {"int64_t": ctypes.c_int64, "int32_t": ctypes.c_int32, "float": ctypes.c_float}


@functools.cache
def structure(struct: Struct) -> type[ctypes.Structure]:
    """The structure; pointers are c_void_p."""
    fields = []
    for kind, name, count in struct.fields:
        base = ctypes.c_void_p if kind.endswith("*") else _TYPES[kind]
        fields.append((name, base if count == 1 else base * count))
    return type(struct.tag, (ctypes.Structure,), {"_fields_": fields})
