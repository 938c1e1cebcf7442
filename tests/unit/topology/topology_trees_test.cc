// Trees packed in small networks: random ones, against the rate that flows allow, every tree and
// every arc looked at.
#include "topology/embedding/trees.h"

#include <algorithm>
#include <random>

#include "support/catch.h"

namespace tutti::topology {
namespace {

// Some places and switches; links as fast back as forth, unless `uneven`.
SwitchedNetwork random_network(std::mt19937& random, std::size_t places, bool uneven) {
  SwitchedNetwork network;
  network.places = places;
  network.nodes = places + random() % 6;
  const auto tie = [&](std::size_t a, std::size_t b) {
    const auto from = static_cast<std::uint32_t>(a), to = static_cast<std::uint32_t>(b);
    const auto capacity = [&] { return static_cast<std::int64_t>(1000 + random() % 100000); };
    const std::int64_t there = capacity();
    network.arcs.push_back({from, to, there});
    network.arcs.push_back({to, from, uneven ? capacity() : there});
  };
  for (std::size_t i = 1; i < network.nodes; ++i) tie(i, random() % i);
  for (std::size_t more = random() % (2 * places); more > 0; --more) {
    const std::size_t a = random() % network.nodes, b = random() % network.nodes;
    if (a != b) tie(a, b);
  }
  return network;
}

// Capacity of each root's trees together, if they are trees and fit; else 0.
std::int64_t packed_rate(const SwitchedNetwork& network, const TreePacking& packing) {
  std::vector<double> used(network.arcs.size());
  std::int64_t rate = 0;
  for (const auto& forest : packing.forests) {
    rate += forest.weight;
    for (std::size_t root = 0; root < network.places; ++root) {
      for (std::size_t place = 0; place < network.places; ++place) {
        std::size_t at = place;
        for (std::size_t steps = 0; at != root; ++steps) {
          const std::uint32_t hop = forest.parents[root * network.places + at];
          if (hop >= packing.hops.size() || packing.hops[hop].to != at) return 0;
          if (steps > network.places) return 0;
          at = packing.hops[hop].from;
        }
        if (place == root) continue;
        for (const auto& [arc, share] :
             packing.hops[forest.parents[root * network.places + place]].shares) {
          if (share <= 0 || share > 1 + 1e-9) return 0;  // A unit flow without circles.
          used[arc] += share * static_cast<double>(forest.weight);
        }
      }
    }
  }
  for (std::size_t i = 0; i < used.size(); ++i) {
    if (used[i] > static_cast<double>(network.arcs[i].capacity) * (1 + 1e-9)) return 0;
  }
  return rate;
}

// Brute force: the least exit over places inside, of all sets of nodes without all places.
std::int64_t cut_rate(const SwitchedNetwork& network) {
  std::int64_t least = INT64_MAX;
  for (std::uint32_t set = 1; set < (1U << network.nodes); ++set) {
    const auto inside = [&](std::uint32_t node) { return (set >> node & 1) != 0; };
    std::int64_t count = 0, exit = 0;
    for (std::uint32_t place = 0; place < network.places; ++place) count += inside(place) ? 1 : 0;
    if (count == 0 || count == static_cast<std::int64_t>(network.places)) continue;
    for (const auto& arc : network.arcs)
      exit += inside(arc.from) && !inside(arc.to) ? arc.capacity : 0;
    least = std::min(least, exit / count);
  }
  return least;
}

}  // namespace

TEST_CASE("Trees: random networks are packed to 95 % of what their cuts allow") {
  for (std::uint32_t seed = 1; seed <= 150; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const SwitchedNetwork network = random_network(random, 2 + random() % 7, false);
    const std::int64_t limit = cut_rate(network);
    CHECK(largest_supply(network, INT64_MAX / 100) == limit);
    CHECK(can_gather(network, limit));
    CHECK(!can_gather(network, limit + 1));
    const std::int64_t rate = packed_rate(network, pack_trees(network, INT64_MAX / 100));
    CHECK(rate >= limit * 95 / 100);
    CHECK(rate <= limit);
  }
}

TEST_CASE("Trees: up to 16 places") {
  for (std::uint32_t seed = 1; seed <= 8; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const SwitchedNetwork network = random_network(random, 9 + seed % 8, false);
    const std::int64_t limit = largest_supply(network, INT64_MAX / 100);
    CHECK(packed_rate(network, pack_trees(network, INT64_MAX / 100)) >= limit * 95 / 100);
  }
  SwitchedNetwork wide;
  wide.places = wide.nodes = 17;
  CHECK(pack_trees(wide, 1000).forests.empty());
}

TEST_CASE("Trees: uneven networks are packed as far as may be, and never beyond") {
  int none = 0;
  for (std::uint32_t seed = 1; seed <= 100; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    const SwitchedNetwork network = random_network(random, 2 + random() % 7, true);
    const TreePacking packing = pack_trees(network, INT64_MAX / 100);
    if (packing.forests.empty()) {
      ++none;
      continue;
    }
    const std::int64_t rate = packed_rate(network, packing);
    CHECK(rate > 0);
    CHECK(rate <= cut_rate(network));
  }
  UNSCOPED_INFO(none << " of 100 not packed");
  CHECK(none < 50);
}

TEST_CASE("Trees: no more than wanted, in few forests; none where a place is cut off") {
  // Four in a ring, 10 each way: 20 can enter each, 20 / 3 a root.
  SwitchedNetwork ring;
  ring.places = ring.nodes = 4;
  for (std::uint32_t i = 0; i < 4; ++i) {
    ring.arcs.push_back({i, (i + 1) % 4, 10});
    ring.arcs.push_back({(i + 1) % 4, i, 10});
  }
  CHECK(largest_supply(ring, 1000) == 6);
  CHECK(packed_rate(ring, pack_trees(ring, 1000)) == 6);
  const TreePacking modest = pack_trees(ring, 2);
  CHECK(packed_rate(ring, modest) == 2);
  CHECK(modest.forests.size() == 1);
  ring.arcs.resize(2);
  CHECK(largest_supply(ring, 1000) == 0);
  CHECK(pack_trees(ring, 1000).forests.empty());
}

}  // namespace tutti::topology
