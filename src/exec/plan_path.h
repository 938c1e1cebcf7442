// File: exec/plan_path.h: calls that go by a verified plan: the rounds before it, and its lanes.
//
// In the first round ranks learn where the buffers are, and so which plan they run: one that
// accesses peers' buffers, or one that moves tiles through slots. A second round follows if a
// segment is new, and one more if the plan is: ranks that would run different plans get an error.
#pragma once
#include "exec/adapt/adapting.h"
#include "exec/calls/active_call.h"
#include "exec/calls/call_board.h"
#include "exec/lane.h"
#include "exec/peer_buffers.h"
#include "exec/routes.h"

namespace tutti::exec {

class PlanPath {
 public:
  struct Options {
    std::shared_ptr<const PlanSource> plans;
    PeerBuffers::Bytes
        read_from_bytes{};  // This and the next two as HostExecutor::Options has them.
    std::size_t stream_from_bytes = SIZE_MAX;
    int machine_ranks = 1;
  };
  PlanPath(CallBoard& board, ActiveCall& call, Adapting& adapt, Options options);

  const PeerBuffers& buffers() const { return buffers_; }

  /// Begins a call, and its first round.
  void begin() {
    if (!call_.wire.is_plain()) ++wire_calls_;
    stage_ = Stage::kBuffers;
    begin_round();
  }
  /// Writes this rank's lines of a round.
  void announce();
  /// Once a round is gathered: whether another one has begun, else lanes can start.
  Result<bool> proceed();
  /// Starts the lanes. False: the communicator is ending, so none may run.
  bool start();
  Poll poll();
  /// Whether a lane can't go on, and why.
  bool failed() const { return failed_ != nullptr; }
  Error error() const;
  /// Whether a lane waits for that rank.
  bool waits_for(int rank) const;
  /// The tile that the slowest lane is at.
  std::size_t tile() const;

 private:
  enum class Stage : std::uint8_t { kBuffers, kMapping, kPlan };

  void begin_round();
  Status learn_blocks();
  void note_times();
  Status agree_on_plan();
  bool writes_past_cache() const;

  CallBoard& board_;
  ActiveCall& call_;
  Adapting& adapt_;
  Options options_;
  PeerBuffers buffers_;
  Routes routes_;
  CallContext context_;
  Stage stage_ = Stage::kBuffers;
  Route* route_ = nullptr;
  std::uint64_t wire_calls_ = 0;  // Alike on all ranks, and whatever they adapt.
  const BoundLane* failed_ = nullptr;
};

}  // namespace tutti::exec
