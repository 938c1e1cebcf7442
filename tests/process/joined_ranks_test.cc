// A rank dies while some have connected to it, and some not yet: those that have joined, and those
// that can't, all blame the rank that died.
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "support/catch.h"
#include "support/processes.h"
#include "support/rendezvous.h"
#include "support/transports.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// The same meeting; `at` is called before and after each value that this rank reads.
class Hooked : public Forwarding {
 public:
  enum class When { kBefore, kAfter };
  using At = std::function<void(Rendezvous& target, std::string_view key, When when)>;
  Hooked(Rendezvous& target, At at) : Forwarding(target), at_(std::move(at)) {}
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    at_(target_, key, When::kBefore);
    auto value = Forwarding::get(key, deadline);
    at_(target_, key, When::kAfter);
    return value;
  }

 private:
  At at_;
};

bool said(const ScratchDirectory& meeting, const std::string& word) {
  return eventually([&] { return std::filesystem::exists(meeting.path() + "/" + word); });
}
void say(const ScratchDirectory& meeting, const std::string& word) {
  std::ofstream(meeting.path() + "/" + word).put('\n');
}

/// From now on this thread accepts no connection, as if it had no descriptors.
void accept_nobody() {
  std::array<sock_filter, 4> rules{{
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_accept4, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EMFILE),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  }};
  sock_fprog program{rules.size(), rules.data()};
  prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
  prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

std::string blames_2(const Error& error) {
  const bool right = error.peer == Rank{2} && error.code == Code::kPeerFailed &&
                     error.what.find("rank 2 (process ") != std::string::npos;
  return right ? "" : error.to_string();
}

/// A rendezvous at that port of loopback, or without one in the directory.
Result<std::unique_ptr<Rendezvous>> meet(const ScratchDirectory& meeting, int port, int rank) {
  return port != 0 ? tcp_rendezvous("127.0.0.1", port, Rank{rank}, Deadline::after(100s))
                   : file_rendezvous(meeting.path(), "test");
}

/// Rank 0 joins. Then rank 2 is killed, so that rank 1 can't join. Then rank 0 makes a call.
void kill_once_one_has_joined(const std::string& transport, bool over_tcp,
                              const std::array<Hooked::At, 3>& at) {
  const ScratchDirectory meeting;
  const int port = over_tcp ? free_port() : 0;
  Processes processes(3, [&](int rank) -> std::string {
    auto rendezvous = meet(meeting, port, rank);
    if (!rendezvous) return rendezvous.error().to_string();
    Settings settings;
    settings.transport = transport;
    settings.timeout = 100s;
    Hooked hooked(**rendezvous, at[static_cast<std::size_t>(rank)]);
    const auto start = std::chrono::steady_clock::now();
    auto comm = Communicator::create(hooked, Rank{rank}, 3, settings);
    if (rank != 0) {
      if (comm) return "has joined";
    } else {
      if (!comm) return "has not joined: " + comm.error().to_string();
      say(meeting, "joined");
      if (!said(meeting, "alone")) return "rank 1 stays";
    }
    const Error error = comm ? comm->barrier().error() : comm.error();
    return std::chrono::steady_clock::now() - start > 50s ? "late: " + error.to_string()
                                                          : blames_2(error);
  });
  REQUIRE(said(meeting, "joined"));
  processes.signal(2, SIGKILL);
  CHECK(processes.wait(2) == 128 + SIGKILL);
  CHECK(processes.wait(1) == 0);
  say(meeting, "alone");
  CHECK(processes.wait(0) == 0);
}

void nothing(Rendezvous&, std::string_view, Hooked::When) {}

TEST_CASE("a rank that has joined over TCP blames the dead one, not the one that could not join") {
  const bool over_tcp = GENERATE(false, true);
  INFO((over_tcp ? "store over TCP" : "directory"));
  // Rank 1 connects to rank 0, and accepts no connection of rank 2.
  const auto at_1 = [](Rendezvous&, std::string_view key, Hooked::When when) {
    if (when == Hooked::When::kAfter && key.ends_with("/tcp/all")) accept_nobody();
  };
  kill_once_one_has_joined("tcp", over_tcp, {nothing, at_1, nothing});
}

