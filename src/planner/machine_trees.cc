#include "planner/machine_trees.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

namespace tutti::planner {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr std::size_t kMostTrees = 32;
// The share of the rate that each tree costs, as messages and so pipelines get shorter. Simulated
// on 6 GPUs of a DGX-1, a broadcast of 1 GiB takes 18.0 ms by 3 trees that would carry 60.0 GB/s,
// and 20.9 ms by 22 that would carry 62.9.
constexpr double kCost = 0.004;
// For each tree more; twice as many of either find no better ones on the models of up to 8 GPUs.
constexpr int kRounds = 4;
constexpr int kProposals = 2;

using Parents = std::vector<int>;

// What a hop between a parent and a child carries for each byte of a tree's share, by resource.
class Hops {
 public:
  Hops(const plan::Shape& shape, const plan::CostModel& model)
      : ranks_(static_cast<std::size_t>(shape.rank_count)),
        uses_(ranks_ * ranks_),
        joined_(ranks_ * ranks_, true) {
    for (std::size_t parent = 0; parent < ranks_; ++parent) {
      for (std::size_t child = 0; child < ranks_; ++child) {
        if (parent == child) continue;
        if (shape.collective != Collective::kReduce) add(model, parent, child, parent, child);
        if (shape.collective != Collective::kBroadcast) add(model, child, parent, parent, child);
      }
    }
  }

  std::size_t ranks() const { return ranks_; }
  bool joined(std::size_t parent, std::size_t child) const {
    return joined_[parent * ranks_ + child];
  }
  const std::vector<double>& rates() const { return rates_; }
  const std::vector<plan::Use>& at(std::size_t parent, std::size_t child) const {
    return uses_[parent * ranks_ + child];
  }

 private:
  void add(const plan::CostModel& model, std::size_t from, std::size_t to, std::size_t parent,
           std::size_t child) {
    const auto rank = [](std::size_t index) { return Rank{static_cast<std::int32_t>(index)}; };
    const plan::Path path = model.link(rank(from), rank(to));
    if (path.uses.empty()) joined_[parent * ranks_ + child] = false;
    for (const plan::Use& use : path.uses) {
      const double rate = model.resources[use.resource].gigabytes_per_second;
      if (rate <= 0) continue;  // Unlimited.
      const auto [found, fresh] =
          numbers_.emplace(use.resource, static_cast<std::uint32_t>(rates_.size()));
      if (fresh) rates_.push_back(rate);
      uses_[parent * ranks_ + child].push_back({found->second, use.share});
    }
  }

