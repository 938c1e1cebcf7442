"""TUTTI_AS=nccl with CUDA tensors, on GPUs or on simulated ones (test_cuda.py)."""
import os
import tempfile
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import tutti_torch
from harness import run, same
from test_cuda import RANKS, collectives, loses, on_device, random_tensor, sum_on_device, three_devices
from tutti_torch import _stand_in

pytestmark = pytest.mark.skipif(torch.cuda.device_count() < RANKS, reason=f"needs {RANKS} GPUs")


def over_ours(body, backend="nccl", names=("nccl",), ranks=RANKS, bound=False, **how):
    """Runs it in groups of those names, which are Tutti's: what TUTTI_AS does when torch is imported."""
    def with_group(rank, world):
        _stand_in.install(names)
        os.environ["LOCAL_RANK"] = str(rank)
        torch.cuda.set_device(rank)
        device = {"device_id": torch.device("cuda", rank)} if bound else {}
        dist.init_process_group(backend, store=dist.FileStore(f"{folder}/store", world), rank=rank,
                                world_size=world, timeout=timedelta(seconds=40), **device)
        body(rank, world)
        dist.destroy_process_group()
        assert not dist.is_initialized()
    with tempfile.TemporaryDirectory() as folder:
        run(ranks, with_group, backend=None, **how)


def is_ours(group, kind="cuda"):
    return type(group._get_backend(torch.device(kind))).__name__ == "ProcessGroupTutti"


@pytest.mark.parametrize("bound", [False, True])
def test_standing_in_for_nccl(seed, bound):
    def body(rank, world):
        group = dist.group.WORLD
        assert is_ours(group) and dist.is_nccl_available()
        assert (dist.get_backend(), group.name()) == ("nccl", "nccl")
        assert isinstance(group._get_backend(torch.device("cuda")), dist.ProcessGroupNCCL)
        collectives(seed)(rank, world)
        inputs = [random_tensor(seed, r, (1000,)) for r in range(world)]
        groups = [dist.new_group(list(range(world)), pg_options=dist.ProcessGroupNCCL.Options())]
        alone = dist.new_group([0])  # Rank 1 is not in it.
        assert (alone is dist.GroupMember.NON_GROUP_MEMBER) == (rank != 0)
        if bound:
            groups.append(dist.split_group(split_ranks=[[0, 1]]))
            options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
            groups.append(dist.split_group(split_ranks=[[0, 1]], pg_options=options))
        for other in groups:
            assert is_ours(other) and dist.get_backend(other) == "nccl"
            tensor = on_device(rank, inputs[rank])
            dist.all_reduce(tensor, group=other)
            assert same(tensor.cpu(), sum(inputs)), seed
        dist.barrier()
        with pytest.raises(RuntimeError, match="No backend type associated with device type cpu"):
            dist.all_reduce(torch.ones(3))
        assert "communicator of 2 ranks" in tutti_torch.describe()
    over_ours(body, bound=bound)


@pytest.mark.parametrize("backend", [None, "cpu:gloo,cuda:nccl"])
def test_standing_in_for_gloo_and_nccl(seed, backend):
    def body(rank, world):
        # Without a name torch makes what the machine has: that of its devices.
        kinds = ["cuda", "cpu"] if backend else ["cuda"]
        assert all(is_ours(dist.group.WORLD, kind) for kind in kinds)
        inputs = [random_tensor(seed, r, (1000,)) for r in range(world)]
        for tensor in (on_device(rank, inputs[rank]), inputs[rank].clone())[:len(kinds)]:
            dist.all_reduce(tensor)
            assert same(tensor.cpu(), sum(inputs)), seed
        dist.barrier()
    over_ours(body, backend, names=("gloo", "nccl"))


class Scaled(torch.autograd.Function):
    """input * weight, computed on the host: torch's own kernels don't run on simulated GPUs."""

    @staticmethod
    def forward(ctx, weight, factors):
        ctx.factors = factors
        return torch.empty_like(weight).copy_(weight.cpu() * factors)

    @staticmethod
    def backward(ctx, gradient):
        return torch.empty_like(gradient).copy_(gradient.cpu() * ctx.factors), None


class Net(torch.nn.Module):
    def __init__(self, weight):
        super().__init__()
        self.weight = torch.nn.Parameter(weight)

    def forward(self, factors):
        return Scaled.apply(self.weight, factors)


def averaged(group, bucket):
    """What DDP does itself, but that it divides by kernels of torch's."""
    work = dist.all_reduce(bucket.buffer(), dist.ReduceOp.AVG, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])


def test_a_step_of_ddp_is_that_of_one_process(seed):
    def body(rank, world):
        weight = random_tensor(seed, 0, (3000,))
        factors = [random_tensor(seed + 1, r, (3000,)) for r in range(world)]
        alone = torch.nn.Parameter(weight.clone())
        (sum(alone * one for one in factors) / world).sum().backward()
        net = Net(on_device(rank, weight if rank == 0 else torch.zeros(3000)))
        model = DistributedDataParallel(net)
        assert same(net.weight.detach().cpu(), weight)  # Rank 0's, which DDP broadcasts.
        model.register_comm_hook(None, averaged)
        model(factors[rank]).backward(on_device(rank, torch.ones(3000)))
        assert same(net.weight.grad.cpu(), alone.grad), seed
        assert model._get_ddp_logging_data()["backend_name"] == "nccl"
    over_ours(body)


@three_devices
@pytest.mark.parametrize("bound", [False, True])
def test_the_others_go_on_without_a_rank_of_nccl(bound):
    def body(rank, world):
        loses(rank, 1)
        tutti_torch.shrink_group()
        assert (dist.get_rank(), dist.get_world_size()) == (rank // 2, 2)
        assert sum_on_device(rank, 1 << rank) == 5
        assert (dist.get_backend(), dist.group.WORLD.name()) == ("nccl", "nccl")
        dist.barrier()
    over_ours(body, ranks=3, bound=bound, dies=[1])
