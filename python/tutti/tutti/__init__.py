"""Tutti: collectives between processes, on NumPy arrays, buffers and CPU tensors.

    import numpy, tutti

    with tutti.init() as comm:                      # started by: python -m tutti run -n 4 program.py
        x = numpy.full(1000, comm.rank, "float32")
        comm.all_reduce(x)                          # in place; comm.all_reduce(x, out) is not
        work = comm.start_all_reduce(x)             # goes on in the background
        work.result()

Binds the C API (tutti.h) of the installed library; nothing is compiled, and NumPy need not be there.
"""

from . import _library
from ._buffers import Buffer
from ._communicator import Communicator, Shrunk
from ._errors import (
    AbortedError,
    Error,
    InternalError,
    InvalidArgumentError,
    InvalidPlanError,
    MismatchError,
    PeerFailedError,
    RevokedError,
    SystemFailedError,
    TimeoutError,
    UnsupportedError,
)
from ._groups import group
from ._join import in_process, init, unique_id
from ._memory import data_types, mem_alloc, zeros
from ._prepared import PreparedCall
from ._spans import Spans
from ._types import Op
from ._version import VERSION as __version__
from ._window import Window
from ._work import Work, wait_all, wait_any

SUM, PROD, MAX, MIN, AVG = Op.SUM, Op.PROD, Op.MAX, Op.MIN, Op.AVG
AND, OR, XOR = Op.AND, Op.OR, Op.XOR
library_path = _library.PATH

__all__ = [
    "AND",
    "AVG",
    "MAX",
    "MIN",
    "OR",
    "PROD",
    "SUM",
    "XOR",
    "AbortedError",
    "Buffer",
    "Communicator",
    "Error",
    "InternalError",
    "InvalidArgumentError",
    "InvalidPlanError",
    "MismatchError",
    "Op",
    "PeerFailedError",
    "PreparedCall",
    "RevokedError",
    "Shrunk",
    "Spans",
    "SystemFailedError",
    "TimeoutError",
    "UnsupportedError",
    "Window",
    "Work",
    "__version__",
    "data_types",
    "group",
    "in_process",
    "init",
    "library_path",
    "mem_alloc",
    "unique_id",
    "wait_all",
    "wait_any",
    "zeros",
]
