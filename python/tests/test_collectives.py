"""Every collective of torch.distributed over every type, against what it has to give."""
import itertools

import pytest
import torch
import torch.distributed as dist

from harness import run, same

INTEGERS = [torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64]
FLOATS = [torch.float16, torch.bfloat16, torch.float32, torch.float64]
COMPLEX = [torch.complex64, torch.complex128]
ALL = INTEGERS + FLOATS + COMPLEX + [torch.bool, torch.float8_e4m3fn, torch.uint16]


def data(dtype, count, rank, seed):
    """Small whole numbers: exact in every type and every order."""
    generator = torch.Generator().manual_seed(seed * 1009 + rank)
    values = torch.randint(0, 4, (count,), generator=generator)
    if dtype == torch.bool:
        return values > 1
    if dtype.is_complex:
        return torch.complex(values.double(), values.flip(0).double()).to(dtype)
    return values.to(dtype)


def strided(tensor):
    """The same values, with holes in between."""
    wide = torch.zeros(tensor.numel(), 2, dtype=tensor.dtype)
    wide[:, 0] = tensor
    return wide[:, 0]


def layouts(tensor):
    return [tensor.clone(), strided(tensor)]


def both_ways(call):
    """Synchronous, then asynchronous."""
    call(False)
    work = call(True)
    work.wait()
    assert work.is_completed()


EXPECTED = {
    dist.ReduceOp.SUM: lambda all: sum(all[1:], all[0]),
    dist.ReduceOp.PRODUCT: lambda all: torch.stack(all).prod(0),
    dist.ReduceOp.MIN: lambda all: torch.stack(all).amin(0),
    dist.ReduceOp.MAX: lambda all: torch.stack(all).amax(0),
}


def reduced(op, tensors):
    """In a type in which torch can, then in the tensors' own."""
    dtype = tensors[0].dtype
    if dtype == torch.bool:
        either = op in (dist.ReduceOp.SUM, dist.ReduceOp.MAX)
        stacked = torch.stack(tensors)
        return stacked.any(0) if either else stacked.all(0)
    wide = dtype if dtype.is_complex else torch.float64 if dtype.is_floating_point else torch.int64
    return EXPECTED[op]([t.to(wide) for t in tensors]).to(dtype)


@pytest.mark.parametrize("world", [1, 2, 3])
def test_all_reduce(world, seed):
    def body(rank, ranks):
        for dtype, count in itertools.product(ALL, [0, 1, 5, 1031, 70000]):
            tensors = [data(dtype, count, r, seed) for r in range(ranks)]
            for op in EXPECTED:
                if dtype.is_complex and op != dist.ReduceOp.SUM:
                    continue
                want = reduced(op, tensors)
                for mine in layouts(tensors[rank]):
                    dist.all_reduce(mine, op=op)
                    assert same(mine, want), (dtype, count, op, seed)
                mine = tensors[rank].clone()
                work = dist.all_reduce(mine, op=op, async_op=True)
                work.wait()
                assert same(mine, want), (dtype, count, op, seed, "async")
                assert dtype.is_complex or same(work.get_future().value(), [mine])
    run(world, body)


def test_bitwise_average_and_scaled_sums(seed):
    def body(rank, world):
        ops = {dist.ReduceOp.BAND: torch.bitwise_and, dist.ReduceOp.BOR: torch.bitwise_or,
               dist.ReduceOp.BXOR: torch.bitwise_xor}
        for dtype in INTEGERS + [torch.bool, torch.uint16]:
            a, b = (data(dtype, 999, r, seed) for r in range(2))
            for op, want in ops.items():
                mine = (a, b)[rank].clone()
                dist.all_reduce(mine, op=op)
                assert same(mine, want(a.int(), b.int()).to(dtype)), (dtype, op, seed)
        for dtype in FLOATS + COMPLEX:
            a, b = (data(dtype, 999, r, seed) for r in range(2))
            mine = (a, b)[rank].clone()
            dist.all_reduce(mine, op=dist.ReduceOp.AVG)
            assert same(mine, (a + b) / 2), (dtype, seed)
            output = torch.zeros(9, dtype=dtype)
            dist.reduce_scatter_tensor(output, (a, b)[rank][:18].clone(), op=dist.ReduceOp.AVG)
            assert same(output, ((a + b) / 2)[rank * 9:][:9]), (dtype, seed)
            if not dtype.is_complex:
                mine = (a, b)[rank].clone()
                dist.all_reduce(mine, op=dist._make_nccl_premul_sum(0.5))
                assert same(mine, a * 0.5 + b * 0.5), (dtype, seed)
        scaled = dist._make_nccl_premul_sum(0.5)
        for dtype, op in [(torch.float32, dist.ReduceOp.BAND), (torch.bool, dist.ReduceOp.AVG),
                          (torch.int16, scaled), (torch.int64, scaled)]:
            with pytest.raises(RuntimeError, match="Cannot use ReduceOp"):
                dist.all_reduce(torch.zeros(3).to(dtype), op=op)
    run(2, body)


