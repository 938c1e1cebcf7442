// The plan way of HostExecutor: where the buffers are, which plan, its lanes; and waiting.
#include <cstring>

#include "exec/host_executor.h"
#include "plan/hash.h"

namespace tutti::exec {

HostExecutor::Announcement HostExecutor::announcement() {
  const std::size_t element = size_of(call_.type);
  const std::size_t input =
      call_.uneven ? blocks_.input_elements * element : input_bytes(call_, ranks_);
  const std::size_t output =
      call_.uneven ? blocks_.output_elements * element : output_bytes(call_, ranks_);
  Announcement mine;
  if (has_input(call_, me_)) mine.input = endpoint_->name(call_.input, input);
  if (has_output(call_, me_)) mine.output = endpoint_->name(call_.output, output);
  mine.input_at = reinterpret_cast<std::uintptr_t>(call_.input);
  mine.output_at = reinterpret_cast<std::uintptr_t>(call_.output);
  mine.took_ns = took_ns_;
  return mine;
}

/// By rank, whether others reach its memory.
void HostExecutor::find_mates() {
  const std::span<const int> hosts = endpoint_->hosts();
  mates_.assign(static_cast<std::size_t>(ranks_), hosts.empty() && ranks_ > 1);
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    mates_[rank] = std::count(hosts.begin(), hosts.end(), hosts[rank]) > 1;
  has_mates_ = std::find(mates_.begin(), mates_.end(), true) != mates_.end();
}

/// Whether a call may go by mapped buffers at all: a rank's own scale is not known to peers that
/// read its input, and some have to be of one host.
bool HostExecutor::may_map() const { return !context_.scaled && has_mates_; }

/// Whether no more is known of a rank's buffers than that they may be mapped where they have to be.
bool HostExecutor::could_map(int rank, const Announcement& from) const {
  const auto r = static_cast<std::size_t>(rank);
  const auto fits = [&](bool there, std::uint64_t segment) {
    return !there || !mates_[r] || (segment != 0 && !unmappable_[r].contains(segment));
  };
  // In place, the blocks of an all-to-all have to be exchanged by way of slots.
  const bool apart = from.input_at != from.output_at && (from.input != from.output || !mates_[r]);
  return fits(has_input(call_, rank), from.input.segment) &&
         fits(has_output(call_, rank), from.output.segment) &&
         (call_.collective != Collective::kAllToAll || apart);
}

/// Notes whether this call's buffers could have been mapped. Every rank sees the same lines.
void HostExecutor::learn_from_packets() {
  bool mapped = may_map();  // As in read_announcements: else calls change ways in turn.
  for (int rank = 0; rank < ranks_ && mapped; ++rank) {
    Announcement from;
    std::memcpy(&from, region_.lines(rank, place_)->payload.data(), sizeof(from));
    mapped = could_map(rank, from);
  }
  lately_mapped_ = mapped;
}

/// Where the peers have this rank's blocks; false if they see them otherwise than this rank does.
bool HostExecutor::learn_blocks() {
  if (!call_.uneven) return true;
  for (int rank = 0; rank < ranks_; ++rank) {
    const BlockView view = region_.blocks(rank, number_)[me_];
    if (blocks_.learn(rank, view) || rank == me_) continue;
    const auto r = static_cast<std::size_t>(rank);
    fail({Code::kMismatch,
          describe_call(pack(call_), call_.count) + ": rank " + std::to_string(rank) + " gives " +
              std::to_string(view.gives) + " elements to rank " + std::to_string(me_) +
              ", which expects " + std::to_string(blocks_.gets[r]) + ", and expects " +
              std::to_string(view.gets) + " from it, which gives " +
              std::to_string(blocks_.gives[r]) +
              "; both ends of a block must give it the same count",
          Rank{me_}, Rank{rank}});
    return false;
  }
  return true;
}

/// What all ranks have said of the last call that was timed. Every rank sees the same lines.
void HostExecutor::note_times() {
  std::uint32_t slowest = 0;
  for (int rank = 0; rank < ranks_; ++rank) {
    Announcement from;
    std::memcpy(&from, region_.lines(rank, place_)->payload.data(), sizeof(from));
    slowest = std::max(slowest, from.took_ns);
  }
  on_trial_->trial.note(slowest * 1e-3);
  on_trial_ = nullptr;
  took_ns_ = 0;
}

bool HostExecutor::may_read(const Call& call) const {
  const std::size_t block = call.count * size_of(call.type);  // What a rank reads at once.
  return endpoint_->reads_peers() && !call.uneven && !reduces(call.collective) &&
         block >= options_.read_from[static_cast<std::size_t>(call.collective)];
}

/// True if the plan can start; false if some segment was never met before: then all ranks, who see
/// the same lines and so know the same segments, try to map it and tell each other how it went.
bool HostExecutor::read_announcements() {
  if (on_trial_ != nullptr) note_times();
  all_mapped_ = may_map();
  all_read_ = may_read(call_);
  root_idles_ = false;
  bool known = true;
  for (int rank = 0; rank < ranks_; ++rank) {
    Announcement from;
    std::memcpy(&from, region_.lines(rank, place_)->payload.data(), sizeof(from));
    const auto r = static_cast<std::size_t>(rank);
    inputs_[r] = from.input;
    outputs_[r] = from.output;
    all_mapped_ = all_mapped_ && could_map(rank, from);
    const auto is_known = [&](bool there, std::uint64_t segment) {
      return !there || !mates_[r] || known_[r].contains(segment);
    };
    known = known && is_known(has_input(call_, rank), from.input.segment) &&
            is_known(has_output(call_, rank), from.output.segment);
    context_.peer_inputs_at[r] = from.input_at;
    context_.peer_outputs_at[r] = from.output_at;
    if (rank == call_.root && may_share(call_))
      root_idles_ = root_in_place(call_, from.input_at, from.output_at);
    if (call_.collective == Collective::kAllToAll && from.input_at == from.output_at)
      all_read_ = false;
  }
  if (!all_mapped_) return true;
  if (known) mapping_ok_ = map_peers();
  return known;
}

bool HostExecutor::map_peers() {
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    if (rank == me_) {
      context_.buffers.peer_inputs[r] = call_.input;
      context_.buffers.peer_outputs[r] = call_.output;
      continue;
    }
    if (!endpoint_->near(me_, rank)) continue;
    // Of a peer's buffers only what this rank touches has to be there.
    const std::size_t element = size_of(call_.type);
    if (has_input(call_, rank)) {
      const std::size_t bytes = call_.uneven
                                    ? (blocks_.peer_input_at[r] + blocks_.gets[r]) * element
                                    : input_bytes(call_, ranks_);
      const auto input = endpoint_->map(rank, inputs_[r], bytes);
      if (!input) return map_failed_ = input.error(), false;
      context_.buffers.peer_inputs[r] = *input;
    }
    if (has_output(call_, rank)) {
      const std::size_t bytes = call_.uneven
                                    ? (blocks_.peer_output_at[r] + blocks_.gives[r]) * element
                                    : output_bytes(call_, ranks_);
      const auto output = endpoint_->map(rank, outputs_[r], bytes);
      if (!output) return map_failed_ = output.error(), false;
      context_.buffers.peer_outputs[r] = *output;
    }
  }
  return true;
}

