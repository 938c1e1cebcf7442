// File: exec/lane.h: the host interpreter: one lane of one rank's plan, tile by tile, never
// blocking.
//
// A lane is a state machine. A thread may poll it in its wait loop (a blocking call), the progress
// thread may poll many (asynchronous work), a test may poll in any order it likes: the code is the
// same.
//
// Steps are run in order, but for one thing: while the next step has to wait for a peer, steps of
// this tile and of later ones that only send the input are run, as far as the rings have room.
// Else ranks that share a CPU would take turns for every tile, however deep the rings are.
// What the verifier has proved still holds. The input is read earlier, so before anything could
// have overwritten it; what such a step also writes to this rank's output is the result, and in
// place the very bytes it reads. Its rings take nothing but such steps, in their order, so they
// hold what they would hold if this rank were faster. Decision 0031.
#pragma once
#include <algorithm>
#include <cstddef>
#include <optional>
#include <vector>

#include "exec/calls/blocks.h"
#include "exec/links.h"
#include "kernels/host/reduce.h"
#include "kernels/host/wire.h"
#include "plan/partition.h"
#include "plan/passes/vector_variant.h"
#include "plan/plan.h"
#include "transport/transport.h"

namespace tutti::exec {

enum class Poll { kPending, kProgressed, kDone };

/// Where the bytes of one call are.
struct Buffers {
  const std::byte* input = nullptr;
  std::byte* output = nullptr;
  std::vector<const std::byte*> peer_inputs;  // Mapped; by rank. Plans that were lowered use them.
  std::vector<std::byte*> peer_outputs;
};

/// The data that all lanes of a call share. It has more than 15 fields: each kind of call adds its
/// own.
struct CallContext {
  Buffers buffers;
  /// Not null: peers' buffers are not mapped; it reads and writes them, at these addresses, by
  /// rank.
  Endpoint* endpoint = nullptr;
  std::vector<std::uint64_t> peer_inputs_at, peer_outputs_at;
  const Blocks* blocks = nullptr;  // If they differ in size; null: all have `count`.
  kernels::Arithmetic arithmetic;
  std::size_t count = 0;          // Elements of a block.
  std::size_t tile_elements = 0;  // Elements that fit a slot.
  std::size_t tiles = 1;
  bool scaled = false;     // Contributions are multiplied where they are read, and travel wide.
  bool streaming = false;  // Outputs go past the cache.
  bool slot_streaming = false;  // And so do slots.
  Wire wire;                    // Not plain: slots are encoded.
  std::uint64_t wire_call = 0;  // Counts such calls.
  kernels::WireWork* wire_work = nullptr;
  const Region* region = nullptr;  // Once it is ending, no further step is run; null: never.
};

/// A lane's steps with their rings looked up.
/// It has more than 20 functions and 15 fields: a step's execution is resumed at any of its waits.
class BoundLane {
 public:
  /// `scratch` holds the rank's scratch chunks, slot_bytes apart.
  BoundLane(const plan::Plan& plan, int me, std::size_t lane, Links& links, std::byte* scratch,
            std::size_t slot_bytes);

  void start(const CallContext& context);
  /// Runs steps until one has to wait for a peer.
  Poll poll();
  /// The peer that the current step waits for; -1: none, or the network.
  int waiting_for() const { return waiting_for_; }
  std::size_t tile() const { return tile_; }
  /// Why a peer's buffer could not be read or written; null: none failed. Names the peer; the lane
  /// goes no further.
  const Error* error() const { return error_ ? &*error_ : nullptr; }

 private:
  struct BoundLocation {
    plan::Place place;
    Form form;
    int peer;
    std::uint32_t index;  // The block in an input or output, the chunk in scratch.
    Inbox* inbox;
    Outbox* outbox;
    bool allows_zero_copy;  // A slot for which the user's memory can stand.
  };

  struct BoundChunk {
    std::uint32_t piece;
    plan::KnownAs block;
    bool early;  // The step only sends: it may be run before its turn.
  };

