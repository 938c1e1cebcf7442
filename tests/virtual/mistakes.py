#!/usr/bin/env python3
"""mistakes.py BUILD SEEDS [NAME]: the simulator finds each mistake below within SEEDS seeds, and says
which seed found it. A mistake is a text that is replaced, once, in a file of the library. What includes
that file is compiled again, into BUILD/virtual/mistakes, and linked before the library."""
import re
import shlex
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
MISTAKES = [
    # Name, what is wrong, file below src, [(text, what replaces it)], what the simulator has to say.
    ("leaving", "a rank that has left in order is taken for a dead one", "exec/watchdog.cc",
     [("    if (there.state == Presence::State::kLeft && there.finished >= board_.number()) continue;\n", ""),
      ("  for (const int rank : awaited) {\n    const Presence",
       "  for (int rank = 0; rank < board_.team().ranks; ++rank) {\n    const Presence")],
     "failed though nothing has|blames a rank"),
    ("digest", "the digest of calls leaves out the count", "exec/calls/call_digest.h",
     [("mix(mix(before ^ count) + what)", "mix(mix(before) + what)")], "the result is wrong"),
    ("stopping", "a failed call does not wait for those that write into its buffers", "exec/host_executor_end.cc",
     [("exposed_ ? Phase::kStopping : Phase::kDone", "Phase::kDone")], "buffer changed after the error"),
    ("deadline", "whatever the network moves restarts the deadline", "exec/host_executor.cc",
     [("  return team().remote_link->progress() ? Poll::kProgressed : Poll::kPending;",
       "  if (!team().remote_link->progress()) return Poll::kPending;\n"
       "  watchdog_.went_on();\n  return Poll::kProgressed;")], "longer than the deadline allows"),
    ("thread", "a call is queued before the progress thread has started", "comm/progress.cc",
     [("    TUTTI_RETURN_IF_ERROR(admit());\n    queue.calls.push_back({own, work});\n    enter(queue);\n",
       "    queue.calls.push_back({own, work});\n    enter(queue);\n    TUTTI_RETURN_IF_ERROR(admit());\n")],
     "nothing can run|has not returned|does not end"),
    ("fork", "a fork does not hold the library's locks", "base/fork.cc",
     [("    one->held_->lock();\n", ""), ("one->held_->unlock();", ";")], "child hangs"),
    ("verdict", "a rank that hears of a failure blames the rank that told it", "exec/watchdog.cc",
     [("  error.rank = Rank{board_.team().me};\n  error.what = what +",
       "  if (error.rank.value >= 0) error.peer = error.rank;\n  error.rank = Rank{board_.team().me};\n  error.what = what +")],
     "does not name the rank|says something else"),
    ("members", "a rank that waits for the others does not look whether they have died", "comm/recovery.cc",
     [("  if (now >= next_look_) drop_gone();\n  if (over()) return true;  // The caller looks.", "  if (over()) return true;")],
     "shrink took too long|recovery"),
    ("leak", "a rank that leaves keeps the memory of its peers", "transport/local/segments.cc",
     [("  munmap(base, mapped_bytes(bytes, offset, has_flag));\n", "")], "has left, and holds"),
    ("messages", "messages that an abort has ended do not pass it on", "exec/message_path.cc",
     [("    watchdog_.pass_on_abort();  // A thread that aborts leaves", "    // A thread that aborts leaves")],
     "does not name the rank that aborted"),
    ("abort", "a call that need not wait does not look for an abort", "exec/host_executor.cc",
     [("  if (team().remote_link != nullptr || board_.region().ending()) {",
       "  if (team().remote_link != nullptr) {"),
      ("  // No rank returns ok for a call that another rank was told has failed.\n"
       "  if (board_.region().ending()) [[unlikely]]\n    return end_by_abort();\n  return end_ok();",
       "  return end_ok();")], "ok after an abort"),
    ("steps", "all steps of joining have one deadline", "comm/create.cc",
     [("  const Exchange through = [&, prefix", "  const auto end = Deadline::after(comm_config.settings.timeout);\n  const Exchange through = [&, prefix"),
      ("mine,\n                    Deadline::after(comm_config.settings.timeout));", "mine, end);")], "blames a rank"),
    ("window death", "a window between hosts goes on without a rank that has died", "comm/window_service.cc",
     [("  message.needed = needed_.get();\n", "")], "noticed a death too late|does not name|ended or left"),
    ("window wait", "a rank that waits for a signal does not look at its peer", "comm/window.cc",
     [("return state().executor->look_at(std::span(&from, 1), waiting);", "return ok();")],
     "noticed a death too late"),
    ("window end", "a rank closes its window while others may still ask for something", "comm/window_service.cc",
     [("  TUTTI_RETURN_IF_ERROR(wait([this] { return closed() == far_count_; }));\n", "")],
     "failed though nothing has"),
]


