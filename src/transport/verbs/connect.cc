#include "transport/verbs/connect.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <numeric>
#include <system_error>

#include "base/bytes.h"
#include "base/check.h"
#include "base/log.h"
#include "transport/verbs/endpoint_info.h"
#include "transport/verbs/pair.h"

namespace tutti::verbs {
namespace {

// Records that a queue pair's ring holds: all queue pairs of a rank share one completion queue.
constexpr std::uint32_t kMostDepth = 128, kLeastDepth = 32, kAllDepths = 4096;
// Bytes in one exchange: those of all ranks together, thousands, are one value of a store.
constexpr std::size_t kExchangeBytes = 768;
constexpr std::size_t kPage = 4096;
// The device tells at least every so many bytes that they have arrived, and of every payload that
// goes over any rail: what it has not told of counts as unsent, and a rail with more of that gets
// nothing.
constexpr std::size_t kToldBytes = std::size_t{32} << 10;
// Least size of one write: a long frame has to be few writes. Real devices take 1 GiB, rxe 8 MiB.
constexpr std::uint32_t kLeastMessage = 1 << 20;

std::string host_name() {
  std::array<char, kMostEndpointText + 1> name{};
  if (gethostname(name.data(), kMostEndpointText) != 0 || name[0] == 0) return "an unnamed host";
  return name.data();
}

/// A rank's error, in the words that all ranks use.
Error of_rank(std::size_t me, std::size_t rank, Error error) {
  if (rank == me) return error;
  return {error.code, fmt::format("rank {}: {}", rank, error.what), Rank{static_cast<int>(me)},
          Rank{static_cast<int>(rank)}};
}

/// A rank's resources before it knows of the others.
struct Prepared {
  std::unique_ptr<Resources> resources = std::make_unique<Resources>();
  std::vector<std::vector<Pair>> pairs;  // By place in `far`.
  std::uint32_t inline_bytes = 0;
};

/// Joins the ranks by one rail.
class Connecting {
 public:
  Connecting(const net::Joining& to, ChosenPort chosen, std::size_t rail, const Options& options)
      : to_(to),
        chosen_(std::move(chosen)),
        rail_(rail),
        opening_(to.opening),
        me_(static_cast<std::size_t>(to.opening.me)),
        ranks_(to.opening.peers.size()),
        pairs_(options.pairs),
        depth_(depth_for(ranks_ * pairs_)),
        told_bytes_(std::min(kToldBytes, options.spread_bytes)),
        patience_(to.opening.deadline.at - std::chrono::steady_clock::now()) {
    TUTTI_CHECK(pairs_ >= 1 && pairs_ <= kMostPairs);
  }

  Result<Rail> run() {
    auto prepared = prepare();
    TUTTI_TRY(const auto infos, exchange_endpoint_info(prepared));
    TUTTI_TRY(const auto numbers, exchange_numbers(*prepared));
    auto rail = join(*std::move(prepared), infos, numbers);
    TUTTI_RETURN_IF_ERROR(agree("connected", rail ? ok() : Status(rail.error())));
    const Status tried = try_all(*rail, opening_.deadline.at);
    TUTTI_RETURN_IF_ERROR(agree("tried", tried ? ok() : Status(tried.error())));
    return rail;
  }

 private:
  using Numbers = std::vector<std::vector<std::uint32_t>>;  // By rank, by its peer.

  static std::uint32_t depth_for(std::size_t queue_pairs) {
    const auto share = static_cast<std::uint32_t>(kAllDepths / queue_pairs / 4 * 4);
    return std::clamp(share, kLeastDepth, kMostDepth);
  }
  std::size_t ring_bytes() const { return pairs_ * depth_ * kRecordBytes; }

