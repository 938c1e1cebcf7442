// A process forks while its other threads are anywhere in the library: the child can use the
// library like a new process.
#include <sys/prctl.h>

#include <atomic>
#include <thread>

#include "support/catch.h"
#include "support/processes.h"
#include "support/sample.h"
#include "transport/local/peer_process.h"

namespace tutti::test {
namespace {

using namespace std::chrono_literals;

constexpr int kChildren = 60;
constexpr unsigned kLimit = 30;  // Seconds that a child may take, on a machine that others use.
const pid_t test_process = getpid();

std::string text(const Status& status) { return status ? "" : status.error().to_string(); }

/// Watches the test's own process as ranks watch a peer on their host.
void watch_peer() {
  Peer peer;
  peer.pid = test_process;
  peer.process[0] = 1;
  (void)PeerProcess::open(peer, own_pid_namespace());
}

/// Does all that a child may do: memory, communicators of its own, asynchronous work.
std::string use_library() {
  watch_peer();
  auto memory = mem_alloc(4096);
  if (!memory) return memory.error().to_string();
  Settings settings;
  settings.transport = "shared_memory";
  settings.timeout = 20s;
  auto comms = Communicator::in_process(2, settings);
  if (!comms) return comms.error().to_string();
  float a = 1, b = 2;
  auto zero = (*comms)[0].start_all_reduce(&a, &a, 1, DataType::kFloat32, ReduceOp::kSum);
  auto one = (*comms)[1].start_all_reduce(&b, &b, 1, DataType::kFloat32, ReduceOp::kSum);
  if (!zero || !one) return "could not start";
  if (auto status = zero->wait(); !status) return text(status);
  if (auto status = one->wait(); !status) return text(status);
  if (auto status = mem_free(*memory); !status) return text(status);
  return a == 3 && b == 3 ? "" : "wrong sum";
}

/// What other threads do meanwhile, until `stop`.
void keep_busy(const std::atomic<bool>& stop, int which) {
  while (!stop) {
    if (which % 4 == 0) {
      watch_peer();
    } else if (which % 2 == 0) {
      if (auto memory = mem_alloc(64 << 10)) (void)mem_free(*memory);
    } else {
      (void)use_library();
    }
  }
}

TEST_CASE("a fork finds no lock of the library held by a thread that is gone") {
  if (kSanitized) {
    WARN("left out: a sanitizer's allocator has locks of its own, which a fork leaves held");
    return;
  }
  // In a process of its own: threads must not have been started before other tests fork.
  Processes process(1, [](int) -> std::string {
    std::atomic<bool> stop{false};
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) threads.emplace_back([&, i] { keep_busy(stop, i); });
    std::string complaint;
    for (int i = 0; i < kChildren && complaint.empty(); ++i) {
      const pid_t child = fork();
      if (child == 0) {
        alarm(kLimit);
        const std::string wrong = use_library();
        if (!wrong.empty()) std::fprintf(stderr, "child %d: %s\n", i, wrong.c_str());
        _exit(wrong.empty() ? 0 : 1);
      }
      int how = 0;
      if (waitpid(child, &how, 0) != child || how != 0)
        complaint = "child " + std::to_string(i) +
                    (WIFSIGNALED(how) ? " hung, or crashed: signal " + std::to_string(WTERMSIG(how))
                                      : " failed");
    }
    stop = true;
    for (std::thread& thread : threads) thread.join();
    return complaint;
  });
  CHECK(process.wait(0) == 0);
}

TEST_CASE("peers of a parent that has died do not find its child in its place") {
  const ScratchDirectory meeting;
  Settings settings;
  settings.transport = "shared_memory";
  RankProcesses processes(meeting, 2, settings, [&](int rank, Communicator& comm) -> std::string {
    if (rank == 1) {
      if (fork() == 0) {  // It lives on for a while.
        prctl(PR_SET_PDEATHSIG, 0);
        for (int i = 0; i < 600 && std::filesystem::exists(meeting.path()); ++i)
          std::this_thread::sleep_for(100ms);
        _exit(0);
      }
      say_ready(meeting, 1);
      if (!comm.barrier()) return "barrier";
      raise(SIGKILL);
    }
    // Rank 1, which would hand out its memory, is dead.
    if (!comm.barrier()) return "barrier";
    auto memory = mem_alloc(1 << 20);
    if (!memory) return "mem_alloc";
    const auto begin = std::chrono::steady_clock::now();
    const Status status =
        comm.all_reduce(*memory, *memory, (1 << 20) / 4, DataType::kFloat32, ReduceOp::kSum);
    const auto took = std::chrono::steady_clock::now() - begin;
    if (status) return "a call without rank 1 is ok";
    return took < 20s && status.error().code == Code::kPeerFailed ? "" : text(status);
  });
  CHECK(processes.wait(1) == 128 + SIGKILL);
  CHECK(processes.wait(0) == 0);
}

}  // namespace
}  // namespace tutti::test
