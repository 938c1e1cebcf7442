// File: topology/readers/nccl_graph.cc: <graphs> of NCCL_GRAPH_DUMP_FILE. Numbers are decimal or,
// for devices of newer versions, hexadecimal with 0x.
#include "topology/readers/nccl_graph.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>

#include "topology/readers/xml.h"

namespace tutti::topology {
namespace {

constexpr std::size_t kMostChannels = 256;
constexpr std::size_t kMostGpus = 65536;

std::optional<std::uint64_t> whole(std::string_view text) {
  const bool hex = text.starts_with("0x");
  if (hex) text.remove_prefix(2);
  std::uint64_t value = 0;
  const char* last = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), last, value, hex ? 16 : 10);
  if (code != std::errc() || stop != last) return std::nullopt;
  return value;
}

class Graphs {
 public:
  explicit Graphs(const Xml& xml) : xml_(xml) {}
  Result<std::vector<NcclGraph>> read() const;

 private:
  Result<NcclGraph> graph(pugi::xml_node element) const;
  Result<NcclChannel> channel(pugi::xml_node element) const;
  Status number(pugi::xml_node element, const char* name, bool needed, int& value) const;
  Status number(pugi::xml_node element, const char* name, double& value) const;

  const Xml& xml_;
};

Status Graphs::number(pugi::xml_node element, const char* name, bool needed, int& value) const {
  const std::string_view text = element.attribute(name).value();
  if (text.empty() && !needed) return ok();
  const auto got = whole(text);
  if (!got || *got > 1'000'000) {
    return xml_.error(element, fmt::format("<{}> needs {}, a whole number, not '{}'",
                                           element.name(), name, text));
  }
  value = static_cast<int>(*got);
  return ok();
}

Status Graphs::number(pugi::xml_node element, const char* name, double& value) const {
  const std::string_view text = element.attribute(name).value();
  if (text.empty()) return ok();
  const char* last = text.data() + text.size();
  const auto [stop, code] = std::from_chars(text.data(), last, value);
  if (code != std::errc() || stop != last || !(value >= 0 && value < 1e9)) {
    return xml_.error(element, fmt::format("{} must be a number, not '{}'", name, text));
  }
  return ok();
}

Result<NcclChannel> Graphs::channel(pugi::xml_node element) const {
  NcclChannel made;
  for (const pugi::xml_node child : element.children()) {
    const std::string_view name = child.name();
    if (name != "gpu" && name != "net") continue;
    const auto dev = whole(child.attribute("dev").value());
    if (!dev || (name == "gpu" && *dev > 1'000'000)) {
      return xml_.error(child, fmt::format("<{}> needs dev, a whole number", name));
    }
    if (name == "net") {
      made.nets.push_back(*dev);
      continue;
    }
    made.gpus.push_back(static_cast<int>(*dev));
  }
  if (made.gpus.size() > kMostGpus) return xml_.error(element, "more than 65536 GPUs in a channel");
  std::vector<int> sorted = made.gpus;
  std::sort(sorted.begin(), sorted.end());
  const auto twice = std::adjacent_find(sorted.begin(), sorted.end());
  if (twice != sorted.end()) {
    return xml_.error(element, fmt::format("GPU {} is twice in a channel", *twice));
  }
  return made;
}

Result<NcclGraph> Graphs::graph(pugi::xml_node element) const {
  NcclGraph made;
  int same = 0;
  TUTTI_CHECK_OK(number(element, "id", true, made.id));
  TUTTI_CHECK_OK(number(element, "pattern", true, made.pattern));
  TUTTI_CHECK_OK(number(element, "nchannels", true, made.channel_count));
  TUTTI_CHECK_OK(number(element, "crossnic", false, made.cross_nic));
  TUTTI_CHECK_OK(number(element, "samechannels", false, same));
  TUTTI_CHECK_OK(number(element, "speedintra", made.speed_intra));
  TUTTI_CHECK_OK(number(element, "speedinter", made.speed_inter));
  TUTTI_CHECK_OK(number(element, "latencyinter", made.latency_inter));
  made.same_channels = same != 0;
  made.type_intra = element.attribute("typeintra").value();
  made.type_inter = element.attribute("typeinter").value();
  for (const pugi::xml_node child : element.children("channel")) {
    if (made.channels.size() == kMostChannels) return xml_.error(child, "more than 256 channels");
    TUTTI_TRY(NcclChannel one, channel(child));
    made.channels.push_back(std::move(one));
  }
  if (static_cast<int>(made.channels.size()) > made.channel_count) {
    return xml_.error(element, fmt::format("{} channels, and nchannels is {}", made.channels.size(),
                                           made.channel_count));
  }
  return made;
}

Result<std::vector<NcclGraph>> Graphs::read() const {
  if (std::string_view(xml_.root().name()) != "graphs") {
    return xml_.error(xml_.root(), fmt::format("<{}> instead of <graphs>; dump it with "
                                               "NCCL_GRAPH_DUMP_FILE",
                                               xml_.root().name()));
  }
  std::vector<NcclGraph> made;
  for (const pugi::xml_node child : xml_.root().children("graph")) {
    TUTTI_TRY(NcclGraph one, graph(child));
    made.push_back(std::move(one));
  }
  return made;
}

}  // namespace

Result<std::vector<NcclGraph>> parse_nccl_graphs(std::string_view text, std::string_view source) {
  TUTTI_TRY(const Xml xml, Xml::parse(text, source));
  return Graphs(xml).read();
}

}  // namespace tutti::topology
