"""vLLM's wrapper of NCCL (pynccl_wrapper.py), unmodified, over our libnccl. The file is loaded alone, out of the folder
VLLM_FOLDER: for what it imports of torch and of the rest of vLLM, which it needs for names and logging alone, there
are stand-ins below."""
import ctypes
import enum
import importlib.util
import logging
import os
import pathlib
import sys
import types

import numpy
import rank as me

RANK, RANKS = me.RANK, me.RANKS
STREAM_TYPE = ctypes.c_void_p
SYMMETRIC = 1  # NCCL_WIN_COLL_SYMMETRIC
SUSPEND_MEMORY = 1  # NCCL_SUSPEND_MEM


def stand_in(name, **members):
    module = types.ModuleType(name)
    module.__dict__.update(members)
    sys.modules[name] = module
    parent, _, child = name.rpartition(".")
    if parent:
        setattr(sys.modules[parent], child, module)


def load(name):
    file = pathlib.Path(os.environ["VLLM_FOLDER"]) / (name.replace(".", "/") + ".py")
    spec = importlib.util.spec_from_file_location(name, file)
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def wrapper():
    kinds = {kind: kind for kind in ("int8", "uint8", "int32", "int64", "float16", "float32", "float64", "bfloat16")}
    stand_in("torch", dtype=str, version=types.SimpleNamespace(cuda="13.0", hip=None), **kinds)
    stand_in("torch.distributed", ReduceOp=enum.Enum("ReduceOp", "SUM PRODUCT MAX MIN AVG"), ProcessGroup=object)
    stand_in("vllm")
    stand_in("vllm.envs", VLLM_NCCL_SO_PATH=None, VLLM_USE_NCCL_SYMM_MEM=True)
    logging.Logger.debug_once, logging.Logger.warning_once = logging.Logger.debug, logging.Logger.warning
    stand_in("vllm.logger", init_logger=logging.getLogger)
    stand_in("vllm.platforms", current_platform=types.SimpleNamespace(fp8_dtype=lambda: "float8", is_rocm=lambda: False))
    stand_in("vllm.utils")
    load("vllm.utils.nccl")
    return load("vllm.distributed.device_communicators.pynccl_wrapper")


def check_collectives(vllm, nccl, comm, stream):
    ops, given, got = sys.modules["torch.distributed"].ReduceOp, me.Array(me.values(RANK)), me.Array(me.values(0))
    kind = vllm.ncclDataTypeEnum.from_torch("float32")
    plus = vllm.ncclRedOpTypeEnum.from_torch(ops.SUM)

    def call(function, given, got, *arguments):
        function(vllm.buffer_type(given.pointer), vllm.buffer_type(got.pointer), *arguments, comm, stream)
        me.finish(stream.value)
        return got.get()

    me.same(call(nccl.ncclAllReduce, given, got, me.COUNT, kind, plus), me.total(), "ncclAllReduce")
    most = vllm.ncclRedOpTypeEnum.from_torch(ops.MAX)
    reduced = call(nccl.ncclReduce, given, got, me.COUNT, kind, most, 1)
    if RANK == 1:
        me.same(reduced, me.values(RANKS - 1), "ncclReduce")
    me.same(call(nccl.ncclBroadcast, given, got, me.COUNT, kind, 1), me.values(1), "ncclBroadcast")
    long = me.Array(me.values(RANK, me.COUNT * RANKS))
    me.same(call(nccl.ncclReduceScatter, long, got, me.COUNT, kind, plus),
            me.total(me.COUNT * RANKS)[RANK * me.COUNT:(RANK + 1) * me.COUNT], "ncclReduceScatter")
    me.same(call(nccl.ncclAllGather, given, long, me.COUNT, kind),
            numpy.concatenate([me.values(rank) for rank in range(RANKS)]), "ncclAllGather")
    nccl.ncclGroupStart()
    nccl.ncclSend(vllm.buffer_type(given.pointer), me.COUNT, kind, (RANK + 1) % RANKS, comm, stream)
    nccl.ncclRecv(vllm.buffer_type(got.pointer), me.COUNT, kind, (RANK - 1) % RANKS, comm, stream)
    nccl.ncclGroupEnd()
    me.finish(stream.value)
    me.same(got.get(), me.values((RANK - 1) % RANKS), "ncclSend and ncclRecv")


def check_windows(vllm, nccl, comm, stream):
    """As vLLM's allocator does: memory of ncclMemAlloc, registered, and all-reduced in place."""
    pointer = ctypes.c_void_p()
    assert nccl.lib.ncclMemAlloc(ctypes.byref(pointer), ctypes.c_size_t(4 * me.COUNT)) == 0
    memory = me.Array(me.values(RANK))
    memory.pointer = pointer.value
    memory.set(me.values(RANK))
    window = nccl.ncclCommWindowRegister(comm, vllm.buffer_type(memory.pointer), memory.bytes, SYMMETRIC)
    assert window.value, "ncclCommWindowRegister"
    nccl.ncclAllReduce(vllm.buffer_type(memory.pointer), vllm.buffer_type(memory.pointer), me.COUNT,
                       vllm.ncclDataTypeEnum.ncclFloat32, vllm.ncclRedOpTypeEnum.ncclSum, comm, stream)
    me.finish(stream.value)
    me.same(memory.get(), me.total(), "ncclAllReduce of a window")
    nccl.ncclCommWindowDeregister(comm, window)
    assert nccl.lib.ncclMemFree(pointer) == 0


def check_facts(vllm, nccl, comm):
    """As vllm.utils.nccl.query_nccl_gin_type asks."""
    facts = vllm.ncclCommProperties()
    facts.size, facts.magic = ctypes.sizeof(facts), 0xCAFEBEEF
    facts.version = min(nccl.ncclGetRawVersion(), vllm.NCCL_COMM_PROPERTIES_LAYOUT_VERSION)
    nccl.NCCL_CHECK(nccl._funcs["ncclCommQueryProperties"](comm, ctypes.byref(facts)))
    assert (facts.rank, facts.nRanks, facts.cudaDev, facts.deviceApiSupport) == (RANK, RANKS, RANK, False)


def main():
    vllm = wrapper()
    me.use_device(RANK)
    nccl, stream = vllm.NCCLLibrary(), STREAM_TYPE(me.make_stream())
    me.library("simulated")
    assert all(nccl.has_symbol(function.name) for function in vllm.NCCLLibrary.exported_functions)
    assert nccl.ncclGetVersion().startswith("2.30."), nccl.ncclGetVersion()
    made = nccl.unique_id_from_bytes(me.shared("vllm", lambda: bytes(nccl.ncclGetUniqueId())))
    comm = nccl.ncclCommInitRank(RANKS, made, RANK)
    check_facts(vllm, nccl, comm)
    check_collectives(vllm, nccl, comm, stream)
    check_windows(vllm, nccl, comm, stream)
    nccl.ncclCommSuspend(comm, SUSPEND_MEMORY)
    nccl.ncclCommResume(comm)
    check_collectives(vllm, nccl, comm, stream)
    try:
        nccl.ncclAllReduce(None, None, me.COUNT, 99, 0, comm, stream)
    except RuntimeError as error:
        assert "ncclAllReduce" in str(error), error
    else:
        raise AssertionError("type 99 was taken")
    nccl.ncclCommDestroy(comm)
    made = nccl.unique_id_from_bytes(me.shared("aborted", lambda: bytes(nccl.ncclGetUniqueId())))
    comm = nccl.ncclCommInitRank(RANKS, made, RANK)
    me.wait_for_all("made")
    nccl.ncclCommAbort(comm)
    me.done("vLLM's wrapper")


main()
