// While ranks join, each says after 2 s what it waits for, also where it waits for no key of the
// meeting: for a process that is stopped, for the kernel, for a store, for a connection.
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "support/catch.h"
#include "support/processes.h"
#include "support/rendezvous.h"

#if !defined(MADV_POPULATE_WRITE)
#define MADV_POPULATE_WRITE 23
#endif

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

std::string log_of(const ScratchDirectory& place, int rank) {
  return place.path() + "/log." + std::to_string(rank);
}
std::string read(const std::string& path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
/// From now on this process says to a file what it says to people.
bool log_to(const std::string& path) { return std::freopen(path.c_str(), "w", stderr) != nullptr; }
bool says(const std::string& path, const std::string& words) {
  return read(path).find(words) != std::string::npos;
}

/// The same meeting, at which this process stops once it has put a key that ends so.
class Stopping : public Forwarding {
 public:
  Stopping(Rendezvous& target, std::string end) : Forwarding(target), end_(std::move(end)) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    Status done = Forwarding::put(key, value);
    if (key.ends_with(end_)) raise(SIGSTOP);
    return done;
  }

 private:
  std::string end_;
};

std::string joined(Rendezvous& rendezvous, int rank, int ranks, const Settings& settings = {}) {
  const auto comm = Communicator::create(rendezvous, Rank{rank}, ranks, settings);
  return comm ? "" : comm.error().to_string();
}

TEST_CASE("a rank says that rank 0's process does not hand out the memory that they share") {
  const ScratchDirectory meeting;
  Processes processes(2, [&](int rank) -> std::string {
    if (!log_to(log_of(meeting, rank))) return "no log";
    auto rendezvous = file_rendezvous(meeting.path(), "test");
    if (!rendezvous) return rendezvous.error().to_string();
    Stopping stopping(**rendezvous, rank == 0 ? "segments/all" : "never");
    return joined(stopping, rank, 2);
  });
  const std::string words =
      "joining: rank 1 has waited 2.0 s: the process of rank 0 has not handed out the memory that "
      "the ranks share (is it stopped?); it goes on waiting";
  CHECK(eventually([&] { return says(log_of(meeting, 1), words); }, 60s));
  INFO(read(log_of(meeting, 1)));
  processes.signal(0, SIGCONT);
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank) == 0);
  CHECK_FALSE(says(log_of(meeting, 0), "joining: "));
}

/// From now on another thread of this process, which this one starts, answers the kernel when this
/// one asks for pages: `go_on` first. False: the system has no such thing for us.
bool delay_pages(const std::function<void()>& go_on) {
  static std::atomic<int> listener{-1};
  std::thread([go_on] {
    while (listener == -1) std::this_thread::sleep_for(1ms);
    for (;;) {
      seccomp_notif asked{};
      if (ioctl(listener, SECCOMP_IOCTL_NOTIF_RECV, &asked) != 0) continue;
      go_on();
      seccomp_notif_resp answer{};
      answer.id = asked.id;
      answer.flags = SECCOMP_USER_NOTIF_FLAG_CONTINUE;
      ioctl(listener, SECCOMP_IOCTL_NOTIF_SEND, &answer);
    }
  }).detach();
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_madvise, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[2])),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, MADV_POPULATE_WRITE, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_USER_NOTIF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return false;
  const long made =
      syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_NEW_LISTENER, &filter);
  listener = static_cast<int>(made);
  return made >= 0;
}

TEST_CASE("ranks say that the system does not give them their memory") {
  const ScratchDirectory meeting;
  Processes processes(2, [&](int rank) -> std::string {
    const std::string log = log_of(meeting, rank);
    if (!log_to(log)) return "no log";
    const std::string words =
        "joining: rank " + std::to_string(rank) +
        " has waited 2.0 s: the system has not given it its part of the memory that the ranks "
        "share (is memory short?); it goes on waiting";
    std::atomic<bool> said{false};
    const bool delays = delay_pages([&] {
      if (!said) said = eventually([&] { return says(log, words); }, 60s);
    });
    if (!delays) return "no seccomp";
    auto rendezvous = file_rendezvous(meeting.path(), "test");
    if (!rendezvous) return rendezvous.error().to_string();
    const std::string outcome = joined(**rendezvous, rank, 2);
    return said ? outcome : "it says: " + read(log);
  });
  for (int rank = 0; rank < 2; ++rank) {
    INFO(read(log_of(meeting, rank)));
    CHECK(processes.wait(rank) == 0);
  }
}

TEST_CASE("a rank that waits for the store, or for a connection, says so") {
  for (const bool over_tcp : {true, false}) {
    const ScratchDirectory meeting;
    const int port = free_port();
    REQUIRE(port != 0);
    const std::string log = log_of(meeting, 1);
    Processes processes(2, [&](int rank) -> std::string {
      if (!log_to(log_of(meeting, rank))) return "no log";
      // Rank 0 comes once rank 1 has said that it waits.
      if (rank == 0 && over_tcp && !eventually([&] { return says(log, "waiting"); }, 60s))
        return "rank 1 says nothing";
      auto rendezvous = over_tcp
                            ? tcp_rendezvous("127.0.0.1", port, Rank{rank}, Deadline::after(100s))
                            : file_rendezvous(meeting.path(), "test");
      if (!rendezvous) return rendezvous.error().to_string();
      Stopping stopping(**rendezvous, rank == 0 && !over_tcp ? "/tcp/all" : "never");
      Settings settings;
      settings.transport = "tcp";
      return joined(stopping, rank, 2, settings);
    });
    const std::string words = over_tcp ? "joining: rank 1 has waited 2."
                                       : "joining: rank 1 has waited 2.0 s: no connection";
    CHECK(eventually([&] { return says(log, words); }, 60s));
    INFO(read(log));
    CHECK(says(log, over_tcp ? "rank 0's store at 127.0.0.1:" : "with rank 0: rank 0 ("));
    if (!over_tcp) processes.signal(0, SIGCONT);
    for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank) == 0);
  }
}

}  // namespace
}  // namespace tutti::test
