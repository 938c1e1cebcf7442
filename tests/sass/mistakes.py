#!/usr/bin/env python3
"""mistakes.py FOLDER NVCC FLAGS...: scripts/sass-lint refuses each mistake below, and nothing without
one. A mistake is a text that is replaced, once, in tutti/detail/prim.h or in every_access.cu; what the
lint has to say is a regular expression. Mistakes are compiled for sm_90, into FOLDER: all of them at
once, each in a namespace of its own, as most of the time goes into reading CUDA's headers."""
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PRIM, KERNEL = "tutti/detail/prim.h", "every_access.cu"
LOAD = "  return *static_cast<const T*>(at);\n"
DECLARATION = ("template <class T>\nTUTTI_DEVICE T load(const void* at) {\n"
               "  __builtin_assume(__isGlobal(at));\n" + LOAD)
MISTAKES = [
    # What is wrong, where, the text, what replaces it, what the lint has to say.
    ("a flag without release", PRIM, "st.release.sys.global.u64", "st.relaxed.sys.global.u64",
     "store_release has to come right behind MEMBAR"),
    ("a release that is the device's alone", PRIM, "st.release.sys.global.u64", "st.release.gpu.global.u64",
     "store_release has to be STG.*SYS"),
    ("a flag without acquire", PRIM, "ld.acquire.sys.global.u64", "ld.relaxed.sys.global.u64",
     "load_acquire has to be followed by CCTL"),
    ("an acquire that is the device's alone", PRIM, "ld.acquire.sys.global.u64", "ld.acquire.gpu.global.u64",
     "load_acquire has to be LDG.*SYS"),
    ("a poll by a weak load", PRIM, "ld.relaxed.sys.global.u64", "ld.global.u64", "load_relaxed has to be"),
    ("a packed line in two stores", PRIM, '"st.volatile.global.v4.u32 [%0], {%1,%2,%3,%4};"',
     '"st.volatile.global.v2.u32 [%0], {%1,%2}; st.volatile.global.v2.u32 [%0+8], {%3,%4};"',
     "store_packed has to be STG.E.128"),
    ("a packed line in weak stores", PRIM, "st.volatile.global.v4.u32", "st.global.v4.u32",
     "store_packed has to be STG.E.128.*STRONG"),
    ("a packed line in two loads", PRIM, '"ld.volatile.global.v4.u32 {%0,%1,%2,%3}, [%4];"',
     '"ld.volatile.global.v2.u32 {%0,%1}, [%4]; ld.volatile.global.v2.u32 {%2,%3}, [%4+8];"',
     "load_halves has to be LDG.E.128"),
    ("a weak store of a line", PRIM, "st.volatile.global.v2.u64", "st.global.v2.u64", "store_line has to be"),
    ("a weak load of a line", PRIM, "ld.volatile.global.v2.u64", "ld.global.v2.u64", "load_line has to be"),
    ("data by the constant cache", PRIM, LOAD, "  return __ldg(static_cast<const T*>(at));\n",
     "the constant cache is not coherent"),
    ("data by an asynchronous copy", PRIM, LOAD,
     '  asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" ::"r"(0), "l"(global(at)));\n' + LOAD,
     "another proxy"),
    ("data by a texture", PRIM, LOAD,
     '  unsigned a, b, c, d;\n  asm volatile("tex.1d.v4.u32.s32 {%0,%1,%2,%3}, [%4, {%5}];" '
     ': "=r"(a), "=r"(b), "=r"(c), "=r"(d) : "l"(at), "r"(0));\n'
     "  return *static_cast<const T*>(at) + a + b + c + d;\n", "textures and surfaces"),
    ("a local array", PRIM, LOAD,
     "  volatile T stack[4] = {};\n  stack[threadIdx.x % 4] = *static_cast<const T*>(at);\n"
     "  return stack[blockIdx.x % 4];\n", "local memory"),
    ("a constant variable", PRIM, DECLARATION,
     "__constant__ unsigned shared_by_all[8];\n" + DECLARATION.replace("*static", "shared_by_all[threadIdx.x] + *static"),
     "a __constant__ variable"),
    ("a flag that goes by no function of prim.h", KERNEL, "  store(data + 8, value);\n",
     "  *reinterpret_cast<volatile std::uint64_t*>(data) = value;\n", "no function of prim.h"),
]
# Accesses are counted in all kernels of a run together, so each of these has a run for itself.
ABSENT = [
    ("an access that no kernel has any more", KERNEL, "store_release", "store_relaxed",
     "no access of store_release was found"),
    ("an acquire that is the block's alone", PRIM, "fence.acquire.sys", "fence.acquire.cta",
     "no access of acquire was found"),
]


def write(folder, space, changed):
    """The kernel and its prim.h, with what is changed, in a namespace; what to include."""
    for name in (PRIM, KERNEL):
        text = changed.get(name, original(name)).replace("namespace tutti::cuda", f"namespace tutti::{space}")
        (folder / space / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / space / name).write_text(text)
    return f'#include "{space}/{KERNEL}"\n'


def lint(folder, nvcc, flags, includes):
    """The lines of what the lint says of the kernels."""
    (folder / "all.cu").write_text("".join(includes))
    subprocess.run([nvcc, *flags, "-lineinfo", "-arch=sm_90", "-cubin", "-o", folder / "all.cubin",
                    folder / "all.cu"], check=True)
    result = subprocess.run([ROOT / "scripts/sass-lint", "--fetch", folder.parent / "nvdisasm", folder / "all.cubin"],
                            capture_output=True, text=True, check=False)
    if result.returncode == 77:
        print(result.stdout)
        sys.exit(77)
    return [] if result.returncode == 0 else (result.stdout + result.stderr).splitlines()


def original(name):
    return ((HERE if name == KERNEL else ROOT / "include") / name).read_text()


def mistaken(what, name, text, instead):
    if original(name).count(text) != 1:
        sys.exit(f"{what}: {name} has {original(name).count(text)} times what the mistake replaces: {text}")
    return {name: original(name).replace(text, instead)}


def main():
    folder, nvcc, flags = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    if said := lint(folder, nvcc, flags, [write(folder, "right", {})]):
        sys.exit("right code is complained of:\n" + "\n".join(said))
    spaces = [f"mistake_{chr(ord('a') + i)}" for i in range(len(MISTAKES))]
    said = lint(folder, nvcc, flags, [write(folder, space, mistaken(*mistake[:4]))
                                      for space, mistake in zip(spaces, MISTAKES)])
    found = [(mistake[0], [line for line in said if f"{space}1" in line], mistake[4])
             for space, mistake in zip(spaces, MISTAKES)]
    found += [(mistake[0], lint(folder, nvcc, flags, [write(folder, "absent", mistaken(*mistake[:4]))]), mistake[4])
              for mistake in ABSENT]
    missed = 0
    for what, lines, expected in found:
        if any(re.search(expected, line) for line in lines):
            print(f"{what}: refused")
            continue
        missed += 1
        print(f"{what}: NOT REFUSED for /{expected}/; the lint said: {lines}")
    print(f"{len(found) - missed} of {len(found)} mistakes refused")
    sys.exit(missed != 0)


if __name__ == "__main__":
    main()
