// Ranks as processes, of which some end early: in order after their part of a call, or by SIGKILL.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <fstream>

#include "support/catch.h"
#include "support/processes.h"
#include "support/transports.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr auto kF32 = DataType::kFloat32;

/// Those that join processes.
std::vector<std::string> transports_between_processes() {
  std::vector<std::string> names;
  for (const Transport* transport : transports_here()) {
    if (transport->name != "in_process") names.emplace_back(transport->name);
  }
  return names;
}

std::string error_text(const Status& status) { return status ? "" : status.error().to_string(); }

/// A reduction to rank 0 for which rank 2 is late. Rank 1 does its part and may leave before that.
std::string reduce_to_0(Communicator& comm, std::size_t count) {
  if (auto status = comm.barrier(); !status) return error_text(status);
  if (comm.rank().value == 2) std::this_thread::sleep_for(300ms);
  std::vector<float> data(count, 1), sum(count);
  auto status = comm.reduce(data.data(), sum.data(), count, kF32, ReduceOp::kSum, Rank{0});
  if (!status) return error_text(status);
  if (comm.rank().value != 0 || sum == std::vector<float>(count, 3)) return "";
  return "a wrong sum";
}

TEST_CASE("a rank whose process ended after its part is not missed") {
  Settings settings;
  settings.transport = GENERATE("shared_memory", "tcp");
  const std::size_t count = GENERATE(4, 2000, 20000);
  INFO(settings.transport << ", " << count);
  const ScratchDirectory meeting;
  Processes processes(3, [&](int rank) -> std::string {
    auto comm = join(meeting, rank, 3, settings);
    return comm ? reduce_to_0(*comm, count) : comm.error().to_string();
  });
  for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank) == 0);
}

TEST_CASE("a rank killed after its part of a call is missed in the next one") {
  Settings settings;
  settings.transport = GENERATE("shared_memory", "tcp");
  INFO(settings.transport);
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 3, settings, [&](int rank, Communicator& comm) -> std::string {
    if (auto wrong = reduce_to_0(comm, 4); !wrong.empty()) return wrong;
    if (rank == 1) raise(SIGKILL);
    const std::string error = error_text(comm.barrier());
    const bool missed =
        error.find("rank 1") != std::string::npos && error.find("peer failed") != std::string::npos;
    return missed ? "" : "unexpected: " + error;
  });
  CHECK(processes.wait(0) == 0);
  CHECK(processes.wait(1) == 128 + SIGKILL);
  CHECK(processes.wait(2) == 0);
}

/// As with Yama's ptrace_scope 1, and in most containers.
void refuse_reading_peers() {
  std::array<sock_filter, 5> rules{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 1, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_writev, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog program{rules.size(), rules.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

TEST_CASE("a killed rank is missed at once though a child of it lives on, which sees no peer") {
  Settings settings;
  settings.transport = GENERATE(from_range(transports_between_processes()));
  INFO(settings.transport);
  const ScratchDirectory meeting;
  const std::string over = meeting.path() + "/over";
  Processes processes(3, [&](int rank) -> std::string {
    refuse_reading_peers();
    auto comm = join(meeting, rank, 3, settings);
    if (!comm) return comm.error().to_string();
    if (auto status = comm->barrier(); !status) return error_text(status);
    if (rank == 1) {
      if (fork() == 0) {
        using std::filesystem::exists;
        (void)eventually([&] { return exists(over) || !exists(meeting.path()); });
        _exit(0);
      }
      raise(SIGKILL);
    }
    const std::string error = error_text(comm->barrier());
    const bool missed =
        error.find("rank 1") != std::string::npos && error.find("peer failed") != std::string::npos;
    return missed ? "" : "unexpected: " + error;
  });
  CHECK(processes.wait(0, 40s) == 0);
  CHECK(processes.wait(2, 40s) == 0);
  std::ofstream(over).put('\n');
}

TEST_CASE("a rank killed while others split ends the split at once, by name") {
  Settings settings;
  // Not by UCX: if a peer dies while they connect, UCX 1.13 may end a rank (wireup_ep.c:241).
  settings.transport = GENERATE("shared_memory", "tcp");
  INFO(settings.transport);
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 3, settings, [&](int rank, Communicator& comm) -> std::string {
    say_ready(meeting, rank);
    for (;;) {
      auto part = comm.split(0, -rank);  // In the part ranks have other numbers.
      if (part) continue;
      const bool named = part.error().peer == Rank{2} && part.error().code == Code::kPeerFailed;
      return named ? "" : "unexpected: " + part.error().to_string();
    }
  });
  REQUIRE(all_ready(meeting, 3));
  std::this_thread::sleep_for(std::chrono::milliseconds(100 + Catch::rngSeed() % 100));
  processes.signal(2, SIGKILL);
  CHECK(processes.wait(0, 40s) == 0);
  CHECK(processes.wait(1, 40s) == 0);
}

}  // namespace
}  // namespace tutti::test
