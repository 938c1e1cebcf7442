"""Finds libtutti.so, loads it, and says what parameters its functions have.

The table SIGNATURES is tutti.h in letters; a test compares the two. ctypes releases Python's lock during
each call, so other threads of the program go on while one waits.
"""

import ctypes
import os
import shutil
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from ._version import VERSION

# The file's name has the part of the version that changes with the ABI (tutti.h).
FILE_NAME = "libtutti.so." + ".".join(VERSION.split(".")[:2])


class Span(ctypes.Structure):
    """tutti_span_t."""

    _fields_ = [("row", ctypes.c_void_p), ("begin_ns", ctypes.c_int64), ("name", ctypes.c_char * 48)]


LETTERS: dict[str, Any] = {
    "p": ctypes.c_void_p,  # a pointer or a handle
    "s": ctypes.c_char_p,
    "i": ctypes.c_int,
    "n": ctypes.c_size_t,
    "u": ctypes.c_uint64,
    "l": ctypes.c_int64,
    "d": ctypes.c_double,
    "t": Span,
    "v": None,  # void
}

# The collectives and messages, without the communicator: each is there as tutti_X, and as
# tutti_start_X, which also takes where the work goes. They get no `argtypes`: _prepare makes arguments of the
# right types.
CALLS = {
    "all_reduce": "ppnii",
    "all_reduce_pre_mul_sum": "ppnid",
    "reduce_scatter": "ppnii",
    "reduce_scatter_pre_mul_sum": "ppnid",
    "all_gather": "ppni",
    "broadcast": "ppnii",
    "reduce": "ppniii",
    "reduce_pre_mul_sum": "ppnidi",
    "gather": "ppnii",
    "scatter": "ppnii",
    "all_to_all": "ppni",
    "scan": "ppnii",
    "exclusive_scan": "ppnii",
    "all_gather_v": "ppppi",
    "reduce_scatter_v": "ppppii",
    "all_to_all_v": "ppppppi",
    "gather_v": "pnpppii",
    "scatter_v": "ppppnii",
    "send": "pnii",
    "recv": "pnii",
    "recv_any": "pnip",
    "send_tagged": "pniii",
    "recv_tagged": "pniii",
    "recv_any_tagged": "pnipi",
}

# All others: what comes back, then what goes in.
SIGNATURES = {
    "get_version": "i",
    "last_error": "s",
    "last_error_peer": "i",
    "result_name": "si",
    "data_type_size": "ni",
    "get_unique_id": "ip",
    "comm_init_rank": "ippii",
    "comm_init_env": "ip",
    "comm_init_at": "ipssii",
    "comm_init_all": "ipi",
    "comm_split": "ipiip",
    "comm_duplicate": "ipp",
    "comm_ranks_in": "ippp",
    "comm_destroy": "ip",
    "comm_abort": "ips",
    "comm_health": "ip",
    "comm_revoke": "ips",
    "comm_shrink": "ippippp",
    "comm_agree": "ipp",
    "comm_grow": "ippip",
    "comm_rank": "ipp",
    "comm_count": "ipp",
    "comm_describe": "ippnp",
    "comm_counters": "ipp",
    "comm_flight_record": "ippnp",
    "comm_explain": "ipsppniipnp",
    "comm_use_algorithm": "ips",
    "comm_use_wire": "ips",
    "all_reduce_by": "ipppnp",
    "reduce_by": "ipppnpi",
    "reduce_scatter_by": "ipppnp",
    "scan_by": "ipppnp",
    "exclusive_scan_by": "ipppnp",
    "barrier": "ip",
    "work_wait": "ipi",
    "work_wait_any": "ipnip",
    "work_test": "ipp",
    "work_then": "ippp",
    "work_free": "ip",
    "group_start": "i",
    "group_end": "i",
    "mem_alloc": "ipn",
    "mem_free": "ip",
    "register": "ippnin",
    "deregister": "ipp",
    "window_create": "ipnp",
    "window_close": "ip",
    "window_destroy": "ip",
    "window_data": "ipp",
    "window_bytes": "ipip",
    "window_address_of": "ipip",
    "spans_create": "ipsp",
    "span_begin": "tpss",
    "span_end": "vp",
    "spans_free": "ip",
    "put": "ippnin",
    "get": "ippnin",
    "accumulate": "ippniiin",
    "fetch_add": "iplinp",
    "compare_swap": "ipllinp",
    "flush": "ipi",
    "signal": "ipii",
    "wait_signal": "ipiiu",
}


class Call(NamedTuple):
    """The two functions of a collective or a message."""

    name: str
    now: Any
    start: Any


def _command_prefixes() -> Iterator[Path]:
    command = shutil.which("tutti")
    if command is not None:
        yield Path(command).resolve().parent.parent


def _prefixes() -> Iterator[Path]:
    """Where Tutti may be installed: above this package, with this Python, beside the command `tutti`."""
    yield from Path(__file__).resolve().parents
    yield Path(sys.prefix)
    yield from _command_prefixes()


def candidates() -> Iterator[str]:
    """What to load, best first. TUTTI_LIBRARY is the only one if it is set."""
    named = os.environ.get("TUTTI_LIBRARY")
    if named:
        yield named
        return
    folders = ["lib", "lib64", f"lib/{sysconfig.get_config_var('MULTIARCH') or ''}"]
    for prefix in _prefixes():
        for folder in folders:
            path = prefix / folder / FILE_NAME
            if path.is_file():
                yield str(path)
    yield FILE_NAME  # The loader looks: LD_LIBRARY_PATH, ldconfig.


def _load() -> tuple[Any, str]:
    failures = []
    for path in candidates():
        try:
            return ctypes.CDLL(path), path
        except OSError as failure:
            failures.append(str(failure))
    raise ImportError(
        f"tutti: libtutti.so can't be loaded ({'; '.join(failures)}); install Tutti (cmake --install), or set "
        "TUTTI_LIBRARY to the path of libtutti.so"
    )


def _check_version(loaded: Any, path: str) -> None:
    number = loaded.tutti_get_version()
    have = f"{number // 10000}.{number // 100 % 100}"
    want = ".".join(VERSION.split(".")[:2])
    if have != want:
        raise ImportError(
            f"tutti: {path} is version {have}, and this package is for {want}; install the package of that version"
        )


def _find(name: str, result: str) -> Any:
    try:
        function = lib["tutti_" + name]
    except AttributeError:
        raise ImportError(f"tutti: {PATH} lacks tutti_{name}; it is older than this package") from None
    function.restype = LETTERS[result]
    return function


def _declare(name: str, signature: str) -> Any:
    function = _find(name, signature[0])
    function.argtypes = [LETTERS[letter] for letter in signature[1:]]
    return function


lib, PATH = _load()
_check_version(lib, PATH)
functions: dict[str, Any] = {name: _declare(name, signature) for name, signature in SIGNATURES.items()}
calls = {name: Call(name, _find(name, "i"), _find("start_" + name, "i")) for name in CALLS}
