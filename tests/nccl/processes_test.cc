// Ranks in processes of their own, met by a unique id, over our libnccl.
#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <csignal>
#include <new>

#include "client.h"
#include "compat/nccl/device_api.h"
#include "support/processes.h"

namespace {

constexpr std::size_t kCount = 3000;

/// How the id gets from rank 0 to the others: by any means of the program's.
struct Board {
  ncclUniqueId id;
  std::atomic<int> written{0}, joined{0};
};

/// One rank's life; empty if all is well.
std::string live(int rank, int size, Board& board) {
  const auto last = [] { return std::string(ncclGetLastError(nullptr)); };
  cudaSetDevice(rank % 2);
  if (rank == 0) {
    if (ncclGetUniqueId(&board.id) != ncclSuccess) return last();
    board.written.store(1, std::memory_order_release);  // The id is there.
  }
  // Acquire: the id that rank 0 wrote. The test's own time limit ends this if it never does.
  while (board.written.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, size, board.id, rank) != ncclSuccess) return last();
  void* data = nullptr;
  if (ncclMemAlloc(&data, kCount * sizeof(int)) != ncclSuccess) return last();
  const std::vector<int> mine(kCount, 1 << rank);
  cudaMemcpy(data, mine.data(), kCount * sizeof(int), cudaMemcpyHostToDevice);
  ncclWindow_t window = nullptr;
  if (ncclCommWindowRegister(comm, data, kCount * sizeof(int), &window, NCCL_WIN_COLL_SYMMETRIC) !=
      ncclSuccess)
    return last();
  if (ncclAllReduce(data, data, kCount, ncclInt, ncclSum, comm, nullptr) != ncclSuccess)
    return last();
  // To the next, from the one before, in one group.
  auto* numbers = static_cast<int*>(data);
  ncclGroupStart();
  ncclSend(numbers, 10, ncclInt, (rank + 1) % size, comm, nullptr);
  ncclRecv(numbers + 10, 10, ncclInt, (rank + size - 1) % size, comm, nullptr);
  if (ncclGroupEnd() != ncclSuccess) return last();
  cudaStreamSynchronize(nullptr);
  ncclResult_t state = ncclSuccess;
  if (ncclCommGetAsyncError(comm, &state) != ncclSuccess || state != ncclSuccess) return last();
  std::vector<int> found(kCount);
  cudaMemcpy(found.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost);
  for (const int number : found) {
    if (number != (1 << size) - 1) return "wrong sum: " + std::to_string(number);
  }
  // Kernels here see the sum of the rank before in that rank's memory: it came before the message.
  void* before = nullptr;
  int there = 0;
  if (ncclGetPeerDevicePointer(window, 100 * sizeof(int), (rank + size - 1) % size, &before) !=
      ncclSuccess)
    return last();
  cudaMemcpy(&there, before, sizeof there, cudaMemcpyDeviceToHost);
  if (there != (1 << size) - 1) return "wrong value of a peer: " + std::to_string(there);
  if (ncclCommWindowDeregister(comm, window) != ncclSuccess) return last();
  if (ncclMemFree(data) != ncclSuccess || ncclCommFinalize(comm) != ncclSuccess) return last();
  return ncclCommDestroy(comm) == ncclSuccess ? "" : last();
}

/// Rank 1 aborts while rank 0 waits for it.
std::string abort_one(int rank, Board& board) {
  const auto last = [] { return std::string(ncclGetLastError(nullptr)); };
  cudaSetDevice(rank);
  if (rank == 0) {
    if (ncclGetUniqueId(&board.id) != ncclSuccess) return last();
    board.written.store(1, std::memory_order_release);  // The id is there.
  }
  // acquire: see the id.
  while (board.written.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  ncclComm_t comm = nullptr;
  if (ncclCommInitRank(&comm, 2, board.id, rank) != ncclSuccess) return last();
  if (rank == 0) board.written.store(2, std::memory_order_relaxed);  // It has joined.
  if (rank == 1) {
    // An abort ends whatever the other rank has not returned from, also joining.
    while (board.written.load(std::memory_order_relaxed) != 2) std::this_thread::yield();
    return ncclCommAbort(comm) == ncclSuccess ? "" : last();
  }
  void* data = nullptr;
  if (ncclMemAlloc(&data, 64) != ncclSuccess) return last();
  ncclResult_t state = ncclAllReduce(data, data, 1, ncclInt, ncclSum, comm, nullptr);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (state == ncclSuccess && std::chrono::steady_clock::now() < end) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return last();
  }
  if (state != ncclRemoteError) return "result " + std::to_string(state) + ": " + last();
  return ncclCommAbort(comm) == ncclSuccess ? "" : last();
}

}  // namespace

TEST_CASE("a process that aborts is a remote error of the other") {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* board = new (memory) Board;
  tutti::test::Processes processes(2, [&](int rank) { return abort_one(rank, *board); });
  for (int rank = 0; rank < 2; ++rank) REQUIRE(processes.wait(rank) == 0);
  munmap(memory, sizeof(Board));
}

TEST_CASE("a process for each rank, some on one device") {
  const int size = GENERATE(1, 2, 3, 4);
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* board = new (memory) Board;
  tutti::test::Processes processes(size, [&](int rank) { return live(rank, size, *board); });
  for (int rank = 0; rank < size; ++rank) REQUIRE(processes.wait(rank) == 0);
  munmap(memory, sizeof(Board));
}

