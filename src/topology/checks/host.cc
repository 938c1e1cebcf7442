// File: topology/checks/host.cc: what concerns a whole host: NUMA, limits; and hosts against
// others.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "topology/checks/parts.h"
#include "topology/graph/words.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::topology {
namespace {

constexpr long long kLeastShmBytes = 512LL << 20;  // Docker gives 64 MiB.
constexpr long long kLeastMemlockBytes = 1LL << 30;

// The value that most hosts have, the first of equals; an index into `values`.
template <class T>
std::size_t most_common(const std::vector<T>& values) {
  std::map<T, int> times;
  for (const T& value : values) ++times[value];
  std::size_t best = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (times[values[i]] > times[values[best]]) best = i;
  }
  return best;
}

std::vector<const Machine::Host*> real_hosts(const Machine& machine) {
  std::vector<const Machine::Host*> hosts;
  for (const auto& host : machine.hosts) {
    if (host.node.exists()) hosts.push_back(&host);
  }
  return hosts;
}

// What a NIC's port leads to, by the order of NICs in the host.
using Leaves = std::vector<NodeId>;
std::vector<Leaves> leaves_of(const Machine& machine,
                              const std::vector<const Machine::Host*>& hosts) {
  std::vector<NodeId> leaf(machine.graph.nodes.size());
  for (const Link& link : machine.graph.links) {
    if (link.kind != LinkKind::kPort) continue;
    const bool forward = machine.graph[link.a].kind == NodeKind::kNic;
    leaf[(forward ? link.a : link.b).value] = forward ? link.b : link.a;
  }
  std::vector<Leaves> leaves;
  for (const auto* host : hosts) {
    leaves.emplace_back();
    for (const NodeId nic : host->nics) leaves.back().push_back(leaf[nic.value]);
  }
  return leaves;
}

// How NICs are laid over several leaves, and how many hosts have it so.
struct Rails {
  Leaves pattern;
  std::set<NodeId> leaves;
  int hosts = 0;
};
std::vector<Rails> rails_of(const std::vector<Leaves>& all) {
  std::map<Leaves, int> times;
  for (const Leaves& own : all) ++times[own];
  std::vector<Rails> found;
  for (const auto& [pattern, hosts] : times) {
    std::set<NodeId> leaves(pattern.begin(), pattern.end());
    // Where a host has one leaf for all, there is nothing to compare.
    if (leaves.size() > 1) found.push_back({pattern, std::move(leaves), hosts});
  }
  return found;
}

// The pattern to compare a host's rails with: the pattern most frequent among those over the same
// leaves; or, if at least two hosts have it, over more.
const Leaves* rails_like(const Leaves& own, const std::vector<Rails>& patterns) {
  const std::set<NodeId> mine(own.begin(), own.end());
  const Rails* best = nullptr;
  for (const Rails& rails : patterns) {
    const auto& its = rails.leaves;
    if (rails.pattern.size() != own.size() || rails.hosts < (its == mine ? 1 : 2)) continue;
    if (!std::includes(its.begin(), its.end(), mine.begin(), mine.end())) continue;
    if (best == nullptr || rails.hosts > best->hosts) best = &rails;
  }
  return best == nullptr ? nullptr : &best->pattern;
}

}  // namespace

void check_numa(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const auto& host : machine.hosts) {
    if (host.numa.size() < 2) continue;
    for (const auto* list : {&host.gpus, &host.nics}) {
      for (const NodeId device : *list) {
        if (machine.numa_of(device).exists()) continue;
        findings.push_back({Severity::kWarning, "numa-unknown", graph[device].name,
                            "nothing says which NUMA node this device is next to",
                            fmt::format("the host has {} NUMA nodes", host.numa.size()),
                            "look at numa_node in sysfs; firmware that leaves it at -1 needs an "
                            "update, a virtual machine a better definition"});
      }
    }
  }
}

void check_cpuset(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const auto* host : real_hosts(machine)) {
    const std::string& allowed = fact(graph[host->node], "cpus_allowed");
    if (allowed.empty()) continue;
    const auto list = parse_cpu_list(allowed);
    const std::set<int> cpus(list.begin(), list.end());
    for (const NodeId numa : host->numa) {
      const auto own = parse_cpu_list(fact(graph[numa], "cpus"));
      if (own.empty()) continue;
      if (std::any_of(own.begin(), own.end(), [&](int cpu) { return cpus.count(cpu) != 0; })) {
        continue;
      }
      std::string gpus;
      for (const NodeId gpu : host->gpus) {
        if (machine.numa_of(gpu) != numa) continue;
        append(gpus, graph[gpu].name);
      }
      if (gpus.empty()) continue;
      findings.push_back(
          {Severity::kWarning, "cpuset-excludes-numa", graph[numa].name,
           "this process may not run on the NUMA node of its GPUs",
           fmt::format("{}: CPUs {}, allowed are {}", gpus, fact(graph[numa], "cpus"), allowed),
           "widen the cpuset (taskset, numactl, the container's or Slurm's "
           "settings), or use the GPUs next to it"});
    }
  }
}

