// File: kernels/cuda/types/kernels_int8.cu: the kernels for 8-bit integers.
#include "kernels/cuda/all.h"

TUTTI_KERNELS(kInt8)
TUTTI_KERNELS(kUint8)
