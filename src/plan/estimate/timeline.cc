// Events in virtual time.
//
// A rank's lanes share its compute. A move takes `step_us` and the time to read and write its
// bytes; at least what it takes its lane by itself; and where it touches mapped memory, at least
// as long as the path needs. A lane takes steps that don't depend on each other as one phase, as
// far as they could have begun when the phase did (kernels/cuda/interpret.h). Then slots depart:
// each arrives when everything on its path has worked it off, and after the latency; its room comes
// back one latency after it was read. A signal takes the latency, behind what was written to the
// same peer. A multicast slot goes over the paths to all readers at the same time.
//
// What ranks do at one moment they do together: first everything is given to the resources, then
// each event sees when the last of its resources is done. Only lanes take turns, as many at a time
// as there are rank orders: lanes that stayed in step would all wait at the same time.
#include "plan/estimate/timeline.h"

#include <algorithm>
#include <compare>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "plan/estimate/servers.h"

namespace tutti::plan {
namespace {

// When something takes place. All that has the same moment takes place together.
struct Moment {
  Picoseconds at = 0;
  bool leaves = false;  // Steps' slots depart; else steps begin.
  std::uint32_t turn = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): not a 0.
  friend auto operator<=>(const Moment&, const Moment&) = default;
};

// Lanes by the moment at which they are due. Ranks that are alike are due together, thousands of
// them, so moments are ordered and not lanes.
class EventQueue {
 public:
  bool empty() const { return due_.empty(); }
  void add(const Moment& moment, std::uint32_t actor) {
    if (latest_ == due_.end() || latest_->first != moment) latest_ = find(moment);
    latest_->second.push_back(actor);
  }
  /// The earliest moment, and the lanes that are due then, in order.
  Moment take(std::vector<std::uint32_t>& actors) {
    if (latest_ == due_.begin()) latest_ = due_.end();
    auto first = due_.extract(due_.begin());
    actors.swap(first.mapped());
    if (!std::ranges::is_sorted(actors)) std::ranges::sort(actors);
    const Moment moment = first.key();
    first.mapped().clear();
    spare_.push_back(std::move(first));
    return moment;
  }

 private:
  using Due = std::map<Moment, std::vector<std::uint32_t>>;

  Due::iterator find(const Moment& moment) {
    if (spare_.empty()) return due_.try_emplace(moment).first;
    const auto found = due_.lower_bound(moment);
    if (found != due_.end() && found->first == moment) return found;
    spare_.back().key() = moment;
    const auto added = due_.insert(found, std::move(spare_.back()));
    spare_.pop_back();
    return added;
  }

  Due due_;
  Due::iterator latest_ = due_.end();  // To which a lane was added.
  std::vector<Due::node_type> spare_;  // From moments that have passed, with their memory.
};

/// It has more than 20 functions: one for each kind of event.
class Timeline {
 public:
  explicit Timeline(const Play& play)
      : instances_(play.instances),
        ways_(play.ways),
        representatives_(play.representatives),
        pieces_(play.pieces),
        type_(play.type),
        lanes_(play.lanes),
        tiles_(play.pieces.tiles()),
        limit_(play.limit),
        servers_(play.instances, play.ways, play.representatives),
        queues_(play.representatives.channels.size() * play.lanes) {
    if (play.recording != nullptr) {
      play.recording->tiles = tiles_;
      recorder_.emplace(*play.recording, queues_.size(), play.slots);
    }
    for (Queue& queue : queues_) queue.rooms.add_at_start(static_cast<std::uint32_t>(play.slots));
    for (const Representatives::Actor& actor : representatives_.actors) {
      for (std::uint32_t lane = 0; lane < lanes_; ++lane) {
        State& state = states_.emplace_back();
        state.actor = &actor;
        state.number = lane;
        state.turn = actor.lane * lanes_ + lane;
        state.share = lane * instances_.orders + actor.order;
      }
    }
  }

