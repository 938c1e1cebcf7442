"""The binding on 1 to 4 processes: every collective, windows, spans, failures, recovery, joining."""

import json
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path
from typing import Any

from launch import HERE, run_ranks

FAILURES = str(HERE / "failures_ranks.py")


class Collectives(unittest.TestCase):
    def test_every_collective_type_and_way(self) -> None:
        for count in (1, 2, 3, 4):
            with self.subTest(ranks=count):
                ended = run_ranks(count, str(HERE / "collectives_ranks.py"))
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                self.assertEqual(ended.stdout.count("right"), count)


class Windows(unittest.TestCase):
    def right(self, count: int, **more: str) -> None:
        with self.subTest(ranks=count, **more):
            ended = run_ranks(count, str(HERE / "windows_ranks.py"), options=(), **more)
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertEqual(ended.stdout.count("right"), count)

    def test_every_type_and_signals(self) -> None:
        for count in (1, 2, 4):
            self.right(count)

    def test_ranks_that_reach_each_other_by_messages_only(self) -> None:
        self.right(3, TUTTI_TRANSPORT="tcp")


class UserOps(unittest.TestCase):
    def test_functions_of_the_program_reduce_its_elements(self) -> None:
        for count in (1, 2, 3):
            with self.subTest(ranks=count):
                ended = run_ranks(count, str(HERE / "user_op_ranks.py"))
                self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
                self.assertEqual(ended.stdout.count("right"), count)


class Spans(unittest.TestCase):
    def test_a_trace_has_the_spans_of_each_rank_around_its_calls(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "trace.json"
            ended = run_ranks(2, str(HERE / "spans_ranks.py"), TUTTI_TRACE=str(path))
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            events = json.loads(path.read_text(encoding="utf-8"))
        rows = {(one["pid"], one["tid"]): one["args"]["name"] for one in events if one["name"] == "thread_name"}
        spans: dict[str, list[Any]] = {}
        for event in events:
            if event["ph"] == "X":
                begin = event["ts"]
                slices = spans.setdefault(rows[event["pid"], event["tid"]], [])
                slices.append((event["name"], begin, begin + event["dur"]))
        for rank in range(2):
            layers = spans[f"rank {rank}, layers"]
            self.assertEqual([name for name, _, _ in layers], ["forward conv1", "raises", "step"])
            self.assertEqual([name for name, _, _ in spans[f"rank {rank}, program"]], ["loading"])
            (_, inner, inner_end), _, (_, outer, outer_end) = layers
            self.assertTrue(outer <= inner and inner_end - inner >= 3000 and inner_end <= outer_end, layers)
            rows_of_calls = [slices for row, slices in spans.items() if row.startswith(f"rank {rank} (")]
            calls = [one for one in rows_of_calls[0] if one[0].startswith("all_reduce")]
            self.assertTrue(calls)
            for call in calls:
                # Ticks of calls become nanoseconds by two looks at the clock: to some microseconds.
                self.assertTrue(call[1] > inner_end - 100 and call[2] < outer_end + 100, (layers, call))


class Failures(unittest.TestCase):
    def said(self, mistake: str, count: int, *options: str, **more: str) -> list[dict[str, str]]:
        """What the ranks printed: lines of name=value."""
        ended = run_ranks(count, FAILURES, mistake, options=("--no-prefix", *options), **more)
        lines = [line for line in ended.stdout.splitlines() if line.startswith("rank=")]
        self.assertTrue(lines, ended.stdout + ended.stderr)
        self.assertNotIn("Traceback", ended.stderr)
        return [dict(re.findall(r"(\w+)=(\S+)", line)) for line in lines]

    def test_a_killed_rank_is_named_with_its_host(self) -> None:
        said = self.said("dies", 3, "--elastic")
        self.assertEqual(sorted(one["rank"] for one in said), ["0", "2"])
        for one in said:
            self.assertEqual((one["error"], one["peer"], one["host"]), ("PeerFailedError", "1", os.uname().nodename))

    def test_work_that_a_killed_rank_leaves_undone_raises_once_it_is_waited_for(self) -> None:
        for one in self.said("dies-while-started", 3, "--elastic"):
            self.assertEqual((one["error"], one["peer"], one["again"]), ("PeerFailedError", "1", "same"))

    def test_the_others_shrink_and_go_on(self) -> None:
        said = self.said("shrinks", 3, "--elastic")
        self.assertEqual(len(said), 2)
        for one in said:
            self.assertEqual((one["members"], one["size"], one["sum"], one["flags"]), ("0,2", "2", "2", "4"))

    def test_a_call_that_differs_is_a_mismatch_on_all(self) -> None:
        for one in self.said("differs", 2):
            self.assertEqual((one["error"], one["peer"]), ("MismatchError", "1" if one["rank"] == "0" else "0"))

    def test_a_rank_that_does_not_come_is_named(self) -> None:
        said = self.said("sleeps", 2, TUTTI_TIMEOUT_MS="1000")
        mine = [one for one in said if one["rank"] == "0"]
        self.assertEqual((mine[0]["error"], mine[0]["peer"], mine[0]["builtin"]), ("TimeoutError", "1", "True"))

    def test_an_exception_in_the_block_reaches_the_others(self) -> None:
        said = self.said("raises", 2, "--elastic")
        self.assertEqual([(one["rank"], one["error"], one["reason"]) for one in said], [("0", "AbortedError", "True")])

    def test_a_rank_that_ends_well_has_left_and_aborts_nobody(self) -> None:
        said = self.said("ends-early", 2)
        self.assertEqual([(one["rank"], one["error"], one["peer"]) for one in said], [("0", "PeerFailedError", "1")])

    def test_an_exception_without_a_block_ends_what_was_started(self) -> None:
        said = self.said("raises-without-block", 2, "--elastic")
        self.assertEqual([(one["rank"], one["reason"]) for one in said], [("0", "True")])

    def test_a_revoked_communicator_says_so(self) -> None:
        for one in self.said("revokes", 2):
            self.assertEqual(one["health"], "RevokedError")


class Joining(unittest.TestCase):
    def test_in_a_folder_by_an_id_and_by_growing(self) -> None:
        with tempfile.TemporaryDirectory() as folder:
            ended = run_ranks(3, str(HERE / "joining_ranks.py"), folder, TUTTI_SECRET="tests")
            self.assertEqual(ended.returncode, 0, ended.stdout + ended.stderr)
            self.assertEqual(ended.stdout.count("joined"), 3)


if __name__ == "__main__":
    print(f"Python {sys.version.split()[0]}, {Path(sys.executable)}")
    unittest.main(verbosity=2)
