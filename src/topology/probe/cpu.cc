// File: topology/probe/cpu.cc: the host, its NUMA nodes and packages.
#include <fmt/format.h>

#include "topology/graph/nccl_figures.h"
#include "topology/graph/words.h"
#include "topology/probe/parts.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

constexpr int kMostNuma = 1024;

// Kilobytes of "MemTotal:  1234 kB".
std::int64_t kilobytes(const std::string& text, const std::string& key) {
  const std::size_t at = text.find(key);
  if (at == std::string::npos) return 0;
  const std::string value = line_value(std::string_view(text).substr(at), key);
  return parse_integer(value.substr(0, value.find(' '))).value_or(0);
}

// Bytes that /dev/shm may hold. Without a size of its own a tmpfs may have half of the memory.
std::string shared_memory_bytes(const FileTree& files) {
  const std::string mounts = files.text("/proc/mounts");
  std::string bytes;
  for (std::size_t at = mounts.find(" /dev/shm "); at != std::string::npos;
       at = mounts.find(" /dev/shm ", at + 1)) {
    const std::string line = mounts.substr(at, mounts.find('\n', at) - at);
    const std::size_t size = line.find("size=");
    if (size == std::string::npos) {
      const std::int64_t memory = kilobytes(files.text("/proc/meminfo"), "MemTotal");
      bytes = memory > 0 ? std::to_string(memory * 512) : "";
      continue;
    }
    const std::string text = line.substr(size + 5);
    const std::size_t end = text.find_first_not_of("0123456789");
    const auto value = parse_integer(text.substr(0, end));
    const char unit = end == std::string::npos ? ' ' : text[end];
    const int shift = unit == 'k' ? 10 : unit == 'm' ? 20 : unit == 'g' ? 30 : 0;
    if (value && *value < std::int64_t{1} << 32) bytes = std::to_string(*value << shift);
    if (value && shift == 0) bytes = std::to_string(*value);
  }
  return bytes;
}

std::string memory_lock_limit(const FileTree& files) {
  const std::string line = line_value(files.text("/proc/self/limits"), "Max locked memory");
  return line.substr(0, line.find(' '));
}

// The words of the kernel's command line that concern the IOMMU.
std::string iommu_words(const std::string& command_line) {
  std::string found;
  for (const std::string_view word : words(command_line)) {
    if (word.find("iommu") != std::string_view::npos) append(found, word, " ");
  }
  return found;
}

// What traffic of devices gets between two sockets: by maker and model of the processor.
Quantity socket_of(const std::string& cpuinfo) {
  std::string vendor = line_value(cpuinfo, "vendor_id");
  if (line_value(cpuinfo, "cpu").starts_with("POWER")) vendor = "IBM";
  const std::string arch = line_value(cpuinfo, "CPU implementer").empty() ? "" : "aarch64";
  const auto model = parse_integer(line_value(cpuinfo, "model"));
  const Quantity known = vendor == "GenuineIntel" && !model
                             ? Quantity{}
                             : socket_bandwidth(arch, vendor, static_cast<int>(model.value_or(0)));
  return known.known() ? known : Quantity{10, Origin::kAssumed};
}

// The package of a NUMA node's first CPU; -1 if not known.
int package_of(const FileTree& files, const std::vector<int>& cpus) {
  if (cpus.empty()) return -1;
  const auto package = parse_integer(files.text(
      fmt::format("/sys/devices/system/cpu/cpu{}/topology/physical_package_id", cpus[0])));
  return package && *package >= 0 && *package < 65536 ? static_cast<int>(*package) : -1;
}

