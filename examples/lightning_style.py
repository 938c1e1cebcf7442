"""A trainer that owns the loop, as Lightning's and Accelerate's do, and that names gloo: it runs over
Tutti because of one line of environment. Lightning itself takes the name:
Trainer(strategy=DDPStrategy(process_group_backend="tutti"), accelerator="cpu", devices=2).

    TUTTI_AS=gloo torchrun --nproc-per-node 2 examples/lightning_style.py
"""
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel


class Task(nn.Module):
    """What a user writes: a model, a step, an optimizer."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 4))

    def forward(self, batch):
        inputs, labels = batch
        return nn.functional.cross_entropy(self.net(inputs), labels)

    def optimizer(self):
        return torch.optim.Adam(self.parameters(), lr=0.02)


class Trainer:
    """What the framework does around it: groups, seeds, metrics, the best checkpoint, one progress
    line."""

    def fit(self, task, batches, epochs):
        dist.init_process_group("gloo")
        dist.monitored_barrier(timeout=timedelta(seconds=60))
        seed = [1234 if dist.get_rank() == 0 else None]
        dist.broadcast_object_list(seed)
        torch.manual_seed(seed[0])
        model, optimizer = DistributedDataParallel(task), task.optimizer()
        history = []
        for epoch in range(epochs):
            losses = []
            for batch in batches(dist.get_rank(), epoch):
                optimizer.zero_grad()
                loss = model(batch)
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            everybody = [None] * dist.get_world_size()
            dist.all_gather_object(everybody, sum(losses) / len(losses))
            history.append(sum(everybody) / len(everybody))
        if dist.get_rank() == 0:
            print(f"over {type(dist.group.WORLD._get_backend(torch.device('cpu'))).__name__}: "
                  f"loss {history[0]:.3f} -> {history[-1]:.3f}")
        dist.barrier()
        dist.destroy_process_group()
        return history


def batches(rank, epoch):
    generator = torch.Generator().manual_seed(rank * 100 + epoch)
    for _ in range(10):
        inputs = torch.randn(32, 8, generator=generator)
        yield inputs, inputs[:, :4].argmax(1)


if __name__ == "__main__":
    losses = Trainer().fit(Task(), batches, epochs=5)
    assert losses[-1] < losses[0] / 2
