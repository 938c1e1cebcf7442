#include "exec/plan_path.h"

#include <fmt/format.h>
#include <algorithm>

#include "base/log.h"
#include "base/one_line.h"
#include "exec/calls/agreement.h"

namespace tutti::exec {

PlanPath::PlanPath(CallBoard& board, ActiveCall& call, Adapting& adapt, Options options)
    : board_(board),
      call_(call),
      adapt_(adapt),
      options_(std::move(options)),
      buffers_(board, call, options_.read_from_bytes),
      routes_(board, options_.plans, adapt.plan_trials) {
  const auto ranks = static_cast<std::size_t>(board.team().ranks);
  context_.region = &board.region();
  context_.peer_inputs_at.resize(ranks);
  context_.peer_outputs_at.resize(ranks);
  context_.buffers.peer_inputs.resize(ranks);
  context_.buffers.peer_outputs.resize(ranks);
}

void PlanPath::begin_round() {
  if (stage_ != Stage::kBuffers) board_.flight().end_ok(board_.number());  // The round before.
  const std::uint32_t lines = board_.line_credit();
  const std::uint64_t count = common_count(call_);
  board_.begin({.credit = call_.vector_variant ? std::min(lines, kBlockTables) : lines,
                .blocks = call_.vector_variant},
               call_.word | kRound * static_cast<std::uint64_t>(stage_), count, count);
}

void PlanPath::announce() {
  switch (stage_) {
    case Stage::kBuffers: {
      if (call_.vector_variant)
        call_.blocks.show(board_.region().blocks(board_.team().me, board_.number()));
      PeerBuffers::Announcement mine = buffers_.announcement();
      mine.took_ns = adapt_.plan_trials.took_ns();
      return board_.announce(mine);
    }
    case Stage::kMapping: return board_.announce(buffers_.outcome());
    case Stage::kPlan: return board_.announce(route_->plan->name);
  }
}

/// All ranks make the same calls, so all meet a route for the first time in the same call, and tell
/// each other what they would run.
Result<bool> PlanPath::proceed() {
  board_.flight().gathered(board_.last_peer(), stage_ == Stage::kBuffers);
  if (stage_ == Stage::kPlan) {
    TUTTI_RETURN_IF_ERROR(agree_on_plan());
    return false;
  }
  if (stage_ == Stage::kBuffers) {
    TUTTI_RETURN_IF_ERROR(learn_blocks());
    if (adapt_.plan_trials.timing()) note_times();
    TUTTI_TRY(const bool known, buffers_.learn(context_));
    if (!known) {
      stage_ = Stage::kMapping;
      begin_round();
      return true;
    }
  } else {
    buffers_.agree();
  }
  if (call_.wire.is_plain()) adapt_.eager_limits.note(buffers_.access() == Access::kMapped);
  TUTTI_TRY(route_, routes_.find(call_, buffers_.access()));
  if (route_->agreed) return false;
  stage_ = Stage::kPlan;
  begin_round();
  return true;
}

/// Where the peers have this rank's blocks; an error if they see them otherwise than this rank.
Status PlanPath::learn_blocks() {
  if (!call_.vector_variant) return ok();
  const int me = board_.team().me;
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    const BlockView view = board_.region().blocks(rank, board_.number())[me];
    if (call_.blocks.learn(rank, view) || rank == me) continue;
    const auto r = static_cast<std::size_t>(rank);
    return Error{
        Code::kMismatch,
        fmt::format("{}: rank {} gives {} elements to rank {}, which expects {}, and expects {} "
                    "from it, which gives {}; both ends of a block must give it the same count",
                    call_.describe(), rank, view.gives, me, call_.blocks.gets[r], view.gets,
                    call_.blocks.gives[r]),
        Rank{me}, Rank{rank}};
  }
  return ok();
}

/// The slowest rank's time of the last call that was timed. Every rank sees the same lines.
void PlanPath::note_times() {
  std::uint32_t slowest = 0;
  for (int rank = 0; rank < board_.team().ranks; ++rank)
    slowest = std::max(slowest, board_.announced_by<PeerBuffers::Announcement>(rank).took_ns);
  adapt_.plan_trials.note(slowest);
}

