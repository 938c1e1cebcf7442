"""Calls in the background: the average of a gradient layer by layer, while the next layer is computed.

    python -m tutti run -n 2 examples/python/overlap.py
"""

import numpy as np
import tutti

LAYERS = 4
ELEMENTS = 10000


def gradient_of(layer: int, rank: int) -> "np.ndarray[tuple[int], np.dtype[np.float32]]":
    return np.full(ELEMENTS, layer + rank, "float32")


with tutti.init() as comm:
    # Peers map this memory, so that nothing is copied on its way.
    gradients = tutti.zeros((LAYERS, ELEMENTS), "float32")
    works = []
    for layer in range(LAYERS):
        gradients[layer] = gradient_of(layer, comm.rank)
        works.append(comm.start_all_reduce(gradients[layer], op=tutti.AVG))
    averages = [float(work.result()[0]) for work in works]
    if comm.rank == 0:
        print("averages:", averages)
