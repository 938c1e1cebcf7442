// Joining: a rank that can't join tells the others why. Joined ranks leave to the program its
// signals and the memory that it has deregistered. Settings that programs make are checked.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <algorithm>

#include <cerrno>
#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "support/catch.h"
#include "support/processes.h"
#include "support/rendezvous.h"
#include "support/sample.h"

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

/// The same meeting, at which this process is killed: before it puts its `last`-th value, or once
/// it has read that many, before it connects to any rank.
class Dying : public Forwarding {
 public:
  Dying(Rendezvous& target, int last, bool by_reading = false)
      : Forwarding(target),
        puts_left_(by_reading ? -1 : last),
        gets_left_(by_reading ? last : -1) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    if (--puts_left_ == 0) kill(getpid(), SIGKILL);
    return Forwarding::put(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    auto value = Forwarding::get(key, deadline);
    if (value && --gets_left_ == 0) kill(getpid(), SIGKILL);
    return value;
  }

 private:
  int puts_left_, gets_left_;
};

/// A rendezvous at that port of loopback, or without one in the directory; all have come to it.
Result<std::unique_ptr<Rendezvous>> meet(const ScratchDirectory& meeting, int port, int rank,
                                         int ranks) {
  auto rendezvous = port != 0 ? tcp_rendezvous("127.0.0.1", port, Rank{rank}, Deadline::after(100s))
                              : file_rendezvous(meeting.path(), "test");
  if (!rendezvous) return rendezvous;
  say_ready(meeting, rank);
  if (!all_ready(meeting, ranks)) return Error{Code::kTimeout, "not all have come"};
  return rendezvous;
}

TEST_CASE("a rank that is killed while it joins is named by all others, long before the deadline") {
  constexpr int kRanks = 3;
  for (const char* const transport : {"shared_memory", "tcp"}) {
    for (const bool over_tcp : {false, true}) {
      for (const int dying : {2, 0}) {
        // If rank 0 ends, so does a store over TCP; and it puts a table after each value.
        for (int last = 1; last <= 3; ++last) {
          INFO(transport << (over_tcp ? ", store over TCP" : ", directory") << ", rank " << dying
                         << " dies with value " << last);
          const ScratchDirectory meeting;
          const int port = free_port();
          Processes processes(kRanks, [&](int rank) -> std::string {
            Settings settings;
            settings.transport = transport;
            settings.timeout = 100s;
            auto rendezvous = meet(meeting, over_tcp ? port : 0, rank, kRanks);
            if (!rendezvous) return rendezvous.error().to_string();
            Dying mortal(**rendezvous, rank == dying ? last : -1);
            // The rank dies before the others have come, or when all wait for it.
            if (rank != dying && last == 2) std::this_thread::sleep_for(100ms);
            const auto start = std::chrono::steady_clock::now();
            const auto comm = Communicator::create(mortal, Rank{rank}, kRanks, settings);
            if (comm) return "has joined";
            const Error& error = comm.error();
            if (std::chrono::steady_clock::now() - start > 50s) return "late: " + error.to_string();
            const bool named = error.peer == Rank{dying} && error.code == Code::kPeerFailed;
            return named ? "" : error.to_string();
          });
          for (int rank = 0; rank < kRanks; ++rank)
            CHECK(processes.wait(rank) == (rank == dying ? 128 + SIGKILL : 0));
        }
      }
    }
  }
}

TEST_CASE("a rank that is killed before it joins is told to all others, long before the deadline") {
  for (const bool over_tcp : {false, true}) {
    for (const bool has_spoken : {false, true}) {
      INFO((over_tcp ? "store over TCP" : "directory")
           << (has_spoken ? ", after its first key" : ", before its first key"));
      const ScratchDirectory meeting;
      const int port = free_port();
      Processes processes(3, [&](int rank) -> std::string {
        auto rendezvous = meet(meeting, over_tcp ? port : 0, rank, 3);
        if (!rendezvous) return rendezvous.error().to_string();
        if (rank == 2) {
          if (has_spoken && !(*rendezvous)->put("mine", {})) return "can't put";
          kill(getpid(), SIGKILL);
        }
        Settings settings;
        settings.timeout = 100s;
        const auto start = std::chrono::steady_clock::now();
        const auto comm = Communicator::create(**rendezvous, Rank{rank}, 3, settings);
        if (comm) return "has joined";
        const Error& error = comm.error();
        if (std::chrono::steady_clock::now() - start > 50s) return "late: " + error.to_string();
        // A directory does not know the rank.
        const bool named = error.peer == (over_tcp ? Rank{2} : Rank{}) &&
                           error.code == Code::kPeerFailed &&
                           error.what.find("has ended before it had joined") != SIZE_MAX &&
                           error.what.find("process ") != SIZE_MAX;
        return named ? "" : error.to_string();
      });
      for (int rank = 0; rank < 3; ++rank)
        CHECK(processes.wait(rank) == (rank == 2 ? 128 + SIGKILL : 0));
    }
  }
}

