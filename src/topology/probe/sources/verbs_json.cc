// File: topology/probe/sources/verbs_json.cc: libibverbs' answers in a capture.
#include "topology/probe/sources/driver_json.h"
#include "topology/probe/sources/verbs.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostDevices = 256, kMostPorts = 16;

VerbsDevice device_from_json(const Json& object) {
  VerbsDevice device;
  get(object, "name", device.name);
  get(object, "atomics", device.atomics);
  get(object, "dma_buf", device.dma_buf);
  const auto ports = object.find("ports");
  if (ports == object.end() || !ports->is_array()) return device;
  for (const Json& one : *ports) {
    if (!one.is_object() || device.ports.size() == kMostPorts) continue;
    VerbsPort port;
    get(one, "number", port.number);
    get(one, "active_mtu", port.active_mtu);
    get(one, "maximum_mtu", port.maximum_mtu);
    device.ports.push_back(port);
  }
  return device;
}

}  // namespace

std::string verbs_to_json(const Result<VerbsFacts>& answer) {
  if (!answer) return absent_to_json(answer.error());
  Json devices = Json::array();
  for (const VerbsDevice& device : answer->devices) {
    Json ports = Json::array();
    for (const VerbsPort& port : device.ports) {
      ports.push_back({{"number", port.number},
                       {"active_mtu", port.active_mtu},
                       {"maximum_mtu", port.maximum_mtu}});
    }
    devices.push_back({{"name", device.name},
                       {"atomics", device.atomics},
                       {"dma_buf", device.dma_buf},
                       {"ports", ports}});
  }
  return text_of({{"devices", devices}});
}

Result<VerbsFacts> verbs_from_json(std::string_view text, std::string_view source) {
  TUTTI_TRY(const Json whole, parse_answers(text, source, "devices", kMostDevices));
  VerbsFacts facts;
  for (const Json& device : whole["devices"]) facts.devices.push_back(device_from_json(device));
  return facts;
}

}  // namespace tutti::topology