def commands(build: Path) -> list[list[str]]:
    text = subprocess.run(["ninja", "-C", build, "-t", "commands", "tutti_virtual"], check=True,
                          capture_output=True, text=True).stdout
    return [shlex.split(line) for line in text.splitlines()]


def dependents(build: Path, header: Path) -> set[str]:
    """Sources whose objects depend on the header, by ninja's log of dependencies."""
    text = subprocess.run(["ninja", "-C", build, "-t", "deps"], check=True, capture_output=True, text=True).stdout
    found = set()
    for block in text.split("\n\n"):
        lines = [line.strip() for line in block.splitlines()]
        if len(lines) > 1 and any((build / line).resolve() == header for line in lines[1:]):
            found.add(str((build / lines[1]).resolve()))
    return found


def plant(build: Path, folder: Path, file: str, replacements: list[tuple[str, str]]) -> Path:
    text = (ROOT / "src" / file).read_text()
    for old, new in replacements:
        if text.count(old) != 1:
            sys.exit(f"{file} has {text.count(old)} times, not once:\n{old}")
        text = text.replace(old, new)
    planted = folder / file
    planted.parent.mkdir(parents=True, exist_ok=True)
    planted.write_text(text)
    source = ROOT / "src" / file
    sources = dependents(build, source) if file.endswith(".h") else {str(source)}
    objects = []
    lines = commands(build)
    for words in lines:
        if "-c" not in words or str(Path(build / words[words.index("-c") + 1]).resolve()) not in sources:
            continue
        given = words[words.index("-c") + 1]
        out = folder / (given.replace("/", "_") + ".o")
        changed = [str(planted) if word == given and not file.endswith(".h") else word for word in words]
        changed[changed.index("-o") + 1] = str(out)
        if "-MF" in changed:
            changed[changed.index("-MF") + 1] = str(out) + ".d"
        changed = ["-O1" if word == "-O3" else word for word in changed]
        first = next(i for i, word in enumerate(changed) if word.startswith("-I"))
        changed[first:first] = ["-w", "-I" + str(folder)]
        subprocess.run(changed, cwd=build, check=True)
        objects.append(str(out))
    link = lines[-1]
    program = folder / "tutti_virtual"
    words = [word for word in link if word not in (":", "&&")]
    words[words.index("-o") + 1] = str(program)
    last = max(i for i, word in enumerate(words) if word.endswith(".o"))
    words[last + 1:last + 1] = objects
    subprocess.run(words, cwd=build, check=True)
    return program


def main() -> int:
    build, seeds = Path(sys.argv[1]).resolve(), sys.argv[2]
    missed = 0
    for name, what, file, replacements, says in MISTAKES:
        if len(sys.argv) > 3 and name not in sys.argv[3:]:
            continue
        program = plant(build, build / "virtual" / "mistakes" / name, file, replacements)
        run = subprocess.run([program, "--seeds", seeds, "--until", says], capture_output=True, text=True)
        found = re.search(rf"^seed (\d+): (.*(?:{says}).*)$", run.stdout, re.MULTILINE)
        if found:
            print(f"{name}: {what}: seed {found[1]}: {found[2][:200]}")
        else:
            missed += 1
            print(f"{name}: {what}: NOT FOUND in {seeds} seeds\n{run.stdout[-600:]}{run.stderr[-600:]}")
        sys.stdout.flush()
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
