"""The collectives as methods: each blocking, and as start_..., which returns a Work.

Buffers are NumPy arrays, objects with the buffer protocol, CPU tensors (DLPack) or a Buffer. All lie in one
piece (C order). All ranks make the same calls in the same order.
"""

import ctypes
from typing import Any

from . import _prepare
from ._errors import last_error
from ._groups import hold, open_groups
from ._prepare import Prepared
from ._types import Op
from ._work import Work, _abandoned, sweep

_SUM = int(Op.SUM)


class Calls:
    """What all communicators have, and how a prepared call is made."""

    __slots__ = ("_handle", "_rank", "_size", "_closing", "__weakref__")
    _handle: ctypes.c_void_p | None
    _rank: int
    _size: int

    def _call(self, prepared: Prepared) -> Any:
        call, arguments, result, held = prepared
        code = call.now(self._handle, *arguments)
        if code:
            raise last_error(code)
        if open_groups:
            hold(held)
        return result

    def _start(self, prepared: Prepared, kind: type[Work] = Work) -> Work:
        call, arguments, result, held = prepared
        handle = ctypes.c_void_p()
        code = call.start(self._handle, *arguments, ctypes.byref(handle))
        if code:
            raise last_error(code)
        if _abandoned:
            sweep()
        return kind(handle.value or 0, result, held)


class Collectives(Calls):
    """Collectives whose blocks have one size."""

    __slots__ = ()

    def all_reduce(self, x: Any, out: Any = None, op: int = _SUM, *, scale: float | None = None) -> Any:
        """Reduces `x` over all ranks into `out`, or in place; every rank gets the same bits. With `scale`, the
        sum of scale * x, each rank with its own. Returns the output."""
        return self._call(_prepare.all_reduce(x, out, op, scale))

    def start_all_reduce(self, x: Any, out: Any = None, op: int = _SUM, *, scale: float | None = None) -> Work:
        return self._start(_prepare.all_reduce(x, out, op, scale))

    def reduce(
        self, x: Any, out: Any = None, op: int = _SUM, *, root: int = 0, scale: float | None = None
    ) -> Any:
        """As all_reduce, but only `root` gets the result; the others return None."""
        return self._call(_prepare.reduce(x, out, op, scale, (root, self._rank, self._size)))

    def start_reduce(
        self, x: Any, out: Any = None, op: int = _SUM, *, root: int = 0, scale: float | None = None
    ) -> Work:
        return self._start(_prepare.reduce(x, out, op, scale, (root, self._rank, self._size)))

    def reduce_scatter(self, x: Any, out: Any, op: int = _SUM, *, scale: float | None = None) -> Any:
        """Reduces `x`, of which `out` becomes this rank's part: `x` has size times as many elements. In place:
        `out` is that part of `x`."""
        return self._call(_prepare.reduce_scatter(x, out, op, scale, self._size))

    def start_reduce_scatter(self, x: Any, out: Any, op: int = _SUM, *, scale: float | None = None) -> Work:
        return self._start(_prepare.reduce_scatter(x, out, op, scale, self._size))

    def all_gather(self, x: Any, out: Any = None) -> Any:
        """`out` becomes the `x` of all ranks, one after another; for a NumPy array it is made if it is missing.
        In place: `x` is this rank's part of `out`."""
        return self._call(_prepare.all_gather(x, out, self._size))

    def start_all_gather(self, x: Any, out: Any = None) -> Work:
        return self._start(_prepare.all_gather(x, out, self._size))

    def broadcast(self, x: Any, out: Any = None, *, root: int = 0) -> Any:
        """`x` of `root` becomes `x` of all, or `out` where that is given; then only the root needs `x`."""
        return self._call(_prepare.broadcast(x, out, (root, self._rank, self._size)))

    def start_broadcast(self, x: Any, out: Any = None, *, root: int = 0) -> Work:
        return self._start(_prepare.broadcast(x, out, (root, self._rank, self._size)))

    def gather(self, x: Any, out: Any = None, *, root: int = 0) -> Any:
        """As all_gather, but only `root` gets the result; the others return None."""
        return self._call(_prepare.gather(x, out, (root, self._rank, self._size)))

    def start_gather(self, x: Any, out: Any = None, *, root: int = 0) -> Work:
        return self._start(_prepare.gather(x, out, (root, self._rank, self._size)))

    def scatter(self, x: Any, out: Any, *, root: int = 0) -> Any:
        """Rank r gets the r-th part of the root's `x` in `out`. Only the root needs `x`; the others may pass
        None. In place: the root's `out` is its part of `x`."""
        return self._call(_prepare.scatter(x, out, (root, self._rank, self._size)))

    def start_scatter(self, x: Any, out: Any, *, root: int = 0) -> Work:
        return self._start(_prepare.scatter(x, out, (root, self._rank, self._size)))

    def all_to_all(self, x: Any, out: Any = None) -> Any:
        """Sends the r-th part of `x` to rank r; the part from rank r becomes the r-th of `out`, or of `x`."""
        return self._call(_prepare.all_to_all(x, out, self._size))

    def start_all_to_all(self, x: Any, out: Any = None) -> Work:
        return self._start(_prepare.all_to_all(x, out, self._size))

    def scan(self, x: Any, out: Any = None, op: int = _SUM) -> Any:
        """As all_reduce, but over the ranks 0 to this one. Returns the output."""
        return self._call(_prepare.scan(x, out, op))

    def start_scan(self, x: Any, out: Any = None, op: int = _SUM) -> Work:
        return self._start(_prepare.scan(x, out, op))

    def exclusive_scan(self, x: Any, out: Any = None, op: int = _SUM) -> Any:
        """The same over the ranks below this one. Rank 0's output stays as it is."""
        return self._call(_prepare.exclusive_scan(x, out, op))

    def start_exclusive_scan(self, x: Any, out: Any = None, op: int = _SUM) -> Work:
        return self._start(_prepare.exclusive_scan(x, out, op))
