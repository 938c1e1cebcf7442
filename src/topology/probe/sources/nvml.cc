#include "topology/probe/sources/nvml.h"

#include <fmt/format.h>

#include <array>
#include <cstring>

#include "base/driver_library.h"
#include "topology/probe/sources/nvml_types.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

using nvml::FabricInfo;
using nvml::FieldValue;
using nvml::PciInfo;
using Handle = struct NvmlDevice*;
constexpr unsigned kFabricInfoV2 = sizeof(FabricInfo) | 2U << 24;
constexpr unsigned kMostGpus = 256, kMostLinks = 18;

/// It has more than 20 functions: one for each question to NVML.
struct Library : DriverLibrary {
  using DriverLibrary::DriverLibrary;
  int (*init)() = find("nvmlInit_v2");
  int (*shutdown)() = find("nvmlShutdown");
  int (*driver)(char*, unsigned) = find("nvmlSystemGetDriverVersion");
  int (*count)(unsigned*) = find("nvmlDeviceGetCount_v2");
  int (*by_index)(unsigned, Handle*) = find("nvmlDeviceGetHandleByIndex_v2");
  int (*by_bus)(const char*, Handle*) = find("nvmlDeviceGetHandleByPciBusId_v2");
  int (*pci)(Handle, PciInfo*) = find("nvmlDeviceGetPciInfo_v3");
  int (*uuid)(Handle, char*, unsigned) = find("nvmlDeviceGetUUID");
  int (*name)(Handle, char*, unsigned) = find("nvmlDeviceGetName");
  int (*capability)(Handle, int*, int*) = find("nvmlDeviceGetCudaComputeCapability");
  int (*current_generation)(Handle, unsigned*) = find("nvmlDeviceGetCurrPcieLinkGeneration");
  int (*current_width)(Handle, unsigned*) = find("nvmlDeviceGetCurrPcieLinkWidth");
  int (*maximum_generation)(Handle, unsigned*) = find("nvmlDeviceGetMaxPcieLinkGeneration");
  int (*maximum_width)(Handle, unsigned*) = find("nvmlDeviceGetMaxPcieLinkWidth");
  int (*link_state)(Handle, unsigned, int*) = find("nvmlDeviceGetNvLinkState");
  int (*link_version)(Handle, unsigned, unsigned*) = find("nvmlDeviceGetNvLinkVersion");
  int (*link_remote)(Handle, unsigned, PciInfo*) = find("nvmlDeviceGetNvLinkRemotePciInfo_v2");
  int (*link_remote_type)(Handle, unsigned, int*) = find("nvmlDeviceGetNvLinkRemoteDeviceType");
  int (*p2p)(Handle, Handle, int, int*) = find("nvmlDeviceGetP2PStatus");
  int (*fields)(Handle, int, FieldValue*) = find("nvmlDeviceGetFieldValues");
  int (*fabric)(Handle, FabricInfo*) = find("nvmlDeviceGetGpuFabricInfoV");
  bool ready = false;

  ~Library() {
    if (ready) shutdown();
  }
};

template <std::size_t kSize, class Function>
std::string ask_text(Function function, Handle device) {
  std::array<char, kSize> text{};
  if (!ask(function, device, text.data(), static_cast<unsigned>(kSize))) return {};
  text.back() = '\0';
  return text.data();
}

std::string bus_of(const PciInfo& info) {
  return parse_bus(std::string_view(info.bus_id, strnlen(info.bus_id, sizeof(info.bus_id))));
}

PcieRate rate_of(unsigned generation, unsigned width) {
  constexpr std::array kSpeeds{0.0, 2.5, 5.0, 8.0, 16.0, 32.0, 64.0};
  if (generation >= kSpeeds.size() || width > 32) return {};
  return {kSpeeds[generation], static_cast<int>(width)};
}

double field_value(const FieldValue& field) {
  if (field.result != 0) return 0;
  switch (field.type) {
    case 0: return field.value.as_double;
    case 1: return field.value.as_unsigned;
    case 2:
    case 3: return static_cast<double>(field.value.as_long);
    default: return 0;
  }
}

std::vector<NvmlLink> read_links(const Library& library, Handle device) {
  std::vector<NvmlLink> links;
  for (unsigned i = 0; i < kMostLinks; ++i) {
    int state = 0;
    if (!ask(library.link_state, device, i, &state)) {
      FieldValue field{};
      field.field = nvml::kFieldNvlinkState;
      field.scope = i;
      if (!ask(library.fields, device, 1, &field) || field.result != 0) continue;
      state = static_cast<int>(field_value(field));
    }
    NvmlLink link;
    link.index = static_cast<int>(i);
    link.active = state == 1;
    int type = 255;
    if (ask(library.link_remote_type, device, i, &type) && type >= 0 && type <= 2) {
      link.remote = static_cast<NvmlLink::Remote>(type);
    }
    PciInfo remote{};
    if (link.active && ask(library.link_remote, device, i, &remote)) link.bus = bus_of(remote);
    unsigned version = 0;
    if (ask(library.link_version, device, i, &version) && version < 100) {
      link.version = static_cast<int>(version);
    }
    links.push_back(std::move(link));
  }
  return links;
}

