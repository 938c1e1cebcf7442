// File: kernels/cuda/interpret.h: the interpreter kernel: one lane of one rank's plan per block.
//
// Steps, slots' positions and the work at hand are in the block's shared memory. A block takes a
// run of moves that don't depend on each other (LanePage::runs) as one phase:
//
//   the first warp looks up a location of the run in each thread, and polls its slot, until the
//   first move has all that it needs; those after it go along as far as they have it too
//   --- barrier ---   the phase is known (and the one before it is over)
//   all threads       do the work of all its moves (body.h); in packed formats they wait for data
//   --- barrier ---   all is written and read
//   the first warp    publishes: head or tail of each slot, with one release for all
//
// So a phase waits for nothing that the first of its moves would not wait for alone, and what the
// verifier proved of moves one after the other holds. Signals, and waits, are taken together as
// well. A thread that gives up waiting says so at the next barrier, and its block returns.
#pragma once
#include <cstring>

#include "kernels/cuda/body.h"
#include "kernels/cuda/channel.h"
#include "kernels/cuda/meeting.h"
#include "kernels/cuda/wire.h"
#include "plan/partition.h"

namespace tutti::cuda {

/// What a block has in its shared memory. It is never constructed.
struct LaneMemory {
  LanePage page;
  RingEnd inboxes[kMostDeviceRanks], outboxes[kMostDeviceRanks];
  Work moves[kMostMoves];       // The phase's;
  std::uint32_t step_count;     // so many of them are in it. Those without elements have no work.
  std::uint32_t number, chain;  // The call's, for warps that wait for packed data (calls.h).
  WireStreams streams;          // The call's, if it has a wire.
};

/// By all threads of the block: to shared memory. Both are of whole vectors.
TUTTI_DEVICE void copy_to_shared(void* to, const void* from, std::size_t bytes) {
  for (std::size_t at = threadIdx.x * sizeof(Vector16); at < bytes;
       at += blockDim.x * sizeof(Vector16)) {
    const auto vector = load<Vector16>(static_cast<const std::byte*>(from) + at);
    std::memcpy(static_cast<std::byte*>(to) + at, &vector, sizeof vector);
  }
}

/// With a wire slots are encoded, and of the simple format.
template <DataType type, ReduceOp op, WireFormat wire>
class Interpreter {
  static constexpr std::size_t kElementBytes = size_of(type);
  static constexpr bool kSameWidth = TypeTraits<type>::kBytes == TypeTraits<type>::kPartialBytes;
  static constexpr bool kPlain = wire == WireFormat::kPlain;
  static constexpr std::size_t kGrain = grain_of(type, wire);
  static constexpr unsigned kNone = ~0u;

 public:
  TUTTI_DEVICE Interpreter(const Arguments& arguments, LaneMemory& lane)
      : arguments_(arguments), lane_(lane), watch_{&arguments, blockIdx.x} {}

  TUTTI_DEVICE void run() {
    begin_call(watch_);
    if (watch_.why != Why::kNothing) failed_ = true;
    if (threadIdx.x == 0) {
      lane_.number = watch_.number;
      lane_.chain = watch_.chain;
      if constexpr (!kPlain) lane_.streams = begin_wire_call(arguments_);
    }
    load_page(0);
    load_rings();
    // All ranks' lanes of this number have begun: peers' buffers may be touched.
    if (arguments_.entry_barrier && !failed_ && !meet_peers(arguments_, watch_)) failed_ = true;
    if (!sync_block_or(failed_)) {
      if (threadIdx.x >= kWarpLanes) watch_.follow(lane_.number, lane_.chain);
      run_tiles();
    }
    keep_positions();
    end_call(watch_);
    if constexpr (!kPlain) {
      if (threadIdx.x == 0) end_wire_call(arguments_);
    }
  }

