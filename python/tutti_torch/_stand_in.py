"""TUTTI_AS=gloo, TUTTI_AS=nccl or both: scripts that name them run over Tutti, unmodified.

torch makes gloo's groups by calling the class ProcessGroupGloo, and asks with isinstance what it got;
NCCL's likewise. A class of the same name takes the place of each: to call it makes a Tutti group whose
name is "gloo" or "nccl", and such groups are its instances. What torch itself makes for its own
purposes (the helper group of TORCH_DISTRIBUTED_DEBUG=DETAIL) goes the same way. Nothing of this
happens unless it is asked for.
"""
import datetime
import types

_CLASSES = {"gloo": "ProcessGroupGloo", "nccl": "ProcessGroupNCCL"}
_LIMITS = {"gloo": datetime.timedelta(minutes=30), "nccl": datetime.timedelta(minutes=10)}


def install(names):
    unknown = [name for name in names if name not in _CLASSES]
    if unknown:
        raise ValueError(f"TUTTI_AS: tutti can't stand in for {', '.join(unknown)}; it takes: "
                         + ", ".join(_CLASSES))
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    for name in dict.fromkeys(names):
        stand_in = _make(name, getattr(c10d, _CLASSES[name], None))
        for module in (c10d, dist):
            setattr(module, _CLASSES[name], stand_in)
        setattr(c10d, f"_{name.upper()}_AVAILABLE", True)
    _register_as_torch_can_use(dist)
    if "nccl" in names:
        _prepare_for_nccl(c10d)


def _is_ours(thing, name):
    return type(thing).__name__ == "ProcessGroupTutti" and thing.name() == name


def _prepare_for_nccl(c10d):
    if c10d.default_pg_nccl_timeout is None:  # A torch that was built without NCCL.
        c10d.default_pg_nccl_timeout = _LIMITS["nccl"]
    original = c10d._get_split_source

    def _get_split_source(group):
        """NCCL's options take only an object of NCCL's own class as what to split a new group from.
        A Tutti group is made at the store in any case."""
        source = original(group)
        return None if _is_ours(source, "nccl") else source

    c10d._get_split_source = _get_split_source


def _register_as_torch_can_use(dist):
    """torch's C++ takes a group of the type GLOO for an object of gloo's own class: DDP's logger reads
    a number out of it. When the compiled module was built it was found out whether our objects have
    that number at that place. Where they have not, our groups are of the type CUSTOM, and say so.
    Of groups of the type NCCL it asks first whether they are of NCCL's class.

    torch registers NCCL's groups for CUDA devices alone. Where there are none, so that such a script
    could do nothing at all, ours take CPU tensors."""
    import torch
    original = dist.ProcessGroup._register_backend
    kinds = dist.ProcessGroup.BackendType

    def _register_backend(self, device, backend_type, backend=None):
        from tutti_torch import _extension
        if _is_ours(backend, "gloo") and not _extension().like_gloo:
            backend_type = kinds.CUSTOM
            if self.name() == "gloo":
                self._set_default_backend(kinds.CUSTOM)
        original(self, device, backend_type, backend)
        cpu = torch.device("cpu")
        if (_is_ours(backend, "nccl") and torch.cuda.device_count() == 0
                and cpu not in self._device_types):
            original(self, cpu, backend_type, backend)

    dist.ProcessGroup._register_backend = _register_backend


def _make(called, original):
    from tutti_torch import _extension

    class Meta(type):
        def __instancecheck__(cls, thing):
            return original is not None and isinstance(thing, original) or _is_ours(thing, called)

        def __getattr__(cls, name):  # Options, create_device and the like.
            if original is None:
                raise AttributeError(f"{_CLASSES[called]}.{name}: torch was built without {called}")
            return getattr(original, name)

    class StandIn(metaclass=Meta):
        def __new__(cls, store, rank, size, timeout=_LIMITS[called], options=None,
                    enable_reconfigure=False):  # 2.14 and newer ask for it.
            # The classes take their options in the place of the limit as well. All but the limit is
            # ignored: gloo's devices and threads (TUTTI_NET_INTERFACES chooses networks), NCCL's
            # configuration and the priority of its stream.
            options = timeout if options is None else options
            members = getattr(options, "global_ranks_in_group", None)  # None of the default group.
            return _extension().create(store, rank, size, getattr(options, "_timeout", timeout), called,
                                       getattr(options, "group_name", ""), members or list(range(size)),
                                       apart=enable_reconfigure)

    StandIn.__name__ = StandIn.__qualname__ = _CLASSES[called]
    if original is None and called == "nccl":
        StandIn.Options = _make_options()
    return StandIn


def _make_options():
    """What torch and scripts set of NCCL's options, for a torch that was built without NCCL."""
    from torch._C._distributed_c10d import Backend

    class Options(Backend.Options):
        def __init__(self, is_high_priority_stream=False):
            super().__init__("nccl", _LIMITS["nccl"])
            self.is_high_priority_stream = is_high_priority_stream
            self.config = types.SimpleNamespace()

    return Options
