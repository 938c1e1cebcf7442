#include "topology/nccl/complete.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace tutti::topology {
namespace {

constexpr int kMostDepth = 64;  // PCI bridges above a device.

class Completing {
 public:
  Completing(Graph& file, const Graph& probed)
      : file_(file), probed_(probed), host_(file.all(NodeKind::kHost).front()) {
    for (const NodeId node : file.all()) {
      if (!file[node].bus.empty()) by_bus_.emplace(file[node].bus, node);
      if (file[node].kind == NodeKind::kNuma) numas_.emplace(file[node].index, node);
    }
    for (const Link& link : probed.links) {
      if (link.kind == LinkKind::kPcie || link.kind == LinkKind::kInternal)
        above_.emplace(link.b, &link);
    }
  }

  void run() {
    for (const NodeId theirs : probed_.all()) {
      if (const auto mine = known(theirs)) describe(*mine, theirs);
    }
    for (const Link& link : probed_.links) {
      if (link.kind == LinkKind::kPcie) pcie(link);
      if (link.kind == LinkKind::kSocket) socket(link);
    }
    for (const NodeId theirs : probed_.all()) {
      if (is_lacking(theirs)) add(theirs, 0);
    }
    for (const Link& link : file_.links) {
      if (!joins_gpus(link)) continue;
      joined_.insert({link.kind == LinkKind::kC2c, link.a});
      joined_.insert({link.kind == LinkKind::kC2c, link.b});
    }
    for (const Link& link : probed_.links) {
      if (joins_gpus(link)) gpus(link);
    }
    ports();
  }

 private:
  static bool is_device(const Node& node) {
    return node.kind == NodeKind::kGpu || node.kind == NodeKind::kNic;
  }
  static bool joins_gpus(const Link& link) {
    return is_fast(link.kind) || link.kind == LinkKind::kC2c;
  }

  /// Whether the file has nothing for a GPU or NIC of the probe, as far as PCI addresses tell.
  bool is_lacking(NodeId theirs) const {
    const Node& node = probed_[theirs];
    if (!is_device(node)) return false;
    if (!node.bus.empty()) return !by_bus_.contains(node.bus);
    // A port of a card has no address of its own; software has none at all.
    const auto above = above_.find(theirs);
    if (above == above_.end()) return false;
    const Node& card = probed_[above->second->a];
    return card.kind == NodeKind::kCard && !by_bus_.contains(card.bus);
  }

  /// The file's node for one of the probe's, if it has it.
  std::optional<NodeId> known(NodeId theirs) const {
    const Node& node = probed_[theirs];
    const auto copied = copied_.find(theirs);
    if (copied != copied_.end()) return copied->second;
    if (node.kind == NodeKind::kHost) return host_;
    if (node.kind == NodeKind::kNuma) {
      const auto numa = numas_.find(node.index);
      return numa == numas_.end() ? std::nullopt : std::optional(numa->second);
    }
    const auto found = node.bus.empty() ? by_bus_.end() : by_bus_.find(node.bus);
    return found == by_bus_.end() ? std::nullopt : std::optional(found->second);
  }

  void describe(NodeId mine, NodeId theirs) {
    const Node& from = probed_[theirs];
    Node& to = file_[mine];
    if (is_device(from) && to.kind == NodeKind::kPciePort) to.kind = from.kind;
    if (to.kind != from.kind) return;
    if (to.index < 0) to.index = from.index;
    to.facts.insert(from.facts.begin(), from.facts.end());
    // Files of clouds have no names of devices; people know them by those that the machine has.
    if (is_device(from) && !file_.find(name_of(from)).exists()) file_[mine].name = name_of(from);
  }

  /// The rate of a PCI Express link for which the file has none.
  void pcie(const Link& theirs) {
    const auto below = known(theirs.b);
    if (!below || !theirs.forward.known()) return;
    for (Link& link : file_.links) {
      const bool guessed = link.kind == LinkKind::kPcie && link.b == *below &&
                           link.forward.origin <= Origin::kAssumed;
      if (!guessed) continue;
      link.forward = theirs.forward;
      link.backward = theirs.backward;
      link.pcie = theirs.pcie;
    }
  }

  /// The rate between two NUMA nodes of which the file does not say which processors they are.
  void socket(const Link& theirs) {
    const auto a = known(theirs.a), b = known(theirs.b);
    if (!a || !b || !theirs.forward.known()) return;
    for (Link& link : file_.links) {
      const bool same = (link.a == *a && link.b == *b) || (link.a == *b && link.b == *a);
      if (link.kind != LinkKind::kSocket || !same || link.forward.known()) continue;
      link.forward = theirs.forward;
      link.backward = theirs.backward;
    }
  }

