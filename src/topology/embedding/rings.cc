#include "topology/embedding/rings.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>

#include "base/check.h"

namespace tutti::topology {
namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();

// The cheapest ring at given prices of the resources.
class CheapestRing {
 public:
  explicit CheapestRing(const RingProblem& problem)
      : problem_(problem),
        inner_(problem.places - 1),
        cost_(problem.places * problem.places, kNever),
        way_(cost_.size()),
        best_((std::size_t{1} << inner_) * inner_),
        nexts_(inner_) {
    for (std::size_t from = 0; from < inner_; ++from) {
      for (std::size_t to = 0; to < inner_; ++to) {
        if (!problem.at(from, to).empty()) nexts_[from].push_back(to);
      }
      hops_ += nexts_[from].size();
    }
  }

  /// About how many additions find() takes.
  double work() const {
    return std::ldexp(static_cast<double>(hops_ + inner_), static_cast<int>(inner_) - 1);
  }

  // The cost, or kNever; sets `ring` but for its weight.
  double find(const std::vector<double>& prices, PackedRing& ring) {
    price_hops(prices);
    const std::size_t sets = std::size_t{1} << inner_;
    std::fill(best_.begin(), best_.end(), kNever);
    for (std::size_t i = 0; i < inner_; ++i) at(std::size_t{1} << i, i) = cost(inner_, i);
    for (std::size_t set = 1; set < sets; ++set) {
      for (std::size_t last = 0; last < inner_; ++last) {
        const double before = at(set, last);
        if (before == kNever) continue;
        for (const std::size_t next : nexts_[last]) {
          if ((set >> next & 1) != 0) continue;
          double& after = at(set | std::size_t{1} << next, next);
          after = std::min(after, before + cost(last, next));
        }
      }
    }
    return trace(sets - 1, ring);
  }

 private:
  double& at(std::size_t set, std::size_t last) { return best_[set * inner_ + last]; }
  double cost(std::size_t from, std::size_t to) const { return cost_[from * problem_.places + to]; }

  void price_hops(const std::vector<double>& prices) {
    for (std::size_t hop = 0; hop < cost_.size(); ++hop) {
      cost_[hop] = kNever;
      for (std::size_t way = 0; way < problem_.ways[hop].size(); ++way) {
        double sum = 0;
        for (const auto& use : problem_.ways[hop][way].uses)
          sum += use.share * prices[use.resource];
        if (sum >= cost_[hop]) continue;
        cost_[hop] = sum;
        way_[hop] = static_cast<std::uint32_t>(way);
      }
    }
  }

  // Backwards from the full set: the last place, by its cost.
  double trace(std::size_t set, PackedRing& ring) {
    std::size_t last = inner_;
    double least = kNever;
    ring.order.assign(1, static_cast<std::uint32_t>(inner_));
    while (set != 0) {
      std::size_t chosen = inner_;
      double sum = kNever;
      for (std::size_t i = 0; i < inner_; ++i) {
        if ((set >> i & 1) == 0 || at(set, i) + cost(i, last) >= sum) continue;
        sum = at(set, i) + cost(i, last);
        chosen = i;
      }
      if (chosen == inner_) return kNever;
      if (least == kNever) least = sum;
      ring.order.push_back(static_cast<std::uint32_t>(chosen));
      set &= ~(std::size_t{1} << chosen);
      last = chosen;
    }
    std::reverse(ring.order.begin(), ring.order.end());
    ring.ways.clear();
    for (std::size_t i = 0; i < ring.order.size(); ++i) {
      const std::size_t next = ring.order[(i + 1) % ring.order.size()];
      ring.ways.push_back(way_[ring.order[i] * problem_.places + next]);
    }
    return least;
  }

