"""Where an object's elements are, how many, and of which type: Buffer.

Three doors lead to memory: Python's buffer protocol (NumPy, array, bytearray, mmap, memoryview, ctypes),
NumPy's __array_interface__ for types that buffers have no word for (ml_dtypes' bfloat16), and DLPack. None of
them copies. What was looked up holds the memory: a bytearray can't be resized meanwhile.
"""

import ctypes
import sys
from typing import Any

from . import _dlpack
from ._types import TYPES, Type, of_format, opaque

# Formats without a prefix have the sizes of C, so the format says all.
_formats: dict[str, Type] = {}
_pointer, _units = ctypes.c_void_p, ctypes.c_size_t
_address_of = ctypes.addressof
_first_byte = ctypes.c_char.from_buffer


class _View(ctypes.Structure):
    """Py_buffer, as far as it is read, and room for the rest."""

    _fields_ = [("address", ctypes.c_void_p), ("rest", ctypes.c_void_p * 15)]


_get_buffer = ctypes.pythonapi.PyObject_GetBuffer
_get_buffer.argtypes = [ctypes.py_object, ctypes.POINTER(_View), ctypes.c_int]
_release = ctypes.pythonapi.PyBuffer_Release
_release.argtypes = [ctypes.POINTER(_View)]
_release.restype = None


def _address_of_readonly(view: memoryview) -> int:
    found = _View()
    _get_buffer(view, found, 0)
    _release(found)
    return found.address or 0


class Buffer:
    """An array, looked up once. Calls take it instead of the array and save the look-up. `dtype` names the
    type of the elements where the object has another one, or none: Buffer(bytearray(8), "bfloat16")."""

    __slots__ = ("pointer", "units", "count", "type", "readonly", "source", "_held")
    pointer: ctypes.c_void_p
    units: ctypes.c_size_t  # The count, in elements of the library.
    count: int
    type: Type
    readonly: bool
    _held: Any
    source: Any

    def __init__(self, source: Any, dtype: str | None = None) -> None:
        self.source = source
        try:
            view = memoryview(source)
        except TypeError:
            self._look_by_dlpack(source)
        except ValueError:  # Elements that the buffer protocol can't describe.
            self._look_by_interface(source)
        else:
            self._look_at(view, source)
        if dtype is not None:
            self._take_for(dtype)
        self.units = _units(self.count * self.type.unit)

    @property
    def address(self) -> int:
        return self.pointer.value or 0

    def _look_at(self, view: memoryview, source: Any) -> None:
        self._held = view
        size = view.nbytes
        try:
            self.type = _formats[view.format]
        except KeyError:
            self.type = _type_of(view, source)
        if not view.c_contiguous:
            raise ValueError(f"tutti: this {_name(source)} is not contiguous; pass a contiguous copy")
        self.count = size // self.type.bytes if size else 0
        self.readonly = view.readonly
        if not size:
            self.pointer = _pointer()
        elif view.readonly:
            self.pointer = _pointer(_address_of_readonly(view))
        else:
            self.pointer = _pointer(_address_of(_first_byte(view)))

    def _look_by_interface(self, source: Any) -> None:
        interface, dtype = source.__array_interface__, source.dtype
        if dtype.hasobject:
            raise TypeError("tutti: an array of Python objects has no elements that can be sent")
        if interface["strides"] is not None:
            raise ValueError(f"tutti: this {_name(source)} is not contiguous; pass a contiguous copy")
        address, self.readonly = interface["data"]
        self.pointer = _pointer(address)
        self.count = source.size
        self.type = TYPES.get(dtype.name) or opaque(dtype.name, dtype.itemsize)
        self._held = source

    def _look_by_dlpack(self, source: Any) -> None:
        if not hasattr(source, "__dlpack__"):
            raise TypeError(
                f"tutti: a {_name(source)} is no buffer; pass a NumPy array, a buffer or a CPU tensor (DLPack)"
            ) from None
        try:
            found = _dlpack.look(source)
        except BufferError as failure:
            raise TypeError(f"tutti: this {_name(source)} gives no memory by DLPack: {failure}") from failure
        self.pointer = _pointer(found.address)
        self.count, self.type, self.readonly, self._held = found.elements, found.type, found.readonly, found.held

    def _take_for(self, dtype: str) -> None:
        try:
            taken = TYPES[dtype]
        except KeyError:
            raise TypeError(f"tutti: there is no type '{dtype}'; there are {', '.join(TYPES)}") from None
        size = self.count * self.type.bytes
        if size % taken.bytes:
            raise ValueError(f"tutti: {size} bytes are no whole number of {dtype}")
        self.type, self.count = taken, size // taken.bytes

    def __len__(self) -> int:
        return self.count

    def __repr__(self) -> str:
        return f"Buffer({self.count} {self.type.name} of a {_name(self.source)})"


def _name(source: Any) -> str:
    return type(source).__name__


def _type_of(view: memoryview, source: Any) -> Type:
    """The type of a format that is seen for the first time, or has a prefix."""
    text = view.format
    if "O" in text and getattr(getattr(source, "dtype", None), "hasobject", True):
        raise TypeError("tutti: an array of Python objects has no elements that can be sent")
    found = of_format(text, view.itemsize)
    if len(text) == 1:
        _formats[text] = found
    return found


def look(source: Any) -> Buffer:
    return source if type(source) is Buffer else Buffer(source)


def stacked(name: str, source: Any, size: int) -> Any:
    """A new array with room for `size` arrays like this one. Only NumPy's are made here."""
    numpy = sys.modules.get("numpy")
    if isinstance(source, Buffer):
        source = source.source
    if numpy is None or not isinstance(source, numpy.ndarray):
        raise TypeError(f"tutti: {name}: `out` is missing; it is made for NumPy arrays only")
    return numpy.empty((size, *source.shape), source.dtype)
