"""Windows: memory of each rank that the others read and write without its help."""

import contextlib
import ctypes
import operator
import os
import sys
import weakref
from typing import Any

from . import _prepare
from ._buffers import look
from ._collectives import _SUM, Calls
from ._errors import check
from ._library import functions

_MOST_INT, _MOST_COUNT = 2**31 - 1, 2**64 - 1
_LEAST_INT64, _MOST_INT64 = -(2**63), 2**63 - 1


def _leave(handle: int, process: int) -> None:
    """Gives a window back, in the process that made it."""
    if os.getpid() == process:
        functions["window_destroy"](handle)


def _number(name: str, word: str, value: int, most: int = sys.maxsize, least: int = 0) -> int:
    """A number that C's type can hold: ctypes would cut any other."""
    try:
        number = operator.index(value)
    except TypeError:
        raise _prepare._bad_type(name, f"`{word}` is a {type(value).__name__}, and no int") from None
    if not least <= number <= most:
        raise _prepare._bad_value(name, f"`{word}` is {number}, not from {least} to {most}")
    return number


def _int64(name: str, word: str, value: int) -> int:
    return _number(name, word, value, _MOST_INT64, _LEAST_INT64)


class Window:
    """Made by Communicator.window. A context manager: at the end of `with` it is closed, which waits for the
    others; if the block raises, this rank leaves, and ranks that still need it get an error.

    Offsets are in bytes, from the start of that rank's memory. A rank may name itself. Two ranks must not access
    the same place at a time, but by `accumulate`, `fetch_add` and `compare_swap`: what is read then is any mix. Calls
    may come from any thread, one at a time, and never in a group.
    """

    __slots__ = ("_handle", "_size", "_memory", "_leaving", "__weakref__")

    def __init__(self, communicator: Calls, nbytes: int) -> None:
        own = _number("window", "nbytes", nbytes)
        handle, address = ctypes.c_void_p(), ctypes.c_void_p()
        check(functions["window_create"](communicator._handle, own, ctypes.byref(handle)))
        self._handle: ctypes.c_void_p | None = handle
        self._size = communicator._size
        functions["window_data"](handle, ctypes.byref(address))
        array = (ctypes.c_ubyte * own).from_address(address.value or 0)
        # With the array, not with this object: a view of the memory may be the last to go.
        self._leaving = weakref.finalize(array, _leave, handle.value or 0, os.getpid())
        self._memory = memoryview(array).cast("B")

    # ---- Memory ----

    @property
    def memory(self) -> memoryview:
        """This rank's bytes, to read and write: numpy.frombuffer(window.memory, "float32") is an array of them.
        `close` releases this view. Arrays and slices that were made of it must not be used any more after that:
        their memory is gone."""
        if self._handle is None:
            raise ValueError("tutti: memory: this window is closed")
        return self._memory

    def nbytes(self, rank: int) -> int:
        """How much memory that rank has."""
        _prepare._rank("nbytes", rank, self._size, "rank")
        found = ctypes.c_size_t()
        check(functions["window_bytes"](self._handle, rank, ctypes.byref(found)))
        return found.value

    # ---- One-sided operations ----

    def put(self, x: Any, to: int, offset: int = 0) -> None:
        """Copies `x` to rank `to`. `x` may be changed once this returns. The copy is there behind a signal, or after
        `flush`."""
        _prepare._rank("put", to, self._size, "to")
        source, start = look(x), _number("put", "offset", offset)
        check(functions["put"](self._handle, source.pointer, source.count * source.type.bytes, to, start))

    def get(self, out: Any, source: int, offset: int = 0) -> Any:
        """Fills all of `out` with memory of rank `source`, and returns it. Sees what this rank has put there
        before."""
        _prepare._rank("get", source, self._size, "source")
        target, start = _prepare._writable("get", out), _number("get", "offset", offset)
        check(functions["get"](self._handle, target.pointer, target.count * target.type.bytes, source, start))
        return out

    def accumulate(self, x: Any, to: int, op: int = _SUM, offset: int = 0) -> None:
        """Each element there becomes `op` of it and of this rank's; each at once, also if several ranks do that,
        in any order: sums of floats may differ from run to run. Complex numbers are two such elements. `offset` is
        a multiple of the element's size; `op` is not AVG."""
        _prepare._rank("accumulate", to, self._size, "to")
        source, start = look(x), _number("accumulate", "offset", offset)
        _prepare.check_op("accumulate", source.type, op)
        check(functions["accumulate"](self._handle, source.pointer, source.units, source.type.code, op, to, start))

    def fetch_add(self, value: int, to: int, offset: int = 0) -> int:
        """Adds to the int64 there, at once also if several ranks do that, and returns what it was before. The sum
        wraps; with 0 it reads. `offset` is a multiple of 8. All that this rank has put to `to` before is there, and
        what other ranks had put there before their call that made the number is seen: a counter or a lock can hand on
        memory of that rank. A loop that waits for a number has no deadline, and nothing ends it when the rank that is
        to change the number dies: give the loop a limit of its own."""
        _prepare._rank("fetch_add", to, self._size, "to")
        added, start = _int64("fetch_add", "value", value), _number("fetch_add", "offset", offset)
        before = ctypes.c_int64()
        check(functions["fetch_add"](self._handle, added, to, start, ctypes.byref(before)))
        return before.value

    def compare_swap(self, expected: int, value: int, to: int, offset: int = 0) -> int:
        """The int64 there becomes `value` if it is `expected`. Returns what it was before: `expected` if it was
        exchanged. Otherwise as fetch_add."""
        _prepare._rank("compare_swap", to, self._size, "to")
        wanted, new = _int64("compare_swap", "expected", expected), _int64("compare_swap", "value", value)
        start, before = _number("compare_swap", "offset", offset), ctypes.c_int64()
        check(functions["compare_swap"](self._handle, wanted, new, to, start, ctypes.byref(before)))
        return before.value

    def flush(self, to: int) -> None:
        """Returns once all that this rank has put to rank `to`, or accumulated there, is there."""
        _prepare._rank("flush", to, self._size, "to")
        check(functions["flush"](self._handle, to))

    def signal(self, to: int, number: int = 0) -> None:
        """Adds one to the signals of this number (0 to 63) that this rank has sent rank `to`, which sees behind a
        wait for it what this rank has put and accumulated there before."""
        _prepare._rank("signal", to, self._size, "to")
        check(functions["signal"](self._handle, to, _number("signal", "number", number, _MOST_INT)))

    def wait_signal(self, source: int, number: int = 0, count: int = 1) -> None:
        """Waits until rank `source` has sent `count` signals of this number more than were waited for before.
        TimeoutError: nothing is taken, and one may wait again. PeerFailedError if that rank has died or left;
        AbortedError if it is on another host and has left."""
        _prepare._rank("wait_signal", source, self._size, "source")
        which = _number("wait_signal", "number", number, _MOST_INT)
        more = _number("wait_signal", "count", count, _MOST_COUNT)
        check(functions["wait_signal"](self._handle, source, which, more))

    # ---- The end ----

    def close(self) -> None:
        """Ends the window, whose memory goes: returns once all ranks have called it, and all that they have put has
        come. All ranks call it. Twice is legal."""
        self._end("window_close")

    def _end(self, function: str) -> None:
        """Gives the handle back, unless that was done before."""
        handle, self._handle = self._handle, None
        if handle is None:
            return
        self._leaving.detach()
        with contextlib.suppress(BufferError):  # An array was made of it.
            self._memory.release()
        check(functions[function](handle))

    def __enter__(self) -> "Window":
        return self

    def __exit__(self, kind: Any, failure: BaseException | None, trace: Any) -> None:
        self._end("window_close" if failure is None else "window_destroy")

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"{len(self._memory)} bytes, {self._size} ranks"
        return f"<tutti.Window: {state}>"
