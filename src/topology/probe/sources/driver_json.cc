// File: topology/probe/sources/driver_json.cc: what drivers' libraries said, in a capture, which is
// a file from outside when it is read back.
//
// members() lists what a value consists of, under its names in the JSON: once for both ways. What
// is absent or of another type leaves a value as it is.
#include <fmt/format.h>

#include "base/json.h"
#include "topology/probe/sources/cuda.h"
#include "topology/probe/sources/nvml.h"
#include "topology/probe/sources/sysfs.h"
#include "topology/probe/sources/verbs.h"

namespace tutti::topology {
namespace {

// A PCI address, which is checked when it is read.
struct Bus {
  std::string& text;
};
// At most `most` objects, or small whole numbers of which what is none becomes `odd`.
template <class Value>
struct List {
  std::vector<Value>& values;
  std::size_t most;
  int odd = 0;
};

template <class Codec>
void members(Codec& codec, CudaGpu& gpu) {
  codec("index", gpu.index);
  codec("bus", Bus{gpu.bus});
  codec("sm", gpu.sm);
  codec("host_numa", gpu.host_numa);
  codec("multicast", gpu.multicast);
  codec("fabric_handles", gpu.fabric_handles);
  codec("gpudirect_rdma", gpu.gpudirect_rdma);
  codec("dma_buf", gpu.dma_buf);
  codec("access", List<int>{gpu.access, 256, 2});
  codec("atomics", List<int>{gpu.atomics, 256, 2});
}
template <class Codec>
void members(Codec& codec, CudaFacts& facts) {
  codec("version", facts.version);
  codec("gpus", List<CudaGpu>{facts.gpus, 256});
}

template <class Codec>
void members(Codec& codec, NvmlLink& link) {
  codec("index", link.index);
  codec("active", link.active);
  codec("remote", link.remote);
  codec("bus", Bus{link.bus});
  codec("version", link.version);
}
template <class Codec>
void members(Codec& codec, NvmlGpu& gpu) {
  codec("index", gpu.index);
  codec("bus", Bus{gpu.bus});
  codec("uuid", gpu.uuid);
  codec("name", gpu.name);
  codec("sm", gpu.sm);
  codec("pcie_current", gpu.current);
  codec("pcie_maximum", gpu.maximum);
  codec("links", List<NvmlLink>{gpu.links, 64});
  codec("c2c_count", gpu.c2c_count);
  codec("c2c_gbs", gpu.c2c_gbs);
  codec("fabric_uuid", gpu.fabric_uuid);
  codec("fabric_clique", gpu.fabric_clique);
  codec("fabric_state", gpu.fabric_state);
  codec("p2p", List<int>{gpu.p2p, 256, 6});
}
template <class Codec>
void members(Codec& codec, NvmlFacts& facts) {
  codec("driver", facts.driver);
  codec("gpus", List<NvmlGpu>{facts.gpus, 256});
}

template <class Codec>
void members(Codec& codec, VerbsPort& port) {
  codec("number", port.number);
  codec("active_mtu", port.active_mtu);
  codec("maximum_mtu", port.maximum_mtu);
}
template <class Codec>
void members(Codec& codec, VerbsDevice& device) {
  codec("name", device.name);
  codec("atomics", device.atomics);
  codec("dma_buf", device.dma_buf);
  codec("ports", List<VerbsPort>{device.ports, 16});
}
template <class Codec>
void members(Codec& codec, VerbsFacts& facts) {
  codec("devices", List<VerbsDevice>{facts.devices, 256});
}

struct ToJson {
  Json object = Json::object();

  template <class Value>
  void operator()(const char* key, const Value& value) {
    object[key] = value;
  }
  void operator()(const char* key, const Bus& bus) { object[key] = bus.text; }
  void operator()(const char* key, NvmlLink::Remote remote) {
    object[key] = static_cast<int>(remote);
  }
  void operator()(const char* key, const PcieRate& rate) {
    object[key] = Json::array({rate.gigatransfers, rate.width});
  }
  void operator()(const char* key, const std::optional<bool>& flag) {
    if (flag) object[key] = *flag;
  }
  void operator()(const char* key, const List<int>& list) { object[key] = list.values; }
  template <class Value>
  void operator()(const char* key, const List<Value>& list) {
    Json& array = object[key] = Json::array();
    for (Value& value : list.values) {
      ToJson made;
      members(made, value);
      array.push_back(std::move(made.object));
    }
  }
};

struct FromJson {
  const Json& object;

