#include "comm/meet.h"

#include <atomic>
#include <cstring>
#include <string>

#include <fmt/format.h>

#include "base/hash.h"

namespace tutti {
namespace {

/// The first data that every rank sends. Plain data.
struct JoinInfo {
  char version[16] = {};
  std::int32_t rank_count = 0;
  std::uint32_t settings_hash = 0;                  // A hash of what all ranks must have alike.
  std::uint32_t devices = 0;                        // 1: it is of a DeviceCommunicator.
  TopologySource topology = TopologySource::kNone;  // Rank 0's counts.
  std::uint64_t serial = 0;                         // Met's.
  std::uint64_t keeps_store = 0;                    // 1: Rendezvous::kept_here.
  std::uint64_t origin = 0;                         // Met's, of this rank.
  Peer peer;
};

std::uint32_t shared_settings_hash(const Settings& settings, std::uint64_t plans) {
  return static_cast<std::uint32_t>(Hash()
                                        .add(settings.algorithm)
                                        .add(to_string(settings.wire))
                                        .add(settings.transport)
                                        .add(settings.slot_bytes)
                                        .add(settings.slot_count)
                                        .add(settings.lanes)
                                        .add(settings.read_from_bytes)
                                        .add(settings.adapt ? 1 : 0)
                                        .add(static_cast<std::uint64_t>(settings.contract))
                                        .add(plans)
                                        .add_all(settings.groups)
                                        .add_all(settings.weights)
                                        .value());
}

/// Rank 0's message about its tables; a part of a communicator may have those of the whole.
Bytes tuning_to_tell(const CommunicatorConfig& comm_config, const Tuning* whole) {
  if (whole == nullptr) return pack_tuning(find_tuning(comm_config.settings));
  auto found = find_tuning_of_part(comm_config.settings, comm_config.rank_count, *whole);
  return found ? pack_tuning(*std::move(found)) : Bytes{};
}

JoinInfo introduce(const CommunicatorConfig& comm_config, std::uint64_t plans) {
  static constinit std::atomic<std::uint64_t> begun{0};
  JoinInfo mine;
  std::strncpy(mine.version, TUTTI_VERSION, sizeof(mine.version) - 1);
  mine.rank_count = comm_config.rank_count;
  mine.settings_hash = shared_settings_hash(comm_config.settings, plans);
  mine.devices = comm_config.devices ? 1 : 0;
  if (!comm_config.devices && comm_config.parent == nullptr)
    mine.topology = topology_source(comm_config.settings, comm_config.rank_count);
  // relaxed: only the numbers matter, and that they differ.
  mine.serial = begun.fetch_add(1, std::memory_order_relaxed) + 1;
  const std::uint64_t before =
      comm_config.parent != nullptr ? comm_config.parent->origin() : comm_config.origin;
  mine.origin = before != 0 ? before : mine.serial;
  const Rendezvous* const rendezvous = comm_config.rendezvous;
  mine.keeps_store = rendezvous != nullptr && rendezvous->kept_here() ? 1 : 0;
  mine.peer = this_process();
  return mine;
}

}  // namespace

Result<Met> meet(const CommunicatorConfig& comm_config, std::uint64_t plans,
                 const Exchange& exchange, std::shared_ptr<const Tuning>& tuning) {
  const Rank me = comm_config.me;
  const int rank_count = comm_config.rank_count;
  const bool devices = comm_config.devices;
  Rendezvous* const rendezvous = comm_config.rendezvous;
  const JoinInfo mine = introduce(comm_config, plans);
  const auto plain = std::as_bytes(std::span(&mine, 1));
  Bytes sent(plain.begin(), plain.end());
  if (me.value == 0) {
    const Bytes found = tuning_to_tell(comm_config, tuning.get());
    sent.insert(sent.end(), found.begin(), found.end());
  }
  TUTTI_TRY(const auto all, exchange("hello", sent));
  Met met;
  const std::string this_rank = fmt::format("rank {}", me.value);  // The others read it, too.
  for (std::size_t rank = 0; rank < all.size(); ++rank) {
    const auto mismatch = [&](const std::string& what) {
      return Error{Code::kMismatch, fmt::format("rank {} {}", rank, what), me,
                   Rank{static_cast<int>(rank)}};
    };
    JoinInfo theirs;
    if (all[rank].size() < sizeof(JoinInfo) || (rank != 0 && all[rank].size() != sizeof(JoinInfo)))
      return mismatch("uses another version of Tutti than " TUTTI_VERSION);
    std::memcpy(&theirs, all[rank].data(), sizeof(theirs));
    if (std::memcmp(theirs.version, mine.version, sizeof(mine.version)) != 0) {
      theirs.version[sizeof(theirs.version) - 1] = 0;
      return mismatch(
          fmt::format("uses Tutti {}, {} uses " TUTTI_VERSION, theirs.version, this_rank));
    }
    if (theirs.rank_count != rank_count) {
      return mismatch(
          fmt::format("counts {} ranks, {} counts {}", theirs.rank_count, this_rank, rank_count));
    }
    if (theirs.devices != mine.devices) {
      return mismatch(fmt::format(
          "makes a communicator of {}, {} one of {}; all ranks have to make the same",
          devices ? "host memory" : "devices", this_rank, devices ? "devices" : "host memory"));
    }
    if (theirs.settings_hash != mine.settings_hash) {
      return mismatch("has other settings than " + this_rank +
                      "; TUTTI_ALGORITHM, TUTTI_TRANSPORT, TUTTI_CONTRACT, TUTTI_SLOT_BYTES, "
                      "TUTTI_SLOT_COUNT, TUTTI_READ_FROM, TUTTI_LANES, TUTTI_ADAPT, TUTTI_GROUPS, "
                      "TUTTI_WEIGHTS and the plans in TUTTI_PLAN must be alike on all ranks");
    }
    met.peers.push_back(theirs.peer);
    met.origins.push_back(theirs.origin);
    if (theirs.keeps_store != 0 && rendezvous != nullptr)
      rendezvous->kept_by(Rank{static_cast<int>(rank)});
    if (rank != 0) continue;
    met.topology = theirs.topology;
    met.serial = theirs.serial;
  }
  if (tuning == nullptr || all[0].size() != sizeof(JoinInfo)) {
    TUTTI_TRY(auto found, unpack_tuning(std::span(all[0]).subspan(sizeof(JoinInfo))));
    tuning = std::make_shared<const Tuning>(std::move(found));
  }
  return met;
}

}  // namespace tutti
