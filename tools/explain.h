// File: tools/explain.h: what `tutti explain` found, and the ways in which it is shown.
#pragma once
#include <string>

#include "planner/simulate_explain.h"

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

/// The best, as it was simulated.
struct PlayedPlan {
  const plan::Plan& plan;
  const plan::Recording& recording;
  const planner::Sample& sample;
};
/// Rows are lanes of ranks, over time.
std::string to_svg(const Explained& explained, const PlayedPlan& played);

}  // namespace tutti::tools
