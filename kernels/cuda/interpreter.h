// File: kernels/cuda/interpreter.h: what the host and the kernels both know: their arguments, rings
// of slots, and how much fits them.
//
// Model. One kernel runs one rank's share of a verified plan: a block is a lane, and interprets the
// steps of plan/plan.h as they are, tile by tile, as exec/lane.h does on the host. All memory it
// works on is mapped: its own and its peers'.
//
// Slots. A ring is written by one lane of one rank and read by the same lane of another. Slots and
// `head` are in the reader's memory, `tail` is in the writer's, so each polls its own. Formats:
//
//   simple  data; then head says how many slots are full
//   packed  16-byte lines of 2 x (4 bytes of data, 4 of flag): half a slot is data, and one trip
//           over the link does instead of two
//   line    128-byte lines of 7 x 16 bytes of data and a flag; needs NVLink
//
// Flags are a slot's number in its ring, so a slot has to be zero before its first use. A packed
// flag has 32 bits: it would be wrong after 2^32 - 1 slots in a line that no tile in between was
// long enough to reach.
//
// Units. Threads work on units of kUnitElements of a type, at most 16 bytes of data, or 32 of
// partial sums. Slots and scratch have whole units.
#pragma once
#include <cstddef>
#include <cstdint>

#include "plan/plan.h"
#include "tutti/detail/device_common.h"
#include "tutti/detail/wire_codec.h"
#include "tutti/types.h"
#include "tutti/wire.h"

