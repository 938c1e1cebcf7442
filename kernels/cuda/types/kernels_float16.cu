// File: kernels/cuda/types/kernels_float16.cu: the kernels for the 16-bit floats.
#include "kernels/cuda/all.h"

TUTTI_KERNELS(kFloat16)
TUTTI_KERNELS(kBfloat16)
