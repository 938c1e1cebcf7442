"""Communicator: a rank's place among the others, with all its calls."""

import ctypes
import os
import sys
import weakref
from collections.abc import Sequence
from typing import Any, NamedTuple

from ._buffers import look
from ._collectives import Collectives
from ._errors import Error, check, last_error, one_line
from ._library import calls, functions
from ._prepared import PreparedCall, prepare
from ._spans import Spans
from ._types import TYPES
from ._user_op import UserOps
from ._vectors import Messages, VectorCollectives
from ._window import Window


class Shrunk(NamedTuple):
    """What `shrink` makes. members[r] is the old rank of the new rank r; `completed`, how many collectives all of
    the members completed on the old communicator."""

    communicator: "Communicator"
    members: list[int]
    completed: int


_COUNTS = (
    "all_reduces reduce_scatters all_gathers broadcasts reduces gathers scatters all_to_alls scans exclusive_scans "
    "barriers messages collective_bytes message_bytes"
).split()
_FIELDS: list[tuple[str, Any]] = [
    *((name, ctypes.c_ulonglong) for name in _COUNTS),
    *((name, ctypes.c_double) for name in ("age_ms", "calls_ms", "waits_ms")),
    ("slowest_rank", ctypes.c_int),
    ("slowest_calls", ctypes.c_ulonglong),
    ("slowest_ms", ctypes.c_double),
]


class _Counters(ctypes.Structure):
    """tutti_counters_t."""

    _fields_ = _FIELDS


def _close(handle: int, process: int) -> None:
    """Gives a communicator back, in the process that made it. If the program ends by an exception, what was
    started is ended first: destroying would wait for it."""
    if os.getpid() != process:
        return
    failure = getattr(sys, "last_value", None)
    if failure is not None:
        functions["comm_abort"](handle, one_line(failure))
    functions["comm_destroy"](handle)


def _text(function: Any, *arguments: Any) -> str:
    """A text that a function hands out: asks for its size first, and again if it has grown meanwhile."""
    needed = ctypes.c_size_t()
    check(function(*arguments, None, 0, ctypes.byref(needed)))
    while True:
        size = needed.value + needed.value // 4
        text = ctypes.create_string_buffer(size)
        check(function(*arguments, text, size, ctypes.byref(needed)))
        if needed.value <= size:
            return text.value.decode(errors="replace")


