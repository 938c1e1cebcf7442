#include "tools/topo/measure_host.h"

#include <sched.h>

#include <algorithm>
#include <barrier>
#include <cstring>
#include <map>
#include <memory>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/cpus.h"
#include "tools/progress.h"
#include "tools/topo/gpu_copies.h"
#include "tools/topo/gpu_rates.h"
#include "tools/tune/rates.h"
#include "topology/probe/sources/sysfs.h"

namespace tutti::tools {
namespace {

using topology::fact;
using topology::Graph;
using topology::Link;
using topology::LinkKind;
using topology::Node;
using topology::NodeId;
using topology::NodeKind;
using topology::Origin;

// Larger than a share of any cache; and how often each thread copies it: half a second at worst.
constexpr std::size_t kBytes = std::size_t{64} << 20;
constexpr int kRounds = 5;
constexpr int kSteps = 5;  // On the progress line.

/// CPUs of a NUMA node that this process may use.
std::vector<int> cpus_of(const Node& numa) {
  const CpuSet allowed = affinity();
  const std::string& list = fact(numa, "cpus");
  std::vector<int> cpus;
  for (int cpu = 0; cpu < static_cast<int>(64 * allowed.size()); ++cpu) {
    if ((allowed[static_cast<std::size_t>(cpu / 64)] >> (cpu % 64) & 1) != 0) cpus.push_back(cpu);
  }
  if (list.empty()) return cpus;  // The machine does not say which: there is one node.
  const std::vector<int> own = topology::parse_cpu_list(list);
  std::erase_if(cpus, [&](int cpu) { return std::find(own.begin(), own.end(), cpu) == own.end(); });
  return cpus;
}

/// Lets this thread run on one CPU alone; where the system refuses, it runs where it may.
void pin(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  if (cpu < CPU_SETSIZE) {
    CPU_SET(static_cast<unsigned>(cpu), &one);
    (void)sched_setaffinity(0, sizeof(one), &one);
  }
}

/// Runs a thread on each of the CPUs.
template <class Body>
Status on_cpus(const std::vector<int>& cpus, const Body& body) {
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < cpus.size(); ++i) {
    auto thread = start_thread<std::jthread>("a thread that copies", [&, i] {
      pin(cpus[i]);
      body(i);
    });
    if (!thread) return std::move(thread.error());
    threads.push_back(*std::move(thread));
  }
  return ok();
}

using Memory = std::vector<std::unique_ptr<std::byte[]>>;

/// Memory for as many threads, first touched on those CPUs and so on their node.
Result<Memory> memory_on(const std::vector<int>& cpus, std::size_t threads, std::size_t bytes) {
  Memory memory(threads);
  TUTTI_RETURN_IF_ERROR(on_cpus({cpus.front()}, [&](std::size_t) {
    for (auto& one : memory) {
      one.reset(new (std::nothrow) std::byte[bytes]);
      if (one != nullptr) std::memset(one.get(), 1, bytes);
    }
  }));
  for (const auto& one : memory) {
    if (one == nullptr) return Error{Code::kSystem, "no memory for the buffers"};
  }
  return memory;
}

/// GB/s that all CPUs of a node copy together out of the memory of another, in the median round.
Result<double> copied(const std::vector<int>& cpus, const std::vector<int>& memory_cpus) {
  const std::size_t threads = cpus.size();
  const std::size_t bytes = std::max(kBytes / threads, std::size_t{4} << 20);
  TUTTI_TRY(const Memory from, memory_on(memory_cpus, threads, bytes));
  TUTTI_TRY(const Memory to, memory_on(cpus, threads, bytes));
  std::vector<double> rates;
  for (int round = 0; round < kRounds; ++round) {
    std::vector<double> us(threads);
    TUTTI_RETURN_IF_ERROR(on_cpus(cpus, [&](std::size_t i) {
      const auto start = Clock::now();
      std::memcpy(to[i].get(), from[i].get(), bytes);
      us[i] = since_us(start);
    }));
    const double slowest = *std::max_element(us.begin(), us.end());
    rates.push_back(static_cast<double>(bytes * threads) / std::max(slowest, 0.1) * 1e-3);
  }
  return perf::median(rates);
}

Status measure_memory(Graph& graph, std::string& said) {
  std::vector<NodeId> nodes;
  std::map<NodeId, std::vector<int>> cpus;
  for (const NodeId numa : graph.all(NodeKind::kNuma)) {
    cpus[numa] = cpus_of(graph[numa]);
    if (!cpus[numa].empty()) nodes.push_back(numa);
  }
  for (const NodeId to : nodes) {
    for (const NodeId from : nodes) {
      TUTTI_TRY(const double rate, copied(cpus[to], cpus[from]));
      said += fmt::format("  memory {:<10} -> CPUs of {:<10} {:>7.2f} GB/s\n", graph[from].name,
                          graph[to].name, rate);
      if (to == from) {
        graph[to].facts["memory_gbs"] = fmt::format("{:.2f}", rate);
        continue;
      }
      for (Link& link : graph.links) {
        if (link.kind != LinkKind::kSocket) continue;
        if (link.a == from && link.b == to) link.forward = {rate, Origin::kMeasured};
        if (link.a == to && link.b == from) link.backward = {rate, Origin::kMeasured};
      }
    }
  }
  return ok();
}

/// What two ranks of this host exchange by a transport, GB/s each way.
Result<double> loop_rate(Settings settings, std::string transport, std::string device) {
  settings.transport = std::move(transport);
  settings.rdma_devices = std::move(device);
  return in_two_threads<double>(settings, [](Communicator& comm) -> Result<double> {
    TUTTI_TRY(const NetworkRates rates, network_rates(comm, {0, 1}));
    return rates.hosts[0];
  });
}

/// What each RDMA device carries in a loop; one that can't be opened keeps its figures.
void measure_nics(Graph& graph, const Settings& settings, std::string& said) {
  for (const NodeId nic : graph.all(NodeKind::kNic)) {
    const std::string device = fact(graph[nic], "ibdev");
    if (device.empty()) continue;
    const auto rate = loop_rate(settings, "verbs", device);
    said += rate ? fmt::format("  {:<34} {:>7.2f} GB/s in a loop\n", device, *rate)
                 : fmt::format("  {:<34} not measured: {}\n", device, rate.error().what);
    for (Link& link : graph.links) {
      if (rate && link.kind == LinkKind::kPcie && (link.a == nic || link.b == nic))
        link.forward = link.backward = {*rate, Origin::kMeasured};
    }
  }
}

/// A CPU near a GPU, and all that this process may use where none is known.
std::vector<int> cpus_near(const Graph& graph, const std::string& bus) {
  for (const NodeId gpu : graph.all(NodeKind::kGpu)) {
    if (graph[gpu].bus != bus) continue;
    const NodeId numa = topology::numa_above(graph, gpu, true);
    std::vector<int> cpus = numa.exists() ? cpus_of(graph[numa]) : std::vector<int>();
    if (!cpus.empty()) return cpus;
  }
  return cpus_of(Node());
}

/// Where CUDA shows GPUs; on a machine that has some and no CUDA the table says why not.
Status measure_gpus(Graph& graph, std::string& said) {
  if (graph.all(NodeKind::kGpu).empty()) return ok();
  GpuCopyOptions options;
  options.near = [&](const std::string& bus, const std::function<void()>& body) {
    return on_cpus({cpus_near(graph, bus).front()}, [&](std::size_t) { body(); });
  };
  options.progress = [](std::size_t done, std::size_t all) {
    show_progress(done, all, "copies of GPUs");
  };
  const auto rates = measure_copies(options);
  if (rates) {
    said += write_rates(graph, *rates);
  } else if (rates.error().code == Code::kUnsupported) {
    said += fmt::format("  GPUs are not measured: {}\n", rates.error().what);
  } else {
    return rates.error();
  }
  return ok();
}

}  // namespace

