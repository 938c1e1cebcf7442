// File: tools/explain/explain.h: what `tutti explain` found, and the ways in which it is shown.
#pragma once
#include <string>

#include "planner/simulate/explain.h"

namespace tutti::tools {

struct Explained {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  std::size_t bytes = 0;
  int ranks = 0;
  std::string machine;  // "hgx-h100:2", a file's name.
  std::string contract;
  planner::Explanation explanation;

  /// One line: what, on what.
  std::string title() const;
  double bus_bandwidth(double microseconds) const {
    return planner::algorithm_bandwidth(static_cast<double>(bytes), microseconds) *
           planner::bus_factor(collective, ranks);
  }
};

/// At most 100 columns.
std::string to_text(const Explained& explained);
std::string to_json(const Explained& explained);

/// A plan as it was simulated, to be drawn.
struct PlayedPlan {
  std::string title, words;  // What, on what; and how it went.
  const plan::Plan& plan;
  const plan::Recording& recording;
  double start_us = 0;  // Before the recording begins.
  double bound_us = 0;  // 0: not known.
};
/// Rows are lanes of ranks, over time.
std::string to_svg(const PlayedPlan& played);

/// What is shown beside the answer, and of what.
struct Shown {
  bool json = false, plan = false;
  bool mapped = false;  // Buffers that peers can map.
  int rank = -1;        // Show only this rank's part of the plan; -1: all.
  std::string svg;
};
/// Answers a question about ranks on this machine, 0: as many as it has, on stdout.
Status explain_host(const planner::SimulateOptions& what, std::size_t bytes, int ranks,
                    const Shown& shown);

}  // namespace tutti::tools