/// After a round in which ranks told each other whether they could map all buffers. False: it
/// failed.
bool HostExecutor::agree_on_mapping() {
  if (phase_ != Phase::kMapGather) {
    if (!all_mapped_ || mapping_ok_) return true;
    fail({map_failed_.code,
          describe_call(pack(call_), call_.count) +
              ": a buffer that could be mapped before can't be any more: " + map_failed_.what,
          Rank{me_}, map_failed_.peer});
    return false;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    Announcement from;
    std::memcpy(&from, region_.lines(rank, place_)->payload.data(), sizeof(from));
    all_mapped_ = all_mapped_ && from.mapped == 1;
  }
  for (int rank = 0; rank < ranks_; ++rank) {
    const auto r = static_cast<std::size_t>(rank);
    for (const std::uint64_t segment : {inputs_[r].segment, outputs_[r].segment}) {
      if (segment != 0) (all_mapped_ ? known_ : unmappable_)[r].insert(segment);
    }
  }
  return true;
}

/// Once it is known whether all buffers are mapped: the plan. All ranks make the same calls, so all
/// meet a route for the first time in the same call, and tell each other what they would run.
void HostExecutor::start_plan() {
  if (!agree_on_mapping()) return;
  lately_mapped_ = all_mapped_;
  const auto found = route();
  if (!found) {
    fail(found.error());
    return;
  }
  way_ = *found;
  if (way_->agreed) return start_lanes();
  next_number(2 * kRound);
  phase_ = Phase::kPlanCredit;
}

/// After a round in which ranks told each other which plan they would run. False: it failed.
bool HostExecutor::agree_on_plan() {
  const PlanName& mine = way_->plan->name;
  for (int rank = 0; rank < ranks_; ++rank) {
    if (rank == me_) continue;
    PlanName theirs;
    std::memcpy(&theirs, region_.lines(rank, place_)->payload.data(), sizeof(theirs));
    if (theirs.hash == mine.hash) continue;
    theirs.text.back() = 0;
    const bool same = mine.text == theirs.text;
    fail(
        {Code::kMismatch,
         describe_call(pack(call_), call_.count) + ": rank " + std::to_string(me_) +
             " would run the plan " + mine.text.data() + ", rank " + std::to_string(rank) +
             (same ? " another one of that name" : std::string(" the plan ") + theirs.text.data()) +
             kBuiltAlike,
         Rank{me_}, Rank{rank}});
    return false;
  }
  way_->agreed = true;
  return true;
}

