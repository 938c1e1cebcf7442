"""The binding in one process: buffers, errors of use, memory, the command, and tutti.h."""

import array
import ctypes
import gc
import mmap
import os
import re
import subprocess
import sys
import unittest
import weakref
from pathlib import Path
from typing import Any

from launch import BUILD, ROOT, SOURCES, run

import elements
import tutti
from tutti import _library, _types
from tutti.__main__ import with_interpreter

numpy, ml_dtypes = elements.numpy, elements.ml_dtypes

HEADER = "".join(
    (ROOT / "include/tutti" / name).read_text(encoding="utf-8")
    for name in ("tutti.h", "tutti_spans.h", "tutti_tags.h", "tutti_user_op.h", "tutti_vectors.h", "tutti_windows.h")
)


# Its other functions take structures, in place of which Python has arguments.
OPTIONS = re.findall(
    r"TUTTI_API[^;]*tutti_work_wait_any\([^;]*;",
    (ROOT / "include/tutti/tutti_options.h").read_text(encoding="utf-8"),
)
HEADER += "".join(OPTIONS)


class Header(unittest.TestCase):
    """The tables of the binding are tutti.h."""

    def declared(self) -> dict[str, str]:
        code = re.sub(r"/\*.*?\*/", "", HEADER, flags=re.S)
        found = {}
        for result, name, parameters in re.findall(r"TUTTI_API\s+([^(]+?)\btutti_(\w+)\((.*?)\);", code, re.S):
            letters = [] if parameters.strip() == "void" else [letter_of(one) for one in parameters.split(",")]
            found[name] = letter_of(result + " x") + "".join(letters)
        return found

    def test_every_function_is_bound_as_it_is_declared(self) -> None:
        bound = dict(_library.SIGNATURES)
        for name, letters in _library.CALLS.items():
            bound[name], bound["start_" + name] = "ip" + letters, "ip" + letters + "p"
        self.assertEqual(self.declared(), bound)

    def test_every_number_is_that_of_the_header(self) -> None:
        numbers = {name: int(value) for name, value in re.findall(r"TUTTI_(\w+) = (\d+)", HEADER)}
        for name, one in _types.TYPES.items():
            if one.ops == _types.OPS:  # Not as another type.
                header = {"float8_e4m3fn": "FLOAT8E4M3", "float8_e5m2": "FLOAT8E5M2"}.get(name, name.upper())
                size = _library.functions["data_type_size"](one.code)
                self.assertEqual((numbers[header], size), (one.code, one.bytes))
        types = HEADER.partition("tutti_data_type_t;")[2].partition("}")[0]
        codes = {int(value) for value in re.findall(r"= (\d+)", types)}
        self.assertEqual({one.code for one in _types.TYPES.values()}, codes)
        self.assertEqual({op.name: numbers[op.name] for op in tutti.Op}, {op.name: int(op) for op in tutti.Op})
        classes = {one.code: one.__name__ for one in tutti.Error.__subclasses__()}
        names = [name.title().replace("_", "") for name in list(numbers)[1:11]]
        self.assertEqual(list(classes), list(range(1, 11)))
        for code, name in enumerate(names, 1):
            self.assertIn(classes[code].removesuffix("Error"), (name, name + "Failed"))

    def test_the_version_is_that_of_the_header(self) -> None:
        parts = [re.search(rf"TUTTI_VERSION_{part} (\d+)", HEADER) for part in ("MAJOR", "MINOR", "PATCH")]
        self.assertEqual(tutti.__version__, ".".join(part[1] for part in parts if part))

    def test_counters_have_the_fields_of_the_header(self) -> None:
        found = re.search(r"typedef struct \{(.*?)\} tutti_counters_t", HEADER, re.S)
        assert found is not None
        text = re.sub(r"/\*.*?\*/", "", found[1], flags=re.S)
        names = re.findall(r"(\w+)\s*[,;]", text)
        with tutti.init() as comm:
            self.assertEqual(list(comm.counters()), names)


def letter_of(declaration: str) -> str:
    text = " ".join(declaration.split())
    if re.match(r"const char ?\*", text):
        return "s"
    if "*" in text or re.match(r"tutti_(comm|work|callback|window|spans)_t ", text):
        return "p"
    others = {"size_t": "n", "uint64_t": "u", "int64_t": "l", "double": "d", "void": "v", "tutti_span_t": "t"}
    return others.get(text.split()[0], "i")


