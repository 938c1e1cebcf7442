"""CUDA tensors: torch's own backend of NCCL over our libnccl.so.2, and ours.

On GPUs as they are, or on simulated ones by `scripts/torch cuda`. There torch's own kernels do not
run: tensors are made on the CPU and copied, and results are looked at there.
"""
import ctypes

import pytest
import torch
import torch.distributed as dist

from harness import run, same

RANKS = 2
# Devices are counted without making a context, which would not outlive a fork.
pytestmark = pytest.mark.skipif(
    torch.cuda.device_count() < RANKS,
    reason=f"needs torch for CUDA and {RANKS} GPUs; scripts/torch cuda pretends them")


def on_device(rank, tensor):
    """A copy on the rank's device."""
    torch.cuda.set_device(rank)
    return torch.empty(tensor.shape, dtype=tensor.dtype, device=f"cuda:{rank}").copy_(tensor)


def random_tensor(seed, rank, shape, dtype=torch.float32):
    """Small whole numbers: their sums are exact in every type and order."""
    generator = torch.Generator().manual_seed(seed * 1009 + rank)
    return torch.randint(-8, 9, shape, generator=generator).to(dtype)


def file_of(function):
    """The library that has the function of that name which the process's libraries find first."""
    try:
        address = ctypes.cast(getattr(ctypes.CDLL(None), function), ctypes.c_void_p).value
    except AttributeError:
        return None
    with open("/proc/self/maps") as maps:
        for line in maps:
            begin, end = (int(number, 16) for number in line.split()[0].split("-"))
            if begin <= address < end:
                return line.split()[-1]


def test_memory_and_streams(seed):
    def body(rank, world):
        assert torch.cuda.is_available() and torch.cuda.device_count() >= world
        want = random_tensor(seed, rank, (1000,))
        tensor = on_device(rank, want)
        assert tensor.is_cuda and same(tensor.cpu(), want)
        pinned, first, second = want.pin_memory(), torch.cuda.Stream(), torch.cuda.Stream()
        with torch.cuda.stream(first):
            other = torch.empty_like(tensor)
            other.copy_(pinned, non_blocking=True)
            event = torch.cuda.Event()
            event.record()
        second.wait_event(event)
        with torch.cuda.stream(second):
            back = other.cpu()
        assert same(back, want)
        peer = (rank + 1) % world
        assert same(tensor.to(f"cuda:{peer}").cpu(), want)
    run(RANKS, body, backend=None)


def collectives(seed):
    def body(rank, world):
        inputs = [random_tensor(seed, r, (3, 1000)) for r in range(world)]
        total = sum(inputs)
        tensor = on_device(rank, inputs[rank])
        dist.all_reduce(tensor)
        assert same(tensor.cpu(), total), seed
        tensor = on_device(rank, inputs[rank])
        dist.broadcast(tensor, 1)
        assert same(tensor.cpu(), inputs[1]), seed
        gathered = torch.empty(3 * world, 1000, device=tensor.device)
        dist.all_gather_into_tensor(gathered, on_device(rank, inputs[rank]))
        assert same(gathered.cpu(), torch.cat(inputs)), seed
        part = torch.empty(3 * 1000 // world, device=tensor.device)
        dist.reduce_scatter_tensor(part, on_device(rank, inputs[rank].view(-1)))
        assert same(part.cpu(), total.view(world, -1)[rank]), seed
        peer = 1 - rank
        got = torch.empty(3, 1000, device=tensor.device)
        mine = on_device(rank, inputs[rank])
        if rank == 0:
            dist.send(mine, peer)
            dist.recv(got, peer)
        else:
            dist.recv(got, peer)
            dist.send(mine, peer)
        assert same(got.cpu(), inputs[peer]), seed
        ops = [dist.P2POp(dist.isend, mine, peer), dist.P2POp(dist.irecv, got, peer)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert same(got.cpu(), inputs[peer]), seed
        work = dist.all_reduce(mine, op=dist.ReduceOp.MAX, async_op=True)
        work.wait()
        assert same(mine.cpu(), torch.stack(inputs).amax(0)), seed
    return body


def test_torchs_own_backend_runs_over_our_libnccl(seed):
    file = file_of("ncclAllReduce")
    if file is None or "site-packages" in file:
        pytest.skip("our libnccl.so.2 is not preloaded (LD_PRELOAD=libnccl.so.2)")
    run(RANKS, collectives(seed), backend="nccl")