TEST_CASE("once the store has gone, each request fails at once and names rank 0") {
  const ScratchDirectory meeting;
  const int port = free_port();
  Processes processes(2, [&](int rank) -> std::string {
    auto rendezvous = meet(meeting, port, rank, 2);
    if (!rendezvous) return rendezvous.error().to_string();
    if (rank == 0) kill(getpid(), SIGKILL);
    Settings settings;
    settings.timeout = 100s;
    const auto start = std::chrono::steady_clock::now();
    for (int attempt = 0; attempt < 3; ++attempt) {
      const auto comm = Communicator::create(**rendezvous, Rank{rank}, 2, settings);
      if (comm) return "has joined";
      const Error& error = comm.error();
      if (std::chrono::steady_clock::now() - start > 50s) return "late: " + error.to_string();
      if (error.code != Code::kPeerFailed || error.peer != Rank{0}) return error.to_string();
    }
    return "";
  });
  CHECK(processes.wait(0) == 128 + SIGKILL);
  CHECK(processes.wait(1) == 0);
}

/// The id that `maker` makes, on all ranks.
Result<UniqueId> share_id(const ScratchDirectory& meeting, int rank, int maker) {
  const std::string path = meeting.path() + "/id";
  if (rank == maker) {
    TUTTI_TRY(const UniqueId made, make_unique_id());
    std::ofstream(path + ".part").write(reinterpret_cast<const char*>(made.bytes.data()), 128);
    std::filesystem::rename(path + ".part", path);
  }
  UniqueId id;
  if (!eventually([&] { return std::filesystem::exists(path); }) ||
      !std::ifstream(path).read(reinterpret_cast<char*>(id.bytes.data()), 128))
    return Error{Code::kTimeout, "no id"};
  return id;
}

/// Where the maker of an id dies: before it puts its `last`-th value, or once it has read that
/// many.
struct Death {
  int maker, last;
  bool by_reading;
};

TEST_CASE("once ranks have met, the loss of a unique id's store is blamed on its maker") {
  for (const char* const transport : {"shared_memory", "tcp"}) {
    // Rank 0 puts two values at the first exchange. The last death is while ranks connect.
    for (const auto& [maker, last, by_reading] :
         {Death{0, 3, false}, Death{2, 2, false}, Death{2, 2, true}}) {
      INFO(transport << ", rank " << maker << " has made the id, dies by "
                     << (by_reading ? "reading" : "putting"));
      const ScratchDirectory meeting;
      Processes processes(
          3, [&, who = maker, last = last, by_reading = by_reading](int rank) -> std::string {
            Settings settings;
            settings.transport = transport;
            settings.timeout = 100s;
            const auto id = share_id(meeting, rank, who);
            if (!id) return id.error().to_string();
            auto rendezvous = unique_id_rendezvous(*id, Deadline::after(100s));
            if (!rendezvous) return rendezvous.error().to_string();
            Dying mortal(**rendezvous, rank == who ? last : -1, by_reading);
            const auto comm = Communicator::create(mortal, Rank{rank}, 3, settings);
            if (comm) return "has joined";
            const Error& error = comm.error();
            return error.peer == Rank{who} && error.code == Code::kPeerFailed ? ""
                                                                              : error.to_string();
          });
      for (int rank = 0; rank < 3; ++rank)
        CHECK(processes.wait(rank) == (rank == maker ? 128 + SIGKILL : 0));
    }
  }
}

TEST_CASE("a rank that is killed while the others connect to it is named by all of them") {
  for (const bool over_tcp : {false, true}) {
    for (int last = 1; last <= 2; ++last) {
      INFO((over_tcp ? "store over TCP" : "directory") << ", rank 2 dies with table " << last);
      const ScratchDirectory meeting;
      const int port = free_port();
      Processes processes(3, [&](int rank) -> std::string {
        Settings settings;
        settings.transport = "tcp";
        settings.timeout = 100s;
        auto rendezvous = meet(meeting, over_tcp ? port : 0, rank, 3);
        if (!rendezvous) return rendezvous.error().to_string();
        Dying mortal(**rendezvous, rank == 2 ? last : -1, true);
        const auto start = std::chrono::steady_clock::now();
        const auto comm = Communicator::create(mortal, Rank{rank}, 3, settings);
        if (comm) return "has joined";
        if (std::chrono::steady_clock::now() - start > 50s) return "late";
        return comm.error().peer == Rank{2} ? "" : comm.error().to_string();
      });
      for (int rank = 0; rank < 3; ++rank)
        CHECK(processes.wait(rank) == (rank == 2 ? 128 + SIGKILL : 0));
    }
  }
}