class Buffers(unittest.TestCase):
    def look(self, source: Any, count: int, name: str) -> tutti.Buffer:
        found = tutti.Buffer(source)
        self.assertEqual((found.count, found.type.name), (count, name))
        return found

    def test_arrays_of_python(self) -> None:
        names = {"b": "int8", "h": "int16", "H": "uint16", "i": "int32", "q": "int64", "Q": "uint64", "d": "float64"}
        for letter, name in names.items():
            self.look(array.array(letter, [1, 2, 3]), 3, name)
        self.look(memoryview(bytearray(8)).cast("f"), 2, "float32")
        self.look((ctypes.c_long * 3)(), 3, "int64")
        self.look((ctypes.c_float * 3)(), 3, "float32")
        self.look(mmap.mmap(-1, 4096), 4096, "uint8")

    def test_addresses_are_those_of_the_memory(self) -> None:
        data = (ctypes.c_double * 4)()
        self.assertEqual(tutti.Buffer(data).address, ctypes.addressof(data))
        readonly = tutti.Buffer(memoryview(data).toreadonly())
        self.assertEqual((readonly.address, readonly.readonly), (ctypes.addressof(data), True))
        self.assertEqual(tutti.Buffer(bytearray()).count, 0)

    def test_a_type_can_be_named(self) -> None:
        self.assertEqual(tutti.Buffer(bytearray(8), "bfloat16").count, 4)
        with self.assertRaisesRegex(ValueError, "8 bytes are no whole number of|9 bytes"):
            tutti.Buffer(bytearray(9), "bfloat16")
        with self.assertRaisesRegex(TypeError, "no type 'float15'"):
            tutti.Buffer(bytearray(8), "float15")

    def test_what_is_no_buffer_is_a_type_error(self) -> None:
        for nothing in (None, 3, "text", [1.0]):
            with self.assertRaisesRegex(TypeError, "is no buffer"):
                tutti.Buffer(nothing)

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_arrays_of_numpy(self) -> None:
        for name in elements.FORMATS:
            self.look(numpy.zeros((2, 3), name), 6, name)
        self.look(numpy.zeros((), "float32"), 1, "float32")
        self.look(numpy.zeros((2, 0), "float32"), 0, "float32")
        self.look(numpy.zeros(3, bool), 3, "bool")
        for name in elements.COMPLEX:
            self.look(numpy.zeros((2, 3), name), 6, name)
        for moved in (">f4", ">c8", "clongdouble", "S3"):
            self.assertFalse(tutti.Buffer(numpy.zeros(3, moved)).type.ops)
        self.look(numpy.zeros(3, "datetime64[s]"), 3, "datetime64[s]")
        with self.assertRaisesRegex(TypeError, "Python objects"):
            tutti.Buffer(numpy.array([None, 1]))
        for strided in (numpy.zeros((4, 4))[:, 1], numpy.zeros((4, 4)).T, numpy.zeros(4, "datetime64[s]")[::2]):
            with self.assertRaisesRegex(ValueError, "not contiguous"):
                tutti.Buffer(strided)

    @unittest.skipIf(numpy is None or ml_dtypes is None, "ml_dtypes is not here")
    def test_arrays_of_ml_dtypes(self) -> None:
        for name in ("bfloat16", "float8_e4m3fn", "float8_e5m2"):
            data = numpy.zeros(5, name)
            self.assertEqual(self.look(data, 5, name).address, data.ctypes.data)


def new_capsule(content: Any, name: bytes) -> Any:
    new = ctypes.pythonapi.PyCapsule_New
    new.restype, new.argtypes = ctypes.py_object, [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p]
    return new(ctypes.addressof(content), name, None)


