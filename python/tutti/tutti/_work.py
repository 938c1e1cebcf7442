"""Work: a call that was started. Its buffers stay alive until it has ended, also if nobody keeps the Work."""

import ctypes
import time
from collections.abc import Sequence
from typing import Any

from ._errors import Error, TimeoutError, last_error
from ._library import functions

# A wait comes back so often, for Python to see signals: Ctrl-C ends it.
_SLICE_MS = 100

# Handles that nobody holds any more and whose calls had not ended then, with their buffers.
_abandoned: list[tuple[int, Any]] = []


def _is_done(handle: int) -> bool:
    done = ctypes.c_int()
    functions["work_test"](handle, ctypes.byref(done))
    return bool(done.value)


def sweep() -> None:
    """Gives back what has ended of that which was abandoned."""
    for entry in list(_abandoned):
        if _is_done(entry[0]) and entry in _abandoned:
            _abandoned.remove(entry)
            functions["work_free"](entry[0])


def _left_ms(end: float | None) -> int:
    """Until `end`, and at most a slice."""
    return _SLICE_MS if end is None else max(0, min(_SLICE_MS, int((end - time.monotonic()) * 1000) + 1))


class Work:
    """A collective or message that was started. One thread at a time uses it."""

    __slots__ = ("_handle", "_result", "_held", "_error", "__weakref__")

    def __init__(self, handle: int, result: Any, held: Any) -> None:
        self._handle: int | None = handle
        self._result = result
        self._held = held
        self._error: Error | None = None

    def done(self) -> bool:
        """Whether it has ended, also by an error, which `wait` raises."""
        return self._handle is None or _is_done(self._handle)

    def wait(self, timeout: float | None = None) -> None:
        """Returns when the call has ended; raises its error. After `timeout` seconds a TimeoutError says that
        it goes on: it can be waited for again. None waits as long as the call's own deadline allows."""
        end = None if timeout is None else time.monotonic() + timeout
        while self._handle is not None:
            was_done = _is_done(self._handle)
            code = functions["work_wait"](self._handle, _left_ms(end))
            # A timeout of this wait and one of the call have the same code: the call's is one that is done.
            if code != TimeoutError.code or was_done:
                self._end(code)
            elif end is not None and time.monotonic() >= end and not _is_done(self._handle):
                raise last_error(code)
        if self._error is not None:
            raise self._error

    def result(self, timeout: float | None = None) -> Any:
        """As `wait`; returns the output."""
        self.wait(timeout)
        return self._result

    def _end(self, code: int) -> None:
        self._error = last_error(code) if code else None
        handle, self._handle, self._held = self._handle, None, None
        functions["work_free"](handle)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)
        if handle is None:
            return
        if _is_done(handle):
            functions["work_free"](handle)
        else:
            _abandoned.append((handle, self._held))


class Received(Work):
    """A message that may come from any rank: its result is the rank."""

    __slots__ = ()

    def result(self, timeout: float | None = None) -> int:
        self.wait(timeout)
        return int(self._result.value)


def wait_all(works: Sequence[Work], timeout: float | None = None) -> None:
    """Returns when all of them have ended; then raises the first error of any, by their order. After `timeout`
    seconds in all a TimeoutError says that some go on: they can be waited for again."""
    end = None if timeout is None else time.monotonic() + timeout
    first: Error | None = None
    for work in works:
        try:
            work.wait(None if end is None else max(0.0, end - time.monotonic()))
        except Error as failure:
            first = first or failure
    if first is not None:
        raise first


def wait_any(works: Sequence[Work], timeout: float | None = None) -> int:
    """The place of one that has ended, the lowest if there are several: its `wait` or `result` returns at once,
    or raises its error. After `timeout` seconds a TimeoutError says that all go on."""
    if not works:
        raise ValueError("tutti: wait_any: there is no work to wait for")
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        for place, work in enumerate(works):
            if work.done():
                return place
        handles = (ctypes.c_void_p * len(works))(*[work._handle for work in works])
        place_found = ctypes.c_size_t()
        code = functions["work_wait_any"](handles, len(works), _left_ms(end), ctypes.byref(place_found))
        # Below their number it is the code of that work, which its wait returns.
        if place_found.value < len(works):
            return place_found.value
        if code != TimeoutError.code or (end is not None and time.monotonic() >= end):
            raise last_error(code)
