// File: topology/checks/check.cc: the table of checks, their ranking, and what they share.
#include "topology/checks/check.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>

#include "topology/checks/parts.h"

namespace tutti::topology {
namespace {

using Check = void (*)(const Machine&, Findings&);
constexpr Check kChecks[] = {
#define TUTTI_CHECK_OF(name, ...) name,
#include "topology/checks/checks.def"
#undef TUTTI_CHECK_OF
};

// Whether a link leads up from a device to its NUMA node.
bool leads_up(LinkKind kind) {
  return kind == LinkKind::kPcie || kind == LinkKind::kInternal || kind == LinkKind::kC2c;
}

bool is_above(NodeKind kind) { return kind == NodeKind::kPackage || kind == NodeKind::kNuma; }

}  // namespace

Machine::Machine(const Graph& of)
    : graph(of), parent(of.nodes.size()), up(of.nodes.size()), way(of.nodes.size()) {
  const Adjacency adjacency(graph);
  std::vector<NodeId> queue = graph.all(NodeKind::kNuma);
  std::vector<bool> seen(graph.nodes.size());
  for (const NodeId numa : queue) seen[numa.value] = true;
  // PCI Express first: a GPU with both has its bridges there, and C2C only where it has nothing
  // else.
  for (const bool c2c : {false, true}) {
    if (c2c) queue = graph.all(NodeKind::kNuma);
    for (std::size_t at = 0; at < queue.size(); ++at) {
      const NodeId node = queue[at];
      for (const auto& edge : adjacency.from(node)) {
        const LinkKind kind = graph.links[edge.link].kind;
        if (!leads_up(kind) || (kind == LinkKind::kC2c) != c2c) continue;
        if (is_above(graph[edge.to].kind) || seen[edge.to.value]) continue;
        seen[edge.to.value] = true;
        parent[edge.to.value] = node;
        up[edge.to.value] = edge.link;
        queue.push_back(edge.to);
      }
    }
  }
  std::map<NodeId, std::size_t> at;
  for (std::uint32_t i = 0; i < graph.nodes.size(); ++i) {
    const Node& node = graph.nodes[i];
    if (node.kind == NodeKind::kHost) {
      if (at.emplace(NodeId{i}, hosts.size()).second) hosts.push_back({NodeId{i}, {}, {}, {}});
      continue;
    }
    const bool gpu = node.kind == NodeKind::kGpu, nic = node.kind == NodeKind::kNic;
    if (gpu || nic || node.kind == NodeKind::kCard) {
      for (NodeId step{i}; step.exists(); step = parent[step.value]) way[i].push_back(step);
    }
    if (!gpu && !nic && node.kind != NodeKind::kNuma) continue;
    const auto [found, is_new] = at.emplace(node.host, hosts.size());
    if (is_new) hosts.push_back({node.host, {}, {}, {}});
    Host& host = hosts[found->second];
    if (nic && !is_device({i})) continue;
    (gpu ? host.gpus : nic ? host.nics : host.numa).push_back({i});
  }
}

bool Machine::is_device(NodeId nic) const {
  // NCCL's files give sockets a small number for a GUID.
  const Node& node = graph[nic];
  return !node.bus.empty() || pcie_above(nic) != nullptr ||
         fact(node, "guid").find(':') != std::string::npos;
}

NodeId Machine::numa_of(NodeId node) const {
  while (node.exists() && graph[node].kind != NodeKind::kNuma) node = parent[node.value];
  return node;
}

Machine::Near Machine::near(NodeId a, NodeId b) const {
  const NodeId numa_a = numa_of(a), numa_b = numa_of(b);
  if (!numa_a.exists() || !numa_b.exists()) return Near::kUnknown;
  if (numa_a != numa_b) return Near::kFar;
  // The last of each way is the NUMA node; they meet below it if what is next is the same too. A
  // root port alone is no switch, but nothing meets there without one.
  const auto &first = way[a.value], &second = way[b.value];
  if (first.size() < 2 || second.size() < 2) return Near::kNuma;
  const bool meet = first[first.size() - 2] == second[second.size() - 2];
  return meet ? Near::kSwitch : Near::kNuma;
}

NodeId Machine::nearest_nic(const Host& host, NodeId gpu) const {
  NodeId best;
  for (const NodeId nic : host.nics) {
    if (!best.exists() || near(gpu, nic) < near(gpu, best)) best = nic;
  }
  return best;
}

const Link* Machine::pcie_above(NodeId node) const {
  while (parent[node.value].exists()) {
    const Link& link = graph.links[up[node.value]];
    if (link.kind == LinkKind::kPcie) return &link;
    node = parent[node.value];
  }
  return nullptr;
}

std::string likeness(const Node& node) {
  const std::string &vendor = fact(node, "vendor"), &device = fact(node, "device");
  if (vendor.empty() || device.empty()) return {};
  return fmt::format("{} {} {}", to_string(node.kind), vendor, device);
}

bool is_up(const Node& nic) {
  const std::string& state = fact(nic, "state");
  return state.empty() || state == "ACTIVE" || state == "up" || state == "unknown";
}

std::string text_of(const PcieRate& rate) {
  const std::string speed =
      rate.gigatransfers > 0 ? fmt::format("{} GT/s", rate.gigatransfers) : "? GT/s";
  return rate.width > 0 ? fmt::format("{} x{}", speed, rate.width) : speed + " x?";
}

double loss_of(double own, double whole) {
  return whole > 0 ? std::clamp(1 - own / whole, 0.0, 1.0) : 0;
}

void rank(Findings& findings) {
  const auto key = [](const Finding& finding) {
    return std::tuple(-static_cast<int>(finding.severity), -finding.loss,
                      std::string_view(finding.code), std::string_view(finding.where),
                      std::string_view(finding.what));
  };
  std::stable_sort(findings.begin(), findings.end(),
                   [&](const Finding& a, const Finding& b) { return key(a) < key(b); });
}

Findings check(const Graph& graph, const CheckOptions& options) {
  const Machine machine(graph);
  Findings findings;
  for (const Check one : kChecks) one(machine, findings);
  const std::size_t own = findings.size();
  for (const Finding& known : options.known) {
    const auto end = findings.begin() + static_cast<std::ptrdiff_t>(own);
    const bool again = std::any_of(findings.begin(), end, [&](const Finding& finding) {
      return finding.code == known.code && finding.where == known.where;
    });
    if (!again) findings.push_back(known);
  }
  std::set<std::string> places;
  for (const Node& node : graph.nodes) places.insert(node.name);
  join_alike(places, findings);
  rank(findings);
  return findings;
}

int exit_code(const Findings& findings) {
  int worst = 0;
  for (const Finding& finding : findings) {
    worst = std::max(worst, static_cast<int>(finding.severity));
  }
  return worst;
}

}  // namespace tutti::topology
