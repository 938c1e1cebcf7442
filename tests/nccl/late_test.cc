// A rank that comes five minutes late to an all-reduce: the others wait, as NCCL's do. The clock of
// this program runs fifty times as fast (fast_clock.c).
#include <sys/mman.h>

#include <atomic>
#include <chrono>
#include <new>
#include <string>
#include <thread>

#include "client.h"
#include "support/processes.h"

using namespace std::chrono_literals;

namespace {

constexpr int kRanks = 3, kLate = 1;
constexpr auto kDelay = 5min;

struct Board {
  ncclUniqueId id;
  std::atomic<bool> written{false};
};

/// One rank's life; empty if all is well.
std::string live(int rank, Board& board) {
  using Clock = std::chrono::steady_clock;
  const auto last = [] { return std::string(ncclGetLastError(nullptr)); };
  cudaSetDevice(rank);
  if (rank == 0) {
    if (ncclGetUniqueId(&board.id) != ncclSuccess) return last();
    board.written.store(true, std::memory_order_release);  // The id is there.
  }
  // Acquire: the id that rank 0 wrote. The test's own time limit ends this if it never does.
  while (!board.written.load(std::memory_order_acquire)) std::this_thread::yield();
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, kRanks, board.id, rank) != ncclSuccess) return last();
  // The first call is on time: it makes what the late one waits in.
  for (const bool late : {false, true}) {
    tutti::test::OnDevice<float> data(std::vector<float>(1000, static_cast<float>(rank + 1)));
    const auto begin = Clock::now();
    while (late && rank == kLate && Clock::now() - begin < kDelay) std::this_thread::sleep_for(1ms);
    if (ncclAllReduce(data.data(), data.data(), 1000, ncclFloat, ncclSum, comm, nullptr) !=
            ncclSuccess ||
        cudaStreamSynchronize(nullptr) != cudaSuccess)
      return last();
    ncclResult_t state = ncclSuccess;
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclSuccess) return last();
    if (data.values() != std::vector<float>(1000, 6)) return "wrong sum";
    // Else the others would not have waited for it. A minute less: they may have begun later.
    if (late && Clock::now() - begin < kDelay - 1min) return "nobody was late";
  }
  return ncclCommDestroy(comm) == ncclSuccess ? "" : last();
}

}  // namespace

TEST_CASE("an all-reduce to which a rank comes five minutes late completes, and is right") {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* board = new (memory) Board;
  tutti::test::Processes processes(kRanks, [&](int rank) { return live(rank, *board); });
  for (int rank = 0; rank < kRanks; ++rank) CHECK(processes.wait(rank, 5h) == 0);
  munmap(memory, sizeof(Board));
}