 private:
  TUTTI_DEVICE void load_page(std::uint32_t page) {
    copy_to_shared(&lane_.page, arguments_.pages + blockIdx.x * arguments_.page_count + page,
                   sizeof(LanePage));
  }
  TUTTI_DEVICE void load_rings() {
    static_assert(sizeof(RingEnd) % sizeof(Vector16) == 0);
    for (const bool source : {true, false}) {
      copy_to_shared(source ? lane_.inboxes : lane_.outboxes,
                     rings_of(arguments_, blockIdx.x, source), arguments_.ranks * sizeof(RingEnd));
    }
  }
  /// By the first warp, the only one that takes slots.
  TUTTI_DEVICE void keep_positions() {
    if (threadIdx.x >= kWarpLanes) return;
    __syncwarp();
    for (unsigned peer = threadIdx.x; peer < arguments_.ranks; peer += kWarpLanes) {
      for (const bool source : {true, false}) {
        const RingEnd& ring = source ? lane_.inboxes[peer] : lane_.outboxes[peer];
        store(&rings_of(arguments_, blockIdx.x, source)[peer].position, ring.position);
      }
    }
  }

  TUTTI_DEVICE void run_tiles() {
    for (std::uint64_t tile = 0; tile < arguments_.tiles; ++tile) {
      for (std::uint32_t page = 0; page < arguments_.page_count; ++page) {
        if (arguments_.page_count > 1 && tile + page != 0) {
          if (sync_block_or(failed_)) return;  // All have read the page before.
          load_page(page);
          if (sync_block_or(failed_)) return;
        }
        for (unsigned step = 0; step < lane_.page.step_count;) {
          const unsigned taken = run(step, tile);
          if (taken == 0) return;
          step += taken;
        }
      }
    }
  }

  /// Takes steps from `step` on; how many. 0: the call is over for this block.
  TUTTI_DEVICE unsigned run(unsigned step, std::uint64_t tile) {
    const bool first_warp = threadIdx.x < kWarpLanes;
    if (lane_.page.steps[step].kind != plan::StepKind::kMove) {
      // The next move's first barrier tells the others of a wait that failed.
      if (first_warp && !run_signals(step)) failed_ = true;
      return lane_.page.runs[step];
    }
    unsigned mine = kNone;  // The location whose slot this thread has taken.
    if (first_warp) {
      prepare(step, tile, mine);
      failed_ |= watch_.why != Why::kNothing;
    }
    if (sync_block_or(failed_)) return 0;
    const unsigned taken = lane_.step_count;
#pragma unroll 1
    for (unsigned move = 0; move < taken; ++move) {
      if (lane_.moves[move].elements != 0) work_on(lane_.moves[move]);
    }
    if (sync_block_or(failed_)) return 0;
    if (mine != kNone) publish(mine);
    return taken;
  }

  TUTTI_DEVICE void work_on(const Work& work) {
    if constexpr (kPlain) {
      do_work<type, op>(arguments_, work, watch_, failed_);
    } else {
      WireBody<wire, op>(arguments_, work, lane_.streams).run();
    }
  }

  /// By the first warp: signals to peers, or waits for theirs, one in each thread.
  TUTTI_DEVICE bool run_signals(unsigned step) {
    __syncwarp();  // Other threads may have waited, or have counted the peer's signals.
    if (threadIdx.x >= lane_.page.runs[step] || failed_) return !failed_;
    const plan::Step& own = lane_.page.steps[step + threadIdx.x];
    if (own.kind == plan::StepKind::kWait) return take_signal(arguments_, own.peer, watch_);
    send_signal(arguments_, own.peer, watch_);
    return true;
  }

  /// What one thread of the first warp looks after in a phase: a location of a move of the run.
  struct Part {
    bool due = false;         // There is one, and its move is not empty.
    unsigned move, index;     // The move's number in the run, and the location's in the move.
    bool source;              // Else a target.
    plan::Range range;        // The elements that the move is about.
    RingEnd* ring = nullptr;  // Its slot's, if it is one.
    Resolved to = {};
  };

