// Joining: who can't tells the others why; and what joined ranks leave to the program: its signals,
// and the memory that it has deregistered. Also that settings which programs make are looked at.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "support/catch.h"
#include "support/processes.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// From now on this process gets EPERM when it wants to listen at a socket.
bool forbid_listening() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_listen, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

TEST_CASE("a rank that can't join tells the others why") {
  for (const char* const transport : {"shared_memory", "tcp"}) {
    INFO(transport);
    const ScratchDirectory meeting;
    Processes processes(3, [&](int rank) -> std::string {
      if (rank == 1 && !forbid_listening()) return "no seccomp";
      Settings settings;
      settings.transport = transport;
      const auto comm = join(meeting, rank, 3, settings);
      if (comm) return "has joined";
      const Error& error = comm.error();
      if (error.code != Code::kTimeout && error.what.find("Operation not permitted") != SIZE_MAX)
        return "";
      return error.to_string();
    });
    for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank) == 0);
  }
}

TEST_CASE("settings that a program sets are held to what their variables take") {
  const std::vector<std::pair<const char*, void (*)(Settings&)>> wrong{
      {"timeout_ms", [](Settings& s) { s.timeout = 0ms; }},
      {"timeout_ms", [](Settings& s) { s.timeout = std::chrono::milliseconds::max(); }},
      {"slot_bytes", [](Settings& s) { s.slot_bytes = SIZE_MAX; }},
      {"lanes", [](Settings& s) { s.lanes = 1000; }},
      {"algorithm", [](Settings& s) { s.algorithm = "a b"; }},
  };
  for (const auto& [field, set] : wrong) {
    Settings settings;
    set(settings);
    const auto made = Communicator::in_process(2, settings);
    REQUIRE_FALSE(made);
    CHECK(made.error().code == Code::kInvalidArgument);
    CHECK_THAT(made.error().what, Catch::StartsWith("Settings: " + std::string(field) + "='"));
  }
  Settings empty;
  empty.log = "";  // Is not set, as in the environment.
  CHECK(Communicator::in_process(2, empty));
}

TEST_CASE("as long as possible is not at once") {
  const auto far = std::chrono::steady_clock::now() + 1000h;
  CHECK(Deadline::after(std::chrono::milliseconds::max()).at > far);
  CHECK(Deadline::after(std::chrono::nanoseconds::max()).at > far);
  CHECK(Deadline::after(std::chrono::hours::min()).at < far);
}

/// Signals that each thread of this process holds back, but for the main one's.
std::vector<std::uint64_t> held_by_threads() {
  std::vector<std::uint64_t> held;
  for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
    if (task.path().filename() == std::to_string(getpid())) continue;
    std::ifstream status(task.path() / "status");
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("SigBlk:")) held.push_back(std::stoull(line.substr(7), nullptr, 16));
  }
  return held;
}

TEST_CASE("no thread of the library takes a program's signals") {
  const ScratchDirectory meeting;
  Processes processes(2, [&](int rank) -> std::string {
    auto comm = join(meeting, rank, 2);
    if (!comm) return comm.error().to_string();
    float value = 1;
    auto work = comm->start_all_reduce(&value, &value, 1, DataType::kFloat32, ReduceOp::kSum);
    if (!work) return work.error().to_string();
    if (const Status done = work->wait(); !done) return done.error().to_string();
    const auto held = held_by_threads();
    if (held.size() < 2) return "has only " + std::to_string(held.size()) + " threads";
    for (const std::uint64_t signals : held) {
      for (const int number : {SIGINT, SIGTERM, SIGUSR1, SIGPROF, SIGALRM, SIGCHLD})
        if ((signals >> (number - 1) & 1) == 0) return "takes signal " + std::to_string(number);
      if ((signals >> (SIGSEGV - 1) & 1) != 0) return "holds back SIGSEGV";
    }
    return "";
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank) == 0);
}

std::size_t mappings_of(const std::string& name) {
  std::ifstream maps("/proc/self/maps");
  std::size_t count = 0;
  for (std::string line; std::getline(maps, line);) count += line.find(name) != SIZE_MAX;
  return count;
}

TEST_CASE("peers unmap what was deregistered, and keep what is registered") {
  constexpr int kKept = 3, kRounds = 30;
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const ScratchDirectory meeting;
  Processes processes(2, [&](int rank) -> std::string {
    auto comm = join(meeting, rank, 2);
    if (!comm) return comm.error().to_string();
    for (int round = 0; round < kRounds; ++round) {
      const int fd = memfd_create("ours", MFD_CLOEXEC);
      if (fd < 0 || ftruncate(fd, kBytes) != 0) return "no memfd";
      void* const data = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
      if (data == MAP_FAILED) return "no memory";
      if (auto done = comm->register_memory(data, kBytes, fd, 0); !done)
        return done.error().to_string();
      auto done = comm->all_reduce(data, data, kBytes / 4, DataType::kFloat32, ReduceOp::kSum);
      if (done) done = comm->barrier();
      if (done && round >= kKept) done = comm->deregister_memory(data);
      if (!done) return done.error().to_string();
      if (round >= kKept) munmap(data, kBytes);
      close(fd);
    }
    // Its own, the peer's, and what was not asked for yet.
    const std::size_t mapped = mappings_of("memfd:ours");
    if (mapped < 2 * kKept) return "has unmapped what is in use";
    return mapped <= 2 * kKept + 6 ? "" : "keeps " + std::to_string(mapped) + " mappings";
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank) == 0);
}

}  // namespace
}  // namespace tutti::test
