"""Memory of objects with __dlpack__, such as torch's CPU tensors.

The capsule is not consumed: whoever holds it keeps the memory alive, and its own destructor gives it back.
"""

import ctypes
from typing import Any, NamedTuple

from ._types import TYPES, Type, opaque

_CPU = 1
_DEVICES_OF_THE_HOST = (_CPU, 3)  # 3: pinned by CUDA.
_KINDS = {
    (0, 1): "int",
    (1, 1): "uint",
    (2, 1): "float",
    (4, 1): "bfloat",
    (5, 1): "complex",
}
_NAMES = {(6, 8): "bool", (10, 8): "float8_e4m3fn", (12, 8): "float8_e5m2"}


class _DataType(ctypes.Structure):
    _fields_ = [("code", ctypes.c_uint8), ("bits", ctypes.c_uint8), ("lanes", ctypes.c_uint16)]


class _Tensor(ctypes.Structure):
    """DLTensor of dlpack.h, with which a DLManagedTensor begins."""

    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("dimensions", ctypes.c_int32),
        ("type", _DataType),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class _Versioned(ctypes.Structure):
    """DLManagedTensorVersioned."""

    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("context", ctypes.c_void_p),
        ("deleter", ctypes.c_void_p),
        ("flags", ctypes.c_uint64),
        ("tensor", _Tensor),
    ]


_READ_ONLY = 1


class Memory(NamedTuple):
    address: int
    elements: int
    type: Type
    readonly: bool
    held: Any


_get_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_get_pointer.restype = ctypes.c_void_p
_get_pointer.argtypes = [ctypes.py_object, ctypes.c_char_p]


def _type_of(tensor: _Tensor) -> Type:
    code, bits, lanes = tensor.type.code, tensor.type.bits, tensor.type.lanes
    name = _NAMES.get((code, bits)) or f"{_KINDS.get((code, lanes), '?')}{bits}"
    return TYPES.get(name) or opaque(f"DLPack type ({code}, {bits}, {lanes})", bits * lanes // 8)


def _is_contiguous(shape: list[int], strides: list[int]) -> bool:
    expected = 1
    for length, stride in zip(reversed(shape), reversed(strides)):
        if length != 1 and stride != expected:
            return False
        expected *= length
    return True


def _open(source: Any) -> tuple[Any, _Tensor, bool]:
    """The capsule, what is in it, and whether it is read-only, which only newer ones say."""
    try:
        capsule = source.__dlpack__(max_version=(1, 0))
    except TypeError:
        capsule = source.__dlpack__()
    try:
        versioned = _Versioned.from_address(_get_pointer(capsule, b"dltensor_versioned"))
    except ValueError:
        return capsule, _Tensor.from_address(_get_pointer(capsule, b"dltensor")), False
    return capsule, versioned.tensor, bool(versioned.flags & _READ_ONLY)


def look(source: Any) -> Memory:
    """TypeError if the memory is not the host's, BufferError or ValueError if it can't be had as it lies."""
    device = int(source.__dlpack_device__()[0])
    if device not in _DEVICES_OF_THE_HOST:
        raise TypeError(f"tutti: this {type(source).__name__} is in a device's memory; copy it to the host first")
    capsule, tensor, readonly = _open(source)
    shape = tensor.shape[: tensor.dimensions] if tensor.dimensions else []
    count = 1
    for length in shape:
        count *= length
    if count and tensor.strides and not _is_contiguous(shape, tensor.strides[: tensor.dimensions]):
        raise ValueError(f"tutti: this {type(source).__name__} is not contiguous; pass a contiguous copy")
    return Memory((tensor.data or 0) + tensor.byte_offset, count, _type_of(tensor), readonly, capsule)
