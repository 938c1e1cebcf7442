// Direct plans: ranks read and write each other's buffers, and signals stand where slots were.
//
//   read    a slot filled with a chunk of the sender's input: the receiver's step reads that input.
//   write   a slot whose receiver puts it into its output: the sender writes that output and
//           signals; the receiver waits for the signal, and goes on from its output if it had other
//           targets.
//
// Entry. No rank touches a peer's buffers before the peer has entered the call: the plan asks for
// ranks that start together, as they do once they have told each other where their buffers are.
// Exit. No rank returns while a peer may still touch its buffers: after its last access to a peer's
// buffers a rank signals that peer, unless a write's signal does so already, and the peer waits for
// that at its end.
//
// Hosts. Only between ranks of one host; what goes to others stays in slots.
//
// Halves. Where one rank gives all and another gets it, one of them would wait for the other. If
// every piece is cut in two, one half can be read and the other written at the same time.
//
// Waits for a write stand at the lane's end, so that meanwhile other steps go on; where something
// follows on the write, they keep their places.
//
// Whether a write comes too early for a buffer in place (its old content may still be needed), or a
// wait too late, is not decided here: the verifier knows. So what is lowered is what verifies of:
// reads and writes, reads only, writes only; each with late waits, or else without.
#include <algorithm>

#include "plan/passes/draft.h"
#include "plan/passes/passes.h"
#include "plan/verify/wiring.h"

namespace tutti::plan {
namespace {

enum class Fate : std::uint8_t { kSlot, kRead, kWrite };

struct Allowed {
  bool reads, writes;
  bool halves = false;  // Where both are: reads of even pieces, writes of odd ones.
};

class Lowering {
 public:
  Lowering(const Plan& plan, const Wiring& wiring, HostOf hosts, Allowed allowed, bool late_waits)
      : plan_(plan),
        wiring_(wiring),
        rank_count_(static_cast<std::uint32_t>(plan.ranks.size())),
        late_waits_(late_waits) {
    for (const RankPlan& rank : plan.ranks) lanes_ = std::max(lanes_, rank.lanes.size());
    for (const Message& message : wiring.messages) {
      const bool near = hosts.empty() || hosts[message.sender.rank] == hosts[message.receiver.rank];
      fates_.push_back(near ? fate(message, allowed) : Fate::kSlot);
    }
  }

  bool changes() const {
    return std::ranges::any_of(fates_, [](Fate fate) { return fate != Fate::kSlot; });
  }

