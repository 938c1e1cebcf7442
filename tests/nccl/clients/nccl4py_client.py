"""nccl4py (NVIDIA's Python API of NCCL), unmodified, over our libnccl, with cuda.core beneath it. Kernels over its
device API are left out."""
import nccl.core as nccl
import numpy
import rank as me
from cuda.core import Buffer, Device

RANK, RANKS = me.RANK, me.RANKS
NEXT, PREVIOUS = (RANK + 1) % RANKS, (RANK - 1) % RANKS


def zeros(count=me.COUNT):
    return me.Array(numpy.zeros(count, numpy.float32))


def joined(count=me.COUNT):
    return numpy.concatenate([me.values(rank, count) for rank in range(RANKS)])


def check_collectives(comm, stream, config=None):
    def call(name, given, got, wanted, *arguments, **named):
        getattr(comm, name)(given, got, *arguments, stream=stream, config=config, **named)
        stream.sync()
        if wanted is not None:
            me.same(got.get(), wanted, name)

    given, parts = me.Array(me.values(RANK)), me.Array(me.values(RANK, me.COUNT * RANKS))
    own = slice(RANK * me.COUNT, (RANK + 1) * me.COUNT)
    last = RANKS - 1
    call("allreduce", given, zeros(), me.total(), nccl.SUM)
    call("reduce", given, zeros(), me.values(0) if RANK == last else None, nccl.MIN, root=last)
    call("broadcast", given, zeros(), me.values(last), last)
    call("allgather", given, zeros(me.COUNT * RANKS), joined())
    call("reduce_scatter", parts, zeros(), me.total(me.COUNT * RANKS)[own], nccl.SUM)
    call("alltoall", parts, zeros(me.COUNT * RANKS),
         numpy.concatenate([me.values(rank, me.COUNT * RANKS)[own] for rank in range(RANKS)]))
    call("gather", given, zeros(me.COUNT * RANKS), joined() if RANK == 0 else None, 0)
    call("scatter", parts, zeros(), me.values(0, me.COUNT * RANKS)[own], 0)


def check_groups(comm, stream):
    given, got = me.Array(me.values(RANK)), zeros()
    with nccl.group():
        comm.send(given, NEXT, stream=stream)
        comm.recv(got, PREVIOUS, stream=stream)
    stream.sync()
    me.same(got.get(), me.values(PREVIOUS), "send and recv")
    nccl.group_start()
    comm.allreduce(given, got, nccl.SUM, stream=stream)
    assert nccl.group_end(simulate=True).estimated_time > 0, "group_end(simulate=True)"
    me.same(got.get(), me.values(PREVIOUS), "a group that is only estimated")


def check_factor(comm, stream):
    given, got = me.Array(me.values(RANK)), zeros()
    doubled = comm.create_pre_mul_sum(numpy.array([2], numpy.float32))
    comm.allreduce(given, got, doubled, stream=stream)
    stream.sync()
    me.same(got.get(), 2 * me.total(), "a factor")
    doubled.close()


def check_windows(comm, stream):
    """One rank puts into the memory of the next."""
    memory = nccl.mem_alloc(4 * me.COUNT)
    assert isinstance(memory, Buffer) and memory.size == 4 * me.COUNT
    window = comm.register_window(memory, nccl.WindowFlag.COLL_SYMMETRIC)
    assert window.user_ptr == int(memory.handle), "user_ptr"
    assert window.get_peer_device_pointer(RANK), "get_peer_device_pointer"
    source = me.Array(me.values(RANK))
    held = comm.register_buffer(source)
    comm.put_signal(source, NEXT, window, stream=stream)
    comm.wait_signal(nccl.WaitSignalDesc(peer=PREVIOUS), stream=stream)
    stream.sync()
    got = zeros()
    me.check(me.runtime.cudaMemcpy(me.ctypes.c_void_p(got.pointer), me.ctypes.c_void_p(int(memory.handle)),
                                   me.ctypes.c_size_t(got.bytes), 3))
    me.same(got.get(), me.values(PREVIOUS), "put_signal")
    comm.signal(PREVIOUS, stream=stream)
    comm.wait_signal([nccl.WaitSignalDesc(peer=NEXT)], stream=stream)
    stream.sync()
    held.close()
    window.close()
    nccl.mem_free(memory)


def check_cuda_core(comm, stream):
    """Memory of cuda.core's allocator, which is bytes without a type."""
    buffer = Device(RANK).allocate(me.COUNT, stream=stream)
    mine = me.Array(numpy.full(me.COUNT, RANK + 3, numpy.uint8))
    Buffer.from_handle(mine.pointer, me.COUNT).copy_to(buffer, stream=stream)
    comm.broadcast(buffer, buffer, 1, stream=stream)
    buffer.copy_to(Buffer.from_handle(mine.pointer, me.COUNT), stream=stream)
    stream.sync()
    me.same(mine.get(), numpy.full(me.COUNT, 4, numpy.uint8), "memory of cuda.core")
    buffer.close(stream)


