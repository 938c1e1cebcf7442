"""Two ranks with spans between and around their calls; run by test_ranks.py, which reads the trace."""

import contextlib
import time

import tutti


def main() -> None:
    with tutti.init() as comm:
        with comm.spans().span("loading"):
            data = memoryview(bytearray(1_000_000))
        comm.barrier()
        layers = comm.spans("layers")
        with layers.span("step"):
            with layers.span("forward", "conv1"):
                time.sleep(0.003)
            with contextlib.suppress(KeyError), layers.span("raises"):
                raise KeyError("a span ends with its block")
            comm.all_reduce(data)
    with layers.span("too late"):
        pass


if __name__ == "__main__":
    main()
