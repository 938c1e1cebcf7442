"""The package as such: found by torch itself, standing in for gloo, saying what is wrong."""
import os
import subprocess
import sys
import textwrap

import pytest


def python(code, **environment):
    done = subprocess.run([sys.executable, "-W", "ignore", "-c", textwrap.dedent(code)], text=True,
                          capture_output=True, timeout=120, env={**os.environ, **environment})
    return done.returncode, done.stdout, done.stderr


def installed():
    from importlib import metadata
    return any(entry.name == "tutti" for entry in metadata.entry_points(group="torch.backends"))


@pytest.mark.skipif(not installed(), reason="tutti_torch is not installed, only on the path")
def test_no_import_is_needed():
    code, said, error = python("""
        import torch.distributed as dist
        assert dist.Backend.TUTTI == "tutti"
        import sys
        assert "tutti_torch" in sys.modules and "tutti_torch._C" not in sys.modules
    """)
    assert code == 0, error


def test_standing_in_for_gloo():
    script = """
        import tutti_torch, torch, torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        dist.monitored_barrier()
        print(dist.get_backend())
        try:
            print(tutti_torch.describe().splitlines()[0])
        except Exception as error:
            print("not ours")
        dist.destroy_process_group()
    """
    code, said, error = python(script, TUTTI_AS="gloo")
    assert code == 0, error
    assert said.splitlines()[0] == "gloo" and "communicator of 1 ranks" in said
    code, said, error = python(script, TUTTI_AS="")
    assert code == 0, error
    assert said.splitlines() == ["gloo", "not ours"]
    code, _, error = python("import tutti_torch", TUTTI_AS="mpi")
    assert code != 0 and "can't stand in for mpi; it takes: gloo" in error


def test_standing_in_for_gloo_by_name_and_options():
    """Its name everywhere, its options in its constructor, and what DDP logs of gloo."""
    script = """
        import os, tutti_torch, torch, torch.distributed as dist
        from datetime import timedelta
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        group = dist.group.WORLD
        backend = group._get_backend(torch.device("cpu"))
        print(group.name(), backend.name(), dist.get_backend(), isinstance(backend, dist.ProcessGroupGloo))
        if hasattr(group, "_set_sequence_number_for_group"):  # Until torch 2.14.
            group._set_sequence_number_for_group()
        print(group._get_sequence_number_for_group() >= 0)
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        log = model._get_ddp_logging_data()
        print(log["backend_name"], log["gloo_num_threads"])
        options = dist.ProcessGroupGloo._Options()
        options._timeout = timedelta(seconds=17)
        options._devices = [dist.ProcessGroupGloo.create_default_device()]
        for given in (options, timedelta(seconds=17)):
            made = dist.ProcessGroupGloo(dist.HashStore(), 0, 1, given)
            print(made.options._timeout.total_seconds())
        dist.destroy_process_group()
    """
    said = {}
    for names in ("gloo", ""):
        code, said[names], error = python(script, TUTTI_AS=names)
        assert code == 0, error
    assert said["gloo"] == said[""]
    assert said["gloo"].splitlines()[0] == "gloo gloo gloo True"


def test_tensors_are_shared_where_the_environment_says_so():
    script = """
        import tutti_torch, torch, torch.distributed as dist
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
        small, large = torch.ones(1 << 13), torch.ones(1 << 18)
        print(tutti_torch._extension().pool_use()[0])
    """
    code, said, error = python(script, TUTTI_AS="gloo", TUTTI_SHARE_TENSORS="1M")
    assert code == 0, error
    assert int(said) == 1 << 20
    code, said, error = python(script, TUTTI_AS="gloo", TUTTI_SHARE_TENSORS="")
    assert code == 0, error
    assert int(said) == 0
    code, _, error = python(script, TUTTI_AS="gloo", TUTTI_SHARE_TENSORS="much")
    assert code != 0 and "'much' is not a size" in error


def test_every_operator_runs_on_shared_tensors():
    """oneDNN allocates through the raw interface of torch's allocator: small blocks and large."""
    code, said, error = python("""
        import threading, torch, tutti_torch
        from torch.nn import functional as F
        early = torch.ones(1 << 18)  # Of the allocator that was there before.
        tutti_torch.enable_shared_allocator(64 << 10)
        def train(model, *inputs):
            optimizer = torch.optim.SGD(model.parameters(), 0.01)
            for _ in range(3):
                output = model(*inputs)
                output = output[0] if isinstance(output, tuple) else output
                output.float().sum().backward()
                optimizer.step()
                optimizer.zero_grad()
            assert bool(output.isfinite().all())
        for size in (16, 96):
            train(torch.nn.Conv2d(3, 8, 3), torch.randn(2, 3, size, size))
            train(torch.nn.LSTM(size, size), torch.randn(4, 32, size))
            train(torch.nn.Linear(64, 8 * size).bfloat16(), torch.randn(size, 64).bfloat16())
            train(torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.GELU()), torch.randn(size, 64))
            train(torch.nn.TransformerEncoderLayer(64, 4, batch_first=True), torch.randn(2, size, 64))
        # Freed by another thread, copied on write, shared with a child, resized.
        large = torch.ones(1 << 18)
        copy = torch._lazy_clone(large)
        copy[0] = 2
        assert large[0] == 1 and copy[0] == 2
        large.resize_(1 << 19)
        held = [large, copy, early, torch.ones(3)]
        del large, copy, early
        thread = threading.Thread(target=held.clear)
        thread.start()
        thread.join()
        import gc
        gc.collect()
        used, kept = tutti_torch._extension().pool_use()
        print(used, kept > 0)
    """)
    assert code == 0, error
    used, kept = said.split()
    assert int(used) == 0 and kept == "True", said
