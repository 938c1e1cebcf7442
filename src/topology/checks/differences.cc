// File: topology/checks/differences.cc: one machine against another, or against a model of it.
//
// Hosts are matched in their order, parts of a kind by index or in the order of their addresses.
// Bridges are not compared by themselves, for sources show them or leave them out; what counts of
// them is where they put a device: its link, its NUMA node, and which NIC is near a GPU.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <set>

#include "topology/checks/check.h"
#include "topology/checks/parts.h"
#include "topology/graph/words.h"

namespace tutti::topology {
namespace {

constexpr std::array kCompared{NodeKind::kNuma, NodeKind::kGpu, NodeKind::kNic, NodeKind::kNvSwitch,
                               NodeKind::kHost};
// Facts that should be the same; others are counters, addresses or serial numbers.
constexpr std::array kFacts{"model",     "vendor",        "device",  "sm",           "gfx",
                            "cpu",       "kernel",        "state",   "mtu",          "link_layer",
                            "firmware",  "speed_mbps",    "acs",     "iommu",        "iommu_type",
                            "shm_bytes", "memlock_bytes", "peermem", "fabric_state", "no_p2p"};

std::vector<NodeId> parts_of(const Graph& graph, NodeKind kind, NodeId host) {
  std::vector<NodeId> parts;
  for (const NodeId node : graph.all(kind)) {
    if (graph[node].host == host) parts.push_back(node);
  }
  return parts;
}

// By index where all have one of their own, else by address, else as they come.
bool have_indices(const Graph& graph, const std::vector<NodeId>& nodes) {
  std::set<int> seen;
  return std::all_of(nodes.begin(), nodes.end(), [&](NodeId node) {
    return graph[node].index >= 0 && seen.insert(graph[node].index).second;
  });
}

void sort_by_bus(const Graph& graph, std::vector<NodeId>& nodes) {
  std::stable_sort(nodes.begin(), nodes.end(), [&](NodeId x, NodeId y) {
    const std::string &first = graph[x].bus, &second = graph[y].bus;
    return std::pair(first.size(), first) < std::pair(second.size(), second);
  });
}

class Difference {
 public:
  Difference(const Graph& a, const Graph& b) : a_(a), b_(b) {}

  Findings run() {
    match_hosts();
    for (const auto& [mine, other] : pairs_) compare_nodes(mine, other);
    compare_gpu_links();
    std::set<std::string> places;
    for (const Graph* graph : {&a_.graph, &b_.graph}) {
      for (const Node& node : graph->nodes) places.insert(node.name);
    }
    join_alike(places, findings_);
    rank(findings_);
    return std::move(findings_);
  }

 private:
  using Pair = std::pair<NodeId, NodeId>;

  void match_hosts() {
    const auto mine = a_.graph.all(NodeKind::kHost), other = b_.graph.all(NodeKind::kHost);
    if (mine.size() != other.size()) {
      const auto owns = static_cast<double>(mine.size()), has = static_cast<double>(other.size());
      say(has < owns ? Severity::kError : Severity::kWarning, "differs-count", "",
          fmt::format("{} hosts instead of {}", other.size(), mine.size()), "", loss_of(has, owns));
    }
    for (std::size_t i = 0; i < std::min(mine.size(), other.size()); ++i) {
      pairs_.emplace_back(mine[i], other[i]);
      for (const NodeKind kind : kCompared) {
        if (kind == NodeKind::kHost) continue;
        match(parts_of(a_.graph, kind, mine[i]), parts_of(b_.graph, kind, other[i]), kind,
              a_.graph[mine[i]].name);
      }
    }
    // What is in no host: the switches of a rack.
    match(parts_of(a_.graph, NodeKind::kNvSwitch, {}), parts_of(b_.graph, NodeKind::kNvSwitch, {}),
          NodeKind::kNvSwitch, "");
    for (const auto& [first, second] : pairs_) matched_[first] = second;
  }

