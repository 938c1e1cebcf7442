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
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value)          \
  template <>                                                    \
  const void* interpreter_of<DataType::enumerator>(ReduceOp op); \
  template <>                                                    \
  const void* one_shot_of<DataType::enumerator>(ReduceOp op);    \
  template <>                                                    \
  const void* two_shot_of<DataType::enumerator>(ReduceOp op);
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE

/// The kernel `name<type, op>`. Null: is_supported says no.
#define TUTTI_KERNEL_OF(name, type, op)                                                \
  switch (op) {                                                                        \
    case ReduceOp::kSum:                                                               \
    case ReduceOp::kAvg:                                                               \
    case ReduceOp::kPreMulSum: return TUTTI_KERNEL_HANDLE(name<type, ReduceOp::kSum>); \
    case ReduceOp::kProd: return TUTTI_KERNEL_HANDLE(name<type, ReduceOp::kProd>);     \
    case ReduceOp::kMax: return TUTTI_KERNEL_HANDLE(name<type, ReduceOp::kMax>);       \
    case ReduceOp::kMin: return TUTTI_KERNEL_HANDLE(name<type, ReduceOp::kMin>);       \
    case ReduceOp::kAnd:                                                               \
    case ReduceOp::kOr:                                                                \
    case ReduceOp::kXor: break;                                                        \
  }                                                                                    \
  if constexpr (is_integer(type)) {                                                    \
    if (op == ReduceOp::kAnd) return TUTTI_KERNEL_HANDLE(name<type, ReduceOp::kAnd>);  \
    if (op == ReduceOp::kOr) return TUTTI_KERNEL_HANDLE(name<type, ReduceOp::kOr>);    \
    return TUTTI_KERNEL_HANDLE(name<type, ReduceOp::kXor>);                            \
  }                                                                                    \
  return nullptr;

/// Defines the kernels for a type.
#define TUTTI_KERNELS(enumerator)                                 \
  template <>                                                     \
  const void* interpreter_of<DataType::enumerator>(ReduceOp op) { \
    TUTTI_KERNEL_OF(interpret, DataType::enumerator, op)          \
  }                                                               \
  template <>                                                     \
  const void* one_shot_of<DataType::enumerator>(ReduceOp op) {    \
    TUTTI_KERNEL_OF(one_shot, DataType::enumerator, op)           \
  }                                                               \
  template <>                                                     \
  const void* two_shot_of<DataType::enumerator>(ReduceOp op) {    \
    TUTTI_KERNEL_OF(two_shot, DataType::enumerator, op)           \
  }

}  // namespace tutti::cuda
