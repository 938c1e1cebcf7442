// File: trainer/compare.h: runs of several strategies, or of several numbers of ranks, side by
// side.
#pragma once
#include <span>
#include <string>

#include "trainer/train.h"

namespace tutti::trainer {

/// One run: a strategy's name, or a number of ranks, and rank 0's outcome.
struct Compared {
  std::string name;
  Outcome outcome;
  int ranks = 1;
};

/// Lines of accuracy, kilobytes sent a step, memory by what it holds, and milliseconds a step.
std::string comparison_table(std::span<const Compared> runs);
/// Test accuracy against bytes sent, a curve for each run with a point for each epoch (SVG).
std::string comparison_plot(std::span<const Compared> runs);
/// Lines of samples a second and efficiency: the speed on N ranks over N times that of the first
/// run, whose ranks count as 1.
std::string scaling_table(std::span<const Compared> runs);

}  // namespace tutti::trainer
