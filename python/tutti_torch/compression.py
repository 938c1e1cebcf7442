"""Hooks of DistributedDataParallel that send fewer bytes: `model.register_comm_hook(state, hook)`.

    from tutti_torch import compression
    model = DistributedDataParallel(module)
    model.register_comm_hook(compression.WireState("int8"), compression.wire_hook)
    model.register_comm_hook(compression.TopKState(ratio=0.01), compression.compressed_hook)

A wire rounds each value (docs/compression.md); calls overlap with the backward pass, and tensors may
be on CUDA devices. TopKState, OneBitState and PowerSgdState leave most of a gradient out and add what
is missing to the next one; their calls are synchronous, and tensors on the CPU. Gradients are
float32. All ranks have states of the same arguments, and get the same bits.

A state with error feedback belongs to one model, and can be pickled or kept as a state dict. It is
another one on each rank, so each rank keeps its own. The group is not part of it.
"""
import torch
import torch.distributed as dist

from tutti_torch import _backend, _extension


class WireState:
    """How gradients travel: "float16", "bfloat16", "int8" or "float8", with ":nearest" or
    ":stochastic" behind it for another rounding than the usual one."""

    def __init__(self, wire="int8", group=None):
        self.wire = wire
        self.group = group

    def __getstate__(self):
        return {"wire": self.wire}

    def __setstate__(self, state):
        self.__init__(state["wire"])


def wire_hook(state, bucket):
    """Averages the bucket over a wire. `state`: a WireState."""
    buffer = bucket.buffer()
    work = _backend("compression.wire_hook", state.group, buffer.device).all_reduce_on_wire(
        buffer, state.wire)
    return work.get_future().then(lambda future: future.value()[0])


class _FeedbackState:
    """What the three have in common. The first `start` steps are plain averages: DDP cuts its buckets
    anew after the first one, and what was left out of a bucket has to come in the same bucket."""

    def __init__(self, group, start):
        if start < 2:
            raise ValueError("start: buckets are cut anew after the first step; at least 2")
        self.group = group
        self.start = start
        self.steps = 0
        self._buckets = {}  # By the bucket's index: the shapes of its parameters, and compressors.

    def _make(self, shapes):
        """The compressors of a bucket, a list."""
        raise NotImplementedError

    def _average(self, compressors, bucket, backend):
        raise NotImplementedError

    def compressors_of(self, bucket):
        shapes = [tuple(tensor.shape) for tensor in bucket.gradients()]
        known = self._buckets.get(bucket.index())
        if known is None or known[0] != shapes:
            known = self._buckets[bucket.index()] = (shapes, self._make(shapes))
        return known[1]

    def state_dict(self):
        """The steps, and by bucket the shapes of its parameters and what was left out."""
        return {"steps": self.steps,
                "buckets": {index: (shapes, [one.state() for one in compressors])
                            for index, (shapes, compressors) in self._buckets.items()}}

    def load_state_dict(self, state):
        """Goes on from a state dict of the same arguments and model. Then come `start` plain steps,
        as DDP cuts its buckets anew; what was left out before them comes after them."""
        buckets = {}
        for index, (shapes, tensors) in state["buckets"].items():
            shapes = [tuple(shape) for shape in shapes]
            compressors = self._make(shapes)
            if len(compressors) != len(tensors):
                raise ValueError("this state dict is of other arguments")
            for compressor, tensor in zip(compressors, tensors):
                compressor.restore(tensor)
            buckets[index] = (shapes, compressors)
        self._buckets = buckets
        self.steps = 0

    def __getstate__(self):
        arguments = {name: value for name, value in vars(self).items()
                     if name not in ("group", "steps", "_buckets")}
        return {"arguments": arguments, "state": self.state_dict()}

    def __setstate__(self, state):
        self.__init__(**state["arguments"])
        self.load_state_dict(state["state"])


class TopKState(_FeedbackState):
    """The share `ratio` of a bucket's elements that is largest in magnitude: 8 bytes each."""

    def __init__(self, ratio=0.01, group=None, start=2):
        super().__init__(group, start)
        if not 0 < ratio <= 1:
            raise ValueError("ratio: more than 0, at most 1")
        self.ratio = ratio

    def _make(self, shapes):
        count = _elements(shapes)
        return [_extension().TopK(count, max(1, round(count * self.ratio)))]

    def _average(self, compressors, bucket, backend):
        compressors[0].average(backend, bucket.buffer())


class OneBitState(_FeedbackState):
    """The sign of each element, and a scale for each bucket."""

    def __init__(self, group=None, start=2):
        super().__init__(group, start)

    def _make(self, shapes):
        return [_extension().OneBit(_elements(shapes))]

    def _average(self, compressors, bucket, backend):
        compressors[0].average(backend, bucket.buffer())


class PowerSgdState(_FeedbackState):
    """Each matrix as the product of two thin ones of `rank` columns; a tensor of more dimensions is a
    matrix of its first one by the others. Vectors, such as biases, are averaged as they are."""

    def __init__(self, rank=1, group=None, start=2):
        super().__init__(group, start)
        if rank < 1:
            raise ValueError("rank: at least 1")
        self.rank = rank

    def _make(self, shapes):
        return [_extension().PowerSgd(shape[0], _elements([shape]) // shape[0], self.rank)
                for shape in shapes if _is_matrix(shape)]

    def _average(self, compressors, bucket, backend):
        compressors = iter(compressors)
        vectors = []
        for gradient in bucket.gradients():
            if _is_matrix(gradient.shape):
                next(compressors).average(backend, gradient)
            else:
                vectors.append(gradient)
        if not vectors:
            return
        flat = torch.cat([vector.reshape(-1) for vector in vectors])
        dist.all_reduce(flat, dist.ReduceOp.AVG, group=self.group)
        for vector, average in zip(vectors, flat.split([vector.numel() for vector in vectors])):
            vector.copy_(average.view_as(vector))


def compressed_hook(state, bucket):
    """Averages the bucket and leaves most of it out. `state`: a TopKState, OneBitState or
    PowerSgdState."""
    buffer = bucket.buffer()
    plain = state.steps < state.start
    if bucket.is_last():
        state.steps += 1
    if plain:
        work = dist.all_reduce(buffer, dist.ReduceOp.AVG, group=state.group, async_op=True)
        return work.get_future().then(lambda future: future.value()[0])
    state._average(state.compressors_of(bucket), bucket,
                   _backend("compression.compressed_hook", state.group))
    future = torch.futures.Future()
    future.set_result(buffer)
    return future


def _elements(shapes):
    return sum(torch.Size(shape).numel() for shape in shapes)


def _is_matrix(shape):
    return len(shape) >= 2 and torch.Size(shape).numel() > 0
