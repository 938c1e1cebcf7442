// File: exec/calls/call.h: one call of a collective, as the executor gets it: checked, and in plain
// fields.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string>

#include "plan/plan.h"
#include "tutti/types.h"
#include "tutti/wire.h"

namespace tutti::exec {

/// Where the blocks of a buffer are, in a call whose blocks differ in size: arrays by rank, in
/// elements, of which a call owns nothing.
struct BlockList {
  const std::size_t* counts = nullptr;
  const std::size_t* offsets = nullptr;  // Null: one after another.
};

/// How a call's plan gets at peers' buffers.
enum class Access : std::uint8_t {
  kSlots,   // Not at all.
  kRead,    // By Endpoint::read of their inputs, or Endpoint::write to their outputs.
  kShared,  // As kRead, but both: of two ranks each does half, as one would wait for the other.
  kMapped,  // They are mapped.
};

/// The access that all ranks have: whether all can map the buffers, or at least read plain ones,
/// and whether the root has its own block in place, so that it would wait for the other rank.
constexpr Access access_of(bool mapped, bool readable, bool root_idles) {
  if (mapped) return Access::kMapped;
  if (!readable) return Access::kSlots;
  return root_idles ? Access::kShared : Access::kRead;
}

/// Whether a call is eager.
enum class EagerUse : std::uint8_t { kBySize, kNever, kAlways };  // Always: if it fits one.

struct Call {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kUint8;
  ReduceOp op = ReduceOp::kSum;
  int root = 0;
  bool barrier = false;  // An all-reduce of nothing that still waits for everybody.
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::size_t count = 0;  // Elements of a block, see Collective.
  double scale = 1;
  bool vector_variant = false;  // Then these lay out the buffers with a block for each rank:
  BlockList input_blocks, output_blocks;
  std::uint16_t algorithm_override =
      0;  // What the user wants of this call alone: a number of the planner's.
  EagerUse eager_use = EagerUse::kBySize;  // As the override says.
  Wire wire;

  /// A call with a wire is never eager.
  void set(Wire with) {
    wire = with;
    eager_use = EagerUse::kNever;
  }
};

/// The elements of a whole input, and of a whole output, of a rank that has one.
constexpr std::size_t input_elements(const Call& call, int ranks) {
  return static_cast<std::size_t>(traits_of(call.collective).input_each ? ranks : 1) * call.count;
}
constexpr std::size_t input_bytes(const Call& call, int ranks) {
  return input_elements(call, ranks) * size_of(call.type);
}
constexpr std::size_t output_bytes(const Call& call, int ranks) {
  const auto blocks = static_cast<std::size_t>(traits_of(call.collective).output_each ? ranks : 1);
  return blocks * call.count * size_of(call.type);
}

/// Whether a rank has an input, and whether it gets an output.
constexpr bool has_input(const Call& call, int rank) {
  return tutti::has_input(call.collective, rank, call.root);
}
constexpr bool has_output(const Call& call, int rank) {
  return tutti::has_output(call.collective, rank, call.root);
}

/// Whether a root with buffers at these addresses has its own block where that is to come to.
constexpr bool root_in_place(const Call& call, std::uint64_t input_at, std::uint64_t output_at) {
  const CollectiveTraits traits = traits_of(call.collective);
  const std::uint64_t own = static_cast<std::uint64_t>(call.root) * call.count * size_of(call.type);
  return input_at + (traits.input_each ? own : 0) == output_at + (traits.output_each ? own : 0);
}

/// Ranks have to agree on this beside `pack`: blocks of one size have it, others differ by rank.
constexpr std::uint64_t common_count(const Call& call) {
  return call.vector_variant ? 0 : call.count;
}

/// The call in one word, for records and for hashing: collective, type, operation, wire, override,
/// root.
/// A root that no communicator has makes it no other call's word.
constexpr std::uint64_t pack(Collective collective, DataType type, ReduceOp op, int root) {
  return std::uint64_t{1} << 63 | static_cast<std::uint64_t>(collective) << 48 |
         static_cast<std::uint64_t>(type) << 40 | static_cast<std::uint64_t>(op) << 32 |
         static_cast<std::uint32_t>(root);
}
constexpr std::uint64_t pack(const Call& call) {
  return pack(call.collective, call.type, call.op, call.root) |
         std::uint64_t{call.vector_variant} << 57 | std::uint64_t{call.barrier} << 56 |
         static_cast<std::uint64_t>(call.wire.format) << 36 |
         static_cast<std::uint64_t>(call.wire.rounding) << 39 |
         std::uint64_t{call.algorithm_override} << 16;
}

/// With what pack made: eager; and which round of call lines of a call it is that goes by a
/// plan. Not part of the call, but alike on all ranks.
inline constexpr std::uint64_t kEager = std::uint64_t{1} << 62;
inline constexpr std::uint64_t kRound = std::uint64_t{1} << 58;  // 0, 1 or 2 of them.
inline constexpr std::uint64_t kWayBits = kEager | 3 * kRound;

/// "all_reduce of 1024 float32 (sum)", from what pack made and a count; `what` may be a peer's
/// bytes.
std::string describe_call(std::uint64_t what, std::uint64_t count);

}  // namespace tutti::exec
