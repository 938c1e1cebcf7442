"""Groups whose ranks change: torch's reconfigure (2.14 and newer), over the group's store."""
import datetime
import os
import signal
import threading
import time

import pytest
import torch
import torch.distributed as dist

import tutti_torch
from harness import run

pytestmark = pytest.mark.skipif(not hasattr(dist, "_reconfigure"),
                                reason=f"torch {torch.__version__} has no reconfigure")


class Process:
    """One of some processes that share a store, each with a group that has no ranks yet."""

    def __init__(self, path, number, name="tutti", limit=30):
        self.number = number
        self.store = dist.FileStore(str(path), -1)
        dist.init_process_group(name, store=dist.PrefixStore("group", self.store), rank=number,
                                world_size=4, enable_reconfigure=True,
                                timeout=datetime.timedelta(seconds=limit))
        self.store.set(f"handle {number}", dist._get_reconfigure_handle())

    def handles(self, numbers):
        return [self.store.get(f"handle {number}").decode() for number in numbers]

    def reconfigure(self, uuid, numbers, kind=list, **options):
        assert dist._reconfigure(uuid, kind(self.handles(numbers)), **options).wait()

    def check(self, numbers):
        """The group has these ranks, in this order, and works."""
        assert (dist.get_rank(), dist.get_world_size()) == (numbers.index(self.number), len(numbers))
        tensor = torch.full((5000,), float(1 << self.number))
        dist.all_reduce(tensor)
        assert float(tensor[0]) == sum(1 << number for number in numbers)
        if len(numbers) == 1:
            return
        right = (dist.get_rank() + 1) % len(numbers)
        left = (dist.get_rank() - 1) % len(numbers)
        mine, theirs = torch.tensor([float(self.number)]), torch.zeros(1)
        for work in dist.batch_isend_irecv([dist.P2POp(dist.isend, mine, right),
                                            dist.P2POp(dist.irecv, theirs, left)]):
            work.wait()
        assert float(theirs) == numbers[left]


def fails(call, error, *parts):
    with pytest.raises(error) as raised:
        call()
    for part in parts:
        assert part in str(raised.value), str(raised.value)


@pytest.mark.parametrize("name", ["tutti", "as gloo"])
def test_ranks_in_any_order_fewer_and_more(tmp_path, name):
    def body(number, world):
        if name == "as gloo":
            from tutti_torch import _stand_in
            _stand_in.install(["gloo"])
        one = Process(tmp_path / "store", number, name.split()[-1])
        assert dist._supports_reconfigure()
        fails(lambda: dist.all_reduce(torch.ones(1)), RuntimeError, "call reconfigure() first")
        message = dist.P2POp(dist.isend, torch.ones(1), (number + 1) % 4)
        fails(dist.batch_isend_irecv([message])[0].wait, RuntimeError, "call reconfigure() first")
        fails(lambda: dist.send(message.tensor, message.peer), RuntimeError, "call reconfigure() first")
        for uuid, numbers in enumerate([[0, 1, 2, 3], [3, 1], [2, 3, 0, 1], [1], [0, 3, 1]]):
            one.store.set(f"came {uuid} {number}", "")
            one.store.wait([f"came {uuid} {each}" for each in range(4)])
            if number in numbers:
                one.reconfigure(uuid, numbers)
                one.check(numbers)
        if number in [0, 1]:
            one.reconfigure(100, [1, 0], set)  # Ordered by the ranks of the beginning.
            one.check([0, 1])
        dist.destroy_process_group()
    run(4, body, backend=None)


@pytest.mark.parametrize("victim", [0, 2])
def test_another_process_takes_the_place_of_one_that_was_killed(tmp_path, victim):
    spare = 3

    def body(number, world):
        one = Process(tmp_path / "store", number)
        first = [0, 1, 2]
        second = [spare if each == victim else each for each in first]
        if number != spare:
            one.reconfigure(1, first)
            one.check(first)
        if number == victim:
            os.kill(os.getpid(), signal.SIGKILL)
        if number != spare:
            tensor = torch.ones(1 << 20)
            work = dist.all_reduce(tensor, async_op=True)
            fails(work.wait, dist.DistBackendError, f"rank {victim}")
        one.reconfigure(2, second)
        one.check(second)
    run(4, body, backend=None, dies=[victim])


