"""Checks what a caller passes, and makes the arguments of the C function of it.

Arguments are pointers and sizes as ctypes has them, and numbers that are checked here: calls have no `argtypes`,
which would cost more than the rest of a small call. Wrong types are TypeErrors and wrong sizes ValueErrors, in
one line, before anything is sent. The library finds out whether ranks disagree.
"""

import ctypes
from collections.abc import Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from ._buffers import Buffer, look, stacked
from ._library import Call, calls
from ._types import OPS, Op, Type


# The call, its arguments, what the caller gets, and what has to stay alive meanwhile. A plain tuple, as it is
# made for each call.
Prepared = tuple[Call, tuple[Any, ...], Any, Any]


Place = tuple[int, int, int]  # Root, this rank, how many there are.


class Blocks(NamedTuple):
    """Counts and offsets by rank: as the caller gave them, and as C takes them. `extent` elements hold all."""

    counts: list[int]
    c_counts: Any
    c_offsets: Any
    extent: int


def _bad_type(name: str, what: str) -> TypeError:
    return TypeError(f"tutti: {name}: {what}")


def _bad_value(name: str, what: str) -> ValueError:
    return ValueError(f"tutti: {name}: {what}")


def _writable(name: str, target: Any, word: str = "out") -> Buffer:
    if target is None:
        raise _bad_type(name, f"`{word}` is missing")
    buffer = look(target)
    if buffer.readonly:
        raise _bad_value(name, f"`{word}` is read-only")
    return buffer


def _same_type(name: str, source: Buffer, target: Buffer) -> None:
    if source.type != target.type:
        raise _bad_type(name, f"`x` has elements of {source.type.name}, `out` of {target.type.name}")


def _match(name: str, source: Buffer, target: Buffer, source_blocks: int = 1, target_blocks: int = 1) -> None:
    """Input and output have the same type, and blocks of the same size."""
    if source.type is not target.type:  # Most often it is: a call less.
        _same_type(name, source, target)
    if source.count * target_blocks != target.count * source_blocks:
        needed = source.count * target_blocks / source_blocks
        raise _bad_value(name, f"`out` has {target.count} elements; it needs {needed:g}, as `x` has {source.count}")


def _block(name: str, whole: Buffer, size: int, word: str) -> ctypes.c_size_t:
    """How many of the library's elements a block has."""
    count, rest = divmod(whole.count, size)
    if rest:
        raise _bad_value(name, f"`{word}` has {whole.count} elements, which {size} ranks can't share evenly")
    return ctypes.c_size_t(count * whole.type.unit)


def _rank(name: str, rank: int, size: int, word: str = "root") -> None:
    if not isinstance(rank, int):
        raise _bad_type(name, f"`{word}` is a {type(rank).__name__}, and no int")
    if not 0 <= rank < size:
        raise _bad_value(name, f"`{word}` is {rank}; ranks are 0 to {size - 1}")


def check_root(name: str, place: Place) -> tuple[int, int]:
    """Root and rank; ValueError if the root is none of the ranks."""
    root, rank, size = place
    _rank(name, root, size)
    return root, rank


def check_op(name: str, kind: Type, op: int) -> None:
    """TypeError if elements of that type are not reduced by `op`."""
    if op in kind.ops:
        return
    if op not in OPS:
        raise _bad_type(name, f"there is no operation {op!r}; use tutti.SUM and its like")
    if not kind.ops:
        raise _bad_type(name, f"{kind.name} can't be reduced, only moved")
    *most, last = (one.name for one in Op if one in kind.ops)
    hint = "; use another type to count" if kind.name == "bool" else ""
    raise _bad_type(name, f"{kind.name} is reduced by {', '.join(most)} and {last}{hint}")


def _reduction(name: str, source: Buffer, op: int, scale: float | None) -> tuple[Call, Any]:
    """Which function reduces, and its parameter."""
    check_op(name, source.type, op)
    if scale is None:
        return calls[name], op
    if op != Op.SUM:
        raise _bad_value(name, "`scale` goes with sums only")
    return calls[name + "_pre_mul_sum"], ctypes.c_double(scale)


