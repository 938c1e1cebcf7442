// File: kernels/cuda/kernels.h: the kernels' handles, by type; each family of types is a file of
// its own, as compiling them takes long.
//
// There is a kernel for each operation: one for all of them would need more registers than there
// are. avg and premulsum are sums whose leaves or results are treated.
#pragma once
#include "tutti/types.h"

namespace tutti::cuda {

template <DataType type>
const void* interpreter_of(ReduceOp op);
template <DataType type>
const void* one_shot_of(ReduceOp op);
template <DataType type>
const void* two_shot_of(ReduceOp op);

/// Defines `name`_of for kernels `kernel<type, op>`. Null: is_supported says no.
#define TUTTI_KERNEL_OF(name, kernel)                                                      \
  template <DataType type>                                                                 \
  const void* name##_of(ReduceOp op) {                                                     \
    switch (op) {                                                                          \
      case ReduceOp::kSum:                                                                 \
      case ReduceOp::kAvg:                                                                 \
      case ReduceOp::kPreMulSum: return TUTTI_KERNEL_HANDLE(kernel<type, ReduceOp::kSum>); \
      case ReduceOp::kProd: return TUTTI_KERNEL_HANDLE(kernel<type, ReduceOp::kProd>);     \
      case ReduceOp::kMax: return TUTTI_KERNEL_HANDLE(kernel<type, ReduceOp::kMax>);       \
      case ReduceOp::kMin: return TUTTI_KERNEL_HANDLE(kernel<type, ReduceOp::kMin>);       \
      case ReduceOp::kAnd:                                                                 \
      case ReduceOp::kOr:                                                                  \
      case ReduceOp::kXor: break;                                                          \
    }                                                                                      \
    if constexpr (is_integer(type)) {                                                      \
      if (op == ReduceOp::kAnd) return TUTTI_KERNEL_HANDLE(kernel<type, ReduceOp::kAnd>);  \
      if (op == ReduceOp::kOr) return TUTTI_KERNEL_HANDLE(kernel<type, ReduceOp::kOr>);    \
      return TUTTI_KERNEL_HANDLE(kernel<type, ReduceOp::kXor>);                            \
    }                                                                                      \
    return nullptr;                                                                        \
  }

}  // namespace tutti::cuda

/// Compiles the kernels for a type.
#define TUTTI_KERNELS(enumerator)                                                                 \
  template const void* tutti::cuda::interpreter_of<tutti::DataType::enumerator>(tutti::ReduceOp); \
  template const void* tutti::cuda::one_shot_of<tutti::DataType::enumerator>(tutti::ReduceOp);    \
  template const void* tutti::cuda::two_shot_of<tutti::DataType::enumerator>(tutti::ReduceOp);
