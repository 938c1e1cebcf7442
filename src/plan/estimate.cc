// Events in virtual time.
//
// A rank does one step at a time: its lanes share its compute. A move takes `step_us` and the time
// to read and write its bytes; where it touches mapped memory, at least as long as the link needs.
// A slot leaves when its move is done and its link is free, and arrives after its bytes and the
// latency; its room comes back one latency after it was read. If ranks have ports, it goes at the
// pace of both ranks' ports too, after what went through them before; what waits for the taker's
// port does not keep the sender's. A signal takes the latency, behind what was written to the same
// peer. A multicast slot goes over the links to all readers at the same time.
//
// Large messages. Tile after tile is simulated up to a bound on the work. Beyond it, two runs of A
// and 2A full tiles give the time that each further tile adds once the pipeline is full, and the
// rest of the message is charged at that. (Ramp-up and drain are in the first run.)
#include "plan/estimate.h"

#include <algorithm>
#include <queue>
#include <utility>
#include <vector>

#include "base/check.h"
#include "plan/draft.h"
#include "plan/flat_map.h"
#include "plan/partition.h"
#include "plan/wiring.h"

namespace tutti::plan {
namespace {

constexpr std::size_t kMostTiles = 32;                    // Simulated one by one.
constexpr std::size_t kMostSteps = std::size_t{1} << 22;  // Of all simulated tiles together.
constexpr std::size_t kCacheLine = 64;

/// A moment, and how many messages came one after the other to make it as late as it is.
struct Event {
  double at = 0;
  std::size_t messages = 0;
};
Event later(const Event& a, const Event& b) { return b.at > a.at ? b : a; }

class Fifo {
 public:
  bool empty() const { return head_ == items_.size(); }
  const Event& front() const { return items_[head_]; }
  void push(const Event& event) { items_.push_back(event); }
  void pop() {
    if (++head_ < items_.size()) return;
    items_.clear();
    head_ = 0;
  }

 private:
  std::vector<Event> items_;
  std::size_t head_ = 0;
};

struct Link {
  LinkCost cost;
  double busy_until = 0;
  double bytes = 0;
  std::uint32_t from = 0, to = 0;

  /// Sends `amount` bytes from `at` on at the earliest; when the last one has left.
  double send(double at, double amount) {
    const double rate = cost.gigabytes_per_second * 1e3;  // Bytes per microsecond.
    bytes += amount;
    busy_until = std::max(at, busy_until) + (rate > 0 ? amount / rate : 0);
    return busy_until;
  }
};

/// All that goes out of a rank, or comes in.
struct Port {
  double rate = 0;  // Bytes per microsecond; 0: no limit.
  double busy_until = 0;

  double pass(double at, double amount) {
    if (rate <= 0) return at;
    return busy_until = std::max(at, busy_until) + amount / rate;
  }
};

/// What one reader sees of a wire.
struct Channel {
  Fifo arrivals;
  Fifo rooms;  // When the slots that are free became so.
  std::uint32_t link = 0, back = 0;
  std::uint32_t reader = 0;
};

class Timeline {
 public:
  /// Pieces as a message of `count` elements has them; if `full_tiles` is given, that many full
  /// tiles of every piece instead.
  Timeline(const Plan& plan, const Wiring& wiring, DataType type, int slots, const CostModel& model,
           std::size_t count, std::size_t tile_elements, std::size_t full_tiles)
      : plan_(plan),
        wiring_(wiring),
        type_(type),
        model_(model),
        count_(count),
        tile_elements_(tile_elements),
        full_tiles_(full_tiles),
        rank_free_(plan.ranks.size()),
        ports_out_(plan.ranks.size()),
        ports_in_(plan.ranks.size()) {
    for (std::size_t rank = 0; rank < plan.ranks.size() && model.port; ++rank) {
      const double rate = model.port(Rank{static_cast<std::int32_t>(rank)}) * 1e3;
      ports_out_[rank].rate = ports_in_[rank].rate = rate;
    }
    const std::size_t largest = range(0, 0, true);
    tiles_ = full_tiles > 0 ? full_tiles : (largest + tile_elements - 1) / tile_elements;
    open_channels(slots);
    for (std::uint32_t rank = 0; rank < plan.ranks.size(); ++rank) {
      first_.push_back(states_.size());
      for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane) {
        State& state = states_.emplace_back();
        state.rank = rank;
        state.lane = lane;
      }
    }
  }