  void operator()(const char* key, std::string& text) const {
    const Json* found = at(key);
    if (found != nullptr && found->is_string()) text = found->get<std::string>().substr(0, 256);
  }
  void operator()(const char* key, Bus bus) const {
    std::string text;
    (*this)(key, text);
    bus.text = parse_bus(text);
  }
  template <class Value>
  void operator()(const char* key, Value& number) const {
    const Json* found = at(key);
    if (found != nullptr && found->is_number() && std::abs(found->get<double>()) < 1e6) {
      number = found->get<Value>();
    }
  }
  void operator()(const char* key, bool& flag) const {
    const Json* found = at(key);
    if (found != nullptr && found->is_boolean()) flag = found->get<bool>();
  }
  void operator()(const char* key, std::optional<bool>& flag) const {
    const Json* found = at(key);
    if (found != nullptr && found->is_boolean()) flag = found->get<bool>();
  }
  void operator()(const char* key, NvmlLink::Remote& remote) const {
    int value = 255;
    (*this)(key, value);
    if (value >= 0 && value <= 2) remote = static_cast<NvmlLink::Remote>(value);
  }
  void operator()(const char* key, PcieRate& rate) const {
    const Json* found = at(key);
    if (found == nullptr || !found->is_array() || found->size() != 2) return;
    const Json &speed = (*found)[0], &width = (*found)[1];
    if (!speed.is_number() || !width.is_number_unsigned()) return;
    rate = {parse_link_speed(fmt::format("{} GT/s", speed.get<double>())),
            parse_link_width(std::to_string(width.get<std::uint64_t>()))};
  }
  template <class Value>
  void operator()(const char* key, List<Value> list) const {
    const Json* found = at(key);
    if (found == nullptr || !found->is_array()) return;
    for (const Json& one : *found) {
      if (list.values.size() == list.most) return;
      if constexpr (std::is_same_v<Value, int>) {
        const bool sound = one.is_number_unsigned() && one.get<std::uint64_t>() < 256;
        list.values.push_back(sound ? one.get<int>() : list.odd);
      } else if (one.is_object()) {
        FromJson from{one};
        members(from, list.values.emplace_back());
      }
    }
  }

 private:
  const Json* at(const char* key) const { return object.find(key); }
};

// Names come from the driver; what is not UTF-8 must not make the made throw.
std::string text_of(const Json& whole) {
  return whole.text({.indent = 1, .ascii = true, .sorted = true}) + "\n";
}

template <class Facts>
std::string write(Result<Facts> answer) {
  if (!answer) return text_of({{"absent", answer.error().what}});
  ToJson made;
  members(made, *answer);
  return text_of(made.object);
}

// `list` has to be there: at most 256 objects.
template <class Facts>
Result<Facts> read(std::string_view text, std::string_view source, const char* list) {
  const auto bad = [&](std::string_view what) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", source, what), {}, {}};
  };
  const Json whole = Json::parse(text).value_or(nullptr);
  if (!whole.is_object()) return bad("it is no JSON object");
  FromJson from{whole};
  if (whole.contains("absent")) {
    std::string why = "it was absent";
    from("absent", why);
    return Error{Code::kUnsupported, why, {}, {}};
  }
  const Json* found = whole.find(list);
  if (found == nullptr || !found->is_array()) {
    return bad(fmt::format("it has no list called {}", list));
  }
  if (found->size() > 256) return bad(fmt::format("{} has more than 256 members", list));
  for (const Json& one : *found) {
    if (!one.is_object()) return bad(fmt::format("a member of {} is no object", list));
  }
  Facts facts;
  members(from, facts);
  return facts;
}

}  // namespace

std::string cuda_to_json(const Result<CudaFacts>& facts) { return write(facts); }
std::string nvml_to_json(const Result<NvmlFacts>& facts) { return write(facts); }
std::string verbs_to_json(const Result<VerbsFacts>& facts) { return write(facts); }

Result<CudaFacts> cuda_from_json(std::string_view text, std::string_view source) {
  return read<CudaFacts>(text, source, "gpus");
}
Result<NvmlFacts> nvml_from_json(std::string_view text, std::string_view source) {
  return read<NvmlFacts>(text, source, "gpus");
}
Result<VerbsFacts> verbs_from_json(std::string_view text, std::string_view source) {
  return read<VerbsFacts>(text, source, "devices");
}

}  // namespace tutti::topology
