// File: topology/model.h: systems by name and size, from published figures.
//
// To add one: a function in a models_*.cc, and one line in models.def.
#pragma once
#include <span>
#include <string_view>

#include "topology/graph.h"
#include "tutti/result.h"

namespace tutti::topology {

struct Model {
  std::string_view name;         // "hgx-h100"
  std::string_view description;  // One line: parts and their links.
  /// The graph with so many hosts (of a rack: GPUs are what the model says).
  Graph (*make)(int hosts);
  int most_hosts = 4096;
};

std::span<const Model* const> models();

/// "hgx-h100", "hgx-h100:4" (four hosts on a rail-optimised fat tree), or
/// "hgx-h100:4/fat-tree/2" (network and its parameter). An unknown name is an error that lists all.
Result<Graph> model(std::string_view spec);

}  // namespace tutti::topology
