// File: kernels/cuda/kernels_float16.cu: the kernels for the 16-bit floats.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/one_shot.h"
#include "kernels/cuda/two_shot.h"

namespace tutti::cuda {

TUTTI_KERNELS(kFloat16)
TUTTI_KERNELS(kBfloat16)

}  // namespace tutti::cuda
