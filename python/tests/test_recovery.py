"""What the ranks that are left do after a failure: a smaller group, and training that goes on."""
import os
import signal
import time

import pytest
import torch
import torch.distributed as dist

import tutti_torch
from harness import run


def _fail(call, *parts):
    with pytest.raises(dist.DistBackendError) as raised:
        for _ in range(3):
            call()
    for part in parts:
        assert part in str(raised.value), str(raised.value)


def _sum(value, group=None):
    tensor = torch.full((5000,), float(value))
    dist.all_reduce(tensor, group=group)
    return float(tensor[0])


@pytest.mark.parametrize("victim", [0, 1, 2])
def test_whichever_rank_is_killed_the_others_go_on(victim):
    def body(rank, world):
        assert _sum(1 << rank) == 7
        if rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        _fail(lambda: _sum(1), f"rank {victim}", "Connection closed by peer")
        group = tutti_torch.shrink_group()
        assert group is dist.group.WORLD and dist.get_world_size() == 2
        assert dist.get_rank() == rank - (rank > victim)
        assert _sum(1 << rank) == 7 - (1 << victim)
        # Messages, started calls and groups of the new one.
        mine, other = torch.full((3,), float(rank)), torch.zeros(3)
        ends = [dist.P2POp(dist.isend, mine, 1 - dist.get_rank()),
                dist.P2POp(dist.irecv, other, 1 - dist.get_rank())]
        for work in dist.batch_isend_irecv(ends):
            work.wait()
        assert float(other[0]) == 3 - victim - rank
        work = dist.all_reduce(mine, async_op=True)
        work.wait()
        assert float(mine[0]) == 3 - victim
        assert _sum(1, dist.new_group([0, 1])) == 2
    run(3, body, dies=[victim])


def test_training_goes_on_without_a_rank():
    def body(rank, world):
        def model():
            torch.manual_seed(0)
            return torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(40, 7))

        def step(ddp, data):
            ddp.zero_grad()
            ddp(data).sum().backward()
            return ddp.module.weight.grad[0, 0].item()
        data = torch.full((4, 40), float(rank))
        ddp = model()
        assert step(ddp, data) == pytest.approx(4 * (0 + 1 + 2) / 3)
        if rank == 1:
            os._exit(3)
        _fail(lambda: step(ddp, data), "rank 1")
        tutti_torch.shrink_group()
        ddp = model()
        assert step(ddp, data) == pytest.approx(4 * (0 + 2) / 2)
    run(3, body, dies=[1])


def test_the_list_that_torch_asks_for():
    def body(rank, world):
        # A part of the group stays as it is when another one shrinks.
        part = dist.new_group([0, 1, 2, 3])
        if rank == 2:
            os._exit(3)
        assert tutti_torch.lost_ranks() == [2]
        # What ranks have called counts, so all that are left call the same.
        left = dist.shrink_group([2, 3], part) if rank < 2 else None
        if rank < 2:
            assert _sum(1 << rank, left) == 3
        _fail(lambda: _sum(1), "rank 2")
    run(4, body, dies=[2])


def test_a_rank_that_is_lost_and_not_in_the_list_is_named():
    def body(rank, world):
        if rank in (1, 2):
            os._exit(3)
        while tutti_torch.lost_ranks() != [1, 2]:
            time.sleep(0.01)
        with pytest.raises(dist.DistBackendError, match="lost too.*list"):
            dist.shrink_group([1])
        assert _sum(1, dist.shrink_group([1, 2])) == 2
    run(4, body, dies=[1, 2])


@pytest.mark.parametrize("victim", [0, 2])
def test_what_the_ranks_that_are_left_know(victim):
    def body(rank, world):
        for _ in range(5):
            assert _sum(1) == 3
        assert tutti_torch.health() is None and tutti_torch.completed_calls() is None
        assert tutti_torch.agree(0b110 | rank) == 0b110
        if rank == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        while tutti_torch.health() is None:
            time.sleep(0.01)
        assert f"rank {victim}" in tutti_torch.health()
        assert tutti_torch.agree(0b100 | rank) == 0b100
        assert tutti_torch.lost_ranks() == [victim]
        before = tutti_torch.completed_calls()
        assert before >= 5
        tutti_torch.shrink_group()
        assert tutti_torch.completed_calls() == before
        assert tutti_torch.health() is None
        dist.barrier()  # The others have looked, too, before one leaves.
    run(3, body, dies=[victim])


def test_a_revoke_reaches_all_ranks():
    def body(rank, world):
        dist.barrier()
        if rank == 0:
            time.sleep(0.3)
            tutti_torch.revoke("new ranks")
        _fail(lambda: _sum(1), "revoked: ", "new ranks")
        with pytest.raises(ValueError, match="all ranks of the group live"):
            tutti_torch.shrink_group()
        if rank == 2:
            return
        assert _sum(1, tutti_torch.shrink_group(exclude=[2])) == 2
    run(3, body)