TEST_CASE("in a split, the reason at one rank reaches all of its color, and no other color") {
  const ScratchDirectory meeting;
  Processes processes(4, [&](int rank) -> std::string {
    Settings settings;
    settings.transport = "tcp";
    auto comm = join(meeting, rank, 4, settings);
    if (!comm) return comm.error().to_string();
    if (rank == 3 && !forbid_listening()) return "no seccomp";
    const auto part = comm->split(rank % 2, -rank);  // Rank 3 is rank 0 of its part.
    if (rank % 2 == 0) return part ? "" : part.error().to_string();
    if (part) return "has joined";
    const Error& error = part.error();
    const bool told =
        error.code == Code::kSystem &&
        error.what.find("color 1, whose 2 ranks are 3, 1 of the parent communicator") != SIZE_MAX &&
        error.what.find("Operation not permitted") != SIZE_MAX;
    const bool whose = error.what.find("(rank 0 of the part is rank 3 of the parent)") != SIZE_MAX;
    return told && error.rank == Rank{rank} && (rank == 3 || (error.peer == Rank{3} && whose))
               ? ""
               : error.to_string();
  });
  for (int rank = 0; rank < 4; ++rank) CHECK(processes.wait(rank) == 0);
}

/// From now on these system calls fail with that error.
bool forbid(const std::vector<int>& calls, int error_number) {
  std::vector<sock_filter> program{BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr))};
  for (const int call : calls) {
    program.push_back(BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<unsigned>(call), 0, 1));
    program.push_back(
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | static_cast<unsigned>(error_number)));
  }
  program.push_back(BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  const sock_fprog filter{static_cast<unsigned short>(program.size()), program.data()};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

/// From now on this process gets no new descriptors.
bool forbid_descriptors() {
  const int next = dup(0);
  close(next);
  const rlimit limit{static_cast<rlim_t>(next), static_cast<rlim_t>(next)};
  return next > 0 && setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

TEST_CASE("an error on one rank before the ranks exchange reaches all at once") {
  const std::vector<std::pair<const char*, bool (*)()>> troubles{
      {"threads",
       [] {
         return forbid({SYS_clone, SYS_clone3}, EAGAIN);
       }},
      {"random bytes", [] { return forbid({SYS_getrandom}, ENOSYS); }},
      {"descriptors", forbid_descriptors}};
  for (const auto& trouble : troubles) {
    const char* const name = trouble.first;
    // A sanitizer opens files and starts threads of its own at the end of a process.
    if (kSanitized && trouble.second == forbid_descriptors) continue;
    const auto begin = trouble.second;
    for (const bool over_tcp : {false, true}) {
      INFO(name << (over_tcp ? ", store over TCP" : ", directory"));
      const ScratchDirectory meeting;
      const int port = free_port();
      Processes processes(3, [&](int rank) -> std::string {
        Settings settings;
        settings.timeout = 100s;
        auto rendezvous = meet(meeting, over_tcp ? port : 0, rank, 3);
        if (!rendezvous) return rendezvous.error().to_string();
        if (rank == 1 && !begin()) return "can't forbid it";
        const auto start = std::chrono::steady_clock::now();
        const auto comm = Communicator::create(**rendezvous, Rank{rank}, 3, settings);
        if (std::chrono::steady_clock::now() - start > 50s) return "late";
        if (comm) return std::string(name) == "threads" ? "" : "has joined";
        return comm.error().rank == Rank{1} ? "" : comm.error().to_string();
      });
      for (int rank = 0; rank < 3; ++rank) CHECK(processes.wait(rank) == 0);
    }
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
    // A thread that has just been made holds back all signals until it runs.
    auto held = held_by_threads();
    const auto new_ones = [&] {
      return std::any_of(held.begin(), held.end(),
                         [](std::uint64_t signals) { return (signals >> (SIGSEGV - 1) & 1) != 0; });
    };
    for (int look = 0; look < 200 && new_ones(); ++look) {
      std::this_thread::sleep_for(50ms);
      held = held_by_threads();
    }
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
