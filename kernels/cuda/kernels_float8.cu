// File: kernels/cuda/kernels_float8.cu: the kernels for the 8-bit floats.
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/one_shot.h"
#include "kernels/cuda/two_shot.h"

namespace tutti::cuda {

TUTTI_KERNELS(kFloat8E4M3)
TUTTI_KERNELS(kFloat8E5M2)

}  // namespace tutti::cuda
