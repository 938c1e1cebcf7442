"""Scatter and all-gather with NumPy: the largest eigenvalue of a matrix whose rows are shared out.

    python -m tutti run -n 4 examples/python/eigenvalue.py
"""

import numpy as np
import tutti

ROWS_OF_A_RANK = 25

with tutti.init() as comm:
    size = ROWS_OF_A_RANK * comm.size
    matrix = None
    if comm.rank == 0:
        diagonal = np.arange(1.0, size + 1)
        diagonal[-1] = 2.0 * size  # Far from the others, so that the iteration converges soon.
        matrix = np.diag(diagonal)
    rows = np.empty((ROWS_OF_A_RANK, size))
    comm.scatter(matrix, rows)

    vector = np.ones(size)
    for _ in range(60):
        product = comm.all_gather(rows @ vector).ravel()
        length = np.linalg.norm(product)
        vector = product / length
    if comm.rank == 0:
        print(f"the largest eigenvalue is {length:.3f}, and should be {2.0 * size:.3f}")
