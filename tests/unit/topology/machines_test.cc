// What NVML and CUDA would say on a machine that is not here.
#include <map>

#include "support/catch.h"
#include "topology/capture/machines.h"
#include "topology/models/model.h"
#include "topology/probe/parts.h"
#include "topology/probe/sources/file_tree.h"

namespace tutti::topology {
namespace {

/// By GPU of the first host, the bandwidth of its NVLinks in both directions.
std::map<std::string, double> nvlink_gbs(const Graph& graph) {
  std::map<std::string, double> sums;
  const auto gpus = graph.all(NodeKind::kGpu);
  const NodeId first = gpus.empty() ? NodeId{} : graph[gpus.front()].host;
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kNvlink) continue;
    for (const NodeId end : {link.a, link.b}) {
      if (graph[end].kind != NodeKind::kGpu || graph[end].host != first) continue;
      sums[graph[end].bus] += link.forward.value + link.backward.value;
    }
  }
  return sums;
}

bool has_nvidia(const Graph& graph) {
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    const auto vendor = graph[gpu].facts.find("vendor");
    if (vendor != graph[gpu].facts.end() && vendor->second == "0x10de") return true;
  }
  return false;
}

}  // namespace

TEST_CASE("the probe finds in the libraries' answers what the model has") {
  for (const Model* one : models()) {
    CAPTURE(one->name);
    const auto graph = model(one->name);
    REQUIRE(graph);
    const auto made = library_answers(*graph);
    REQUIRE(static_cast<bool>(made) == has_nvidia(*graph));
    if (!made) continue;
    MemoryTree nothing;
    const Answers answers{made->nvml, made->cuda, not_asked("verbs")};
    const Imported probed = probe_parts(nothing, answers);
    const auto found = nvlink_gbs(probed.graph), wanted = nvlink_gbs(*graph);
    const auto gpus = probed.graph.all(NodeKind::kGpu);
    REQUIRE(gpus.size() == made->nvml.gpus.size());
    for (const NodeId gpu : gpus) {
      const std::string& bus = probed.graph[gpu].bus;
      CAPTURE(bus);
      const auto has = wanted.find(bus);
      REQUIRE((has != wanted.end()) == (found.count(bus) != 0));
      if (has != wanted.end()) CHECK(found.at(bus) == Approx(has->second).epsilon(0.05));
    }
  }
}

}  // namespace tutti::topology
