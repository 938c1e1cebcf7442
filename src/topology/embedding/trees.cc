#include "topology/embedding/trees.h"

#include <algorithm>
#include <set>

#include "topology/bounds/max_flow.h"

namespace tutti::topology {
namespace {

using Places = std::uint32_t;  // A set, one bit each.
constexpr Places only(std::size_t place) { return Places{1} << place; }
constexpr bool has(Places set, std::size_t place) { return (set >> place & 1) != 0; }

// Equal trees that grow together.
struct Tree {
  std::size_t root = 0;
  std::int64_t count = 0;
  Places reached = 0;
  std::vector<std::uint32_t> parents;  // By place: the place before; kNone.
  std::vector<std::uint32_t> depths;
};

// Out-trees in a network of endpoints. At any time, for every set of places, what enters it is at
// least the number of trees that have not reached it: that is when all trees can be completed. An
// arc is added to as many equal trees as keeps this true; the others are left for later.
class Growth {
 public:
  Growth(std::vector<std::int64_t> capacities, std::size_t places, std::int64_t count)
      : places_(places), all_(only(places) - 1), capacities_(std::move(capacities)) {
    for (std::size_t root = 0; root < places; ++root) {
      Tree tree{root, count, only(root), {}, {}};
      tree.parents.assign(places, TreePacking::kNone);
      tree.depths.assign(places, 0);
      trees_.push_back(std::move(tree));
    }
  }

  /// Complete trees; none if the condition did not hold at first.
  std::vector<Tree> run() {
    for (std::size_t i = 0; i < trees_.size(); ++i) {
      while (trees_[i].reached != all_) {
        if (!grow(i)) return {};
      }
    }
    return std::move(trees_);
  }

 private:
  struct Arc {
    std::size_t from = 0, to = 0;
    std::int64_t count = 0;
  };

  // By one arc: from the place nearest to the root, one that fits the most trees.
  bool grow(std::size_t index) {
    Arc best;
    for (std::uint32_t depth = 0; depth < places_ && best.count == 0; ++depth)
      best = arc_at(index, depth);
    if (best.count == 0) return false;
    if (best.count < trees_[index].count) {
      Tree rest = trees_[index];
      rest.count -= best.count;
      trees_.push_back(std::move(rest));
    }
    Tree& tree = trees_[index];
    tree.count = best.count;
    tree.reached |= only(best.to);
    tree.parents[best.to] = static_cast<std::uint32_t>(best.from);
    tree.depths[best.to] = tree.depths[best.from] + 1;
    capacities_[best.from * places_ + best.to] -= best.count;
    return true;
  }

  Arc arc_at(std::size_t index, std::uint32_t depth) const {
    const Tree& tree = trees_[index];
    Arc best;
    for (std::size_t from = 0; from < places_; ++from) {
      if (!has(tree.reached, from) || tree.depths[from] != depth) continue;
      for (std::size_t to = 0; to < places_; ++to) {
        const std::int64_t most = std::min(tree.count, capacities_[from * places_ + to]);
        if (has(tree.reached, to) || most <= best.count) continue;
        const std::int64_t count = fitting(index, from, to, most);
        if (count > best.count) best = {from, to, count};
        if (best.count == tree.count) return best;
      }
    }
    return best;
  }

  // How many of these trees may take the arc, at most `most`. Only sets with `to`, without `from`
  // lose by it, if these trees have reached them elsewhere. For the others, the sum here is larger
  // by these trees' count, which never matters; so one flow finds the least of all.
  std::int64_t fitting(std::size_t index, std::size_t from, std::size_t to,
                       std::int64_t most) const {
    MaxFlow flow(places_ + trees_.size());
    for (std::uint32_t a = 0; a < places_; ++a) {
      for (std::uint32_t b = 0; b < places_; ++b) {
        const std::int64_t capacity = capacities_[a * places_ + b];
        if (capacity > 0 && a != to && b != from) flow.add_edge(a, b, capacity);
      }
    }
    const auto source = static_cast<std::uint32_t>(from);
    std::int64_t others = 0;
    for (std::size_t i = 0; i < trees_.size(); ++i) {
      const Tree& tree = trees_[i];
      if (i == index || tree.reached == all_) continue;
      others += tree.count;
      const auto node = static_cast<std::uint32_t>(places_ + i);
      flow.add_edge(source, node, tree.count);
      for (std::uint32_t place = 0; place < places_; ++place) {
        if (has(tree.reached, place) && place != from) flow.add_edge(node, place, tree.count);
      }
    }
    const std::int64_t found = flow.run(source, static_cast<std::uint32_t>(to), others + most);
    return std::clamp<std::int64_t>(found - others, 0, most);
  }