  Result<Prepared> prepare() const;
  EndpointInfo endpoint_info_of(const Prepared& prepared) const;
  Result<std::vector<EndpointInfo>> exchange_endpoint_info(const Result<Prepared>& prepared) const;
  Result<Numbers> exchange_numbers(const Prepared& prepared) const;
  Result<Rail> join(Prepared prepared, const std::vector<EndpointInfo>& infos,
                    const Numbers& numbers) const;
  GpuDirectMemories gpudirect_of(const Resources& made, int peer, const EndpointInfo& info) const;
  Status connect_pair(const Prepared& prepared, ibv_qp& pair, std::size_t rank,
                      const EndpointInfo& peer, std::uint32_t number) const;
  Status agree(std::string_view name, const Status& mine) const;
  /// Where a rank's packets begin to be counted: another number in each process, so that what an
  /// earlier one with the same queue pair sent is not taken for it.
  std::uint32_t first_packet(std::size_t rank, std::uint32_t number) const {
    return static_cast<std::uint32_t>(opening_.peers[rank].process[0] + number) & kMostPsn;
  }
  Error of_rank(std::size_t rank, Error error) const {
    return verbs::of_rank(me_, rank, std::move(error));
  }
  std::string phase(std::string_view name) const { return fmt::format("verbs {} {}", rail_, name); }

