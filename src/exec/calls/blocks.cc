#include "exec/calls/blocks.h"

#include <algorithm>

#include "base/hash.h"

namespace tutti::exec {
namespace {

constexpr std::uint64_t kMostElements = PTRDIFF_MAX / 8;  // No type has more than 8 bytes.

/// Where the block for or from `rank` starts. `next` is where the block before it ended.
std::size_t place(const std::size_t* offsets, int rank, std::size_t next) {
  return offsets == nullptr ? next : offsets[rank];
}

}  // namespace

void Blocks::begin(const Call& call, int me) {
  const CollectiveTraits traits = traits_of(call.collective);
  const int ranks = static_cast<int>(gives.size());
  const bool giver = has_input(call, me), getter = has_output(call, me);
  std::size_t next_input = 0, next_output = 0;
  input_elements = output_elements = largest = gets_elements = 0;
  for (int rank = 0; rank < ranks; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    gives[r] = gets[r] = input_at[r] = output_at[r] = 0;
    if (giver && has_output(call, rank)) {
      gives[r] = traits.input_each ? call.input_blocks.counts[rank] : call.count;
      if (traits.input_each) input_at[r] = place(call.input_blocks.offsets, rank, next_input);
      next_input = input_at[r] + gives[r];
      input_elements = std::max(input_elements, next_input);
    }
    if (getter && has_input(call, rank)) {
      gets[r] = traits.output_each ? call.output_blocks.counts[rank] : call.count;
      if (traits.output_each) output_at[r] = place(call.output_blocks.offsets, rank, next_output);
      next_output = output_at[r] + gets[r];
      output_elements = std::max(output_elements, next_output);
    }
    largest = std::max({largest, gives[r], gets[r]});
    gets_elements += gets[r];
  }
}

std::uint64_t Blocks::hash(int me) const {
  Hash hash;
  for (std::size_t rank = 0; rank < gets.size(); ++rank) {
    hash.add(rank == static_cast<std::size_t>(me) ? gives[rank] : gets[rank]);
  }
  return hash.value();
}

void Blocks::show(BlockView* table) const {
  for (std::size_t rank = 0; rank < gives.size(); ++rank)
    table[rank] = {gives[rank], gets[rank], input_at[rank], output_at[rank]};
}

bool Blocks::learn(int peer, const BlockView& view) {
  const auto p = static_cast<std::size_t>(peer);
  peer_input_at[p] = view.input_at;
  peer_output_at[p] = view.output_at;
  if (view.gives != gets[p] || view.gets != gives[p]) return false;
  // Where a block ends in bytes must be a number: what a peer says is added and multiplied later.
  const auto fits = [](std::uint64_t at, std::uint64_t count) {
    return count <= kMostElements && at <= kMostElements - count;
  };
  return fits(view.input_at, view.gives) && fits(view.output_at, view.gets);
}

}  // namespace tutti::exec
