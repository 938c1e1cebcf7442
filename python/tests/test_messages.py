"""Messages with tags, from anybody, to oneself, in batches, dropped."""
import random

import torch
import torch.distributed as dist

from harness import run, same


def content(source, tag, index):
    generator = torch.Generator().manual_seed(source * 10007 + tag * 101 + index)
    count = int(torch.randint(0, 60000, (1,), generator=generator))
    return torch.randn(count, generator=generator)


def test_tags_are_received_in_any_order(seed):
    """Each rank sends everybody a few messages of a few tags, and receives them in an order of its
    own: of one tag they come in the order in which they were sent."""
    def body(rank, world):
        order = random.Random(seed * 31 + rank)
        sends, wanted, works = [], [], []
        for peer in range(world):
            for tag in range(3):
                for index in range(3):
                    if peer != rank:
                        sends.append((peer, tag, index))
        # Shuffled, but in order within a tag.
        ranked = sorted(sends, key=lambda _: order.random())
        next_of = {}
        for peer, tag, _ in ranked:
            index = next_of[peer, tag] = next_of.get((peer, tag), -1) + 1
            works.append(dist.isend(content(rank, tag, index), peer, tag=tag))
        ranked = sorted(sends, key=lambda _: order.random())
        next_of = {}
        for peer, tag, _ in ranked:
            index = next_of[peer, tag] = next_of.get((peer, tag), -1) + 1
            want = content(peer, tag, index)
            got = torch.full_like(want, -1.0)
            wanted.append((got, want, dist.irecv(got, peer, tag=tag)))
        for got, want, work in wanted:
            work.wait()
            assert same(got, want), seed
        for work in works:
            work.wait()
        dist.barrier()
    run(3, body)


def test_from_anybody(seed):
    def body(rank, world):
        if rank == 0:
            heard = []
            for _ in range(2 * (world - 1)):
                got = torch.zeros(1)
                source = dist.recv(got, tag=5)
                assert int(got[0]) // 10 == source
                heard.append(int(got[0]))
            assert sorted(heard) == [10 * r + i for r in range(1, world) for i in range(2)]
            # What has another tag waits for who asks for it.
            got = torch.zeros(3)
            dist.recv(got, 1, tag=9)
            assert same(got, torch.ones(3))
        else:
            if rank == 1:
                dist.isend(torch.ones(3), 0, tag=9)
            for i in range(2):
                dist.send(torch.tensor([10.0 * rank + i]), 0, tag=5)
        dist.barrier()
    run(3, body)


def test_a_send_that_nobody_waits_for_arrives():
    def body(rank, world):
        if rank == 0:
            for i in range(20):
                dist.isend(torch.full((70000,), float(i)), 1)  # Work and tensor are dropped.
        else:
            for i in range(20):
                got = torch.zeros(70000)
                dist.recv(got, 0)
                assert bool((got == i).all())
        dist.barrier()
    run(2, body)


def test_batches_objects_and_strides():
    def body(rank, world):
        left, right = (rank - 1) % world, (rank + 1) % world
        gives, gets = torch.full((9, 5), float(rank)), torch.zeros(5, 9)
        ops = [dist.P2POp(dist.isend, gives.t(), right), dist.P2POp(dist.irecv, gets.t(), left)]
        for work in dist.batch_isend_irecv(ops):
            work.wait()
        assert bool((gets == left).all())
        wide = torch.zeros(6, 2)
        if rank == 0:
            dist.send(torch.arange(6.0), 1)
        elif rank == 1:
            dist.recv(wide[:, 0], 0)
            assert same(wide[:, 0].clone(), torch.arange(6.0)) and float(wide[:, 1].sum()) == 0
        objects = [{"of": rank}, "text" * rank]
        if rank == 0:
            dist.send_object_list(objects, 1)
        elif rank == 1:
            got = [None, None]
            dist.recv_object_list(got, 0)
            assert got == [{"of": 0}, ""]
        # To oneself, through the group itself: torch's own functions refuse it.
        group = dist.group.WORLD
        group.send([torch.ones(4)], rank, 7).wait()
        got = torch.zeros(4)
        group.recv([got], rank, 7).wait()
        assert same(got, torch.ones(4))
    run(3, body)
