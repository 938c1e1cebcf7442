#!/usr/bin/env python3
"""Runs torch's own suite for backends, which ships with torch, on CPU, and lists the cases that pass.

    run.py gloo  --ranks 2                     real gloo: writes gloo-2.txt into the folder of this torch
    run.py tutti --ranks 2                     Tutti, standing in for gloo: writes tutti-2.txt there
    run.py check                               for all: what is in gloo-N.txt is in tutti-N.txt
    run.py tutti --ranks 2 --only all_reduce   cases whose name has that, to the screen only

The suite is torch.testing._internal.distributed.distributed_test; a case is skipped by itself if it
needs devices that are not there. Ranks are forked: torch is imported once, not for every case.
"""
import argparse
import os
import sys
import tempfile
import time
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent


class Listing(unittest.TestResult):
    """What passed, by name; a line for each case as it ends."""

    def __init__(self):
        super().__init__()
        self.passed, self.wrong = [], []
        self.since = 0.0

    def startTest(self, test):
        super().startTest(test)
        self.since = time.monotonic()

    def say(self, test, what):
        took = time.monotonic() - self.since
        print(f"{what:8} {test._testMethodName} ({took:.1f} s)", flush=True)

    def addSuccess(self, test):
        self.passed.append(test._testMethodName)
        self.say(test, "passed")

    def addSkip(self, test, reason):
        self.say(test, "skipped")

    def addFailure(self, test, error):
        self.wrong.append(test._testMethodName)
        self.say(test, "FAILED")
        print(self._exc_info_to_string(error, test), file=sys.stderr, flush=True)

    addError = addFailure


def cases(limit):
    import torch
    import torch.testing._internal.common_distributed as common
    from torch.testing._internal.distributed import distributed_test

    common.TIMEOUT_DEFAULT = limit
    common.TIMEOUT_OVERRIDE = {}

    class TestDistBackendWithFork(distributed_test.TestDistBackend,
                                  distributed_test.DistributedTest._DistTestBase):
        def setUp(self):
            super().setUp()
            self._start_processes(torch.multiprocessing.get_context("fork").Process)

    return TestDistBackendWithFork


def run(backend, ranks, only, limit):
    with tempfile.TemporaryDirectory() as folder:
        for name in ("barrier", "test_dir", "init_dir"):
            os.mkdir(os.path.join(folder, name))
        os.environ.update(BACKEND="gloo", WORLD_SIZE=str(ranks), TEMP_DIR=folder,
                          INIT_METHOD=f"file://{folder}/init_dir/shared_init_file",
                          CUDA_VISIBLE_DEVICES="", OMP_NUM_THREADS="1",
                          TUTTI_AS="gloo" if backend == "tutti" else "")
        import torch
        torch.set_num_threads(1)
        import torch._dynamo  # noqa: F401  Here, and not in every rank.
        if backend == "tutti":
            import tutti_torch  # noqa: F401  Stands in, also where it is not installed.
        suite = cases(limit)
        names = unittest.TestLoader().getTestCaseNames(suite)
        result = Listing()
        for name in names:
            if only in name:
                suite(name).run(result)
        return torch.__version__, result


def check():
    missing = []
    for list_of_gloo in sorted(HERE.glob("*/gloo-*.txt")):
        ours = list_of_gloo.with_name(list_of_gloo.name.replace("gloo", "tutti"))
        name = ours.relative_to(HERE)
        read = [set(line for line in path.read_text().splitlines() if not line.startswith("#"))
                for path in (list_of_gloo, ours)]
        missing += [f"{name} lacks {case}" for case in sorted(read[0] - read[1])]
        print(f"{name}: {len(read[1])} cases pass; with gloo {len(read[0])}")
    print("\n".join(missing) if missing else "every case that passes with gloo passes with Tutti")
    return 1 if missing else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["gloo", "tutti", "check"])
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--only", default="", help="cases whose name has this; nothing is written")
    parser.add_argument("--limit", type=int, default=60, help="seconds a case may take")
    given = parser.parse_args()
    if given.what == "check":
        return check()
    version, result = run(given.what, given.ranks, given.only, given.limit)
    print(f"{len(result.passed)} passed, {len(result.wrong)} failed, "
          f"{result.testsRun - len(result.passed) - len(result.wrong)} skipped")
    if not given.only:
        text = (f"# Cases of torch {version}'s distributed_test that pass with {given.what} on "
                f"{given.ranks} ranks; written by run.py.\n")
        folder = HERE / ".".join(version.split(".")[:2])
        folder.mkdir(exist_ok=True)
        (folder / f"{given.what}-{given.ranks}.txt").write_text(
            text + "".join(name + "\n" for name in sorted(result.passed)))
    return 1 if result.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
