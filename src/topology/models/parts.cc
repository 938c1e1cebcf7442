#include "topology/models/parts.h"

#include <fmt/format.h>

namespace tutti::topology {

HostBuilder::HostBuilder(Graph& graph, int index, int numa_nodes)
    : graph_(graph), host_(graph.add({NodeKind::kHost, fmt::format("host{}", index), {}, index})) {
  for (int i = 0; i < numa_nodes; ++i) {
    numa_.push_back(add(NodeKind::kNuma, fmt::format("numa{}", i), i));
  }
}

NodeId HostBuilder::add(NodeKind kind, std::string_view name, int index, std::string bus) {
  return graph_.add(
      {kind, fmt::format("{}/{}", graph_[host_].name, name), host_, index, std::move(bus)});
}

void HostBuilder::join_sockets(double gbs) { join_all(graph_, LinkKind::kSocket, numa_, gbs); }

void HostBuilder::join_packages(int numa_each, double gbs) {
  std::vector<NodeId> packages;
  for (std::size_t i = 0; i < numa_.size(); ++i) {
    if (i % static_cast<std::size_t>(numa_each) == 0) {
      const int index = static_cast<int>(packages.size());
      packages.push_back(add(NodeKind::kPackage, fmt::format("package{}", index), index));
    }
    graph_.add(make_link(LinkKind::kInternal, numa_[i], packages.back(), kInside.value));
  }
  join_all(graph_, LinkKind::kSocket, packages, gbs);
}

std::string HostBuilder::next_bus() {
  ++buses_;  // Each function gets a bus of its own, and a domain more after 256 of them.
  return fmt::format("{:04x}:{:02x}:00.0", buses_ / 256, buses_ % 256);
}

NodeId HostBuilder::below(NodeId parent) {
  const std::string bus = next_bus();
  const NodeId port = add(NodeKind::kPciePort, "pci" + bus, -1, bus);
  graph_.add(make_link(LinkKind::kInternal, parent, port, kInside.value));
  return port;
}

NodeId HostBuilder::attach(NodeId parent, NodeId part, PcieRate rate) {
  Link link = make_link(LinkKind::kPcie, parent, part, pcie_bandwidth(rate));
  link.pcie = Pcie{rate, rate};
  graph_.add(link);
  return part;
}

NodeId HostBuilder::pcie_switch(NodeId parent, PcieRate rate) {
  const NodeId port = below(parent);
  const std::string bus = next_bus();
  return attach(port, add(NodeKind::kPcieSwitch, "pci" + bus, -1, bus), rate);
}

NodeId HostBuilder::gpu(const GpuPart& part) {
  const int index = static_cast<int>(gpus_.size());
  const NodeId gpu = add(NodeKind::kGpu, fmt::format("gpu{}", index), index, next_bus());
  Node& node = graph_[gpu];
  node.facts["model"] = part.name;
  node.facts["vendor"] = part.vendor;
  node.facts["device"] = part.device;
  const std::size_t digits = part.architecture.find_first_of("0123456789");
  node.facts[std::string(part.architecture.substr(0, digits))] = part.architecture.substr(digits);
  gpus_.push_back(gpu);
  return gpu;
}

NodeId HostBuilder::gpu(NodeId parent, const GpuPart& part) {
  const NodeId port = below(parent);
  return attach(port, gpu(part), part.rate);
}

NodeId HostBuilder::nic(NodeId parent, const NicPart& part) {
  const NodeId port = below(parent);
  const NodeId nic =
      add(NodeKind::kNic, fmt::format("{}{}", part.prefix, nics_), nics_, next_bus());
  ++nics_;
  graph_[nic].facts = {{"vendor", std::string(part.vendor)},
                       {"device", std::string(part.device)},
                       {"speed_mbps", std::to_string(part.speed_mbps)}};
  return attach(port, nic, part.rate);
}

void HostBuilder::unit(int numa, PcieRate rate, const std::vector<GpuPart>& gpus,
                       const std::vector<NicPart>& nics) {
  const NodeId pcie = pcie_switch(this->numa(numa), rate);
  for (const GpuPart& part : gpus) gpu(pcie, part);
  for (const NicPart& part : nics) nic(pcie, part);
}

void HostBuilder::nvswitches(const std::vector<int>& links, double gbs_each) {
  for (std::size_t i = 0; i < links.size(); ++i) {
    const NodeId nvswitch =
        add(NodeKind::kNvSwitch, fmt::format("nvswitch{}", i), static_cast<int>(i));
    for (const NodeId gpu : gpus_) {
      graph_.add(make_link(LinkKind::kNvlink, gpu, nvswitch, gbs_each, links[i]));
    }
  }
}

}  // namespace tutti::topology