TEST_CASE("a rank that has joined shared memory blames the dead one, not who could not join") {
  const bool over_tcp = GENERATE(false, true);
  INFO((over_tcp ? "store over TCP" : "directory"));
  const auto is_last = [](std::string_view key, Hooked::When when) {
    return when == Hooked::When::kBefore && key.ends_with("/mapped/all");
  };
  const auto until_failed = [=](Rendezvous& target, std::string_view key, Hooked::When when) {
    if (!is_last(key, when)) return;
    (void)eventually([&] {
      const auto got = target.get("never put", Deadline::after(5ms));
      return !got && got.error().code != Code::kTimeout;
    });
  };
  kill_once_one_has_joined("shared_memory", over_tcp, {nothing, until_failed, until_failed});
}

TEST_CASE("a rank that is killed while it joins is missed at once though a child of it lives on") {
  const bool over_tcp = GENERATE(false, true);
  const int dying = GENERATE(0, 2);
  INFO((over_tcp ? "store over TCP" : "directory") << ", rank " << dying << " dies");
  const ScratchDirectory meeting;
  const int port = over_tcp ? free_port() : 0;
  Processes processes(3, [&](int rank) -> std::string {
    auto rendezvous = meet(meeting, port, rank);
    if (!rendezvous) return rendezvous.error().to_string();
    Hooked hooked(**rendezvous, [&](Rendezvous&, std::string_view key, Hooked::When when) {
      if (rank != dying || when != Hooked::When::kAfter ||
          !key.ends_with("/segments/" + std::to_string(rank)))
        return;
      if (fork() == 0) {
        (void)eventually([&] { return !std::filesystem::exists(meeting.path()); });
        _exit(0);
      }
      raise(SIGKILL);
    });
    Settings settings;
    settings.timeout = 60s;
    const auto start = std::chrono::steady_clock::now();
    const auto comm = Communicator::create(hooked, Rank{rank}, 3, settings);
    if (comm) return "has joined";
    const bool late = std::chrono::steady_clock::now() - start > 20s;
    const bool right = comm.error().peer == Rank{dying} && comm.error().code == Code::kPeerFailed;
    return late ? "late: " + comm.error().to_string() : right ? "" : comm.error().to_string();
  });
  for (int rank = 0; rank < 3; ++rank)
    CHECK(processes.wait(rank) == (rank == dying ? 128 + SIGKILL : 0));
}

TEST_CASE("a rank that is killed while the others connect to it by UCX is named by all of them") {
  const auto all = transports();
  if (std::none_of(all.begin(), all.end(), [](const auto* one) { return one->name == "ucx"; })) {
    WARN("left out: this build has no UCX");
    return;
  }
  const bool over_tcp = GENERATE(false, true);
  INFO((over_tcp ? "store over TCP" : "directory"));
  const ScratchDirectory meeting;
  const int port = over_tcp ? free_port() : 0;
  Processes processes(3, [&](int rank) -> std::string {
    setenv("UCX_TLS", "shm", 1);  // By which UCX does not notice that a process has ended.
    setenv("UCX_WARN_UNUSED_ENV_VARS", "n", 1);
    auto rendezvous = meet(meeting, port, rank);
    if (!rendezvous) return rendezvous.error().to_string();
    Hooked hooked(**rendezvous, [=](Rendezvous&, std::string_view key, Hooked::When when) {
      if (rank == 2 && when == Hooked::When::kAfter && key.ends_with("/ucx card/all"))
        raise(SIGKILL);
    });
    Settings settings;
    settings.transport = "ucx";
    settings.timeout = 60s;
    const auto start = std::chrono::steady_clock::now();
    const auto comm = Communicator::create(hooked, Rank{rank}, 3, settings);
    if (comm) return "has joined";
    const bool late = std::chrono::steady_clock::now() - start > 40s;
    return late ? "late: " + comm.error().to_string() : blames_2(comm.error());
  });
  for (int rank = 0; rank < 3; ++rank)
    CHECK(processes.wait(rank) == (rank == 2 ? 128 + SIGKILL : 0));
}

}  // namespace
}  // namespace tutti::test
