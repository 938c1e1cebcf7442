#!/usr/bin/env python3
"""Checks the rules of the source that no compiler checks: who may include whom, lengths, registries,
words that have no business here, links in docs. Reads file names from standard input, prints one line for each
breach (file:line: what, and what to do), and exits with 1 if there was one.

Only the text is looked at, so a rule can be fooled; it is here to remind, not to guard.
"""
import re
import sys
from pathlib import Path

MOST_FILE_LINES = 500
MOST_FUNCTION_LINES = 70

# Dependencies go one way. A room is a folder that has a row here, with those of its subfolders that have
# none. It may include itself, and what its row names: rooms of rows above it alone, so that there are no
# circles; "plan/*" are all rooms below plan. "include" stands for the public headers. The same table is in
# docs/ARCHITECTURE.md.
MAY_INCLUDE = {
    "include": "",
    "base": "include",
    "bootstrap": "base include",
    "plan": "base include",
    "plan/text": "plan base include",
    "plan/verify": "plan base include",
    "plan/passes": "plan/verify plan base include",
    "plan/estimate": "plan/passes plan base include",
    "topology/graph": "base include",
    "topology/join": "topology/graph base include",
    "topology/probe/sources": "topology/graph base include",
    "topology/probe": "topology/probe/sources topology/graph base include",
    "topology/nccl": "topology/graph base include",
    "topology/readers": "topology/nccl topology/graph base include",
    "topology/models": "topology/join topology/graph base include",
    "topology/capture": "topology/models topology/readers topology/probe topology/probe/sources topology/join "
                        "topology/graph base include",
    "topology/bounds": "topology/graph base include",
    "topology/embedding": "topology/bounds topology/graph base include",
    "topology/checks": "topology/probe/sources topology/graph base include",
    "topology/render": "topology/graph base include",
    "transport": "base include",
    "transport/local": "transport base include",
    "transport/net": "transport base include",
    "transport/tcp": "transport/net transport base include",
    "transport/ucx": "transport/tcp transport/net transport base include",
    "transport/verbs": "transport/net transport base include",
    "kernels": "base include",
    "kernels/host": "kernels base include",
    "kernels/cuda": "kernels base include",
    "algorithms": "plan base include",
    "planner": "algorithms plan/* plan topology/embedding topology/bounds topology/graph base include",
    "planner/simulate": "planner algorithms plan/* plan topology/embedding topology/bounds topology/graph base include",
    "exec": "plan/passes plan transport kernels/host kernels base include",
    "comm": "planner algorithms exec bootstrap plan/* plan topology/nccl topology/probe topology/probe/sources "
            "topology/graph transport/local transport kernels/host kernels base include",
    "cuda/driver": "transport/local transport kernels/cuda kernels base include",
    "cuda/mesh": "cuda/driver exec plan transport kernels/cuda kernels base include",
    "cuda/comm": "cuda/mesh cuda/driver comm planner exec algorithms plan/* plan topology/nccl topology/probe "
                 "topology/probe/sources topology/join topology/bounds topology/graph transport/net transport "
                 "kernels/cuda kernels base include",
    "capi": "comm base include",
    "capi/cuda": "capi cuda/* comm base include",
    "compat": "base include",
    "simt": "topology/capture topology/graph topology/probe topology/probe/sources base include",
    "trainer": "include",
    "perf": "include",
    "python": "include",
}
# Single files that may include more, each with its reason.
MAY_ALSO = {
    "kernels/cuda": {"plan/plan.h", "plan/partition.h"},  # A kernel reads the steps of a plan.
}
FILES_MAY_ALSO = {
    # Which transports there are, and what they need of the machine.
    "src/transport/registry": "transport/verbs",
    "perf/plan_bench": "plan/* plan algorithms planner exec base",         # Measures the insides.
    "perf/kernel_bench": "kernels/host base",                              # Measures the kernels.
    "perf/cuda_bench": "plan/* plan algorithms cuda/* exec",               # Measures the kernels.
    "perf/cuda_facts": "kernels kernels/cuda algorithms plan cuda/* exec",             # Measures the kernels.
    "perf/cuda_nccl": "cuda/*",
    "perf/cuda_timing": "cuda/*",
    "perf/cuda_table": "base",                                             # What programs write.
    "perf/tcp_bench": "transport/* base",                                  # Measures the insides.
    "perf/verbs_bench": "transport/* base",                                # Measures the insides.
    "perf/command_line/command_line": "base",                              # The nearest name.
    "perf/sweep/interrupt": "base",                                        # What programs write.
    "perf/sweep/options": "base",                                          # What programs write.
    "perf/sweep/plot": "base",
    "perf/sweep/ranks": "base",
    "perf/sweep/report": "base",
    "perf/sweep/sweep": "base",
    "perf/sweep/measure": "base",                                          # The size of the cache.
    "perf/sweep/bound": "base topology/* planner/simulate",                # What the host allows.
}
# Headers that add 3 to 10 s to the compile time of a file, and the files and folders that may include them.
# The trainer is also built against an installed Tutti, and tests compare with what others read.
SLOW_HEADERS = {
    "CLI/CLI.hpp": ("perf/command_line/command_line.cc", "tools/completion/candidates.cc"),
    "nlohmann/json.hpp": ("src/base/json.cc", "tests/", "trainer/"),
}
# The reference against which a sweep compares bits.
PERF_REFERENCE = "kernels/host/reduce.h"

