#include "cuda/comm/host_graph.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "comm/exchange_over.h"
#include "cuda/comm/graph_costs.h"
#include "topology/graph/text.h"
#include "topology/probe/probe.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti {
namespace {

constexpr std::size_t kMostBytes = std::size_t{512} << 10;  // A large host has 100 KiB.

/// Rank 0's, as it tells it: a line that says what the graph is of, or why there is none, and the
/// text of the graph.
struct Told {
  std::string source, why_not, text;
};

/// NICs are not asked by verbs, as no rank goes by them.
Told probe(const DeviceInfo& mine) {
  const std::string host(mine.peer.host_name,
                         strnlen(mine.peer.host_name, sizeof mine.peer.host_name));
  topology::ProbeOptions options;
  options.verbs = "";
  return {fmt::format("topology of {} (probe)", host.empty() ? "this host" : host), "",
          topology::print(topology::probe_machine(options).graph)};
}

Result<Told> read(const std::string& path, Rank me) {
  const auto failed = [&](const std::string& why) {
    return Error{Code::kInvalidArgument, fmt::format("TUTTI_TOPOLOGY={}: {}", path, why), me};
  };
  std::ifstream file(path, std::ios::binary);
  std::string text(kMostBytes + 1, '\0');
  if (!file.read(text.data(), static_cast<std::streamsize>(text.size())) && !file.eof())
    return failed("it can't be read");
  text.resize(static_cast<std::size_t>(file.gcount()));
  if (text.size() > kMostBytes)
    return failed(fmt::format("it is longer than {} bytes", kMostBytes));
  const auto graph = topology::parse_graph(text, path);
  if (!graph) {
    return failed(
        fmt::format("{}; a communicator reads the text form alone, which `tutti topo "
                    "export --from {} -o FILE` writes",
                    graph.error().what, path));
  }
  return Told{fmt::format("topology of {}", path), "", std::move(text)};
}

Result<Told> ask(const DeviceRank& self, const DeviceInfo& mine) {
  const std::string& setting = self.settings.topology;
  if (setting == "off") return Told{"", "TUTTI_TOPOLOGY=off", ""};
  Told told;
  if (setting.empty()) {
    told = probe(mine);
  } else {
    TUTTI_TRY(told, read(setting, self.me));
  }
  if (told.text.size() > kMostBytes)
    return Told{"", fmt::format("the {} has {} bytes", told.source, told.text.size()), ""};
  return told;
}

Bytes to_bytes(const Told& told) {
  const std::string all = told.source + '\n' + told.why_not + '\n' + told.text;
  const auto* first = reinterpret_cast<const std::byte*>(all.data());
  return {first, first + all.size()};
}

Told to_told(const Bytes& bytes) {
  const std::string all(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const std::size_t one = std::min(all.find('\n'), all.size()),
                    two = std::min(all.find('\n', one + 1), all.size());
  if (two == all.size()) return {};
  return {all.substr(0, one), all.substr(one + 1, two - one - 1), all.substr(two + 1)};
}

/// What rank 0 finds. Collective.
Result<HostGraph> share(DeviceRank& self, const DeviceInfo& mine) {
  Bytes said;
  if (self.me.value == 0) {
    auto told = ask(self, mine);
    if (!told) {
      (void)end_exchange_over(self.control, &told.error());
      return std::move(told.error());
    }
    said = to_bytes(*told);
  }
  TUTTI_TRY(auto all, exchange_over(self.control, said));
  if (all[0].error) return *std::move(all[0].error);
  Told told = to_told(all[0].bytes.value_or(Bytes{}));
  HostGraph found{true, nullptr, std::move(told.source), std::move(told.why_not)};
  if (!found.why_not.empty()) return found;
  auto graph = topology::parse_graph(told.text, found.source);
  if (graph)
    found.graph = std::make_shared<const topology::Graph>(*std::move(graph));
  else
    found.why_not = graph.error().what;
  return found;
}

}  // namespace

Status learn_graph(DeviceRank& self, const std::vector<DeviceInfo>& all, const HostGraph& known) {
  planner::DeviceMachine& machine = self.machine;
  HostGraph& own = self.topology;
  const auto& devices = machine.device_of;
  if (!machine.hosts.of.empty()) {
    own.why_not = "ranks are on several hosts";
    return ok();
  }
  if (*std::max_element(devices.begin(), devices.end()) == 0) {
    own.why_not = "there is one device";
    return ok();
  }
  own = known;
  if (!known.asked) {
    TUTTI_TRY(own, share(self, all[0]));
  }
  if (own.graph == nullptr) return ok();
  own.why_not.clear();  // It was about other ranks.
  std::vector<std::string> buses;
  for (const DeviceInfo& one : all) buses.push_back(topology::parse_bus(one.bus));
  auto costs = planner::graph_costs(own.graph, own.source, machine, buses);
  if (costs)
    machine.graph = std::make_shared<const planner::GraphCosts>(*std::move(costs));
  else
    own.why_not = fmt::format("{}: {}", own.source, costs.error().what);
  return ok();
}

}  // namespace tutti
