#include "comm/topology.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "base/cpus.h"
#include "topology/graph/text.h"
#include "topology/graph/validate.h"
#include "topology/nccl/complete.h"
#include "topology/nccl/nccl_xml.h"
#include "topology/probe/probe.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti {
namespace {

using topology::Graph;
using topology::NodeId;
using topology::NodeKind;

// Rank 0's bytes begin with one of these.
constexpr char kGraph = 'G', kNone = 'N', kFailed = 'E';

struct CloseFile {
  void operator()(std::FILE* file) const { std::fclose(file); }
};

HostTopology probe() {
  // NICs are not asked by verbs, nor GPUs by their libraries: host ranks look at NUMA nodes alone.
  topology::ProbeOptions options;
  options.verbs = options.nvml = options.cuda = "";
  const Peer mine = this_process();
  const std::string name = host_name(mine);
  return {std::make_shared<const Graph>(topology::probe_machine(options).graph),
          fmt::format("topology of {} (probe)", name.empty() ? "this host" : name), ""};
}

Result<HostTopology> find(TopologySource source, const Settings& settings) {
  if (source == TopologySource::kProbed) return probe();
  TUTTI_TRY(auto file, read_topology_file(settings.topology));
  if (file.partial) topology::complete(file.graph, *probe().graph);
  return HostTopology{std::make_shared<const Graph>(std::move(file.graph)),
                      fmt::format("topology of {}", settings.topology), ""};
}

/// What is merely doubtful in a file is not said here, but by `tutti topo check`.
Result<TopologyFile> read_nccl(std::string_view text, const std::string& path) {
  TUTTI_TRY(auto read, topology::read_nccl_xml(text, path));
  TUTTI_TRY([[maybe_unused]] const auto findings, topology::validate(read.graph, path));
  const bool partial = read.graph.all(NodeKind::kHost).size() == 1;
  return TopologyFile{std::move(read.graph), partial};
}

Bytes pack(const Result<HostTopology>& found) {
  std::string text;
  if (!found) {
    text = kFailed + found.error().what;
  } else {
    const std::string graph = topology::print(*found->graph);
    text = graph.size() > kMostTopologyBytes
               ? fmt::format("{}the {} has {} bytes", kNone, found->source, graph.size())
               : fmt::format("{}{}\n{}", kGraph, found->source, graph);
  }
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

Result<HostTopology> unpack(const Bytes& bytes) {
  const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  if (text.starts_with(kFailed)) return Error{Code::kInvalidArgument, text.substr(1), {}, Rank{0}};
  if (text.starts_with(kNone)) return HostTopology{nullptr, "", text.substr(1)};
  const std::size_t end = text.find('\n');
  if (!text.starts_with(kGraph) || end == std::string::npos)
    return Error{Code::kMismatch, "rank 0 sent something else than its topology", {}, Rank{0}};
  HostTopology heard{nullptr, text.substr(1, end - 1), ""};
  auto graph = topology::parse_graph(std::string_view(text).substr(end + 1), heard.source);
  if (graph)
    heard.graph = std::make_shared<const Graph>(*std::move(graph));
  else
    heard.why_not = graph.error().what;
  return heard;
}

Error not_told(std::string what) { return {Code::kUnsupported, std::move(what)}; }

/// The host of each rank, counted in the order of ranks, and how many there are.
std::pair<std::vector<std::size_t>, std::size_t> count_hosts(std::span<const Peer> peers) {
  std::vector<std::size_t> firsts, of;
  for (const Peer& peer : peers) {
    const auto known = std::find_if(firsts.begin(), firsts.end(), [&](std::size_t first) {
      return std::equal(peer.host, std::end(peer.host), peers[first].host);
    });
    of.push_back(static_cast<std::size_t>(known - firsts.begin()));
    if (known == firsts.end()) firsts.push_back(of.size() - 1);
  }
  return {of, firsts.size()};
}

/// By rank.
Result<std::vector<NodeId>> hosts_in(const Graph& graph, std::span<const Peer> peers) {
  const auto hosts = graph.all(NodeKind::kHost);
  const auto [of, count] = count_hosts(peers);
  std::vector<NodeId> found;
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    if (hosts.size() > 1) {
      TUTTI_TRY(found.emplace_back(), find_host(graph, host_name(peers[rank]), of[rank], count));
    } else if (!hosts.empty() && on_one_machine(peers[0], peers[rank])) {
      found.push_back(hosts[0]);
    } else {
      return not_told("it is of one host, and ranks are on several");
    }
  }
  return found;
}

/// Whether all of these CPUs are of the NUMA node.
bool within(const CpuSet& cpus, const topology::Node& numa) {
  CpuSet others = cpus;
  for (const int cpu : topology::parse_cpu_list(fact(numa, "cpus"))) {
    const auto word = static_cast<std::size_t>(cpu) / 64;
    if (word < others.size()) others[word] &= ~(std::uint64_t{1} << (cpu % 64));
  }
  return std::all_of(others.begin(), others.end(), [](std::uint64_t word) { return word == 0; });
}

}  // namespace

