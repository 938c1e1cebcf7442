// File: topology/graph/validate.cc: what no machine has, and what is doubtful. One function a
// rule.
#include "topology/graph/validate.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/sets.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

template <class... Args>
Error impossible(std::string_view source, fmt::format_string<Args...> what, Args&&... args) {
  return invalid("{}: {}", source, fmt::format(what, std::forward<Args>(args)...));
}

Status check_nodes(const Graph& graph, std::string_view source) {
  std::set<std::string_view> names;
  std::set<std::pair<NodeId, std::string_view>> buses;
  for (const Node& node : graph.nodes) {
    if (node.name.empty() || node.name.find_first_of(" \t\r\n") != std::string::npos) {
      return impossible(source, "node name '{}' is empty or has white space", node.name);
    }
    if (!names.insert(node.name).second) {
      return impossible(source, "two nodes are called {}", node.name);
    }
    if (node.host.exists() &&
        (node.host.value >= graph.nodes.size() || graph[node.host].kind != NodeKind::kHost)) {
      return impossible(source, "the host of {} is no host", node.name);
    }
    // Ports of a card have the address of their function.
    if (node.bus.empty()) continue;
    if (!buses.insert({node.host, node.bus}).second) {
      return impossible(source, "{}: bus address {} is another node's too", node.name, node.bus);
    }
  }
  return ok();
}

Status check_links(const Graph& graph, std::string_view source) {
  for (const Link& link : graph.links) {
    if (link.a.value >= graph.nodes.size() || link.b.value >= graph.nodes.size()) {
      return impossible(source, "a {} link to nothing", to_string(link.kind));
    }
    if (link.a == link.b) {
      return impossible(source, "{} has a {} link to itself", graph[link.a].name,
                        to_string(link.kind));
    }
    const std::string between = fmt::format("{} link from {} to {}", to_string(link.kind),
                                            graph[link.a].name, graph[link.b].name);
    if (link.count < 1) return impossible(source, "{}: count {}", between, link.count);
    for (const Quantity& quantity : {link.forward, link.backward, link.latency_us}) {
      if (!std::isfinite(quantity.value) || quantity.value < 0) {
        return impossible(source, "{}: {} is no figure", between, quantity.value);
      }
    }
  }
  return ok();
}

// By node.
template <class Counts>
std::vector<std::int64_t> count_links(const Graph& graph, Counts counts) {
  std::vector<std::int64_t> links(graph.nodes.size());
  for (const Link& link : graph.links) {
    if (!counts(link.kind)) continue;
    links[link.a.value] += link.count;
    links[link.b.value] += link.count;
  }
  return links;
}

/// NVLinks and C2C apart, no chip has more links than its generation.
Status check_nvlinks(const Graph& graph, std::string_view source) {
  const auto links = count_links(graph, [](LinkKind kind) { return kind == LinkKind::kNvlink; });
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    const auto sm = static_cast<int>(number_fact(graph[gpu], "sm").value_or(0));
    const int most = most_nvlinks(sm);
    if (links[gpu.value] <= most) continue;
    return impossible(source,
                      "{} has {} NVLinks, and {}; if the file lists every peer behind NVSwitches, "
                      "list the switches instead",
                      graph[gpu].name, links[gpu.value],
                      sm > 0 ? fmt::format("a chip of sm {} has at most {}", sm, most)
                             : fmt::format("no chip has more than {}", most));
  }
  return ok();
}

bool is_bridge(NodeKind kind) {
  return kind == NodeKind::kPciePort || kind == NodeKind::kPcieSwitch;
}

/// PCI is a tree: bridges joined by PCI links must not form a circle.
Status check_bridges(const Graph& graph, std::string_view source) {
  Sets joined(graph.nodes.size());
  for (const Link& link : graph.links) {
    if (link.kind != LinkKind::kPcie) continue;
    if (!is_bridge(graph[link.a].kind) || !is_bridge(graph[link.b].kind)) continue;
    if (!joined.join(link.a.value, link.b.value)) {
      return impossible(source, "PCI bridges in a circle, closed by {} and {}", graph[link.a].name,
                        graph[link.b].name);
    }
  }
  return ok();
}

