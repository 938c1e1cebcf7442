// File: topology/readers/nccl_xml_links.cc: NCCL's and RCCL's topology files as graphs: what joins
// GPUs, switches, NUMA nodes and the network, once all nodes are there.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "topology/graph/nccl_figures.h"
#include "topology/readers/nccl_xml_reader.h"

namespace tutti::topology {

NodeId NcclReader::nvswitch(std::string_view target, std::string_view type, NodeId host) {
  // Hidden switches have an address that is none: all that are not told apart are one node.
  const std::string bus = pci_address(target);
  const bool hidden = bus.empty() || target.starts_with("fffffff");
  const std::string key = fmt::format("{} {}", host.value, hidden ? "nvswitch" : bus);
  const auto at = by_bus_.find(key);
  if (at != by_bus_.end()) return at->second;
  std::string name;
  for (int i = 0; name.empty() || names_.contains(name); ++i) {
    name = fmt::format("{}/nvswitch{}", made_.graph[host].name, i);
  }
  names_.insert(name);
  Node node{NodeKind::kNvSwitch, std::move(name), host, -1, hidden ? "" : bus};
  if (hidden || target != bus) node.facts.emplace("target", target);
  if (type != "0x068000") node.facts.emplace("class", type);
  const NodeId made = made_.graph.add(std::move(node));
  by_bus_.emplace(key, made);
  return made;
}

Status NcclReader::peer(pugi::xml_node element, NodeId gpu, NodeId numa) {
  const LinkKind kind =
      std::string_view(element.name()) == "xgmi" ? LinkKind::kXgmi : LinkKind::kNvlink;
  const std::string_view target = element.attribute("target").value();
  const std::string_view type = element.attribute("tclass").value();
  const int count = whole_number(element.attribute("count").value(), 0);
  if (target.empty() || target.size() > 64 || count <= 0 || count > 1024) {
    return xml_.error(element, "{} needs target and count (1 to 1024)", element.name());
  }
  const NodeId host = made_.graph[gpu].host;
  const auto at = by_bus_.find(fmt::format("{} {}", host.value, pci_address(target)));
  if (at != by_bus_.end() && made_.graph[at->second].kind == NodeKind::kGpu) {
    if (type != fact(at->second, "class")) made_.graph[gpu].facts["tclass"] = type;
    return gpu_pair(element, kind, gpu, at->second, count);
  }
  if (type.starts_with("0x068001")) {
    // POWER: the bridge belongs to the processor next to the GPU.
    made_.graph[gpu].facts["cpu_target"] = target;
    pairs_.push_back({kind, numa, gpu, count, count});
    return ok();
  }
  if (type.starts_with("0x03") || type.starts_with("0x12")) {
    found(Severity::kWarning, "nvlink-target-missing", element,
          fmt::format("{} to GPU {}, which is not in the file; the link is left out",
                      element.name(), target),
          "was the file dumped where only some of the GPUs were visible?");
    return ok();
  }
  return gpu_pair(element, kind, gpu, nvswitch(target, type, host), count);
}

Status NcclReader::gpu_pair(pugi::xml_node element, LinkKind kind, NodeId gpu, NodeId other,
                            int count) {
  if (gpu == other) {
    return xml_.error(element,
                      "gpu {} has {} {}s to itself; the file is defective: "
                      "dump a new one with NCCL_TOPO_DUMP_FILE",
                      made_.graph[gpu].bus, count, element.name());
  }
  const auto [low, high] = std::minmax(gpu, other);
  const auto [at, fresh] = pair_of_.try_emplace({kind, low, high}, pairs_.size());
  if (fresh) pairs_.push_back({kind, low, high});
  Pair& pair = pairs_[at->second];
  (gpu == low ? pair.forward : pair.backward) += count;
  // A switch's side is not listed: links are as many back as forth.
  if (made_.graph[other].kind == NodeKind::kNvSwitch) {
    (gpu == low ? pair.backward : pair.forward) += count;
  }
  return ok();
}

Status NcclReader::peers() {
  for (const auto& [element, gpu, numa] : gpus_) {
    for (const pugi::xml_node child : element.children()) {
      const std::string_view name = child.name();
      if (name == "nvlink" || name == "xgmi") TUTTI_RETURN_IF_ERROR(peer(child, gpu, numa));
    }
  }
  for (const Pair& pair : pairs_) {
    const NodeId gpu =
        made_.graph[pair.a].kind == NodeKind::kGpu ? pair.a : pair.b;  // One of both is.
    const Quantity each = pair.kind == LinkKind::kXgmi
                              ? xgmi_bandwidth(fact(gpu, "gcn"))
                              : nvlink_bandwidth(whole_number(fact(gpu, "sm"), 0));
    if (each.origin == Origin::kAssumed) {
      found(Severity::kWarning, "link-figure-assumed", xml_.root(),
            fmt::format("{} GB/s a {} assumed for {}: its chip is not known", each.value,
                        to_string(pair.kind), made_.graph[gpu].name));
    }
    // Rounded, so that 6 * 20.6 is 123.6 to people too.
    const auto rate = [&](int links) {
      return Quantity{std::round(each.value * links * 1e6) / 1e6, each.origin};
    };
    made_.graph.add({pair.kind, pair.a, pair.b, std::max(pair.forward, pair.backward),
                     rate(pair.forward), rate(pair.backward)});
  }
  return ok();
}

Status NcclReader::pci_links() {
  for (const auto& [element, node] : pcilinks_) {
    const std::string target = pci_address(element.attribute("target").value());
    const auto at = by_bus_.find(fmt::format("{} {}", made_.graph[node].host.value, target));
    if (at == by_bus_.end() || at->second == node) {
      return xml_.error(element, "pcilink to '{}', which is no other pci of this file",
                        element.attribute("target").value());
    }
    const auto [low, high] = std::minmax(node, at->second);
    if (!pair_of_.try_emplace({LinkKind::kPcie, low, high}, 0).second) continue;
    made_.graph.join(LinkKind::kInternal, low, high);
  }
  return ok();
}

void NcclReader::sockets() {
  const std::vector<NodeId> numas = made_.graph.all(NodeKind::kNuma);
  for (std::size_t i = 0; i < numas.size(); ++i) {
    for (std::size_t j = i + 1; j < numas.size(); ++j) {
      if (made_.graph[numas[i]].host != made_.graph[numas[j]].host) continue;
      const Quantity rate = socket_bandwidth(fact(numas[i], "arch"), fact(numas[i], "vendor"),
                                             whole_number(fact(numas[i], "modelid"), 0));
      if (!rate.known()) {
        found(Severity::kWarning, "socket-unknown", xml_.root(),
              "cpu without arch and vendor: what joins the NUMA nodes is not known",
              "write arch, vendor, familyid and modelid of the machine's processors");
      }
      made_.graph.join(LinkKind::kSocket, numas[i], numas[j], rate);
    }
  }
}

void NcclReader::finish() {
  for (const NodeId nic : made_.graph.all(NodeKind::kNic)) {
    if (!plane_.exists()) plane_ = made_.graph.add({NodeKind::kPlane, "network"});
    const double mbps = positive_number(fact(nic, "speed_mbps"));
    Quantity rate;
    if (mbps > 0) {
      rate = {mbps / 8000, Origin::kReportedCurrent};
    } else {
      found(Severity::kWarning, "nic-speed-unknown", xml_.root(),
            fmt::format("the speed of {} is not known", made_.graph[nic].name),
            "write speed (Mb/s) into its <net>");
    }
    made_.graph.join(LinkKind::kPort, nic, plane_, rate);
  }
  if (made_.graph.all(NodeKind::kGpu).empty()) {
    found(Severity::kWarning, "no-gpus", xml_.root(), "no GPU can be told in this file");
  }
  for (const auto& [code, seen] : seen_) {
    Finding& finding = made_.findings[seen.finding];
    if (seen.times > 1) finding.evidence = fmt::format("{} times in this file", seen.times);
  }
  made_.graph.notes.push_back(fmt::format("read from {} (NCCL XML)", source_));
}

}  // namespace tutti::topology
