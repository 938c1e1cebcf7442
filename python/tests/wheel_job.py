"""What scripts/wheel runs under torchrun with two ranks: a sum, and a step of DDP, over an installed wheel."""
import sys

import torch
import torch.distributed as dist
import tutti_torch


def main():
    dist.init_process_group("tutti")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module = tutti_torch._extension().__file__
    assert module.startswith(sys.prefix), f"{module} is not of this environment, {sys.prefix}"
    sums = torch.arange(1000.) * (rank + 1)
    dist.all_reduce(sums)
    assert torch.equal(sums, torch.arange(1000.) * (ranks * (ranks + 1) // 2)), sums
    torch.manual_seed(1)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 2))
    model(torch.full((3, 4), float(rank))).sum().backward()
    # The mean over ranks of 3 * rank, for each weight.
    mean = 3 * sum(range(ranks)) / ranks
    assert torch.equal(model.module.weight.grad, torch.full((2, 4), mean)), model.module.weight.grad
    if rank == 0:
        print(tutti_torch.describe().splitlines()[0])
    dist.destroy_process_group()


main()
