"""python -m tutti SUBCOMMAND: the command `tutti`, and `run` for Python programs.

    python -m tutti run -n 4 program.py --epochs 3    each rank is this interpreter; so is -m module
    python -m tutti info                              the package and its library, then `tutti info`

The command is the one that belongs to the library: of the same prefix or build, else that in PATH.
"""

import os
import shutil
import sys
from pathlib import Path

from . import __version__, library_path


def find_command() -> str | None:
    library = Path(library_path)
    if library.exists():
        folder = library.resolve().parent
        for path in (folder / "tools/tutti", *(parent / "bin/tutti" for parent in list(folder.parents)[:2])):
            if path.is_file():
                return str(path)
    return shutil.which("tutti")


def with_interpreter(words: list[str]) -> list[str]:
    """The words of `tutti run`, with the interpreter before a program that is Python's: the first that ends
    with .py, or -m. After "--" only the first word can be the program."""
    for index, word in enumerate(words):
        if word == "--":
            rest = words[index + 1 :]
            is_python = bool(rest) and (rest[0].endswith(".py") or rest[0] == "-m")
            return words[: index + 1] + ([sys.executable] if is_python else []) + rest
        if word.endswith(".py") or word == "-m":
            return [*words[:index], "--", sys.executable, *words[index:]]
    return words


def main(words: list[str]) -> int:
    command = find_command()
    if command is None:
        print(f"tutti: there is no command `tutti` beside {library_path} or in PATH", file=sys.stderr)
        return 1
    if words[:1] == ["run"]:
        words = ["run", *with_interpreter(words[1:])]
        if Path(library_path).exists():  # Ranks load the same library.
            os.environ["TUTTI_LIBRARY"] = str(Path(library_path).resolve())
    if words[:1] == ["info"] and len(words) == 1:
        print(f"Python package {__version__}, {Path(__file__).parent}\nlibrary {library_path}\ncommand {command}\n")
        sys.stdout.flush()
    os.execv(command, [command, *words])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
