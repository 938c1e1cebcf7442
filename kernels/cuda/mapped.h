// File: kernels/cuda/mapped.h: work on buffers that ranks map of each other, for kernels without
// slots: each rank reduces its piece of all inputs, and its blocks share that.
#pragma once
#include "kernels/cuda/body.h"
#include "kernels/cuda/meeting.h"
#include "plan/partition.h"

namespace tutti::cuda {

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
  work.share = 0;
  work.shares = 1;
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

/// Calls `work_on(first, failed)` for the parts of the piece that the calling rank reduces, most
/// often one: `work` is the block's share of the part, and `first` the part's first element in the
/// piece. All of it is between two meetings with the peers' blocks of the same number.
template <DataType type, class WorkOn>
TUTTI_DEVICE void between_meetings(const Arguments& arguments, Work& work, Watch& watch,
                                   WorkOn work_on) {
  const plan::Range piece =
      plan::piece_of(arguments.count, arguments.ranks, arguments.rank, grain_of(type));
  const auto prepare_part = [&](std::size_t part) {
    if (threadIdx.x != 0) return;
    prepare_mapped<type>(arguments, plan::tile_of(piece, part, kMostTileElements), work);
    work.take_share(blockIdx.x, gridDim.x, static_cast<unsigned>(unit_elements(type)));
  };
  prepare_part(0);
  bool failed = watch.why != Why::kNothing || !meet_peers(arguments, watch);
  for (std::size_t part = 0;;) {
    if (sync_block_or(failed)) return;
    work_on(part * kMostTileElements, failed);
    if (sync_block_or(failed)) return;
    if (++part * kMostTileElements >= piece.count) break;
    prepare_part(part);
  }
  meet_peers(arguments, watch);
}

}  // namespace tutti::cuda
