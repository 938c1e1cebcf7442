"""cupy.cuda.nccl, unmodified, over our libnccl. cupy's own arrays are left out: it has the CUDA runtime linked
statically, so they need a real GPU."""
import threading

import cupy.cuda.nccl as nccl
import numpy
import rank as me

RANK, RANKS = me.RANK, me.RANKS


def check_collectives(comm, stream):
    given, got = me.Array(me.values(RANK)), me.Array(numpy.zeros(me.COUNT, numpy.float32))
    comm.allReduce(given.pointer, got.pointer, me.COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)
    me.finish(stream)
    me.same(got.get(), me.total(), "allReduce")
    comm.reduce(given.pointer, got.pointer, me.COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_MAX, RANKS - 1, stream)
    me.finish(stream)
    if RANK == RANKS - 1:
        me.same(got.get(), me.values(RANKS - 1), "reduce")
    comm.broadcast(given.pointer, got.pointer, me.COUNT, nccl.NCCL_FLOAT32, 1, stream)
    me.finish(stream)
    me.same(got.get(), me.values(1), "broadcast")
    in_place = me.Array(me.values(RANK))
    comm.bcast(in_place.pointer, me.COUNT, nccl.NCCL_FLOAT32, 0, stream)
    me.finish(stream)
    me.same(in_place.get(), me.values(0), "bcast")
    gathered = me.Array(numpy.zeros(me.COUNT * RANKS, numpy.float32))
    comm.allGather(given.pointer, gathered.pointer, me.COUNT, nccl.NCCL_FLOAT32, stream)
    me.finish(stream)
    me.same(gathered.get(), numpy.concatenate([me.values(rank) for rank in range(RANKS)]), "allGather")
    parts = me.Array(me.values(RANK, me.COUNT * RANKS))
    comm.reduceScatter(parts.pointer, got.pointer, me.COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)
    me.finish(stream)
    me.same(got.get(), me.total(me.COUNT * RANKS)[RANK * me.COUNT:(RANK + 1) * me.COUNT], "reduceScatter")


def check_messages(comm, stream):
    given, got = me.Array(me.values(RANK)), me.Array(numpy.zeros(me.COUNT, numpy.float32))
    nccl.groupStart()
    comm.send(given.pointer, me.COUNT, nccl.NCCL_FLOAT32, (RANK + 1) % RANKS, stream)
    comm.recv(got.pointer, me.COUNT, nccl.NCCL_FLOAT32, (RANK - 1) % RANKS, stream)
    nccl.groupEnd()
    me.finish(stream)
    me.same(got.get(), me.values((RANK - 1) % RANKS), "send and recv")


def check_split(comm, stream):
    part = comm.commSplit(RANK % 2, -RANK)
    mates = [rank for rank in range(RANKS) if rank % 2 == RANK % 2]
    assert part.size() == len(mates) and part.rank_id() == mates[::-1].index(RANK), "commSplit"
    given = me.Array(me.values(RANK))
    part.allReduce(given.pointer, given.pointer, me.COUNT, nccl.NCCL_FLOAT32, nccl.NCCL_SUM, stream)
    me.finish(stream)
    me.same(given.get(), sum(me.values(rank) for rank in mates), "allReduce of a part")
    part.destroy()


def check_mistake(comm):
    try:
        comm.allReduce(0, 0, me.COUNT, 99, nccl.NCCL_SUM, 0)
    except nccl.NcclError as error:
        assert "invalid argument" in str(error), error
    else:
        raise AssertionError("type 99 was taken")


def check_one_process():
    """All GPUs of rank 0's process: one thread with groups, then a thread each. Other ranks wait meanwhile."""
    if RANK == 0:
        comms = nccl.NcclCommunicator.initAll(list(range(RANKS)))
        arrays, streams = [], []
        for device in range(RANKS):
            me.use_device(device)
            arrays.append(me.Array(me.values(device)))
            streams.append(me.make_stream())

        def reduce(device):
            me.use_device(device)
            comms[device].allReduce(arrays[device].pointer, arrays[device].pointer, me.COUNT, nccl.NCCL_FLOAT32,
                                    nccl.NCCL_SUM, streams[device])

        nccl.groupStart()
        for device in range(RANKS):
            reduce(device)
        nccl.groupEnd()
        threads = [threading.Thread(target=reduce, args=(device,)) for device in range(RANKS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for device in range(RANKS):
            me.use_device(device)
            me.finish(streams[device])
            assert comms[device].device_id() == device
            me.same(arrays[device].get(), me.total() * RANKS, "initAll")
        for comm in comms:
            comm.destroy()
        me.use_device(0)
    me.wait_for_all("one_process")


def main():
    me.library("simulated")
    assert nccl.available and nccl.get_version() >= 23000, nccl.get_version()
    me.use_device(RANK)
    stream = me.make_stream()
    made = me.shared("cupy", nccl.get_unique_id)
    comm = nccl.NcclCommunicator(RANKS, made, RANK)
    assert comm.size() == RANKS and comm.rank_id() == RANK and comm.device_id() == RANK
    check_collectives(comm, stream)
    check_messages(comm, stream)
    check_split(comm, stream)
    check_mistake(comm)
    comm.check_async_error()
    comm.destroy()
    check_one_process()
    made = me.shared("aborted", nccl.get_unique_id)
    comm = nccl.NcclCommunicator(RANKS, made, RANK)
    me.wait_for_all("made")
    comm.abort()
    me.done("cupy.cuda.nccl")


main()