  std::size_t ranks_;
  std::vector<std::vector<plan::Use>> uses_;  // [parent * ranks + child]; resources by number.
  std::vector<bool> joined_;
  std::map<std::uint32_t, std::uint32_t> numbers_;
  std::vector<double> rates_;
};

// Steep, so that what is busiest counts.
double power(double x) {
  for (int squared = 0; squared < 4; ++squared) x *= x;
  return x;
}

// Some nodes that choose each other in a circle; empty: there are none.
std::vector<int> circle_of(const Parents& parents) {
  std::vector<int> passed(parents.size(), -1);
  for (int start = 0; start < static_cast<int>(parents.size()); ++start) {
    int at = start;
    while (passed[static_cast<std::size_t>(at)] < 0) {
      passed[static_cast<std::size_t>(at)] = start;
      at = parents[static_cast<std::size_t>(at)];
    }
    const bool is_root = parents[static_cast<std::size_t>(at)] == at;
    if (is_root || passed[static_cast<std::size_t>(at)] != start) continue;
    std::vector<int> circle{at};
    for (int next = parents[static_cast<std::size_t>(at)]; next != at;
         next = parents[static_cast<std::size_t>(next)])
      circle.push_back(next);
    return circle;
  }
  return {};
}

// The out-tree of least cost, costs by [parent * nodes + child]; some tree has a finite one. The
// root is its own parent. Every node chooses its cheapest parent; a circle becomes one node, which
// pays for entering it only what that costs more. As deep as there are circles in circles.
Parents cheapest_tree(std::size_t nodes, std::size_t root, const std::vector<double>& costs) {
  const auto cost = [&](std::size_t from, std::size_t to) { return costs[from * nodes + to]; };
  Parents parents(nodes, static_cast<int>(root));
  for (std::size_t to = 0; to < nodes; ++to) {
    double least = kNever;
    for (std::size_t from = 0; from < nodes && to != root; ++from) {
      if (from == to || cost(from, to) >= least) continue;
      least = cost(from, to);
      parents[to] = static_cast<int>(from);
    }
  }
  const std::vector<int> circle = circle_of(parents);
  if (circle.empty()) return parents;
  std::vector<std::size_t> number(nodes, nodes), outside;
  for (const int node : circle) number[static_cast<std::size_t>(node)] = 0;
  for (std::size_t node = 0; node < nodes; ++node) {
    if (number[node] == 0) continue;
    outside.push_back(node);
    number[node] = outside.size();
  }
  const std::size_t fewer = outside.size() + 1;
  std::vector<double> inner(fewer * fewer, kNever);
  std::vector<int> enters(nodes), leaves(nodes);  // Where in the circle, by the node outside.
  for (const std::size_t node : outside) {
    for (const std::size_t other : outside)
      inner[number[node] * fewer + number[other]] = cost(node, other);
    for (const int index : circle) {
      const auto at = static_cast<std::size_t>(index);
      const double more = cost(node, at) - cost(static_cast<std::size_t>(parents[at]), at);
      double& into = inner[number[node] * fewer];
      double& out_of = inner[number[node]];
      if (more < into) enters[node] = index;
      if (cost(at, node) < out_of) leaves[node] = index;
      into = std::min(into, more);
      out_of = std::min(out_of, cost(at, node));
    }
  }
  const Parents found = cheapest_tree(fewer, number[root], inner);
  for (const std::size_t node : outside) {
    const auto above = static_cast<std::size_t>(found[number[node]]);
    if (node != root)
      parents[node] = above == 0 ? leaves[node] : static_cast<int>(outside[above - 1]);
  }
  const std::size_t enters_from = outside[static_cast<std::size_t>(found[0]) - 1];
  parents[static_cast<std::size_t>(enters[enters_from])] = static_cast<int>(enters_from);
  return parents;
}

// Whether trees from there reach all ranks.
bool reaches_all(const Hops& hops, std::size_t root) {
  std::vector<bool> seen(hops.ranks());
  std::vector<std::size_t> reached{root};
  seen[root] = true;
  for (std::size_t i = 0; i < reached.size(); ++i) {
    for (std::size_t child = 0; child < hops.ranks(); ++child) {
      if (seen[child] || !hops.joined(reached[i], child)) continue;
      seen[child] = true;
      reached.push_back(child);
    }
  }
  return reached.size() == hops.ranks();
}

// Trees of one weight each, as many as there are. The root reaches all ranks.
class Packing {
 public:
  Packing(const Hops& hops, std::size_t root)
      : hops_(hops), root_(root), loads_(hops.rates().size()), prices_(loads_.size()) {}

  /// One tree more; then others move as long as that helps, or time is up.
  void grow() {
    trees_.push_back(propose());
    load(trees_.back(), 1);
    for (int round = 0; round < kRounds; ++round) {
      bool moved = false;
      for (Parents& tree : trees_) moved = move(tree) || moved;
      if (!moved) break;
    }
  }

  /// GB/s of all together.
  double rate() const {
    double busiest = 0;
    for (std::size_t i = 0; i < loads_.size(); ++i)
      busiest = std::max(busiest, loads_[i] / hops_.rates()[i]);
    return busiest > 0 ? static_cast<double>(trees_.size()) / busiest : 0;
  }
  /// GB/s that no trees can carry, however many.
  double limit() const { return limit_; }
  const std::vector<Parents>& trees() const { return trees_; }

 private:
  // To another place, if that is better.
  bool move(Parents& tree) {
    const double before = badness();
    load(tree, -1);
    Parents other = propose();
    load(other, 1);
    if (badness() < before * (1 - 1e-9)) {
      tree = std::move(other);
      return true;
    }
    load(other, -1);
    load(tree, 1);
    return false;
  }

  // The best of some trees that are cheap. A tree's hops may share links, whose prices don't know
  // of it: so the next prices are of the loads with what was found.
  Parents propose() {
    Parents best;
    double least = kNever;
    std::vector<double> extra(loads_.size());
    for (int round = 0; round < kProposals; ++round) {
      Parents tree = cheapest(extra, round);
      load(tree, 1);
      const double found = badness();
      load(tree, -1);
      add(extra, tree, 1);
      if (found >= least) continue;
      least = found;
      best = std::move(tree);
    }
    return best;
  }

  // Near the busiest link's, and lower where fewer links are as busy.
  double badness() const {
    double sum = 0;
    for (std::size_t i = 0; i < loads_.size(); ++i) sum += power(loads_[i] / hops_.rates()[i]);
    return sum;
  }

