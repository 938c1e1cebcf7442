"""Windows: what is put, got and accumulated, of every type; signals; a rank that leaves. Run by test_ranks.py."""

import sys
from typing import Any

import elements
import tutti

COUNT = 6
OFFSET = 128
MOST = OFFSET + 16 * COUNT


def of(rank: int) -> list[int]:
    return [1 + (rank + index) % 2 for index in range(COUNT)]


def expect(comm: tutti.Communicator, what: str, got: bytes, array: Any) -> None:
    if got != array.content():
        sys.exit(f"rank {comm.rank} of {comm.size}: {what} of {array.dtype}: got {got!r}, expected {array.content()!r}")


def pass_on(comm: tutti.Communicator, window: tutti.Window, maker: Any, dtype: str) -> None:
    """Each rank puts to the next one, and gets that back."""
    following, previous = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    x, out = maker(dtype, of(comm.rank)), maker(dtype, [16] * COUNT)
    window.put(x.all(), following, OFFSET)
    target = out.all()
    assert window.get(target, following, offset=OFFSET) is target
    expect(comm, "get", out.content(), x)
    window.signal(following, 1)
    window.wait_signal(previous, 1)
    wanted = maker(dtype, of(previous))
    expect(comm, "put", bytes(window.memory[OFFSET : OFFSET + len(wanted.content())]), wanted)
    window.signal(previous, 2)  # The place is free again.
    window.wait_signal(following, 2)


def add_up(comm: tutti.Communicator, window: tutti.Window, maker: Any, dtype: str) -> None:
    """All ranks accumulate in the same place of the last one."""
    root = comm.size - 1
    x, out = maker(dtype, of(comm.rank)), maker(dtype, [16] * COUNT)
    by_rank = [of(rank) for rank in range(comm.size)]
    for op, combine in ((tutti.SUM, sum), (tutti.MAX, max)):
        if op not in elements.ops_of(dtype):
            continue
        if comm.rank == root:
            window.memory[:OFFSET] = bytes(OFFSET)
        comm.barrier()
        window.accumulate(x.all(), root, op, offset=0)
        window.flush(root)
        comm.barrier()
        window.get(out.all(), root)
        expect(comm, op.name, out.content(), maker(dtype, [combine(values) for values in zip(*by_rank)]))
        comm.barrier()


def leave(comm: tutti.Communicator) -> None:
    """The last rank leaves by an exception; those that wait for it get an error."""
    last = comm.size - 1
    try:
        with comm.window(8) as window:
            if comm.rank == last:
                raise KeyError("nothing of that name")
            window.wait_signal(last)
    except KeyError:
        assert comm.rank == last
    except (tutti.PeerFailedError, tutti.AbortedError) as error:
        assert comm.rank != last and error.peer is not None, error
    else:
        sys.exit(f"rank {comm.rank} of {comm.size}: a signal came from nowhere")


def main() -> None:
    with tutti.init() as comm:
        with comm.window(MOST + comm.rank) as window:
            assert [window.nbytes(rank) for rank in range(comm.size)] == [MOST + rank for rank in range(comm.size)]
            assert bytes(window.memory) == bytes(MOST + comm.rank)
            comm.barrier()  # All have looked.
            for dtype in tutti.data_types():
                for maker in elements.makers(dtype):
                    pass_on(comm, window, maker, dtype)
                    add_up(comm, window, maker, dtype)
        leave(comm)
        comm.barrier()
    print("right", flush=True)


if __name__ == "__main__":
    main()
