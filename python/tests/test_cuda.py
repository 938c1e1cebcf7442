"""CUDA tensors: torch's own backend of NCCL over our libnccl.so.2, and ours.

On GPUs as they are, or on simulated ones by `scripts/torch cuda`. There torch's own kernels do not
run: tensors are made on the CPU and copied, and results are looked at there.
"""
import ctypes
import os
import signal
import time
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist

import tutti_torch
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


def test_our_backend(seed):
    run(RANKS, collectives(seed))


def test_blocks_of_different_sizes(seed):
    def body(rank, world):
        # Rank a gives rank b (a + 2b + 1) % 3 rows of 5; so some give nothing.
        rows = [[(a + 2 * b + 1) % 3 for b in range(world)] for a in range(world)]
        gives = [random_tensor(seed, a, (sum(rows[a]), 5)) for a in range(world)]
        gets = [rows[a][rank] for a in range(world)]
        want = torch.cat([gives[a].split(rows[a])[rank] for a in range(world)])
        mine = on_device(rank, gives[rank])
        for later in (False, True):
            output = torch.empty(want.shape, device=mine.device)
            work = dist.all_to_all_single(output, mine, gets, rows[rank], async_op=later)
            assert not later or work.wait()
            assert same(output.cpu(), want), seed
        outputs = [torch.empty(n, 5, device=mine.device) for n in gets]
        dist.all_to_all(outputs, [part.clone() for part in mine.split(rows[rank])])
        assert same(torch.cat([one.cpu() for one in outputs]), want), seed
        gathered = [torch.empty(one.shape, device=mine.device) for one in gives]
        dist.all_gather(gathered, mine)
        assert all(same(got.cpu(), one) for got, one in zip(gathered, gives)), seed
    run(RANKS, body)


TYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.int16,
         torch.int32, torch.int64, torch.bool]


def test_lists_roots_and_types(seed):
    def body(rank, world):
        for number, dtype in enumerate(TYPES):
            inputs = [random_tensor(seed + number, r, (world * 20,), dtype) for r in range(world)]
            blocks = [x.chunk(world) for x in inputs]
            mine = on_device(rank, inputs[rank])
            gathered = [torch.empty_like(mine) for _ in range(world)]
            dist.all_gather(gathered, mine)
            assert all(same(got.cpu(), want) for got, want in zip(gathered, inputs)), (seed, dtype)
            out = torch.empty_like(mine)
            dist.all_to_all_single(out, mine)
            want = torch.cat([blocks[r][rank] for r in range(world)])
            assert same(out.cpu(), want), (seed, dtype)
            outs = [torch.empty_like(part) for part in mine.chunk(world)]
            dist.all_to_all(outs, [part.clone() for part in mine.chunk(world)])
            assert same(torch.cat([one.cpu() for one in outs]), want), (seed, dtype)
            gathered = [torch.empty_like(mine) for _ in range(world)] if rank == 1 else None
            dist.gather(mine, gathered, dst=1)
            if rank == 1:
                assert all(same(got.cpu(), want) for got, want in zip(gathered, inputs))
            part = torch.empty(20, dtype=dtype, device=mine.device)
            dist.scatter(part, [one.clone() for one in mine.chunk(world)] if rank == 1 else None, src=1)
            assert same(part.cpu(), blocks[1][rank]), (seed, dtype)
            dist.reduce_scatter(part, [one.clone() for one in mine.chunk(world)])
            want = sum(one[rank] for one in blocks).to(dtype)  # Of booleans: or.
            assert same(part.cpu(), want), (seed, dtype)
            dist.reduce(mine, dst=0, op=dist.ReduceOp.MIN)
            want = torch.stack(inputs).amin(0) if rank == 0 else inputs[rank]
            assert same(mine.cpu(), want), (seed, dtype)
    run(RANKS, body)


def test_works_that_are_dropped_and_futures(seed):
    """Whoever starts a call may forget its tensors and Work at once; a callback of a future runs
    on a stream that waits."""
    def body(rank, world):
        inputs = [[random_tensor(seed + i, r, (50000,)) for r in range(world)] for i in range(20)]
        kept = []
        for parts in inputs:
            tensor = on_device(rank, parts[rank])
            work = dist.all_reduce(tensor, async_op=True)
            kept.append(work.get_future().then(lambda future: future.value()[0].cpu()))
            dist.all_reduce(on_device(rank, parts[rank]), async_op=True)
            del tensor, work
            torch.empty(50000, device=f"cuda:{rank}").copy_(torch.full((50000,), 99.0))
        for future, parts in zip(kept, inputs):
            assert same(future.wait(), sum(parts)), seed
        tensor = on_device(rank, inputs[0][rank])
        work = dist.all_reduce(tensor, async_op=True)
        assert work.wait(timedelta(seconds=30)) and work.is_completed() and work.is_success()
        assert same(tensor.cpu(), sum(inputs[0]))
    run(RANKS, body)


