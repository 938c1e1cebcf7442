"""Builds tutti_torch against the torch that is installed in the interpreter it is installed for.

One compiled module serves one minor version of torch, whose C++ interface changes with each: install
again after an update. The version says which torch it is for, and pip refuses it beside another. CMake, a
C++20 compiler and Tutti's Debian packages (scripts/bootstrap) have to be there. With TUTTI_PREFIX, where
Tutti is installed (/usr, /usr/local), only the adapter is compiled, and nothing but this folder is read.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent
PREFIX = os.environ.get("TUTTI_PREFIX", "")
# Asked of a fresh interpreter: pip builds in an environment of its own, without torch in sight.
ASK = """
import json, os, torch, torch.utils.cpp_extension as extension
abi = getattr(torch._C, "_PYBIND11_COMPILER_TYPE", None)
print(json.dumps({
    "version": torch.__version__,
    "includes": extension.include_paths(),
    "libraries": os.path.join(os.path.dirname(torch.__file__), "lib"),
    "definitions": ["_GLIBCXX_USE_CXX11_ABI=%d" % torch._C._GLIBCXX_USE_CXX11_ABI] + [
        "PYBIND11_%s=%s" % (name, json.dumps(value))
        for name in ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
        if (value := getattr(torch._C, "_PYBIND11_" + name, None)) is not None],
}))
"""


def version_in(header):
    """Of the header tutti.h; None: there is none."""
    if not header.exists():
        return None
    text = header.read_text()
    return ".".join(re.search(rf"define TUTTI_VERSION_{part} (\d+)", text).group(1)
                    for part in ("MAJOR", "MINOR", "PATCH"))


def version():
    ours = version_in(HERE.parent / "include/tutti/tutti.h")
    if not PREFIX and ours is None:
        raise SystemExit("tutti_torch: Tutti's sources are not beside this folder; TUTTI_PREFIX says where "
                         "Tutti is installed, like TUTTI_PREFIX=/usr/local")
    if not PREFIX:
        return ours
    header = Path(PREFIX) / "include/tutti/tutti.h"
    installed = version_in(header)
    if installed is None:
        raise SystemExit(f"tutti_torch: TUTTI_PREFIX={PREFIX}: {header} is not there; install Tutti there "
                         "first (cmake --install, or its packages for programs)")
    if ours not in (None, installed):
        raise SystemExit(f"tutti_torch: TUTTI_PREFIX={PREFIX} has Tutti {installed}, and this is for {ours}")
    return installed


def installed_torch():
    # -I: without the paths that pip sets; -S is not given, so site-packages are there.
    asked = subprocess.run([sys.executable, "-I", "-W", "ignore", "-c", ASK], capture_output=True,
                           text=True, env={**os.environ, "TORCH_DEVICE_BACKEND_AUTOLOAD": "0"})
    if asked.returncode != 0:
        said = asked.stderr.strip().splitlines() or ["nothing was said"]
        raise SystemExit(f"tutti_torch: torch can't be imported by {sys.executable} ({said[-1]}); "
                         "install torch first, then this")
    return json.loads(asked.stdout.splitlines()[-1])


def for_torch():
    """Version and dependencies: of the torch that is installed; without one, of a package of sources."""
    try:
        minor = ".".join(installed_torch()["version"].split(".")[:2])
    except SystemExit:  # Who builds hears it then.
        return {"version": version(), "install_requires": ["torch>=2.8"]}
    return {"version": f"{version()}+torch{minor}", "install_requires": [f"torch=={minor}.*"]}


class BuildWithCMake(build_ext):
    def build_extension(self, extension):
        torch = installed_torch()
        headers = Path(sysconfig.get_path("include"))
        if not (headers / "Python.h").exists():
            raise SystemExit(f"tutti_torch: Python's headers are not in {headers}; "
                             "on Debian: apt-get install python3-dev")
        target = Path(self.get_ext_fullpath(extension.name)).resolve()
        folder = Path(os.environ.get("TUTTI_TORCH_BUILD", Path(self.build_temp).resolve() / "cmake"))
        folder.mkdir(parents=True, exist_ok=True)
        libraries = ";".join(f"{torch['libraries']}/lib{name}.so"
                             for name in ("c10", "torch_cpu", "torch_python"))
        subprocess.run(
            ["cmake", "-G", "Ninja", "-S", str(HERE), "-B", str(folder),
             "-DCMAKE_BUILD_TYPE=Release",
             f"-DTUTTI_PYTHON_INCLUDE={sysconfig.get_path('include')}",
             f"-DTUTTI_PYTHON_SUFFIX={sysconfig.get_config_var('EXT_SUFFIX')}",
             f"-DTUTTI_TORCH_INCLUDES={';'.join(torch['includes'])}",
             f"-DTUTTI_TORCH_LIBRARIES={libraries}",
             f"-DTUTTI_TORCH_VERSION={torch['version']}",
             f"-DTUTTI_TORCH_DEFINITIONS={';'.join(torch['definitions'])}",
             f"-DTUTTI_PREFIX={Path(PREFIX).resolve() if PREFIX else ''}",
             # torch is in the process already when this is loaded.
             "-DCMAKE_SKIP_RPATH=ON", *shlex.split(os.environ.get("CMAKE_ARGS", ""))], check=True)
        jobs = os.environ.get("MAX_JOBS", str(os.cpu_count() or 1))
        subprocess.run(["cmake", "--build", str(folder), "--target", "tutti_torch", "-j", jobs],
                       check=True)
        target.parent.mkdir(parents=True, exist_ok=True)
        built = folder / ("_C" + sysconfig.get_config_var("EXT_SUFFIX"))
        # setuptools' own copy_file would leave one of another torch that was built later.
        shutil.copy(built, target)


setup(**for_torch(), ext_modules=[Extension("tutti_torch._C", [])],
      cmdclass={"build_ext": BuildWithCMake})