namespace tutti::cuda {

enum class SlotFormat : std::uint8_t { kSimple, kPacked, kLine };
inline constexpr SlotFormat kSlotFormats[] = {SlotFormat::kSimple, SlotFormat::kPacked,
                                              SlotFormat::kLine};
constexpr const char* to_string(SlotFormat format) {
  switch (format) {
    case SlotFormat::kSimple: return "simple";
    case SlotFormat::kPacked: return "packed";
    case SlotFormat::kLine: return "line";
  }
  return "unknown format";
}

/// Sources and targets of a step, at most.
inline constexpr unsigned kMostSources = 8;
inline constexpr unsigned kMostTargets = 16;
inline constexpr unsigned kMostLocations = kMostSources + kMostTargets;
/// A block is cut into pieces at multiples of this, in elements: a cache line, as on the host.
constexpr std::size_t grain_of(DataType type) { return 64 / size_of(type); }
/// The same in a call with a wire: a block of the wire.
constexpr std::size_t grain_of(DataType type, WireFormat wire) {
  return wire == WireFormat::kPlain ? grain_of(type) : kernels::kWireBlock;
}

// In a line format, a warp has 4 lines, 28 lanes with data.
inline constexpr unsigned kLineLanes = 8;
inline constexpr unsigned kWarpUnits = kWarpLanes - kWarpLanes / kLineLanes;
inline constexpr std::size_t kWarpLineBytes = std::size_t{kWarpLanes} * 16;

/// The most units of `unit_bytes` (8, 16 or 32) that fit a slot.
constexpr std::size_t units_in_slot(SlotFormat format, std::size_t slot_bytes,
                                    std::size_t unit_bytes) {
  switch (format) {
    case SlotFormat::kSimple: return slot_bytes / unit_bytes;
    case SlotFormat::kPacked: return slot_bytes / (unit_bytes * 2);
    case SlotFormat::kLine:
      return slot_bytes / ((unit_bytes + 15) / 16 * kWarpLineBytes) * kWarpUnits;
  }
  return 0;
}

/// Data of the types that have units of 16 bytes, in a slot.
constexpr std::size_t data_in_slot(SlotFormat format, std::size_t slot_bytes) {
  return units_in_slot(format, slot_bytes, 16) * 16;
}

/// Rings whose slots have flags beside their data, on so many lanes.
struct RingSet {
  SlotFormat format = SlotFormat::kPacked;
  std::uint32_t lanes = 0;
  std::size_t slot_bytes = 0;
};

/// One end of a ring, in its rank's memory; its position survives launches.
struct RingEnd {
  std::byte* slots = nullptr;
  std::uint64_t* head = nullptr;
  std::uint64_t* tail = nullptr;
  std::uint64_t position = 0;
  /// By slot, in rings between hosts, else null: the bytes that are used, for the thread that
  /// carries slots; and the chain of the call that wrote it (calls.h), which arrives with it.
  std::uint32_t* used = nullptr;
  std::uint32_t* stamps = nullptr;
};

/// Signals to a peer and from it.
struct SignalEnd {
  std::uint64_t* outgoing = nullptr;  // In the peer's memory.
  std::uint64_t* incoming = nullptr;
  std::uint64_t sent = 0, taken = 0;
};

/// This rank's note to a peer on another host and the peer's to this one (transport/note.h); null:
/// the peer is on this host.
struct NoteEnds {
  std::byte* outgoing = nullptr;
  const std::byte* incoming = nullptr;
};

/// Moves that a block does at a time, at most, and what a page has room for.
inline constexpr unsigned kMostMoves = 8;
inline constexpr unsigned kPageSteps = 64;
inline constexpr unsigned kPageLocations = 192;
/// A lane's steps, or some of them in a row where there are many: a block has one page at a time in
/// its shared memory.
struct alignas(16) LanePage {
  plan::Step steps[kPageSteps];
  plan::Location locations[kPageLocations];  // Steps count them from here.
  /// By step: how many from it on are of its kind, don't depend on each other, and have no more
  /// locations than a warp has threads. A block may take them together.
  std::uint8_t runs[kPageSteps] = {};
  std::uint32_t step_count = 0;
};

/// All that must be the same on all ranks in a call: as a hash, and as words (cuda/mesh/tag.h).
struct CallTag {
  std::uint32_t digest = 0;
  std::uint32_t words[3] = {};
};

/// A block's state, which lasts from one launch to the next.
struct alignas(64) BlockState {
  struct alignas(8) Calls {
    std::uint32_t number, chain;  // The last call's (calls.h).
  };
  std::uint64_t one_shots = 0;  // One-shot calls so far; their kernel loads this with `calls`.
  Calls calls = {};
  std::uint64_t busy = 0;  // 1: a kernel has the block's rings.
  /// Block 0's alone is used: the rank's calls with a wire (begin_wire_call), times kWireCall; and
  /// how many blocks are done with the one that is under way.
  std::uint64_t wire_calls = 0;
};
inline constexpr std::uint64_t kWireCall = 1 << 16;

// A board (calls.h) has the rank that failed, a report of each peer, a line of calls for each lane
// and peer, and a line of messages for each peer and direction.
inline constexpr unsigned kBoardEntries = 8;
inline constexpr std::size_t kEntryBytes = 32;
inline constexpr std::size_t kBoardLine = kBoardEntries * kEntryBytes;
constexpr std::size_t board_calls(std::size_t ranks) {
  return kBoardHead + (ranks + 1) / 2 * 2 * kReportBytes;
}
constexpr std::size_t board_messages(std::size_t ranks, std::size_t lanes) {
  return board_calls(ranks) + lanes * ranks * kBoardLine;
}
constexpr std::size_t board_bytes(std::size_t ranks, std::size_t lanes) {
  return board_messages(ranks, lanes) + ranks * 2 * kBoardLine;
}

// A note (calls.h) has its version, a line of calls, and lines of messages to the peer that reads
// it and from it.
inline constexpr std::size_t kNoteHead = 64;
inline constexpr std::size_t kNoteBytes = kNoteHead + 3 * kBoardLine;

/// What a rank's kernels tell the host besides a report, in the host's memory. Each word says
/// something by itself.
struct Progress {
  std::uint64_t waiting = 0;  // waiting_word of a wait that is long (calls.h); the host clears it.
  std::uint64_t ended = 0;    // 1 + the collectives before the first launch that ended early.
};
/// That the launch with this entry of the flight record waits for `peer`. Entries count from 1.
constexpr std::uint64_t waiting_word(std::uint64_t entry, unsigned peer) {
  return entry << 16 | peer;
}
/// In `ended`: nobody knows how many collectives there were before, as a graph replayed it.
inline constexpr std::uint64_t kEndedSomewhere = ~std::uint64_t{0};

/// Which launch it is, for what it says of itself.
struct LaunchMark {
  std::uint64_t entry = 0;        // In the flight record; 0: it has none.
  std::uint64_t collectives = 0;  // That were recorded before it.
  bool replayed = false;          // Graphs will run it, so these are not known.
};

/// The kernel's arguments. Pointers are to memory that the device can access. What short calls read
/// lies close together: each launch fetches it anew.
/// It has more than 15 fields: a kernel gets all it needs in one block of constant memory.
struct Arguments {
  const LanePage* pages = nullptr;  // By block, page_count of each.
  // By lane * ranks + peer.
  RingEnd* inboxes = nullptr;
  RingEnd* outboxes = nullptr;
  SignalEnd* signals = nullptr;
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::byte* scratch = nullptr;
  Report* report = nullptr;      // In the host's memory.
  BlockState* states = nullptr;  // By block; null: calls are not compared.
  std::uint64_t timeout_ns = 0;
  std::uint64_t slot_bytes = 0;
  std::uint64_t scratch_bytes = 0;  // Size of a scratch chunk.
  std::uint64_t count = 0;          // Elements of a block of the message.
  std::uint64_t tile_elements = 0;
  std::uint64_t tiles = 0;
  double scale = 1;
  std::int64_t integer_scale = 1;
  const void* scale_at = nullptr;  // The scale, of the call's type, where only the device knows it.
  std::uint32_t slot_count = 0;
  std::uint32_t pieces = 1;
  // Divides `pieces`, 1 if anything is in slots or scratch: so many pieces that follow each other
  // are one, which lanes share run by run (Work).
  std::uint32_t shares = 1;
  std::uint32_t ranks = 1;
  std::uint32_t rank = 0;
  SlotFormat format = SlotFormat::kSimple;
  ReduceOp op = ReduceOp::kSum;
  bool scaled = false;         // Contributions are multiplied where they are read, and travel wide.
  bool entry_barrier = false;  // All ranks meet before the first step.
  CallTag tag;
  bool wire_stochastic = false;  // How a call with a wire rounds (wire.h).
  std::uint32_t board_lanes = 0;
  std::uint32_t page_count = 0;
  Progress* progress = nullptr;  // In the host's memory; null: nobody looks.
  LaunchMark mark;
  const NoteEnds* notes = nullptr;           // By rank; null: all ranks are on one host.
  std::uint64_t staged_peers = 0;            // A bit for each peer that posts on staged_board.
  std::byte* staged_board = nullptr;         // This rank's board in the host's memory.
  std::byte* boards[kMostDeviceRanks] = {};  // By rank, with its own; null: a rank of another host.
  const std::byte* peer_inputs[kMostDeviceRanks] = {};  // By rank; of plans that were lowered.
  std::byte* peer_outputs[kMostDeviceRanks] = {};
};

/// The flag of packed lines that were written at `position` of their ring; never 0.
constexpr std::uint32_t packed_flag(std::uint64_t position) {
  return static_cast<std::uint32_t>(1 + position % 0xffffffffu);
}
/// The flags of a line's two halves in one word. The second one may hold more than the position.
constexpr std::uint64_t packed_flags(std::uint32_t first, std::uint32_t second) {
  return first | std::uint64_t{second} << 32;
}

/// The arguments of the one-shot all-reduce (one_shot.h). It uses all of `common` that is not
/// about a plan. Areas lie as [block][2][from rank], area_bytes each.
struct OneShotArguments {
  std::byte* areas[kMostSources] = {};  // By rank, whose memory it is.
  std::uint64_t area_bytes = 0;
  std::uint64_t elements_per_block = 0;
  Arguments common;
};

/// Threads of a block, at most: with more, some kernels would have too few registers.
inline constexpr unsigned kMostThreads = 512;
/// Elements of a tile, at most: kernels count them in 32 bits.
inline constexpr std::size_t kMostTileElements = std::size_t{1} << 30;

/// The kernel for a type and an operation: a handle for cudaLaunchKernel; null where is_supported
/// says no. Its argument is an Arguments, its grid has a block for each lane, blocks have whole
/// warps. Plans that reduce nothing take any operation.
const void* interpreter_kernel(DataType type, ReduceOp op);
/// The same for calls with a wire, of float32 over simple slots; null also for the bitwise
/// operations. The plan sends no partial sums.
const void* wire_kernel(WireFormat format, ReduceOp op);
/// The same for the one-shot all-reduce, whose argument is an OneShotArguments.
const void* one_shot_kernel(DataType type, ReduceOp op);
/// The same for the two-shot all-reduce over mapped peers, whose argument is an Arguments; its
/// blocks share the rank's piece. kMostSources ranks at most.
const void* two_shot_kernel(DataType type, ReduceOp op);

}  // namespace tutti::cuda
