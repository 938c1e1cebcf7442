// File: kernels/cuda/types/kernels_int16.cu: the kernels for 16-bit integers.
#include "kernels/cuda/all.h"

namespace tutti::cuda {

TUTTI_KERNELS(kInt16)

}  // namespace tutti::cuda