  std::size_t places_;
  Places all_;
  std::vector<std::int64_t> capacities_;  // [from * places + to]: what no tree has taken.
  std::vector<Tree> trees_;
};

// Units: `count` trees a root of `unit` capacity each.
struct Units {
  std::int64_t unit = 0, count = 0;
};

SwitchedNetwork in_units(const SwitchedNetwork& network, std::int64_t unit) {
  SwitchedNetwork scaled = network;
  for (SwitchedNetwork::Arc& arc : scaled.arcs) arc.capacity /= unit;
  return scaled;
}

// The largest unit of which `count` fit; `low` is known to.
std::int64_t largest_unit(const SwitchedNetwork& network, std::int64_t count, std::int64_t low,
                          std::int64_t high) {
  while (low < high) {
    const std::int64_t middle = low + (high - low + 1) / 2;
    if (can_gather(in_units(network, middle), count)) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

// What to try: few units before many, if the many gain little.
std::vector<Units> choices(const SwitchedNetwork& network, std::int64_t rate) {
  constexpr std::int64_t kMostCount = 24;
  std::vector<Units> found;
  for (const std::int64_t percent : {99, 97, 95}) {
    for (std::int64_t count = 1; count <= kMostCount; ++count) {
      const std::int64_t high = rate / count;
      const std::int64_t low = (high * percent + 99) / 100;
      if (low < 1 || !can_gather(in_units(network, low), count)) continue;
      found.push_back({largest_unit(network, count, low, high), count});
      break;
    }
  }
  const std::int64_t high = rate / kMostCount;
  if (high > 0) {
    const std::int64_t unit = largest_unit(network, kMostCount, 0, high);
    if (unit > 0) found.push_back({unit, kMostCount});
  }
  return found;
}

// Trees by forests: each root's trees one after the other share out the same counts, and a forest
// is a stretch in which no root changes its tree.
std::vector<TreePacking::Forest> forests_of(std::vector<Tree> trees, std::size_t places,
                                            std::int64_t unit,
                                            const std::vector<std::uint32_t>& hops) {
  std::stable_sort(trees.begin(), trees.end(), [](const Tree& a, const Tree& b) {
    return a.root != b.root ? a.root < b.root : a.count > b.count;
  });
  std::set<std::int64_t> ends;
  std::vector<std::int64_t> end(trees.size());
  for (std::size_t i = 0; i < trees.size(); ++i) {
    const bool first = i == 0 || trees[i].root != trees[i - 1].root;
    end[i] = trees[i].count + (first ? 0 : end[i - 1]);
    ends.insert(end[i]);
  }
  std::vector<TreePacking::Forest> forests;
  std::int64_t begin = 0;
  for (const std::int64_t until : ends) {
    TreePacking::Forest& forest = forests.emplace_back();
    forest.weight = (until - begin) * unit;
    forest.parents.assign(places * places, TreePacking::kNone);
    for (std::size_t i = 0; i < trees.size(); ++i) {
      const std::size_t root = trees[i].root;
      if (end[i] <= begin || end[i] - trees[i].count > begin) continue;
      for (std::size_t place = 0; place < places; ++place) {
        const std::uint32_t from = trees[i].parents[place];
        if (from != TreePacking::kNone)
          forest.parents[root * places + place] = hops[from * places + place];
      }
    }
    begin = until;
  }
  return forests;
}

}  // namespace

TreePacking pack_trees(const SwitchedNetwork& network, std::int64_t enough) {
  TreePacking packing;
  const std::size_t places = network.places;
  if (places < 2 || places > TreePacking::kMostPlaces) return packing;
  const std::int64_t rate = largest_supply(network, enough);
  for (const Units& units : choices(network, rate)) {
    const auto direct = split_switches(in_units(network, units.unit), units.count);
    if (!direct) continue;
    std::vector<std::int64_t> capacities(places * places);
    std::vector<std::uint32_t> hops(places * places, TreePacking::kNone);
    for (std::uint32_t from = 0; from < places; ++from) {
      for (std::uint32_t to = 0; to < places; ++to) {
        const DirectEdge& edge = (*direct)[from * places + to];
        if (from == to || edge.capacity == 0) continue;
        capacities[from * places + to] = edge.capacity;
        hops[from * places + to] = static_cast<std::uint32_t>(packing.hops.size());
        TreePacking::Hop& hop = packing.hops.emplace_back();
        hop = {from, to, {}};
        for (const auto& [arc, share] : edge.arcs) {
          if (share > 0) hop.shares.emplace_back(arc, share / static_cast<double>(edge.capacity));
        }
      }
    }
    auto trees = Growth(std::move(capacities), places, units.count).run();
    if (!trees.empty()) {
      packing.forests = forests_of(std::move(trees), places, units.unit, hops);
      return packing;
    }
    packing.hops.clear();
  }
  return packing;
}

}  // namespace tutti::topology
