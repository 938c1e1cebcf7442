"""A job that loses a rank and goes on: torchrun starts all ranks anew, from the last checkpoint.

    torchrun --nproc-per-node 2 --max-restarts 2 examples/elastic.py /tmp/elastic

Here rank 1 kills itself once, in the middle of training. Rank 0's next all-reduce fails at once, with
an error that names rank 1; the second attempt finishes.
"""
import os
import signal
import sys
from pathlib import Path

import torch
import torch.distributed as dist

STEPS, FAILS_AT = 20, 12


def main():
    folder = Path(sys.argv[1])
    folder.mkdir(parents=True, exist_ok=True)
    checkpoint = folder / "checkpoint.pt"
    dist.init_process_group("tutti")
    rank = dist.get_rank()
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    state = torch.load(checkpoint) if checkpoint.exists() else {"step": 0, "sum": torch.zeros(4)}
    print(f"attempt {attempt}, rank {rank}: from step {state['step']}", flush=True)
    for step in range(state["step"], STEPS):
        if attempt == 0 and rank == 1 and step == FAILS_AT:
            os.kill(os.getpid(), signal.SIGKILL)
        gradient = torch.full((4,), float(step * (rank + 1)))
        dist.all_reduce(gradient)
        state = {"step": step + 1, "sum": state["sum"] + gradient}
        if rank == 0 and step % 5 == 4:
            torch.save(state, checkpoint.with_suffix(".new"))
            checkpoint.with_suffix(".new").rename(checkpoint)
        dist.barrier()
    world = dist.get_world_size()
    assert float(state["sum"][0]) == sum(range(STEPS)) * world * (world + 1) / 2
    print(f"attempt {attempt}, rank {rank}: done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
