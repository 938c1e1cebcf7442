#include "tools/run/simulated.h"

#include <fmt/format.h>
#include <stdlib.h>

#include <filesystem>
#include <string_view>

#include "topology/capture/machines.h"

namespace tutti::tools {
namespace {

namespace fs = std::filesystem;

/// Where the libraries are: beside the command, as it was installed or as it was built.
Result<std::string> folder_of_libraries() {
  std::error_code error;
  const fs::path bin = fs::read_symlink("/proc/self/exe", error).parent_path();
  for (const char* relative : {TUTTI_SIMULATED_FOLDERS}) {
    const fs::path folder = fs::weakly_canonical(bin / relative, error);
    if (!error && fs::exists(folder / "libcuda.so.1", error)) return folder.string();
  }
  return Error{Code::kUnsupported,
               "this build has no simulated GPUs: they are built where the CUDA toolkit's headers "
               "are (docs/simulated-gpus.md)"};
}

Error bad(std::string what) { return {Code::kInvalidArgument, std::move(what), {}, {}}; }

}  // namespace

Result<std::string> simulate_gpus(const SimulatedGpus& wanted) {
  TUTTI_TRY(const std::string folder, folder_of_libraries());
  const auto machine = topology::load_machine(wanted.machine);
  if (!machine) return bad("--model: " + machine.error().what);
  const auto answers = topology::library_answers(machine->graph);
  if (!answers) return bad(fmt::format("--model {}: {}", wanted.machine, answers.error().what));
  const auto there = static_cast<int>(answers->cuda.gpus.size());
  if (wanted.count > there) {
    return bad(
        fmt::format("--simulated-gpus {}: a host of {} has {}; choose fewer, or another "
                    "--model (dgx2 has 16)",
                    wanted.count, wanted.machine, there));
  }
  // A file is found wherever programs run.
  std::error_code error;
  const std::string name = topology::is_model(wanted.machine)
                               ? wanted.machine
                               : fs::absolute(wanted.machine, error).string();
  std::string path = folder;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    constexpr std::string_view kName = "LD_LIBRARY_PATH=";
    const std::string_view text = *entry;
    if (text.starts_with(kName) && text != kName)
      path += ":" + std::string(text.substr(kName.size()));
  }
  ::setenv("LD_LIBRARY_PATH", path.c_str(), 1);
  ::setenv("SIMT_MACHINE", name.c_str(), 1);
  ::setenv("SIMT_DEVICES", std::to_string(wanted.count).c_str(), 1);
  return fmt::format("{} of {}, pretended: results are right, speeds mean nothing",
                     wanted.count == 1 ? "1 GPU" : fmt::format("{} GPUs", wanted.count),
                     wanted.machine);
}

}  // namespace tutti::tools
