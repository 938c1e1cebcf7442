// File: plan/estimate_parts.h: the pieces of the event simulation: time, queues, and the servers
// that stand for resources.
#pragma once
#include <cmath>
#include <compare>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "plan/estimate.h"
#include "plan/flat_map.h"
#include "plan/traffic.h"

namespace tutti::plan {

using Picoseconds = std::int64_t;
inline Picoseconds to_picoseconds(double microseconds) {
  return static_cast<Picoseconds>(std::llround(microseconds * 1e6));
}
inline double to_us(Picoseconds time) { return static_cast<double>(time) * 1e-6; }

/// A moment, how many messages came one after the other to make it as late as it is, and for how
/// long these were underway for distance alone. Of two that are equally late the longer chain
/// counts, so that the answer does not depend on an order.
struct Event {
  Picoseconds at = 0;
  std::size_t messages = 0;
  Picoseconds latency = 0;
  // NOLINTNEXTLINE(modernize-use-nullptr): not a 0.
  friend auto operator<=>(const Event&, const Event&) = default;
};
inline Event later(const Event& a, const Event& b) { return b > a ? b : a; }

class Fifo {
 public:
  /// So many events at time 0 in front of all others.
  void add_at_start(std::uint32_t count) { at_start_ += count; }
  bool empty() const { return at_start_ == 0 && head_ == items_.size(); }
  Event front() const { return at_start_ > 0 ? Event{} : items_[head_]; }
  void push(const Event& event) { items_.push_back(event); }
  void pop() {
    if (at_start_ > 0) {
      --at_start_;
      return;
    }
    if (++head_ < items_.size()) return;
    items_.clear();
    head_ = 0;
  }

 private:
  std::uint32_t at_start_ = 0;
  std::vector<Event> items_;
  std::size_t head_ = 0;
};

/// A path over servers. Times are picoseconds a byte.
struct Route {
  struct Leg {
    std::uint32_t server = 0;
    double per_byte = 0, per_message = 0;  // Picoseconds.
  };
  Picoseconds latency = 0;
  std::vector<Leg> legs;
  double bytes = 0;  // Sent so far.
};

/// The resources of a model, and what a rank or a pair of ranks has alone, at work.
class Servers {
 public:
  Servers(const Plan& plan, const CostModel& model, const Traffic& traffic);

  /// From one rank to another in a lane. Valid until another is asked for.
  Route& route(std::uint32_t lane, std::uint32_t from, std::uint32_t to) {
    return routes_[route_index(lane, from, to)];
  }
  Route& route(std::uint32_t channel) { return routes_[of_channel_[channel]]; }
  Picoseconds way_back(std::uint32_t channel) const { return back_[channel]; }

  /// What is sent from a location is joined by switches: with k - 1 others that are sent by the
  /// same step (k), or that the receiving step adds up (-k); 0: not.
  int joined(std::uint32_t rank, std::uint32_t lane, std::size_t location) const {
    if (joined_.empty() || location >= joined_[rank][lane].size()) return 0;
    return joined_[rank][lane][location];
  }

  /// Gives bytes to all servers of a route, from `now` on.
  void carry(Route& route, Picoseconds now, double bytes, int joined);
  /// When they have worked off all they were given.
  Picoseconds done(const Route& route, Picoseconds now, int joined) const;
  /// The same for a step that moves so many bytes.
  void compute(std::uint32_t rank, std::uint32_t lane, Picoseconds now, double bytes);
  Picoseconds computed(std::uint32_t rank, std::uint32_t lane) const;

  double bytes_on_busiest_link() const;
  std::vector<double> busy_us() const;

 private:
  struct Server {
    Picoseconds until = 0;  // Everything is worked off.
    Picoseconds worked = 0;
    void work(Picoseconds now, Picoseconds time) {
      until = std::max(until, now) + time;
      worked += time;
    }
  };
  struct Processor {
    std::uint32_t server = 0;
    double step = 0, per_byte = 0;  // Picoseconds.
  };

  Rank place(std::uint32_t lane, std::uint32_t rank) const;
  std::uint32_t route_index(std::uint32_t lane, std::uint32_t from, std::uint32_t to);
  Route make_route(Rank from, Rank to);
  void open_processors(const Plan& plan);
  void find_joins(const Plan& plan);
  // The first server of a channel's route that joins so; none: ~0.
  std::uint32_t joining_server(std::uint32_t channel, Resource::Joins kind) const;

  const CostModel& model_;
  const Traffic& traffic_;
  std::vector<Server> servers_;  // First the model's resources.
  std::vector<Route> routes_;
  FlatMap route_index_;
  std::vector<std::uint32_t> of_channel_;
  std::vector<Picoseconds> back_;
  std::vector<std::vector<Processor>> processors_;              // [rank][lane]
  std::vector<std::vector<std::vector<std::int32_t>>> joined_;  // [rank][lane][location]
};

/// Fills a recording while a plan is simulated.
class Recorder {
 public:
  Recorder(Recording& into, std::size_t channels, int slots)
      : into_(into),
        underway_(channels),
        rooms_(channels,
               std::deque<std::uint32_t>(static_cast<std::size_t>(slots), Recording::kNone)) {}

  /// A step starts that waited longest for this channel; gives its place.
  std::uint32_t start(Recording::Step step, std::uint32_t channel) {
    if (step.waited == Recording::Waited::kForMessage)
      step.after = into_.messages[underway_[channel].front()].sender;
    else if (step.waited == Recording::Waited::kForRoom)
      step.after = rooms_[channel].front();
    into_.steps.push_back(step);
    return static_cast<std::uint32_t>(into_.steps.size() - 1);
  }
  void send(const Recording::Message& message, std::uint32_t channel, bool takes_room) {
    underway_[channel].push_back(static_cast<std::uint32_t>(into_.messages.size()));
    into_.messages.push_back(message);
    if (takes_room) rooms_[channel].pop_front();
  }
  void take(std::uint32_t step, std::uint32_t channel, bool makes_room) {
    into_.messages[underway_[channel].front()].receiver = step;
    underway_[channel].pop_front();
    if (makes_room) rooms_[channel].push_back(step);
  }

 private:
  Recording& into_;
  std::vector<std::deque<std::uint32_t>> underway_;  // Messages, by channel.
  std::vector<std::deque<std::uint32_t>> rooms_;     // Who made them: steps, by channel.
};

}  // namespace tutti::plan
