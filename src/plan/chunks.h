// File: plan/chunks.h: what the chunks of a message are, and where inputs and outputs have them.
//
// Blocks of the message, of `count` elements each (n ranks):
//
//   all-reduce, reduce, scans                   1; the ranks' contributions to it
//   broadcast                                   1; the root's data
//   reduce-scatter, scatter, all-gather, gather n; block r is what rank r gets, or gives
//   all-to-all                                  n * n; block s * n + d is what rank s gives rank d
//
// An input or output has one block, or one for each rank (collectives.def); which blocks of the
// message these are is a function of the rank.
#pragma once
#include <algorithm>
#include <cstdint>

#include "plan/plan.h"

namespace tutti::plan {

inline std::uint32_t input_blocks(const Shape& shape) {
  return traits_of(shape.collective).input_each ? static_cast<std::uint32_t>(shape.rank_count) : 1;
}
inline std::uint32_t output_blocks(const Shape& shape) {
  return traits_of(shape.collective).output_each ? static_cast<std::uint32_t>(shape.rank_count) : 1;
}
inline std::uint64_t message_blocks(const Shape& shape) {
  const std::uint64_t in = input_blocks(shape), out = output_blocks(shape);
  return shape.collective == Collective::kAllToAll ? in * out : std::max(in, out);
}

/// The form of an input.
inline Form form_of_input(const Shape& shape) {
  return reduces(shape.collective) ? Form::kContribution : Form::kResult;
}
/// Whether a rank has an input, or gets an output.
inline bool has_input(const Shape& shape, std::uint32_t rank) {
  return tutti::has_input(shape.collective, static_cast<int>(rank), shape.root);
}
inline bool has_output(const Shape& shape, std::uint32_t rank) {
  return tutti::has_output(shape.collective, static_cast<int>(rank), shape.root);
}

/// Whether ranks may change places in a plan under this contract: nothing is added up, or in any
/// order, and all ranks' contributions.
inline bool allows_any_order(Collective collective, Contract contract) {
  return !reduces(collective) || (contract == Contract::kRelaxed && !is_scan(collective));
}

/// The chunk of the message that chunk `chunk` of a rank's input is.
inline std::uint32_t chunk_of_input(const Shape& shape, std::uint32_t pieces, std::uint32_t rank,
                                    std::uint32_t chunk) {
  const CollectiveTraits traits = traits_of(shape.collective);
  if (!traits.output_each) return chunk;  // Block 0, or the block of the rank that gets it.
  return rank * pieces * input_blocks(shape) + chunk;
}
/// The chunk of the message that belongs in chunk `chunk` of a rank's output.
inline std::uint32_t chunk_of_output(const Shape& shape, std::uint32_t pieces, std::uint32_t rank,
                                     std::uint32_t chunk) {
  const CollectiveTraits traits = traits_of(shape.collective);
  if (!traits.input_each) return chunk;  // Block 0, or the block of the rank that gives it.
  if (!traits.output_each) return rank * pieces + chunk;
  const auto ranks = static_cast<std::uint32_t>(shape.rank_count);
  return (chunk / pieces * ranks + rank) * pieces + chunk % pieces;
}
/// The rank whose data belongs in chunk `chunk` of any output, where nothing is reduced.
inline std::uint32_t giver_of_output(const Shape& shape, std::uint32_t pieces,
                                     std::uint32_t chunk) {
  return traits_of(shape.collective).root_input ? static_cast<std::uint32_t>(shape.root)
                                                : chunk / pieces;
}

/// The output chunk of `rank` that its input chunk `chunk` shares memory with, in place; kNoChunk
/// if none. In place means: the buffer of one block is that rank's block of the other one; buffers
/// of equal size are the same.
inline constexpr std::uint32_t kNoChunk = ~std::uint32_t{0};
inline std::uint32_t in_place_output(const Plan& plan, std::uint32_t rank, std::uint32_t chunk) {
  const Shape& shape = plan.shape;
  if (plan.apart || !has_input(shape, rank) || !has_output(shape, rank)) return kNoChunk;
  const CollectiveTraits traits = traits_of(shape.collective);
  if (traits.input_each == traits.output_each) return chunk;
  if (traits.output_each) return rank * plan.pieces + chunk;
  return chunk / plan.pieces == rank ? chunk % plan.pieces : kNoChunk;
}

}  // namespace tutti::plan
