"""Tutti as a backend of torch.distributed.

    import torch.distributed as dist
    dist.init_process_group("tutti")        # no import needed: torch finds the package by itself

This module only registers; the compiled part is loaded with the first group. See python/README.md.
"""
import os

_NAME = "tutti"
_registered = False


def _create(options, pg_options=None, name=_NAME):
    """A group's backend, from what torch hands to creators with the extended interface."""
    timeout = options.timeout
    if pg_options is not None and getattr(pg_options, "_timeout", None) is not None:
        timeout = pg_options._timeout
    return _extension().create(options.store, options.group_rank, options.group_size, timeout, name,
                               str(options.group_id),
                               [int(rank) for rank in options.global_ranks_in_group],
                               apart=getattr(options, "enable_reconfigure", False))  # torch 2.14.


def _extension():
    """The compiled module. It serves the minor version of torch that it was built against."""
    import torch
    try:
        from tutti_torch import _C
    except ImportError as error:
        raise ImportError(f"tutti_torch: the compiled module can't be loaded ({error}); it has to be "
                          f"built against this torch {torch.__version__}: "
                          "pip install --force-reinstall --no-deps ./python") from error
    if _C.torch_version.split(".")[:2] != torch.__version__.split(".")[:2]:
        raise ImportError(f"tutti_torch was built against torch {_C.torch_version}, this is "
                          f"{torch.__version__}, whose C++ interface is another one; run: "
                          "pip install --force-reinstall --no-deps ./python")
    if os.environ.get("TUTTI_SHARE_TENSORS") and not _C.shared_allocator_enabled():
        _C.enable_shared_allocator(_bytes_of(os.environ["TUTTI_SHARE_TENSORS"]))
    return _C


def _bytes_of(text):
    """Of "1M", "64K" or "100000"."""
    units = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
    digits, unit = (text[:-1], units[text[-1]]) if text[-1:] in units else (text, 1)
    if not digits.isdecimal():
        raise ValueError(f"TUTTI_SHARE_TENSORS: '{text}' is not a size; the smallest shared tensor in "
                         "bytes, or with K, M or G, like 1M")
    return int(digits) * unit


def _autoload():
    """Called by torch when it is imported. Registers the name, and what TUTTI_AS asks for."""
    global _registered
    import torch.distributed as dist
    if _registered or not dist.is_available():
        return
    _registered = True
    dist.Backend.register_backend(_NAME, _create, extended_api=True, devices=["cpu", "cuda"])
    wanted = [name for name in os.environ.get("TUTTI_AS", "").split(",") if name]
    if wanted:
        from tutti_torch import _stand_in
        _stand_in.install(wanted)


def enable_shared_allocator(from_bytes=1 << 20):
    """From now on, CPU tensors of at least `from_bytes` are in memory that the other ranks of this
    host can map, so that collectives on them copy nothing: call it before models and buckets are
    made. Tensors that exist stay where they are. For good. What a forked process (a DataLoader's
    worker) writes into such a tensor its parent sees, as with tensor.share_memory_()."""
    _extension().enable_shared_allocator(int(from_bytes))


def _backend(function, group, device=None):
    """The group's Tutti backend for the device; None: that for CPUs, or else for what it has."""
    import torch
    import torch.distributed as dist
    group = group if group is not None else dist.group.WORLD
    devices = ([torch.device(device)] if device is not None
               else sorted(group._device_types, key=lambda one: one.type != "cpu"))
    backends = [group._get_backend(one) for one in devices]
    for backend in backends:
        if isinstance(backend, _extension().ProcessGroupTutti):
            return backend
    raise ValueError(f"tutti_torch.{function}: this group's backend is "
                     + " and ".join(backend.name() for backend in backends))


def describe(group=None):
    """What the group's communicator is: transports, memory, waiting, plans, as text for people."""
    return _backend("describe", group).describe()