  void match(std::vector<NodeId> mine, std::vector<NodeId> other, NodeKind kind,
             const std::string& host) {
    const Graph &a = a_.graph, &b = b_.graph;
    const std::string what(to_string(kind));
    if (mine.size() != other.size()) {
      const auto owns = static_cast<double>(mine.size()), has = static_cast<double>(other.size());
      // Sources that can't tell NVSwitches apart make one of them.
      const bool folded = kind == NodeKind::kNvSwitch && (owns == 1 || has == 1);
      say(folded       ? Severity::kNote
          : has < owns ? Severity::kError
                       : Severity::kWarning,
          "differs-count", host,
          fmt::format("of kind {}: {} instead of {}", what, other.size(), mine.size()),
          fmt::format("{} and {}", mine.size(), other.size()), folded ? 0 : loss_of(has, owns));
    }
    if (have_indices(a, mine) && have_indices(b, other)) {
      std::map<int, NodeId> by_index;
      for (const NodeId node : other) by_index[b[node].index] = node;
      for (const NodeId node : mine) {
        const auto found = by_index.find(a[node].index);
        if (found != by_index.end()) {
          pairs_.emplace_back(node, found->second);
          by_index.erase(found);
        } else {
          say(Severity::kNote, "differs-absent", a[node].name, "there is no such part", "");
        }
      }
      for (const auto& [index, node] : by_index) {
        say(Severity::kNote, "differs-added", b[node].name, "there was no such part", "");
      }
      return;
    }
    sort_by_bus(a, mine);
    sort_by_bus(b, other);
    for (std::size_t i = 0; i < std::min(mine.size(), other.size()); ++i) {
      pairs_.emplace_back(mine[i], other[i]);
    }
  }

  void compare_nodes(NodeId mine, NodeId other) {
    const Node &a = a_.graph[mine], &b = b_.graph[other];
    for (const char* key : kFacts) {
      const std::string &own = fact(a, key), &its = fact(b, key);
      if (own.empty() || its.empty() || own == its) continue;
      const std::string evidence = fmt::format("{}: '{}' and '{}'", key, own, its);
      const std::string_view name = key;
      if (name == "speed_mbps") {
        const double loss = loss_of(static_cast<double>(number_fact(b, key).value_or(0)),
                                    static_cast<double>(number_fact(a, key).value_or(0)));
        say(loss > 0 ? Severity::kWarning : Severity::kNote, "differs-speed", a.name,
            loss > 0 ? "the port is slower" : "the port is faster", evidence, loss);
      } else if (name == "state" && is_up(a) != is_up(b)) {
        say(is_up(a) ? Severity::kError : Severity::kNote, "differs-state", a.name,
            is_up(a) ? "the port is down" : "the port is up", evidence, is_up(a) ? 1 : 0);
      } else if (name != "state") {
        const bool harmless = name == "kernel" || name == "cpu" || name == "firmware";
        say(harmless ? Severity::kNote : Severity::kWarning, "differs-fact", a.name,
            fmt::format("{} is another", key), evidence);
      }
    }
    if (a.kind != NodeKind::kGpu && a.kind != NodeKind::kNic) return;
    compare_place(mine, other);
    compare_pcie(mine, other);
  }

  void compare_place(NodeId mine, NodeId other) {
    const Graph &a = a_.graph, &b = b_.graph;
    const NodeId own = a_.numa_of(mine), its = b_.numa_of(other);
    if (own.exists() && its.exists() && a[own].index >= 0 && b[its].index >= 0 &&
        a[own].index != b[its].index) {
      say(Severity::kWarning, "differs-numa", a[mine].name, "it is next to another NUMA node",
          fmt::format("{} and {}", a[own].name, b[its].name));
    }
    if (a[mine].kind != NodeKind::kGpu) return;
    // Which NICs are under the same switch, by their order in the host.
    const auto near = [](const Machine& machine, NodeId gpu) {
      std::string list;
      for (const auto& host : machine.hosts) {
        if (host.node != machine.graph[gpu].host) continue;
        for (const NodeId nic : host.nics) {
          if (machine.near(gpu, nic) != Machine::Near::kSwitch) continue;
          append(list, machine.graph[nic].name);
        }
      }
      return list;
    };
    const std::string first = near(a_, mine), second = near(b_, other);
    const auto count = [](const std::string& list) {
      return list.empty() ? 0 : 1 + std::count(list.begin(), list.end(), ',');
    };
    if (count(first) == count(second)) return;
    const auto nics = [&](const std::string& list) {
      return list.empty() ? std::string("none") : fmt::format("{} of the NICs", count(list));
    };
    say(second.empty() ? Severity::kWarning : Severity::kNote, "differs-nearest", a[mine].name,
        "other NICs are near this GPU",
        fmt::format("under its switch: {} and {}", nics(first), nics(second)));
  }

