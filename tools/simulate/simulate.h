// File: tools/simulate/simulate.h: the rows of `tutti simulate`, and the ways in which they are
// shown.
#pragma once
#include <optional>
#include <string>
#include <vector>

#include "planner/simulate/simulate.h"

namespace tutti::tools {

struct SimulatedRow {
  int ranks = 0;
  std::size_t bytes = 0;
  double bound_us = 0;                                  // 0: not known.
  std::vector<std::optional<planner::Sample>> samples;  // By algorithm; none: could not be done.
  std::size_t best = 0;                                 // In samples.

  const planner::Sample& fastest() const { return *samples[best]; }
  double bus_bandwidth(Collective collective, double microseconds) const {
    return planner::algorithm_bandwidth(static_cast<double>(bytes), microseconds) *
           planner::bus_factor(collective, ranks);
  }
};

struct SimulatedCurve {
  Collective collective = Collective::kAllReduce;
  std::string machine;                  // "hgx-h100:2", a file's name.
  std::string title;                    // One line: what, on what.
  std::vector<std::string> algorithms;  // Names, as in the rows' samples.
  bool compares = false;                // The algorithms were asked for by name: show each.
  bool several_ranks = false;           // The rows differ in them.
  std::vector<SimulatedRow> rows;
  std::vector<std::string> notes;  // Simulations that failed, and bottlenecks.
};

/// "64K": as the options of nccl-tests are written.
std::string size_text(std::size_t bytes);
/// The size of a message: "8 bytes", "64 KiB".
std::string amount_text(std::size_t bytes);
/// Microseconds, at most 8 characters.
std::string time_text(double us);

/// The table, at most 100 columns, part by part: what is known before there are rows, a row, and
/// what is left to say.
std::string table_header(const SimulatedCurve& curve);
std::string table_row(const SimulatedCurve& curve, const SimulatedRow& row);
std::string table_footer(const SimulatedCurve& curve);
std::string to_json(const SimulatedCurve& curve);
std::string to_csv(const SimulatedCurve& curve);
/// Bus bandwidth over bytes or, if only those differ, over ranks; with the bound.
std::string to_svg(const SimulatedCurve& curve);

}  // namespace tutti::tools
