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
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value) \
  template <>                                           \
  const void* interpreter_of<DataType::enumerator>(ReduceOp op);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE

/// Defines interpreter_of for a type. Null: is_supported says no.
#define TUTTI_INTERPRETER(enumerator)                                                          \
  template <>                                                                                  \
  const void* interpreter_of<DataType::enumerator>(ReduceOp op) {                              \
    constexpr DataType kType = DataType::enumerator;                                           \
    switch (op) {                                                                              \
      case ReduceOp::kSum:                                                                     \
      case ReduceOp::kAvg:                                                                     \
      case ReduceOp::kPreMulSum: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kSum>); \
      case ReduceOp::kProd: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kProd>);     \
      case ReduceOp::kMax: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kMax>);       \
      case ReduceOp::kMin: return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kMin>);       \
      case ReduceOp::kAnd:                                                                     \
      case ReduceOp::kOr:                                                                      \
      case ReduceOp::kXor: break;                                                              \
    }                                                                                          \
    if constexpr (is_integer(kType)) {                                                         \
      if (op == ReduceOp::kAnd) return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kAnd>);  \
      if (op == ReduceOp::kOr) return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kOr>);    \
      return TUTTI_KERNEL_HANDLE(interpret<kType, ReduceOp::kXor>);                            \
    }                                                                                          \
    return nullptr;                                                                            \
  }

}  // namespace tutti::cuda