  const net::Joining& to_;
  ChosenPort chosen_;
  std::size_t rail_;
  const Opening& opening_;
  std::size_t me_, ranks_, pairs_;
  std::uint32_t depth_;
  std::size_t told_bytes_;
  std::chrono::steady_clock::duration patience_;
};

Result<Prepared> Connecting::prepare() const {
  Prepared prepared;
  Resources& made = *prepared.resources;
  const std::size_t queue_pairs = to_.far.size() * pairs_;
  TUTTI_TRY(made.device,
            Device::open(chosen_, std::max<std::size_t>(1, queue_pairs) * completions(depth_)));
  if (made.device->port().max_msg_sz < kLeastMessage) {
    return Error{Code::kUnsupported,
                 fmt::format("verbs: {} writes {} bytes at most; TUTTI_TRANSPORT=tcp does without",
                             made.device->name(), made.device->port().max_msg_sz)};
  }
  TUTTI_TRY(made.near, made.device->enroll(to_.near));
  TUTTI_TRY(made.replica, made.device->enroll(to_.replica));
  const GpuDirectSlots& gpudirect = opening_.gpudirect;
  if (gpudirect.there()) {
    TUTTI_TRY(made.gpudirect, made.device->enroll_gpudirect(gpudirect.memory, gpudirect.dma_buf));
  }
  // For each peer the ring that it writes, and the records that this rank writes into its ring.
  made.record_bytes = std::max(2 * to_.far.size() * ring_bytes(), kPage);
  made.record_memory.reset(static_cast<std::byte*>(std::aligned_alloc(kPage, made.record_bytes)));
  if (made.record_memory == nullptr)
    return Error{Code::kSystem, "verbs: no memory for the rings of records"};
  std::memset(made.record_memory.get(), 0, made.record_bytes);
  TUTTI_TRY(made.records, made.device->enroll({made.record_memory.get(), made.record_bytes}));
  for (std::size_t i = 0; i < to_.far.size(); ++i) {
    auto& pairs = prepared.pairs.emplace_back();
    while (pairs.size() < pairs_) {
      ibv_qp_cap wanted = capacity(depth_);
      TUTTI_TRY(auto pair, made.device->make_pair(wanted));
      prepared.inline_bytes = wanted.max_inline_data;
      pairs.push_back(std::move(pair));
    }
  }
  return prepared;
}

EndpointInfo Connecting::endpoint_info_of(const Prepared& prepared) const {
  const Resources& made = *prepared.resources;
  const auto memory = [](const ibv_mr& registered) {
    return RemoteMemory{reinterpret_cast<std::uintptr_t>(registered.addr), registered.length,
                        registered.rkey};
  };
  RemoteMemory gpudirect;
  if (made.gpudirect != nullptr) {  // For a dma-buf the library notes the offset as the address.
    const auto bytes = opening_.gpudirect.memory;
    gpudirect = {reinterpret_cast<std::uintptr_t>(bytes.data()), bytes.size(),
                 made.gpudirect->rkey};
  }
  return {.host = host_name(),
          .device = made.device->name(),
          .address = text_of(address_of(*made.device), chosen_.port.layer),
          .gid = chosen_.gid.gid,
          .lid = made.device->port().lid,
          .layer = chosen_.port.layer,
          .mtu = static_cast<std::uint8_t>(made.device->port().active_mtu),
          .near = memory(*made.near),
          .replica = memory(*made.replica),
          .records = memory(*made.records),
          .gpudirect = gpudirect};
}

Result<std::vector<EndpointInfo>> Connecting::exchange_endpoint_info(
    const Result<Prepared>& prepared) const {
  const Bytes mine = prepared ? encode(endpoint_info_of(*prepared)) : encode(prepared.error());
  TUTTI_TRY(const auto all, opening_.exchange(phase("card"), mine));
  if (!prepared) return prepared.error();
  std::vector<EndpointInfo> infos;
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    auto info = parse_endpoint_info(all[rank]);
    if (!info) return of_rank(rank, info.error());
    const RemoteMemory& theirs = info->near;
    if (info->replica.bytes != to_.replica.size() || theirs.bytes != to_.near.size())
      return of_rank(rank, {Code::kMismatch, "verbs: its region has another size"});
    const GpuDirectSlots& gpudirect = opening_.gpudirect;
    const std::size_t needed = gpudirect.there() ? gpudirect_bytes(opening_.config, gpudirect.hosts,
                                                                   static_cast<int>(rank))
                                                 : 0;
    if (info->gpudirect.bytes < needed || (needed == 0 && info->gpudirect.bytes != 0))
      return of_rank(rank, {Code::kMismatch, "verbs: its slots are not where this rank's are"});
    infos.push_back(*std::move(info));
  }
  return infos;
}

/// By rank, the numbers of its queue pairs for each other rank; zero: it has none for it.
Result<Connecting::Numbers> Connecting::exchange_numbers(const Prepared& prepared) const {
  constexpr std::size_t kNumber = sizeof(std::uint32_t);
  Bytes mine(ranks_ * pairs_ * kNumber);
  for (std::size_t i = 0; i < to_.far.size(); ++i) {
    const auto at = static_cast<std::size_t>(to_.far[i]) * pairs_ * kNumber;
    ByteWriter writer{std::span(mine).subspan(at)};
    for (const Pair& pair : prepared.pairs[i]) writer.number(pair->qp_num);
  }
  Numbers numbers(ranks_);
  for (std::size_t at = 0; at < mine.size(); at += kExchangeBytes) {
    const auto piece = std::span(mine).subspan(at, std::min(kExchangeBytes, mine.size() - at));
    TUTTI_TRY(const auto all,
              opening_.exchange(phase(fmt::format("pairs {}", at / kExchangeBytes)), piece));
    for (std::size_t rank = 0; rank < ranks_; ++rank) {
      if (all[rank].size() != piece.size())
        return of_rank(rank, {Code::kMismatch, "verbs: it speaks another version"});
      ByteReader reader(all[rank]);
      for (std::size_t i = 0; i < piece.size(); i += kNumber)
        numbers[rank].push_back(reader.number<std::uint32_t>());
    }
  }
  return numbers;
}

Status Connecting::connect_pair(const Prepared& prepared, ibv_qp& pair, std::size_t rank,
                                const EndpointInfo& peer, std::uint32_t number) const {
  const PairEnds ends{.peer = {peer.gid, peer.lid, peer.mtu},
                      .peer_number = number,
                      .peer_psn = first_packet(rank, number),
                      .own_psn = first_packet(me_, pair.qp_num)};
  return verbs::connect_pair(
      *prepared.resources->device, pair, ends,
      fmt::format("rank {} ({}) at {} {}", rank, peer.host, peer.device, peer.address));
}

/// The ranges of both ranks for each other.
GpuDirectMemories Connecting::gpudirect_of(const Resources& made, int peer,
                                           const EndpointInfo& info) const {
  if (made.gpudirect == nullptr) return {};
  const GpuDirectSlots& gpudirect = opening_.gpudirect;
  const int me = opening_.me;
  const GpuDirectRanges mine = gpudirect_ranges(opening_.config, gpudirect.hosts, me, peer);
  const GpuDirectRanges theirs = gpudirect_ranges(opening_.config, gpudirect.hosts, peer, me);
  return {.out = {gpudirect.memory.subspan(mine.out, mine.bytes), made.gpudirect->lkey},
          .in = {gpudirect.memory.subspan(mine.in, mine.bytes), made.gpudirect->lkey},
          .peer_in = {info.gpudirect.address + theirs.in, theirs.bytes, info.gpudirect.key}};
}

Result<Rail> Connecting::join(Prepared prepared, const std::vector<EndpointInfo>& infos,
                              const Numbers& numbers) const {
  Resources& made = *prepared.resources;
  const LinkLayer layer = chosen_.port.layer;
  const std::span records(made.record_memory.get(), made.record_bytes);
  const std::uint32_t most_message =
      std::min(made.device->port().max_msg_sz, static_cast<std::uint32_t>(net::kMostFrameBytes));
  std::vector<std::unique_ptr<Link>> links(ranks_);
  for (std::size_t i = 0; i < to_.far.size(); ++i) {
    const auto rank = static_cast<std::size_t>(to_.far[i]);
    const EndpointInfo& info = infos[rank];
    if (info.layer != layer) {
      return of_rank(rank, {Code::kUnsupported,
                            "verbs: one side has InfiniBand, the other one "
                            "Ethernet; TUTTI_TRANSPORT=tcp does without"});
    }
    for (std::size_t pair = 0; pair < pairs_; ++pair) {
      const std::uint32_t number = numbers[rank][me_ * pairs_ + pair];
      TUTTI_RETURN_IF_ERROR(connect_pair(prepared, *prepared.pairs[i][pair], rank, info, number));
    }
    // At the peer this rank's ring comes after those of lower ranks that it is connected with.
    std::size_t place = 0;
    for (std::size_t other = 0; other < me_; ++other) {
      if (numbers[rank][other * pairs_] != 0) ++place;
    }
    RemoteMemory peer_in = info.records;
    if (peer_in.bytes < (2 * place + 1) * ring_bytes())
      return of_rank(rank, {Code::kMismatch, "verbs: it has too little memory for records"});
    peer_in.address += 2 * place * ring_bytes();
    links[rank] = std::make_unique<Link>(
        *made.device,
        LinkParts{
            .me = opening_.me,
            .peer = to_.far[i],
            .index = static_cast<std::uint32_t>(i),
            .where = link_name(to_.far[i], info.host, *made.device, info.device,
                               {info.gid, info.lid, info.mtu}),
            .peer_host = info.host,
            .peer_device = info.device,
            .depth = depth_,
            .inline_bytes = prepared.inline_bytes,
            .most_message = most_message,
            .told_bytes = told_bytes_,
            .near = {to_.near, made.near->lkey},
            .replica = {to_.replica, made.replica->lkey},
            .peer_near = info.near,
            .peer_replica = info.replica,
            .gpudirect = gpudirect_of(made, to_.far[i], info),
            .in = {records.subspan(2 * i * ring_bytes(), ring_bytes()), made.records->lkey},
            .out = {records.subspan((2 * i + 1) * ring_bytes(), ring_bytes()), made.records->lkey},
            .peer_in = peer_in,
            .patience = patience_},
        std::move(prepared.pairs[i]));
    TUTTI_RETURN_IF_ERROR(links[rank]->begin());
  }
  return Rail{std::move(prepared.resources), std::move(links)};
}

/// Nobody goes on unless all can.
Status Connecting::agree(std::string_view name, const Status& mine) const {
  TUTTI_TRY(const auto all, opening_.exchange(phase(name), mine ? Bytes{} : encode(mine.error())));
  if (!mine) return mine.error();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    if (!all[rank].empty()) return of_rank(rank, parse_endpoint_info(all[rank]).error());
  }
  return ok();
}