  const RingProblem& problem_;
  std::size_t inner_;  // All places but the last, where each ring starts.
  std::vector<double> cost_;
  std::vector<std::uint32_t> way_;
  std::vector<double> best_;
  std::vector<std::vector<std::size_t>> nexts_;  // By place: where hops lead, but to the last.
  std::size_t hops_ = 0;
};

std::vector<double> loads_of(const RingProblem& problem, const PackedRing& ring) {
  std::vector<double> loads(problem.capacities.size());
  for (std::size_t i = 0; i < ring.order.size(); ++i) {
    const auto& ways = problem.at(ring.order[i], ring.order[(i + 1) % ring.order.size()]);
    for (const auto& use : ways[ring.ways[i]].uses) loads[use.resource] += use.share;
  }
  return loads;
}

// The primal simplex method on: maximise the sum of weights, loads <= capacities. The inverse of
// the basis is dense: a machine has some hundred link directions.
class Simplex {
 public:
  explicit Simplex(const RingProblem& problem)
      : problem_(problem), size_(problem.capacities.size()) {
    inverse_.assign(size_ * size_, 0);
    for (std::size_t i = 0; i < size_; ++i) {
      inverse_[i * size_ + i] = 1;
      basis_.push_back(-1 - static_cast<int>(i));
      // A little more or less for each, so that no two rows ever tie and the method can't cycle.
      // The caller scales the rings to the links' real loads.
      const double golden = static_cast<double>(i + 1) * 0.6180339887498949;
      values_.push_back(problem.capacities[i] * (1 + 1e-7 * (golden - std::floor(golden))));
    }
  }

  std::vector<PackedRing> run() {
    // Rounds that make headway number a few times the resources; the limits only bound the time
    // (the second: about a second), for every round leaves weights that fit.
    constexpr int kMostRounds = 2000;
    constexpr double kMostWork = 5e8;
    CheapestRing cheapest(problem_);
    double work = 0;
    for (int round = 0; round < kMostRounds && work < kMostWork; ++round) {
      std::vector<double> prices = dual();
      const auto worst = std::min_element(prices.begin(), prices.end());
      if (*worst < -1e-9) {  // A slack would rather be in the basis.
        std::vector<double> unit(size_);
        const auto slack = static_cast<std::size_t>(worst - prices.begin());
        unit[slack] = 1;
        if (!enter(unit, -1 - static_cast<int>(slack))) break;
        continue;
      }
      for (double& price : prices) price = std::max(price, 0.0);
      PackedRing ring;
      work += cheapest.work();
      if (cheapest.find(prices, ring) >= 1 - 1e-9) break;
      columns_.push_back(ring);
      if (!enter(loads_of(problem_, ring), static_cast<int>(columns_.size() - 1))) break;
    }
    return result();
  }

 private:
  std::vector<double> dual() const {
    std::vector<double> prices(size_);
    for (std::size_t row = 0; row < size_; ++row) {
      if (basis_[row] < 0) continue;
      for (std::size_t i = 0; i < size_; ++i) prices[i] += inverse_[row * size_ + i];
    }
    return prices;
  }

  bool enter(const std::vector<double>& column, int id) {
    std::vector<double> direction(size_);
    for (std::size_t row = 0; row < size_; ++row) {
      for (std::size_t i = 0; i < size_; ++i)
        direction[row] += inverse_[row * size_ + i] * column[i];
    }
    std::size_t leaving = size_;
    double least = kNever;
    for (std::size_t row = 0; row < size_; ++row) {
      if (direction[row] <= 1e-9 || values_[row] / direction[row] >= least) continue;
      least = values_[row] / direction[row];
      leaving = row;
    }
    if (leaving == size_) return false;  // A ring over links of unlimited bandwidth only.
    pivot(leaving, direction);
    basis_[leaving] = id;
    return true;
  }

  void pivot(std::size_t leaving, const std::vector<double>& direction) {
    const double by = direction[leaving];
    double* source = &inverse_[leaving * size_];
    for (std::size_t i = 0; i < size_; ++i) source[i] /= by;
    values_[leaving] /= by;
    for (std::size_t row = 0; row < size_; ++row) {
      if (row == leaving || direction[row] == 0) continue;
      for (std::size_t i = 0; i < size_; ++i)
        inverse_[row * size_ + i] -= direction[row] * source[i];
      values_[row] = std::max(0.0, values_[row] - direction[row] * values_[leaving]);
    }
  }

  std::vector<PackedRing> result() const {
    std::vector<PackedRing> rings;
    for (std::size_t row = 0; row < size_; ++row) {
      if (basis_[row] < 0 || values_[row] <= 1e-6) continue;
      rings.push_back(columns_[static_cast<std::size_t>(basis_[row])]);
      rings.back().weight = values_[row];
    }
    return rings;
  }

  const RingProblem& problem_;
  std::size_t size_;
  std::vector<double> inverse_, values_;
  std::vector<int> basis_;  // By row: a column, or -1 - the resource whose slack it is.
  std::vector<PackedRing> columns_;
};

// Rings of one weight, found one after the other by depth-first search with random turns.
class EvenRings {
 public:
  EvenRings(const RingProblem& problem, double weight) : problem_(problem), weight_(weight) {}

