#!/usr/bin/env python3
"""Runs clang-tidy on our sources, on all cores, and remembers what passed.

A file is looked at again only if what it preprocesses to, its flags or .clang-tidy changed, in any
checkout of this user. That makes a second run cheap, so that it can be run often. Needs the compile
commands of a Clang build: cmake --preset asan.
"""
import argparse
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
BUILD = ROOT / "build" / "asan"
PASSED = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tutti-tidy"
FOLDERS = ("src", "kernels", "compat", "perf", "trainer", "tools")


def fingerprint(entry, config):
    """What decides the outcome for one file."""
    words = shlex.split(entry["command"])
    if Path(words[0]).name == "ccache":
        words = words[1:]
    without_output = words[:words.index("-o")] + words[words.index("-o") + 2:]
    text = subprocess.run(without_output + ["-E"], cwd=entry["directory"], capture_output=True)
    # Where the checkout lies does not matter.
    said = " ".join(without_output).encode() + text.stdout
    digest = hashlib.sha256(config + said.replace(os.fsencode(ROOT), b"."))
    # Comments matter too: they hold the exceptions (NOLINT).
    digest.update(Path(entry["file"]).read_bytes())
    return digest.hexdigest()


def check(entry, config):
    """The complaints about one file; empty if it passes or has passed before."""
    mark = PASSED / fingerprint(entry, config)
    if mark.exists():
        return entry["file"], ""
    done = subprocess.run(["clang-tidy", "--quiet", "-p", str(BUILD), entry["file"]],
                          capture_output=True, text=True)
    if done.returncode == 0:
        mark.touch()
        return entry["file"], ""
    return entry["file"], done.stdout + done.stderr


def newest_first(files):
    """Files as they were last changed by a commit, so that what time is left out is the oldest."""
    log = subprocess.run(["git", "log", "--format=", "--name-only"], cwd=ROOT, capture_output=True,
                         text=True).stdout.splitlines()
    order = {}
    for name in log:
        order.setdefault(name, len(order))
    # Never committed is newer than any commit; without git all are.
    return sorted(files, key=lambda file: order.get(str(Path(file).relative_to(ROOT)), -1))


def arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog="examples:\n  scripts/tidy.py\n  scripts/tidy.py src/comm/work.cc\n"
               "  scripts/tidy.py --minutes 8")
    parser.add_argument("files", nargs="*", metavar="FILE",
                        help=f"without: all of {', '.join(FOLDERS)}")
    parser.add_argument("--minutes", type=float, default=float("inf"),
                        help="begin no file after that; says how many are left, changed longest ago")
    return parser.parse_args()


def entries_of(database, files):
    """The compile command of each file that was asked for."""
    wanted = {str(Path(name).resolve()) for name in files}
    entries = {}
    for entry in json.loads(database.read_text()):
        path = Path(entry["file"])
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in FOLDERS:
            continue
        if path.suffix == ".cc" and (not wanted or str(path) in wanted):
            entries[entry["file"]] = entry
    return [entries[file] for file in newest_first(entries)]


def main():
    given = arguments()
    end = time.monotonic() + given.minutes * 60
    database = BUILD / "compile_commands.json"
    if not database.exists():
        sys.exit("tidy.py: build/asan is not configured; run cmake --preset asan first")
    entries = entries_of(database, given.files)
    if not entries:
        sys.exit("tidy.py: no such file among the compile commands of build/asan")
    PASSED.mkdir(parents=True, exist_ok=True)
    config = (ROOT / ".clang-tidy").read_bytes()

    def in_time(entry):
        return check(entry, config) if time.monotonic() < end else (entry["file"], None)

    failed = left = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (file, said) in enumerate(pool.map(in_time, entries), 1):
            if said is None:
                left += 1
                continue
            print(f"[{number}/{len(entries)}] {Path(file).relative_to(ROOT)}", flush=True)
            if said:
                failed += 1
                print(said, flush=True)
    if failed:
        sys.exit(f"clang-tidy complains about {failed} of {len(entries)} files")
    print(f"clang-tidy passes on {len(entries) - left} files")
    if left:
        print(f"skipped: {left} files, for lack of time; all: scripts/lint tidy")


if __name__ == "__main__":
    main()
