// File: simt/runtime_nvml.cc: the stand-in for NVML: libnvidia-ml.so.1 of the pretended machine.
//
// The functions that src/topology/probe/sources/nvml.cc calls, and two that torch asks for; answers
// are those of machine.h. A device's handle is its number and one.
#include <strings.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <string>
#include <type_traits>

#include "simt/engine.h"
#include "simt/machine.h"
#include "topology/probe/sources/nvml_types.h"

namespace tutti::simt {
namespace {

using Device = void*;
enum Answer { kSuccess = 0, kInvalid = 2, kNotSupported = 3, kNotFound = 6, kTooSmall = 7 };

using topology::nvml::FabricInfo;
using topology::nvml::FieldValue;
using topology::nvml::PciInfo;
constexpr int kUnsigned = 1;

int number_of(Device device) {
  const auto number = static_cast<int>(reinterpret_cast<std::uintptr_t>(device)) - 1;
  return number >= 0 && number < settings().devices ? number : -1;
}
const topology::NvmlGpu* gpu_of(Device device) {
  const int number = number_of(device);
  return number < 0 ? nullptr : &nvml_gpu(number);
}
const topology::NvmlLink* link_of(Device device, unsigned link) {
  const topology::NvmlGpu* gpu = gpu_of(device);
  return gpu == nullptr || link >= gpu->links.size() ? nullptr : &gpu->links[link];
}

template <class T>
int answer(T* to, std::type_identity_t<T> value) {
  *to = value;
  return kSuccess;
}
/// What `answers` says about a GPU or a link, if there is one.
template <class Found, class Answers>
int about(const Found* found, Answers answers) {
  return found == nullptr ? kInvalid : answers(*found);
}

int write_text(const std::string& text, char* to, unsigned room) {
  if (room <= text.size()) return kTooSmall;
  std::memcpy(to, text.c_str(), text.size() + 1);
  return kSuccess;
}

int write_pci(const std::string& bus, PciInfo* info) {
  *info = {};
  if (std::sscanf(bus.c_str(), "%x:%x:%x", &info->domain, &info->bus, &info->device) != 3) {
    return kNotSupported;
  }
  std::snprintf(info->bus_id, sizeof info->bus_id, "%08X:%02X:%02X.0", info->domain, info->bus,
                info->device);
  std::snprintf(info->legacy_bus, sizeof info->legacy_bus, "%04X:%02X:%02X.0",
                info->domain & 0xffff, info->bus & 0xff, info->device & 0xff);
  return kSuccess;
}

/// The generation of a rate in GT/s: 1 for 2.5, 2 for 5, 3 for 8, ...
int write_generation(const topology::PcieRate& rate, unsigned* generation) {
  constexpr std::array kSpeeds{2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
  const auto* const found = std::find(kSpeeds.begin(), kSpeeds.end(), rate.gigatransfers);
  if (found == kSpeeds.end()) return kNotSupported;
  return answer(generation, static_cast<unsigned>(found - kSpeeds.begin()) + 1);
}
int write_width(const topology::PcieRate& rate, unsigned* width) {
  return rate.known() ? answer(width, static_cast<unsigned>(rate.width)) : kNotSupported;
}

int write_field(Device device, FieldValue& field) {
  const topology::NvmlGpu& gpu = *gpu_of(device);
  const bool c2c = field.scope < static_cast<unsigned>(gpu.c2c_count);
  field.type = kUnsigned;
  switch (field.field) {
    case topology::nvml::kFieldNvlinkState:
      if (link_of(device, field.scope) == nullptr) return kNotSupported;
      field.value.as_unsigned = gpu.links[field.scope].active ? 1 : 0;
      break;
    case topology::nvml::kFieldC2cCount:
      field.value.as_unsigned = static_cast<unsigned>(gpu.c2c_count);
      break;
    case topology::nvml::kFieldC2cStatus: field.value.as_unsigned = c2c ? 1 : 0; break;
    case topology::nvml::kFieldC2cMaxMbps:
      field.value.as_unsigned = c2c ? static_cast<unsigned>(gpu.c2c_gbs * 1000) : 0;
      break;
    default: return kNotSupported;
  }
  return kSuccess;
}

}  // namespace
}  // namespace tutti::simt

using namespace tutti::simt;

extern "C" {

int nvmlInit_v2() { return kSuccess; }
int nvmlInit() { return kSuccess; }
int nvmlInitWithFlags(unsigned) { return kSuccess; }
int nvmlShutdown() { return kSuccess; }
const char* nvmlErrorString(int error) {
  switch (error) {
    case kSuccess: return "success";
    case kInvalid: return "invalid argument";
    case kNotSupported: return "not supported";
    case kNotFound: return "not found";
    case kTooSmall: return "insufficient size";
    default: return "an error that the simulator never gives";
  }
}
int nvmlSystemGetDriverVersion(char* text, unsigned room) {
  return write_text("simulated", text, room);
}
int nvmlDeviceGetCount_v2(unsigned* count) {
  return answer(count, static_cast<unsigned>(settings().devices));
}
int nvmlDeviceGetHandleByIndex_v2(unsigned index, Device* device) {
  *device = reinterpret_cast<Device>(static_cast<std::uintptr_t>(index) + 1);
  return gpu_of(*device) != nullptr ? kSuccess : kInvalid;
}
int nvmlDeviceGetHandleByPciBusId_v2(const char* text, Device* device) {
  const int count = settings().devices;
  for (int i = 0; i < count; ++i) {
    PciInfo info;
    if (write_pci(nvml_gpu(i).bus, &info) != kSuccess) continue;
    if (strcasecmp(text, info.bus_id) != 0 && strcasecmp(text, info.legacy_bus) != 0) continue;
    return nvmlDeviceGetHandleByIndex_v2(static_cast<unsigned>(i), device);
  }
  return kNotFound;
}
int nvmlDeviceGetIndex(Device device, unsigned* index) {
  return gpu_of(device) == nullptr ? kInvalid
                                   : answer(index, static_cast<unsigned>(number_of(device)));
}
int nvmlDeviceGetPciInfo_v3(Device device, PciInfo* info) {
  return about(gpu_of(device), [&](auto& gpu) { return write_pci(gpu.bus, info); });
}
int nvmlDeviceGetUUID(Device device, char* text, unsigned room) {
  return about(gpu_of(device), [&](auto& gpu) { return write_text(gpu.uuid, text, room); });
}
int nvmlDeviceGetName(Device device, char* text, unsigned room) {
  return about(gpu_of(device), [&](auto& gpu) { return write_text(gpu.name, text, room); });
}
int nvmlDeviceGetCudaComputeCapability(Device device, int* major, int* minor) {
  const auto* const gpu = gpu_of(device);
  if (gpu == nullptr) return kInvalid;
  *major = gpu->sm / 10;
  *minor = gpu->sm % 10;
  return kSuccess;
}
int nvmlDeviceGetCurrPcieLinkGeneration(Device device, unsigned* generation) {
  return about(gpu_of(device),
               [&](auto& gpu) { return write_generation(gpu.current, generation); });
}
int nvmlDeviceGetMaxPcieLinkGeneration(Device device, unsigned* generation) {
  return about(gpu_of(device),
               [&](auto& gpu) { return write_generation(gpu.maximum, generation); });
}
int nvmlDeviceGetCurrPcieLinkWidth(Device device, unsigned* width) {
  return about(gpu_of(device), [&](auto& gpu) { return write_width(gpu.current, width); });
}
int nvmlDeviceGetMaxPcieLinkWidth(Device device, unsigned* width) {
  return about(gpu_of(device), [&](auto& gpu) { return write_width(gpu.maximum, width); });
}
int nvmlDeviceGetNvLinkState(Device device, unsigned link, int* active) {
  return about(link_of(device, link), [&](auto& found) { return answer(active, found.active); });
}
int nvmlDeviceGetNvLinkVersion(Device device, unsigned link, unsigned* version) {
  return about(link_of(device, link), [&](auto& found) {
    return found.version == 0 ? kNotSupported
                              : answer(version, static_cast<unsigned>(found.version));
  });
}
int nvmlDeviceGetNvLinkRemotePciInfo_v2(Device device, unsigned link, PciInfo* info) {
  return about(link_of(device, link), [&](auto& found) { return write_pci(found.bus, info); });
}
int nvmlDeviceGetNvLinkRemoteDeviceType(Device device, unsigned link, int* type) {
  return about(link_of(device, link),
               [&](auto& found) { return answer(type, static_cast<int>(found.remote)); });
}
int nvmlDeviceGetP2PStatus(Device device, Device peer, int, int* status) {
  const auto* const gpu = gpu_of(device);
  if (gpu == nullptr || gpu_of(peer) == nullptr) return kInvalid;
  *status = gpu->p2p[static_cast<std::size_t>(number_of(peer))];
  return kSuccess;
}
/// None: which processes use simulated memory is not known.
int nvmlDeviceGetComputeRunningProcesses(Device device, unsigned* count, void* /*processes*/) {
  return gpu_of(device) == nullptr ? kInvalid : answer(count, 0);
}
int nvmlSystemGetCudaDriverVersion_v2(int* version) {
  return cudaDriverGetVersion(version) == cudaSuccess ? kSuccess : kNotSupported;
}
int nvmlDeviceGetFieldValues(Device device, int count, FieldValue* fields) {
  if (gpu_of(device) == nullptr) return kInvalid;
  for (int i = 0; i < count; ++i) fields[i].result = write_field(device, fields[i]);
  return kSuccess;
}
int nvmlDeviceGetGpuFabricInfoV(Device device, FabricInfo* info) {
  const auto* const gpu = gpu_of(device);
  if (gpu == nullptr) return kInvalid;
  if (gpu->fabric_uuid.size() != 2 * sizeof info->cluster) return kNotSupported;
  for (std::size_t i = 0; i < sizeof info->cluster; ++i) {
    unsigned byte = 0;
    if (std::sscanf(gpu->fabric_uuid.c_str() + 2 * i, "%2x", &byte) != 1) return kNotSupported;
    info->cluster[i] = static_cast<unsigned char>(byte);
  }
  info->status = kSuccess;
  info->clique = static_cast<unsigned>(gpu->fabric_clique);
  info->state = static_cast<unsigned char>(gpu->fabric_state);
  info->health = 0;
  return kSuccess;
}

}  // extern "C"
