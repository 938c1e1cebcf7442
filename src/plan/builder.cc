#include "plan/builder.h"

#include <algorithm>

#include "base/check.h"

namespace tutti::plan {

Location Builder::input(std::uint32_t chunk) const {
  return {Place::kInput, reduces(shape_.collective) ? Form::kContribution : Form::kResult, 0,
          chunk};
}

Location Builder::output(std::uint32_t chunk) const {
  return {Place::kOutput, Form::kResult, 0, chunk};
}

Location Builder::scratch(std::uint32_t index, Form form) const {
  return {Place::kScratch, form, 0, index};
}

Location Builder::from(int peer, Form form) const {
  return {Place::kSlot, form, static_cast<std::uint16_t>(peer), 0};
}

Location Builder::to(int peer, Form form) const { return from(peer, form); }

Lane& Builder::current() {
  if (plan_.lanes.size() <= lane_) plan_.lanes.resize(lane_ + 1);
  return plan_.lanes[lane_];
}

void Builder::move(std::uint32_t chunk, std::span<const Location> sources,
                   std::span<const Location> targets) {
  TUTTI_CHECK(!sources.empty());
  TUTTI_CHECK(!targets.empty());
  TUTTI_CHECK(sources.size() <= 0xffff && targets.size() <= 0xffff);
  Lane& lane = current();
  lane.steps.push_back({.kind = StepKind::kMove,
                        .source_count = static_cast<std::uint16_t>(sources.size()),
                        .target_count = static_cast<std::uint16_t>(targets.size()),
                        .first = static_cast<std::uint32_t>(lane.locations.size()),
                        .chunk = chunk});
  lane.locations.insert(lane.locations.end(), sources.begin(), sources.end());
  lane.locations.insert(lane.locations.end(), targets.begin(), targets.end());
  for (const auto& locations : {sources, targets}) {
    for (const Location& location : locations) {
      if (location.place == Place::kScratch)
        plan_.scratch_chunks = std::max(plan_.scratch_chunks, location.chunk + 1);
    }
  }
}

void Builder::signal(int peer) {
  current().steps.push_back({.kind = StepKind::kSignal, .peer = static_cast<std::uint16_t>(peer)});
}

void Builder::wait(int peer) {
  current().steps.push_back({.kind = StepKind::kWait, .peer = static_cast<std::uint16_t>(peer)});
}

void Builder::lane(std::size_t index) {
  lane_ = index;
  current();
}

RankPlan Builder::finish() && {
  if (plan_.lanes.empty()) plan_.lanes.resize(1);
  return std::move(plan_);
}

}  // namespace tutti::plan
