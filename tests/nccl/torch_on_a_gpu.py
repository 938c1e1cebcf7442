"""PyTorch's own "nccl" backend over this libnccl: ranks are processes that share a GPU.

    CUDA_DEVICE_MAX_CONNECTIONS=32 LD_PRELOAD=build/cuda/libnccl.so.2 python3 tests/nccl/torch_on_a_gpu.py 2 4

Each number is that of the ranks of one run. Checks collectives, messages and DistributedDataParallel, and
prints what an all-reduce takes. NVIDIA's library before 2.30.3 refuses ranks that share a GPU: with such a
torch, a run that ends well has used this library. The tests without a GPU are in python/tests.
"""
import datetime
import hashlib
import os
import sys
import time

import torch
import torch.distributed as dist

DEVICE = "cuda:0"


def check_collectives(rank, ranks):
    total = ranks * (ranks + 1) // 2
    summed = torch.arange(1000.0, device=DEVICE) * (rank + 1)
    dist.all_reduce(summed)
    assert torch.equal(summed.cpu(), torch.arange(1000.0) * total), "all_reduce"
    sent = torch.full((77,), float(rank), device=DEVICE)
    dist.broadcast(sent, ranks - 1)
    assert (sent == ranks - 1).all(), "broadcast"
    gathered = torch.empty(ranks * 5, device=DEVICE)
    dist.all_gather_into_tensor(gathered, torch.full((5,), float(rank), device=DEVICE))
    assert torch.equal(gathered.cpu(), torch.arange(ranks).repeat_interleave(5).float()), "all_gather"
    part = torch.empty(4, device=DEVICE)
    dist.reduce_scatter_tensor(part, torch.ones(4 * ranks, device=DEVICE) * (rank + 1))
    assert (part == total).all(), "reduce_scatter"
    given = torch.arange(ranks, device=DEVICE).float() + 10 * rank
    got = torch.empty_like(given)
    dist.all_to_all_single(got, given)
    assert torch.equal(got.cpu(), torch.arange(ranks).float() * 10 + rank), "all_to_all"


def check_messages(rank, ranks):
    sent, got = torch.full((9,), float(rank), device=DEVICE), torch.empty(9, device=DEVICE)
    for request in dist.batch_isend_irecv([dist.P2POp(dist.isend, sent, (rank + 1) % ranks),
                                           dist.P2POp(dist.irecv, got, (rank - 1) % ranks)]):
        request.wait()
    assert (got == (rank - 1) % ranks).all(), "send and receive"


def train(rank, ranks):
    torch.manual_seed(0)
    network = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    model = torch.nn.parallel.DistributedDataParallel(network.to(DEVICE), device_ids=[0])
    optimiser = torch.optim.SGD(model.parameters(), 0.1)
    own = torch.Generator().manual_seed(rank)
    for _ in range(10):
        optimiser.zero_grad()
        model(torch.randn(32, 64, generator=own).to(DEVICE)).square().mean().backward()
        optimiser.step()
    weights = b"".join(p.detach().cpu().numpy().tobytes() for p in model.parameters())
    hashes = [None] * ranks
    dist.all_gather_object(hashes, hashlib.sha256(weights).hexdigest())
    assert len(set(hashes)) == 1, "the ranks' weights differ"


def measure(rank):
    for count in (2, 1 << 18, 1 << 24):
        data = torch.ones(count, device=DEVICE)
        dist.all_reduce(data)
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(10):
            dist.all_reduce(data)
        torch.cuda.synchronize()
        if rank == 0:
            print(f"  all_reduce of {4 * count} bytes: {(time.perf_counter() - begin) * 1e5:.0f} us", flush=True)


def work(rank, ranks, port):
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", rank=rank, world_size=ranks, timeout=datetime.timedelta(seconds=40))
    check_collectives(rank, ranks)
    check_messages(rank, ranks)
    train(rank, ranks)
    measure(rank)
    if rank == 0:
        print(f"{ranks} processes: all right", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    if not torch.cuda.is_available():
        sys.exit("torch_on_a_gpu: no GPU, or a torch without CUDA")
    for index, number in enumerate(map(int, sys.argv[1:] or ["2"])):
        torch.multiprocessing.spawn(work, (number, 29500 + index), nprocs=number)
