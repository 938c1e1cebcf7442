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
    plugins = getattr(dist.Backend, "_plugins", {})
    if "GLOO" in plugins:  # 2.14 and newer: the built-in ones are plugins too.
        from tutti_torch import _create
        dist.Backend._plugins["GLOO"] = plugins["GLOO"]._replace(
            creator_fn=lambda options, more=None: _create(options, more, "gloo"))


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
        def __new__(cls, store, rank, size, timeout=datetime.timedelta(minutes=30)):
            return _extension().create(store, rank, size, timeout, "gloo", "", list(range(size)))

    return ProcessGroupGloo
