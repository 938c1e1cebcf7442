#include "simt/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>
#include <utility>

#include "simt/runtime.h"

namespace tutti::simt {
namespace {

constexpr int kSm = 90;  // The architecture that kernels are compiled for.

struct Pretended : topology::LibraryAnswers {
  topology::Graph graph;
};

Pretended plain_machine() {
  Pretended answers;
  for (int i = 0; i < kMostDevices; ++i) {
    topology::CudaGpu& gpu = answers.cuda.gpus.emplace_back();
    gpu.index = i;
    gpu.bus = fmt::format("0000:{:02x}:00.0", 0x10 + i);
    gpu.sm = kSm;
    gpu.multicast = gpu.gpudirect_rdma = true;
    gpu.access = gpu.atomics = std::vector<int>(kMostDevices, 1);
    topology::NvmlGpu& same = answers.nvml.gpus.emplace_back();
    same.index = i;
    same.bus = gpu.bus;
    same.name = "Simulated GPU";
    same.uuid = fmt::format("GPU-00000000-0000-0000-0000-{:012x}", i);
    same.sm = kSm;
    same.p2p = std::vector<int>(kMostDevices, 0);
  }
  return answers;
}

const char* name_of_machine() {
  const char* name = std::getenv("SIMT_MACHINE");
  return name != nullptr && *name != '\0' ? name : nullptr;
}

Pretended read_machine() {
  const char* name = name_of_machine();
  if (name == nullptr) return plain_machine();
  const auto complain = [name](const Error& error) {
    std::fprintf(stderr, "simulated GPUs: SIMT_MACHINE=%s: %s\n", name, error.what.c_str());
    std::exit(EXIT_FAILURE);
  };
  auto found = topology::load_machine(name);
  if (!found) complain(found.error());
  auto answers = topology::library_answers(found->graph);
  if (!answers) complain(answers.error());
  auto& gpus = answers->cuda.gpus;
  if (gpus.size() > kMostDevices) gpus.resize(kMostDevices);
  answers->nvml.gpus.resize(gpus.size());
  return {*std::move(answers), std::move(found->graph)};
}

const Pretended& pretended() {
  static const auto& one = *new Pretended(read_machine());
  return one;
}

}  // namespace

const topology::LibraryAnswers& machine() { return pretended(); }
const topology::Graph& machine_graph() { return pretended().graph; }

namespace {

void set_machine(Settings& read) {
  constexpr int kPlainDevices = 8;
  const auto& gpus = machine().cuda.gpus;
  const bool plain = name_of_machine() == nullptr;
  const int there = plain ? kMostDevices : static_cast<int>(gpus.size());
  const int asked = read.devices > 0 ? read.devices : plain ? kPlainDevices : there;
  read.devices = std::min(asked, there);
  for (int device = 0; device < read.devices; ++device) {
    for (int peer = 0; peer < read.devices; ++peer) {
      if (cuda_gpu(device).access[static_cast<std::size_t>(peer)] == 0) {
        read.no_peers[device] |= std::uint64_t{1} << peer;
      }
    }
  }
}

/// GPUs on which NCCL takes no lines of 128 bytes (src/graph/tuning.cc) may tear them.
bool tears_lines() {
  constexpr int kKeepLines[] = {70, 80, 90, 100};
  const auto& gpus = machine().cuda.gpus;
  return std::any_of(gpus.begin(), gpus.end(), [&](const topology::CudaGpu& gpu) {
    return std::find(std::begin(kKeepLines), std::end(kKeepLines), gpu.sm) == std::end(kKeepLines);
  });
}

double number(const char* name, double otherwise) {
  const char* text = std::getenv(name);
  return text != nullptr ? std::strtod(text, nullptr) : otherwise;
}

Settings from_environment() {
  Settings read;
  read.seed = static_cast<std::uint64_t>(number("SIMT_SEED", 0));
  read.preempt_one_in = static_cast<unsigned>(number("SIMT_PREEMPT", read.seed != 0 ? 8 : 0));
  read.check = number("SIMT_CHECK", 0) != 0;
  read.timeout_s = number("SIMT_TIMEOUT", read.timeout_s);
  read.devices = std::max(0, static_cast<int>(number("SIMT_DEVICES", 0)));
  set_machine(read);
  read.tears_lines = tears_lines();
  read.multiprocessors =
      std::max(1, static_cast<int>(number("SIMT_MULTIPROCESSORS", read.multiprocessors)));
  read.time_slice_s = 1e-3 * number("SIMT_TIME_SLICE", 0);
  read.reuse_handles = number("SIMT_REUSE_HANDLES", 1) != 0;
  read.jitter = number("SIMT_JITTER", 0) != 0;
  const char* loading = std::getenv("CUDA_MODULE_LOADING");
  read.lazy = loading == nullptr || std::string_view(loading) != "EAGER";
  read.connections =
      std::clamp(static_cast<int>(number("CUDA_DEVICE_MAX_CONNECTIONS", read.connections)), 1, 32);
  read.launch_queue = static_cast<std::size_t>(
      std::max(1.0, number("SIMT_LAUNCH_QUEUE", static_cast<double>(read.launch_queue))));
  read.free_locks = number("SIMT_FREE_LOCKS", 0) != 0;
  read.pageable_waits = number("SIMT_PAGEABLE_WAITS", 1) != 0;
  return read;
}

}  // namespace

// Here and not in the engine: the thread sanitizer has to see which thread made it.
Settings& settings() {
  static Settings one = from_environment();
  return one;
}

const topology::CudaGpu& cuda_gpu(int device) {
  return machine().cuda.gpus[static_cast<std::size_t>(device)];
}
const topology::NvmlGpu& nvml_gpu(int device) {
  return machine().nvml.gpus[static_cast<std::size_t>(device)];
}

}  // namespace tutti::simt