  /// A node below PCI, with all above it up to what the file has; none where that is nothing.
  NodeId add(NodeId theirs, int depth) {
    if (const auto mine = known(theirs)) return *mine;
    const auto above = above_.find(theirs);
    if (above == above_.end() || depth > kMostDepth) return {};
    Link link = *above->second;
    link.a = add(link.a, depth + 1);
    // What the machine does not number alike hangs somewhere.
    if (!link.a.exists() && probed_[above->second->a].kind == NodeKind::kNuma && !numas_.empty())
      link.a = numas_.begin()->second;
    if (!link.a.exists()) return {};
    link.b = copy(theirs);
    file_.add(link);
    return link.b;
  }

  /// NVLinks and the like of GPUs of which the file has none.
  void gpus(Link link) {
    bool any_gpu = false;
    for (const NodeId theirs : {link.a, link.b}) {
      const auto mine = known(theirs);
      if (!mine && probed_[theirs].kind != NodeKind::kNvSwitch) return;
      if (!mine || file_[*mine].kind != NodeKind::kGpu) continue;
      if (joined_.contains({link.kind == LinkKind::kC2c, *mine})) return;
      any_gpu = true;
    }
    if (!any_gpu) return;
    for (NodeId* const end : {&link.a, &link.b}) {
      const auto mine = known(*end);
      *end = mine ? *mine : copy(*end);
    }
    file_.add(link);
  }

  NodeId copy(NodeId theirs) {
    Node node = probed_[theirs];
    node.host = host_;
    node.name = name_of(node);
    while (file_.find(node.name).exists()) node.name += "+";
    return copied_[theirs] = file_.add(std::move(node));
  }

  /// What a node of the probe is called in the file's host.
  std::string name_of(const Node& theirs) const {
    return file_[host_].name +
           theirs.name.substr(std::min(theirs.name.find('/'), theirs.name.size()));
  }

  /// Each NIC leads to the network, as fast as is known now.
  void ports() {
    std::set<NodeId> lead;
    NodeId plane;
    for (Link& link : file_.links) {
      if (link.kind != LinkKind::kPort) continue;
      lead.insert(link.a);
      plane = link.b;
      if (!link.forward.known()) link.forward = link.backward = rate_of(link.a);
    }
    for (const NodeId nic : file_.all(NodeKind::kNic)) {
      if (lead.contains(nic)) continue;
      if (!plane.exists()) plane = file_.add({NodeKind::kPlane, "network"});
      file_.join(LinkKind::kPort, nic, plane, rate_of(nic));
    }
  }

  Quantity rate_of(NodeId nic) const {
    const auto speed = number_fact(file_[nic], "speed_mbps");
    if (!speed || *speed <= 0) return {};
    return {static_cast<double>(*speed) / 8000, Origin::kReportedCurrent};
  }

  Graph& file_;
  const Graph& probed_;
  NodeId host_;                           // The file's.
  std::map<std::string, NodeId> by_bus_;  // The file's nodes,
  std::map<int, NodeId> numas_;           // and its NUMA nodes by number.
  std::map<NodeId, const Link*> above_;   // By the probe's node, what joins it to the one above.
  std::map<NodeId, NodeId> copied_;       // By the probe's node, the one that was made of it.
  std::set<std::pair<bool, NodeId>> joined_;  // GPUs with C2C (true) or NVLinks in the file.
};

}  // namespace

void complete(Graph& file, const Graph& probed) {
  if (file.all(NodeKind::kHost).size() == 1) Completing(file, probed).run();
}

bool shares_address(const Graph& graph, const Graph& other, std::span<const std::string> buses) {
  std::set<std::string> known(buses.begin(), buses.end());
  for (const Node& node : other.nodes) known.insert(node.bus);
  known.erase("");
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [&](const Node& node) { return known.contains(node.bus); });
}

std::vector<std::string> missing_gpus(const Graph& graph, std::span<const std::string> buses) {
  std::vector<std::string> missing;
  for (const std::string& bus : buses) {
    const bool there = std::any_of(graph.nodes.begin(), graph.nodes.end(), [&](const Node& node) {
      return node.kind == NodeKind::kGpu && node.bus == bus;
    });
    if (!there) missing.push_back(bus);
  }
  return missing;
}

}  // namespace tutti::topology
