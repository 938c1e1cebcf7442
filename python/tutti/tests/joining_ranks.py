"""Three ranks that join again: in a folder, by an id, at an address, and by growing; run by test_ranks.py."""

import socket
import sys
from pathlib import Path

import tutti


def sum_of_ranks(comm: tutti.Communicator) -> int:
    mine = memoryview(bytearray([comm.rank + 1]))
    comm.all_reduce(mine)
    return int(mine[0])


def shared(comm: tutti.Communicator, text: bytes) -> bytes:
    """The text of rank 0, on all ranks."""
    room = bytearray(text.ljust(128, b"\0") if comm.rank == 0 else 128)
    comm.broadcast(room)
    return bytes(room)


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return int(listener.getsockname()[1])


def main(folder: str) -> None:
    with tutti.init() as comm:
        rank, size = comm.rank, comm.size
        # Ranks backwards: the caller's numbers count, not the launcher's.
        with tutti.init(folder, rank=size - 1 - rank, size=size, job="folder") as second:
            assert (second.rank, second.size, sum_of_ranks(second)) == (size - 1 - rank, size, 6)
        assert Path(folder).is_dir()
        port = int(shared(comm, str(free_port()).encode()).rstrip(b"\0"))
        with tutti.init(f"127.0.0.1:{port}", rank=rank, size=size) as third:
            assert sum_of_ranks(third) == 6
        identity = shared(comm, tutti.unique_id() if rank == 0 else b"")
        with tutti.init(identity, rank=rank, size=size) as fourth:
            assert sum_of_ranks(fourth) == 6
        with comm.duplicate() as fifth:
            assert (fifth.rank, sum_of_ranks(fifth)) == (rank, 6)
        part = comm.split(0 if rank < 2 else -1, -rank)
        assert (part is None) == (rank == 2)
        identity = shared(comm, tutti.unique_id() if rank == 0 else b"")
        whole = part.grow(identity, 3) if part is not None else tutti.init(identity, rank=2, size=3)
        assert sum_of_ranks(whole) == 6 and whole.rank == (2 if part is None else 1 - rank)
        whole.close()
        if part is not None:
            part.close()
        comm.barrier()
    print("joined", flush=True)


if __name__ == "__main__":
    main(sys.argv[1])