  /// By the first warp: fills in the phase that begins at `step`.
  TUTTI_DEVICE void prepare(unsigned step, std::uint64_t tile, unsigned& mine) {
    __syncwarp();  // Other threads have published what is filled in anew.
    Part part = part_of(step, tile);
    const unsigned end = await_moves(part, lane_.page.runs[step]);
    if (end == 0) return;
    part.due = part.due && part.move < end;
    if (part.due && part.ring != nullptr) {
      take_slot(arguments_, *part.ring, part.source, watch_, part.to);
      mine = part.move * kMostLocations + part.index;
    }
    fill(step, end, part);
  }

  TUTTI_DEVICE Part part_of(unsigned step, std::uint64_t tile) const {
    const plan::Step* const steps = lane_.page.steps + step;
    const unsigned run = lane_.page.runs[step], at = steps->first + threadIdx.x;
    Part part;
    part.move = 0;
    while (part.move < run && at >= steps[part.move].end()) ++part.move;
    const bool has = part.move < run;
    const plan::Step& move = steps[has ? part.move : 0];
    part.index = has ? at - move.first : 0;
    part.source = part.index < move.source_count;
    const plan::Range piece =
        plan::piece_of(arguments_.count, arguments_.pieces / arguments_.shares,
                       move.chunk % arguments_.pieces / arguments_.shares, kGrain);
    part.range = plan::tile_of(piece, tile, arguments_.tile_elements);
    // No slot is due of an empty move: the peer sees the same.
    part.due = has && part.range.count != 0;
    if (part.due) look_up(lane_.page.locations[at], part);
    return part;
  }

  /// Where the location is, but for slots.
  TUTTI_DEVICE void look_up(const plan::Location& at, Part& part) const {
    Resolved& to = part.to;
    to.peer = at.peer;
    to.form = at.form;
    const std::uint64_t block = at.chunk / arguments_.pieces;
    const std::uint64_t offset = (block * arguments_.count + part.range.offset) * kElementBytes;
    switch (at.place) {
      case plan::Place::kInput:
        // Only read; sources and targets have one type.
        to.at = const_cast<std::byte*>(arguments_.input) + offset;
        to.scale = arguments_.scaled;
        to.input = true;
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
        part.ring = (part.source ? lane_.inboxes : lane_.outboxes) + at.peer;
        to.whole = true;
        break;
    }
    if (kPlain && to.whole && arguments_.scaled && at.form == Form::kContribution)
      to.form = Form::kPartial;
    to.aligned = reinterpret_cast<std::uintptr_t>(to.at) % 16 == 0;
  }

  /// By the first warp: waits until the first move that is not empty has its slots. How many moves
  /// of the run have theirs; 0: a thread gave up.
  TUTTI_DEVICE unsigned await_moves(const Part& part, unsigned run) {
    const unsigned due = __ballot_sync(~0u, part.due ? 1 : 0);
    if (due == 0) return run;
    const unsigned first = __shfl_sync(~0u, part.move, __ffs(static_cast<int>(due)) - 1);
    bool ready = part.ring == nullptr;
    for (;;) {
      if (!ready) ready = slot_is_ready(arguments_, *part.ring, part.source);
      const bool lacks = !ready && part.move == first;
      const bool gave_up = lacks && watch_.gives_up(part.to.peer);
      if (__any_sync(~0u, gave_up ? 1 : 0) != 0) return 0;
      if (__any_sync(~0u, lacks ? 1 : 0) == 0) break;
    }
    // In packed formats data are waited for in the work, which only the first move may do.
    const bool unknown = part.ring != nullptr && part.source && part.move != first &&
                         arguments_.format != SlotFormat::kSimple;
    const unsigned blocked = __ballot_sync(~0u, ready && !unknown ? 0 : 1);
    return blocked == 0 ? run : __shfl_sync(~0u, part.move, __ffs(static_cast<int>(blocked)) - 1);
  }

