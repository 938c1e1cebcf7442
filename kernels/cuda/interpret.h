// File: kernels/cuda/interpret.h: the interpreter kernel: one lane of one rank's plan per block.
//
// A step, in a block:
//
//   threads look up one location each, and wait: for a full slot, or for room
//   --- barrier ---   all have what they need (and the step before is over)
//   all threads       do the work (body.h); in packed formats they wait for their data there
//   --- barrier ---   all is written and read
//   threads publish   one location each: head or tail, with release
//
// Positions in rings move on before the second barrier, as another thread may look the ring up in
// the next step. A thread that gives up waiting says so at the next barrier, and its block returns.
#pragma once
#include "kernels/cuda/body.h"
#include "kernels/cuda/channel.h"
#include "kernels/cuda/meeting.h"
#include "plan/partition.h"

namespace tutti::cuda {

template <DataType type, ReduceOp op>
class Interpreter {
  static constexpr std::size_t kElementBytes = size_of(type);
  static constexpr bool kSameWidth = TypeTraits<type>::kBytes == TypeTraits<type>::kPartialBytes;
  static constexpr std::size_t kGrain = grain_of(type);

 public:
  TUTTI_DEVICE Interpreter(const Arguments& arguments, Work& work)
      : arguments_(arguments),
        lane_(arguments.lanes[blockIdx.x]),
        work_(work),
        watch_{&arguments, blockIdx.x} {}

  TUTTI_DEVICE void run() {
    begin_call(watch_);
    if (watch_.why != Why::kNothing) failed_ = true;
    run_steps();
    end_call(watch_);
  }

 private:
  TUTTI_DEVICE void run_steps() {
    if (arguments_.entry_barrier) {
      // All ranks' lanes of this number have begun: peers' buffers may be touched.
      if (!meet_peers(arguments_, watch_)) failed_ = true;
      if (sync_block_or(failed_)) return;  // From here on all signals are the first thread's.
    }
    for (std::uint64_t tile = 0; tile < arguments_.tiles; ++tile) {
      for (std::uint32_t step = 0; step < lane_.step_count; ++step) {
        if (!run(lane_.steps[step], tile)) return;
      }
    }
  }

  /// False if the call is over for this block.
  TUTTI_DEVICE bool run(const plan::Step& step, std::uint64_t tile) {
    switch (step.kind) {
      case plan::StepKind::kSignal:
        if (threadIdx.x == 0 && !failed_) send_signal(arguments_, step.peer, watch_);
        return true;
      case plan::StepKind::kWait:
        // The next move's first barrier tells the others.
        if (threadIdx.x == 0 && !failed_) failed_ = !take_signal(arguments_, step.peer, watch_);
        return true;
      case plan::StepKind::kMove: break;
    }
    const plan::Range piece =
        plan::piece_of(arguments_.count, arguments_.pieces, step.chunk % arguments_.pieces, kGrain);
    const plan::Range range = plan::tile_of(piece, tile, arguments_.tile_elements);
    if (range.count == 0) return true;  // The peer sees the same, so no slot is due either.
    if (threadIdx.x < kWarpLanes && !prepare(step, threadIdx.x, range)) failed_ = true;
    if (sync_block_or(failed_)) return false;
    do_work<type, op>(arguments_, work_, watch_, failed_);
    if (sync_block_or(failed_)) return false;
    publish(step, threadIdx.x, range.count);
    return true;
  }

