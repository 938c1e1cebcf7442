// Events in virtual time.
//
// A rank's lanes share its compute. A move takes `step_us` and the time to read and write its
// bytes; where it touches mapped memory, at least as long as the path needs. Then its slots depart:
// each arrives when everything on its path has worked it off, and after the latency; its room comes
// back one latency after it was read. A signal takes the latency, behind what was written to the
// same peer. A multicast slot goes over the paths to all readers at the same time.
//
// What ranks do at one moment they do together: first everything is given to the resources, then
// each event sees when the last of its resources is done. Only lanes take turns, as many at a time
// as there are rank orders: lanes that stayed in step would all wait at the same time.
//
// Large messages. Tile after tile is simulated up to a bound on the work. Beyond it, two runs of A
// and 2A full tiles give the time that each further tile adds once the pipeline is full, and the
// rest of the message is charged at that. (Ramp-up and drain are in the first run.)
#include "plan/estimate.h"

#include <algorithm>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "base/check.h"
#include "plan/agenda.h"
#include "plan/draft.h"
#include "plan/estimate_parts.h"
#include "plan/partition.h"

namespace tutti::plan {
namespace {

constexpr std::size_t kMostTiles = 32;                    // Simulated one by one.
constexpr std::size_t kMostSteps = std::size_t{1} << 21;  // Of all simulated tiles together.
constexpr std::size_t kCacheLine = 64;

class Timeline {
 public:
  /// Pieces as a message of `count` elements has them; if `full_tiles` is given, that many full
  /// tiles of every piece instead.
  Timeline(const Plan& plan, const Traffic& traffic, DataType type, int slots,
           const CostModel& model, std::size_t count, std::size_t tile_elements,
           std::size_t full_tiles, Recording* recording)
      : plan_(plan),
        traffic_(traffic),
        type_(type),
        count_(count),
        tile_elements_(tile_elements),
        full_tiles_(full_tiles),
        servers_(plan, model, traffic) {
    const std::size_t largest = range(0, 0, true);
    tiles_ = full_tiles > 0 ? full_tiles : (largest + tile_elements - 1) / tile_elements;
    if (recording != nullptr) {
      recording->tiles = tiles_;
      recorder_.emplace(*recording, traffic.channels.size(), slots);
    }
    queues_.resize(traffic.channels.size());
    for (Queue& queue : queues_) queue.rooms.add_at_start(static_cast<std::uint32_t>(slots));
    for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
      first_.push_back(states_.size());
      for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane) {
        State& state = states_.emplace_back();
        state.rank = rank;
        state.lane = lane;
        state.turn =
            lane / static_cast<std::uint32_t>(std::max<std::size_t>(1, model.orders.size()));
        state.steps = plan.ranks[rank].lanes[lane].steps;
        state.locations = plan.ranks[rank].lanes[lane].locations.data();
        state.of_location = traffic.lanes[rank][lane].of_location.data();
        state.of_step = traffic.lanes[rank][lane].of_step.data();
      }
    }
  }

  Estimate run() {
    if (tiles_ == 0) return {};
    if (plan_.together) meet();
    for (std::uint32_t actor = 0; actor < states_.size(); ++actor) offer(actor);
    while (!agenda_.empty()) {
      const Moment now = agenda_.take(batch_);
      now.leaves ? depart(now.at) : begin(now.at);
    }
    Event end;
    for (const State& state : states_) {
      TUTTI_CHECK(state.tile == tiles_ && "the plan was not verified");
      end = later(end, state.now);
    }
    return {to_us(end.at), servers_.bytes_on_busiest_link(), end.messages, to_us(end.latency),
            servers_.busy_us()};
  }

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  // A lane. What it waits for is a channel; a step's conditions that hold stay so (`checked`).
  struct State {
    std::span<const Step> steps;
    const Location* locations = nullptr;
    const std::uint32_t *of_location = nullptr, *of_step = nullptr;  // LaneTraffic's.
    std::uint32_t rank = 0, lane = 0, turn = 0;
    std::uint32_t step = 0;
    std::size_t tile = 0;
    Event now;    // The end of the last step.
    Event start;  // The earliest start of the next, as far as it was checked.
    std::uint32_t checked = 0;
    std::uint32_t blocked_on = kNobody;
    bool is_new = true;  // Nothing of the next step was checked.
    // Of recordings: what made `start` as late as it is, and the step that began.
    Recording::Waited waited = Recording::Waited::kForNothing;
    std::uint32_t waited_on = kNobody, recorded = Recording::kNone;
  };
  // What the reader of a channel finds, and its writer.
  struct Queue {
    Fifo arrivals, rooms;
  };

