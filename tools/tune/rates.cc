#include "tools/tune/rates.h"

#include <algorithm>

#include "comm/state.h"
#include "perf/sweep/buffer.h"
#include "planner/planner.h"

namespace tutti::tools {
namespace {

constexpr std::size_t kLong = std::size_t{4} << 20, kFirst = std::size_t{256} << 10;
constexpr int kMostPartners = 6;
constexpr int kPasses = 4;
constexpr double kExchangeUs = 50'000;

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

}  // namespace

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

Result<NetworkRates> network_rates(Communicator& comm, const std::vector<int>& hosts) {
  const std::size_t count = planner::ranks_on(hosts).size();
  const auto me = static_cast<std::size_t>(comm.rank().value);
  const perf::Buffer out(kLong, false), in(kLong, false);
  if (in.data() == nullptr || out.data() == nullptr)
    return Error{Code::kSystem, "no memory for the buffers", comm.rank()};
  const int rounds = std::min(kMostPartners, static_cast<int>(count + count % 2) - 1);
  NetworkRates rates{std::vector<double>(count, 0), {}};
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
      const double rate = pairs.ranks_paired[host] / took[host];
      const int other = pairs.host_of[host], self = static_cast<int>(host);
      double& pair = rates.pairs[{std::min(self, other), std::max(self, other)}];
      rates.hosts[host] = std::max(rates.hosts[host], rate);
      pair = std::max(pair, rate);
    }
  }
  return rates;
}

}  // namespace tutti::tools