class FakeTensor:
    """An object that has DLPack alone."""

    def __init__(self, data: Any, code: int, bits: int, shape: tuple[int, ...], strides: tuple[int, ...] | None = None):
        from tutti._dlpack import _Tensor

        self.tensor = _Tensor()
        self.data, self.device = data, (1, 0)
        self.tensor.data = ctypes.addressof(data)
        self.tensor.dimensions = len(shape)
        self.tensor.type.code, self.tensor.type.bits, self.tensor.type.lanes = code, bits, 1
        numbers = ctypes.c_int64 * len(shape)
        self.lists = [numbers(*shape), numbers(*(strides or shape))]
        self.tensor.shape = ctypes.cast(self.lists[0], ctypes.POINTER(ctypes.c_int64))
        if strides:
            self.tensor.strides = ctypes.cast(self.lists[1], ctypes.POINTER(ctypes.c_int64))

    def __dlpack_device__(self) -> tuple[int, int]:
        return self.device

    def __dlpack__(self) -> Any:
        return new_capsule(self.tensor, b"dltensor")


class Versioned(FakeTensor):
    def __init__(self, data: Any, flags: int):
        super().__init__(data, 2, 32, (4,))
        from tutti._dlpack import _Versioned

        self.whole = _Versioned(1, 0, None, None, flags, self.tensor)

    def __dlpack__(self, max_version: tuple[int, int] = (0, 0)) -> Any:
        return new_capsule(self.whole, b"dltensor_versioned")


class Dlpack(unittest.TestCase):
    def test_types_shapes_and_offsets(self) -> None:
        data = (ctypes.c_ubyte * 64)()
        for code, bits, name in ((2, 16, "float16"), (4, 16, "bfloat16"), (0, 32, "int32"), (1, 16, "uint16"), (6, 8, "bool"),
                                 (5, 64, "complex64"), (5, 128, "complex128"), (10, 8, "float8_e4m3fn"), (12, 8, "float8_e5m2")):
            tensor = FakeTensor(data, code, bits, (2, 3), (3, 1))
            tensor.tensor.byte_offset = 8
            found = tutti.Buffer(tensor)
            self.assertEqual((found.count, found.type.name), (6, name))
            self.assertEqual(found.address, ctypes.addressof(data) + 8)
        self.assertFalse(tutti.Buffer(FakeTensor(data, 5, 32, (2,))).type.ops)
        self.assertEqual(tutti.Buffer(FakeTensor(data, 2, 32, ())).count, 1)

    def test_newer_capsules_say_what_is_readonly(self) -> None:
        data = (ctypes.c_ubyte * 64)()
        for flags in (0, 1):
            found = tutti.Buffer(Versioned(data, flags))
            self.assertEqual((found.count, found.readonly), (4, flags == 1))
            self.assertEqual(found.address, ctypes.addressof(data))

    def test_strides_and_devices_are_refused(self) -> None:
        data = (ctypes.c_ubyte * 64)()
        with self.assertRaisesRegex(ValueError, "not contiguous"):
            tutti.Buffer(FakeTensor(data, 2, 32, (2, 3), (1, 2)))
        tensor = FakeTensor(data, 2, 32, (2,))
        tensor.device = (2, 0)
        with self.assertRaisesRegex(TypeError, "device's memory"):
            tutti.Buffer(tensor)

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_a_capsule_of_numpy_is_reduced_in_place(self) -> None:
        class Only:
            def __init__(self, of: Any) -> None:
                self.__dlpack__, self.__dlpack_device__ = of.__dlpack__, of.__dlpack_device__

        data = numpy.arange(4.0)
        with tutti.init() as comm:
            comm.all_reduce(Only(data), scale=3)
        self.assertEqual(data.tolist(), [0, 3, 6, 9])