  // All ranks start together: each has heard from the farthest of the others.
  void meet() {
    for (State& state : states_) {
      Picoseconds latency = 0;
      for (std::uint32_t peer = 0; peer < traffic_.ranks; ++peer) {
        if (peer != state.rank)
          latency = std::max(latency, servers_.route(state.lane, peer, state.rank).latency);
      }
      state.now = {latency, 1, latency};
    }
  }

  /// Elements of a tile of a piece, or of the whole piece.
  std::size_t range(std::uint32_t piece, std::size_t tile, bool whole) const {
    if (full_tiles_ > 0) return tile_elements_ * (whole ? full_tiles_ : 1);
    const std::size_t grain = std::max<std::size_t>(1, kCacheLine / size_of(type_));
    const Range all = piece_of(count_, plan_.pieces, piece, grain);
    return whole ? all.count : tile_of(all, tile, tile_elements_).count;
  }

  // Puts a lane on the agenda if its next step can start; else it is offered again when what it
  // lacks comes.
  void offer(std::uint32_t actor) {
    State& state = states_[actor];
    skip_empty(state);
    if (state.tile == tiles_) return;
    if (state.is_new) {
      state.start = state.now;
      state.checked = 0;
      state.is_new = false;
      state.waited = Recording::Waited::kForNothing;
    }
    state.blocked_on = kNobody;
    if (can_start(state)) agenda_.add({state.start.at, false, state.turn}, actor);
  }

  // Goes to the next step of which there is something in this tile.
  void skip_empty(State& state) const {
    const std::span<const Step> steps = state.steps;
    for (; state.tile < tiles_; ++state.tile, state.step = 0) {
      for (; state.step < steps.size(); ++state.step) {
        const Step& step = steps[state.step];
        if (step.kind != StepKind::kMove || range(step.chunk % plan_.pieces, state.tile, false) > 0)
          return;
      }
    }
  }

  bool can_start(State& state) {
    const Step& step = state.steps[state.step];
    if (step.kind == StepKind::kSignal) return true;
    if (step.kind == StepKind::kWait)
      return has_come(state, state.of_step[state.step], &Queue::arrivals);
    const std::uint32_t locations = std::uint32_t{step.source_count} + step.target_count;
    for (; state.checked < locations; ++state.checked) {
      const std::uint32_t channel = state.of_location[step.first + state.checked];
      if (channel == kNoChannel) continue;
      if (state.checked < step.source_count) {
        if (!has_come(state, channel, &Queue::arrivals)) return false;
        continue;
      }
      const std::uint32_t width = traffic_.width(state.locations[step.first + state.checked]);
      for (std::uint32_t i = 0; i < width; ++i) {
        if (is_own(channel + i)) continue;
        if (!has_come(state, channel + i, &Queue::rooms)) return false;
      }
    }
    return true;
  }
  bool has_come(State& state, std::uint32_t channel, Fifo Queue::*what) {
    const Fifo& fifo = queues_[channel].*what;
    if (fifo.empty()) {
      state.blocked_on = channel;
      return false;
    }
    if (recorder_ && fifo.front().at > state.start.at) {
      state.waited =
          what == &Queue::rooms ? Recording::Waited::kForRoom : Recording::Waited::kForMessage;
      state.waited_on = channel;
    }
    state.start = later(state.start, fifo.front());
    return true;
  }
  // A multicast ring's channel to its own writer.
  bool is_own(std::uint32_t channel) const { return traffic_.channels[channel].distance == 0; }