  Plan run() {
    Plan lowered = plan_;
    for (RankPlan& rank : lowered.ranks) rank.lanes.clear();
    for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
      touchers_.assign(rank_count_, {});
      std::vector<DraftLane> drafts(rank_count_);
      for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
        if (lane < plan_.ranks[rank].lanes.size()) drafts[rank] = lower_lane(rank, lane);
        join_moves(drafts[rank], Join::kMemory);
        leave(rank, drafts[rank]);
      }
      for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
        lowered.ranks[rank].lanes.push_back(to_lane(with_exit(rank, drafts[rank])));
      }
    }
    trim_scratch(lowered);
    lowered.entry_barrier = true;
    return lowered;
  }

 private:
  // A rank that touches another rank's buffers.
  struct Toucher {
    std::uint16_t rank;
    bool needs_exit_wait;  // No write's signal that the rank waits for comes after the last touch.
  };

  const Step& step_at(const End& end) const {
    return plan_.ranks[end.rank].lanes[end.lane].steps[end.step];
  }
  const Location& first_source(const End& end) const {
    return plan_.ranks[end.rank].lanes[end.lane].locations[step_at(end).first];
  }

  Fate fate(const Message& message, Allowed allowed) const {
    if (wiring_.wires[message.wire].kind != WireKind::kSlots) return Fate::kSlot;
    const Step& sender = step_at(message.sender);
    const Step& receiver = step_at(message.receiver);
    const bool read = allowed.reads && sender.source_count == 1 &&
                      first_source(message.sender).place == Place::kInput;
    const bool write =
        allowed.writes && receiver.source_count == 1 && output_of(message) != nullptr;
    if (!read && !write) return Fate::kSlot;
    if (read && write && allowed.halves) return sender.chunk % 2 == 0 ? Fate::kRead : Fate::kWrite;
    if (read && write) {
      // Both save the slot. Where one rank has the data and many want it, each reads for itself.
      // Elsewhere each rank sends the same to all, which is one read and many writes.
      return traits_of(plan_.shape.collective).root_input ? Fate::kRead : Fate::kWrite;
    }
    return read ? Fate::kRead : Fate::kWrite;
  }

  // The output that the receiver of a message puts it into; null if it does not.
  const Location* output_of(const Message& message) const {
    const End& end = message.receiver;
    const auto targets = plan_.ranks[end.rank].lanes[end.lane].targets(step_at(end));
    const auto found = std::ranges::find(targets, Place::kOutput, &Location::place);
    return found == targets.end() ? nullptr : &*found;
  }

  DraftLane lower_lane(std::uint32_t rank, std::uint32_t lane) {
    const Lane& steps = plan_.ranks[rank].lanes[lane];
    DraftLane draft = to_draft(steps), lowered, waits;
    for (std::size_t index = 0; index < draft.size(); ++index) {
      DraftStep& step = draft[index];
      if (step.kind == StepKind::kMove) {
        const std::uint32_t* messages =
            wiring_.lanes[rank][lane].of_location.data() + steps.steps[index].first;
        lower_targets(step, messages + step.sources.size());
        const std::size_t before = lowered.size();
        lower_sources(step, messages, lowered);
        if (step.targets.empty() && late_waits_) {
          waits.insert(waits.end(), lowered.begin() + static_cast<std::ptrdiff_t>(before),
                       lowered.end());
          lowered.resize(before);
        }
        if (step.targets.empty()) continue;  // Only waited for, or read by its receiver.
      }
      lowered.push_back(std::move(step));
    }
    lowered.insert(lowered.end(), waits.begin(), waits.end());
    return lowered;
  }

  void lower_sources(DraftStep& step, const std::uint32_t* messages, DraftLane& lowered) const {
    for (std::size_t i = 0; i < step.sources.size(); ++i) {
      if (messages[i] == kNoMessage) continue;
      const Message& message = wiring_.messages[messages[i]];
      const auto sender = static_cast<std::uint16_t>(message.sender.rank);
      if (fates_[messages[i]] == Fate::kRead) {
        step.sources[i] = first_source(message.sender);
        step.sources[i].place = Place::kPeerInput;
        step.sources[i].peer = sender;
      } else if (fates_[messages[i]] == Fate::kWrite) {  // It is the only source.
        lowered.push_back({StepKind::kWait, sender, 0, {}, {}, {}});
        step.sources[i] = *output_of(message);
        std::erase(step.targets, step.sources[i]);
      }
    }
  }

  void lower_targets(DraftStep& step, const std::uint32_t* messages) const {
    std::vector<Location> targets;
    for (std::size_t i = 0; i < step.targets.size(); ++i) {
      const Fate fate = messages[i] == kNoMessage ? Fate::kSlot : fates_[messages[i]];
      if (fate == Fate::kRead) continue;
      targets.push_back(step.targets[i]);
      if (fate != Fate::kWrite) continue;
      const std::uint16_t receiver = step.targets[i].peer;
      targets.back() = *output_of(wiring_.messages[messages[i]]);
      targets.back().place = Place::kPeerOutput;
      targets.back().peer = receiver;
      step.signals.push_back(receiver);
    }
    step.targets = std::move(targets);
  }

  // Adds the exit signals to a lane and enters the rank as a toucher.
  void leave(std::uint32_t rank, DraftLane& lane) {
    std::vector<DraftStep*> last(rank_count_, nullptr);
    std::vector<std::uint16_t> touched;
    for (DraftStep& step : lane) {
      for (const auto* locations : {&step.sources, &step.targets}) {
        for (const Location& at : *locations) {
          if (!is_of_peer(at)) continue;
          if (last[at.peer] == nullptr) touched.push_back(at.peer);
          last[at.peer] = &step;
        }
      }
    }
    for (const std::uint16_t owner : touched) {
      std::vector<std::uint16_t>& signals = last[owner]->signals;
      const bool covered = std::ranges::find(signals, owner) != signals.end();
      if (!covered) signals.push_back(owner);
      touchers_[owner].push_back({static_cast<std::uint16_t>(rank), !covered});
    }
  }

  DraftLane with_exit(std::uint32_t rank, DraftLane lane) {
    // Each starts with the next rank, so that not all wait for rank 0 first.
    const auto hops = [&](std::uint32_t peer) { return (peer + rank_count_ - rank) % rank_count_; };
    std::vector<Toucher>& touchers = touchers_[rank];
    std::ranges::sort(touchers, {}, [&](const Toucher& toucher) { return hops(toucher.rank); });
    for (const Toucher& toucher : touchers) {
      if (toucher.needs_exit_wait) lane.push_back({StepKind::kWait, toucher.rank, 0, {}, {}, {}});
    }
    return lane;
  }

  const Plan& plan_;
  const Wiring& wiring_;
  const std::uint32_t rank_count_;
  const bool late_waits_;
  std::size_t lanes_ = 0;
  std::vector<Fate> fates_;                     // By message.
  std::vector<std::vector<Toucher>> touchers_;  // By owner, in the current lane.
};