  /// By the first warp: the work of the run's first `end` moves.
  TUTTI_DEVICE void fill(unsigned step, unsigned end, const Part& part) {
    const bool in_phase = part.move < end;
    const plan::Step& move = lane_.page.steps[in_phase ? step + part.move : step];
    const Resolved& to = part.to;
    const unsigned begin = threadIdx.x - part.index;  // The thread with the move's first location.
    const int form = static_cast<int>(to.form);
    const int of_source = __shfl_sync(~0u, form, static_cast<int>(begin));
    const int of_target = __shfl_sync(~0u, form, static_cast<int>(begin + move.source_count));
    const bool plain =
        to.format == SlotFormat::kSimple && to.aligned && (kSameWidth || to.form != Form::kPartial);
    const bool unlike = !part.source && form != of_target;
    const unsigned own = ((1u << (move.end() - move.first)) - 1) << begin;
    const unsigned lined = __ballot_sync(~0u, to.format == SlotFormat::kLine ? 1 : 0) & own;
    const unsigned rough = __ballot_sync(~0u, plain ? 0 : 1) & own;
    const unsigned differing = __ballot_sync(~0u, unlike ? 1 : 0) & own;
    const unsigned scaled = (__ballot_sync(~0u, to.scale ? 1 : 0) & own) >> begin;
    if (threadIdx.x == 0) lane_.step_count = end;
    if (!in_phase) return;
    Work& work = lane_.moves[part.move];
    work.locations[part.index] = to;
    if (part.index != 0) return;
    work.source_count = move.source_count;
    work.target_count = move.target_count;
    work.elements = static_cast<unsigned>(part.range.count);
    work.take_share(move.chunk % arguments_.shares, arguments_.shares,
                    static_cast<unsigned>(unit_elements(type)));
    if constexpr (!kPlain)
      work.element = move.chunk / arguments_.pieces * arguments_.count + part.range.offset;
    work.scaled = scaled;
    work.lined = lined != 0;
    work.plain = (rough | differing) == 0;
    // The moves of a phase begin with different warps: short ones go on side by side.
    work.first_thread = part.move * (blockDim.x / kWarpLanes) / end * kWarpLanes;
    work.copy = differing == 0 && of_target == of_source && move.source_count == 1 && scaled == 0;
  }

  TUTTI_DEVICE void publish(unsigned mine) const {
    const Work& work = lane_.moves[mine / kMostLocations];
    const unsigned index = mine % kMostLocations;
    const Resolved& at = work.locations[index];
    pass_slot(arguments_, index < work.source_count, watch_, at,
              bytes_in_slot(at.form, work.elements));
  }

  /// Whole units.
  TUTTI_DEVICE static std::uint32_t bytes_in_slot(Form form, unsigned elements) {
    constexpr auto kUnit = static_cast<unsigned>(unit_elements(type));
    if constexpr (!kPlain) {
      return static_cast<std::uint32_t>(
          kernels::encoded_bytes(wire, (elements + kUnit - 1) / kUnit * kUnit));
    }
    const auto bytes = static_cast<std::uint32_t>(
        form == Form::kPartial ? TypeTraits<type>::kPartialBytes : TypeTraits<type>::kBytes);
    return (elements + kUnit - 1) / kUnit * bytes;
  }

  const Arguments& arguments_;
  LaneMemory& lane_;
  Watch watch_;
  bool failed_ = false;  // This thread gave up waiting.
};

template <DataType type, ReduceOp op, WireFormat wire = WireFormat::kPlain>
__global__ void __launch_bounds__(kMostThreads, 1)
    interpret(const __grid_constant__ Arguments arguments) {
  alignas(LaneMemory) __shared__ std::byte lane[sizeof(LaneMemory)];
  Interpreter<type, op, wire>(arguments, *reinterpret_cast<LaneMemory*>(lane)).run();
}

}  // namespace tutti::cuda