def test_coalescing_and_messages_in_both_directions(seed):
    def body(rank, world):
        many = [[random_tensor(seed + i, r, (100 + i,)) for r in range(world)] for i in range(5)]
        tensors = [on_device(rank, parts[rank]) for parts in many]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        for tensor, parts in zip(tensors, many):
            assert same(tensor.cpu(), sum(parts)), seed
        # More than fits in between: both send first, and each waits for the other's receive.
        peer, big = 1 - rank, [random_tensor(seed, r, (1 << 21,)) for r in range(world)]
        mine, got = on_device(rank, big[rank]), torch.empty(1 << 21, device=f"cuda:{rank}")
        sent, received = dist.isend(mine, peer), dist.irecv(got, peer)
        received.wait()
        assert same(got.cpu(), big[peer]), seed
        sent.wait()
        # On the CPU meanwhile, and on groups of the same ranks.
        objects = [None] * world
        dist.all_gather_object(objects, {"of": rank})
        assert objects == [{"of": r} for r in range(world)]
        other = dist.new_group(list(range(world)))
        dist.all_reduce(mine, group=other)
        assert same(mine.cpu(), sum(big)), seed
        dist.barrier()
    run(RANKS, body)


class Graph:
    """A capture of torch's current stream by the runtime's own functions, in global mode as that of
    torch.cuda.graph, which needs kernels of torch's."""

    def __init__(self):
        self.runtime = ctypes.CDLL(f"libcudart.so.{torch.version.cuda.split('.')[0]}")
        self.graph, self.runnable = ctypes.c_void_p(), ctypes.c_void_p()

    def call(self, name, *arguments):
        assert getattr(self.runtime, name)(*arguments) == 0, name

    def stream(self):
        return ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)

    def __enter__(self):
        self.call("cudaStreamBeginCapture", self.stream(), 0)

    def __exit__(self, kind, error, trace):
        if kind is None:
            self.call("cudaStreamEndCapture", self.stream(), ctypes.byref(self.graph))
            self.call("cudaGraphInstantiate", ctypes.byref(self.runnable), self.graph,
                      ctypes.c_ulonglong(0))

    def replay(self):
        self.call("cudaGraphLaunch", self.runnable, self.stream())


def test_works_under_way_break_no_capture(seed):
    """The group looks after its works every 20 ms, on a thread of its own: here it does so many times
    while a stream is being captured, and calls of before and of the capture are under way."""
    def body(rank, world):
        inputs = [[random_tensor(seed + i, r, (50000,)) for r in range(world)] for i in range(8)]
        early = [on_device(rank, parts[rank]) for parts in inputs]
        first, second = (on_device(rank, inputs[i][rank]) for i in (0, 1))
        # What the calls need is made before, and the peer's stream is left alone meanwhile.
        for tensor in (early[0], first):
            tensor.copy_(inputs[0][rank])
            dist.all_reduce(tensor)
            tensor.copy_(inputs[0][rank])
        torch.cuda.synchronize()
        graph = Graph()
        with torch.cuda.stream(torch.cuda.Stream()):
            works = [dist.all_reduce(tensor, async_op=True) for tensor in early]
            with graph:
                dropped = dist.all_reduce(first, async_op=True)
                work = dist.all_reduce(second, async_op=True)
                assert not work.is_completed()
                time.sleep(0.3)
                # It is behind the one that is dropped, so both are over when it is.
                work.wait()
                del dropped
            for one, tensor, parts in zip(works, early, inputs):
                one.wait()
                assert same(tensor.cpu(), sum(parts)), seed
            for times in range(1, 3):
                graph.replay()
                torch.cuda.current_stream().synchronize()
                assert same(first.cpu(), sum(inputs[0]) * world ** (times - 1)), seed
                assert same(second.cpu(), sum(inputs[1]) * world ** (times - 1)), seed
    run(RANKS, body)


