// File: kernels/host/accumulate.h: adds to memory that others add to at the same time.
#pragma once
#include <cstddef>

#include "tutti/types.h"

namespace tutti::kernels {

/// Whether that can be done to elements of this type: not with an average or a scaled sum, nor with
/// a type or an operation that does not exist.
constexpr bool may_accumulate(DataType type, ReduceOp op) {
  return size_of(type) != 0 && op <= ReduceOp::kXor && op != ReduceOp::kAvg &&
         op != ReduceOp::kPreMulSum && is_supported(type, op);
}

/// target[i] = op(target[i], source[i]), rounded, for `count` elements, each of them atomic towards
/// other calls of this on the same memory, in any process that maps it. `target` is aligned to the
/// element; they don't overlap. Never blocks: a rank that stops in it holds nobody up. Orders no
/// other memory.
void accumulate(DataType type, ReduceOp op, const std::byte* source, std::byte* target,
                std::size_t count);

}  // namespace tutti::kernels
