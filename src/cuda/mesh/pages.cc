#include "cuda/mesh/pages.h"

#include <algorithm>
#include <span>

namespace tutti::exec {
namespace {

using cuda::LanePage;
using plan::Location;
using plan::Place;
using plan::Step;
using plan::StepKind;

/// What of a run one block takes together, at most.
unsigned most_of(StepKind kind) {
  return kind == StepKind::kMove ? cuda::kMostMoves : cuda::kWarpLanes;
}

/// Whether two locations may be the same memory.
bool overlap(const Location& a, const Location& b, bool apart) {
  if (is_of_peer(a) != is_of_peer(b) || (is_of_peer(a) && a.peer != b.peer)) return false;
  if (a.place == b.place) return a.chunk == b.chunk;
  return !apart && a.place != Place::kScratch && b.place != Place::kScratch;
}

/// Whether neither of two moves has to wait for the other one: they take slots of different rings,
/// and neither writes what the other one reads or writes.
bool are_independent(const plan::Lane& lane, const Step& a, const Step& b, bool apart) {
  const auto hinders = [&](const Location& x, bool x_written, const Location& y, bool y_written) {
    if (is_ring(x) || is_ring(y))
      return is_ring(x) && is_ring(y) && x_written == y_written && x.peer == y.peer;
    return (x_written || y_written) && overlap(x, y, apart);
  };
  for (std::uint32_t i = a.first; i < a.end(); ++i) {
    for (std::uint32_t j = b.first; j < b.end(); ++j) {
      if (hinders(lane.locations[i], i >= a.first + a.source_count, lane.locations[j],
                  j >= b.first + b.source_count))
        return false;
    }
  }
  return true;
}

/// Whether the step may be taken together with all of the run before it.
bool fits_run(const plan::Lane& lane, std::span<const Step> run, const Step& step, bool apart) {
  const Step& first = run.front();
  if (step.kind != first.kind || run.size() == most_of(first.kind)) return false;
  if (step.kind != StepKind::kMove)
    return std::ranges::none_of(run, [&](const Step& other) { return other.peer == step.peer; });
  return step.end() - first.first <= cuda::kWarpLanes &&
         std::ranges::all_of(
             run, [&](const Step& other) { return are_independent(lane, other, step, apart); });
}

/// Says by step how many may be taken together.
void find_runs(const plan::Lane& lane, bool apart, std::vector<LanePage>& pages) {
  const std::span<const Step> steps = lane.steps;
  std::size_t at = 0;
  for (LanePage& page : pages) {
    for (std::size_t s = 0; s < page.step_count; ++s) {
      std::size_t count = 1;
      while (s + count < page.step_count &&
             fits_run(lane, steps.subspan(at + s, count), steps[at + s + count], apart))
        ++count;
      page.runs[s] = static_cast<std::uint8_t>(count);
    }
    at += page.step_count;
  }
}

std::vector<LanePage> pages_of(const plan::Lane& lane, bool apart) {
  const std::span<const Step> steps = lane.steps;
  std::vector<LanePage> pages(1);
  std::size_t begin = 0;             // The page's first step,
  std::uint32_t first = 0, end = 0;  // its first location, and the one behind its last.
  for (std::size_t s = 0; s < steps.size(); ++s) {
    const bool moves = steps[s].kind == StepKind::kMove;  // Others have no locations.
    if (s - begin == cuda::kPageSteps || (moves && steps[s].end() - first > cuda::kPageLocations)) {
      pages.emplace_back();
      begin = s;
      first = end;
    }
    LanePage& page = pages.back();
    Step& step = page.steps[s - begin] = steps[s];
    page.step_count = static_cast<std::uint32_t>(s - begin + 1);
    if (!moves) continue;
    std::ranges::copy(std::span(lane.locations).subspan(step.first, step.end() - step.first),
                      page.locations + (step.first - first));
    end = step.end();
    step.first -= first;
  }
  find_runs(lane, apart, pages);
  return pages;
}

}  // namespace

std::vector<LanePage> pages_of(const plan::RankPlan& rank, bool apart) {
  std::vector<std::vector<LanePage>> lanes;
  std::size_t most = 0;
  for (const plan::Lane& lane : rank.lanes) {
    lanes.push_back(pages_of(lane, apart));
    most = std::max(most, lanes.back().size());
  }
  std::vector<LanePage> pages;
  for (std::vector<LanePage>& lane : lanes) {
    lane.resize(most);
    pages.insert(pages.end(), lane.begin(), lane.end());
  }
  return pages;
}

}  // namespace tutti::exec
