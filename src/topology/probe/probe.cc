#include "topology/probe/probe.h"

#include <fmt/format.h>

#include <algorithm>

#include "topology/graph/words.h"
#include "topology/probe/parts.h"

namespace tutti::topology {

NodeId Probe::add(NodeKind kind, const std::string& name, int index) {
  Node node{kind, (host.exists() ? graph()[host].name + "/" : "") + name, host, index};
  for (char& c : node.name) {
    if (c <= ' ' || c > '~') c = '_';  // Names have no white space, whatever a file says.
  }
  return graph().add(std::move(node));
}

void Probe::fact(NodeId node, const std::string& key, std::string value) {
  if (value.empty()) return;
  value = printable(std::move(value));
  if (value.size() > 4096) value.resize(4096);
  graph()[node].facts[key] = std::move(value);
}

void Probe::find(Severity severity, std::string code, std::string where, std::string what,
                 std::string remedy) {
  out.findings.push_back(
      {severity, std::move(code), std::move(where), std::move(what), "", std::move(remedy)});
}

NodeId Probe::numa_by_cuda(const std::string& bus) const {
  if (!answers.cuda || bus.empty()) return {};
  for (const CudaGpu& gpu : answers.cuda->gpus) {
    if (gpu.bus != bus) continue;
    const auto known = numa.find(gpu.host_numa);
    return known == numa.end() ? NodeId{} : known->second;
  }
  return {};
}

NodeId Probe::gpu_at(const std::string& bus, int index, std::string_view who) {
  const auto known = by_bus.find(bus);
  if (known != by_bus.end()) return known->second;
  int number = index;
  for (;; ++number) {
    const NodeId taken = graph().find(fmt::format("{}/gpu{}", graph()[host].name, number));
    if (!taken.exists()) break;
    // Without an address only the number says which it is; both count by address.
    if (bus.empty()) return taken;
  }
  const NodeId node = add(NodeKind::kGpu, fmt::format("gpu{}", number), index);
  graph()[node].bus = bus;
  if (!bus.empty()) by_bus[bus] = node;
  const NodeId said = numa_by_cuda(bus);
  const NodeId above = said.exists() ? said : numa.begin()->second;
  graph().join(LinkKind::kPcie, above, node).pcie = Pcie{};
  find(Severity::kWarning, "pci-hidden", graph()[node].name,
       fmt::format("{} has GPU {} at {}, which sysfs does not show; it is {} on {}", who, index,
                   bus, said.exists() ? "said to be" : "assumed to be", graph()[above].name),
       "run outside of the container, or with /sys mounted");
  return node;
}

namespace {

// A note for each library that answered, and for each that did not though there is what it is for.
void note_libraries(Probe& probe) {
  auto& notes = probe.graph().notes;
  const auto& [nvml, cuda, verbs] = probe.answers;
  const auto nodes = [&](NodeKind kind, const char* key, std::string_view value) {
    const auto all = probe.graph().all(kind);
    return std::any_of(all.begin(), all.end(), [&](NodeId node) {
      const std::string& own = fact(probe.graph()[node], key);
      return value.empty() ? !own.empty() : own == value;
    });
  };
  notes.push_back(
      nvml ? fmt::format("NVML of driver {}: {} GPUs", printable(nvml->driver), nvml->gpus.size())
           : printable(nvml.error().what));
  if (cuda) {
    notes.push_back(fmt::format("CUDA {}.{}: {} GPUs", cuda->version / 1000,
                                cuda->version % 1000 / 10, cuda->gpus.size()));
  } else if (nvml || nodes(NodeKind::kGpu, "vendor", "0x10de")) {
    notes.push_back(printable(cuda.error().what));
  }
  if (verbs) {
    notes.push_back(fmt::format("verbs: {} devices", verbs->devices.size()));
  } else if (nodes(NodeKind::kNic, "guid", "")) {
    notes.push_back(printable(verbs.error().what));
  }
}

}  // namespace

Imported probe_parts(const FileTree& files, const Answers& answers) {
  Probe probe{files, answers};
  probe.host = probe.add(NodeKind::kHost, "host0", 0);
  probe_host(probe);
  probe_numa(probe);
  probe_pci(probe, probe_ports(probe));
  probe_kfd(probe);
  probe_nvml(probe);
  probe_cuda(probe);
  note_libraries(probe);
  return std::move(probe.out);
}

Error not_asked(std::string_view what) {
  return {Code::kUnsupported, fmt::format("no {}: it was not asked", what), {}, {}};
}

Imported probe_tree(const FileTree& files) {
  Answers answers{not_asked("NVML"), not_asked("CUDA"), not_asked("verbs")};
  if (const auto saved = files.read(kNvmlFile)) answers.nvml = nvml_from_json(*saved, kNvmlFile);
  if (const auto saved = files.read(kCudaFile)) answers.cuda = cuda_from_json(*saved, kCudaFile);
  if (const auto saved = files.read(kVerbsFile)) {
    answers.verbs = verbs_from_json(*saved, kVerbsFile);
  }
  return probe_parts(files, answers);
}

namespace {

struct Used {
  const FileTree* files = nullptr;
  Graph graph;
};
Used& used() {
  static Used one;
  return one;
}

}  // namespace

void use_files(const FileTree* files) {
  used() = {files, files == nullptr ? Graph{} : probe_tree(*files).graph};
}

const FileTree& files_of_this_machine() {
  static const std::unique_ptr<FileTree> disk = disk_tree("/");
  return used().files == nullptr ? *disk : *used().files;
}

const Graph& this_machine() {
  if (used().files != nullptr) return used().graph;
  static const Graph made = probe_tree(files_of_this_machine()).graph;
  return made;
}

}  // namespace tutti::topology
