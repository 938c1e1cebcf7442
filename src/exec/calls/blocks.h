// File: exec/calls/blocks.h: the sizes and places of blocks, in calls whose blocks differ in size.
//
// A rank knows the blocks that it gives and those that it gets, no others. So plans for such calls
// touch only those (plan/passes/vector_variant.h). At the start of a call every rank shows the
// others its view. Both ends of a block must agree on its size, and a rank that reads or writes a
// peer's buffer learns from that view where in the buffer its block is.
#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "exec/calls/call.h"
#include "transport/region.h"

namespace tutti::exec {

/// All in elements, by rank.
struct Blocks {
  std::vector<std::size_t> gives, gets;          // This rank to that rank, that rank to this one.
  std::vector<std::size_t> input_at, output_at;  // Where these lie in this rank's buffers.
  std::vector<std::size_t> peer_input_at, peer_output_at;  // This rank's blocks in peers' buffers.
  std::size_t input_elements = 0, output_elements = 0;  // From the start to the last block's end.
  std::size_t largest = 0;
  std::size_t gets_elements = 0;  // All that this rank gets.

  explicit Blocks(std::size_t ranks)
      : gives(ranks),
        gets(ranks),
        input_at(ranks),
        output_at(ranks),
        peer_input_at(ranks),
        peer_output_at(ranks) {}

  /// Takes in the blocks that `me` knows at the start of a call.
  void begin(const Call& call, int me);
  /// A hash of an all-gather's block sizes, as this rank knows them: ranks that agree get the same.
  std::uint64_t hash(int me) const;
  /// Writes it where the others will look.
  void show(BlockView* table) const;
  /// Takes over what a peer shows of its blocks from and to this rank; false if its sizes are not
  /// this rank's, or its places lie outside any memory.
  bool learn(int peer, const BlockView& view);
};

}  // namespace tutti::exec
