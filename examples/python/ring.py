"""Messages: a list goes around the ring of ranks, and each rank adds to it.

    python -m tutti run -n 4 examples/python/ring.py
"""

from array import array

import tutti

with tutti.init() as comm:
    following, previous = (comm.rank + 1) % comm.size, (comm.rank - 1) % comm.size
    visits = array("i", [0] * comm.size)
    if comm.rank != 0:
        comm.recv(visits, previous)
    visits[comm.rank] = 10 * comm.rank
    if comm.size > 1:
        comm.send(visits, following)
    if comm.rank == 0:
        if comm.size > 1:
            comm.recv(visits, previous)
        print("round the ring:", visits.tolist())