@pytest.mark.parametrize("world", [2, 3])
def test_whatever_copies(world, seed):
    def body(rank, ranks):
        for dtype, count in itertools.product(ALL, [1, 7, 20000]):
            tensors = [data(dtype, count, r, seed) for r in range(ranks)]
            for root in range(ranks):
                for mine in layouts(tensors[rank]):
                    both_ways(lambda later: dist.broadcast(mine, root, async_op=later))
                    assert same(mine, tensors[root])
                outputs = [torch.zeros_like(t) for t in tensors] if rank == root else None
                both_ways(lambda later: dist.gather(tensors[rank], outputs, root, async_op=later))
                assert rank != root or same(outputs, tensors)
                inputs = tensors if rank == root else None
                for mine in layouts(torch.zeros_like(tensors[0])):
                    both_ways(lambda later: dist.scatter(mine, inputs, root, async_op=later))
                    assert same(mine, tensors[rank])
            for mine in layouts(tensors[rank]):
                outputs = [strided(torch.zeros_like(t)) for t in tensors]
                both_ways(lambda later: dist.all_gather(outputs, mine, async_op=later))
                assert same(outputs, tensors)
                flat = torch.zeros(ranks * count).to(dtype)
                both_ways(lambda later: dist.all_gather_into_tensor(flat, mine, async_op=later))
                assert same(flat, torch.cat([t.view(torch.uint8) for t in tensors]).view(dtype))
            # In place: this rank's block of the output is its input.
            flat = torch.zeros(ranks * count).to(dtype)
            own = flat[rank * count:(rank + 1) * count]
            own.copy_(tensors[rank])
            dist.all_gather_into_tensor(flat, own)
            assert same(list(flat.split(count)), tensors)
        dist.barrier()
        dist.barrier(async_op=True).wait()
    run(world, body)


@pytest.mark.parametrize("world", [2, 3])
def test_reduce_and_reduce_scatter(world, seed):
    def body(rank, ranks):
        for dtype, count in itertools.product(ALL, [1, 7, 20000]):
            tensors = [data(dtype, count * ranks, r, seed) for r in range(ranks)]
            want = reduced(dist.ReduceOp.SUM, tensors)
            for root in range(ranks):
                mine = tensors[rank].clone()
                dist.reduce(mine, root)
                assert same(mine, want if rank == root else tensors[rank])
            own = want[rank * count:(rank + 1) * count]
            for output in layouts(torch.zeros(count).to(dtype)):
                both_ways(lambda later: dist.reduce_scatter_tensor(output, tensors[rank],
                                                                   async_op=later))
                assert same(output, own)
                parts = [strided(part) for part in tensors[rank].split(count)]
                both_ways(lambda later: dist.reduce_scatter(output, parts, async_op=later))
                assert same(output, own)
    run(world, body)


