#include "planner/weights.h"

#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <utility>

namespace tutti::planner {
namespace {

constexpr double kAlike = 0.95;  // The busiest link of the even shares': less gains too little.
/// How fine shares are: steps of a rank's share where all own as much. Coarse ones find what fine
/// ones, a step at a time, do not. All ranks together have few: a plan has pieces of each.
constexpr int kSteps[] = {1, 2, 4, 8};
constexpr int kMostSteps = 256;

/// Nearly the largest of all, and what says which step helps where several are as large: sums,
/// products and quotients, so all ranks find the same bits.
double power(double x) {
  const double two = x * x, four = two * two, eight = four * four;
  return eight * eight;
}

/// How busy the links are, which owners of shares make them: from every rank goes what the owner
/// adds up, to every rank the result.
class OwnerLoads {
 public:
  OwnerLoads(std::size_t ranks, const plan::CostModel& model) : by_owner_(ranks) {
    std::map<std::uint32_t, std::size_t> links;
    for (std::size_t owner = 0; owner < ranks; ++owner) {
      std::map<std::size_t, double> loads;
      for (std::size_t rank = 0; rank < ranks; ++rank) {
        if (rank == owner) continue;
        const Rank from{static_cast<std::int32_t>(rank)}, to{static_cast<std::int32_t>(owner)};
        for (const plan::Path& path : {model.link(from, to), model.link(to, from)}) {
          joined_ = joined_ && !path.uses.empty();
          for (const plan::Use& use : path.uses) {
            const double rate = model.resources[use.resource].gigabytes_per_second;
            if (rate > 0)
              loads[links.emplace(use.resource, links.size()).first->second] += use.share / rate;
          }
        }
      }
      by_owner_[owner].assign(loads.begin(), loads.end());
    }
    loads_.resize(links.size());
    share_evenly(1);
  }

  /// All owners get so many steps.
  void share_evenly(int steps) {
    weights_.assign(by_owner_.size(), steps);
    most_ = 2 * steps;
    steps_ = static_cast<double>(by_owner_.size()) * steps;
    std::fill(loads_.begin(), loads_.end(), 0);
    for (const auto& owner : by_owner_) {
      for (const auto& [link, load] : owner) loads_[link] += steps * load;
    }
    scale_ = 1 / std::max(busiest() * steps_, 1e-300);
    power_of_.clear();
    for (const double load : loads_) power_of_.push_back(power(load * scale_));
  }

  /// Whether there is a way between any two.
  bool joined() const { return joined_; }
  const std::vector<int>& weights() const { return weights_; }
  /// For a message of one.
  double busiest() const {
    return loads_.empty() ? 0 : *std::max_element(loads_.begin(), loads_.end()) / steps_;
  }

  /// Gives one owner a step more or less, whichever helps most; false: nothing helps any more.
  bool improve() {
    std::size_t best = weights_.size();
    int step = 0;
    // Anew, as sums of differences would lose what is small.
    const double powers = std::accumulate(power_of_.begin(), power_of_.end(), 0.0);
    double least = powers / power(steps_) * (1 - 1e-9);
    for (std::size_t owner = 0; owner < weights_.size(); ++owner) {
      for (const int change : {-1, 1}) {
        const int next = weights_[owner] + change;
        if (next < 0 || next > most_ || steps_ + change < 1) continue;
        double sum = powers;
        for (const auto& [link, load] : by_owner_[owner])
          sum += power((loads_[link] + change * load) * scale_) - power_of_[link];
        if (sum / power(steps_ + change) >= least) continue;
        least = sum / power(steps_ + change);
        best = owner, step = change;
      }
    }
    if (step == 0) return false;
    for (const auto& [link, load] : by_owner_[best]) {
      loads_[link] += step * load;
      power_of_[link] = power(loads_[link] * scale_);
    }
    weights_[best] += step;
    steps_ += step;
    return true;
  }

 private:
  std::vector<int> weights_;
  std::vector<std::vector<std::pair<std::size_t, double>>> by_owner_;  // What a step adds.
  std::vector<double> loads_, power_of_;                               // By link.
  bool joined_ = true;
  int most_ = 0;  // Steps of a rank.
  double steps_ = 0, scale_ = 1;
};

}  // namespace

std::vector<int> shares_for(int ranks, const plan::CostModel& model) {
  if (ranks < 3 || ranks > kMostShared) return {};
  const auto n = static_cast<std::size_t>(ranks);
  OwnerLoads loads(n, model);
  if (!loads.joined()) return {};
  double least = kAlike * loads.busiest();
  std::vector<int> weights;
  for (const int steps : kSteps) {
    if (steps * ranks > kMostSteps) break;
    loads.share_evenly(steps);
    // Each change makes the powers smaller, so no shares come back.
    for (std::size_t i = 0; i < 2 * static_cast<std::size_t>(steps) * n * n && loads.improve();
         ++i) {
    }
    if (loads.busiest() >= least) continue;
    least = loads.busiest();
    weights = loads.weights();
  }
  int common = 0;
  for (const int weight : weights) common = std::gcd(common, weight);
  for (int& weight : weights) weight /= common;
  return weights;
}

std::vector<int> weights_for(const Hosts& hosts) {
  const std::vector<std::size_t> on = ranks_on(hosts.of);
  const bool alike = std::adjacent_find(on.begin(), on.end(), std::not_equal_to<>()) == on.end();
  if (hosts.rates.empty() || !alike) return {};
  // Ranks of a host that own x of the message each add up to a host that owns as much, once they
  // are counted in hosts: k ranks of n send k + k x (n - 2k), k times what 1 + k x (n/k - 2) is.
  plan::CostModel model;  // A way out of each host, and one in.
  for (const HostRate& rate : hosts.rates) {
    for (int i = 0; i < 2; ++i)
      model.resources.push_back({.gigabytes_per_second = rate.gigabytes_per_second});
  }
  model.link = [](Rank from, Rank to) {
    return plan::Path({}, {{2 * static_cast<std::uint32_t>(from.value), 1},
                           {2 * static_cast<std::uint32_t>(to.value) + 1, 1}});
  };
  const std::vector<int> shares = shares_for(static_cast<int>(hosts.rates.size()), model);
  std::vector<int> weights;
  for (const int host : hosts.of) {
    if (!shares.empty()) weights.push_back(shares[static_cast<std::size_t>(host)]);
  }
  return weights;
}

}  // namespace tutti::planner