  std::vector<PackedRing> run(std::size_t count) {
    constexpr int kRestarts = 400;
    for (int restart = 0; restart < kRestarts; ++restart) {
      left_ = problem_.capacities;
      rings_.clear();
      while (rings_.size() < count && add_ring()) {
      }
      if (rings_.size() == count) return rings_;
    }
    return {};
  }

 private:
  bool add_ring() {
    steps_ = 2000;
    PackedRing ring;
    ring.order.assign(1, static_cast<std::uint32_t>(problem_.places - 1));
    ring.weight = weight_;
    if (!extend(ring, 1U << (problem_.places - 1))) return false;
    std::rotate(ring.order.begin(), ring.order.begin() + 1, ring.order.end());
    std::rotate(ring.ways.begin(), ring.ways.begin() + 1, ring.ways.end());
    rings_.push_back(std::move(ring));
    return true;
  }

  // As deep as there are places: at most 16.
  bool extend(PackedRing& ring, std::uint32_t visited) {
    if (--steps_ < 0) return false;
    const std::uint32_t last = ring.order.back();
    if (ring.order.size() == problem_.places) return take(ring, last, ring.order.front());
    std::vector<std::uint32_t> next;
    for (std::uint32_t i = 0; i < problem_.places; ++i) {
      if ((visited >> i & 1) == 0) next.push_back(i);
    }
    for (std::size_t i = next.size(); i > 1; --i) std::swap(next[i - 1], next[random_() % i]);
    for (const std::uint32_t place : next) {
      if (!take(ring, last, place)) continue;
      ring.order.push_back(place);
      if (extend(ring, visited | 1U << place)) return true;
      ring.order.pop_back();
      give_back(ring, last, place);
    }
    return false;
  }

  bool take(PackedRing& ring, std::uint32_t from, std::uint32_t to) {
    const auto& ways = problem_.at(from, to);
    for (std::uint32_t way = 0; way < ways.size(); ++way) {
      const auto fits = [&](const RingProblem::Use& use) {
        return left_[use.resource] + 1e-6 >= use.share * weight_;
      };
      if (!std::all_of(ways[way].uses.begin(), ways[way].uses.end(), fits)) continue;
      for (const auto& use : ways[way].uses) left_[use.resource] -= use.share * weight_;
      ring.ways.push_back(way);
      return true;
    }
    return false;
  }

  void give_back(PackedRing& ring, std::uint32_t from, std::uint32_t to) {
    for (const auto& use : problem_.at(from, to)[ring.ways.back()].uses)
      left_[use.resource] += use.share * weight_;
    ring.ways.pop_back();
  }

  const RingProblem& problem_;
  double weight_;
  std::mt19937 random_{1};  // Fixed: every rank must find the same.
  std::vector<double> left_;
  std::vector<PackedRing> rings_;
  int steps_ = 0;
};

// Equal rings merge: they differ in ways of equal price only if the ways differ.
void merge(std::vector<PackedRing>& rings) {
  std::map<std::pair<std::vector<std::uint32_t>, std::vector<std::uint32_t>>, double> sums;
  for (const PackedRing& ring : rings) sums[{ring.order, ring.ways}] += ring.weight;
  rings.clear();
  for (const auto& [key, weight] : sums) rings.push_back({key.first, key.second, weight});
}

}  // namespace

std::vector<PackedRing> pack_rings(const RingProblem& problem) {
  TUTTI_CHECK(problem.places >= 2 && problem.places <= RingProblem::kMostPlaces);
  std::vector<PackedRing> rings = Simplex(problem).run();
  if (rings.empty()) return rings;
  double total = 0;
  for (const PackedRing& ring : rings) total += ring.weight;
  double unit = kNever;
  for (const double capacity : problem.capacities) unit = std::min(unit, capacity);
  const double count = std::round(total / unit);
  constexpr double kMostEven = 64;
  if (count <= kMostEven && count >= 1 && count * unit >= total * (1 - 1e-6)) {
    auto even = EvenRings(problem, unit).run(static_cast<std::size_t>(count));
    if (!even.empty()) rings = std::move(even);
  }
  merge(rings);
  return rings;
}

}  // namespace tutti::topology