def test_what_is_refused():
    def body(rank, world):
        torch.cuda.set_device(rank)
        host, device = torch.zeros(4), torch.empty(4, device=f"cuda:{rank}")
        with pytest.raises(RuntimeError, match="one tensor is on"):
            dist.group.WORLD._allgather_base(torch.empty(4 * world, device=device.device), host)
        with pytest.raises(RuntimeError, match="from any rank"):
            dist.group.WORLD.recv_anysource([device], 0)
        with pytest.raises(RuntimeError, match="oneself"):
            dist.group.WORLD.send([device], rank, 0)
        dist.all_reduce(device)
        with pytest.raises(dist.DistBackendError, match="that are reduced have to be of one size"):
            parts = [torch.empty(r + 1, device=device.device) for r in range(world)]
            dist.reduce_scatter(parts[rank].clone(), parts)
        with pytest.raises(RuntimeError, match=f"is on cuda:{rank} on this rank"):
            dist.all_reduce(torch.empty(4, device=f"cuda:{1 - rank}"))
    run(RANKS, body)


def test_time_limits():
    def body(rank, world):
        tensor = on_device(rank, torch.ones(4))
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        if rank == 1:
            time.sleep(7)
            return
        work = dist.all_reduce(tensor, async_op=True)
        with pytest.raises(dist.DistBackendError, match="Timed out.*waited 100 ms"):
            work.wait(timedelta(milliseconds=100))
        assert not work.is_completed()
        torch.cuda.synchronize()  # The stream goes on when the group's time is over.
        with pytest.raises(dist.DistBackendError, match="all_reduce.*Timed out"):
            work.wait()
        with pytest.raises(dist.DistBackendError, match="Timed out"):
            dist.all_reduce(tensor)
    run(RANKS, body, limit=3)


def test_a_limit_of_one_operation_and_abort():
    def body(rank, world):
        tensor = on_device(rank, torch.ones(4))
        dist.all_reduce(tensor)
        torch.cuda.synchronize()
        other = dist.new_group(list(range(world)))
        dist.all_reduce(tensor, group=other)
        torch.cuda.synchronize()
        if rank == 1:
            time.sleep(5)
            return
        options = dist.AllreduceOptions()
        options.timeout = timedelta(milliseconds=300)
        work = dist.group.WORLD.allreduce([tensor], options)
        with pytest.raises(dist.DistBackendError, match="own time limit.*all_reduce"):
            work.wait(timedelta(seconds=20))
        work = dist.all_reduce(tensor, group=other, async_op=True)
        other._get_backend(tensor.device).abort()
        with pytest.raises(dist.DistBackendError, match="rank 0 aborted"):
            work.wait(timedelta(seconds=20))
    run(RANKS, body, limit=60)


def sum_on_device(rank, value):
    tensor = on_device(rank, torch.full((5000,), float(value)))
    dist.all_reduce(tensor)
    torch.cuda.synchronize()
    return float(tensor.cpu()[0])


def loses(rank, victim):
    """The victim ends in the middle of a job, and its peers' calls fail with its name."""
    assert sum_on_device(rank, 1 << rank) == 7
    if rank == victim:
        os.kill(os.getpid(), signal.SIGKILL)
    tensor = on_device(rank, torch.ones(5000))
    with pytest.raises(dist.DistBackendError, match=f"rank {victim}"):
        for _ in range(3):
            dist.all_reduce(tensor, async_op=True).wait(timedelta(seconds=20))
    torch.cuda.synchronize()


three_devices = pytest.mark.skipif(torch.cuda.device_count() < 3, reason="needs 3 GPUs")


@three_devices
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_the_others_go_on_without_a_rank(victim):
    def body(rank, world):
        loses(rank, victim)
        tutti_torch.shrink_group()
        assert (dist.get_rank(), dist.get_world_size()) == (rank - (rank > victim), 2)
        assert sum_on_device(rank, 1 << rank) == 7 - (1 << victim)
    run(3, body, dies=[victim])


@three_devices
@pytest.mark.skipif(not hasattr(dist, "_reconfigure"), reason="torch 2.14 and newer")
@pytest.mark.parametrize("victim", [0, 1, 2])
def test_ranks_change_with_their_devices(victim):
    def body(rank, world):
        handles = [None] * world
        dist.all_gather_object(handles, dist._get_reconfigure_handle())
        loses(rank, victim)
        left = [r for r in (2, 1, 0) if r != victim]
        dist._reconfigure(1, [handles[r] for r in left]).wait()
        assert (dist.get_rank(), dist.get_world_size()) == (left.index(rank), 2)
        assert sum_on_device(rank, 1 << rank) == 7 - (1 << victim)
    run(3, body, dies=[victim])
