// The symbolic execution. Structure is checked before (structure.h), messages are matched
// statically (wiring.h); here values flow, and rings fill up.
//
// One run is enough. Channels are first in, first out with one reader, so whether a plan gets
// stuck, and what every read returns, does not depend on timing; the run goes in any order that is
// possible. Two runs of a plan without deadlock, one after the other, have none either: all rings
// are empty between them. Fewer steps (tiles of a piece that are empty are skipped) add no new
// waits: what was sent before it still is. And with more slots there are fewer waits.
#include "plan/verify/verify.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

#include "plan/chunks.h"
#include "plan/names.h"
#include "plan/structure.h"
#include "plan/verify/races.h"
#include "plan/verify/symbols.h"
#include "plan/verify/wiring.h"

namespace tutti::plan {
namespace {

/// The content of a chunk's memory or of a slot.
struct Value {
  Tree tree = kNoTree;  // kNoTree: undefined.
  std::uint32_t chunk = 0;
  Form form = Form::kResult;
};

/// It has more than 20 functions and 15 fields: one for each kind of step and what it changes.
class Run {
 public:
  Run(const Plan& plan, const Limits& limits, const Wiring& wiring)
      : plan_(plan),
        slots_(limits.slots),
        wiring_(wiring),
        rank_count_(static_cast<std::uint32_t>(plan.ranks.size())),
        output_chunks_(output_chunks(plan)),
        reduces_(reduces(plan.shape.collective)),
        trees_(rank_count_, plan.contract == Contract::kRelaxed, is_scan(plan.shape.collective)),
        written_(std::size_t{rank_count_} * output_chunks_),
        messages_(wiring.messages.size()) {
    bool lanes = false;
    for (const RankPlan& rank : plan.ranks) {
      first_.push_back(states_.size());
      scratch_.emplace_back(rank.scratch_chunks);
      states_.resize(states_.size() + rank.lanes.size());
      lanes = lanes || rank.lanes.size() > 1;
    }
    // Within one lane of one rank nothing can race: most plans need no clocks.
    if (lanes || touches_peers(plan)) {
      races_ = std::make_unique<Races>(plan);
      stamps_.resize(messages_.size());
    }
  }

  Status all() {
    for (std::uint32_t rank = rank_count_; rank-- > 0;) {
      for (std::uint32_t lane = 0; lane < plan_.ranks[rank].lanes.size(); ++lane)
        runnable_.push_back({rank, lane});
    }
    while (!runnable_.empty()) {
      const Actor actor = runnable_.back();
      runnable_.pop_back();
      TUTTI_RETURN_IF_ERROR(advance(actor));
    }
    return check_done();
  }

 private:
  enum class Need : std::uint8_t { kNothing, kMessage, kRoom };

  // Where a lane is. Within a step, conditions that hold stay so: `checked` counts those that do.
  struct State {
    std::uint32_t step = 0;
    std::uint32_t checked = 0;
    Need need = Need::kNothing;
    std::uint32_t message = 0;  // What it needs: this message, or that this message is taken.
  };
  struct InFlight {
    Value value;
    bool sent = false;
    std::uint32_t readers = 0;  // That still have to take it.
  };

  State& state(Actor actor) { return states_[first_[actor.rank] + actor.lane]; }
  const Lane& lane(Actor actor) const { return plan_.ranks[actor.rank].lanes[actor.lane]; }
  const LaneWiring& wires(Actor actor) const { return wiring_.lanes[actor.rank][actor.lane]; }
  template <class... Args>
  Error error(Actor actor, fmt::format_string<Args...> reason, Args&&... args) {
    return step_error(plan_, actor.rank, actor.lane, state(actor).step,
                      fmt::format(reason, std::forward<Args>(args)...));
  }

  // Runs a lane until it has to wait.
  Status advance(Actor actor) {
    State& at = state(actor);
    const auto& steps = lane(actor).steps;
    for (; at.step < steps.size(); ++at.step, at.checked = 0) {
      if (!ready(actor, steps[at.step])) return ok();
      TUTTI_RETURN_IF_ERROR(execute(actor, steps[at.step]));
    }
    return ok();
  }

  bool ready(Actor actor, const Step& step) {
    State& at = state(actor);
    at.need = Need::kNothing;
    if (step.kind == StepKind::kSignal) return true;
    if (step.kind == StepKind::kWait) return has_message(at, wires(actor).of_step[at.step]);
    const std::uint32_t* messages = wires(actor).of_location.data() + step.first;
    for (; step.first + at.checked < step.end(); ++at.checked) {
      const std::uint32_t message = messages[at.checked];
      if (message == kNoMessage) continue;
      const bool is_source = at.checked < step.source_count;
      if (!(is_source ? has_message(at, message) : has_room(at, message))) return false;
    }
    return true;
  }

