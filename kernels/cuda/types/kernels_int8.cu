// File: kernels/cuda/types/kernels_int8.cu: the kernels for 8-bit integers.
#include "kernels/cuda/all.h"

namespace tutti::cuda {

TUTTI_KERNELS(kInt8)
TUTTI_KERNELS(kUint8)

}  // namespace tutti::cuda
