#!/usr/bin/env python3
"""torch's own sum of n tensors, next to the device's copy: what users do without a library.

  perf/cuda_torch.py RESULT.json
"""
import json
import os
import statistics
import sys

import torch

BYTES = 256 << 20
ROUNDS = 9


def microseconds(work):
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    work()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def main():
    if not torch.cuda.is_available():
        sys.exit("perf/cuda_torch.py: torch sees no GPU")
    rows = []
    print(f"{'torch.sum of n tensors':72} {'us':>10} {'GB/s':>8} {'of bound':>9}", flush=True)
    for dtype in (torch.float32, torch.bfloat16):
        elements = BYTES // dtype.itemsize
        other = torch.randn(elements, dtype=dtype, device="cuda")
        target = torch.empty_like(other)
        for n in (2, 3, 4, 6, 8):
            sources = torch.randn(n, elements, dtype=dtype, device="cuda")
            times, shares = [], []
            for turn in range(ROUNDS + 1):
                copied = microseconds(lambda: target.copy_(other))
                time = microseconds(lambda: torch.sum(sources, 0, out=target))
                if turn > 0:
                    times.append(time)
                    shares.append(copied * (n + 1) / 2 / time)
            time, share = statistics.median(times), statistics.median(shares)
            what = f"{n} to 1, {str(dtype).removeprefix('torch.')}"
            rate = (n + 1) * BYTES / time / 1e3
            rows.append({"what": what, "microseconds": time, "gigabytes_per_second": rate,
                         "share_of_bound": share})
            print(f"{what:72} {time:10.2f} {rate:8.1f} {share * 100:7.1f} %", flush=True)
            del sources
            with open(sys.argv[1] + ".part", "w", encoding="utf-8") as file:
                json.dump({"torch": torch.__version__, "rows": rows}, file, indent=2)
            os.replace(file.name, sys.argv[1])


if __name__ == "__main__":
    main()
