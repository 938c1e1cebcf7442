#include "plan/passes/draft.h"

#include <algorithm>

#include "plan/verify/verify.h"

namespace tutti::plan {
namespace {

bool same_memory(const Location& a, const Location& b) {
  return a.place == b.place && a.peer == b.peer && a.chunk == b.chunk;
}

bool contains_memory(const std::vector<Location>& locations, const Location& memory) {
  return std::ranges::any_of(locations, [&](auto& at) { return same_memory(at, memory); });
}

bool any_ring(const std::vector<Location>& locations) {
  return std::ranges::any_of(locations, is_ring);
}

// A step may write what it reads, but only in the form in which it reads it.
bool forms_agree(const std::vector<Location>& sources, const std::vector<Location>& targets) {
  for (const Location& target : targets) {
    for (const Location& source : sources) {
      if (source.place == Place::kScratch && same_memory(source, target) &&
          source.form != target.form)
        return false;
    }
  }
  return true;
}

// Joins the moves of one lane; `previous` is always the last step of the result so far.
class Joiner {
 public:
  Joiner(DraftLane& lane, Join which, std::size_t most_targets)
      : lane_(lane), which_(which), most_targets_(most_targets) {}

  /// True if it changed something.
  bool run() {
    bool changed = false;
    for (next_ = 0; next_ < lane_.size();) {
      DraftStep step = lane_[next_++];
      // A step that has swallowed the one before may go on with the one before that.
      while (!result_.empty() && swallows(step, result_.back())) {
        result_.pop_back();
        changed = true;
      }
      if (!result_.empty() && extends(result_.back(), step)) {
        changed = true;
      } else {
        result_.push_back(std::move(step));
      }
    }
    if (changed) lane_ = std::move(result_);
    return changed;
  }

 private:
  bool may_join(const DraftStep& a, const DraftStep& b) const {
    return a.kind == StepKind::kMove && b.kind == StepKind::kMove && a.chunk == b.chunk;
  }

  // Gives `previous` the targets of `step`, if that only copies on what `previous` has just
  // written, or starts from the same sources.
  bool extends(DraftStep& previous, const DraftStep& step) {
    if (!may_join(previous, step)) return false;
    if (previous.targets.size() + step.targets.size() > most_targets_) return false;
    const bool same_sources = repeats(previous, step), goes_on = continues(previous, step);
    if (!same_sources && !goes_on) return false;
    if (which_ == Join::kMemory && any_ring(step.targets)) return false;
    for (const Location& target : step.targets) {
      if (contains_memory(previous.targets, target)) return false;
    }
    if (!forms_agree(previous.sources, step.targets)) return false;
    if (!one_value(previous.targets, step.targets)) return false;
    previous.targets.insert(previous.targets.end(), step.targets.begin(), step.targets.end());
    previous.signals.insert(previous.signals.end(), step.signals.begin(), step.signals.end());
    const Location& stop = step.sources[0];
    if (goes_on && stop.place == Place::kScratch && is_dead(stop.chunk))
      std::erase(previous.targets, stop);
    return true;
  }

  bool repeats(const DraftStep& previous, const DraftStep& step) const {
    if (previous.sources != step.sources || any_ring(step.sources)) return false;
    return std::ranges::none_of(
        step.sources, [&](auto& source) { return contains_memory(previous.targets, source); });
  }

  bool continues(const DraftStep& previous, const DraftStep& step) const {
    if (which_ == Join::kSameSource || step.sources.size() != 1) return false;
    const Location& stop = step.sources[0];
    if (stop.place != Place::kScratch && stop.place != Place::kOutput) return false;
    return std::ranges::find(previous.targets, stop) != previous.targets.end();
  }

