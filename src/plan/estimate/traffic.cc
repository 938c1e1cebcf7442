#include "plan/estimate/traffic.h"

#include "plan/flat_map.h"

namespace tutti::plan {

Traffic traffic(const Plan& plan) {
  Traffic result;
  const auto n = result.ranks = static_cast<std::uint32_t>(plan.shape.rank_count);
  result.listed = static_cast<std::uint32_t>(plan.ranks.size());
  FlatMap index;
  for (std::uint32_t rank = 0; rank < result.listed; ++rank) {
    auto& lanes = result.lanes.emplace_back();
    for (std::uint32_t lane = 0; lane < plan.ranks[rank].lanes.size(); ++lane) {
      lanes.push_back(numbered(
          plan.ranks[rank].lanes[lane], rank,
          [&](WireKind kind, std::uint32_t from, std::uint32_t to, bool) {
            const std::uint32_t writer = from % result.listed, distance = (to + n - from) % n;
            const bool to_all = kind == WireKind::kMulticast;
            const std::uint64_t key = (std::uint64_t{lane} << 36) | (std::uint64_t{writer} << 20) |
                                      (std::uint64_t{to_all ? 0 : distance} << 4) |
                                      static_cast<std::uint64_t>(kind);
            const auto fresh = static_cast<std::uint32_t>(result.channels.size());
            const std::uint32_t found = index.find_or_insert(key, fresh);
            if (found == fresh) {
              for (std::uint32_t i = to_all ? 0 : distance; i < (to_all ? n : distance + 1); ++i)
                result.channels.push_back({writer, i, lane, kind == WireKind::kSignals});
            }
            return to_all ? found + distance : found;
          }));
    }
  }
  return result;
}

}  // namespace tutti::plan