class Misuse(unittest.TestCase):
    """Errors of use come before anything is sent, in one line."""

    def setUp(self) -> None:
        self.comm = tutti.init()
        self.addCleanup(self.comm.close)

    def refused(self, kind: type[Exception], words: str, call: Any, *arguments: Any, **more: Any) -> None:
        with self.assertRaisesRegex(kind, words) as caught:
            call(*arguments, **more)
        self.assertNotIn("\n", str(caught.exception))

    def test_wrong_sizes_types_and_readonly_outputs(self) -> None:
        comm, four, other = self.comm, array.array("d", [0] * 4), array.array("f", [0] * 4)
        for name in "all_reduce all_gather all_to_all reduce gather scatter reduce_scatter broadcast scan exclusive_scan".split():
            for start in ("", "start_"):
                call = getattr(comm, start + name)
                self.refused(TypeError, f"{name}: `x` has elements of float64, `out` of float32", call, four, other)
                self.refused(ValueError, f"{name}: `out` has 3 elements; it needs 4", call, four, four[:3])
                self.refused(ValueError, f"{name}: `out` is read-only", call, four, memoryview(four).toreadonly())
        self.refused(ValueError, "all_reduce: `x` is read-only", comm.all_reduce, memoryview(four).toreadonly())
        self.refused(ValueError, "recv: `out` is read-only", comm.recv, b"1234", 0)
        self.refused(TypeError, "gather: `out` is missing", comm.gather, four)
        self.refused(TypeError, "scatter: `out` is missing", comm.scatter, four, None)

    def test_wrong_counts_and_offsets(self) -> None:
        comm, four, same = self.comm, array.array("d", [0] * 4), array.array("d", [0] * 4)
        self.refused(ValueError, "a number for each of the 1 ranks", comm.all_gather_v, four, same, [4, 4])
        self.refused(ValueError, "a number for each of the 1 ranks", comm.gather_v, four, same)
        self.refused(ValueError, "negative", comm.all_gather_v, four, same, [-1])
        self.refused(ValueError, "`out` has 4 elements; the blocks need 5", comm.all_gather_v, four, same, [4], [1])
        self.refused(ValueError, "`x` has 4 elements; this rank's count is 3", comm.all_gather_v, four, same, [3])
        self.refused(ValueError, "`x` has 4 elements; the blocks need 9", comm.scatter_v, four, same, [9])
        self.refused(ValueError, "`x` has 4 elements; the blocks need 5", comm.reduce_scatter_v, four, same, [5])
        self.refused(ValueError, "the blocks need 5", comm.all_to_all_v, four, [5], same, [4])

    def test_what_cannot_be_reduced(self) -> None:
        record = elements.record(1)
        self.refused(TypeError, "can't be reduced, only moved", self.comm.all_reduce, record)
        self.comm.all_gather(record, elements.record(2))
        flags = memoryview(bytearray(4)).cast("?")
        self.refused(TypeError, "bool is reduced by MAX, MIN, AND, OR and XOR; use another type to count", self.comm.all_reduce, flags)
        self.refused(TypeError, "bool is reduced by", self.comm.all_reduce, flags, scale=2)
        self.comm.all_reduce(flags, None, tutti.OR)
        pair = tutti.Buffer(bytearray(8), "complex64")
        self.refused(TypeError, "complex64 is reduced by SUM and AVG$", self.comm.all_reduce, pair, op=tutti.PROD)
        self.comm.all_reduce(pair, op=tutti.AVG)
        self.refused(ValueError, "goes with sums", self.comm.all_reduce, array.array("d", [1]), op=tutti.MAX, scale=2)
        for op in (99, 5, -1, "sum", None, 2**32):
            self.refused(TypeError, "no operation", self.comm.all_reduce, array.array("d", [1]), op=op)

    def test_ranks_that_there_are_not_and_closed_communicators(self) -> None:
        for rank in (-1, 1, 2**32):
            self.refused(ValueError, "send: `to` is", self.comm.send, b"123", rank)
            self.refused(ValueError, "recv: `source` is", self.comm.recv, bytearray(3), rank)
            for name in ("broadcast", "reduce", "gather", "scatter", "gather_v", "scatter_v"):
                call = getattr(self.comm, name)
                self.refused(ValueError, f"{name}: `root` is", call, bytearray(3), bytearray(3), root=rank)
        self.refused(TypeError, "`root` is a str, and no int", self.comm.broadcast, bytearray(3), root="0")
        self.comm.close()
        self.comm.close()
        self.refused(tutti.InvalidArgumentError, "NULL", self.comm.all_reduce, array.array("d", [1]))
        self.assertIn("closed", repr(self.comm))

    def test_windows(self) -> None:
        refused, four, flags = self.refused, array.array("d", [0] * 4), memoryview(bytearray(4)).cast("?")
        refused(ValueError, "window: `nbytes` is -1", self.comm.window, -1)
        refused(TypeError, "window: `nbytes` is a float, and no int", self.comm.window, 8.0)
        window = self.comm.window(64)
        for rank in (-1, 1, 2**32):
            refused(ValueError, "put: `to` is", window.put, four, rank)
            refused(ValueError, "get: `source` is", window.get, four, rank)
            refused(ValueError, "accumulate: `to` is", window.accumulate, four, rank)
            refused(ValueError, "fetch_add: `to` is", window.fetch_add, 1, rank)
            refused(ValueError, "compare_swap: `to` is", window.compare_swap, 0, 1, rank)
            refused(ValueError, "flush: `to` is", window.flush, rank)
            refused(ValueError, "signal: `to` is", window.signal, rank)
            refused(ValueError, "wait_signal: `source` is", window.wait_signal, rank)
            refused(ValueError, "nbytes: `rank` is", window.nbytes, rank)
        for call in (window.put, window.get, window.accumulate):
            for offset in (-1, 2**63, 2**64):
                refused(ValueError, "`offset` is", call, four, 0, offset=offset)
            refused(TypeError, "`offset` is a str, and no int", call, four, 0, offset="0")
            refused(tutti.InvalidArgumentError, "32 bytes at 40 of the 64 bytes of rank 0", call, four, 0, offset=40)
            refused(TypeError, "is no buffer", call, [1.0], 0)
        refused(ValueError, "get: `out` is read-only", window.get, b"1234", 0)
        refused(tutti.InvalidArgumentError, "multiple of the 8 bytes", window.accumulate, four, 0, offset=4)
        refused(tutti.InvalidArgumentError, "offset 4 is not a multiple of 8", window.fetch_add, 1, 0, 4)
        refused(tutti.InvalidArgumentError, "8 bytes at 64 of the 64 bytes", window.compare_swap, 0, 1, 0, 64)
        refused(ValueError, f"fetch_add: `value` is {2**63}, not from {-2**63}", window.fetch_add, 2**63, 0)
        refused(ValueError, "compare_swap: `expected` is", window.compare_swap, -(2**63) - 1, 0, 0)
        refused(TypeError, "`value` is a float, and no int", window.compare_swap, 0, 1.0, 0)
        refused(tutti.InvalidArgumentError, "avg of float64", window.accumulate, four, 0, tutti.AVG)
        refused(TypeError, "accumulate: bool is reduced by", window.accumulate, flags, 0)
        refused(TypeError, "can't be reduced, only moved", window.accumulate, elements.record(1), 0)
        for op in (99, 5, -1, "sum", None, 2**32):
            refused(TypeError, "accumulate: there is no operation", window.accumulate, four, 0, op)
        refused(tutti.InvalidArgumentError, "no signal 64", window.signal, 0, 64)
        for number in (-1, 2**32):
            refused(ValueError, "signal: `number` is", window.signal, 0, number)
            refused(ValueError, "wait_signal: `number` is", window.wait_signal, 0, number)
            refused(ValueError, "wait_signal: `count` is", window.wait_signal, 0, 0, number if number < 0 else 2**64)
        with tutti.group():
            refused(tutti.InvalidArgumentError, "group", window.flush, 0)
        window.close()
        window.close()
        self.assertIn("closed", repr(window))
        refused(ValueError, "memory: this window is closed", getattr, window, "memory")
        refused(tutti.InvalidArgumentError, "the window is NULL", window.put, four, 0)

    def test_a_place_to_join(self) -> None:
        self.refused(ValueError, "128 bytes", tutti.init, b"short")
        self.refused(tutti.InvalidArgumentError, "rank", tutti.init, "127.0.0.1:1", rank=2, size=2)
        self.refused(ValueError, "one rank", tutti.in_process, 0)


