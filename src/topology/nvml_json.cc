// File: topology/nvml_json.cc: NVML's answers in a capture.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "topology/nvml.h"
#include "topology/sysfs.h"

namespace tutti::topology {
namespace {

using Json = nlohmann::json;
constexpr std::size_t kMostGpus = 256, kMostLinks = 64;

Json rate_to_json(const PcieRate& rate) { return Json::array({rate.gigatransfers, rate.width}); }

// Members that are absent or of another type keep their value: the file is from outside.
template <class Value>
void get(const Json& object, const char* key, Value& value) {
  const auto found = object.find(key);
  if (found == object.end()) return;
  if constexpr (std::is_same_v<Value, std::string>) {
    if (found->is_string()) value = found->template get<std::string>().substr(0, 256);
  } else if constexpr (std::is_same_v<Value, bool>) {
    if (found->is_boolean()) value = found->template get<bool>();
  } else {
    if (found->is_number() && found->template get<double>() > -1e6 &&
        found->template get<double>() < 1e6) {
      value = found->template get<Value>();
    }
  }
}

PcieRate rate_from_json(const Json& gpu, const char* key) {
  const auto found = gpu.find(key);
  if (found == gpu.end() || !found->is_array() || found->size() != 2) return {};
  const Json& speed = (*found)[0];
  const Json& width = (*found)[1];
  if (!speed.is_number() || !width.is_number_unsigned()) return {};
  return {parse_link_speed(fmt::format("{} GT/s", speed.get<double>())),
          parse_link_width(std::to_string(width.get<std::uint64_t>()))};
}

NvmlLink link_from_json(const Json& object) {
  NvmlLink link;
  get(object, "index", link.index);
  get(object, "active", link.active);
  get(object, "version", link.version);
  int remote = 255;
  get(object, "remote", remote);
  if (remote >= 0 && remote <= 2) link.remote = static_cast<NvmlLink::Remote>(remote);
  std::string bus;
  get(object, "bus", bus);
  link.bus = parse_bus(bus);
  return link;
}

NvmlGpu gpu_from_json(const Json& object) {
  NvmlGpu gpu;
  get(object, "index", gpu.index);
  std::string bus;
  get(object, "bus", bus);
  gpu.bus = parse_bus(bus);
  get(object, "uuid", gpu.uuid);
  get(object, "name", gpu.name);
  get(object, "sm", gpu.sm);
  gpu.current = rate_from_json(object, "pcie_current");
  gpu.maximum = rate_from_json(object, "pcie_maximum");
  get(object, "c2c_count", gpu.c2c_count);
  get(object, "c2c_gbs", gpu.c2c_gbs);
  get(object, "fabric_uuid", gpu.fabric_uuid);
  get(object, "fabric_clique", gpu.fabric_clique);
  get(object, "fabric_state", gpu.fabric_state);
  if (const auto links = object.find("links"); links != object.end() && links->is_array()) {
    for (const Json& link : *links) {
      if (link.is_object() && gpu.links.size() < kMostLinks) {
        gpu.links.push_back(link_from_json(link));
      }
    }
  }
  if (const auto p2p = object.find("p2p"); p2p != object.end() && p2p->is_array()) {
    for (const Json& status : *p2p) {
      const bool sound = status.is_number_unsigned() && status.get<std::uint64_t>() < 256;
      if (gpu.p2p.size() < kMostGpus) gpu.p2p.push_back(sound ? status.get<int>() : 6);
    }
  }
  return gpu;
}

}  // namespace

std::string nvml_to_json(const Result<NvmlFacts>& answer) {
  // Names come from the driver; what is not UTF-8 must not make the writer throw.
  const auto text = [](const Json& whole) {
    return whole.dump(1, ' ', true, Json::error_handler_t::replace) + "\n";
  };
  if (!answer) return text({{"absent", answer.error().what}});
  const NvmlFacts& facts = *answer;
  Json gpus = Json::array();
  for (const NvmlGpu& gpu : facts.gpus) {
    Json links = Json::array();
    for (const NvmlLink& link : gpu.links) {
      links.push_back({{"index", link.index},
                       {"active", link.active},
                       {"remote", static_cast<int>(link.remote)},
                       {"bus", link.bus},
                       {"version", link.version}});
    }
    gpus.push_back({{"index", gpu.index},
                    {"bus", gpu.bus},
                    {"uuid", gpu.uuid},
                    {"name", gpu.name},
                    {"sm", gpu.sm},
                    {"pcie_current", rate_to_json(gpu.current)},
                    {"pcie_maximum", rate_to_json(gpu.maximum)},
                    {"links", links},
                    {"c2c_count", gpu.c2c_count},
                    {"c2c_gbs", gpu.c2c_gbs},
                    {"fabric_uuid", gpu.fabric_uuid},
                    {"fabric_clique", gpu.fabric_clique},
                    {"fabric_state", gpu.fabric_state},
                    {"p2p", gpu.p2p}});
  }
  return text({{"driver", facts.driver}, {"gpus", gpus}});
}

Result<NvmlFacts> nvml_from_json(std::string_view text, std::string_view source) {
  const Json whole = Json::parse(text, nullptr, false);
  const auto bad = [&](std::string_view what) {
    return Error{Code::kInvalidArgument, fmt::format("{}: {}", source, what), {}, {}};
  };
  if (!whole.is_object()) return bad("this is not the JSON of a capture");
  if (whole.contains("absent")) {
    std::string why = "no NVML in the capture";
    get(whole, "absent", why);
    return Error{Code::kUnsupported, why, {}, {}};
  }
  const auto gpus = whole.find("gpus");
  if (gpus == whole.end() || !gpus->is_array()) return bad("it has no list of GPUs");
  if (gpus->size() > kMostGpus) return bad(fmt::format("it has more than {} GPUs", kMostGpus));
  NvmlFacts facts;
  get(whole, "driver", facts.driver);
  for (const Json& gpu : *gpus) {
    if (!gpu.is_object()) return bad("one of its GPUs is no object");
    facts.gpus.push_back(gpu_from_json(gpu));
  }
  return facts;
}

}  // namespace tutti::topology
