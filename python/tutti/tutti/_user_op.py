"""Reductions by a function of the program: MPI's user-defined operations and types.

The function gets arrays of the lower and of the higher ranks' elements, and writes their combination into the
latter, or returns it. It is associative, and need not be commutative.
"""

import ctypes
from collections.abc import Callable
from typing import Any

from ._buffers import Buffer, look
from ._collectives import Calls
from ._errors import last_error, one_line
from ._library import functions
from ._prepare import check_root, in_and_out

Function = Callable[[Any, Any], Any]
_Combine = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p)


class _UserOp(ctypes.Structure):
    """tutti_user_op_t."""

    _fields_ = [("element_bytes", ctypes.c_size_t), ("combine", _Combine), ("context", ctypes.c_void_p)]


def _arrays_like(x: Buffer) -> Callable[[int, int], Any]:
    """Makes an array at an address, of so many elements like those of x: NumPy's for one of NumPy, else a
    memoryview; of bytes, where Python has no word for the elements."""
    size = x.type.bytes

    def memory(address: int, count: int) -> memoryview:
        return memoryview((ctypes.c_char * (size * count)).from_address(address)).cast("B")

    if type(x.source).__module__ == "numpy":
        import numpy  # It is loaded, as x is one of its arrays.

        return lambda address, count: numpy.frombuffer(memory(address, count), x.source.dtype)
    view = x._held
    if isinstance(view, memoryview) and len(view.format) == 1 and view.itemsize == size:
        return lambda address, count: memory(address, count).cast(view.format)  # type: ignore[call-overload]
    return memory


class UserOps(Calls):
    """Collectives whose operation is a function. Blocking, and not in a group."""

    __slots__ = ()

    def all_reduce_by(self, function: Function, x: Any, out: Any = None) -> Any:
        """Combines the `x` of all ranks, in their order, into `out`, or in place. `function(lower, higher)` gets
        two arrays with elements like x's, which have one dimension; those of lower ranks are on the left. It
        changes `higher`, or returns what becomes of it. NumPy's arrays may have any dtype but objects. If it
        raises, the communicator is aborted, and this rank gets the exception."""
        source, target = in_and_out("all_reduce_by", x, out)
        self._by("all_reduce_by", function, source, target, source.count)
        return x if out is None else out

    def reduce_by(self, function: Function, x: Any, out: Any = None, *, root: int = 0) -> Any:
        """As all_reduce_by, but only `root` gets the result; the others return None."""
        check_root("reduce_by", (root, self._rank, self._size))
        if self._rank != root:
            source = look(x)
            self._by("reduce_by", function, source, None, source.count, root)
            return None
        source, target = in_and_out("reduce_by", x, out)
        self._by("reduce_by", function, source, target, source.count, root)
        return x if out is None else out

    def reduce_scatter_by(self, function: Function, x: Any, out: Any) -> Any:
        """As all_reduce_by, but `out` becomes this rank's part: `x` has size times as many elements."""
        source, target = in_and_out("reduce_scatter_by", x, out, self._size)
        self._by("reduce_scatter_by", function, source, target, target.count)
        return out

    def scan_by(self, function: Function, x: Any, out: Any = None) -> Any:
        """As all_reduce_by, but over the ranks 0 to this one."""
        source, target = in_and_out("scan_by", x, out)
        self._by("scan_by", function, source, target, source.count)
        return x if out is None else out

    def exclusive_scan_by(self, function: Function, x: Any, out: Any = None) -> Any:
        """The same over the ranks below this one. Rank 0's output stays as it is."""
        source, target = in_and_out("exclusive_scan_by", x, out)
        self._by("exclusive_scan_by", function, source, target, source.count)
        return x if out is None else out

    def _by(
        self, name: str, function: Function, source: Buffer, target: Buffer | None, count: int, *root: int
    ) -> None:
        if not callable(function):
            raise TypeError(f"tutti: {name}: `function` is a {type(function).__name__}, and can't be called")
        array = _arrays_like(source)
        raised: list[BaseException] = []

        def combine(lower: int, higher: int, elements: int, _context: Any) -> None:
            if raised:  # The call goes on to its end, and fails.
                return
            try:
                target = array(higher, elements)
                result = function(array(lower, elements), target)
                if result is not None and result is not target:
                    target[:] = result
            except BaseException as failure:  # C can't pass it on.
                raised.append(failure)
                functions["comm_abort"](self._handle, one_line(failure))

        op = _UserOp(source.type.bytes, _Combine(combine), None)
        to = None if target is None else target.pointer
        code = functions[name](self._handle, source.pointer, to, count, ctypes.byref(op), *root)
        if raised:
            raise raised[0]
        if code:
            raise last_error(code)