  double bytes(const Location& at, const Step& step, std::size_t tile) const {
    return static_cast<double>(range(step.chunk % plan_.pieces, tile, false)) *
           static_cast<double>(element_bytes(type_, at.form));
  }

  // Calls visit(channel, location, bytes) for every slot that the current step sends.
  template <class Visit>
  void for_each_sent(const State& state, Visit visit) const {
    const Step& step = state.steps[state.step];
    if (step.kind == StepKind::kSignal) {
      visit(state.of_step[state.step], std::size_t{kNobody}, 0.0);
      return;
    }
    for (std::uint32_t i = step.source_count;
         i < std::uint32_t{step.source_count} + step.target_count; ++i) {
      const std::size_t location = step.first + i;
      const std::uint32_t channel = state.of_location[location];
      if (channel == kNoChannel) continue;
      const Location& at = state.locations[location];
      const double amount = bytes(at, step, state.tile);
      for (std::uint32_t k = 0; k < traffic_.width(at); ++k) {
        if (!is_own(channel + k)) visit(channel + k, location, amount);
      }
    }
  }
  // Calls visit(route, bytes, is_read) for every access of the current step to a peer's memory.
  template <class Visit>
  void for_each_mapped(const State& state, Visit visit) {
    const Step& step = state.steps[state.step];
    for (std::uint32_t i = 0; i < std::uint32_t{step.source_count} + step.target_count; ++i) {
      const Location& at = state.locations[step.first + i];
      if (at.place != Place::kPeerInput && at.place != Place::kPeerOutput) continue;
      const bool reads = i < step.source_count;
      visit(reads ? servers_.route(state.lane, at.peer, state.rank)
                  : servers_.route(state.lane, state.rank, at.peer),
            bytes(at, step, state.tile), reads);
    }
  }

  double bytes_moved(const State& state) const {
    const Step& step = state.steps[state.step];
    double moved = 0;
    for (std::uint32_t i = 0; i < std::uint32_t{step.source_count} + step.target_count; ++i)
      moved += bytes(state.locations[step.first + i], step, state.tile);
    return moved;
  }

  // Batches are longer than caches: what the lanes after the i-th will touch is asked for early,
  // each thing when what points to it should be there.
  void fetch_behind(std::size_t i) const {
    constexpr std::size_t kNear = 2, kFar = 4, kFarther = 6;
    if (i + kFarther >= batch_.size()) return;
    __builtin_prefetch(&states_[batch_[i + kFarther]]);
    __builtin_prefetch(&states_[batch_[i + kFarther]].now);
    const State& far = states_[batch_[i + kFar]];
    __builtin_prefetch(far.steps.data() + far.step);
    const State& near = states_[batch_[i + kNear]];
    const Step& step = near.steps[near.step];
    __builtin_prefetch(near.locations + step.first);
    __builtin_prefetch(near.of_location + step.first);
    const State& next = states_[batch_[i + 1]];
    const Step& its = next.steps[next.step];
    for (std::uint32_t k = 0; k < std::uint32_t{its.source_count} + its.target_count; ++k) {
      const std::uint32_t channel = next.of_location[its.first + k];
      if (channel != kNoChannel) __builtin_prefetch(&queues_[channel]);
    }
  }