SOURCE = re.compile(r"\.(h|cc|cuh?|c|def|map)$")
TEXT = re.compile(r"\.(h|cc|cuh?|c|def|map|py|sh|md|txt|cmake|json|in)$|^scripts/|^\.ci/")
INCLUDE = re.compile(r'^\s*#\s*include\s+"([^"]+)"')
TOPS = {room.split("/")[0] for room in MAY_INCLUDE} | {"tools", "tests"}


def room_of(path):
    """The room that a file of ours belongs to: its folder, or the next above that has a row."""
    parts = list(Path(path).parts[:-1])
    while parts and "/".join(parts) not in MAY_INCLUDE:
        parts.pop()
    return "/".join(parts)


def named(room, row):
    """Whether a row names a room."""
    return any(room == word or word.endswith("/*") and room.startswith(word[:-1]) for word in row.split())


def part_of(path):
    """The part of the tree that a file is in."""
    top = path.parts[0]
    return path.parts[1] if top == "src" and len(path.parts) > 2 else top


class Checker:
    def __init__(self, root):
        self.root = root
        self.breaches = []

    def say(self, path, line, what):
        self.breaches.append(f"{path}:{line}: {what}")

    def check_table(self):
        """No row names itself, a row below, or what has no row."""
        above = []
        for room, row in MAY_INCLUDE.items():
            for word in row.split():
                if not any(named(other, word) for other in above):
                    self.say("scripts/layers.py", 1, f"{room} may include {word}, which is no room above it")
            above.append(room)

    def check_includes(self, path, lines):
        name = str(path)
        room = room_of(name.removeprefix("src/"))
        if not room:
            if name.startswith("src/"):
                self.say(path, 1, "is in no room; put it into one of the folders of the table in scripts/layers.py")
            return
        allowed = MAY_INCLUDE[room] + " " + FILES_MAY_ALSO.get(str(path.with_suffix("")), "")
        for number, line in enumerate(lines, 1):
            match = INCLUDE.match(line)
            if not match:
                continue
            name = match.group(1)
            target = "include" if name.startswith("tutti/") else room_of(name)
            top = name.split("/")[0]
            if not target and top not in TOPS:  # Beside the file, or of another library.
                continue
            if target == room or named(target, allowed) or name in MAY_ALSO.get(room, set()):
                continue
            if room == "perf" and name == PERF_REFERENCE:
                continue
            self.say(path, number, f"{room} may not include {target or top} ({name}); it may include "
                     + (MAY_INCLUDE[room] or "nothing else"))

    def check_lengths(self, path, lines):
        if len(lines) > MOST_FILE_LINES:
            self.say(path, len(lines), f"{len(lines)} lines; a file has at most "
                     f"{MOST_FILE_LINES}: split it by what it does")
        # Formatted code: a definition begins in column 0, ends its first statement with "{", and
        # its closing brace stands alone in column 0. A declaration ends with ";" before any "{".
        start, body = None, False
        for number, line in enumerate(lines, 1):
            if start is None:
                if re.match(r"[\w\[:]", line) and not re.match(
                        r"(namespace|extern|struct|class|enum|union)\b", line):
                    if "(" in line and not line.rstrip().endswith(";"):
                        start, body = number, line.rstrip().endswith("{")
            elif line.startswith("}"):
                if number - start + 1 > MOST_FUNCTION_LINES:
                    self.say(path, start, f"a function of {number - start + 1} lines; it has at "
                             f"most {MOST_FUNCTION_LINES}: split it")
                start = None
            elif line.rstrip().endswith(";") and not (body and line.startswith(" ")):
                start = None
            else:
                body = body or line.rstrip().endswith("{")

    def check_words(self, path, lines):
        name = str(path)
        in_source = bool(SOURCE.search(name))
        part = part_of(path)
        may_getenv = part == "bootstrap" or name.startswith(
            ("src/base/settings", "src/base/log.", "simt/", "tests/",  # A log line may come before settings.
             "compat/nccl/environment."))  # NCCL's own variables.
        for number, line in enumerate(lines, 1):
            if re.search(r"\b(TODO|FIXME|XXX)\b(?!\([\w.-]+\))", line) and path.name != "layers.py":
                self.say(path, number, "a TODO without an owner; write TODO(name): what")
            if re.search(r"(?<![\w./-])/(work|root|home|tmp/briefs)/\w", line):
                if path.name != "layers.py":
                    self.say(path, number, "a path of some machine; make it relative")
            if not in_source:
                continue
            code = line.split("//")[0]
            if not code.isascii() and part != "tests":  # In comments it is fine: names have letters of their own.
                odd = next(c for c in code if not c.isascii())
                self.say(path, number, f"a character outside ASCII ({odd!r}) in code or a message")
            if re.search(r"\b(secure_)?getenv\s*\(", code) and not may_getenv:
                self.say(path, number, "getenv; the environment is read once, in base/settings and "
                         "in the bootstrap's launch detection")
            if re.search(r"(?<!static_)\bassert\s*\(", code):
                self.say(path, number, "assert; use TUTTI_CHECK (base/check.h), it stays on")
            if name.startswith(("src/", "kernels/", "include/")) and "std::cout" in code:
                self.say(path, number, "std::cout in the library; log, or return a string")
            header = re.match(r"\s*#\s*include\s*<([^>]+)>", line)
            if header and not name.startswith(SLOW_HEADERS.get(header.group(1), (name,))):
                ours = Path(SLOW_HEADERS[header.group(1)][0]).with_suffix(".h")
                self.say(path, number, f"{header.group(1)} takes long to compile; include {ours}")
            if re.search(r"\busing namespace std;", code):
                self.say(path, number, "using namespace std; name what you use")

    def check_links(self, path, lines):
        for number, line in enumerate(lines, 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", line):
                if not re.match(r"\w+:", target) and not (self.root / path.parent / target).exists():
                    self.say(path, number, f"a link to {target}, which is not there")

    def check_registry(self, folder, kind, registry, paths):
        """Every definition is registered, and every registration is defined."""
        registered = set(re.findall(rf"^TUTTI_{kind.upper()}\((\w+)\)",
                                    (self.root / registry).read_text(), re.M))
        defined = set()
        for path in paths:
            if not str(path).startswith(folder) or path.suffix != ".cc":
                continue
            text = (self.root / path).read_text()
            for match in re.finditer(rf"^(?:constinit )?const {kind}\s+(\w+)\s*[({{]", text, re.M):
                defined.add(match.group(1))
                if match.group(1) not in registered:
                    self.say(path, text[:match.start()].count("\n") + 1,
                             f"{match.group(1)} is not in {registry}")
        for name in sorted(registered - defined):
            self.say(registry, 1, f"{name} is registered, but no file in {folder} defines it")

    def check_meta(self, paths):
        """The files that say whose this is, and on what terms, agree with the rest."""
        names = {str(path) for path in paths}
        header = (self.root / "include/tutti/tutti.h").read_text()
        numbers = [re.search(rf"#define TUTTI_VERSION_{part} (\d+)", header)[1] for part in ("MAJOR", "MINOR", "PATCH")]
        version = ".".join(numbers)
        citation = (self.root / "CITATION.cff").read_text()
        if f"\nversion: {version}\n" not in citation:
            self.say("CITATION.cff", 1, f"does not say version {version}, as include/tutti/tutti.h does")
        notice = (self.root / "NOTICE").read_text()
        first, *others = re.findall(r'^path = "(.+)"\n(?:.*\n)*?SPDX-License-Identifier = "(.+)"$',
                                    (self.root / "REUSE.toml").read_text(), re.M)
        if first[0] != "**":
            self.say("REUSE.toml", 1, "the first entry has to be that of all files")
        for path, licence in [first, *others]:
            if not (self.root / f"LICENSES/{licence}.txt").exists():
                self.say("REUSE.toml", 1, f"LICENSES has no {licence}.txt")
        for path, licence in others:
            if path not in names:
                self.say("REUSE.toml", 1, f"names {path}, which is not there")
            if path.split("/")[-1] not in notice:
                self.say("NOTICE", 1, f"does not name {path}, which is under {licence}")

    def check(self, paths):
        self.check_table()
        self.check_meta(paths)
        for path in paths:
            if not TEXT.search(str(path)):
                continue
            try:
                lines = (self.root / path).read_text(encoding="utf-8").splitlines()
            except UnicodeDecodeError:
                self.say(path, 1, "is not UTF-8")
                continue
            self.check_words(path, lines)
            if path.suffix == ".md":
                self.check_links(path, lines)
            if SOURCE.search(str(path)):
                self.check_includes(path, lines)
                self.check_lengths(path, lines)
        self.check_registry("src/algorithms/", "Algorithm", "src/algorithms/algorithms.def", paths)
        self.check_registry("src/transport/", "Transport", "src/transport/transports.def", paths)
        return self.breaches


def main():
    root = Path(__file__).resolve().parent.parent
    paths = [Path(line.strip()) for line in sys.stdin if line.strip()]
    # Inputs of fuzzers and reference outputs are data.
    paths = [p for p in paths if not str(p).startswith(("tests/fuzz/corpus/", "tests/golden/data/"))]
    if not paths:
        sys.exit("layers.py: no files on standard input; run it through scripts/lint layers")
    breaches = Checker(root).check(paths)
    for breach in breaches:
        print(breach)
    if breaches:
        sys.exit(f"{len(breaches)} breaches of the rules (see docs/STYLE.md)")
    print(f"{len(paths)} files keep the rules")


if __name__ == "__main__":
    main()
