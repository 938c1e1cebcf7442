#include "topology/graph/count_gpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

namespace tutti::topology {

void count_gpus(Graph& graph) {
  auto gpus = graph.all(NodeKind::kGpu);
  for (const NodeId gpu : gpus) {
    if (graph[gpu].index >= 0 || !graph[gpu].host.exists()) return;
  }
  std::sort(gpus.begin(), gpus.end(), [&](NodeId a, NodeId b) {
    return std::tie(graph[a].host, graph[a].bus) < std::tie(graph[b].host, graph[b].bus);
  });
  NodeId host;
  for (int next = 0; const NodeId gpu : gpus) {
    if (graph[gpu].host != host) next = 0;
    host = graph[gpu].host;
    graph[gpu].name = fmt::format("{}/gpu{}", graph[host].name, next++);
  }
}

}  // namespace tutti::topology