  Estimate run() {
    if (tiles_ == 0) return {};
    if (instances_.plan.entry_barrier) meet();
    for (std::uint32_t actor = 0; actor < states_.size(); ++actor) offer(actor);
    while (!event_queue_.empty()) {
      const Moment now = event_queue_.take(batch_);
      if (std::max(now.at, servers_.latest()) > limit_) return beyond_limit();
      now.leaves ? depart(now.at) : begin(now.at);
    }
    Event end;
    Picoseconds working = 0;
    for (const State& state : states_) {
      TUTTI_CHECK(state.tile == tiles_ && "the plan was not verified");
      end = later(end, state.now);
      working = std::max(working, state.working);
    }
    std::set<std::uint32_t> ranks;
    for (const Representatives::Actor& actor : representatives_.actors) ranks.insert(actor.rank);
    return {to_us(end.at),      servers_.bytes_on_busiest_link(),
            end.messages,       to_us(end.latency),
            servers_.busy_us(), ranks.size(),
            to_us(working)};
  }

 private:
  static Estimate beyond_limit() {
    Estimate none;
    none.microseconds = kBeyondLimit;
    return none;
  }

  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  // A lane. It waits for a channel; a step's conditions that hold stay so (`checked`). It has more
  // than 15 fields: all of a simulation's state.
  struct State {
    const Representatives::Actor* actor = nullptr;
    std::uint32_t number = 0;  // Among lanes on the order,
    std::uint32_t share = 0;   // and among all lanes: which part of a piece it has.
    std::uint32_t turn = 0;
    std::uint32_t step = 0;
    std::size_t tile = 0;
    Event now;                // The end of the last step.
    Picoseconds working = 0;  // What its bytes took the lane so far.
    Event start;              // The earliest start of the next, as far as it was checked.
    std::uint32_t checked = 0;
    std::uint32_t blocked_on = kNobody;
    bool is_new = true;  // Nothing of the next step was checked.
    // When the last slot came of the next step, and whether that takes one from a peer.
    Picoseconds ready = 0;
    bool takes_slot = false;
    // The current phase: when it began, and the step behind those that may belong to it.
    Picoseconds phase_start = 0;
    std::uint32_t phase_end = 0;
    // For recordings: what made `start` as late as it is, and the step that began.
    Recording::Waited waited = Recording::Waited::kForNothing;
    std::uint32_t waited_on = kNobody, recorded = Recording::kNone;
  };
  // Messages for the reader of a channel, and room for its writer.
  struct Queue {
    Fifo arrivals, rooms;
  };

  // All ranks start together: each has heard from the farthest of the others.
  void meet() {
    for (State& state : states_) {
      Picoseconds latency = 0;
      for (std::uint32_t peer = 0; peer < instances_.traffic.ranks; ++peer) {
        if (peer != state.actor->rank)
          latency = std::max(
              latency, ways_.latency(ways_.of_mapped(state.actor->order, peer, state.actor->rank)));
      }
      state.now = {latency, 1, latency};
    }
  }

  const Step& step_of(const State& state) const { return state.actor->steps[state.step]; }
  // Elements of the current tile of a step's chunk.
  std::size_t elements(const State& state, const Step& step) const {
    const std::uint32_t piece = step.chunk % instances_.plan.pieces * (lanes_ * instances_.orders);
    return pieces_.elements(piece + state.share, state.tile);
  }
  // The queue of a state's lane, among those of the representatives' channel.
  std::uint32_t queue_of(const State& state, std::uint32_t channel) const {
    return channel * lanes_ + state.number;
  }

  // Puts a lane on the event queue if its next step can start; else it is offered again when what
  // it lacks comes.
  void offer(std::uint32_t actor) {
    State& state = states_[actor];
    skip_empty(state);
    if (state.tile == tiles_) return;
    if (state.is_new) {
      state.start = state.now;
      state.checked = 0;
      state.ready = 0;
      state.takes_slot = false;
      state.is_new = false;
      state.waited = Recording::Waited::kForNothing;
    }
    state.blocked_on = kNobody;
    if (can_start(state)) event_queue_.add({state.start.at, false, state.turn}, actor);
  }

