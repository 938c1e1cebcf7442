#include "algorithms/parts.h"

namespace tutti {

std::vector<plan::Location> results(const plan::Builder& plan, std::uint32_t chunk,
                                    const std::vector<int>& to) {
  std::vector<plan::Location> targets;
  targets.reserve(1 + to.size());
  targets.push_back(plan.output(chunk));
  for (const int rank : to) targets.push_back(plan.to(rank, Form::kResult));
  return targets;
}

void pass_on(plan::Builder& plan, std::uint32_t chunk, int from, const std::vector<int>& to) {
  const plan::Location source = from < 0 ? plan.input(chunk) : plan.from(from, Form::kResult);
  if (to.empty())
    return plan.move(chunk, source, plan.output(chunk));  // Needs no list: most steps.
  plan.move(chunk, source, results(plan, chunk, to));
}

std::vector<plan::Location> contributions(const plan::Builder& plan, Rank me, std::uint32_t chunk) {
  std::vector<plan::Location> sources;
  sources.reserve(static_cast<std::size_t>(plan.shape().rank_count));
  for (int rank = 0; rank < plan.shape().rank_count; ++rank)
    sources.push_back(rank == me.value ? plan.input(chunk) : plan.from(rank, Form::kContribution));
  return sources;
}

void share(plan::Builder& plan, std::uint32_t chunk, plan::Location own,
           const std::vector<int>& to) {
  std::vector<plan::Location> targets = results(plan, chunk, to);
  if (own == targets.front()) targets.erase(targets.begin());
  if (!targets.empty()) plan.move(chunk, own, targets);
}

}  // namespace tutti
