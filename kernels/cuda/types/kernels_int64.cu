// File: kernels/cuda/types/kernels_int64.cu: the kernels for 64-bit integers.
#include "kernels/cuda/all.h"

TUTTI_KERNELS(kInt64)
TUTTI_KERNELS(kUint64)
