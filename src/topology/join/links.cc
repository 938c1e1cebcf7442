#include "topology/join/links.h"

namespace tutti::topology {
namespace {

// Microseconds to the far end. TACCL (NSDI 2023) fits 0.7 between GPUs of one host over NVLink
// with software and all; what a link itself takes is not published, so these are assumed.
double latency_us(LinkKind kind) {
  switch (kind) {
    case LinkKind::kNvlink:
    case LinkKind::kXgmi:
    case LinkKind::kC2c: return 0.15;
    case LinkKind::kPcie: return 0.2;
    case LinkKind::kSocket: return 0.1;
    case LinkKind::kInternal: return 0.02;
    case LinkKind::kPort: return 0.5;
    case LinkKind::kNetwork: return 0.35;  // Slingshot's switch: about 350 ns a hop.
  }
  return 0;
}

}  // namespace

Link make_link(LinkKind kind, NodeId a, NodeId b, double gbs_each, int count) {
  const Quantity all{gbs_each * count, Origin::kTable};
  return {kind, a, b, count, all, all, {latency_us(kind), Origin::kAssumed}};
}

void join_all(Graph& graph, LinkKind kind, const std::vector<NodeId>& nodes, double gbs) {
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < nodes.size(); ++b)
      graph.add(make_link(kind, nodes[a], nodes[b], gbs));
  }
}

}  // namespace tutti::topology
