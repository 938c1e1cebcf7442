"""How ranks join a job."""

import ctypes

from ._communicator import Communicator
from ._errors import check
from ._library import functions

_ID_BYTES = 128


def init(
    rendezvous: str | bytes | None = None, *, rank: int = 0, size: int = 1, job: str | None = None
) -> Communicator:
    """Joins a job; all its ranks call it.

    init()                                          as the launcher says: tutti run, torchrun, mpirun, srun
    init("host:port", rank=..., size=...)           at rank 0's host
    init("/shared/folder", rank=..., size=..., job=...)   in a folder; a job's name is new in each run
    init(unique_id, rank=..., size=...)             by the bytes of tutti.unique_id()
    """
    handle = ctypes.c_void_p()
    if rendezvous is None:
        code = functions["comm_init_env"](ctypes.byref(handle))
    elif isinstance(rendezvous, bytes):
        if len(rendezvous) != _ID_BYTES:
            raise ValueError(f"tutti: init: a unique id has {_ID_BYTES} bytes, this one {len(rendezvous)}")
        identity = ctypes.create_string_buffer(rendezvous, _ID_BYTES)
        code = functions["comm_init_rank"](ctypes.byref(handle), identity, rank, size)
    else:
        name = None if job is None else job.encode()
        code = functions["comm_init_at"](ctypes.byref(handle), rendezvous.encode(), name, rank, size)
    check(code)
    return Communicator(handle.value or 0)


def unique_id() -> bytes:
    """Names a new job. One rank makes it and carries it to the others; its process has to live until all have
    joined. It holds an address and a secret."""
    identity = ctypes.create_string_buffer(_ID_BYTES)
    check(functions["get_unique_id"](identity))
    return identity.raw


def in_process(size: int) -> list[Communicator]:
    """`size` communicators for ranks that are threads of this process: the r-th is rank r's."""
    if size < 1:
        raise ValueError("tutti: in_process: there is at least one rank")
    handles = (ctypes.c_void_p * size)()
    check(functions["comm_init_all"](handles, size))
    return [Communicator(handle) for handle in handles if handle is not None]