Result<std::string> measure_host(Graph& graph, const Settings& settings) {
  const NodeId host = graph.all(NodeKind::kHost).front();
  const std::string& name = fact(graph[host], "hostname");
  std::string said = fmt::format("{}:\n", name.empty() ? graph[host].name : name);
  show_progress(0, kSteps, "memory");
  TUTTI_RETURN_IF_ERROR(measure_memory(graph, said));
  show_progress(1, kSteps, "between two threads");
  Settings near = settings;
  near.transport.clear();
  perf::Noise noise;
  TUTTI_TRY(const LinkCost threads, thread_cost(near, noise));
  // The values that a rank adds rarely arrive faster than they can be copied.
  const double adds = std::min(adding_rate(), 2 * threads.gigabytes_per_second);
  for (const NodeId numa : graph.all(NodeKind::kNuma)) {
    graph[numa].facts["reduce_gbs"] = fmt::format("{:.2f}", adds);
    graph[numa].facts["hop_us"] = fmt::format("{:.3f}", threads.latency_us);
    graph[numa].facts["copy_gbs"] = fmt::format("{:.2f}", threads.gigabytes_per_second);
  }
  said += fmt::format("  {:<34} {:>7.2f} GB/s, {:.3g} us\n", "one CPU, of a peer's data",
                      threads.gigabytes_per_second, threads.latency_us);
  said += fmt::format("  {:<34} {:>7.2f} GB/s read and written\n", "one CPU, adding", adds);
  show_progress(2, kSteps, "loopback");
  TUTTI_TRY(const double loopback, loop_rate(settings, "tcp", ""));
  graph[host].facts["loopback_gbs"] = fmt::format("{:.2f}", loopback);
  said += fmt::format("  {:<34} {:>7.2f} GB/s each way\n", "TCP between two ranks", loopback);
  show_progress(3, kSteps, "RDMA devices");
  measure_nics(graph, settings, said);
  show_progress(4, kSteps, "GPUs");
  TUTTI_RETURN_IF_ERROR(measure_gpus(graph, said));
  clear_progress();
  return said;
}

}  // namespace tutti::tools
