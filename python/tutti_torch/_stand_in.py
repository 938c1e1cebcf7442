"""TUTTI_AS=gloo: scripts that name gloo run over Tutti, unmodified.

torch makes gloo's groups by calling the class ProcessGroupGloo, and asks with isinstance what it got.
A class of the same name takes its place: to call it makes a Tutti group whose name is "gloo", and such
groups are its instances. What torch itself makes for its own purposes (the helper group of
TORCH_DISTRIBUTED_DEBUG=DETAIL) goes the same way. Nothing of this happens unless it is asked for.
"""
import datetime

_NAMES = ("gloo",)
# torch's C++ takes a group of the type GLOO for an object of gloo's own class: DDP's logger reads a
# number out of it. Our objects have that number at that place for these versions of torch; with others
# our groups are of the type CUSTOM, and DDP's log calls them so.
_KNOWN_LAYOUTS = {(2, 11)}


def install(names):
    unknown = [name for name in names if name not in _NAMES]
    if unknown:
        raise ValueError(f"TUTTI_AS: tutti can't stand in for {', '.join(unknown)}; it takes: "
                         + ", ".join(_NAMES))
    import torch
    import torch.distributed as dist
    import torch.distributed.distributed_c10d as c10d
    stand_in = _make(getattr(c10d, "ProcessGroupGloo", None))
    c10d.ProcessGroupGloo = stand_in
    c10d._GLOO_AVAILABLE = True
    dist.ProcessGroupGloo = stand_in
    if tuple(int(part) for part in torch.__version__.split(".")[:2]) not in _KNOWN_LAYOUTS:
        _register_as_custom(dist)


def _register_as_custom(dist):
    original = dist.ProcessGroup._register_backend
    custom = dist.ProcessGroup.BackendType.CUSTOM

    def _register_backend(self, device, backend_type, backend=None):
        if backend is not None and isinstance(backend, _extension_types()):
            backend_type = custom
            self._set_default_backend(custom)
        return original(self, device, backend_type, backend)

    dist.ProcessGroup._register_backend = _register_backend


def _extension_types():
    from tutti_torch import _extension
    return _extension().ProcessGroupTutti


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
        def __new__(cls, store, rank, size, timeout=datetime.timedelta(minutes=30),
                    enable_reconfigure=False):  # 2.14 and newer ask for it.
            if enable_reconfigure:
                raise ValueError("tutti: a group can't be reconfigured; make another")
            return _extension().create(store, rank, size, timeout, "gloo", "", list(range(size)))

    return ProcessGroupGloo
