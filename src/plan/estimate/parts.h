// File: plan/estimate/parts.h: the pieces of the event simulation: time, queues, recorders.
#pragma once
#include <cmath>
#include <compare>
#include <cstdint>
#include <deque>
#include <utility>
#include <vector>

#include "plan/estimate/estimate.h"
#include "plan/estimate/traffic.h"
#include "plan/flat_map.h"

namespace tutti::plan {

using Picoseconds = std::int64_t;
inline Picoseconds to_picoseconds(double microseconds) {
  return static_cast<Picoseconds>(std::llround(microseconds * 1e6));
}
inline double to_us(Picoseconds time) { return static_cast<double>(time) * 1e-6; }

/// A moment, how many messages came one after the other to make it as late as it is, and for how
/// long these were underway for distance alone. If two are equally late, the longer chain
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
  std::vector<std::deque<std::uint32_t>> rooms_;     // The steps that made them, by channel.
};

}  // namespace tutti::plan
