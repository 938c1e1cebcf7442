// File: kernels/cuda/types/kernels_int16.cu: the kernels for 16-bit integers.
#include "kernels/cuda/all.h"

TUTTI_KERNELS(kInt16)
TUTTI_KERNELS(kUint16)
