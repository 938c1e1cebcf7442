// The cost of links, for `tutti tune`: between two threads, between two ranks of a host, between
// hosts; and the load that each host carries.
#include <fmt/format.h>

#include <numeric>

#include "comm/state.h"
#include "kernels/host/reduce.h"
#include "perf/sweep/buffer.h"
#include "planner/planner.h"
#include "tools/tune/rates.h"
#include "tools/tune/tune.h"
#include "topology/probe/fingerprint.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kCopied = std::size_t{1} << 20;

/// The time of 8 bytes from rank 0 to rank 1: half of there and back.
Result<double> hop_us(Communicator& comm, perf::Noise* noise) {
  return in_rounds(noise, [&]() -> Result<double> {
    constexpr int kTimes = 200;
    std::uint64_t data = 0;
    TUTTI_RETURN_IF_ERROR(comm.barrier());
    const auto start = Clock::now();
    const int me = comm.rank().value;
    for (int i = 0; i < kTimes && me < 2; ++i) {
      for (const bool there : {true, false}) {
        const bool sends = (me == 0) == there;
        TUTTI_RETURN_IF_ERROR(sends ? comm.send(&data, 1, DataType::kUint64, Rank{1 - me})
                                    : comm.recv(&data, 1, DataType::kUint64, Rank{1 - me}));
      }
    }
    return slowest(comm, me < 2 ? since_us(start) / kTimes / 2 : 0);
  });
}

/// Bytes of another rank's that a rank copies, GB/s: all but one copy at once, on the CPUs that
/// there are.
Result<double> copy_rate(Communicator& comm, perf::Noise* noise) {
  const perf::Buffer in(kCopied, true), out(kCopied, true);
  if (in.data() == nullptr || out.data() == nullptr)
    return Error{Code::kSystem, "no memory for the buffers", comm.rank()};
  const Request request{.collective = Collective::kBroadcast,
                        .input = in.data(),
                        .output = out.data(),
                        .count = kCopied,
                        .algorithm = "direct"};
  TUTTI_TRY(double us, timed(comm, request, 1));  // Makes the plan, too.
  TUTTI_TRY(us, in_rounds(noise, [&] { return timed(comm, request, 10); }));
  const double turns =
      std::max(1.0, static_cast<double>(comm.rank_count() - 1) / Insides::of(comm).cpus);
  return turns * static_cast<double>(kCopied) / us * 1e-3;
}

/// The rate at which this rank alone copies its own memory, GB/s, in the fastest round.
double memory_rate() {
  constexpr int kTimes = 10;
  const std::vector<std::byte> from(kCopied, std::byte{1});
  std::vector<std::byte> to(kCopied);
  double fastest = 0;
  for (int round = 0; round < 6; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < kTimes; ++i) {
      const kernels::Source source{from.data(), Form::kResult, false};
      const kernels::Target target{to.data(), Form::kResult};
      kernels::reduce({.type = DataType::kUint8}, std::span(&source, 1), std::span(&target, 1),
                      kCopied);
    }
    fastest = std::max(
        fastest, kTimes * static_cast<double>(kCopied) / std::max(since_us(start), 0.1) * 1e-3);
  }
  return fastest;
}

/// Between ranks that share memory.
Result<LinkCost> near_cost(Communicator& comm, perf::Noise* noise) {
  LinkCost cost;
  TUTTI_TRY(cost.latency_us, hop_us(comm, noise));
  TUTTI_TRY(cost.gigabytes_per_second, copy_rate(comm, noise));
  return cost;
}

/// Bytes read and written while two vectors are added, GB/s, on one rank while the others sleep.
Result<double> reduce_rate(Communicator& comm) {
  // Rank 0's is the only one.
  return slowest(comm, comm.rank().value == 0 ? adding_rate() : 0);
}

