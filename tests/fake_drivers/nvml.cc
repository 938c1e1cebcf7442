// NVIDIA's management library: two GPUs of compute capability 9.0, 17 of 18 NVLinks of the second
// up.
#include <string_view>

#include "fake_driver.h"

namespace {

constexpr int kUninitialized = 1, kInvalidArgument = 2, kNotSupported = 3;
int open_count = 0;
int gpus[2];  // Their addresses are the handles.

struct PciInfo {
  char legacy[16];
  unsigned domain, bus, device, id, subsystem;
  char text[32];
};
struct FieldValue {
  unsigned field, scope;
  long long timestamp, latency;
  unsigned type;
  int result;
  union {
    double d;
    int si;
    unsigned ui;
    unsigned long ul;
    unsigned long long ull;
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

int index_of(const void* device) { return device == &gpus[0] ? 0 : device == &gpus[1] ? 1 : -1; }
int pci_of(const char* text, PciInfo* pci) {
  fake_driver::copy(pci->text, sizeof pci->text, text);
  fake_driver::copy(pci->legacy, sizeof pci->legacy, text + 4);
  return 0;
}

}  // namespace

FAKE_DRIVER int nvmlInit_v2() {
  MAY_FAIL(9);  // No driver.
  ++open_count;
  return 0;
}
FAKE_DRIVER int nvmlShutdown() {
  --open_count;
  return 0;
}
// For the test: how often it was opened and not shut down.
FAKE_DRIVER int tutti_fake_driver_open_count() { return open_count; }

FAKE_DRIVER int nvmlSystemGetDriverVersion(char* text, unsigned size) {
  MAY_FAIL(kNotSupported);
  fake_driver::copy(text, size, "550.54");
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetCount_v2(unsigned* count) {
  MAY_FAIL(kNotSupported);
  if (open_count == 0) return kUninitialized;
  *count = 2;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
  MAY_FAIL(kNotSupported);
  if (index > 1) return kInvalidArgument;
  *device = &gpus[index];
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetHandleByPciBusId_v2(const char* bus, void** device) {
  MAY_FAIL(kNotSupported);
  for (unsigned i = 0; i < 2; ++i) {
    if (std::string_view(fake_driver::kBus[i]).ends_with(bus)) {
      *device = &gpus[i];
      return 0;
    }
  }
  return kInvalidArgument;
}
FAKE_DRIVER int nvmlDeviceGetPciInfo_v3(void* device, PciInfo* pci) {
  MAY_FAIL(kNotSupported);
  return pci_of(fake_driver::kBus[index_of(device)], pci);
}
FAKE_DRIVER int nvmlDeviceGetUUID(void* device, char* text, unsigned size) {
  MAY_FAIL(kNotSupported);
  fake_driver::copy(text, size, index_of(device) == 0 ? "GPU-a" : "GPU-b");
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetName(void*, char* text, unsigned size) {
  MAY_FAIL(kNotSupported);
  fake_driver::copy(text, size, "a GPU");
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) {
  MAY_FAIL(kNotSupported);
  *major = 9;
  *minor = 0;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetCurrPcieLinkGeneration(void*, unsigned* value) {
  MAY_FAIL(kNotSupported);
  *value = 1;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetCurrPcieLinkWidth(void*, unsigned* value) {
  MAY_FAIL(kNotSupported);
  *value = 8;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetMaxPcieLinkGeneration(void*, unsigned* value) {
  MAY_FAIL(kNotSupported);
  *value = 5;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetMaxPcieLinkWidth(void*, unsigned* value) {
  MAY_FAIL(kNotSupported);
  *value = 16;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetNvLinkState(void* device, unsigned link, int* state) {
  MAY_FAIL(kNotSupported);
  if (link > 17) return kInvalidArgument;
  *state = index_of(device) == 1 && link == 17 ? 0 : 1;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetNvLinkVersion(void*, unsigned, unsigned* version) {
  MAY_FAIL(kNotSupported);
  *version = 4;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetNvLinkRemotePciInfo_v2(void*, unsigned, PciInfo* pci) {
  MAY_FAIL(kNotSupported);
  return pci_of("00000000:A9:00.0", pci);
}
FAKE_DRIVER int nvmlDeviceGetNvLinkRemoteDeviceType(void*, unsigned, int* type) {
  MAY_FAIL(kNotSupported);
  *type = 2;  // A switch.
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetP2PStatus(void* from, void* to, int what, int* status) {
  MAY_FAIL(kNotSupported);
  if (what != 0 || from == to) return kInvalidArgument;
  *status = index_of(from) == 0 ? 0 : 3;
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* fields) {
  MAY_FAIL(kNotSupported);
  for (int i = 0; i < count; ++i) {
    FieldValue& field = fields[i];
    field.result = 0;
    field.type = 1;
    switch (field.field) {
      case 165:  // State of a link.
        field.value.ui = index_of(device) == 1 && field.scope == 17 ? 0 : 1;
        break;
      case 170:  // How many C2C links.
        field.value.ui = index_of(device) == 0 ? 2 : 0;
        break;
      case 171: field.value.ui = field.scope == 0 ? 1 : 0; break;  // Up: the first.
      case 172:                                                    // MB/s.
        field.type = 3;
        field.value.ull = 44712;
        break;
      default: field.result = kNotSupported;
    }
  }
  return 0;
}
FAKE_DRIVER int nvmlDeviceGetGpuFabricInfoV(void*, FabricInfo* info) {
  MAY_FAIL(kNotSupported);
  if (info->version != (sizeof(FabricInfo) | 2U << 24)) return 25;  // Another version.
  std::memset(info->cluster, 0xab, sizeof info->cluster);
  info->clique = 7;
  info->state = 3;
  return 0;
}