@pytest.mark.parametrize("world", [2, 3])
def test_lists_of_tensors_of_different_sizes(world, seed):
    def body(rank, ranks):
        for dtype, some in itertools.product(ALL, [1, 3000]):
            sizes = [(r * 2 % 3) * some for r in range(ranks)]  # One of them is 0.
            tensors = [data(dtype, size, r, seed) for r, size in enumerate(sizes)]
            for mine in layouts(tensors[rank]):
                outputs = [strided(torch.zeros(size).to(dtype)) for size in sizes]
                both_ways(lambda later: dist.all_gather(outputs, mine, async_op=later))
                assert same(outputs, tensors), (dtype, sizes, seed)
            whole = [data(dtype, sum(sizes), r, seed) for r in range(ranks)]
            want = reduced(dist.ReduceOp.SUM, whole).split(sizes)[rank]
            for output in layouts(torch.zeros(sizes[rank]).to(dtype)):
                parts = [strided(part) for part in whole[rank].split(sizes)]
                both_ways(lambda later: dist.reduce_scatter(output, parts, async_op=later))
                assert same(output, want), (dtype, sizes, seed)
        outputs = [torch.zeros(1 + (r == rank)) for r in range(ranks)]
        with pytest.raises(RuntimeError, match=f"that of rank {rank} is .2., this rank's is .1."):
            dist.all_gather(outputs, torch.zeros(1))
    run(world, body)


def test_tensors_of_inference_mode():
    """Made in it and without it, used in it and without it, where results have to be copied."""
    def body(rank, world):
        def make():
            return torch.full((2, 5), float(rank + 1)).t()  # Strided: goes by way of a copy.
        with torch.inference_mode():
            inside = make()
        for made, mode, later in itertools.product((inside, None), (True, False), (True, False)):
            tensor = make() if made is None else made
            with torch.inference_mode(tensor.is_inference()):
                tensor.fill_(rank + 1)
            with torch.inference_mode(mode):
                work = dist.all_reduce(tensor, async_op=later)
                assert not later or work.wait()
                assert bool((tensor == 3).all())
                outputs = [torch.zeros(2, 5) for _ in range(world)]
                work = dist.all_gather(outputs, tensor.t(), async_op=later)
                assert not later or work.wait()
                assert all(bool((output == 3).all()) for output in outputs)
                if rank == 0:
                    dist.send(tensor * 2, 1)
                else:
                    dist.recv(tensor, 0)
                    assert bool((tensor == 6).all())
    run(2, body)


@pytest.mark.parametrize("world", [2, 3])
def test_all_to_all(world, seed):
    def body(rank, ranks):
        for dtype in ALL:
            # Rank a gives rank b (a + 2b) % 4 rows of 3; so some give nothing.
            rows = [[(a + 2 * b) % 4 for b in range(ranks)] for a in range(ranks)]
            gives = [data(dtype, sum(rows[a]) * 3, a, seed).view(-1, 3) for a in range(ranks)]
            gets = [rows[a][rank] for a in range(ranks)]
            want = torch.cat([gives[a].split(rows[a])[rank].contiguous().view(torch.uint8)
                              for a in range(ranks)]).view(dtype)
            output = torch.zeros(sum(gets), 3).to(dtype)
            both_ways(lambda later: dist.all_to_all_single(output, gives[rank], gets, rows[rank],
                                                           async_op=later))
            assert same(output, want)
            outputs = [strided(torch.zeros(n * 3).to(dtype)).view(n, 3) if n == 0 else
                       torch.zeros(n, 3).to(dtype) for n in gets]
            both_ways(lambda later: dist.all_to_all(outputs, list(gives[rank].split(rows[rank])),
                                                    async_op=later))
            assert same(torch.cat([o.view(torch.uint8) for o in outputs]).view(dtype), want)
            even = data(dtype, 5 * ranks, rank, seed)
            output = torch.zeros(5 * ranks).to(dtype)
            dist.all_to_all_single(output, even)
            all_even = [data(dtype, 5 * ranks, r, seed).split(5)[rank] for r in range(ranks)]
            assert same(list(output.split(5)), all_even)
    run(world, body)