  void compare_pcie(NodeId mine, NodeId other) {
    const Link *own = a_.pcie_above(mine), *its = b_.pcie_above(other);
    if (own == nullptr || its == nullptr || !own->pcie || !its->pcie) return;
    const std::string& name = a_.graph[mine].name;
    const PcieRate &could = own->pcie->maximum, &can = its->pcie->maximum;
    if (could.known() && can.known() && !(could == can)) {
      const double loss = loss_of(pcie_bandwidth(can), pcie_bandwidth(could));
      say(loss > 0 ? Severity::kWarning : Severity::kNote, "differs-pcie", name,
          loss > 0 ? "the PCI Express link can do less" : "the PCI Express link can do more",
          fmt::format("{} and {} (maximum)", text_of(could), text_of(can)), loss);
      return;
    }
    const int lanes = own->pcie->current.width, has = its->pcie->current.width;
    if (lanes > 0 && has > 0 && has < lanes) {
      say(Severity::kError, "differs-pcie", name,
          fmt::format("the PCI Express link has {} lanes instead of {}", has, lanes),
          fmt::format("{} and {} (current)", text_of(own->pcie->current),
                      text_of(its->pcie->current)),
          loss_of(has, lanes));
    }
  }

  void compare_gpu_links() {
    struct Sum {
      int count = 0;
      double gbs = 0;
    };
    // By peer where both have the peer as a GPU; all links of a GPU to switches together, since
    // sources may fold switches.
    const auto sums = [](const Graph& graph) {
      std::map<std::tuple<NodeId, NodeId, LinkKind>, Sum> found;
      for (const Link& link : graph.links) {
        if (!is_fast(link.kind) && link.kind != LinkKind::kC2c) continue;
        for (const bool forward : {true, false}) {
          const NodeId near = forward ? link.a : link.b, far = forward ? link.b : link.a;
          if (graph[near].kind != NodeKind::kGpu) continue;
          const bool direct = graph[far].kind == NodeKind::kGpu;
          Sum& sum = found[{near, direct ? far : NodeId{}, link.kind}];
          sum.count += link.count;
          sum.gbs += (forward ? link.forward : link.backward).value;
        }
      }
      return found;
    };
    const auto mine = sums(a_.graph), other = sums(b_.graph);
    std::map<NodeId, NodeId> back;
    for (const auto& [first, second] : matched_) back[second] = first;
    const auto to_b = [&](NodeId node) {
      const auto found = matched_.find(node);
      return found == matched_.end() ? NodeId{} : found->second;
    };
    for (const auto& [key, own] : mine) {
      const auto& [gpu, peer, kind] = key;
      if (!to_b(gpu).exists() || (peer.exists() && !to_b(peer).exists())) continue;
      const auto found = other.find({to_b(gpu), peer.exists() ? to_b(peer) : NodeId{}, kind});
      const Sum its = found == other.end() ? Sum{} : found->second;
      const std::string far = peer.exists() ? a_.graph[peer].name : "switches and processors";
      if (its.count == own.count && std::abs(its.gbs - own.gbs) <= own.gbs * 0.01) continue;
      const double loss = own.gbs > 0 ? loss_of(its.gbs, own.gbs) : loss_of(its.count, own.count);
      say(its.count < own.count ? Severity::kError
          : loss > 0            ? Severity::kWarning
                                : Severity::kNote,
          "differs-links", a_.graph[gpu].name,
          fmt::format("the {} links to {} are {}", to_string(kind), far,
                      loss > 0 || its.count < own.count ? "fewer or slower" : "more or faster"),
          fmt::format("{} links of {:.1f} GB/s together, and {} of {:.1f}", own.count, own.gbs,
                      its.count, its.gbs),
          loss);
    }
    for (const auto& [key, its] : other) {
      const auto& [gpu, peer, kind] = key;
      const auto near = back.find(gpu), far = back.find(peer);
      if (near == back.end() || (peer.exists() && far == back.end())) continue;
      if (mine.count({near->second, peer.exists() ? far->second : NodeId{}, kind}) != 0) continue;
      say(Severity::kNote, "differs-links", a_.graph[near->second].name,
          fmt::format("there were no {} links to {}", to_string(kind),
                      peer.exists() ? a_.graph[far->second].name : "switches and processors"),
          fmt::format("{} links of {:.1f} GB/s together", its.count, its.gbs));
    }
  }

  void say(Severity severity, std::string code, std::string where, std::string what,
           std::string evidence, double loss = 0) {
    findings_.push_back({severity, std::move(code), std::move(where), std::move(what),
                         std::move(evidence), "", loss});
  }

  Machine a_, b_;
  std::vector<Pair> pairs_;
  std::map<NodeId, NodeId> matched_;  // Nodes of a, in b.
  Findings findings_;
};

}  // namespace

Findings differences(const Graph& a, const Graph& b) { return Difference(a, b).run(); }

}  // namespace tutti::topology
