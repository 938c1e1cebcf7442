#include "algorithms/exchange.h"

#include <set>

namespace tutti {
namespace {

bool one_slot_each(std::span<const Move> sends) {
  std::set<int> peers;
  for (const Move& send : sends) {
    if (!peers.insert(send.targets.front().peer).second) return false;
  }
  return true;
}

}  // namespace

void exchange(plan::Builder& plan, bool leads, std::span<const Move> sends,
              std::span<const Move> takes) {
  const bool first = leads || one_slot_each(sends);
  for (const Move& step : first ? sends : takes) plan.move(step.chunk, step.sources, step.targets);
  for (const Move& step : first ? takes : sends) plan.move(step.chunk, step.sources, step.targets);
}

}  // namespace tutti
