#include "planner/machine_trees.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "algorithms/algorithm.h"

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

// By node; the root is its own parent.
using Parents = std::vector<std::size_t>;

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
std::vector<std::size_t> circle_of(const Parents& parents) {
  std::vector<std::size_t> passed(parents.size(), parents.size());
  for (std::size_t start = 0; start < parents.size(); ++start) {
    std::size_t at = start;
    for (; passed[at] == parents.size(); at = parents[at]) passed[at] = start;
    if (parents[at] == at || passed[at] != start) continue;
    std::vector<std::size_t> circle{at};
    for (std::size_t next = parents[at]; next != at; next = parents[next]) circle.push_back(next);
    return circle;
  }
  return {};
}

// The out-tree of least cost, costs by [parent * nodes + child]; some tree has a finite one. Every
// node chooses its cheapest parent; a circle becomes one node, which
// pays for entering it only what that costs more. As deep as there are circles in circles.
Parents cheapest_tree(std::size_t nodes, std::size_t root, const std::vector<double>& costs) {
  const auto cost = [&](std::size_t from, std::size_t to) { return costs[from * nodes + to]; };
  Parents parents(nodes, root);
  for (std::size_t to = 0; to < nodes; ++to) {
    double least = kNever;
    for (std::size_t from = 0; from < nodes && to != root; ++from) {
      if (from == to || cost(from, to) >= least) continue;
      least = cost(from, to);
      parents[to] = from;
    }
  }
  const std::vector<std::size_t> circle = circle_of(parents);
  if (circle.empty()) return parents;
  std::vector<std::size_t> number(nodes, nodes), outside;
  for (const std::size_t node : circle) number[node] = 0;
  for (std::size_t node = 0; node < nodes; ++node) {
    if (number[node] == 0) continue;
    outside.push_back(node);
    number[node] = outside.size();
  }
  const std::size_t fewer = outside.size() + 1;
  std::vector<double> inner(fewer * fewer, kNever);
  std::vector<std::size_t> enters(nodes),
      leaves(nodes);  // Where in the circle, by the node outside.
  for (const std::size_t node : outside) {
    for (const std::size_t other : outside)
      inner[number[node] * fewer + number[other]] = cost(node, other);
    for (const std::size_t at : circle) {
      const double more = cost(node, at) - cost(parents[at], at);
      double& into = inner[number[node] * fewer];
      double& out_of = inner[number[node]];
      if (more < into) enters[node] = at;
      if (cost(at, node) < out_of) leaves[node] = at;
      into = std::min(into, more);
      out_of = std::min(out_of, cost(at, node));
    }
  }
  const Parents found = cheapest_tree(fewer, number[root], inner);
  for (const std::size_t node : outside) {
    const std::size_t above = found[number[node]];
    if (node != root) parents[node] = above == 0 ? leaves[node] : outside[above - 1];
  }
  const std::size_t enters_from = outside[found[0] - 1];
  parents[enters[enters_from]] = enters_from;
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
    add(loads_, trees_.back(), 1);
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
    add(loads_, tree, -1);
    Parents other = propose();
    add(loads_, other, 1);
    if (badness() < before * (1 - 1e-9)) {
      tree = std::move(other);
      return true;
    }
    add(loads_, other, -1);
    add(loads_, tree, 1);
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
      add(loads_, tree, 1);
      const double found = badness();
      add(loads_, tree, -1);
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
      if (child != root_) cost += costs_[tree[child] * ranks + child];
    }
    if (cost > 0) limit_ = std::min(limit_, sum / cost);
    return tree;
  }

  void add(std::vector<double>& loads, const Parents& tree, double by) const {
    for (std::size_t child = 0; child < tree.size(); ++child) {
      if (child == root_) continue;
      for (const plan::Use& use : hops_.at(tree[child], child))
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
  for (std::size_t rank = 0; rank < parents.size(); ++rank) {
    int depth = 0;
    for (std::size_t at = rank; parents[at] != at; at = parents[at]) ++depth;
    most = std::max(most, depth);
  }
  return most;
}

// The same edges with another root.
Parents turned(Parents parents, std::size_t root) {
  std::size_t above = root;
  for (std::size_t at = root;;) {
    const std::size_t next = std::exchange(parents[at], above);
    if (next == at) return parents;
    above = std::exchange(at, next);
  }
}

// From the root where the farthest is nearest.
Parents flat(const Parents& parents) {
  Parents best = parents;
  for (std::size_t root = 0; root < parents.size(); ++root) {
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
  if (std::ranges::all_of(weights, [](auto& tree) { return depth_of(tree.first) < 2; })) return {};
  std::vector<plan::SpanningTree> trees;
  for (const auto& [parents, weight] : weights)
    trees.push_back({weight, {parents.begin(), parents.end()}});
  return trees;
}

bool trees_keep_order(const plan::Shape& shape) {
  plan::Shape bare = shape;
  bare.trees.clear();
  return std::ranges::any_of(algorithms(), [&](const Algorithm* algorithm) {
    return algorithm->collective == shape.collective && algorithm->applies(shape) &&
           !algorithm->applies(bare) && algorithm->contract(shape) == Contract::kDeterministic;
  });
}

}  // namespace tutti::planner