  Estimate run() {
    if (tiles_ == 0) return {};
    if (plan_.together) meet();
    for (std::uint32_t actor = 0; actor < states_.size(); ++actor) offer(actor);
    while (!ready_.empty()) {
      const std::uint32_t actor = ready_.top().second;
      ready_.pop();
      execute(states_[actor]);
      offer(actor);
    }
    Event end;
    for (const State& state : states_) {
      TUTTI_CHECK(state.tile == tiles_ && "the plan was not verified");
      end = later(end, state.now);
    }
    double busiest = 0;
    for (const Link& link : links_) busiest = std::max(busiest, link.bytes);
    return {end.at, busiest, end.messages};
  }

 private:
  static constexpr std::uint32_t kNobody = ~std::uint32_t{0};

  // A lane. What it waits for is a channel; a step's conditions that hold stay so (`checked`).
  struct State {
    std::uint32_t rank = 0, lane = 0;
    std::uint32_t step = 0;
    std::size_t tile = 0;
    Event now;    // The end of the last step.
    Event start;  // The earliest start of the next, as far as it was checked.
    std::uint32_t checked = 0;
    std::uint32_t blocked_on = kNobody;
    bool is_new = true;  // Nothing of the next step was checked.
  };

  // All ranks start together: each has heard from the farthest of the others.
  void meet() {
    for (State& state : states_) {
      double latency = 0;
      for (std::uint32_t peer = 0; peer < plan_.ranks.size(); ++peer) {
        if (peer != state.rank)
          latency = std::max(latency, links_[link(peer, state.rank)].cost.latency_us);
      }
      state.now = {latency, 1};
    }
  }

  const Lane& lane(const State& state) const { return plan_.ranks[state.rank].lanes[state.lane]; }
  const LaneWiring& wires(const State& state) const {
    return wiring_.lanes[state.rank][state.lane];
  }

  /// Elements of a tile of a piece, or of the whole piece.
  std::size_t range(std::uint32_t piece, std::size_t tile, bool whole) const {
    if (full_tiles_ > 0) return tile_elements_ * (whole ? full_tiles_ : 1);
    const std::size_t grain = std::max<std::size_t>(1, kCacheLine / size_of(type_));
    const Range all = piece_of(count_, plan_.pieces, piece, grain);
    return whole ? all.count : tile_of(all, tile, tile_elements_).count;
  }

  std::uint32_t link(std::uint32_t from, std::uint32_t to) {
    const auto fresh = static_cast<std::uint32_t>(links_.size());
    const std::uint32_t found = link_index_.find_or_insert((std::uint64_t{from} << 32) | to, fresh);
    if (found == fresh) {
      links_.push_back(
          {model_.link(Rank{static_cast<std::int32_t>(from)}, Rank{static_cast<std::int32_t>(to)}),
           0, 0, from, to});
    }
    return found;
  }

  void open_channels(int slots) {
    const auto ranks = static_cast<std::uint32_t>(plan_.ranks.size());
    for (const Wire& wire : wiring_.wires) {
      first_channel_.push_back(channels_.size());
      const bool to_all = wire.kind == WireKind::kMulticast;
      for (std::uint32_t reader = to_all ? 0 : wire.to; reader < (to_all ? ranks : wire.to + 1);
           ++reader) {
        Channel& channel = channels_.emplace_back();
        channel.reader = reader;
        if (reader == wire.from) continue;  // Its own multicast ring.
        channel.link = link(wire.from, reader);
        channel.back = link(reader, wire.from);
        for (int slot = 0; slot < slots && wire.kind != WireKind::kSignals; ++slot)
          channel.rooms.push({});
      }
    }
    first_channel_.push_back(channels_.size());
  }

  std::uint32_t wire_of(std::uint32_t message) const { return wiring_.messages[message].wire; }
  // The channel through which `reader` sees a wire.
  std::size_t incoming(std::uint32_t wire, std::uint32_t reader) const {
    const bool to_all = wiring_.wires[wire].kind == WireKind::kMulticast;
    return first_channel_[wire] + (to_all ? reader : 0);
  }

