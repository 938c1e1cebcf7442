// The cost of links, for `tutti tune`: between two threads, between two ranks of a host, between
// hosts; and the load that each host carries.
//
// Hosts are measured in pairs that exchange long messages both ways, all pairs at once, in rounds
// in which each has another partner. A host is as fast as it was with its best partner, so a slow
// one does not make its partners look slow.
#include <fmt/format.h>

#include <numeric>
#include <thread>

#include "base/threads.h"
#include "comm/state.h"
#include "kernels/host/reduce.h"
#include "perf/sweep/buffer.h"
#include "planner/planner.h"
#include "tools/tune/tune.h"
#include "topology/probe/fingerprint.h"

namespace tutti::tools {
namespace {

// Hosts whose rates differ by less are taken to be alike: so much is noise, and weights would gain
// less than they cost.
constexpr double kAlike = 1.3;
constexpr std::size_t kLong = std::size_t{4} << 20, kFirst = std::size_t{256} << 10;
constexpr std::size_t kCopied = std::size_t{1} << 20;
constexpr int kMostPartners = 6;
constexpr int kPasses = 4;
constexpr double kExchangeUs = 50'000;

/// The median of some rounds, which the noise gets if they show it.
template <class Round>
Result<double> in_rounds(perf::Noise* noise, const Round& round) {
  std::vector<double> times;
  for (int i = 0; i < 5; ++i) {
    TUTTI_TRY(const double time, round());
    times.push_back(time);
  }
  if (noise != nullptr) noise->add(times);
  return perf::median(times);
}

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

/// The time of a network for 8 bytes from rank 0 to the other and as many back at the same time: an
/// eager all-reduce between the two.
Result<double> network_hop_us(Communicator& comm, int other, perf::Noise* noise) {
  const int me = comm.rank().value;
  const bool takes_part = me == 0 || me == other;
  auto pair = comm.split(takes_part ? 0 : -1, 0);
  double us = 0;
  if (takes_part) {
    if (!pair) return std::move(pair.error());
    std::uint64_t data = 0;
    const Request request{.collective = Collective::kAllReduce,
                          .input = &data,
                          .output = &data,
                          .count = 1,
                          .type = DataType::kUint64,
                          .algorithm = planner::kEagerName};
    TUTTI_TRY(us, in_rounds(noise, [&] { return timed(*pair, request, 200); }));
  }
  return slowest(comm, us);
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

/// Between two threads of this process.
Result<LinkCost> thread_cost(Settings settings, perf::Noise& noise) {
  settings.transport.clear();
  settings.weights.clear();
  settings.groups.clear();
  settings.algorithm.clear();
  TUTTI_TRY(auto comms, Communicator::in_process(2, settings));
  std::vector<Result<LinkCost>> costs(2, LinkCost{});
  {
    std::vector<std::jthread> threads;
    for (std::size_t rank = 0; rank < 2; ++rank) {
      auto thread = start_thread<std::jthread>("a thread that measures copies", [&, rank] {
        costs[rank] = near_cost(comms[rank], rank == 0 ? &noise : nullptr);
      });
      if (!thread) {
        comms.front().abort("a rank's thread can't be started");  // The other rank waits for it.
        return std::move(thread.error());
      }
      threads.push_back(std::move(*thread));
    }
  }
  if (costs[0]) {
    noise.compare("copies between two threads", costs[0]->gigabytes_per_second, "copies of memory",
                  memory_rate());
  }
  return costs[0];
}

/// Bytes read and written while two vectors are added, GB/s, on one rank while the others sleep.
Result<double> reduce_rate(Communicator& comm) {
  constexpr std::size_t kElements = 32768;
  double rate = 0;
  if (comm.rank().value == 0) {
    std::vector<float> a(kElements, 1), b(kElements, 2), sum(kElements);
    const kernels::Source sources[] = {
        {reinterpret_cast<const std::byte*>(a.data()), Form::kContribution, false},
        {reinterpret_cast<const std::byte*>(b.data()), Form::kContribution, false}};
    const kernels::Target target{reinterpret_cast<std::byte*>(sum.data()), Form::kResult};
    std::vector<double> rounds;
    for (int round = 0; round < 9; ++round) {
      const auto start = Clock::now();
      for (int i = 0; i < 20; ++i) {
        kernels::reduce({DataType::kFloat32, ReduceOp::kSum, 2, 1, 1}, sources,
                        std::span(&target, 1), kElements);
      }
      rounds.push_back(3.0 * 20 * kElements * sizeof(float) / std::max(since_us(start), 0.1) *
                       1e-3);
    }
    rate = perf::median(rounds);
  }
  return slowest(comm, rate);  // Rank 0's is the only one.
}

/// The ranks of a host in one round, and each one's partner; -1: none.
struct Pairing {
  std::vector<int> partner_of;    // By rank.
  std::vector<int> host_of;       // By host, its partner; its own number: none.
  std::vector<int> ranks_paired;  // By host.
};

/// Partners: the circle method of tournaments, host by host, and their ranks in order.
Pairing pairing(const std::vector<int>& hosts, int round) {
  const auto on = planner::ranks_on(hosts);
  const auto count = static_cast<int>(on.size());
  const int last = count + count % 2 - 1;  // If odd, its partner pauses.
  const auto partner = [&](int host) {
    // The two add up to `round`; what would be its own partner gets the last.
    if (host == last) return round * ((last + 1) / 2) % last;
    const int other = (round + last - host) % last;
    return other == host ? last : other;
  };
  std::vector<std::vector<int>> ranks(on.size());
  for (std::size_t rank = 0; rank < hosts.size(); ++rank)
    ranks[static_cast<std::size_t>(hosts[rank])].push_back(static_cast<int>(rank));
  Pairing pairs{std::vector<int>(hosts.size(), -1), {}, std::vector<int>(on.size(), 0)};
  for (int host = 0; host < count; ++host) {
    const int other = partner(host);
    pairs.host_of.push_back(other < count ? other : host);
    if (other >= count || other == host) continue;
    const auto& mine = ranks[static_cast<std::size_t>(host)];
    const auto& theirs = ranks[static_cast<std::size_t>(other)];
    const std::size_t both = std::min(mine.size(), theirs.size());
    pairs.ranks_paired[static_cast<std::size_t>(host)] = static_cast<int>(both);
    for (std::size_t i = 0; i < both; ++i)
      pairs.partner_of[static_cast<std::size_t>(mine[i])] = theirs[i];
  }
  return pairs;
}

/// So many bytes both ways, so often; microseconds of one time.
Result<double> exchange_us(Communicator& comm, int partner, std::size_t bytes, int times,
                           const perf::Buffer& out, const perf::Buffer& in) {
  TUTTI_RETURN_IF_ERROR(comm.barrier());
  const auto start = Clock::now();
  for (int i = 0; i < times && partner >= 0; ++i) {
    Group group;
    TUTTI_TRY(auto sent, comm.start_send(out.data(), bytes, DataType::kUint8, Rank{partner}));
    TUTTI_TRY(auto got, comm.start_recv(in.data(), bytes, DataType::kUint8, Rank{partner}));
    TUTTI_RETURN_IF_ERROR(group.end());
  }
  return partner >= 0 ? since_us(start) / times : 0;
}

/// By host, the slowest of its ranks'. Alike on all ranks.
Result<std::vector<double>> by_host(Communicator& comm, const std::vector<int>& hosts, double us) {
  std::vector<double> all(planner::ranks_on(hosts).size(), 0);
  all[static_cast<std::size_t>(hosts[static_cast<std::size_t>(comm.rank().value)])] = us;
  TUTTI_RETURN_IF_ERROR(
      comm.all_reduce(all.data(), all.data(), all.size(), DataType::kFloat64, ReduceOp::kMax));
  return all;
}

/// By host, GB/s, each with its best partner. Alike on all ranks.
Result<std::vector<double>> rates_by_host(Communicator& comm, const std::vector<int>& hosts) {
  const std::size_t count = planner::ranks_on(hosts).size();
  const auto me = static_cast<std::size_t>(comm.rank().value);
  const perf::Buffer out(kLong, false), in(kLong, false);
  if (in.data() == nullptr || out.data() == nullptr)
    return Error{Code::kSystem, "no memory for the buffers", comm.rank()};
  const int rounds = std::min(kMostPartners, static_cast<int>(count + count % 2) - 1);
  std::vector<double> rates(count, 0);
  for (int turn = 0; turn < kPasses * rounds; ++turn) {
    const Pairing pairs = pairing(hosts, turn % rounds);
    const int partner = pairs.partner_of[me];
    TUTTI_TRY(double us, exchange_us(comm, partner, kFirst, 1, out, in));
    TUTTI_TRY(us, exchange_us(comm, partner, kFirst, 1, out, in));
    TUTTI_TRY(auto took, by_host(comm, hosts, us));
    const auto here = static_cast<std::size_t>(hosts[me]);
    const auto there = static_cast<std::size_t>(pairs.host_of[here]);
    const double pair_us = std::max({1.0, took[here], took[there]});
    const auto all = static_cast<std::size_t>(static_cast<double>(kFirst) * kExchangeUs / pair_us);
    const std::size_t bytes = std::clamp(all, kFirst, kLong);
    const int times = static_cast<int>(std::clamp<std::size_t>(all / bytes, 1, 50));
    TUTTI_TRY(us, exchange_us(comm, partner, bytes, times, out, in));
    TUTTI_TRY(took, by_host(comm, hosts, 1e3 * us / static_cast<double>(bytes)));
    for (std::size_t host = 0; host < count; ++host) {
      if (pairs.ranks_paired[host] == 0 || took[host] <= 0) continue;
      rates[host] = std::max(rates[host], pairs.ranks_paired[host] / took[host]);
    }
  }
  return rates;
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
    while (end < order.size() && rates[order[end]] * kAlike >= rates[order[first]])
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
  TUTTI_TRY(const auto measured, rates_by_host(comm, hosts));
  const std::vector<double> rates = alike(measured);
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

int ranks_here(const Communicator& comm) {
  const auto hosts = Insides::of(comm).selector->key().hosts;
  if (hosts.empty()) return comm.rank_count();
  const auto on = planner::ranks_on(hosts);
  return *std::max_element(on.begin(), on.end());
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
    TUTTI_TRY(const LinkCost threads, thread_cost(state.settings, noise));
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