def all_reduce(x: Any, out: Any, op: int, scale: float | None) -> Prepared:
    source = look(x)
    if out is None:
        out, target = x, source
        if source.readonly:
            raise _bad_value("all_reduce", "`x` is read-only; pass `out`")
    else:
        target = _writable("all_reduce", out)
        _match("all_reduce", source, target)
    call, parameter = _reduction("all_reduce", source, op, scale)
    arguments = (source.pointer, target.pointer, source.units, source.type.code, parameter)
    return (call, arguments, out, (source, target))


def reduce(x: Any, out: Any, op: int, scale: float | None, place: Place) -> Prepared:
    root, rank = check_root("reduce", place)
    source = look(x)
    call, parameter = _reduction("reduce", source, op, scale)
    target = None
    if rank == root:
        target = _writable("reduce", x if out is None else out)
        _match("reduce", source, target)
        out = x if out is None else out
    address = None if target is None else target.pointer
    arguments = (source.pointer, address, source.units, source.type.code, parameter, root)
    return (call, arguments, out if rank == root else None, (source, target))


def reduce_scatter(x: Any, out: Any, op: int, scale: float | None, size: int) -> Prepared:
    source, target = look(x), _writable("reduce_scatter", out)
    _match("reduce_scatter", source, target, size)
    call, parameter = _reduction("reduce_scatter", source, op, scale)
    arguments = (source.pointer, target.pointer, target.units, source.type.code, parameter)
    return (call, arguments, out, (source, target))


def all_gather(x: Any, out: Any, size: int) -> Prepared:
    source = look(x)
    if out is None:
        out = stacked("all_gather", x, size)
    target = _writable("all_gather", out)
    _match("all_gather", source, target, 1, size)
    kind = source.type
    arguments = (source.pointer, target.pointer, source.units, kind.code)
    return (calls["all_gather"], arguments, out, (source, target))


def broadcast(x: Any, out: Any, place: Place) -> Prepared:
    root, rank = check_root("broadcast", place)
    if rank != root:
        target = _writable("broadcast", x if out is None else out, "x" if out is None else "out")
        source, result = target, x if out is None else out
    else:
        source = look(x)
        target = source if out is None else _writable("broadcast", out)
        _match("broadcast", source, target)
        result = x if out is None else out
    kind = target.type
    arguments = (source.pointer, target.pointer, target.units, kind.code, root)
    return (calls["broadcast"], arguments, result, (source, target))


def gather(x: Any, out: Any, place: Place) -> Prepared:
    root, rank = check_root("gather", place)
    size = place[2]
    source, target = look(x), None
    if rank == root:
        if out is None:
            out = stacked("gather", x, size)
        target = _writable("gather", out)
        _match("gather", source, target, 1, size)
    kind = source.type
    address = None if target is None else target.pointer
    arguments = (source.pointer, address, source.units, kind.code, root)
    return (calls["gather"], arguments, out if rank == root else None, (source, target))


def scatter(x: Any, out: Any, place: Place) -> Prepared:
    root, rank = check_root("scatter", place)
    size = place[2]
    target, source = _writable("scatter", out), None
    if rank == root:
        source = look(x)
        _match("scatter", source, target, size)
    kind = target.type
    address = None if source is None else source.pointer
    arguments = (address, target.pointer, target.units, kind.code, root)
    return (calls["scatter"], arguments, out, (source, target))


def all_to_all(x: Any, out: Any, size: int) -> Prepared:
    source = look(x)
    target = _writable("all_to_all", x, "x") if out is None else _writable("all_to_all", out)
    _match("all_to_all", source, target)
    kind = source.type
    arguments = (source.pointer, target.pointer, _block("all_to_all", source, size, "x"), kind.code)
    return (calls["all_to_all"], arguments, x if out is None else out, (source, target))


