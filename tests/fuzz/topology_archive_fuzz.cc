// Any bytes as a saved machine: read as an archive, and probed if that succeeds. Whatever the bytes
// are, links join nodes that exist and names are unique.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <set>
#include <string>
#include <string_view>

#include "topology/capture/archive.h"
#include "topology/probe/probe.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  using namespace tutti::topology;
  const auto tree = read_archive({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!tree) return 0;
  const Imported imported = probe_tree(**tree);
  const Graph& graph = imported.graph;
  std::set<std::string_view> names;
  for (const Node& node : graph.nodes) {
    if (!names.insert(node.name).second) std::abort();
  }
  for (const Link& link : graph.links) {
    if (link.a == link.b || link.a.value >= graph.nodes.size()) std::abort();
    if (link.b.value >= graph.nodes.size() || link.forward.value < 0) std::abort();
  }
  return 0;
}