class Memory(unittest.TestCase):
    def test_allocated_memory_is_zeroed_and_freed_with_its_last_user(self) -> None:
        memory = tutti.mem_alloc(64)
        self.assertEqual((len(memory), bytes(memory)), (64, bytes(64)))
        doubles = memory.cast("d")
        alive = weakref.ref(memory.obj)
        address = ctypes.addressof(memory.obj)  # type: ignore[arg-type]
        del memory
        gc.collect()
        doubles[0] = 5
        with tutti.init() as comm:
            comm.all_reduce(doubles, scale=2)
        self.assertEqual(doubles[0], 10)
        doubles.release()
        del doubles
        gc.collect()
        self.assertIsNone(alive())
        self.assertNotEqual(_library.functions["mem_free"](address), 0, "it was not freed yet")
        with self.assertRaises(tutti.InvalidArgumentError):
            tutti.mem_alloc(0)

    @unittest.skipIf(numpy is None, "NumPy is not here")
    def test_arrays_in_such_memory(self) -> None:
        data = tutti.zeros((3, 4), "float16")
        self.assertEqual((data.shape, data.dtype.name, data.sum(), data.flags.writeable), ((3, 4), "float16", 0, True))
        self.assertEqual(tutti.zeros(0).size, 0)

    def test_memory_of_the_caller_is_registered(self) -> None:
        file = os.memfd_create("test_alone")
        os.ftruncate(file, 8192)
        with tutti.init() as comm, mmap.mmap(file, 8192) as mapped:
            comm.register(mapped, file)
            with self.assertRaises(tutti.InvalidArgumentError):
                comm.register(mapped, file)
            comm.deregister(mapped)
        os.close(file)


