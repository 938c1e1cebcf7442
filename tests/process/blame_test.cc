// Ranks as processes, of which one is killed or stopped in the middle. All others name it and its
// process, in the next call too. A rank whose buffer a stopped rank still uses says so.
#include <filesystem>
#include <fstream>

#include "support/catch.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

/// "" if the error blames the rank that runs as `pid`.
std::string blames(const Error& error, const Communicator& comm, Rank peer) {
  const std::string place = "(rank " + std::to_string(peer.value) + " is pid ";
  const bool right = error.peer == peer && error.rank == comm.rank() &&
                     error.what.find(place) != std::string::npos;
  return right ? "" : "blames " + std::to_string(error.peer.value) + ": " + error.to_string();
}

/// Makes all-reduces until one fails. Says that it is ready once one has worked.
Error until_failure(Communicator& comm, std::span<float> data, const ScratchDirectory& directory) {
  for (bool first = true;; first = false) {
    auto status = comm.all_reduce(data.data(), data.data(), data.size(), kF32, ReduceOp::kMax);
    if (!status) return status.error();
    if (first) say_ready(directory, comm.rank().value);
  }
}

TEST_CASE("all ranks blame the one that was killed or stopped, also those that wait for others") {
  Settings settings;
  settings.transport = GENERATE("shared_memory", "tcp");
  settings.algorithm = GENERATE("", "ring");  // Where each waits for its neighbour.
  settings.contract = Contract::kRelaxed;
  settings.timeout = 2s;
  const int signal = GENERATE(SIGKILL, SIGSTOP);
  INFO(settings.transport << " " << settings.algorithm << ", signal " << signal);
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 4, settings, [&](int, Communicator& comm) -> std::string {
    std::vector<float> data(settings.algorithm.empty() ? 100 : 300'000);
    const Error error = until_failure(comm, data, meeting);
    if (auto wrong = blames(error, comm, Rank{3}); !wrong.empty()) return wrong;
    return blames(comm.barrier().error(), comm, Rank{3});
  });
  REQUIRE(all_ready(meeting, 4));
  processes.signal(3, signal);
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank, 60s) == 0);
}

TEST_CASE("a call that fails while a stopped rank is in its buffers says so") {
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = 1500ms;
  bool said = false;
  for (int round = 0; round < 24 && !said; ++round) {  // It may be stopped between two calls.
    const ScratchDirectory meeting;
    Processes processes(3, [&](int rank) -> std::string {
      auto comm = join(meeting, rank, 3, settings);
      if (!comm) return comm.error().to_string();
      constexpr std::size_t kCount = std::size_t{16} << 20;
      auto memory = mem_alloc(kCount * sizeof(float));
      if (!memory) return memory.error().to_string();
      const Error error = until_failure(*comm, {static_cast<float*>(*memory), kCount}, meeting);
      const bool writes =
          error.what.find("rank 2 may still write into this call's buffers") != std::string::npos;
      if (writes) std::ofstream(meeting.path() + "/said").put('\n');
      return error.code == Code::kTimeout ? "" : "unexpected: " + error.to_string();
    });
    REQUIRE(all_ready(meeting, 3));
    processes.signal(2, SIGSTOP);
    for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank, 60s) == 0);
    said = std::filesystem::exists(meeting.path() + "/said");
    processes.signal(2, SIGCONT);
    CHECK(processes.wait(2, 60s) == 0);
  }
  CHECK(said);
}

TEST_CASE("an abort ends the wait for memory of a rank that does not answer") {
  using std::filesystem::exists;
  const ScratchDirectory meeting;
  const std::string go = meeting.path() + "/go";
  RankProcesses processes(meeting, 2, {}, [&](int rank, Communicator& comm) -> std::string {
    constexpr std::size_t kCount = std::size_t{1} << 20;
    auto memory = mem_alloc(kCount * sizeof(float));
    if (!memory) return memory.error().to_string();
    auto* const data = static_cast<float*>(*memory);
    if (rank == 1) {
      auto sent = comm.start_send(data, kCount, kF32, Rank{0});
      std::this_thread::sleep_for(200ms);  // The progress thread has told the receiver.
      say_ready(meeting, rank);
      return sent && !sent->wait() ? "" : "the message was taken";
    }
    say_ready(meeting, rank);
    if (!eventually([&] { return exists(go); })) return "no go";
    std::jthread ends([&] {
      std::this_thread::sleep_for(300ms);
      comm.abort("out of patience");
    });
    const auto start = std::chrono::steady_clock::now();
    const Status status = comm.recv(data, kCount, kF32, Rank{1});
    if (status) return "the message came";
    if (status.error().code != Code::kAborted) return status.error().to_string();
    // It waits for memory 5 s long.
    return std::chrono::steady_clock::now() - start < 3s ? "" : "late";
  });
  REQUIRE(all_ready(meeting, 2));
  processes.signal(1, SIGSTOP);
  std::ofstream(go).put('\n');
  CHECK(processes.wait(0, 60s) == 0);
  processes.signal(1, SIGCONT);
  CHECK(processes.wait(1, 60s) == 0);
}

}  // namespace
}  // namespace tutti::test
