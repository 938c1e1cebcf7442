// File: topology/embedding/rings.h: the best packing of weighted rings through a few places.
//
// A linear programme: as much weight of rings as the capacities allow, solved by column generation:
// the simplex method prices the resources, and the cheapest ring at these prices (a shortest
// Hamiltonian cycle, by dynamic programming over sets: Held and Karp 1962, Bellman 1962) is the
// next column, until no ring is cheap enough. So the sum of the weights is the optimum, not a
// guess; but work is bounded, and beyond some 12 places the answer may be less than the optimum. As
// a vertex of a linear programme has odd weights, rings of one weight that reach the same are
// searched for first among themselves (NVIDIA's cube mesh: six; a full mesh of eight: seven).
#pragma once
#include <cstdint>
#include <vector>

namespace tutti::topology {

struct RingProblem {
  static constexpr std::size_t kMostPlaces = 16;
  struct Use {
    std::uint32_t resource = 0;
    double share = 1;
  };
  /// A way for a hop; `id` is the caller's.
  struct Way {
    std::uint32_t id = 0;
    std::vector<Use> uses;
  };
  std::size_t places = 0;              // 2 to kMostPlaces.
  std::vector<double> capacities;      // By resource; positive.
  std::vector<std::vector<Way>> ways;  // [from * places + to]; empty: no such hop.
  const std::vector<Way>& at(std::size_t from, std::size_t to) const {
    return ways[from * places + to];
  }
};

struct PackedRing {
  std::vector<std::uint32_t> order;  // The places; the last place is the last.
  std::vector<std::uint32_t> ways;   // ways[i]: in the list of the hop from order[i] to its next.
  double weight = 0;
};

/// Rings with the largest sum of weights; none if there is no ring at all. Milliseconds for 8
/// places and 100 resources, a second for 16.
std::vector<PackedRing> pack_rings(const RingProblem& problem);

}  // namespace tutti::topology
