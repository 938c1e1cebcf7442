// Calls of devices in the flight record: what others read of them while they run, and once they
// have failed.
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <barrier>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <regex>
#include <string>
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

/// Until the rank's entries satisfy `are`.
bool become(int rank, const std::function<bool(const std::vector<flight::Seen>&)>& are) {
  return eventually(
      [&] {
        return std::ranges::any_of(device_tracks(), [&](const flight::SeenTrack& track) {
          return track.rank == rank && !track.entries.empty() && are(track.entries);
        });
      },
      std::chrono::seconds(60));
}

/// Until the last entry of the rank satisfies `is`.
bool becomes(int rank, const std::function<bool(const flight::Seen&)>& is) {
  return become(rank, [&](const auto& entries) { return is(entries.back()); });
}

/// Whether a kernel says that it has waited for that rank.
bool waits_for(const flight::Seen& seen, int peer) {
  return seen.running() && seen.state.at == At::kBegun && seen.state.awaited == peer &&
         seen.reached_ns > seen.begin_ns;
}

bool is_launched(const flight::Seen& seen) {
  return seen.running() && seen.state.at == At::kLaunched;
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
      return seen.call == call && seen.running() && seen.state.at >= At::kOnDevice &&
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

TEST_CASE("a call has an end, and the host knows how much earlier it may have been") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  const test::Case test = all_reduce_of(3000, 2);
  const DeviceCase first(test, 0, test::device_of(0), 1), second(test, 1, test::device_of(1), 1);
  const std::int64_t before_ns = flight::Now::look().ns;
  REQUIRE(first.start(cluster.comms[0], cluster.streams[0]) == "");
  std::int64_t reached_ns = 0;
  REQUIRE(becomes(0, [&](const flight::Seen& seen) {
    reached_ns = seen.reached_ns;
    return waits_for(seen, 1);
  }));
  const std::int64_t seen_ns = flight::Now::look().ns;
  REQUIRE(second.start(cluster.comms[1], cluster.streams[1]) == "");
  flight::Seen over;
  REQUIRE(becomes(0, [&](const flight::Seen& seen) {
    over = seen;
    return is_ok(seen) && seen.end_ns != 0;  // A reader may see a state without the end.
  }));
  CHECK(over.begin_ns >= before_ns);
  CHECK(over.end_ns >= seen_ns);
  CHECK(over.end_ns <= flight::Now::look().ns);
  // It was not over when it was seen to wait; times are of two clocks, so to a millisecond.
  CHECK(over.end_after_ns >= reached_ns - 1'000'000);
  CHECK(over.end_after_ns < over.end_ns);
  CHECK(over.state.awaited == 1);  // It is kept.
  // Rank 1 did not wait, so its call may have ended as soon as it was launched.
  REQUIRE(becomes(1, is_ok));
  CHECK(becomes(1, [&](const flight::Seen& seen) {
    return seen.end_ns >= seen_ns && seen.end_after_ns >= seen.begin_ns &&
           seen.end_after_ns < seen.end_ns;
  }));
}

TEST_CASE("a rank that has launched ahead shows the call and the rank that its device waits for") {
  const bool staged = GENERATE(false, true);
  INFO((staged ? "staged" : "mapped"));
  std::optional<test::NoPeerAccess> no_access;
  if (staged) no_access.emplace();
  DeviceCluster cluster({0, 1, 2});
  REQUIRE(cluster.complaint.empty());
  const std::size_t count = GENERATE(100, 30000);
  const test::Case test = all_reduce_of(count, 3);
  std::vector<std::unique_ptr<DeviceCase>> cases;
  for (std::size_t rank = 0; rank < 3; ++rank)
    cases.push_back(
        std::make_unique<DeviceCase>(test, rank, test::device_of(static_cast<int>(rank)), 1));
  const auto call = [&](std::size_t rank, int times) {
    for (int i = 0; i < times; ++i)
      REQUIRE(cases[rank]->start(cluster.comms[rank], cluster.streams[rank]) == "");
  };
  call(0, 5);
  call(1, 5);
  call(2, 2);
  for (const int rank : {0, 1}) {
    CHECK(become(rank, [](const std::vector<flight::Seen>& entries) {
      return entries.size() == 5 && is_ok(entries[0]) && is_ok(entries[1]) &&
             waits_for(entries[2], 2) && is_launched(entries[3]) && is_launched(entries[4]) &&
             entries[1].end_ns >= entries[1].end_after_ns && entries[1].end_after_ns != 0;
    }));
  }
  call(2, 3);
  for (const int rank : {0, 1, 2}) CHECK(becomes(rank, is_ok));
}

/// What `tutti status` prints with these arguments; its exit code goes ahead of it.
std::string status_of(const std::string& arguments) {
  const char* const build = std::getenv("TEST_BUILD_DIR");
  const std::string command =
      std::string(build != nullptr ? build : ".") + "/tools/tutti status " + arguments + " 2>&1";
  std::FILE* const pipe = popen(command.c_str(), "r");
  if (pipe == nullptr) return "it can't be started";
  std::string said;
  std::array<char, 4096> part{};
  while (const std::size_t got = fread(part.data(), 1, part.size(), pipe))
    said.append(part.data(), got);
  const int status = pclose(pipe);
  return std::to_string(WIFEXITED(status) ? WEXITSTATUS(status) : -1) + "\n" + said;
}

