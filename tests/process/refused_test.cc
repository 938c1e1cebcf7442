// The system refuses something to one rank while it joins, or after. All ranks get an error that
// says what it was, and never a signal, a deadline, or the wrong rank's name.
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cerrno>
#include <cstddef>
#include <memory>
#include <thread>

#include "support/catch.h"
#include "support/processes.h"
#include "tutti/rendezvous.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

/// From now on this process gets `error` for the system call `number`; if `command` is not -1, only
/// if that is its second argument.
bool refuse(unsigned number, unsigned error, int command = -1) {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number, 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, args[1])),
      BPF_JUMP(BPF_JMP | (command < 0 ? BPF_JGE : BPF_JEQ) | BPF_K,
               command < 0 ? 0U : static_cast<unsigned>(command), 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | error),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter, 0, 0) == 0;
}

/// Hands on where segments are a while after that was known: meanwhile the others go on, fail and
/// end. Not so long that this rank looks after its peers by itself, which it does ten times a
/// second.
class Late final : public Rendezvous {
 public:
  explicit Late(std::unique_ptr<Rendezvous> rendezvous) : rendezvous_(std::move(rendezvous)) {}
  Status put(std::string_view key, std::span<const std::byte> value) override {
    return rendezvous_->put(key, value);
  }
  Result<Bytes> get(std::string_view key, Deadline deadline) override {
    auto got = rendezvous_->get(key, deadline);
    if (got && key.find("segments") != std::string_view::npos) std::this_thread::sleep_for(60ms);
    return got;
  }
  Status fail(const Error& error) override { return rendezvous_->fail(error); }
  void enter(Rank me) override { rendezvous_->enter(me); }
  void leave() override { rendezvous_->leave(); }

 private:
  std::unique_ptr<Rendezvous> rendezvous_;
};

Result<Communicator> join_late(const ScratchDirectory& meeting, int rank, int ranks,
                               const Settings& settings) {
  TUTTI_TRY(auto rendezvous, file_rendezvous(meeting.path(), "test"));
  Late late(std::move(rendezvous));
  return Communicator::create(late, Rank{rank}, ranks, settings);
}

/// Ranks of which one is refused something before it joins. All have to say the same.
void all_are_told(const char* transport, int ranks, int which,
                  const std::function<bool()>& take_away, std::string_view part, int late = -1) {
  const ScratchDirectory meeting;
  Processes processes(ranks, [&](int rank) -> std::string {
    if (rank == which && !take_away()) return "nothing was refused";
    Settings settings;
    settings.transport = transport;
    settings.timeout = 60s;
    const auto begin = std::chrono::steady_clock::now();
    const auto comm = rank == late ? join_late(meeting, rank, ranks, settings)
                                   : join(meeting, rank, ranks, settings);
    if (comm) return "has joined";
    const Error& error = comm.error();
    const bool in_time = std::chrono::steady_clock::now() - begin < 40s;
    return in_time && error.code == Code::kSystem && error.what.find(part) != std::string::npos
               ? ""
               : error.to_string();
  });
  for (int rank = 0; rank < ranks; ++rank) CHECK(processes.wait(rank) == 0);
}

TEST_CASE("a rank that can't watch its connections tells the others") {
  all_are_told(
      "tcp", 5, 2, [] { return refuse(SYS_epoll_create1, EMFILE); }, "epoll_create1");
  all_are_told(
      "tcp", 2, 1, [] { return refuse(SYS_eventfd2, EMFILE); }, "eventfd");
}

TEST_CASE("a rank that can't show the others that it lives tells them") {
  all_are_told(
      "shared_memory", 3, 1, [] { return refuse(SYS_fcntl, ENOLCK, F_OFD_SETLK); },
      "see that this process lives");
  // When rank 2 gets to rank 0's memory, rank 0 has heard of the error and ended.
  all_are_told(
      "shared_memory", 3, 1, [] { return refuse(SYS_fcntl, ENOLCK, F_OFD_SETLK); },
      "see that this process lives", 2);
}

TEST_CASE("a limit on the size of files is an error, and no signal") {
  const auto limit = [](rlim_t bytes) {
    const rlimit small{bytes, RLIM_INFINITY};
    return setrlimit(RLIMIT_FSIZE, &small) == 0;
  };
  all_are_told(
      "shared_memory", 3, 0, [&] { return limit(16 << 10); }, "ulimit -f");
  const ScratchDirectory meeting;
  RankProcesses processes(meeting, 2, {}, [&](int, Communicator& comm) -> std::string {
    if (!limit(16 << 10)) return "setrlimit";
    const auto memory = mem_alloc(1 << 20);
    if (memory || memory.error().code != Code::kSystem) return "no error";
    if (memory.error().what.find("ulimit -f") == std::string::npos)
      return memory.error().to_string();
    std::vector<float> data(100'000);
    const Status status =
        comm.all_reduce(data.data(), data.data(), data.size(), DataType::kFloat32, ReduceOp::kSum);
    return status ? "" : status.error().to_string();
  });
  for (int rank = 0; rank < 2; ++rank) CHECK(processes.wait(rank) == 0);
}

TEST_CASE("a rank that gets no thread or no random bytes says so, and does not throw") {
  for (const auto& [number, error, part] : {std::tuple{SYS_clone3, EAGAIN, "can't be started"},
                                            std::tuple{SYS_getrandom, EPERM, "random bytes"}}) {
    INFO(part);
    const auto denied = [n = number, e = error] {
      return refuse(static_cast<unsigned>(n), static_cast<unsigned>(e));
    };
    Processes processes(1, [&, expected = std::string_view(part)](int) -> std::string {
      if (!denied()) return "no seccomp";
      Settings settings;
      settings.transport = "shared_memory";
      const auto comm = Communicator::create(*memory_rendezvous(), Rank{0}, 1, settings);
      if (comm) return "has joined";
      const Error& said = comm.error();
      return said.code == Code::kSystem && said.what.find(expected) != std::string::npos
                 ? ""
                 : said.to_string();
    });
    CHECK(processes.wait(0) == 0);
  }
}

}  // namespace
}  // namespace tutti::test