  // Goes to the next step of which there is something in this tile.
  void skip_empty(State& state) const {
    for (; state.tile < tiles_; ++state.tile, state.step = 0) {
      for (; state.step < state.actor->steps.size(); ++state.step) {
        const Step& step = step_of(state);
        if (step.kind != StepKind::kMove || elements(state, step) > 0) return;
      }
    }
  }

  bool can_start(State& state) {
    const Step& step = step_of(state);
    const Representatives::Actor& actor = *state.actor;
    if (step.kind == StepKind::kSignal) return true;
    if (step.kind == StepKind::kWait)
      return has_come(state, actor.of_step[state.step], &Queue::arrivals);
    for (; step.first + state.checked < step.end(); ++state.checked) {
      const std::uint32_t channel = actor.of_location[step.first + state.checked];
      if (channel == kNoChannel) continue;
      if (state.checked < step.source_count) {
        if (!has_come(state, channel, &Queue::arrivals)) return false;
        continue;
      }
      const std::uint32_t width =
          instances_.traffic.width(actor.locations[step.first + state.checked]);
      for (std::uint32_t i = 0; i < width; ++i) {
        if (representatives_.channels[channel + i].is_own) continue;
        if (!has_come(state, channel + i, &Queue::rooms)) return false;
      }
    }
    return true;
  }
  bool has_come(State& state, std::uint32_t channel, Fifo Queue::*what) {
    const Fifo& fifo = queues_[queue_of(state, channel)].*what;
    if (fifo.empty()) {
      state.blocked_on = channel;
      return false;
    }
    if (recorder_ && fifo.front().at > state.start.at) {
      state.waited =
          what == &Queue::rooms ? Recording::Waited::kForRoom : Recording::Waited::kForMessage;
      state.waited_on = queue_of(state, channel);
    }
    state.start = later(state.start, fifo.front());
    state.ready = std::max(state.ready, fifo.front().at);
    state.takes_slot = state.takes_slot || what == &Queue::arrivals;
    return true;
  }

  double bytes(const State& state, const Step& step, const Location& at) const {
    return static_cast<double>(elements(state, step)) *
           static_cast<double>(element_bytes(type_, at.form));
  }

  // Calls visit(channel, location, bytes) for every slot that the current step sends.
  template <class Visit>
  void for_each_sent(const State& state, Visit visit) const {
    const Step& step = step_of(state);
    const Representatives::Actor& actor = *state.actor;
    if (step.kind == StepKind::kSignal) {
      visit(actor.of_step[state.step], std::size_t{kNobody}, 0.0);
      return;
    }
    for (std::size_t location = step.first + step.source_count; location < step.end(); ++location) {
      const std::uint32_t channel = actor.of_location[location];
      if (channel == kNoChannel) continue;
      const Location& at = actor.locations[location];
      const double amount = bytes(state, step, at);
      for (std::uint32_t k = 0; k < instances_.traffic.width(at); ++k) {
        if (!representatives_.channels[channel + k].is_own) visit(channel + k, location, amount);
      }
    }
  }
  // Calls visit(way, bytes, is_read) for every access of the current step to a peer's memory.
  template <class Visit>
  void for_each_mapped(const State& state, Visit visit) {
    if (!instances_.maps) return;
    const Step& step = step_of(state);
    const Representatives::Actor& actor = *state.actor;
    for (std::uint32_t i = step.first; i < step.end(); ++i) {
      const Location& at = actor.locations[i];
      if (!is_of_peer(at)) continue;
      const bool reads = i < step.first + step.source_count;
      visit(reads ? ways_.of_mapped(actor.order, at.peer, actor.rank)
                  : ways_.of_mapped(actor.order, actor.rank, at.peer),
            bytes(state, step, at), reads);
    }
  }
  int joined(const State& state, std::size_t location) const {
    const std::int32_t* by_location = state.actor->joined;
    return by_location == nullptr || location == kNobody ? 0 : by_location[location];
  }

