"""A rank's record of calls in the format of torch's flight recorder.

torch's own recorder can't be written to from outside: libtorch does not export it. So a pickle is
made that its analyser reads. All versions of that take the names of NCCL alone.
"""
import json
import pickle
import time

_VERSION = "2.10"  # torch's, whose fields these are.
_STATES = {"ok": "completed", "running": "started"}


def _sizes(call, ranks):
    """Elements of a rank's input and output."""
    count, name = call["count"], call["name"]
    inputs = count * ranks if name in ("reduce_scatter", "scatter", "all_to_all") else count
    outputs = count * ranks if name in ("all_gather", "gather", "all_to_all") else count
    return inputs, outputs


def _entries(record, group, ahead_ns):
    """One for each call: a call that needs rounds to agree on a plan is the last of them."""
    calls = {}
    for call in record["calls"]:
        if call["call"] == 0:
            continue  # A message.
        calls[call["call"] - call.get("round", 0)] = call
    for number, call in calls.items():
        inputs, outputs = _sizes(call, record["ranks"])
        begin, end = call.get("begin_ns"), call.get("end_ns")
        yield {
            "record_id": number,
            "pg_id": 0,
            "process_group": group,
            "collective_seq_id": number,
            "p2p_seq_id": 0,
            "op_id": number,
            "profiling_name": "nccl:" + ("all_reduce_barrier" if call["name"] == "barrier" else call["name"]),
            "time_created_ns": (begin or record["made_ns"]) + ahead_ns,
            "duration_ms": (end - begin) / 1e6 if begin and end else None,
            "input_sizes": [[inputs]],
            "input_dtypes": [call["type"]],
            "output_sizes": [[outputs]],
            "output_dtypes": [call["type"]],
            "state": _STATES.get(call["state"], "scheduled"),
            "time_discovered_started_ns": begin + ahead_ns if begin else None,
            "time_discovered_completed_ns": end + ahead_ns if end else None,
            "retired": call["state"] == "ok",
            "timeout_ms": 0,
            "is_p2p": False,
            "frames": [],
        }


def dump(backend, prefix, group):
    import torch.distributed as dist
    group = group if group is not None else dist.group.WORLD
    name = (group.group_name, group.group_desc)
    record = json.loads(backend.flight_record())
    ranks = dist.get_process_group_ranks(group)
    config = {name[0]: {"name": name[0], "desc": name[1], "ranks": str(ranks)}}
    path = f"{prefix}{dist.get_rank()}"
    with open(path, "wb") as file:
        pickle.dump({
            "version": _VERSION,
            "pg_config": config,
            "pg_status": {},
            "entries": list(_entries(record, name, record["ahead_ns"])),
        }, file)
    return path
