// File: topology/capture/machines.h: machines that are not here: by a file's or a model's name, and
// what drivers' libraries would say on them.
#pragma once
#include <string>
#include <string_view>

#include "topology/graph/finding.h"
#include "topology/probe/sources/cuda.h"
#include "topology/probe/sources/nvml.h"

namespace tutti::topology {

/// Whether a model has that name: it goes before a file of the same name.
bool is_model(std::string_view file_or_model);
/// A model (model.h: "dgx-a100"), a capture (.tar, .tar.gz, .tar.bz2, .tgz), or a file in any
/// format that is read. An Error says what there is instead.
Result<Imported> load_machine(const std::string& file_or_model);
/// The same for what is a file, or "-": standard input, no capture. "FILE:4": its hosts four times
/// (topology/join/repeat.h).
Result<Imported> load_machine_file(const std::string& path);

/// What NVML and CUDA say about the GPUs of a host, in the order of their PCI addresses, as they
/// count.
struct LibraryAnswers {
  NvmlFacts nvml;
  CudaFacts cuda;
};

/// The answers of the first host of the graph that has GPUs of NVIDIA's, as far as the graph knows:
/// it is the inverse of the probe. Facts that it does not know and that no library leaves out are
/// made up: a GPU's UUID, an address where it has none. Peers have access unless the graph says
/// otherwise, with atomics where NVLink joins them, directly or by switches. kInvalidArgument where
/// there are no such GPUs.
Result<LibraryAnswers> library_answers(const Graph& graph);

}  // namespace tutti::topology
