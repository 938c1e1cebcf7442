// File: kernels/host/reduce.h: the body of a data step on the host, for every type and operation.
#pragma once
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/form.h"
#include "tutti/types.h"

namespace tutti::kernels {

struct Source {
  const std::byte* data;
  Form form;
  bool scale =
      false;  // Multiply by Arithmetic::scale first (pre-multiplied sum, a rank's own input).
};

struct Target {
  std::byte* data;
  Form form;
};

/// The computation. `rank_count` divides the sum for avg; `scale` is this rank's pre-multiplier,
/// in both kinds so that 64-bit integers keep all their bits.
struct Arithmetic {
  DataType type = DataType::kFloat32;
  ReduceOp op = ReduceOp::kSum;
  int rank_count = 1;
  double scale = 1;
  std::int64_t integer_scale = 1;
};

/// How results are stored: through the cache, or past it. Streaming pays when the bytes written
/// exceed the share of the cache that is left for them; inside it, it loses 2-3x.
enum class Stores : std::uint8_t { kCached, kStreaming };

/// Reduces the sources in the order given, as a balanced binary tree that splits at the largest
/// power of two below n, and writes the value to all targets. A result is rounded once (and
/// divided, for avg). One source and targets of its own form: a copy, bit for bit. `count` is in
/// elements; any alignment. A target may be exactly one of the sources' memory, and must not
/// overlap them otherwise. Streaming stores are visible to peers after the next release store of
/// this thread (it fences itself).
void reduce(const Arithmetic& arithmetic, std::span<const Source> sources,
            std::span<const Target> targets, std::size_t count, Stores stores = Stores::kCached);

/// The same, one element at a time and straight from the definitions in numeric.h: what `reduce`
/// has to equal bit for bit (NaN payloads apart).
void reduce_reference(const Arithmetic& arithmetic, std::span<const Source> sources,
                      std::span<const Target> targets, std::size_t count);

/// The instruction set that `reduce` chose on this machine, "AVX3" or "AVX2" or "NEON" ….
const char* instruction_set();

}  // namespace tutti::kernels
