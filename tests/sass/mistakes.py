#!/usr/bin/env python3
"""mistakes.py FOLDER NVCC FLAGS...: scripts/sass-lint refuses each mistake below, and nothing without
one. A mistake is a text that is replaced, once, in kernels/cuda/prim.h or in every_access.cu; what the
lint has to say is a regular expression. Mistakes are compiled for sm_90, into FOLDER."""
import re
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
PRIM, KERNEL = "kernels/cuda/prim.h", "every_access.cu"
LOAD = "  return *static_cast<const T*>(at);\n"
DECLARATION = ("template <class T>\nTUTTI_DEVICE T load(const void* at) {\n"
               "  __builtin_assume(__isGlobal(at));\n" + LOAD)
MISTAKES = [
    # What is wrong, where, the text, what replaces it, what the lint has to say.
    ("a flag without release", PRIM, "st.release.sys.global.u64", "st.relaxed.sys.global.u64",
     "store_release has to come right behind MEMBAR"),
    ("a release that is the device's alone", PRIM, "st.release.sys.global.u64", "st.release.gpu.global.u64",
     "store_release has to be STG.*SYS"),
    ("a counter without release", PRIM, "multimem.red.release.sys", "multimem.red.relaxed.sys",
     "multimem_count_release has to come right behind MEMBAR"),
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
    ("a local array", PRIM, LOAD,
     "  volatile T stack[4] = {};\n  stack[threadIdx.x % 4] = *static_cast<const T*>(at);\n"
     "  return stack[blockIdx.x % 4];\n", "local memory"),
    ("a constant variable", PRIM, DECLARATION,
     "__constant__ unsigned shared_by_all[8];\n" + DECLARATION.replace("*static", "shared_by_all[threadIdx.x] + *static"),
     "a __constant__ variable"),
    ("a flag that goes by no function of prim.h", KERNEL, "  store(data + 8, value);\n",
     "  *reinterpret_cast<volatile std::uint64_t*>(data) = value;\n", "no function of prim.h"),
    ("an access that no kernel has any more", KERNEL, "  store_release(flags + 4, value);\n", "",
     "no access of store_release was found"),
]


def lint(folder, nvcc, flags, changed):
    """What the lint says of the kernel with these files of its own; None: nothing is wrong."""
    for name in (PRIM, KERNEL):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        original = (HERE if name == KERNEL else ROOT) / name
        (folder / name).write_text(changed.get(name, original.read_text()))
    cubin = folder / "every_access.cubin"
    subprocess.run([nvcc, "-I", folder, *flags, "-lineinfo", "-arch=sm_90", "-cubin", "-o", cubin,
                    folder / KERNEL], check=True)
    result = subprocess.run([ROOT / "scripts/sass-lint", "--fetch", folder.parent / "nvdisasm", cubin],
                            capture_output=True, text=True, check=False)
    if result.returncode == 77:
        print(result.stdout)
        sys.exit(77)
    return None if result.returncode == 0 else result.stdout + result.stderr


def main():
    folder, nvcc, flags = Path(sys.argv[1]).resolve(), sys.argv[2], sys.argv[3:]
    if (said := lint(folder, nvcc, flags, {})) is not None:
        sys.exit(f"right code is complained of:\n{said}")
    missed = 0
    for what, name, text, instead, expected in MISTAKES:
        original = ((HERE if name == KERNEL else ROOT) / name).read_text()
        if original.count(text) != 1:
            sys.exit(f"{what}: {name} has {original.count(text)} times what the mistake replaces: {text}")
        said = lint(folder, nvcc, flags, {name: original.replace(text, instead)})
        if said is not None and re.search(expected, said):
            print(f"{what}: refused")
            continue
        missed += 1
        print(f"{what}: NOT REFUSED for /{expected}/; the lint said: {said}")
    print(f"{len(MISTAKES) - missed} of {len(MISTAKES)} mistakes refused")
    sys.exit(missed != 0)


if __name__ == "__main__":
    main()