  double bytes_moved(const State& state) const {
    const Step& step = step_of(state);
    double moved = 0;
    for (std::uint32_t i = step.first; i < step.end(); ++i)
      moved += bytes(state, step, state.actor->locations[i]);
    return moved;
  }

  // Whether the step that begins now is not of the lane's current phase; then it begins another.
  bool begins_phase(State& state, Picoseconds now) const {
    if (instances_.phases.empty()) return false;
    const Step& step = step_of(state);
    if (step.kind == StepKind::kWait) return false;
    const bool fits = state.step != 0 && state.step < state.phase_end;
    const bool hidden = !instances_.sees_slots && state.takes_slot;
    if (fits && !hidden && state.ready <= state.phase_start) return false;
    const auto& lengths = instances_.phases[state.actor->actor % instances_.listed_count()];
    state.phase_start = now;
    state.phase_end = state.step + lengths[state.step];
    return true;
  }

  // Batches are longer than caches: what the lanes after the i-th will touch is asked for early,
  // each thing when what points to it should be there.
  void fetch_behind(std::size_t i) const {
    constexpr std::size_t kNear = 2, kFar = 4, kFarther = 6;
    if (i + kFarther >= batch_.size()) return;
    __builtin_prefetch(&states_[batch_[i + kFarther]]);
    __builtin_prefetch(&states_[batch_[i + kFarther]].now);
    const State& far = states_[batch_[i + kFar]];
    __builtin_prefetch(far.actor->steps.data() + far.step);
    const State& near = states_[batch_[i + kNear]];
    const Step& step = step_of(near);
    __builtin_prefetch(near.actor->locations + step.first);
    __builtin_prefetch(near.actor->of_location.data() + step.first);
    const State& next = states_[batch_[i + 1]];
    const Step& its = step_of(next);
    for (std::uint32_t k = its.first; k < its.end(); ++k) {
      const std::uint32_t channel = next.actor->of_location[k];
      if (channel != kNoChannel) __builtin_prefetch(&queues_[queue_of(next, channel)]);
    }
  }

