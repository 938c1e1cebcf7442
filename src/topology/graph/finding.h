// File: topology/graph/finding.h: what a reader, a probe or a check has to say about a machine.
#pragma once
#include <string>
#include <vector>

#include "topology/graph/graph.h"

namespace tutti::topology {

enum class Severity : std::uint8_t { kNote, kWarning, kError };
constexpr std::string_view to_string(Severity severity) {
  constexpr std::string_view kWords[] = {"note", "warning", "error"};
  return kWords[static_cast<std::size_t>(severity)];
}

/// One thing that is wrong, doubtful or hidden.
struct Finding {
  Severity severity = Severity::kNote;
  std::string code{};      // "pcie-downgraded": short, stable, for scripts.
  std::string where{};     // "topo.xml:17", "host0/gpu3", or empty.
  std::string what{};      // One line, whole: what is wrong.
  std::string evidence{};  // The figures it rests on, or empty.
  std::string remedy{};    // What to do, or empty.
  double loss = 0;         // Share of bandwidth that it costs those it concerns, 0 to 1.
  friend bool operator==(const Finding&, const Finding&) = default;
};
using Findings = std::vector<Finding>;

/// What a reader or a probe makes: a graph, and what was doubtful on the way. What is impossible
/// is an Error instead ("topo.xml:17: gpu 0000:07:00.0 has a link to itself").
struct Imported {
  Graph graph;
  Findings findings{};
};

}  // namespace tutti::topology
