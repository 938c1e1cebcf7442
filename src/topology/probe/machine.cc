// The probe of this machine, with the drivers' libraries.
#include "topology/probe/parts.h"
#include "topology/probe/probe.h"

namespace tutti::topology {

Answers ask_libraries(const ProbeOptions& options) {
  const bool here = options.root == "/";
  Answers answers{not_asked("NVML"), not_asked("CUDA"), not_asked("verbs")};
  if (here && !options.nvml.empty()) answers.nvml = read_nvml(options.nvml.c_str());
  if (here && !options.cuda.empty()) answers.cuda = read_cuda(options.cuda.c_str());
  if (here && !options.verbs.empty()) answers.verbs = read_verbs(options.verbs.c_str());
  return answers;
}

Imported probe_machine(const ProbeOptions& options) {
  return probe_parts(*disk_tree(options.root), ask_libraries(options));
}

}  // namespace tutti::topology
