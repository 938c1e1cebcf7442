"""Ranks agree on what was called, and on whether it failed."""
import time

import pytest
import torch
import torch.distributed as dist

from harness import run


def test_different_roots_are_told_on_every_rank():
    """A rank that only gives returns at once, and is told at its next call."""
    def body(rank, world):
        own = 0 if rank == 0 else 1
        start = time.monotonic()
        with pytest.raises(dist.DistBackendError, match="broadcast") as raised:
            dist.broadcast(torch.full((4,), float(rank)), own)
            dist.barrier()
        assert time.monotonic() - start < 20
        return str(raised.value)
    for text in run(3, body, limit=40):
        assert "rank" in text and "Timed out" not in text, text


@pytest.mark.parametrize("call", ["all_reduce", "all_gather", "reduce_scatter", "barrier", "async"])
def test_a_late_rank_is_told_what_the_others_were_told(call):
    def body(rank, world):
        tensor, parts = torch.ones(12), [torch.zeros(12) for _ in range(world)]
        calls = {
            "all_reduce": lambda: dist.all_reduce(tensor),
            "all_gather": lambda: dist.all_gather(parts, tensor),
            "reduce_scatter": lambda: dist.reduce_scatter_tensor(torch.zeros(4), tensor),
            "barrier": dist.barrier,
            "async": lambda: dist.all_reduce(tensor, async_op=True).wait(),
        }
        if rank == world - 1:
            time.sleep(4)
        with pytest.raises(dist.DistBackendError):
            calls[call]()
    run(3, body, limit=2)
