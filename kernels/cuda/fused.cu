// File: kernels/cuda/fused.cu: the fused kernels, for the types that models are trained and run in.
#include "kernels/cuda/fused.h"

#include "kernels/cuda/multimem.h"
#include "kernels/cuda/rms_norm.h"
#include "kernels/cuda/sgd.h"

namespace tutti::cuda {

#define TUTTI_FUSED_KERNEL(function, kernel)                                             \
  const void* function(DataType type) {                                                  \
    switch (type) {                                                                      \
      case DataType::kFloat32: return TUTTI_KERNEL_HANDLE(kernel<DataType::kFloat32>);   \
      case DataType::kFloat16: return TUTTI_KERNEL_HANDLE(kernel<DataType::kFloat16>);   \
      case DataType::kBfloat16: return TUTTI_KERNEL_HANDLE(kernel<DataType::kBfloat16>); \
      default: return nullptr;                                                           \
    }                                                                                    \
  }
TUTTI_FUSED_KERNEL(multimem_all_reduce_kernel, multimem_all_reduce)
TUTTI_FUSED_KERNEL(rms_norm_kernel, rms_norm)
TUTTI_FUSED_KERNEL(sgd_kernel, sgd)
const void* multimem_broadcast_kernel() { return TUTTI_KERNEL_HANDLE(multimem_broadcast); }

}  // namespace tutti::cuda
