// CUDA's driver: two GPUs of compute capability 9.0. The second refuses access to its memory.
#include "fake_driver.h"

namespace {
constexpr int kNotInitialized = 3, kInvalidValue = 1;
bool initialized = false;
}  // namespace

FAKE_DRIVER int cuInit(unsigned flags) {
  if (flags != 0) return kInvalidValue;
  MAY_FAIL(802);
  initialized = true;
  return 0;
}
FAKE_DRIVER int cuDriverGetVersion(int* version) {
  MAY_FAIL(kInvalidValue);
  *version = 12040;
  return 0;
}
FAKE_DRIVER int cuDeviceGetCount(int* count) {
  MAY_FAIL(kInvalidValue);
  if (!initialized) return kNotInitialized;
  *count = 2;
  return 0;
}
// A device is not its ordinal: 40 and 41 here, so that code that mixes them up fails.
FAKE_DRIVER int cuDeviceGet(int* device, int ordinal) {
  MAY_FAIL(kInvalidValue);
  if (ordinal < 0 || ordinal > 1) return kInvalidValue;
  *device = 40 + ordinal;
  return 0;
}
FAKE_DRIVER int cuDeviceGetPCIBusId(char* text, int size, int device) {
  MAY_FAIL(kInvalidValue);
  if (device < 40 || device > 41 || size < 13) return kInvalidValue;
  fake_driver::copy(text, static_cast<std::size_t>(size), fake_driver::kBus[device - 40] + 4);
  return 0;
}
FAKE_DRIVER int cuDeviceGetAttribute(int* value, int attribute, int device) {
  MAY_FAIL(kInvalidValue);
  if (device < 40 || device > 41) return kInvalidValue;
  switch (attribute) {
    case 75: *value = 9; return 0;             // Compute capability, major.
    case 76: *value = 0; return 0;             // Minor.
    case 116: *value = 1; return 0;            // GPUDirect RDMA.
    case 124: *value = 41 - device; return 0;  // dma-buf: the first only.
    case 132: *value = 1; return 0;            // Multicast.
    case 134: *value = device - 40; return 0;  // The host's NUMA node.
    default: return kInvalidValue;             // 128, fabric handles: this driver is too old.
  }
}
FAKE_DRIVER int cuDeviceCanAccessPeer(int* can, int device, int peer) {
  MAY_FAIL(kInvalidValue);
  if (device < 40 || device > 41 || peer < 40 || peer > 41 || device == peer) return kInvalidValue;
  *can = device == 41 ? 1 : 0;
  return 0;
}
FAKE_DRIVER int cuDeviceGetP2PAttribute(int* value, int attribute, int from, int to) {
  MAY_FAIL(kInvalidValue);
  if (from == to || attribute < 1 || attribute > 4) return kInvalidValue;
  *value = attribute == 2 ? (from == 41 ? 1 : 0) : 0;
  return 0;
}