/// With the first of what is allowed that holds.
std::optional<Plan> lower(const Plan& plan, HostOf hosts, std::initializer_list<Allowed> tries,
                          std::string_view name) {
  if (plan.shape.rank_count == 1 || !holds(plan)) return std::nullopt;
  const auto wiring = wire(plan);
  if (!wiring) return std::nullopt;
  for (const Allowed allowed : tries) {
    for (const bool late_waits : {true, false}) {
      Lowering lowering(plan, *wiring, hosts, allowed, late_waits);
      if (!lowering.changes()) break;
      Plan lowered = lowering.run();
      lowered.name += name;
      // In an all-to-all every block is exchanged for another one: in place that takes slots.
      lowered.apart = plan.apart || plan.shape.collective == Collective::kAllToAll;
      if (holds(lowered)) return lowered;
    }
  }
  return std::nullopt;
}

/// The plan with every piece in two, one right after the other in the same lane.
Plan halved(const Plan& plan) {
  Plan result = plan;
  result.pieces = plan.pieces * 2;
  for (RankPlan& rank : result.ranks) {
    for (Lane& lane : rank.lanes) {
      DraftLane draft;
      for (const DraftStep& step : to_draft(lane)) {
        if (step.kind != StepKind::kMove) {
          draft.push_back(step);
          continue;
        }
        for (const std::uint32_t half : {0U, 1U}) {
          DraftStep& part = draft.emplace_back(step);
          part.chunk = step.chunk * 2 + half;
          if (half == 0) part.signals.clear();  // The second half gives them for both.
          for (auto* locations : {&part.sources, &part.targets}) {
            for (Location& at : *locations) at = share_of(at, half, 2, rank.scratch_chunks);
          }
        }
      }
      lane = to_lane(draft);
    }
    rank.scratch_chunks *= 2;
  }
  return result;
}

/// Every step that touches a peer's buffers copies: it has one source.
bool only_copies_peers(const Plan& plan) {
  for (const RankPlan& rank : plan.ranks) {
    for (const Lane& lane : rank.lanes) {
      for (const Step& step : lane.steps) {
        if (step.kind != StepKind::kMove || step.source_count == 1) continue;
        if (std::ranges::any_of(lane.sources(step), is_of_peer) ||
            std::ranges::any_of(lane.targets(step), is_of_peer))
          return false;
      }
    }
  }
  return true;
}

}  // namespace

std::optional<Plan> direct(const Plan& plan, HostOf hosts, Mapped mapped) {
  if (mapped.inputs && mapped.outputs)
    return lower(plan, hosts, {{true, true}, {true, false}, {false, true}}, "+direct");
  return lower(plan, hosts, {{mapped.inputs, mapped.outputs}}, "+direct");
}

std::optional<Plan> read(const Plan& plan, bool shared) {
  if (reduces(plan.shape.collective)) return std::nullopt;
  if (shared) {
    auto lowered = lower(halved(plan), {}, {{true, true, true}}, "+share");
    if (lowered && only_copies_peers(*lowered)) return lowered;
  }
  // Where all go to one rank, it would do all the work by itself.
  auto lowered = traits_of(plan.shape.collective).root_output
                     ? lower(plan, {}, {{false, true}}, "+write")
                     : lower(plan, {}, {{true, false}}, "+read");
  return lowered && only_copies_peers(*lowered) ? std::move(lowered) : std::nullopt;
}

}  // namespace tutti::plan