/// After a round in which ranks told each other which plan they would run.
Status PlanPath::agree_on_plan() {
  const PlanName& mine = route_->plan->name;
  for (int rank = 0; rank < board_.team().ranks; ++rank) {
    if (rank == board_.team().me) continue;
    auto theirs = board_.announced_by<PlanName>(rank);
    if (theirs.hash == mine.hash) continue;
    theirs.text.back() = 0;
    const bool same = mine.text == theirs.text;
    return Error{
        Code::kMismatch,
        call_.describe() + ": rank " + std::to_string(board_.team().me) + " would run the plan " +
            mine.text.data() + ", rank " + std::to_string(rank) +
            (same ? " another one of that name" : " the plan " + one_line(theirs.text.data())) +
            kBuiltAlike,
        Rank{board_.team().me}, Rank{rank}};
  }
  route_->agreed = true;
  if (board_.team().me == 0)  // All ranks run the same one.
    log::info(log::Part::kPlans, "call {}: {} goes by {}", board_.number(), call_.describe(),
              mine.text.data());
  return ok();
}

bool PlanPath::start() {
  const BoundPlan& plan = *route_->plan;
  const Access access = route_->access;
  board_.flight().set_plan(plan.name.hash, plan.name.text.data());
  context_.endpoint =
      access == Access::kRead || access == Access::kShared ? &board_.team().endpoint : nullptr;
  context_.arithmetic = call_.arithmetic;
  context_.scaled = call_.scaled;
  context_.count = call_.count;
  context_.wire = call_.wire;
  context_.wire_call = wire_calls_;
  context_.wire_work = plan.wire_work.get();
  context_.blocks = call_.vector_variant ? &call_.blocks : nullptr;
  context_.tile_elements = route_->tile_elements;
  context_.tiles = route_->tiles;
  context_.streaming = writes_past_cache();
  if (call_.vector_variant) {  // Blocks may be empty here and there, but every call runs its
                               // signals once.
    const std::size_t largest = call_.blocks.largest;
    if (!plan.tiled) context_.tile_elements = std::max<std::size_t>(1, largest);
    context_.tiles =
        std::max<std::size_t>(1, (largest + context_.tile_elements - 1) / context_.tile_elements);
    context_.slot_streaming = adapt_.slot_stores.usual();
  } else {
    context_.slot_streaming = plan.tiled && adapt_.slot_stores.begin(route_);
  }
  context_.buffers.input = call_.input;
  context_.buffers.output = call_.output;
  adapt_.plan_trials.begin(route_->online_tuning);
  for (BoundLane& lane : route_->plan->lanes) lane.start(context_);
  if (access == Access::kSlots) return true;
  // seq_cst: a rank that ends the call sees that this one may write into its buffers, or this rank
  // sees that the call has ended, and does not begin.
  board_.region().status(board_.team().me).busy.store(board_.number(), std::memory_order_seq_cst);
  return board_.region().header().abort_state.load(std::memory_order_seq_cst) == 0;
}

/// Whether the ranks of this machine read and write more than stays in its cache from call to call.
bool PlanPath::writes_past_cache() const {
  const CollectiveTraits traits = traits_of(call_.collective);
  const auto all = static_cast<std::size_t>(options_.machine_ranks);
  const std::size_t inputs = call_.in_bytes * (traits.root_input ? 1 : all);
  const std::size_t outputs = call_.out_bytes * (traits.root_output ? 1 : all);
  // In place they are the same bytes.
  const bool one = call_.input == call_.output;
  return (one ? std::max(inputs, outputs) : inputs + outputs) >= options_.stream_from_bytes;
}

Poll PlanPath::poll() {
  bool progressed = false, done = true;
  for (BoundLane& lane : route_->plan->lanes) {
    const Poll result = lane.poll();
    if (lane.error() != nullptr) [[unlikely]]
      failed_ = &lane;
    progressed = progressed || result == Poll::kProgressed;
    done = done && result == Poll::kDone;
  }
  if (!done || board_.region().ending()) return progressed ? Poll::kProgressed : Poll::kPending;
  // release: this rank's writes into its peers' buffers are over.
  if (route_->access != Access::kSlots)
    board_.region().status(board_.team().me).busy.store(0, std::memory_order_release);
  if (route_->plan->tiled) adapt_.slot_stores.end();
  adapt_.plan_trials.end();
  return Poll::kDone;
}

Error PlanPath::error() const {
  const Error& found = *failed_->error();
  return {found.code, fmt::format("{}: rank {} {}", call_.describe(), found.peer.value, found.what),
          Rank{board_.team().me}, found.peer};
}

std::size_t PlanPath::tile() const {
  std::size_t least = SIZE_MAX;
  for (const BoundLane& lane : route_->plan->lanes) least = std::min(least, lane.tile());
  return least;
}

bool PlanPath::waits_for(int rank) const {
  return std::any_of(route_->plan->lanes.begin(), route_->plan->lanes.end(),
                     [rank](const BoundLane& lane) { return lane.waiting_for() == rank; });
}

}  // namespace tutti::exec