namespace {

/// What a rank of three does about the death of `victim`: it shrinks and sums over those left.
std::string survive(int rank, int victim, Board& board) {
  const auto last = [](const char* what) {
    return std::string(what) + ": " + ncclGetLastError(nullptr);
  };
  constexpr int kSize = 3;
  cudaSetDevice(rank);
  if (rank == 0) {
    if (ncclGetUniqueId(&board.id) != ncclSuccess) return last("id");
    board.written.store(1, std::memory_order_release);  // The id is there.
  }
  // acquire: see the id.
  while (board.written.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  ncclComm_t comm = nullptr, less = nullptr;
  if (ncclCommInitRank(&comm, kSize, board.id, rank) != ncclSuccess) return last("init");
  void* data = nullptr;
  if (ncclMemAlloc(&data, kCount * sizeof(int)) != ncclSuccess) return last("memory");
  // What `of` sums over ranks whose bits are `bits`; empty: it is right.
  const auto sum = [&](ncclComm_t of, int bits) -> std::string {
    const std::vector<int> mine(kCount, 1 << rank);
    cudaMemcpy(data, mine.data(), kCount * sizeof(int), cudaMemcpyHostToDevice);
    if (ncclAllReduce(data, data, kCount, ncclInt, ncclSum, of, nullptr) != ncclSuccess)
      return last("sum");
    cudaStreamSynchronize(nullptr);
    std::vector<int> found(kCount);
    cudaMemcpy(found.data(), data, kCount * sizeof(int), cudaMemcpyDeviceToHost);
    const bool right = std::ranges::all_of(found, [bits](int number) { return number == bits; });
    return right ? "" : "wrong sum: " + std::to_string(found[0]);
  };
  if (std::string wrong = sum(comm, 7); !wrong.empty()) return wrong;
  if (rank == victim) raise(SIGKILL);
  // A call that waits for the rank that is dead, or will be.
  if (ncclAllReduce(data, data, kCount, ncclInt, ncclSum, comm, nullptr) != ncclSuccess) {
    const std::string text = ncclGetLastError(comm);
    if (text.find("rank " + std::to_string(victim)) == std::string::npos) return last("blames");
  }
  ncclResult_t state = ncclSuccess;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  while (state == ncclSuccess && std::chrono::steady_clock::now() < end) {
    if (ncclCommGetAsyncError(comm, &state) != ncclSuccess) return last("asking");
  }
  if (state != ncclRemoteError) return "result " + std::to_string(state) + last("");
  if (ncclCommShrink(comm, &victim, 1, &less, nullptr, NCCL_SHRINK_ABORT) != ncclSuccess)
    return last("shrink");
  if (std::string wrong = sum(less, 7 & ~(1 << victim)); !wrong.empty()) return wrong;
  if (ncclMemFree(data) != ncclSuccess || ncclCommAbort(comm) != ncclSuccess) return last("abort");
  return ncclCommDestroy(less) == ncclSuccess ? "" : last("destroy");
}

/// The ranks that were killed are not in the list that the others give.
std::string lose_more(int rank, Board& board) {
  cudaSetDevice(rank);
  if (rank == 0) {
    if (ncclGetUniqueId(&board.id) != ncclSuccess) return "id";
    board.written.store(1, std::memory_order_release);  // The id is there.
  }
  // acquire: see the id.
  while (board.written.load(std::memory_order_acquire) == 0) std::this_thread::yield();
  ncclComm_t comm = nullptr, less = nullptr;
  if (ncclCommInitRank(&comm, 4, board.id, rank) != ncclSuccess) return "init";
  board.joined.fetch_add(1, std::memory_order_relaxed);
  while (board.joined.load(std::memory_order_relaxed) != 4) std::this_thread::yield();
  if (rank == 0 || rank == 2) raise(SIGKILL);
  int out[] = {0};
  if (ncclCommShrink(comm, out, 1, &less, nullptr, NCCL_SHRINK_ABORT) != ncclRemoteError)
    return "it did not fail";
  const std::string text = ncclGetLastError(nullptr);
  if (text.find("rank 2 has been lost too") == std::string::npos) return text;
  if (ncclCommAbort(less) != ncclSuccess) return "abort";
  int all[] = {2, 0}, number = -1;
  if (ncclCommShrink(comm, all, 2, &less, nullptr, NCCL_SHRINK_ABORT) != ncclSuccess)
    return ncclGetLastError(nullptr);
  if (ncclCommUserRank(less, &number) != ncclSuccess || number != rank / 2) return "its number";
  return ncclCommDestroy(less) == ncclSuccess && ncclCommAbort(comm) == ncclSuccess ? "" : "end";
}

}  // namespace

TEST_CASE("whichever process is killed, the others shrink and go on") {
  const int victim = GENERATE(0, 1, 2);  // Rank 0 has made the id.
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* board = new (memory) Board;
  tutti::test::Processes processes(3, [&](int rank) { return survive(rank, victim, *board); });
  for (int rank = 0; rank < 3; ++rank) {
    INFO("rank " << rank << ", killed: " << victim);
    CHECK((processes.wait(rank) == 0) == (rank != victim));
  }
  munmap(memory, sizeof(Board));
}

TEST_CASE("a rank that was lost and is not in the list is named") {
  void* memory =
      mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  REQUIRE(memory != MAP_FAILED);
  auto* board = new (memory) Board;
  tutti::test::Processes processes(4, [&](int rank) { return lose_more(rank, *board); });
  for (int rank = 0; rank < 4; ++rank) {
    INFO("rank " << rank);
    CHECK((processes.wait(rank) == 0) == (rank % 2 == 1));
  }
  munmap(memory, sizeof(Board));
}
