// File: topology/render/render.h: a graph for others' eyes and programs: JSON, Graphviz, and a
// picture.
//
// All three are functions of the graph alone: the same graph makes the same bytes. They never fail;
// a graph that breaks the invariants of graph.h (links to nowhere) is shown as far as it goes.
#pragma once
#include <string>
#include <string_view>

#include "topology/graph/graph.h"

namespace tutti::topology {

/// Everything the graph says: {"nodes": [...], "links": [...], "notes": [...]}, in the graph's
/// order. A node's "host" and a link's "a" and "b" are names; bandwidths are GB/s with their
/// origin, {"value": 24, "origin": "table"}. What is not there (bus, index, facts) is left out.
std::string to_json(const Graph& graph);

/// Graphviz, undirected, a cluster for each host. For `dot` up to some hundred nodes.
std::string to_dot(const Graph& graph);

/// A picture. Up to two hosts (or 64 nodes) are drawn whole; with more hosts, the first of each
/// kind is drawn (at most four kinds), and the others are small boxes with counts. Hovering over a
/// thing shows everything the graph says about it. Above 256 small boxes or 512 switches in a row,
/// the rest is a count. Where a host has more than 16 NICs, those that are alike are one box.
/// `name` is the title: which machine it is.
std::string to_svg(const Graph& graph, std::string_view name = {});

}  // namespace tutti::topology
