"""Broadcast and reduce: pi as an integral, of which each rank adds up its share of the strips.

    python -m tutti run -n 4 examples/python/pi.py 100000
"""

import sys
from array import array

import tutti

with tutti.init() as comm:
    strips = array("q", [0])
    if comm.rank == 0:
        strips[0] = int(sys.argv[1]) if len(sys.argv) > 1 else 100000
    comm.broadcast(strips)
    width = 1.0 / strips[0]
    mine = range(comm.rank, strips[0], comm.size)
    area = array("d", [width * sum(4.0 / (1.0 + ((strip + 0.5) * width) ** 2) for strip in mine)])
    if comm.reduce(area, op=tutti.SUM) is not None:
        print(f"pi is about {area[0]:.6f}")
