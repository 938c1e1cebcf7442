"""Spans: what a program does between its calls, in the trace beside them."""

import contextlib
import ctypes
import os
import weakref
from contextlib import AbstractContextManager
from typing import Any

from ._collectives import Calls
from ._errors import check
from ._library import functions

_NOTHING = contextlib.nullcontext()


def _free(handle: int, process: int) -> None:
    """Gives a row back, in the process that made it."""
    if os.getpid() == process:
        functions["spans_free"](handle)


class Spans:
    """Made by Communicator.spans: a row of spans in the trace. Without a trace a span records nothing, and the
    library is not called. A row keeps its latest 32,768 spans, of those that have ended when the communicator is
    closed or the process exits; later ones are legal, and nobody sees them. One thread at a time; each thread of a
    program may have a row of its own."""

    __slots__ = ("_handle", "__weakref__")

    def __init__(self, communicator: Calls, row: str) -> None:
        handle = ctypes.c_void_p()
        check(functions["spans_create"](communicator._handle, row.encode(errors="replace"), ctypes.byref(handle)))
        self._handle = handle.value  # None: nothing is traced.
        if self._handle is not None:
            weakref.finalize(self, _free, self._handle, os.getpid())

    def span(self, what: str, of: str = "") -> AbstractContextManager[None]:
        """A span named "`what` `of`", of which the first 48 bytes count: `with row.span("forward", layer):`. It
        begins and ends with the block, also if that raises. Spans nest as their blocks do."""
        if self._handle is None:
            return _NOTHING
        return _Span(self, what.encode(errors="replace"), of.encode(errors="replace"))

    def __repr__(self) -> str:
        return f"<tutti.Spans: {'not traced' if self._handle is None else 'traced'}>"


class _Span(AbstractContextManager[None]):
    __slots__ = ("_spans", "_what", "_of", "_begun")

    def __init__(self, spans: Spans, what: bytes, of: bytes) -> None:
        self._spans = spans  # The row outlives its spans.
        self._what, self._of = what, of

    def __enter__(self) -> None:
        self._begun = functions["span_begin"](self._spans._handle, self._what, self._of)

    def __exit__(self, kind: Any, failure: BaseException | None, trace: Any) -> None:
        functions["span_end"](ctypes.byref(self._begun))
