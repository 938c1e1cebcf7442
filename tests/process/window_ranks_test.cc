// Windows of real processes: what is put is there, a killed rank ends the window on all others by
// name, and a forked child has no part in it.
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/processes.h"
#include "tutti/window.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr int kRanks = 3;
constexpr std::size_t kBytes = 100000;

Settings settings_of(const char* transport) {
  Settings settings;
  settings.transport = transport;
  return settings;
}

/// One round of everything that a window does, around the ranks; the first error.
Status go_round(Window& window, int rank, std::vector<std::byte>& data) {
  const Rank next{(rank + 1) % kRanks}, last{(rank + kRanks - 1) % kRanks};
  const std::int64_t one = 1;
  TUTTI_RETURN_IF_ERROR(window.wait_signal(next, 1));  // Its place is free.
  TUTTI_RETURN_IF_ERROR(window.put(data.data(), data.size() - 8, next, 8));
  TUTTI_RETURN_IF_ERROR(window.accumulate(&one, 1, DataType::kInt64, ReduceOp::kSum, Rank{0}, 0));
  TUTTI_RETURN_IF_ERROR(window.get(data.data(), 100, next, 8));
  TUTTI_RETURN_IF_ERROR(window.flush(next));
  TUTTI_RETURN_IF_ERROR(window.signal(next));
  TUTTI_RETURN_IF_ERROR(window.wait_signal(last));
  return window.signal(last, 1);
}

std::string run_rounds(Communicator& comm, int rank, int rounds) {
  auto window = Window::create(comm, kBytes);
  if (!window) return window.error().to_string();
  std::vector<std::byte> data(kBytes, static_cast<std::byte>(rank + 1));
  const int last = (rank + kRanks - 1) % kRanks;
  Status status = window->signal(Rank{last}, 1);
  for (int i = 0; i < rounds && status; ++i) status = go_round(*window, rank, data);
  if (status && window->data()[kBytes - 1] != static_cast<std::byte>(last + 1))
    return "something else is there";
  if (status) status = comm.barrier();
  std::int64_t sum = 0;
  if (status) status = window->get(&sum, sizeof sum, Rank{0}, 0);
  if (status && sum != std::int64_t{kRanks} * rounds) return "the sum is " + std::to_string(sum);
  if (status) status = window->close();
  return status ? "" : status.error().to_string();
}

TEST_CASE("rounds of puts, gets, sums and signals between processes") {
  for (const char* const transport : {"shared_memory", "tcp"}) {
    INFO(transport);
    const ScratchDirectory meeting;
    RankProcesses ranks(meeting, kRanks, settings_of(transport),
                        [](int rank, Communicator& comm) { return run_rounds(comm, rank, 50); });
    for (int rank = 0; rank < kRanks; ++rank) CHECK(ranks.wait(rank) == 0);
  }
}

/// Goes on until an error, which has to name rank 1; empty if it does.
std::string go_on(const ScratchDirectory& meeting, Communicator& comm, int rank) {
  auto window = Window::create(comm, kBytes);
  if (!window) return window.error().to_string();
  std::vector<std::byte> data(kBytes);
  say_ready(meeting, rank);
  Status status = window->signal(Rank{(rank + kRanks - 1) % kRanks}, 1);
  while (status) status = go_round(*window, rank, data);
  const Error& error = status.error();
  return error.code == Code::kPeerFailed && error.peer == Rank{1} ? "" : error.to_string();
}

TEST_CASE("a killed rank ends the window on all others, by name and long before the deadline") {
  std::mt19937 random(Catch::rngSeed());
  for (const char* const transport : {"shared_memory", "tcp"}) {
    for (int round = 0; round < 5; ++round) {
      INFO(transport);
      const ScratchDirectory meeting;
      RankProcesses ranks(meeting, kRanks, settings_of(transport),
                          [&](int rank, Communicator& comm) { return go_on(meeting, comm, rank); });
      REQUIRE(all_ready(meeting, kRanks));
      std::this_thread::sleep_for(std::chrono::microseconds(random() % 20000));
      ranks.signal(1, SIGKILL);
      CHECK(ranks.wait(0, 40s) == 0);
      CHECK(ranks.wait(2, 40s) == 0);
    }
  }
}

/// What a forked child is told, in its exit code.
std::string in_child(Window& window) {
  const pid_t child = fork();
  if (child == 0) {
    const char byte = 1;
    const Status put = window.put(&byte, 1, Rank{0}, 0);
    const bool refused = !put && put.error().code == Code::kInvalidArgument &&
                         put.error().what.find("parent process") != std::string::npos;
    { const Window mine = std::move(window); }  // Ends nothing of the parent's.
    _exit(refused ? 0 : 1);
  }
  int status = 0;
  if (waitpid(child, &status, 0) != child) return "no child";
  return WIFEXITED(status) && WEXITSTATUS(status) == 0 ? "" : "the child was not refused";
}

TEST_CASE("a forked child is refused, and its end leaves the window as it is") {
  for (const char* const transport : {"shared_memory", "tcp"}) {
    INFO(transport);
    const ScratchDirectory meeting;
    RankProcesses ranks(meeting, 2, settings_of(transport),
                        [](int rank, Communicator& comm) -> std::string {
                          auto window = Window::create(comm, 8);
                          if (!window) return window.error().to_string();
                          if (std::string wrong = in_child(*window); !wrong.empty()) return wrong;
                          const Rank peer{1 - rank};
                          Status status = window->signal(peer);
                          if (status) status = window->wait_signal(peer);
                          if (status) status = window->close();
                          return status ? "" : status.error().to_string();
                        });
    for (int rank = 0; rank < 2; ++rank) CHECK(ranks.wait(rank) == 0);
  }
}

}  // namespace
}  // namespace tutti::test
