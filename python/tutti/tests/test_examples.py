"""The programs in examples/python, on several ranks."""

import os
import unittest

import elements
from launch import ROOT, run_ranks

FOLDER = ROOT / "examples/python"


class Examples(unittest.TestCase):
    ran: set[str] = set()

    def said(self, name: str, count: int, *words: str, options: tuple[str, ...] = ()) -> list[str]:
        self.ran.add(name)
        ended = run_ranks(count, str(FOLDER / name), *words, options=("--no-prefix", *options))
        self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
        return sorted(ended.stdout.splitlines())

    def test_ring(self) -> None:
        self.assertEqual(self.said("ring.py", 4), ["round the ring: [0, 10, 20, 30]"])
        self.assertEqual(self.said("ring.py", 1), ["round the ring: [0]"])

    def test_pi(self) -> None:
        self.assertEqual(self.said("pi.py", 3, "10000"), ["pi is about 3.141593"])

    def test_eigenvalue(self) -> None:
        self.ran.add("eigenvalue.py")
        if elements.numpy is None:
            self.skipTest("NumPy is not here")
        self.assertEqual(self.said("eigenvalue.py", 2), ["the largest eigenvalue is 100.000, and should be 100.000"])

    def test_overlap(self) -> None:
        self.ran.add("overlap.py")
        if elements.numpy is None:
            self.skipTest("NumPy is not here")
        self.assertEqual(self.said("overlap.py", 2), ["averages: [0.5, 1.5, 2.5, 3.5]"])

    def test_survivors(self) -> None:
        lost = f"rank 1 on {os.uname().nodename} is lost"
        ends = [f"rank {rank} of 2 ends; the last sum was 2" for rank in range(2)]
        self.assertEqual(self.said("survivors.py", 3, options=("--elastic",)), sorted([lost, lost, *ends]))

    @classmethod
    def tearDownClass(cls) -> None:
        left = {path.name for path in FOLDER.glob("*.py")} - cls.ran
        assert not left, f"no test has run {sorted(left)}"


if __name__ == "__main__":
    unittest.main(verbosity=2)