  // With what one tree more would make of the loads: an average one of those that were proposed.
  Parents cheapest(const std::vector<double>& extra, int proposed) {
    double busiest = 0, sum = 0, cost = 0;
    const auto at = [&](std::size_t i) {
      return (loads_[i] + (1 + extra[i]) / (1 + proposed)) / hops_.rates()[i];
    };
    for (std::size_t i = 0; i < loads_.size(); ++i) busiest = std::max(busiest, at(i));
    for (std::size_t i = 0; i < loads_.size(); ++i) {
      prices_[i] = power(at(i) / busiest) / hops_.rates()[i];
      sum += prices_[i] * hops_.rates()[i];
    }
    const std::size_t ranks = hops_.ranks();
    costs_.assign(ranks * ranks, kNever);
    for (std::size_t parent = 0; parent < ranks; ++parent) {
      for (std::size_t child = 0; child < ranks; ++child) {
        if (parent == child || !hops_.joined(parent, child)) continue;
        double& hop = costs_[parent * ranks + child] = 0;
        for (const plan::Use& use : hops_.at(parent, child))
          hop += use.share * prices_[use.resource];
      }
    }
    Parents tree = cheapest_tree(ranks, root_, costs_);
    for (std::size_t child = 0; child < ranks; ++child) {
      if (child != root_) cost += costs_[static_cast<std::size_t>(tree[child]) * ranks + child];
    }
    if (cost > 0) limit_ = std::min(limit_, sum / cost);
    return tree;
  }

  void load(const Parents& tree, double by) { add(loads_, tree, by); }

  void add(std::vector<double>& loads, const Parents& tree, double by) const {
    for (std::size_t child = 0; child < tree.size(); ++child) {
      if (child == root_) continue;
      for (const plan::Use& use : hops_.at(static_cast<std::size_t>(tree[child]), child))
        loads[use.resource] += by * use.share;
    }
  }

  const Hops& hops_;
  std::size_t root_;
  std::vector<Parents> trees_;
  std::vector<double> loads_, prices_, costs_;
  double limit_ = kNever;
};

int depth_of(const Parents& parents) {
  int most = 0;
  for (int rank = 0; rank < static_cast<int>(parents.size()); ++rank) {
    int depth = 0, at = rank;
    for (; parents[static_cast<std::size_t>(at)] != at; at = parents[static_cast<std::size_t>(at)])
      ++depth;
    most = std::max(most, depth);
  }
  return most;
}

// The same edges with another root.
Parents turned(Parents parents, int root) {
  int above = root;
  for (int at = root;;) {
    const int next = std::exchange(parents[static_cast<std::size_t>(at)], above);
    if (next == at) return parents;
    above = std::exchange(at, next);
  }
}

// From the root where the farthest is nearest.
Parents flat(const Parents& parents) {
  Parents best = parents;
  for (int root = 0; root < static_cast<int>(parents.size()); ++root) {
    Parents other = turned(parents, root);
    if (depth_of(other) < depth_of(best)) best = std::move(other);
  }
  return best;
}

}  // namespace

std::vector<plan::SpanningTree> trees_for(const plan::Shape& shape, const plan::CostModel& model) {
  const bool all_reduce = shape.collective == Collective::kAllReduce;
  if (shape.rank_count < 2 || shape.rank_count > kMostPacked ||
      (!all_reduce && shape.collective != Collective::kBroadcast &&
       shape.collective != Collective::kReduce))
    return {};
  const Hops hops(shape, model);
  const auto root = static_cast<std::size_t>(all_reduce ? 0 : shape.root);
  if (hops.rates().empty() || !reaches_all(hops, root)) return {};
  Packing packing(hops, root);
  std::vector<Parents> best;
  double most = 0;
  const auto worth = [](double rate, std::size_t trees) {
    return rate * (1 - kCost * static_cast<double>(trees));
  };
  while (packing.trees().size() < kMostTrees &&
         worth(packing.limit(), packing.trees().size() + 1) > most) {
    packing.grow();
    const double found = worth(packing.rate(), packing.trees().size());
    if (found <= most) continue;
    most = found;
    best = packing.trees();
  }
  std::map<Parents, int> weights;
  for (const Parents& tree : best) ++weights[all_reduce ? flat(tree) : tree];
  // Stars are a direct exchange, which needs no trees.
  if (std::all_of(weights.begin(), weights.end(),
                  [](const auto& tree) { return depth_of(tree.first) < 2; }))
    return {};
  std::vector<plan::SpanningTree> trees;
  for (const auto& [parents, weight] : weights) trees.push_back({weight, parents});
  return trees;
}

}  // namespace tutti::planner
