// Probes of tar files, and captures.

#include "topology/capture/archive.h"
#include "topology/graph/words.h"
#include "topology/probe/parts.h"
#include "topology/probe/probe.h"

namespace tutti::topology {
Result<Imported> probe_archive(const std::string& path) {
  TUTTI_TRY(const auto tree, read_archive_file(path));
  if (!tree->real_path("/sys") && !tree->real_path("/proc")) {
    return invalid(
        "{}: there is neither sys nor proc in it; it has to be what capture or "
        "hwloc-gather-topology writes",
        path);
  }
  return probe_tree(*tree);
}

Status capture(const ProbeOptions& options, const std::string& path) {
  const auto disk = disk_tree(options.root);
  const RecordingTree recording(*disk);
  const Answers answers = ask_libraries(options);
  probe_parts(recording, answers);
  MemoryTree copy;
  for (const auto& [name, item] : recording.copy().items()) {
    if (item.kind == FileTree::Kind::kFile) copy.add_file(name, item.text);
    if (item.kind == FileTree::Kind::kLink) copy.add_link(name, item.text);
    if (item.kind == FileTree::Kind::kDirectory) copy.add_directory(name);
  }
  copy.add_file(kNvmlFile, nvml_to_json(answers.nvml));
  copy.add_file(kCudaFile, cuda_to_json(answers.cuda));
  copy.add_file(kVerbsFile, verbs_to_json(answers.verbs));
  return write_archive(copy, path);
}

}  // namespace tutti::topology
