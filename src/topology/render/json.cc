// File: topology/render/json.cc: a graph as JSON, for scripts. See render.h.

#include "base/json.h"
#include "topology/render/render.h"

namespace tutti::topology {
namespace {

Json json_of(const Quantity& quantity) {
  return {{"value", quantity.value}, {"origin", to_string(quantity.origin)}};
}

Json json_of(const PcieRate& rate) {
  return {{"gigatransfers", rate.gigatransfers}, {"width", rate.width}};
}

// The name of a link's end or of a host; null where it leads to nowhere.
Json name_of(const Graph& graph, NodeId id) {
  if (id.value >= graph.nodes.size()) return nullptr;
  return graph[id].name;
}

Json json_of(const Graph& graph, const Node& node) {
  Json out{{"name", node.name}, {"kind", to_string(node.kind)}};
  if (node.host.exists()) out["host"] = name_of(graph, node.host);
  if (node.index >= 0) out["index"] = node.index;
  if (!node.bus.empty()) out["bus"] = node.bus;
  for (const auto& [fact, value] : node.facts) out["facts"][fact] = value;
  return out;
}

Json json_of(const Graph& graph, const Link& link) {
  Json out{{"kind", to_string(link.kind)},          {"a", name_of(graph, link.a)},
           {"b", name_of(graph, link.b)},           {"count", link.count},
           {"forward_gbs", json_of(link.forward)},  {"backward_gbs", json_of(link.backward)},
           {"latency_us", json_of(link.latency_us)}};
  if (link.pcie) {
    out["pcie"] = {{"current", json_of(link.pcie->current)},
                   {"maximum", json_of(link.pcie->maximum)}};
  }
  return out;
}

}  // namespace

std::string to_json(const Graph& graph) {
  Json out{{"nodes", Json::array()}, {"links", Json::array()}, {"notes", graph.notes}};
  for (const Node& node : graph.nodes) out["nodes"].push_back(json_of(graph, node));
  for (const Link& link : graph.links) out["links"].push_back(json_of(graph, link));
  // Names come from files: what is no UTF-8 is replaced, for dump() would throw.
  return out.text({.indent = 1}) + '\n';
}

}  // namespace tutti::topology
