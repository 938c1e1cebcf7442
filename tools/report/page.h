// File: tools/report/page.h: the page that `tutti report` writes: one file of HTML that needs no
// network and no other file. The picture's words and paths lie in it as JSON, which page.js reads;
// all other text is escaped.
#pragma once
#include <string>
#include <utility>
#include <vector>

#include "topology/graph/finding.h"

namespace tutti::tools {

/// What is chosen for a message of so many bytes.
struct Choice {
  std::size_t bytes = 0;
  std::string way;  // "weighted over simple in 4 lanes".
  double us = 0, bound_us = 0;
};

/// What no algorithm can beat.
struct BoundRow {
  std::string collective, cut;
  double algbw = 0, busbw = 0;
  bool exact = false;
};

/// A measured sweep: its picture, the file, and the command that made it.
struct Sweep {
  std::string chart, file, command;
};

/// All that a page shows. `no_bounds` and `no_choices` say why there are none; empty: there are.
struct Page {
  std::string title;
  std::vector<std::pair<std::string, std::string>> facts;
  std::string picture;  // SVG.
  topology::Findings findings;
  std::vector<BoundRow> bounds;
  std::string no_bounds;
  std::vector<Choice> choices;
  std::string no_choices;
  std::string timeline;  // SVG.
  std::vector<Sweep> sweeps;
  std::string about;  // What `tutti info` says.
  bool live = false;  // It also asks its server what the ranks do (tools/report/live.h).
};

/// `graph`: what the picture is of; its paths are found here.
std::string to_html(const Page& page, const topology::Graph& graph);

}  // namespace tutti::tools
