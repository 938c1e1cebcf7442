#include "perf/sweep/bound.h"

#include <fmt/format.h>
#include <sched.h>

#include <bit>

#include "base/cpus.h"
#include "planner/simulate/simulate.h"
#include "topology/bounds/bound.h"
#include "topology/probe/probe.h"

namespace tutti::perf {
namespace {

using topology::LinkKind;
using topology::NodeId;
using topology::NodeKind;

/// The NUMA node of the one CPU that this rank may use; -1 if it may use several.
int own_numa() {
  int cpus = 0;
  for (const std::uint64_t word : affinity()) cpus += std::popcount(word);
  unsigned cpu = 0, node = 0;
  if (cpus != 1 || getcpu(&cpu, &node) != 0) return -1;
  return static_cast<int>(node);
}

bool several(std::span<const int> numas) {
  return std::any_of(numas.begin(), numas.end(), [&](int numa) { return numa != numas[0]; });
}

}  // namespace

LinksBound links_bound(const topology::Graph& host, Collective collective,
                       std::span<const int> numa_of_rank, int root) {
  if (numa_of_rank.empty() ||
      std::find(numa_of_rank.begin(), numa_of_rank.end(), -1) != numa_of_rank.end())
    return {0, "ranks are not bound to CPUs"};
  if (!several(numa_of_rank)) return {0, "all ranks are on one NUMA node"};
  topology::Graph graph = host;
  std::vector<NodeId> ranks;
  for (const int numa : numa_of_rank) {
    const auto all = graph.all(NodeKind::kNuma);
    const auto found = std::find_if(all.begin(), all.end(),
                                    [&](NodeId node) { return graph[node].index == numa; });
    if (found == all.end()) return {0, fmt::format("the probe does not know NUMA node {}", numa)};
    // Without a bandwidth, so it limits nothing: the memory is counted apart.
    ranks.push_back(graph.add({.kind = NodeKind::kPackage,
                               .name = fmt::format("rank{}", ranks.size()),
                               .host = graph[*found].host,
                               .index = static_cast<int>(ranks.size()),
                               .bus = {},
                               .facts = {}}));
    topology::Link& link = graph.links.emplace_back();
    link.kind = LinkKind::kInternal;
    link.a = ranks.back();
    link.b = *found;
  }
  const auto ends = planner::ends_of(collective, root, static_cast<int>(ranks.size()),
                                     [](int rank) { return static_cast<std::size_t>(rank); });
  const auto found = topology::bound(graph, planner::pattern_of(collective), ranks, ends);
  if (!found) return {0, found.error().what};
  return {found->seconds_per_mb.value(), found->cut.words};  // Seconds a MB: microseconds a byte.
}

Result<LinksBound> links_bound(Communicator& comm, Collective collective, int root) {
  const std::int32_t own = own_numa();
  std::vector<std::int32_t> all(static_cast<std::size_t>(comm.rank_count()));
  TUTTI_RETURN_IF_ERROR(comm.all_gather(&own, all.data(), 1, DataType::kInt32));
  LinksBound bound;
  if (comm.rank() == Rank{0}) {
    // Probing asks drivers, which takes its time, and is in vain where there is one node.
    const bool none = own < 0 || !several(all);
    bound = links_bound(none ? topology::Graph{} : topology::probe_machine().graph, collective, all,
                        root);
  }
  TUTTI_RETURN_IF_ERROR(
      comm.broadcast(&bound.us_per_byte, &bound.us_per_byte, 1, DataType::kFloat64, Rank{0}));
  return bound;
}

double memory_traffic(const Shape& shape) {
  return planner::memory_traffic({shape.collective, shape.ranks, shape.root}, shape.bytes());
}

}  // namespace tutti::perf