  // Puts a lane in line if its next step can start; else it is offered again when what it lacks
  // comes.
  void offer(std::uint32_t actor) {
    State& state = states_[actor];
    skip_empty(state);
    if (state.tile == tiles_) return;
    if (state.is_new) {
      state.start = state.now;
      state.checked = 0;
      state.is_new = false;
    }
    state.blocked_on = kNobody;
    if (can_start(state)) ready_.push({state.start.at, actor});
  }

  // Goes to the next step of which there is something in this tile.
  void skip_empty(State& state) const {
    const auto& steps = lane(state).steps;
    for (; state.tile < tiles_; ++state.tile, state.step = 0) {
      for (; state.step < steps.size(); ++state.step) {
        const Step& step = steps[state.step];
        if (step.kind != StepKind::kMove || range(step.chunk % plan_.pieces, state.tile, false) > 0)
          return;
      }
    }
  }

  bool can_start(State& state) {
    const Step& step = lane(state).steps[state.step];
    if (step.kind == StepKind::kSignal) return true;
    if (step.kind == StepKind::kWait)
      return has_arrived(state, wire_of(wires(state).of_step[state.step]));
    const std::uint32_t* messages = wires(state).of_location.data() + step.first;
    const std::uint32_t locations = std::uint32_t{step.source_count} + step.target_count;
    for (; state.checked < locations; ++state.checked) {
      const std::uint32_t message = messages[state.checked];
      if (message == kNoMessage) continue;
      const bool is_source = state.checked < step.source_count;
      if (!(is_source ? has_arrived(state, wire_of(message)) : has_room(state, wire_of(message))))
        return false;
    }
    return true;
  }
  bool has_arrived(State& state, std::uint32_t wire) {
    const std::size_t at = incoming(wire, state.rank);
    if (channels_[at].arrivals.empty()) {
      state.blocked_on = static_cast<std::uint32_t>(at);
      return false;
    }
    state.start = later(state.start, channels_[at].arrivals.front());
    return true;
  }
  bool has_room(State& state, std::uint32_t wire) {
    for (std::size_t at = first_channel_[wire]; at < first_channel_[wire + 1]; ++at) {
      if (channels_[at].reader == state.rank) continue;
      if (channels_[at].rooms.empty()) {
        state.blocked_on = static_cast<std::uint32_t>(at);
        return false;
      }
      state.start = later(state.start, channels_[at].rooms.front());
    }
    return true;
  }

  void execute(State& state) {
    const Step& step = lane(state).steps[state.step];
    double& free = rank_free_[state.rank];
    const double begin = std::max(state.start.at, free);
    free = begin + model_.step_us;
    const std::uint32_t* messages = wires(state).of_location.data() + step.first;
    if (step.kind == StepKind::kMove) free = move(state, step, begin);
    state.now = {free, state.start.messages};
    state.is_new = true;
    ++state.step;
    if (step.kind == StepKind::kSignal) {
      send(state, wire_of(wires(state).of_step[state.step - 1]), 0);
    } else if (step.kind == StepKind::kWait) {
      take(state, wire_of(wires(state).of_step[state.step - 1]));
    } else {
      for (std::uint32_t i = step.source_count;
           i < std::uint32_t{step.source_count} + step.target_count; ++i) {
        if (messages[i] == kNoMessage) continue;
        const Location& at = lane(state).locations[step.first + i];
        send(state, wire_of(messages[i]), bytes(at, step, state.tile));
      }
      for (std::uint32_t i = 0; i < step.source_count; ++i) {
        if (messages[i] != kNoMessage) take(state, wire_of(messages[i]));
      }
    }
  }

  double bytes(const Location& at, const Step& step, std::size_t tile) const {
    return static_cast<double>(range(step.chunk % plan_.pieces, tile, false)) *
           static_cast<double>(element_bytes(type_, at.form));
  }

  // When a move that begins now is done.
  double move(const State& state, const Step& step, double begin) {
    double moved = 0, end = begin;
    for (std::uint32_t i = 0; i < std::uint32_t{step.source_count} + step.target_count; ++i) {
      const Location& at = lane(state).locations[step.first + i];
      const double amount = bytes(at, step, state.tile);
      moved += amount;
      if (at.place != Place::kPeerInput && at.place != Place::kPeerOutput) continue;
      if (i < step.source_count) {
        Link& from = links_[link(at.peer, state.rank)];
        end = std::max(end, transmit(from, begin, amount) + from.cost.latency_us);
      } else {
        end = std::max(end, transmit(links_[link(state.rank, at.peer)], begin, amount));
      }
    }
    const double rate = model_.reduce_gigabytes_per_second * 1e3;
    return std::max(end, begin + model_.step_us + (rate > 0 ? moved / rate : 0));
  }

