"""Recovery: one rank dies, and the others go on without it.

    python -m tutti run -n 3 --elastic examples/python/survivors.py
"""

import os
import signal
from array import array

import tutti

comm = tutti.init()
total = array("q", [0])
for step in range(10):
    if comm.rank == 1 and step == 5 and comm.size == 3:
        os.kill(os.getpid(), signal.SIGKILL)  # An accident.
    total[0] = 1
    try:
        comm.all_reduce(total)
    except tutti.PeerFailedError as error:
        print(f"rank {error.peer} on {error.host} is lost", flush=True)
        comm = comm.shrink().communicator
        total[0] = 1
        comm.all_reduce(total)
print(f"rank {comm.rank} of {comm.size} ends; the last sum was {total[0]}", flush=True)
comm.close()
