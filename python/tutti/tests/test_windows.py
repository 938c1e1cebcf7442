"""Windows of ranks in one process; windows_ranks.py has those of several."""

import array
import gc
import threading
import unittest
import weakref

import elements
import tutti

numpy = elements.numpy


class Windows(unittest.TestCase):
    def setUp(self) -> None:
        self.comm = tutti.init()
        self.addCleanup(self.comm.close)

    def test_a_rank_puts_gets_and_accumulates_in_its_own_memory(self) -> None:
        with self.comm.window(64) as window:
            memory = window.memory
            self.assertEqual((bytes(memory), window.nbytes(0), memory.readonly), (bytes(64), 64, False))
            window.put(b"12345678", 0, 8)
            self.assertEqual(bytes(memory[8:16]), b"12345678")
            out = bytearray(4)
            self.assertIs(window.get(out, 0, 12), out)
            self.assertEqual(out, b"5678")
            numbers = memory.cast("q")
            window.accumulate(array.array("q", [5, 6]), 0, offset=16)
            window.accumulate(array.array("q", [7, 1]), 0, tutti.MAX, 16)
            self.assertEqual(numbers[2:4].tolist(), [7, 6])
            window.accumulate(memoryview(b"\1").cast("?"), 0, tutti.OR, offset=32)
            self.assertEqual(memory[32], 1)
            window.put(elements.record(258), 0)
            self.assertEqual(memory.cast("H")[0], 258)
            self.assertEqual([window.fetch_add(2**63 - 1, 0, 40), window.fetch_add(1, 0, 40)], [0, 2**63 - 1])
            self.assertEqual([window.compare_swap(-(2**63), -5, 0, 40), window.compare_swap(0, 1, 0, 40)],
                             [-(2**63), -5])
            self.assertEqual((window.fetch_add(0, 0, 40), numbers[5]), (-5, -5))
            window.signal(0)
            window.signal(0, 63)
            window.signal(0)
            window.wait_signal(0, count=2)
            window.wait_signal(0, 63)
            window.flush(0)
            numbers.release()
        with self.assertRaises(ValueError):  # Released.
            memory[0]

    def test_a_rank_may_have_no_memory(self) -> None:
        with self.comm.window() as window:
            self.assertEqual((len(window.memory), window.nbytes(0)), (0, 0))
            window.put(b"", 0)

    def test_memory_stays_until_its_last_view_goes_unless_the_window_is_closed(self) -> None:
        view = self.comm.window(8).memory[2:4]
        alive = weakref.ref(view.obj)
        gc.collect()
        view[0] = 5
        self.assertEqual(bytes(view), b"\5\0")
        del view
        gc.collect()
        self.assertIsNone(alive())

    def test_a_window_outlives_its_communicator(self) -> None:
        window = self.comm.window(8)
        self.comm.close()
        window.put(b"1", 0)
        self.assertEqual(window.memory[0], ord("1"))
        window.close()

    def test_a_block_that_raises_ends_the_window_without_the_others(self) -> None:
        first, second = tutti.in_process(2)
        second_window: list[tutti.Window] = []
        started = threading.Thread(target=lambda: second_window.append(second.window(8)))
        started.start()
        with self.assertRaises(KeyError), first.window(8) as window:
            started.join()
            raise KeyError("nothing of that name")
        self.assertIn("closed", repr(window))
        with self.assertRaises((tutti.PeerFailedError, tutti.AbortedError)) as missed:
            second_window[0].wait_signal(0)
        self.assertEqual(missed.exception.peer, 0)

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_arrays_in_its_memory(self) -> None:
        with self.comm.window(24) as window:
            data = numpy.frombuffer(window.memory, "float32")
            data[:] = 2
            window.accumulate(numpy.ones((2, 3), "float32"), 0)
            self.assertEqual(data.tolist(), [3.0] * 6)
            del data


if __name__ == "__main__":
    unittest.main(verbosity=2)
