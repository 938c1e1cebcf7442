"""DDP's hooks that send fewer bytes: they train nearly as well as plain averages, all ranks have the
same parameters, and a state that was kept goes on as if nothing had happened."""
import pickle

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from harness import run, same
from tutti_torch import compression

WIRES = ["float16", "bfloat16", "int8", "float8", "int8:nearest"]
STATES = {
    "top-k": lambda: compression.TopKState(ratio=0.1),
    "one bit": compression.OneBitState,
    "PowerSGD": lambda: compression.PowerSgdState(rank=2),
}


def model():
    torch.manual_seed(7)
    return nn.Sequential(nn.Linear(20, 40), nn.Tanh(), nn.Linear(40, 3))


def batch(rank, step):
    """Inputs, and what a fixed network makes of them."""
    generator = torch.Generator().manual_seed(1000 * rank + step)
    inputs = torch.randn(16, 20, generator=generator)
    weights = torch.randn(20, 3, generator=torch.Generator().manual_seed(5)) / 5
    return inputs, torch.tanh(inputs @ weights)


def register(wrapped, what):
    if what is None:
        return None
    if isinstance(what, str) and what not in STATES:
        wrapped.register_comm_hook(compression.WireState(what), compression.wire_hook)
        return None
    state = STATES[what]() if isinstance(what, str) else what
    wrapped.register_comm_hook(state, compression.compressed_hook)
    return state


def train(wrapped, rank, steps):
    optimizer = torch.optim.SGD(wrapped.parameters(), lr=0.2)
    losses = []
    for step in steps:
        inputs, wanted = batch(rank, step)
        optimizer.zero_grad()
        loss = nn.functional.mse_loss(wrapped(inputs), wanted)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


def trained(what, world=2, steps=150):
    def body(rank, _):
        net = model()
        wrapped = DistributedDataParallel(net, bucket_cap_mb=0.001)
        register(wrapped, what)
        losses = train(wrapped, rank, range(steps))
        return sum(losses[-10:]) / 10, losses[0], [p.detach().clone() for p in net.parameters()]
    return run(world, body)


@pytest.fixture(scope="module")
def plain():
    return trained(None)


@pytest.mark.parametrize("what", WIRES + list(STATES))
def test_training_converges_and_ranks_are_alike(what, plain):
    ours = trained(what)
    assert same(ours[0][2], ours[1][2])
    assert not same(ours[0][2], plain[0][2])  # Something was left out.
    loss, first, _ = ours[0]
    assert loss < first / 4
    assert loss < plain[0][0] * 1.5


@pytest.mark.parametrize("what", ["int8", *STATES])
def test_three_ranks_are_alike(what):
    ours = trained(what, world=3, steps=20)
    assert same(ours[0][2], ours[1][2]) and same(ours[0][2], ours[2][2])


@pytest.mark.parametrize("kept", ["pickle", "state dict"])
@pytest.mark.parametrize("what", STATES)
def test_a_state_that_was_kept_goes_on(what, kept):
    """What a state left out before it was kept comes after the plain steps, as from one that never
    was; one that has forgotten it trains to other parameters."""
    def body(rank, _):
        net = model()
        wrapped = DistributedDataParallel(net, bucket_cap_mb=0.001)
        state = register(wrapped, what)
        train(wrapped, rank, range(10))
        left_out = state.state_dict()
        if kept == "pickle":
            again = pickle.loads(pickle.dumps(state))
        else:
            again = STATES[what]()
            again.load_state_dict(left_out)
        assert same(again.state_dict()["buckets"], left_out["buckets"])
        assert again.steps == 0 and state.steps == 10
        state.steps = 0  # The plain steps come anew.
        answers = []
        for going_on in (again, STATES[what](), state):
            copy = model()
            copy.load_state_dict(net.state_dict())
            resumed = DistributedDataParallel(copy, bucket_cap_mb=0.001)
            register(resumed, going_on)
            train(resumed, rank, range(10, 20))
            answers.append([p.detach().clone() for p in copy.parameters()])
        return answers
    for kept_on, forgotten, straight in run(2, body):
        assert same(kept_on, straight)
        assert not same(forgotten, straight)


def test_a_wire_state_can_be_pickled():
    again = pickle.loads(pickle.dumps(compression.WireState("bfloat16:stochastic")))
    assert again.wire == "bfloat16:stochastic" and again.group is None


def test_a_sum_on_a_wire_is_rounded():
    def body(rank, world):
        odd = torch.full((100,), 1 + 2.0**-20)  # No bfloat16.
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        backend.all_reduce_on_wire(odd, "bfloat16").wait()
        return odd
    assert same(run(2, body), [torch.ones(100)] * 2)


@pytest.mark.parametrize("wire, tensor, error", [
    ("int4", torch.ones(4), "there is no wire 'int4'"),
    ("int8", torch.ones(4, dtype=torch.float64), "the wire int8 is for float32, not float64"),
])
def test_what_a_wire_does_not_take(wire, tensor, error):
    def body(rank, world):
        backend = dist.group.WORLD._get_backend(torch.device("cpu"))
        with pytest.raises(RuntimeError, match=error):
            backend.all_reduce_on_wire(tensor.clone(), wire).wait()
    run(2, body)


def test_arguments():
    for make in (lambda: compression.TopKState(ratio=0), lambda: compression.PowerSgdState(rank=0),
                 lambda: compression.OneBitState(start=1)):
        with pytest.raises(ValueError):
            make()
    state = compression.TopKState()
    with pytest.raises(RuntimeError, match="the state has 3 elements"):
        state.load_state_dict({"buckets": {0: ([(2, 2)], [torch.zeros(3)])}})