void HostExecutor::start_lanes() {
  Route& way = *way_;
  plan_ = way.plan;
  const bool by_kernel = way.access == Access::kRead || way.access == Access::kShared;
  context_.endpoint = by_kernel ? endpoint_.get() : nullptr;
  context_.tile_elements = way.tile_elements;
  context_.tiles = way.tiles;
  context_.streaming = writes_past_cache();
  if (call_.uneven) {  // Blocks may be empty here and there, but every call runs its signals once.
    if (!plan_->tiled) context_.tile_elements = std::max<std::size_t>(1, blocks_.largest);
    context_.tiles = std::max<std::size_t>(
        1, (blocks_.largest + context_.tile_elements - 1) / context_.tile_elements);
    context_.slot_streaming = slot_stores_.usual();
  } else {
    context_.slot_streaming = plan_->tiled && slot_stores_.begin(&way);
  }
  context_.buffers.input = call_.input;
  context_.buffers.output = call_.output;
  if (!way.trial.settled()) {
    on_trial_ = &way;
    trial_start_ = std::chrono::steady_clock::now();
  }
  for (BoundLane& lane : plan_->lanes) lane.start(context_);
  phase_ = Phase::kLanes;
  if (way.access == Access::kSlots) return;
  // seq_cst: whoever ends the call either sees that this rank may write into its buffers, or this
  // rank sees that it has ended, and does not begin.
  region_.status(me_).busy.store(number_, std::memory_order_seq_cst);
  if (region_.header().abort_state.load(std::memory_order_seq_cst) != 0) end_by_abort();
}

/// Whether the ranks of this machine read and write more than stays in its cache from call to call.
bool HostExecutor::writes_past_cache() const {
  const CollectiveTraits traits = traits_of(call_.collective);
  const auto all = static_cast<std::size_t>(options_.machine_ranks);
  const std::size_t element = size_of(call_.type);
  const std::size_t input =
      call_.uneven ? blocks_.input_elements * element : input_bytes(call_, ranks_);
  const std::size_t output =
      call_.uneven ? blocks_.output_elements * element : output_bytes(call_, ranks_);
  const std::size_t inputs = input * (traits.root_input ? 1 : all);
  const std::size_t outputs = output * (traits.root_output ? 1 : all);
  // In place they are the same bytes.
  const bool one = call_.input == call_.output;
  return (one ? std::max(inputs, outputs) : inputs + outputs) >= options_.stream_from;
}

Result<HostExecutor::Route*> HostExecutor::route() {
  const std::uint64_t what = pack(call_);
  const std::uint64_t count = common_count(call_);
  const Access access = all_mapped_   ? Access::kMapped
                        : !all_read_  ? Access::kSlots
                        : root_idles_ ? Access::kShared
                                      : Access::kRead;
  const std::uint64_t hash =
      (what ^ count * 0x9e3779b97f4a7c15ULL ^ static_cast<std::uint64_t>(access)) *
      0xd6e8feb86659fd93ULL;
  const std::size_t at = hash >> 32 & (kRoutes - 1);
  Route* known = nullptr;
  for (Route* route : {&routes_[at], &routes_[at ^ 1]}) {
    if (route->what == what && route->count == count && route->access == access) known = route;
  }
  if (known != nullptr) known->trial.begin();
  if (known != nullptr && known->which == known->trial.plan()) return known;
  const std::size_t which = known != nullptr ? known->trial.plan() : 0;
  TUTTI_TRY(const PlanChoice choice, options_.plans->choose(call_, access, which));
  const plan::Plan* const plan = choice.plan;
  // relaxed: to be shown.
  if (known != nullptr) plans_tried_.fetch_add(1, std::memory_order_relaxed);
  Route& way = known != nullptr ? *known : routes_[routes_[at].what == 0 ? at : at ^ 1];
  const auto& lanes = plan->ranks[static_cast<std::size_t>(me_)].lanes;
  if (lanes.size() > region_.config().lanes) {
    return Error{Code::kInternal, "plan " + plan->name + " has more lanes than this communicator"};
  }
  BoundPlan& bound = bind(*plan);
  const Form widest = bound.partials || context_.scaled ? Form::kPartial : Form::kResult;
  const std::size_t grain = std::max<std::size_t>(1, kCacheLine / size_of(call_.type));
  const std::size_t fits = region_.config().slot_bytes / element_bytes(call_.type, widest);
  const std::size_t largest = plan::piece_of(count, plan->pieces, 0, grain).count;
  const std::size_t tile = bound.tiled ? std::max<std::size_t>(1, fits) : largest;
  way = {.what = what,
         .count = count,
         .plan = &bound,
         .tile_elements = tile,
         .tiles = largest == 0 ? 0 : (largest + tile - 1) / tile,
         .access = access,
         .which = which,
         .trial = known != nullptr ? std::move(way.trial) : trial_of(choice),
         .agreed = false};
  return &way;
}

