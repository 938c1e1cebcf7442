#include "cuda/mesh/pages.h"

#include <algorithm>
#include <span>

#include "plan/phases.h"

namespace tutti::exec {
namespace {

using cuda::LanePage;
using plan::Step;
using plan::StepKind;

constexpr plan::PhaseLimits kLimits;
static_assert(kLimits.moves == cuda::kMostMoves && kLimits.locations == cuda::kWarpLanes &&
                  kLimits.signals == cuda::kWarpLanes,
              "what is estimated is what kernels do");

/// Says by step how many may be taken together.
void find_runs(const plan::Lane& lane, bool apart, std::vector<LanePage>& pages) {
  std::size_t at = 0;
  for (LanePage& page : pages) {
    const std::size_t end = at + page.step_count;
    for (std::size_t s = 0; s < page.step_count; ++s)
      page.runs[s] = static_cast<std::uint8_t>(plan::phase_length(lane, at + s, end, apart));
    at = end;
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
