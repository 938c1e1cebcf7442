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

/// A question about ranks on this machine.
struct HostQuestion {
  Collective collective = Collective::kAllReduce;
  DataType type = DataType::kFloat32;
  Contract contract = Contract::kDeterministic;
  std::size_t bytes = 0;
  int ranks = 0, root = 0;
  bool mapped = false;  // Buffers that peers can map.
  bool json = false, plan = false;
  int rank = -1;  // Show only this rank's part of the plan; -1: all.
  std::string svg;
};
/// Answers on stdout.
Status explain_host(const HostQuestion& question);

}  // namespace tutti::tools