  // The steps of the batch begin; each is put on the event queue for when it is done.
  void begin(Picoseconds now) {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      const State& state = states_[batch_[i]];
      servers_.compute(*state.actor, now, bytes_moved(state));
      for_each_mapped(state, [&](std::uint32_t way, double amount, bool) {
        servers_.carry_mapped(way, now, amount);
      });
    }
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      State& state = states_[batch_[i]];
      Event end{servers_.computed(*state.actor), state.start.messages, state.start.latency};
      const Picoseconds phase = begins_phase(state, now) ? ways_.phase() : 0;
      const Picoseconds alone = ways_.alone(bytes_moved(state));
      state.working += alone;
      end = later(end, {now + phase + alone, state.start.messages, state.start.latency + phase});
      for_each_mapped(state, [&](std::uint32_t way, double, bool reads) {
        const Picoseconds latency = reads ? ways_.latency(way) : 0;
        end = later(end, {servers_.done_mapped(way, now) + latency, state.start.messages,
                          state.start.latency + latency});
      });
      if (recorder_) record(state, end.at);
      state.now = end;
      event_queue_.add({end.at, true, state.turn}, batch_[i]);
    }
  }

  // The steps of the batch are done: their slots depart, and what they read is free.
  void depart(Picoseconds now) {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      const State& state = states_[batch_[i]];
      for_each_sent(state, [&](std::uint32_t channel, std::size_t location, double amount) {
        servers_.carry(channel, now, amount, joined(state, location));
      });
    }
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      State& state = states_[batch_[i]];
      for_each_sent(state, [&](std::uint32_t channel, std::size_t location, double amount) {
        const Representatives::Channel& at = representatives_.channels[channel];
        const Picoseconds sent = servers_.done(channel, now, joined(state, location));
        Queue& queue = queues_[queue_of(state, channel)];
        queue.arrivals.push(
            {sent + at.latency, state.now.messages + 1, state.now.latency + at.latency});
        if (!at.is_signal) queue.rooms.pop();
        if (recorder_) record_sent(state, channel, amount, now, sent);
      });
      free_sources(state);
    }
    // Only now, so that all of the batch come before what they make possible.
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      finish(batch_[i]);
    }
  }

  void free_sources(const State& state) {
    for_each_taken(state, [&](std::uint32_t channel) {
      const Representatives::Channel& at = representatives_.channels[channel];
      Queue& queue = queues_[queue_of(state, channel)];
      queue.arrivals.pop();
      if (!at.is_signal)
        queue.rooms.push({state.now.at + at.back, state.now.messages, state.now.latency + at.back});
      if (recorder_) recorder_->take(state.recorded, queue_of(state, channel), !at.is_signal);
    });
  }
  // As in a plan with all lanes (replicate in passes.h).
  std::uint32_t lane_of(const State& state) const {
    return state.actor->lane * (lanes_ * instances_.orders) + state.share;
  }
  void record_sent(const State& state, std::uint32_t channel, double amount, Picoseconds now,
                   Picoseconds sent) {
    const Representatives::Channel& at = representatives_.channels[channel];
    recorder_->send(
        {state.actor->rank, representatives_.actors[at.reader].rank, lane_of(state), state.recorded,
         Recording::kNone, amount, to_us(now), to_us(sent), to_us(sent + at.latency)},
        queue_of(state, channel), !at.is_signal);
  }
  // Records a step that begins, while state.now is still the end of the one before it.
  void record(State& state, Picoseconds end) {
    state.recorded = recorder_->start({.rank = state.actor->rank,
                                       .lane = lane_of(state),
                                       .step = state.step,
                                       .tile = state.tile,
                                       .ready_us = to_us(state.now.at),
                                       .start_us = to_us(state.start.at),
                                       .end_us = to_us(end),
                                       .waited = state.waited},
                                      state.waited_on);
  }
  template <class Visit>
  void for_each_taken(const State& state, Visit visit) const {
    const Step& step = step_of(state);
    const Representatives::Actor& actor = *state.actor;
    if (step.kind == StepKind::kWait) visit(actor.of_step[state.step]);
    for (std::uint32_t i = 0; i < step.source_count; ++i) {
      const std::uint32_t channel = actor.of_location[step.first + i];
      if (channel != kNoChannel) visit(channel);
    }
  }

  void finish(std::uint32_t index) {
    State& state = states_[index];
    for_each_sent(state, [&](std::uint32_t channel, std::size_t, double) {
      wake(representatives_.channels[channel].reader, state.number, channel);
    });
    for_each_taken(state, [&](std::uint32_t channel) {
      wake(representatives_.channels[channel].writer, state.number, channel);
    });
    state.is_new = true;
    ++state.step;
    offer(index);
  }

  void wake(std::uint32_t actor, std::uint32_t number, std::uint32_t channel) {
    const std::uint32_t index = actor * lanes_ + number;
    if (states_[index].blocked_on == channel) offer(index);
  }

  const Instances& instances_;
  Ways& ways_;
  const Representatives& representatives_;
  const Pieces& pieces_;
  const DataType type_;
  const std::uint32_t lanes_;
  const std::size_t tiles_;
  const Picoseconds limit_;
  Servers servers_;
  std::vector<State> states_;  // Lane by lane of the representatives' actors.
  std::vector<Queue> queues_;  // Lane by lane of its channels.
  EventQueue event_queue_;
  std::vector<std::uint32_t> batch_;
  std::optional<Recorder> recorder_;  // Only if the caller wants a recording.
};

}  // namespace

PieceKinds Pieces::kinds() const {
  if (full_tiles_ > 0) return {};
  PieceKinds kinds;
  std::map<std::size_t, std::uint32_t> numbers{{0, 0}};
  for (std::uint32_t i = 0; i < pieces_; ++i)
    kinds.push_back(numbers.try_emplace(piece(i).count, numbers.size()).first->second);
  return numbers.size() == 2 && kinds.back() != 0 ? PieceKinds{} : kinds;
}

Estimate play(const Play& play) { return Timeline(play).run(); }

}  // namespace tutti::plan
