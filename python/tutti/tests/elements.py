"""Arrays of every type for tests: of bytes, which need no NumPy, and of NumPy where it is there.

All values are small whole numbers, which every type has.
"""

import ctypes
import importlib
import struct
from collections.abc import Sequence
from typing import Any

import launch  # noqa: F401  It says where the package is.
import tutti
from tutti._types import TYPES


def optional(name: str) -> Any:
    """A module, or None where it is not installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        return None


numpy = optional("numpy")
ml_dtypes = optional("ml_dtypes")

FORMATS = {
    "int8": "b",
    "uint8": "B",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "uint64": "Q",
    "float16": "e",
    "float32": "f",
    "float64": "d",
}


COMPLEX = {"complex64": "f", "complex128": "d"}


def ops_of(dtype: str) -> frozenset[tutti.Op]:
    return TYPES[dtype].ops


class Record(ctypes.Structure):
    _fields_ = [("number", ctypes.c_uint16)]


def record(number: int) -> Any:
    """One element of a type that is moved only."""
    return (Record * 1)(Record(number))


def encode(dtype: str, value: int) -> bytes:
    """The bytes of a whole number from 1 to 16."""
    if dtype in COMPLEX:  # The imaginary part is another number.
        return struct.pack("=2" + COMPLEX[dtype], value, 3 * value)
    if dtype in FORMATS:
        return struct.pack("=" + FORMATS[dtype], value)
    if dtype == "bfloat16":
        return struct.pack("<f", value)[2:]
    if dtype == "float8_e5m2":
        return struct.pack("<e", value)[1:]
    assert dtype == "float8_e4m3fn"
    exponent = value.bit_length() - 1
    return bytes([(exponent + 7) << 3 | (value * 8 >> exponent) - 8])


class Plain:
    """A bytearray, of which calls get a Buffer."""

    def __init__(self, dtype: str, values: Sequence[int]) -> None:
        self.dtype = dtype
        self.storage = bytearray(b"".join(encode(dtype, value) for value in values))

    def part(self, start: int, stop: int) -> Any:
        size = len(encode(self.dtype, 1))
        return tutti.Buffer(memoryview(self.storage)[start * size : stop * size], self.dtype)

    def all(self) -> Any:
        return tutti.Buffer(self.storage, self.dtype)

    def content(self) -> bytes:
        return bytes(self.storage)


class OfNumpy:
    def __init__(self, dtype: str, values: Sequence[int]) -> None:
        self.dtype = dtype
        factor = 1 + 3j if dtype in COMPLEX else 1  # As `encode`.
        self.array = (numpy.array(values) * factor).astype(numpy.dtype(dtype))

    def part(self, start: int, stop: int) -> Any:
        return self.array[start:stop]

    def all(self) -> Any:
        return self.array

    def content(self) -> bytes:
        return bytes(self.array.tobytes())


def has(array: Plain | OfNumpy, values: Sequence[int], first: int = 0) -> bool:
    """Whether these are the elements from `first` on."""
    wanted = b"".join(encode(array.dtype, value) for value in values)
    start = first * len(encode(array.dtype, 1))
    return array.content()[start : start + len(wanted)] == wanted


def makers(dtype: str) -> list[Any]:
    """What makes arrays of this type here."""
    if numpy is not None and (dtype in FORMATS or dtype in COMPLEX or ml_dtypes is not None):
        return [Plain, OfNumpy]
    return [Plain]