  // The steps of the batch begin; each is put on the agenda for when it is done.
  void begin(Picoseconds now) {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      const State& state = states_[batch_[i]];
      servers_.compute(state.rank, state.lane, now, bytes_moved(state));
      for_each_mapped(
          state, [&](Route& route, double amount, bool) { servers_.carry(route, now, amount, 0); });
    }
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      State& state = states_[batch_[i]];
      Event end{servers_.computed(state.rank, state.lane), state.start.messages,
                state.start.latency};
      for_each_mapped(state, [&](Route& route, double, bool reads) {
        const Picoseconds latency = reads ? route.latency : 0;
        end = later(end, {servers_.done(route, now, 0) + latency, state.start.messages,
                          state.start.latency + latency});
      });
      if (recorder_) record(state, end.at);
      state.now = end;
      agenda_.add({end.at, true, state.turn}, batch_[i]);
    }
  }

  // The steps of the batch are done: their slots depart, and what they read is free.
  void depart(Picoseconds now) {
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      const State& state = states_[batch_[i]];
      for_each_sent(state, [&](std::uint32_t channel, std::size_t location, double amount) {
        servers_.carry(servers_.route(channel), now, amount,
                       servers_.joined(state.rank, state.lane, location));
      });
    }
    for (std::size_t i = 0; i < batch_.size(); ++i) {
      fetch_behind(i);
      State& state = states_[batch_[i]];
      for_each_sent(state, [&](std::uint32_t channel, std::size_t location, double amount) {
        const Route& route = servers_.route(channel);
        const Picoseconds sent =
            servers_.done(route, now, servers_.joined(state.rank, state.lane, location));
        queues_[channel].arrivals.push(
            {sent + route.latency, state.now.messages + 1, state.now.latency + route.latency});
        const bool is_signal = traffic_.channels[channel].is_signal;
        if (!is_signal) queues_[channel].rooms.pop();
        if (!recorder_) return;
        recorder_->send(
            {state.rank, traffic_.reader(traffic_.channels[channel]), state.lane, state.recorded,
             Recording::kNone, amount, to_us(now), to_us(sent), to_us(sent + route.latency)},
            channel, !is_signal);
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
      Queue& queue = queues_[channel];
      queue.arrivals.pop();
      const bool is_signal = traffic_.channels[channel].is_signal;
      const Picoseconds back = servers_.way_back(channel);
      if (!is_signal)
        queue.rooms.push({state.now.at + back, state.now.messages, state.now.latency + back});
      if (recorder_) recorder_->take(state.recorded, channel, !is_signal);
    });
  }
  // Of a step that begins, while state.now is still the end of the one before it.
  void record(State& state, Picoseconds end) {
    state.recorded = recorder_->start({.rank = state.rank,
                                       .lane = state.lane,
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
    const Step& step = state.steps[state.step];
    if (step.kind == StepKind::kWait) visit(state.of_step[state.step]);
    for (std::uint32_t i = 0; i < step.source_count; ++i) {
      const std::uint32_t channel = state.of_location[step.first + i];
      if (channel != kNoChannel) visit(channel);
    }
  }

  void finish(std::uint32_t actor) {
    State& state = states_[actor];
    for_each_sent(state, [&](std::uint32_t channel, std::size_t, double) {
      wake(traffic_.reader(traffic_.channels[channel]), state.lane, channel);
    });
    for_each_taken(state, [&](std::uint32_t channel) {
      wake(traffic_.channels[channel].from, state.lane, channel);
    });
    state.is_new = true;
    ++state.step;
    offer(actor);
  }

  void wake(std::uint32_t rank, std::uint32_t lane, std::uint32_t channel) {
    const auto actor = static_cast<std::uint32_t>(first_[rank] + lane);
    if (states_[actor].blocked_on == channel) offer(actor);
  }

  const Plan& plan_;
  const Traffic& traffic_;
  const DataType type_;
  const std::size_t count_, tile_elements_, full_tiles_;
  std::size_t tiles_ = 0;
  Servers servers_;
  std::vector<std::size_t> first_;  // Of each rank's lanes in states_.
  std::vector<State> states_;
  std::vector<Queue> queues_;  // By channel.
  Agenda agenda_;
  std::vector<std::uint32_t> batch_;
  std::optional<Recorder> recorder_;  // Only if somebody wants to know.
};

struct Extent {
  std::size_t steps = 0;
  std::size_t widest = 0;  // Bytes of an element in slots and scratch; 0 if there are none.
};

Extent extent(const Plan& plan, DataType type) {
  Extent found;
  for (const RankPlan& rank : plan.ranks) {
    for (const Lane& lane : rank.lanes) {
      found.steps += lane.steps.size();
      for (const Location& at : lane.locations) {
        if (is_ring(at) || at.place == Place::kScratch)
          found.widest = std::max(found.widest, element_bytes(type, at.form));
      }
    }
  }
  return found;
}

}  // namespace