def in_and_out(name: str, x: Any, out: Any, parts: int = 1) -> tuple[Buffer, Buffer]:
    """Both buffers of a call in which `x` has `parts` times as many elements as `out`; without it, `x` twice."""
    source = look(x)
    target = _writable(name, x, "x") if out is None else _writable(name, out)
    _match(name, source, target, parts)
    return source, target


def _scan(name: str, x: Any, out: Any, op: int) -> Prepared:
    source, target = in_and_out(name, x, out)
    call, parameter = _reduction(name, source, op, None)
    arguments = (source.pointer, target.pointer, source.units, source.type.code, parameter)
    return (call, arguments, x if out is None else out, (source, target))


def scan(x: Any, out: Any, op: int) -> Prepared:
    return _scan("scan", x, out, op)


def exclusive_scan(x: Any, out: Any, op: int) -> Prepared:
    return _scan("exclusive_scan", x, out, op)


# ---- Blocks of different sizes ----


def _blocks(
    name: str, counts: Sequence[int] | None, offsets: Sequence[int] | None, size: int, unit: int
) -> Blocks:
    if counts is None or len(counts) != size or (offsets is not None and len(offsets) != size):
        raise _bad_value(name, f"counts and offsets need a number for each of the {size} ranks")
    sizes = [int(count) for count in counts]
    starts = [int(start) for start in offsets] if offsets is not None else list(accumulate(sizes[:-1], initial=0))
    if min(sizes) < 0 or min(starts) < 0:
        raise _bad_value(name, "a count or an offset is negative")
    numbers = ctypes.c_size_t * size
    extent = max(start + count for start, count in zip(starts, sizes))
    c_offsets = None if offsets is None else numbers(*(start * unit for start in starts))
    return Blocks(sizes, numbers(*(count * unit for count in sizes)), c_offsets, extent)


def _fits(name: str, blocks: Blocks, buffer: Buffer, word: str) -> None:
    if blocks.extent > buffer.count:
        raise _bad_value(name, f"`{word}` has {buffer.count} elements; the blocks need {blocks.extent}")


def _has(name: str, buffer: Buffer, count: int, word: str) -> None:
    if buffer.count != count:
        raise _bad_value(name, f"`{word}` has {buffer.count} elements; this rank's count is {count}")


def all_gather_v(
    x: Any, out: Any, counts: Sequence[int], offsets: Sequence[int] | None, rank: int, size: int
) -> Prepared:
    source, target = look(x), _writable("all_gather_v", out)
    _same_type("all_gather_v", source, target)
    kind = source.type
    blocks = _blocks("all_gather_v", counts, offsets, size, kind.unit)
    _fits("all_gather_v", blocks, target, "out")
    _has("all_gather_v", source, blocks.counts[rank], "x")
    arguments = (source.pointer, target.pointer, blocks.c_counts, blocks.c_offsets, kind.code)
    return (calls["all_gather_v"], arguments, out, (source, target))


def reduce_scatter_v(
    x: Any, out: Any, counts: Sequence[int], offsets: Sequence[int] | None, op: int, rank: int, size: int
) -> Prepared:
    source, target = look(x), _writable("reduce_scatter_v", out)
    _same_type("reduce_scatter_v", source, target)
    call, parameter = _reduction("reduce_scatter_v", source, op, None)
    blocks = _blocks("reduce_scatter_v", counts, offsets, size, source.type.unit)
    _fits("reduce_scatter_v", blocks, source, "x")
    _has("reduce_scatter_v", target, blocks.counts[rank], "out")
    arguments = (source.pointer, target.pointer, blocks.c_counts, blocks.c_offsets, source.type.code, parameter)
    return (call, arguments, out, (source, target))


