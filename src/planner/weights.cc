#include "planner/weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <numeric>
#include <utility>

namespace tutti::planner {
namespace {

constexpr double kAlike = 0.95;  // The slowest of the fastest: weights gain less than they cost.
constexpr int kFinest = 8;       // The largest weight.
constexpr int kSteps = 4;        // In a rank's share, where all own as much.

/// What the owner of a share makes each link carry: from every rank what it adds up, to every rank
/// the result.
class OwnerLoads {
 public:
  OwnerLoads(int ranks, const plan::CostModel& model) : by_owner_(static_cast<std::size_t>(ranks)) {
    std::map<std::uint32_t, std::size_t> links;
    for (int owner = 0; owner < ranks; ++owner) {
      std::map<std::size_t, double> loads;
      for (int rank = 0; rank < ranks; ++rank) {
        if (rank == owner) continue;
        for (const plan::Path& path :
             {model.link(Rank{rank}, Rank{owner}), model.link(Rank{owner}, Rank{rank})}) {
          for (const plan::Use& use : path.uses) {
            const double rate = model.resources[use.resource].gigabytes_per_second;
            if (rate > 0)
              loads[links.emplace(use.resource, links.size()).first->second] += use.share / rate;
          }
        }
      }
      by_owner_[static_cast<std::size_t>(owner)].assign(loads.begin(), loads.end());
    }
    loads_.resize(links.size());
    for (std::size_t owner = 0; owner < by_owner_.size(); ++owner) add(owner, kSteps);
    scale_ = 1 / std::max(busiest(), 1e-300);
  }

  void add(std::size_t owner, int steps) {
    for (const auto& [link, load] : by_owner_[owner]) loads_[link] += steps * load;
  }
  double busiest() const {
    return loads_.empty() ? 0 : *std::max_element(loads_.begin(), loads_.end());
  }
  /// How much busier the links become: a 16th power is nearly the busiest, and says which step
  /// helps where several links are as busy. Products alone, so all ranks find the same bits.
  double change(std::size_t owner, int steps) const {
    double sum = 0;
    for (const auto& [link, load] : by_owner_[owner])
      sum += power((loads_[link] + steps * load) * scale_) - power(loads_[link] * scale_);
    return sum;
  }

 private:
  static double power(double x) {
    const double two = x * x, four = two * two, eight = four * four;
    return eight * eight;
  }

  std::vector<std::vector<std::pair<std::size_t, double>>> by_owner_;
  std::vector<double> loads_;  // By link.
  double scale_ = 1;
};

void divide_by_common(std::vector<int>& weights) {
  int common = 0;
  for (const int weight : weights) common = std::gcd(common, weight);
  for (int& weight : weights) weight /= common;
}

}  // namespace

std::vector<int> shares_for(int ranks, const plan::CostModel& model) {
  if (ranks < 3 || ranks > kMostShared) return {};
  const auto n = static_cast<std::size_t>(ranks);
  OwnerLoads loads(ranks, model);
  const double even = loads.busiest();
  std::vector<int> weights(n, kSteps);
  // A step goes from where it helps most to where it hurts least, until that helps no more. Each
  // makes the powers smaller, so no shares come back.
  for (std::size_t moves = 0; moves < kSteps * n * n; ++moves) {
    std::size_t from = n, to = n;
    double gained = 0, lost = std::numeric_limits<double>::infinity();
    for (std::size_t owner = 0; owner < n; ++owner) {
      const double change = weights[owner] > 0 ? loads.change(owner, -1) : 0;
      if (change < gained) from = owner, gained = change;
    }
    if (from == n) break;
    loads.add(from, -1);
    for (std::size_t owner = 0; owner < n; ++owner) {
      const double change = loads.change(owner, 1);
      if (owner != from && change < lost) to = owner, lost = change;
    }
    if (gained + lost >= -1e-9) {
      loads.add(from, 1);
      break;
    }
    loads.add(to, 1);
    --weights[from];
    ++weights[to];
  }
  if (loads.busiest() > kAlike * even) return {};
  divide_by_common(weights);
  return weights;
}

std::vector<int> weights_for(std::span<const double> us) {
  if (us.size() < 3 || std::any_of(us.begin(), us.end(), [](double time) { return time <= 0; }))
    return {};
  const auto [fastest, slowest] = std::minmax_element(us.begin(), us.end());
  if (*fastest >= kAlike * *slowest) return {};
  const auto n = static_cast<double>(us.size());
  double sum = 0;
  for (const double time : us) sum += 1 / time;
  const double whole = std::min(1 / *slowest, sum / (2 * (n - 1)));
  const auto share = [&](double time) { return std::max(0.0, 1 / (time * whole) - 1); };
  std::vector<int> weights;
  for (const double time : us)
    weights.push_back(static_cast<int>(std::lround(kFinest * share(time) / share(*fastest))));
  divide_by_common(weights);
  return weights;
}

std::vector<int> weights_for(const Hosts& hosts) {
  const std::vector<std::size_t> on = ranks_on(hosts.of);
  const bool alike = std::adjacent_find(on.begin(), on.end(), std::not_equal_to<>()) == on.end();
  if (hosts.rates.empty() || !alike) return {};
  // Ranks of a host that own x of the message each add up to a host that owns as much, once they
  // are counted in hosts: k ranks of n send k + k x (n - 2k), k times what 1 + k x (n/k - 2) is.
  std::vector<double> us;
  for (const HostRate& rate : hosts.rates) us.push_back(1 / rate.gigabytes_per_second);
  const std::vector<int> shares = weights_for(us);
  std::vector<int> weights;
  for (const int host : hosts.of) {
    if (!shares.empty()) weights.push_back(shares[static_cast<std::size_t>(host)]);
  }
  return weights;
}

}  // namespace tutti::planner
