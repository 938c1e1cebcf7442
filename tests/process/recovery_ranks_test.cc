// Ranks that are processes, and killed: at any moment of calls, of a shrink, of the set-up of what
// it makes. Those that are left go on with the same state. Over memory and over TCP.
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 4;

/// What each rank computes step by step, alike on all: after a failure a rank may be a step ahead.
struct State {
  std::int64_t step = 0, sum = 0;
};

/// Does a step; `stop` becomes true on all ranks alike once one wants it.
Status do_step(Communicator& comm, State& state, bool& stop) {
  const std::vector<std::int64_t> mine{state.step, state.sum, stop ? 1 : 0};
  std::vector<std::int64_t> all(3 * static_cast<std::size_t>(comm.rank_count()));
  TUTTI_RETURN_IF_ERROR(comm.all_gather(mine.data(), all.data(), 3, DataType::kInt64));
  std::vector<float> large(20000, 1);
  TUTTI_RETURN_IF_ERROR(comm.all_reduce(large.data(), large.data(), large.size(),
                                        DataType::kFloat32, ReduceOp::kSum));
  for (std::size_t at = 0; at < all.size(); at += 3) {
    if (all[at] != state.step || all[at + 1] != state.sum)
      return Error{Code::kInternal, "ranks differ at step " + std::to_string(state.step)};
    stop = stop || all[at + 2] != 0;
  }
  state.sum += static_cast<std::int64_t>(large[777]);
  ++state.step;
  return ok();
}

/// Takes steps until `stop_file` is there, whichever ranks are lost. "" or a complaint.
std::string survive(Communicator comm, const ScratchDirectory& directory) {
  State state, before;
  const int rank = comm.rank().value;
  for (bool stop = false; !stop;) {
    stop = std::filesystem::exists(directory.path() + "/stop");
    const State start = state;
    Status done = do_step(comm, state, stop);
    if (done) {
      before = start;
      if (state.step == 3) say_ready(directory, rank);
      continue;
    }
    if (done.error().code == Code::kInternal) return done.error().to_string();
    // The step is done everywhere or is done again.
    for (;;) {
      auto shrunk = comm.shrink();
      if (!shrunk) return shrunk.error().to_string();
      comm = std::move(shrunk->communicator);
      if (comm.rank_count() == 1) break;
      std::int64_t least = state.step;
      done = comm.all_reduce(&least, &least, 1, DataType::kInt64, ReduceOp::kMin);
      if (!done) continue;
      if (least != state.step) state = before;
      if (least != state.step) return "more than a step behind";
      break;
    }
    stop = false;
  }
  return "";
}

/// Kills `victims` in turn, `pause(i)` before each.
void kill_some(const std::string& transport, const std::vector<int>& victims,
               std::mt19937_64& random, int most_pause_us) {
  const ScratchDirectory directory;
  Settings settings;
  settings.transport = transport;
  settings.timeout = 120s;
  RankProcesses processes(directory, kRanks, settings, [&](int, Communicator& comm) {
    return survive(std::move(comm), directory);
  });
  REQUIRE(all_ready(directory, kRanks));
  for (const int victim : victims) {
    std::this_thread::sleep_for(
        std::chrono::microseconds(random() % static_cast<unsigned>(most_pause_us)));
    processes.signal(victim, SIGKILL);
  }
  std::this_thread::sleep_for(200ms);
  std::ofstream(directory.path() + "/stop").put('\n');
  for (int rank = 0; rank < kRanks; ++rank) {
    const bool killed = std::find(victims.begin(), victims.end(), rank) != victims.end();
    INFO("rank " << rank);
    CHECK(processes.wait(rank) == (killed ? 128 + SIGKILL : 0));
  }
}

TEST_CASE("whichever ranks are killed, and when, the others go on with the same state") {
  const auto seed = std::random_device{}();
  std::mt19937_64 random(seed);
  for (const char* const transport : {"shared_memory", "tcp"}) {
    for (const int first : {0, 1, 2, 3}) {
      const int second = (first + 1 + static_cast<int>(random() % 3)) % kRanks;
      INFO(transport << ", seed " << seed << ", ranks " << first << " and " << second);
      kill_some(transport, {first}, random, 20'000);
      // The second one while the others see to the first.
      kill_some(transport, {first, second}, random, 150'000);
    }
  }
}

TEST_CASE("a rank that dies before it comes to grow is named, and not waited for") {
  for (const char* const transport : {"shared_memory", "tcp"}) {
    INFO(transport);
    const ScratchDirectory directory;
    Settings settings;
    settings.transport = transport;
    settings.timeout = 300s;
    RankProcesses processes(
        directory, 3, settings, [&](int rank, Communicator& comm) -> std::string {
          if (auto status = comm.barrier(); !status) return status.error().to_string();
          say_ready(directory, rank);
          while (rank == 2) std::this_thread::sleep_for(1s);  // Until it is killed.
          auto there = file_rendezvous(directory.path(), "grown");
          if (!there) return there.error().to_string();
          auto grown = comm.grow(**there, 4);
          if (grown) return "no error";
          const bool right =
              grown.error().code == Code::kPeerFailed && grown.error().peer == Rank{2};
          return right ? "" : grown.error().to_string();
        });
    REQUIRE(all_ready(directory, 3));
    processes.signal(2, SIGKILL);
    for (const int rank : {0, 1}) {
      INFO("rank " << rank);
      CHECK(processes.wait(rank) == 0);
    }
  }
}

TEST_CASE("the last rank goes on alone") {
  std::mt19937_64 random(1);
  for (const char* const transport : {"shared_memory", "tcp"}) {
    INFO(transport);
    kill_some(transport, {0, 2, 3}, random, 100'000);
  }
}

TEST_CASE("a rank that was stopped too long is left out, and learns it") {
  for (const char* const transport : {"shared_memory", "tcp"}) {
    INFO(transport);
    const ScratchDirectory directory;
    Settings settings;
    settings.transport = transport;
    settings.timeout = 3s;
    RankProcesses processes(
        directory, 3, settings, [&](int rank, Communicator& comm) -> std::string {
          if (auto status = comm.barrier(); !status) return status.error().to_string();
          say_ready(directory, rank);
          Status status;
          for (std::vector<float> data(1000); status;)
            status =
                comm.all_reduce(data.data(), data.data(), 1000, DataType::kFloat32, ReduceOp::kSum);
          auto shrunk = comm.shrink();
          if (rank == 1) return shrunk ? "no error" : "";
          if (!shrunk) return shrunk.error().to_string();
          if (shrunk->members != std::vector{Rank{0}, Rank{2}}) return "wrong members";
          status = shrunk->communicator.barrier();
          return status ? "" : status.error().to_string();
        });
    REQUIRE(all_ready(directory, 3));
    processes.signal(1, SIGSTOP);
    CHECK(processes.wait(0) == 0);
    CHECK(processes.wait(2) == 0);
    processes.signal(1, SIGCONT);
    CHECK(processes.wait(1) == 0);
  }
}

}  // namespace
}  // namespace tutti::test