  // Reads what `previous` copies to scratch from where `previous` reads it, so that `previous`
  // isn't needed any more.
  bool swallows(DraftStep& step, const DraftStep& previous) const {
    if (which_ == Join::kSameSource || !may_join(previous, step) || !previous.signals.empty())
      return false;
    if (previous.sources.size() != 1 || previous.targets.size() != 1) return false;
    const Location& stop = previous.targets[0];
    const Location& origin = previous.sources[0];
    if (stop.place != Place::kScratch || step.sources.size() < 2) return false;
    if (std::ranges::count(step.sources, stop) != 1) return false;
    if (is_ring(origin) && (which_ == Join::kMemory || contains_memory(step.sources, origin)))
      return false;
    if (!contains_memory(step.targets, stop) && !is_dead(stop.chunk)) return false;
    if (!forms_agree({origin}, step.targets)) return false;
    *std::ranges::find(step.sources, stop) = origin;
    return true;
  }

  // True if no step from here on reads the scratch chunk before it is written again.
  bool is_dead(std::uint32_t chunk) const {
    const Location memory{Place::kScratch, Form::kResult, 0, chunk};
    for (std::size_t later = next_; later < lane_.size(); ++later) {
      if (contains_memory(lane_[later].sources, memory)) return false;
      if (contains_memory(lane_[later].targets, memory)) return true;
    }
    return true;
  }

  DraftLane& lane_;
  const Join which_;
  const std::size_t most_targets_;
  std::size_t next_ = 0;  // The first step of lane_ that was not looked at.
  DraftLane result_;
};

}  // namespace

DraftLane to_draft(const Lane& lane) {
  DraftLane draft;
  draft.reserve(lane.steps.size());
  for (const Step& step : lane.steps) {
    const auto sources = lane.sources(step), targets = lane.targets(step);
    draft.push_back({step.kind,
                     step.peer,
                     step.chunk,
                     {sources.begin(), sources.end()},
                     {targets.begin(), targets.end()},
                     {}});
  }
  return draft;
}

Lane to_lane(const DraftLane& draft) {
  Lane lane;
  for (const DraftStep& step : draft) {
    Step& copy = lane.steps.emplace_back();
    copy.kind = step.kind;
    copy.peer = step.peer;
    if (step.kind != StepKind::kMove) continue;
    copy.source_count = static_cast<std::uint16_t>(step.sources.size());
    copy.target_count = static_cast<std::uint16_t>(step.targets.size());
    copy.first = static_cast<std::uint32_t>(lane.locations.size());
    copy.chunk = step.chunk;
    lane.locations.insert(lane.locations.end(), step.sources.begin(), step.sources.end());
    lane.locations.insert(lane.locations.end(), step.targets.begin(), step.targets.end());
    for (const std::uint16_t peer : step.signals)
      lane.steps.push_back({.kind = StepKind::kSignal, .peer = peer});
  }
  return lane;
}

bool join_moves(DraftLane& lane, Join which, std::uint32_t most_targets) {
  return Joiner(lane, which, most_targets).run();
}

bool join_moves(Plan& plan, Join which, std::uint32_t most_targets) {
  bool changed = false;
  for (RankPlan& rank : plan.ranks) {
    for (Lane& lane : rank.lanes) {
      DraftLane draft = to_draft(lane);
      if (!join_moves(draft, which, most_targets)) continue;
      lane = to_lane(draft);
      changed = true;
    }
  }
  return changed;
}

void trim_scratch(Plan& plan) {
  for (RankPlan& rank : plan.ranks) {
    rank.scratch_chunks = 0;
    for (const Lane& lane : rank.lanes) {
      for (const Location& at : lane.locations) {
        if (at.place == Place::kScratch)
          rank.scratch_chunks = std::max(rank.scratch_chunks, at.chunk + 1);
      }
    }
  }
}

bool holds(const Plan& plan, std::uint32_t slots) {
  Limits limits;
  limits.slots = slots;
  for (const RankPlan& rank : plan.ranks)
    limits.scratch_chunks = std::max(limits.scratch_chunks, rank.scratch_chunks);
  return static_cast<bool>(verify(plan, limits));
}

}  // namespace tutti::plan
