// File: topology/probe/sources/nvml_types.h: NVML's types as its public documentation has them, so
// far as they are used here: its header comes with no package that we need otherwise. For the code
// that calls the library (nvml.cc) and the code that stands in for it (simt/runtime_nvml.cc).
#pragma once

namespace tutti::topology::nvml {

struct PciInfo {
  char legacy_bus[16];
  unsigned domain, bus, device, pci_device, pci_subsystem;
  char bus_id[32];
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency_us;
  int type, result;
  union {
    double as_double;
    unsigned as_unsigned;
    unsigned long long as_long;
  } value;
};
struct FabricInfo {
  unsigned version;
  unsigned char cluster[16];
  int status;
  unsigned clique;
  unsigned char state;
  unsigned health;
};
constexpr unsigned kFieldNvlinkState = 165, kFieldC2cCount = 170, kFieldC2cStatus = 171,
                   kFieldC2cMaxMbps = 172;

}  // namespace tutti::topology::nvml
