"""What trains: DDP with its hooks, ZeRO, FSDP2, DTensor, functional collectives, checkpoints. Results
of two ranks are those of gloo, bit for bit: the sum of two numbers has no order."""
import tempfile

import pytest
import torch
import torch._dynamo  # noqa: F401  Here, and not once in every forked rank: it takes seconds.
import torch.distributed as dist
import torch.distributed.checkpoint as checkpoint
from torch import nn
from torch.distributed import _functional_collectives as functional
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.distributed.checkpoint.state_dict import get_model_state_dict, StateDictOptions
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.distributed.tensor import distribute_tensor, Replicate, Shard
from torch.nn.parallel import DistributedDataParallel

from harness import run, same


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 300), nn.ReLU(), nn.Linear(300, 300), nn.ReLU(),
                         nn.Linear(300, 3))


def batches(rank, count=4):
    generator = torch.Generator().manual_seed(1000 + rank)
    return [(torch.randn(8, 20, generator=generator), torch.randn(8, 3, generator=generator))
            for _ in range(count)]


def train(wrapped, rank, optimizer, steps=4):
    for inputs, wanted in batches(rank, steps):
        optimizer.zero_grad()
        nn.functional.mse_loss(wrapped(inputs), wanted).backward()
        optimizer.step()


def trained_ddp(rank, world, **options):
    net = model()
    wrapped = DistributedDataParallel(net, **options)
    train(wrapped, rank, torch.optim.SGD(net.parameters(), lr=0.1))
    return [p.detach().clone() for p in net.parameters()]


OPTIONS = {
    "plain": {},
    "many buckets": {"bucket_cap_mb": 0.05},
    "views": {"gradient_as_bucket_view": True, "bucket_cap_mb": 0.1},
    "static": {"static_graph": True},
    "unused": {"find_unused_parameters": True},
}


@pytest.mark.parametrize("options", OPTIONS)
def test_ddp(options):
    def body(rank, world):
        return trained_ddp(rank, world, **OPTIONS[options])
    ours = run(2, body)
    assert same(ours, run(2, body, backend="gloo"))
    assert same(ours[0], ours[1])


def test_ddp_on_three_ranks_and_without_syncing():
    def body(rank, world):
        net = model()
        wrapped = DistributedDataParallel(net)
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        pairs = batches(rank)
        for (a, wa), (b, wb) in zip(pairs[::2], pairs[1::2]):
            optimizer.zero_grad()
            with wrapped.no_sync():
                nn.functional.mse_loss(wrapped(a), wa).backward()
            nn.functional.mse_loss(wrapped(b), wb).backward()
            optimizer.step()
        return [p.detach().clone() for p in net.parameters()]
    ours = run(3, body)
    assert same(ours[0], ours[1]) and same(ours[0], ours[2])
    for mine, theirs in zip(ours[0], run(3, body, backend="gloo")[0]):
        assert torch.allclose(mine, theirs, rtol=1e-4, atol=1e-6)


def test_ddp_hooks_that_call_collectives_from_their_callbacks():
    def body(rank, world):
        answers = []
        for hook in ("fp16", "bf16", "power"):
            net = model()
            wrapped = DistributedDataParallel(net)  # One bucket: else hooks race by themselves.
            if hook == "power":
                state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=2,
                                                    start_powerSGD_iter=2)
                wrapped.register_comm_hook(state, powerSGD_hook.powerSGD_hook)
            else:
                chosen = getattr(default_hooks, hook + "_compress_hook")
                wrapped.register_comm_hook(None, chosen)
            train(wrapped, rank, torch.optim.SGD(net.parameters(), lr=0.1), 5)
            answers.append([p.detach().clone() for p in net.parameters()])
        return answers
    ours = run(2, body)
    assert same(ours[0], ours[1])
    assert same(ours, run(2, body, backend="gloo"))