  // When `amount` bytes that are ready at `at` have come through the link and both ports.
  double transmit(Link& over, double at, double amount) {
    Port& out = ports_out_[over.from];
    const double begins = std::max(at, out.busy_until);
    const double left = std::max(out.pass(at, amount), over.send(begins, amount));
    return std::max(left, ports_in_[over.to].pass(begins, amount));
  }

  void send(const State& state, std::uint32_t wire, double amount) {
    const bool has_rooms = wiring_.wires[wire].kind != WireKind::kSignals;
    for (std::size_t at = first_channel_[wire]; at < first_channel_[wire + 1]; ++at) {
      Channel& channel = channels_[at];
      if (channel.reader == state.rank) continue;
      Link& over = links_[channel.link];
      if (has_rooms) channel.rooms.pop();
      channel.arrivals.push(
          {transmit(over, state.now.at, amount) + over.cost.latency_us, state.now.messages + 1});
      wake(channel.reader, state.lane, at);
    }
  }

  void take(const State& state, std::uint32_t wire) {
    const std::size_t at = incoming(wire, state.rank);
    Channel& channel = channels_[at];
    channel.arrivals.pop();
    if (wiring_.wires[wire].kind == WireKind::kSignals) return;
    channel.rooms.push({state.now.at + links_[channel.back].cost.latency_us, state.now.messages});
    wake(wiring_.wires[wire].from, state.lane, at);
  }

  void wake(std::uint32_t rank, std::uint32_t lane, std::size_t channel) {
    const auto actor = static_cast<std::uint32_t>(first_[rank] + lane);
    if (states_[actor].blocked_on == channel) offer(actor);
  }

  const Plan& plan_;
  const Wiring& wiring_;
  const DataType type_;
  const CostModel& model_;
  const std::size_t count_, tile_elements_, full_tiles_;
  std::size_t tiles_ = 0;
  std::vector<double> rank_free_;
  std::vector<Port> ports_out_, ports_in_;  // By rank.
  std::vector<std::size_t> first_;          // Of each rank's lanes in states_.
  std::vector<State> states_;
  std::vector<Link> links_;
  FlatMap link_index_;
  std::vector<Channel> channels_;
  std::vector<std::size_t> first_channel_;  // By wire.
  using Ready = std::pair<double, std::uint32_t>;
  std::priority_queue<Ready, std::vector<Ready>, std::greater<>> ready_;
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

Estimate estimate(const Plan& plan, std::size_t count, DataType type, std::size_t slot_bytes,
                  int slots, const CostModel& model) {
  if (count == 0) return {};
  const auto wiring = wire(plan);
  TUTTI_CHECK(wiring && "the plan was not verified");
  TUTTI_CHECK(slots > 0);
  const Extent size = extent(plan, type);
  const std::size_t grain = std::max<std::size_t>(1, kCacheLine / size_of(type));
  const std::size_t largest = piece_of(count, plan.pieces, 0, grain).count;
  // Without slots and scratch nothing has to be cut into tiles.
  const std::size_t tile =
      size.widest == 0 ? largest : std::max<std::size_t>(1, slot_bytes / size.widest);
  const std::size_t tiles = (largest + tile - 1) / tile;
  const std::size_t half = std::clamp<std::size_t>(
      kMostSteps / 3 / std::max<std::size_t>(1, size.steps), 1, kMostTiles / 2);
  const auto run = [&](std::size_t full_tiles) {
    return Timeline(plan, *wiring, type, slots, model, count, tile, full_tiles).run();
  };
  if (tiles <= 2 * half) return run(0);
  const Estimate one = run(half), two = run(2 * half);
  const double more =
      static_cast<double>(largest) / static_cast<double>(tile) / static_cast<double>(half) - 2;
  const auto extend = [&](double first, double second) { return second + more * (second - first); };
  return {extend(one.microseconds, two.microseconds),
          extend(one.bytes_on_busiest_link, two.bytes_on_busiest_link),
          static_cast<std::size_t>(
              extend(static_cast<double>(one.messages_on_critical_path),
                     static_cast<double>(
                         std::max(one.messages_on_critical_path, two.messages_on_critical_path))))};
}

}  // namespace tutti::plan
