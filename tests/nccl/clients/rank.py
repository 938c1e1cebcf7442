"""What the clients of libnccl in this folder share: this process's rank, its device's memory, and how ranks pass bytes
to each other. scripts/nccl-clients runs them; each process is a rank with a GPU of its own number."""
import ctypes
import os
import pathlib
import sys
import time

import numpy

RANK = int(os.environ["RANK"])
RANKS = int(os.environ["WORLD_SIZE"])
FOLDER = pathlib.Path(os.environ["CLIENT_FOLDER"])  # Of this run alone.
COUNT = 1000
runtime = ctypes.CDLL(next(name for name in ("libcudart.so.13", "libcudart.so.12", "libcudart.so")
                           if any((pathlib.Path(folder) / name).exists()
                                  for folder in os.environ["LD_LIBRARY_PATH"].split(":"))))


def check(status):
    assert status == 0, f"the CUDA runtime returned {status}"


def use_device(device):
    check(runtime.cudaSetDevice(device))


def make_stream():
    stream = ctypes.c_void_p()
    check(runtime.cudaStreamCreate(ctypes.byref(stream)))
    return stream.value


def finish(stream):
    check(runtime.cudaStreamSynchronize(ctypes.c_void_p(stream)))


class Array:
    """Device memory with the contents of a NumPy array. It is not freed: the process ends soon."""

    def __init__(self, contents):
        contents = numpy.ascontiguousarray(contents)
        pointer = ctypes.c_void_p()
        check(runtime.cudaMalloc(ctypes.byref(pointer), ctypes.c_size_t(contents.nbytes)))
        self.pointer, self.count, self.bytes, self.dtype = pointer.value, contents.size, contents.nbytes, contents.dtype
        self.set(contents)

    def set(self, contents):
        contents = numpy.ascontiguousarray(contents, self.dtype)
        check(runtime.cudaMemcpy(ctypes.c_void_p(self.pointer), ctypes.c_void_p(contents.ctypes.data),
                                 ctypes.c_size_t(self.bytes), 1))

    def get(self):
        contents = numpy.empty(self.count, self.dtype)
        check(runtime.cudaMemcpy(ctypes.c_void_p(contents.ctypes.data), ctypes.c_void_p(self.pointer),
                                 ctypes.c_size_t(self.bytes), 2))
        return contents

    @property
    def __cuda_array_interface__(self):
        return {"shape": (self.count,), "typestr": self.dtype.str, "data": (self.pointer, False), "version": 3}


def values(rank, count=COUNT):
    """What a rank gives: small numbers, whose sums are exact."""
    return (numpy.arange(count) % 17 + rank).astype(numpy.float32)


def total(count=COUNT):
    return sum(values(rank, count) for rank in range(RANKS))


def shared(name, make):
    """The bytes that `make` returns on rank 0, on all ranks."""
    file = FOLDER / name
    if RANK == 0:
        file.with_suffix(".part").write_bytes(make())
        file.with_suffix(".part").rename(file)
    deadline = time.monotonic() + 120
    while not file.exists():
        assert time.monotonic() < deadline, f"rank 0 has not made {name} in 2 minutes"
        time.sleep(0.01)
    return file.read_bytes()


def wait_for_all(name):
    """Files instead of a barrier of the library: for steps where ranks must not call it."""
    (FOLDER / f"{name}.{RANK}").touch()
    deadline = time.monotonic() + 120
    while not all((FOLDER / f"{name}.{rank}").exists() for rank in range(RANKS)):
        assert time.monotonic() < deadline, f"some rank has not reached {name} in 2 minutes"
        time.sleep(0.01)


def same(got, wanted, what):
    assert numpy.array_equal(got, wanted), f"{what}: {got[:8]} is not {wanted[:8]}"


def library(word):
    """The libnccl that this process has loaded: ours alone has `word` in its path."""
    maps = pathlib.Path("/proc/self/maps").read_text().splitlines()
    found = sorted({line.split()[-1] for line in maps if "libnccl.so" in line})
    assert found and all(word in path for path in found), f"{word} is not the libnccl of this process, but {found}"


def done(name):
    if RANK == 0:
        print(f"{name}: right on {RANKS} ranks")
    sys.stdout.flush()