TEST_CASE("tutti status shows for which rank devices wait, also from saved files") {
  DeviceCluster cluster({0, 1});
  REQUIRE(cluster.complaint.empty());
  const test::Case test = all_reduce_of(3000, 2);
  const DeviceCase first(test, 0, test::device_of(0), 1), second(test, 1, test::device_of(1), 1);
  for (int call = 0; call < 2; ++call)
    REQUIRE(first.start(cluster.comms[0], cluster.streams[0]) == "");
  REQUIRE(second.start(cluster.comms[1], cluster.streams[1]) == "");
  REQUIRE(become(0, [](const auto& entries) { return waits_for(entries.back(), 1); }));
  const test::ScratchDirectory files;
  const std::string saved = files.path() + "/saved.json", pid = std::to_string(getpid());
  CHECK(status_of(pid + " --save " + saved).starts_with("0\n"));
  for (const std::string& from : {pid, "--merge " + saved}) {
    const std::string said = status_of(from + " --calls --stuck 0.0001");
    INFO(said);
    CHECK(said.starts_with("1\n"));  // A rank is stuck.
    CHECK(said.find("waits for 1, ") != std::string::npos);
    CHECK(said.find("rank 1 has not made call 2 (all_reduce of 3000 float32 (sum));\n"
                    "  rank 0 has waited for it for ") != std::string::npos);
    // A bound of how long the first call took, and that the second waits.
    const auto has = [&said](const char* call, const char* state) {
      const std::string what = " +all_reduce of 3000 float32 \\(sum\\) +";
      return std::regex_search(said, std::regex(call + what + state));
    };
    CHECK(has("1", "ok +< [0-9]+\\.[0-9] ms"));
    CHECK(has("2", "waits "));
  }
  REQUIRE(second.start(cluster.comms[1], cluster.streams[1]) == "");
  CHECK(becomes(0, is_ok));
}

TEST_CASE("of messages that go together the one is shown that waits") {
  DeviceCluster cluster({0, 1, 2});
  REQUIRE(cluster.complaint.empty());
  constexpr std::size_t kCount = 60000;  // More than the rings take.
  std::vector<exec::CudaMemory> memory;
  for (const int rank : {0, 1, 2}) {
    auto one = exec::CudaMemory::allocate(test::device_of(rank), kCount);
    REQUIRE(one);
    memory.push_back(std::move(*one));
  }
  const auto receive = [&](std::size_t rank) {
    return test::said(cluster.comms[rank].recv(memory[rank].data(), kCount, DataType::kUint8,
                                               Rank{0}, cluster.streams[rank]));
  };
  {
    Group group;
    for (const int peer : {1, 2}) {
      CHECK(cluster.comms[0].send(memory[0].data(), kCount, DataType::kUint8, Rank{peer},
                                  cluster.streams[0]));
    }
    REQUIRE(group.end());
  }
  REQUIRE(receive(1) == "");
  CHECK(become(0, [](const std::vector<flight::Seen>& entries) {
    return entries.size() == 2 && waits_for(entries[1], 2) && entries[1].peer() == 2;
  }));
  REQUIRE(receive(2) == "");
  for (const int rank : {0, 1, 2}) CHECK(becomes(rank, is_ok));
}

TEST_CASE("a call by copy engines shows the rank that its stream waits for") {
  Settings settings = small_settings();
  settings.algorithm = "copy_engines";
  DeviceCluster cluster({0, 1, 2}, settings);
  REQUIRE(cluster.complaint.empty());
  test::Case test;
  test.collective = Collective::kAllGather;
  test.ranks = 3;
  test.count = 3000;
  std::barrier<> shown(3);
  CHECK(test::each(cluster, [&](std::size_t rank) {
          DeviceCommunicator& comm = cluster.comms[rank];
          const DeviceCase mine(test, rank, comm.device(), 1);
          std::string wrong;
          for (const exec::CudaMemory* memory :
               {&mine.buffers().input_memory, &mine.buffers().output_memory})
            wrong += test::said(comm.register_memory(memory->data(), memory->size()));
          if (rank == 1) shown.arrive_and_wait();
          wrong += mine.start(comm, cluster.streams[rank]);
          const auto waits = [](const flight::Seen& seen) {
            return seen.running() && seen.state.at == At::kOnDevice && seen.state.awaited == 1;
          };
          if (rank != 1 && !becomes(static_cast<int>(rank), waits)) wrong += "rank 1 is not named";
          if (rank != 1) shown.arrive_and_wait();
          wrong += mine.finish(comm, cluster.streams[rank]);
          for (const exec::CudaMemory* memory :
               {&mine.buffers().input_memory, &mine.buffers().output_memory})
            wrong += test::said(comm.deregister_memory(memory->data()));
          return wrong;
        }) == "");
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
           seen.state.at == At::kBegun && seen.end_ns > seen.begin_ns;
  }));
}

}  // namespace
}  // namespace tutti
