#include "plan/estimate/traffic.h"

#include "plan/flat_map.h"
#include "plan/passes/draft.h"

namespace tutti::plan {
namespace {

enum class Kind : std::uint8_t { kSlots, kMulticast, kSignals };

class Numbering {
 public:
  explicit Numbering(Traffic& traffic) : traffic_(traffic) {}

  /// The first channel from rank `from` to rank `to`.
  std::uint32_t find(Kind kind, std::uint32_t lane, std::uint32_t from, std::uint32_t to) {
    const std::uint32_t n = traffic_.ranks, writer = from % traffic_.listed;
    const std::uint32_t distance = (to + n - from) % n;
    const bool to_all = kind == Kind::kMulticast;
    const std::uint64_t key = (std::uint64_t{lane} << 36) | (std::uint64_t{writer} << 20) |
                              (std::uint64_t{to_all ? 0 : distance} << 4) |
                              static_cast<std::uint64_t>(kind);
    const auto fresh = static_cast<std::uint32_t>(traffic_.channels.size());
    const std::uint32_t found = index_.find_or_insert(key, fresh);
    if (found == fresh) {
      for (std::uint32_t i = to_all ? 0 : distance; i < (to_all ? n : distance + 1); ++i)
        traffic_.channels.push_back({writer, i, lane, kind == Kind::kSignals});
    }
    return found;
  }

 private:
  Traffic& traffic_;
  FlatMap index_;
};

LaneTraffic number(const Lane& lane, std::uint32_t me, std::uint32_t number, Numbering& numbers,
                   std::uint32_t ranks) {
  LaneTraffic found;
  found.of_location.assign(lane.locations.size(), kNoChannel);
  found.of_step.assign(lane.steps.size(), kNoChannel);
  for (std::size_t i = 0; i < lane.steps.size(); ++i) {
    const Step& step = lane.steps[i];
    if (step.kind != StepKind::kMove) {
      const bool sends = step.kind == StepKind::kSignal;
      found.of_step[i] =
          numbers.find(Kind::kSignals, number, sends ? me : step.peer, sends ? step.peer : me);
      continue;
    }
    for (std::uint32_t k = 0; k < std::uint32_t{step.source_count} + step.target_count; ++k) {
      const Location& at = lane.locations[step.first + k];
      if (!is_ring(at)) continue;
      const bool sends = k >= step.source_count, to_all = at.place == Place::kMulticast;
      const Kind kind = to_all ? Kind::kMulticast : Kind::kSlots;
      const std::uint32_t from = sends ? me : at.peer, to = sends && !to_all ? at.peer : me;
      std::uint32_t channel = numbers.find(kind, number, from, to);
      if (to_all && !sends) channel += (me + ranks - from) % ranks;
      found.of_location[step.first + k] = channel;
    }
  }
  return found;
}

}  // namespace

Traffic traffic(const Plan& plan) {
  Traffic result;
  result.ranks = static_cast<std::uint32_t>(plan.shape.rank_count);
  result.listed = static_cast<std::uint32_t>(plan.ranks.size());
  Numbering numbers(result);
  for (std::uint32_t rank = 0; rank < result.listed; ++rank) {
    auto& lanes = result.lanes.emplace_back();
    for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane)
      lanes.push_back(number(plan.ranks[rank].lanes[lane], rank, lane, numbers, result.ranks));
  }
  return result;
}

}  // namespace tutti::plan
