"""Calls that are checked once and made often."""

from difflib import get_close_matches
from typing import Any

from ._collectives import Calls, Collectives
from ._prepare import Prepared
from ._vectors import VectorCollectives
from ._work import Work


class PreparedCall:
    """Made by Communicator.prepare: a collective on the same buffers each time, whose contents change. A large
    part of a small call in Python is the look at its arguments, which this does once."""

    __slots__ = ("_communicator", "_prepared")

    def __init__(self, communicator: Calls, prepared: Prepared) -> None:
        self._communicator, self._prepared = communicator, prepared

    def run(self) -> Any:
        """Makes the call and returns its output."""
        return self._communicator._call(self._prepared)

    def start(self) -> Work:
        """As the collective's start_ function."""
        return self._communicator._start(self._prepared)


class _Preparing(Collectives, VectorCollectives):
    """Collectives that are prepared in place of being made."""

    __slots__ = ()

    def __init__(self, rank: int, size: int) -> None:
        self._handle, self._rank, self._size = None, rank, size

    def _call(self, prepared: Prepared) -> Prepared:
        return prepared


def _names() -> tuple[str, ...]:
    found = (name for kind in (Collectives, VectorCollectives) for name in vars(kind))
    return tuple(name for name in found if not name.startswith(("_", "start_")))


COLLECTIVES = _names()


def prepare(communicator: Calls, collective: str, arguments: Any, more: Any) -> PreparedCall:
    if collective not in COLLECTIVES:
        near = get_close_matches(str(collective), COLLECTIVES, 1)
        hint = f"; did you mean '{near[0]}'?" if near else f"; there are {', '.join(COLLECTIVES)}"
        raise ValueError(f"tutti: prepare: there is no collective '{collective}'{hint}")
    maker = _Preparing(communicator._rank, communicator._size)
    return PreparedCall(communicator, getattr(maker, collective)(*arguments, **more))