class Command(unittest.TestCase):
    def test_a_python_program_gets_this_interpreter(self) -> None:
        self.assertEqual(with_interpreter(["-n", "4", "a.py", "-x"]), ["-n", "4", "--", sys.executable, "a.py", "-x"])
        self.assertEqual(with_interpreter(["-n", "4", "--", "a.py"]), ["-n", "4", "--", sys.executable, "a.py"])
        self.assertEqual(with_interpreter(["-n", "4", "-m", "a"]), ["-n", "4", "--", sys.executable, "-m", "a"])
        self.assertEqual(with_interpreter(["-n", "4", "--", "cat", "a.py"]), ["-n", "4", "--", "cat", "a.py"])
        self.assertEqual(with_interpreter(["-n", "4", "./a"]), ["-n", "4", "./a"])

    def test_info_says_which_library_it_is(self) -> None:
        ended = run(["-m", "tutti", "info"])
        self.assertEqual(ended.returncode, 0, ended.stderr)
        self.assertIn(str(BUILD / "libtutti.so"), ended.stdout)
        self.assertIn("instruction set", ended.stdout)

    def test_a_library_that_is_not_there_is_one_line(self) -> None:
        ended = run(["-c", "import tutti"], TUTTI_LIBRARY="/nowhere/libtutti.so")
        self.assertIn("ImportError: tutti: libtutti.so can't be loaded", ended.stderr)
        self.assertIn("/nowhere/libtutti.so", ended.stderr)
        other = run(["-c", "import tutti"], TUTTI_LIBRARY=os.fsdecode(next(Path("/lib").rglob("libm.so.6"))))
        self.assertNotEqual(other.returncode, 0)

    def test_the_package_installs_without_compiling_and_finds_its_prefix(self) -> None:
        """As in an installed prefix: PREFIX/lib/libtutti.so.0.1, and the package below PREFIX."""
        import tempfile

        with tempfile.TemporaryDirectory() as prefix:
            packages = Path(prefix) / "lib/python3/site-packages"
            options = "--no-index --no-deps --no-build-isolation --no-compile --quiet --target".split()
            source = Path(prefix) / "source"
            subprocess.run(["cp", "-r", str(SOURCES), str(source)], check=True)
            done = run(["-m", "pip", "install", *options, str(packages), str(source)])
            if done.returncode != 0 and re.search("setuptools|No module named", done.stderr):
                self.skipTest("setuptools or pip is not here")
            self.assertEqual(done.returncode, 0, done.stderr)
            (Path(prefix) / "lib" / _library.FILE_NAME).symlink_to((BUILD / "libtutti.so").resolve())
            self.assertEqual({path.suffix for path in (packages / "tutti").iterdir()}, {".py", ".typed"})
            ended = run(["-c", "import tutti; print(tutti.library_path)"], TUTTI_LIBRARY="", PYTHONPATH=str(packages))
            self.assertEqual(ended.stdout.strip(), str(Path(prefix) / "lib" / _library.FILE_NAME), ended.stderr)


if __name__ == "__main__":
    unittest.main(verbosity=2)