// Adds the nodes that have CPUs; returns their packages.
std::map<int, int> add_numa_nodes(Probe& probe) {
  const std::string base = "/sys/devices/system/node";
  std::map<int, int> packages;
  std::string without_cpus;
  for (const std::string& name : probe.files.list(base)) {
    if (name.rfind("node", 0) != 0) continue;
    const auto number = parse_integer(std::string_view(name).substr(4));
    if (!number || *number < 0 || *number >= kMostNuma) continue;
    const int index = static_cast<int>(*number);
    const std::string path = base + "/" + name;
    const std::string list = probe.files.text(path + "/cpulist");
    const std::vector<int> cpus = parse_cpu_list(list);
    if (list.empty() &&
        probe.files.text(path + "/cpumap").find_first_of("123456789abcdef") == std::string::npos) {
      append(without_cpus, std::to_string(index));
      continue;
    }
    const NodeId node = probe.add(NodeKind::kNuma, fmt::format("numa{}", index), index);
    probe.fact(node, "cpus", list);
    probe.fact(node, "cpumap", list.empty() ? probe.files.text(path + "/cpumap") : "");
    probe.fact(node, "distances", probe.files.text(path + "/distance"));
    const std::string memory = probe.files.text(path + "/meminfo");
    const std::int64_t total = kilobytes(memory, "MemTotal");
    if (total > 0) probe.fact(node, "memory_bytes", std::to_string(total * 1024));
    probe.numa[index] = node;
    packages[index] = package_of(probe.files, cpus);
  }
  if (!without_cpus.empty()) {
    probe.graph().notes.push_back("left out NUMA nodes without CPUs: " + without_cpus);
  }
  return packages;
}

void join_pairwise(Probe& probe, const std::vector<NodeId>& nodes) {
  if (nodes.size() < 2) return;
  const Quantity gbs = socket_of(probe.files.text("/proc/cpuinfo"));
  if (gbs.origin == Origin::kAssumed) {
    probe.find(Severity::kNote, "socket-assumed", "host0",
               fmt::format("the bandwidth between sockets is assumed to be {} GB/s: the processor "
                           "is in no table",
                           gbs.value));
  }
  for (std::size_t a = 0; a < nodes.size(); ++a) {
    for (std::size_t b = a + 1; b < nodes.size(); ++b) {
      probe.graph().join(LinkKind::kSocket, nodes[a], nodes[b], gbs);
    }
  }
}

}  // namespace

void probe_host(Probe& probe) {
  const FileTree& files = probe.files;
  probe.fact(probe.host, "hostname", files.text("/proc/sys/kernel/hostname"));
  probe.fact(probe.host, "kernel", files.text("/proc/sys/kernel/osrelease"));
  const std::string cpuinfo = files.text("/proc/cpuinfo");
  const std::string model = line_value(cpuinfo, "model name");
  probe.fact(probe.host, "cpu", model.empty() ? line_value(cpuinfo, "cpu") : model);
  probe.fact(probe.host, "shm_bytes", shared_memory_bytes(files));
  probe.fact(probe.host, "memlock_bytes", memory_lock_limit(files));
  probe.fact(probe.host, "cpus_allowed",
             line_value(files.text("/proc/self/status"), "Cpus_allowed_list"));
  probe.fact(probe.host, "iommu", iommu_words(files.text("/proc/cmdline")));
  const std::size_t groups = files.list("/sys/kernel/iommu_groups").size();
  if (files.real_path("/sys/kernel/iommu_groups")) {
    probe.fact(probe.host, "iommu_groups", std::to_string(groups));
  }
  if (files.real_path("/sys/module/nvidia_peermem")) probe.fact(probe.host, "peermem", "loaded");
}

void probe_numa(Probe& probe) {
  const std::map<int, int> packages = add_numa_nodes(probe);
  if (probe.numa.empty()) {
    probe.numa[0] = probe.add(NodeKind::kNuma, "numa0", 0);
    probe.find(Severity::kNote, "numa-hidden", "host0",
               "no NUMA node with CPUs is visible; one is assumed",
               "run outside of the container, or with /sys mounted");
    return;
  }
  std::map<int, std::vector<NodeId>> members;
  bool known = true;
  for (const auto& [index, package] : packages) {
    members[package].push_back(probe.numa[index]);
    known = known && package >= 0;
  }
  std::vector<NodeId> all;
  for (const auto& [index, node] : probe.numa) all.push_back(node);
  // Packages are worth a node of their own only where NUMA nodes share one.
  if (!known || members.size() == all.size()) return join_pairwise(probe, all);
  std::vector<NodeId> sockets;
  for (const auto& [package, nodes] : members) {
    sockets.push_back(probe.add(NodeKind::kPackage, fmt::format("package{}", package), package));
    for (const NodeId node : nodes) {
      probe.graph().join(LinkKind::kInternal, node, sockets.back(), kInside);
    }
  }
  join_pairwise(probe, sockets);
}

}  // namespace tutti::topology
