// File: tutti/types.h: the vocabulary that every other file speaks.
#pragma once
#if __cplusplus < 202002L
#error "Tutti's C++ headers need C++20: -std=c++20. tutti/tutti.h is for C and for older C++."
#endif
#include <compare>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "tutti/export.h"

namespace tutti {

/// Element types. The list is `data_types.def`; the numeric values are part of the C ABI.
enum class DataType : std::uint8_t {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) enumerator = value,
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
};

/// What a data type's bits mean.
enum class NumberKind : std::uint8_t { kSigned, kUnsigned, kFloat };

/// Reductions. `kAvg` divides the sum by the rank count. `kPreMulSum` sums scale * x, each rank
/// with its own scale. The bitwise ones take integers only. The numeric values are part of the C
/// ABI.
enum class ReduceOp : std::uint8_t {
#define TUTTI_REDUCE_OP(enumerator, text, value, ...) enumerator = value,
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
};

/// The collectives; the list is `collectives.def`. Inputs and outputs consist of blocks of `count`
/// elements: one, or one for each rank. In a rooted collective only the root has an input, or only
/// the root gets an output. In a scan rank r's result is that of ranks 0 ... r; in an exclusive one
/// of ranks 0 ... r - 1, and rank 0 gets no output.
enum class Collective : std::uint8_t {
#define TUTTI_COLLECTIVE(enumerator, ...) enumerator,
#include "tutti/collectives.def"
#undef TUTTI_COLLECTIVE
};
inline constexpr int kCollectiveCount = 0
#define TUTTI_COLLECTIVE(...) +1
#include "tutti/collectives.def"
#undef TUTTI_COLLECTIVE
    ;

/// A position in a communicator. A type of its own: a rank is never a count, an index or a lane.
struct Rank {
  std::int32_t value = -1;
  // clang-tidy takes the 0 in the comparison that the compiler writes for a pointer.
  friend constexpr auto operator<=>(Rank, Rank) = default;  // NOLINT(modernize-use-nullptr)
};

/// What tells messages between two ranks apart: a receive takes the next one with its tag. At least
/// 0.
struct Tag {
  std::int32_t value = 0;
  // As above.
  friend constexpr auto operator<=>(Tag, Tag) = default;  // NOLINT(modernize-use-nullptr)
};

/// What a result may depend on. `kDeterministic`: the inputs, the rank count and the operation
/// only. `kRelaxed`: any order of reduction may be used if it is faster.
enum class Contract : std::uint8_t { kDeterministic, kRelaxed };

constexpr std::size_t size_of(DataType type) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) \
  case DataType::enumerator:                                 \
    return bytes;
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return 0;
}

constexpr std::string_view to_string(DataType type) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, ...) \
  case DataType::enumerator:                                 \
    return text;
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return "unknown type";
}

constexpr std::string_view to_string(ReduceOp op) {
  switch (op) {
#define TUTTI_REDUCE_OP(enumerator, text, ...) \
  case ReduceOp::enumerator:                   \
    return text;
#include "tutti/reduce_ops.def"
#undef TUTTI_REDUCE_OP
  }
  return "unknown operation";
}

constexpr std::string_view to_string(Collective collective) {
  switch (collective) {
#define TUTTI_COLLECTIVE(enumerator, text, ...) \
  case Collective::enumerator:                  \
    return text;
#include "tutti/collectives.def"
#undef TUTTI_COLLECTIVE
  }
  return "unknown collective";
}

constexpr NumberKind kind_of(DataType type) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, kind, ...) \
  case DataType::enumerator:                                       \
    return NumberKind::kind;
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return NumberKind::kFloat;
}

constexpr bool is_integer(DataType type) { return kind_of(type) != NumberKind::kFloat; }

constexpr bool is_bitwise(ReduceOp op) {
  return op == ReduceOp::kAnd || op == ReduceOp::kOr || op == ReduceOp::kXor;
}

/// The ranks whose contributions a result adds up; see collectives.def.
enum class Summed : std::uint8_t { kNone, kAll, kUpTo, kBelow };

/// What a collective reads and writes, see collectives.def.
struct CollectiveTraits {
  Summed summed;
  bool root_input;   // Only the root has an input.
  bool input_each;   // An input has a block for each rank.
  bool root_output;  // Only the root gets an output.
  bool output_each;  // An output has a block for each rank.
  constexpr bool reduces() const { return summed != Summed::kNone; }
};
namespace detail {

constexpr bool kEvery = false, kRoot = true, kOne = false, kEach = true;
inline constexpr CollectiveTraits kTraits[] = {
#define TUTTI_COLLECTIVE(enumerator, text, summed, from, input, to, output) \
  {Summed::summed, from, input, to, output},
#include "tutti/collectives.def"
#undef TUTTI_COLLECTIVE
    {Summed::kNone, kEvery, kOne, kEvery, kOne}};

}  // namespace detail
/// By a table: a switch's jump takes 10 ns on CPUs that may not predict it (Spectre, IBRS).
constexpr CollectiveTraits traits_of(Collective collective) {
  const auto index = static_cast<std::size_t>(collective);
  constexpr std::size_t kCount = kCollectiveCount;
  return detail::kTraits[index < kCount ? index : kCount];
}

constexpr bool reduces(Collective collective) { return traits_of(collective).reduces(); }
/// Each rank gets a result of its own: of the ranks up to it, or below it.
constexpr bool is_scan(Collective collective) {
  const Summed summed = traits_of(collective).summed;
  return summed == Summed::kUpTo || summed == Summed::kBelow;
}
/// A result of `rank`, where something is reduced, is that of so many ranks: the first ones.
constexpr int summed_ranks(Collective collective, int rank, int rank_count) {
  const Summed summed = traits_of(collective).summed;
  return summed == Summed::kUpTo ? rank + 1 : summed == Summed::kBelow ? rank : rank_count;
}
/// One rank is unlike the others.
constexpr bool has_root(Collective collective) {
  return traits_of(collective).root_input || traits_of(collective).root_output;
}
/// Whether a rank has an input, and whether it gets an output. `root` counts in rooted collectives.
constexpr bool has_input(Collective collective, int rank, int root) {
  return !traits_of(collective).root_input || rank == root;
}
constexpr bool has_output(Collective collective, int rank, int root) {
  const CollectiveTraits traits = traits_of(collective);
  return traits.root_output ? rank == root : rank > 0 || traits.summed != Summed::kBelow;
}

/// The type in which partial sums of `type` are held and travel: float32 for the 16- and 8-bit
/// floats.
constexpr DataType accumulator_of(DataType type) {
  switch (type) {
#define TUTTI_DATA_TYPE(enumerator, text, bytes, value, kind, accumulator, ...) \
  case DataType::enumerator:                                                    \
    return DataType::accumulator;
#include "tutti/data_types.def"
#undef TUTTI_DATA_TYPE
  }
  return type;
}

/// Every type and operation goes together, except a bitwise operation and a floating-point type.
constexpr bool is_supported(DataType type, ReduceOp op) {
  return !is_bitwise(op) || is_integer(type);
}

/// The reverse of to_string; empty for an unknown name.
TUTTI_API std::optional<DataType> parse_data_type(std::string_view text);
TUTTI_API std::optional<ReduceOp> parse_reduce_op(std::string_view text);
TUTTI_API std::optional<Collective> parse_collective(std::string_view text);
/// All of them: "all_reduce, reduce_scatter, ...".
TUTTI_API std::string collective_names();

}  // namespace tutti
