#include "topology/probe.h"

#include <fmt/format.h>

#include "topology/archive.h"
#include "topology/nvml.h"
#include "topology/probe_parts.h"

namespace tutti::topology {
namespace {

std::string printable(std::string text) {
  for (char& c : text) {
    if (c < ' ' || c > '~') c = '?';
  }
  return text;
}

}  // namespace

NodeId Probe::add(NodeKind kind, const std::string& name, int index) {
  Node node;
  node.kind = kind;
  node.host = host;
  node.name = (host.exists() ? graph()[host].name + "/" : "") + name;
  for (char& c : node.name) {
    if (c <= ' ' || c > '~') c = '_';  // Names have no white space, whatever a file says.
  }
  node.index = index;
  return graph().add(std::move(node));
}

void Probe::fact(NodeId node, const std::string& key, std::string value) {
  if (value.empty()) return;
  value = printable(std::move(value));
  if (value.size() > 4096) value.resize(4096);
  graph()[node].facts[key] = std::move(value);
}

void Probe::join(LinkKind kind, NodeId a, NodeId b, Quantity gbs) {
  Link link;
  link.kind = kind;
  link.a = a;
  link.b = b;
  link.forward = link.backward = gbs;
  graph().add(link);
}

void Probe::find(Severity severity, std::string code, std::string where, std::string what,
                 std::string remedy) {
  Finding finding;
  finding.severity = severity;
  finding.code = std::move(code);
  finding.where = std::move(where);
  finding.what = std::move(what);
  finding.remedy = std::move(remedy);
  out.findings.push_back(std::move(finding));
}

namespace {

constexpr const char* kNvmlFile = "/tutti/nvml.json";

Imported run(const FileTree& files, Result<NvmlFacts> nvml) {
  Probe probe{files, {}};
  const std::string absent = nvml ? "" : printable(nvml.error().what);
  if (nvml) probe.nvml = *std::move(nvml);
  probe.host = probe.add(NodeKind::kHost, "host0", 0);
  probe_host(probe);
  probe_numa(probe);
  probe_pci(probe, probe_ports(probe));
  probe_kfd(probe);
  probe_nvml(probe);
  probe.graph().notes.push_back(probe.nvml ? fmt::format("NVML of driver {}: {} GPUs",
                                                         printable(probe.nvml->driver),
                                                         probe.nvml->gpus.size())
                                           : absent);
  return std::move(probe.out);
}

Result<NvmlFacts> ask_nvml(const ProbeOptions& options) {
  if (options.nvml.empty() || options.root != "/") {
    return Error{Code::kUnsupported, "no NVML: it was not asked", {}, {}};
  }
  return read_nvml(options.nvml.c_str());
}

}  // namespace

Imported probe_machine(const ProbeOptions& options) {
  return run(*disk_tree(options.root), ask_nvml(options));
}

Imported probe_tree(const FileTree& files) {
  const auto saved = files.read(kNvmlFile);
  if (saved) return run(files, nvml_from_json(*saved, kNvmlFile));
  return run(files, Error{Code::kUnsupported, "no NVML: it was not asked", {}, {}});
}

Result<Imported> probe_archive(const std::string& path) {
  TUTTI_TRY(const auto tree, read_archive_file(path));
  if (!tree->real_path("/sys") && !tree->real_path("/proc")) {
    return Error{
        Code::kInvalidArgument,
        fmt::format("{}: there is neither sys nor proc in it; it has to be what capture or "
                    "hwloc-gather-topology writes",
                    path),
        {},
        {}};
  }
  return probe_tree(*tree);
}

Status capture(const ProbeOptions& options, const std::string& path) {
  const auto disk = disk_tree(options.root);
  const RecordingTree recording(*disk);
  auto nvml = ask_nvml(options);
  const std::string saved = nvml_to_json(nvml);
  run(recording, std::move(nvml));
  MemoryTree copy;
  for (const auto& [name, item] : recording.copy().items()) {
    if (item.kind == FileTree::Kind::kFile) copy.add_file(name, item.text);
    if (item.kind == FileTree::Kind::kLink) copy.add_link(name, item.text);
    if (item.kind == FileTree::Kind::kDirectory) copy.add_directory(name);
  }
  copy.add_file(kNvmlFile, saved);
  return write_archive(copy, path);
}

}  // namespace tutti::topology
