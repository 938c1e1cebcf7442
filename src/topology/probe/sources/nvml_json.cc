// File: topology/probe/sources/nvml_json.cc: NVML's answers in a capture.
#include <fmt/format.h>

#include "topology/probe/sources/driver_json.h"
#include "topology/probe/sources/nvml.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostGpus = 256, kMostLinks = 64;

Json rate_to_json(const PcieRate& rate) { return Json::array({rate.gigatransfers, rate.width}); }

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
  gpu.p2p = get_list(object, "p2p", kMostGpus, 6);
  return gpu;
}

}  // namespace

std::string nvml_to_json(const Result<NvmlFacts>& answer) {
  if (!answer) return absent_to_json(answer.error());
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
  return text_of({{"driver", facts.driver}, {"gpus", gpus}});
}

Result<NvmlFacts> nvml_from_json(std::string_view text, std::string_view source) {
  TUTTI_TRY(const Json whole, parse_answers(text, source, "gpus", kMostGpus));
  NvmlFacts facts;
  get(whole, "driver", facts.driver);
  for (const Json& gpu : whole["gpus"]) facts.gpus.push_back(gpu_from_json(gpu));
  return facts;
}

}  // namespace tutti::topology
