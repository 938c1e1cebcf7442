#include "topology/probe/fingerprint.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <vector>

#include "base/hash.h"
#include "topology/probe/probe.h"

namespace tutti::topology {
namespace {

constexpr int kRounds = 4;  // From a GPU over its bridges to the socket of another.

/// Facts that stay as they are for as long as the machine does.
constexpr std::array kLasting{"cpu",    "cpus",  "distances", "vendor",
                              "device", "class", "model",     "gfx"};

std::uint64_t color_of(const Node& node) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(node.kind));
  for (const char* key : kLasting) hash.add(std::string_view(fact(node, key)));
  return hash.value();
}

std::uint64_t color_of(const Link& link, bool forward) {
  Hash hash;
  hash.add(static_cast<std::uint64_t>(link.kind)).add(static_cast<std::uint64_t>(link.count));
  if (link.pcie) {
    hash.add(static_cast<std::uint64_t>(link.pcie->maximum.gigatransfers * 1000));
    hash.add(static_cast<std::uint64_t>(link.pcie->maximum.width));
  }
  // If a link is alike in both directions, it does not matter which end was named first.
  return hash.add(forward ? 0 : 1).value();
}

}  // namespace

std::uint64_t fingerprint(const Graph& graph) {
  const Adjacency adjacency(graph);
  std::vector<std::uint64_t> colors;
  for (const Node& node : graph.nodes) colors.push_back(color_of(node));
  for (int round = 0; round < kRounds; ++round) {
    std::vector<std::uint64_t> next;
    for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
      std::vector<std::uint64_t> around;
      for (const Adjacency::Edge& edge : adjacency.from(NodeId{i})) {
        const Link& link = graph.links[edge.link];
        const bool directed = link.kind == LinkKind::kPcie || link.kind == LinkKind::kPort;
        around.push_back(Hash()
                             .add(color_of(link, !directed || edge.forward))
                             .add(colors[edge.to.value])
                             .value());
      }
      std::sort(around.begin(), around.end());
      Hash hash;
      hash.add(colors[i]);
      for (const std::uint64_t color : around) hash.add(color);
      next.push_back(hash.value());
    }
    colors = std::move(next);
  }
  std::sort(colors.begin(), colors.end());
  Hash hash;
  for (const std::uint64_t color : colors) hash.add(color);
  return hash.value();
}

std::uint64_t fingerprint_of_this_machine() {
  static const std::uint64_t made = fingerprint(this_machine());
  return made;
}

}  // namespace tutti::topology