def check_facts(comm):
    assert (comm.nranks, comm.rank, comm.device.device_id) == (RANKS, RANK, RANK)
    assert comm.properties.rank == RANK and comm.properties.n_ranks == RANKS and not comm.device_api_support
    team = comm.team_world
    assert (team.n_ranks, team.rank) == (RANKS, RANK) and comm.team_rank_to_world(team, RANK) == RANK
    assert comm.get_mem_stat(nccl.NcclCommMemStat.GPU_MEM_TOTAL) > 0
    assert comm.get_async_error() == 0
    versions = nccl.get_version()
    assert versions.libnccl.version.release[:2] == (2, 30) and "simulated" in str(versions.libnccl.path), versions


def check_children(comm, stream):
    part = comm.split(RANK % 2, -RANK)
    mates = [rank for rank in range(RANKS) if rank % 2 == RANK % 2]
    given = me.Array(me.values(RANK))
    part.allreduce(given, given, nccl.SUM, stream=stream)
    stream.sync()
    me.same(given.get(), sum(me.values(rank) for rank in mates), "a split")
    part.destroy()
    if RANK != RANKS - 1:
        rest = comm.shrink([RANKS - 1])
        assert rest.nranks == RANKS - 1
        given = me.Array(me.values(RANK))
        rest.allreduce(given, given, nccl.SUM, stream=stream)
        stream.sync()
        me.same(given.get(), sum(me.values(rank) for rank in range(RANKS - 1)), "a communicator that shrank")
        rest.destroy()
    comm.suspend()
    comm.resume()
    given = me.Array(me.values(RANK))
    comm.allreduce(given, given, nccl.SUM, stream=stream)
    stream.sync()
    me.same(given.get(), me.total(), "resume")


def check_growing(stream):
    """All ranks but the last, which joins later."""
    first = me.shared("few", lambda: bytes(nccl.get_unique_id()))
    few = None
    if RANK != RANKS - 1:
        few = nccl.Communicator.init(RANKS - 1, RANK, nccl.UniqueId.from_bytes(first))
    root = few.get_unique_id() if RANK == 0 else None
    sent = nccl.UniqueId.from_bytes(me.shared("grown", lambda: bytes(root)))
    if few is None:
        all_of_them = nccl.Communicator().grow(RANKS, sent, RANK)
    else:
        all_of_them = few.grow(RANKS, root)
    given = me.Array(me.values(RANK))
    all_of_them.allreduce(given, given, nccl.SUM, stream=stream)
    stream.sync()
    me.same(given.get(), me.total(), "a communicator that grew")
    all_of_them.destroy()
    if few is not None:
        few.destroy()


def check_one_process():
    if RANK == 0:
        comms = nccl.Communicator.init_all(RANKS)
        arrays = []
        for device in range(RANKS):
            me.use_device(device)
            arrays.append(me.Array(me.values(device)))
        with nccl.group():
            for comm, array in zip(comms, arrays):
                comm.allreduce(array, array, nccl.SUM)
        for device, array in enumerate(arrays):
            me.use_device(device)
            me.check(me.runtime.cudaDeviceSynchronize())
            me.same(array.get(), me.total(), "init_all")
            comms[device].destroy()
        me.use_device(0)
    me.wait_for_all("one_process")


def check_revoked_and_aborted():
    made = nccl.UniqueId.from_bytes(me.shared("revoked", lambda: bytes(nccl.get_unique_id())))
    comm = nccl.Communicator.init(RANKS, RANK, made)
    me.wait_for_all("made")
    comm.revoke()
    given = me.Array(me.values(RANK))
    try:
        comm.allreduce(given, given, nccl.SUM)
    except Exception as error:  # The class that the bindings raise has no public name.
        assert "invalid usage" in str(error).lower() or "InvalidUsage" in str(error), error
    else:
        raise AssertionError("a communicator that was revoked took a call")
    comm.abort()
    assert not comm.is_valid


def main():
    device = Device(RANK)
    device.set_current()
    me.use_device(RANK)
    stream = device.create_stream()
    made = nccl.UniqueId.from_bytes(me.shared("nccl4py", lambda: bytes(nccl.get_unique_id())))
    comm = nccl.Communicator.init(RANKS, RANK, made, nccl.NCCLConfig(min_ctas=1, comm_name="client"))
    me.library("simulated")
    check_facts(comm)
    check_collectives(comm, stream)
    check_collectives(comm, stream, nccl.NCCLCollConfig(max_ctas=4))
    check_groups(comm, stream)
    check_factor(comm, stream)
    check_windows(comm, stream)
    check_cuda_core(comm, stream)
    check_children(comm, stream)
    comm.finalize()
    comm.destroy()
    check_growing(stream)
    check_one_process()
    check_revoked_and_aborted()
    me.done(f"nccl4py {nccl.__version__}")


main()
