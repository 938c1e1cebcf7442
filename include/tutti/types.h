// File: tutti/types.h: the vocabulary that every other file speaks.
#pragma once
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "tutti/export.h"

namespace tutti {

/// Element types. The list is `data_types.def`; the numeric values are part of the C ABI.
enum class DataType : std::uint8_t {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value) enumerator = value,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
};

/// Reductions. `kAvg` divides the sum by the rank count. `kPreMulSum` sums scale * x, each rank
/// with its own scale. The bitwise ones take integers only. The numeric values are part of the C
/// ABI.
enum class ReduceOp : std::uint8_t {
#define TUTTI_REDUCE_OP(enumerator, text, value) enumerator = value,
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
};

/// The collectives. `count` means: all-reduce and broadcast, elements in the whole message;
/// all-gather, elements that each rank gives; reduce-scatter, elements that each rank gets.
enum class Collective : std::uint8_t {
  kAllReduce = 0,
  kReduceScatter = 1,
  kAllGather = 2,
  kBroadcast = 3
};
inline constexpr int kCollectiveCount = 4;

/// A position in a communicator. A type of its own: a rank is never a count, an index or a lane.
struct Rank {
  std::int32_t value = -1;
  friend constexpr auto operator<=>(Rank, Rank) = default;
};

/// What a result may depend on. `kDeterministic`: the inputs, the rank count and the operation
/// only. `kRelaxed`: any order of reduction may be used if it is faster.
enum class Contract : std::uint8_t { kDeterministic, kRelaxed };

constexpr std::size_t size_of(DataType type) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value) \
  case DataType::enumerator:                            \
    return bytes;
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return 0;
}

constexpr std::string_view to_string(DataType type) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value) \
  case DataType::enumerator:                            \
    return text;
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return "unknown type";
}

constexpr std::string_view to_string(ReduceOp op) {
  switch (op) {
#define TUTTI_REDUCE_OP(enumerator, text, value) \
  case ReduceOp::enumerator:                     \
    return text;
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
  }
  return "unknown operation";
}

constexpr std::string_view to_string(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce: return "all_reduce";
    case Collective::kReduceScatter: return "reduce_scatter";
    case Collective::kAllGather: return "all_gather";
    case Collective::kBroadcast: return "broadcast";
  }
  return "unknown collective";
}

constexpr bool is_integer(DataType type) {
  return type == DataType::kInt8 || type == DataType::kUint8 || type == DataType::kInt32 ||
         type == DataType::kUint32 || type == DataType::kInt64 || type == DataType::kUint64;
}

constexpr bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kAnd || op == ReduceOp::kOr || op == ReduceOp::kXor;
}

constexpr bool reduces(Collective collective) {
  return collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
}

/// The type in which partial sums of `type` are held and travel: float32 for the 16- and 8-bit
/// floats.
constexpr DataType accumulator_of(DataType type) {
  switch (type) {
    case DataType::kFloat16:
    case DataType::kBfloat16:
    case DataType::kFloat8E4M3:
    case DataType::kFloat8E5M2: return DataType::kFloat32;
    default: return type;
  }
}

/// Every type and operation goes together, except a bitwise operation and a floating-point type.
constexpr bool is_supported(DataType type, ReduceOp op) {
  return !is_bitwise(op) || is_integer(type);
}

/// The reverse of to_string; empty for an unknown name.
TUTTI_API std::optional<DataType> parse_data_type(std::string_view text);
TUTTI_API std::optional<ReduceOp> parse_reduce_op(std::string_view text);
TUTTI_API std::optional<Collective> parse_collective(std::string_view text);

}  // namespace tutti
