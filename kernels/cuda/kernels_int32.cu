// File: kernels/cuda/kernels_int32.cu: the kernels for 32-bit integers.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/one_shot.h"
#include "kernels/cuda/two_shot.h"

namespace tutti::cuda {

TUTTI_KERNELS(kInt32)
TUTTI_KERNELS(kUint32)

}  // namespace tutti::cuda