  void find_early();
  bool only_sends(const plan::Step& step) const;
  void pass_early();
  bool send_early();
  std::size_t block_elements(const plan::KnownAs& block) const;
  plan::Range range_of(std::size_t index, std::size_t tile) const;
  bool ready(const plan::Step& step, const plan::Range& range);
  void expect(const plan::Step& step, const plan::Range& range);
  const std::byte* slot_of(const BoundLocation& location) const;
  bool overwrites_zero_copy(const plan::Step& step, const plan::Range& range) const;
  const BoundLocation* find_home(const plan::Step& step) const;
  /// Whether the slot `to` stands for what lies at `home`.
  bool is_zero_copy(const BoundLocation& to, const BoundLocation* home) const {
    return home != nullptr && to.allows_zero_copy && same_bytes(layout(to), home->form);
  }
  bool run_in_turn();
  bool run_move(const plan::Step& step, const plan::Range& range);
  void move(const plan::Step& step, const plan::Range& range);
  void move_encoded(const plan::Step& step, const plan::Range& range);
  bool read(const plan::Step& step, const plan::Range& range);
  bool write(const plan::Step& step, const plan::Range& range);
  bool succeeds(Status status, int peer);
  void commit(const plan::Step& step, const plan::Range& range, const BoundLocation* home);
  void reduce_into(std::size_t count, std::size_t source_count, std::size_t slot_targets,
                   std::size_t other_targets, bool stream_others);
  Form layout(const BoundLocation& location) const;
  /// Whether a value in the one form is bit for bit what it is in the other.
  bool same_bytes(Form a, Form b) const {
    return a == b || (!reduces_ && a != Form::kPartial && b != Form::kPartial);
  }
  /// Whether a change of form changes the value: an average is divided when it becomes a result.
  bool divides(Form from, Form to) const {
    return context_->arithmetic.op == ReduceOp::kAvg && from != to;
  }
  std::size_t user_offset(const BoundLocation& location, const plan::Range& range) const;
  const std::byte* source_at(const BoundLocation& location, const plan::Range& range) const;
  std::byte* target_at(const BoundLocation& location, const plan::Range& range) const;

  const plan::Lane& lane_;
  int me_;
  std::uint32_t pieces_;
  bool reduces_;  // The plan.
  Links& links_;
  std::size_t lane_index_;
  std::byte* scratch_;
  std::size_t slot_bytes_;
  std::vector<BoundLocation> locations_;
  std::vector<BoundChunk> chunks_;        // By step.
  std::vector<std::size_t> early_steps_;  // Those that may be run early, in order.
  std::vector<kernels::Source> sources_;  // The current step's; sized for the largest.
  std::vector<kernels::Target> targets_;

  const CallContext* context_ = nullptr;
  std::size_t grain_ = 1;
  std::size_t tile_ = 0;
  std::size_t step_ = 0;
  std::size_t early_tile_ = 0, early_ = 0;  // The next of early_steps_ that was not run yet.
  int waiting_for_ = -1;
  std::optional<Error> error_;
};

/// Whether any location of the plan, of any rank, is one of those.
template <class Predicate>
bool any_location(const plan::Plan& plan, Predicate predicate) {
  for (const plan::RankPlan& rank : plan.ranks) {
    for (const plan::Lane& lane : rank.lanes) {
      if (std::any_of(lane.locations.begin(), lane.locations.end(), predicate)) return true;
    }
  }
  return false;
}

/// The elements at whose multiples a call's chunks are cut: a cache line, or a block of a wire.
constexpr std::size_t grain_of(DataType type, const Wire& wire) {
  if (!wire.is_plain()) return kernels::kWireBlock;
  return std::max<std::size_t>(1, kCacheLine / size_of(type));
}

/// True if the plan has slots or scratch, so that a call has to go tile by tile.
bool is_tiled(const plan::Plan& plan);
/// True if partial sums lie in slots or scratch.
inline bool has_partials(const plan::Plan& plan) {
  return any_location(plan, [](const plan::Location& at) { return at.form == Form::kPartial; });
}

}  // namespace tutti::exec