/// The ports that this rank would prefer, joined with these.
PortPreference preference_of(const Opening& opening, std::span<const int> far,
                             std::span<const Port> ports) {
  const auto me = static_cast<std::size_t>(opening.me);
  const Peer& own = opening.peers[me];
  PortPreference preference{.layers = own.rdma,
                            .rule = opening.rdma_devices,
                            .gid_index = opening.rdma_gid_index,
                            .turn = 0,
                            .sharers = 0,
                            .only = opening.only_cards};
  std::vector<int> here;
  for (const int rank : far)
    preference.layers &= opening.peers[static_cast<std::size_t>(rank)].rdma;
  for (std::size_t rank = 0; rank < opening.peers.size(); ++rank) {
    if (!std::equal(own.host, own.host + 2, opening.peers[rank].host)) continue;
    ++preference.sharers;
    if (rank < me) ++preference.turn;
    here.push_back(static_cast<int>(rank));
  }
  if (opening.nic_paths == nullptr) return preference;
  std::vector<std::string> names;
  for (const Port& port : ports) names.push_back(name_of(port));
  preference.paths = opening.nic_paths(here, names);
  return preference;
}

/// As many of each rank as the one with the fewest has.
Result<ChosenPorts> agree_on_ports(const net::Joining& to, std::span<const Port> ports) {
  const Opening& opening = to.opening;
  const auto me = static_cast<std::size_t>(opening.me);
  PortPreference preference = preference_of(opening, to.far, ports);
  const auto mine = choose_ports(ports, preference);
  // Its length tells a number from an error.
  const Bytes said =
      mine ? Bytes{static_cast<std::byte>(mine->rails.size())} : encode(mine.error());
  TUTTI_TRY(const auto all, opening.exchange("verbs rails", said));
  if (!mine) return mine.error();
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto count = all[rank].size() == 1 ? static_cast<std::size_t>(all[rank][0]) : 0;
    if (count == 0) {
      const auto told = parse_endpoint_info(all[rank]);
      return of_rank(
          me, rank,
          told ? Error{Code::kMismatch, "verbs: it speaks another version"} : told.error());
    }
    preference.most = std::min(preference.most, count);
  }
  return choose_ports(ports, preference);
}