void read_c2c(const Library& library, Handle device, NvmlGpu& gpu) {
  FieldValue count{};
  count.field = nvml::kFieldC2cCount;
  if (!ask(library.fields, device, 1, &count)) return;
  const double links = field_value(count);
  for (unsigned i = 0; i < kMostLinks && i < links; ++i) {
    std::array<FieldValue, 2> fields{};
    fields[0].field = nvml::kFieldC2cStatus;
    fields[1].field = nvml::kFieldC2cMaxMbps;
    fields[0].scope = fields[1].scope = i;
    if (!ask(library.fields, device, 2, fields.data()) || field_value(fields[0]) == 0) continue;
    ++gpu.c2c_count;
    gpu.c2c_gbs = field_value(fields[1]) / 1000;
  }
}

void read_fabric(const Library& library, Handle device, NvmlGpu& gpu) {
  FabricInfo fabric{};
  fabric.version = kFabricInfoV2;
  if (!ask(library.fabric, device, &fabric)) return;
  bool some = false;
  std::string uuid;
  for (const unsigned char byte : fabric.cluster) {
    some = some || byte != 0;
    uuid += fmt::format("{:02x}", byte);
  }
  if (!some) return;  // All zero: not in a fabric of several hosts.
  gpu.fabric_uuid = uuid;
  gpu.fabric_clique = static_cast<int>(fabric.clique);
  gpu.fabric_state = fabric.state;
}

NvmlGpu read_gpu(const Library& library, Handle device, unsigned index) {
  NvmlGpu gpu;
  gpu.index = static_cast<int>(index);
  PciInfo pci{};
  if (ask(library.pci, device, &pci)) gpu.bus = bus_of(pci);
  gpu.uuid = ask_text<96>(library.uuid, device);
  gpu.name = ask_text<96>(library.name, device);
  int major = 0, minor = 0;
  if (ask(library.capability, device, &major, &minor)) gpu.sm = major * 10 + minor;
  unsigned generation = 0, width = 0;
  if (ask(library.current_generation, device, &generation) &&
      ask(library.current_width, device, &width)) {
    gpu.current = rate_of(generation, width);
  }
  if (ask(library.maximum_generation, device, &generation) &&
      ask(library.maximum_width, device, &width)) {
    gpu.maximum = rate_of(generation, width);
  }
  gpu.links = read_links(library, device);
  read_c2c(library, device, gpu);
  read_fabric(library, device, gpu);
  return gpu;
}

Error absent(std::string what) { return {Code::kUnsupported, std::move(what), {}, {}}; }

Status open(const char* name, Library& library) {
  if (!library.opened()) return absent(fmt::format("no NVML: there is no {}", name));
  if (library.shutdown == nullptr || !ask(library.init)) {
    return absent(fmt::format("no NVML: {} does not find a driver", name));
  }
  library.ready = true;
  return ok();
}

}  // namespace

Result<std::vector<NvmlLink>> read_nvlinks(const std::string& bus, const char* name) {
  Library library(name);
  TUTTI_RETURN_IF_ERROR(open(name, library));
  Handle device = nullptr;
  if (!ask(library.by_bus, bus.c_str(), &device))
    return absent(fmt::format("NVML knows no GPU at {}", bus));
  return read_links(library, device);
}

Result<NvmlFacts> read_nvml(const char* name) {
  Library library(name);
  TUTTI_RETURN_IF_ERROR(open(name, library));
  NvmlFacts facts;
  std::array<char, 96> driver{};
  if (ask(library.driver, driver.data(), 96U)) facts.driver = driver.data();
  unsigned count = 0;
  if (!ask(library.count, &count))
    return absent("no NVML: it does not say how many GPUs there are");
  std::vector<Handle> devices;
  for (unsigned i = 0; i < count && i < kMostGpus; ++i) {
    Handle device = nullptr;
    if (!ask(library.by_index, i, &device)) continue;
    devices.push_back(device);
    facts.gpus.push_back(read_gpu(library, device, i));
  }
  for (std::size_t a = 0; a < devices.size(); ++a) {
    for (std::size_t b = 0; b < devices.size(); ++b) {
      constexpr int kRead = 0, kStatusUnknown = 6;
      int status = a == b ? 0 : kStatusUnknown;
      if (a != b && !ask(library.p2p, devices[a], devices[b], kRead, &status)) {
        status = kStatusUnknown;
      }
      facts.gpus[a].p2p.push_back(status);
    }
  }
  return facts;
}

}  // namespace tutti::topology
