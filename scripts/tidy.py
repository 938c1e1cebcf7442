#!/usr/bin/env python3
"""Runs clang-tidy on our sources, on all cores, and remembers what passed.

A file is looked at again only if what it preprocesses to, its flags or .clang-tidy changed, in any
checkout of this user. That makes a second run cheap, so that it can be run often. Needs the compile commands of a Clang build:
cmake --preset asan.

  scripts/tidy.py [FILE...]     without files: all of src, kernels, compat, perf, trainer and tools
"""
import concurrent.futures
import hashlib
import json
import os
import shlex
import subprocess
import sys
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


def main():
    database = BUILD / "compile_commands.json"
    if not database.exists():
        sys.exit("tidy.py: build/asan is not configured; run cmake --preset asan first")
    wanted = {str(Path(name).resolve()) for name in sys.argv[1:]}
    entries = {}
    for entry in json.loads(database.read_text()):
        path = Path(entry["file"])
        if not path.is_relative_to(ROOT) or path.relative_to(ROOT).parts[0] not in FOLDERS:
            continue
        if path.suffix == ".cc" and (not wanted or str(path) in wanted):
            entries[entry["file"]] = entry
    if not entries:
        sys.exit("tidy.py: no such file among the compile commands of build/asan")
    PASSED.mkdir(parents=True, exist_ok=True)
    config = (ROOT / ".clang-tidy").read_bytes()
    failed = 0
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for number, (file, said) in enumerate(
                pool.map(lambda entry: check(entry, config), entries.values()), 1):
            print(f"[{number}/{len(entries)}] {Path(file).relative_to(ROOT)}", flush=True)
            if said:
                failed += 1
                print(said, flush=True)
    if failed:
        sys.exit(f"clang-tidy complains about {failed} of {len(entries)} files")
    print(f"clang-tidy passes on {len(entries)} files")


if __name__ == "__main__":
    main()
