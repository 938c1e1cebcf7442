// File: kernels/cuda/types/kernels_int32.cu: the kernels for 32-bit integers.
#include "kernels/cuda/all.h"

TUTTI_KERNELS(kInt32)
TUTTI_KERNELS(kUint32)
