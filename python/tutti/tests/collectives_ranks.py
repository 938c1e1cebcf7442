"""Every collective and message x every type x in place or not x at once or started; run by test_ranks.py.

The table CASES has one case for each name of the binding's table, which the test compares. What is expected is
computed here, in whole numbers.
"""

import sys
from collections.abc import Callable
from typing import Any

import elements
import tutti
from tutti._library import CALLS
from tutti._prepared import COLLECTIVES

COUNT = 6
CASES: dict[str, Callable[..., None]] = {}


def case(name: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    def add(function: Callable[..., None]) -> Callable[..., None]:
        CASES[name] = function
        return function

    return add


def value(rank: int, index: int) -> int:
    return 1 + (rank + index) % 2


def of(rank: int, count: int = COUNT, first: int = 0) -> list[int]:
    return [value(rank, first + index) for index in range(count)]


def sums(size: int, count: int = COUNT, first: int = 0) -> list[int]:
    return [sum(value(rank, first + index) for rank in range(size)) for index in range(count)]


class Run:
    """One way to make the calls of a case."""

    def __init__(self, comm: tutti.Communicator, maker: Any, dtype: str, in_place: bool, started: bool) -> None:
        self.comm, self.dtype, self.in_place, self.started = comm, dtype, in_place, started
        self.rank, self.size = comm.rank, comm.size
        self.maker = maker

    def make(self, values: list[int]) -> Any:
        return self.maker(self.dtype, values)

    def blank(self, count: int) -> Any:
        return self.maker(self.dtype, [16] * count)

    def call(self, name: str, *arguments: Any, **more: Any) -> Any:
        if name in COLLECTIVES and not self.in_place:  # In place, a second run would see the first one's result.
            prepared = self.comm.prepare(name, *arguments, **more)
            prepared.run()
            return prepared.start().result() if self.started else prepared.run()
        if self.started:
            return getattr(self.comm, "start_" + name)(*arguments, **more).result()
        return getattr(self.comm, name)(*arguments, **more)

    def expect(self, what: str, array: Any, values: list[int], first: int = 0) -> None:
        if not elements.has(array, values, first):
            sys.exit(
                f"rank {self.rank} of {self.size}: {what} of {self.dtype}, {self.maker.__name__}, in place: "
                f"{self.in_place}, started: {self.started}: got {array.content()!r}, expected {values} at {first}"
            )


@case("all_reduce")
def all_reduce(run: Run) -> None:
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    got = run.call("all_reduce", x.all()) if run.in_place else run.call("all_reduce", x.all(), out.all())
    assert got is not None
    run.expect("all_reduce", x if run.in_place else out, sums(run.size))
    for op, combine in ((tutti.MAX, max), (tutti.MIN, min)):
        if op not in elements.ops_of(run.dtype):
            continue
        x = run.make(of(run.rank))
        run.call("all_reduce", x.all(), None if run.in_place else out.all(), op)
        wanted = [combine(value(rank, index) for rank in range(run.size)) for index in range(COUNT)]
        run.expect(f"all_reduce, {op.name}", x if run.in_place else out, wanted)


@case("all_reduce_pre_mul_sum")
def all_reduce_pre_mul_sum(run: Run) -> None:
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    run.call("all_reduce", x.all(), None if run.in_place else out.all(), scale=2)
    run.expect("all_reduce with scale", x if run.in_place else out, [2 * one for one in sums(run.size)])


@case("reduce_scatter")
def reduce_scatter(run: Run, **more: Any) -> None:
    x, out = run.make(of(run.rank, COUNT * run.size)), run.blank(COUNT)
    mine = run.rank * COUNT
    run.call("reduce_scatter", x.all(), x.part(mine, mine + COUNT) if run.in_place else out.all(), **more)
    wanted = [more.get("scale", 1) * one for one in sums(run.size, COUNT, mine)]
    run.expect("reduce_scatter", x if run.in_place else out, wanted, mine if run.in_place else 0)


@case("reduce_scatter_pre_mul_sum")
def reduce_scatter_pre_mul_sum(run: Run) -> None:
    reduce_scatter(run, scale=2)


@case("all_gather")
def all_gather(run: Run) -> None:
    wanted = [one for rank in range(run.size) for one in of(rank)]
    out = run.blank(COUNT * run.size)
    mine = run.rank * COUNT
    if run.in_place:
        out = run.make(of(run.rank) * run.size)
    x = out.part(mine, mine + COUNT) if run.in_place else run.make(of(run.rank)).all()
    run.call("all_gather", x, out.all())
    run.expect("all_gather", out, wanted)


@case("broadcast")
def broadcast(run: Run) -> None:
    for root in range(run.size):
        x, out = run.make(of(run.rank)), run.blank(COUNT)
        if run.in_place:
            run.call("broadcast", x.all(), root=root)
        else:
            run.call("broadcast", x.all() if run.rank == root else None, out.all(), root=root)
        run.expect("broadcast", x if run.in_place else out, of(root))


@case("reduce")
def reduce(run: Run, **more: Any) -> None:
    root = run.size - 1
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    target = out.all() if run.rank == root and not run.in_place else None
    got = run.call("reduce", x.all(), target, root=root, **more)
    if run.rank != root:
        assert got is None
        run.expect("reduce, elsewhere", x, of(run.rank))
        return
    run.expect("reduce", x if run.in_place else out, [more.get("scale", 1) * one for one in sums(run.size)])


@case("reduce_pre_mul_sum")
def reduce_pre_mul_sum(run: Run) -> None:
    reduce(run, scale=2)


@case("gather")
def gather(run: Run) -> None:
    root = run.size - 1
    mine = run.rank * COUNT
    out = run.make(of(run.rank) * run.size)
    x = out.part(mine, mine + COUNT) if run.in_place else run.make(of(run.rank)).all()
    run.call("gather", x, out.all() if run.rank == root else None, root=root)
    wanted = [one for rank in range(run.size) for one in (of(rank) if run.rank == root else of(run.rank))]
    run.expect("gather", out, wanted)


@case("scatter")
def scatter(run: Run) -> None:
    root = run.size - 1
    mine = run.rank * COUNT
    whole, out = run.make(of(root, COUNT * run.size)), run.blank(COUNT)
    at_root = run.rank == root
    target = whole.part(mine, mine + COUNT) if at_root and run.in_place else out.all()
    run.call("scatter", whole.all() if at_root else None, target, root=root)
    if not (at_root and run.in_place):
        run.expect("scatter", out, of(root, COUNT, mine))
    run.expect("scatter, the whole", whole, of(root, COUNT * run.size))


@case("all_to_all")
def all_to_all(run: Run) -> None:
    x, out = run.make(of(run.rank, COUNT * run.size)), run.blank(COUNT * run.size)
    run.call("all_to_all", x.all(), None if run.in_place else out.all())
    wanted = [one for rank in range(run.size) for one in of(rank, COUNT, run.rank * COUNT)]
    run.expect("all_to_all", x if run.in_place else out, wanted)


@case("scan")
def scan(run: Run) -> None:
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    run.call("scan", x.all(), None if run.in_place else out.all())
    run.expect("scan", x if run.in_place else out, sums(run.rank + 1))


@case("exclusive_scan")
def exclusive_scan(run: Run) -> None:
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    before = of(0) if run.in_place else [16] * COUNT
    run.call("exclusive_scan", x.all(), None if run.in_place else out.all())
    run.expect("exclusive_scan", x if run.in_place else out, sums(run.rank) if run.rank else before)


# ---- Blocks of different sizes: rank r's have 2 r + 1 elements, with a gap of one between them ----


def counts_of(size: int) -> list[int]:
    return [2 * rank + 1 for rank in range(size)]


def with_gaps(counts: list[int]) -> list[int]:
    return [sum(counts[:rank]) + rank for rank in range(len(counts))]


@case("all_gather_v")
def all_gather_v(run: Run) -> None:
    counts = counts_of(run.size)
    starts = with_gaps(counts)
    out = run.blank(starts[-1] + counts[-1])
    mine = of(run.rank, counts[run.rank])
    x = run.make(mine).all()
    if run.in_place:
        stop = starts[run.rank] + counts[run.rank]
        out = run.make([16] * starts[run.rank] + mine + [16] * (starts[-1] + counts[-1] - stop))
        x = out.part(starts[run.rank], stop)
    run.call("all_gather_v", x, out.all(), counts, starts)
    for rank in range(run.size):
        run.expect("all_gather_v", out, of(rank, counts[rank]), starts[rank])


@case("reduce_scatter_v")
def reduce_scatter_v(run: Run) -> None:
    counts = counts_of(run.size)
    start = sum(counts[: run.rank])
    x, out = run.make(of(run.rank, sum(counts))), run.blank(counts[run.rank])
    target = x.part(start, start + counts[run.rank]) if run.in_place else out.all()
    run.call("reduce_scatter_v", x.all(), target, counts)
    wanted = sums(run.size, counts[run.rank], start)
    run.expect("reduce_scatter_v", x if run.in_place else out, wanted, start if run.in_place else 0)


@case("all_to_all_v")
def all_to_all_v(run: Run) -> None:
    given = counts_of(run.size)
    got = [given[run.rank]] * run.size
    starts = with_gaps(got)
    x, out = run.make(of(run.rank, sum(given))), run.blank(starts[-1] + got[-1])
    run.call("all_to_all_v", x.all(), given, out.all(), got, (None, starts))
    for rank in range(run.size):
        run.expect("all_to_all_v", out, of(rank, given[run.rank], sum(given[: run.rank])), starts[rank])


@case("gather_v")
def gather_v(run: Run) -> None:
    counts = counts_of(run.size)
    starts = with_gaps(counts)
    x, out = run.make(of(run.rank, counts[run.rank])), run.blank(starts[-1] + counts[-1])
    if run.rank != 0:
        run.call("gather_v", x.all())
        return
    run.call("gather_v", x.all(), out.all(), counts, starts)
    for rank in range(run.size):
        run.expect("gather_v", out, of(rank, counts[rank]), starts[rank])


@case("scatter_v")
def scatter_v(run: Run) -> None:
    counts = counts_of(run.size)
    starts = with_gaps(counts)
    whole, out = run.make(of(0, starts[-1] + counts[-1])), run.blank(counts[run.rank])
    if run.rank == 0:
        run.call("scatter_v", whole.all(), out.all(), counts, starts)
    else:
        run.call("scatter_v", None, out.all())
    run.expect("scatter_v", out, of(0, counts[run.rank], starts[run.rank]))


# ---- Messages: each rank sends to the next one ----


@case("send")
def send(run: Run) -> None:
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    following, previous = (run.rank + 1) % run.size, (run.rank - 1) % run.size
    if run.started or run.size == 1:
        if run.size == 1:
            with tutti.group():
                run.comm.send(x.all(), following)
                run.comm.recv(out.all(), previous)
        else:
            works = [run.comm.start_send(x.all(), following), run.comm.start_recv(out.all(), previous)]
            assert works[1].result() is not None
            works[0].wait()
    elif run.rank % 2 == 0 and following != 0:  # A chain: of an odd number the last one starts its own.
        run.comm.send(x.all(), following)
        run.comm.recv(out.all(), previous)
    else:
        work = run.comm.start_send(x.all(), following)
        run.comm.recv(out.all(), previous)
        work.wait()
    run.expect("send and recv", out, of(previous))


CASES["recv"] = send


@case("send_tagged")
def send_tagged(run: Run) -> None:
    """What was sent last is received first."""
    following, previous = (run.rank + 1) % run.size, (run.rank - 1) % run.size
    if run.size == 1:
        return
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    more, other = run.make(of(run.rank + 1)), run.blank(COUNT)
    works = [run.comm.start_send(x.all(), following, tag=5), run.comm.start_send(more.all(), following, 6)]
    run.comm.recv(other.all(), previous, tag=6)
    run.comm.start_recv(out.all(), previous, tag=5).wait()
    for work in works:
        work.wait()
    run.expect("recv with tag 6", other, of(previous + 1))
    run.expect("recv with tag 5", out, of(previous))


CASES["recv_tagged"] = send_tagged


@case("recv_any")
def recv_any(run: Run) -> None:
    """Rank 0 gets one message of each other rank, in any order."""
    x, out = run.make(of(run.rank)), run.blank(COUNT)
    if run.rank != 0:
        run.call("send", x.all(), 0)
        return
    sources = []
    for _ in range(run.size - 1):
        sources.append(run.call("recv_any", out.all()))
        run.expect("recv_any", out, of(sources[-1]))
    assert sorted(sources) == list(range(1, run.size)), sources


@case("recv_any_tagged")
def recv_any_tagged(run: Run) -> None:
    """Rank 0 gets what the others have sent last before what they have sent first."""
    if run.rank != 0:
        for tag in (1, 2):
            run.comm.send(run.make(of(run.rank + tag)).all(), 0, tag=tag)
        return
    for tag in (2, 1):
        sources = []
        for _ in range(run.size - 1):
            out = run.blank(COUNT)
            sources.append(run.comm.recv_any(out.all(), tag=tag))
            run.expect("recv_any with a tag", out, of(sources[-1] + tag))
        assert sorted(sources) == list(range(1, run.size)), sources


def run_all(comm: tutti.Communicator, dtype: str) -> None:
    for maker in elements.makers(dtype):
        for in_place in (False, True):
            for started in (False, True):
                for function in dict.fromkeys(CASES.values()):
                    function(Run(comm, maker, dtype, in_place, started))


def main() -> None:
    missing = set(CALLS) ^ set(CASES)
    if missing:
        sys.exit(f"there is a call without a case, or a case without a call: {sorted(missing)}")
    with tutti.init() as comm:
        for dtype in tutti.data_types():
            run_all(comm, dtype)
        comm.barrier()
    print("right", flush=True)


if __name__ == "__main__":
    main()