void check_limits(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  for (const auto* host : real_hosts(machine)) {
    const Node& node = graph[host->node];
    const auto shm = number_fact(node, "shm_bytes");
    if (shm && *shm < kLeastShmBytes) {
      findings.push_back(
          {Severity::kWarning, "shm-small", node.name, "/dev/shm is too small for many ranks",
           fmt::format("{} MiB (kernel), wanted {}", *shm >> 20, kLeastShmBytes >> 20),
           "docker run --shm-size=8g, or --ipc=host"});
    }
    const bool rdma = std::any_of(host->nics.begin(), host->nics.end(),
                                  [&](NodeId nic) { return !fact(graph[nic], "guid").empty(); });
    // "unlimited" is no number.
    const auto lock = number_fact(node, "memlock_bytes");
    if (rdma && lock && *lock < kLeastMemlockBytes) {
      findings.push_back({Severity::kWarning, "memlock-limited", node.name,
                          "little memory may be locked, and RDMA locks its buffers",
                          fmt::format("{} KiB (kernel), wanted unlimited", *lock >> 10),
                          "ulimit -l unlimited, LimitMEMLOCK=infinity, or docker run --ulimit "
                          "memlock=-1"});
    }
  }
}

void check_rails(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const auto hosts = real_hosts(machine);
  const auto leaves = leaves_of(machine, hosts);
  const auto patterns = rails_of(leaves);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    const Leaves& own = leaves[i];
    const Leaves* other = own.empty() ? nullptr : rails_like(own, patterns);
    if (other == nullptr || *other == own) continue;
    int wrong = 0;
    std::string evidence;
    for (std::size_t n = 0; n < own.size(); ++n) {
      if (own[n] == (*other)[n] || !own[n].exists() || !(*other)[n].exists()) continue;
      if (++wrong > 4) continue;
      evidence +=
          fmt::format("{}{} is on {}, elsewhere on {}", wrong == 1 ? "" : "; ",
                      graph[hosts[i]->nics[n]].name, graph[own[n]].name, graph[(*other)[n]].name);
    }
    if (wrong == 0) continue;
    findings.push_back(
        {Severity::kWarning, "rail-mismatch", graph[hosts[i]->node].name,
         fmt::format("{} of {} NICs are on other rails than those of other hosts", wrong,
                     own.size()),
         evidence, "swap the cables, or give the NICs an order that fits",
         loss_of(static_cast<double>(own.size()) - wrong, static_cast<double>(own.size()))});
  }
}

void check_nic_order(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const auto hosts = real_hosts(machine);
  // For each host the places of its NICs in the order of their addresses.
  std::vector<std::vector<std::size_t>> orders;
  for (const auto* host : hosts) {
    std::vector<std::size_t> order(host->nics.size());
    for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      const std::string &first = graph[host->nics[a]].bus, &second = graph[host->nics[b]].bus;
      return std::pair(first.size(), first) < std::pair(second.size(), second);
    });
    orders.push_back(std::move(order));
  }
  if (orders.empty()) return;
  const auto& usual = orders[most_common(orders)];
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (orders[i] == usual || orders[i].size() != usual.size()) continue;
    std::string list;
    for (const std::size_t place : orders[i]) list += fmt::format(" {}", place);
    findings.push_back({Severity::kWarning, "nic-order", graph[hosts[i]->node].name,
                        "the NICs are counted in another order than in other hosts",
                        "places in the order of their addresses:" + list,
                        "name NICs by their address on all hosts"});
  }
}

void check_hosts(const Machine& machine, Findings& findings) {
  const Graph& graph = machine.graph;
  const auto hosts = real_hosts(machine);
  std::vector<std::string> kits;
  std::vector<std::size_t> parts;
  for (const auto* host : hosts) {
    std::map<std::string, int> models;
    for (const NodeId gpu : host->gpus) ++models[fact(graph[gpu], "model")];
    std::string kit;
    for (const auto& [name, count] : models) {
      kit += fmt::format("{} {}, ", count, name.empty() ? "GPUs" : name);
    }
    kits.push_back(kit + fmt::format("{} NICs", host->nics.size()));
    parts.push_back(host->gpus.size() + host->nics.size());
  }
  if (kits.empty()) return;
  const std::size_t usual = most_common(kits);
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (kits[i] == kits[usual]) continue;
    findings.push_back({Severity::kWarning, "hosts-differ", graph[hosts[i]->node].name,
                        "the host has other GPUs or NICs than most",
                        fmt::format("{}; most have {}", kits[i], kits[usual]),
                        "look for parts that did not come up: lspci, dmesg",
                        loss_of(static_cast<double>(parts[i]), static_cast<double>(parts[usual]))});
  }
}

}  // namespace tutti::topology
