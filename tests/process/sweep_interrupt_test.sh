#!/usr/bin/env bash
# Ctrl-C: a sweep ends in order with what it has, and other programs leave the cursor on a line of
# its own.
set -euo pipefail
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
unset RANK WORLD_SIZE LOCAL_RANK MASTER_ADDR MASTER_PORT TUTTI_RENDEZVOUS TUTTI_CONTRACT
python3 - "$work" "$TEST_BUILD_DIR/perf/all_reduce_perf" "$TEST_BUILD_DIR/tools/tutti" <<'PY'
import csv, ctypes, json, os, pty, re, select, signal, subprocess, sys, threading, time, xml.dom.minidom

work, perf, tutti = sys.argv[1:]


class Terminal:
    """A program on a terminal of its own, which is the only way to press Ctrl-C."""

    def __init__(self, *command):
        self.text, self.began = "", time.monotonic()
        self.pid, self.terminal = pty.fork()
        if self.pid == 0:
            os.execv(command[0], command)

    def read(self, pattern=None):
        """Until the text has the pattern, or the program has ended."""
        while pattern is None or not re.search(pattern, self.text):
            assert time.monotonic() < self.began + 60, self.text
            if not select.select([self.terminal], [], [], 1)[0]:
                continue
            try:
                piece = os.read(self.terminal, 65536)
            except OSError:  # Nobody has the other end any more.
                piece = b""
            if not piece:
                assert pattern is None, self.text
                return
            self.text += piece.decode()

    def press(self):
        os.write(self.terminal, b"\x03")

    def end(self):
        self.read()
        code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
        os.close(self.terminal)
        return code


def left_behind():
    """Ranks of this test that still run."""
    found = subprocess.run(["pgrep", "-f", work], capture_output=True, text=True).stdout.split()
    return [pid for pid in found if int(pid) not in (os.getpid(), os.getppid())]


FIRST = r" 1048576 +\d+ +float .*\n"  # The first size's line.
LINE = r"(?m)(?:^|\x1b\[K|\] ) +\d+ +\d+ +float "
FOOTER = r"# Collective test interrupted after (\d+) of (\d+) sizes: all_reduce_perf"
files = [f"{work}/s.{kind}" for kind in ("csv", "json", "svg")]
outputs = ["--csv", files[0], "-J", files[1], "--plot", files[2]]
sizes = ["-b", "1M", "-e", "24M", "-i", "1M", "-n", "200", "-w", "1"]


def check(code, text):
    """How many sizes an interrupted sweep says it has measured, in all that it leaves."""
    assert code == 130, (code, text)
    done, all = map(int, re.search(FOOTER, text).groups())
    assert 1 <= done < all == 24, text
    assert len(re.findall(LINE, text)) == done, text
    with open(files[0]) as file:
        assert len(list(csv.reader(file))) == 1 + done
    with open(files[1]) as file:
        written = json.load(file)
    assert len(written["results"]) == done and written["interrupted"] is True, written
    xml.dom.minidom.parse(files[2])
    for file in files:
        os.unlink(file)


print("== one Ctrl-C: processes, threads, tutti run")
for how in ([perf, "--ranks", "2"], [perf, "-t", "2"], [tutti, "run", "-n", "2", "--", perf]):
    sweep = Terminal(*how, *sizes, *outputs)
    sweep.read(FIRST)
    sweep.press()
    code = sweep.end()
    check(code, sweep.text)
    assert "error" not in sweep.text and "failed" not in sweep.text, sweep.text

print("== a signal to one process only: the one that started the ranks, or one rank")
command = [perf, "--ranks", "2", *sizes, *outputs]
for whom in ("parent", "rank"):
    sweep = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    text = ""
    while not re.search(FIRST, text):
        text += sweep.stdout.readline()
    pid = sweep.pid
    if whom == "rank":
        with open(f"/proc/{pid}/task/{pid}/children") as file:
            pid = int(file.read().split()[1])
    os.kill(pid, signal.SIGINT)
    text += sweep.stdout.read()
    check(sweep.wait(), text)

print("== a rank that is stopped")