/// Where plans are compared, rings are to be warm: what they hold has gone through once.
Trial HostExecutor::trial_of(const PlanChoice& choice) const {
  const RegionConfig& config = region_.config();
  const std::size_t ring =
      std::max(config.slot_count, config.multicast_slots) * std::size_t{config.slot_bytes};
  const std::size_t block = std::max<std::size_t>(1, call_.count * size_of(call_.type));
  return {choice.plans, choice.predicted_us, 1 + (choice.predicted_us > 0 ? 0 : ring / block)};
}

HostExecutor::BoundPlan& HostExecutor::bind(const plan::Plan& plan) {
  const auto found = bound_.find(&plan);
  if (found != bound_.end()) return found->second;
  BoundPlan& bound = bound_[&plan];
  const std::size_t slot_bytes = region_.config().slot_bytes;
  const plan::RankPlan& mine = plan.ranks[static_cast<std::size_t>(me_)];
  bound.scratch.resize(mine.scratch_chunks * slot_bytes);
  bound.tiled = is_tiled(plan);
  bound.partials = has_partials(plan);
  bound.name.hash = plan::hash_of(plan);
  plan.name.copy(bound.name.text.data(), bound.name.text.size() - 1);
  for (std::size_t lane = 0; lane < mine.lanes.size(); ++lane) {
    bound.lanes.emplace_back(plan, me_, lane, links_, bound.scratch.data(), slot_bytes);
  }
  return bound;
}

Poll HostExecutor::poll_lanes() {
  bool progressed = false, done = true;
  for (BoundLane& lane : plan_->lanes) {
    const Poll result = lane.poll();
    if (lane.error() != nullptr) return fail(read_error(*lane.error()));
    progressed = progressed || result == Poll::kProgressed;
    done = done && result == Poll::kDone;
  }
  if (region_.ending()) [[unlikely]]
    return end_by_abort();
  if (done) {
    // release: this rank's writes into its peers' buffers are over.
    if (way_->access != Access::kSlots)
      region_.status(me_).busy.store(0, std::memory_order_release);
    if (plan_->tiled) slot_stores_.end();
    if (on_trial_ != nullptr) {
      const std::chrono::nanoseconds took = std::chrono::steady_clock::now() - trial_start_;
      took_ns_ = static_cast<std::uint32_t>(std::clamp<std::int64_t>(took.count(), 1, UINT32_MAX));
    }
    return finish(), leave();
  }
  if (progressed && wire_ != nullptr) wire_->flush();
  return progressed ? Poll::kProgressed : Poll::kPending;
}

/// Why a peer's buffer could not be read: where the call has been ended already, because of that.
Error HostExecutor::read_error(const Error& found) const {
  if (region_.ending()) return broken_error(describe_call(pack(call_), call_.count));
  return {found.code,
          describe_call(pack(call_), call_.count) + ": rank " + std::to_string(found.peer.value) +
              " " + found.what,
          Rank{me_}, found.peer};
}

std::string describe_call(std::uint64_t what, std::uint64_t count) {
  if (what >> 63 == 0) return "nothing yet";
  if (what >> 56 & 1) return "barrier";
  const auto collective = static_cast<Collective>(what >> 48 & 0xff);
  std::string text(to_string(collective));
  if (what >> 57 & 1)
    return text + "_v of " + std::string(to_string(static_cast<DataType>(what >> 40 & 0xff)));
  text += " of " + std::to_string(count) + " " +
          std::string(to_string(static_cast<DataType>(what >> 40 & 0xff)));
  if (reduces(collective))
    text += " (" + std::string(to_string(static_cast<ReduceOp>(what >> 32 & 0xff))) + ")";
  if (has_root(collective)) {
    text += traits_of(collective).root_input ? " from rank " : " to rank ";
    text += std::to_string(what & 0xffffU);
  }
  if ((what >> 16 & 0xffff) != 0) text += ", with an algorithm of its own";
  return text;
}

}  // namespace tutti::exec