def test_what_is_under_way_ends_with_an_error(tmp_path):
    def body(number, world):
        one = Process(tmp_path / "store", number)
        one.reconfigure(1, [0, 1])
        one.check([0, 1])
        one.store.set(f"checked {number}", "")  # Else it ends the other's check as well.
        one.store.wait(["checked 0", "checked 1"])
        message = dist.irecv(torch.ones(1), 1 - number)
        call = dist.all_reduce(torch.ones(1), async_op=True) if number == 0 else None
        one.reconfigure(2, [1, 0])
        fails(message.wait, dist.DistBackendError, "reconfigures the group")
        if call is not None:
            fails(call.wait, dist.DistBackendError, "reconfigures the group")
        one.check([1, 0])
    run(2, body, backend=None)


def test_a_call_on_another_thread_ends_and_touches_nothing(tmp_path):
    def body(number, world):
        one = Process(tmp_path / "store", number)
        output = torch.full((3, 100000), -1.0)
        errors = []

        def calls():  # Of two ranks, again and again.
            while not errors:
                try:
                    dist.all_gather_into_tensor(output[:2], torch.ones(1, 100000))
                except RuntimeError as error:
                    errors.append(str(error))

        for uuid in range(0, 20, 2):
            if number == 2:
                one.reconfigure(uuid + 1, [2, 0, 1])
                one.check([2, 0, 1])
                continue
            one.reconfigure(uuid, [0, 1])
            errors.clear()
            thread = threading.Thread(target=calls)
            thread.start()
            time.sleep(0.02 * uuid / 20)
            one.reconfigure(uuid + 1, [2, 0, 1])
            thread.join()
            assert "reconfigure" in errors[0] or "no ranks" in errors[0] or "are not 3" in errors[0], errors
            assert output[2].eq(-1).all()
            one.check([2, 0, 1])
            one.store.set(f"checked {uuid} {number}", "")
            one.store.wait([f"checked {uuid} 0", f"checked {uuid} 1"])
    run(3, body, backend=None)


def test_ranks_with_different_lists_are_told(tmp_path):
    def body(number, world):
        one = Process(tmp_path / "store", number)
        numbers = [0, 1, 2] if number != 1 else [0, 1, 3]
        if number == 3:
            one.store.wait(["over"])
            return
        fails(lambda: one.reconfigure(1, numbers), dist.DistBackendError, "different lists of handles")
        one.reconfigure(2, [0, 1, 2])
        one.check([0, 1, 2])
        one.store.set("over", "")
    run(4, body, backend=None)


def test_after_a_shutdown_there_is_none(tmp_path):
    def body(number, world):
        one = Process(tmp_path / "store", number)
        one.reconfigure(1, [0, 1])
        one.check([0, 1])
        dist.group.WORLD.shutdown()
        fails(lambda: one.reconfigure(2, [0, 1]), RuntimeError, "was shut down")
    run(2, body, backend=None)


def test_a_rank_that_does_not_come_is_named(tmp_path):
    def body(number, world):
        one = Process(tmp_path / "store", number)
        if number == 2:
            one.store.wait(["over"])
            return
        fails(lambda: one.reconfigure(1, [0, 2, 1], timeout=datetime.timedelta(seconds=1)),
              dist.DistBackendError, "rank 1 of 3 has not come")
        for call in (lambda: dist.all_reduce(torch.ones(1)), lambda: dist.recv(torch.ones(1), 1),
                     dist.monitored_barrier, tutti_torch.stats, tutti_torch.lost_ranks):
            fails(call, RuntimeError, "no ranks")
        one.reconfigure(2, [0, 1])
        one.check([0, 1])
        one.store.set("over", "")
    run(3, body, backend=None)


def test_handles_and_numbers_that_make_no_sense(tmp_path):
    def body(number, world):
        one = Process(tmp_path / "store", number)
        own, other = one.handles([number, 1 - number])
        bad = [([other], "its own handle"), ([own, other, own], "twice"),
               ([own, "gloo:1:2"], "no handle of Tutti's"), ([], "its own handle")]
        for handles, text in bad:
            fails(lambda: dist._reconfigure(1, handles), RuntimeError, text)
        one.reconfigure(1, [0, 1])
        fails(lambda: one.reconfigure(1, [0, 1]), RuntimeError, "uuid 1 has been used")
        one.check([0, 1])  # Nothing has changed.
    run(2, body, backend=None)


def test_a_group_that_was_made_as_usual_can_be_reconfigured():
    def body(rank, world):
        handles = [None] * world
        dist.all_gather_object(handles, dist._get_reconfigure_handle())
        dist._reconfigure(7, handles[::-1]).wait()
        assert dist.get_rank() == world - 1 - rank
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        assert float(tensor[0]) == world
    run(3, body)
