// File: tests/support/plan_cost.h: what a plan costs, counted in the plan itself.
#pragma once
#include <algorithm>
#include <deque>
#include <map>
#include <set>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "plan/plan.h"

namespace tutti::test {

struct Cost {
  int rounds = 0;             // Messages in the longest chain in which each needs the one before.
  int chain = 0;              // The same where every step also needs the one before it in its lane.
  int total = 0;              // Slots sent, of one chunk each.
  int busiest = 0;            // Sent by the rank that sends most.
  int fewest = 0;             // Sent by the rank that sends least.
  int neighbours = 0;         // Ranks that the rank with most of them exchanges messages with.
  std::vector<int> crossing;  // Slots from one group to another, by kind of groups.
};

// Runs a plan, with as many slots as it likes, on depths: a value from a slot is one message deeper
// than it was at the sender.
class Depths {
 public:
  explicit Depths(const plan::Plan& plan) : plan_(plan), sent_(plan.ranks.size()) {
    cost_.crossing.resize(plan.shape.groups.sizes.size());
  }

  Cost run() {
    std::map<std::pair<int, int>, std::size_t> at;  // The next step of [rank, lane].
    for (bool moved = true; moved;) {
      moved = false;
      for (int rank = 0; rank < plan_.shape.rank_count; ++rank) {
        const auto& lanes = plan_.ranks[static_cast<std::size_t>(rank)].lanes;
        for (std::size_t lane = 0; lane < lanes.size(); ++lane) {
          std::size_t& step = at[{rank, static_cast<int>(lane)}];
          for (; step < lanes[lane].steps.size(); ++step, moved = true) {
            if (!execute(rank, static_cast<int>(lane), lanes[lane], lanes[lane].steps[step])) break;
          }
        }
      }
    }
    cost_.busiest = *std::max_element(sent_.begin(), sent_.end());
    cost_.fewest = *std::min_element(sent_.begin(), sent_.end());
    for (const int sent : sent_) cost_.total += sent;
    std::vector<std::set<int>> neighbours(sent_.size());
    for (const auto& [ends, channel] : channels_) {
      const auto [from, to, lane] = ends;
      neighbours[static_cast<std::size_t>(from)].insert(to);
      neighbours[static_cast<std::size_t>(to)].insert(from);
    }
    for (const auto& of_rank : neighbours)
      cost_.neighbours = std::max(cost_.neighbours, static_cast<int>(of_rank.size()));
    return cost_;
  }

 private:
  bool execute(int rank, int lane, const plan::Lane& steps, const plan::Step& step) {
    const std::span locations(steps.locations.data() + step.first,
                              std::size_t{step.source_count} + step.target_count);
    const auto sources = locations.first(step.source_count);
    for (const auto& at : sources) {
      if (at.place == plan::Place::kSlot && channels_[{at.peer, rank, lane}].empty()) return false;
    }
    int depth = 0;
    int& clock = clocks_[{rank, lane}];
    for (const auto& at : sources) {
      if (at.place != plan::Place::kSlot) {
        depth = std::max(depth, memory_[{rank, at.place, at.chunk}]);
        continue;
      }
      auto& channel = channels_[{at.peer, rank, lane}];
      depth = std::max(depth, channel.front().depth);
      clock = std::max(clock, channel.front().clock);
      channel.pop_front();
    }
    for (const auto& at : locations.subspan(step.source_count)) {
      if (at.place != plan::Place::kSlot) {
        memory_[{rank, at.place, at.chunk}] = depth;
        continue;
      }
      channels_[{rank, at.peer, lane}].push_back({depth + 1, clock + 1});
      cost_.rounds = std::max(cost_.rounds, depth + 1);
      cost_.chain = std::max(cost_.chain, clock + 1);
      ++sent_[static_cast<std::size_t>(rank)];
      for (std::size_t level = 0; level < cost_.crossing.size(); ++level) {
        const int size = plan_.shape.groups.sizes[level];
        if (rank / size != at.peer / size) ++cost_.crossing[level];
      }
    }
    return true;
  }

  const plan::Plan& plan_;
  Cost cost_;
  std::vector<int> sent_;
  struct Slot {
    int depth, clock;
  };
  std::map<std::tuple<int, int, int>, std::deque<Slot>> channels_;  // [from, to, lane]
  std::map<std::pair<int, int>, int> clocks_;                       // [rank, lane]
  std::map<std::tuple<int, plan::Place, std::uint32_t>, int> memory_;
};

inline Cost cost_of(const plan::Plan& plan) { return Depths(plan).run(); }

}  // namespace tutti::test
