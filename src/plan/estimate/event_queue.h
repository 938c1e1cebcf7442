// File: plan/estimate/event_queue.h: which lane of a simulation is due when.
#pragma once
#include <algorithm>
#include <compare>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "plan/estimate/parts.h"

namespace tutti::plan {

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
    if (!std::is_sorted(actors.begin(), actors.end())) std::sort(actors.begin(), actors.end());
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

}  // namespace tutti::plan
