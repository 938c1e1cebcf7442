"""Data-parallel training: each rank its own data, one model.

    torchrun --nproc-per-node 2 examples/ddp.py
"""
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


def main():
    dist.init_process_group("tutti")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(0)
    model = DistributedDataParallel(nn.Sequential(nn.Linear(16, 64), nn.Tanh(), nn.Linear(64, 1)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    generator = torch.Generator().manual_seed(rank)
    losses = []
    for _ in range(60):
        inputs = torch.randn(32, 16, generator=generator)
        loss = nn.functional.mse_loss(model(inputs), inputs.sum(1, keepdim=True))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        mean = loss.detach().clone()
        dist.all_reduce(mean, op=dist.ReduceOp.AVG)
        losses.append(mean.item())
    if rank == 0:
        print(f"{world} ranks: loss {losses[0]:.3f} -> {losses[-1]:.3f}")
    assert losses[-1] < losses[0] / 2
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
