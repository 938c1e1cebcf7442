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
TUTTI_FUSED_KERNEL(rms_norm_kernel, rms_norm)
TUTTI_FUSED_KERNEL(sgd_kernel, sgd)

namespace {

template <DataType type>
const void* multimem_sum(bool any_order) {
  return any_order ? TUTTI_KERNEL_HANDLE(multimem<SwitchSum<type>>)
                   : TUTTI_KERNEL_HANDLE(multimem<CanonicalSum<type>>);
}

}  // namespace

const void* multimem_kernel(Collective collective, DataType type, bool any_order) {
  if (collective == Collective::kAllGather || collective == Collective::kBroadcast)
    return TUTTI_KERNEL_HANDLE(multimem<NoSum>);
  const bool scatters = any_order && collective == Collective::kReduceScatter;
  if (collective != Collective::kAllReduce && !scatters) return nullptr;
  switch (type) {
    case DataType::kFloat32: return multimem_sum<DataType::kFloat32>(any_order);
    case DataType::kFloat16: return multimem_sum<DataType::kFloat16>(any_order);
    case DataType::kBfloat16: return multimem_sum<DataType::kBfloat16>(any_order);
    default: return nullptr;
  }
}

}  // namespace tutti::cuda
