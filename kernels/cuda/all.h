// File: kernels/cuda/all.h: the kernels that there are for every type and operation.
#pragma once
#include "kernels/cuda/interpret.h"
#include "kernels/cuda/kernels.h"
#include "kernels/cuda/one_shot.h"
#include "kernels/cuda/two_shot.h"

namespace tutti::cuda {

TUTTI_KERNEL_OF(interpreter, interpret)
TUTTI_KERNEL_OF(one_shot, one_shot)
TUTTI_KERNEL_OF(two_shot, two_shot)

}  // namespace tutti::cuda
