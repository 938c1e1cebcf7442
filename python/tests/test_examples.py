"""The scripts in examples/ do what they say, started as their users start them."""
import os
import subprocess
import sys
from pathlib import Path

import pytest

import tutti_torch

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = Path(tutti_torch.__file__).resolve().parents[1]  # The one that is tested.
# Where the package is only on the path, torch does not find it by itself.
START = "import runpy, sys, tutti_torch; sys.argv = sys.argv[1:]; runpy.run_path(sys.argv[0], run_name='__main__')"


def torchrun(*arguments, launcher=(), **environment):
    command = [sys.executable, "-W", "ignore", "-m", "torch.distributed.run", "--nproc-per-node", "2",
               *launcher, "--no-python", sys.executable, "-W", "ignore", "-c", START,
               str(ROOT / "examples" / arguments[0]), *map(str, arguments[1:])]
    path = os.pathsep.join([str(PACKAGE), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(command, capture_output=True, text=True, timeout=150,
                          env={**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": path,
                               **environment})
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
    return done.stdout, done.stderr


@pytest.mark.parametrize("script", ["ddp.py", "fsdp2.py"])
def test_training(script):
    said, _ = torchrun(script)
    assert "loss" in said


def test_a_trainer_that_names_gloo():
    said, _ = torchrun("lightning_style.py", TUTTI_AS="gloo")
    assert "over ProcessGroupTutti" in said


def test_elastic_restart(tmp_path):
    said, error = torchrun("elastic.py", tmp_path, launcher=["--max-restarts", "2"])
    assert "attempt 1, rank 0: from step 10" in said and "attempt 1, rank 1: done" in said
    assert "exitcode: -9) local_rank: 1" in error
