#include "plan/builder.h"

#include <algorithm>

#include "base/check.h"

namespace tutti::plan {

Builder::Builder(const Shape& shape, std::uint32_t pieces, const RankPlan* like)
    : shape_(shape), pieces_(pieces) {
  if (like == nullptr) return;
  // Lists that grow step by step are copied as often as they double.
  lane(like->lanes.size() - 1);
  for (std::size_t i = 0; i < plan_.lanes.size(); ++i) {
    plan_.lanes[i].steps.reserve(like->lanes[i].steps.size());
    plan_.lanes[i].locations.reserve(like->lanes[i].locations.size());
  }
  lane(0);
}

void Builder::move(std::uint32_t chunk, const Locations& sources, const Locations& targets) {
  TUTTI_CHECK(!sources.empty());
  TUTTI_CHECK(!targets.empty());
  TUTTI_CHECK(sources.size() <= 0xffff && targets.size() <= 0xffff);
  Lane& lane = plan_.lanes[lane_];
  lane.steps.push_back({.kind = StepKind::kMove,
                        .source_count = static_cast<std::uint16_t>(sources.size()),
                        .target_count = static_cast<std::uint16_t>(targets.size()),
                        .first = static_cast<std::uint32_t>(lane.locations.size()),
                        .chunk = chunk});
  // By address: a copy reads as one what the caller has just written in two, which stalls.
  for (const Locations* const locations : {&sources, &targets}) {
    for (const Location& location : *locations) {
      lane.locations.push_back(location);
      if (location.place == Place::kScratch)
        plan_.scratch_chunks = std::max(plan_.scratch_chunks, location.chunk + 1);
    }
  }
}

void Builder::lane(std::size_t index) {
  lane_ = index;
  plan_.lanes.resize(std::max(plan_.lanes.size(), index + 1));
}

}  // namespace tutti::plan
