"""DTensor's operations over Tutti, with what torch's own suite for DTensor is made with."""
import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.testing._internal.distributed._tensor import common_dtensor

from harness import run, same


def operations(generator):
    def tensor(*shape):
        return torch.randn(*shape, generator=generator)
    wide, tall, square = tensor(6, 12), tensor(12, 6), tensor(12, 12)
    return [
        (torch.add, (wide, tensor(6, 12))), (torch.matmul, (wide, tall)),
        (torch.addmm, (tensor(12), square, square)), (torch.bmm, (tensor(6, 2, 3), tensor(6, 3, 2))),
        (torch.sum, (wide,)), (torch.mean, (wide, 0)), (torch.amax, (wide, 1)),
        (torch.softmax, (wide, 1)), (torch.nn.functional.gelu, (wide,)), (torch.var, (wide, 0)),
        (torch.nn.functional.layer_norm, (wide, (12,), tensor(12), tensor(12))),
        (torch.cat, ([wide, wide], 0)), (torch.transpose, (wide, 0, 1)), (torch.sort, (wide, 0)),
        (torch.nn.functional.embedding, (torch.arange(12).view(2, 6), square)),
        (torch.cumsum, (wide, 0)), (torch.argmax, (wide, 1)),
    ]


@pytest.mark.parametrize("world", [2, 3])
def test_operations_for_all_placements(world, seed):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        answers = []
        for operation, arguments in operations(torch.Generator().manual_seed(seed)):
            want = operation(*arguments)
            converter = common_dtensor.DTensorConverter(mesh, arguments, {})
            for given, _ in converter:
                got = operation(*given)
                pairs = zip(got, want) if isinstance(want, tuple) else [(got, want)]
                for mine, other in pairs:
                    mine = mine.full_tensor() if isinstance(mine, DTensor) else mine
                    assert torch.allclose(mine, other, rtol=1e-4, atol=1e-5), operation
                    answers.append(mine)
            assert converter.successful()
        return answers
    ours = run(world, body)
    assert len(ours[0]) > 60
    for others in ours[1:]:
        assert same(ours[0], others)  # The same bits on every rank,
    if world == 2:
        assert same(ours, run(world, body, backend="gloo"))  # and those of gloo's sums of two.


@pytest.mark.parametrize("sequence_parallel", [False, True])
def test_a_tensor_parallel_transformer(sequence_parallel):
    def body(rank, world):
        mesh = init_device_mesh("cpu", (world,))
        arguments = common_dtensor.ModelArgs(dropout_p=0.0)
        torch.manual_seed(0)
        net = common_dtensor.Transformer(arguments)
        # torch has no way to share out the CPU's attention itself.
        net = common_dtensor.Transformer.parallelize(net, mesh, sequence_parallel,
                                                     local_output_for_attn=True)
        tokens = torch.arange(8 * 16).view(8, 16) % arguments.vocab_size
        optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
        losses = []
        for _ in range(3):
            output = net(tokens)
            output = output.full_tensor() if isinstance(output, DTensor) else output
            loss = nn.functional.cross_entropy(output.flatten(0, 1), tokens.flatten())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.detach())
        assert losses[-1] < losses[0]
        return losses
    assert same(run(2, body), run(2, body, backend="gloo"))
