"""What a group counts, and its record in the format of torch's flight recorder."""
import contextlib
import io
import os
import tempfile
import time

import pytest
import torch
import torch.distributed as dist

from harness import run


def test_stats_name_the_rank_that_comes_late():
    import tutti_torch

    def body(rank, world):
        tensor = torch.ones(300_000)
        for _ in range(4):
            if rank == 1:
                time.sleep(0.1)
            dist.all_reduce(tensor)
        dist.broadcast(torch.ones(3), 0)
        dist.barrier()
        return tutti_torch.stats()
    everyone = run(3, body)
    for rank, stats in enumerate(everyone):
        assert stats["calls"]["all_reduce"] == 5  # A barrier is one of a byte.
        assert stats["bytes"]["all_reduce"] == 4 * 1_200_000 + 1
        assert stats["calls"]["broadcast"] == 1
        assert stats["calls"]["all_to_all"] == 0
        assert rank not in stats["waits"]
    for rank in (0, 2):
        assert everyone[rank]["slowest_rank"] == 1
        assert everyone[rank]["waits"][1]["calls"] >= 4
        assert everyone[rank]["waits"][1]["seconds"] > 0.3
        assert everyone[rank]["wait_seconds"] <= everyone[rank]["age_seconds"]


def analyse(folder, prefix):
    """What torch's analyser makes of the dumps: its collectives and all that it prints."""
    from torch.distributed.flight_recorder import fr_trace
    from torch.distributed.flight_recorder.components.builder import build_db
    from torch.distributed.flight_recorder.components.config_manager import JobConfig
    from torch.distributed.flight_recorder.components.loader import read_dir
    assert fr_trace
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        args = JobConfig().parse_args([folder, "-p", prefix])
        details, version = read_dir(args)
        database = build_db(details, args, version)
    return database, said.getvalue()


@pytest.mark.skipif(tuple(map(int, torch.__version__.split(".")[:2])) < (2, 11),
                    reason="older analysers are not part of torch")
def test_torchs_analyser_reads_our_record():
    import tutti_torch
    with tempfile.TemporaryDirectory() as folder:
        def body(rank, world):
            dist.all_reduce(torch.ones(300_000))
            dist.all_reduce(torch.ones(300_000))
            dist.all_gather_into_tensor(torch.ones(world * 5), torch.ones(5))
            dist.broadcast(torch.ones(3), 0)
            dist.barrier()
            return tutti_torch.dump_flight_record(os.path.join(folder, "tutti_"))
        assert run(2, body) == [os.path.join(folder, f"tutti_{rank}") for rank in range(2)]
        database, said = analyse(folder, "tutti_")
    names = [one.collective_name for one in database.collectives]
    assert names.count("nccl:all_reduce") == 3, (names, said)
    assert names.count("nccl:all_gather") == 1
    assert names.count("nccl:broadcast") == 1
    assert all(one.pass_check for one in database.collectives), said


def test_a_rank_that_makes_another_call_is_found_by_the_analyser():
    import tutti_torch
    with tempfile.TemporaryDirectory() as folder:
        def body(rank, world):
            dist.all_reduce(torch.ones(300_000))
            with pytest.raises(dist.DistBackendError):
                if rank == 0:
                    dist.all_reduce(torch.ones(7))
                else:
                    dist.all_gather_into_tensor(torch.ones(world * 5), torch.ones(5))
            tutti_torch.dump_flight_record(os.path.join(folder, "tutti_"))
        run(2, body)
        database, said = analyse(folder, "tutti_")
    assert not all(one.pass_check for one in database.collectives), said