def test_zero_redundancy_optimizer():
    def body(rank, world):
        net = model()
        wrapped = DistributedDataParallel(net)
        optimizer = ZeroRedundancyOptimizer(net.parameters(), torch.optim.Adam, lr=0.01)
        train(wrapped, rank, optimizer)
        optimizer.consolidate_state_dict(0)
        return [p.detach().clone() for p in net.parameters()]
    ours = run(2, body)
    assert same(ours, run(2, body, backend="gloo"))


def test_fsdp2_and_its_checkpoint():
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        net = model()
        for layer in net:
            if isinstance(layer, nn.Linear):
                fully_shard(layer, mesh=mesh)
        fully_shard(net, mesh=mesh)
        train(net, rank, torch.optim.SGD(net.parameters(), lr=0.1))
        state = get_model_state_dict(net, options=StateDictOptions(full_state_dict=True))
        return {name: tensor.clone() for name, tensor in state.items()}
    ours = run(2, body)[0]
    # What DDP trains with the same data, but for rounding.
    plain = run(2, lambda rank, world: trained_ddp(rank, world))[0]
    assert len(ours) == len(plain)
    for mine, other in zip(ours.values(), plain):
        assert torch.allclose(mine, other, rtol=1e-4, atol=1e-6)


def test_dtensor_and_functional_collectives():
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        whole = torch.arange(42.0).view(7, 6)
        sharded = distribute_tensor(whole, mesh, [Shard(0)])
        across = sharded.redistribute(mesh, [Shard(1)])
        product = across @ distribute_tensor(whole.t().contiguous(), mesh, [Shard(0)])
        assert same(product.redistribute(mesh, [Replicate()]).to_local(), whole @ whole.t())
        assert same(across.full_tensor(), whole)
        mine = torch.full((4, 3), float(rank))
        assert same(functional.all_reduce(mine, "sum", mesh) + 0,
                    torch.full((4, 3), world * (world - 1) / 2))
        gathered = functional.all_gather_tensor(mine, 0, mesh) + 0
        assert gathered.shape == (4 * world, 3) and float(gathered[-1, 0]) == world - 1
        both = functional.all_reduce_coalesced([mine, mine.t().contiguous()], "avg", mesh)
        assert float(both[1][0, 0]) == (world - 1) / 2
        scattered = functional.reduce_scatter_tensor(mine.repeat(world, 1), "sum", 0, mesh) + 0
        assert float(scattered[0, 0]) == world * (world - 1) / 2
    for world in (2, 3):
        run(world, body)


def test_objects_and_checkpoints():
    with tempfile.TemporaryDirectory() as folder:
        def body(rank, world):
            everybody = [None] * world
            dist.all_gather_object(everybody, {"rank": rank, "text": "x" * 1000 * rank})
            assert [one["rank"] for one in everybody] == list(range(world))
            spoken = ["of rank 0" if rank == 0 else None]
            dist.broadcast_object_list(spoken)
            assert spoken == ["of rank 0"]
            mine = [None]
            dist.scatter_object_list(mine, [{"for": r} for r in range(world)] if rank == 0 else None)
            assert mine == [{"for": rank}]
            heard = [None] * world if rank == 1 else None
            dist.gather_object(rank, heard, 1)
            assert rank != 1 or heard == list(range(world))
            state = {"weights": torch.arange(1000.0), "step": 5}
            checkpoint.save(state, checkpoint_id=folder)
            loaded = {"weights": torch.zeros(1000), "step": 0}
            checkpoint.load(loaded, checkpoint_id=folder)
            assert same(loaded, state)
        run(3, body)


def test_mappable_tensors_give_the_same_bits():
    def body(rank, world):
        import tutti_torch
        tutti_torch.enable_shared_allocator(from_bytes=1 << 16)
        answer = trained_ddp(rank, world, bucket_cap_mb=0.5)
        big = torch.full((1 << 20,), float(rank))
        for _ in range(3):
            dist.all_reduce(big, op=dist.ReduceOp.MAX)
        used, _ = tutti_torch._C.pool_use()
        assert used >= big.nbytes and float(big.min()) == world - 1
        return answer
    assert same(run(2, body), run(2, lambda rank, world: trained_ddp(rank, world, bucket_cap_mb=0.5)))
