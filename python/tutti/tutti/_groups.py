"""Groups: calls that take place as one."""

import contextlib
import threading
from collections.abc import Iterator
from typing import Any

from ._errors import check
from ._library import functions

# By thread, the buffers of the calls of its open group: the library uses them until the end.
open_groups: dict[int, list[Any]] = {}


def hold(held: Any) -> None:
    """Keeps buffers until the end of this thread's group, if it has one open."""
    of_thread = open_groups.get(threading.get_ident())
    if of_thread is not None:
        of_thread.append(held)


@contextlib.contextmanager
def group() -> Iterator[None]:
    """Calls of this thread within take place as one, on one communicator or several: none waits before the
    end, and messages may be named in any order. Outputs are complete after it. If the body raises, what was
    called before is still carried out, as other ranks may wait for it."""
    check(functions["group_start"]())
    thread = threading.get_ident()
    open_groups[thread] = []
    try:
        yield
    except BaseException:
        functions["group_end"]()
        raise
    else:
        check(functions["group_end"]())
    finally:
        del open_groups[thread]