def all_to_all_v(
    x: Any,
    counts: Sequence[int],
    out: Any,
    out_counts: Sequence[int],
    offsets: tuple[Sequence[int] | None, Sequence[int] | None],
    size: int,
) -> Prepared:
    source, target = look(x), _writable("all_to_all_v", out)
    _same_type("all_to_all_v", source, target)
    kind = source.type
    given = _blocks("all_to_all_v", counts, offsets[0], size, kind.unit)
    got = _blocks("all_to_all_v", out_counts, offsets[1], size, kind.unit)
    _fits("all_to_all_v", given, source, "x")
    _fits("all_to_all_v", got, target, "out")
    arguments = (
        (source.pointer, given.c_counts, given.c_offsets)
        + (target.pointer, got.c_counts, got.c_offsets)
        + (kind.code,)
    )
    return (calls["all_to_all_v"], arguments, out, (source, target))


def gather_v(
    x: Any,
    out: Any,
    counts: Sequence[int] | None,
    offsets: Sequence[int] | None,
    place: Place,
) -> Prepared:
    root, rank = check_root("gather_v", place)
    size = place[2]
    source = look(x)
    kind = source.type
    at_root: tuple[Any, ...] = (None, None, None)
    target = None
    if rank == root:
        target = _writable("gather_v", out)
        _same_type("gather_v", source, target)
        blocks = _blocks("gather_v", counts, offsets, size, kind.unit)
        _fits("gather_v", blocks, target, "out")
        _has("gather_v", source, blocks.counts[rank], "x")
        at_root = (target.pointer, blocks.c_counts, blocks.c_offsets)
    arguments = (source.pointer, source.units, *at_root, kind.code, root)
    return (calls["gather_v"], arguments, out if rank == root else None, (source, target))


def scatter_v(
    x: Any,
    out: Any,
    counts: Sequence[int] | None,
    offsets: Sequence[int] | None,
    place: Place,
) -> Prepared:
    root, rank = check_root("scatter_v", place)
    size = place[2]
    target, source = _writable("scatter_v", out), None
    kind = target.type
    at_root: tuple[Any, ...] = (None, None, None)
    if rank == root:
        source = look(x)
        _same_type("scatter_v", source, target)
        blocks = _blocks("scatter_v", counts, offsets, size, kind.unit)
        _fits("scatter_v", blocks, source, "x")
        _has("scatter_v", target, blocks.counts[rank], "out")
        at_root = (source.pointer, blocks.c_counts, blocks.c_offsets)
    arguments = (*at_root, target.pointer, target.units, kind.code, root)
    return (calls["scatter_v"], arguments, out, (source, target))


# ---- Messages ----


def _tag(name: str, tag: int) -> None:
    if not isinstance(tag, int):
        raise _bad_type(name, f"`tag` is a {type(tag).__name__}, and no int")
    if not 0 <= tag < 2**31:
        raise _bad_value(name, f"`tag` is {tag}; tags are 0 to {2**31 - 1}")


def send(x: Any, to: int, tag: int, size: int) -> Prepared:
    _rank("send", to, size, "to")
    _tag("send", tag)
    source = look(x)
    arguments = (source.pointer, source.units, source.type.code, to)
    if tag != 0:
        return (calls["send_tagged"], (*arguments, tag), x, source)
    return (calls["send"], arguments, x, source)


def recv(out: Any, source: int, tag: int, size: int) -> Prepared:
    _rank("recv", source, size, "source")
    _tag("recv", tag)
    target = _writable("recv", out)
    arguments = (target.pointer, target.units, target.type.code, source)
    if tag != 0:
        return (calls["recv_tagged"], (*arguments, tag), out, target)
    return (calls["recv"], arguments, out, target)


def recv_any(out: Any, source: ctypes.c_int, tag: int) -> Prepared:
    _tag("recv_any", tag)
    target = _writable("recv_any", out)
    arguments = (target.pointer, target.units, target.type.code, ctypes.byref(source))
    if tag != 0:
        return (calls["recv_any_tagged"], (*arguments, tag), source, (target, source))
    return (calls["recv_any"], arguments, source, (target, source))
