// File: topology/probe/sources/verbs.h: what libibverbs says of RDMA devices and sysfs does not:
// the MTU that a port uses, whether a device does atomic operations, whether it takes memory of
// GPUs as dma-buf.
//
// Rates, states, GIDs, GUIDs and firmware are in sysfs, and read there (topology/probe/net.cc), as
// a kernel knows newer rates than an old library's enumeration. The library is opened at run time
// and may be absent; a build without <infiniband/verbs.h> never has it. As with NVML (nvml.h) all
// is asked here, once, and a capture keeps the value as JSON.
#pragma once
#include <string>
#include <string_view>
#include <vector>

#include "tutti/result.h"

namespace tutti::topology {

struct VerbsPort {
  int number = 0;                       // From 1.
  int active_mtu = 0, maximum_mtu = 0;  // Bytes; 0: not known.
  friend bool operator==(const VerbsPort&, const VerbsPort&) = default;
};

struct VerbsDevice {
  std::string name;     // "mlx5_0", as in /sys/class/infiniband.
  std::string atomics;  // "none", "device": among its own; "global": with processors too. Or "".
  std::string dma_buf;  // "yes", "no", or "": not known.
  std::vector<VerbsPort> ports;
  friend bool operator==(const VerbsDevice&, const VerbsDevice&) = default;
};

struct VerbsFacts {
  std::vector<VerbsDevice> devices;
  friend bool operator==(const VerbsFacts&, const VerbsFacts&) = default;
};

/// Asks the library, which opens each device for a moment. Where there is none, or no device, that
/// is an Error that says so: kUnsupported. A device that can't be opened (no /dev/infiniband in a
/// container) has its name and nothing else.
Result<VerbsFacts> read_verbs(const char* library = "libibverbs.so.1");

/// As a capture keeps it: the facts, or why there are none.
std::string verbs_to_json(const Result<VerbsFacts>& facts);
/// The reason, if the capture has one, is the Error again.
Result<VerbsFacts> verbs_from_json(std::string_view text, std::string_view source);

}  // namespace tutti::topology
