// Ranks as processes: all collectives, and what happens when a rank dies, stops, lags or disagrees.
#include <algorithm>
#include <fstream>
#include <random>
#include <set>

#include "support/catch.h"
#include "support/cluster.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

std::string error_text(const Status& status) { return status ? "" : status.error().to_string(); }

bool contains(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

/// Calls all-reduces until one fails; returns its error. Is ready once one has worked.
std::string until_failure(Communicator& comm, const ScratchDirectory& directory) {
  std::vector<float> data(1000);
  for (bool first = true;; first = false) {
    if (auto status = comm.all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32,
                                      ReduceOp::kMax);
        !status) {
      return error_text(status);
    }
    if (first) say_ready(directory, comm.rank().value);
  }
}

TEST_CASE("processes: every collective, plain and mapped buffers, in and out of place") {
  for (const int ranks : {2, 3, 8}) {
    const ScratchDirectory meeting;
    Processes processes(ranks, [&](int rank) -> std::string {
      auto comm = join(meeting, rank, ranks);
      if (!comm) return comm.error().to_string();
      for (int i = 0; i < 64; ++i) {
        const Case test{.collective = static_cast<Collective>(i % kCollectiveCount),
                        .type = i % 3 == 0 ? DataType::kBfloat16 : DataType::kFloat32,
                        .op = i % 5 == 0 ? ReduceOp::kPreMulSum : ReduceOp::kSum,
                        .count = i % 7 == 0 ? 7U : 40001U,
                        .ranks = ranks,
                        .root = i % ranks,
                        .in_place = i / kCollectiveCount % 2 == 0,
                        .mapped = i / kCollectiveCount / 2 % 2 == 0};
        if (auto wrong = run_case(*comm, test, static_cast<std::uint64_t>(i)); !wrong.empty())
          return wrong;
      }
      return "";
    });
    for (int rank = 0; rank < ranks; ++rank) CHECK(processes.wait(rank) == 0);
  }
}

TEST_CASE("a rank killed in the middle ends the others, by name, long before the deadline") {
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 3, {}, [&](int, Communicator& comm) -> std::string {
    const std::string error = until_failure(comm, meeting);
    return contains(error, "rank 1") && contains(error, "peer failed") ? ""
                                                                       : "unexpected: " + error;
  });
  REQUIRE(all_ready(meeting, 3));
  processes.signal(1, SIGKILL);
  CHECK(processes.wait(0, 40s) == 0);
  CHECK(processes.wait(2, 40s) == 0);
}

TEST_CASE("a stopped rank is named at the deadline, with the call that it is in") {
  const ScratchDirectory meeting;
  Settings settings;
  settings.timeout = 5s;  // For joining too, on a busy machine.
  RankProcesses processes(meeting, 2, settings, [&](int rank, Communicator& comm) -> std::string {
    const std::string error = until_failure(comm, meeting);
    if (rank == 1) return "";
    return contains(error, "timeout") && contains(error, "rank 1") &&
                   contains(error, "all_reduce of 1000 float32")
               ? ""
               : "unexpected: " + error;
  });
  REQUIRE(all_ready(meeting, 2));
  processes.signal(1, SIGSTOP);
  CHECK(processes.wait(0, 40s) == 0);
}

TEST_CASE("ranks that never arrive are named") {
  const ScratchDirectory meeting;
  Settings settings;
  settings.timeout = 300ms;
  Processes processes(2, [&](int rank) -> std::string {
    const auto comm = join(meeting, rank, 4, settings);
    if (comm) return "a communicator of 4 with 2 ranks";
    const std::string error = comm.error().to_string();
    return contains(error, "timeout") && contains(error, "2") && contains(error, "3")
               ? ""
               : "unexpected: " + error;
  });
  CHECK(processes.wait(0, 20s) == 0);
  CHECK(processes.wait(1, 20s) == 0);
}

TEST_CASE("ranks that disagree on the rank count get an error") {
  const ScratchDirectory meeting;
  Settings settings;
  settings.timeout = 2s;
  Processes processes(2, [&](int rank) -> std::string {
    const auto comm = join(meeting, rank, rank == 0 ? 2 : 3, settings);
    return comm ? "no error" : "";
  });
  CHECK(processes.wait(0, 20s) == 0);
  CHECK(processes.wait(1, 20s) == 0);
}