def children(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return list(map(int, file.read().split()))


def trace(request, pid):
    assert ctypes.CDLL(None, use_errno=True).ptrace(request, pid, None, None) == 0, ctypes.get_errno()


def stopped(rank, act, held=False):
    """The code and the text of a sweep of which a rank is stopped, or held as by a debugger: only killing ends it."""
    sweep = subprocess.Popen(
        [perf, "--ranks", "2", "-b", "8", "-e", "64", "-N", "0"], stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT, text=True, env=os.environ | {"TUTTI_TIMEOUT_MS": "3000"})
    text = ""
    while "concluded" not in text:
        text += sweep.stdout.readline()
    ranks = children(sweep.pid)
    if held:
        trace(0x4206, ranks[rank])  # PTRACE_SEIZE
        trace(0x4207, ranks[rank])  # PTRACE_INTERRUPT
    else:
        os.kill(ranks[rank], signal.SIGSTOP)
    if act:
        time.sleep(0.5)
        sweep.send_signal(act)
    began = time.monotonic()
    drain = threading.Thread(target=lambda: lines.append(sweep.stdout.read()))
    lines = []
    drain.start()
    while sweep.poll() is None and time.monotonic() < began + 30:
        if held:  # Its parent hears of its end only after we have.
            try:
                os.waitpid(ranks[rank], os.WNOHANG | 0x40000000)  # __WALL
            except ChildProcessError:
                held = False
        time.sleep(0.01)
    if sweep.poll() is None:
        sweep.kill()
    drain.join()
    code = sweep.wait()
    print(f"rank {rank}, signal {act}: {code}, {time.monotonic() - began:.1f} s")
    return code, text + lines[0]


for rank in (0, 1):
    code, text = stopped(rank, None)
    assert code == 1 and "timeout: " in text, (code, text[-600:])
    code, text = stopped(rank, signal.SIGINT)
    assert code == 130, (code, text[-600:])
code, text = stopped(1, None, held=True)
assert code == 1 and "1 of 2 ranks did not end; killing them" in text, (code, text[-600:])
code, text = stopped(1, signal.SIGINT, held=True)
assert code in (1, 130) and "ranks did not end; killing them" in text, (code, text[-600:])

print("== a size that takes minutes is given up")
long = ["-b", "8M", "-e", "8M", "-n", "400000"]
for how in ([perf, "--ranks", "2"], [perf, "-t", "2"], [tutti, "run", "-n", "2", "--", perf]):
    sweep = Terminal(*how, *long, *outputs)
    sweep.read(r"# transport: ")
    time.sleep(0.5)
    sweep.press()
    pressed = time.monotonic()
    code = sweep.end()
    assert code == 130 and time.monotonic() < pressed + 20, (code, sweep.text)
    assert re.search(FOOTER, sweep.text).groups() == ("0", "1"), sweep.text
    assert "error" not in sweep.text and "failed" not in sweep.text, sweep.text
    assert not any(map(os.path.exists, files))  # There is nothing to write.

print("== a second Ctrl-C ends at once")
sweep = Terminal(perf, "--ranks", "2", *long, *outputs)
sweep.read(r"# transport: ")
time.sleep(0.5)
sweep.press()
time.sleep(0.6)
sweep.press()
code = sweep.end()
assert code == -signal.SIGINT and not re.search(FOOTER, sweep.text), (code, sweep.text)

print("== a cycle that is cut short keeps the files of the last one")
cycles = ["-N", "0", "-b", "1M", "-e", "2M", "-i", "1M", "-n", "50"]
sweep = Terminal(perf, "--ranks", "2", *cycles, *outputs)
sweep.read(r"concluded")
sweep.press()
assert sweep.end() == 130, sweep.text
with open(files[1]) as file:
    written = json.load(file)
assert len(written["results"]) == 2 and written["interrupted"] is False, written

print("== tune, simulate, train")
for command, shown in (
    ([tutti, "tune", "--force", "-n", "2", "-o", f"{work}/table"], r"2 ranks: "),
    ([tutti, "tune", "--force", "-n", "2", "--threads", "-o", f"{work}/table"], r"2 ranks: "),
    ([tutti, "simulate", "all_reduce", "--model", "hgx-h100:8", "--bytes", "1G:16G:2"], r"ranks, "),
    ([tutti, "train", "--ranks", "2", "--epochs", "100000"], r"epoch "),
):
    program = Terminal(*command)
    program.read(shown)
    program.press()
    code = program.end()
    assert code in (130, -signal.SIGINT), (code, program.text)
    assert program.text.endswith("\r\ninterrupted\r\n"), program.text[-200:]
    assert program.text.count("interrupted") == 1, program.text[-400:]
assert not left_behind(), left_behind()
PY