struct Estimator::Parts {
  const Plan& plan;
  const CostModel& model;
  const DataType type;
  const int slots;
  const Traffic channels;
  const Extent size;
  const std::size_t slot_bytes;
  // Runs of full tiles, by their number.
  std::map<std::size_t, Estimate> full_runs;

  Estimate run(std::size_t count, std::size_t tile, std::size_t full_tiles,
               Recording* recording = nullptr) const {
    return Timeline(plan, channels, type, slots, model, count, tile, full_tiles, recording).run();
  }
  const Estimate& full_run(std::size_t tile, std::size_t tiles) {
    auto found = full_runs.find(tiles);
    if (found == full_runs.end()) found = full_runs.emplace(tiles, run(0, tile, tiles)).first;
    return found->second;
  }
};

Estimator::Estimator(const Plan& plan, const CostModel& model, DataType type,
                     std::size_t slot_bytes, int slots)
    : parts_(
          new Parts{plan, model, type, slots, traffic(plan), extent(plan, type), slot_bytes, {}}) {
  TUTTI_CHECK(slots > 0 && !plan.ranks.empty());
  TUTTI_CHECK(static_cast<std::size_t>(plan.shape.rank_count) % plan.ranks.size() == 0);
}
Estimator::~Estimator() = default;

Estimate Estimator::run(std::size_t count, Recording* recording) {
  if (recording != nullptr) *recording = {};
  if (count == 0) return {};
  const Extent& size = parts_->size;
  const std::size_t grain = std::max<std::size_t>(1, kCacheLine / size_of(parts_->type));
  const std::size_t largest = piece_of(count, parts_->plan.pieces, 0, grain).count;
  // Without slots and scratch nothing has to be cut into tiles, and no two sizes have tiles alike.
  const std::size_t tile =
      size.widest == 0 ? largest : std::max<std::size_t>(1, parts_->slot_bytes / size.widest);
  const std::size_t tiles = (largest + tile - 1) / tile;
  const std::size_t half = std::clamp<std::size_t>(
      kMostSteps / 3 / std::max<std::size_t>(1, size.steps), 1, kMostTiles / 2);
  const auto recorded = [&](const Estimate& estimate) {
    if (recording != nullptr) {
      recording->microseconds = estimate.microseconds;
      recording->of_tiles = tiles;
    }
    return estimate;
  };
  if (tiles <= 2 * half) return recorded(parts_->run(count, tile, 0, recording));
  if (recording != nullptr) recorded(parts_->run(0, tile, 2 * half, recording));
  const Estimate& one = parts_->full_run(tile, half);
  const Estimate& two = parts_->full_run(tile, 2 * half);
  const double more =
      static_cast<double>(largest) / static_cast<double>(tile) / static_cast<double>(half) - 2;
  const auto extend = [&](double first, double second) { return second + more * (second - first); };
  Estimate all{extend(one.microseconds, two.microseconds),
               extend(one.bytes_on_busiest_link, two.bytes_on_busiest_link),
               static_cast<std::size_t>(
                   extend(static_cast<double>(one.messages_on_critical_path),
                          static_cast<double>(std::max(one.messages_on_critical_path,
                                                       two.messages_on_critical_path)))),
               extend(one.latency_us, std::max(one.latency_us, two.latency_us)),
               {}};
  for (std::size_t i = 0; i < one.busy_us.size(); ++i)
    all.busy_us.push_back(extend(one.busy_us[i], two.busy_us[i]));
  // Two runs may overlap more than a third would: but nothing is done before its resources are.
  for (const double busy : all.busy_us) all.microseconds = std::max(all.microseconds, busy);
  return all;
}

Estimate estimate(const Plan& plan, std::size_t count, DataType type, std::size_t slot_bytes,
                  int slots, const CostModel& model) {
  return Estimator(plan, model, type, slot_bytes, slots).run(count);
}

}  // namespace tutti::plan