class Communicator(Collectives, VectorCollectives, UserOps, Messages):
    """Made by tutti.init and its like. A context manager: at the end of `with` it is closed; if the block
    raises, it is aborted first, and the other ranks get an error that says why.

    More functions than a class should have: its bases are the four kinds of calls.
    """

    __slots__ = ()

    def __init__(self, handle: int) -> None:
        self._handle = ctypes.c_void_p(handle)
        rank, size = ctypes.c_int(), ctypes.c_int()
        check(functions["comm_rank"](handle, ctypes.byref(rank)))
        check(functions["comm_count"](handle, ctypes.byref(size)))
        self._rank, self._size = rank.value, size.value
        self._closing = weakref.finalize(self, _close, handle, os.getpid())

    @property
    def rank(self) -> int:
        return self._rank

    @property
    def size(self) -> int:
        return self._size

    def barrier(self) -> None:
        """Returns once every rank has called it."""
        check(functions["barrier"](self._handle))

    def prepare(self, collective: str, *arguments: Any, **more: Any) -> PreparedCall:
        """A collective to be made often, with the arguments of its own function: prepare("all_reduce", x, out)."""
        return prepare(self, collective, arguments, more)

    # ---- Life and death ----

    def close(self) -> None:
        """Waits for what was started, then leaves. Calls after it are errors. Twice is legal."""
        self._handle = None
        self._closing()

    def __enter__(self) -> "Communicator":
        return self

    def __exit__(self, kind: Any, failure: BaseException | None, trace: Any) -> None:
        ends_well = failure is None or (isinstance(failure, SystemExit) and not failure.code)
        if failure is not None and not ends_well and self._handle is not None:
            functions["comm_abort"](self._handle, one_line(failure))
        self.close()

    def abort(self, reason: str = "") -> None:
        """Ends every call on this communicator, on every rank, with AbortedError. Any thread."""
        check(functions["comm_abort"](self._handle, reason.encode() or None))

    # ---- After a failure ----

    def health(self) -> Error | None:
        """The error that ended this communicator or will, without waiting; None: calls can still work."""
        code = functions["comm_health"](self._handle)
        return last_error(code) if code else None

    def revoke(self, reason: str = "") -> None:
        """As abort, with RevokedError: all ranks are to call shrink."""
        check(functions["comm_revoke"](self._handle, reason.encode() or None))

    def shrink(self, excluded: Sequence[int] = ()) -> Shrunk:
        """A communicator of the ranks that are left, in their order. All of them call it; `excluded` is alike
        on all."""
        handle, completed = ctypes.c_void_p(), ctypes.c_uint64()
        members = (ctypes.c_int * self._size)()
        check(
            functions["comm_shrink"](
                self._handle,
                (ctypes.c_int * len(excluded))(*excluded),
                len(excluded),
                ctypes.byref(handle),
                members,
                ctypes.byref(completed),
            )
        )
        made = Communicator(handle.value or 0)
        return Shrunk(made, list(members)[: made.size], completed.value)

    def agree(self, flags: int) -> int:
        """The bitwise and of the flags (64 bits) of all ranks that are left, the same on all of them."""
        agreed = ctypes.c_uint64(flags)
        check(functions["comm_agree"](self._handle, ctypes.byref(agreed)))
        return agreed.value

    def grow(self, unique_id: bytes, size: int) -> "Communicator":
        """A communicator of `size` ranks: these, and new ones that call tutti.init(unique_id, ...)."""
        handle = ctypes.c_void_p()
        identity = ctypes.create_string_buffer(unique_id, 128)
        check(functions["comm_grow"](self._handle, identity, size, ctypes.byref(handle)))
        return Communicator(handle.value or 0)

    # ---- Others of the same ranks ----

    def split(self, color: int, key: int = 0) -> "Communicator | None":
        """A communicator of the ranks that gave the same color, ordered by key, then by rank; None for a
        negative color. All ranks call it."""
        handle = ctypes.c_void_p()
        check(functions["comm_split"](self._handle, color, key, ctypes.byref(handle)))
        return Communicator(handle.value) if handle.value else None

    def duplicate(self) -> "Communicator":
        """Another communicator of the same ranks, whose calls don't mix with this one's. All ranks call it."""
        handle = ctypes.c_void_p()
        check(functions["comm_duplicate"](self._handle, ctypes.byref(handle)))
        return Communicator(handle.value or 0)

    def ranks_in(self, other: "Communicator") -> list[int | None]:
        """By rank of this communicator, which rank that is in `other`; None: it is not in it. Both come from one
        communicator, by splits, duplicates, shrinks and grows."""
        ranks = (ctypes.c_int * self._size)()
        check(functions["comm_ranks_in"](self._handle, other._handle, ranks))
        return [rank if rank >= 0 else None for rank in ranks]

    # ---- Memory ----

    def register(self, memory: Any, file: int, offset: int = 0) -> None:
        """Makes known that `memory` is a shared mapping of the file descriptor `file`, which peers can map too."""
        buffer = look(memory)
        size = buffer.count * buffer.type.bytes
        check(functions["register"](self._handle, buffer.pointer, size, file, offset))

    def deregister(self, memory: Any) -> None:
        check(functions["deregister"](self._handle, look(memory).pointer))

    def window(self, nbytes: int = 0) -> Window:
        """Memory of each rank that the others read and write without its help. `nbytes` of this rank, zeroed; ranks
        may give different numbers. All ranks call it."""
        return Window(self, nbytes)

    # ---- Choices, and what is going on ----

    def use_algorithm(self, name: str = "") -> None:
        """Collectives from now on go by this algorithm, alike on all ranks; "" ends it."""
        check(functions["comm_use_algorithm"](self._handle, name.encode()))

    def use_wire(self, name: str = "") -> None:
        """Collectives of float32 send their values as "float16", "bfloat16", "int8" or "float8"; "" ends it."""
        check(functions["comm_use_wire"](self._handle, name.encode()))

    def describe(self) -> str:
        """What this communicator is: ranks, transport, memory, waiting, plans."""
        return _text(functions["comm_describe"], self._handle)

    def explain(self, collective: str, count: int, dtype: str = "float32", *, root: int = 0) -> str:
        """Which way a call would go, why not the others, and what would be faster. Nothing is called."""
        if collective not in calls or dtype not in TYPES:
            raise ValueError(f"tutti: explain: there is no collective '{collective}', or no type '{dtype}'")
        question = (collective.encode(), None, None, count, TYPES[dtype].code, root)
        return _text(functions["comm_explain"], self._handle, *question)

    def counters(self) -> dict[str, float]:
        """What this rank has done since the communicator was made, and for which ranks it waited."""
        found = _Counters()
        check(functions["comm_counters"](self._handle, ctypes.byref(found)))
        return {name: getattr(found, name) for name, _ in _FIELDS}

    def flight_record(self) -> str:
        """This rank's latest 4,096 calls and messages as JSON."""
        return _text(functions["comm_flight_record"], self._handle)

    def spans(self, row: str = "program") -> Spans:
        """A row of the trace of TUTTI_TRACE, "rank N, `row`", for what the program does between its calls. Not
        collective."""
        return Spans(self, row)

    def __repr__(self) -> str:
        state = "closed" if self._handle is None else f"rank {self._rank} of {self._size}"
        return f"<tutti.Communicator: {state}>"
