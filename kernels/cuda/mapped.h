// File: kernels/cuda/mapped.h: work on buffers that ranks map of each other, for kernels without
// slots: each rank reduces its piece of all inputs, each block a share of that.
#pragma once
#include "kernels/cuda/body.h"
#include "kernels/cuda/meeting.h"
#include "plan/partition.h"

namespace tutti::cuda {

/// The block's share of the elements that its rank reduces.
TUTTI_DEVICE plan::Range share_of_block(const Arguments& arguments, std::size_t grain) {
  const plan::Range piece = plan::piece_of(arguments.count, arguments.ranks, arguments.rank, grain);
  plan::Range share = plan::piece_of(piece.count, gridDim.x, blockIdx.x, grain);
  share.offset += piece.offset;
  return share;
}

/// Work of which all ranks' inputs are the sources and all ranks' outputs the targets, by one
/// thread. In place a rank's input is the output that is written last, as anywhere.
template <DataType type>
TUTTI_DEVICE void prepare_mapped(const Arguments& arguments, plan::Range range, Work& work) {
  const std::uint64_t offset = range.offset * size_of(type);
  work.source_count = work.target_count = arguments.ranks;
  work.elements = static_cast<unsigned>(range.count);
  work.scaled = 0;
  work.lined = work.copy = false;
  work.first_thread = 0;
  work.plain = true;
  for (unsigned rank = 0; rank < arguments.ranks; ++rank) {
    Resolved& source = work.locations[rank] = {};
    // Only read; sources and targets have one type.
    source.at = const_cast<std::byte*>(arguments.peer_inputs[rank]) + offset;
    source.form = Form::kContribution;
    source.aligned = reinterpret_cast<std::uintptr_t>(source.at) % 16 == 0;
    Resolved& target = work.locations[arguments.ranks + rank] = {};
    target.at = arguments.peer_outputs[rank] + offset;
    target.form = Form::kResult;
    target.aligned = reinterpret_cast<std::uintptr_t>(target.at) % 16 == 0;
    if (!source.aligned || !target.aligned) work.plain = false;
  }
}

}  // namespace tutti::cuda