  bool has_message(State& at, std::uint32_t message) {
    if (messages_[message].sent) return true;
    at.need = Need::kMessage;
    at.message = message;
    return false;
  }

  bool has_room(State& at, std::uint32_t message) {
    const Wire& wire = wiring_.wires[wiring_.messages[message].wire];
    if (message - wire.first < slots_) return true;
    const std::uint32_t before = message - slots_;  // Was in the same slot. Taken in order.
    if (messages_[before].readers == 0) return true;
    at.need = Need::kRoom;
    at.message = before;
    return false;
  }

  Status execute(Actor actor, const Step& step) {
    const std::uint32_t at = state(actor).step;
    if (step.kind == StepKind::kMove) return move(actor, step);
    const std::uint32_t message = wires(actor).of_step[at];
    if (step.kind == StepKind::kSignal) {
      post(actor, message, {}, true);
    } else {
      acquire(actor, message);
      release(message);
    }
    return ok();
  }

  Status move(Actor actor, const Step& step) {
    const std::uint32_t first_target = step.first + step.source_count;
    const std::uint32_t* messages = wires(actor).of_location.data();
    values_.clear();
    for (std::uint32_t i = step.first; i < first_target; ++i) acquire(actor, messages[i]);
    for (std::uint32_t i = step.first; i < first_target; ++i) {
      Value value;
      TUTTI_RETURN_IF_ERROR(read(actor, step, i, value));
      values_.push_back(value);
    }
    Value value;
    TUTTI_RETURN_IF_ERROR(combine(actor, value));
    for (std::uint32_t i = first_target; i < step.end(); ++i)
      TUTTI_RETURN_IF_ERROR(write(actor, step, i, value));
    // A slot is given back only after the targets were written: until then its bytes are needed.
    for (std::uint32_t i = step.first; i < first_target; ++i) release(messages[i]);
    return ok();
  }

  Status read(Actor actor, const Step& step, std::uint32_t location, Value& value) {
    const Location& at = lane(actor).locations[location];
    switch (at.place) {
      case Place::kInput: TUTTI_RETURN_IF_ERROR(read_input(actor, actor.rank, at, value)); break;
      case Place::kPeerInput: TUTTI_RETURN_IF_ERROR(read_input(actor, at.peer, at, value)); break;
      case Place::kOutput: TUTTI_RETURN_IF_ERROR(read_output(actor, actor.rank, at, value)); break;
      case Place::kPeerOutput: TUTTI_RETURN_IF_ERROR(read_output(actor, at.peer, at, value)); break;
      case Place::kScratch: value = scratch_[actor.rank][at.chunk]; break;
      case Place::kSlot:
      case Place::kMulticast: value = messages_[wires(actor).of_location[location]].value; break;
    }
    if (value.tree == kNoTree)
      return error(actor, "reads {}, which is undefined", to_text(at, true));
    if (value.form != at.form) {
      return error(actor, "{} holds a {}, not a {}", to_text(at, true), to_string(value.form),
                   to_string(at.form));
    }
    if (value.chunk != step.chunk) {
      return error(actor, "{} holds chunk {} of the message, the step is about chunk {}",
                   to_text(at, true), value.chunk, step.chunk);
    }
    return ok();
  }

  Status read_input(Actor actor, std::uint32_t owner, const Location& at, Value& value) {
    value = {owner, chunk_of_input(plan_.shape, plan_.pieces, owner, at.chunk), at.form};
    if (races_)
      TUTTI_RETURN_IF_ERROR(races_->read_input(actor, state(actor).step, owner, at.chunk));
    const std::uint32_t same = in_place_output(plan_, owner, at.chunk);
    if (same == kNoChunk || keeps_content(owner, at.chunk, same)) return ok();
    if (written_[std::size_t{owner} * output_chunks_ + same] != 0) {
      return error(actor,
                   "reads {} after output[{}] was written: in place that is the same "
                   "memory",
                   to_text(at, true), same);
    }
    return ok();
  }

  Status read_output(Actor actor, std::uint32_t owner, const Location& at, Value& value) {
    if (races_)
      TUTTI_RETURN_IF_ERROR(races_->read_output(actor, state(actor).step, owner, at.chunk));
    if (written_[std::size_t{owner} * output_chunks_ + at.chunk] != 0)
      value = promised(owner, at.chunk);
    return ok();
  }

