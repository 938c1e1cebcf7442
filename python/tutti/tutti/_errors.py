"""Exceptions: one class for each result code of tutti.h, with the library's line as its text.

The line ends with "(rank 1 is pid 4711 on node7)" if a rank is to blame and its place is known: `host` is
taken from there.
"""

import builtins
import re

from ._library import functions

_PLACE = re.compile(r"\(rank (\d+) is pid \d+ on ([^)\s]+)\)")


class Error(RuntimeError):
    """A call of the library failed. `code` is a number of tutti.h; `peer` the rank to blame, whichever rank
    noticed, or None; `host` that rank's host, or None."""

    code = 9
    peer: int | None = None
    host: str | None = None


class InvalidArgumentError(Error, ValueError):
    """The caller's mistake; nothing was started."""

    code = 1


class MismatchError(Error):
    """Ranks disagree: on the rank count, the operation, the version."""

    code = 2


class TimeoutError(Error, builtins.TimeoutError):  # noqa: A001
    """The deadline passed; the text names the missing ranks."""

    code = 3


class PeerFailedError(Error, ConnectionError):
    """A peer ended, or left too early."""

    code = 4


class AbortedError(Error):
    """The communicator was aborted."""

    code = 5


class SystemFailedError(Error):
    """The operating system refused something."""

    code = 6


class UnsupportedError(Error, NotImplementedError):
    """Legal, but this build or machine can't do it."""

    code = 7


class InvalidPlanError(Error):
    """A plan that the verifier rejects."""

    code = 8


class InternalError(Error):
    """A bug in the library."""

    code = 9


class RevokedError(Error):
    """The communicator was revoked: `shrink` makes one of the ranks that are left."""

    code = 10


_CLASSES = {one.code: one for one in Error.__subclasses__()}


def last_error(code: int) -> Error:
    """The exception for a result code that this thread has just got."""
    text = functions["last_error"]().decode(errors="replace")
    error = _CLASSES.get(code, Error)(text)
    error.code = code
    peer = functions["last_error_peer"]()
    if peer >= 0:
        error.peer = peer
        for rank, host in _PLACE.findall(text):
            if int(rank) == peer:
                error.host = host
    return error


def check(code: int) -> None:
    if code:
        raise last_error(code)


def one_line(failure: BaseException) -> bytes:
    """What the other ranks are told of an exception that ends this one's part."""
    lines = str(failure).splitlines()
    return f"{type(failure).__name__}: {lines[0] if lines else ''}"[:200].encode()
