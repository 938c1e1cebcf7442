"""Runs a program of this folder on several ranks, with this interpreter and the package beside the tests."""

import os
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent
ROOT = SOURCES.parent.parent
BUILD = Path(os.environ.get("TEST_BUILD_DIR", ROOT / "build/release"))
LIMIT_SECONDS = 300

# For this process too: the package beside the tests, and the library of the build.
sys.path.insert(0, str(SOURCES))
os.environ.setdefault("TUTTI_LIBRARY", str(BUILD / "libtutti.so"))


def environment(**more: str) -> dict[str, str]:
    return {
        **os.environ,
        "PYTHONPATH": f"{SOURCES}:{HERE}",
        "PYTHONDONTWRITEBYTECODE": "1",
        "TUTTI_LIBRARY": str(BUILD / "libtutti.so"),
        **more,
    }


def run(words: list[str], **more: str) -> subprocess.CompletedProcess[str]:
    """A Python command to its end."""
    return subprocess.run(
        [sys.executable, *words],
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=LIMIT_SECONDS,
        check=False,
    )


def run_ranks(count: int, *words: str, options: tuple[str, ...] = (), **more: str) -> subprocess.CompletedProcess[str]:
    return run(["-m", "tutti", "run", "-n", str(count), *options, *words], **more)