  /// Fills in the work of a step; the block's first warp does.
  TUTTI_DEVICE bool prepare(const plan::Step& step, unsigned lane, plan::Range range) {
    static_assert(kMostLocations <= kWarpLanes);
    const unsigned locations = unsigned{step.source_count} + step.target_count;
    Resolved to = {};
    const bool is_target = lane >= step.source_count && lane < locations;
    const bool ready = lane >= locations || resolve(step, lane, range, to);
    if (lane < locations) work_.locations[lane] = to;
    const bool lined = to.format == SlotFormat::kLine;
    const bool plain =
        to.format == SlotFormat::kSimple && to.aligned && (kSameWidth || to.form != Form::kPartial);
    const int form = static_cast<int>(to.form);
    const int of_source = __shfl_sync(~0u, form, 0);
    const int of_target = __shfl_sync(~0u, form, step.source_count);
    const bool any_lined = __any_sync(~0u, lined ? 1 : 0) != 0;
    const bool all_plain = __all_sync(~0u, lane >= locations || plain ? 1 : 0) != 0;
    const bool alike = __all_sync(~0u, !is_target || form == of_target ? 1 : 0) != 0;
    const unsigned scaled = __ballot_sync(~0u, to.scale ? 1 : 0);
    if (lane == 0) {
      work_.source_count = step.source_count;
      work_.target_count = step.target_count;
      work_.elements = static_cast<unsigned>(range.count);
      work_.scaled = scaled;
      work_.lined = any_lined;
      work_.plain = all_plain && alike;
      work_.copy = alike && of_target == of_source && step.source_count == 1 && scaled == 0;
    }
    return ready;
  }

  /// Looks up location `index` of the step, and waits until it may be used.
  TUTTI_DEVICE bool resolve(const plan::Step& step, unsigned index, plan::Range range,
                            Resolved& to) {
    const plan::Location at = lane_.locations[step.first + index];
    const bool source = index < step.source_count;
    to.peer = at.peer;
    to.form = at.form;
    const std::uint64_t block = at.chunk / arguments_.pieces;
    const std::uint64_t offset = (block * arguments_.count + range.offset) * kElementBytes;
    switch (at.place) {
      case plan::Place::kInput:
        // Only read; sources and targets have one type.
        to.at = const_cast<std::byte*>(arguments_.input) + offset;
        to.scale = arguments_.scaled;
        break;
      case plan::Place::kOutput: to.at = arguments_.output + offset; break;
      case plan::Place::kPeerInput:
        to.at = const_cast<std::byte*>(arguments_.peer_inputs[at.peer]) + offset;
        break;
      case plan::Place::kPeerOutput: to.at = arguments_.peer_outputs[at.peer] + offset; break;
      case plan::Place::kScratch:
        to.at = arguments_.scratch + at.chunk * arguments_.scratch_bytes;
        to.whole = true;
        break;
      case plan::Place::kSlot:
      case plan::Place::kMulticast:  // The host lets no such plan come here.
        if (!take_slot(arguments_, blockIdx.x, source, watch_, to)) return false;
        break;
    }
    if (to.whole && arguments_.scaled && at.form == Form::kContribution) to.form = Form::kPartial;
    to.aligned = reinterpret_cast<std::uintptr_t>(to.at) % 16 == 0;
    return true;
  }

  TUTTI_DEVICE void publish(const plan::Step& step, unsigned index, std::uint64_t elements) const {
    if (index >= unsigned{step.source_count} + step.target_count) return;
    const Resolved& at = work_.locations[index];
    if (at.ring == nullptr) return;
    pass_slot(arguments_, index < step.source_count, watch_, at, bytes_in_slot(at.form, elements));
  }

  /// Whole units. Not of `work_`: its first lane may be filling that in for the next step.
  TUTTI_DEVICE static std::uint32_t bytes_in_slot(Form form, std::uint64_t elements) {
    constexpr auto kUnit = static_cast<std::uint32_t>(unit_elements(type));
    const auto bytes = static_cast<std::uint32_t>(
        form == Form::kPartial ? TypeTraits<type>::kPartialBytes : TypeTraits<type>::kBytes);
    return (static_cast<std::uint32_t>(elements) + kUnit - 1) / kUnit * bytes;
  }

  const Arguments& arguments_;
  const LaneSteps& lane_;
  Work& work_;
  Watch watch_;
  bool failed_ = false;  // This thread gave up waiting.
};

template <DataType type, ReduceOp op>
__global__ void __launch_bounds__(kMostThreads, 1)
    interpret(const __grid_constant__ Arguments arguments) {
  __shared__ Work work;
  Interpreter<type, op>(arguments, work).run();
}

}  // namespace tutti::cuda