TopologySource topology_source(const Settings& settings, int rank_count) {
  if (settings.topology == "off") return TopologySource::kNone;
  if (!settings.topology.empty()) return TopologySource::kFile;
  // Two ranks have nothing to choose by it.
  return rank_count > 2 && numa_nodes() > 1 ? TopologySource::kProbed : TopologySource::kNone;
}

Result<TopologyFile> read_topology_file(const std::string& path) {
  const auto failed = [&](const std::string& why) {
    return Error{Code::kInvalidArgument, fmt::format("TUTTI_TOPOLOGY={}: {}", path, why)};
  };
  const auto unreadable = [&] {
    return failed(fmt::format("it can't be read: {}", std::generic_category().message(errno)));
  };
  const std::unique_ptr<std::FILE, CloseFile> file(std::fopen(path.c_str(), "rbe"));
  if (file == nullptr) return unreadable();
  std::string text(kMostTopologyBytes + 1, 0);
  text.resize(std::fread(text.data(), 1, text.size(), file.get()));
  if (std::ferror(file.get()) != 0) return unreadable();
  if (text.size() > kMostTopologyBytes)
    return failed(fmt::format("it is longer than {} bytes", kMostTopologyBytes));
  if (topology::is_nccl_xml(text)) {
    auto read = read_nccl(text, path);
    if (!read)
      return failed(read.error().what + "; TUTTI_TOPOLOGY_DUMP=FILE writes one of this machine");
    return *std::move(read);
  }
  auto graph = topology::parse_graph(text, path);
  if (graph) return TopologyFile{*std::move(graph)};
  return failed(
      fmt::format("{}; a communicator reads the text form and NCCL's XML alone, and `tutti topo "
                  "export --from {} -o FILE` writes the text form",
                  graph.error().what, path));
}

Result<HostTopology> meet_topology(TopologySource source, const Settings& settings, Rank me,
                                   const Exchange& exchange) {
  const Bytes mine = me.value == 0 ? pack(find(source, settings)) : Bytes{};
  TUTTI_TRY(const auto all, exchange("topology", mine));
  return unpack(all[0]);
}

std::string host_name(const Peer& peer) {
  return {peer.host_name, strnlen(peer.host_name, sizeof(peer.host_name))};
}

Result<NodeId> find_host(const Graph& graph, const std::string& name, std::size_t place,
                         std::size_t count) {
  const auto hosts = graph.all(NodeKind::kHost);
  const auto has_name = [&](NodeId host) { return !fact(graph[host], "hostname").empty(); };
  const auto is_named = [&](NodeId host) { return fact(graph[host], "hostname") == name; };
  if (std::none_of(hosts.begin(), hosts.end(), has_name)) {
    if (hosts.size() == count) return hosts[place];
    return not_told(
        fmt::format("it names none of its {} hosts, and ranks are on {}", hosts.size(), count));
  }
  const auto found = std::find_if(hosts.begin(), hosts.end(), is_named);
  if (found == hosts.end()) return not_told(fmt::format("it has no host called {}", name));
  if (std::count_if(hosts.begin(), hosts.end(), is_named) > 1)
    return not_told(fmt::format("several of its hosts are called {}", name));
  return *found;
}

Result<std::vector<NodeId>> find_places(const Graph& graph, std::span<const Peer> peers) {
  std::vector<NodeId> places;
  TUTTI_TRY(const auto host_of, hosts_in(graph, peers));
  for (std::size_t rank = 0; rank < peers.size(); ++rank) {
    const NodeId host = host_of[rank];
    std::vector<NodeId> nodes;
    for (const NodeId numa : graph.all(NodeKind::kNuma)) {
      if (graph[numa].host == host) nodes.push_back(numa);
    }
    const auto found = nodes.size() == 1
                           ? nodes.begin()
                           : std::find_if(nodes.begin(), nodes.end(), [&](NodeId numa) {
                               return within(peers[rank].cpus, graph[numa]);
                             });
    if (found == nodes.end())
      return not_told(fmt::format("rank {} may run on CPUs of several NUMA nodes, or of none of {}",
                                  rank, graph[host].name));
    places.push_back(*found);
  }
  return places;
}

}  // namespace tutti