TEST_CASE("different calls at the same time are an error that says who called what") {
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 2, {}, [&](int rank, Communicator& comm) -> std::string {
    std::vector<float> data(64);
    const std::size_t count = rank == 0 ? 10 : 11;
    const std::string error = error_text(
        comm.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ReduceOp::kSum));
    return contains(error, "of 10 float32") && contains(error, "of 11 float32")
               ? ""
               : "unexpected: " + error;
  });
  CHECK(processes.wait(0, 20s) == 0);
  CHECK(processes.wait(1, 20s) == 0);
}

TEST_CASE("a small call against a large one is an error, not a hang") {
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 2, {}, [&](int rank, Communicator& comm) -> std::string {
    std::vector<float> data(1 << 20);
    const std::size_t count = rank == 0 ? 1 : data.size();
    auto status =
        comm.all_reduce(data.data(), data.data(), count, DataType::kFloat32, ReduceOp::kSum);
    if (status) return "no error";
    // And it stays broken, at once.
    status = comm.barrier();
    return status ? "a barrier on a broken communicator" : "";
  });
  CHECK(processes.wait(0, 20s) == 0);
  CHECK(processes.wait(1, 20s) == 0);
}

TEST_CASE("abort by an idle rank wakes sleeping ones, over shared memory and a network") {
  Settings settings;
  settings.transport = GENERATE("shared_memory", "tcp");
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 3, settings, [&](int rank, Communicator& comm) -> std::string {
    if (rank == 2) {
      std::this_thread::sleep_for(300ms);
      comm.abort("out of patience");
      return "";
    }
    const std::string error = error_text(comm.barrier());
    return contains(error, "aborted") && contains(error, "out of patience") &&
                   contains(error, "rank 2")
               ? ""
               : "unexpected: " + error;
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank, 40s) == 0);
}

TEST_CASE("a forked child may end with its parent's communicator, which goes on") {
  Settings settings;
  settings.transport = GENERATE("shared_memory", "tcp");
  const ScratchDirectory meeting;
  Processes processes(2, [&](int rank) -> std::string {
    auto comm = join(meeting, rank, 2, settings);
    if (!comm) return comm.error().to_string();
    if (auto status = comm->barrier(); !status) return error_text(status);
    if (rank == 0) {
      const pid_t child = fork();
      if (child == 0) {
        { const Communicator inherited = *std::move(comm); }
        _exit(0);
      }
      int how = 0;
      if (waitpid(child, &how, 0) != child || how != 0) return "the child did not end well";
    }
    return error_text(comm->barrier());
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank) == 0);
}

/// Names of the sockets by which processes hand each other memory.
std::set<std::string> our_sockets() {
  std::ifstream file("/proc/net/unix");
  std::set<std::string> names;
  for (std::string line; std::getline(file, line);) {
    if (const auto at = line.find("@tutti-"); at != std::string::npos)
      names.insert(line.substr(at));
  }
  return names;
}

std::set<std::string> our_shared_files() {
  std::set<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", error)) {
    if (const std::string name = entry.path().filename(); contains(name, "tutti"))
      names.insert(name);
  }
  return names;
}

TEST_CASE("killed ranks leave nothing behind") {
  // Other tests run meanwhile: only what appears while these ranks live may be theirs.
  const std::set<std::string> before = our_sockets(), files_before = our_shared_files();
  std::set<std::string> appeared;
  const ScratchDirectory meeting;
  {
    Processes processes(3, [&](int rank) -> std::string {
      auto comm = join(meeting, rank, 3);
      return comm ? until_failure(*comm, meeting) : comm.error().to_string();
    });
    REQUIRE(all_ready(meeting, 3));
    for (const std::string& name : our_sockets()) {
      if (!before.contains(name)) appeared.insert(name);
    }
    for (int rank = 0; rank < 3; ++rank) processes.signal(rank, SIGKILL);
    for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank) == 128 + SIGKILL);
  }
  CHECK(appeared.size() >= 3);
  CHECK(eventually([&] {
    const auto now = our_sockets();
    return std::none_of(appeared.begin(), appeared.end(),
                        [&](const std::string& name) { return now.contains(name); });
  }));
  for (const std::string& name : our_shared_files()) {
    CAPTURE(name);
    CHECK(files_before.contains(name));
  }
}

}  // namespace
}  // namespace tutti::test
