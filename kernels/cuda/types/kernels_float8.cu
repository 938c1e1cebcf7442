// File: kernels/cuda/types/kernels_float8.cu: the kernels for the 8-bit floats.
#include "kernels/cuda/all.h"

TUTTI_KERNELS(kFloat8E4M3)
TUTTI_KERNELS(kFloat8E5M2)
