#include "transport/ucx/meeting.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/long_wait.h"
#include "base/net/handshake.h"
#include "transport/tcp/endpoint_info.h"
#include "transport/ucx/devices.h"

namespace tutti::ucx {
namespace {

constexpr std::uint32_t kVersion = 1;  // Version of endpoint infos and messages.
// How often a rank that waits for others looks at the clock.
constexpr std::chrono::milliseconds kNap{10};
// How long a rank that has lost a peer waits to hear why.
constexpr std::chrono::milliseconds kVerdictTime{1000};

std::uint32_t version_of(const Library& library) {
  // "1.13.1"; the third number changes nothing on the wire.
  unsigned major = 0, minor = 0;
  if (std::sscanf(library.ucp_get_version_string(), "%u.%u", &major, &minor) != 2) return 0;
  return major << 16 | minor;
}

std::string in_words(std::uint32_t version) {
  return fmt::format("{}.{}", version >> 16, version & 0xffff);
}

/// Everybody's, by rank.
Result<std::vector<EndpointInfo>> exchange_endpoint_info(const Opening& opening,
                                                         const EndpointInfo& mine) {
  TUTTI_TRY(const auto all, opening.exchange("ucx card", encode(mine)));
  std::vector<EndpointInfo> infos;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto info = parse_endpoint_info(all[rank]);
    const Rank me{opening.me}, peer{static_cast<int>(rank)};
    if (!info) {
      return Error{Code::kMismatch,
                   fmt::format("ucx: rank {} speaks another version of this transport; all ranks "
                               "need the same version of Tutti",
                               rank),
                   me, peer};
    }
    if (info->ucx_version != mine.ucx_version) {
      return Error{
          Code::kMismatch,
          fmt::format("ucx: rank {} ({}) has UCX {}, rank {} ({}) has {}; install the same "
                      "on all hosts",
                      rank, info->host, in_words(info->ucx_version), opening.me, mine.host,
                      in_words(mine.ucx_version)),
          me, peer};
    }
    infos.push_back(*std::move(info));
  }
  return infos;
}

/// Ranks of `far` that have not said hello.
std::vector<int> missing(const net::Joining& to, UcxNetwork& network) {
  std::vector<int> ranks;
  std::copy_if(to.far.begin(), to.far.end(), std::back_inserter(ranks),
               [&](int rank) { return !network.carrier(rank)->met(); });
  return ranks;
}

/// A peer has gone. It may have left because another one has died: the ranks tell that each other.
Status why_gone(const Opening& opening, UcxNetwork& network, Error gone) {
  const Deadline last = Deadline::after(kVerdictTime);
  while (opening.look && !last.passed()) {
    TUTTI_RETURN_IF_ERROR(opening.look());
    network.sleep(kNap);
    while (network.worker().progress()) {
    }
  }
  return gone;
}

Status greet(const net::Joining& to, UcxNetwork& network, std::span<const EndpointInfo> infos) {
  for (const int rank : to.far) {
    const EndpointInfo& info = infos[static_cast<std::size_t>(rank)];
    UcxCarrier& carrier = network.add({.me = to.opening.me,
                                       .peer = rank,
                                       .peer_name = fmt::format("rank {} ({})", rank, info.host),
                                       .peer_key = info.key});
    if (auto begun = carrier.connect(info.address); !begun)
      return why_gone(to.opening, network, std::move(begun.error()));
  }
  const auto start = std::chrono::steady_clock::now();
  LongWait wait(to.opening.me);
  for (;;) {
    while (network.worker().progress()) {
    }
    const auto absent = missing(to, network);
    if (absent.empty()) break;
    wait.look([&] { return network.carrier(absent.front())->where() + ": not a word yet"; });
    for (const int rank : absent) {
      network.carrier(rank)->settle();
      if (auto failure = network.carrier(rank)->failure())
        return why_gone(to.opening, network, *std::move(failure));
    }
    // By some ways UCX does not notice that a process has ended.
    if (to.opening.look) TUTTI_RETURN_IF_ERROR(to.opening.look());
    if (to.opening.deadline.passed()) {
      const UcxCarrier& first = *network.carrier(absent.front());
      const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
      return Error{
          Code::kTimeout,
          fmt::format(
              "{}: not a word for {:.1f} s{}; UCX_TLS and UCX_NET_DEVICES choose "
              "another way, TUTTI_TRANSPORT=tcp does without UCX",
              first.where(), waited.count(),
              absent.size() > 1 ? fmt::format(", and from {} others", absent.size() - 1) : ""),
          Rank{to.opening.me}, Rank{absent.front()}};
    }
    network.sleep(kNap);
  }
  for (const int rank : to.far) network.carrier(rank)->settle();
  return ok();
}

}  // namespace

Bytes encode(const EndpointInfo& info) {
  const std::size_t host_bytes = std::min(info.host.size(), kMostHostBytes);
  Bytes bytes(4 + 4 + 1 + host_bytes + info.key.size() + info.address.size());
  ByteWriter writer(bytes);
  writer.number(kVersion);
  writer.number(info.ucx_version);
  writer.number(static_cast<std::uint8_t>(host_bytes));
  writer.copy(std::as_bytes(std::span(info.host).first(host_bytes)));
  writer.copy(info.key);
  writer.copy(info.address);
  return bytes;
}

std::optional<EndpointInfo> parse_endpoint_info(std::span<const std::byte> bytes) {
  ByteReader reader(bytes);
  EndpointInfo info;
  const auto version = reader.number<std::uint32_t>();
  info.ucx_version = reader.number<std::uint32_t>();
  const auto host_bytes = reader.number<std::uint8_t>();
  const auto host = reader.take(host_bytes);
  const auto key = reader.take(info.key.size());
  const auto address = reader.take_rest();
  if (version != kVersion || host_bytes > kMostHostBytes || key.size() != info.key.size() ||
      address.empty() || address.size() > kMostAddressBytes || !reader.whole())
    return std::nullopt;
  info.host.assign(reinterpret_cast<const char*>(host.data()), host.size());
  // It is printed.
  std::replace_if(
      info.host.begin(), info.host.end(), [](char c) { return c <= 0x20 || c >= 0x7f; }, '?');
  std::ranges::copy(key, info.key.begin());
  info.address.assign(address.begin(), address.end());
  return info;
}

Result<net::Connected> meet(const net::Joining& to) {
  const Opening& opening = to.opening;
  TUTTI_TRY(const Library* const ucx, library());
  TUTTI_TRY(const auto devices,
            choose_devices(opening.net_interfaces, net::on_one_host(opening.peers)));
  TUTTI_TRY(auto worker, Worker::open(*ucx, devices));
  EndpointInfo mine{.ucx_version = version_of(*ucx),
                    .host = tcp::host_name(),
                    .key = {},
                    .address = worker->address()};
  TUTTI_TRY(const auto random, tcp::random_bytes());
  std::copy_n(random.begin(), mine.key.size(), mine.key.begin());
  TUTTI_TRY(const auto infos, exchange_endpoint_info(opening, mine));
  TUTTI_TRY(auto network,
            UcxNetwork::open(std::move(worker), mine.key, static_cast<int>(opening.peers.size())));
  Status greeted = greet(to, *network, infos);
  return net::Connected{std::move(network), std::move(greeted)};
}

}  // namespace tutti::ucx