def test_coalesced_and_sparse(seed):
    def body(rank, world):
        tensors = [torch.full((n,), float(rank + 1)) for n in (3, 1000, 50000)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for tensor in tensors:
                dist.all_reduce(tensor)
        manager.wait()
        assert all(bool((tensor == 3).all()) for tensor in tensors)
        outputs = [torch.zeros(2 * n) for n in (4, 30000)]
        with dist._coalescing_manager(async_ops=True) as manager:
            for output in outputs:
                dist.all_gather_into_tensor(output, torch.full((output.numel() // 2,), float(rank)))
        manager.wait()
        for output in outputs:
            assert [float(part[0]) for part in output.split(output.numel() // 2)] == [0, 1]
        # Entry i of rank r is at (i, r); entry 0 is at (0, 0) on both.
        indices = torch.tensor([[0, 1, 2], [0, rank, rank]])[:, :3 - rank]
        sparse = torch.sparse_coo_tensor(indices, torch.ones(3 - rank, 4), (3, 2, 4))
        dist.all_reduce(sparse)
        want = torch.zeros(3, 2, 4)
        for r in range(2):
            for i in range(3 - r):
                want[i, r if i else 0] += 1
        assert same(sparse.to_dense(), want)
        return [t.sum().item() for t in tensors]
    run(2, body)


def test_coalesced_tensors_that_overlap():
    """All are read before the first is written, as if they were gathered into one buffer."""
    def body(rank, world):
        backend, results = dist.group.WORLD._get_backend(torch.device("cpu")), []
        for tensors in ([one := torch.tensor([1. + rank]), one],
                        [(row := torch.arange(4.) + rank)[:3], row[1:]],
                        [(wide := torch.arange(6.).view(2, 3) + rank).t(), wide[:1], torch.ones(2)],
                        [(whole := torch.arange(4) + rank)[:3], whole[1:]]):
            backend.allreduce_coalesced(tensors).wait()
            results.append([tensor.clone() for tensor in tensors])
        tensor = torch.tensor([1. + rank])
        with dist._coalescing_manager():
            dist.all_reduce(tensor)
            dist.all_reduce(tensor)
        return results, tensor
    ours = run(3, body)
    assert same(ours, run(3, body, backend="gloo"))
    (once, parts, _, _), joined = ours[0]
    assert once[0].tolist() == joined.tolist() == [6]
    assert parts[0].tolist() + parts[1][-1:].tolist() == [3, 6, 9, 12]

    def short(rank, world):
        row = torch.arange(4).short() + rank  # Goes by way of a wider copy; gloo has no such type.
        dist.group.WORLD._get_backend(row.device).allreduce_coalesced([row[:3], row[1:]]).wait()
        return row.tolist()
    assert run(3, short) == [[3, 6, 9, 12]] * 3


def test_lists_of_tensors_of_one_rank():
    """torch's functions make none, but a backend's methods take them."""
    def body(rank, world):
        backend, results = dist.group.WORLD._get_backend(torch.device("cpu")), []

        def pair(dtype=torch.float32):
            return [torch.arange(4).to(dtype) + rank * 2 + i for i in range(2)]
        for dtype in (torch.float32, torch.int32, torch.uint8):
            ops = [dist.ReduceOp.SUM, dist.ReduceOp.PRODUCT, dist.ReduceOp.MIN, dist.ReduceOp.MAX]
            if dtype != torch.float32:
                ops += [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
            for op in ops:
                options, tensors = dist.AllreduceOptions(), pair(dtype)
                options.reduceOp = op
                backend.allreduce(tensors, options).wait()
                results.append(tensors)
        for root, number in itertools.product(range(world), range(2)):
            options, tensors = dist.BroadcastOptions(), pair()
            options.rootRank, options.rootTensor = root, number
            backend.broadcast(tensors, options).wait()
            results.append(tensors)
        outputs = [[torch.zeros(4) for _ in range(2 * world)] for _ in range(2)]
        backend.allgather(outputs, pair()).wait()
        results.append(outputs)
        return results
    for world in (1, 3):
        assert same(run(world, body), run(world, body, backend="gloo"))

    def with_holes(rank, world):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        tensors = [strided(torch.arange(4.)), torch.arange(4.) + rank]
        backend.allreduce(tensors).wait()
        assert [tensor.tolist() for tensor in tensors] == [[1, 5, 9, 13]] * 2
        tensors = [torch.zeros(4), strided(torch.arange(4.) + rank)]
        options = dist.BroadcastOptions()
        options.rootRank = options.rootTensor = 1
        backend.broadcast(tensors, options).wait()
        assert [tensor.tolist() for tensor in tensors] == [[1, 2, 3, 4]] * 2
        with pytest.raises(RuntimeError, match="several tensors can't be reduced with AVG"):
            options = dist.AllreduceOptions()
            options.reduceOp = dist.ReduceOp.AVG
            backend.allreduce(tensors, options)
    run(2, with_holes)


def test_errors_of_use_are_of_the_type_and_in_the_words_of_gloo():
    def body(rank, world):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        one, two, double = torch.zeros(1), torch.zeros(2), torch.zeros(1, dtype=torch.float64)
        all_of_rank = [[one] * world]

        def root(options, number, tensor=0):
            options.rootRank = number
            if tensor:
                options.rootTensor = tensor
            return options
        refused = [
            ("invalid root rank", lambda: backend.broadcast([one], root(dist.BroadcastOptions(), -1))),
            ("invalid root rank", lambda: backend.reduce([one], root(dist.ReduceOptions(), world))),
            ("invalid root tensor", lambda: backend.broadcast([one], root(dist.BroadcastOptions(), 0, 1))),
            ("invalid root tensor", lambda: backend.broadcast([], root(dist.BroadcastOptions(), 0))),
            ("invalid tensor type", lambda: backend.broadcast([one, double], dist.BroadcastOptions())),
            ("invalid tensor size", lambda: backend.broadcast([one, two], dist.BroadcastOptions())),
            ("requires non-empty tensor list", lambda: backend.allreduce([], dist.AllreduceOptions())),
            ("invalid tensor type", lambda: backend.allreduce([one, double], dist.AllreduceOptions())),
            ("invalid tensor size", lambda: backend.allreduce([one, two], dist.AllreduceOptions())),
            ("requires non-empty tensor list", lambda: backend.allreduce_coalesced([])),
            ("requires a single-element tensor list",
             lambda: backend.reduce([one, one], root(dist.ReduceOptions(), 0))),
            ("requires non-empty input tensor list", lambda: backend.allgather([[one]], [])),
            ("requires input/output tensor lists to have the same length",
             lambda: backend.allgather([], [one])),
            ("invalid output tensor list",
             lambda: backend.allgather([[one] * (world + 1)], [one])),
            ("invalid tensor type", lambda: backend.allgather(all_of_rank, [double])),
            ("invalid tensor size", lambda: backend.allgather(all_of_rank, [two])),
            ("requires a single-element input tensor list",
             lambda: backend.gather([], [one, one], root(dist.GatherOptions(), 0))),
            ("requires a single-element output list",
             lambda: backend.gather([], [one], root(dist.GatherOptions(), rank))),
            ("Incorrect output list size",
             lambda: backend.gather([[one] * (world + 1)], [one], root(dist.GatherOptions(), rank))),
            ("requires empty output on non-root",
             lambda: backend.gather(all_of_rank, [one], root(dist.GatherOptions(), 1 - rank))),
            ("requires a single-element output tensor list",
             lambda: backend.scatter([], [], root(dist.ScatterOptions(), 0))),
            ("requires a single-element input list",
             lambda: backend.scatter([one], [], root(dist.ScatterOptions(), rank))),
            ("Incorrect input list size",
             lambda: backend.scatter([one], [[one]], root(dist.ScatterOptions(), rank))),
            ("requires empty input on non-root",
             lambda: backend.scatter([one], all_of_rank, root(dist.ScatterOptions(), 1 - rank))),
        ]
        for words, call in refused:
            with pytest.raises(RuntimeError, match=words):
                call()
        return len(refused)
    assert run(2, body) == run(2, body, backend="gloo")


def test_profilers_see_calls_whether_they_are_waited_for_or_not():
    def body(rank, world):
        tensor = torch.ones(4)
        assert dist.all_reduce(tensor) is None
        with torch.profiler.profile() as profile:
            dist.all_reduce(tensor)
            dist.all_reduce(tensor, async_op=True).wait()
        seen = [event for event in profile.events() if event.name == "tutti:all_reduce"]
        return len(seen), tensor.sum().item()
    assert run(2, body) == [(2, 32.0)] * 2


def test_sums_of_two_have_the_bits_of_gloo(seed):
    def body(rank, world):
        generator = torch.Generator().manual_seed(seed + rank)
        values = torch.randn(100003, generator=generator)
        dist.all_reduce(values)
        halves = torch.zeros(50000)
        dist.reduce_scatter_tensor(halves, torch.randn(100000, generator=generator))
        return values, halves
    assert same(run(2, body), run(2, body, backend="gloo")), seed
