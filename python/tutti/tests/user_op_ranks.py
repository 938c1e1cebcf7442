"""Reductions by functions of the program, on elements of NumPy, of Python, and of bytes; run by test_ranks.py."""

import array
import sys
from collections.abc import Callable
from typing import Any

import tutti

try:
    import numpy
except ImportError:
    numpy = None  # type: ignore[assignment]


def expect(what: str, got: Any, wanted: Any) -> None:
    if got != wanted:
        sys.exit(f"{what}: {got} and not {wanted}")


def joined(ranks: range) -> int:
    """The digits of these ranks, as rank 0 would read them from left to right."""
    digits = 0
    for rank in ranks:
        digits = 10 * digits + rank + 1
    return digits


def join(lower: Any, higher: Any) -> None:
    """Pairs of digits and of a power of ten: not commutative."""
    for at in range(0, len(higher), 2):
        higher[at] += lower[at] * higher[at + 1]
        higher[at + 1] *= lower[at + 1]


def every_collective(comm: tutti.Communicator, pairs: int) -> None:
    """The elements are int64, two of which make one of the operation: x is seen as bytes by 16."""
    everyone, mine = range(comm.size), [comm.rank + 1, 10]

    def by_pairs(lower: Any, higher: Any) -> None:
        join(lower.cast("B").cast("q"), higher.cast("B").cast("q"))

    x = array.array("q", mine * pairs)
    out = array.array("q", [0] * len(x))
    whole = tutti.Buffer(x, "complex128"), tutti.Buffer(out, "complex128")  # Elements of 16 bytes.
    comm.all_reduce_by(by_pairs, *whole)
    expect("all_reduce_by", out[::2], array.array("q", [joined(everyone)] * pairs))
    root = comm.size - 1
    result = comm.reduce_by(by_pairs, *whole, root=root)
    expect("reduce_by", result is whole[1], comm.rank == root)
    comm.scan_by(by_pairs, *whole)
    expect("scan_by", out[0], joined(range(comm.rank + 1)))
    comm.exclusive_scan_by(by_pairs, *whole)
    expect("exclusive_scan_by", out[-2], joined(range(comm.rank)) if comm.rank else 1)
    wide = array.array("q", mine * (pairs * comm.size))
    comm.reduce_scatter_by(by_pairs, tutti.Buffer(wide, "complex128"), whole[1])
    expect("reduce_scatter_by", out[-2], joined(everyone))


def products_of_numpy(comm: tutti.Communicator) -> None:
    z = numpy.full((2, 3), 1j * (comm.rank + 1))
    same = comm.all_reduce_by(numpy.multiply, z)  # Returns what becomes of the higher ones.
    wanted = 1 + 0j
    for rank in range(comm.size):
        wanted *= 1j * (rank + 1)
    expect("products", (same is z, z.tolist()), (True, [[wanted] * 3] * 2))


def best_of_numpy(comm: tutti.Communicator) -> None:
    kind = numpy.dtype([("value", "f8"), ("where", "i4")])
    x = numpy.zeros(1000, kind)
    x["value"], x["where"] = numpy.arange(1000) * (-1) ** comm.rank, comm.rank

    def better(lower: Any, higher: Any) -> Any:
        return numpy.where(lower["value"] >= higher["value"], lower, higher)

    best = comm.all_reduce_by(better, x, numpy.empty_like(x))
    expect("the best", best["where"].tolist(), [0] * 1000)


def refusals(comm: tutti.Communicator) -> None:
    x = array.array("d", [1.0])
    nothing: Any = 3
    cases: list[tuple[Callable[[], Any], type[Exception]]] = [
        (lambda: comm.all_reduce_by(nothing, x), TypeError),
        (lambda: comm.all_reduce_by(join, x, array.array("d", [1.0, 2.0])), ValueError),
        (lambda: comm.all_reduce_by(join, b"bytes can't be written"), ValueError),
        (lambda: comm.reduce_by(join, x, root=comm.size), ValueError),
    ]
    for bad, error in cases:
        try:
            bad()
        except error:
            continue
        sys.exit("it was not refused")


def failure(comm: tutti.Communicator) -> None:
    def fails(lower: Any, higher: Any) -> Any:
        if comm.rank == 0:
            raise ZeroDivisionError("no inverse")
        return higher

    try:
        comm.all_reduce_by(fails, array.array("d", [1.0] * 100_000))
        comm.barrier()
    except ZeroDivisionError:
        expect("the one that raised", comm.rank, 0)
    except tutti.AbortedError as error:
        expect("the rank to blame", (error.peer, "no inverse" in str(error)), (0, True))
    else:
        sys.exit("it went well")


def main() -> None:
    comm = tutti.init()
    for pairs in (1, 2, 5000):
        every_collective(comm, pairs)
    if numpy is not None:
        products_of_numpy(comm)
        best_of_numpy(comm)
    refusals(comm)
    if comm.size > 1:
        failure(comm)
    print("right")


main()