void find_unequal(const Graph& graph, Findings& findings) {
  for (const Link& link : graph.links) {
    if (!link.forward.known() || !link.backward.known()) continue;
    const double most = std::max(link.forward.value, link.backward.value);
    const double least = std::min(link.forward.value, link.backward.value);
    if (most <= least * 1.001) continue;
    findings.push_back(
        {Severity::kWarning, "unequal-reverse", graph[link.a].name,
         fmt::format("the {} link to {} is not equal in both directions", to_string(link.kind),
                     graph[link.b].name),
         fmt::format("{} GB/s there, {} GB/s back", link.forward.value, link.backward.value),
         "look for links that are down: nvidia-smi nvlink -s", most > 0 ? 1 - least / most : 0});
  }
}

/// GPUs of a host that have fewer links (NVLink, xGMI) than others of their chip.
void find_lone(const Graph& graph, Findings& findings) {
  struct Alike {
    std::int64_t most = 0;
    int without = 0, with = 0;
    bool pairs = true;  // Whether those with links have one peer each.
  };
  const auto links = count_links(graph, is_fast);
  std::vector<std::set<NodeId>> peers(graph.nodes.size());
  for (const Link& link : graph.links) {
    if (!is_fast(link.kind)) continue;
    peers[link.a.value].insert(link.b);
    peers[link.b.value].insert(link.a);
  }
  const auto chip = [&](NodeId gpu) {
    std::string key;
    for (const char* name : {"device", "sm", "gfx", "gcn"}) append(key, fact(graph[gpu], name));
    return key;
  };
  const auto gpus = graph.all(NodeKind::kGpu);
  // Where one's chip is not known, it may be that of any other.
  std::set<NodeId> unknown;
  for (const NodeId gpu : gpus) {
    if (chip(gpu).empty()) unknown.insert(graph[gpu].host);
  }
  std::map<std::pair<NodeId, std::string>, Alike> makes;
  const auto alike = [&](NodeId gpu) -> Alike& {
    const NodeId host = graph[gpu].host;
    return makes[{host, unknown.count(host) != 0 ? std::string() : chip(gpu)}];
  };
  for (const NodeId gpu : gpus) {
    Alike& own = alike(gpu);
    own.most = std::max(own.most, links[gpu.value]);
    ++(links[gpu.value] == 0 ? own.without : own.with);
    own.pairs =
        own.pairs && peers[gpu.value].size() <= 1 &&
        (peers[gpu.value].empty() || graph[*peers[gpu.value].begin()].kind == NodeKind::kGpu);
  }
  for (const NodeId gpu : gpus) {
    const auto& [most, without, with, pairs] = alike(gpu);
    const std::int64_t own = links[gpu.value];
    if (own == most) continue;
    // Bridges join pairs of GPUs, and some are left out; of many that are joined otherwise, none
    // is.
    const bool alone = own == 0 && without == 1 && with > 2 && !pairs;
    findings.push_back(
        {alone               ? Severity::kError
         : own == 0 && pairs ? Severity::kNote
                             : Severity::kWarning,
         own == 0 ? "gpu-without-links" : "gpu-fewer-links", graph[gpu].name,
         own == 0 ? "this GPU has no links to other GPUs, and others of its host do"
                  : "this GPU has fewer links than others of its host",
         fmt::format("{} links, others have {}", own, most),
         "nvidia-smi nvlink -s, and the state of the fabric manager",
         own == 0 && pairs ? 0 : 1 - static_cast<double>(own) / static_cast<double>(most)});
  }
}

void find_unknown(const Graph& graph, Findings& findings) {
  std::map<LinkKind, std::pair<int, const Link*>> unknown;
  for (const Link& link : graph.links) {
    if (link.forward.known() && link.backward.known()) continue;
    auto& [times, first] = unknown[link.kind];
    if (times++ == 0) first = &link;
  }
  for (const auto& [kind, seen] : unknown) {
    findings.push_back({Severity::kNote, "rate-unknown", graph[seen.second->a].name,
                        fmt::format("the rate of {} {} link{} is not known", seen.first,
                                    to_string(kind), seen.first == 1 ? "" : "s"),
                        fmt::format("the first joins {} and {}", graph[seen.second->a].name,
                                    graph[seen.second->b].name),
                        "measure it, or write it into the text form"});
  }
}

}  // namespace

Result<Findings> validate(const Graph& graph, std::string_view source) {
  TUTTI_RETURN_IF_ERROR(check_nodes(graph, source));
  TUTTI_RETURN_IF_ERROR(check_links(graph, source));
  TUTTI_RETURN_IF_ERROR(check_nvlinks(graph, source));
  TUTTI_RETURN_IF_ERROR(check_bridges(graph, source));
  Findings findings;
  find_unequal(graph, findings);
  find_lone(graph, findings);
  find_unknown(graph, findings);
  return findings;
}

}  // namespace tutti::topology