  // The value that the sources make.
  Status combine(Actor actor, Value& value) {
    value = values_[0];
    if (values_.size() == 1) return ok();
    sources_.clear();
    for (const Value& source : values_) {
      if (source.form == Form::kResult) return error(actor, "reduces a result, which is finished");
      sources_.push_back(source.tree);
    }
    value = {trees_.reduce(sources_), value.chunk, Form::kPartial};
    if (value.tree == kNoTree)
      return error(actor, "adds the contribution of rank {} twice", trees_.overlap());
    return ok();
  }

  Status write(Actor actor, const Step& step, std::uint32_t location, Value value) {
    const Location& at = lane(actor).locations[location];
    TUTTI_RETURN_IF_ERROR(convert(actor, step, at, value));
    switch (at.place) {
      case Place::kScratch: scratch_[actor.rank][at.chunk] = value; break;
      case Place::kSlot:
      case Place::kMulticast:
        post(actor, wires(actor).of_location[location], value,
             races_ != nullptr && races_->orders(actor.lane, step.chunk));
        break;
      case Place::kOutput: return write_output(actor, step, actor.rank, at, value);
      case Place::kPeerOutput: return write_output(actor, step, at.peer, at, value);
      case Place::kInput:
      case Place::kPeerInput: return error(actor, "writes to an input");
    }
    return ok();
  }

  // Gives the value the form that it is written in, if it may have that.
  Status convert(Actor actor, const Step& step, const Location& at, Value& value) {
    if (value.form == at.form) return ok();
    if (at.form == Form::kContribution || value.form == Form::kResult) {
      return error(actor, "{}: a {}{} can't become a {}", to_text(at, false),
                   step.source_count > 1 ? "reduced " : "", to_string(value.form),
                   to_string(at.form));
    }
    if (at.form == Form::kResult && trees_.result_of(value.tree) == 0)
      return unfinished(actor, at, value.tree);
    value.form = at.form;
    return ok();
  }

  /// How many ranks' contributions a rank's output adds up.
  std::uint32_t summed(std::uint32_t owner) const {
    return static_cast<std::uint32_t>(summed_ranks(plan_.shape.collective, static_cast<int>(owner),
                                                   static_cast<int>(rank_count_)));
  }

  Error unfinished(Actor actor, const Location& at, Tree tree) {
    const bool relaxed = plan_.contract == Contract::kRelaxed;
    const std::uint32_t ranks = summed(is_of_peer(at) ? at.peer : actor.rank);
    return error(actor, "{}: {} of ranks {} is not the finished result{}", to_text(at, false),
                 relaxed ? "a sum" : "the tree", trees_.to_text(tree),
                 relaxed || ranks == 0 ? "" : ": " + trees_.difference(tree, ranks));
  }

  // The right content of an output chunk. Any finished tree does under the relaxed contract.
  Value promised(std::uint32_t owner, std::uint32_t chunk) const {
    const Tree tree = reduces_ ? trees_.canonical(summed(owner))
                               : giver_of_output(plan_.shape, plan_.pieces, chunk);
    return {tree, chunk_of_output(plan_.shape, plan_.pieces, owner, chunk), Form::kResult};
  }

  // Whether an output chunk that shares memory with an input chunk gets just what was there.
  bool keeps_content(std::uint32_t owner, std::uint32_t input, std::uint32_t output) const {
    return !reduces_ && giver_of_output(plan_.shape, plan_.pieces, output) == owner &&
           chunk_of_input(plan_.shape, plan_.pieces, owner, input) ==
               chunk_of_output(plan_.shape, plan_.pieces, owner, output);
  }

  Status write_output(Actor actor, const Step& step, std::uint32_t owner, const Location& at,
                      const Value& value) {
    // That it is the right chunk is a matter of structure: the value's is the step's, and so is the
    // output's. Where nothing is reduced, the chunk says whose data it is. That a sum is a result
    // was checked before, but not that it is this rank's.
    if (reduces_ && trees_.result_of(value.tree) != summed(owner))
      return unfinished(actor, at, value.tree);
    written_[std::size_t{owner} * output_chunks_ + at.chunk] = 1;
    if (!races_) return ok();
    const Location& source = lane(actor).locations[step.first];
    // Where the form changes, an average is divided.
    const bool self_copy = owner == actor.rank && source.place == Place::kInput &&
                           source.form == at.form &&
                           in_place_output(plan_, actor.rank, source.chunk) == at.chunk &&
                           keeps_content(owner, source.chunk, at.chunk);
    return races_->write_output(actor, state(actor).step, owner, at.chunk, self_copy);
  }