/// Gives all rails the traffic class and the service level that the settings name.
void mark_packets(const PacketMarks& marks, ChosenPorts& chosen) {
  const auto& [traffic_class, service_level] = marks;
  for (ChosenPort& rail : chosen.rails) {
    rail.traffic_class = static_cast<std::uint8_t>(std::max(traffic_class, 0));
    rail.service_level = static_cast<std::uint8_t>(std::max(service_level, 0));
  }
  if (traffic_class >= 0) chosen.why += fmt::format(", traffic class {}", traffic_class);
  if (service_level >= 0) chosen.why += fmt::format(", service level {}", service_level);
}

}  // namespace

Result<std::vector<std::string>> try_cards(const Opening& opening, std::span<const Port> ports) {
  std::vector<int> all(opening.peers.size());
  std::iota(all.begin(), all.end(), 0);
  const bool to_use = opening.gpudirect.there();
  PortPreference preference = preference_of(opening, all, ports);
  if (!to_use) {  // As if it were alone on its host, and had no use for a limit.
    preference.turn = 0;
    preference.sharers = 1;
    preference.paths = {};
    preference.most = std::max<std::size_t>(ports.size(), 1);
  }
  TUTTI_TRY(const auto chosen, choose_ports(ports, preference));
  std::vector<std::string> cards;
  for (const ChosenPort& one : chosen.rails) {
    cards.push_back(name_of(one.port));
    if (!to_use) continue;
    TUTTI_TRY(const auto device, Device::open(one, 1));
    TUTTI_TRY([[maybe_unused]] const auto memory,
              device->enroll_gpudirect(opening.gpudirect.memory, opening.gpudirect.dma_buf));
  }
  return cards;
}

Result<std::unique_ptr<VerbsNetwork>> connect(const net::Joining& to, std::span<const Port> ports,
                                              const Options& options) {
  TUTTI_TRY(auto chosen, agree_on_ports(to, ports));
  mark_packets(to.opening.rdma_marks, chosen);
  log::info(log::Part::kNet, "verbs: {}", chosen.why);
  std::vector<Rail> rails;
  std::optional<Error> failed;
  NicsUsed used;
  for (std::size_t i = 0; i < chosen.rails.size(); ++i) {
    auto rail = Connecting(to, chosen.rails[i], i, options).run();
    if (!rail) {
      if (!failed) failed = std::move(rail.error());
      continue;
    }
    if (rails.empty() || i <= chosen.first) {
      used.own = rails.size();
      used.why = chosen.rails[i].near;
    }
    rails.push_back(*std::move(rail));
    used.names.push_back(name_of(chosen.rails[i].port));
  }
  if (rails.empty()) return *std::move(failed);
  if (failed)
    log::warn(log::Part::kNet, "{}; {} of {} ways there are left", failed->what, rails.size(),
              chosen.rails.size());
  return VerbsNetwork::open(std::move(rails), options.spread_bytes, std::move(used),
                            options.renewal);
}

}  // namespace tutti::verbs
