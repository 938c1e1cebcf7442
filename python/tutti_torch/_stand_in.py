"""TUTTI_AS=gloo: scripts that name gloo run over Tutti, unmodified.

torch makes gloo's groups by calling the class ProcessGroupGloo, and asks with isinstance what it got.
A class of the same name takes its place: to call it makes a Tutti group whose name is "gloo", and such
groups are its instances. What torch itself makes for its own purposes (the helper group of
TORCH_DISTRIBUTED_DEBUG=DETAIL) goes the same way. Nothing of this happens unless it is asked for.
"""
import datetime

_NAMES = ("gloo",)


def install(names):
    unknown = [name for name in names if name not in _NAMES]
    if unknown:
        raise ValueError(f"TUTTI_AS: tutti can't stand in for {', '.join(unknown)}; it takes: "
                         + ", ".join(_NAMES))
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    stand_in = _make(getattr(c10d, "ProcessGroupGloo", None))
    c10d.ProcessGroupGloo = stand_in
    c10d._GLOO_AVAILABLE = True
    dist.ProcessGroupGloo = stand_in
    _register_as_custom_where_needed(dist)


def _register_as_custom_where_needed(dist):
    """torch's C++ takes a group of the type GLOO for an object of gloo's own class: DDP's logger reads
    a number out of it. When the compiled module was built it was found out whether our objects have
    that number at that place. Where they have not, our groups are of the type CUSTOM, and say so."""
    original = dist.ProcessGroup._register_backend
    custom = dist.ProcessGroup.BackendType.CUSTOM

    def _register_backend(self, device, backend_type, backend=None):
        from tutti_torch import _extension
        if type(backend).__name__ == "ProcessGroupTutti" and not _extension().like_gloo:
            backend_type = custom
            if self.name() == "gloo":
                self._set_default_backend(custom)
        return original(self, device, backend_type, backend)

    dist.ProcessGroup._register_backend = _register_backend


def _make(original):
    from torch._C._distributed_c10d import Backend
    from tutti_torch import _extension

    class Meta(type):
        def __instancecheck__(cls, thing):
            if original is not None and isinstance(thing, original):
                return True
            return isinstance(thing, Backend) and thing.name() == "gloo"

        def __getattr__(cls, name):  # Options, create_device and the like.
            return getattr(original, name)

    class ProcessGroupGloo(metaclass=Meta):
        def __new__(cls, store, rank, size, timeout=datetime.timedelta(minutes=30), options=None,
                    enable_reconfigure=False):  # 2.14 and newer ask for it.
            # gloo's class takes its options in the place of the limit as well. Devices and threads
            # in them are ignored; TUTTI_NET_INTERFACES chooses networks.
            timeout = getattr(timeout if options is None else options, "_timeout", timeout)
            return _extension().create(store, rank, size, timeout, "gloo", "", list(range(size)),
                                       apart=enable_reconfigure)

    return ProcessGroupGloo