  void post(Actor actor, std::uint32_t message, const Value& value, bool orders) {
    const Wire& wire = wiring_.wires[wiring_.messages[message].wire];
    const bool to_all = wire.kind == WireKind::kMulticast;
    messages_[message] = {value, true, to_all ? rank_count_ - 1 : 1};
    if (races_ && orders) stamps_[message] = races_->stamp(actor, state(actor).step);
    if (!to_all) return wake({wire.to, wire.lane}, Need::kMessage, message);
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank)
      wake({rank, wire.lane}, Need::kMessage, message);
  }

  // Learns what the sender had done. A step has all its messages before it touches any memory.
  void acquire(Actor actor, std::uint32_t message) {
    if (!races_ || message == kNoMessage) return;
    races_->join(actor, wiring_.wires[wiring_.messages[message].wire].from, stamps_[message]);
  }

  // The message is taken; its slot can be used again.
  void release(std::uint32_t message) {
    if (message == kNoMessage || --messages_[message].readers > 0) return;
    if (races_) stamps_[message] = {};
    const Wire& wire = wiring_.wires[wiring_.messages[message].wire];
    wake({wire.from, wire.lane}, Need::kRoom, message);
  }

  void wake(Actor actor, Need need, std::uint32_t message) {
    State& at = state(actor);
    if (at.need != need || at.message != message) return;
    at.need = Need::kNothing;
    runnable_.push_back(actor);
  }

  Status check_done() {
    for (std::uint32_t rank = 0; rank < rank_count_; ++rank) {
      for (std::uint32_t lane = 0; lane < plan_.ranks[rank].lanes.size(); ++lane) {
        if (state({rank, lane}).need != Need::kNothing) return deadlock({rank, lane});
      }
    }
    for (std::size_t index = 0; index < written_.size(); ++index) {
      if (written_[index] != 0 ||
          !has_output(plan_.shape, static_cast<std::uint32_t>(index / output_chunks_)))
        continue;
      return Error{Code::kInvalidPlan,
                   fmt::format("plan {}: rank {}: output[{}] is never written", plan_.name,
                               index / output_chunks_, index % output_chunks_)};
    }
    return races_ ? races_->finish() : ok();
  }

  Error deadlock(Actor actor) {
    const Actor start = actor;
    std::string chain = waiting(actor, actor);
    for (int hop = 0; hop < 2 && !(actor == start) && state(actor).need != Need::kNothing; ++hop) {
      const Actor here = actor;
      const std::string next = waiting(here, actor);
      chain += fmt::format("; rank {} at step {} {}", here.rank, state(here).step, next);
    }
    return error(start, "deadlock with {} slot{} per channel: {}", slots_, slots_ == 1 ? "" : "s",
                 chain);
  }

  // "waits for a slot from rank 3"; `next` becomes the actor that has to act.
  std::string waiting(Actor actor, Actor& next) {
    const State& at = state(actor);
    const Wire& wire = wiring_.wires[wiring_.messages[at.message].wire];
    if (at.need == Need::kMessage) {
      next = {wire.from, wire.lane};
      return fmt::format("waits for a {} from rank {}",
                         wire.kind == WireKind::kSignals ? "signal" : "slot", wire.from);
    }
    if (wire.kind == WireKind::kMulticast) {
      next = actor;
      return "waits until all ranks have read its multicast slot";
    }
    next = {wire.to, wire.lane};
    return fmt::format("waits until rank {} has read its slot", wire.to);
  }

  const Plan& plan_;
  const std::uint32_t slots_;
  const Wiring& wiring_;
  const std::uint32_t rank_count_;
  const std::uint32_t output_chunks_;
  const bool reduces_;
  Trees trees_;
  std::unique_ptr<Races> races_;
  std::vector<std::size_t> first_;  // Where each rank's lanes begin in states_.
  std::vector<State> states_;
  std::vector<std::vector<Value>> scratch_;
  std::vector<std::uint8_t>
      written_;  // Outputs. What is written there is right, or it is an error.
  std::vector<InFlight> messages_;
  std::vector<Stamp> stamps_;
  std::vector<Actor> runnable_;
  std::vector<Value> values_;  // By source of the current step.
  std::vector<Tree> sources_;
};

}  // namespace

Status verify(const Plan& plan, const Limits& limits) {
  TUTTI_RETURN_IF_ERROR(check_structure(plan, limits));
  TUTTI_TRY(const Wiring wiring, wire(plan));
  return Run(plan, limits, wiring).all();
}

}  // namespace tutti::plan
