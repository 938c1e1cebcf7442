// File: topology/probe/sources/nvml.h: what NVIDIA's management library says about the GPUs, as a
// value.
//
// The library (libnvidia-ml.so.1) comes with the driver, is opened at run time, and may be absent.
// All that is asked of it is asked here, once; the probe then works on the value, which a capture
// keeps as JSON. So a test needs no GPU.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "topology/graph/graph.h"
#include "tutti/result.h"

namespace tutti::topology {

struct NvmlLink {
  enum class Remote : std::uint8_t { kGpu = 0, kCpu = 1, kSwitch = 2, kUnknown = 255 };
  int index = 0;
  bool active = false;
  Remote remote = Remote::kUnknown;
  std::string bus;  // The far end's; "" if hidden.
  int version = 0;  // 0: not known.
  friend bool operator==(const NvmlLink&, const NvmlLink&) = default;
};

struct NvmlGpu {
  int index = 0;  // As NVML counts: by PCI address.
  std::string bus, uuid, name;
  int sm = 0;  // 90: compute capability 9.0. 0: not known.
  PcieRate current, maximum;
  std::vector<NvmlLink> links;
  int c2c_count = 0;        // C2C links that are up.
  double c2c_gbs = 0;       // One link's.
  std::string fabric_uuid;  // The NVLink fabric's, in hexadecimal; "" where there is none.
  int fabric_clique = -1, fabric_state = -1;
  std::vector<int> p2p;  // By the peer's place in NvmlFacts::gpus: 0 works; else NVML's reason.
  friend bool operator==(const NvmlGpu&, const NvmlGpu&) = default;
};

struct NvmlFacts {
  std::string driver;
  std::vector<NvmlGpu> gpus;
  friend bool operator==(const NvmlFacts&, const NvmlFacts&) = default;
};

/// Asks the library. Where there is none, or no driver, that is an Error that says so:
/// kUnsupported.
Result<NvmlFacts> read_nvml(const char* library = "libnvidia-ml.so.1");

/// The NVLinks of the GPU with this bus address alone, which takes less time. kUnsupported as well
/// where there is no such GPU.
Result<std::vector<NvmlLink>> read_nvlinks(const std::string& bus,
                                           const char* library = "libnvidia-ml.so.1");

/// As a capture keeps it: the facts, or why there are none.
std::string nvml_to_json(const Result<NvmlFacts>& facts);
/// The reason, if the capture has one, is the Error again.
Result<NvmlFacts> nvml_from_json(std::string_view text, std::string_view source);

}  // namespace tutti::topology
