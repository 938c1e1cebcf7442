"""Runs a function on several ranks, each a process, and hands back what they return."""
import multiprocessing
import os
import pickle
import tempfile
import time
import traceback
from datetime import timedelta

import torch
import torch.distributed as dist

import tutti_torch  # noqa: F401  Registers the name, also where it is not installed.

# Forked: torch is imported once. Nothing here may start threads before.
_context = multiprocessing.get_context("fork")


def _child(rank, world, body, backend, path, limit, pipe):
    try:
        torch.set_num_threads(1)
        torch.manual_seed(rank)
        if backend is None:
            answer = body(rank, world)
        else:
            os.environ["LOCAL_RANK"] = str(rank)  # From torch 2.15 on that is the device for NCCL.
            dist.init_process_group(backend, store=dist.FileStore(path, world), rank=rank,
                                    world_size=world, timeout=timedelta(seconds=limit))
            answer = body(rank, world)
            if dist.is_initialized() and backend == "gloo":
                dist.barrier()  # Its destructor aborts if one of its threads has the last reference.
            elif dist.is_initialized():
                dist.destroy_process_group()
        pipe.send_bytes(pickle.dumps(("ok", answer)))
    except BaseException:  # Whatever it is, the parent tells it.
        pipe.send_bytes(pickle.dumps(("failed", traceback.format_exc())))
    pipe.close()
    os._exit(0)


def run(world, body, backend="tutti", limit=40, deadline=90, dies=()):
    """What body(rank, world) returned on each rank of a group over `backend`; None: without a group.
    Tensors come back as they are. Ranks in `dies` end without an answer. `limit` is the group's."""
    with tempfile.TemporaryDirectory() as folder:
        started = []
        for rank in range(world):
            here, there = _context.Pipe(duplex=False)
            process = _context.Process(target=_child, args=(
                rank, world, body, backend, os.path.join(folder, "store"), limit, there))
            process.start()
            there.close()
            started.append((process, here))
        answers, wrong, end = [], [], time.monotonic() + deadline
        for rank, (process, pipe) in enumerate(started):
            answer = None
            try:
                if pipe.poll(max(0, end - time.monotonic())):
                    kind, answer = pickle.loads(pipe.recv_bytes())
                    if kind == "failed":
                        wrong.append(f"rank {rank}: {answer}")
                else:
                    wrong.append(f"rank {rank} gave no answer within {deadline} s")
            except EOFError:
                if rank not in dies:
                    wrong.append(f"rank {rank} ended without an answer")
            answers.append(answer)
        for process, _ in started:
            process.join(5)
            if process.is_alive():
                process.kill()
                process.join()
        assert not wrong, "\n".join(wrong)
        return answers


def bits(tensor):
    flat = torch.empty(tensor.numel(), dtype=tensor.dtype)
    return flat.copy_(tensor.detach().reshape(-1)).view(torch.uint8)


def same(one, other):
    """Whether two nests of tensors and values are equal, bit for bit."""
    if isinstance(one, torch.Tensor):
        return (one.dtype == other.dtype and one.shape == other.shape
                and bits(one).equal(bits(other)))
    if isinstance(one, (list, tuple)):
        return len(one) == len(other) and all(same(a, b) for a, b in zip(one, other))
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    return one == other
