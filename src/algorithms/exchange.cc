#include "algorithms/exchange.h"

#include <algorithm>
#include <numeric>
#include <set>

#include "algorithms/ranks.h"

namespace tutti {
namespace {

bool one_slot_each(std::span<const Move> sends) {
  std::set<int> peers;
  return std::ranges::all_of(
      sends, [&](const Move& send) { return peers.insert(send.targets.front().peer).second; });
}

}  // namespace

bool leads(int rank, int jump, int n) {
  const int first = rank % std::gcd(jump, n);
  bool is_even = true;
  for (int at = first; at != rank; at = wrap(at + jump, n)) is_even = !is_even;
  return is_even;
}

void exchange(plan::Builder& plan, bool leads, std::span<const Move> sends,
              std::span<const Move> takes) {
  const bool first = leads || one_slot_each(sends);
  for (const Move& step : first ? sends : takes) plan.move(step.chunk, step.sources, step.targets);
  for (const Move& step : first ? takes : sends) plan.move(step.chunk, step.sources, step.targets);
}

}  // namespace tutti
