"""Collectives whose blocks differ in size, and messages between two ranks, as methods.

Counts and offsets have a number for each rank, in elements. Without offsets the blocks follow one another.
"""

import ctypes
import threading
from collections.abc import Sequence
from typing import Any

from . import _prepare
from ._collectives import _SUM, Calls
from ._errors import InvalidArgumentError
from ._groups import open_groups
from ._work import Received, Work

Numbers = Sequence[int]


class VectorCollectives(Calls):
    """The vector (v) variants."""

    __slots__ = ()

    def all_gather_v(self, x: Any, out: Any, counts: Numbers, offsets: Numbers | None = None) -> Any:
        """Rank r gives counts[r] elements. The same counts on every rank."""
        return self._call(_prepare.all_gather_v(x, out, counts, offsets, self._rank, self._size))

    def start_all_gather_v(self, x: Any, out: Any, counts: Numbers, offsets: Numbers | None = None) -> Work:
        return self._start(_prepare.all_gather_v(x, out, counts, offsets, self._rank, self._size))

    def reduce_scatter_v(
        self, x: Any, out: Any, counts: Numbers, offsets: Numbers | None = None, op: int = _SUM
    ) -> Any:
        """Rank r gets counts[r] elements of the reduced `x`. The same counts on every rank."""
        return self._call(_prepare.reduce_scatter_v(x, out, counts, offsets, op, self._rank, self._size))

    def start_reduce_scatter_v(
        self, x: Any, out: Any, counts: Numbers, offsets: Numbers | None = None, op: int = _SUM
    ) -> Work:
        return self._start(_prepare.reduce_scatter_v(x, out, counts, offsets, op, self._rank, self._size))

    def all_to_all_v(
        self,
        x: Any,
        counts: Numbers,
        out: Any,
        out_counts: Numbers,
        offsets: tuple[Numbers | None, Numbers | None] = (None, None),
    ) -> Any:
        """Sends counts[r] elements to rank r and gets out_counts[r] from it. `offsets` has those of `x` and
        those of `out`. Never in place."""
        return self._call(_prepare.all_to_all_v(x, counts, out, out_counts, offsets, self._size))

    def start_all_to_all_v(
        self,
        x: Any,
        counts: Numbers,
        out: Any,
        out_counts: Numbers,
        offsets: tuple[Numbers | None, Numbers | None] = (None, None),
    ) -> Work:
        return self._start(_prepare.all_to_all_v(x, counts, out, out_counts, offsets, self._size))

    def gather_v(
        self,
        x: Any,
        out: Any = None,
        counts: Numbers | None = None,
        offsets: Numbers | None = None,
        *,
        root: int = 0,
    ) -> Any:
        """`root` gets counts[r] elements of rank r; only the root needs `out`, counts and offsets."""
        return self._call(_prepare.gather_v(x, out, counts, offsets, (root, self._rank, self._size)))

    def start_gather_v(
        self,
        x: Any,
        out: Any = None,
        counts: Numbers | None = None,
        offsets: Numbers | None = None,
        *,
        root: int = 0,
    ) -> Work:
        return self._start(_prepare.gather_v(x, out, counts, offsets, (root, self._rank, self._size)))

    def scatter_v(
        self,
        x: Any,
        out: Any,
        counts: Numbers | None = None,
        offsets: Numbers | None = None,
        *,
        root: int = 0,
    ) -> Any:
        """Rank r gets counts[r] elements of the root's `x`; only the root needs `x`, counts and offsets."""
        return self._call(_prepare.scatter_v(x, out, counts, offsets, (root, self._rank, self._size)))

    def start_scatter_v(
        self,
        x: Any,
        out: Any,
        counts: Numbers | None = None,
        offsets: Numbers | None = None,
        *,
        root: int = 0,
    ) -> Work:
        return self._start(_prepare.scatter_v(x, out, counts, offsets, (root, self._rank, self._size)))


class Messages(Calls):
    """From one rank to another, in the order in which they are sent. Both ends name the same count, type and
    tag. Those with different tags may be received in any order: what comes before a receive asks for its tag is
    kept while one for another tag waits, up to TUTTI_UNEXPECTED_BYTES."""

    __slots__ = ()

    def send(self, x: Any, to: int, tag: int = 0) -> Any:
        """May return before the message was received, or not: ranks that send to each other do so in a group,
        or start their messages."""
        return self._call(_prepare.send(x, to, tag, self._size))

    def start_send(self, x: Any, to: int, tag: int = 0) -> Work:
        return self._start(_prepare.send(x, to, tag, self._size))

    def recv(self, out: Any, source: int, tag: int = 0) -> Any:
        """Fills all of `out` with the next message of rank `source`."""
        return self._call(_prepare.recv(out, source, tag, self._size))

    def start_recv(self, out: Any, source: int, tag: int = 0) -> Work:
        return self._start(_prepare.recv(out, source, tag, self._size))

    def recv_any(self, out: Any, tag: int = 0) -> int:
        """Fills all of `out` with the next message of whichever other rank sends first, and returns that rank.
        Not in a group, where messages begin at the end: use start_recv_any there."""
        if threading.get_ident() in open_groups:
            raise InvalidArgumentError("recv_any: this thread has a group open; use start_recv_any")
        return int(self._call(_prepare.recv_any(out, ctypes.c_int(-1), tag)).value)

    def start_recv_any(self, out: Any, tag: int = 0) -> Work:
        """The result of the Work is the rank."""
        return self._start(_prepare.recv_any(out, ctypes.c_int(-1), tag), Received)
