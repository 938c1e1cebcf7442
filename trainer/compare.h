// File: trainer/compare.h: runs of several strategies, or of several numbers of ranks, side by
// side.
#pragma once
#include <algorithm>
#include <span>
#include <string>
#include <vector>

#include "trainer/train.h"

namespace tutti::trainer {

/// One run: a strategy's name, or a number of ranks, and rank 0's outcome.
struct Compared {
  std::string name;
  Outcome outcome;
  int ranks = 1;
  double samples = 0;  // Learnt by all ranks in all epochs.
  /// The speed of as many trainings of one rank at the same time, which exchange nothing: what the
  /// machine's CPUs and memory allow. For scaling.
  double apart = 0;
  /// Samples a second while ranks are in steps, not in evaluations.
  double speed() const { return samples / std::max(outcome.phases.steps_s, 1e-9); }
};

/// Runs on several numbers of ranks with one batch in all (strong), or one for each rank (weak).
struct Scaling {
  std::string name;
  std::vector<Compared> runs;
};

/// Lines of accuracy, kilobytes sent a step, memory by what it holds, and milliseconds a step.
std::string comparison_table(std::span<const Compared> runs);
/// Test accuracy against bytes sent, a curve for each run with a point for each epoch (SVG).
std::string comparison_plot(std::span<const Compared> runs);
/// Lines of samples a second; efficiency, which is the speed on N ranks over N times that of the
/// first run, whose ranks count as 1; the same of ranks that exchange nothing; and the milliseconds
/// of a step that rank 0 computes, waits for others, and does the rest (the optimiser, sums).
std::string scaling_table(std::span<const Compared> runs);
/// Speed over that of the first run against ranks: a curve for each kind of scaling, dashed for
/// ranks that exchange nothing, and the line where N ranks are N times as fast (SVG).
std::string scaling_plot(std::span<const Scaling> all);
/// The figures of the table, as JSON.
std::string scaling_json(std::span<const Scaling> all);

}  // namespace tutti::trainer