/// Puts hosts that are nearly alike together: each gets the mean of its like.
std::vector<double> alike(const std::vector<double>& rates) {
  std::vector<std::size_t> order(rates.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::sort(order.begin(), order.end(),
            [&](std::size_t a, std::size_t b) { return rates[a] > rates[b]; });
  std::vector<double> even(rates.size());
  for (std::size_t first = 0, end = 0; first < order.size(); first = end) {
    double sum = 0;
    while (end < order.size() && rates[order[end]] * kAlikeRates >= rates[order[first]])
      sum += rates[order[end++]];
    for (std::size_t i = first; i < end; ++i)
      even[order[i]] = sum / static_cast<double>(end - first);
  }
  return even;
}

Status measure_network(Communicator& comm, const std::vector<std::string>& names,
                       planner::TuningTable& table, perf::Noise* noise) {
  const std::vector<int>& hosts = table.key.hosts;
  const auto other = static_cast<int>(std::find(hosts.begin(), hosts.end(), 1) - hosts.begin());
  TUTTI_TRY(const double hop, network_hop_us(comm, other, noise));
  TUTTI_TRY(const NetworkRates measured, network_rates(comm, hosts));
  const std::vector<double> rates = alike(measured.hosts);
  const double fastest = *std::max_element(rates.begin(), rates.end());
  table.network = Insides::of(comm).selector->inputs().hosts.cost;
  table.network.link = {hop, fastest};
  if (*std::min_element(rates.begin(), rates.end()) < fastest) {
    for (std::size_t host = 0; host < rates.size(); ++host)
      table.rates.push_back({names[host], rates[host]});
  }
  return ok();
}

/// Between the ranks of a host, where some host has two; else what is assumed.
Status measure_host(Communicator& comm, planner::TuningTable& table,
                    std::vector<LinkFigure>& figures, perf::Noise* noise) {
  const std::vector<int>& hosts = table.key.hosts;
  planner::HostCosts& costs = table.costs;
  const auto on = planner::ranks_on(hosts);
  const auto me = static_cast<std::size_t>(comm.rank().value);
  const bool alone = !hosts.empty() && *std::max_element(on.begin(), on.end()) < 2;
  if (comm.rank_count() > 1 && !alone) {
    LinkCost mine;
    std::string transport = table.key.transport;
    if (hosts.empty()) {
      TUTTI_TRY(mine, near_cost(comm, noise));
    } else {
      // They share memory, whatever joins the hosts, also where that was asked for.
      TUTTI_TRY(auto here, comm.split(hosts[me], 0));
      Settings settings = Insides::of(here).settings;
      settings.transport.clear();
      TUTTI_TRY(auto state,
                make_state({here.rank(), here.rank_count(), settings}, exchange_over(here)));
      transport = state->transport;
      Communicator sharing = Insides::made_of(std::move(state));
      if (here.rank_count() > 1) {
        TUTTI_TRY(mine, near_cost(sharing, noise));
      }
    }
    TUTTI_TRY(costs.link.latency_us, slowest(comm, mine.latency_us));
    const double rate = mine.gigabytes_per_second;  // 0: alone on its host.
    TUTTI_TRY(const double ns_a_byte, slowest(comm, rate > 0 ? 1 / rate : 0));
    costs.link.gigabytes_per_second = ns_a_byte > 0 ? 1 / ns_a_byte : 0;
    if (me == 0) figures.push_back({transport, "ranks of a host", costs.link});
  }
  TUTTI_TRY(const double own, reduce_rate(comm));
  // The values that a rank adds rarely arrive faster than they can be copied.
  costs.reduce_gigabytes_per_second = std::min(own, 2 * costs.link.gigabytes_per_second);
  return ok();
}

}  // namespace

double adding_rate() {
  constexpr std::size_t kElements = 32768;
  std::vector<float> a(kElements, 1), b(kElements, 2), sum(kElements);
  const kernels::Source sources[] = {
      {reinterpret_cast<const std::byte*>(a.data()), Form::kContribution, false},
      {reinterpret_cast<const std::byte*>(b.data()), Form::kContribution, false}};
  const kernels::Target target{reinterpret_cast<std::byte*>(sum.data()), Form::kResult};
  std::vector<double> rounds;
  for (int round = 0; round < 9; ++round) {
    const auto start = Clock::now();
    for (int i = 0; i < 20; ++i) {
      kernels::reduce({DataType::kFloat32, ReduceOp::kSum, 2, 1, 1}, sources, std::span(&target, 1),
                      kElements);
    }
    rounds.push_back(3.0 * 20 * kElements * sizeof(float) / std::max(since_us(start), 0.1) * 1e-3);
  }
  return perf::median(rounds);
}

Result<LinkCost> thread_cost(const Settings& settings, perf::Noise& noise) {
  TUTTI_TRY(const LinkCost cost, in_two_threads<LinkCost>(settings, [&](Communicator& comm) {
              return near_cost(comm, comm.rank().value == 0 ? &noise : nullptr);
            }));
  noise.compare("copies between two threads", cost.gigabytes_per_second, "copies of memory",
                memory_rate());
  return cost;
}

int ranks_here(const Communicator& comm) {
  const auto hosts = Insides::of(comm).selector->key().hosts;
  if (hosts.empty()) return comm.rank_count();
  const auto on = planner::ranks_on(hosts);
  return static_cast<int>(*std::max_element(on.begin(), on.end()));
}

bool oversubscribed(const Communicator& comm) { return ranks_here(comm) > Insides::of(comm).cpus; }

Result<planner::TuningTable> tune_links(Communicator& comm, std::vector<LinkFigure>& figures,
                                        perf::Noise& noise) {
  planner::TuningTable table;
  const Communicator::State& state = Insides::of(comm);
  table.key = state.selector->key();
  const bool first = comm.rank().value == 0;
  perf::Noise* const steady = oversubscribed(comm) ? nullptr : &noise;
  if (first) {  // While the others wait.
    Settings settings = state.settings;
    settings.transport.clear();
    TUTTI_TRY(const LinkCost threads, thread_cost(settings, noise));
    figures.push_back({"in_process", "threads", threads});
  }
  TUTTI_RETURN_IF_ERROR(comm.barrier());
  TUTTI_RETURN_IF_ERROR(measure_host(comm, table, figures, steady));
  if (table.key.hosts.empty()) {
    table.key.machine = topology::fingerprint_of_this_machine();
    return table;
  }
  TUTTI_TRY(const TunedHosts met, meet_hosts(table.key.hosts, exchange_over(comm)));
  table.key.machine = met.machine;
  TUTTI_RETURN_IF_ERROR(measure_network(comm, met.names, table, steady));
  if (first) figures.push_back({table.key.transport, "hosts", table.network.link});
  return table;
}

}  // namespace tutti::tools
