#include "planner/weights.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace tutti::planner {
namespace {

constexpr double kAlike = 0.95;  // The slowest of the fastest: weights gain less than they cost.
constexpr int kFinest = 8;       // The largest weight.

}  // namespace

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