def stats(group=None):
    """What this rank's collectives on CPU tensors did since the group was made, as a dict: `calls`
    and `bytes` by collective, `call_seconds` and `wait_seconds` (calls by a plan, and small ones
    that waited long), `waits`: by the rank of the group that came last, how often and how long this
    rank waited for it, and `slowest_rank`: the one for which it waited longest, or None. A rank
    never waits for itself: all_reduce the waits to find the slowest rank of a job. A barrier counts
    as an all_reduce of a byte. Not collective."""
    return _backend("stats", group).counters()


def dump_flight_record(prefix, group=None):
    """Writes the latest 4,096 collectives on CPU tensors of this rank into the file `prefix` + its
    global rank, in the format of torch's flight recorder: `torchfrtrace DIRECTORY -p PREFIX`
    compares those of all ranks. Returns the path. Not collective; also after an error."""
    from tutti_torch import _flight
    return _flight.dump(_backend("dump_flight_record", group), prefix, group)


def lost_ranks(group=None, exclude=()):
    """The ranks of the group that have died, left, or did not call this within its time limit, and
    those in `exclude`: the same list on all that are left, which all call it, after a failure or
    not. It does not matter which rank has died; no store is needed."""
    return _backend("lost_ranks", group).lost_ranks(sorted(set(exclude)))


def health(group=None):
    """Why calls on CPU tensors of the group can work no more, as text; None while they can, as far as
    is known without a wait. While another thread is in a call this is None: that call will say it.
    Not collective."""
    return _backend("health", group).health()


def agree(flags, group=None):
    """The bitwise and of `flags`, 64 bits, of all ranks of the group that are left, the same on all of
    them, which all call it: whether a step ended well everywhere, for example. Also after a failure;
    it repairs nothing."""
    return _backend("agree", group).agree(flags)


def completed_calls(group=None):
    """How many collectives on CPU tensors every rank that was left had completed: of this group when
    `lost_ranks` was called last, or of the group before if `shrink_group` made this one. None: neither
    was. A rank may have completed more, and has the results of that call alone."""
    return _backend("completed_calls", group).completed_calls()


def revoke(reason, group=None):
    """Ends what is under way in the group on all its ranks, with an error that says `revoked` and the
    reason: for a rank that has seen an error and wants the others to come to `shrink_group`."""
    _backend("revoke", group).revoke(reason)


def shrink_group(group=None, exclude=()):
    """A group of the ranks that are left after a failure, less those in `exclude` (ranks of the
    group, alike on all), for tensors of CPUs and CUDA devices. All ranks that are left call it.
    Ranks that die meanwhile are left out as well. It is torch.distributed.shrink_group with
    SHRINK_ABORT and the ranks that are lost: it becomes the default group if `group` was that, and
    other groups are destroyed then. ValueError: no rank is lost or excluded. torch 2.10 and newer."""
    import torch
    import torch.distributed as dist
    if not hasattr(dist, "shrink_group"):
        raise RuntimeError(f"tutti_torch.shrink_group: torch {torch.__version__} has no shrink_group; "
                           "2.10 and newer have")
    old = group if group is not None else dist.group.WORLD
    devices = old._device_types
    if torch.device("cpu") not in devices and old.bound_device_id is None:
        # A group of NCCL's name: torch would make the new one for CPUs, as it has no device.
        old.bound_device_id = torch.device("cuda", torch.cuda.current_device())
    before = None
    while True:
        lost = lost_ranks(old, exclude)
        if not lost:
            raise ValueError("tutti_torch.shrink_group: all ranks of the group live and call this, "
                             "and none is excluded")
        try:
            made = dist.shrink_group(lost, old, dist.distributed_c10d.SHRINK_ABORT)
        except dist.DistBackendError as error:
            # Another rank has died: all that are left come here. Where none has, as all know alike,
            # it would fail for ever.
            more = "lost too" in str(error) or "could not make" in str(error)
            if not more or lost == before:
                raise
            before = lost
            continue
        # torch has registered it for one device.
        kinds = dist.ProcessGroup.BackendType
        kind = kinds.GLOO if made.bound_device_id is None else kinds.NCCL
        backend = made._get_backend(made._device_types[0])
        for device in devices:
            if device not in made._device_types:
                made._register_backend(device, kind, backend)
        return made


_autoload()
