// File: topology/probe/kfd.cc: xGMI links between AMD's GPUs, as the kernel's KFD lists them.
#include <fmt/format.h>

#include <algorithm>

#include "topology/graph/nccl_figures.h"
#include "topology/probe/parts.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

constexpr const char* kNodes = "/sys/class/kfd/kfd/topology/nodes";
constexpr std::int64_t kXgmi = 11;  // HSA_IOLINKTYPE of xGMI.
constexpr std::int64_t kMostMbps = 10'000'000;
constexpr int kMostLinksOfGpu = 64;

std::int64_t property(const std::string& text, const std::string& key) {
  return parse_integer(line_value(text, key)).value_or(0);
}

// Numbers in a directory's names, in their order.
std::vector<int> numbers(const FileTree& files, const std::string& path) {
  std::vector<int> found;
  for (const std::string& name : files.list(path)) {
    const auto number = parse_integer(name);
    if (number && *number >= 0 && *number < 100000) found.push_back(static_cast<int>(*number));
  }
  std::sort(found.begin(), found.end());
  return found;
}

struct KfdGpu {
  int node = 0;
  std::string bus;
  std::int64_t target = 0;  // 90402: gfx942.
};

std::vector<KfdGpu> find_gpus(const FileTree& files) {
  std::vector<KfdGpu> gpus;
  for (const int node : numbers(files, kNodes)) {
    const std::string text = files.text(fmt::format("{}/{}/properties", kNodes, node));
    if (property(text, "simd_count") <= 0) continue;  // A processor.
    const auto location = static_cast<std::uint64_t>(property(text, "location_id"));
    const auto domain = static_cast<std::uint64_t>(property(text, "domain"));
    gpus.push_back(
        {node,
         parse_bus(fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain & 0xffffffff,
                               location >> 8 & 0xff, location >> 3 & 0x1f, location & 7)),
         property(text, "gfx_target_version")});
  }
  return gpus;
}

// "942" of 90402: the chip as the compiler calls it; "" if not known.
std::string chip_of(std::int64_t target) {
  return target > 0 ? fmt::format("{}{:x}{:x}", target / 10000, target / 100 % 100, target % 100)
                    : std::string();
}

struct Half {
  int count = 1;
  Quantity gbs;
};

// What one GPU says of its link to another.
Half half_of(const KfdGpu& gpu, const std::string& text) {
  const std::int64_t most = property(text, "max_bandwidth"),
                     least = property(text, "min_bandwidth");
  Half half;
  // The most is that of all parallel links, the least that of one.
  if (least > 0 && most <= kMostMbps && most >= least) {
    half.count = static_cast<int>(std::clamp<std::int64_t>(most / least, 1, 16));
  }
  // The kernel reports what is signalled; payload is in the table, for the chips that it has.
  const Quantity each = xgmi_bandwidth(chip_of(gpu.target));
  if (each.origin == Origin::kTable) {
    half.gbs = {each.value * half.count, each.origin};
  } else if (most > 0 && most <= kMostMbps) {
    half.gbs = {static_cast<double>(most) / 1000, Origin::kReportedMaximum};
  }
  return half;
}

}  // namespace

std::vector<std::string> kfd_gpus(const FileTree& files) {
  std::vector<std::string> buses;
  for (const KfdGpu& gpu : find_gpus(files)) buses.push_back(gpu.bus);
  return buses;
}

void probe_kfd(Probe& probe) {
  const FileTree& files = probe.files;
  const std::vector<KfdGpu> gpus = find_gpus(files);
  std::map<int, NodeId> nodes;
  for (const KfdGpu& gpu : gpus) {
    const auto known = probe.by_bus.find(gpu.bus);
    if (known == probe.by_bus.end()) {
      probe.find(Severity::kWarning, "gpu-hidden", gpu.bus,
                 fmt::format("the driver has a GPU {} that the PCI tree has not; it is left out",
                             gpu.bus));
      continue;
    }
    nodes[gpu.node] = known->second;
    probe.fact(known->second, "gfx", chip_of(gpu.target));
  }
  std::map<std::pair<NodeId, NodeId>, std::size_t> links;  // By both ends: in the graph.
  for (const KfdGpu& gpu : gpus) {
    const std::string base = fmt::format("{}/{}/io_links", kNodes, gpu.node);
    int seen = 0;
    for (const int number : numbers(files, base)) {
      if (++seen > kMostLinksOfGpu) break;
      const std::string text = files.text(fmt::format("{}/{}/properties", base, number));
      const auto far = nodes.find(static_cast<int>(property(text, "node_to")));
      const auto near = nodes.find(gpu.node);
      if (property(text, "type") != kXgmi || far == nodes.end() || near == nodes.end()) continue;
      if (far->second == near->second) continue;
      const Half half = half_of(gpu, text);
      const auto other = links.find({far->second, near->second});
      if (other != links.end()) {
        probe.graph().links[other->second].backward = half.gbs;
        continue;
      }
      if (!links.try_emplace({near->second, far->second}, probe.graph().links.size()).second) {
        continue;
      }
      probe.graph().add({LinkKind::kXgmi, near->second, far->second, half.count, half.gbs});
    }
  }
  if (!gpus.empty()) {
    probe.graph().notes.push_back(fmt::format("KFD: {} GPUs", gpus.size()));
  }
}

}  // namespace tutti::topology
