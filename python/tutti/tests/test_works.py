"""Ranks that are threads of one process: work that is waited for, groups, and what work keeps."""

import array
import ctypes
import gc
import threading
import unittest
import weakref
from typing import Any

import launch  # noqa: F401  It finds the package and the library.

import tutti
from tutti import _work


class InProcess(unittest.TestCase):
    def run_ranks(self, size: int, body: Any) -> list[Any]:
        """Runs body(comm) on a thread for each rank; what each returned."""
        results: list[Any] = [None] * size
        comms = tutti.in_process(size)

        def one(comm: tutti.Communicator) -> None:
            results[comm.rank] = body(comm)

        threads = [threading.Thread(target=one, args=(comm,)) for comm in comms]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for comm in comms:
            comm.close()
        return results

    def test_threads_are_ranks_as_the_lock_is_released_in_calls(self) -> None:
        def body(comm: tutti.Communicator) -> float:
            data = array.array("d", [comm.rank + 1.0])
            comm.all_reduce(data, op=tutti.AVG)
            return data[0]

        self.assertEqual(self.run_ranks(3, body), [2.0] * 3)

    def test_a_group_lets_one_thread_drive_several_ranks(self) -> None:
        comms = tutti.in_process(2)
        outs = [array.array("q", [0]) for _ in comms]
        with tutti.group():
            for comm, out in zip(comms, outs):
                comm.all_reduce(array.array("q", [comm.rank + 1]), out)  # Nobody else holds the input.
                gc.collect()
        self.assertEqual([out[0] for out in outs], [3, 3])
        with self.assertRaisesRegex(tutti.InvalidArgumentError, "open"), tutti.group(), tutti.group():
            pass
        with tutti.group():  # The failure above has closed its own.
            pass

    def test_work_waits_ends_and_keeps_its_buffers(self) -> None:
        first, second = tutti.in_process(2)
        data = bytearray(8)
        work = first.start_recv(data, 1)
        self.assertFalse(work.done())
        with self.assertRaises(TimeoutError) as late:
            work.wait(0.01)
        self.assertIsInstance(late.exception, tutti.TimeoutError)
        with self.assertRaises(BufferError):
            data.extend(b"more")  # The library still writes there.
        second.send(b"12345678", 0)
        self.assertIs(work.result(), data)
        self.assertTrue(work.done())
        data.extend(b"more")
        self.assertEqual(data, b"12345678more")

    def test_works_are_waited_for_all_or_any(self) -> None:
        first, second = tutti.in_process(2)
        rooms = [bytearray(1) for _ in range(3)]
        works = [first.start_recv(room, 1) for room in rooms]
        with self.assertRaises(TimeoutError):
            tutti.wait_any(works, 0.01)
        with self.assertRaises(TimeoutError):
            tutti.wait_all(works, 0.01)
        late = threading.Timer(0.05, lambda: second.send(b"a", 0))
        late.start()
        self.assertEqual(tutti.wait_any(works), 0)
        late.join()
        self.assertEqual(tutti.wait_any(works, 0), 0)
        works[0].wait()
        self.assertEqual(tutti.wait_any(works, 0), 0)  # Also one that was waited for.
        second.send(b"b", 0)
        self.assertEqual(tutti.wait_any(works[1:], 60), 0)
        second.send(b"c", 0)
        tutti.wait_all(works, 60)
        self.assertEqual([bytes(room) for room in rooms], [b"a", b"b", b"c"])
        tutti.wait_all([])
        with self.assertRaisesRegex(ValueError, "no work"):
            tutti.wait_any([])
        works = [first.start_recv(rooms[0], 1), first.start_recv(rooms[1], 1)]
        second.abort("enough")
        self.assertIn(tutti.wait_any(works), (0, 1))
        with self.assertRaisesRegex(tutti.AbortedError, "enough"):
            tutti.wait_all(works)

    def test_a_message_from_any_rank_says_from_which(self) -> None:
        first, second, third = tutti.in_process(3)
        room = bytearray(1)
        third.start_send(b"c", 0)
        self.assertEqual(first.recv_any(room), 2)
        work = first.start_recv_any(room)
        self.assertFalse(work.done())
        second.send(b"b", 0)
        self.assertEqual((work.result(), bytes(room)), (1, b"b"))
        with tutti.group():
            with self.assertRaisesRegex(tutti.InvalidArgumentError, "group"):
                first.recv_any(room)
            work = first.start_recv_any(room)
            third.send(b"d", 0)
        self.assertEqual((work.result(), bytes(room)), (2, b"d"))
        with self.assertRaisesRegex(ValueError, "read-only"):
            first.recv_any(b"1")

    def test_buffers_of_work_that_nobody_keeps_stay_until_it_has_ended(self) -> None:
        first, second = tutti.in_process(2)
        room = (ctypes.c_ubyte * 8)()
        alive = weakref.ref(room)
        first.start_recv(room, 1)
        address = ctypes.addressof(room)
        del room
        gc.collect()
        self.assertIsNotNone(alive())
        second.send(b"12345678", 0)
        while ctypes.string_at(address, 8) != b"12345678":
            pass
        for _ in range(1000):  # It is swept when the next call is started.
            first.start_send(b"1", 1).wait()
            second.recv(bytearray(1), 0)
            gc.collect()
            if alive() is None:
                break
        self.assertIsNone(alive())
        self.assertEqual(_work._abandoned, [])


if __name__ == "__main__":
    unittest.main(verbosity=2)
