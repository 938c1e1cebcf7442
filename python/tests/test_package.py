"""The package as such: found by torch itself, standing in for gloo and NCCL, saying what is wrong."""
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
    assert code != 0 and "can't stand in for mpi; it takes: gloo, nccl" in error


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


NO_GPU = {"CUDA_VISIBLE_DEVICES": "", "TUTTI_AS": "nccl"}


def test_standing_in_for_nccl_without_a_gpu():
    """CPU tensors run there; test_cuda_as_nccl.py has the rest."""
    script = """
        import tutti_torch, torch, torch.distributed as dist
        from datetime import timedelta
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options._timeout, options.config.min_ctas = timedelta(seconds=70), 4
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1,
                                timeout=timedelta(seconds=70), pg_options=options)
        group = dist.group.WORLD
        backend = group._get_backend(torch.device("cuda"))
        print(dist.is_nccl_available(), dist.get_backend(), group.name(), backend.name(),
              type(backend).__name__, isinstance(backend, dist.ProcessGroupNCCL),
              isinstance(backend, dist.ProcessGroupGloo), backend.options._timeout.total_seconds())
        tensor = torch.ones(3)
        dist.all_reduce(tensor)
        dist.barrier()
        dist.all_gather_object([None], {"a": 1})
        other = dist.new_group([0], backend="gloo")
        dist.all_reduce(tensor, group=other)
        print(tutti_torch.describe().splitlines()[0], other._get_backend(torch.device("cpu")).name(),
              type(other._get_backend(torch.device("cpu"))).__name__)
        group._set_sequence_number_for_group()
        print(group._get_sequence_number_for_group() >= 0)
        dist.distributed_c10d._set_pg_timeout(timedelta(seconds=17))
        print(backend.options._timeout.total_seconds())
        model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(2, 2))
        model(torch.ones(1, 2)).sum().backward()
        print(model._get_ddp_logging_data()["backend_name"])
        dist.distributed_c10d._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=3))
        print(dist.distributed_c10d._get_process_group_uid(group))
        dist.distributed_c10d._abort_process_group()
        for given in (options, timedelta(seconds=70)):
            made = dist.ProcessGroupNCCL(dist.HashStore(), 0, 1, given)
            print(made.options._timeout.total_seconds())
        print(dist.ProcessGroupNCCL(dist.HashStore(), 0, 1).options._timeout.total_seconds())
    """
    code, said, error = python(script, **NO_GPU)
    assert code == 0, error
    names, described, *rest = said.splitlines()
    assert names == "True nccl nccl nccl ProcessGroupTutti True False 70.0"
    assert "communicator of 1 ranks" in described and described.endswith("gloo ProcessGroupGloo")
    assert rest == ["True", "17.0", "nccl", "-1", "70.0", "70.0", "600.0"]
    assert "can't be raised for a while" in error


def test_standing_in_for_gloo_and_nccl():
    script = """
        import tutti_torch, torch, torch.distributed as dist
        for backend in ("cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo"):
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
            backends = [dist.group.WORLD._get_backend(torch.device(kind)) for kind in ("cpu", "cuda")]
            print(*[f"{type(one).__name__} {one.name()}" for one in backends])
            dist.all_reduce(torch.ones(3))
            dist.destroy_process_group()
    """
    ours, theirs = "ProcessGroupTutti", "ProcessGroupGloo"
    for names, cpu in (("nccl,gloo", ours), ("gloo,nccl", ours), ("nccl", theirs)):
        code, said, error = python(script, **{**NO_GPU, "TUTTI_AS": names})
        assert code == 0, error
        assert said.splitlines() == 2 * [f"{cpu} gloo {ours} nccl"], names


def test_standing_in_for_nccl_where_torch_has_none():
    code, said, error = python("""
        import torch, torch.distributed as dist
        from torch.distributed import distributed_c10d as c10d
        # What a torch that was built without NCCL has: nothing of it.
        for module in (c10d, dist):
            if hasattr(module, "ProcessGroupNCCL"):
                del module.ProcessGroupNCCL
        c10d._NCCL_AVAILABLE, c10d.default_pg_nccl_timeout = False, None
        import tutti_torch
        assert dist.is_nccl_available()
        options = dist.ProcessGroupNCCL.Options(is_high_priority_stream=True)
        options.config.blocking = 0
        for given in (None, options):
            dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1,
                                    pg_options=given)
            tensor = torch.ones(3)
            dist.all_reduce(tensor)
            backend = dist.group.WORLD._get_backend(torch.device("cuda"))
            print(dist.get_backend(), type(backend).__name__, backend.options._timeout.total_seconds())
            dist.destroy_process_group()
        try:
            dist.ProcessGroupNCCL.NCCLConfig
        except AttributeError as error:
            print(error)
    """, TORCH_DEVICE_BACKEND_AUTOLOAD="0", **NO_GPU)
    assert code == 0, error
    assert said.splitlines() == 2 * ["nccl ProcessGroupTutti 600.0"] + [
        "ProcessGroupNCCL.NCCLConfig: torch was built without nccl"]


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
