// Calls of devices in the flight record: what others read of them while they run, and once they
// have failed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <vector>

#include "exec/flight/reader.h"
#include "simt/communicator/device_communicators.h"
#include "support/catch.h"
#include "support/processes.h"

namespace tutti {
namespace {

namespace flight = exec::flight;
using flight::At;
using test::all_reduce_of;
using test::DeviceCase;
using test::DeviceCluster;
using test::eventually;
using test::small_settings;

/// The tracks of devices' calls of this process, as another process reads them.
std::vector<flight::SeenTrack> device_tracks() {
  std::vector<flight::SeenTrack> found;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    std::error_code ignored;
    const auto target = std::filesystem::read_symlink(entry.path(), ignored).string();
    if (target.find(flight::kFileName) == std::string::npos) continue;
    const int fd = open(entry.path().c_str(), O_RDONLY | O_CLOEXEC);
    const flight::Copy copy = [fd](std::uint64_t offset, std::span<std::byte> to) {
      return pread(fd, to.data(), to.size(), static_cast<off_t>(offset)) ==
             static_cast<ssize_t>(to.size());
    };
    for (auto& track : flight::read_file(copy, flight::Now::look())) {
      if (track.transport == "devices") found.push_back(std::move(track));
    }
    close(fd);
    break;
  }
  return found;
}

/// Until the last entry of the rank satisfies `is`.
bool becomes(int rank, const std::function<bool(const flight::Seen&)>& is) {
  return eventually(
      [&] {
        for (const flight::SeenTrack& track : device_tracks()) {
          if (track.rank == rank && !track.entries.empty() && is(track.entries.back())) return true;
        }
        return false;
      },
      std::chrono::seconds(60));
}

bool is_ok(const flight::Seen& seen) { return flight::outcome_name(seen.state) == "ok"; }

TEST_CASE("calls of devices are recorded as launched, on the device, and over") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  const test::Case test = all_reduce_of(3000, 2);
  const DeviceCase first(test, 0, test::device_of(0), 1), second(test, 1, test::device_of(1), 1);
  for (std::uint64_t call = 1; call <= 2; ++call) {
    REQUIRE(first.start(cluster.comms[0], cluster.streams[0]) == "");
    CHECK(becomes(0, [&](const flight::Seen& seen) {
      return seen.call == call && seen.running() && seen.state.at == At::kOnDevice &&
             seen.count == 3000 && flight::name_of(seen) == "all_reduce" && !seen.plan.empty();
    }));
    REQUIRE(second.start(cluster.comms[1], cluster.streams[1]) == "");
    for (const int rank : {0, 1}) {
      CHECK(becomes(rank,
                    [&](const flight::Seen& seen) { return seen.call == call && is_ok(seen); }));
    }
  }
  // A communicator of another test that has failed may still be there.
  const auto tracks = device_tracks();
  CHECK(std::ranges::count_if(tracks, [](const flight::SeenTrack& track) {
          const auto all_reduces = static_cast<std::size_t>(Collective::kAllReduce);
          return track.ranks == 2 && track.totals.calls[all_reduces] == 2 &&
                 track.totals.bytes[all_reduces] == 2 * 12000;
        }) == 2);
}

TEST_CASE("a rank that never pauses is followed, too, and so are messages") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  CHECK(test::each(cluster, [&](std::size_t rank) {
          return test::exchange_messages(cluster.comms[rank], cluster.streams[rank]);
        }) == "");
  CHECK(becomes(0, [](const flight::Seen& seen) { return seen.message() && is_ok(seen); }));
  const test::Case test = all_reduce_of(3000, 2);
  const DeviceCase first(test, 0, test::device_of(0), 1), second(test, 1, test::device_of(1), 1);
  // Rank 0 is always one ahead, so its latest call is never over.
  REQUIRE(first.start(cluster.comms[0], cluster.streams[0]) == "");
  std::uint64_t behind = 0;
  for (int call = 0; behind < 3 && call < 100'000; ++call) {
    REQUIRE(first.start(cluster.comms[0], cluster.streams[0]) == "");
    REQUIRE(second.start(cluster.comms[1], cluster.streams[1]) == "");
    if (call % 16 != 0) continue;
    for (const flight::SeenTrack& track : device_tracks()) {
      if (track.rank != 0) continue;
      behind = 0;
      for (const flight::Seen& seen : track.entries) behind += !seen.message() && is_ok(seen);
    }
  }
  CHECK(behind >= 3);
  REQUIRE(second.start(cluster.comms[1], cluster.streams[1]) == "");
  CHECK(becomes(0, is_ok));
}

TEST_CASE("a call that fails keeps the rank that it waited for") {
  Settings settings = small_settings();
  settings.timeout = std::chrono::seconds(2);
  DeviceCluster cluster({0, 1}, settings);
  REQUIRE(cluster.complaint.empty());
  const DeviceCase first(all_reduce_of(3000, 2), 0, test::device_of(0), 1);
  REQUIRE(first.start(cluster.comms[0], cluster.streams[0]) == "");
  CHECK(becomes(0, [](const flight::Seen& seen) {
    return flight::outcome_name(seen.state) == "timeout" && seen.state.awaited == 1 &&
           seen.state.at == At::kOnDevice;
  }));
}

}  // namespace
}  // namespace tutti
