// File: kernels/cuda/types/kernels_float.cu: the kernels for float32 and float64.
#include "kernels/cuda/all.h"

TUTTI_KERNELS(kFloat32)
TUTTI_KERNELS(kFloat64)
