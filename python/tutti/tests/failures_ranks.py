"""A program that makes the mistake it is told, and prints what the other ranks learn; run by test_ranks.py."""

import builtins
import os
import signal
import sys
import time

import tutti


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def say(comm: tutti.Communicator, error: tutti.Error, **more: object) -> None:
    words = {"rank": comm.rank, "error": type(error).__name__, "peer": error.peer, "host": error.host, **more}
    print(*(f"{name}={value}" for name, value in words.items()), flush=True)


def call(comm: tutti.Communicator, count: int = 1000) -> tutti.Error:
    """The error of an all-reduce that can't work."""
    try:
        comm.all_reduce(tutti.Buffer(bytearray(4 * count), "float32"))
    except tutti.Error as error:
        assert isinstance(error, RuntimeError) and "\n" not in str(error)
        return error
    raise SystemExit(f"rank {comm.rank}: the call worked")


def dies(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        die()
    say(comm, call(comm))


def dies_while_started(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        die()
    work = comm.start_all_reduce(tutti.Buffer(bytearray(4 << 20), "float32"))
    errors = []
    for _ in range(2):
        try:
            work.result()
        except tutti.PeerFailedError as error:
            errors.append(error)
    assert work.done()
    say(comm, errors[0], again="same" if errors[0] is errors[1] else "other")


def shrinks(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        die()
    call(comm)
    left, members, completed = comm.shrink()
    assert completed == 0
    one = memoryview(bytearray(b"\1"))
    left.all_reduce(one)
    flags = left.agree(6 if left.rank == 0 else 12)
    print(
        f"rank={comm.rank} members={','.join(map(str, members))} size={left.size} sum={one[0]} flags={flags}",
        flush=True,
    )
    left.close()


def differs(comm: tutti.Communicator) -> None:
    say(comm, call(comm, 1000 if comm.rank == 0 else 500))


def sleeps(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        time.sleep(3)
    error = call(comm)
    say(comm, error, builtin=isinstance(error, builtins.TimeoutError))


def raises(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        raise KeyError("nothing of that name")
    error = call(comm)
    say(comm, error, reason="KeyError" in str(error) and "nothing of that name" in str(error))


def ends_early(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        sys.exit(0)
    say(comm, call(comm))


def raises_without_block(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        comm.start_recv(bytearray(8), 0)  # Nobody sends: to wait for it would take a minute.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
        raise ValueError("a mistake of the program")
    error = call(comm)
    say(comm, error, reason="a mistake of the program" in str(error))


def revokes(comm: tutti.Communicator) -> None:
    if comm.rank == 1:
        comm.revoke("for the test")
    while comm.health() is None:
        time.sleep(0.01)
    print(f"rank={comm.rank} health={type(comm.health()).__name__}", flush=True)


def main(mistake: str) -> None:
    function = globals()[mistake.replace("-", "_")]
    if mistake == "raises-without-block":
        function(tutti.init())
        return
    try:
        with tutti.init() as comm:
            function(comm)
    except KeyError:
        sys.exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
