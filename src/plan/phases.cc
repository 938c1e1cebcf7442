#include "plan/phases.h"

#include <algorithm>
#include <span>

namespace tutti::plan {
namespace {

/// Whether two locations may be the same memory.
bool overlap(const Location& a, const Location& b, bool apart) {
  if (is_of_peer(a) != is_of_peer(b) || (is_of_peer(a) && a.peer != b.peer)) return false;
  if (a.place == b.place) return a.chunk == b.chunk;
  return !apart && a.place != Place::kScratch && b.place != Place::kScratch;
}

/// Whether neither of two moves has to wait for the other one: they take slots of different rings,
/// and neither writes what the other one reads or writes.
bool are_independent(const Lane& lane, const Step& a, const Step& b, bool apart) {
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
bool fits_run(const Lane& lane, std::span<const Step> run, const Step& step, bool apart,
              const PhaseLimits& limits) {
  const Step& first = run.front();
  const bool moves = first.kind == StepKind::kMove;
  if (step.kind != first.kind || run.size() == (moves ? limits.moves : limits.signals))
    return false;
  if (!moves)
    return std::ranges::none_of(run, [&](const Step& other) { return other.peer == step.peer; });
  return step.end() - first.first <= limits.locations &&
         std::ranges::all_of(
             run, [&](const Step& other) { return are_independent(lane, other, step, apart); });
}

}  // namespace

unsigned phase_length(const Lane& lane, std::size_t step, std::size_t end, bool apart,
                      const PhaseLimits& limits) {
  const std::span<const Step> steps = lane.steps;
  std::size_t count = 1;
  while (step + count < end &&
         fits_run(lane, steps.subspan(step, count), steps[step + count], apart, limits))
    ++count;
  return static_cast<unsigned>(count);
}

}  // namespace tutti::plan
