"""Memory that peers on the same host can map: collectives on it need no copy."""

import ctypes
import weakref
from typing import Any

from ._errors import check
from ._library import functions
from ._types import TYPES, Op


def mem_alloc(size: int) -> memoryview:
    """`size` bytes, zeroed, that the ranks of this host can map. Freed when nothing refers to it any more."""
    address = ctypes.c_void_p()
    check(functions["mem_alloc"](ctypes.byref(address), size))
    array = (ctypes.c_ubyte * size).from_address(address.value or 0)
    # Not at exit: others may still use it then, and the process's memory goes anyway.
    weakref.finalize(array, functions["mem_free"], address.value).atexit = False
    return memoryview(array).cast("B")


def zeros(shape: int | tuple[int, ...], dtype: Any = "float32") -> Any:
    """A NumPy array of zeros in such memory."""
    import numpy

    kind = numpy.dtype(dtype)
    if kind.hasobject:
        raise TypeError("tutti: zeros: Python objects can't lie in memory that peers map")
    lengths = (shape,) if isinstance(shape, int) else tuple(shape)
    size = kind.itemsize
    for length in lengths:
        size *= length
    memory = mem_alloc(max(size, 1))[:size]
    return numpy.frombuffer(memory, kind).reshape(lengths)


def data_types() -> tuple[str, ...]:
    """The names of the types that can be summed, as SUM is what most programs ask for."""
    return tuple(name for name, one in TYPES.items() if Op.SUM in one.ops)
